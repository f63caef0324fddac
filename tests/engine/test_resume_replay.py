"""A resumed run replays what is journaled as it was decided, and child runs are found, counted and ended with it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from edges import ONE, Judged, Proposes, Strict, always, boss, fault, killed, stored
from scripted_people import ScriptedApprover

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Amount, Caps, Usage
from shikisha.core.call import ApprovalMode, Card, ChildRunLauncher, Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CheckDecided,
    CheckStatus,
    Event,
    OnCheckFailure,
    PlanRejected,
    QuestionAnswered,
    RunStarted,
    RunStatus,
    StepFinished,
)
from shikisha.core.plan import Plan, Step
from shikisha.core.run import CheckVerdict, Run
from shikisha.core.task import Task
from shikisha.engine.approvals import Decision
from shikisha.engine.conductor import Proposal, Rejection, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Inspection, Member, OutputCheck
from shikisha.engine.recorder import MemoryRecorder
from support import (
    AT_ONCE,
    TASK,
    Answer,
    Answers,
    engine,
    member,
    plan_of,
    pool_of,
    run_plans,
    seen,
)

# Resuming


async def test_invariant_4_a_run_whose_conductor_asks_its_own_model_is_resumed() -> None:
    planner = member("planner", "a plan")

    async def propose(situation: Situation) -> Proposal:
        assert situation.ask is not None
        await situation.ask(planner, Request(situation.task, "plan"))
        return Proposal(ONE, final=True)

    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool_of(w="x"), Proposes(propose))
    left = await killed(recorder, run.id, lambda event: event.kind == "plan.proposed")
    resumed = await engine(left).resume(run.id, pool_of(w="x"), Proposes(propose))
    assert (resumed.answer, len(seen(planner))) == ("x", 1)


async def test_a_run_that_a_check_stopped_stays_stopped_after_a_kill() -> None:
    beside = member("beside")
    pool = pool_of(member("a", "bad", OutputCheck(always(CheckStatus.FAIL), OnCheckFailure.STOP)), beside)
    recorder = MemoryRecorder()
    plans = [plan_of((0, ())), plan_of((1, ()))]
    run = await engine(recorder).run(TASK, pool, ScriptedConductor(plans))
    left = await killed(recorder, run.id, lambda event: isinstance(event, StepFinished))
    resumed = await engine(left).resume(run.id, pool, ScriptedConductor(plans))
    assert (resumed.status, seen(beside)) == (RunStatus.FAILED, [])


async def test_a_check_that_stops_the_run_stops_it_for_those_who_wait_for_a_person() -> None:
    waiting = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    pool = pool_of(waiting, member("a", "bad", OutputCheck(always(CheckStatus.FAIL), OnCheckFailure.STOP)))
    run = await run_plans(pool, plan_of((0, ()), (1, ())))
    assert (run.status, fault(run, 0)) == (RunStatus.FAILED, FaultKind.BLOCKED)


async def test_giving_up_on_a_worker_is_not_forgotten_by_a_resumed_run() -> None:
    limited = member("a", lambda _: WorkerError(FaultKind.RATE_LIMITED, retry_after=86_400), fallback="b")
    pool, recorder = pool_of(limited, b="from b"), MemoryRecorder()
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    begun = await killed(recorder, run.id, lambda event: isinstance(event, AttemptStarted) and event.worker == "b")
    failed = await killed(recorder, run.id, lambda event: isinstance(event, AttemptFailed))
    for left in (begun, failed):
        resumed = await engine(left).resume(run.id, pool, ScriptedConductor([ONE]))
        assert resumed.answer == "from b"
    assert len(seen(limited)) == 1


async def test_invariant_4_a_persons_answer_survives_a_kill_while_it_is_recorded() -> None:
    ann = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    recorder = MemoryRecorder()
    approver = ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="forty-two")})
    run = await engine(recorder, approver).run(TASK, pool_of(ann), ScriptedConductor([ONE]))
    left = await killed(recorder, run.id, lambda event: isinstance(event, AttemptStarted) and event.attempt == 1)
    resumed = await engine(left).resume(run.id, pool_of(ann), ScriptedConductor([ONE]))
    assert (resumed.status, resumed.answer) == (RunStatus.DONE, "forty-two")


async def test_two_checks_of_one_name_keep_their_own_verdicts() -> None:
    checks = [
        OutputCheck(always(status, "same"), OnCheckFailure.PASS) for status in (CheckStatus.PASS, CheckStatus.FAIL)
    ]
    pool, recorder = pool_of(member("a", "x", *checks)), MemoryRecorder()
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    left = await killed(
        recorder, run.id, lambda event: isinstance(event, CheckDecided) and event.status is CheckStatus.FAIL
    )
    resumed = await engine(left).resume(run.id, pool, ScriptedConductor([ONE]))
    assert [check.status for check in resumed.rounds[0].steps[0].checks] == [CheckStatus.PASS, CheckStatus.FAIL]
    assert resumed.rounds[0].results == run.rounds[0].results


async def test_rejected_texts_are_recorded_once() -> None:
    async def propose(_: Situation) -> Proposal:
        return Proposal(ONE, final=True, rejected=(Rejection("gibberish", "no plan", "line 1"),))

    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool_of(w="x"), Proposes(propose))
    left = await killed(recorder, run.id, lambda event: isinstance(event, PlanRejected))
    resumed = await engine(left).resume(run.id, pool_of(w="x"), Proposes(propose))
    assert len(resumed.rounds[0].rejected) == 1


async def test_invariant_3_a_resumed_run_counts_what_was_used_before_it_calls_anyone() -> None:
    first = member("first", Reply("x", Usage(1, 1)), max_output_tokens=100)
    spent = member("spent", Reply("y", Usage(150, 50)), max_output_tokens=100)
    pool, recorder, plan = pool_of(first, spent), MemoryRecorder(), plan_of((0, ()), (1, ()))
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([plan]), Caps(tokens=500))
    left = MemoryRecorder()
    for event in await recorder.read(run.id):  # step 1 ended first; step 0's end was lost, and the run's
        mine = isinstance(event, AttemptFinished | StepFinished) and event.step == 0
        if not mine and event.kind != "run.finished":
            left.add(replace(event, caps=Caps(tokens=300)) if isinstance(event, RunStarted) else event)
    resumed = await engine(left).resume(run.id, pool, ScriptedConductor([plan]))
    assert (fault(resumed), len(seen(first))) == (FaultKind.CAP, 1)


async def test_a_run_is_performed_once_at_a_time() -> None:
    async def slow(_: Request) -> Answer:
        await asyncio.sleep(0.01)
        return "done"

    one, pool = engine(), pool_of(w=slow)
    runs = [one.run(TASK, pool, ScriptedConductor([ONE]), run_id="mine") for _ in range(2)]
    done = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(each) for each in done] == [Run, ConfigError]


class Tape(Strict):
    """A memory that also keeps the order over all runs, so that one can ask what was there at any moment."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        super().__init__()
        self.order: list[Event] = []
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        super().add(event)
        self.order.append(event)


