"""The hash chain: appending a batch of events to it, in one transaction that the caller holds.

Invariant: event `seq` has the hash SHA-256(hash of event `seq` - 1, `[seq,run,kind,at,data]`), and the head row names
the last one. The chain continues from the head row as read under its lock, so several processes can share a journal. A
body's text is in the chain by its hash only: it can be erased and the chain still holds. The statements of nearly every
commit are compiled once, and SQLite's go straight to its driver, because compiling them and SQLAlchemy's own way there
take most of a small commit's time; a store's refusal is the very error that SQLAlchemy would raise. Deliberately
absent: signatures. A writer of the store can write a whole new chain, which shows only against a head noted elsewhere.
"""

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from sqlalchemy import Connection, Delete, Insert, Select, Update, bindparam, delete, insert, select, update
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from shikisha.core.errors import JournalUnavailable, ServerFenced
from shikisha.journal.codec import EncodedEvent
from shikisha.journal.schema import APPLIED, BODIES, EVENTS, HEAD

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


TransactionWork: TypeAlias = Callable[[Connection], None]


class RowStatement(NamedTuple):
    """A statement of PostgreSQL's whose one parameter, `$1`, is an array of these rows as `jsonb`."""

    sql: str
    rows: Sequence[Values]


@runtime_checkable
class StatementWork(Protocol):
    """A work that is also statements with rows, so that PostgreSQL can do it in a batch's one round trip."""

    def __call__(self, connection: Connection) -> None:
        """Do it."""

    def statements(self) -> Sequence[RowStatement]:
        """Return the statements that do the same."""
        ...


@runtime_checkable
class MemberFence(Protocol):
    """A fence that asks whether a member is alive; as a function of a connection it raises when it is not."""

    @property
    def id(self) -> str:
        """The member's id."""
        ...

    def __call__(self, connection: Connection) -> None:
        """Hold the member alive until the transaction ends; ServerFenced when it is not."""

    def refusal(self) -> ServerFenced:
        """Return the error that says so."""
        ...


_LOG = logging.getLogger(__name__)
_REFUSALS = (IntegrityError, DataError, ProgrammingError)
# The same as SQLSTATE classes (data, integrity, syntax), since all of asyncpg's errors reach us as one class.
_REFUSAL_CODES = ("22", "23", "42")

GENESIS = "0" * 64
_STALE = 7 * 86400.0  # seconds: by then no writer retries the batch that such a row is a note of


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of a chain: how many events it has and the last one's hash (hex)."""

    count: int = 0
    hash: str = GENESIS


def _body_statement(dialect: str) -> Insert:
    """Return the statement that adds bodies, or notes that one is another run's too; imports no dialect not in use."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        adding = postgresql.insert(BODIES)
        other = ~BODIES.c.shared & (BODIES.c.run != adding.excluded.run)
        return adding.on_conflict_do_update(index_elements=["hash"], set_={"shared": True}, where=other)
    from sqlalchemy.dialects import sqlite

    begun = sqlite.insert(BODIES)
    other = ~BODIES.c.shared & (BODIES.c.run != begun.excluded.run)
    return begun.on_conflict_do_update(index_elements=["hash"], set_={"shared": True}, where=other)


_HEAD = Statement.of(select(HEAD.c.count, HEAD.c.hash).with_for_update())  # in SQLite the transaction holds it all
_MOVE = Statement.of(update(HEAD).values(count=bindparam("new_count"), hash=bindparam("new_hash")))
_EVENT = Statement.of(insert(EVENTS))
_BODY = Statement(_body_statement)


def lock_head(connection: Connection) -> ChainHead:
    """Lock the head row until the transaction ends, and return the chain's end; JournalUnavailable if it is damaged."""
    row = _HEAD.first(connection)
    if row is None:
        raise _damaged_head("missing")
    count, last = row
    if not (isinstance(count, int) and isinstance(last, str)):
        raise _damaged_head("damaged")
    return ChainHead(count, last)


def _damaged_head(how: str) -> JournalUnavailable:
    return JournalUnavailable(f"the journal's head row is {how}; `shikisha journal verify` tells more")


def chain_hash(previous: str, seq: int, tail: bytes) -> str:
    """Return the hash of event `seq`, whose canonical bytes are `[seq` and this tail."""
    return sha256(b"%s[%d%s" % (previous.encode(), seq, tail)).hexdigest()


