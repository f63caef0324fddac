"""Digits: a number's digits heaped up, squared and heaped up, or the other way round."""

import random
from collections.abc import Sequence

from shikisha.simulation.operations import ApplyOperation, DrawConstants, Operation, QuestionFamily
from shikisha.simulation.values import SLIP_COUNT, SimulatedValue, ValueKind, corrupt_value
from shikisha.simulation.vocabulary import compile_paraphrases, word_set

_NAME = "digits"
_LEAST = 10  # a single digit is its own heap


def _of(value: SimulatedValue) -> list[int]:
    return [int(sign) for sign in str(abs(int(str(value))))]


def _heap(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return sum(_of(inputs[0]))


def _squares(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return sum(digit * digit for digit in _of(inputs[0]))


def _flipped(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return int(str(abs(int(str(inputs[0]))))[::-1])


def _clear(apply: ApplyOperation) -> DrawConstants:
    """Accept a number if it ends in no zero and every slip in it makes another result."""

    def draw(_dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
        here = int(str(inputs[0]))
        if here < _LEAST or here % 10 == 0:
            return None
        right = apply(inputs, ())
        return (
            None
            if any(apply((corrupt_value(here, slip / SLIP_COUNT),), ()) == right for slip in range(SLIP_COUNT))
            else ()
        )

    return draw


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "digits.heap",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the digits of {x} (heaped|piled|stacked) up",
                "the (heap|pile|stack) (of|from) the digits (in|of) {x} as one figure",
            ),
            _heap,
            _clear(_heap),
        ),
        Operation(
            "digits.squares",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the squares of the digits (in|of) {x} (heaped|piled|stacked) up",
                "the (heap|pile|stack) of the squares of the digits (in|of) {x} as one figure",
            ),
            _squares,
            _clear(_squares),
        ),
        Operation(
            "digits.flipped",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the digits of {x} (flipped|turned|swapped) (round|over)",
                "the figure that {x} (makes|becomes) with its digits (flipped|turned|swapped) (round|over)",
            ),
            _flipped,
            _clear(_flipped),
        ),
    ),
    instructions=("work on the digits", "handle the digits"),
    descriptions=(
        "(works on|handles|heaps up) (digits|single digits)",
        "(flips|squares|stacks) the digits of (numbers|figures)",
        "(does|is good at) digit (work|questions)",
    ),
    keywords=word_set("digit digits"),
)
