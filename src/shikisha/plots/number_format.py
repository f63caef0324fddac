"""How numbers and names are written on every page, table and screen.

Invariant: an unknown value is a dash and never 0; a sign is always shown on a difference.
"""

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
