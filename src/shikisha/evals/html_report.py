"""The page of an evaluation: one HTML file that needs nothing else, for a browser, a printer or an archive.

Invariants: every figure in a chart also stands in a table or in a text alternative; an entrant without known cost is
left out of the cost chart and named; an empty cell of a table of shares is unknown and not 0.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, hypot

from shikisha.core.budget import format_dollars
from shikisha.core.fast_dataclass import dataclass
from shikisha.evals.entrant_metrics import (
    ConfidenceCalibration,
    DimensionGroup,
    EntrantFigures,
    EvaluationReport,
    RouterCurve,
    TaskGroup,
)
from shikisha.evals.report_text import (
    PARTS,
    abbreviate_names,
    best_single_entry,
    caveat_sentences,
    dimension_sentences,
    headline_sentences,
    reading_order,
    samples,
    span,
    total_dollars,
    verdict,
)
from shikisha.evals.samples import EntrantRole
from shikisha.plots.charts import (
    OTHERS,
    Chart,
    ChartCurve,
    ChartPoint,
    ChartSize,
    CountBar,
    IntervalChart,
    interval_chart,
    percent_ticks,
    thin_points,
)
from shikisha.plots.format import compact, page_environment, percent, plural, render_page, shorten_middle
from shikisha.plots.run_charts import PlanGraph, wide_plan_graph
from shikisha.plots.svg import (
    AxisScale,
    LabelTarget,
    PlacedLabel,
    Rect,
    Tick,
    cost_scale,
    even_scale,
    interpolate_line,
    place_labels,
    spaced_ticks,
    svg_path,
)

_WIDE, _NARROW = ChartSize(1200, 600), ChartSize(350, 500, 11, 19, 22)
_CALIBRATION_SIZE = ChartSize(310, 340, left=44, top=8, right=10, bottom=110)
_COUNT_BARS = (272.0, 316.0)  # top and bottom
_ROUTER_SIZE = ChartSize(420, 320, top=10, right=12, bottom=48)
_MOST_GRAPHS = 6
_MOST_WORKERS = 16
_FREE_GUTTER = 60.0  # pixels at the left of a logarithmic axis, for what costs nothing
_ARM = 5.0  # half a mark
_NOT_PLANNED = (EntrantRole.SINGLE, EntrantRole.ORACLE)


def render_html_report(report: EvaluationReport) -> str:
    """Return the page; MissingExtra when jinja2 is not installed."""
    report, whole = abbreviate_names(report)
    environment = page_environment("shikisha.evals")
    environment.filters |= {
        "span": span,
        "total_dollars": total_dollars,
        "samples": samples,
        "verdict": verdict,
    }
    values = {"report": report, "whole": whole, "roles": PARTS, **_page_texts(report), **_page_charts(report)}
    return render_page(environment, "page.html.jinja", values)


def _page_texts(report: EvaluationReport) -> Mapping[str, object]:
    entries = reading_order(report)
    return {
        "entries": entries,
        "single": best_single_entry(report),
        "headline": headline_sentences(report),
        "caveats": caveat_sentences(report),
        "by_domain": accuracy_matrix(entries),
        "by_difficulty": accuracy_matrix(entries, by_difficulty=True),
        "by_dimension": dimension_matrix(entries),
        "dimensions": tuple(dimension_sentences(report)),
        "failures": failure_matrix(entries),
        "shares": [(entry, share_matrix(entry)) for entry in entries if len(entry.workers) > 1],
        "second": [entry for entry in entries if entry.second_round and entry.second_round.runs],
    }


def _page_charts(report: EvaluationReport) -> Mapping[str, object]:
    entries = reading_order(report)
    planned = [entry for entry in entries if entry.part not in _NOT_PLANNED]
    # Two forests, since baselines far from the best single worker would squeeze the close contenders' axis.
    close = (EntrantRole.ASKED, EntrantRole.REFERENCE, EntrantRole.FIXED, EntrantRole.CONSISTENCY)
    camps = [entry for entry in entries if entry.part in close], [entry for entry in entries if entry.part not in close]
    return {
        "wide_cost": cost_chart(report, entries, _WIDE),
        "narrow_cost": cost_chart(report, entries, _NARROW),
        "left_out": [entry.name for entry in entries if entry.dollars_a_task is None],
        "accuracy_axis": interval_chart(
            {entry.name: (entry.interval.low, entry.accuracy, entry.interval.high) for entry in entries}
        ),
        "forests": [(camp, difference_axis(camp)) for camp in camps if any(entry.against for entry in camp)],
        "reliabilities": [
            (entry, reliability_diagram(entry.calibration, entry.part)) for entry in entries if entry.calibration
        ],
        "routers": router_charts(report.curves),
        "topologies": [(entry, _topology_graphs(entry)) for entry in planned if entry.topologies],
    }


def _topology_graphs(entry: EntrantFigures) -> list[tuple[PlanGraph, int]]:
    most = sorted(entry.graphs, key=lambda pair: -pair[1])[:_MOST_GRAPHS]
    return [(wide_plan_graph(access), count) for access, count in most if access]


# --- tables of shares


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A row's name, how many tasks are in it (None: not said), and a share for each column (None: not known)."""

    name: str
    tasks: int | None
    cells: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ShareMatrix:
    """A table of shares."""

    columns: tuple[str, ...]
    rows: tuple[ShareRow, ...]


