"""The frontier as a drawing: accuracy over cost, a curve a rung and a yardstick, a mark a single worker.

Invariants: costs are those that were spent, not the budgets; what lies above or below the drawing is named, never
squeezed in by making the rest unreadable; curves are labelled at their ends. Deliberately absent: any figure that is
not in a table too.

The dial as drawings: what it promised against what was found, and who is asked the more it may cost.

Invariants: promises are the dial's own, findings are of tasks that neither it nor its fit has seen; workers beyond the
most asked stand together as others. Deliberately absent: figures that are not in a table too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

from shikisha.evals.html_report import OTHERS
from shikisha.evals.report_text import shorten_middle
from shikisha.plots.eval_charts import ChartSize
from shikisha.plots.svg import (
    AxisScale,
    LabelTarget,
    PlacedLabel,
    Rect,
    Tick,
    even_scale,
    place_labels,
    spaced_ticks,
    svg_path,
)
from shikisha.routing.fit.cost_frontier import BUDGETS
from shikisha.routing.fit.policy_figures import (
    FrontierLine,
    affordable_points,
    ask_shares,
    best_single_worker,
    fixed_cost_baselines,
    frontier_lines,
    trade_off_settings,
)
from shikisha.routing.policy_data import Candidate, FrontierPoint, KnownWorker, Policy
from shikisha.routing.trade_off import OperatingMix

_MARGIN = 1.15  # of the cheapest and the dearest cost
_HIGHEST = 0.6  # of the rungs' span: how far above them a yardstick is still drawn
_LOWEST = 0.3  # how far below them a mark is
_ARM = 4.0
_NEAR = 0.02
SELECTED, CANDIDATE, BASELINE = "kept", "rung", "yard"


@dataclass(frozen=True, slots=True)
class FrontierCurve:
    """A rung or a yardstick in pixels; `role` and `number` say how it is drawn, `band` is its interval's outline."""

    line: FrontierLine
    role: str
    number: int
    path: str
    band: str
    label: PlacedLabel | None
    text: str


@dataclass(frozen=True, slots=True)
class FrontierMark:
    """A single worker, or a yardstick that has one cost; `best` is the best single worker."""

    name: str
    accuracy: float
    cost: float
    best: bool
    labelled: bool


@dataclass(frozen=True, slots=True)
class FrontierDot:
    """A mark in pixels, and its label where it has one."""

    mark: FrontierMark
    spot: LabelTarget
    label: PlacedLabel | None


@dataclass(frozen=True, slots=True)
class FrontierChart:
    """The whole drawing; `above` and `below` name what lies beyond it, `level` is the best single worker's height."""

    size: ChartSize
    frame: Rect
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[FrontierCurve, ...]
    dots: tuple[FrontierDot, ...]
    level: float
    above: tuple[str, ...]
    below: tuple[str, ...]


def frontier_chart(policy: Policy, size: ChartSize, *, named: bool = True) -> FrontierChart | None:
    """Draw the frontiers; None where nothing was measured or nothing costs anything. `named`: yardsticks by name."""
    every = [line for line in frontier_lines(policy) if line.frontier]
    rungs = [line for line in every if line.rung]
    unit = policy.rung().dial.unit
    if not rungs or unit <= 0:
        return None
    low, high = _span(rungs, policy.rung().dial.best_single)
    drawn = [line for line in every if line.rung or max(met.accuracy for met in line.frontier) <= high]
    best = best_single_worker(policy)
    singles = [
        FrontierMark(one.name, one.score, one.dollars / unit, one is best, one is best) for one in policy.workers
    ]
    singles += [
        FrontierMark(name, met.accuracy, met.spent, False, True)
        for name, met in fixed_cost_baselines(policy)
        if not _is_best_single(met, best)
    ]
    inside = [one for one in singles if low <= one.accuracy <= high and one.cost > 0]
    frame = _frame(size)
    costs = [met.spent for line in drawn for met in line.frontier if met.spent > 0]
    across = AxisScale(min(costs) / _MARGIN, max([*costs, 1.0]) * _MARGIN, frame.left, frame.right, log=True)
    inside = [one for one in inside if across.low <= one.cost <= across.high]
    ends = [end for line in drawn for met in line.frontier for end in _ends(line, met)]
    upward = even_scale([*ends, *(one.accuracy for one in inside)], (frame.bottom, frame.top), 6)
    curves, dots = _place_curves_and_marks(drawn, inside, (across, upward), size, named=named)
    return FrontierChart(
        size,
        frame,
        spaced_ticks(Tick(across(value), _percent(value)) for value in across.ticks(4 if size.width < 500 else 7)),
        tuple(Tick(upward(value), f"{100 * value:.3g}") for value in upward.ticks(6)),
        curves,
        dots,
        upward(policy.rung().dial.best_single),
        tuple(line.name for line in every if line not in drawn),
        tuple(one.name for one in singles if one.accuracy < low),
    )


