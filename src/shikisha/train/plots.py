"""Curves and stacked shares over the steps of a training, laid out in pixels; the templates write the markup.

Invariants: a step stands at the same place in every drawing of one width; what is no number is a gap and never a 0;
beyond `_MOST_POINTS` steps a point is the mean of several neighbours, and nothing is left out. Deliberately absent:
figures that are not in a table too, and counting.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from statistics import fmean

from shikisha.evaluate.drawing import Box, Scale, Tick, even_scale, path
from shikisha.evaluate.labels import not_touching
from shikisha.evaluate.matrices import OTHERS
from shikisha.train.figures import smoothed, window

_MOST_POINTS = 300
_SMOOTH_FROM = 24  # steps; fewer are drawn as they are
_LAYERS = 6  # that can be told apart
_NOTHING = 0.02  # of the greatest value
_LINE = 14.0  # pixels between two labels, one below the other

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Room:
    """How large a drawing is, in pixels, and how much of it is kept free at the right for labels."""

    width: float
    height: float
    labels: float = 0.0

    @property
    def frame(self) -> Box:
        """Where the curves go."""
        return Box(58.0, 10.0, self.width - max(12.0, self.labels), self.height - 42.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line: its colour's number, its path, the path of the unsmoothed values, and means at both ends."""

    name: str
    number: int
    path: str
    raw: str
    ends: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Mark:
    """A point that was measured by itself, in pixels, with its step and value."""

    x: float
    y: float
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Level:
    """A height that others reach, across the drawing, with the height at which its name is written."""

    name: str
    number: int
    value: float
    y: float
    text_y: float


@dataclass(frozen=True, slots=True)
class Lines:
    """A drawing of curves over steps."""

    room: Room
    frame: Box
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    levels: tuple[Level, ...] = ()

    @property
    def joined(self) -> str:
        """The path from mark to mark."""
        return path([(mark.x, mark.y) for mark in self.marks])


