"""Forms of plans: each is known again by its plan, and is said in a line that no list is read from."""

import pytest

from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import render_plan_lists
from shikisha.simulation.editions import LARGE, SMALL
from shikisha.simulation.plan_templates import (
    LongPlanForm,
    PlanForm,
    WorkerAssignment,
    edition_forms,
    form_line,
    form_tokens,
    nearest_form,
    plain_form,
    plan_of_form,
)

KINDS = ("fact", "gauge", "text", "date", "comparison")


@pytest.mark.parametrize("form", edition_forms(LARGE))
@pytest.mark.parametrize("arm", [1, 2, 3])
def test_a_plan_is_known_by_its_form(form: PlanForm | LongPlanForm, arm: int) -> None:
    plan = plan_of_form(form, WorkerAssignment(KINDS, (0, 1, 2, 3, 4), 5, 4, arm=arm))
    assert nearest_form(plan) is form


@pytest.mark.parametrize("form", edition_forms(LARGE))
def test_the_line_that_names_a_form_changes_nothing_of_the_plan(form: PlanForm | LongPlanForm) -> None:
    plan = plan_of_form(form, WorkerAssignment(KINDS, (0, 1, 2, 3, 4), 5, 4))
    assert parse_plan(form_line(form) + render_plan_lists(plan), 6) == plan


def test_a_vote_has_all_its_readings_from_one_worker() -> None:
    plan = plan_of_form(PlanForm.VOTE, WorkerAssignment(KINDS, (3, 1, 2), 5, 4))
    assert [step.worker for step in plan.steps] == [3, 3, 3, 3, 5]


def test_what_is_done_one_by_one_is_a_chain_or_a_join() -> None:
    assert [plain_form(count, joined=False) for count in (1, 2, 3)] == [
        PlanForm.ONE,
        PlanForm.CHAIN_2,
        PlanForm.CHAIN_3,
    ]
    assert [plain_form(count, joined=True) for count in (3, 4, 5)] == [
        PlanForm.JOIN,
        LongPlanForm.JOIN_4,
        LongPlanForm.JOIN_5,
    ]


def test_a_tokenizer_can_keep_every_line_as_one_piece() -> None:
    for edition in (SMALL, LARGE):
        assert form_tokens(edition) == tuple(f"\n{form_line(form)[:-1]}" for form in edition_forms(edition))
