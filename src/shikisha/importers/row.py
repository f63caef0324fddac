"""A row of somebody else's file: named values, and where they stand.

Invariant: every value that is asked of a row has the type asked for or is a ConfigError that names the place and the
field, what was expected and what was found. CSV writes everything as text, so a number may be the text of one.
Deliberately absent: where rows come from (`files`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from shikisha.errors import ConfigError, TaskError
from shikisha.outcomes import Gold
from shikisha.outcomes_writing import Asked
from shikisha.task import Task

_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")
_MOST = 2**63 - 1  # what a column of whole numbers holds


@dataclass(frozen=True, slots=True)
class Row:
    """Named values and where they stand. Where a getter takes several names, the first that holds something counts."""

    where: str
    values: Mapping[str, object]

    def wrong(self, field: str, problem: str) -> ConfigError:
        """Return the error that says what is wrong where."""
        return ConfigError(f"{self.where}: {field}: {problem}")

    def expected(self, what: str, field: str) -> ConfigError:
        """Return the error for a value that is not what was expected."""
        value = self.values.get(field)
        if value is None:
            return self.wrong(field, f"expected {what}, found {'null' if field in self.values else 'nothing'}")
        return self.wrong(field, f"expected {what}, found {str(value)[:40]!r}")

    def get(self, *names: str) -> object:
        """Return a value as it is, None where nothing is known."""
        return self.values.get(self.named(*names))

    def named(self, *names: str) -> str:
        """Return the first of these names under which something is known, else the first."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def text(self, *names: str) -> str:
        """Return a text."""
        name = self.named(*names)
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self.expected("text", name)
        return value

    def maybe_text(self, *names: str) -> str | None:
        """Return a text, or None where nothing is known."""
        return None if self.get(*names) is None else self.text(*names)

    def label(self, *names: str) -> str:
        """Return a text or a whole number as text: what ids are written as."""
        value = self.get(*names)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        text = self.text(*names)
        if not text.strip():
            raise self.expected("a name", self.named(*names))
        return text

    def number(self, *names: str, most: float | None = None) -> float | None:
        """Return a number from 0 (to `most`), or None where nothing is known."""
        name = self.named(*names)
        value = self.values.get(name)
        number = _number(value)
        if value is not None and (number is None or number < 0 or (most is not None and number > most)):
            raise self.expected(f"a number from 0{'' if most is None else f' to {most:g}'}", name)
        return number

    def whole(self, *names: str) -> int | None:
        """Return a whole number from 0, or None where nothing is known."""
        number = self.number(*names)
        if number is not None and (number != int(number) or number > _MOST):
            raise self.expected("a whole number", self.named(*names))
        return None if number is None else int(number)

    def score(self, *names: str) -> float | None:
        """Return a score in [0, 1], also where it is written as true or false, or None where nothing is known."""
        value = self.get(*names)
        if isinstance(value, bool) or (isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE)):
            return float(str(value).lower() in _TRUE)
        return self.number(*names, most=1.0)

    def items(self, *names: str) -> Sequence[object]:
        """Return a list."""
        name = self.named(*names)
        value = self.values.get(name)
        if not isinstance(value, list):
            raise self.expected("a list", name)
        return value

    def parts(self, name: str) -> "Iterator[Row]":
        """Yield the objects of a list as rows of their own; none where there is no list."""
        for number, part in enumerate(self.items(name) if self.get(name) is not None else ()):
            where = f"{self.where}: {name}[{number}]"
            if not isinstance(part, dict):
                raise ConfigError(f"{where}: expected an object, found {str(part)[:40]!r}")
            yield Row(where, part)

    def asked(self, prompt: str, gold: Gold, task: tuple[str, str] = ("", ""), field: str = "prompt") -> Asked:
        """Return the task of this (id, domain); ConfigError names the field when the prompt is none."""
        try:
            return Asked(Task(prompt, id=task[0], domain=task[1]), gold)
        except TaskError as error:
            raise self.wrong(field, str(error)) from None


def _number(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = int(value) if value.lstrip("-").isdecimal() else float(value)  # nanoseconds need every digit
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        double = float(value)
    except OverflowError:
        return None
    if not isfinite(double):
        return None
    return value if abs(value) <= _MOST else double  # beyond that no column holds whole numbers
