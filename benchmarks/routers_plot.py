"""Accuracy over cost of all entrants of `routers.py` on one set, as an SVG: scales from the evaluation's drawings."""

from collections.abc import Sequence
from html import escape

import numpy as np

from routers_entrants import AT_FINE, FINE, Measured
from shikisha.plots.svg import AxisScale, even_scale, svg_path
from shikisha.routing.fit.baselines import BEST_SINGLE, ORACLE

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _KEY = 860.0, 520.0, 56.0, 470.0, 640.0
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_DASHES = ("", "7 3", "2 3")
_BELOW = 0.12  # how far below the best single worker the drawing goes


def plot(title: str, measured: Sequence[tuple[str, Sequence[Measured]]]) -> str:
    """Return the drawing of (entrant, its measurements by split); without the oracle, who would flatten the rest."""
    across = AxisScale(float(FINE[0]), float(FINE[-1]), _LEFT, _KEY - 20, log=True)
    curves = [(name, *_curve(held)) for name, held in measured if name != ORACLE]
    level = _level(dict(measured)[BEST_SINGLE])
    shown = [value for _, _, won in curves for value in won if value > level - _BELOW]
    upward = even_scale(shown, (_BOTTOM, 40.0), 8)
    parts = [_axes(across, upward, title)]
    for place, (name, spent, won) in enumerate(curves):
        style = f'stroke="{_COLOURS[place % len(_COLOURS)]}" stroke-dasharray="{_DASHES[place // len(_COLOURS)]}"'
        at = [(x, y) for x, y in zip(spent, won, strict=True) if across.low <= x <= across.high and y >= upward.low]
        if name == BEST_SINGLE:
            at = [(across.low, level), (across.high, level)]
        key = 56 + 20 * place
        parts.append(
            f'<path d="{svg_path((across(x), upward(y)) for x, y in at)}" fill="none" stroke-width="2" {style}/>'
        )
        parts.append(f'<path d="M{_KEY} {key}h26" stroke-width="2" {style}/>')
        parts.append(f'<text x="{_KEY + 34}" y="{key + 4}">{escape(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _curve(held: Sequence[Measured]) -> tuple[list[float], list[float]]:
    """Return what was spent and won in the mean over all splits, in order of what was spent."""
    spent, won = (
        np.concatenate([getattr(one.front, part)[:, AT_FINE] for one in held]).mean(axis=0) for part in ("cost", "won")
    )
    order = np.argsort(spent, kind="stable")
    return spent[order].tolist(), won[order].tolist()


def _level(held: Sequence[Measured]) -> float:
    return float(np.concatenate([one.top[:, 0] for one in held]).mean())


def _axes(across: AxisScale, upward: AxisScale, title: str) -> str:
    lines = [f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for value in across.ticks(6):
        x = across(value)
        lines.append(f'<path d="M{x:.1f} 40V{_BOTTOM}" stroke="#e5e5e5"/>')
        lines.append(f'<text x="{x:.1f}" y="{_BOTTOM + 18}" text-anchor="middle">{100 * value:g} %</text>')
    for value in upward.ticks(8):
        y = upward(value)
        lines.append(f'<path d="M{_LEFT} {y:.1f}H{_KEY - 20}" stroke="#e5e5e5"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * value:.3g}</text>')
    lines.append(
        f'<text x="{_LEFT}" y="{_BOTTOM + 38}">mean cost, in % of the best single worker\'s; accuracy in %</text>'
    )
    return "".join(lines)
