"""Whatever workers, checks, conductors, desks and callbacks do, it ends as a recorded result inside the caps."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import pytest
from edges import FOREIGN, KEY, ONE, Judged, Proposes, Strict, always, fault, stored
from scripted_people import ScriptedApprover

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import ApprovalMode, Card, Reply, Request
from shikisha.core.errors import FaultKind, JournalUnavailable, WorkerError
from shikisha.core.events import AttemptStarted, CallRole, CheckStatus, Event, OnCheckFailure, QuestionAsked, RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.run import CheckVerdict
from shikisha.core.secrets import SecretStore
from shikisha.engine.approvals import ApprovalQuestion, Decision
from shikisha.engine.conductor import Proposal, Rejection, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Inspection, Member, OutputCheck
from shikisha.engine.recorder import MemoryRecorder
from support import (
    TASK,
    Answer,
    Answers,
    engine,
    member,
    plan_of,
    pool_of,
    run_events,
    run_plans,
    seen,
)

# Misbehaviour


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"bytes",
        Reply(cast("str", None)),
        Reply(cast("str", 7)),
        Reply("x", cast("Usage", None)),
        Reply("x", Usage(cast("int", float("nan")))),
        Reply("x", Usage(cast("int", 1.5))),
        Reply("x", Usage(10, 0, cached_tokens=1_000_000)),
        Reply("x", dollars=cast("float", "3")),
    ],
)
async def test_invariant_6_what_is_no_reply_is_a_fault(reply: object) -> None:
    price = Price(10.0, 10.0, cached=1.0)
    recorder = Strict()
    pool = pool_of(member("w", lambda _: cast("Reply", reply), price=price, attempts=1))
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    assert fault(run) in {FaultKind.INTERNAL, FaultKind.BAD_USAGE, FaultKind.BAD_REPLY}
    assert (run.charged.dollars or 0.0) >= 0.0


@pytest.mark.parametrize("model", ["half \ud800", "nul \0", KEY, None, 7])
async def test_invariant_8_a_models_name_is_made_fit_for_the_journal(model: object) -> None:
    secret_store = SecretStore({"THE_KEY": KEY})
    secret_store.read("THE_KEY")
    recorder = Strict()
    pool = pool_of(w=Reply("x", model=cast("str", model)))
    run = await Engine(recorder, secret_store=secret_store).run(TASK, pool, ScriptedConductor([ONE]))
    assert run.answer == "x"
    assert KEY not in repr(await stored(recorder))


@pytest.mark.parametrize(
    "error",
    [
        WorkerError(cast("FaultKind", "busy"), "no such kind"),
        WorkerError(FaultKind.SERVER, cast("str", None)),
        WorkerError(FaultKind.SERVER, cast("str", ValueError("an error for a text"))),
        WorkerError(FaultKind.SERVER, retry_after=float("inf")),
        WorkerError(FaultKind.SERVER, retry_after=float("nan")),
        WorkerError(FaultKind.SERVER, retry_after=cast("float", "5")),
        WorkerError(FaultKind.SERVER, partial=cast("str", b"bytes")),
        WorkerError(FaultKind.SERVER, tokens=-1_000, dollars=-5.0),
        WorkerError(FaultKind.SERVER, tokens=1, dollars=float("nan")),
        WorkerError(FaultKind.DENIED, "nobody said no"),
        WorkerError(FaultKind.NO_ANSWER, tokens=0, dollars=-1.0),
    ],
)
async def test_invariant_6_what_is_no_fault_is_recorded_as_one(error: WorkerError) -> None:
    recorder = Strict()
    run = await engine(recorder).run(TASK, pool_of(member("w", lambda _: error, attempts=2)), ScriptedConductor([ONE]))
    assert run.status is RunStatus.FAILED
    assert fault(run) in {FaultKind.SERVER, FaultKind.INTERNAL, FaultKind.NO_ANSWER}
    assert all(attempt.charged.tokens >= 0 <= (attempt.charged.dollars or 0) for attempt in run.attempts)


def raises(error: BaseException) -> Callable[[object], Coroutine[Any, Any, Any]]:
    async def raising(_: object) -> None:
        raise error

    return raising


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), TimeoutError("mine"), ExceptionGroup("x", [OSError()]), *FOREIGN]
)
async def test_invariant_6_whatever_a_worker_raises_its_dependents_do_not_hang(error: BaseException) -> None:
    after = member("after")
    pool = pool_of(Member(Card("w", attempts=1), Answers(raises(error))), after)
    async with asyncio.timeout(2):
        run = await run_plans(pool, plan_of((0, ()), (1, (0,))))
    assert run.status is RunStatus.FAILED
    assert fault(run, 1) is FaultKind.BLOCKED


@pytest.mark.parametrize("what", [asyncio.CancelledError(), TimeoutError(), OSError("key " + KEY), *FOREIGN])
async def test_invariant_6_whatever_a_check_raises_it_has_not_passed(what: BaseException) -> None:
    secret_store = SecretStore({"THE_KEY": KEY})
    secret_store.read("THE_KEY")
    recorder = Strict()
    pool = pool_of(member("w", "x", OutputCheck(Judged(raises(what)), OnCheckFailure.ESCALATE)))
    async with asyncio.timeout(2):
        run = await Engine(recorder, secret_store=secret_store).run(TASK, pool, ScriptedConductor([ONE]))
    assert fault(run) is FaultKind.CHECK_FAILED
    assert KEY not in repr(run.rounds) + repr(await stored(recorder))


@pytest.mark.parametrize("verdict", [None, True, CheckVerdict("judged", cast("CheckStatus", True), cast("str", None))])
async def test_invariant_6_what_is_no_verdict_has_not_passed(verdict: object) -> None:
    async def judge(_: Inspection) -> object:
        return verdict

    recorder = Strict()
    pool = pool_of(member("w", "x", OutputCheck(Judged(judge), OnCheckFailure.ESCALATE)))
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    assert fault(run) is FaultKind.CHECK_FAILED


@pytest.mark.parametrize(
    "proposal",
    [
        None,
        Plan(),
        Proposal(cast("Plan", [Step("x", 0)])),
        Proposal(ONE, rejected=cast("tuple[Rejection, ...]", (None,))),
        Proposal(Plan((Step("half \ud800", 0),))),
        Proposal(Plan((Step("nul \0", 0),))),
    ],
)
async def test_invariant_6_what_is_no_proposal_ends_the_run(proposal: object) -> None:
    async def propose(_: Situation) -> object:
        return proposal

    run = await engine(Strict()).run(TASK, pool_of(w="x"), Proposes(propose))
    assert run.finished is not None
    assert run.finished.fault is FaultKind.NO_PLAN


@pytest.mark.parametrize("error", [asyncio.CancelledError(), TimeoutError("mine"), OSError(f"{KEY} \ud800"), *FOREIGN])
async def test_invariant_6_whatever_a_conductor_raises_its_run_ends(error: BaseException) -> None:
    secret_store = SecretStore({"THE_KEY": KEY})
    secret_store.read("THE_KEY")
    recorder = Strict()
    run = await Engine(recorder, secret_store=secret_store).run(TASK, pool_of(w="x"), Proposes(raises(error)))
    assert (run.status, KEY in repr(await stored(recorder))) == (RunStatus.FAILED, False)


async def test_invariant_2_what_is_performed_is_what_was_journaled() -> None:
    access: list[int] = []
    plan = Plan((Step("a", 0), Step("b", 0), Step("c", 1, cast("tuple[int, ...]", access))))
    last = member("last")

    def widen(_: Request) -> Answer:
        access.append(0)
        return "secret"

    _, events = await run_events(pool_of(member("w", widen), last), plan)
    assert seen(last)[0].granted == ()
    assert [event.granted for event in events if isinstance(event, AttemptStarted) and event.worker == "last"] == [()]


@pytest.mark.parametrize("error", [EOFError("?"), *FOREIGN])
async def test_a_desk_that_breaks_leaves_the_question_open(error: BaseException) -> None:
    class Broken:
        async def ask(self, question: ApprovalQuestion) -> Decision | None:  # noqa: ARG002 - the protocol's signature
            raise error

    run = await run_plans(pool_of(member("w", approval=ApprovalMode.ALWAYS)), ONE, approver=Broken())
    assert (run.status, len(run.open_questions)) == (RunStatus.SUSPENDED, 1)


async def test_invariant_8_what_a_person_types_is_made_fit_for_the_journal() -> None:
    secret_store = SecretStore({"THE_KEY": KEY})
    secret_store.read("THE_KEY")
    ann = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    approver = ScriptedApprover({"ann": Decision(approved=True, actor=f"ann {KEY}", text="caf\udce9")})
    recorder = Strict()
    run = await Engine(recorder, approver=approver, secret_store=secret_store).run(
        TASK, pool_of(ann), ScriptedConductor([ONE])
    )
    assert run.answer == "caf\\udce9"
    assert KEY not in repr(await stored(recorder))


@pytest.mark.parametrize("error", [BrokenPipeError(), *FOREIGN])
async def test_an_observer_that_breaks_does_not_break_the_run(error: BaseException) -> None:
    def broken(_: Event) -> None:
        raise error

    def deaf(_round: int, _step: int, _piece: str) -> None:
        raise error

    def stream(request: Request) -> Answer:
        assert request.on_text is not None
        request.on_text("x")
        return "x"

    run = await Engine(MemoryRecorder(), observe=broken, on_text=deaf).run(
        TASK, pool_of(w=stream), ScriptedConductor([ONE])
    )
    assert run.answer == "x"


# People


async def test_a_person_who_judges_is_waited_for() -> None:
    async def judge(inspection: Inspection) -> CheckVerdict:
        assert inspection.ask is not None
        said = await inspection.ask("ann", "good?")
        return CheckVerdict("judged", CheckStatus.PASS if said == "yes" else CheckStatus.FAIL)

    ann = member("ann", lambda _: WorkerError(FaultKind.WAITING, "good?"), kind="human")
    pool, recorder = (
        pool_of(member("w", "x", OutputCheck(Judged(judge), OnCheckFailure.ESCALATE)), ann),
        MemoryRecorder(),
    )
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    assert (run.status, len(run.open_questions)) == (RunStatus.SUSPENDED, 1)
    approver = ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="yes")})
    resumed = await engine(recorder, approver).resume(run.id, pool, ScriptedConductor([ONE]))
    assert (resumed.answer, len(seen(pool[0]))) == ("x", 1)
    assert [attempt.started.role for attempt in resumed.attempts] == [CallRole.STEP, CallRole.CHECK, CallRole.CHECK]


async def test_a_conductor_cannot_get_round_a_person() -> None:
    planner = member("planner", "plan", approval=ApprovalMode.ALWAYS)

    async def propose(situation: Situation) -> Proposal:
        assert situation.ask is not None
        try:
            await situation.ask(planner, Request(situation.task, "plan"))
        except WorkerError:
            return Proposal(ONE, note="without leave")
        return Proposal(ONE, final=True)

    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool_of(w="x"), Proposes(propose))
    assert (run.status, len(run.open_questions)) == (RunStatus.SUSPENDED, 1)
    approver = ScriptedApprover({"planner": Decision(approved=True, actor="ann")})
    assert (await engine(recorder, approver).resume(run.id, pool_of(w="x"), Proposes(propose))).answer == "x"
    asked = [event for event in await stored(recorder) if isinstance(event, QuestionAsked)]
    assert len(asked) == 1


# Asking side by side


async def test_invariant_4_questions_asked_side_by_side_keep_their_own_keys() -> None:
    left = {"one": 1, "two": 1}

    async def flaky(request: Request) -> Answer:
        await asyncio.sleep(0)
        if left[request.subtask]:
            left[request.subtask] -= 1
            return WorkerError(FaultKind.RESET)
        return request.subtask

    model = member("model", flaky)

    async def propose(situation: Situation) -> Proposal:
        ask = situation.ask
        assert ask is not None
        replies = await asyncio.gather(*(ask(model, Request(TASK, part)) for part in ("one", "two")))
        assert [reply.text for reply in replies] == ["one", "two"]
        return Proposal(ONE, final=True)

    run = await engine().run(TASK, pool_of(w="x"), Proposes(propose))
    assert run.answer == "x"
    keys = {part: {request.key for request in seen(model) if request.subtask == part} for part in ("one", "two")}
    assert len(keys["one"]) == len(keys["two"]) == 1
    assert not keys["one"] & keys["two"]


# Time and cancellation


async def test_invariant_3_no_seconds_no_call() -> None:
    worker = member("w")
    run = await run_plans(pool_of(worker), ONE, caps=Caps(seconds=0))
    assert run.finished is not None
    assert (run.status, run.finished.cap, seen(worker)) == (RunStatus.CAPPED, "seconds", [])


async def test_invariant_3_a_worker_that_swallows_its_cancellation_buys_no_further_call() -> None:
    async def stubborn(_: Request) -> Answer:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return WorkerError(FaultKind.SERVER, "once more?")
        return "late"

    one = member("w", stubborn, attempts=5)
    async with asyncio.timeout(2):
        run = await run_plans(pool_of(one), ONE, caps=Caps(seconds=0.05))
    assert (run.status, len(seen(one))) == (RunStatus.CAPPED, 1)


async def test_invariant_3_a_conductor_that_swallows_its_cancellation_gets_no_performance() -> None:
    async def stubborn(_: Situation) -> Proposal:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return Proposal(ONE)

    worker = member("w")
    async with asyncio.timeout(2):
        run = await engine().run(TASK, pool_of(worker), Proposes(stubborn), Caps(seconds=0.05))
    assert (run.status, seen(worker)) == (RunStatus.CAPPED, [])


async def test_a_cancelled_run_stays_cancelled_when_its_journal_fails() -> None:
    class Failing(MemoryRecorder):
        full = False

        async def flush(self) -> None:
            if self.full:
                raise JournalUnavailable("disk full")

    recorder, begun = Failing(), asyncio.Event()

    async def forever(_: Request) -> Answer:
        begun.set()
        await asyncio.sleep(60)
        return "late"

    running = asyncio.create_task(engine(recorder).run(TASK, pool_of(w=forever), ScriptedConductor([ONE])))
    await begun.wait()
    recorder.full = True
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_calls_that_wait_for_a_place_hold_no_budget() -> None:
    async def short(_: Request) -> Answer:
        await asyncio.sleep(0)
        return Reply("x", Usage(5, 5))

    worker = member("w", short, concurrency=1, max_output_tokens=100)
    run = await run_plans(pool_of(worker), plan_of(*[(0, ())] * 4), caps=Caps(tokens=300))
    assert (run.status, len(seen(worker))) == (RunStatus.DONE, 4)


async def test_each_worker_is_asked_again_as_often_as_its_own_check_says() -> None:
    def handoff() -> OutputCheck:
        return OutputCheck(always(CheckStatus.FAIL), OnCheckFailure.REDO, redo=1)

    pool = pool_of(member("a", "x", handoff(), escalate="b"), member("b", "y", handoff()))
    run = await run_plans(pool, ONE)
    assert [attempt.started.worker for attempt in run.attempts] == ["a", "a", "b", "b"]
