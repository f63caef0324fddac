"""The charts of a training: curves and stacked shares over its steps, and the accuracy curve for a terminal.

Invariants: a step stands at the same place in every chart of one width; what is no number is a gap and never 0; beyond
`_MOST_POINTS` steps a point is the mean of several neighbors, and nothing is left out. In the terminal `●` is the
greedy plans' accuracy on validation tasks; the fine line is what was sampled in training, where tasks near a 50 %
success rate come more often, so it is no measure of ability.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from shikisha.core.text import one_line
from shikisha.plots.charts import (
    Chart,
    ChartCurve,
    ChartLevel,
    ChartPoint,
    ChartSize,
    largest_series,
    stacked_layers,
)
from shikisha.plots.number_format import count, percent
from shikisha.plots.svg import AxisScale, Rect, Tick, even_scale, spaced_ticks, svg_path
from shikisha.training import metrics
from shikisha.training.metrics import StepMetrics, ValidationResult, averaging_window, running_means

if TYPE_CHECKING:
    from rich.text import Text

_MOST_POINTS = 300
# Steps; fewer are drawn as they are.
_SMOOTH_FROM = 24
_NOTHING = 0.02  # of the greatest value
# Pixels between two labels, one below the other.
_LINE = 14.0

Values = Sequence[float | None]


def step_chart_size(width: float, height: float, labels: float = 0.0) -> ChartSize:
    """Return the size of a chart over steps, with so much room at its right for labels."""
    return ChartSize(width, height, left=58.0, top=10.0, right=max(12.0, labels), bottom=42.0)


@dataclass(frozen=True, slots=True)
class ReferenceValues:
    """What the curves are compared with: values measured at some steps, and the levels that others reach."""

    marks: Sequence[tuple[int, float]] = ()
    levels: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Series over steps. `share`: in per cent of 1; `exact`: they do not jump about, so they are not smoothed."""

    values: Mapping[str, Values]
    share: bool = False
    exact: bool = False


_NO_REFERENCES = ReferenceValues()


def line_chart(
    numbers: Sequence[int],
    series: StepSeries,
    size: ChartSize,
    title: str = "",
    references: ReferenceValues = _NO_REFERENCES,
) -> Chart:
    """Return series over the numbers of their steps."""
    frame = size.frame
    scales = _steps_scale(numbers, frame), _values_scale(series, frame)
    across, upward = scales
    points = tuple(
        ChartPoint(
            "",
            "greedy",
            "dot",
            across(step),
            upward(value),
            f"step {step}, validation: {percent(value)}",
        )
        for step, value in references.marks
    )
    return Chart(
        size,
        _step_ticks(across),
        _value_ticks(upward, series.share),
        "step",
        "",
        f"{title}, over the steps of the training; the tables below hold the figures",
        guides=(("greedy", svg_path((point.x, point.y) for point in points)),) if points else (),
        curves=tuple(_curve(numbers, name, place, series, scales) for place, name in enumerate(series.values)),
        points=points,
        levels=tuple(_reference_levels(references.levels or {}, upward, size)),
    )


