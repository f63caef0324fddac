"""Shapes of an edition whose compositions are too many to list: drawn, and each combination worked out when it is met.

A chain, or two arms and an operation that joins them, of families in a random order, until the sorts of values fit.
Invariants: even over the families' orders that fit, as where they are listed, and not over operations; no family comes
twice; nothing is computed when the module is read. Deliberately absent: which pool a question is for (`tasks`).
"""

import random
from collections.abc import Sequence
from functools import lru_cache

from shikisha.orchestra.edition import Edition
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.operation import Operation
from shikisha.orchestra.shapes import Shape

_JOINED = 0.4  # of the questions with three parts or more
_TRIES = 80  # orders of families that are looked at for one form
_KEPT = 1 << 16


def drawn_shape(
    edition: Edition, count: int, able: Sequence[str], held_out: bool | None, draw: random.Random, lacking: int = 0
) -> Shape | None:
    """Return a shape of so many parts for which `lacking` of the families are not among the able; None: none found.

    `held_out` True: only combinations that training never meets; False: none of them; None: either.
    """
    others = [name for name in edition.families if name not in able] if lacking else []
    if len(able) < count - lacking or len(others) < lacking:
        return None
    for first in _forms(count, draw):
        for _ in range(_TRIES):
            families = _families(able, others, count, lacking, draw)
            if held_out is not None and edition.holds_out(frozenset(families)) is not held_out:
                continue
            if found := _shapes(families, first):
                return draw.choice(found)
    return None


def _families(
    able: Sequence[str], others: Sequence[str], count: int, lacking: int, draw: random.Random
) -> tuple[str, ...]:
    """Draw families in an order; noisy ones twice as often where there is one only."""
    if count > 1:
        chosen = draw.sample(able, count - lacking)
        if lacking:
            chosen += draw.sample(others, lacking)
            draw.shuffle(chosen)
        return tuple(chosen)
    among = others if lacking else able
    return (draw.choice([name for name in among for _ in range(2 if FAMILIES[name].noisy else 1)]),)


def _forms(count: int, draw: random.Random) -> list[int]:
    """Return how long the first arm is (0: a chain), in the order in which forms are tried."""
    arms = list(range(1, count - 1))
    draw.shuffle(arms)
    return [*arms[:1], 0] if arms and draw.random() < _JOINED else [0, *arms]


@lru_cache(maxsize=_KEPT)
def _shapes(families: tuple[str, ...], first: int) -> tuple[Shape, ...]:
    count = len(families)
    if not first:
        row = tuple((place - 1,) if place else () for place in range(count))
        return tuple(Shape(chain, row) for chain in _chains(families))
    arms = tuple((place - 1,) if place and place != first else () for place in range(count - 1))
    uses: tuple[tuple[int, ...], ...] = (*arms, (first - 1, count - 2))
    return tuple(
        Shape((*left, *right, last), uses)
        for last in FAMILIES[families[-1]].operations
        if last.joins
        for left in _chains(families[:first])
        if last.takes[0].takes(left[-1].gives)
        for right in _chains(families[first:-1])
        if last.takes[1].takes(right[-1].gives)
    )


@lru_cache(maxsize=_KEPT)
def _chains(families: tuple[str, ...]) -> tuple[tuple[Operation, ...], ...]:
    last = [operation for operation in FAMILIES[families[-1]].operations if not operation.joins]
    if len(families) == 1:
        return tuple((operation,) for operation in last)
    return tuple(
        (*chain, operation)
        for chain in _chains(families[:-1])
        for operation in last
        if operation.takes[0].takes(chain[-1].gives)
    )
