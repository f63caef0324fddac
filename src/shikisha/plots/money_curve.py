"""The money curve: dollars spent with each request, one line for each way of working, as an SVG that stands alone.

Invariants: every line begins at nothing and has its name, its sum and its quality in words; the axes have numbers; what
was simulated is named so by whoever gives the title. Deliberately absent: smoothing, and anything drawn beyond the
requests that were made.
"""

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from shikisha.core.budget import format_dollars
from shikisha.core.fast_dataclass import dataclass
from shikisha.plots.svg import even_scale, svg_path

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _KEY = 860, 420, 72.0, 360.0, 44.0, 560.0
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_MOST_POINTS = 400  # of one line


@dataclass(frozen=True, slots=True)
class Spending:
    """One way of working: its name, the dollars of each request in order, and how good its answers are, in words."""

    name: str
    dollars: Sequence[float]
    quality: str = ""


def money_curve(title: str, lines: Sequence[Spending], marks: Sequence[tuple[int, str]] = ()) -> str:
    """Return the drawing; `marks` are requests at which something happened, with its name."""
    totals = [list(accumulate(line.dollars, initial=0.0)) for line in lines]
    across = even_scale([0, max(len(line.dollars) for line in lines)], (_LEFT, _KEY - 20), 6)
    upward = even_scale([0.0, max(total[-1] for total in totals)], (_BOTTOM, _TOP), 6)
    parts = [f'<text x="{_LEFT:g}" y="22" font-size="15">{escape(title)}</text>']
    for value in across.ticks(6):
        x = across(value)
        parts.append(f'<path d="M{x:.1f} {_TOP:g}V{_BOTTOM:g}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{x:.1f}" y="{_BOTTOM + 18:g}" text-anchor="middle">{value:,.0f}</text>')
    for value in upward.ticks(6):
        y = upward(value)
        parts.append(f'<path d="M{_LEFT:g} {y:.1f}H{_KEY - 20:g}" stroke="#e5e5e5"/>')
        parts.append(
            f'<text x="{_LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{escape(format_dollars(value))}</text>'
        )
    parts.append(f'<text x="{_LEFT:g}" y="{_BOTTOM + 38:g}">requests; dollars spent so far</text>')
    for at, name in marks:
        parts.append(f'<path d="M{across(at):.1f} {_TOP:g}V{_BOTTOM:g}" stroke="#999" stroke-dasharray="3 3"/>')
        parts.append(f'<text x="{across(at) + 4:.1f}" y="{_TOP + 12:g}">{escape(name)}</text>')
    for place, (line, total) in enumerate(zip(lines, totals, strict=True)):
        color, key = _COLORS[place % len(_COLORS)], _TOP + 12 + 40 * place
        step = max(1, len(total) // _MOST_POINTS)
        shown = [*range(0, len(total), step), len(total) - 1]
        path = svg_path((across(at), upward(total[at])) for at in shown)
        said = f"{format_dollars(total[-1])}{', ' if line.quality else ''}{line.quality}"
        parts.append(f'<path d="{path}" fill="none" stroke-width="2" stroke="{color}"/>')
        parts.append(f'<path d="M{_KEY:g} {key:g}h26" stroke-width="2" stroke="{color}"/>')
        parts.append(f'<text x="{_KEY + 34:g}" y="{key + 4:g}">{escape(line.name)}</text>')
        parts.append(f'<text x="{_KEY + 34:g}" y="{key + 20:g}" fill="#555">{escape(said)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )
