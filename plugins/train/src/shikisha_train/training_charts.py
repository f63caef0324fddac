"""The charts of a training: curves and stacked shares over its steps.

Invariants: a step stands at the same place in every chart of one width; what is no number is a gap and never 0; beyond
`_MOST_POINTS` steps a point is the mean of several neighbors, and nothing is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from statistics import fmean

from shikisha.plots.charts import (
    Chart,
    ChartCurve,
    ChartLevel,
    ChartPoint,
    ChartSize,
    largest_series,
    stacked_layers,
)
from shikisha.plots.format import count, percent
from shikisha.plots.svg import AxisScale, Rect, Tick, even_scale, spaced_ticks, svg_path
from shikisha_train.metrics import averaging_window, running_means

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
