"""The chart kit: each chart of each page is a `Chart`, an `IntervalChart` or a drawing of `run_charts`.

The kit knows sizes, scales, ticks and labels; what a curve or a point means is the caller's business, who gives each
its CSS class and the words that a reader hears or sees when it is touched. `pages/charts.html.jinja` writes the markup
and computes nothing. Invariants: coordinates are pixels inside the chart, y downwards; an absent value is a gap and
never 0; every mark has words. A plotting library is not used: its images know neither dark mode, narrow screens nor a
screen reader, and the pages must work without network and without scripts of others.
"""

from collections.abc import Mapping, Sequence

from shikisha.core.fast_dataclass import dataclass
from shikisha.plots.format import points
from shikisha.plots.svg import AxisScale, PlacedLabel, Rect, Tick, even_scale, spaced_ticks, svg_path

OTHERS = "others"
LAYER_COLORS = 6  # that can be told apart
_INTERVAL_EDGES = (8.0, 92.0)  # per cent of the width: room for half a mark or a tick's text at either end


@dataclass(frozen=True, slots=True)
class ChartSize:
    """A chart in pixels: its size and margins, that of its letters, how long a name may be and how many fit."""

    width: float
    height: float
    letters: float = 12.0
    longest: int = 30
    names: int = 40
    left: float = 46.0
    top: float = 12.0
    right: float = 14.0
    bottom: float = 46.0

    @property
    def frame(self) -> Rect:
        """Where marks go: the margins are for the axes."""
        return Rect(self.left, self.top, self.width - self.right, self.height - self.bottom)


@dataclass(frozen=True, slots=True)
class ChartCurve:
    """A line: `raw` are the unsmoothed values beneath it, `band` its interval's outline, `ends` means at both ends."""

    name: str
    style: str
    path: str
    words: str
    raw: str = ""
    band: str = ""
    label: PlacedLabel | None = None
    text: str = ""
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A mark: `symbol` is the id of its drawing in the template, `bar` the ends of an upright line through it."""

    name: str
    style: str
    symbol: str
    x: float
    y: float
    words: str
    bar: tuple[float, float] | None = None
    bar_style: str = "err"
    label: PlacedLabel | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class ChartLayer:
    """A name's area in a stack, the number of its color, and where known its first and last values."""

    name: str
    number: int
    path: str
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ChartLevel:
    """A height across the chart; its name, where it has one, stands at `text_x`, `text_y`."""

    y: float
    name: str = ""
    words: str = ""
    text: str = ""
    text_x: float = 0.0
    text_y: float = 0.0
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class CountBar:
    """A bar under a chart: its middle, top and bottom, and the count that it shows."""

    x: float
    top: float
    bottom: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with two axes. `guides` are paths beneath everything else, each with its CSS class."""

    size: ChartSize
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_title: str
    y_title: str
    description: str
    guides: tuple[tuple[str, str], ...] = ()
    curves: tuple[ChartCurve, ...] = ()
    points: tuple[ChartPoint, ...] = ()
    layers: tuple[ChartLayer, ...] = ()
    levels: tuple[ChartLevel, ...] = ()
    bars: tuple[CountBar, ...] = ()
    style: str = ""

    @property
    def frame(self) -> Rect:
        """Where marks go."""
        return self.size.frame


@dataclass(frozen=True, slots=True)
class IntervalLine:
    """An interval and the mean in it, in per cent of the axis' width."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """Intervals on one axis, by name; `zero` is where 0 is (None: not on the axis).

    Places are per cent of the width, so that a browser can stretch the drawing without its letters.
    """

    ticks: tuple[Tick, ...]
    zero: float | None
    lines: Mapping[str, IntervalLine]


def interval_chart(intervals: Mapping[str, tuple[float, float, float]], *, differences: bool = False) -> IntervalChart:
    """Put (low, mean, high) shares on one axis in per cent; `differences`: in points, on an axis that holds 0."""
    ends = [end for each in intervals.values() for end in each]
    scale = even_scale([0.0, *ends] if differences else ends, _INTERVAL_EDGES, 4)
    lines = {name: IntervalLine(*(round(scale(end), 2) for end in each)) for name, each in intervals.items()}
    if not differences:
        return IntervalChart(percent_ticks(scale, 4), None, lines)
    texts = ((value, points(value).removesuffix(".0") if value else "0") for value in scale.ticks(4))
    return IntervalChart(tuple(Tick(scale(value), text) for value, text in texts), scale(0.0), lines)


def percent_ticks(scale: AxisScale, about: int) -> tuple[Tick, ...]:
    """Return ticks of shares, without the per cent sign."""
    return tuple(Tick(scale(value), f"{100 * value:.3g}") for value in scale.ticks(about))


def cost_share_ticks(scale: AxisScale, about: int) -> tuple[Tick, ...]:
    """Return ticks of costs as shares of the best single worker's, with the per cent sign."""
    return spaced_ticks(Tick(scale(value), f"{100 * value:.3g}\u00a0%") for value in scale.ticks(about))


def outline(upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]]) -> str:
    """Return the path of the area between two lines: there along the upper one, back along the lower one."""
    return svg_path([*upper, *reversed(lower)]) + "Z"


def stacked_layers(
    series: Sequence[tuple[str, Sequence[float]]], x: Sequence[float], upward: AxisScale
) -> tuple[ChartLayer, ...]:
    """Stack series of one length on top of each other, the first at the bottom; OTHERS has the last color."""
    base, layers = [0.0] * len(x), []
    for number, (name, values) in enumerate(series):
        top = [low + value for low, value in zip(base, values, strict=True)]
        upper = [(place, upward(value)) for place, value in zip(x, top, strict=True)]
        lower = [(place, upward(value)) for place, value in zip(x, base, strict=True)]
        # OTHERS always has the last color, so that it looks the same in every stack.
        layers.append(ChartLayer(name, LAYER_COLORS - 1 if name == OTHERS else number, outline(upper, lower)))
        base = top
    return tuple(layers)


def largest_series(series: Mapping[str, Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    """Return the series with the highest peaks, as many as there are colors; the rest are summed up as OTHERS."""
    ranked = sorted((name for name in series if max(series[name]) > 0), key=lambda name: (-max(series[name]), name))
    kept = ranked if len(ranked) <= LAYER_COLORS else ranked[: LAYER_COLORS - 1]
    rest = [series[name] for name in ranked[len(kept) :]]
    others = [(OTHERS, [sum(values) for values in zip(*rest, strict=True)])] if rest else []
    return [*((name, series[name]) for name in kept), *others]


def thin_points(points: Sequence[tuple[float, float]], most: int = 101) -> list[tuple[float, float]]:
    """Return at most `most` of the points, evenly picked, first and last among them."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]
