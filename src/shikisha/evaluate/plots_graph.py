"""A plan's shape as a graph: a node a step, an edge from a step to each later one that may see its result.

Steps stand in columns by how much must be finished before them, so every edge leads to the right. Invariant: no edge is
hidden: one that passes over a column is bent around it. Deliberately absent: workers and subtasks; a shape is counted
over many plans.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.plan import depths

_ACROSS, _DOWN, _RADIUS, _BEND = 38.0, 26.0, 8.0, 15.0


@dataclass(frozen=True, slots=True)
class Node:
    """A step in pixels; the last step's result is the answer."""

    x: float
    y: float
    index: int
    answers: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, and edges as paths that end where their node begins."""

    width: float
    height: float
    radius: float
    nodes: tuple[Node, ...]
    edges: tuple[str, ...]


def graph(access: Sequence[Sequence[int]]) -> Graph:
    """Lay out access lists (earlier steps only, as every Plan has them)."""
    columns = depths(access)
    longest = max(
        (column - columns[seen] for column, row in zip(columns, access, strict=True) for seen in row), default=1
    )
    rows = [columns[:index].count(column) for index, column in enumerate(columns)]
    tallest = max((columns.count(column) for column in columns), default=1)
    headroom = _BEND * max(longest - 1, 0)
    margin = _RADIUS + 3
    nodes = tuple(
        Node(
            margin + column * _ACROSS,
            margin + headroom + (rows[index] + (tallest - columns.count(column)) / 2) * _DOWN,
            index,
            index == len(columns) - 1,
        )
        for index, column in enumerate(columns)
    )
    edges = tuple(_edge(nodes[seen], nodes[index]) for index, row in enumerate(access) for seen in row)
    width = 2 * margin + max(columns, default=0) * _ACROSS
    return Graph(width, 2 * margin + headroom + (tallest - 1) * _DOWN, _RADIUS, nodes, edges)


def _edge(start: Node, end: Node) -> str:
    """Return a straight line between neighbouring columns and else a bend over what is between."""
    passed = round((end.x - start.x) / _ACROSS) - 1
    bend_x, bend_y = (start.x + end.x) / 2, (start.y + end.y) / 2 - 2 * _BEND * passed
    x0, y0 = _towards(start, bend_x, bend_y, _RADIUS)
    x1, y1 = _towards(end, bend_x, bend_y, _RADIUS + 3)
    return f"M{x0:.1f} {y0:.1f}Q{bend_x:.1f} {bend_y:.1f} {x1:.1f} {y1:.1f}"


def _towards(node: Node, x: float, y: float, steps: float) -> tuple[float, float]:
    away_x, away_y = x - node.x, y - node.y
    length = (away_x**2 + away_y**2) ** 0.5 or 1.0
    return node.x + steps * away_x / length, node.y + steps * away_y / length
