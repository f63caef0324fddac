"""Cost against accuracy: a mark an entrant with its interval, and the convex hull of the single workers.

Invariants: an entrant without known cost is left out and named; the hull is drawn as what mixing two workers at random
reaches, which is a straight line in dollars and a bent one on a logarithmic axis. Deliberately absent: an interval of
the cost (none is reckoned), and the hull's own reckoning (`counting`).

Reliability diagrams: how often answers were right that were given with such a confidence, and how many there were.

Invariant: an empty bin has no mark; counts are drawn beneath, so that a bin of three tasks is not taken for one of
three thousand. Deliberately absent: binning and the expected calibration error (`counting`).

A plan's shape as a graph: a node a step, an edge from a step to each later one that may see its result.

Steps stand in columns by how much must be finished before them, so every edge leads to the right. Invariant: no edge is
hidden: one that passes over a column is bent around it. Deliberately absent: workers and subtasks; a shape is counted
over many plans.

Means with their intervals on one common axis: the bars of the main table, and the forest plot of differences.

Places are percentages of the axis' width, so that a browser can stretch the drawing without stretching its letters.
Invariant: all lines of one plot share one scale, which holds every interval whole. Deliberately absent: bars from zero;
what is compared here are positions.

Router curves: accuracy over the share of calls that went to the strong worker, for one pair of workers.

Invariant: the straight line between the two workers is what a router by lot reaches, so it is always drawn. Curves of
many thresholds are thinned to what a drawing can show; their ends stay. Deliberately absent: the reckoning of APGR, CPT
and AIQ (`counting`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, hypot

from shikisha.core.budget import format_dollars
from shikisha.core.plan import step_depths
from shikisha.evals.entrant_metrics import (
    ConfidenceBin,
    ConfidenceCalibration,
    ConfidenceInterval,
    EntrantFigures,
    EvaluationReport,
    RouterCurve,
)
from shikisha.evals.report_text import points, shorten_middle
from shikisha.evals.samples import EntrantRole
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

_FREE_GUTTER = 60.0  # pixels at the left of a logarithmic axis, for what costs nothing
_ARM = 5.0  # half a mark


@dataclass(frozen=True, slots=True)
class ChartSize:
    """A drawing's size in pixels, that of its letters, how long a name may be and how many there is room for."""

    width: float
    height: float
    letters: float = 12.0
    longest: int = 30
    names: int = 40

    @property
    def frame(self) -> Rect:
        """Where marks go: the rest is for the axes."""
        return Rect(46.0, 12.0, self.width - 14.0, self.height - 46.0)


@dataclass(frozen=True, slots=True)
class EntrantDot:
    """An entrant in pixels: its mark, its label (None: no room for it), and its interval's ends."""

    entry: EntrantFigures
    spot: LabelTarget
    label: PlacedLabel | None
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CostChart:
    """The whole drawing; `left_out` are entrants without known cost, `log` says how the dollars are spaced."""

    size: ChartSize
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    dots: tuple[EntrantDot, ...]
    hull: str
    log: bool
    left_out: tuple[str, ...]


def cost_chart(report: EvaluationReport, entries: Sequence[EntrantFigures], size: ChartSize) -> CostChart:
    """Draw the entrants, first ones labelled first."""
    costs = {entry.name: cost for entry in entries if (cost := entry.dollars_a_task) is not None}
    shown = [entry for entry in entries if entry.name in costs]
    frame = size.frame
    across = _cost_axis([*costs.values(), *(cost for cost, _ in report.hull)], frame)
    ends = [end for entry in shown for end in (entry.interval.low, entry.accuracy, entry.interval.high)]
    upward = even_scale(ends, (frame.bottom, frame.top), 6)
    line = [(_cost_position(across, cost, frame), upward(accuracy)) for cost, accuracy in interpolate_line(report.hull)]
    spots = {
        entry.name: _entrant_target(
            entry, _cost_position(across, costs[entry.name], frame), upward, shorten_middle(entry.name, size.longest)
        )
        for entry in shown
    }
    labels = _entrant_labels(spots, _labelled_names(report, shown, size), size, line)
    x_ticks = tuple(Tick(across(value), format_dollars(value)) for value in across.ticks(3 if size.width < 500 else 6))
    if across.log and across.start > frame.left:
        x_ticks = (Tick(frame.left + _ARM, "$0"), *x_ticks)
    y_ticks = tuple(Tick(upward(value), f"{100 * value:.3g}") for value in upward.ticks(6))
    left_out = tuple(entry.name for entry in entries if entry.name not in costs)
    dots = tuple(
        EntrantDot(each, spots[each.name], labels.get(each.name), upward(each.interval.low), upward(each.interval.high))
        for each in shown
    )
    return CostChart(size, spaced_ticks(x_ticks), y_ticks, dots, svg_path(line), across.log, left_out)


def _cost_axis(costs: Sequence[float], frame: Rect) -> AxisScale:
    scale = cost_scale(costs, (frame.left, frame.right))
    if scale.log and 0.0 in costs:
        return cost_scale(costs, (frame.left + _FREE_GUTTER, frame.right))
    return scale


