"""A Plan that exists is well formed, says its shape, and survives its JSON twin."""

import json

import pytest
from hypothesis import given
from test_plan_parser_fuzz import plans

from shikisha.core.errors import PlanError
from shikisha.core.plan import Plan, Step
from support import plan_of


@pytest.mark.parametrize(
    ("step", "where", "what"),
    [
        (Step("a", -1), "model_id[1]", "a worker's ordinal is a whole number from 0, not -1"),
        (Step("a", True), "model_id[1]", "not True"),
        (Step("a", 0.0), "model_id[1]", "not 0.0"),  # type: ignore[arg-type]  # the point of it
        (Step(" \n", 0), "subtasks[1]", "the subtask is empty"),
        (Step("a", 0, (1,)), "access_list[1][0]", "step 1 can only see earlier steps, not step 1"),
        (Step("a", 0, (0, 7)), "access_list[1][1]", "step 1 can only see earlier steps, not step 7"),
        (Step("a", 0, (0, 0)), "access_list[1][1]", "step 0 is named twice or out of order"),
        (Step("a", 0, (-1,)), "access_list[1][0]", "a step's index is a whole number from 0, not -1"),
        (Step("a", 0, (False,)), "access_list[1][0]", "not False"),
    ],
)
def test_a_step_that_cannot_be_performed_makes_no_plan(step: Step, where: str, what: str) -> None:
    with pytest.raises(PlanError) as caught:
        Plan((Step("fine", 0), step))
    assert caught.value.where == where
    assert what in caught.value.what


def test_invariant_1_a_plan_fits_only_a_pool_that_has_its_ordinals() -> None:
    plan = plan_of((0, []), (2, []))
    plan.check_pool(3)
    with pytest.raises(PlanError, match=r"model_id\[1\]: no worker 2: the pool has ordinals 0 to 1"):
        plan.check_pool(2)
    with pytest.raises(PlanError, match=r"model_id\[0\]: no worker 0: the pool is empty"):
        plan.check_pool(0)


def test_the_empty_plan_ships_and_fits_every_pool() -> None:
    assert Plan().ships
    assert not plan_of((0, [])).ships
    Plan().check_pool(0)


@pytest.mark.parametrize(
    ("access", "shape"),
    [
        ([], "ship"),
        ([[]], "one-shot"),
        ([[], []], "independent"),
        ([[], [0]], "chain"),
        ([[], [0], [0, 1]], "chain"),
        ([[], [], [0, 1]], "fan-out+join"),
        ([[], [], [], [0, 1, 2]], "fan-out+join"),
        ([[], [], [1]], "mixed"),
        ([[], [0], [0]], "mixed"),
        ([[], [0], [0], [1, 2]], "mixed"),
    ],
)
def test_a_plan_names_its_shape(access: list[list[int]], shape: str) -> None:
    assert plan_of(*[(0, seen) for seen in access]).topology() == shape


@given(plans())
def test_a_plan_survives_its_json_twin(plan: Plan) -> None:
    assert Plan.loads(plan.dumps()) == plan


def test_the_twin_is_the_published_format() -> None:
    twin = Plan((Step("find", 2), Step("add é", 0, (0,)))).dumps()
    assert json.loads(twin) == {
        "steps": [
            {"worker": 2, "subtask": "find", "access": []},
            {"worker": 0, "subtask": "add é", "access": [0]},
        ]
    }
