"""The company: people, rooms, invoices, meters and policies, and the operations that questions are made of.

Invariants: every fact is a hash of the company and the thing it is about, so there is no table to read and none to
memorize; an operation gives a value for any input of its kind, a wrong one too, since a worker that was granted a wrong
result goes on with it. `wrong_value` never returns the value itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import TypeAlias

from shikisha_train.office.seeded_random import hash_fraction, hash_number

OfficeValue: TypeAlias = int | str | date


class WorkKind(StrEnum):
    """The kinds of work. A worker's skill is a level for each."""

    PEOPLE = "people"
    INVOICES = "invoices"
    ARITHMETIC = "arithmetic"
    CALENDAR = "calendar"
    METERS = "meters"
    POLICIES = "policies"


class EntityKind(StrEnum):
    """What an operation takes or gives."""

    PERSON = "person"
    ROOM = "room"
    INVOICE = "invoice"
    TOPIC = "topic"
    DAY = "day"
    NUMBER = "number"


FIRST_NAMES = (
    "Ada", "Boris", "Carla", "Dev", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kofi", "Lena", "Marek",
    "Nadia", "Olek", "Priya", "Quentin", "Rosa", "Sven", "Tove", "Uma", "Viktor", "Wanda", "Xenia", "Yusuf", "Zora",
    "Amir", "Bea", "Cyril", "Dora", "Emil", "Freya", "Gustav", "Hana", "Igor", "Joana", "Karim", "Lotte", "Milan",
    "Noor",
)  # fmt: skip
LAST_NAMES = (
    "Abbot", "Brandt", "Castro", "Dumont", "Eriksen", "Farkas", "Gruber", "Horvat", "Ivanov", "Jansen", "Keller",
    "Lindqvist", "Moreau", "Novak", "Okafor", "Petrov", "Quist", "Ramos", "Sato", "Thorne", "Ueda", "Varga", "Weber",
    "Xu", "Yilmaz", "Zeman", "Aziz", "Bauer", "Costa", "Dietz", "Engel", "Fischer", "Gomez", "Haas", "Ilves", "Jung",
    "Krause", "Lopez", "Meyer", "Nagy",
)  # fmt: skip
TOPICS = (
    "hotel nights in Oslo",
    "hotel nights in Lisbon",
    "taxi rides to the airport",
    "team dinners",
    "client lunches",
    "train tickets",
    "rental cars",
    "home office chairs",
    "second monitors",
    "mobile phone plans",
    "language courses",
    "conference tickets",
    "gym memberships",
    "parking near the office",
    "relocation help",
    "birthday flowers",
    "software licenses",
    "headphones",
    "bicycle repairs",
    "books and magazines",
    "visitor badges",
    "overnight deliveries",
    "printed brochures",
    "coffee machines",
    "office plants",
    "first aid kits",
    "business cards",
    "ski trips",
    "farewell gifts",
    "external trainers",
)
_FIRST_DAY = date(2009, 1, 5)
_DAY_COUNT = 6_000


@dataclass(frozen=True, slots=True)
class OfficeOperation:
    """One thing that can be asked: what it `takes` and `gives`, and the ranges of the `constants` in its words."""

    name: str
    kind: WorkKind
    takes: tuple[EntityKind, ...]
    gives: EntityKind
    apply: Callable[[Sequence[OfficeValue], Sequence[int]], OfficeValue]
    constants: tuple[tuple[int, int], ...] = ()

    @property
    def joins(self) -> bool:
        """Whether it brings two earlier values together."""
        return len(self.takes) == 2


def person_at(place: int) -> str:
    """Return one of the company's people."""
    return f"{FIRST_NAMES[place % len(FIRST_NAMES)]} {LAST_NAMES[place // len(FIRST_NAMES) % len(LAST_NAMES)]}"


def room_at(place: int) -> str:
    """Return one of the company's rooms, such as B214."""
    return f"{'ABCDEF'[place % 6]}{100 + place // 6 % 400}"


def day_at(place: int) -> date:
    """Return a day of the company's history."""
    return _FIRST_DAY + timedelta(days=place % _DAY_COUNT)


def _fact(name: str, about: OfficeValue) -> int:
    return hash_number("office", name, str(about))


def _day(value: OfficeValue) -> date:
    return value if isinstance(value, date) else day_at(_fact("day", value))


def _number(value: OfficeValue) -> int:
    return value if isinstance(value, int) else _fact("number", value) % 900 + 100


