"""The frontier as a drawing: accuracy over cost, a curve a rung and a yardstick, a mark a single worker.

Invariants: costs are those that were spent, not the budgets; what lies above or below the drawing is named, never
squeezed in by making the rest unreadable; curves are labelled at their ends. Deliberately absent: any figure that is
not in a table too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from shikisha.evaluate.drawing import Box, Scale, Tick, even_scale, path
from shikisha.evaluate.labels import Label, Spot, not_touching, place_labels
from shikisha.evaluate.names import shortened
from shikisha.evaluate.plots_cost import Size
from shikisha.learn.figures import Line, best_single, lines, marks
from shikisha.policy.policy import Known, Met, Policy

_MARGIN = 1.15  # of the cheapest and the dearest cost
_HIGHEST = 0.6  # of the rungs' span: how far above them a yardstick is still drawn
_LOWEST = 0.3  # how far below them a mark is
_ARM = 4.0
_NEAR = 0.02
KEPT, OTHER, YARD = "kept", "rung", "yard"


@dataclass(frozen=True, slots=True)
class Curve:
    """A rung or a yardstick in pixels; `role` and `number` say how it is drawn, `band` is its interval's outline."""

    line: Line
    role: str
    number: int
    path: str
    band: str
    label: Label | None
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A single worker, or a yardstick that has one cost; `best` is the best single worker."""

    name: str
    accuracy: float
    cost: float
    best: bool
    labelled: bool


@dataclass(frozen=True, slots=True)
class Dot:
    """A mark in pixels, and its label where it has one."""

    mark: Mark
    spot: Spot
    label: Label | None


@dataclass(frozen=True, slots=True)
class FrontierPlot:
    """The whole drawing; `above` and `below` name what lies beyond it, `level` is the best single worker's height."""

    size: Size
    frame: Box
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    dots: tuple[Dot, ...]
    level: float
    above: tuple[str, ...]
    below: tuple[str, ...]


def frontier_plot(policy: Policy, size: Size, *, named: bool = True) -> FrontierPlot | None:
    """Draw the frontiers; None where nothing was measured or nothing costs anything. `named`: yardsticks by name."""
    every = [line for line in lines(policy) if line.frontier]
    rungs = [line for line in every if line.rung]
    unit = policy.rung().dial.unit
    if not rungs or unit <= 0:
        return None
    low, high = _span(rungs, policy.rung().dial.best_single)
    drawn = [line for line in every if line.rung or max(met.accuracy for met in line.frontier) <= high]
    best = best_single(policy)
    singles = [Mark(one.name, one.score, one.dollars / unit, one is best, one is best) for one in policy.workers]
    singles += [Mark(name, met.accuracy, met.spent, False, True) for name, met in marks(policy) if not _same(met, best)]
    inside = [one for one in singles if low <= one.accuracy <= high and one.cost > 0]
    frame = _frame(size)
    costs = [met.spent for line in drawn for met in line.frontier if met.spent > 0]
    across = Scale(min(costs) / _MARGIN, max([*costs, 1.0]) * _MARGIN, frame.left, frame.right, log=True)
    inside = [one for one in inside if across.low <= one.cost <= across.high]
    ends = [end for line in drawn for met in line.frontier for end in _ends(line, met)]
    upward = even_scale([*ends, *(one.accuracy for one in inside)], (frame.bottom, frame.top), 6)
    curves, dots = _placed(drawn, inside, (across, upward), size, named=named)
    return FrontierPlot(
        size,
        frame,
        not_touching(Tick(across(value), _percent(value)) for value in across.ticks(4 if size.width < 500 else 7)),
        tuple(Tick(upward(value), f"{100 * value:.3g}") for value in upward.ticks(6)),
        curves,
        dots,
        upward(policy.rung().dial.best_single),
        tuple(line.name for line in every if line not in drawn),
        tuple(one.name for one in singles if one.accuracy < low),
    )


