"""What a plan is compared as: mixed plans of one length that are built in different ways are not of the same shape."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.task import Task
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.evals.reward import RewardWeights
from shikisha.evals.taskset import TaskItem
from shikisha.training.grpo import compute_advantages, step_advantages
from shikisha.training.metrics import rollout_metrics
from shikisha.training.plan_reward import PlanScorer, ScoredPlan, plan_ranks
from shikisha.training.process_group import ProcessGroup
from shikisha.training.rollout import PlanPrompt, RolloutGroup, second_round_prompts
from shikisha.training.settings import AdvantageSettings, ComparisonScope, TrainSettings
from shikisha.training.trl_batch import gather_groups
from support import member, pool_of

VOTE_FIRST = ((), (), (), (0, 1, 2), (3,))
VOTE_LAST = ((), (0,), (0,), (0,), (1, 2, 3))


def plan(*access: tuple[int, ...]) -> Plan:
    return Plan(tuple(Step(f"do part {place}", 0, seen) for place, seen in enumerate(access)))


def item() -> TaskItem:
    grader = build_grader(AnswerForm.NUMBER, {"answer": "1"}, GraderTools(), "test")
    return TaskItem(Task("how many"), grader, "all", None, pool_of(member("one", "1")))


async def scored(text: str) -> ScoredPlan:
    return await PlanScorer(RewardWeights()).score(text, item())


class Alike(ProcessGroup):
    """Two processes, the other of which says what this one does."""

    def gather_texts(self, text: str) -> list[str]:
        return [text] * self.count


def rounds(**second: object) -> tuple[list[list[ScoredPlan]], TrainSettings]:
    """A task's first round and what it was gone on with, and another task; and the settings for them."""
    found = [[ScoredPlan(0.5, shape="one 1"), ScoredPlan(1.0, shape="one 1")], [ScoredPlan(1.0, shape="one 1")] * 2]
    found.append([ScoredPlan(0.5, shape="one 1"), ScoredPlan(1.0, shape="one 1")])
    return found, TrainSettings.model_validate({"second": {"share": 0.5, **second}})


TASKS, SECOND = ("a", "a", "b"), (False, True, False)


def test_a_first_round_that_is_gone_on_with_counts_for_less() -> None:
    found, settings = rounds(discount=0.25)
    bare = settings.model_copy(update={"grpo": settings.grpo.model_copy(update={"scaled": False})})
    wished, _ = step_advantages(found, SECOND, bare, 0, TASKS)
    assert wished == pytest.approx([-0.1875, 0.1875, 0.0, 0.0, -0.25, 0.25])
    alone, _ = step_advantages(found, (False, False, False), bare, 0, TASKS)
    assert alone == pytest.approx([-0.25, 0.25, 0.0, 0.0, -0.25, 0.25])


def test_rewards_may_be_normalized_across_the_rounds_of_a_task() -> None:
    found, settings = rounds(discount=0.25, across=True)
    wished, _ = step_advantages(found, SECOND, settings, 0, TASKS)
    rewards = np.array([0.375, 0.75, 1.0, 1.0])
    assert wished[:4] == pytest.approx((rewards - rewards.mean()) / rewards.std())
    assert wished[4:] == pytest.approx([-1.0, 1.0])
    apart, settings = rounds()
    wished, _ = step_advantages(apart, SECOND, settings, 0, TASKS)
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
    assert plan_ranks(plan(*access)) == ranks


async def test_mixed_plans_of_one_length_are_shown_as_one_shape_and_compared_as_two() -> None:
    first, last = [await scored(render_plan_lists(plan(*access))) for access in (VOTE_FIRST, VOTE_LAST)]
    assert first.shape == last.shape == "mixed 5"
    assert (first.comparison_key, last.comparison_key) == ("mixed 3-1-1 5", "mixed 1-3-1 5")
    assert rollout_metrics([first, last])["shapes"] == {"mixed 5": 1.0}  # a share
    shapes = [one.comparison_key for one in (first, first, last, last)]
    found = compute_advantages(
        np.array([1.0, 0.5, 1.0, 0.0]),
        np.zeros(4, np.int64),
        AdvantageSettings(ComparisonScope.WITHIN, scale_by_std=False),
        shapes,
    )
    assert found == pytest.approx([0.25, -0.25, 0.5, -0.5])  # each with its like


async def test_what_is_no_plan_is_compared_by_the_steps_that_it_was_to_have() -> None:
    found = await scored('model_id = [0, 0, 9]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], [], []]')
    assert not found.valid
    assert found.comparison_key == "no plan 3"


async def test_what_other_processes_scored_comes_back_as_it_was_but_for_what_was_performed() -> None:
    found = (await scored(render_plan_lists(plan(*VOTE_FIRST))), await scored("no plan at all"))
    nothing = torch.zeros(2, 1)
    heard = gather_groups(
        Alike(0, 2), [RolloutGroup(PlanPrompt(item()), [1], nothing.long(), nothing.bool(), nothing, ("a", "b"), found)]
    )
    assert [one.rank for one in heard] == [0, 1]
    told = tuple(replace(one, rounds=()) for one in found)
    assert all(one.found == told for one in heard)


async def test_second_rounds_go_on_from_the_policy_s_own_first_rounds_and_from_no_scout_s() -> None:
    texts = tuple(render_plan_lists(plan(*access)) for access in (((),), ((), (0,)), VOTE_FIRST))
    found = tuple([await scored(text) for text in texts])
    nothing = torch.zeros(3, 1)
    group = RolloutGroup(PlanPrompt(item()), [1], nothing.long(), nothing.bool(), nothing, texts, found)
    follow = {"grpo": {"group": 3}, "second": {"share": 1.0, "firsts": 4}}
    exploring = {**follow, "grpo": {"group": 3, "phases": [{"begin": 0, "compare": "group", "explore": 0.34}]}}
    for table, followed in ((follow, texts), (exploring, texts[:2])):
        prompts = second_round_prompts([group], TrainSettings.model_validate(table), 0)
        assert {one.texts for one in prompts} == {(text,) for text in followed}