class Everything:
    """A pool, a conductor and a desk through which everything happens that a journal can hold."""

    name = "fixed:everything"
    first = Plan((Step("ask below", 0), Step("fails", 1), Step("ann", 3, (0,)), Step("dear", 4, (1, 2))))
    second = Plan((Step("revise", 2),))

    def __init__(self) -> None:
        self.approver = ScriptedApprover(
            {name: Decision(approved=True, actor="ann", text=f"{name} said") for name in ("ann", "dear")}
        )
        self.planner = member("planner", lambda request: request.subtask)
        failing = member("failing", lambda _: WorkerError(FaultKind.SERVER, "busy"), attempts=2, fallback="w")
        judged = OutputCheck(Judged(self._judge), OnCheckFailure.REDO)
        worker = member("w", lambda request: f"{request.subtask} {len(request.remarks)}", judged)
        ann = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
        dear = member("dear", lambda _: "dear", approval=ApprovalMode.ALWAYS)
        below = boss(("w", "ann", "judge"), plan_of((0, ()), (1, (0,))))
        self.pool = pool_of(below, failing, worker, ann, dear, judge=lambda request: request.subtask[-1])

    async def _judge(self, inspection: Inspection) -> CheckVerdict:
        assert inspection.ask is not None
        said = await inspection.ask("judge", inspection.text)
        return CheckVerdict("judged", CheckStatus.PASS if said == "1" else CheckStatus.FAIL, f"it said {said}")

    async def propose(self, situation: Situation) -> Proposal:
        assert situation.ask is not None
        await situation.ask(self.planner, Request(situation.task, f"plan {len(situation.rounds)}"))
        rejected = (Rejection("gibberish", "no plan", "line 1"),)
        return Proposal((self.first, self.second, Plan())[len(situation.rounds)], rejected=rejected)


