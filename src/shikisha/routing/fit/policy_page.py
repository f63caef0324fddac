"""The HTML page of a learned policy: one file that loads nothing else, with the cost-accuracy frontiers as a chart.

Invariants: log texts are cleaned and escaped where templates are rendered; the page runs no script but its own; every
figure in a plot is also in a table or text, and comes from the policy file; costs are those that were spent, not the
budgets.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose

from shikisha.core.fast_dataclass import dataclass
from shikisha.evals.entrant_metrics import ConfidenceInterval
from shikisha.evals.report_text import span
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
from shikisha.plots.format import page_environment, percent, render_page, shorten_middle
from shikisha.plots.svg import AxisScale, LabelTarget, Rect, even_scale, place_labels, svg_path
from shikisha.routing.fit.cost_frontier import REPORTED_BUDGETS
from shikisha.routing.fit.policy_figures import (
    FrontierLine,
    ask_shares,
    default_setting,
    fixed_cost_baselines,
    frontier_lines,
    is_overspent,
    paid_for,
    usage_by_type,
    workers_with_few_outcomes,
)
from shikisha.routing.fit.policy_report import (
    cost_reference,
    describe_best_single,
    describe_promises,
    describe_result,
    describe_source,
    log_name,
)
from shikisha.routing.policy_data import Candidate, FrontierPoint, Policy
from shikisha.routing.trade_off import TargetMetric

_SIZE = ChartSize(1200, 560, right=150)
_COST_TITLE = "mean cost, of the best single worker's (logarithmic)"
_MARGIN = 1.15  # of the cheapest and the most expensive cost
_LOWEST = 0.3  # of the candidates' span: how far below them a single worker is still drawn
_ARM = 4.0
_NEAR = 0.02

Scales = tuple[AxisScale, AxisScale]


def render_policy_page(policy: Policy, version: str, uses: tuple[tuple[str, str], ...] = ()) -> str:
    """Return the page; MissingExtra when jinja2 is not installed."""
    environment = page_environment("shikisha.routing.fit")
    environment.filters["met_span"] = lambda met: span(ConfidenceInterval(met.low, met.high))
    candidate, measured = policy.rung(), frontier_lines(policy)
    mix, wish = default_setting(candidate)
    best = wish.aim is TargetMetric.BEST
    values: Mapping[str, object] = {
        "policy": policy,
        "version": version,
        "uses": uses,
        "name": log_name(policy.about),
        "best": policy.best_single,
        "few": workers_with_few_outcomes(policy),
        "unit": candidate.dial.unit,
        "source": describe_source(policy),
        "yardstick": describe_best_single(policy),
        "reference": cost_reference(policy),
        "headline": describe_result(policy),
        "kept_word": describe_promises(candidate.evidence) if candidate.evidence else "",
        "budgets": REPORTED_BUDGETS,
        "rows": [(line, [(line.at(budget), budget) for budget in REPORTED_BUDGETS]) for line in measured],
        "overspent": is_overspent,
        "marks": fixed_cost_baselines(policy),
        "frontier": frontier_chart(policy, _SIZE),
        "kept": budget_checks(candidate),
        "mix": mix,
        "setting": "its best setting" if best else "the setting that is as good as the best single worker",
        "ways": usage_by_type(policy, mix),
        "asked": ask_shares(policy, mix) or {},
    }
    return render_page(environment, "policy.html.jinja", values)


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


def budget_checks(rung: Candidate) -> tuple[BudgetCheck, ...]:
    """Return what the trade-off promises for every budget at which the candidate was measured."""
    met_mixes = [(met, rung.dial.for_cost(met.budget)) for met in paid_for(rung)]
    return tuple(BudgetCheck(met, mix.accuracy, max(mix.low.error, mix.high.error), mix.cost) for met, mix in met_mixes)


def frontier_chart(policy: Policy, size: ChartSize) -> Chart | None:
    """Return the frontiers; None where nothing was measured or nothing costs anything.

    Single workers far below the candidates are in the table of the pool only.
    """
    drawn = [line for line in frontier_lines(policy) if line.frontier]
    candidates = [line for line in drawn if line.rung]
    trade_off = policy.rung().dial
    if not candidates or trade_off.unit <= 0:
        return None
    found = [met.accuracy for line in candidates for met in line.frontier] + [trade_off.best_single]
    low, frame = min(found) - _LOWEST * max(0.02, max(found) - min(found)), size.frame
    costs = [met.spent for line in drawn for met in line.frontier if met.spent > 0]
    across = AxisScale(min(costs) / _MARGIN, max([*costs, 1.0]) * _MARGIN, frame.left, frame.right, log=True)
    marks = [
        one for one in _marks(policy, trade_off.unit) if one.accuracy >= low and across.low <= one.cost <= across.high
    ]
    ends = [
        end
        for line in drawn
        for met in line.frontier
        for end in ((met.low, met.accuracy, met.high) if line.kept else (met.accuracy,))
    ]
    upward = even_scale([*ends, *(one.accuracy for one in marks)], (frame.bottom, frame.top), 6)
    curves, points = _place_curves_and_marks(drawn, marks, (across, upward), size)
    return Chart(
        size,
        cost_share_ticks(across, 7),
        percent_ticks(upward, 6),
        _COST_TITLE,
        "accuracy, %",
        "Accuracy over mean cost, a curve a way to decide; the next table holds the figures",
        curves=curves,
        points=points,
        levels=(ChartLevel(upward(trade_off.best_single)),),
    )


def _marks(policy: Policy, unit: float) -> Iterator[FrontierMark]:
    """Yield the single workers, then the baselines of one cost other than the best single worker itself."""
    best = policy.best_single
    for one in policy.workers:
        yield FrontierMark(one.name, one.score, one.dollars / unit, one is best, one is best)
    for name, met in fixed_cost_baselines(policy):
        if not (isclose(met.spent, 1.0, rel_tol=_NEAR) and isclose(met.accuracy, best.score, rel_tol=_NEAR)):
            yield FrontierMark(name, met.accuracy, met.spent, best=False, labeled=True)


def _place_curves_and_marks(
    drawn: Sequence[FrontierLine], marks: Sequence[FrontierMark], scales: Scales, size: ChartSize
) -> tuple[tuple[ChartCurve, ...], tuple[ChartPoint, ...]]:
    """Return curves and marks whose labels keep clear of each other."""
    frame, targets = size.frame, []
    for line in drawn:
        x, y = _position(line.frontier[-1], scales)
        targets.append(LabelTarget(x, y, shorten_middle(line.name, size.longest), Rect(x - 2, y - 2, x + 2, y + 2)))
    marked = []
    for one in marks:
        x, y = scales[0](one.cost), scales[1](one.accuracy)
        body = Rect(x - _ARM, y - _ARM, x + _ARM, y + _ARM)
        marked.append(LabelTarget(x, y, shorten_middle(one.name, size.longest), body))
    wanted = [place for place, one in enumerate(marks) if one.labeled]
    canvas = Rect(frame.left + 2, frame.top, size.width, frame.bottom - 2)
    placed = place_labels(
        [*targets, *(marked[place] for place in wanted)], canvas, size.letters, [target.body for target in marked]
    )
    labels = dict(zip(wanted, placed[len(drawn) :], strict=True))
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
        for number, (line, target, label) in enumerate(zip(drawn, targets, placed, strict=False))
    )
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
        for place, (one, target) in enumerate(zip(marks, marked, strict=True))
    )
    return curves, points


def _curve_style(line: FrontierLine, number: int) -> str:
    return "kept" if line.kept else f"r{number % 3 + 1}" if line.rung else f"yard d{number % 5}"


def _position(met: FrontierPoint, scales: Scales) -> tuple[float, float]:
    return scales[0](max(met.spent, scales[0].low)), scales[1](met.accuracy)


def _interval_band(line: FrontierLine, scales: Scales) -> str:
    """Return the outline of the kept candidate's interval."""
    if not line.kept:
        return ""
    across, upward = scales
    x = [across(max(met.spent, across.low)) for met in line.frontier]
    upper, lower = (
        [(place, upward(getattr(met, end))) for place, met in zip(x, line.frontier, strict=True)]
        for end in ("high", "low")
    )
    return outline(upper, lower)
