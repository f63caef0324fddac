"""A journal in a SQLite file: a writer's and a reader's connection, each with a thread of its own.

The driver is synchronous, in a thread, because one hop to a thread for a whole batch costs a third of one for every
statement. Invariant: a write transaction takes the file's write lock as it begins (BEGIN IMMEDIATE), every commit is
synced to the disk (WAL, synchronous = FULL), and reading neither waits for writers nor holds them up. A file that
cannot be written (read-only media, another user's journal) is read as it is, and every write to it is refused.
Deliberately absent: aiosqlite.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from shikisha.core.errors import JournalUnavailable
from shikisha.core.fair_work import FairExecutor
from shikisha.journal import make_private
from shikisha.journal.chain import EventBatch
from shikisha.journal.drivers import JournalDriver, redacted_url, translate_store_errors
from shikisha.journal.plain_sqlite import prepare_to_write

T = TypeVar("T")
_WRITING, _READING = "BEGIN IMMEDIATE", "BEGIN"
_SIDE_FILES = ("-wal", "-shm")  # the log, and the index of it


@asynccontextmanager
async def connect(url: URL, patience: float) -> AsyncIterator[JournalDriver]:
    """Open a SQLite file; `patience` is how many seconds to wait for its write lock."""
    with ExitStack() as stack:  # threads end before their connections and engines: what they run is finished first
        if _writable(url):
            with translate_store_errors(redacted_url(url)):
                path = Path(url.database or "")
                if path.parent.is_dir():  # a folder that is absent is somebody's mistake, and SQLite says so
                    make_private(path)
            engines = [_engine(url, patience, begin) for begin in (_WRITING, _READING)]
        else:
            readable = stack.enter_context(_readable(url, patience))
            engines = [_engine(readable, patience, _READING, read_only=True) for _ in (_WRITING, _READING)]
        for engine in engines:
            stack.callback(engine.dispose)
        held = [_HeldConnection(engine) for engine in engines]
        for each in held:
            stack.callback(each.let_go)
        threads = [stack.enter_context(FairExecutor("journal", 1, 0)) for _ in held]
        yield _SQLiteDriver(list(zip(held, threads, strict=True)), redacted_url(url))


def migrate(url: URL, patience: float, work: Callable[[Connection], None]) -> None:
    """Do this work with the write lock held, all of it or nothing."""
    engine = _engine(url, patience, _WRITING)
    try:
        with translate_store_errors(redacted_url(url)), engine.begin() as connection:
            work(connection)
    finally:
        engine.dispose()


class _HeldConnection:
    """An engine's connection, held by the one thread that uses it; a failed transaction replaces it.

    Taking it from a pool each time costs as much as a small commit.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._connection: Connection | None = None

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Run and commit it, alone or not at all."""
        if self._connection is None:
            self._connection = self.engine.connect()
        try:
            with self._connection.begin():
                return work(self._connection)
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Give the connection back."""
        held, self._connection = self._connection, None
        if held is not None:
            held.close()


class _SQLiteDriver:
    """The writer's and the reader's connection and thread."""

    def __init__(self, threads: list[tuple[_HeldConnection, FairExecutor]], where: str) -> None:
        self._writer, self._reader = threads
        self._where = where

    async def write(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._writer, work)

    async def append(self, batch: EventBatch) -> None:
        await self.write(batch.append)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._reader, work)

    async def snapshot(self, work: Callable[[Connection], T]) -> T:
        return await self.read(work)

    async def purge_deleted(self) -> bool:
        held, thread = self._writer
        with translate_store_errors(self._where):
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, _empty_log, held)
            except sqlite3.Error as error:  # SQLAlchemy wraps the driver's errors only in its own transactions
                raise JournalUnavailable(f"journal {self._where}: {error}") from error

    async def _run(self, where: tuple[_HeldConnection, FairExecutor], work: Callable[[Connection], T]) -> T:
        (held, thread), loop = where, asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def perform() -> None:  # `run_in_executor` takes as long to tell of it as a small commit does
            try:
                loop.call_soon_threadsafe(_settle, done, held.transact(work))
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                loop.call_soon_threadsafe(_settle, done, error)

        queued = thread.submit(perform)
        try:
            return await done
        except BaseException:
            queued.cancel()
            with translate_store_errors(self._where):
                raise


def _settle(done: "asyncio.Future[T]", found: T | BaseException) -> None:
    if not done.done():
        done.set_exception(found) if isinstance(found, BaseException) else done.set_result(found)


def _empty_log(held: _HeldConnection) -> bool:
    """Move the write-ahead log into the file and cut it to nothing; False when a reader is in the way."""
    held.let_go()
    pooled = held.engine.raw_connection()  # no transaction: within one there is no checkpoint
    try:
        with closing(pooled.cursor()) as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            blocked = cursor.fetchone()
            return blocked is not None and blocked[0] == 0
    finally:
        pooled.close()


def _writable(url: URL) -> bool:
    """Whether this process may write the file, or create it, and the files that SQLite keeps next to it."""
    path = Path(url.database or "")
    if not path.exists():
        return True
    side_files = [path.with_name(path.name + suffix) for suffix in _SIDE_FILES]
    present = all(each.exists() and _may_write(each) for each in side_files)
    return _may_write(path) and (present or _may_write(path.parent))


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


@contextmanager
def _readable(url: URL, patience: float) -> Iterator[URL]:
    """Yield the URL by which a file that cannot be written is read with everything that was committed to it.

    Next to a log, another process may be writing, or its disk was taken away: SQLite reads both files where it can, and
    otherwise a copy of both is read. Without a log no process writes, and the file alone is read as immutable, because
    SQLite refuses a file in WAL mode whose log it cannot create.
    """
    path = Path(url.database or "").absolute()
    log = path.with_name(path.name + _SIDE_FILES[0])
    plain = url.set(database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"})
    if not log.exists() or not log.stat().st_size:
        yield plain.update_query_dict({"immutable": "1"})
    elif _reads(plain, patience):
        yield plain
    else:
        with TemporaryDirectory(prefix="shikisha-journal-") as folder, translate_store_errors(redacted_url(url)):
            for each in (path, log):
                copyfile(each, Path(folder) / each.name)
            yield url.set(database=str(Path(folder) / path.name))


def _reads(url: URL, patience: float) -> bool:
    engine = _engine(url, patience, _READING, read_only=True)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    except DBAPIError:
        return False
    finally:
        engine.dispose()
    return True


def _engine(url: URL, patience: float, begin: str, *, read_only: bool = False) -> Engine:
    engine = create_engine(
        url,
        pool_size=1,
        max_overflow=0,
        hide_parameters=True,
        connect_args={"timeout": patience, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # transactions begin with the statement below
        with ExitStack() as unless_ready:
            unless_ready.callback(connection.close)
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            else:
                prepare_to_write(connection, patience)
            unless_ready.pop_all()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
