"""Rollbacks: what is undone, in which order, once, within a budget, and over a killed process."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from operator import eq

import pytest
from edges import ONE, Strict, boss, killed
from scripted_people import ScriptedApprover

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import FREE, Caps, Price
from shikisha.core.call import ApprovalMode, Card, Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, RunErased, WorkerError
from shikisha.core.events import (
    AttemptStarted,
    BodiesErased,
    CallRole,
    EffectKept,
    EffectUndone,
    RollbackStarted,
    RunStatus,
    StepFinished,
)
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.engine.approvals import Decision
from shikisha.engine.autonomy import AutonomyClass, AutonomyMode, AutonomyPolicy, OnFailure
from shikisha.engine.compensation import RollbackOrder
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from support import TASK, Answer, AnswerFunction, Answers, engine, member, plan_of, pool_of, seen

ANN = RollbackOrder("ann", "a mistake")
TWO = plan_of((0, ()), (0, (0,)))
ROLLS = AutonomyClass(mode=AutonomyMode.REVIEW, on_failure=OnFailure.ROLLBACK)


def send(
    answer: Answer | AnswerFunction = "sent", undo: Answer | AnswerFunction = "unsent", price: Price = FREE
) -> Member:
    """A worker whose calls can be undone."""
    return replace(member("send", answer), undo=member("unsend", undo, price=price))


def undoing(one: Member) -> list[Request]:
    """What the compensating worker was asked."""
    assert one.undo is not None
    return seen(one.undo)


def told(request: Request) -> dict[str, str]:
    """The exact call that a compensating worker is told of."""
    found = json.loads(request.subtask.partition("```json\n")[2].removesuffix("```"))
    assert isinstance(found, dict)
    return found


async def done(pool: Pool, *plans: Plan) -> tuple[MemoryRecorder, Run]:
    recorder = Strict()
    return recorder, await engine(recorder).run(TASK, pool, ScriptedConductor(plans))


def became(run: Run) -> list[tuple[str, FaultKind | bool | None]]:
    """What became of each effect, over all rollbacks: True where it was undone, else why not."""
    events = [event for rollback in run.rollbacks for event in rollback.settled.values()]
    return [(event.worker, event.fault if isinstance(event, EffectKept) else True) for event in events]


async def test_calls_are_undone_newest_first_and_each_compensation_is_told_the_exact_call() -> None:
    one = send(lambda request: f"sent {request.subtask}")
    recorder, run = await done(pool_of(one), TWO)
    undone = await engine(recorder).undo(run.id, pool_of(one), ANN)
    assert [told(request) for request in undoing(one)] == [
        {"key": f"{run.id}-0-1-0", "worker": "send", "subtask": "part 1", "answer": "sent part 1"},
        {"key": f"{run.id}-0-0-0", "worker": "send", "subtask": "part 0", "answer": "sent part 0"},
    ]
    assert [request.key for request in undoing(one)] == [f"{run.id}-0-1-0-undo", f"{run.id}-0-0-0-undo"]
    assert became(undone) == [("send", True), ("send", True)]
    assert (undone.status, undone.answer, undone.rollbacks[0].begun.actor) == (RunStatus.DONE, "sent part 1", "ann")


async def test_a_second_rollback_does_nothing() -> None:
    one = send()
    recorder, run = await done(pool_of(one), TWO)
    first = await engine(recorder).undo(run.id, pool_of(one), ANN)
    again = await engine(recorder).undo(run.id, pool_of(one), replace(ANN, again=True))
    assert (again, len(undoing(one))) == (first, 2)


async def test_workers_without_a_compensation_are_left_as_they_are() -> None:
    recorder, run = await done(pool_of(w="read"), ONE)
    undone = await engine(recorder).undo(run.id, pool_of(w="read"), ANN)
    assert undone.rollbacks == []


async def test_a_child_runs_calls_are_undone_too() -> None:
    one = send()
    pool = pool_of(boss(("send",)), one)
    recorder, run = await done(pool, ONE)
    undone = await engine(recorder).undo(run.id, pool, ANN)
    assert (len(undoing(one)), told(undoing(one)[0])["key"]) == (1, f"{run.id}-0-0-0-0-0-0")
    assert became(undone) == [("send", True)]


@pytest.mark.parametrize(
    ("kind", "kept"),
    [(FaultKind.AUTH, []), (FaultKind.TIMEOUT, [("send", None)]), (FaultKind.TOOL_ERROR, [("send", None)])],
)
async def test_a_call_with_no_known_result_is_kept_and_named_unless_it_never_happened(
    kind: FaultKind, kept: list[tuple[str, None]]
) -> None:
    one = send(lambda _: WorkerError(kind))
    recorder, run = await done(pool_of(one), ONE)
    undone = await engine(recorder).undo(run.id, pool_of(one), ANN)
    assert (became(undone), undoing(one)) == (kept, [])


async def test_a_run_whose_texts_were_erased_is_not_rolled_back_since_nobody_can_say_what_it_did() -> None:
    one = send()
    recorder, run = await done(pool_of(one), ONE)
    recorder.add(BodiesErased(run=run.id, at=0.0, actor="ann"))
    with pytest.raises(RunErased):
        await engine(recorder).undo(run.id, pool_of(one), ANN)
    assert undoing(one) == []


async def test_a_rollbacks_cap_on_steps_keeps_the_rest_and_says_so() -> None:
    one = send()
    recorder, run = await done(pool_of(one), TWO)
    undone = await engine(recorder).undo(run.id, pool_of(one), ANN, Caps(steps=1))
    assert became(undone) == [("send", True), ("send", FaultKind.CAP)]
    kept = [event for event in await recorder.read(run.id) if isinstance(event, EffectKept)]
    assert [(event.rollback, event.effect, event.worker, event.by) for event in kept] == [
        (0, f"{run.id}-0-0-0", "send", "unsend")
    ]
    assert "1 of 1 steps are done" in kept[0].message


async def test_a_call_that_nobody_knows_the_end_of_is_no_reason_to_begin_again() -> None:
    one = send(lambda _: WorkerError(FaultKind.TIMEOUT))
    recorder, run = await done(pool_of(one), ONE)
    await engine(recorder).undo(run.id, pool_of(one), ANN)
    undone = await engine(recorder).undo(run.id, pool_of(one), replace(ANN, again=True))
    assert len(undone.rollbacks) == 1
    [kept] = [event for event in await recorder.read(run.id) if isinstance(event, EffectKept)]
    assert (kept.fault, "no known result" in kept.message) == (None, True)


async def test_a_compensation_bears_the_labels_of_what_its_call_had_read() -> None:
    one = send()
    clear = replace(one, card=replace(one.card, sees=("confidential",)))
    files = Member(Card("files", adds=("confidential",)), Answers("found"))
    pool = pool_of(files, clear)
    recorder, run = await done(pool, plan_of((0, ()), (1, (0,))))
    await engine(recorder).undo(run.id, pool, ANN)
    assert [request.labels for request in undoing(one)] == [frozenset({"confidential"})]


async def test_what_ended_last_is_undone_first_whenever_it_began() -> None:
    ended = asyncio.Event()

    async def answer(request: Request) -> Reply:
        if request.subtask == "part 0":
            await ended.wait()  # it begins first and ends last
        else:
            ended.set()
        return Reply("sent")

    one = send(answer)
    recorder, run = await done(pool_of(one), plan_of((0, ()), (0, ())))
    await engine(recorder).undo(run.id, pool_of(one), ANN)
    assert [told(request)["subtask"] for request in undoing(one)] == ["part 0", "part 1"]


async def test_a_compensation_is_told_what_its_call_may_have_added_even_where_the_step_never_ended() -> None:
    one = send()
    labelled = replace(one, card=replace(one.card, adds=("confidential",)))
    pool = pool_of(labelled, member("fails", lambda _: WorkerError(FaultKind.AUTH)))
    recorder, run = await done(pool, plan_of((0, ()), (1, (0,))))
    left = Strict()  # the process died between the call's end and the step's; somebody else ended the run
    for event in await recorder.read(run.id):
        if not (isinstance(event, StepFinished) and event.step == 0):
            left.add(event)
    await engine(left).undo(run.id, pool, ANN)
    assert [request.labels for request in undoing(one)] == [frozenset({"confidential"})]


async def test_a_compensation_that_fails_is_recorded_and_the_next_effect_has_its_turn() -> None:
    faults = iter([WorkerError(FaultKind.TOOL_ERROR, "locked")])
    one = send(undo=lambda _: next(faults, "unsent"))
    recorder, run = await done(pool_of(one), TWO)
    undone = await engine(recorder).undo(run.id, pool_of(one), ANN)
    assert became(undone) == [("send", FaultKind.TOOL_ERROR), ("send", True)]


@pytest.mark.parametrize(("again", "calls"), [(False, 1), (True, 2)])
async def test_a_failed_compensation_is_tried_again_where_that_is_wanted_under_the_same_key(
    again: bool, calls: int
) -> None:
    faults = iter([WorkerError(FaultKind.TOOL_ERROR, "locked")])
    one = send(undo=lambda _: next(faults, "unsent"))
    recorder, run = await done(pool_of(one), ONE)
    await engine(recorder).undo(run.id, pool_of(one), ANN)
    undone = await engine(recorder).undo(run.id, pool_of(one), replace(ANN, again=again))
    assert (len(undoing(one)), len(undone.rollbacks)) == (calls, calls)
    assert len({request.key for request in undoing(one)}) == 1


async def test_a_passing_fault_of_a_compensation_is_retried_like_any_call() -> None:
    faults = iter([WorkerError(FaultKind.SERVER), WorkerError(FaultKind.CONNECT)])
    one = send(undo=lambda _: next(faults, "unsent"))
    recorder, run = await done(pool_of(one), ONE)
    assert became(await engine(recorder).undo(run.id, pool_of(one), ANN)) == [("send", True)]
    assert len(undoing(one)) == 3


async def test_invariant_3_a_rollback_has_a_budget_of_its_own_that_holds() -> None:
    one = send(price=Price(call=0.4))
    recorder, run = await done(pool_of(one), TWO)
    undone = await engine(recorder).undo(run.id, pool_of(one), ANN, Caps(dollars=0.5))
    assert became(undone) == [("send", True), ("send", FaultKind.CAP)]
    assert undone.charged.dollars == pytest.approx(0.4)


async def test_invariant_4_death_after_any_event_of_a_rollback_undoes_every_effect_once() -> None:
    one = send()
    recorder, run = await done(pool_of(one), TWO)
    whole = await engine(recorder).undo(run.id, pool_of(one), ANN)
    events = await recorder.read(run.id)
    begun = next(place for place, event in enumerate(events) if isinstance(event, RollbackStarted))
    for event in events[begun:]:
        again, left = send(), await killed(recorder, run.id, partial(eq, event))
        undone = await engine(left).undo(run.id, pool_of(again), ANN)
        assert (became(undone), len(undone.rollbacks)) == (became(whole), 1), f"died after {event}"
        started = [e for e in await left.read(run.id) if isinstance(e, AttemptStarted) and e.role is CallRole.UNDO]
        assert {e.key for e in started} == {f"{run.id}-0-{step}-0-undo" for step in (0, 1)}
        finished = [e for e in await left.read(run.id) if isinstance(e, EffectUndone)]
        assert len(finished) == 2


async def test_a_run_that_waits_ends_with_its_rollback() -> None:
    one, gated = send(), member("gated", approval=ApprovalMode.ALWAYS)
    pool, plan = pool_of(one, gated), plan_of((0, ()), (1, (0,)))
    recorder, run = await done(pool, plan)
    undone = await engine(recorder).undo(run.id, pool, ANN)
    assert (run.status, undone.status, len(undoing(one))) == (RunStatus.SUSPENDED, RunStatus.FAILED, 1)
    assert await engine(recorder).resume(run.id, pool, ScriptedConductor([plan])) == undone


async def test_a_run_that_is_being_performed_is_not_rolled_back() -> None:
    one = send()
    recorder, run = await done(pool_of(one), ONE)
    left = await killed(recorder, run.id, lambda event: event.kind == "attempt.finished")
    with pytest.raises(ConfigError, match="is not over"):
        await engine(left).undo(run.id, pool_of(one), ANN)


async def test_a_child_run_is_rolled_back_with_its_parent_only() -> None:
    one = send()
    pool = pool_of(boss(("send",)), one)
    recorder, run = await done(pool, ONE)
    with pytest.raises(ConfigError, match="child run"):
        await engine(recorder).undo(f"{run.id}-0-0-0", pool_of(one), ANN)


# By configuration


async def test_a_refused_answers_effects_are_undone_before_the_run_ends() -> None:
    one, recorder = send(), Strict()
    watched = engine(recorder, ScriptedApprover({"send": Decision(False, "ann")})).with_autonomy(
        AutonomyPolicy(otherwise=ROLLS)
    )
    run = await watched.run(TASK, pool_of(one), ScriptedConductor([ONE]))
    kinds = [event.kind for event in await recorder.read(run.id)]
    assert (run.status, len(undoing(one)), kinds[-1]) == (RunStatus.FAILED, 1, "run.finished")
    assert kinds.index("effect.undone") < kinds.index("run.finished")
    assert run.rollbacks[0].begun.actor == "configuration"


async def test_an_approved_answers_effects_stay() -> None:
    one = send()
    watched = engine(approver=ScriptedApprover({"send": Decision(True, "ann")})).with_autonomy(
        AutonomyPolicy(otherwise=ROLLS)
    )
    run = await watched.run(TASK, pool_of(one), ScriptedConductor([ONE]))
    assert (run.status, undoing(one)) == (RunStatus.DONE, [])


async def test_invariant_4_a_failed_run_is_rolled_back_once_whenever_it_is_killed() -> None:
    def pool(one: Member) -> Pool:
        return pool_of(one, member("fails", lambda _: WorkerError(FaultKind.AUTH)))

    recorder, plan, rolls = (
        Strict(),
        plan_of((0, ()), (1, (0,))),
        AutonomyPolicy(otherwise=replace(ROLLS, mode=AutonomyMode.AUTONOMOUS)),
    )
    run = await engine(recorder).with_autonomy(rolls).run(TASK, pool(send()), ScriptedConductor([plan]))
    events = await recorder.read(run.id)
    for event in events[:-1]:
        left = await killed(recorder, run.id, partial(eq, event))
        resumed = await engine(left).with_autonomy(rolls).resume(run.id, pool(send()), ScriptedConductor([plan]))
        assert (resumed.status, became(resumed)) == (RunStatus.FAILED, [("send", True)]), f"died after {event}"
