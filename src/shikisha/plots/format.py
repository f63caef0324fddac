"""How pages and charts write states, times and amounts of money.

Invariant: an unknown value is written as such and never as 0; a text that is cut says so. Times are UTC.

Here too are numbers and names of every page, table and screen, and the environment of the HTML pages that are one
file each.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING

from shikisha.core.budget import format_dollars
from shikisha.core.errors import MissingExtra
from shikisha.core.text import clean_text, one_line

if TYPE_CHECKING:
    from jinja2 import Environment


UNKNOWN = "–"
MINUS = "−"


def percent(share: float | None) -> str:
    """Return a share as `72.4 %`."""
    return UNKNOWN if share is None else f"{100 * share:.1f} %".replace("-", MINUS)


def points(difference: float) -> str:
    """Return a difference of shares in percentage points: `+2.1`."""
    return f"{100 * difference:+.1f}".replace("-", MINUS)


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


def shorten_middle(text: str, longest: int) -> str:
    """Return the text cut in its middle, since names differ at both ends."""
    if len(text) <= longest:
        return text
    head = (longest - 1) * 3 // 5
    return f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"


STATE_WORDS = {
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


def format_state(value: str) -> str:
    """Return a status in words."""
    return STATE_WORDS.get(value, value)


def format_moment(at: float) -> str:
    """Return a time as `22 Nov 2026, 14:05:09 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%-d %b %Y, %H:%M:%S UTC")


def format_timestamp(at: float) -> str:
    """Return a time for machines."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_clock(at: float) -> str:
    """Return a time of day with its tenths, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-4]


def format_ago(at: float, now: float | None = None) -> str:
    """Return how long ago a time was, in its largest unit: `just now`, `12 s ago`, `3 h ago`; `in 5 min` ahead."""
    passed = (time() if now is None else now) - at
    if abs(passed) < 2:
        return "just now"
    said = format_span(abs(passed))
    return f"{said} ago" if passed > 0 else f"in {said}"


def format_span(passed: float) -> str:
    """Return a length of time in its largest unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed / size:.0f} {unit}"
    return f"{passed:.0f} s"


def format_money(amount: float | None) -> str:
    """Return dollars; `$?` where it is unknown."""
    return format_dollars(amount)


def format_share(value: float | None) -> str:
    """Return a share in whole per cent."""
    return UNKNOWN if value is None else f"{100 * value:.0f}\u00a0%"


def format_duration(value: float | None) -> str:
    """Return seconds in words, a dash where they are not known."""
    return UNKNOWN if value is None else seconds(value)


def shorten(text: str, longest: int = 90) -> str:
    """Return a text on one line, cut with an ellipsis."""
    return one_line(text, longest)


TEMPLATE_FILTERS: dict[str, Callable[..., str]] = {
    "state": format_state,
    "moment": format_moment,
    "stamp": format_timestamp,
    "clock": format_clock,
    "ago": format_ago,
    "span": format_span,
    "money": format_money,
    "share": format_share,
    "lasting": format_duration,
    "brief": shorten,
    "count": count,
    "compact": compact,
    "plural": plural,
}


_LONGEST = 2_000  # characters of a text
_FILTERS = (percent, points, format_dollars, seconds, count, compact, plural)


def page_environment(*packages: str) -> "Environment":
    """Return what renders the templates in these packages' `pages`, then the kit's own; MissingExtra without jinja2."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("eval", "the HTML page") from None
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "pages") for package in (*packages, "shikisha.plots")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({each.__name__: each for each in _FILTERS})
    return environment


def render_page(environment: "Environment", template: str, values: Mapping[str, object]) -> str:
    """Return a page, whose template finds its script's hash as `script_digest`."""
    script = environment.get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render({"script_digest": digest, **values})


def _clean_value(value: object) -> object:
    """Clean a text that is about to be escaped and keep per cent signs at their numbers; markup is left as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return clean_text(value[:_LONGEST]).replace("\n", " ").replace(" %", "\u00a0%")
