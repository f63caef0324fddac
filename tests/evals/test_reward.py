"""Rewards: named parts of a run's worth, and runs that have none."""

import pytest

from shikisha.core.budget import Price, Usage
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.events import AnswerGraded, GradeMark, RewardGiven
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Reply
from shikisha.evals.graders import Grade, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.evals.reward import (
    PAPER_WEIGHTS,
    RewardWeights,
    critical_path,
    grade_events,
    has_external_failure,
    run_reward,
    step_workers,
)
from support import member, plan_of, pool_of, run_plans

RIGHT, WRONG = grade_from_score("given", 1.0, "A", ""), grade_from_score("given", 0.0, "B", "")
NOTHING = no_answer_grade("given", "")
USED = Reply("done", Usage(1_000_000, 0))


async def run_of(answer: str | Reply | WorkerError = USED, *plans: Plan) -> Run:
    pool = pool_of(member("ann", answer, price=Price(2.0), attempts=1), member("bob", "fine"))
    return await run_plans(pool, *(plans or (plan_of((0, ())),)))


@pytest.mark.parametrize(("grade", "total"), [(RIGHT, 1.0), (WRONG, 0.5), (NOTHING, 0.5)])
async def test_the_papers_reward_is_a_half_for_a_plan_and_one_for_a_right_answer(grade: Grade, total: float) -> None:
    given = run_reward(await run_of(), grade)
    assert given is not None
    assert given.total == total


async def test_a_conductor_that_writes_no_plan_gets_nothing() -> None:
    run = await run_plans(pool_of(ann="done"), plan_of((7, ())))
    given = run_reward(run, NOTHING)
    assert given is not None
    assert (given.parts, given.total) == ({}, 0)


@pytest.mark.parametrize(("grade", "always", "cost"), [(RIGHT, False, -1.0), (WRONG, False, 0.0), (WRONG, True, -1.0)])
async def test_cost_is_taken_from_right_answers_only_unless_told_otherwise(
    grade: Grade, always: bool, cost: float
) -> None:
    given = run_reward(await run_of(), grade, RewardWeights(format=0.0, correct=1.0, cost=0.5, always=always))
    assert given is not None
    assert given.parts.get("cost", 0.0) == cost  # two dollars


async def test_latency_counts_the_runs_seconds() -> None:
    run = await run_of()
    given = run_reward(run, RIGHT, RewardWeights(latency=10.0))
    assert given is not None
    assert given.total == pytest.approx(1.0 - 10.0 * run.active_seconds)


CHAIN = plan_of((0, ()), (1, (0,)), (1, (0, 1)))
JOIN = plan_of((0, ()), (1, ()), (1, (0, 1)))


@pytest.mark.parametrize(
    ("plans", "steps"),
    [((CHAIN,), 3), ((JOIN,), 2), ((plan_of((0, ()), (1, ())),), 1), ((JOIN, Plan()), 2), ((JOIN, CHAIN), 5)],
    ids=["chain", "join", "independent", "kept", "again"],
)
async def test_the_critical_path_counts_steps_that_wait_for_one_another_round_by_round(
    plans: tuple[Plan, ...], steps: int
) -> None:
    run = await run_of("fine", *plans)
    assert critical_path(run) == steps
    weights = RewardWeights(critical_path=0.01)
    found = [run_reward(run, grade, weights) for grade in (RIGHT, WRONG)]
    assert [None if one is None else one.total for one in found] == pytest.approx([1.0 - 0.01 * steps, 0.5])
    dear = run_reward(run, WRONG, RewardWeights(critical_path=0.01, always=True))
    assert dear is not None
    assert dear.parts["critical_path"] == pytest.approx(-0.01 * steps)


async def test_a_preference_counts_every_step_of_that_worker() -> None:
    run = await run_of("fine", plan_of((0, ()), (1, (0,)), (1, ())))
    given = run_reward(run, WRONG, RewardWeights(format=0.0, preference={"bob": 0.25, "ann": -0.1}))
    assert step_workers(run) == ("ann", "bob", "bob")
    assert given is not None
    assert given.parts == pytest.approx({"preference": 0.4})


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT, FaultKind.SERVER, FaultKind.RATE_LIMITED, FaultKind.NO_RECORD])
async def test_a_workers_fault_is_never_a_bad_reward(kind: FaultKind) -> None:
    run = await run_of(WorkerError(kind, "not today"))
    assert has_external_failure(run)
    assert run_reward(run, NOTHING) is None


@pytest.mark.parametrize("kind", [FaultKind.BAD_ARGUMENTS, FaultKind.TOOL_ERROR])
async def test_a_step_that_a_better_plan_would_have_avoided_is_the_conductors(kind: FaultKind) -> None:
    given = run_reward(await run_of(WorkerError(kind, "no number here")), NOTHING)
    assert given is not None
    assert given.total == 0.5


async def test_what_could_not_be_graded_has_no_reward() -> None:
    assert run_reward(await run_of(), ungraded_grade("judge", "no word from it")) is None


async def test_dollars_that_nobody_knows_cannot_be_counted() -> None:
    run = await run_plans(pool_of(member("ann", "done", price=None)), plan_of((0, ())))
    with pytest.raises(ConfigError, match="has no price"):
        run_reward(run, RIGHT, RewardWeights(cost=1.0))


@pytest.mark.parametrize(
    "wrong", [{"cost": -1.0}, {"critical_path": -1.0}, {"format": float("nan")}, {"preference": {"ann": float("inf")}}]
)
def test_weights_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="reward"):
        RewardWeights(**wrong)  # type: ignore[arg-type]  # that is the point


async def test_grade_and_reward_are_kept_with_the_run_after_its_end() -> None:
    run = await run_of()
    given = run_reward(run, RIGHT, PAPER_WEIGHTS)
    recorder = MemoryRecorder()
    for event in grade_events(run.id, RIGHT, given):
        recorder.add(event)
    kept = await recorder.read(run.id)
    assert [type(event) for event in kept] == [AnswerGraded, RewardGiven]
    told = Run.fold((run.started, run.finished, *kept)) if run.finished else run
    assert (told.status, told.grades[0].mark, told.rewards[0].total) == (run.status, GradeMark.RIGHT, 1.0)
    assert told.rewards[0].parts == {"format": 1.0}
