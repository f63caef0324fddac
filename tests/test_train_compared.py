"""What a plan is compared as: mixed plans of one length that are built in different ways are not of the same shape."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from shikisha.grade import Tools
from shikisha.grade.canon import Form
from shikisha.grade.registry import checker
from shikisha.plan import Plan, Step
from shikisha.prompt import render_lists
from shikisha.reward import Weights
from shikisha.task import Task
from shikisha.taskset import Item
from shikisha.train.advantage import Compare, Comparison, advantages
from shikisha.train.batch import Asked, Group, gone_on
from shikisha.train.compared import compared
from shikisha.train.crew import Crew
from shikisha.train.processes import everyones
from shikisha.train.progress import counted
from shikisha.train.scoring import Scored, Scorer, ranks_of
from shikisha.train.settings import TrainSettings
from support import member, pool_of

VOTE_FIRST = ((), (), (), (0, 1, 2), (3,))
VOTE_LAST = ((), (0,), (0,), (0,), (1, 2, 3))


def plan(*access: tuple[int, ...]) -> Plan:
    return Plan(tuple(Step(f"do part {place}", 0, seen) for place, seen in enumerate(access)))


def item() -> Item:
    grader = checker(Form.NUMBER, {"answer": "1"}, Tools(), "test")
    return Item(Task("how many"), grader, "all", None, pool_of(member("one", "1")))


async def scored(text: str) -> Scored:
    return await Scorer(Weights()).score(text, item())


class Alike(Crew):
    """Two processes, the other of which says what this one does."""

    def texts(self, text: str) -> list[str]:
        return [text] * self.count


def rounds(**second: object) -> tuple[list[list[Scored]], TrainSettings]:
    """A task's first round and what it was gone on with, and another task; and the settings for them."""
    found = [[Scored(0.5, shape="one 1"), Scored(1.0, shape="one 1")], [Scored(1.0, shape="one 1")] * 2]
    found.append([Scored(0.5, shape="one 1"), Scored(1.0, shape="one 1")])
    return found, TrainSettings.model_validate({"second": {"share": 0.5, **second}})


TASKS, SECOND = ("a", "a", "b"), (False, True, False)


def test_a_first_round_that_is_gone_on_with_counts_for_less() -> None:
    found, settings = rounds(discount=0.25)
    bare = settings.model_copy(update={"grpo": settings.grpo.model_copy(update={"scaled": False})})
    wished, _ = compared(found, SECOND, bare, 0, TASKS)
    assert wished == pytest.approx([-0.1875, 0.1875, 0.0, 0.0, -0.25, 0.25])
    alone, _ = compared(found, (False, False, False), bare, 0, TASKS)
    assert alone == pytest.approx([-0.25, 0.25, 0.0, 0.0, -0.25, 0.25])


def test_rewards_may_be_normalized_across_the_rounds_of_a_task() -> None:
    found, settings = rounds(discount=0.25, across=True)
    wished, _ = compared(found, SECOND, settings, 0, TASKS)
    rewards = np.array([0.375, 0.75, 1.0, 1.0])
    assert wished[:4] == pytest.approx((rewards - rewards.mean()) / rewards.std())
    assert wished[4:] == pytest.approx([-1.0, 1.0])
    apart, settings = rounds()
    wished, _ = compared(apart, SECOND, settings, 0, TASKS)
    assert wished == pytest.approx([-1.0, 1.0, 0.0, 0.0, -1.0, 1.0])


@pytest.mark.parametrize(
    ("access", "ranks"),
    [
        ((), ()),
        (((),), (1,)),
        (((), (), ()), (3,)),
        (((), (0,), (1,)), (1, 1, 1)),
        (((), (0,), (0, 1)), (1, 1, 1)),
        (((), (), (0, 1)), (2, 1)),
        (VOTE_FIRST, (3, 1, 1)),
        (VOTE_LAST, (1, 3, 1)),
        (((), (0,), (), (1, 2)), (2, 1, 1)),  # a step's rank is that of the longest way to it
    ],
)
def test_ranks_are_how_many_steps_wait_for_none_for_those_and_so_on(
    access: tuple[tuple[int, ...], ...], ranks: tuple[int, ...]
) -> None:
    assert ranks_of(plan(*access)) == ranks


async def test_mixed_plans_of_one_length_are_shown_as_one_shape_and_compared_as_two() -> None:
    first, last = [await scored(render_lists(plan(*access))) for access in (VOTE_FIRST, VOTE_LAST)]
    assert first.shape == last.shape == "mixed 5"
    assert (first.compared, last.compared) == ("mixed 3-1-1 5", "mixed 1-3-1 5")
    assert counted([first, last])["shapes"] == {"mixed 5": 1.0}  # a share
    shapes = [one.compared for one in (first, first, last, last)]
    found = advantages(
        np.array([1.0, 0.5, 1.0, 0.0]), np.zeros(4, np.int64), Comparison(Compare.WITHIN, scaled=False), shapes
    )
    assert found == pytest.approx([0.25, -0.25, 0.5, -0.5])  # each with its like


async def test_what_is_no_plan_is_compared_by_the_steps_that_it_was_to_have() -> None:
    found = await scored('model_id = [0, 0, 9]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], [], []]')
    assert not found.valid
    assert found.compared == "no plan 3"


async def test_what_other_processes_scored_comes_back_as_it_was_but_for_what_was_performed() -> None:
    found = (await scored(render_lists(plan(*VOTE_FIRST))), await scored("no plan at all"))
    nothing = torch.zeros(2, 1)
    heard = everyones(
        Alike(0, 2), [Group(Asked(item()), [1], nothing.long(), nothing.bool(), nothing, ("a", "b"), found)]
    )
    assert [one.rank for one in heard] == [0, 1]
    told = tuple(replace(one, rounds=()) for one in found)
    assert all(one.found == told for one in heard)


async def test_second_rounds_go_on_from_the_policy_s_own_first_rounds_and_from_no_scout_s() -> None:
    texts = tuple(render_lists(plan(*access)) for access in (((),), ((), (0,)), VOTE_FIRST))
    found = tuple([await scored(text) for text in texts])
    nothing = torch.zeros(3, 1)
    group = Group(Asked(item()), [1], nothing.long(), nothing.bool(), nothing, texts, found)
    assert {one.texts for one in gone_on(group, 4)} == {(text,) for text in texts}
    assert {one.texts for one in gone_on(group, 4, scouts=1)} == {(text,) for text in texts[:2]}