def _curve(
    numbers: Sequence[int], name: str, place: int, series: StepSeries, scales: tuple[AxisScale, AxisScale]
) -> ChartCurve:
    across, upward = scales
    values = series.values[name]
    known = [value for value in values if value is not None and isfinite(value)]
    smooth = len(known) >= _SMOOTH_FROM and not series.exact
    shown = running_means(values, max(5, len(known) // 16)) if smooth else values
    points, raw = (
        svg_path((across(step), upward(value)) for step, value in _mean_neighbors(numbers, each) if value is not None)
        for each in (shown, values)
    )
    # The ends are means over as many steps as everything else that is said of the two ends of a training.
    width = 1 if series.exact else averaging_window(len(known))
    ends = (fmean(known[:width]), fmean(known[-width:])) if known else None
    words = f"{name}: {format_value(ends[0], series.share)} to {format_value(ends[1], series.share)}" if ends else name
    return ChartCurve(name, f"c{place % 6}", points, words, raw=raw if smooth else "", ends=ends)


def format_value(number: float, share: bool) -> str:
    """Return a value as a chart's key writes it."""
    return percent(number) if share else count(number) if number >= 1000 else f"{number:.3g}"


def share_stack(numbers: Sequence[int], shares: Sequence[Mapping[str, float]], size: ChartSize, title: str) -> Chart:
    """Return shares of each step on top of each other, the names with the highest peaks in colors of their own.

    Steps without shares (nobody was asked) are passed over.
    """
    frame = size.frame
    known = [(number, each) for number, each in zip(numbers, shares, strict=True) if each]
    across, upward = _steps_scale(numbers, frame), AxisScale(0.0, 1.0, frame.bottom, frame.top)
    steps = [number for number, _ in known]
    smooth = 1 if len(known) < _SMOOTH_FROM else max(3, len(known) // 16)
    names = dict.fromkeys(name for _, each in known for name in each)
    series = {
        name: [value or 0.0 for value in running_means([each.get(name, 0.0) for _, each in known], smooth)]
        for name in names
    }
    ranked = largest_series(series)
    thin = [(name, [value or 0.0 for _, value in _mean_neighbors(steps, values)]) for name, values in ranked]
    layers = stacked_layers(thin, [across(place) for place, _ in _mean_neighbors(steps, [0.0] * len(steps))], upward)
    width = averaging_window(len(steps))
    return Chart(
        size,
        _step_ticks(across),
        _value_ticks(upward, share=True),
        "step",
        "",
        f"{title} over the steps of the training, stacked; the list below holds the first and the last shares",
        layers=tuple(
            replace(layer, ends=(fmean(values[:width]), fmean(values[-width:])))
            for layer, (_, values) in zip(layers, ranked, strict=True)
        ),
    )


def _values_scale(series: StepSeries, frame: Rect) -> AxisScale:
    """Return a scale from 0; what is next to nothing below it asks for no room there."""
    if series.share:
        return AxisScale(0.0, 1.0, frame.bottom, frame.top)
    known = [value for each in series.values.values() for value in each if value is not None and isfinite(value)]
    high = max([0.0, *known])
    held = [0.0, high, *(value for value in known if value < -_NOTHING * high)]
    return even_scale(held, (frame.bottom, frame.top), 4)


def _mean_neighbors(numbers: Sequence[int], values: Values) -> Iterator[tuple[float, float | None]]:
    """Yield places and values; means of as many neighbors as it takes for there to be at most so many points."""
    size = -(-len(numbers) // _MOST_POINTS)
    for start in range(0, len(numbers), size or 1):
        near = [value for value in values[start : start + size] if value is not None and isfinite(value)]
        yield fmean(numbers[start : start + size]), fmean(near) if near else None


def _reference_levels(levels: Mapping[str, float], upward: AxisScale, size: ChartSize) -> Iterator[ChartLevel]:
    """Place each name at its height, or below the one above where they would touch, and all of them in the frame."""
    frame = size.frame
    ordered = sorted(levels, key=lambda name: -levels[name])
    heights = [upward(levels[name]) for name in ordered]
    for place, (above, height) in enumerate(pairwise(heights), 1):
        heights[place] = max(height, heights[place - 1] + _LINE, above)
    floor = frame.bottom
    for place in reversed(range(len(heights))):
        heights[place] = min(heights[place], floor)
        floor = heights[place] - _LINE
    # Else names stand inside, at the right end of their lines.
    beside = size.right > _LINE
    for name, height in zip(ordered, heights, strict=True):
        words = f"{name}: {percent(levels[name])}"
        text, x, y, anchor = (
            (words, frame.right + 8, height + 4, "start") if beside else (name, frame.right - 4, height - 3, "end")
        )
        yield ChartLevel(upward(levels[name]), name, words, text, x, y, anchor)


def _steps_scale(numbers: Sequence[int], frame: Rect) -> AxisScale:
    low, high = (numbers[0], numbers[-1]) if numbers else (0, 1)
    return AxisScale(low, high if high > low else low + 1, frame.left, frame.right)


def _step_ticks(across: AxisScale) -> tuple[Tick, ...]:
    whole = [value for value in across.ticks(5) if value == int(value)]
    return spaced_ticks(Tick(across(value), f"{value:,.0f}") for value in whole)


def _value_ticks(upward: AxisScale, share: bool) -> tuple[Tick, ...]:
    return tuple(Tick(upward(value), f"{100 * value:g}" if share else f"{value:g}") for value in upward.ticks(4))


# From 0 to 100 %, both ends included.
_ROWS = 13
_AXIS = 7  # columns before the drawing
_NARROWEST, _WIDEST = 20, 90  # columns of the drawing
# Characters of what stands beside a level.
_NAMED = 24
# By column, then from the top.
_BRAILLE, _DOTS = 0x2800, ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# Columns between points that each have their figure.
_POINT_SPACING = 5
_SMOOTHED = 9  # steps

# (row from the top, column) → character and style.
Cells = dict[tuple[int, int], tuple[str, str]]


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
