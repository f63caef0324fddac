"""A house whose journal's store can be taken away, held up, and brought back: faults come in at the driver's port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from fresh import fresh
from shikisha.config.load import load
from shikisha.errors import JournalUnavailable
from shikisha.events import Event
from shikisha.journal import Journal
from shikisha.journal.drivers import Driver
from shikisha.journal.schema import prepare
from shikisha.journal.stores import locate
from shikisha.journal.stores import store as kind
from shikisha.journal.writer import Writer
from shikisha.server.house import House
from shikisha.server.keys import KeyKeeper
from shikisha.server.narrowing import Narrowing
from shikisha.server.ordering import Wish
from shikisha.server.orders import Api, Order
from shikisha.server.principal import Principal, Scope
from shikisha.server.purses import Purses
from shikisha.server.store import Store
from shikisha.server.store.members import new_member
from shikisha.task import Task

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

    driver: Driver
    away: bool = False
    before: Callable[[], Awaitable[object]] | None = None

    async def write(self, work: Callable[[Connection], T]) -> T:
        before, self.before = self.before, None
        if before is not None:
            await before()
        if self.away:
            raise JournalUnavailable("the store is away")
        return await self.driver.write(work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self.driver.read(work)

    async def scour(self) -> bool:
        return await self.driver.scour()


@dataclass
class Kept:
    """A house, its store's driver, and whose runs it performs."""

    house: House
    driver: Faulty
    by: Principal
    seen: list[Event] = field(default_factory=list)

    def order(self, **more: object) -> Order:
        """An order of the default conductor."""
        wish = Wish("shikisha", Task("what is it?"), Api.RUNS, Narrowing({}))
        return replace(self.house.ordering.order(wish, self.by), **more)  # type: ignore[arg-type]  # a test's own

    def when(self, kind_of: type[Event], then: Callable[[Event], object]) -> None:
        """Do something as soon as the first event of a kind is added here."""
        done: list[Event] = []

        def watch(event: Event) -> None:
            if isinstance(event, kind_of) and not done:
                done.append(event)
                then(event)

        self.house.watchers.append(watch)

    async def state(self, run: str) -> str:
        """Where a run stands, once all is stored."""
        await self.house.journal.flush()
        return str((await self.house.served(run)).state)


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def housed(folder: Path, ann: str = "", end: str = "", url: str = "") -> AsyncIterator[Kept]:
    """Open a house over a store that can fail; two of the same folder (or URL) share a journal."""
    file = folder / "shikisha.toml"
    file.write_text(FILE.format(ann=ann, end=end))
    composition = load(file, {})
    location = locate(url or fresh(str(folder / "journal.db")))
    async with kind(location).connect(location, 1.0) as real, asyncio.TaskGroup() as writing:
        await prepare(location, real, 1.0)
        driver = Faulty(real)
        writer = Writer(driver)
        writing.create_task(writer.run())
        journal = Journal(driver, writer)
        store = Store(journal, new_member(30.0))
        await store.join()
        keys = KeyKeeper(journal)
        house = House(composition, journal, store, keys, Purses(journal, store, keys))
        store.on_expelled(house.expelled)
        await keys.bootstrap()
        (key,) = await keys.keys()
        by = Principal(key.id, key.name, key.tenant, frozenset({Scope.ADMIN}))
        async with asyncio.TaskGroup() as group:
            house.enter(group)
            yield Kept(house, driver, by)
            driver.away = False
            await house.close()
        await store.leave()
        writer.stop()
    await composition.aclose()
