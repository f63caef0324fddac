"""Cost against accuracy: a mark an entrant with its interval, and the convex hull of the single workers.

Invariants: an entrant without known cost is left out and named; the hull is drawn as what mixing two workers at random
reaches, which is a straight line in dollars and a bent one on a logarithmic axis. Deliberately absent: an interval of
the cost (none is reckoned), and the hull's own reckoning (`counting`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, hypot

from shikisha.budget import format_dollars
from shikisha.evaluate.drawing import Box, Scale, Tick, cost_scale, even_scale, mixing, path
from shikisha.evaluate.entries import Entry, Report
from shikisha.evaluate.labels import Label, Spot, not_touching, place_labels
from shikisha.evaluate.names import shortened
from shikisha.evaluate.samples import Part

_FREE_GUTTER = 60.0  # pixels at the left of a logarithmic axis, for what costs nothing
_ARM = 5.0  # half a mark


@dataclass(frozen=True, slots=True)
class Size:
    """A drawing's size in pixels, that of its letters, how long a name may be and how many there is room for."""

    width: float
    height: float
    letters: float = 12.0
    longest: int = 30
    names: int = 40

    @property
    def frame(self) -> Box:
        """Where marks go: the rest is for the axes."""
        return Box(46.0, 12.0, self.width - 14.0, self.height - 46.0)


@dataclass(frozen=True, slots=True)
class Dot:
    """An entrant in pixels: its mark, its label (None: no room for it), and its interval's ends."""

    entry: Entry
    spot: Spot
    label: Label | None
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CostPlot:
    """The whole drawing; `left_out` are entrants without known cost, `log` says how the dollars are spaced."""

    size: Size
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    hull: str
    log: bool
    left_out: tuple[str, ...]


def cost_plot(report: Report, entries: Sequence[Entry], size: Size) -> CostPlot:
    """Draw the entrants, first ones labelled first."""
    costs = {entry.name: cost for entry in entries if (cost := entry.dollars_a_task) is not None}
    shown = [entry for entry in entries if entry.name in costs]
    frame = size.frame
    across = _across([*costs.values(), *(cost for cost, _ in report.hull)], frame)
    ends = [end for entry in shown for end in (entry.interval.low, entry.accuracy, entry.interval.high)]
    upward = even_scale(ends, (frame.bottom, frame.top), 6)
    line = [(_place(across, cost, frame), upward(accuracy)) for cost, accuracy in mixing(report.hull)]
    spots = {
        entry.name: _spot(entry, _place(across, costs[entry.name], frame), upward, shortened(entry.name, size.longest))
        for entry in shown
    }
    labels = _labels(spots, _named(report, shown, size), size, line)
    x_ticks = tuple(Tick(across(value), format_dollars(value)) for value in across.ticks(3 if size.width < 500 else 6))
    if across.log and across.start > frame.left:
        x_ticks = (Tick(frame.left + _ARM, "$0"), *x_ticks)
    y_ticks = tuple(Tick(upward(value), f"{100 * value:.3g}") for value in upward.ticks(6))
    left_out = tuple(entry.name for entry in entries if entry.name not in costs)
    dots = tuple(
        Dot(each, spots[each.name], labels.get(each.name), upward(each.interval.low), upward(each.interval.high))
        for each in shown
    )
    return CostPlot(size, not_touching(x_ticks), y_ticks, dots, path(line), across.log, left_out)


def _across(costs: Sequence[float], frame: Box) -> Scale:
    scale = cost_scale(costs, (frame.left, frame.right))
    if scale.log and 0.0 in costs:
        return cost_scale(costs, (frame.left + _FREE_GUTTER, frame.right))
    return scale


def _place(scale: Scale, cost: float, frame: Box) -> float:
    """Return where a cost is; on a logarithmic axis what costs nothing stands in the gutter, at the very left."""
    least = frame.left + _ARM
    return max(least, scale(cost)) if cost > 0 or not scale.log else least


def _named(report: Report, shown: Sequence[Entry], size: Size) -> list[str]:
    """Return whose names are written: everybody's where there is room, else without the ordinary single workers'."""
    if len(shown) <= size.names:
        return [entry.name for entry in shown]
    return [entry.name for entry in shown if entry.part is not Part.SINGLE or entry.name == report.best_single]


def _labels(
    spots: Mapping[str, Spot], named: Sequence[str], size: Size, line: Sequence[tuple[float, float]]
) -> Mapping[str, Label]:
    frame = size.frame
    canvas = Box(frame.left + 2, frame.top, size.width, frame.bottom - 2)
    obstacles = [*(spot.body for name, spot in spots.items() if name not in named), *_along(line)]
    placed = place_labels([spots[name] for name in named], canvas, size.letters, obstacles)
    return dict(zip(named, placed, strict=True))


def _along(line: Sequence[tuple[float, float]]) -> Iterator[Box]:
    """Yield small boxes along a line, about one for every 8 pixels, for labels to keep clear of."""
    for (x0, y0), (x1, y1) in pairwise(line):
        pieces = ceil(hypot(x1 - x0, y1 - y0) / 8)
        for x, y in ((x0 + n * (x1 - x0) / pieces, y0 + n * (y1 - y0) / pieces) for n in range(pieces)):
            yield Box(x - 3, y - 3, x + 3, y + 3)


def _spot(entry: Entry, x: float, upward: Scale, name: str) -> Spot:
    y, high, low = upward(entry.accuracy), upward(entry.interval.high), upward(entry.interval.low)
    body = Box(x - _ARM, min(high, y - _ARM), x + _ARM, max(low, y + _ARM))
    return Spot(x, y, name, body)
