"""A plan that is performed several times is worth the mean of what it came to."""

from dataclasses import replace

import pytest

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.task import Task
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.evals.reward import RewardWeights
from shikisha.evals.taskset import TaskItem
from shikisha_train.plan_reward import PlanScorer, ScoredPlan
from support import Answer, member, pool_of, seen

TEXT = render_plan_lists(Plan((Step("answer", 0),)))


async def scored(
    times: int, *answers: Answer, text: str = TEXT, before: tuple[str, ...] = ()
) -> tuple[ScoredPlan, int]:
    """What the text is worth where a worker says one answer after another, and how often it was asked."""
    said = iter(answers)
    worker = member("turns", lambda _: next(said), attempts=1)
    item = TaskItem(
        Task("how many"),
        build_grader(AnswerForm.NUMBER, {"answer": "1"}, GraderTools(), "test"),
        "all",
        None,
        pool_of(worker),
    )
    return await PlanScorer(RewardWeights()).score(text, item, before, times), len(seen(worker))


async def test_the_mean_reward_counts_and_all_else_is_the_firsts() -> None:
    found, asked = await scored(4, "1", "0", "0", "1")
    assert found.total == pytest.approx((1 + 0.5 + 0.5 + 1) / 4)
    assert found.right
    assert asked == 4


async def test_performances_differ_in_their_runs_and_so_in_their_luck() -> None:
    worker = member("turns", "1")
    item = TaskItem(
        Task("how many"),
        build_grader(AnswerForm.NUMBER, {"answer": "1"}, GraderTools(), "test"),
        "all",
        None,
        pool_of(worker),
    )
    await PlanScorer(RewardWeights()).score(TEXT, item, times=3)
    assert len({request.key for request in seen(worker)}) == 3


async def test_what_a_worker_spoilt_is_no_part_of_the_mean() -> None:
    away = WorkerError(FaultKind.SERVER, "away")
    assert (await scored(3, "1", away, "0"))[0].total == pytest.approx(0.75)
    assert (await scored(2, away, away))[0].total is None


async def test_what_is_no_plan_is_not_tried_again() -> None:
    found, asked = await scored(3, text="nothing")
    assert (found.valid, found.total, asked) == (False, 0.0, 0)


async def test_a_second_round_answers_the_first_round_that_it_was_shown() -> None:
    other = render_plan_lists(Plan((Step("answer once more", 0),)))
    found, asked = await scored(3, "0", "1", text=other, before=(TEXT,))
    assert (found.right, asked) == (True, 2)
    found, asked = await scored(3, "0", "1", text=TEXT, before=(TEXT,))  # what was performed is not performed again
    assert (found.right, asked) == (False, 1)


async def test_where_workers_are_steady_once_is_enough_and_the_mean_is_the_same_to_the_last_bit() -> None:
    worker = member("turns", "0.1")
    item = TaskItem(
        Task("how many"),
        build_grader(AnswerForm.NUMBER, {"answer": "1"}, GraderTools(), "test"),
        "all",
        None,
        pool_of(worker),
    )
    often = await PlanScorer(RewardWeights(cost=0.3)).score(TEXT, item, times=7)
    once = await PlanScorer(RewardWeights(cost=0.3)).score(TEXT, replace(item, steady=True), times=7)
    assert once.total == often.total
    assert len(seen(worker)) == 7 + 1
