"""Comparison: how far a number is from the nearest or farthest of some marks, or from another number."""

import random
from collections.abc import Sequence

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SLIP_COUNT, SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import compile_paraphrases, word_set

_NAME = "comparison"
_CLEAR = SLIP_COUNT + 1  # marks differ so much that a slip never makes another one count
_LEAST = 8  # a smaller distance could be the same from the other side after a slip


def _distances(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> list[int]:
    return [abs(int(str(inputs[0])) - int(str(mark))) for mark in constants]


def _nearest(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return min(_distances(inputs, constants))


def _farthest(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return max(_distances(inputs, constants))


def _apart(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return abs(int(str(inputs[0])) - int(str(inputs[1])))


def _clearly_apart(_dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return () if int(str(_apart(inputs, ()))) >= _LEAST else None


def _marks(dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    here, distance = int(str(inputs[0])), dice.randint(_LEAST, 40)
    marks: list[SimulatedValue] = []
    for _ in range(3):
        below = here - distance
        marks.append(below if below >= _LEAST and dice.random() < 0.5 else here + distance)  # a coin
        distance += dice.randint(_CLEAR, 60)
    dice.shuffle(marks)
    return tuple(marks)


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "comparison.nearest",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the (distance|gap|space) from {x} to the (nearest|closest) of {a} or {b} or {c}",
                "the (distance|gap|space) of {x} from the (nearest|closest) of {a} or {b} or {c}",
                "the (distance|gap|space) that {x} has to the (nearest|closest) of {a} or {b} or {c}",
            ),
            _nearest,
            _marks,
            slots="abc",
        ),
        Operation(
            "comparison.farthest",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the (distance|gap|space) from {x} to the (farthest|remotest) of {a} or {b} or {c}",
                "the (distance|gap|space) of {x} from the (farthest|remotest) of {a} or {b} or {c}",
                "the (distance|gap|space) that {x} has to the (farthest|remotest) of {a} or {b} or {c}",
            ),
            _farthest,
            _marks,
            slots="abc",
        ),
        Operation(
            "comparison.apart",
            _NAME,
            (ValueKind.NUMBER, ValueKind.NUMBER),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the (distance|gap|space) between {x} and {y}",
                "the (distance|gap|space) by which {x} and {y} (differ|lie apart)",
                "the (distance|gap|space) that {x} and {y} (are|lie) apart",
            ),
            _apart,
            _clearly_apart,
        ),
    ),
    instructions=("make the comparison", "compare the numbers"),
    descriptions=(
        "(compares|ranks) (numbers|values|amounts)",
        "(does|handles) comparisons of (numbers|values|amounts)",
        "(says|tells) how far (numbers|values|amounts) are apart",
    ),
    keywords=word_set(
        "comparison compare compares comparisons ranks nearest closest farthest "
        "remotest distance gap space apart differ far"
    ),
)
