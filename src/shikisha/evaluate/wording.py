"""How an evaluation's figures are written, in tables, pages and sentences alike.

Invariant: what is unknown is written as a dash or `$?` and never as 0; a sign is always shown on a difference; a total
from which costs are missing says that it is at least that much. Deliberately absent: markup, and rounding to what a
figure's uncertainty allows (intervals stand beside the figures and say it better).
"""

from shikisha.budget import format_dollars
from shikisha.evaluate.entries import Difference, Entry, Interval
from shikisha.evaluate.samples import Part

UNKNOWN = "–"
MINUS = "−"
_ALMOST_0 = 0.0005  # percentage points
PARTS = {  # in the order in which they are read
    Part.ASKED: "asked for",
    Part.FIXED: "fixed topology",
    Part.CONSISTENCY: "self-consistency",
    Part.RANDOM: "random plans",
    Part.SINGLE: "single worker",
    Part.ORACLE: "oracle",
}


def percent(share: float | None) -> str:
    """Return a share as `72.4 %`."""
    return UNKNOWN if share is None else f"{100 * share:.1f} %".replace("-", MINUS)


def points(difference: float) -> str:
    """Return a difference of shares in percentage points: `+2.1`."""
    return f"{100 * difference:+.1f}".replace("-", MINUS)


def span(interval: Interval, *, signed: bool = False) -> str:
    """Return an interval of shares: `71.4 to 73.3`, or of differences: `+1.5 to +2.7`.

    An end that is near 0 gets the digits that show on which side of it it is.
    """
    low, high = 100 * interval.low, 100 * interval.high
    if not signed:
        return f"{low:.1f} to {high:.1f}"
    near = min(abs(low), abs(high))
    places = 3 if _ALMOST_0 <= near < 0.005 else 2 if 0.005 <= near < 0.05 else 1
    return f"{low:+.{places}f} to {high:+.{places}f}".replace("-", MINUS)


def total_dollars(entry: Entry) -> str:
    """Return what all of an entrant's samples cost, `≥` where some have no known cost."""
    if entry.unpriced >= samples(entry):
        return format_dollars(None)
    return ("≥ " if entry.unpriced else "") + format_dollars(entry.dollars)


def samples(entry: Entry) -> int:
    """Return how many samples an entrant has, ungraded ones among them."""
    return entry.tasks + entry.ungraded


def seconds(value: float) -> str:
    """Return a time: `340 ms`, `1.2 s`, `4 min 05 s`, `3 h 20 min`."""
    if value < 0.9995:
        return f"{1000 * value:.0f} ms"
    if value < 99.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


def count(value: float) -> str:
    """Return a count with thousands separators; a mean below 10 keeps its tenths."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def compact(value: int) -> str:
    """Return a count in at most four letters or so: `950`, `1.2k`, `3M`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            short = f"{value / size:.1f}" if value < 9.95 * size else f"{value / size:.0f}"
            return short.removesuffix(".0") + letter
    return str(value)


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 task`, `8,398 tasks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def verdict(difference: Difference) -> str:
    """Say what a paired difference allows to be claimed."""
    if not difference.significant:
        return "the interval includes 0: no difference can be claimed"
    return "better: the interval excludes 0" if difference.mean > 0 else "worse: the interval excludes 0"
