"""The writer keeps order, stores whole batches and works once, and loses nothing when the store takes none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from journals import answered, behind, finished, started, whole
from sqlalchemy import Connection, text

from shikisha.core.errors import JournalUnavailable, ServerFenced
from shikisha.core.events import Event
from shikisha.journal import queries
from shikisha.journal.chain import EventBatch
from shikisha.journal.drivers import JournalDriver, parse_store_url
from shikisha.journal.schema import prepare_tables
from shikisha.journal.sqlite import connect
from shikisha.journal.writer import MAX_WAITING_EVENTS, JournalWriter

T = TypeVar("T")


class Unreliable:
    """A driver that does what its store does, but for the faults it is told to make."""

    def __init__(self, driver: JournalDriver) -> None:
        self._driver = driver
        self.refuses = False
        self.loses_answers = 0
        self.writes = 0

    async def write(self, work: Callable[[Connection], T]) -> T:
        self.writes += 1
        if self.refuses:
            raise JournalUnavailable("no room")
        result = await self._driver.write(work)
        if self.loses_answers:
            self.loses_answers -= 1
            raise JournalUnavailable("connection lost")
        return result

    async def append(self, batch: EventBatch) -> None:
        await self.write(batch.append)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._driver.read(work)

    async def snapshot(self, work: Callable[[Connection], T]) -> T:
        return await self._driver.snapshot(work)

    async def purge_deleted(self) -> bool:
        return await self._driver.purge_deleted()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[JournalWriter, Unreliable]]:
    url = parse_store_url(str(path / "journal.db"))
    async with connect(url, 1.0) as driver:
        await prepare_tables(url, driver, 1.0)
        store = Unreliable(driver)
        writer = JournalWriter(store)
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            yield writer, store
            writer.stop()


async def stored(store: Unreliable, run: str) -> list[Event]:
    return list(await store.read(partial(queries.read_events, run=run)))


def add(writer: JournalWriter, *events: Event) -> None:
    for event in events:
        writer.add(event)


async def test_flushing_nothing_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        await writer.flush()
        assert store.writes == 0


async def test_a_hundred_flushes_at_once_are_one_commit(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        for number in range(100):
            writer.add(started(f"r{number}"))
        await asyncio.gather(*(writer.flush() for _ in range(100)))
        assert store.writes == 1


async def test_what_a_full_store_refuses_is_kept_in_order_and_stored_with_the_next_flush(tmp_path: Path) -> None:
    events = whole("r")
    async with opened(tmp_path) as (writer, store):
        add(writer, *events[:2])
        await writer.flush()
        store.refuses = True
        for event in events[2:4]:
            writer.add(event)
            with pytest.raises(JournalUnavailable, match="no room"):
                await writer.flush()
        assert await stored(store, "r") == events[:2]
        store.refuses = False
        add(writer, *events[4:])
        await writer.flush()
        assert await stored(store, "r") == events


async def test_everyone_who_waits_is_told_that_the_store_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        store.refuses = True
        writer.add(started("r"))
        told = await asyncio.gather(*(writer.flush() for _ in range(5)), return_exceptions=True)
        assert [str(error) for error in told] == ["no room"] * 5
        store.refuses = False


async def test_a_flush_after_a_refusal_is_not_taken_for_done(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        store.refuses = True
        writer.add(started("r"))
        for _ in range(2):  # nothing was added in between, and still nothing is durable
            with pytest.raises(JournalUnavailable):
                await writer.flush()
        store.refuses = False
        await writer.flush()
        assert await stored(store, "r") == [started("r")]


async def test_a_commit_whose_answer_was_lost_is_not_made_twice(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        store.loses_answers = 1
        writer.add(started("r"))
        with pytest.raises(JournalUnavailable, match="lost"):
            await writer.flush()
        writer.add(finished("r"))
        await writer.flush()
        assert await stored(store, "r") == [started("r"), finished("r")]


async def test_new_runs_are_refused_while_too_many_events_wait_and_taken_once_there_is_room(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        store.refuses = True
        add(writer, *(answered("old", f"{number}") for number in range(MAX_WAITING_EVENTS)))
        with pytest.raises(JournalUnavailable, match="no room"):
            await writer.flush()
        writer.add(finished("old"))  # what happened in a run under way is kept
        with pytest.raises(JournalUnavailable, match=f"no new run while {MAX_WAITING_EVENTS + 1} events wait"):
            writer.add(started("new"))
        store.refuses = False
        with pytest.raises(JournalUnavailable):
            writer.add(started("new"))  # this woke the writer up
        await writer.flush()
        writer.add(started("new"))
        await writer.flush()
        assert len(await stored(store, "old")) == MAX_WAITING_EVENTS + 1
        assert await stored(store, "new") == [started("new")]


async def test_stopping_stores_the_rest_though_nobody_flushed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, _):
        writer.add(started("r"))
    assert writer.left == 0


async def test_stopping_before_a_store_that_refuses_gives_up_after_one_try(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        store.refuses = True
        writer.add(started("r"))
        writer.stop()
    assert (writer.left, store.writes) == (1, 1)


async def test_an_event_that_cannot_be_encoded_leaves_the_others_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, store):
        writer.add(started("r"))
        with pytest.raises(ValueError, match="printable"):
            writer.add(started(""))
        await writer.flush()
        assert await stored(store, "r") == [started("r")]


def counts(connection: Connection) -> None:
    connection.execute(text("UPDATE tally SET number = number + 1"))


def clashes(connection: Connection) -> None:
    counts(connection)
    connection.execute(text("INSERT INTO tally VALUES (1, 0)"))


@asynccontextmanager
async def tallying(path: Path) -> AsyncIterator[tuple[JournalWriter, Unreliable]]:
    async with opened(path) as (writer, store):

        def make(connection: Connection) -> None:
            connection.execute(text("CREATE TABLE tally (id INTEGER PRIMARY KEY, number INTEGER)"))
            connection.execute(text("INSERT INTO tally VALUES (1, 0)"))

        await store.write(make)
        yield writer, store


async def tally(store: Unreliable) -> object:
    return await store.read(lambda connection: connection.execute(text("SELECT number FROM tally")).scalar_one())


async def test_works_go_with_the_events_around_them_in_one_commit(tmp_path: Path) -> None:
    async with tallying(tmp_path) as (writer, store):
        before = store.writes
        writer.add(started("r"))
        writer.add_work(counts)
        writer.add(finished("r"))
        writer.add_work(counts)
        await writer.flush()
        assert (store.writes - before, await tally(store)) == (1, 2)


@pytest.mark.parametrize("events", [[], [started("r")]])
async def test_a_work_is_done_once_though_answers_are_lost(tmp_path: Path, events: list[Event]) -> None:
    async with tallying(tmp_path) as (writer, store):
        store.loses_answers = 2
        writer.add_work(counts)
        add(writer, *events)
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match="lost"):
                await writer.flush()
        writer.add_work(counts)
        await writer.flush()
        assert await tally(store) == 2


async def test_a_work_that_the_store_refuses_is_left_out_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tallying(tmp_path) as (writer, store):
        writer.add_work(counts)
        writer.add_work(clashes)
        writer.add(started("r"))
        await writer.flush()
        assert await tally(store) == 1
        assert await stored(store, "r") == [started("r")]
        assert "left out: UNIQUE constraint failed" in caplog.text


async def test_hooks_are_asked_at_every_cut_and_at_the_end(tmp_path: Path) -> None:
    due = [counts]
    async with tallying(tmp_path) as (writer, store):
        writer.on_batch(lambda: [due.pop()] if due else [])
        writer.add(started("r"))
        await writer.flush()
        assert (due, await tally(store)) == ([], 1)
        due.append(counts)
    with behind(tmp_path / "journal.db") as connection:
        assert connection.execute("SELECT number FROM tally").fetchone() == (2,)
    assert writer.left == 0


async def test_an_expelled_writer_drops_everything_and_tells_who_is_to_stop_before_who_waits(tmp_path: Path) -> None:
    told: list[str] = []

    def dead(_: Connection) -> None:
        raise ServerFenced("taken for dead")

    async def wait(writer: JournalWriter) -> None:
        with pytest.raises(ServerFenced, match="taken for dead"):
            await writer.flush()
        told.append("waited")

    async with tallying(tmp_path) as (writer, store):
        writer.admit(dead, lambda: told.append("stop"))
        writer.add_work(counts)
        writer.add(started("r"))
        await asyncio.gather(wait(writer), wait(writer))
        assert told == ["stop", "waited", "waited"]
        for use in (partial(writer.add, finished("r")), partial(writer.add_work, counts)):
            with pytest.raises(ServerFenced):
                use()
        with pytest.raises(ServerFenced):
            await writer.flush()
        writer.admit(lambda _: None, lambda: None)
        writer.add(started("new"))
        await writer.flush()
        assert (await tally(store), await stored(store, "new")) == (0, [started("new")])
