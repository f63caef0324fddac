"""The round loop: asking again, shipping, caps, people, and every way in which a run ends."""

import asyncio
import gc
import weakref
from dataclasses import dataclass, field, replace

import pytest
from scripted_people import ScriptedApprover

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.call import ApprovalMode, Card, Request
from shikisha.core.errors import ConfigError, FaultKind, JournalUnavailable, PlanError, TaskError, WorkerError
from shikisha.core.events import (
    AttemptReason,
    AttemptStarted,
    CallRole,
    PlanProposed,
    PlanRejected,
    QuestionAsked,
    RunStarted,
    RunStatus,
)
from shikisha.core.plan import Plan
from shikisha.core.run import Run, new_run_id
from shikisha.core.task import Task
from shikisha.engine.approvals import Approver, Decision
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.workers.scripted import ScriptedWorker
from support import AT_ONCE, TASK, Answer, AnswerFunction, engine, member, plan_of, pool_of, run_events, run_plans, seen

ONE = plan_of((0, ()))


@dataclass
class Calls:
    """A conductor made of a function; keeps the situations it saw."""

    function: object
    name: str = "fixed:calls"
    seen: list[Situation] = field(default_factory=list)

    async def propose(self, situation: Situation) -> Proposal:
        self.seen.append(situation)
        assert callable(self.function)
        proposal = self.function(situation)
        if asyncio.iscoroutine(proposal):
            proposal = await proposal
        assert isinstance(proposal, Proposal)
        return proposal


async def conduct(conductor: Conductor, pool: Pool, caps: Caps | None = None) -> Run:
    return await engine().run(TASK, pool, conductor, caps)


def down(_: Request) -> Answer:
    return WorkerError(FaultKind.AUTH, "no key")


async def test_invariant_4_a_run_is_acknowledged_before_anything_is_done_for_it() -> None:
    _, events = await run_events(pool_of(w="x"), ONE)
    kinds = [event.kind for event in events]
    assert isinstance(events[0], RunStarted)
    assert kinds.index("plan.proposed") < kinds.index("attempt.started") < kinds.index("attempt.finished")
    assert kinds[-1] == "run.finished"


async def test_a_run_that_has_ended_is_freed_without_the_garbage_collector() -> None:
    pool = Pool([Member(Card("w"), ScriptedWorker("x", keep=0))])
    left = weakref.ref(pool)
    gc.disable()
    try:
        run = await conduct(ScriptedConductor([ONE]), pool)
        del pool
        assert (run.answer, left()) == ("x", None)
    finally:
        gc.enable()


async def test_invariant_4_a_decision_is_durable_before_its_effect() -> None:
    class Careful(MemoryRecorder):
        durable = 0

        async def flush(self) -> None:
            self.durable = sum(len(events) for events in self._events.values())

    recorder = Careful()

    def check(_: Request) -> Answer:
        events = [event for stored in recorder._events.values() for event in stored]
        assert isinstance(events[-1], AttemptStarted)
        assert recorder.durable == len(events)
        return "done"

    run = await engine(recorder).run(TASK, pool_of(w=check), ScriptedConductor([plan_of((0, ()), (0, (0,)))]))
    assert run.answer == "done"


async def test_the_conductor_sees_what_earlier_rounds_came_to() -> None:
    conductor = Calls(lambda situation: Proposal(Plan() if situation.rounds else ONE))
    run = await conduct(conductor, pool_of(w="an answer"))
    assert (run.status, run.answer) == (RunStatus.DONE, "an answer")
    final = conductor.seen[1].rounds[0].final
    assert final is not None
    assert final.text == "an answer"


async def test_a_revision_replaces_the_answer() -> None:
    run = await run_plans(pool_of(a="first", b="second"), plan_of((0, ())), plan_of((1, ())))
    assert (run.answer, len(run.rounds)) == ("second", 2)
    assert run.finished is not None
    assert run.finished.round == 1


async def test_an_answer_is_kept_and_said_to_be_kept_when_its_revision_fails() -> None:
    run = await run_plans(pool_of(member("b", down), a="first"), plan_of((1, ())), ONE)
    assert run.finished is not None
    assert (run.answer, run.finished.fault) == ("first", FaultKind.AUTH)
    assert "round 0's answer is kept" in run.finished.why


async def test_invariant_3_the_rounds_cap_ships_what_there_is_and_says_so() -> None:
    run = await conduct(Calls(lambda _: Proposal(ONE)), pool_of(w="x"), Caps(rounds=2))
    assert run.finished is not None
    assert (len(run.rounds), run.answer, run.finished.cap) == (2, "x", "rounds")


async def test_invariant_3_the_seconds_cap_cancels_what_is_in_flight() -> None:
    cancelled = asyncio.Event()

    async def forever(_: Request) -> Answer:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return "late"

    run = await run_plans(pool_of(w=forever), ONE, caps=Caps(seconds=0.05))
    assert run.finished is not None
    assert (run.status, run.finished.cap, cancelled.is_set()) == (RunStatus.CAPPED, "seconds", True)