def _same(met: Met, best: Known) -> bool:
    """Whether a yardstick of one cost is the best single worker, measured again on held-back tasks."""
    return isclose(met.spent, 1.0, rel_tol=_NEAR) and isclose(met.accuracy, best.score, rel_tol=_NEAR)


def _frame(size: Size) -> Box:
    return size.frame if size.width < 500 else Box(46.0, 12.0, size.width - 150.0, size.height - 46.0)


def _span(rungs: Sequence[Line], best: float) -> tuple[float, float]:
    """Return the lowest and the highest accuracy that are drawn besides the rungs."""
    found = [met.accuracy for line in rungs for met in line.frontier] + [best]
    width = max(0.02, max(found) - min(found))
    return min(found) - _LOWEST * width, max(found) + _HIGHEST * width


def _ends(line: Line, met: Met) -> tuple[float, ...]:
    return (met.low, met.accuracy, met.high) if line.kept else (met.accuracy,)


def _placed(
    drawn: Sequence[Line], inside: Sequence[Mark], scales: tuple[Scale, Scale], size: Size, *, named: bool
) -> tuple[tuple[Curve, ...], tuple[Dot, ...]]:
    """Return curves and marks with labels that keep clear of each other; unless `named`, yardsticks are numbers."""
    spots, numbers = [], _numbers(drawn)
    for line, number in zip(drawn, numbers, strict=True):
        x, y = _at(line.frontier[-1], scales)
        text = shortened(line.name, size.longest) if line.rung or named else str(number)
        spots.append(Spot(x, y, text, Box(x - 2, y - 2, x + 2, y + 2)))
    places = [(scales[0](one.cost), scales[1](one.accuracy)) for one in inside]
    marked = [_spot(one.name, place, size) for one, place in zip(inside, places, strict=True)]
    wanted = [place for place, one in enumerate(inside) if one.labelled and (named or one.best)]
    canvas = Box(_frame(size).left + 2, _frame(size).top, size.width, _frame(size).bottom - 2)
    obstacles = [spot.body for spot in marked]
    found = place_labels([*spots, *(marked[place] for place in wanted)], canvas, size.letters, obstacles)
    curves = tuple(
        Curve(line, _role(line), number, _path(line, scales), _band(line, scales), label, spot.text)
        for line, number, spot, label in zip(drawn, numbers, spots, found, strict=False)
    )
    labels = dict(zip(wanted, found[len(drawn) :], strict=True))
    dots = tuple(
        Dot(one, spot, labels.get(place)) for place, (one, spot) in enumerate(zip(inside, marked, strict=True))
    )
    return curves, dots


def _numbers(drawn: Sequence[Line]) -> list[int]:
    """Number the rungs that are not kept, and the yardsticks, each from 1; the rung that is kept is 0."""
    found, seen = [], {OTHER: 0, YARD: 0, KEPT: -1}
    for line in drawn:
        seen[_role(line)] += 1
        found.append(seen[_role(line)])
    return found


def _role(line: Line) -> str:
    return KEPT if line.kept else OTHER if line.rung else YARD


def _spot(name: str, at: tuple[float, float], size: Size) -> Spot:
    x, y = at
    return Spot(x, y, shortened(name, size.longest), Box(x - _ARM, y - _ARM, x + _ARM, y + _ARM))


def _at(met: Met, scales: tuple[Scale, Scale]) -> tuple[float, float]:
    return scales[0](max(met.spent, scales[0].low)), scales[1](met.accuracy)


def _path(line: Line, scales: tuple[Scale, Scale]) -> str:
    return path(_at(met, scales) for met in line.frontier)


def _band(line: Line, scales: tuple[Scale, Scale]) -> str:
    """Return the outline of the kept rung's interval: there along its upper ends, back along its lower ones."""
    if not line.kept:
        return ""
    across, upward = scales
    x = [across(max(met.spent, across.low)) for met in line.frontier]
    there = [(place, upward(met.high)) for place, met in zip(x, line.frontier, strict=True)]
    back = [(place, upward(met.low)) for place, met in zip(x, line.frontier, strict=True)]
    return path([*there, *reversed(back)]) + "Z"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\u00a0%"
