"""Rewards: named parts of a run's worth, and runs that have none."""

import pytest

from shikisha.budget import Price, Usage
from shikisha.errors import ConfigError, FaultKind, WorkerError
from shikisha.events import AnswerGraded, Mark, RewardGiven
from shikisha.grade import Grade, graded, no_answer, ungraded
from shikisha.plan import Plan
from shikisha.recorder import MemoryRecorder
from shikisha.reward import PAPER, Weights, critical_path, events, performers, reward, spoilt
from shikisha.run import Run
from shikisha.worker import Reply
from support import member, plan_of, pool_of, run_plans

RIGHT, WRONG = graded("given", 1.0, "A", ""), graded("given", 0.0, "B", "")
NOTHING = no_answer("given", "")
USED = Reply("done", Usage(1_000_000, 0))


async def run_of(answer: str | Reply | WorkerError = USED, *plans: Plan) -> Run:
    pool = pool_of(member("ann", answer, price=Price(2.0), attempts=1), member("bob", "fine"))
    return await run_plans(pool, *(plans or (plan_of((0, ())),)))


@pytest.mark.parametrize(("grade", "total"), [(RIGHT, 1.0), (WRONG, 0.5), (NOTHING, 0.5)])
async def test_the_papers_reward_is_a_half_for_a_plan_and_one_for_a_right_answer(grade: Grade, total: float) -> None:
    given = reward(await run_of(), grade)
    assert given is not None
    assert given.total == total


async def test_a_conductor_that_writes_no_plan_gets_nothing() -> None:
    run = await run_plans(pool_of(ann="done"), plan_of((7, ())))
    given = reward(run, NOTHING)
    assert given is not None
    assert (given.parts, given.total) == ({}, 0)


@pytest.mark.parametrize(("grade", "always", "cost"), [(RIGHT, False, -1.0), (WRONG, False, 0.0), (WRONG, True, -1.0)])
async def test_cost_is_taken_from_right_answers_only_unless_told_otherwise(
    grade: Grade, always: bool, cost: float
) -> None:
    given = reward(await run_of(), grade, Weights(format=0.0, correct=1.0, cost=0.5, always=always))
    assert given is not None
    assert given.parts.get("cost", 0.0) == cost  # two dollars


async def test_latency_counts_the_runs_seconds() -> None:
    run = await run_of()
    given = reward(run, RIGHT, Weights(latency=10.0))
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
    weights = Weights(critical_path=0.01)
    found = [reward(run, grade, weights) for grade in (RIGHT, WRONG)]
    assert [None if one is None else one.total for one in found] == pytest.approx([1.0 - 0.01 * steps, 0.5])
    dear = reward(run, WRONG, Weights(critical_path=0.01, always=True))
    assert dear is not None
    assert dear.parts["critical_path"] == pytest.approx(-0.01 * steps)


async def test_a_preference_counts_every_step_of_that_worker() -> None:
    run = await run_of("fine", plan_of((0, ()), (1, (0,)), (1, ())))
    given = reward(run, WRONG, Weights(format=0.0, preference={"bob": 0.25, "ann": -0.1}))
    assert performers(run) == ("ann", "bob", "bob")
    assert given is not None
    assert given.parts == pytest.approx({"preference": 0.4})


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT, FaultKind.SERVER, FaultKind.RATE_LIMITED, FaultKind.NO_RECORD])
async def test_a_workers_fault_is_never_a_bad_reward(kind: FaultKind) -> None:
    run = await run_of(WorkerError(kind, "not today"))
    assert spoilt(run)
    assert reward(run, NOTHING) is None


@pytest.mark.parametrize("kind", [FaultKind.BAD_ARGUMENTS, FaultKind.TOOL_ERROR])
async def test_a_step_that_a_better_plan_would_have_avoided_is_the_conductors(kind: FaultKind) -> None:
    given = reward(await run_of(WorkerError(kind, "no number here")), NOTHING)
    assert given is not None
    assert given.total == 0.5


async def test_what_could_not_be_graded_has_no_reward() -> None:
    assert reward(await run_of(), ungraded("judge", "no word from it")) is None


async def test_dollars_that_nobody_knows_cannot_be_counted() -> None:
    run = await run_plans(pool_of(member("ann", "done", price=None)), plan_of((0, ())))
    with pytest.raises(ConfigError, match="has no price"):
        reward(run, RIGHT, Weights(cost=1.0))


@pytest.mark.parametrize(
    "wrong", [{"cost": -1.0}, {"critical_path": -1.0}, {"format": float("nan")}, {"preference": {"ann": float("inf")}}]
)
def test_weights_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="reward"):
        Weights(**wrong)  # type: ignore[arg-type]  # that is the point


async def test_grade_and_reward_are_kept_with_the_run_after_its_end() -> None:
    run = await run_of()
    given = reward(run, RIGHT, PAPER)
    recorder = MemoryRecorder()
    for event in events(run.id, RIGHT, given):
        recorder.add(event)
    kept = await recorder.read(run.id)
    assert [type(event) for event in kept] == [AnswerGraded, RewardGiven]
    told = Run.fold((run.started, run.finished, *kept)) if run.finished else run
    assert (told.status, told.grades[0].mark, told.rewards[0].total) == (run.status, Mark.RIGHT, 1.0)
    assert told.rewards[0].parts == {"format": 1.0}