def _cost_position(scale: AxisScale, cost: float, frame: Rect) -> float:
    """Return where a cost is; on a logarithmic axis what costs nothing stands in the gutter, at the very left."""
    least = frame.left + _ARM
    return max(least, scale(cost)) if cost > 0 or not scale.log else least


def _labelled_names(report: EvaluationReport, shown: Sequence[EntrantFigures], size: ChartSize) -> list[str]:
    """Return whose names are written: everybody's where there is room, else without the ordinary single workers'."""
    if len(shown) <= size.names:
        return [entry.name for entry in shown]
    return [entry.name for entry in shown if entry.part is not EntrantRole.SINGLE or entry.name == report.best_single]


def _entrant_labels(
    spots: Mapping[str, LabelTarget], named: Sequence[str], size: ChartSize, line: Sequence[tuple[float, float]]
) -> Mapping[str, PlacedLabel]:
    frame = size.frame
    canvas = Rect(frame.left + 2, frame.top, size.width, frame.bottom - 2)
    obstacles = [*(spot.body for name, spot in spots.items() if name not in named), *_line_obstacles(line)]
    placed = place_labels([spots[name] for name in named], canvas, size.letters, obstacles)
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


RELIABILITY_WIDTH, RELIABILITY_HEIGHT = 310.0, 340.0
_RELIABILITY_FRAME = Rect(44.0, 8.0, 300.0, 230.0)
_RELIABILITY_COUNTS = (272.0, 316.0)  # top and bottom of the counts' bars


@dataclass(frozen=True, slots=True)
class BinMark:
    """A bin in pixels: its mark, where the diagonal is, and its count's bar."""

    bin: ConfidenceBin
    x: float
    y: float
    diagonal: float
    bar_top: float


@dataclass(frozen=True, slots=True)
class ReliabilityDiagram:
    """The whole drawing of one entrant's calibration."""

    calibration: ConfidenceCalibration
    frame: Rect
    counts_bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[BinMark, ...]


def reliability_diagram(calibration: ConfidenceCalibration) -> ReliabilityDiagram:
    """Draw a calibration; both axes go from 0 to 1."""
    across, upward = (
        AxisScale(0, 1, _RELIABILITY_FRAME.left, _RELIABILITY_FRAME.right),
        AxisScale(0, 1, _RELIABILITY_FRAME.bottom, _RELIABILITY_FRAME.top),
    )
    held = [each for each in calibration.bins if each.tasks]
    most = max((each.tasks for each in held), default=1)
    count_bar = AxisScale(0, most, _RELIABILITY_COUNTS[1], _RELIABILITY_COUNTS[0])
    values = (0.0, 0.25, 0.5, 0.75, 1.0)
    return ReliabilityDiagram(
        calibration,
        _RELIABILITY_FRAME,
        _RELIABILITY_COUNTS[1],
        tuple(Tick(across(value), f"{value:g}") for value in values),
        tuple(Tick(upward(value), f"{value:g}") for value in values),
        tuple(
            BinMark(
                each, across(each.confidence), upward(each.accuracy), upward(each.confidence), count_bar(each.tasks)
            )
            for each in held
        ),
    )


_NODE_STEP_X, _NODE_STEP_Y, _NODE_RADIUS, _EDGE_BEND = 38.0, 26.0, 8.0, 15.0


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """A step in pixels; the last step's result is the answer."""

    x: float
    y: float
    index: int
    answers: bool


@dataclass(frozen=True, slots=True)
class TopologyGraph:
    """Nodes, and edges as paths that end where their node begins."""

    width: float
    height: float
    radius: float
    nodes: tuple[TopologyNode, ...]
    edges: tuple[str, ...]


def topology_graph(access: Sequence[Sequence[int]]) -> TopologyGraph:
    """Lay out access lists (earlier steps only, as every Plan has them)."""
    columns = step_depths(access)
    longest = max(
        (column - columns[seen] for column, row in zip(columns, access, strict=True) for seen in row), default=1
    )
    rows = [columns[:index].count(column) for index, column in enumerate(columns)]
    tallest = max((columns.count(column) for column in columns), default=1)
    headroom = _EDGE_BEND * max(longest - 1, 0)
    margin = _NODE_RADIUS + 3
    nodes = tuple(
        TopologyNode(
            margin + column * _NODE_STEP_X,
            margin + headroom + (rows[index] + (tallest - columns.count(column)) / 2) * _NODE_STEP_Y,
            index,
            index == len(columns) - 1,
        )
        for index, column in enumerate(columns)
    )
    edges = tuple(_topology_edge(nodes[seen], nodes[index]) for index, row in enumerate(access) for seen in row)
    width = 2 * margin + max(columns, default=0) * _NODE_STEP_X
    return TopologyGraph(width, 2 * margin + headroom + (tallest - 1) * _NODE_STEP_Y, _NODE_RADIUS, nodes, edges)