def came_to(run: Run) -> object:
    kept = [(turn.plan, turn.results, len(turn.rejected)) for turn in run.rounds]
    return run.status, run.answer, kept


async def test_invariant_4_death_after_any_event_leads_to_the_same_end() -> None:
    whole, tape = Everything(), Tape()
    run = await engine(tape, whole.approver).run(TASK, whole.pool, whole, Caps(steps=9), run_id="r")
    assert (run.status, len(run.rounds)) == (RunStatus.DONE, 3)
    for count in range(1, len(tape.order)):
        again, left = Everything(), Tape(tape.order[:count])
        resumed = await engine(left, again.approver).resume("r", again.pool, again)
        assert came_to(resumed) == came_to(run), f"died after event {count}: {tape.order[count - 1]}"
        calls = [event.question for event in left.order if isinstance(event, QuestionAnswered)]
        assert len(calls) == len(set(calls)) == 3
        ends = [(event.run, event.round, event.step) for event in left.order if isinstance(event, StepFinished)]
        assert len(ends) == len(set(ends))
        assert Run.fold(await left.read("r")) == resumed


# Child runs


async def test_invariant_4_a_child_run_that_was_cut_off_goes_on_as_the_same_run() -> None:
    answers = iter([10.0, 0.0])

    async def slow_once(_: Request) -> Answer:
        await asyncio.sleep(next(answers))
        return Reply("from below", Usage(5, 5))

    first = member("first", Reply("1", Usage(5, 5)))
    pool = pool_of(boss(("first", "w"), plan_of((0, ()), (1, (0,))), timeout=0.05), first, member("w", slow_once))
    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]), Caps(steps=3))
    children = {event.run for event in await stored(recorder) if isinstance(event, RunStarted) and event.parent}
    assert (run.status, run.answer, len(seen(first))) == (RunStatus.DONE, "from below", 1)
    assert [Run.fold(await recorder.read(child)).answer for child in children] == ["from below"]


async def test_each_child_run_of_an_attempt_is_a_run_of_its_own() -> None:
    async def answer(request: Request) -> Reply:
        assert request.spawn is not None
        one = await request.spawn(Task("first"), ScriptedConductor([ONE]), ("w",), Caps())
        two = await request.spawn(Task("second"), ScriptedConductor([ONE]), ("w",), Caps())
        return Reply(f"{one.answer} {two.answer}", prepaid=True)

    pool = pool_of(Member(Card("boss", kind="conductor"), Answers(answer)), w=lambda request: request.task.prompt)
    recorder = Strict()
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    assert run.answer == "first second"
    folded = [Run.fold(events) for events in recorder._events.values()]
    assert sorted(child.task.prompt for child in folded if child.started.parent) == ["first", "second"]


async def test_a_child_run_may_be_started_in_the_last_round() -> None:
    run = await run_plans(pool_of(boss(), w="from below"), ONE, caps=Caps(rounds=1))
    assert run.answer == "from below"


