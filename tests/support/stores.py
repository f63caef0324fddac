"""What the tests of the store share: orders, and a store at a URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Connection, update

from shikisha.journal import Journal, open_journal
from shikisha.journal.schema import MEMBERS
from shikisha.server.store import RunStore, ServedRun, open_store
from shikisha.server.store.members import new_member


def order(run: str, created: float = 1.0, **more: object) -> ServedRun:
    """A run as it is enlisted."""
    first = {"run": run, "tenant": "acme", "key": "k1", "api": "chat", "model": "m", "conductor": "c"}
    return ServedRun(**{**first, "created": created, **more})  # type: ignore[arg-type]


async def there(store: RunStore, run: str) -> ServedRun:
    """A run that is there."""
    found = await store.find(run)
    assert found is not None
    return found


@asynccontextmanager
async def opened(url: str, lease: float = 30.0) -> AsyncIterator[tuple[Journal, RunStore]]:
    """A server's journal and store."""
    async with open_journal(url) as journal, open_store(journal, lease) as store:
        yield journal, store


async def lapse(journal: Journal) -> None:
    """Let every lease have run out long ago."""

    def late(connection: Connection) -> None:
        connection.execute(update(MEMBERS).values(alive_until=0.0))

    await journal.write(late)


@asynccontextmanager
async def silent(url: str, lease: float = 30.0) -> AsyncIterator[tuple[Journal, RunStore]]:
    """The same of a server that gives no sign of life after it joined, and does not leave."""
    async with open_journal(url) as journal:
        store = RunStore(journal, new_member(lease))
        await store.join()
        yield journal, store
