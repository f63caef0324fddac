"""What differs between two texts, word by word, and between two plans, step by step.

Invariants: what is kept, taken out and put in, joined again, are the two texts; the work is bounded: beyond
`MAX_COMPARED` words on either side the rest is compared as one piece. Pure functions; templates draw what they return.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from shikisha.core.plan import Plan

MAX_COMPARED = 600  # words on either side: comparing them takes some 100 ms at worst
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")  # with the space before it, or every space would be like every other


@dataclass(frozen=True, slots=True)
class DiffPiece:
    """A piece of both texts (`same`), of the first only (`out`) or of the second only (`in`)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step of either plan, or of both: who performs it, what it sees, and its subtask's differences.

    `kind` is same, changed, out (only in the first) or in.
    """

    index: int
    kind: str
    workers: tuple[str, str]
    sees: tuple[tuple[int, ...], tuple[int, ...]]
    subtask: tuple[DiffPiece, ...]


def diff_words(one: str, other: str) -> tuple[DiffPiece, ...]:
    """Return the pieces of two texts in order."""
    left, right = _pieces(one), _pieces(other)
    begin = _common_start(left, right)
    end = _common_start(left[begin:][::-1], right[begin:][::-1])
    middle = _diff_middle(left[begin : len(left) - end], right[begin : len(right) - end])
    marked = [
        *(("same", word) for word in left[:begin]),
        *middle,
        *(("same", word) for word in left[len(left) - end :]),
    ]
    return tuple(DiffPiece(kind, "".join(word for _, word in run)) for kind, run in groupby(marked, itemgetter(0)))


def _common_start(left: Sequence[str], right: Sequence[str]) -> int:
    pairs = zip(left, right, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _diff_middle(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of a longest common subsequence as they are, and around them what goes before what comes.

    A table of all pairs takes the same time whatever the words are, which quicker ways do not.
    """
    longest = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for at in range(len(left) - 1, -1, -1):
        row, below, word = longest[at], longest[at + 1], left[at]
        for to in range(len(right) - 1, -1, -1):
            row[to] = below[to + 1] + 1 if word == right[to] else max(below[to], row[to + 1])
    at = to = 0
    while at < len(left) or to < len(right):
        if at < len(left) and to < len(right) and left[at] == right[to]:
            yield "same", left[at]
            at, to = at + 1, to + 1
        elif at < len(left) and (to == len(right) or longest[at + 1][to] >= longest[at][to + 1]):
            yield "out", left[at]
            at += 1
        else:
            yield "in", right[to]
            to += 1


def _pieces(text: str) -> list[str]:
    """Return a text's words, spaces and signs; what is beyond the bound is one piece."""
    found: list[str] = []
    for match in _PIECE.finditer(text):
        if len(found) == MAX_COMPARED:
            return [*found, text[match.start() :]]
        found.append(match[0])
    return found


def diff_plans(plans: tuple[Plan, Plan], pools: tuple[Sequence[str], Sequence[str]]) -> tuple[StepDiff, ...]:
    """Return what differs between two plans; steps are compared by their place."""
    return tuple(_diff_steps(plans, pools, index) for index in range(max(map(len, plans))))


def _diff_steps(plans: tuple[Plan, Plan], pools: tuple[Sequence[str], Sequence[str]], index: int) -> StepDiff:
    steps = [plan.steps[index] if index < len(plan) else None for plan in plans]
    names = [pool[step.worker] if step else "" for step, pool in zip(steps, pools, strict=True)]
    sees = [step.access if step else () for step in steps]
    one, other = (step.subtask if step else "" for step in steps)
    kind = "out" if steps[1] is None else "in" if steps[0] is None else "changed"
    if kind == "changed" and names[0] == names[1] and sees[0] == sees[1] and one == other:
        kind = "same"
    return StepDiff(index, kind, (names[0], names[1]), (sees[0], sees[1]), diff_words(one, other))