def accuracy_matrix(entries: Sequence[EntrantFigures], *, by_difficulty: bool = False) -> ShareMatrix:
    """Return accuracies, a row a domain (or difficulty) and a column an entrant; tasks are the most of any entrant."""
    groups = [entry.difficulties if by_difficulty else entry.domains for entry in entries]
    names = dict.fromkeys(name for group in groups for name in group)
    if set(names) == {""}:  # a set without domains
        return ShareMatrix((), ())
    rows = tuple(_accuracies(name or "(none)", name, groups) for name in names)
    return ShareMatrix(tuple(entry.name for entry in entries), rows)


def dimension_matrix(entries: Sequence[EntrantFigures]) -> ShareMatrix:
    """Return accuracies, a row a place of a dimension and a column an entrant; with one place there is no row."""
    names = dict.fromkeys(
        (dimension, place) for entry in entries for dimension, groups in entry.dimensions.items() for place in groups
    )
    several = Counter(dimension for dimension, _ in names)
    rows = tuple(
        _accuracies(f"{dimension}: {place}", place, [entry.dimensions.get(dimension, {}) for entry in entries])
        for dimension, place in names
        if several[dimension] > 1
    )
    return ShareMatrix(tuple(entry.name for entry in entries), rows)


def share_matrix(entry: EntrantFigures) -> ShareMatrix:
    """Return the workers' shares of an entrant's steps: over all tasks, then by domain."""
    workers = _most_used(entry)
    rows = [ShareRow("all tasks", entry.tasks, _worker_shares(entry.workers, workers))]
    if set(entry.domains) != {""}:
        rows += [
            ShareRow(name, group.tasks, _worker_shares(group.workers, workers)) for name, group in entry.domains.items()
        ]
    return ShareMatrix(workers, tuple(rows))


def failure_matrix(entries: Iterable[EntrantFigures]) -> ShareMatrix:
    """Return how many runs of an entrant ended without an answer for which fault; those without any are left out."""
    failed = [entry for entry in entries if any(entry.failures.values())]
    kinds: Counter[str] = Counter()
    for entry in failed:
        kinds.update(entry.failures)
    columns = tuple(kind for kind, count in kinds.most_common() if count)
    rows = (
        ShareRow(entry.name, entry.tasks, tuple(entry.failures.get(kind, 0) for kind in columns)) for entry in failed
    )
    return ShareMatrix(columns, tuple(rows))


def _accuracies(name: str, key: str, groups: Sequence[Mapping[str, TaskGroup | DimensionGroup]]) -> ShareRow:
    found = [group.get(key) for group in groups]
    tasks = max(each.tasks for each in found if each is not None)
    return ShareRow(name, tasks, tuple(each.accuracy if each else None for each in found))


def _most_used(entry: EntrantFigures) -> tuple[str, ...]:
    peaks = dict(entry.workers)
    for group in entry.domains.values():
        for worker, share in group.workers.items():
            peaks[worker] = max(share, peaks.get(worker, 0.0))
    ranked = sorted((worker for worker, peak in peaks.items() if peak > 0), key=lambda worker: -peaks[worker])
    shown = set(ranked) if len(ranked) <= _MOST_WORKERS else set(ranked[: _MOST_WORKERS - 1])
    listed = sorted(shown, key=lambda worker: -entry.workers.get(worker, 0.0))
    return (*listed, OTHERS) if len(shown) < len(ranked) else tuple(listed)


