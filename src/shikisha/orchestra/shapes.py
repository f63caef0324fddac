"""Shapes: which operations can follow one another, in a chain or joined at the end, and which families that takes.

Invariant: in a shape every operation gets the sort of value that it takes, and no family comes twice. Shapes are
grouped by their families in order, so that a draw is even over combinations of families and not over operations.
Deliberately absent: editions with too many compositions to list (`arrangements`).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from shikisha.orchestra.edition import SMALL, Edition
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.operation import Operation

(HELD_OUT_PAIR,) = SMALL.held_out


@dataclass(frozen=True, slots=True)
class Shape:
    """Operations in order of work, and for each the places of the operations that feed it."""

    operations: tuple[Operation, ...]
    uses: tuple[tuple[int, ...], ...]

    @property
    def families(self) -> tuple[str, ...]:
        """The kinds of work in order."""
        return tuple(operation.family for operation in self.operations)


@dataclass(frozen=True, slots=True)
class Group:
    """The shapes of one combination of families, all chains or all joins."""

    families: frozenset[str]
    shapes: tuple[Shape, ...]
    held_out: bool  # whether only the held-out split may have it

    @property
    def noisy(self) -> bool:
        """Whether it is nothing but noisy work."""
        return all(FAMILIES[name].noisy for name in self.families)


@cache
def groups(count: int, edition: Edition = SMALL) -> tuple[Group, ...]:
    """Return every group of an edition's shapes of this many parts."""
    by_families: dict[tuple[tuple[str, ...], bool], list[Shape]] = defaultdict(list)
    for shape in _shapes(count, edition):
        by_families[shape.families, shape.operations[-1].joins].append(shape)
    return tuple(
        Group(frozenset(families), tuple(found), edition.holds_out(frozenset(families)))
        for (families, _), found in sorted(by_families.items(), key=str)
    )


@cache
def fitting(
    count: int, able: frozenset[str], lacking: int, held_out: bool | None, edition: Edition = SMALL
) -> tuple[Group, ...]:
    """Return the groups for which exactly `lacking` families are not among the able ones; noisy ones twice.

    `held_out` True: only combinations that training never meets; False: none of them; None: either.
    """
    found = [
        group
        for group in groups(count, edition)
        if len(group.families - able) == lacking and held_out in (None, group.held_out)
    ]
    return tuple(group for group in found for _ in range(2 if group.noisy else 1))


def _shapes(count: int, edition: Edition) -> Iterator[Shape]:
    for chain in _chains(count, edition):
        yield Shape(chain, tuple((place - 1,) if place else () for place in range(count)))
    for first in range(1, count - 1):
        yield from _joins(first, count - 1 - first, edition)


def _joins(first: int, second: int, edition: Edition) -> Iterator[Shape]:
    uses = [*((place - 1,) if place else () for place in range(first))]
    uses += [(first + place - 1,) if place else () for place in range(second)]
    joining = [operation for operation in edition.operations if operation.joins]
    for left in _chains(first, edition):
        for right in _chains(second, edition):
            for operation in joining:
                one, two = operation.takes
                fits = one.takes(left[-1].gives) and two.takes(right[-1].gives)
                if fits and _distinct(*left, *right, operation):
                    yield Shape((*left, *right, operation), (*uses, (first - 1, first + second - 1)))


@cache
def _chains(count: int, edition: Edition) -> tuple[tuple[Operation, ...], ...]:
    single = [operation for operation in edition.operations if not operation.joins]
    if count == 1:
        return tuple((operation,) for operation in single)
    return tuple(
        (*chain, operation)
        for chain in _chains(count - 1, edition)
        for operation in single
        if operation.takes[0].takes(chain[-1].gives) and _distinct(*chain, operation)
    )


def _distinct(*operations: Operation) -> bool:
    return len({operation.family for operation in operations}) == len(operations)