async def test_invariant_1_a_plan_that_names_no_worker_of_the_pool_is_not_performed() -> None:
    worker = member("w")
    run, events = await run_events(pool_of(worker), plan_of((99, ())))
    assert (run.status, seen(worker)) == (RunStatus.FAILED, [])
    assert [event.what for event in events if isinstance(event, PlanRejected)] == [
        "no worker 99: the pool has ordinals 0 to 0"
    ]


async def test_a_plan_longer_than_its_cap_is_not_performed() -> None:
    run = await run_plans(pool_of(w="x"), plan_of(*[(0, ())] * 3), caps=Caps(plan_steps=2))
    assert run.status is RunStatus.FAILED


@pytest.mark.parametrize("error", [PlanError("no", "there"), WorkerError(FaultKind.AUTH), RuntimeError("bug")])
async def test_invariant_6_a_conductor_that_fails_ends_its_run_with_a_reason(error: Exception) -> None:
    def fail(_: Situation) -> Proposal:
        raise error

    run = await conduct(Calls(fail), pool_of(w="x"))
    assert run.finished is not None
    assert run.status is RunStatus.FAILED
    assert run.finished.fault in (FaultKind.NO_PLAN, FaultKind.AUTH)


async def test_what_a_conductor_asks_is_inside_budget_and_journal() -> None:
    model = member("planner", "a plan, in words")

    async def ask(situation: Situation) -> Proposal:
        assert situation.ask is not None
        reply = await situation.ask(model, Request(situation.task, "write a plan"))
        return Proposal(ONE, reply.text, final=True)

    run, conductor = MemoryRecorder(), Calls(ask)
    done = await engine(run).run(TASK, pool_of(w="x"), conductor)
    assert [attempt.started.role for attempt in done.attempts] == [CallRole.PLAN, CallRole.STEP]
    capped = await conduct(conductor, pool_of(w="x"), Caps(tokens=3))
    assert (capped.status, len(seen(model))) == (RunStatus.CAPPED, 1)


async def test_the_plan_as_written_is_kept() -> None:
    conductor = Calls(lambda _: Proposal(ONE, text="as written", note="because", final=True))
    run = await conduct(conductor, pool_of(w="x"))
    proposed = run.rounds[0].proposed
    assert isinstance(proposed, PlanProposed)
    assert (proposed.text, proposed.note) == ("as written", "because")


async def test_approval_is_asked_for_the_exact_call_before_it_is_made() -> None:
    worker = member("dear", approval=ApprovalMode.ALWAYS)
    approver = ScriptedApprover({"dear": Decision(approved=True, actor="ann")})
    run = await run_plans(pool_of(worker), ONE, approver=approver)
    assert (run.answer, len(approver.seen), len(seen(worker))) == ("done", 1, 1)


async def test_a_no_is_final_and_no_stand_in_gets_round_it() -> None:
    pool = pool_of(member("dear", approval=ApprovalMode.ALWAYS, fallback="cheap"), cheap="cheap answer")
    run = await run_plans(pool, ONE, approver=ScriptedApprover({"dear": Decision(approved=False, actor="ann")}))
    assert (run.answer, run.attempts) == (None, [])
    assert run.finished is not None
    assert run.finished.fault is FaultKind.DENIED


async def _suspended(approver: Approver | None = None) -> tuple[MemoryRecorder, Pool, Run]:
    recorder = MemoryRecorder()
    waiting = member("ann", lambda _: WorkerError(FaultKind.WAITING, "Please look"), kind="human")
    pool = pool_of(waiting, w="beside")
    run = await engine(recorder, approver).run(TASK, pool, ScriptedConductor([plan_of((1, ()), (0, (0,)), (1, (1,)))]))
    return recorder, pool, run


async def test_a_run_waits_for_a_person_and_goes_on_with_the_answer() -> None:
    recorder, pool, run = await _suspended()
    assert (run.status, [question.prompt for question in run.open_questions]) == (RunStatus.SUSPENDED, ["Please look"])
    approver = ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="looks right")})
    resumed = await engine(recorder, approver).resume(
        run.id, pool, ScriptedConductor([plan_of((1, ()), (0, (0,)), (1, (1,)))])
    )
    assert resumed.status is RunStatus.DONE
    second = resumed.rounds[0].results[1]
    assert second is not None
    assert second.text == "looks right"
    assert len(seen(pool[1])) == 2, "what was done before the wait is not done again"


async def test_invariant_3_a_resumed_run_has_only_the_seconds_that_are_left() -> None:
    recorder, pool, run = await _suspended()
    begun, *events = await recorder.read(run.id)
    earlier = MemoryRecorder()
    for event in (replace(begun, at=begun.at - 1000.0), *events):  # it was busy for longer than its cap allows
        earlier.add(event)
    approver = ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="looks right")})
    plan = plan_of((1, ()), (0, (0,)), (1, (1,)))
    resumed = await engine(earlier, approver).resume(run.id, pool, ScriptedConductor([plan]))
    assert resumed.finished is not None
    assert (resumed.status, resumed.finished.cap) == (RunStatus.CAPPED, "seconds")