def _worker_shares(shares: Mapping[str, float], workers: Sequence[str]) -> tuple[float | None, ...]:
    known = {worker: shares.get(worker, 0.0) for worker in workers if worker != OTHERS}
    rest = max(0.0, sum(shares.values()) - sum(known.values()))
    return tuple((known.get(worker, rest) or None) for worker in workers)


# --- charts


def difference_axis(entries: Sequence[EntrantFigures]) -> IntervalChart:
    """Return the paired differences of the entrants that were compared, on one axis."""
    found = {entry.name: entry.against for entry in entries if entry.against is not None}
    intervals = {name: (each.interval.low, each.mean, each.interval.high) for name, each in found.items()}
    return interval_chart(intervals, differences=True)


def cost_chart(report: EvaluationReport, entries: Sequence[EntrantFigures], size: ChartSize) -> Chart:
    """Return accuracy over dollars a task: a mark an entrant, first ones labeled first, and the single workers' hull.

    Mixing two workers at random reaches the straight line between them, which is bent on a logarithmic axis.
    """
    costs = {entry.name: cost for entry in entries if (cost := entry.dollars_a_task) is not None}
    shown = [entry for entry in entries if entry.name in costs]
    frame = size.frame
    across = _cost_axis([*costs.values(), *(cost for cost, _ in report.hull)], frame)
    ends = [end for entry in shown for end in (entry.interval.low, entry.accuracy, entry.interval.high)]
    upward = even_scale(ends, (frame.bottom, frame.top), 6)
    line = [(_cost_position(across, cost, frame), upward(accuracy)) for cost, accuracy in interpolate_line(report.hull)]
    targets = {
        entry.name: _entrant_target(
            entry, _cost_position(across, costs[entry.name], frame), upward, shorten_middle(entry.name, size.longest)
        )
        for entry in shown
    }
    labels = _entrant_labels(targets, _labeled_names(report, shown, size), size, line)
    x_ticks = tuple(Tick(across(value), format_dollars(value)) for value in across.ticks(3 if size.width < 500 else 6))
    if across.log and across.start > frame.left:
        x_ticks = (Tick(frame.left + _ARM, "$0"), *x_ticks)
    return Chart(
        size,
        spaced_ticks(x_ticks),
        percent_ticks(upward, 6),
        f"dollars a task{' (logarithmic)' if across.log else ''}",
        "accuracy, %",
        "Accuracy over dollars a task, a mark an entrant; the main table holds the same figures",
        guides=(("hull", svg_path(line)),) if line else (),
        points=tuple(
            ChartPoint(
                entry.name,
                entry.part,
                entry.part,
                targets[entry.name].x,
                targets[entry.name].y,
                f"{entry.name} ({PARTS[entry.part]}): {percent(entry.accuracy)} ({span(entry.interval)}) at "
                f"{format_dollars(costs[entry.name])} a task",
                (upward(entry.interval.low), upward(entry.interval.high)),
                label=labels.get(entry.name),
                text=targets[entry.name].text,
            )
            for entry in shown
        ),
    )


def _cost_axis(costs: Sequence[float], frame: Rect) -> AxisScale:
    scale = cost_scale(costs, (frame.left, frame.right))
    if scale.log and 0.0 in costs:
        return cost_scale(costs, (frame.left + _FREE_GUTTER, frame.right))
    return scale


def _cost_position(scale: AxisScale, cost: float, frame: Rect) -> float:
    """Return where a cost is; on a logarithmic axis what costs nothing stands in the gutter, at the very left."""
    least = frame.left + _ARM
    return max(least, scale(cost)) if cost > 0 or not scale.log else least


def _labeled_names(report: EvaluationReport, shown: Sequence[EntrantFigures], size: ChartSize) -> list[str]:
    """Return whose names are written: everybody's where there is room, else not those of ordinary single workers."""
    if len(shown) <= size.names:
        return [entry.name for entry in shown]
    return [entry.name for entry in shown if entry.part is not EntrantRole.SINGLE or entry.name == report.best_single]


def _entrant_labels(
    targets: Mapping[str, LabelTarget], named: Sequence[str], size: ChartSize, line: Sequence[tuple[float, float]]
) -> Mapping[str, PlacedLabel]:
    frame = size.frame
    canvas = Rect(frame.left + 2, frame.top, size.width, frame.bottom - 2)
    obstacles = [*(target.body for name, target in targets.items() if name not in named), *_line_obstacles(line)]
    placed = place_labels([targets[name] for name in named], canvas, size.letters, obstacles)
    return dict(zip(named, placed, strict=True))


