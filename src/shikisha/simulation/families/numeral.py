"""Numerals: a number in another notation, roman, octal or hexadecimal."""

import random
from collections.abc import Sequence

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import Paraphrases, compile_paraphrases, word_set

_NAME = "numeral"
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_MOST = 3_980  # beyond 3,999 there are no roman numerals, and a slip must have one too
_LEAST = 10


def _roman(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    left, written = int(str(inputs[0])), ""
    for worth, sign in _ROMAN:
        times, left = divmod(left, worth) if left > 0 else (0, left)
        written += sign * min(times, 60)  # what no right answer leads to stays short
    return written[:60] or "nulla"


def _octal(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return int(format(int(str(inputs[0])), "o"))


def _hexadecimal(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return format(abs(int(str(inputs[0]))), "x")


def _has_roman(_dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return () if _LEAST <= int(str(inputs[0])) <= _MOST else None


def _clear_of_zero(_dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return () if int(str(inputs[0])) >= _LEAST else None


def _in(notation: str) -> Paraphrases:
    return compile_paraphrases(
        f"the value {{x}} (put|set|cast) into {notation} (numerals|notation)",
        f"the {notation} (numerals|notation) (for|of) the value {{x}} in full",
        f"the form that {{x}} (has|takes|gets) in {notation} (numerals|notation)",
    )


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation("numeral.roman", _NAME, (ValueKind.NUMBER,), ValueKind.WORD, _in("roman"), _roman, _has_roman),
        Operation("numeral.octal", _NAME, (ValueKind.NUMBER,), ValueKind.NUMBER, _in("octal"), _octal, _clear_of_zero),
        Operation(
            "numeral.hexadecimal",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.WORD,
            _in("hexadecimal"),
            _hexadecimal,
            _clear_of_zero,
        ),
    ),
    instructions=("write the numeral", "change the notation"),
    descriptions=(
        "(writes|sets) (values|amounts) in (roman|octal|hexadecimal) numerals",
        "(knows|handles) (roman|octal|hexadecimal) (notation|numerals)",
        "(changes|puts) values into another notation",
    ),
    keywords=word_set("numeral numerals notation roman octal hexadecimal"),
)
