"""Drawings of a run: its time line, each round's plan as a graph, and a plan's shape alone. Layout in pixels, no
markup.

Time line: a bar for each attempt on one axis of seconds, in the order in which the attempts began; an attempt without
an outcome ends with the axis. Time in which nothing was executed (the run waited for a person, or its server was down)
is taken out of the axis and marked where it was, with its length. Graphs: a box a step, an arrow to each step that may
see its result; steps stand in columns by how much must be finished before them, so every arrow leads to the right. No
arrow crosses a box: an arrow over a column has a lane of its own above all boxes. Narrow, for a phone: one column with
the arrows at its left.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from shikisha.core.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    AttemptStarted,
    CallRole,
    CheckDecided,
    CheckStatus,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RewardGiven,
    RunResumed,
)
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.plan import step_depths, step_name
from shikisha.plots.format import format_duration, format_span
from shikisha.plots.svg import AxisScale, Tick, even_scale

_PASSIVE_EVENTS = (QuestionAnswered, AnswerGraded, RewardGiven)  # what may happen while the run is not executed
_THIN = 2.0  # pixels of the shortest bar
_NAMED = {CallRole.PLAN: "plan", CallRole.CHECK: "check", CallRole.TOOL: "tool", CallRole.PROBE: "probe"}


@dataclass(frozen=True, slots=True)
class TimelineSize:
    """A drawing's width, the column of names (0: they stand above their bars), a row's height, ticks about."""

    width: float
    names: float
    row: float
    ticks: int


WIDE_TIMELINE, NARROW_TIMELINE = TimelineSize(1160.0, 230.0, 26.0, 8), TimelineSize(350.0, 0.0, 42.0, 4)


@dataclass(frozen=True, slots=True)
class AttemptBar:
    """An attempt: its name, where its bar is, its fate, and the words that a reader sees or hears."""

    name: str
    worker: str
    left: float
    width: float
    top: float
    fate: str
    words: str
    place: str  # the id of its step on the page


@dataclass(frozen=True, slots=True)
class TimelineFlag:
    """Something that happened at one time: a check's verdict, a question, a pause."""

    x: float
    top: float
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The drawing."""

    width: float
    height: float
    bottom: float
    names: float
    bars: tuple[AttemptBar, ...]
    flags: tuple[TimelineFlag, ...]
    pauses: tuple[TimelineFlag, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class _ActiveClock:
    """Turns Unix time into seconds of performing; `pauses` are (when, until)."""

    begun: float
    pauses: tuple[tuple[float, float], ...]

    def __call__(self, at: float) -> float:
        lost = sum(max(0.0, min(at, until) - when) for when, until in self.pauses)
        return max(0.0, at - self.begun - lost)


def timeline(events: Sequence[Event], now: float, room: TimelineSize = WIDE_TIMELINE) -> Timeline | None:
    """Draw a run's events up to now (a finished or waiting run's: up to its last); None before any attempt."""
    clock = _ActiveClock(events[0].at, tuple(_pauses(events)))
    attempts = [event for event in events if isinstance(event, AttemptStarted)]
    if not attempts:
        return None
    end = clock(max(now, events[0].at))
    whole = even_scale([0.0, max(end, 0.001)], about=room.ticks)
    scale = AxisScale(0.0, max(end, whole.ticks(room.ticks)[1]), room.names, room.width - 12)
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
        TimelineFlag(scale(clock(when)), 0.0, "pause", f"it was not executed for {format_span(until - when)}")
        for when, until in clock.pauses
        if until - when >= 1
    )
    ticks = tuple(
        Tick(round(scale(at), 1), f"{at:g} s" if at < 120 else format_duration(at))
        for at in scale.ticks(room.ticks)
        if at <= end
    )
    flags = tuple(_flags(events, bars, clock, scale))
    return Timeline(room.width, bottom + 22, bottom, room.names, tuple(bars), flags, pauses, ticks)


def last_performed(events: Iterable[Event]) -> float:
    """Return when the run was last seen to be performed."""
    return max(event.at for event in events if not isinstance(event, _PASSIVE_EVENTS))


def _pauses(events: Sequence[Event]) -> Iterator[tuple[float, float]]:
    last = events[0].at
    for event in events:
        if isinstance(event, RunResumed):
            yield last, event.at
        if not isinstance(event, _PASSIVE_EVENTS):
            last = event.at


def _bar(
    begun: AttemptStarted,
    over: AttemptFinished | AttemptFailed | None,
    axis: tuple[_ActiveClock, AxisScale, float],
    top: float,
    room: TimelineSize,
) -> AttemptBar:
    clock, scale, end = axis
    left = scale(min(clock(begun.at), end))
    right = scale(min(clock(over.at), end)) if over else scale(end)
    fate = "open" if over is None else "failed" if isinstance(over, AttemptFailed) else "ok"
    step = (
        f"round {begun.round}, planning" if begun.step is None else f"round {begun.round}, step {step_name(begun.step)}"
    )
    tool = f", {begun.tool}" if begun.tool and begun.tool != begun.worker else ""
    words = f"{step}, attempt {begun.attempt}, {begun.worker}{tool}: "
    words += "no outcome yet" if over is None else f"{format_duration(over.seconds)}"
    words += f", {over.fault}" if isinstance(over, AttemptFailed) else ""
    name = _NAMED.get(begun.role, "") if begun.step is None or begun.role is not CallRole.STEP else ""
    place = f"plan-{begun.round}" if begun.step is None else f"step-{begun.round}-{begun.step}"
    where = "" if begun.step is None else "undo" if begun.round < 0 else f"{begun.round}.{step_name(begun.step)}"
    short = " ".join(
        part for part in (where, name, "" if begun.reason is AttemptReason.FIRST else str(begun.reason)) if part
    )
    drop = 0.0 if room.names else 18.0
    return AttemptBar(short, begun.worker, left, max(right - left, _THIN), top + drop, fate, words, place)


def _flags(
    events: Sequence[Event], bars: Sequence[AttemptBar], clock: _ActiveClock, scale: AxisScale
) -> Iterator[TimelineFlag]:
    """Yield checks and questions, each at the last bar of its step that began before it."""
    rows: dict[str, float] = {}
    following = iter(bars)
    for event in events:
        if isinstance(event, AttemptStarted):
            bar = next(following)
            rows[bar.place] = bar.top
        elif isinstance(event, CheckDecided):
            kind = "passed" if event.status is CheckStatus.PASS else "refused"
            place = f"step-{event.round}-{event.step}"
            yield TimelineFlag(
                scale(clock(event.at)), rows.get(place, 0.0), kind, f"check {event.check}: {event.status}"
            )
        elif isinstance(event, QuestionAsked) and event.step is not None:
            place = f"step-{event.round}-{event.step}"
            words = f"a person is asked: {event.asks} {event.worker}"
            yield TimelineFlag(scale(clock(event.at)), rows.get(place, 0.0), "asked", words)


_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 192.0, 62.0, 60.0, 18.0
_LANE, _EDGE, _ROUND, _HEAD = 7.0, 2.0, 6.0, 7.0
_PHONE, _BULGE, _LEAST = 350.0, 9.0, 16.0

Access = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class StepBox:
    """A step: its left upper corner; the last step's result is the answer."""

    x: float
    y: float
    index: int
    answers: bool