def _is_best_single(met: FrontierPoint, best: KnownWorker) -> bool:
    """Whether a yardstick of one cost is the best single worker, measured again on held-back tasks."""
    return isclose(met.spent, 1.0, rel_tol=_NEAR) and isclose(met.accuracy, best.score, rel_tol=_NEAR)


def _frame(size: ChartSize) -> Rect:
    return size.frame if size.width < 500 else Rect(46.0, 12.0, size.width - 150.0, size.height - 46.0)


def _span(rungs: Sequence[FrontierLine], best: float) -> tuple[float, float]:
    """Return the lowest and the highest accuracy that are drawn besides the rungs."""
    found = [met.accuracy for line in rungs for met in line.frontier] + [best]
    width = max(0.02, max(found) - min(found))
    return min(found) - _LOWEST * width, max(found) + _HIGHEST * width


def _ends(line: FrontierLine, met: FrontierPoint) -> tuple[float, ...]:
    return (met.low, met.accuracy, met.high) if line.kept else (met.accuracy,)


def _place_curves_and_marks(
    drawn: Sequence[FrontierLine],
    inside: Sequence[FrontierMark],
    scales: tuple[AxisScale, AxisScale],
    size: ChartSize,
    *,
    named: bool,
) -> tuple[tuple[FrontierCurve, ...], tuple[FrontierDot, ...]]:
    """Return curves and marks with labels that keep clear of each other; unless `named`, yardsticks are numbers."""
    spots, numbers = [], _numbers(drawn)
    for line, number in zip(drawn, numbers, strict=True):
        x, y = _point_position(line.frontier[-1], scales)
        text = shorten_middle(line.name, size.longest) if line.rung or named else str(number)
        spots.append(LabelTarget(x, y, text, Rect(x - 2, y - 2, x + 2, y + 2)))
    places = [(scales[0](one.cost), scales[1](one.accuracy)) for one in inside]
    marked = [_mark_target(one.name, place, size) for one, place in zip(inside, places, strict=True)]
    wanted = [place for place, one in enumerate(inside) if one.labelled and (named or one.best)]
    canvas = Rect(_frame(size).left + 2, _frame(size).top, size.width, _frame(size).bottom - 2)
    obstacles = [spot.body for spot in marked]
    found = place_labels([*spots, *(marked[place] for place in wanted)], canvas, size.letters, obstacles)
    curves = tuple(
        FrontierCurve(line, _role(line), number, _path(line, scales), _band(line, scales), label, spot.text)
        for line, number, spot, label in zip(drawn, numbers, spots, found, strict=False)
    )
    labels = dict(zip(wanted, found[len(drawn) :], strict=True))
    dots = tuple(
        FrontierDot(one, spot, labels.get(place)) for place, (one, spot) in enumerate(zip(inside, marked, strict=True))
    )
    return curves, dots


def _numbers(drawn: Sequence[FrontierLine]) -> list[int]:
    """Number the rungs that are not kept, and the yardsticks, each from 1; the rung that is kept is 0."""
    found, seen = [], {CANDIDATE: 0, BASELINE: 0, SELECTED: -1}
    for line in drawn:
        seen[_role(line)] += 1
        found.append(seen[_role(line)])
    return found


def _role(line: FrontierLine) -> str:
    return SELECTED if line.kept else CANDIDATE if line.rung else BASELINE


def _mark_target(name: str, at: tuple[float, float], size: ChartSize) -> LabelTarget:
    x, y = at
    return LabelTarget(x, y, shorten_middle(name, size.longest), Rect(x - _ARM, y - _ARM, x + _ARM, y + _ARM))


