"""A journal in a SQLite file: a writer's and a reader's connection, each with a thread of its own.

The driver is synchronous, in a thread, because one hop to a thread for a whole batch costs a third of one for every
statement. Invariant: a write transaction takes the file's write lock as it begins (BEGIN IMMEDIATE), every commit is
synced to the disk (WAL, synchronous = FULL), and reading neither waits for writers nor holds them up. Deliberately
absent: aiosqlite.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry

from shikisha.errors import JournalUnavailable
from shikisha.journal.drivers import Driver, refusals, shown

T = TypeVar("T")
_WRITING, _READING = "BEGIN IMMEDIATE", "BEGIN"


@asynccontextmanager
async def connect(url: URL, patience: float) -> AsyncIterator[Driver]:
    """Open a SQLite file; `patience` is how many seconds to wait for its write lock."""
    with ExitStack() as stack:  # threads end before their engines: what they run is finished first
        engines = [_engine(url, patience, begin) for begin in (_WRITING, _READING)]
        for engine in engines:
            stack.callback(engine.dispose)
        threads = [stack.enter_context(ThreadPoolExecutor(1, "journal")) for _ in engines]
        driver = _Threaded(engines, threads, shown(url))
        stack.callback(driver.close)
        yield driver


def migrate(url: URL, patience: float, work: Callable[[Connection], None]) -> None:
    """Do this work with the write lock held, all of it or nothing."""
    engine = _engine(url, patience, _WRITING)
    try:
        with refusals(shown(url)):
            _transact(engine, work)
    finally:
        engine.dispose()


class _Held:
    """An engine's connection, held by the one thread that uses it: taking it from a pool each time costs as much as a
    small commit. A transaction that fails lets go of it, and the next one begins with a fresh one."""

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


class _Threaded:
    """The writer's and the reader's connection and thread."""

    def __init__(self, engines: list[Engine], threads: list[ThreadPoolExecutor], where: str) -> None:
        self._writer, self._reader = zip(map(_Held, engines), threads, strict=True)
        self._where = where

    def close(self) -> None:
        """Give the connections back, each in its thread, after what that runs."""
        for held, thread in (self._writer, self._reader):
            thread.submit(held.let_go)

    async def write(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._writer, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._reader, work)

    async def scour(self) -> bool:
        held, thread = self._writer
        with refusals(self._where):
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, _empty_log, held)
            except sqlite3.Error as error:  # beside SQLAlchemy's transactions nobody wraps what the driver raises
                raise JournalUnavailable(f"journal {self._where}: {error}") from error

    async def _run(self, where: tuple[_Held, ThreadPoolExecutor], work: Callable[[Connection], T]) -> T:
        held, thread = where
        with refusals(self._where):
            return await asyncio.get_running_loop().run_in_executor(thread, held.transact, work)


def _transact(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)


def _empty_log(held: _Held) -> bool:
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


def _keep_wal(cursor: DBAPICursor, patience: float) -> None:
    """Put the file in WAL mode, which SQLite refuses at once, without its own waiting, while another opens the file."""
    until = time.monotonic() + patience
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(0.005)


def _engine(url: URL, patience: float, begin: str) -> Engine:
    engine = create_engine(
        url,
        pool_size=1,
        max_overflow=0,
        hide_parameters=True,
        connect_args={"timeout": patience, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # transactions begin as we say below
        with ExitStack() as unless_ready:
            unless_ready.callback(connection.close)
            with closing(connection.cursor()) as cursor:
                _keep_wal(cursor, patience)
                cursor.execute("PRAGMA synchronous = FULL")
                cursor.execute("PRAGMA secure_delete = ON")  # what is erased is not left in free pages
            unless_ready.pop_all()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
