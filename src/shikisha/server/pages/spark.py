"""Small drawings in a table's row: a line over time, bars over days. Pure layout in pixels.

Invariant: where there is no value there is a gap, never a 0; the line begins at 0 unless it says otherwise, so that
heights can be compared. Deliberately absent: axes (the numbers stand beside it) and markup.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PAD = 3.0


@dataclass(frozen=True, slots=True)
class Spark:
    """Pieces of a line, the filled ground beneath each, lone points, and the last point."""

    width: float
    height: float
    lines: tuple[str, ...]
    grounds: tuple[str, ...]
    points: tuple[tuple[float, float], ...]
    last: tuple[float, float] | None


def spark(values: Sequence[float | None], width: float = 120.0, height: float = 28.0, top: float = 0.0) -> Spark:
    """Draw values at even distances, from 0 to the largest of them or `top`."""
    most = max((value for value in values if value is not None), default=0.0)
    most = max(most, top) or 1.0
    step = (width - 2 * _PAD) / max(len(values) - 1, 1)
    pieces = list(_pieces([None if value is None else value / most for value in values], step, height))
    floor = height - _PAD
    lines = tuple(_path(piece) for piece in pieces if len(piece) > 1)
    grounds = tuple(
        f"{_path(piece)}L{piece[-1][0]:.1f} {floor:.1f}L{piece[0][0]:.1f} {floor:.1f}Z"
        for piece in pieces
        if len(piece) > 1
    )
    lone = tuple(piece[0] for piece in pieces if len(piece) == 1)
    return Spark(width, height, lines, grounds, lone, pieces[-1][-1] if pieces else None)


@dataclass(frozen=True, slots=True)
class Column:
    """A bar: its left upper corner, width and height; `told` is what a reader is told."""

    x: float
    y: float
    width: float
    height: float
    told: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Bars over days."""

    width: float
    height: float
    columns: tuple[Column, ...]


def columns(values: Sequence[tuple[float, str]], width: float = 320.0, height: float = 72.0) -> Columns:
    """Draw (value, what is told of it) as bars from 0; a value above 0 is seen, however small."""
    most = max((value for value, _ in values), default=0.0) or 1.0
    step = width / max(len(values), 1)
    gap = min(4.0, step / 5)
    found = []
    for index, (value, told) in enumerate(values):
        tall = max(value / most * (height - _PAD), 1.5) if value > 0 else 0.0
        found.append(
            Column(round(index * step + gap / 2, 1), round(height - tall, 1), step - gap, round(tall, 1), told)
        )
    return Columns(width, height, tuple(found))


def _pieces(shares: Sequence[float | None], step: float, height: float) -> Iterator[list[tuple[float, float]]]:
    piece: list[tuple[float, float]] = []
    for index, value in enumerate(shares):
        if value is None:
            if piece:
                yield piece
            piece = []
        else:
            piece.append((_PAD + index * step, height - _PAD - value * (height - 2 * _PAD)))
    if piece:
        yield piece


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))
