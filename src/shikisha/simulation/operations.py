"""Operations and families: what kinds of work there are in this world, as data.

To add a family, write one file like its neighbours in `families` and name it there. Invariant: an operation is a pure
function of its inputs and constants; `draw` returns constants under which every slip in an input changes the result,
or None when there are none for these inputs (the generator then draws anew).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import Paraphrases

ApplyOperation: TypeAlias = Callable[[Sequence[SimulatedValue], Sequence[SimulatedValue]], SimulatedValue]
DrawConstants: TypeAlias = Callable[[random.Random, Sequence[SimulatedValue]], tuple[SimulatedValue, ...] | None]


def draw_no_constants(_dice: random.Random, _inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    """Draw nothing: the operation needs inputs only."""
    return ()


@dataclass(frozen=True, eq=False)
class Operation:
    """One kind of part: `takes` inputs (slots x and y) and constants (slots a to d, in that order), `gives` a value."""

    name: str
    family: str
    takes: tuple[ValueKind, ...]
    gives: ValueKind
    words: Paraphrases
    apply: ApplyOperation
    draw: DrawConstants = draw_no_constants
    slots: str = ""  # of the constants

    @property
    def joins(self) -> bool:
        """Whether it brings two results together."""
        return len(self.takes) > 1


@dataclass(frozen=True, eq=False)
class QuestionFamily:
    """A kind of work. `tell` are short instructions for it, `offers` how a worker says that it does it.

    `cues` are words that speak of this kind of work, in instructions and questions; hand-written rules and workers
    listen for them. `noisy`: every attempt has its own luck, so that independent attempts and a vote pay.
    """

    name: str
    operations: tuple[Operation, ...]
    instructions: tuple[str, ...]
    descriptions: tuple[str, ...]
    keywords: frozenset[str]
    noisy: bool = False
    source: bool = True  # whether a question may begin with it