async def test_waiting_twice_asks_once() -> None:
    recorder, pool, run = await _suspended()
    again = await engine(recorder).resume(run.id, pool, ScriptedConductor([plan_of((1, ()), (0, (0,)), (1, (1,)))]))
    asked = [event for event in await recorder.read(run.id) if isinstance(event, QuestionAsked)]
    assert (again.status, len(asked)) == (RunStatus.SUSPENDED, 1)


async def test_a_person_at_the_desk_answers_at_once() -> None:
    _, _, run = await _suspended(ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="fine")}))
    assert run.status is RunStatus.DONE
    assert AttemptReason.RESUME in [attempt.started.reason for attempt in run.attempts]


async def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match="pool is empty"):
        await conduct(ScriptedConductor([ONE]), Pool([]))


@pytest.mark.parametrize("prompt", ["", "  ", "nul \x00", "half \ud800"])
def test_a_task_that_cannot_be_kept_is_refused(prompt: str) -> None:
    with pytest.raises(TaskError):
        Task(prompt)


def test_run_ids_sort_by_time_and_do_not_collide() -> None:
    assert len({new_run_id() for _ in range(1000)}) == 1000


async def test_many_runs_at_once_do_not_mix() -> None:
    one = Engine(MemoryRecorder(), retry=AT_ONCE)
    pool = pool_of(w=lambda request: request.task.prompt)
    runs = await asyncio.gather(*(one.run(Task(f"task {i}"), pool, ScriptedConductor([ONE])) for i in range(50)))
    assert [run.answer for run in runs] == [f"task {i}" for i in range(50)]


class Full(MemoryRecorder):
    """A disk that is full after a number of commits."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    async def flush(self) -> None:
        self.room -= 1
        if self.room < 0:
            raise JournalUnavailable("disk full")


@pytest.mark.parametrize("room", range(4))
async def test_a_journal_that_cannot_be_written_stops_the_run_before_the_next_effect(room: int) -> None:
    worker = member("w")
    with pytest.raises(JournalUnavailable, match="disk full"):
        await engine(Full(room)).run(
            TASK, pool_of(worker), ScriptedConductor([plan_of((0, ()), (0, (0,)), (0, (1,)), (0, ()))])
        )
    assert len(seen(worker)) == room


async def test_a_refused_run_is_not_there_to_be_resumed() -> None:
    recorder = Full(0)
    with pytest.raises(JournalUnavailable):
        await engine(recorder).run(TASK, pool_of(w="x"), ScriptedConductor([ONE]), run_id=None)
    (events,) = recorder._events.values()
    assert Run.fold(events).status is RunStatus.FAILED


async def test_a_run_id_is_used_once() -> None:
    recorder = MemoryRecorder()
    await engine(recorder).run(TASK, pool_of(w="x"), ScriptedConductor([ONE]), run_id="mine")
    with pytest.raises(ConfigError, match="run mine exists"):
        await engine(recorder).run(TASK, pool_of(w="x"), ScriptedConductor([ONE]), run_id="mine")


async def test_a_persons_question_is_never_cut() -> None:
    long = "word " * 2_000
    run = await run_plans(pool_of(member("ann", lambda _: WorkerError(FaultKind.WAITING, long))), ONE)
    assert [question.prompt for question in run.open_questions] == [long]


@pytest.mark.parametrize("plans", [(ONE, ONE, ONE), (ONE, plan_of((0, ()), (1, (0,))), ONE)])
async def test_a_plan_that_a_model_writes_again_is_not_performed_again(plans: tuple[Plan, ...]) -> None:
    def writes(situation: Situation) -> Proposal:
        return Proposal(plans[len(situation.rounds)], text="model_id = [0] ...")

    pool = pool_of(a="x", b="y")
    run = await conduct(Calls(writes), pool, Caps(rounds=9))
    again = plans.index(ONE, 1)
    performed = [turn for turn in run.rounds if turn.steps]
    assert (len(performed), run.status) == (again, RunStatus.DONE)
    assert run.why == "the conductor proposes a plan again that has been performed: its answer is kept"
    last = run.rounds[-1].proposed
    assert last is not None
    assert (last.keeps, last.note) == (0, run.why)
    assert run.answer == performed[0].results[0].text  # type: ignore[union-attr]  # it has one


async def test_a_plan_is_performed_again_where_it_failed_or_no_model_wrote_it() -> None:
    async def rounds(text: str, answer: AnswerFunction) -> int:
        calls = Calls(lambda situation: Proposal(Plan() if len(situation.rounds) == 2 else ONE, text=text))
        run = await conduct(calls, Pool([member("a", answer)]), Caps(rounds=9))
        return sum(bool(turn.steps) for turn in run.rounds)

    assert await rounds("", lambda _: "an answer") == 2  # such as a policy that asks once more for a vote
    assert await rounds("written", down) == 2
    assert await rounds("written", lambda _: "an answer") == 1
