"""Whatever plans, workers and checks do, the engine holds its promises: 1,500 cases, with FUZZ=1 5,000.

Workers answer, fail in every way there is, overcharge or break their own protocol; checks pass and fail; people are
asked and are not there; caps are tight. What must hold is read from the events alone. Others: test_plan_parser_fuzz.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_people import ScriptedApprover

from shikisha.checks.text_checks import FixedCheck
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Amount, Caps, Price, Usage
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CallRole,
    CheckStatus,
    Event,
    FinishReason,
    OnCheckFailure,
    QuestionAnswered,
    QuestionAsked,
    RunStatus,
    StepFinished,
)
from shikisha.core.plan import Plan, Step
from shikisha.core.run import CheckVerdict, Run
from shikisha.engine.approvals import Decision
from shikisha.engine.pool import Check, Inspection, Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode, Card, Reply, Request
from support import TASK, engine

T = TypeVar("T")
NAMES = ("a", "b", "c")
OUTPUT = 20  # tokens that a worker may write
UNCLEAR = {FaultKind.TIMEOUT, FaultKind.RESET, FaultKind.INTERNAL}  # it may have used all


@dataclass
class Bad:
    """Something that no worker should do: raise what it likes, or return what is no Reply."""

    what: object

    def do(self) -> object:
        if isinstance(self.what, BaseException):
            raise self.what
        return self.what


OUTCOMES: list[str | Reply | WorkerError | Bad] = [
    *["fine"] * 8,
    "",
    "NUL \0",
    "half \ud83c",
    Reply("measured", Usage(1, OUTPUT)),
    Reply("cut", Usage(1, 1), finish=FinishReason.LENGTH),
    Reply("no", finish=FinishReason.REFUSED),
    Reply("absurd", Usage(-5, 3)),
    Reply("not a number", dollars=float("nan")),
    Reply("prepaid, it says", Usage(5, 5), prepaid=True),
    Reply("odd model", model="\0 \ud83c"),
    *[WorkerError(kind, "as told") for kind in FaultKind],
    WorkerError(FaultKind.RATE_LIMITED, retry_after=-1),
    WorkerError(FaultKind.RATE_LIMITED, retry_after=1e9),
    WorkerError(FaultKind.SERVER, "a bill below nothing", tokens=-10_000, dollars=-5.0),
    WorkerError(FaultKind.SERVER, "no bill at all", tokens=0, dollars=float("nan")),
    WorkerError(FaultKind.SERVER, "odd \0 \ud83c", partial="\0 \ud83c"),
    Bad(asyncio.CancelledError()),
    Bad(ValueError("broken adapter")),
    Bad(RecursionError()),
    Bad(None),
    Bad("no reply"),
]


@dataclass
class Fickle:
    """A worker that gives its outcomes in turn, after letting others go first some of the time."""

    outcomes: list[str | Reply | WorkerError | Bad]
    turns: Iterator[int] = field(default_factory=count)
    calls: int = 0

    async def perform(self, request: Request) -> Reply:
        self.calls += 1
        turn = next(self.turns)
        await asyncio.sleep(0)
        outcome = self.outcomes[turn % len(self.outcomes)]
        if isinstance(outcome, Bad):
            return outcome.do()  # type: ignore[return-value]  # the point of it
        if isinstance(outcome, WorkerError):
            raise outcome
        return replace(outcome, text=f"{outcome.text} {request.key}") if isinstance(outcome, Reply) else Reply(outcome)


@dataclass(frozen=True)
class Case:
    """A pool, plans for it, and caps."""

    members: list[Member]
    plans: list[Plan]
    caps: Caps
    approver: dict[str, Decision]


class Tape:
    """Choices made by bytes, so that hypothesis draws, changes and shrinks a whole case as one string of them."""

    def __init__(self, choices: bytes) -> None:
        self._choices = iter(choices)

    def pick(self, options: Sequence[T]) -> T:
        """The next choice; the first option when the tape is at its end."""
        return options[next(self._choices, 0) % len(options)]

    def some(self, most: int) -> range:
        """A range as long as the next choice says."""
        return range(self.pick(range(most + 1)))


@dataclass
class Odd:
    """A check that should not be one."""

    verdict: Bad
    name: str = "odd"

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        if isinstance(self.verdict.what, str) and inspection.ask:
            return CheckVerdict(self.name, CheckStatus.FAIL, await inspection.ask(self.verdict.what, "Is it right?"))
        return self.verdict.do()  # type: ignore[return-value]  # the point of it


ODD = [
    Bad(ValueError("broken check")),
    Bad(None),
    Bad(CheckVerdict("odd", CheckStatus.FAIL, "\ud83c \0")),
    Bad("nobody"),
    Bad("c"),
]


def handoff(tape: Tape) -> OutputCheck:
    verdicts = [tape.pick(list(CheckStatus)) for _ in range(2)]
    checks: list[Check] = [FixedCheck(verdicts, "fuzzed", "not so")] * 4
    return OutputCheck(
        tape.pick([*checks, *(Odd(odd) for odd in ODD)]), tape.pick(list(OnCheckFailure)), tape.pick(range(3))
    )


def worker(tape: Tape, name: str) -> Member:
    card = Card(
        name,
        price=tape.pick([Price(), Price(), Price(1, 2), Price(call=0.01), None]),
        max_output_tokens=OUTPUT,
        concurrency=tape.pick([None, None, 1]),
        attempts=tape.pick([1, 2, 3]),
        fallback=tape.pick([None, None, *NAMES]),
        escalate=tape.pick([None, None, *NAMES]),
        approval=tape.pick([ApprovalMode.NEVER] * 5 + [ApprovalMode.ALWAYS]),
    )
    outcomes = [tape.pick(OUTCOMES) for _ in range(4)]
    return Member(card, Fickle(outcomes), tuple(handoff(tape) for _ in tape.some(1)))


def plan(tape: Tape) -> Plan:
    """Between no and five steps, more often many."""
    return Plan(
        tuple(
            Step(f"part {i}", tape.pick(range(3)), tuple(seen for seen in range(i) if tape.pick([True, False])))
            for i in range(tape.pick([3, 5, 4, 2, 1] * 4 + [0]))
        )
    )


def budget(tape: Tape) -> Caps:
    return Caps(
        steps=tape.pick([25] * 16 + [5, 3, 1, 0]),
        rounds=tape.pick([3] * 9 + [2] * 5 + [1] * 5 + [0]),
        tokens=tape.pick([None] * 14 + [2000, 800, 800, 400, 200, 0]),
        dollars=tape.pick([None] * 14 + [0.05, 0.05, 0.02, 0.02, 0.001, 0.0]),
    )


def case_of(choices: bytes) -> Case:
    """Three workers with any stand-ins, up to three plans, any caps, and a desk that knows some of the workers."""
    tape = Tape(choices)
    there = {name: tape.pick([None, Decision(True, "eve", "from a person"), Decision(False, "eve")]) for name in NAMES}
    approver = {name: decision for name, decision in there.items() if decision}
    members = [worker(tape, name) for name in NAMES]
    return Case(members, [plan(tape) for _ in range(tape.pick([1, 2, 3]))], budget(tape), approver)


async def perform(case: Case) -> tuple[Run, tuple[Event, ...]]:
    recorder = MemoryRecorder()
    async with asyncio.timeout(20):
        run = await engine(recorder, ScriptedApprover(case.approver)).run(
            TASK, Pool(case.members), ScriptedConductor(case.plans), case.caps
        )
    return run, await recorder.read(run.id)


# What must hold


def steps_end_in_recorded_results(run: Run) -> None:
    """Every step has an answer or a typed fault, unless it waits for a person or for a step that does."""
    assert run.status in {RunStatus.DONE, RunStatus.FAILED, RunStatus.CAPPED, RunStatus.SUSPENDED}
    asked = {(question.round, question.step) for question in run.open_questions}
    assert asked or run.status is not RunStatus.SUSPENDED
    for turn in run.rounds:
        missing = {index for index, result in enumerate(turn.results) if result is None}
        assert not missing or run.status is RunStatus.SUSPENDED
        for index in missing:
            assert turn.plan is not None
            assert (turn.index, index) in asked or missing & set(turn.plan.steps[index].access)
        assert all(result.ok != (result.fault is not None) for result in turn.results if result)


def steps_begin_after_what_they_see(run: Run, events: tuple[Event, ...]) -> None:
    done: set[tuple[int, int]] = set()
    for event in events:
        match event:
            case StepFinished():
                done.add((event.round, event.step))
            case AttemptStarted(step=int(step)):
                plan = run.rounds[event.round].plan
                assert plan is not None
                assert {(event.round, seen) for seen in plan.steps[step].access} <= done
                assert event.granted == (plan.steps[step].access if event.role is CallRole.STEP else ())


def charged(event: AttemptFinished | AttemptFailed) -> Amount:
    """What counts against the caps."""
    known = event.charged if isinstance(event, AttemptFailed) else Amount(event.usage.total, event.dollars)
    return known + event.uncertain


def caps_hold(run: Run, caps: Caps, events: tuple[Event, ...]) -> None:
    """Replay the bill: at the start of every call, what was used and what is held are within the caps."""
    assert len([turn for turn in run.rounds if turn.proposed]) <= caps.rounds
    begun = {(e.round, e.step) for e in events if isinstance(e, AttemptStarted)}
    assert len(begun) <= caps.steps
    held: dict[tuple[int, int | None, int], Amount] = {}
    used = Amount()
    for event in events:
        match event:
            case AttemptStarted():
                held[event.round, event.step, event.attempt] = event.reserved
                total = sum(held.values(), used)
                assert caps.tokens is None or total.tokens <= caps.tokens
                assert caps.dollars is None or (total.dollars is not None and total.dollars <= caps.dollars + 1e-9)
            case AttemptFinished() | AttemptFailed():
                reserved = held.pop((event.round, event.step, event.attempt))
                used += charged(event)
                if isinstance(event, AttemptFailed) and event.fault in UNCLEAR:
                    assert (event.charged, event.uncertain) == (Amount(), reserved)
                if isinstance(event, AttemptFailed) and event.fault is FaultKind.SERVER and not event.partial:
                    assert (event.charged, event.uncertain) == (Amount(), Amount())
    assert not held


def calls_are_journaled(case: Case, events: tuple[Event, ...]) -> None:
    """As many calls as the journal says, none outside the pool, and each to the plan's worker or its named stand-in."""
    started = [event for event in events if isinstance(event, AttemptStarted)]
    given = {event.worker for event in events if isinstance(event, QuestionAsked)}
    cards = {one.card.name: one.card for one in case.members}
    for one in case.members:
        assert isinstance(one.worker, Fickle)
        journaled = len([event for event in started if event.worker == one.card.name])
        assert one.worker.calls == journaled or (one.worker.calls < journaled and one.card.name in given)
    for event in (event for event in started if event.role is CallRole.STEP):
        planned = NAMES[case.plans[event.round].steps[event.step or 0].worker]
        other = cards[event.instead_of] if event.instead_of else None
        assert event.worker == planned if other is None else event.worker in {other.fallback, other.escalate}


