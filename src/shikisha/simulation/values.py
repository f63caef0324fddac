"""Values of a question's parts: numbers, days, names and words; how they are written, parsed and compared.

Invariant: `parse_value(format_value(value), kind)` returns the value for every kind that the value fits. Grading
compares normal forms: "37", "37." and "0037" are one number, "3 may 2031" and "2031-05-03" one day; nothing else is
forgiven. A simulated slip (`corrupt_value`) is always a different value of the same kind, near the right one.
"""

import re
from datetime import date, timedelta
from enum import StrEnum
from typing import TypeAlias

SimulatedValue: TypeAlias = int | str | date

MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
# How many different wrong values a slip can give.
SLIP_COUNT = 12


class ValueKind(StrEnum):
    """The kind of an input. A name is a word that the table or a gauge knows."""

    NUMBER = "number"
    DAY = "day"
    NAME = "name"
    WORD = "word"
    TEXT = "text"  # a word or a number, as written

    def accepts(self, other: "ValueKind") -> bool:
        """Whether a value of the other kind fits here."""
        return other is self or other in _WIDER.get(self, ())


_WIDER = {ValueKind.WORD: (ValueKind.NAME,), ValueKind.TEXT: (ValueKind.WORD, ValueKind.NAME, ValueKind.NUMBER)}
_NUMBER = re.compile(r"\d{1,12}")
_WORD = re.compile(r"[a-z0-9]{1,64}")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_WRITTEN = re.compile(rf"(\d{{1,2}}) ({'|'.join(MONTHS)}) (\d{{4}})")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"


def format_value(value: SimulatedValue) -> str:
    """Write a value as an answer; days in ISO form."""
    return value.isoformat() if isinstance(value, date) else str(value)


def spell_value(value: SimulatedValue) -> str:
    """Write a value as a question has it: days as "3 may 2031"."""
    return f"{value.day} {MONTHS[value.month - 1]} {value.year}" if isinstance(value, date) else str(value)


def parse_value(text: str, kind: ValueKind) -> SimulatedValue | None:
    """Return the text as a value of this kind; None where it is none."""
    text = text.strip().lower()
    if kind is ValueKind.NUMBER:
        return int(text) if _NUMBER.fullmatch(text) else None
    if kind is ValueKind.DAY:
        return _parse_day(text)
    return text if _WORD.fullmatch(text) else None


def _parse_day(text: str) -> date | None:
    iso, written = _ISO.fullmatch(text), _WRITTEN.fullmatch(text)
    try:
        if iso:
            return date(int(iso[1]), int(iso[2]), int(iso[3]))
        return date(int(written[3]), MONTHS.index(written[2]) + 1, int(written[1])) if written else None
    except ValueError:  # 31 february and the like
        return None


def normalize_answer(text: str) -> str:
    """Return the normal form of an answer, in which answers are compared."""
    text = text.strip().lower().removesuffix(".").rstrip()
    day = _parse_day(text)
    if day is not None:
        return day.isoformat()
    return str(int(text)) if _NUMBER.fullmatch(text) else text


def to_int(value: SimulatedValue) -> int:
    """Return a value as a number; ValueError for one that is none."""
    return int(str(value))


def to_day(value: SimulatedValue) -> date:
    """Return a value as a day; ValueError for one that is none."""
    return value if isinstance(value, date) else date.fromisoformat(str(value))


def corrupt_value(value: SimulatedValue, luck: float) -> SimulatedValue:
    """Return a wrong value near the right one; `luck`, in [0, 1), selects one of SLIP_COUNT."""
    place = int(luck * SLIP_COUNT)
    offset = place - 6 if place < 6 else place - 5  # -6 to -1, 1 to 6
    if isinstance(value, date):
        return value + timedelta(days=offset)
    if isinstance(value, int):
        return value + offset
    at = place % len(value)
    signs = DIGITS if value[at].isdigit() else LETTERS
    letter = signs[(signs.index(value[at]) + 1 + place % 9) % len(signs)]
    return value[:at] + letter + value[at + 1 :]
