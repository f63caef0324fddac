"""The map of `where_conducting_pays.py` as an SVG that stands alone: a line a cell, and a grid."""

from collections.abc import Sequence
from html import escape

from pays_settings import COSTS, PAYS, Cell
from shikisha.plots.svg import AxisScale, even_scale

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 860.0, 270.0, 590.0, 18.0, 66.0
_COLORS = {PAYS: "#009e73", COSTS: "#d55e00"}
_OPEN = "#888888"
GRID, TOLD = " by horizon", "read perfectly"
NOT_DRAWN = ("2 departments", "4 departments", "sorted")  # of conductors over conductors; the figures have them


def draw_map(cells: Sequence[Cell], title: str = "Where conducting pays") -> str:
    """Return the drawing: gains over the strongest control at equal dollars, in points."""
    rows = [cell for cell in cells if GRID not in cell.dimension]
    rows = [cell for cell in rows if not any(part in f"{cell.dimension} {cell.level}" for part in NOT_DRAWN)]
    ends = [100 * end for cell in rows for end in (cell.low, cell.high)]
    scale = even_scale([0.0, *ends], (_LEFT, _RIGHT), 6)
    groups: dict[str, dict[str, list[Cell]]] = {}
    for cell in rows:
        groups.setdefault(cell.dimension, {}).setdefault(cell.level, []).append(cell)
    parts, y = list[str](), _TOP
    for dimension, levels in groups.items():
        y += 12
        parts.append(_text(14, y + 4, dimension, 'font-weight="bold"'))
        if len(levels) > 1 or dimension != "all questions":
            y += _ROW
        for level, here in levels.items():
            if dimension != level:
                parts.append(_text(_LEFT - 14, y + 4, level if level != "all" else "", 'text-anchor="end"'))
            for cell in here:
                parts.append(
                    _mark(cell, scale, y + (0.0 if len(here) == 1 else 4.0 if cell.conductor == TOLD else -4.0))
                )
            said = ", ".join(f"{100 * cell.gain:+.0f}" for cell in here)
            parts.append(_text(_RIGHT + 14, y + 4, f"{said}   over {here[0].control}", 'fill="#555"'))
            y += _ROW
    axis = [
        f'<path d="M{scale(value):.1f} {_TOP - 4:g}V{y:.1f}" stroke="{"#333" if value == 0 else "#e5e5e5"}"/>'
        + _text(scale(value), _TOP - 10, f"{value:+g}" if value else "0", 'text-anchor="middle"')
        for value in scale.ticks(6)
    ]
    grid, height = _grid([cell for cell in cells if GRID in cell.dimension and cell.conductor != TOLD], y + 34)
    legend = "".join(
        f'<circle cx="{x}" cy="36" r="4" fill="{color}"/>' + _text(x + 9, 40, name)
        for x, color, name in (
            (330, _COLORS[PAYS], "pays"),
            (385, _COLORS[COSTS], "does not"),
            (460, _OPEN, "cannot be told"),
        )
    )
    legend += f'<circle cx="568" cy="36" r="4" fill="white" stroke="{_OPEN}" stroke-width="2"/>'
    legend += _text(577, 40, "the same conductor, if it misread nothing")
    head = _text(14, 22, title, 'font-size="15"') + _text(14, 40, "points over the strongest control, at equal dollars")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:.0f}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{escape(title)}</title><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(axis)}{head}{legend}{''.join(parts)}{grid}</svg>\n"
    )


def _mark(cell: Cell, scale: AxisScale, y: float) -> str:
    color = _COLORS.get(cell.verdict, _OPEN)
    low, mean, high = (scale(100 * value) for value in (cell.low, cell.gain, cell.high))
    fill = f'fill="white" stroke="{color}" stroke-width="2"' if cell.conductor == TOLD else f'fill="{color}"'
    line = f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{color}" stroke-width="2"/>'
    return f'{line}<circle cx="{mean:.1f}" cy="{y:.1f}" r="3.5" {fill}/>'


def _grid(cells: Sequence[Cell], top: float) -> tuple[str, float]:
    """Draw dimension by level as colored squares."""
    if not cells:
        return "", top - 20
    down, across = list(dict.fromkeys(cell.dimension for cell in cells)), sorted({cell.level for cell in cells})
    title = f"{down[0].removesuffix(GRID).rsplit(' ', 1)[0]}, by horizon: points as it reads"
    parts = [_text(14, top, title, 'font-weight="bold"')]
    top += _ROW
    size, height = 104.0, 26.0
    for column, level in enumerate(across):
        parts.append(
            _text(
                _LEFT + (column + 0.5) * size,
                top,
                "1 part" if level == "1-1" else f"{level} parts",
                'text-anchor="middle"',
            )
        )
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
