"""Questions that make no sense: any kind of work after any other, only to learn how questions are read.

Values must fit where they are used, so of the pairs of kinds that could follow one another training meets few: after a
date nothing but arithmetic and comparisons. A reader that learned from these alone reads a third kind after a date as
one of the two. Here a part may stand wherever the words allow it ("the tally listed for the days until 3 may"), and a
kind may come twice. Invariant: pairs that training must not meet are not met here either. Deliberately absent:
answers: such a question has none, so it is nobody's task.
"""

import random

from shikisha.orchestra.edition import Edition
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.operation import Operation
from shikisha.orchestra.question import Part, Question, Ref
from shikisha.orchestra.shapes import Shape
from shikisha.orchestra.tasks import literal
from shikisha.orchestra.values import Value
from shikisha.orchestra.wording import Split

_JOINED = 0.5  # of the questions with three parts or more


def odd_shape(edition: Edition, count: int, draw: random.Random) -> Shape:
    """Draw an operation for each of so many parts, whatever the sorts of values are."""
    while True:
        first = draw.randint(1, count - 2) if count > 2 and draw.random() < _JOINED else 0
        families = draw.choices(edition.families, k=count)
        found = [
            _operations(name, joins=bool(first) and place == count - 1, edition=edition)
            for place, name in enumerate(families)
        ]
        if all(found) and not edition.holds_out(frozenset(families)):
            uses: list[tuple[int, ...]] = [(place - 1,) if place else () for place in range(count)]
            if first:
                uses[first], uses[-1] = (), (first - 1, count - 2)
            return Shape(tuple(map(draw.choice, found)), tuple(uses))


def odd_question(shape: Shape, split: Split, draw: random.Random) -> Question:
    """Return a question of this shape; what no part gives is drawn."""
    parts = []
    for operation, uses in zip(shape.operations, shape.uses, strict=True):
        inputs, constants = _drawn(operation, split, draw)
        parts.append(Part(operation, tuple(map(Ref, uses)) or inputs, constants))
    return Question(tuple(parts))


def _drawn(operation: Operation, split: Split, draw: random.Random) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Draw inputs of the right sorts, and constants that go with them."""
    while True:
        inputs = tuple(literal(sort, split, draw) for sort in operation.takes)
        constants = operation.draw(draw, inputs)
        if constants is not None:
            return inputs, constants


def _operations(family: str, *, joins: bool, edition: Edition) -> list[Operation]:
    return [one for one in FAMILIES[family].operations if one.joins is joins and one in edition.operations]