@dataclass(slots=True)
class EventBatch:
    """Events that are stored together or not at all, and works that are done in the same transaction.

    A commit whose answer was lost may have happened, so the next try looks first, and repeats neither events nor works
    that are stored: `end` is where the last try would have left the chain, and a batch of works alone, or one that was
    stored by one call of PostgreSQL's function, is known by its writer's name and `number`. `fence` raises when this
    process may not write any more.
    """

    entries: list[EncodedEvent]
    works: Sequence[TransactionWork] = ()
    writer: str = ""
    number: int = 0
    fence: TransactionWork | None = None
    end: ChainHead | None = None
    tried: bool = False
    careful: bool = False

    def may_leave_out(self, error: JournalUnavailable) -> bool:
        """Whether to try again at once, leaving out works whose statements the store refuses.

        One work's mistake must not keep every run's events from being stored.
        """
        self.careful = bool(self.works) and _refuses(error.__cause__)
        return self.careful

    def call_values(self) -> tuple[object, ...] | None:
        """Return what PostgreSQL's function `shikisha_append` takes; None where only `append` can store the batch."""
        fence, works = self.fence, [work for work in self.works if isinstance(work, StatementWork)]
        if self.careful or self.end is not None or len(works) < len(self.works):
            return None
        if not (fence is None or isinstance(fence, MemberFence)):
            return None
        statements = [statement for work in works for statement in work.statements()]
        try:
            given = [json.dumps(list(statement.rows), allow_nan=False) for statement in statements]
        except ValueError:  # a number that JSON lacks, which a column may hold
            return None
        self.tried = True
        bodies = _bodies(self.entries)
        return (
            *(self.writer, self.number, time.time(), None if fence is None else fence.id),
            *([getattr(entry, name) for entry in self.entries] for name in ("run", "kind", "at", "data", "tail")),
            *([body[name] for body in bodies] for name in ("hash", "body", "run", "shared")),
            *([statement.sql for statement in statements], given),
        )

    def check_called(self, outcome: object) -> None:
        """Raise what the function's outcome means; `stored` means that all is well."""
        if outcome == "fenced" and isinstance(self.fence, MemberFence):
            raise self.fence.refusal()
        if outcome != "stored":
            raise _damaged_head(str(outcome))

    def append(self, connection: Connection) -> None:
        """Write the events, their bodies and the new head, and do the works, unless an earlier try did."""
        head = lock_head(connection)
        if self.tried and self.stored(connection):
            return
        self.tried = True
        if self.fence is not None:
            self.fence(connection)
        if self.entries:
            self._extend(connection, head)
        else:
            self._note(connection)
        for work in self.works:
            if not self.careful:
                work(connection)
                continue
            try:
                with connection.begin_nested():
                    work(connection)
            except DBAPIError as error:
                if not _refuses(error):
                    raise
                _LOG.error("the store refuses a work, which is left out: %s", error.orig)

    def _extend(self, connection: Connection, head: ChainHead) -> None:
        count, last = head.count, head.hash
        rows: list[dict[str, object]] = []
        for run, kind, at, data, tail, _ in self.entries:
            last = chain_hash(last, count, tail)
            rows.append({"seq": count, "run": run, "kind": kind, "at": at, "data": data, "hash": last})
            count += 1
        self.end = ChainHead(count, last)
        if bodies := _bodies(self.entries):
            _BODY.execute(connection, bodies)
        _EVENT.execute(connection, rows)
        _MOVE.execute(connection, [{"new_count": count, "new_hash": last}])

    def stored(self, connection: Connection) -> bool:
        """Whether the last try stored the batch, even if its answer was lost."""
        if self.entries and self.end is not None:
            at_end = select(EVENTS.c.hash).where(EVENTS.c.seq == self.end.count - 1)
            return bool(connection.execute(at_end).scalar_one_or_none() == self.end.hash)
        last = select(APPLIED.c.batch).where(APPLIED.c.writer == self.writer)
        return bool(connection.execute(last).scalar_one_or_none() == self.number)

    def _note(self, connection: Connection) -> None:
        mine, now = APPLIED.c.writer == self.writer, time.time()
        values = {"batch": self.number, "at": now}
        if not connection.execute(update(APPLIED).where(mine).values(values)).rowcount:
            connection.execute(delete(APPLIED).where(APPLIED.c.at < now - _STALE))
            connection.execute(insert(APPLIED).values(writer=self.writer, **values))


def _refuses(error: BaseException | None) -> bool:
    """Whether the store refuses this statement, rather than being unable to take any."""
    if not isinstance(error, DBAPIError):
        return False
    return isinstance(error, _REFUSALS) or str(getattr(error.orig, "sqlstate", None)).startswith(_REFUSAL_CODES)


def _bodies(entries: list[EncodedEvent]) -> list[dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for entry in entries:
        for key, body in entry.bodies:
            known = rows.setdefault(key, {"hash": key, "body": body, "run": entry.run, "shared": False})
            if known["run"] != entry.run:
                known["shared"] = True
    # Sorted, so that two writers lock the rows of bodies that they share in one order, and never wait for each other.
    return [rows[key] for key in sorted(rows)]