def _topology_edge(start: TopologyNode, end: TopologyNode) -> str:
    """Return a straight line between neighbouring columns and else a bend over what is between."""
    passed = round((end.x - start.x) / _NODE_STEP_X) - 1
    bend_x, bend_y = (start.x + end.x) / 2, (start.y + end.y) / 2 - 2 * _EDGE_BEND * passed
    x0, y0 = _towards(start, bend_x, bend_y, _NODE_RADIUS)
    x1, y1 = _towards(end, bend_x, bend_y, _NODE_RADIUS + 3)
    return f"M{x0:.1f} {y0:.1f}Q{bend_x:.1f} {bend_y:.1f} {x1:.1f} {y1:.1f}"


def _towards(node: TopologyNode, x: float, y: float, steps: float) -> tuple[float, float]:
    away_x, away_y = x - node.x, y - node.y
    length = (away_x**2 + away_y**2) ** 0.5 or 1.0
    return node.x + steps * away_x / length, node.y + steps * away_y / length


_INTERVAL_EDGES = (8.0, 92.0)  # per cent of the width: room for half a mark or a tick's text at either end


@dataclass(frozen=True, slots=True)
class IntervalLine:
    """Where an interval begins and ends, and its mean between them, in per cent of the width."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """The axis, where 0 is on it (None: not shown), and an entrant's line by name."""

    ticks: tuple[Tick, ...]
    zero: float | None
    lines: Mapping[str, IntervalLine]


def accuracy_intervals(entries: Sequence[EntrantFigures]) -> IntervalChart:
    """Return every entrant's accuracy; tick texts are percentages."""
    scale = even_scale(
        (end for entry in entries for end in _interval_ends(entry.accuracy, entry.interval)), _INTERVAL_EDGES, 4
    )
    ticks = tuple(Tick(scale(value), f"{100 * value:.3g}") for value in scale.ticks(4))
    lines = {entry.name: _interval_line(scale, entry.accuracy, entry.interval) for entry in entries}
    return IntervalChart(ticks, None, lines)


def difference_intervals(entries: Sequence[EntrantFigures]) -> IntervalChart:
    """Return the differences of those that were compared; the axis holds 0; tick texts are percentage points."""
    found = {entry.name: entry.against for entry in entries if entry.against is not None}
    ends = [end for each in found.values() for end in _interval_ends(each.mean, each.interval)]
    scale = even_scale([0.0, *ends], _INTERVAL_EDGES, 4)
    ticks = tuple(Tick(scale(value), points(value).removesuffix(".0") if value else "0") for value in scale.ticks(4))
    lines = {name: _interval_line(scale, each.mean, each.interval) for name, each in found.items()}
    return IntervalChart(ticks, scale(0.0), lines)


def _interval_ends(mean: float, interval: ConfidenceInterval) -> tuple[float, float, float]:
    return interval.low, mean, interval.high


def _interval_line(scale: AxisScale, mean: float, interval: ConfidenceInterval) -> IntervalLine:
    low, middle, high = (round(scale(value), 2) for value in _interval_ends(mean, interval))
    return IntervalLine(low, middle, high)


ROUTER_WIDTH, ROUTER_HEIGHT = 420.0, 320.0
_ROUTER_FRAME = Rect(46.0, 10.0, 408.0, 272.0)
_MOST_ROUTER_POINTS = 101


@dataclass(frozen=True, slots=True)
class RouterLine:
    """A router's line, numbered for its colour and dashes."""

    curve: RouterCurve
    number: int
    path: str


@dataclass(frozen=True, slots=True)
class RouterChart:
    """The whole drawing of the routers between one weak and one strong worker."""

    weak: str
    strong: str
    frame: Rect
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[RouterLine, ...]
    by_lot: str


def router_charts(curves: Sequence[RouterCurve]) -> tuple[RouterChart, ...]:
    """Draw the curves, one drawing for each pair of workers, in their order."""
    pairs = dict.fromkeys((curve.weak, curve.strong) for curve in curves if curve.points)
    return tuple(
        _router_chart(pair, [curve for curve in curves if (curve.weak, curve.strong) == pair and curve.points])
        for pair in pairs
    )


def thin_points(points: Sequence[tuple[float, float]], most: int = _MOST_ROUTER_POINTS) -> list[tuple[float, float]]:
    """Return at most `most` of the points, evenly picked, first and last among them."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]


def _router_chart(pair: tuple[str, str], curves: Sequence[RouterCurve]) -> RouterChart:
    across = even_scale((0.0, 1.0), (_ROUTER_FRAME.left, _ROUTER_FRAME.right))
    ordered = [sorted(curve.points) for curve in curves]
    upward = even_scale((y for points in ordered for _, y in points), (_ROUTER_FRAME.bottom, _ROUTER_FRAME.top), 6)
    lines = tuple(
        RouterLine(curve, number, svg_path((across(x), upward(y)) for x, y in thin_points(points)))
        for number, (curve, points) in enumerate(zip(curves, ordered, strict=True))
    )
    ends = (ordered[0][0], ordered[0][-1])
    return RouterChart(
        *pair,
        _ROUTER_FRAME,
        tuple(Tick(across(value), f"{100 * value:.0f}") for value in across.ticks(5)),
        tuple(Tick(upward(value), f"{100 * value:.3g}") for value in upward.ticks(6)),
        lines,
        svg_path((across(x), upward(y)) for x, y in ends),
    )
