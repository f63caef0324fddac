"""A service whose journal's store can be taken away, held up, and brought back: faults come in at the driver's port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from fresh import fresh
from sqlalchemy import Connection

from shikisha.config.container import load_config
from shikisha.core.errors import JournalUnavailable
from shikisha.core.events import Event
from shikisha.core.task import Task
from shikisha.journal import Journal
from shikisha.journal.chain import EventBatch
from shikisha.journal.drivers import JournalDriver, parse_store_url
from shikisha.journal.drivers import store_module as kind
from shikisha.journal.schema import prepare_tables
from shikisha.server.http.request import RequestOptions
from shikisha.server.keys import KeyManager
from shikisha.server.keys.budgets import KeyBudgets
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun
from shikisha.server.lifecycle.service import RunService
from shikisha.server.store import RunStore
from shikisha.server.store.members import new_member

T = TypeVar("T")
FILE = """
conductor = "fixed:single"
[workers.ann]
kind = "scripted"
answers = "so it is"
{ann}
[server]
lease = 30
drain = 0.2
{end}
"""


@dataclass
class Faulty:
    """A driver in front of another: `away` refuses writes, `before` is awaited once before the next write."""

    driver: JournalDriver
    away: bool = False
    before: Callable[[], Awaitable[object]] | None = None

    async def write(self, work: Callable[[Connection], T]) -> T:
        before, self.before = self.before, None
        if before is not None:
            await before()
        if self.away:
            raise JournalUnavailable("the store is away")
        return await self.driver.write(work)

    async def append(self, batch: EventBatch) -> None:
        await self.write(batch.append)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self.driver.read(work)

    async def snapshot(self, work: Callable[[Connection], T]) -> T:
        return await self.driver.snapshot(work)

    async def purge_deleted(self) -> bool:
        return await self.driver.purge_deleted()


@dataclass
class Kept:
    """A service, its store's driver, and whose runs it performs."""

    service: RunService
    driver: Faulty
    by: Principal
    seen: list[Event] = field(default_factory=list)

    def order(self, **more: object) -> AuthorizedRun:
        """An order of the default conductor."""
        wish = RequestedRun("shikisha", Task("what is it?"), Api.RUNS, RequestOptions({}))
        return replace(self.service.authorizer.authorize(wish, self.by), **more)  # type: ignore[arg-type]  # a test's own

    def when(self, kind_of: type[Event], then: Callable[[Event], object]) -> None:
        """Do something as soon as the first event of a kind is added here."""
        done: list[Event] = []

        def watch(event: Event) -> None:
            if isinstance(event, kind_of) and not done:
                done.append(event)
                then(event)

        self.service.observers.append(watch)

    async def state(self, run: str) -> str:
        """Where a run stands, once all is stored."""
        await self.service.journal.flush()
        return str((await self.service.find_served(run)).state)


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def housed(folder: Path, ann: str = "", end: str = "", url: str = "") -> AsyncIterator[Kept]:
    """Open a service over a store that can fail; two of the same folder (or URL) share a journal."""
    file = folder / "shikisha.toml"
    file.write_text(FILE.format(ann=ann, end=end))
    composition = load_config(file, {})
    location = parse_store_url(url or fresh(str(folder / "journal.db")))
    async with kind(location).connect(location, 1.0) as real, asyncio.TaskGroup() as writing:
        await prepare_tables(location, real, 1.0)
        driver = Faulty(real)
        journal = Journal(driver)
        writing.create_task(journal.run())
        store = RunStore(journal, new_member(30.0))
        await store.join()
        keys = KeyManager(journal)
        service = RunService(composition, journal, store, keys, KeyBudgets(journal, store, keys))
        store.on_expelled(service.expelled)
        await keys.bootstrap()
        (key,) = await keys.keys()
        by = Principal(key.id, key.name, key.tenant, frozenset({KeyScope.ADMIN}))
        async with asyncio.TaskGroup() as group:
            service.enter(group)
            yield Kept(service, driver, by)
            driver.away = False
            await service.close()
        await store.leave()
        journal.stop()
    await composition.aclose()
