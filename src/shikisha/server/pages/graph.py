"""A plan as a graph: a box a step, an arrow to each step that may see its result. Pure layout in pixels.

Wide: steps stand in columns by how much must be finished before them, so every arrow leads to the right; an arrow that
passes over a column is led above all boxes, in a lane of its own. Narrow, for a telephone: one column, arrows at its
left. Invariant: no arrow crosses a box. Deliberately absent: markup, and what the boxes say (the templates write it).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from shikisha.plan import depths

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 192.0, 62.0, 60.0, 18.0
_LANE, _EDGE, _ROUND, _HEAD = 7.0, 2.0, 6.0, 7.0
_PHONE, _BULGE, _LEAST = 350.0, 9.0, 16.0

Access = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Box:
    """A step: its left upper corner; the last step's result is the answer."""

    x: float
    y: float
    index: int
    answers: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge from a step to one that may see it: a path that ends where its head begins, and the head's tip."""

    seen: int
    by: int
    path: str
    tip: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes of one size, and arrows between them."""

    width: float
    height: float
    box_width: float
    box_height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def wide(access: Access) -> Graph:
    """Lay out access lists (earlier steps only, as every Plan has them) from left to right."""
    columns = depths(access)
    tallest = max((columns.count(column) for column in columns), default=1)
    lanes = sum(columns[by] - columns[seen] > 1 for by, row in enumerate(access) for seen in row)
    top = _EDGE + (lanes * _LANE + 4.0 if lanes else 0.0)
    boxes = tuple(
        Box(
            _EDGE + column * (_WIDTH + _GAP_X),
            top + (columns[:index].count(column) + (tallest - columns.count(column)) / 2) * (_HEIGHT + _GAP_Y),
            index,
            index == len(columns) - 1,
        )
        for index, column in enumerate(columns)
    )
    width = 2 * _EDGE + max(columns, default=0) * (_WIDTH + _GAP_X) + _WIDTH
    height = top + _EDGE + (tallest - 1) * (_HEIGHT + _GAP_Y) + _HEIGHT
    return Graph(width, height, _WIDTH, _HEIGHT, boxes, tuple(_arrows(boxes, access, columns)))


def narrow(access: Access) -> Graph:
    """Lay the same out from top to bottom."""
    longest = max((by - seen for by, row in enumerate(access) for seen in row), default=0)
    left = _LEAST + _BULGE * longest if longest else _EDGE
    boxes = tuple(
        Box(left, _EDGE + index * (_HEIGHT + _GAP_Y), index, index == len(access) - 1) for index in range(len(access))
    )
    arrows = tuple(_beside(boxes[seen], boxes[by]) for by, row in enumerate(access) for seen in row)
    height = 2 * _EDGE + max(len(access) - 1, 0) * (_HEIGHT + _GAP_Y) + _HEIGHT
    return Graph(_PHONE, height, _PHONE - left - _EDGE, _HEIGHT, boxes, arrows)


def _arrows(boxes: Sequence[Box], access: Access, columns: Sequence[int]) -> Iterator[Arrow]:
    lanes = count(1)
    for by, row in enumerate(access):
        far_first = sorted(row, key=lambda seen: (columns[seen], boxes[seen].y))
        for place, seen in enumerate(far_first):
            entry = boxes[by].y + _HEIGHT * (place + 1) / (len(row) + 1)
            if columns[by] - columns[seen] > 1:
                yield _above(boxes[seen], boxes[by], entry, next(lanes))
            else:
                yield _across(boxes[seen], boxes[by], entry)


def _across(seen: Box, by: Box, entry: float) -> Arrow:
    x0, y0, x1 = seen.x + _WIDTH, seen.y + _HEIGHT / 2, by.x - _HEAD
    middle = (x0 + x1) / 2
    path = f"M{x0:.1f} {y0:.1f}C{middle:.1f} {y0:.1f} {middle:.1f} {entry:.1f} {x1:.1f} {entry:.1f}"
    return Arrow(seen.index, by.index, path, (by.x, entry))


def _above(seen: Box, by: Box, entry: float, lane: int) -> Arrow:
    """Lead an arrow through the gap after its step, along a lane above all boxes, and down the gap before its end."""
    x0, y0, lane_y = seen.x + _WIDTH, seen.y + _HEIGHT / 4, _EDGE + (lane - 1) * _LANE
    up, down = x0 + 4 + _ROUND + lane * 2, by.x - _HEAD - _ROUND - 4 - lane * 3
    path = (
        f"M{x0:.1f} {y0:.1f}H{up - _ROUND:.1f}Q{up:.1f} {y0:.1f} {up:.1f} {y0 - _ROUND:.1f}"
        f"V{lane_y + _ROUND:.1f}Q{up:.1f} {lane_y:.1f} {up + _ROUND:.1f} {lane_y:.1f}"
        f"H{down - _ROUND:.1f}Q{down:.1f} {lane_y:.1f} {down:.1f} {lane_y + _ROUND:.1f}"
        f"V{entry - _ROUND:.1f}Q{down:.1f} {entry:.1f} {down + _ROUND:.1f} {entry:.1f}H{by.x - _HEAD:.1f}"
    )
    return Arrow(seen.index, by.index, path, (by.x, entry))


def _beside(seen: Box, by: Box) -> Arrow:
    far = by.index - seen.index
    x, y0, y1 = seen.x, seen.y + _HEIGHT * 0.68, by.y + _HEIGHT * (0.5 - 0.08 * (far - 1))
    out = x - _LEAST + 2 - _BULGE * far
    path = f"M{x:.1f} {y0:.1f}C{out:.1f} {y0:.1f} {out:.1f} {y1:.1f} {x - _HEAD:.1f} {y1:.1f}"
    return Arrow(seen.index, by.index, path, (x, y1))
