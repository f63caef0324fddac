"""Arithmetic on whole numbers. The tool computes the formula of an operation in Monty (`calculator`)."""

import random
from collections.abc import Sequence

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import compile_paraphrases, word_set

_NAME = "arithmetic"
FORMULAS = {"arithmetic.grow": "a * x + b", "arithmetic.shrink": "a * x - b", "arithmetic.sum": "x + y"}


def _grow(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _whole(constants[0]) * _whole(inputs[0]) + _whole(constants[1])


def _shrink(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _whole(constants[0]) * _whole(inputs[0]) - _whole(constants[1])


def _sum(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _whole(inputs[0]) + _whole(inputs[1])


def _whole(value: SimulatedValue) -> int:
    return int(str(value))


def _factor_and_rest(dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    factor = dice.randint(3, 12)
    most = min(99, factor * _whole(inputs[0]) - 20)
    return (factor, dice.randint(11, most)) if most > 11 else None  # what is left stays clear of zero


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "arithmetic.grow",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "{a} times {x} (plus|increased by|raised by) {b}",
                "{x} (multiplied by|times) {a} with {b} (added|put on top)",
                "{x} taken {a} times (plus|increased by|raised by) {b}",
                "{b} (more than|added to|on top of) {a} times {x}",
                "{b} (more than|added to|on top of) {x} multiplied by {a}",
            ),
            _grow,
            _factor_and_rest,
            slots="ab",
        ),
        Operation(
            "arithmetic.shrink",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "{a} times {x} (minus|reduced by|lowered by) {b}",
                "{x} (multiplied by|times) {a} with {b} (subtracted|taken off)",
                "{x} taken {a} times (minus|reduced by|lowered by) {b}",
                "{b} (less than|subtracted from|taken from) {a} times {x}",
                "{b} (less than|subtracted from|taken from) {x} multiplied by {a}",
            ),
            _shrink,
            _factor_and_rest,
            slots="ab",
        ),
        Operation(
            "arithmetic.sum",
            _NAME,
            (ValueKind.NUMBER, ValueKind.NUMBER),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the (sum|total) of {x} and {y}",
                "{x} and {y} (added up|taken together)",
                "the (sum|total) that {x} and {y} (make|give|come to)",
                "the (sum|total) of {x} and {y} (added|taken) together",
            ),
            _sum,
        ),
    ),
    instructions=("do the arithmetic", "calculate the number"),
    descriptions=(
        "(does|handles) (arithmetic|sums|calculations)",
        "(is|serves as) (a calculator|a reckoner) for (numbers|sums)",
        "(adds|multiplies|calculates) (numbers|sums)",
    ),
    keywords=word_set(
        "arithmetic calculate calculates calculator calculations times plus minus multiplied multiply multiplies "
        "increased reduced subtracted lowered raised subtract added add adds summed sum sums total compute "
        "more less reckoner"
    ),
)
