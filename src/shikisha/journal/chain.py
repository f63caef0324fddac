"""The hash chain: appending a batch of events to it, in one transaction that the caller holds.

Invariant: event `seq` has the hash SHA-256(hash of event `seq` - 1, `[seq,run,kind,at,data]`), and the head row names
the last one. The chain continues from the head row as read under its lock, so several processes can share a journal. A
body's text is in the chain by its hash only: it can be erased and the chain still holds. Its statements are plain SQL,
so that a command can append to a SQLite file without importing SQLAlchemy. Deliberately absent: signatures. A writer of
the store can write a whole new chain, which shows only against a head noted elsewhere.
"""

import json
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from shikisha.core.errors import JournalUnavailable, ServerFenced
from shikisha.core.events import RecordsChanged
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.journal.codec import EncodedEvent, encode_event

if TYPE_CHECKING:
    from sqlalchemy import Connection

TransactionWork: TypeAlias = Callable[["Connection"], None]


class RowStatement(NamedTuple):
    """A statement of PostgreSQL's whose one parameter, `$1`, is an array of these rows as `jsonb`."""

    sql: str
    rows: Sequence[Mapping[str, object]]


@runtime_checkable
class StatementWork(Protocol):
    """A work that is also statements with rows, so that PostgreSQL can do it in a batch's one round trip."""

    def __call__(self, connection: "Connection") -> None:
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

    def __call__(self, connection: "Connection") -> None:
        """Hold the member alive until the transaction ends; ServerFenced when it is not."""

    def refusal(self) -> ServerFenced:
        """Return the error that says so."""
        ...


class RecordedWork(Protocol):
    """A work of a batch that changes records, and says so before it is done."""

    def records(self) -> RecordsChanged | None:
        """Return what it makes of them; None: it changes none."""
        ...


def encode_records(works: Iterable[object]) -> list[EncodedEvent]:
    """Return the events of what these works make of records: new rows and what was used meanwhile are one."""
    # Asking whether a work is of a protocol takes as long as encoding an event.
    told = [cast("RecordedWork", work).records() for work in works if hasattr(work, "records")]
    made = [event for event in told if event is not None]
    if len(made) == 2 and made[0].rows.keys() == {"served"} and made[1].used and not made[1].rows:
        made = [replace(made[1], rows=made[0].rows)]
    return [encode_event(event) for event in made]


_LOG = logging.getLogger(__name__)
_REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError)
# The same as SQLSTATE classes (data, integrity, syntax), since all of asyncpg's errors reach us as one class.
_REFUSAL_CODES = ("22", "23", "42")

GENESIS = "0" * 64
_STALE = 7 * 86400.0  # seconds: by then no writer retries the batch that such a row is a note of


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of a chain: how many events it has and the last one's hash (hex)."""

    count: int = 0
    hash: str = GENESIS


_HEAD = "SELECT count, hash FROM head"
_MOVE = "UPDATE head SET count = ?, hash = ?"
_EVENT = "INSERT INTO events (seq, run, kind, at, data, hash) VALUES (?, ?, ?, ?, ?, ?)"
_BODY = (
    "INSERT INTO bodies (hash, body, run, shared) VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO UPDATE SET shared = true "
    "WHERE NOT bodies.shared AND bodies.run <> excluded.run"
)
_HASH_AT = "SELECT hash FROM events WHERE seq = ?"
_LAST_BATCH = "SELECT batch FROM applied WHERE writer = ?"
_FORGET_BATCHES = "DELETE FROM applied WHERE at < ?"
_NOTE_BATCH = (
    "INSERT INTO applied (writer, batch, at) VALUES (?, ?, ?) "
    "ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, at = excluded.at"
)

Store: TypeAlias = "Connection | sqlite3.Connection"
"""What a batch is stored through, in a transaction: a SQLite file, or SQLAlchemy's connection to any store."""


