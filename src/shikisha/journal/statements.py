"""Statements that are compiled once, and that go straight to SQLite's driver.

Compiling a statement and SQLAlchemy's own way to the driver take most of a small commit's time. Invariant: a store's
refusal is the very error that SQLAlchemy would raise, without the values.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, TypeVar

from sqlalchemy import Connection, Delete, Insert, Select, Update
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.exc import DBAPIError

T = TypeVar("T")
Values: TypeAlias = Mapping[str, object]
Clause: TypeAlias = Select[*tuple[object, ...]] | Insert | Update | Delete
_NOTHING: Values = {}


class Statement:
    """A statement that is compiled once; `make` returns it for a dialect, by its name.

    Values are what SQLite's driver takes and returns unchanged: texts, numbers, bytes, and booleans to be written.
    """

    def __init__(self, make: Callable[[str], Clause]) -> None:
        self._make = make
        self._made: dict[str, Clause] = {}

    @classmethod
    def of(cls, clause: Clause) -> "Statement":
        """Return a statement that is the same in every dialect."""
        return cls(lambda _: clause)

    def execute(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Execute it for each of these rows."""
        if connection.dialect.name == "sqlite":
            text = self._text
            _with_sqlite(connection, lambda raw: raw.executemany(text.sql, [text.ordered(row) for row in rows]))
        else:
            connection.execute(self._in(connection.dialect.name), rows)

    def first(self, connection: Connection, values: Values = _NOTHING) -> tuple[object, ...] | None:
        """Execute it and return its first row; None without any."""
        if connection.dialect.name == "sqlite":
            text = self._text
            row = _with_sqlite(connection, lambda raw: raw.execute(text.sql, text.ordered(values)).fetchone())
            return row if isinstance(row, tuple) else None
        result = connection.execute(self._in(connection.dialect.name), values).first()
        return None if result is None else tuple(result)

    def _in(self, dialect: str) -> Clause:
        if dialect not in self._made:
            self._made[dialect] = self._make(dialect)
        return self._made[dialect]

    @cached_property
    def _text(self) -> "_SQLiteStatement":
        return _SQLiteStatement(self._in("sqlite"))


class _SQLiteStatement:
    """A statement as SQLite's driver takes it."""

    def __init__(self, clause: Clause) -> None:
        compiled = clause.compile(dialect=SQLiteDialect(paramstyle="qmark"))
        self.sql = str(compiled)
        self._names = tuple(getattr(compiled, "positiontup", None) or ())
        self._fixed = {name: value for name, value in (compiled.params or {}).items() if value is not None}

    def ordered(self, values: Values) -> list[object]:
        """Return the values in the order of their places."""
        fixed = self._fixed
        return [values[name] if name in values else fixed[name] for name in self._names]


def _with_sqlite(connection: Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    raw = connection.connection.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        raise TypeError(f"no connection of SQLite's driver: {type(raw).__name__}")
    try:
        return work(raw)
    except sqlite3.Error as error:
        raise DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True) from error
