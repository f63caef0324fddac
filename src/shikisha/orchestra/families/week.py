"""Weeks and years: which weekday a day is, and which place it has in its year."""

from collections.abc import Sequence
from datetime import date

from shikisha.orchestra.operation import Family, Operation
from shikisha.orchestra.values import Sort, Value
from shikisha.orchestra.wording import bag, wordings

_NAME = "week"
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _name(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
    return _WEEKDAYS[_day(inputs[0]).weekday()]


def _place(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
    return _day(inputs[0]).timetuple().tm_yday


def _day(value: Value) -> date:
    return value if isinstance(value, date) else date.fromisoformat(str(value))


FAMILY = Family(
    name=_NAME,
    operations=(
        Operation(
            "week.name",
            _NAME,
            (Sort.DAY,),
            Sort.WORD,
            wordings(
                "the weekday (of|on) {x} (by name|in full)",
                "the name that the weekday (of|on) {x} (has|bears|goes by)",
                "the weekday that {x} (makes|falls on)",
            ),
            _name,
        ),
        Operation(
            "week.place",
            _NAME,
            (Sort.DAY,),
            Sort.NUMBER,
            wordings(
                "the (rank|place) of {x} (within|inside) its year",
                "the (rank|place) that {x} (takes|holds) (within|inside) its year",
                "the (rank|place) which {x} (takes|holds) in the year",
            ),
            _place,
        ),
    ),
    tell=("find the weekday", "place it in the year"),
    offers=(
        "(tells|names|finds) (weekdays|weeks)",
        "(knows|handles) the (weekdays|weeks) of every year",
        "(places|puts) everything in (weeks|years)",
    ),
    cues=bag("weekday weekdays week weeks year years"),
)