async def test_the_steps_of_a_child_run_that_waited_are_counted_once() -> None:
    ann = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    pool = pool_of(boss(("w", "ann"), plan_of((0, ()), (1, (0,)))), ann, w="x")
    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]), Caps(steps=3))
    approver = ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="fine")})
    resumed = await engine(recorder, approver).resume(run.id, pool, ScriptedConductor([ONE]))
    assert (run.status, resumed.status, resumed.answer) == (RunStatus.SUSPENDED, RunStatus.DONE, "fine")


async def test_invariant_3_what_a_child_run_used_before_it_waited_counts_once() -> None:
    left: list[int | None] = []

    async def propose(situation: Situation) -> Proposal:
        left.append(situation.left.tokens)
        return Proposal(Plan() if situation.rounds else ONE)

    ann = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    below = member("w", Reply("x", Usage(50, 50)))
    pool, recorder = pool_of(boss(("w", "ann"), plan_of((0, ()), (1, (0,)))), ann, below), MemoryRecorder()
    run = await engine(recorder).run(TASK, pool, Proposes(propose), Caps(tokens=10_000))
    approver = ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="fine")})
    resumed = await engine(recorder, approver).resume(run.id, pool, Proposes(propose))
    assert resumed.charged == Amount(100)
    assert left == [10_000, 9_900]


async def test_a_child_run_goes_on_only_with_its_parent() -> None:
    ann = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    recorder = MemoryRecorder()
    pool = pool_of(boss(("ann",)), ann)
    await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    child = next(event.run for event in await stored(recorder) if isinstance(event, RunStarted) and event.parent)
    with pytest.raises(ConfigError, match="resume that run"):
        await engine(recorder).resume(child, pool.subset(["ann"]), ScriptedConductor([ONE]))


async def test_nothing_is_started_by_a_worker_whose_attempt_is_over() -> None:
    kept: list[ChildRunLauncher] = []

    def keeps(request: Request) -> Answer:
        assert request.spawn is not None
        kept.append(request.spawn)
        return "done"

    recorder, pool = MemoryRecorder(), pool_of(member("a", keeps), w="x")
    await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    with pytest.raises(WorkerError):
        await kept[0](TASK, ScriptedConductor([ONE]), ("w",), Caps())
    assert len(recorder._events) == 1


async def test_a_worker_that_says_its_call_is_paid_without_a_child_run_pays() -> None:
    liar = member("w", Reply("x", Usage(40, 40), prepaid=True), max_output_tokens=80)
    run = await run_plans(pool_of(liar), plan_of((0, ()), (0, (0,)), (0, (1,))), caps=Caps(tokens=300))
    assert run.status is RunStatus.CAPPED


async def test_a_listener_hears_the_run_and_not_its_child_runs() -> None:
    def stream(request: Request) -> Answer:
        if request.on_text is not None:
            request.on_text("below")
        return "below"

    heard: list[str] = []
    one = Engine(MemoryRecorder(), on_text=lambda _round, _step, piece: heard.append(piece))
    await one.run(TASK, pool_of(boss(), w=stream), ScriptedConductor([ONE]))
    assert heard == []


async def interrupted(after: int) -> Tape:
    """What is left of a run that its user stopped after this many events."""
    left, cast_of = Tape(), Everything()

    def interrupt(_: Event) -> None:
        if len(left.order) == after:
            running.cancel()

    one = Engine(left, approver=cast_of.approver, observe=interrupt, retry=AT_ONCE)
    running = asyncio.ensure_future(one.run(TASK, cast_of.pool, cast_of, run_id="r"))
    with suppress(asyncio.CancelledError):
        await running
    return left


async def test_invariant_4_an_interrupt_after_any_event_leads_to_the_same_end() -> None:
    whole, tape = Everything(), Tape()
    run = await engine(tape, whole.approver).run(TASK, whole.pool, whole, run_id="r")
    for count in range(1, len(tape.order)):
        again, left = Everything(), await interrupted(count)
        resumed = await engine(left, again.approver).resume("r", again.pool, again)
        assert came_to(resumed) == came_to(run), f"interrupted after event {count}: {tape.order[count - 1]}"