def approvals_are_decided_by_people(case: Case, events: tuple[Event, ...]) -> None:
    answers = {event.question: event for event in events if isinstance(event, QuestionAnswered)}
    for event in answers.values():
        assert event.actor == "eve"
    asked = [event for event in events if isinstance(event, QuestionAsked)]
    assert {answers[q.question].approved for q in asked if q.question in answers} <= {
        decision.approved for decision in case.approver.values()
    }
    for one in case.members:
        if one.card.approval is ApprovalMode.ALWAYS:
            approved = case.approver.get(one.card.name, Decision(False, "")).approved
            assert approved or one.card.name not in {e.worker for e in events if isinstance(e, AttemptStarted)}


def nobody_gets_round_a_no(case: Case, events: tuple[Event, ...]) -> None:
    """Once a person has said no to a step's worker, nobody is called for that step (a check's own calls aside)."""
    checks = [handoff.check for one in case.members for handoff in one.handoffs]
    if any(isinstance(check, Odd) and check.verdict.what == "c" for check in checks):
        return
    places = {event.question: (event.round, event.step) for event in events if isinstance(event, QuestionAsked)}
    refused = set()
    for event in events:
        if isinstance(event, QuestionAnswered) and not event.approved:
            refused.add(places[event.question])
        assert not isinstance(event, AttemptStarted) or (event.round, event.step) not in refused


@pytest.mark.full
@settings(
    max_examples=5_000 if os.environ.get("FUZZ") else 1_500,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.binary(min_size=120, max_size=120))
def test_the_engine_keeps_its_promises_whatever_happens(choices: bytes) -> None:
    case = case_of(choices)
    with asyncio.Runner() as runner:
        run, events = runner.run(perform(case))
    assert Run.fold(events) == run
    steps_end_in_recorded_results(run)
    steps_begin_after_what_they_see(run, events)
    caps_hold(run, case.caps, events)
    calls_are_journaled(case, events)
    approvals_are_decided_by_people(case, events)
    nobody_gets_round_a_no(case, events)