def execute_rows(store: Store, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Execute a statement with a `?` for each value, once for each row; a refusal is the driver's own error.

    SQLAlchemy's way to the driver, and compiling its clauses, would take most of a small commit's time.
    """
    plain = store if isinstance(store, sqlite3.Connection) else _driver_of(store)
    if isinstance(plain, sqlite3.Connection):
        plain.executemany(sql, rows)
    else:
        plain.exec_driver_sql(_numbered(sql), list(rows))


def first_row(store: Store, sql: str, *values: object, lock: str = "") -> tuple[object, ...] | None:
    """Return the first row, or None; `lock` is how PostgreSQL locks it: SQLite's transaction holds the whole file."""
    plain = store if isinstance(store, sqlite3.Connection) else _driver_of(store)
    if isinstance(plain, sqlite3.Connection):
        row = plain.execute(sql, values).fetchone()
    else:
        row = plain.exec_driver_sql(f"{_numbered(sql)} {lock}", values).first()
    return None if row is None else tuple(row)


def _driver_of(store: "Connection") -> Store:
    """Return the driver's own connection where it is SQLite's."""
    if store.dialect.name != "sqlite":
        return store
    raw = store.connection.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        raise TypeError(f"no connection of SQLite's driver: {type(raw).__name__}")
    return raw


def _numbered(sql: str) -> str:
    """Return a statement with its places as PostgreSQL's driver wants them."""
    number = count(1)
    return re.sub(r"\?", lambda _: f"${next(number)}", sql)


def lock_head(store: Store) -> ChainHead:
    """Lock the head row until the transaction ends, and return the chain's end; JournalUnavailable if it is damaged."""
    row = first_row(store, _HEAD, lock="FOR UPDATE")
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
            *([body[place] for body in bodies] for place in range(4)),
            *([statement.sql for statement in statements], given),
        )

    def check_called(self, outcome: object) -> None:
        """Raise what the function's outcome means; `stored` means that all is well."""
        if outcome == "fenced" and isinstance(self.fence, MemberFence):
            raise self.fence.refusal()
        if outcome != "stored":
            raise _damaged_head(str(outcome))

    def append(self, store: Store) -> None:
        """Write the events, their bodies and the new head, and do the works, unless an earlier try did.

        Works and a fence need SQLAlchemy's connection.
        """
        head = lock_head(store)
        if self.tried and self.stored(store):
            return
        self.tried = True
        connection = None if isinstance(store, sqlite3.Connection) else store
        if self.fence is not None and connection is not None:
            self.fence(connection)
        if self.entries:
            seq, last = head.count, head.hash
            rows: list[tuple[object, ...]] = []
            for run, kind, at, data, tail, _ in self.entries:
                last = chain_hash(last, seq, tail)
                rows.append((seq, run, kind, at, data, last))
                seq += 1
            self.end = ChainHead(seq, last)
            if bodies := _bodies(self.entries):
                execute_rows(store, _BODY, bodies)
            execute_rows(store, _EVENT, rows)
            execute_rows(store, _MOVE, [(seq, last)])
        else:
            execute_rows(store, _FORGET_BATCHES, [(time.time() - _STALE,)])
            execute_rows(store, _NOTE_BATCH, [(self.writer, self.number, time.time())])
        if connection is not None:
            for work in self.works:
                if not self.careful:
                    work(connection)
                    continue
                try:
                    with connection.begin_nested():
                        work(connection)
                except Exception as error:
                    if not _refuses(error):
                        raise
                    _LOG.error("the store refuses a work, which is left out: %s", getattr(error, "orig", error))
        elif self.works or self.fence is not None:
            raise TypeError("works and fences are done through SQLAlchemy's connection")

    def stored(self, store: Store) -> bool:
        """Whether the last try stored the batch, even if its answer was lost."""
        if self.entries and self.end is not None:
            return first_row(store, _HASH_AT, self.end.count - 1) == (self.end.hash,)
        return first_row(store, _LAST_BATCH, self.writer) == (self.number,)


def _refuses(error: BaseException | None) -> bool:
    """Whether the store refuses this statement, rather than being unable to take any."""
    refused = getattr(error, "orig", error)  # SQLAlchemy wraps the driver's error
    return isinstance(refused, _REFUSALS) or str(getattr(refused, "sqlstate", None)).startswith(_REFUSAL_CODES)


def _bodies(entries: list[EncodedEvent]) -> list[tuple[str, bytes, str, bool]]:
    """Return the rows of these events' texts."""
    rows: dict[str, tuple[str, bytes, str, bool]] = {}
    for entry in entries:
        for key, body in entry.bodies:
            _, _, first, shared = rows.get(key, (key, body, entry.run, False))
            rows[key] = (key, body, first, shared or first != entry.run)
    # Sorted, so that two writers lock the rows of bodies that they share in one order, and never wait for each other.
    return [rows[key] for key in sorted(rows)]
