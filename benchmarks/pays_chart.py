"""The map of `where_conducting_pays.py` as an SVG that stands alone: a line a cell, and a grid."""

from collections.abc import Sequence
from html import escape

from pays_settings import COSTS, PAYS, Cell
from shikisha.plots.svg import even_scale

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 860.0, 300.0, 560.0, 19.0, 64.0
_COLORS = {PAYS: "#009e73", COSTS: "#d55e00"}
_OPEN = "#888888"
GRID, TOLD = " by horizon", "read perfectly"


def draw_map(cells: Sequence[Cell], title: str = "Where conducting pays") -> str:
    """Return the drawing: gains over the strongest control at equal dollars, in points."""
    rows = [cell for cell in cells if GRID not in cell.dimension]
    scale = even_scale([0.0, *(100 * end for cell in rows for end in (cell.low, cell.high))], (_LEFT, _RIGHT), 6)
    parts, y, dimension, level = list[str](), _TOP, "", ""
    for cell in rows:
        if cell.dimension != dimension:
            y += 10
            parts.append(_text(14, y + 4, cell.dimension, 'font-weight="bold"'))
            y, dimension, level = y + _ROW, cell.dimension, ""
        if cell.level != level:
            parts.append(_text(_LEFT - 14, y + 4, cell.level, 'text-anchor="end"'))
            level = cell.level
        color, told = _COLORS.get(cell.verdict, _OPEN), cell.conductor == TOLD
        low, mean, high = (scale(100 * value) for value in (cell.low, cell.gain, cell.high))
        said = f"{100 * cell.gain:+.0f}: {100 * cell.right:.0f} %, {cell.control} {100 * cell.control_right:.0f} %"
        parts.append(f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{color}" stroke-width="2"/>')
        fill = f'fill="white" stroke="{color}" stroke-width="2"' if told else f'fill="{color}"'
        parts.append(f'<circle cx="{mean:.1f}" cy="{y:.1f}" r="4.5" {fill}/>')
        parts.append(_text(_RIGHT + 14, y + 4, said, 'fill="#555"'))
        y += _ROW
    bottom = y
    axis = [
        f'<path d="M{scale(value):.1f} {_TOP - 6:g}V{bottom:.1f}" stroke="{"#333" if value == 0 else "#e5e5e5"}"/>'
        + _text(scale(value), _TOP - 12, f"{value:+g}" if value else "0", 'text-anchor="middle"')
        for value in scale.ticks(6)
    ]
    grid, height = _grid([cell for cell in cells if GRID in cell.dimension and cell.conductor != TOLD], bottom + 34)
    legend = "".join(
        f'<circle cx="{x}" cy="36" r="4.5" fill="{color}"/>' + _text(x + 9, 40, name)
        for x, color, name in (
            (300, _COLORS[PAYS], "pays"),
            (360, _COLORS[COSTS], "does not"),
            (440, _OPEN, "cannot be told"),
        )
    )
    legend += f'<circle cx="554" cy="36" r="4.5" fill="white" stroke="{_OPEN}" stroke-width="2"/>'
    legend += _text(563, 40, "the same conductor, if it misread nothing")
    head = _text(14, 22, title, 'font-size="15"') + _text(14, 40, "points over the strongest control, at equal dollars")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:.0f}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{escape(title)}</title><rect width="100%" height="100%" fill="white"/>'
        f"{head}{legend}{''.join(axis)}{''.join(parts)}{grid}</svg>\n"
    )


def _grid(cells: Sequence[Cell], top: float) -> tuple[str, float]:
    """Draw dimension by level as colored squares."""
    if not cells:
        return "", top - 20
    down, across = list(dict.fromkeys(cell.dimension for cell in cells)), sorted({cell.level for cell in cells})
    parts = [_text(14, top, f"{down[0].rsplit(' ', 3)[0]}, by horizon (parts): points", 'font-weight="bold"')]
    size, height = 104.0, 26.0
    for column, level in enumerate(across):
        parts.append(_text(_LEFT + (column + 0.5) * size, top, f"{level} parts", 'text-anchor="middle"'))
    for row, dimension in enumerate(down):
        y = top + 10 + row * height
        parts.append(_text(_LEFT - 14, y + 17, dimension.removesuffix(GRID).rsplit(" ", 1)[1], 'text-anchor="end"'))
        for column, level in enumerate(across):
            for cell in (each for each in cells if each.dimension == dimension and each.level == level):
                strength = min(1.0, 0.25 + 3 * abs(cell.gain))
                color = _COLORS.get(cell.verdict, _OPEN)
                x = _LEFT + column * size
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{size - 3:g}" height="{height - 3:g}" fill="{color}" '
                    f'fill-opacity="{strength:.2f}"/>'
                )
                said = f"{100 * cell.gain:+.0f} [{100 * cell.low:+.0f}, {100 * cell.high:+.0f}]"
                parts.append(_text(x + size / 2, y + 16, said, 'text-anchor="middle"'))
    return "".join(parts), top + 24 + len(down) * height


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'
