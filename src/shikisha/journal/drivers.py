"""How a journal's store is reached, whichever it is; which kind a URL or a path names, and what a store may refuse.

A driver (`sqlite`, `postgres`) takes a function of a SQLAlchemy connection and runs it in one transaction, so every
query is written once, and synchronously. Invariants: what the store or the network refuses is JournalUnavailable, whose
message holds neither parameters nor passwords, and only the kind in use is imported (PostgreSQL's takes as long to
import as all the rest). Deliberately absent: in-memory SQLite (there is `recorder.MemoryRecorder`).
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol, TypeVar

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shikisha.core.errors import ConfigError, JournalUnavailable
from shikisha.journal.chain import EventBatch

T = TypeVar("T")


class JournalDriver(Protocol):
    """Runs functions of a connection, each in a transaction."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run and commit it; once it has read the head row, no other writer of any process comes between."""
        ...

    async def append(self, batch: EventBatch) -> None:
        """Store a batch of events, all of it or nothing; tried again after a lost answer it is stored once."""
        ...

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run it; it sees what is committed."""
        ...

    async def snapshot(self, work: Callable[[Connection], T]) -> T:
        """Run a work that only reads; all its statements see one moment of the store."""
        ...

    async def purge_deleted(self) -> bool:
        """Leave nothing of what was deleted in the store's files; False when a reader prevented that."""
        ...


def redacted_url(url: URL) -> str:
    """Return the URL as error messages may show it: without passwords."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    return str(url.set(drivername=url.get_backend_name()).difference_update_query(["password"]))


@contextmanager
def translate_store_errors(where: str) -> Iterator[None]:
    """Turn what a store refuses into JournalUnavailable; the message holds neither parameters nor passwords."""
    try:
        yield
    except DBAPIError as error:
        raise JournalUnavailable(f"journal {where}: {error.orig}") from error
    except (OSError, PoolTimeout, sqlite3.Error) as error:
        raise JournalUnavailable(f"journal {where}: {error or type(error).__name__}") from error


class StoreModule(Protocol):
    """A kind of store: the module `sqlite` or `postgres`."""

    def connect(self, url: URL, patience: float) -> AbstractAsyncContextManager[JournalDriver]:
        """Open the store; `patience` is how many seconds to wait for a lock."""
        ...

    def migrate(self, url: URL, patience: float, work: Callable[[Connection], None]) -> None:
        """Do this work, all or nothing, under a lock against other migrations; call it where no event loop runs."""
        ...


def store_module(url: URL) -> StoreModule:
    """Return the kind of store that a located URL names; each is imported when it is first asked for."""
    if url.get_backend_name() == "postgresql":
        from shikisha.journal import postgres

        return postgres
    from shikisha.journal import sqlite

    return sqlite


def parse_store_url(url: str) -> URL:
    """Return the store that a URL or the plain path of a SQLite file names; ConfigError when there is no such kind."""
    try:
        location = make_url(url) if "://" in url else URL.create("sqlite", database=url)
    except ArgumentError as error:
        raise ConfigError(f"journal: {url.split('@')[-1]!r} is neither a path nor a database URL") from error
    match location.get_backend_name():
        case "sqlite" if location.database and not location.database.startswith(":memory:"):
            return location.set(drivername="sqlite+pysqlite")
        case "postgresql" | "postgres":
            return location.set(drivername="postgresql+asyncpg")
        case "sqlite":
            raise ConfigError("journal: SQLite needs the path of a file, as in sqlite:///journal.db")
        case other:
            raise ConfigError(f"journal: no store of kind {other!r}; known are sqlite and postgresql")