def _point_position(met: FrontierPoint, scales: tuple[AxisScale, AxisScale]) -> tuple[float, float]:
    return scales[0](max(met.spent, scales[0].low)), scales[1](met.accuracy)


def _path(line: FrontierLine, scales: tuple[AxisScale, AxisScale]) -> str:
    return svg_path(_point_position(met, scales) for met in line.frontier)


def _band(line: FrontierLine, scales: tuple[AxisScale, AxisScale]) -> str:
    """Return the outline of the kept rung's interval: there along its upper ends, back along its lower ones."""
    if not line.kept:
        return ""
    across, upward = scales
    x = [across(max(met.spent, across.low)) for met in line.frontier]
    there = [(place, upward(met.high)) for place, met in zip(x, line.frontier, strict=True)]
    back = [(place, upward(met.low)) for place, met in zip(x, line.frontier, strict=True)]
    return svg_path([*there, *reversed(back)]) + "Z"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\u00a0%"


PROMISE_WIDTH, PROMISE_HEIGHT = 340.0, 300.0
_PROMISE_FRAME = Rect(56.0, 10.0, 318.0, 252.0)
_STACK_COLORS = 6  # that can be told apart


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """A budget: what the dial promises for it, and what was found; `error` is the promise's, one standard error."""

    met: FrontierPoint
    accuracy: float
    error: float
    cost: float


@dataclass(frozen=True, slots=True)
class PromisedPoint:
    """A promise and a finding in pixels, with the finding's interval."""

    kept: BudgetCheck
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PromiseChart:
    """A drawing of promises (across) against findings (upward), and the diagonal on which they are equal."""

    frame: Rect
    ticks: tuple[tuple[Tick, ...], tuple[Tick, ...]]
    pairs: tuple[PromisedPoint, ...]
    diagonal: str


@dataclass(frozen=True, slots=True)
class SettingShares:
    """A setting of the dial: how many workers it asks a task, and in which share of the tasks each."""

    name: str
    mix: OperatingMix
    asks: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SettingTable:
    """A table of settings; the workers are those that any of them asks, the most asked first."""

    workers: tuple[str, ...]
    rows: tuple[SettingShares, ...]


@dataclass(frozen=True, slots=True)
class WorkerLayer:
    """A worker's area in the stack, and its colour's number (None: others)."""

    name: str
    number: int | None
    path: str


@dataclass(frozen=True, slots=True)
class WorkerStack:
    """Who is asked, in workers a task, along the dial."""

    frame: Rect
    width: float
    height: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    layers: tuple[WorkerLayer, ...]


def budget_checks(rung: Candidate) -> tuple[BudgetCheck, ...]:
    """Return what the dial promises for every budget at which the rung was measured."""
    found = []
    for met in affordable_points(rung.evidence) if rung.evidence else ():
        if met.budget >= rung.dial.points[0].cost:
            mix = rung.dial.for_cost(met.budget)
            found.append(BudgetCheck(met, mix.accuracy, max(mix.low.error, mix.high.error), mix.cost))
    return tuple(found)


def accuracy_promises(held: Sequence[BudgetCheck]) -> PromiseChart:
    """Draw promised accuracy against found accuracy."""
    values = [value for each in held for value in (each.accuracy, each.met.low, each.met.high)]
    across = even_scale(values, (_PROMISE_FRAME.left, _PROMISE_FRAME.right), 4)
    upward = AxisScale(across.low, across.high, _PROMISE_FRAME.bottom, _PROMISE_FRAME.top)
    pairs = [
        PromisedPoint(
            each, across(each.accuracy), upward(each.met.accuracy), upward(each.met.low), upward(each.met.high)
        )
        for each in held
    ]
    texts = [(value, f"{100 * value:.3g}") for value in across.ticks(4)]
    return _promise_chart(across, upward, texts, pairs)


def cost_promises(held: Sequence[BudgetCheck]) -> PromiseChart | None:
    """Draw promised cost against what was spent; None where something was free."""
    values = [value for each in held for value in (each.cost, each.met.spent)]
    if not values or min(values) <= 0:
        return None
    across = AxisScale(min(values) / 1.3, max(values) * 1.3, _PROMISE_FRAME.left, _PROMISE_FRAME.right, log=True)
    upward = AxisScale(across.low, across.high, _PROMISE_FRAME.bottom, _PROMISE_FRAME.top, log=True)
    pairs = []
    for each in held:
        y = upward(each.met.spent)
        pairs.append(PromisedPoint(each, across(each.cost), y, y, y))
    return _promise_chart(across, upward, [(value, _percent(value)) for value in across.ticks(4)], pairs)


