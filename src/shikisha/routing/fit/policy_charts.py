"""The charts of a policy's page: the cost-accuracy frontier, promises against findings, and who is asked.

Invariants: costs are those that were spent, not the budgets; promises are the trade-off's own, findings are of tasks
that neither it nor its fit has seen; what lies above or below the frontier chart is named instead of squeezing in the
rest. Every figure of a chart is in a table too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose

from shikisha.plots.charts import (
    Chart,
    ChartCurve,
    ChartLevel,
    ChartPoint,
    ChartSize,
    cost_share_ticks,
    outline,
    percent_ticks,
)
from shikisha.plots.number_format import percent, shorten_middle
from shikisha.plots.svg import AxisScale, LabelTarget, Rect, even_scale, place_labels, svg_path
from shikisha.routing.fit.policy_figures import (
    FrontierLine,
    affordable_points,
    ask_shares,
    best_single_worker,
    fixed_cost_baselines,
    frontier_lines,
    trade_off_settings,
)
from shikisha.routing.policy_data import Candidate, FrontierPoint, Policy
from shikisha.routing.trade_off import OperatingMix

_COST_TITLE = "mean cost, of the best single worker's (logarithmic)"
_PROMISE_SIZE = ChartSize(340, 300, left=56, top=10, right=22, bottom=48)
_MARGIN = 1.15  # of the cheapest and the most expensive cost
_HIGHEST = 0.6  # of the candidates' span: how far above them a baseline is still drawn
_LOWEST = 0.3  # how far below them a mark is
_ARM = 4.0
_NEAR = 0.02

Scales = tuple[AxisScale, AxisScale]


@dataclass(frozen=True, slots=True)
class FrontierChart:
    """The chart of a policy's frontiers; `above` and `below` name what lies beyond it."""

    chart: Chart
    above: tuple[str, ...]
    below: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FrontierMark:
    """A single worker, or a baseline that has one cost; `best` is the best single worker."""

    name: str
    accuracy: float
    cost: float
    best: bool
    labeled: bool


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """A budget: what the trade-off promises for it (with one standard `error`), and what was found."""

    met: FrontierPoint
    accuracy: float
    error: float
    cost: float


@dataclass(frozen=True, slots=True)
class SettingShares:
    """A setting of the trade-off: how many workers it asks a task, and in which share of the tasks each."""

    name: str
    mix: OperatingMix
    asks: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SettingTable:
    """A table of settings; the workers are those that any of them asks, the most asked first."""

    workers: tuple[str, ...]
    rows: tuple[SettingShares, ...]


def frontier_chart(policy: Policy, size: ChartSize, *, named: bool = True) -> FrontierChart | None:
    """Return the frontiers; None where nothing was measured or nothing costs anything. `named`: baselines by name."""
    every = [line for line in frontier_lines(policy) if line.frontier]
    candidates = [line for line in every if line.rung]
    trade_off = policy.rung().dial
    if not candidates or trade_off.unit <= 0:
        return None
    low, high = _accuracy_span(candidates, trade_off.best_single)
    drawn = [line for line in every if line.rung or max(met.accuracy for met in line.frontier) <= high]
    marks = list(_marks(policy, trade_off.unit))
    inside = [one for one in marks if low <= one.accuracy <= high and one.cost > 0]
    frame = size.frame
    costs = [met.spent for line in drawn for met in line.frontier if met.spent > 0]
    across = AxisScale(min(costs) / _MARGIN, max([*costs, 1.0]) * _MARGIN, frame.left, frame.right, log=True)
    inside = [one for one in inside if across.low <= one.cost <= across.high]
    ends = [
        end
        for line in drawn
        for met in line.frontier
        for end in ((met.low, met.accuracy, met.high) if line.kept else (met.accuracy,))
    ]
    upward = even_scale([*ends, *(one.accuracy for one in inside)], (frame.bottom, frame.top), 6)
    curves, points = _place_curves_and_marks(drawn, inside, (across, upward), size, named=named)
    chart = Chart(
        size,
        cost_share_ticks(across, 4 if size.width < 500 else 7),
        percent_ticks(upward, 6),
        _COST_TITLE,
        "accuracy, %",
        "Accuracy over mean cost, a curve a way to decide; the next table holds the figures",
        curves=curves,
        points=points,
        levels=(ChartLevel(upward(trade_off.best_single)),),
    )
    above = tuple(line.name for line in every if line not in drawn)
    return FrontierChart(chart, above, tuple(one.name for one in marks if one.accuracy < low))


def _marks(policy: Policy, unit: float) -> Iterator[FrontierMark]:
    """Yield the single workers, then the baselines of one cost other than the best single worker itself."""
    best = best_single_worker(policy)
    for one in policy.workers:
        yield FrontierMark(one.name, one.score, one.dollars / unit, one is best, one is best)
    for name, met in fixed_cost_baselines(policy):
        if not (isclose(met.spent, 1.0, rel_tol=_NEAR) and isclose(met.accuracy, best.score, rel_tol=_NEAR)):
            yield FrontierMark(name, met.accuracy, met.spent, best=False, labeled=True)


