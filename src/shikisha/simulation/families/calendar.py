"""Dates: days before, after, between. The tool is the proleptic Gregorian calendar."""

import random
from collections.abc import Sequence
from datetime import date, timedelta

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import compile_paraphrases, word_set

_NAME = "date"
_FARTHEST = 5_000  # days
_START = date(1990, 1, 1)


def _later(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _moved(inputs[0], constants[0], 1)


def _earlier(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _moved(inputs[0], constants[0], -1)


def _reached(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _moved(constants[0], inputs[0], 1)


def _until(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return abs((_day(constants[0]) - _day(inputs[0])).days)


def _moved(day: SimulatedValue, days: SimulatedValue, sign: int) -> date:
    try:
        return _day(day) + timedelta(days=sign * int(str(days)))
    except OverflowError:  # a number that no right answer leads to
        return date.max if sign > 0 else date.min


def _day(value: SimulatedValue) -> date:
    return value if isinstance(value, date) else date.fromisoformat(str(value))


def _some_days(dice: random.Random, _inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return (dice.randint(11, 400),)


def _some_day(dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    if int(str(inputs[0])) > _FARTHEST:
        return None
    return (_START + timedelta(days=dice.randint(0, 18_000)),)


def _a_later_day(dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return (_day(inputs[0]) + timedelta(days=dice.randint(20, 900)),)


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "date.later",
            _NAME,
            (ValueKind.DAY,),
            ValueKind.DAY,
            compile_paraphrases(
                "the (date|day) {a} days (after|past) {x}",
                "the (date|day) that (comes|lies|falls) {a} days (after|past) {x}",
            ),
            _later,
            _some_days,
            slots="a",
        ),
        Operation(
            "date.earlier",
            _NAME,
            (ValueKind.DAY,),
            ValueKind.DAY,
            compile_paraphrases(
                "the (date|day) {a} days (before|ahead of) {x}",
                "the (date|day) that (comes|lies|falls) {a} days (before|ahead of) {x}",
            ),
            _earlier,
            _some_days,
            slots="a",
        ),
        Operation(
            "date.reached",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.DAY,
            compile_paraphrases(
                "the (date|day) (reached|met) from {d} (counting|taking) {x} as days",
                "the (date|day) as many days (after|past) {d} as {x} (says|counts)",
                "{d} (moved|put) (on|ahead) by as many days as {x}",
            ),
            _reached,
            _some_day,
            slots="d",
        ),
        Operation(
            "date.until",
            _NAME,
            (ValueKind.DAY,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the days (left|remaining|to go) from {x} (until|till|to) {d}",
                "the (number|count) of days from {x} (until|till|to) {d}",
            ),
            _until,
            _a_later_day,
            slots="d",
        ),
    ),
    instructions=("work out the date", "count the days"),
    descriptions=(
        "(works out|handles|counts) (dates|days)",
        "(is|serves as) (a calendar|an almanac) for (dates|days)",
        "(is good at|does) (calendar|date) (work|questions)",
    ),
    keywords=word_set("date dates days calendar almanac until after before ahead past reached"),
)
