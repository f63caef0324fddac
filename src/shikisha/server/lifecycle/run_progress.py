"""What a client may see of a run in progress: pieces of the answer, notes about steps, and how it ends or waits.

Invariants: text that is sent as the answer is the answer. A piece is sent at once only if nothing can revoke it: the
plan is the last one, the step is its last, and no check, schema or reviewer comes between the worker and the client.
If a later attempt says something else, the client is told so (`AnswerReplaced`) and gets no second text. Until a
person has approved a run's answer, callers who may not approve see that texts exist, but not the texts; events keep
their numbers and figures. Writing JSON and server-sent events is the APIs' business.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Protocol

from shikisha.core.errors import FaultKind, UnknownRun
from shikisha.core.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    AttemptStarted,
    CallRole,
    CheckDecided,
    EndReached,
    Event,
    GuardDecided,
    OnCheckFailure,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    StepFinished,
    ToolRefused,
    ToolsOffered,
)
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import ToolCall
from shikisha.core.plan import Plan, item_place
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.autonomy import AutonomyClass, AutonomyMode, AutonomyPolicy
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Pool
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.broadcast import EventUpdate, LiveRun, RunUpdate, TextUpdate
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.lifecycle.tool_calls import client_tool_calls

StepPlace = tuple[int, int]


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """A line about what is being done for the answer."""

    line: str


@dataclass(frozen=True, slots=True)
class RunPausedUpdate:
    """The run waits: for a person, or for the client's tools; or it was stopped (`status` INTERRUPTED)."""

    status: RunStatus


@dataclass(frozen=True, slots=True)
class AnswerReplaced:
    """The text that was sent is not the answer: a later attempt replaced it."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run has ended; its answer, if there is one, was sent in full."""

    end: RunFinished


ProgressUpdate = AnswerPiece | ProgressNote | RunPausedUpdate | AnswerReplaced | RunEnded


@dataclass(frozen=True, slots=True)
class ProgressTerms:
    """Conditions for streaming the last step: `conclusive` says whether a worker's answer is final.

    `rounds` is the run's cap. `live` False: the answer is told at the end (a schema or a person looks at it first).
    """

    rounds: int
    conclusive: Callable[[str], bool]
    live: bool = True


@dataclass(slots=True)
class ProgressTracker:
    """Turns updates of one run into what a client sees. `after` is the last event that the client knows."""

    terms: ProgressTerms
    after: int = -1
    events: list[Event] = field(default_factory=list)
    last: StepPlace | None = None  # the step whose answer will be the run's
    _plan: Plan | None = None
    _names: tuple[str, ...] = ()
    _open: bool = False  # whether the attempt under way may be heard
    _told: list[str] = field(default_factory=list)
    _repeated: int | None = (
        None  # characters of what was told that a further attempt repeats so far; None: it is through
    )
    heard: int = -1  # the number of the last event
    over: bool = False

    @property
    def text(self) -> str:
        """The answer as far as it was sent."""
        return "".join(self._told)

    def hear(self, heard: RunUpdate) -> Iterable[ProgressUpdate]:
        """Return what the client sees of an update."""
        if self.over:
            return ()
        if isinstance(heard, TextUpdate):
            return self._said(heard) if self._open and (heard.round, heard.step) == self.last else ()
        self.events.append(heard.event)
        self.heard = heard.number
        return self._happened(heard)

    def _said(self, said: TextUpdate) -> Iterable[ProgressUpdate]:
        piece, same = said.piece, self._repeated
        if same is not None:
            known = self._told[0][same : same + len(piece)]  # one text since the attempt began
            if not piece.startswith(known):
                return self._replaced()
            self._repeated = same + len(known) if len(known) == len(piece) else None
            piece = piece[len(known) :]
        if not piece:
            return ()
        self._told.append(piece)
        return (AnswerPiece(piece),)

    def _replaced(self) -> Iterable[ProgressUpdate]:
        self.over = True
        return (AnswerReplaced(),)

    def _happened(self, happened: EventUpdate) -> Iterable[ProgressUpdate]:
        known = happened.number <= self.after
        match happened.event:
            case RunStarted() as event:
                self._names = event.pool
            case PlanProposed() as event:
                self._look(event)
            case AttemptStarted() as event if event.role is CallRole.STEP and (event.round, event.step) == self.last:
                self._open = self.terms.live and not known and self.terms.conclusive(event.worker)
                self._told = [self.text] if self._told else []
                self._repeated = 0 if self._told else None
            case RunPaused(status=status) if not known:
                self.over = status is not RunStatus.SUSPENDED
                return (RunPausedUpdate(status),)
            case QuestionAnswered() | RunResumed():
                return ()
            case RunFinished() as event if not known:
                return self._ended(event)
            case _:
                pass
        line = None if known else self._line(happened.event)
        return (ProgressNote(line),) if line else ()

    def _look(self, proposed: PlanProposed) -> None:
        self._plan = Plan.loads(proposed.plan)
        is_last = proposed.final or proposed.round + 1 >= self.terms.rounds
        self.last = (proposed.round, len(self._plan) - 1) if is_last and len(self._plan) else None

    def _ended(self, event: RunFinished) -> Iterable[ProgressUpdate]:
        if event.answer is None or event.status is RunStatus.FAILED:
            self.over = True
            return (RunEnded(event),)
        before = self.text
        if not event.answer.startswith(before):
            return self._replaced()
        self.over = True
        rest = event.answer[len(before) :]
        if rest:
            self._told.append(rest)
        return (AnswerPiece(rest), RunEnded(event)) if rest else (RunEnded(event),)

    def _line(self, event: Event) -> str | None:
        """Return a line about an event that is worth one."""
        match event:
            case PlanProposed():
                return self._planned(event)
            case AttemptStarted(role=CallRole.TOOL, step=int(step)):
                return f"step {self._of(step)}: {event.tool or event.worker} is called …"
            case ToolRefused():
                return f"step {self._of(event.step)}: {event.tool} is not called ({event.fault})"
            case AttemptStarted(role=CallRole.STEP, step=int(step)) if (event.round, step) != self.last:
                stands_in = f", instead of {event.instead_of}" if event.instead_of else ""
                once_more = f" ({event.reason})" if event.reason is not AttemptReason.FIRST else ""
                return f"step {self._of(step)}: {event.worker}{stands_in}{once_more} …"
            case AttemptFailed(step=int(step)):
                return f"step {self._of(step)}: {event.worker} failed ({event.fault})"
            case AttemptFinished(step=int(step)) if (event.round, step) != self.last:
                return f"step {self._of(step)}: {event.worker} answered in {event.seconds:.1f} s"
            case StepFinished(fault=fault) if fault is not None:
                return f"step {self._of(event.step)}: no answer ({fault})"
            case _:
                return None

    def _planned(self, event: PlanProposed) -> str:
        steps = self._plan.steps if self._plan else ()
        if not steps:
            return f"round {event.round + 1}: the answer is kept"
        names = [self._names[step.worker] if step.worker < len(self._names) else "?" for step in steps]
        return f"round {event.round + 1}: {len(steps)} step{'s' * (len(steps) > 1)} ({', '.join(names)})"

    def _of(self, step: int) -> str:
        place = item_place(step)
        if place is not None:
            return f"{place[0] + 1}, item {place[1] + 1}"
        return f"{step + 1} of {len(self._plan)}" if self._plan else str(step + 1)