def _accuracy_span(candidates: Sequence[FrontierLine], best: float) -> tuple[float, float]:
    """Return the lowest and the highest accuracy that are drawn besides the candidates."""
    found = [met.accuracy for line in candidates for met in line.frontier] + [best]
    width = max(0.02, max(found) - min(found))
    return min(found) - _LOWEST * width, max(found) + _HIGHEST * width


def _place_curves_and_marks(
    drawn: Sequence[FrontierLine], inside: Sequence[FrontierMark], scales: Scales, size: ChartSize, *, named: bool
) -> tuple[tuple[ChartCurve, ...], tuple[ChartPoint, ...]]:
    """Return curves and marks whose labels keep clear of each other; unless `named`, baselines are numbers."""
    frame, targets, numbers = size.frame, [], _line_numbers(drawn)
    for line, number in zip(drawn, numbers, strict=True):
        x, y = _position(line.frontier[-1], scales)
        text = shorten_middle(line.name, size.longest) if line.rung or named else str(number)
        targets.append(LabelTarget(x, y, text, Rect(x - 2, y - 2, x + 2, y + 2)))
    marked = [_mark_target(one, scales, size) for one in inside]
    wanted = [place for place, one in enumerate(inside) if one.labeled and (named or one.best)]
    canvas = Rect(frame.left + 2, frame.top, size.width, frame.bottom - 2)
    obstacles = [target.body for target in marked]
    placed = place_labels([*targets, *(marked[place] for place in wanted)], canvas, size.letters, obstacles)
    curves = tuple(
        ChartCurve(
            line.name,
            _curve_style(line, number),
            svg_path(_position(met, scales) for met in line.frontier),
            f"{line.name}: area {100 * line.area:.2f}",
            band=_interval_band(line, scales),
            label=label,
            text=target.text,
        )
        for line, number, target, label in zip(drawn, numbers, targets, placed, strict=False)
    )
    labels = dict(zip(wanted, placed[len(drawn) :], strict=True))
    points = tuple(
        ChartPoint(
            one.name,
            "single best" if one.best else "single",
            "dot" if one.best else "single",
            target.x,
            target.y,
            f"{one.name}: {percent(one.accuracy)} at {percent(one.cost)}",
            label=labels.get(place),
            text=target.text,
        )
        for place, (one, target) in enumerate(zip(inside, marked, strict=True))
    )
    return curves, points


def _line_numbers(drawn: Sequence[FrontierLine]) -> list[int]:
    """Number the other candidates and the baselines, each from 1; the kept candidate is 0."""
    numbers, seen = [], {"candidate": 0, "baseline": 0}
    for line in drawn:
        kind = "candidate" if line.rung else "baseline"
        seen[kind] += not line.kept
        numbers.append(0 if line.kept else seen[kind])
    return numbers


def _curve_style(line: FrontierLine, number: int) -> str:
    return "kept" if line.kept else f"r{(number - 1) % 3 + 1}" if line.rung else f"yard d{number % 5}"


def _mark_target(one: FrontierMark, scales: Scales, size: ChartSize) -> LabelTarget:
    x, y = scales[0](one.cost), scales[1](one.accuracy)
    return LabelTarget(x, y, shorten_middle(one.name, size.longest), Rect(x - _ARM, y - _ARM, x + _ARM, y + _ARM))


def _position(met: FrontierPoint, scales: Scales) -> tuple[float, float]:
    return scales[0](max(met.spent, scales[0].low)), scales[1](met.accuracy)


def _interval_band(line: FrontierLine, scales: Scales) -> str:
    """Return the outline of the kept candidate's interval."""
    if not line.kept:
        return ""
    across, upward = scales
    x = [across(max(met.spent, across.low)) for met in line.frontier]
    upper = [(place, upward(met.high)) for place, met in zip(x, line.frontier, strict=True)]
    return outline(upper, [(place, upward(met.low)) for place, met in zip(x, line.frontier, strict=True)])


def budget_checks(rung: Candidate) -> tuple[BudgetCheck, ...]:
    """Return what the trade-off promises for every budget at which the candidate was measured."""
    found = []
    for met in affordable_points(rung.evidence) if rung.evidence else ():
        if met.budget >= rung.dial.points[0].cost:
            mix = rung.dial.for_cost(met.budget)
            found.append(BudgetCheck(met, mix.accuracy, max(mix.low.error, mix.high.error), mix.cost))
    return tuple(found)


def setting_shares(policy: Policy, rung: Candidate) -> SettingTable:
    """Return what each setting promises, and in which share of the tasks it asks each worker."""
    settings = [(name, mix, ask_shares(policy, mix)) for name, mix in trade_off_settings(rung)]
    known = [(name, mix, shares) for name, mix, shares in settings if shares is not None]
    peaks = {name: max((shares[name] for _, _, shares in known), default=0.0) for name in policy.names}
    ranked = tuple(sorted((name for name in policy.names if peaks[name] > 0), key=lambda name: -peaks[name]))
    rows = [
        SettingShares(
            name if name.endswith("%") else f"{name} ({100 * mix.cost:.3g} %)",
            mix,
            sum(shares.values()),
            tuple(shares[worker] for worker in ranked),
        )
        for name, mix, shares in known
    ]
    return SettingTable(ranked, tuple(rows))
