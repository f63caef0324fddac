"""What a plan may cost, before it is begun: what cannot be paid is refused unpaid, and an agreement needs no join."""

from collections.abc import Sequence

import pytest

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.budget import Amount, Caps, Price
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AttemptReason, AttemptStarted, Event, RunStatus, StepFinished
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from support import AT_ONCE, TASK, member, plan_of, pool_of, run_plans, seen

CALL = Price(call=0.01)
DEAR = Price(call=0.05)


async def conducted(spec: str, pool: Pool, caps: Caps | None = None, task: Task = TASK) -> tuple[Run, Sequence[Event]]:
    recorder = MemoryRecorder()
    run = await Engine(recorder, retry=AT_ONCE).run(task, pool, fixed_conductor(spec), caps)
    return run, await recorder.read(run.id)


def crew(*answers: str, join: str = "joined") -> tuple[Pool, Member]:
    """Return workers at a cent a call who answer so, and one at five cents, who joins."""
    cheap = [member(f"w{number}", text, price=CALL) for number, text in enumerate(answers)]
    dear = member("dear", join, price=DEAR)
    return pool_of(*cheap, dear), dear


@pytest.mark.parametrize(
    "spec",
    [
        "vote?workers=w0,w1,w2&join=dear",
        "best-of-n?workers=w0,w1,w2&judge=dear",
        "debate?workers=w0,w1&judge=dear",
    ],
)
async def test_an_agreement_needs_no_join(spec: str) -> None:
    pool, dear = crew("It is 42.", "it is  42.", "It is 42.")
    run, _ = await conducted(spec, pool)
    assert (run.status, run.answer, seen(dear)) == (RunStatus.DONE, "It is 42.", [])
    join = run.attempts[-1]
    assert (join.started.reason, join.started.worker, join.counted) == (AttemptReason.AGREED, "dear", Amount())
    assert run.charged.dollars == pytest.approx(0.01 * (len(run.attempts) - 1))


@pytest.mark.parametrize(
    "spec", ["fan-out-join?workers=w0,w1,w2&join=dear", "mixture-of-agents?workers=w0,w1&aggregator=dear"]
)
async def test_a_join_that_writes_an_answer_of_its_own_is_asked_whatever_it_sees(spec: str) -> None:
    pool, dear = crew("No remarks.", "No remarks.", "No remarks.")
    run, _ = await conducted(spec, pool)
    assert (run.status, run.answer, len(seen(dear))) == (RunStatus.DONE, "joined", 1)


async def test_three_equal_answers_are_the_answer_although_the_join_would_pass_the_cap() -> None:
    pool, dear = crew("It is 42.", "It is 42.", "It is 42.")
    run, _ = await conducted("vote?workers=w0,w1,w2&join=dear", pool, Caps(dollars=0.06))
    assert (run.status, run.answer, seen(dear)) == (RunStatus.DONE, "It is 42.", [])
    assert run.rounds[0].proposed is not None
    assert "may use up to $0.08 and $0.06 are left" in run.rounds[0].proposed.note  # said before the first call


async def test_what_most_say_is_the_answer_of_a_join_that_a_cap_refuses_and_nothing_else_is() -> None:
    pool, dear = crew("It is 42.", "It is 41.", "It is 42.")
    run, _ = await conducted("vote?workers=w0,w1,w2&join=dear", pool, Caps(dollars=0.06))
    assert (run.status, run.answer, seen(dear)) == (RunStatus.DONE, "It is 42.", [])
    assert run.attempts[-1].started.reason is AttemptReason.AGREED
    pool, dear = crew("It is 42.", "It is 41.", "It is 40.")
    run, _ = await conducted("vote?workers=w0,w1,w2&join=dear", pool, Caps(dollars=0.06))
    assert (run.status, run.answer, seen(dear)) == (RunStatus.CAPPED, None, [])
    pool, dear = crew("It is 42.", "It is 41.", "It is 42.", "It is 41.")  # half is not most
    run, _ = await conducted("vote?workers=w0,w1,w2,w3&join=dear", pool, Caps(dollars=0.07))
    assert (run.status, run.answer, seen(dear)) == (RunStatus.CAPPED, None, [])


async def test_answers_that_differ_are_joined() -> None:
    pool, dear = crew("It is 42.", "It is 41.", "It is 42.")
    run, _ = await conducted("vote?workers=w0,w1,w2&join=dear", pool)
    assert (run.answer, len(seen(dear))) == ("joined", 1)


