"""What a client is told of a run while it happens, in no API's own shape: pieces of the answer, and how it goes on.

Invariant: what is told as answer is the answer. A piece is passed on as it comes only if nothing can take it back: the
plan is the last one, the step is its last, and no check, schema or review stands between the worker and the client.
If a later attempt says something else all the same, that is told (`Replaced`), and never a second text after the first.
Whoever listens is not made to wait: each piece is told when it is heard. Deliberately absent: SSE, JSON, keep-alives
(`streaming` and its kin), and waiting for people (`waiting`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shikisha.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    Event,
    PlanProposed,
    QuestionAnswered,
    Reason,
    Role,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    Status,
    StepFinished,
)
from shikisha.plan import Plan
from shikisha.server.live import Happened, Heard, Said

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line about what is being done for the answer."""

    line: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The run waits: for a person, or for the client's tools; or it was stopped (`status` INTERRUPTED)."""

    status: Status


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was told is not the answer: another attempt said something else."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over; the answer, if there is one, has been told whole."""

    end: RunFinished


Told = Piece | Note | Paused | Replaced | Ended


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides whether the last step may be heard live: `conclusive` says whether a worker's answer stands.

    `rounds` is the run's cap. `live` False: the answer is told at the end (a schema or a person looks at it first).
    """

    rounds: int
    conclusive: Callable[[str], bool]
    live: bool = True


@dataclass(slots=True)
class Teller:
    """Turns what is heard of one run into what is told. `after` is the last event that the client knows of."""

    terms: Terms
    after: int = -1
    events: list[Event] = field(default_factory=list)
    last: Place | None = None  # the step whose answer will be the run's
    _plan: Plan | None = None
    _names: tuple[str, ...] = ()
    _open: bool = False  # whether the attempt under way may be heard
    _told: list[str] = field(default_factory=list)
    _again: str | None = None  # what a further attempt has said, as long as it only repeats what was told
    heard: int = -1  # the number of the last event
    over: bool = False

    @property
    def text(self) -> str:
        """The answer as far as it has been told."""
        return "".join(self._told)

    def hear(self, heard: Heard) -> Iterable[Told]:
        """Return what is to be told of this."""
        if self.over:
            return ()
        if isinstance(heard, Said):
            return self._said(heard) if self._open and (heard.round, heard.step) == self.last else ()
        self.events.append(heard.event)
        self.heard = heard.number
        return self._happened(heard)

    def _said(self, said: Said) -> Iterable[Told]:
        if self._again is None:
            self._told.append(said.piece)
            return (Piece(said.piece),)
        self._again += said.piece
        before = self.text
        if before.startswith(self._again):
            return ()
        if not self._again.startswith(before):
            return self._replaced()
        more, self._again = self._again[len(before) :], None
        self._told.append(more)
        return (Piece(more),)

    def _replaced(self) -> Iterable[Told]:
        self.over = True
        return (Replaced(),)

    def _happened(self, happened: Happened) -> Iterable[Told]:
        known = happened.number <= self.after
        match happened.event:
            case RunStarted() as event:
                self._names = event.pool
            case PlanProposed() as event:
                self._look(event)
            case AttemptStarted() as event if event.role is Role.STEP and (event.round, event.step) == self.last:
                self._open = self.terms.live and not known and self.terms.conclusive(event.worker)
                self._again = "" if self._told else None
            case RunPaused(status=status) if not known:
                self.over = status is not Status.SUSPENDED
                return (Paused(status),)
            case QuestionAnswered() | RunResumed():
                return ()
            case RunFinished() as event if not known:
                return self._ended(event)
            case _:
                pass
        line = None if known else self._line(happened.event)
        return (Note(line),) if line else ()

    def _look(self, proposed: PlanProposed) -> None:
        self._plan = Plan.loads(proposed.plan)
        is_last = proposed.final or proposed.round + 1 >= self.terms.rounds
        self.last = (proposed.round, len(self._plan) - 1) if is_last and len(self._plan) else None

    def _ended(self, event: RunFinished) -> Iterable[Told]:
        if event.answer is None or event.status is Status.FAILED:
            self.over = True
            return (Ended(event),)
        before = self.text
        if not event.answer.startswith(before):
            return self._replaced()
        self.over = True
        rest = event.answer[len(before) :]
        if rest:
            self._told.append(rest)
        return (Piece(rest), Ended(event)) if rest else (Ended(event),)

    def _line(self, event: Event) -> str | None:
        """Return a line about an event that is worth one."""
        match event:
            case PlanProposed():
                return self._planned(event)
            case AttemptStarted(role=Role.STEP, step=int(step)) if (event.round, step) != self.last:
                stands_in = f", instead of {event.instead_of}" if event.instead_of else ""
                once_more = f" ({event.reason})" if event.reason is not Reason.FIRST else ""
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
        return f"{step + 1} of {len(self._plan)}" if self._plan else str(step + 1)