_POLL_SECONDS = 0.25  # seconds between two looks at a run that waits for a person


class RunFeed(Protocol):
    """A source of a run's updates (the run service)."""

    def listen(self, name: str, after: int = -1) -> AsyncGenerator[RunUpdate]:
        """Yield a run's events after a number, and everything that follows until it ends or waits."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCallsNeeded:
    """The run waits for the client: it is to make these calls, and come back with their results."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """The run waits for a person, who did not come in time: questions of its own (a child run's are not among them).

    `suspended` False: it does not wait, but nobody performs it now.
    """

    questions: tuple[QuestionAsked, ...]
    suspended: bool = True


async def wait_for_run(
    service: RunFeed, name: str, tracker: ProgressTracker, patience: float, whole: LiveRun | None = None
) -> AsyncGenerator[ProgressUpdate | ToolCallsNeeded | StillWaiting]:
    """Yield what a client sees of a run, until it ends, is replaced or interrupted, or waits.

    `whole`: the run as it is performed here, where the client wants nothing before it has ended.
    """
    until: float | None = None
    clock = asyncio.get_running_loop().time
    while True:
        paused = False
        updates = service.listen(name, tracker.heard) if whole is None else whole.whole(tracker.heard)
        whole = None
        async with aclosing(updates) as hearing:
            async for heard in hearing:
                for told in tracker.hear(heard):
                    paused = isinstance(told, RunPausedUpdate)
                    if not (isinstance(told, RunPausedUpdate) and told.status is RunStatus.SUSPENDED):
                        yield told
        if tracker.over:
            return
        waits = _what_it_waits_for(tracker)
        if isinstance(waits, ToolCallsNeeded):
            for piece in _text_beside_calls(tracker):
                yield piece
            yield waits
            return
        until = clock() + patience if paused or until is None else until
        if clock() >= until:
            yield waits
            return
        await asyncio.sleep(_POLL_SECONDS)


def _what_it_waits_for(tracker: ProgressTracker) -> ToolCallsNeeded | StillWaiting:
    run = Run.fold(tracker.events)
    for question in run.open_questions:
        if question.asks is QuestionKind.TOOLS:
            return ToolCallsNeeded(client_tool_calls(question))
    return StillWaiting(tuple(run.open_questions), run.status is RunStatus.SUSPENDED)


def _text_beside_calls(tracker: ProgressTracker) -> Iterable[AnswerPiece]:
    """Yield the worker's text next to its calls, as far as it was not sent."""
    spoken = [each for each in tracker.events[tracker.after + 1 :] if isinstance(each, AttemptFinished) and each.calls]
    text = spoken[-1].text if spoken else ""
    if text.startswith(tracker.text) and text != tracker.text:
        yield AnswerPiece(text[len(tracker.text) :])


def can_stream(task: Task, conductor: Conductor, autonomy_policy: AutonomyPolicy) -> bool:
    """Whether no schema and no reviewer comes between such a run's answer and its client."""
    if task.answer_schema is not None:
        return False
    return not may_be_reviewed(autonomy_policy.of(task, conductor.name))


def may_be_reviewed(autonomy: AutonomyClass) -> bool:
    """Whether a person may be shown an answer of this class before its client is."""
    if autonomy.mode is not AutonomyMode.ESCALATE:
        return autonomy.mode is not AutonomyMode.AUTONOMOUS
    rules = autonomy.rules
    asks = rules.check or rules.substitution or rules.disagreement
    return asks or rules.dollars is not None or rules.confidence is not None


def streamable_workers(pool: Pool) -> Callable[[str], bool]:
    """Return what says of a worker whether none of its checks can refuse an answer."""
    return lambda worker: all(handoff.on_fail is OnCheckFailure.PASS for handoff in pool.named(worker).handoffs)


WITHHELD_TEXT = "(withheld until a person lets the answer pass)"


def awaits_review(run: Run, autonomy_policy: AutonomyPolicy) -> bool:
    """Whether a person has to review the answer of this root run, and has not approved it."""
    if run.answer is not None:
        return False
    if any(asked.asks is QuestionKind.REVIEW for asked in run.asked.values()):
        return True
    autonomy = autonomy_policy.of(run.task, run.started.conductor)
    return may_be_reviewed(autonomy) and (run.finished is None or autonomy.mode is AutonomyMode.REVIEW)


async def hides_texts(service: RunService, by: Principal, name: str) -> bool:
    """Whether texts of a run, or of a child run, are kept from this principal now."""
    if by.may(KeyScope.APPROVE):
        return False
    return awaits_review(await service.read_run(root_run_id(name)), service.container.autonomy_policy())


async def visible_family(service: RunService, by: Principal, name: str) -> dict[str, Run]:
    """Return a run and its child runs by id, as this principal may see them, the run itself first."""
    if not await hides_texts(service, by, name):
        return await service.read_family(name)
    found, names = {name: Run.fold(map(withhold_texts, await service.journal.read(name)))}, [name]
    for each in names:
        for child in await service.journal.children(each):
            with suppress(UnknownRun):
                found[child.id] = Run.fold(map(withhold_texts, await service.journal.read(child.id)))
                names.append(child.id)
    return found


def visible_run(run: Run, events: Iterable[Event], autonomy_policy: AutonomyPolicy) -> Run:
    """Return a run without the texts that clients may not see before a review."""
    return Run.fold(map(withhold_texts, events)) if awaits_review(run, autonomy_policy) else run


def withhold_texts(event: Event) -> Event:
    """Return an event without what workers, and people in their place, wrote. A root's end holds what was let pass."""
    match event:
        case AttemptFinished(step=int()) if event.text or event.calls:
            return replace(event, text=event.text and WITHHELD_TEXT, calls="")
        case AttemptStarted() if event.arguments:
            return replace(event, arguments=WITHHELD_TEXT)
        case ToolsOffered() if event.query:
            return replace(event, query=WITHHELD_TEXT)
        case ToolRefused():
            return replace(event, message=WITHHELD_TEXT, arguments=event.arguments and WITHHELD_TEXT)
        case GuardDecided() if event.reason:
            return replace(event, reason=WITHHELD_TEXT)
        case AttemptFailed(step=int()) if event.partial:
            return replace(event, partial=WITHHELD_TEXT)
        case StepFinished(fault=FaultKind.CHECK_FAILED):
            return replace(event, message=WITHHELD_TEXT)
        case CheckDecided():
            return replace(event, reason=event.reason and WITHHELD_TEXT)
        case QuestionAsked(asks=QuestionKind.REVIEW):
            return replace(event, prompt=WITHHELD_TEXT)
        case QuestionAnswered():
            return replace(event, text=event.text and WITHHELD_TEXT)
        case EndReached():
            return replace(event, answer=event.answer and WITHHELD_TEXT, asks=event.asks and WITHHELD_TEXT)
        case RunFinished():
            why = WITHHELD_TEXT if event.fault is FaultKind.CHECK_FAILED else event.why
            root = event.run == root_run_id(event.run)
            return replace(event, why=why, answer=event.answer if root else event.answer and WITHHELD_TEXT)
        case AnswerGraded():
            return replace(event, found=event.found and WITHHELD_TEXT, evidence=event.evidence and WITHHELD_TEXT)
        case _:
            return event
