"""Curves and stacked shares over the steps of a training, laid out in pixels; the templates write the markup.

Invariants: a step stands at the same place in every drawing of one width; what is no number is a gap and never a 0;
beyond `_MOST_POINTS` steps a point is the mean of several neighbours, and nothing is left out. Deliberately absent:
figures that are not in a table too, and counting.

The curve of a training for a terminal: how often it was right, step by step, beside what others come to.

`●` is what the likeliest plans came to on tasks that it does not learn from; the fine line is what was sampled in
training, where tasks near a 50 % success rate come more often, so it is no measure of ability. Invariants: no line is
wider than the width; figures at points and levels are what was counted, whatever the row they fall into. Deliberately
absent: other figures (`screen` and `page` have them).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from shikisha.core.text import one_line
from shikisha.evals.html_report import OTHERS
from shikisha.plots.svg import AxisScale, Rect, Tick, even_scale, spaced_ticks, svg_path
from shikisha.training import metrics
from shikisha.training.metrics import StepMetrics, ValidationResult, averaging_window, running_means

_MOST_POINTS = 300
_SMOOTH_FROM = 24  # steps; fewer are drawn as they are
_LAYERS = 6  # that can be told apart
_NOTHING = 0.02  # of the greatest value
_LINE = 14.0  # pixels between two labels, one below the other

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class LineChartSize:
    """How large a drawing is, in pixels, and how much of it is kept free at the right for labels."""

    width: float
    height: float
    labels: float = 0.0

    @property
    def frame(self) -> Rect:
        """Where the curves go."""
        return Rect(58.0, 10.0, self.width - max(12.0, self.labels), self.height - 42.0)


@dataclass(frozen=True, slots=True)
class MetricCurve:
    """A line: its colour's number, its path, the path of the unsmoothed values, and means at both ends."""

    name: str
    number: int
    path: str
    raw: str
    ends: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A point that was measured by itself, in pixels, with its step and value."""

    x: float
    y: float
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class ReferenceLevel:
    """A height that others reach, across the drawing, with the height at which its name is written."""

    name: str
    number: int
    value: float
    y: float
    text_y: float


@dataclass(frozen=True, slots=True)
class LineChart:
    """A drawing of curves over steps."""

    room: LineChartSize
    frame: Rect
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[MetricCurve, ...]
    marks: tuple[MeasuredPoint, ...] = ()
    levels: tuple[ReferenceLevel, ...] = ()

    @property
    def joined(self) -> str:
        """The path from mark to mark."""
        return svg_path([(mark.x, mark.y) for mark in self.marks])


@dataclass(frozen=True, slots=True)
class ShareLayer:
    """A name's area in a stack, its colour's number, and its share in the first and the last steps."""

    name: str
    number: int
    path: str
    ends: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ShareStack:
    """Shares over steps, on top of each other."""

    room: LineChartSize
    frame: Rect
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    layers: tuple[ShareLayer, ...]


@dataclass(frozen=True, slots=True)
class ReferenceValues:
    """What stands beside the curves: values measured at some steps, and what others come to."""

    marks: Sequence[tuple[int, float]] = ()
    levels: Mapping[str, float] | None = None


def line_chart(
    numbers: Sequence[int],
    series: Mapping[str, Values],
    room: LineChartSize,
    *,
    share: bool = False,
    exact: bool = False,
    beside: ReferenceValues = ReferenceValues(),
) -> LineChart:
    """Draw series over the numbers of their steps.

    `share`: they lie between 0 and 1 and are written in per cent; `exact`: they do not jump about, so the values
    themselves are drawn, where others are smoothed.
    """
    frame, levels = room.frame, beside.levels or {}
    upward = AxisScale(0.0, 1.0, frame.bottom, frame.top) if share else _values_scale(series, frame)
    across = _steps_scale(numbers, frame)
    return LineChart(
        room,
        frame,
        _step_ticks(across),
        _value_ticks(upward, share),
        tuple(
            replace(_curve(numbers, values, (across, upward), exact), name=name, number=number)
            for number, (name, values) in enumerate(series.items())
        ),
        tuple(MeasuredPoint(across(step), upward(value), step, value) for step, value in beside.marks),
        tuple(_levels(levels, upward, frame)),
    )


def share_stack(numbers: Sequence[int], shares: Sequence[Mapping[str, float]], room: LineChartSize) -> ShareStack:
    """Draw shares of each step on top of each other, the names that are largest at their peak in colours of their own.

    Steps without shares (nobody was asked) are passed over.
    """
    frame = room.frame
    known = [(number, each) for number, each in zip(numbers, shares, strict=True) if each]
    across, upward = _steps_scale(numbers, frame), AxisScale(0.0, 1.0, frame.bottom, frame.top)
    steps = [number for number, _ in known]
    ranked = _ranked_shares([each for _, each in known])
    x = [across(place) for place, _ in _mean_neighbors(steps, [0.0] * len(steps))]
    base, layers, width = [0.0] * len(x), [], averaging_window(len(steps))
    for number, (name, values) in enumerate(ranked):
        thin = [value or 0.0 for _, value in _mean_neighbors(steps, values)]
        top = [low + value for low, value in zip(base, thin, strict=True)]
        edge = [(place, upward(value)) for place, value in zip(x, top, strict=True)]
        back = [(place, upward(value)) for place, value in zip(x, base, strict=True)]
        place = _LAYERS - 1 if name == OTHERS else number
        ends = fmean(values[:width]), fmean(values[-width:])
        layers.append(ShareLayer(name, place, svg_path([*edge, *reversed(back)]) + "Z", ends))
        base = top
    return ShareStack(room, frame, _step_ticks(across), _value_ticks(upward, share=True), tuple(layers))


def _ranked_shares(shares: Sequence[Mapping[str, float]]) -> list[tuple[str, list[float]]]:
    """Return running means of the names' shares, those with the highest peak first; the rest together as others."""
    width = 1 if len(shares) < _SMOOTH_FROM else max(3, len(shares) // 16)
    names = dict.fromkeys(name for each in shares for name in each)
    found = {
        name: [value or 0.0 for value in running_means([each.get(name, 0.0) for each in shares], width)]
        for name in names
    }
    ordered = sorted(found, key=lambda name: (-max(found[name]), name))
    kept = ordered if len(ordered) <= _LAYERS else ordered[: _LAYERS - 1]
    rest = [found[name] for name in ordered[len(kept) :]]
    others = [(OTHERS, [sum(values) for values in zip(*rest, strict=True)])] if rest else []
    return [*((name, found[name]) for name in kept), *others]


def _curve(numbers: Sequence[int], values: Values, scales: tuple[AxisScale, AxisScale], exact: bool) -> MetricCurve:
    across, upward = scales
    known = [value for value in values if value is not None and isfinite(value)]
    smooth = len(known) >= _SMOOTH_FROM and not exact
    shown = running_means(values, max(5, len(known) // 16)) if smooth else values
    points = [(across(step), upward(value)) for step, value in _mean_neighbors(numbers, shown) if value is not None]
    raw = [(across(step), upward(value)) for step, value in _mean_neighbors(numbers, values) if value is not None]
    return MetricCurve(
        "",
        0,
        svg_path(points),
        svg_path(raw) if smooth else "",
        _ends(known, 1 if exact else averaging_window(len(known))),
    )


def _ends(known: Sequence[float], width: int) -> tuple[float, float] | None:
    """Return the means of the first and the last values, over as many as all that is said of the two ends."""
    return (fmean(known[:width]), fmean(known[-width:])) if known else None


def _values_scale(series: Mapping[str, Values], frame: Rect) -> AxisScale:
    """Return a scale from 0; what is next to nothing below it asks for no room there."""
    known = [value for values in series.values() for value in values if value is not None and isfinite(value)]
    high = max([0.0, *known])
    return even_scale(
        [0.0, high, *(value for value in known if value < -_NOTHING * high)], (frame.bottom, frame.top), 4
    )


def _mean_neighbors(numbers: Sequence[int], values: Values) -> Iterator[tuple[float, float | None]]:
    """Yield places and values; means of as many neighbours as it takes for there to be no more than so many."""
    size = -(-len(numbers) // _MOST_POINTS)
    for start in range(0, len(numbers), size or 1):
        near = [value for value in values[start : start + size] if value is not None and isfinite(value)]
        yield fmean(numbers[start : start + size]), fmean(near) if near else None


def _levels(levels: Mapping[str, float], upward: AxisScale, frame: Rect) -> Iterator[ReferenceLevel]:
    """Place each name at its height, or below the one above where they would touch, and all of them in the frame."""
    ordered = sorted(levels, key=lambda name: -levels[name])
    heights = [upward(levels[name]) for name in ordered]
    for place, (above, height) in enumerate(pairwise(heights), 1):
        heights[place] = max(height, heights[place - 1] + _LINE, above)
    floor = frame.bottom
    for place in reversed(range(len(heights))):
        heights[place] = min(heights[place], floor)
        floor = heights[place] - _LINE
    for number, (name, height) in enumerate(zip(ordered, heights, strict=True)):
        yield ReferenceLevel(name, number, levels[name], upward(levels[name]), height)


def _steps_scale(numbers: Sequence[int], frame: Rect) -> AxisScale:
    low, high = (numbers[0], numbers[-1]) if numbers else (0, 1)
    return AxisScale(low, high if high > low else low + 1, frame.left, frame.right)


def _step_ticks(across: AxisScale) -> tuple[Tick, ...]:
    whole = [value for value in across.ticks(5) if value == int(value)]
    return spaced_ticks(Tick(across(value), f"{value:,.0f}") for value in whole)


def _value_ticks(upward: AxisScale, share: bool) -> tuple[Tick, ...]:
    return tuple(Tick(upward(value), f"{100 * value:g}" if share else f"{value:g}") for value in upward.ticks(4))


if TYPE_CHECKING:
    from rich.text import Text

_ROWS = 13  # from 0 to 100 %, both ends included
_AXIS = 7  # columns before the drawing
_NARROWEST, _WIDEST = 20, 90  # columns of the drawing
_NAMED = 24  # characters of what stands beside a level
_BRAILLE, _DOTS = 0x2800, ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, then from the top
_POINT_SPACING = 5  # columns between points that each have their figure
_SMOOTHED = 9  # steps

Cells = dict[tuple[int, int], tuple[str, str]]  # (row from the top, column) → character and style


def accuracy_curve(steps: Sequence[StepMetrics], width: int) -> list["Text"]:
    """Return the drawing's lines, for a terminal of this width; none where there are no steps."""
    from rich.text import Text

    if not steps:
        return []
    judged = metrics.validation_history(steps)
    beside = _reference_rows(judged)
    named = {row: text for _, row, text in beside}
    room = max(_NARROWEST, min(_WIDEST, width - _AXIS - max(map(len, named.values()), default=0) - 1))
    cells: Cells = {(row, column): ("┄", "dim") for row, _, _ in beside for column in range(room)}
    cells |= _sampled_dots(steps, room)
    cells |= _validation_points(judged, steps[-1].of, room)
    lines = [Text(line, "bold") for line in _title(judged)]
    for row in range(_ROWS):
        share = round(100 * (1 - row / (_ROWS - 1)))
        line = Text(f"{share:>3} % ┤" if row % 3 == 0 else f"{'│':>{_AXIS}}", "dim")
        for column in range(room):
            line.append(*cells.get((row, column), (" ", "")))
        lines.append(line.append(f" {named[row]}" if row in named else "", "dim"))
    lines.append(Text(f"{'└':>{_AXIS}}{'─' * room}", "dim"))
    lines.append(Text(f"{'step 1':>{_AXIS + 5}}{steps[-1].of:>{room - 5},}", "dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _title(judged: Sequence[tuple[int, ValidationResult]]) -> Iterator[str]:
    if judged:
        yield f"● right on {judged[-1][1].count:,} tasks that it does not learn from, the likeliest plan of each"
    yield "⠒ right of what is sampled in training, where tasks near 50 % come more often"


def _reference_rows(judged: Sequence[tuple[int, ValidationResult]]) -> list[tuple[int, int, str]]:
    """Return what others come to, best first: its row, the row beside which it is named, and its name and figure."""
    found = sorted(judged[-1][1].beside.items(), key=lambda pair: -pair[1]) if judged else []
    told: list[tuple[int, int, str]] = []
    free = 0
    for place, (name, share) in enumerate(found):
        named = min(max(free, _row(share)), _ROWS - (len(found) - place))
        told.append((_row(share), named, f"{one_line(name, _NAMED)} {100 * share:.0f} %"))
        free = named + 1
    return told[:_ROWS]


def _row(share: float, rows: int = _ROWS) -> int:
    return round((1 - min(1.0, max(0.0, share))) * (rows - 1))


def _column(number: int, of: int, columns: int) -> int:
    return round((min(number, of) - 1) / max(1, of - 1) * (columns - 1))


def _sampled_dots(steps: Sequence[StepMetrics], room: int) -> Cells:
    """Draw what was sampled, two columns and four rows of dots to a character."""
    dots: dict[tuple[int, int], int] = {}
    shares = metrics.running_means([step.right for step in steps], _SMOOTHED)
    for step, share in zip(steps, shares, strict=True):
        if share is not None:
            x, y = _column(step.number, step.of, 2 * room), _row(share, 4 * _ROWS)
            place = (y // 4, x // 2)
            dots[place] = dots.get(place, 0) | _DOTS[x % 2][y % 4]
    return {place: (chr(_BRAILLE + held), "cyan") for place, held in dots.items()}


def _validation_points(judged: Sequence[tuple[int, ValidationResult]], of: int, room: int) -> Cells:
    """Draw a point for each judgement, with its figure above it where the one before leaves room."""
    cells: Cells = {}
    free = 0
    for place, (number, found) in enumerate(judged):
        row, column = _row(found.right), _column(number, of, room)
        cells[row, column] = ("●", "bold green")
        figure = f"{100 * found.right:.0f}"
        begin = min(column, room - len(figure))
        if (begin >= free and row) or place == len(judged) - 1:
            above = row - 1 if row else row + 1
            cells |= {(above, begin + at): (digit, "green") for at, digit in enumerate(figure)}
            free = begin + _POINT_SPACING
    return cells
