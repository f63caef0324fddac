"""How the pages write things: states, times, amounts.

Invariant: what is unknown is written as such and never as 0; a text that is cut says so. Times are UTC and bear the
moment in `datetime`. Deliberately absent: markup other than of times.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from time import time

from shikisha.budget import format_dollars
from shikisha.clean import one_line
from shikisha.evaluate.wording import UNKNOWN, compact, count, plural, seconds

STATES = {
    "running": "running",
    "suspended": "waits for a person",
    "interrupted": "interrupted",
    "quarantined": "quarantined",
    "done": "done",
    "failed": "failed",
    "capped": "stopped by a cap",
    "open": "running",
    "waiting": "waits for a person",
    "stopped": "interrupted",
    "planned": "planned",
    "retrying": "tries again",
    "left": "not performed",
    "ended": "ended",
}


def state(value: str) -> str:
    """Return a status in words."""
    return STATES.get(value, value)


def moment(at: float) -> str:
    """Return a time as `22 Nov 2026, 14:05:09 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%-d %b %Y, %H:%M:%S UTC")


def stamp(at: float) -> str:
    """Return a time for machines."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at: float) -> str:
    """Return a time of day with its tenths, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-4]


def ago(at: float, now: float | None = None) -> str:
    """Return how long ago a time was, in its largest unit: `just now`, `12 s ago`, `3 h ago`; `in 5 min` ahead."""
    passed = (time() if now is None else now) - at
    if abs(passed) < 2:
        return "just now"
    said = span(abs(passed))
    return f"{said} ago" if passed > 0 else f"in {said}"


def span(passed: float) -> str:
    """Return a length of time in its largest unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed / size:.0f} {unit}"
    return f"{passed:.0f} s"


def money(amount: float | None) -> str:
    """Return dollars; `$?` where nobody can say."""
    return format_dollars(amount)


def share(value: float | None) -> str:
    """Return a share in whole per cent."""
    return UNKNOWN if value is None else f"{100 * value:.0f}\u00a0%"


def lasting(value: float | None) -> str:
    """Return seconds in words, a dash where they are not known."""
    return UNKNOWN if value is None else seconds(value)


def brief(text: str, longest: int = 90) -> str:
    """Return a text on one line, cut with an ellipsis."""
    return one_line(text, longest)


def initial(name: str, longest: int = 18) -> str:
    """Return a name that fits a drawing, cut with an ellipsis."""
    return one_line(name, longest)


FILTERS: dict[str, Callable[..., str]] = {
    "state": state,
    "moment": moment,
    "stamp": stamp,
    "clock": clock,
    "ago": ago,
    "span": span,
    "money": money,
    "share": share,
    "lasting": lasting,
    "brief": brief,
    "count": count,
    "compact": compact,
    "plural": plural,
}