def _promise_chart(
    across: AxisScale, upward: AxisScale, texts: Sequence[tuple[float, str]], pairs: Sequence[PromisedPoint]
) -> PromiseChart:
    ticks = (
        spaced_ticks(Tick(across(value), text) for value, text in texts),
        tuple(Tick(upward(value), text) for value, text in texts),
    )
    ends = [(across(value), upward(value)) for value in (across.low, across.high)]
    return PromiseChart(_PROMISE_FRAME, ticks, tuple(pairs), svg_path(ends))


def setting_shares(policy: Policy, rung: Candidate) -> SettingTable:
    """Return what each setting of the dial promises, and in which share of the tasks it asks each worker."""
    marks = [(name, mix, ask_shares(policy, mix)) for name, mix in trade_off_settings(rung)]
    known = [(name, mix, counted) for name, mix, counted in marks if counted is not None]
    peaks = {name: max((counted[name] for _, _, counted in known), default=0.0) for name in policy.names}
    ranked = tuple(sorted((name for name in policy.names if peaks[name] > 0), key=lambda name: -peaks[name]))
    rows = [
        SettingShares(
            name if name.endswith("%") else f"{name} ({100 * mix.cost:.3g} %)",
            mix,
            sum(counted.values()),
            tuple(counted[worker] for worker in ranked),
        )
        for name, mix, counted in known
    ]
    return SettingTable(ranked, tuple(rows))


def worker_stack(policy: Policy, rung: Candidate, width: float, height: float = 300.0) -> WorkerStack | None:
    """Draw how many workers are asked a task, and who, along the dial; None where nothing can be drawn."""
    held = [(mix.cost, ask_shares(policy, mix)) for _, mix in trade_off_settings(rung, tuple(BUDGETS.tolist()))]
    known = [(cost, counted) for cost, counted in held if counted is not None and cost > 0]
    if len(known) < 2 or known[0][0] == known[-1][0]:
        return None
    frame = Rect(40.0, 10.0, width - 10.0, height - 46.0)
    across = AxisScale(known[0][0], known[-1][0], frame.left, frame.right, log=True)
    upward = even_scale([0.0, *(sum(counted.values()) for _, counted in known)], (frame.bottom, frame.top), 5)
    x_ticks = [Tick(across(value), _percent(value)) for value in across.ticks(4 if width < 500 else 6)]
    return WorkerStack(
        frame,
        width,
        height,
        spaced_ticks(x_ticks),
        tuple(Tick(upward(value), f"{value:g}") for value in upward.ticks(5)),
        _layers(_shares([counted for _, counted in known]), [across(cost) for cost, _ in known], upward),
    )


def _shares(counted: Sequence[Mapping[str, float]]) -> list[tuple[str, list[float]]]:
    """Return the most asked workers' shares along the dial, and what all others come to."""
    most = {name: max(shares[name] for shares in counted) for name in counted[0]}
    ranked = [name for name in sorted(most, key=lambda name: -most[name]) if most[name] > 0]
    first, rest = ranked[: _STACK_COLORS - 1], ranked[_STACK_COLORS - 1 :]
    found = [(name, [shares[name] for shares in counted]) for name in first]
    return [*found, (OTHERS, [sum(shares[name] for name in rest) for shares in counted])] if rest else found


def _layers(
    shares: Sequence[tuple[str, list[float]]], x: Sequence[float], upward: AxisScale
) -> tuple[WorkerLayer, ...]:
    base, found = [0.0] * len(x), []
    for number, (name, values) in enumerate(shares):
        top = [low + value for low, value in zip(base, values, strict=True)]
        there = [(place, upward(value)) for place, value in zip(x, top, strict=True)]
        back = [(place, upward(value)) for place, value in zip(x, base, strict=True)]
        found.append(WorkerLayer(name, None if name == OTHERS else number, svg_path([*there, *reversed(back)]) + "Z"))
        base = top
    return tuple(found)