async def test_a_step_that_does_something_of_its_own_is_performed_whatever_it_sees() -> None:
    pool, dear = crew("Yes.", "Yes.", join="Oui.")
    run = await run_plans(pool, plan_of((0, ()), (1, ()), (2, (0, 1))))
    assert (run.answer, len(seen(dear))) == ("Oui.", 1)
    pool, dear = crew("Yes.", "Yes.", join="Oui.")
    run, _ = await conducted("chain?workers=w0,w1,dear", pool)
    assert (run.answer, len(seen(dear))) == ("Oui.", 1)


async def test_a_join_that_is_to_keep_to_a_form_is_performed() -> None:
    pool, dear = crew('"a"', '"a"', '"a"', join='"b"')
    task = Task("q", answer_schema={"type": "string"})
    run, _ = await conducted("vote?workers=w0,w1,w2&join=dear", pool, task=task)
    assert (run.answer, len(seen(dear))) == ('"b"', 1)


async def test_a_failed_answer_agrees_with_nobody() -> None:
    broken = member("w0", lambda _: WorkerError(FaultKind.AUTH), attempts=1, price=CALL)
    dear = member("dear", "joined", price=DEAR)
    pool = pool_of(broken, member("w1", "a", price=CALL), member("w2", "a", price=CALL), dear)
    run, _ = await conducted("vote?workers=w0,w1,w2&join=dear", pool)
    assert (run.answer, len(seen(dear))) == ("joined", 1)
    run, _ = await conducted("vote?workers=w0,w1,w2&join=dear", pool, Caps(dollars=0.055))
    assert (run.status, run.answer) == (RunStatus.DONE, "a")  # two of three


@pytest.mark.parametrize(
    "spec", ["vote", "best-of-n", "fan-out-join", "mixture-of-agents", "debate", "chain", "role-team"]
)
async def test_invariant_3_a_plan_that_cannot_be_paid_is_refused_before_anything_is(spec: str) -> None:
    first, second = member("a", "x", price=CALL), member("b", "y", price=DEAR)
    pool = pool_of(first, second)
    run, events = await conducted(spec, pool, Caps(dollars=0.045))
    assert (run.status, run.answer, seen(first), seen(second)) == (RunStatus.CAPPED, None, [], [])
    assert run.counted == Amount()
    assert run.finished is not None
    assert run.finished.cap == "dollars"
    assert "b may cost $0.05, $0 of $0.045 are used" in run.finished.why
    assert "nothing of the plan was begun" in run.finished.why
    ends = [event for event in events if isinstance(event, StepFinished)]
    assert {end.fault for end in ends} == {FaultKind.CAP}
    assert len(ends) == len(run.rounds[0].plan or ())


async def test_a_plan_is_refused_for_a_cap_on_tokens_and_for_a_worker_without_a_price_too() -> None:
    wordy = member("b", "y", max_output_tokens=5000)
    run = await run_plans(pool_of(member("a", "x"), wordy), plan_of((0, ()), (1, (0,))), caps=Caps(tokens=2000))
    assert (run.status, run.attempts) == (RunStatus.CAPPED, [])
    free = member("b", "y", price=None)
    run = await run_plans(pool_of(member("a", "x"), free), plan_of((0, ()), (1, (0,))), caps=Caps(dollars=1.0))
    assert (run.status, run.attempts) == (RunStatus.CAPPED, [])


async def test_a_plan_that_may_be_paid_is_begun_and_its_note_says_that_it_may_not() -> None:
    run = await run_plans(
        pool_of(member("a", "x", price=CALL), member("b", "y", price=CALL)),
        plan_of((0, ()), (1, (0,)), (0, (1,))),
        caps=Caps(dollars=0.025),
    )
    assert (run.status, len(run.attempts)) == (RunStatus.CAPPED, 2)
    assert run.rounds[0].proposed is not None
    assert "a later one may be refused" in run.rounds[0].proposed.note


async def test_invariant_4_a_run_that_died_while_an_agreement_was_recorded_goes_on_to_the_same_answer() -> None:
    pool, dear = crew("It is 42.", "It is 42.", "It is 42.")
    _, events = await conducted("vote?workers=w0,w1,w2&join=dear", pool)
    at = next(
        place
        for place, event in enumerate(events)
        if isinstance(event, AttemptStarted) and event.reason is AttemptReason.AGREED
    )
    for kept in (at, at + 1, at + 2):
        recorder = MemoryRecorder()
        for event in events[:kept]:
            recorder.add(event)
        run = await Engine(recorder, retry=AT_ONCE).resume(
            events[0].run, pool, fixed_conductor("vote?workers=w0,w1,w2&join=dear")
        )
        assert (run.status, run.answer, seen(dear)) == (RunStatus.DONE, "It is 42.", [])
        assert run.charged.dollars == pytest.approx(0.03)
