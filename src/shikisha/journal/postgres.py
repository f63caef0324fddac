"""A journal in a PostgreSQL database: SQLAlchemy's asyncio engine over asyncpg.

A batch is stored by one call of the function that migration 0006 makes, in one round trip: the chain is computed in
the database, and its head is locked only while that works, not while answers travel. Invariant: writers take turns by
the lock on the head row, which the function and `chain` take first of all. A lock is waited for with patience, a
command twice as long, and no longer. A connection that turns out to be lost is replaced once. Deliberately absent:
anything that needs rights beyond making tables and functions in one's own database.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shikisha.core.errors import MissingExtra
from shikisha.journal.chain import EventBatch
from shikisha.journal.drivers import JournalDriver, redacted_url, translate_store_errors

T = TypeVar("T")
_APPEND = f"SELECT shikisha_append({', '.join(f'${place}' for place in range(1, 16))})"
_REFUSALS = ("22", "23", "42")  # classes of SQLSTATE: data, integrity, syntax and rights
_KEY = 0x5348494B49534841  # of the advisory lock: "SHIKISHA", as other programs lock things there too


@asynccontextmanager
async def connect(url: URL, patience: float) -> AsyncIterator[JournalDriver]:
    """Open a PostgreSQL database; `patience` is how many seconds to wait for a lock."""
    engine = _engine(url, patience)
    try:
        yield _PostgresDriver(engine, redacted_url(url))
    finally:
        await engine.dispose()


def migrate(url: URL, patience: float, work: Callable[[Connection], None]) -> None:
    """Do this work with a lock held that only migrations take, all of it or nothing; call it where no loop runs."""
    with translate_store_errors(redacted_url(url)):
        asyncio.run(_migrate(url, patience, work))


async def _migrate(url: URL, patience: float, work: Callable[[Connection], None]) -> None:
    engine = _engine(url, patience)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _KEY})
            await connection.run_sync(work)
    finally:
        await engine.dispose()


class _PostgresDriver:
    """An engine, and what its errors may say of it."""

    def __init__(self, engine: AsyncEngine, where: str) -> None:
        self._engine = engine
        self._plain = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._still = engine.execution_options(isolation_level="REPEATABLE READ")
        self._where = where

    async def write(self, work: Callable[[Connection], T]) -> T:
        with translate_store_errors(self._where):
            try:
                return await self._transact(work)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
            return await self._transact(work)

    async def append(self, batch: EventBatch) -> None:
        values = batch.call_values()
        if values is None:
            await self.write(batch.append)
            return
        with translate_store_errors(self._where):
            try:
                outcome = await self._autocommit(partial(_call_append, values))
            except DBAPIError as error:
                if str(getattr(error.orig, "sqlstate", None))[:2] not in _REFUSALS:
                    raise
                outcome = None
        if outcome is None:  # a statement is refused, or the function itself: the long way tells which
            await self.write(batch.append)
        else:
            batch.check_called(outcome)

    async def read(self, work: Callable[[Connection], T]) -> T:
        with translate_store_errors(self._where):
            return await self._autocommit(work)

    async def snapshot(self, work: Callable[[Connection], T]) -> T:
        with translate_store_errors(self._where):
            async with self._still.connect() as connection:
                return await connection.run_sync(work)

    async def purge_deleted(self) -> bool:
        return True  # the server's own vacuum and its owner's backups decide when blocks are written again

    async def _autocommit(self, work: Callable[[Connection], T]) -> T:
        """Run it with each statement a transaction of its own: it costs neither BEGIN nor COMMIT their round trips."""
        try:
            async with self._plain.connect() as connection:
                return await connection.run_sync(work)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        async with self._plain.connect() as connection:
            return await connection.run_sync(work)

    async def _transact(self, work: Callable[[Connection], T]) -> T:
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)


def _call_append(values: tuple[object, ...], connection: Connection) -> str:
    return str(connection.exec_driver_sql(_APPEND, values).scalar_one())


def _engine(url: URL, patience: float) -> AsyncEngine:
    try:
        return create_async_engine(
            url,
            hide_parameters=True,
            pool_timeout=patience,
            connect_args={
                "timeout": patience,
                "command_timeout": 2 * patience,
                "server_settings": {"lock_timeout": str(int(1000 * patience)), "application_name": "shikisha"},
            },
        )
    except ModuleNotFoundError as error:
        raise MissingExtra("postgres", "a journal in PostgreSQL") from error
