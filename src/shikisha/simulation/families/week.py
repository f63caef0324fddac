"""Weeks and years: which weekday a day is, and which place it has in its year."""

from collections.abc import Sequence
from datetime import date

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import compile_paraphrases, word_set

_NAME = "week"
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _name(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _WEEKDAYS[_day(inputs[0]).weekday()]


def _place(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _day(inputs[0]).timetuple().tm_yday


def _day(value: SimulatedValue) -> date:
    return value if isinstance(value, date) else date.fromisoformat(str(value))


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "week.name",
            _NAME,
            (ValueKind.DAY,),
            ValueKind.WORD,
            compile_paraphrases(
                "the weekday (of|on) {x} (by name|in full)",
                "the name that the weekday (of|on) {x} (has|bears|goes by)",
                "the weekday that {x} (makes|falls on)",
            ),
            _name,
        ),
        Operation(
            "week.place",
            _NAME,
            (ValueKind.DAY,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the (rank|place) of {x} (within|inside) its year",
                "the (rank|place) that {x} (takes|holds) (within|inside) its year",
                "the (rank|place) which {x} (takes|holds) in the year",
            ),
            _place,
        ),
    ),
    instructions=("find the weekday", "place it in the year"),
    descriptions=(
        "(tells|names|finds) (weekdays|weeks)",
        "(knows|handles) the (weekdays|weeks) of every year",
        "(places|puts) everything in (weeks|years)",
    ),
    keywords=word_set("weekday weekdays week weeks year years"),
)
