"""When what was called: a bar for each attempt on one axis of seconds. Pure layout in pixels.

Time in which nobody performed the run (it waited for a person, or its server was gone) is taken out of the axis and
marked where it was, with its length. Invariant: bars lie inside the axis, in the order in which the attempts began; an
attempt whose outcome is not known ends with the axis. Deliberately absent: markup, and child runs' own attempts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shikisha.evaluate.drawing import Scale, Tick, even_scale
from shikisha.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CheckDecided,
    CheckStatus,
    Event,
    QuestionAnswered,
    QuestionAsked,
    Reason,
    RewardGiven,
    Role,
    RunResumed,
)
from shikisha.server.pages.wording import lasting, span

_OUTSIDE = (QuestionAnswered, AnswerGraded, RewardGiven)  # what may happen while nobody performs the run
_THIN = 2.0  # pixels of the shortest bar
_NAMED = {Role.PLAN: "plan", Role.CHECK: "check"}


@dataclass(frozen=True, slots=True)
class Room:
    """A drawing's width, the column of names (0: they stand above their bars), a row's height, ticks about."""

    width: float
    names: float
    row: float
    ticks: int


WIDE, NARROW = Room(1160.0, 230.0, 26.0, 8), Room(350.0, 0.0, 42.0, 4)


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt: its name, where its bar is, its fate, and what a reader is told of it."""

    name: str
    worker: str
    left: float
    width: float
    top: float
    fate: str
    told: str
    place: str  # the id of its step on the page


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that happened at one time: a check's verdict, a question, a pause."""

    x: float
    top: float
    kind: str
    told: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The drawing."""

    width: float
    height: float
    bottom: float
    names: float
    bars: tuple[Bar, ...]
    flags: tuple[Flag, ...]
    pauses: tuple[Flag, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class _Clock:
    """Turns Unix time into seconds of performing; `pauses` are (when, until)."""

    begun: float
    pauses: tuple[tuple[float, float], ...]

    def __call__(self, at: float) -> float:
        lost = sum(max(0.0, min(at, until) - when) for when, until in self.pauses)
        return max(0.0, at - self.begun - lost)


def timeline(events: Sequence[Event], now: float, room: Room = WIDE) -> Timeline | None:
    """Draw a run's events up to now (a finished or waiting run's: up to its last); None before any attempt."""
    clock = _Clock(events[0].at, tuple(_pauses(events)))
    attempts = [event for event in events if isinstance(event, AttemptStarted)]
    if not attempts:
        return None
    end = clock(max(now, events[0].at))
    scale = _scale(end, room)
    outcomes = {
        (event.round, event.step, event.attempt): event
        for event in events
        if isinstance(event, AttemptFinished | AttemptFailed)
    }
    head = 6.0
    bars = []
    for row, begun in enumerate(attempts):
        over = outcomes.get((begun.round, begun.step, begun.attempt))
        bars.append(_bar(begun, over, (clock, scale, end), head + row * room.row, room))
    bottom = head + len(attempts) * room.row + 2
    pauses = tuple(
        Flag(scale(clock(when)), 0.0, "pause", f"nobody performed it for {span(until - when)}")
        for when, until in clock.pauses
        if until - when >= 1
    )
    ticks = tuple(
        Tick(round(scale(at), 1), f"{at:g} s" if at < 120 else lasting(at))
        for at in scale.ticks(room.ticks)
        if at <= end
    )
    flags = tuple(_flags(events, bars, clock, scale))
    return Timeline(room.width, bottom + 22, bottom, room.names, tuple(bars), flags, pauses, ticks)


def last_performed(events: Iterable[Event]) -> float:
    """Return when the run was last seen to be performed."""
    return max(event.at for event in events if not isinstance(event, _OUTSIDE))


def _scale(end: float, room: Room) -> Scale:
    whole = even_scale([0.0, max(end, 0.001)], about=room.ticks)
    return Scale(0.0, max(end, whole.ticks(room.ticks)[1]), room.names, room.width - 12)


def _pauses(events: Sequence[Event]) -> Iterator[tuple[float, float]]:
    last = events[0].at
    for event in events:
        if isinstance(event, RunResumed):
            yield last, event.at
        if not isinstance(event, _OUTSIDE):
            last = event.at


def _bar(
    begun: AttemptStarted,
    over: AttemptFinished | AttemptFailed | None,
    axis: tuple[_Clock, Scale, float],
    top: float,
    room: Room,
) -> Bar:
    clock, scale, end = axis
    left = scale(min(clock(begun.at), end))
    right = scale(min(clock(over.at), end)) if over else scale(end)
    fate = "open" if over is None else "failed" if isinstance(over, AttemptFailed) else "ok"
    step = f"round {begun.round}, planning" if begun.step is None else f"round {begun.round}, step {begun.step}"
    told = f"{step}, attempt {begun.attempt}, {begun.worker}: "
    told += "no outcome yet" if over is None else f"{lasting(over.seconds)}"
    told += f", {over.fault}" if isinstance(over, AttemptFailed) else ""
    name = _NAMED.get(begun.role, "") if begun.step is None or begun.role is not Role.STEP else ""
    place = f"plan-{begun.round}" if begun.step is None else f"step-{begun.round}-{begun.step}"
    where = "" if begun.step is None else "undo" if begun.round < 0 else f"{begun.round}.{begun.step}"
    short = " ".join(part for part in (where, name, "" if begun.reason is Reason.FIRST else str(begun.reason)) if part)
    drop = 0.0 if room.names else 18.0
    return Bar(short, begun.worker, left, max(right - left, _THIN), top + drop, fate, told, place)


def _flags(events: Sequence[Event], bars: Sequence[Bar], clock: _Clock, scale: Scale) -> Iterator[Flag]:
    """Yield checks and questions, each beside the last bar of its step that began before it."""
    rows: dict[str, float] = {}
    following = iter(bars)
    for event in events:
        if isinstance(event, AttemptStarted):
            bar = next(following)
            rows[bar.place] = bar.top
        elif isinstance(event, CheckDecided):
            kind = "passed" if event.status is CheckStatus.PASS else "refused"
            place = f"step-{event.round}-{event.step}"
            yield Flag(scale(clock(event.at)), rows.get(place, 0.0), kind, f"check {event.check}: {event.status}")
        elif isinstance(event, QuestionAsked) and event.step is not None:
            place = f"step-{event.round}-{event.step}"
            told = f"a person is asked: {event.asks} {event.worker}"
            yield Flag(scale(clock(event.at)), rows.get(place, 0.0), "asked", told)