def _line_obstacles(line: Sequence[tuple[float, float]]) -> Iterator[Rect]:
    """Yield small boxes along a line, about one for every 8 pixels, for labels to keep clear of."""
    for (x0, y0), (x1, y1) in pairwise(line):
        pieces = ceil(hypot(x1 - x0, y1 - y0) / 8)
        for x, y in ((x0 + n * (x1 - x0) / pieces, y0 + n * (y1 - y0) / pieces) for n in range(pieces)):
            yield Rect(x - 3, y - 3, x + 3, y + 3)


def _entrant_target(entry: EntrantFigures, x: float, upward: AxisScale, name: str) -> LabelTarget:
    y, high, low = upward(entry.accuracy), upward(entry.interval.high), upward(entry.interval.low)
    body = Rect(x - _ARM, min(high, y - _ARM), x + _ARM, max(low, y + _ARM))
    return LabelTarget(x, y, name, body)


def reliability_diagram(calibration: ConfidenceCalibration, style: str = "") -> Chart:
    """Return the share right over the stated confidence, with the bins' counts beneath; an empty bin has no mark."""
    frame = _CALIBRATION_SIZE.frame
    across, upward = AxisScale(0, 1, frame.left, frame.right), AxisScale(0, 1, frame.bottom, frame.top)
    bins = [each for each in calibration.bins if each.tasks]
    count_bar = AxisScale(0, max((each.tasks for each in bins), default=1), _COUNT_BARS[1], _COUNT_BARS[0])
    values = (0.0, 0.25, 0.5, 0.75, 1.0)
    return Chart(
        _CALIBRATION_SIZE,
        tuple(Tick(across(value), f"{value:g}") for value in values),
        tuple(Tick(upward(value), f"{value:g}") for value in values),
        "confidence",
        "share right",
        f"Reliability of {calibration.of}: share right over stated confidence",
        guides=(("diagonal", svg_path([(frame.left, frame.bottom), (frame.right, frame.top)])),),
        points=tuple(
            ChartPoint(
                "",
                "",
                "dot",
                across(each.confidence),
                upward(each.accuracy),
                f"confidence {percent(each.confidence)}: {percent(each.accuracy)} right of "
                f"{plural(each.tasks, 'task')}",
                (upward(each.confidence), upward(each.accuracy)),
                "gap",
            )
            for each in bins
        ),
        bars=tuple(
            CountBar(across(each.confidence), count_bar(each.tasks), _COUNT_BARS[1], compact(each.tasks))
            for each in bins
        ),
        style=style,
    )


def router_charts(curves: Sequence[RouterCurve]) -> list[tuple[Chart, tuple[RouterCurve, ...]]]:
    """Return accuracy over the share of strong calls, a chart a pair of workers, with its curves in their order.

    The straight line between the two workers is what a random router reaches.
    """
    pairs: dict[tuple[str, str], list[RouterCurve]] = {}
    for curve in curves:
        if curve.points:
            pairs.setdefault((curve.weak, curve.strong), []).append(curve)
    return [(_router_chart(held), tuple(held)) for held in pairs.values()]


def _router_chart(curves: Sequence[RouterCurve]) -> Chart:
    frame = _ROUTER_SIZE.frame
    across = even_scale((0.0, 1.0), (frame.left, frame.right))
    ordered = [sorted(curve.points) for curve in curves]
    upward = even_scale((y for points in ordered for _, y in points), (frame.bottom, frame.top), 6)
    random = svg_path((across(x), upward(y)) for x, y in (ordered[0][0], ordered[0][-1]))
    return Chart(
        _ROUTER_SIZE,
        tuple(Tick(across(value), f"{100 * value:.0f}") for value in across.ticks(5)),
        percent_ticks(upward, 6),
        "calls to the strong worker, %",
        "accuracy, %",
        f"Accuracy over the share of calls to {curves[0].strong}; the table next to it sums the curves up",
        guides=(("by-lot", random),),
        curves=tuple(
            ChartCurve(
                curve.name,
                f"c{number % 6}",
                svg_path((across(x), upward(y)) for x, y in thin_points(points)),
                f"{curve.name}: APGR {curve.apgr:.3f}",
            )
            for number, (curve, points) in enumerate(zip(curves, ordered, strict=True))
        ),
    )
