"""One row of somebody else's file, with its place kept, and the typed ways to take fields out of it.

Invariants: whatever a row lacks or holds wrongly is a ConfigError that names file, line (or row) and field, what was
expected and what was found; nothing is skipped or filled in. A field that must be there is neither null nor blank.
Lines are counted from 1, rows of parquet and JSON arrays from 0, and `index` is counted from 0 everywhere, so that the
ids made of it do not hang on the format. Deliberately absent: what fields mean (one file a set), and opening files
(`files`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import PurePath
from typing import TypeGuard

from shikisha.errors import ConfigError
from shikisha.grade import Checker, Tools
from shikisha.grade.registry import checker
from shikisha.task import unstorable

_SHOWN = 40  # characters of a wrong value


@dataclass(frozen=True, slots=True)
class Row:
    """A row's fields, where it stands (`file: line 3`), and for parts of it the field that they were found in."""

    data: Mapping[str, object]
    file: str
    index: int
    line: int | None = None
    inside: str = ""

    @property
    def place(self) -> str:
        """The row's place in its set, as an id: the file's name without its endings, and the index."""
        return f"{PurePath(self.file).name.partition('.')[0]}/{self.index}"

    @property
    def where(self) -> str:
        """Where the row stands, as errors name it."""
        return f"{self.file}: row {self.index}" if self.line is None else f"{self.file}: line {self.line}"

    def at(self, field: str) -> str:
        """Return where a field stands."""
        return f"{self.where}: {self.inside}{field}"

    def wrong(self, field: str, problem: str) -> ConfigError:
        """Return the error that says what is wrong where."""
        return ConfigError(f"{self.at(field)}: {problem}")

    def has(self, field: str) -> bool:
        """Whether there is anything in a field."""
        return self.data.get(field) not in (None, "")

    def text(self, field: str) -> str:
        """Return a text that is not blank."""
        value = self.string(field)
        if not value.strip():
            raise self._expected("text", field, value)
        return value

    def name(self, field: str) -> str:
        """Return a text, or a whole number as one: what ids and levels are."""
        value = self._there(field, "text or a whole number")
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(field)

    def identifier(self, field: str) -> str:
        """Return a name as programs have them."""
        value = self.text(field)
        if not value.isidentifier():
            raise self._expected("the name of a function", field, value)
        return value

    def optional(self, field: str) -> str:
        """Return a text or whole number as text; nothing where nothing is."""
        return self.name(field) if self.has(field) else ""

    def one_of(self, *fields: str) -> str:
        """Return the name under which a field goes here, of those under which it goes in the field's variants."""
        for field in fields:
            if self.has(field):
                return field
        raise self.wrong(fields[0], f"this field is missing (also looked for: {', '.join(fields[1:])})")

    def whole(self, field: str, least: int, most: int) -> int:
        """Return a whole number in this range, also when it is written as a text."""
        wish = f"a whole number from {least} to {most}"
        value = self._there(field, wish)
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < _SHOWN:
            value = int(value.strip())  # which takes more for a space than int does
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._expected(wish, field, value)
        return value

    def string(self, field: str) -> str:
        """Return a text that may be blank."""
        return self._string(field, self._there(field, "text"))

    def day(self, field: str) -> str:
        """Return a day as `2031-05-03`, of a date and time too, whether it is written or not."""
        value = self._there(field, "a date")
        try:
            return date.fromisoformat(str(value)[:10]).isoformat()
        except ValueError:
            raise self._expected("a date", field, value) from None

    def texts(self, field: str, *, least: int = 1, most: int | None = None) -> tuple[str, ...]:
        """Return a list of so many texts; where none are needed an absent one is empty."""
        wish = f"a list of at least {least} texts" if most is None else f"a list of {least} to {most} texts"
        value = self._there(field, wish) if least else self.data.get(field) or ()
        if not _is_list(value) or len(value) < least or (most is not None and len(value) > most):
            raise self._expected(wish, field, value)
        return tuple(self._string(f"{field}[{place}]", text) for place, text in enumerate(value))

    def part(self, field: str) -> "Row":
        """Return an object inside this row as a row of its own."""
        return self._part(field, self._there(field, "an object"))

    def parts(self, field: str) -> "tuple[Row, ...]":
        """Return a list of objects, at least one, as rows of their own."""
        value = self._there(field, "a list of objects")
        if not _is_list(value) or not value:
            raise self._expected("a list of objects", field, value)
        return tuple(self._part(f"{field}[{place}]", entry) for place, entry in enumerate(value))

    def decoded(self, field: str, decode: Callable[[str], object]) -> "Row":
        """Return this row with a text replaced by what it holds; a ValueError of the decoder says what is wrong.

        What is no text is left as it is: the same set has such fields decoded in other formats.
        """
        value = self._there(field, "text")
        if not isinstance(value, str):
            return self
        try:
            return replace(self, data={**self.data, field: decode(value)})
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise self.wrong(field, f"cannot be decoded: {error}") from None

    def checker(self, field: str, kind: str, spec: Mapping[str, object], tools: Tools) -> Checker:
        """Build the checker whose right answer came out of this field."""
        return checker(kind, spec, tools, self.at(field))

    def _there(self, field: str, wish: str) -> object:
        if field not in self.data:
            raise self.wrong(field, f"this field is missing; there are {', '.join(map(str, self.data)) or 'none'}")
        if self.data[field] is None:
            raise self.wrong(field, f"expected {wish}, found null")
        return self.data[field]

    def _expected(self, wish: str, field: str, value: object) -> ConfigError:
        shown = value if isinstance(value, str) else str(value)
        return self.wrong(field, f"expected {wish}, found {shown[:_SHOWN]!r}")

    def _string(self, field: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._expected("text", field, value)
        if problem := unstorable(value):
            raise self.wrong(field, f"holds {problem}")
        return value

    def _part(self, field: str, value: object) -> "Row":
        if not isinstance(value, Mapping):
            raise self._expected("an object", field, value)
        return replace(self, data=value, inside=f"{self.inside}{field}.")


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