@dataclass(frozen=True, slots=True)
class Layer:
    """A name's area in a stack, its colour's number, and its share in the first and the last steps."""

    name: str
    number: int
    path: str
    ends: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Stack:
    """Shares over steps, on top of each other."""

    room: Room
    frame: Box
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside the curves: values measured at some steps, and what others come to."""

    marks: Sequence[tuple[int, float]] = ()
    levels: Mapping[str, float] | None = None


def lines(
    numbers: Sequence[int],
    series: Mapping[str, Values],
    room: Room,
    *,
    share: bool = False,
    exact: bool = False,
    beside: Beside = Beside(),
) -> Lines:
    """Draw series over the numbers of their steps.

    `share`: they lie between 0 and 1 and are written in per cent; `exact`: they do not jump about, so the values
    themselves are drawn, where others are smoothed.
    """
    frame, levels = room.frame, beside.levels or {}
    upward = Scale(0.0, 1.0, frame.bottom, frame.top) if share else _upward(series, frame)
    across = _across(numbers, frame)
    return Lines(
        room,
        frame,
        _steps_axis(across),
        _axis(upward, share),
        tuple(
            replace(_curve(numbers, values, (across, upward), exact), name=name, number=number)
            for number, (name, values) in enumerate(series.items())
        ),
        tuple(Mark(across(step), upward(value), step, value) for step, value in beside.marks),
        tuple(_levels(levels, upward, frame)),
    )


def stack(numbers: Sequence[int], shares: Sequence[Mapping[str, float]], room: Room) -> Stack:
    """Draw shares of each step on top of each other, the names that are largest at their peak in colours of their own.

    Steps without shares (nobody was asked) are passed over.
    """
    frame = room.frame
    known = [(number, each) for number, each in zip(numbers, shares, strict=True) if each]
    across, upward = _across(numbers, frame), Scale(0.0, 1.0, frame.bottom, frame.top)
    steps = [number for number, _ in known]
    ranked = _ranked([each for _, each in known])
    x = [across(place) for place, _ in _thinned(steps, [0.0] * len(steps))]
    base, layers, width = [0.0] * len(x), [], window(len(steps))
    for number, (name, values) in enumerate(ranked):
        thin = [value or 0.0 for _, value in _thinned(steps, values)]
        top = [low + value for low, value in zip(base, thin, strict=True)]
        edge = [(place, upward(value)) for place, value in zip(x, top, strict=True)]
        back = [(place, upward(value)) for place, value in zip(x, base, strict=True)]
        place = _LAYERS - 1 if name == OTHERS else number
        ends = fmean(values[:width]), fmean(values[-width:])
        layers.append(Layer(name, place, path([*edge, *reversed(back)]) + "Z", ends))
        base = top
    return Stack(room, frame, _steps_axis(across), _axis(upward, share=True), tuple(layers))


def _ranked(shares: Sequence[Mapping[str, float]]) -> list[tuple[str, list[float]]]:
    """Return running means of the names' shares, those with the highest peak first; the rest together as others."""
    width = 1 if len(shares) < _SMOOTH_FROM else max(3, len(shares) // 16)
    names = dict.fromkeys(name for each in shares for name in each)
    found = {
        name: [value or 0.0 for value in smoothed([each.get(name, 0.0) for each in shares], width)] for name in names
    }
    ordered = sorted(found, key=lambda name: (-max(found[name]), name))
    kept = ordered if len(ordered) <= _LAYERS else ordered[: _LAYERS - 1]
    rest = [found[name] for name in ordered[len(kept) :]]
    others = [(OTHERS, [sum(values) for values in zip(*rest, strict=True)])] if rest else []
    return [*((name, found[name]) for name in kept), *others]


def _curve(numbers: Sequence[int], values: Values, scales: tuple[Scale, Scale], exact: bool) -> Curve:
    across, upward = scales
    known = [value for value in values if value is not None and isfinite(value)]
    smooth = len(known) >= _SMOOTH_FROM and not exact
    shown = smoothed(values, max(5, len(known) // 16)) if smooth else values
    points = [(across(step), upward(value)) for step, value in _thinned(numbers, shown) if value is not None]
    raw = [(across(step), upward(value)) for step, value in _thinned(numbers, values) if value is not None]
    return Curve("", 0, path(points), path(raw) if smooth else "", _ends(known, 1 if exact else window(len(known))))


def _ends(known: Sequence[float], width: int) -> tuple[float, float] | None:
    """Return the means of the first and the last values, over as many as all that is said of the two ends."""
    return (fmean(known[:width]), fmean(known[-width:])) if known else None


def _upward(series: Mapping[str, Values], frame: Box) -> Scale:
    """Return a scale from 0; what is next to nothing below it asks for no room there."""
    known = [value for values in series.values() for value in values if value is not None and isfinite(value)]
    high = max([0.0, *known])
    return even_scale(
        [0.0, high, *(value for value in known if value < -_NOTHING * high)], (frame.bottom, frame.top), 4
    )


def _thinned(numbers: Sequence[int], values: Values) -> Iterator[tuple[float, float | None]]:
    """Yield places and values; means of as many neighbours as it takes for there to be no more than so many."""
    size = -(-len(numbers) // _MOST_POINTS)
    for start in range(0, len(numbers), size or 1):
        near = [value for value in values[start : start + size] if value is not None and isfinite(value)]
        yield fmean(numbers[start : start + size]), fmean(near) if near else None


def _levels(levels: Mapping[str, float], upward: Scale, frame: Box) -> Iterator[Level]:
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
        yield Level(name, number, levels[name], upward(levels[name]), height)


def _across(numbers: Sequence[int], frame: Box) -> Scale:
    low, high = (numbers[0], numbers[-1]) if numbers else (0, 1)
    return Scale(low, high if high > low else low + 1, frame.left, frame.right)


def _steps_axis(across: Scale) -> tuple[Tick, ...]:
    whole = [value for value in across.ticks(5) if value == int(value)]
    return not_touching(Tick(across(value), f"{value:,.0f}") for value in whole)


def _axis(upward: Scale, share: bool) -> tuple[Tick, ...]:
    return tuple(Tick(upward(value), f"{100 * value:g}" if share else f"{value:g}") for value in upward.ticks(4))