def _operations() -> tuple[OfficeOperation, ...]:
    person, room, invoice, topic, day, number = EntityKind
    kinds = WorkKind
    return (
        OfficeOperation("room", kinds.PEOPLE, (person,), room, lambda v, _: room_at(_fact("room", v[0]))),
        OfficeOperation("manager", kinds.PEOPLE, (person,), person, lambda v, _: person_at(_fact("manager", v[0]))),
        OfficeOperation("started", kinds.PEOPLE, (person,), day, lambda v, _: day_at(_fact("started", v[0]))),
        OfficeOperation("extension", kinds.PEOPLE, (person,), number, lambda v, _: 1000 + _fact("ext", v[0]) % 9000),
        OfficeOperation("amount", kinds.INVOICES, (invoice,), number, lambda v, _: 40 + _fact("amount", v[0]) % 9000),
        OfficeOperation("issued", kinds.INVOICES, (invoice,), day, lambda v, _: day_at(_fact("issued", v[0]))),
        OfficeOperation("contact", kinds.INVOICES, (invoice,), person, lambda v, _: person_at(_fact("contact", v[0]))),
        OfficeOperation("percent", kinds.ARITHMETIC, (number,), number, _percent, ((3, 60),)),
        OfficeOperation("plus", kinds.ARITHMETIC, (number,), number, lambda v, c: _number(v[0]) + c[0], ((11, 990),)),
        OfficeOperation("times", kinds.ARITHMETIC, (number,), number, lambda v, c: _number(v[0]) * c[0], ((3, 19),)),
        OfficeOperation("split", kinds.ARITHMETIC, (number,), number, lambda v, c: _number(v[0]) // c[0], ((3, 12),)),
        OfficeOperation("total", kinds.ARITHMETIC, (number, number), number, lambda v, _: sum(map(_number, v))),
        OfficeOperation(
            "difference", kinds.ARITHMETIC, (number, number), number, lambda v, _: abs(_number(v[0]) - _number(v[1]))
        ),
        OfficeOperation("days_later", kinds.CALENDAR, (day,), day, _days_later, ((12, 95),)),
        OfficeOperation("weeks_before", kinds.CALENDAR, (day,), day, _weeks_before, ((2, 30),)),
        OfficeOperation(
            "days_between", kinds.CALENDAR, (day, day), number, lambda v, _: abs((_day(v[0]) - _day(v[1])).days)
        ),
        OfficeOperation("power", kinds.METERS, (room,), number, lambda v, _: 100 + _fact("power", v[0]) % 8000),
        OfficeOperation("water", kinds.METERS, (room,), number, lambda v, _: 100 + _fact("water", v[0]) % 8000),
        OfficeOperation("limit", kinds.POLICIES, (topic,), number, lambda v, _: 20 + _fact("limit", v[0]) % 1900),
        OfficeOperation("approver", kinds.POLICIES, (topic,), person, lambda v, _: person_at(_fact("signs", v[0]))),
    )


def _percent(values: Sequence[OfficeValue], constants: Sequence[int]) -> OfficeValue:
    return _number(values[0]) * constants[0] // 100


def _days_later(values: Sequence[OfficeValue], constants: Sequence[int]) -> OfficeValue:
    return _day(values[0]) + timedelta(days=constants[0])


def _weeks_before(values: Sequence[OfficeValue], constants: Sequence[int]) -> OfficeValue:
    return _day(values[0]) - timedelta(weeks=constants[0])


OFFICE_OPERATIONS = {operation.name: operation for operation in _operations()}


def draw_entity(kind: EntityKind, place: int) -> OfficeValue:
    """Return a literal of this kind for a question."""
    match kind:
        case EntityKind.PERSON:
            return person_at(place)
        case EntityKind.ROOM:
            return room_at(place)
        case EntityKind.INVOICE:
            return f"INV-{1000 + place % 9000}"
        case EntityKind.TOPIC:
            return TOPICS[place % len(TOPICS)]
        case EntityKind.DAY:
            return day_at(place)
        case EntityKind.NUMBER:
            return 100 + place % 4900


def write_value(value: OfficeValue) -> str:
    """Write a value as an answer and in a question: days as 2014-03-09."""
    return value.isoformat() if isinstance(value, date) else str(value)


def read_value(text: str) -> OfficeValue:
    """Return the value that a worker wrote; any text is one."""
    text = text.strip().rstrip(".")
    if text.isdigit() and len(text) <= 12:
        return int(text)
    try:
        return date.fromisoformat(text)
    except ValueError:
        return text


def wrong_value(value: OfficeValue, *circumstances: object) -> OfficeValue:
    """Return another value of the same kind; two circumstances seldom give the same one."""
    draw = 1 + int(hash_fraction("wrong", *circumstances) * 997)
    if isinstance(value, date):
        return value + timedelta(days=draw if draw % 2 else -draw)
    if isinstance(value, int):
        scaled = value * draw // 400
        return scaled if scaled != value else value + draw
    for other in (draw, draw + 1):
        wrong = person_at(other) if " " in value else room_at(other)
        if wrong != value:
            break
    return wrong
