"""Digits: a number's digits heaped up, squared and heaped up, or the other way round."""

import random
from collections.abc import Sequence

from shikisha.orchestra.operation import Apply, Draw, Family, Operation
from shikisha.orchestra.values import SLIPS, Sort, Value, spoilt
from shikisha.orchestra.wording import bag, wordings

_NAME = "digits"
_LEAST = 10  # a single digit is its own heap


def _of(value: Value) -> list[int]:
    return [int(sign) for sign in str(abs(int(str(value))))]


def _heap(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
    return sum(_of(inputs[0]))


def _squares(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
    return sum(digit * digit for digit in _of(inputs[0]))


def _flipped(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
    return int(str(abs(int(str(inputs[0]))))[::-1])


def _clear(apply: Apply) -> Draw:
    """Accept a number if it ends in no zero and every slip in it makes another result."""

    def draw(_dice: random.Random, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
        here = int(str(inputs[0]))
        if here < _LEAST or here % 10 == 0:
            return None
        right = apply(inputs, ())
        return None if any(apply((spoilt(here, slip / SLIPS),), ()) == right for slip in range(SLIPS)) else ()

    return draw


FAMILY = Family(
    name=_NAME,
    operations=(
        Operation(
            "digits.heap",
            _NAME,
            (Sort.NUMBER,),
            Sort.NUMBER,
            wordings(
                "the digits of {x} (heaped|piled|stacked) up",
                "the (heap|pile|stack) (of|from) the digits (in|of) {x} as one figure",
            ),
            _heap,
            _clear(_heap),
        ),
        Operation(
            "digits.squares",
            _NAME,
            (Sort.NUMBER,),
            Sort.NUMBER,
            wordings(
                "the squares of the digits (in|of) {x} (heaped|piled|stacked) up",
                "the (heap|pile|stack) of the squares of the digits (in|of) {x} as one figure",
            ),
            _squares,
            _clear(_squares),
        ),
        Operation(
            "digits.flipped",
            _NAME,
            (Sort.NUMBER,),
            Sort.NUMBER,
            wordings(
                "the digits of {x} (flipped|turned|swapped) (round|over)",
                "the figure that {x} (makes|becomes) with its digits (flipped|turned|swapped) (round|over)",
            ),
            _flipped,
            _clear(_flipped),
        ),
    ),
    tell=("work on the digits", "handle the digits"),
    offers=(
        "(works on|handles|heaps up) (digits|single digits)",
        "(flips|squares|stacks) the digits of (numbers|figures)",
        "(does|is good at) digit (work|questions)",
    ),
    cues=bag("digit digits"),
)