@dataclass(frozen=True, slots=True)
class StepArrow:
    """An edge from a step to one that may see it: a path that ends where its head begins, and the head's tip."""

    seen: int
    by: int
    path: str
    tip: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """Boxes of one size, and arrows between them."""

    width: float
    height: float
    box_width: float
    box_height: float
    boxes: tuple[StepBox, ...]
    arrows: tuple[StepArrow, ...]


def wide_plan_graph(access: Access) -> PlanGraph:
    """Lay out access lists (earlier steps only, as every Plan has them) from left to right."""
    columns = step_depths(access)
    tallest = max((columns.count(column) for column in columns), default=1)
    lanes = sum(columns[by] - columns[seen] > 1 for by, row in enumerate(access) for seen in row)
    top = _EDGE + (lanes * _LANE + 4.0 if lanes else 0.0)
    boxes = tuple(
        StepBox(
            _EDGE + column * (_WIDTH + _GAP_X),
            top + (columns[:index].count(column) + (tallest - columns.count(column)) / 2) * (_HEIGHT + _GAP_Y),
            index,
            index == len(columns) - 1,
        )
        for index, column in enumerate(columns)
    )
    width = 2 * _EDGE + max(columns, default=0) * (_WIDTH + _GAP_X) + _WIDTH
    height = top + _EDGE + (tallest - 1) * (_HEIGHT + _GAP_Y) + _HEIGHT
    return PlanGraph(width, height, _WIDTH, _HEIGHT, boxes, tuple(_wide_arrows(boxes, access, columns)))


