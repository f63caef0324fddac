"""Charts over days: bars from zero, or lines, with a scale of round numbers and the days below.

Invariants: every bar and point says its day and value in words; a day without a value is a gap and not 0; the scale's
numbers are written as the values are. Pure functions of numbers; the template draws what they return.
"""

from collections.abc import Callable, Sequence
from datetime import date

from shikisha.core.fast_dataclass import dataclass
from shikisha.plots.svg import AxisScale, Tick, even_scale, spaced_ticks, svg_path

_BOTTOM, _TOP, _RIGHT = 20.0, 10.0, 16.0
_LETTER = 6.4  # pixels of a digit at 11 pixels
_LEAST_BAR = 1.5  # pixels of what is more than nothing


@dataclass(frozen=True, slots=True)
class DayMark:
    """A bar (its left upper corner, width and height) or a point; `words` are what a reader sees or hears of it."""

    x: float
    y: float
    width: float
    height: float
    words: str
    series: int = 0


@dataclass(frozen=True, slots=True)
class DayChart:
    """A chart: marks, lines (path, series), the ticks of both axes, and where the plot begins and ends."""

    width: float
    height: float
    left: float
    bottom: float
    marks: tuple[DayMark, ...]
    lines: tuple[tuple[str, int], ...]
    up: tuple[Tick, ...]
    across: tuple[Tick, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not any(mark.height for mark in self.marks)


@dataclass(frozen=True, slots=True)
class DaySeries:
    """A value for each day, and its name; None: there is none. How a value is written is the chart's."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ChartForm:
    """How large a chart is, how its values are written, and the least that its scale reaches up to."""

    write: Callable[[float], str]
    width: float = 360.0
    height: float = 150.0
    least_top: float = 0.0
    whole: bool = False  # its values are counts: no tick between two of them


def day_bar_chart(days: Sequence[str], series: Sequence[DaySeries], form: ChartForm) -> DayChart:
    """Return bars by day (ISO dates), the series stacked on one another in their order."""
    totals = [sum(each.values[at] or 0.0 for each in series) for at in range(len(days))]
    scale, up, left = _scale(totals, form)
    floor, step = form.height - _BOTTOM, (form.width - left - _RIGHT) / max(len(days), 1)
    gap = min(4.0, step / 5)
    marks = []
    for at, day in enumerate(days):
        base = floor
        for number, each in enumerate(series):
            value = each.values[at] or 0.0
            tall = max(floor - scale(value), _LEAST_BAR) if value > 0 else 0.0
            base -= tall
            words = f"{_long_day(day)}: {form.write(value)}{f' {each.name}' if each.name else ''}"
            x = left + at * step + gap / 2
            marks.append(DayMark(round(x, 1), round(base, 1), round(step - gap, 1), round(tall, 1), words, number))
    return DayChart(form.width, form.height, left, floor, tuple(marks), (), up, _day_ticks(days, left, step))


def day_line_chart(days: Sequence[str], series: Sequence[DaySeries], form: ChartForm) -> DayChart:
    """Return lines by day, broken where a day has no value, with a point for each value."""
    known = [value for each in series for value in each.values if value is not None]
    scale, up, left = _scale(known, form)
    step = (form.width - left - _RIGHT) / max(len(days), 1)
    marks, lines = [], []
    for number, each in enumerate(series):
        pieces: list[list[tuple[float, float]]] = [[]]
        for at, value in enumerate(each.values):
            if value is None:
                pieces.append([])
                continue
            x, y = left + (at + 0.5) * step, scale(value)
            pieces[-1].append((x, y))
            words = f"{_long_day(days[at])}: {each.name} {form.write(value)}"
            marks.append(DayMark(round(x, 1), round(y, 1), 0.0, 2.5, words, number))
        lines += [(svg_path(piece), number) for piece in pieces if len(piece) > 1]
    across = _day_ticks(days, left, step)
    return DayChart(form.width, form.height, left, form.height - _BOTTOM, tuple(marks), tuple(lines), up, across)


def _scale(values: Sequence[float], form: ChartForm) -> tuple[AxisScale, tuple[Tick, ...], float]:
    """Return the scale from 0, its ticks, and how much room their numbers need at the left."""
    most = max([*values, form.least_top, 1.0 if form.whole else 0.0])
    scale = even_scale([0.0, most or 1.0], (form.height - _BOTTOM, _TOP), 4)
    ticks = [value for value in scale.ticks(4) if not form.whole or value == int(value)]
    up = tuple(Tick(round(scale(value), 1), form.write(value)) for value in ticks)
    return scale, up, round(10 + _LETTER * max(len(tick.text) for tick in up), 1)


def _day_ticks(days: Sequence[str], left: float, step: float) -> tuple[Tick, ...]:
    """Return the days that there is room for, the newest always among them."""
    ticks = [
        Tick(round(left + (at + 0.5) * step, 1), (f"{date.fromisoformat(day):%-d %b}")) for at, day in enumerate(days)
    ]
    kept = spaced_ticks(reversed([Tick(-tick.place, tick.text) for tick in ticks]), 12.0)
    return tuple(Tick(-tick.place, tick.text) for tick in reversed(kept))


def _long_day(day: str) -> str:
    return f"{date.fromisoformat(day):%-d %b %Y}"