def narrow_plan_graph(access: Access) -> PlanGraph:
    """Lay the same out from top to bottom."""
    longest = max((by - seen for by, row in enumerate(access) for seen in row), default=0)
    left = _LEAST + _BULGE * longest if longest else _EDGE
    boxes = tuple(
        StepBox(left, _EDGE + index * (_HEIGHT + _GAP_Y), index, index == len(access) - 1)
        for index in range(len(access))
    )
    arrows = tuple(_side_arrow(boxes[seen], boxes[by]) for by, row in enumerate(access) for seen in row)
    height = 2 * _EDGE + max(len(access) - 1, 0) * (_HEIGHT + _GAP_Y) + _HEIGHT
    return PlanGraph(_PHONE, height, _PHONE - left - _EDGE, _HEIGHT, boxes, arrows)


def _wide_arrows(boxes: Sequence[StepBox], access: Access, columns: Sequence[int]) -> Iterator[StepArrow]:
    lanes = count(1)
    for by, row in enumerate(access):
        far_first = sorted(row, key=lambda seen: (columns[seen], boxes[seen].y))
        for place, seen in enumerate(far_first):
            entry = boxes[by].y + _HEIGHT * (place + 1) / (len(row) + 1)
            if columns[by] - columns[seen] > 1:
                yield _lane_arrow(boxes[seen], boxes[by], entry, next(lanes))
            else:
                yield _forward_arrow(boxes[seen], boxes[by], entry)


def _forward_arrow(seen: StepBox, by: StepBox, entry: float) -> StepArrow:
    x0, y0, x1 = seen.x + _WIDTH, seen.y + _HEIGHT / 2, by.x - _HEAD
    middle = (x0 + x1) / 2
    path = f"M{x0:.1f} {y0:.1f}C{middle:.1f} {y0:.1f} {middle:.1f} {entry:.1f} {x1:.1f} {entry:.1f}"
    return StepArrow(seen.index, by.index, path, (by.x, entry))


def _lane_arrow(seen: StepBox, by: StepBox, entry: float, lane: int) -> StepArrow:
    """Lead an arrow through the gap after its step, along a lane above all boxes, and down the gap before its end."""
    x0, y0, lane_y = seen.x + _WIDTH, seen.y + _HEIGHT / 4, _EDGE + (lane - 1) * _LANE
    up, down = x0 + 4 + _ROUND + lane * 2, by.x - _HEAD - _ROUND - 4 - lane * 3
    path = (
        f"M{x0:.1f} {y0:.1f}H{up - _ROUND:.1f}Q{up:.1f} {y0:.1f} {up:.1f} {y0 - _ROUND:.1f}"
        f"V{lane_y + _ROUND:.1f}Q{up:.1f} {lane_y:.1f} {up + _ROUND:.1f} {lane_y:.1f}"
        f"H{down - _ROUND:.1f}Q{down:.1f} {lane_y:.1f} {down:.1f} {lane_y + _ROUND:.1f}"
        f"V{entry - _ROUND:.1f}Q{down:.1f} {entry:.1f} {down + _ROUND:.1f} {entry:.1f}H{by.x - _HEAD:.1f}"
    )
    return StepArrow(seen.index, by.index, path, (by.x, entry))


def _side_arrow(seen: StepBox, by: StepBox) -> StepArrow:
    far = by.index - seen.index
    x, y0, y1 = seen.x, seen.y + _HEIGHT * 0.68, by.y + _HEIGHT * (0.5 - 0.08 * (far - 1))
    out = x - _LEAST + 2 - _BULGE * far
    path = f"M{x:.1f} {y0:.1f}C{out:.1f} {y0:.1f} {out:.1f} {y1:.1f} {x - _HEAD:.1f} {y1:.1f}"
    return StepArrow(seen.index, by.index, path, (x, y1))
