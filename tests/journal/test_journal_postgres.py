"""A journal in PostgreSQL holds what one in SQLite does, and several processes may write to it at once."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic

import pytest
from journals import answered, finished, keep, started, whole
from paths import SUPPORT
from postgres import Cluster, cluster
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

import shikisha.journal.postgres as postgres_store
from shikisha.core.errors import JournalUnavailable, ServerFenced
from shikisha.core.events import RunStatus
from shikisha.journal import open_journal
from shikisha.journal.chain import EventBatch, RowStatement, TransactionWork
from shikisha.journal.codec import encode_event
from shikisha.journal.drivers import parse_store_url
from shikisha.server.store.members import new_member

pytestmark = pytest.mark.postgres


@dataclass(frozen=True)
class Adds:
    """A work that adds a row, as a function and as a statement that may be another."""

    told: object
    sql: str = "INSERT INTO tally SELECT told FROM jsonb_to_recordset($1) AS given(told text)"

    def __call__(self, connection: Connection) -> None:
        connection.execute(text("INSERT INTO tally VALUES (:told)"), {"told": str(self.told)})

    def statements(self) -> tuple[RowStatement, ...]:
        return (RowStatement(self.sql, [{"told": self.told}]),)


LIVES = [sys.executable, str(SUPPORT / "journal_process.py")]
NAMES = count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.fixture
def database(postgres: Cluster) -> str:
    """A fresh database's name."""
    name = f"journal{next(NAMES)}"
    postgres.sql("postgres", f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def postgres_url(postgres: Cluster, database: str) -> str:
    return postgres.url(database)


async def test_runs_are_kept_listed_exported_and_verified(postgres_url: str) -> None:
    async with open_journal(postgres_url) as journal:
        await keep(journal, whole("one") + whole("two", parent="one", answer="半分\ud83d\0"))
        journal.add(started("three"))
        assert await journal.read("two") == tuple(whole("two", parent="one", answer="半分\ud83d\0"))
        assert [run.id for run in await journal.runs()] == ["three", "two", "one"]
        assert [run.id for run in await journal.runs(status=RunStatus.RUNNING)] == ["three"]
        assert [run.id for run in await journal.children("one")] == []  # it began after one had ended
        assert len([line async for line in journal.export()]) == 13
        assert (await journal.verify()).count == 13


async def test_both_stores_make_the_same_chain(postgres_url: str, tmp_path: Path) -> None:
    hashes = []
    for url in (postgres_url, str(tmp_path / "journal.db")):
        async with open_journal(url) as journal:
            await keep(journal, whole("r", answer="半分\ud83d\0"))
            hashes.append((await journal.verify()).hash)
    assert hashes[0] == hashes[1]


async def test_a_batch_whose_answer_was_lost_is_stored_once_and_another_is_not_taken_for_it(postgres_url: str) -> None:
    entries = [encode_event(event) for event in whole("r", answer="It.")]
    location = parse_store_url(postgres_url)
    async with open_journal(postgres_url) as journal, postgres_store.connect(location, 5.0) as driver:
        for number in (1, 1, 2):  # the second is the first again; the third is new
            await driver.append(EventBatch(list(entries), writer="w", number=number))
        again = EventBatch(list(entries), writer="w", number=3)
        await driver.append(again)
        again.careful = True  # as if a work had been refused: the long way knows that the call has stored it
        await driver.append(again)
        verified = await journal.verify()
        assert (verified.ok, verified.count) == (True, 3 * len(entries))


@pytest.mark.parametrize(
    ("change", "works"),
    [
        ("DROP FUNCTION shikisha_append", ()),
        ("SELECT 1", (Adds("one"), Adds("two"))),
        ("SELECT 1", (Adds("one"), Adds("not a column", sql="INSERT INTO tally SELECT nothing FROM nowhere"))),
        ("SELECT 1", (Adds("one"), lambda connection: Adds("two")(connection))),
        ("SELECT 1", (Adds(float("inf")), Adds("two"))),
    ],
    ids=["no function", "statements", "a refused statement", "a function", "a number that JSON lacks"],
)
async def test_works_are_done_once_whichever_way_a_batch_is_stored(
    postgres: Cluster, database: str, postgres_url: str, change: str, works: tuple[TransactionWork, ...]
) -> None:
    async with open_journal(postgres_url) as journal:
        postgres.sql(database, "CREATE TABLE tally (told text)")
        postgres.sql(database, change)
        for work in works:
            journal.add_work(work)
        await keep(journal, whole("r"))
        assert await journal.read("r") == tuple(whole("r"))
        assert (await journal.verify()).ok
        assert postgres.sql(database, "SELECT count(*) FROM tally") == str(len(works))


async def test_a_member_that_was_marked_dead_stores_nothing(
    postgres: Cluster, database: str, postgres_url: str
) -> None:
    member = new_member(30.0)
    async with open_journal(postgres_url) as journal:
        await journal.write(member.join)
        told: list[str] = []
        journal.admit(member, lambda: told.append("stop"))
        await keep(journal, [started("r")])
        postgres.sql(database, "UPDATE members SET state = 'dead'")
        with pytest.raises(ServerFenced, match=member.id):
            await keep(journal, [finished("r")])
        assert (told, postgres.sql(database, "SELECT count(*) FROM events")) == (["stop"], "1")


async def test_servers_that_append_at_once_make_one_chain(postgres_url: str) -> None:
    async def append(name: str) -> None:
        async with open_journal(postgres_url) as journal:
            for number in range(10):
                await keep(journal, whole(f"{name}{number}", answer="the same text"))

    async with open_journal(postgres_url) as journal:
        await asyncio.gather(*(append(name) for name in "abcd"))
        assert ((await journal.verify()).ok, len(await journal.runs(limit=100))) == (True, 40)


@pytest.mark.full
async def test_several_processes_share_one_journal(postgres_url: str) -> None:
    names = ("ann", "bob", "cyd")
    live = [[*LIVES, postgres_url, f"{name}-", "20"] for name in names]
    processes = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL) for command in live]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    async with open_journal(postgres_url) as journal:
        assert (await journal.verify()).ok
        for run in (f"{name}-{number}" for name in names for number in range(20)):
            assert await journal.read(run) == tuple(whole(run))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET at = at + 1 WHERE seq = 2",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events WHERE seq = 5",
        "UPDATE bodies SET body = 'x'",
        "DELETE FROM head",
    ],
)
async def test_what_was_done_behind_its_back_is_found(
    postgres: Cluster, database: str, postgres_url: str, change: str
) -> None:
    async with open_journal(postgres_url) as journal:
        await keep(journal, whole("r"))
        postgres.sql(database, change)
        assert not (await journal.verify()).ok


async def test_a_connection_that_was_lost_is_replaced(postgres: Cluster, database: str, postgres_url: str) -> None:
    async with open_journal(postgres_url) as journal:
        await keep(journal, [started("r")])
        others = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"  # noqa: S608
        postgres.sql("postgres", others)
        await keep(journal, [finished("r")])
        postgres.sql("postgres", others)
        assert await journal.read("r") == (started("r"), finished("r"))


async def test_a_locked_journal_refuses_in_time_and_loses_nothing(postgres_url: str) -> None:
    engine = create_async_engine(parse_store_url(postgres_url))
    async with open_journal(postgres_url, patience=0.3) as journal:
        await keep(journal, [started("r")])
        async with engine.begin() as connection:
            await connection.execute(text("SELECT * FROM head FOR UPDATE"))
            begun = monotonic()
            with pytest.raises(JournalUnavailable, match="lock timeout"):
                await keep(journal, [finished("r")])
            assert 0.3 <= monotonic() - begun < 10.0
        await journal.flush()
        assert await journal.read("r") == (started("r"), finished("r"))
    await engine.dispose()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO head VALUES (0, NULL)",
        "SELECT 1 / 0",
        "SELECT convert_from('\\xff', 'UTF8')",
        "SELECT * FROM nowhere",
    ],
)
async def test_a_work_that_is_refused_for_what_it_says_holds_up_nobody(postgres_url: str, statement: str) -> None:
    async with open_journal(postgres_url) as journal:

        def work(connection: Connection) -> None:
            connection.execute(text(statement))

        journal.add_work(work)
        await keep(journal, [started("r")])
        assert await journal.read("r") == (started("r"),)


async def test_many_that_open_a_fresh_database_at_once_all_succeed(postgres_url: str) -> None:
    async def open_and_add(run: str) -> None:
        async with open_journal(postgres_url) as journal:
            await keep(journal, [started(run)])

    await asyncio.gather(*(open_and_add(f"r{number}") for number in range(4)))
    async with open_journal(postgres_url) as journal:
        assert (await journal.verify()).count == 4


async def test_a_server_that_is_away_refuses_and_is_taken_up_again(postgres: Cluster, postgres_url: str) -> None:
    async with open_journal(postgres_url, patience=1.0) as journal:
        await keep(journal, [started("r")])
        postgres.server("stop", "-m", "immediate")
        with pytest.raises(JournalUnavailable):
            await keep(journal, [answered("r", "It.")])
        with pytest.raises(JournalUnavailable):
            async with open_journal(postgres_url):
                pass
        postgres.start()
        await keep(journal, [finished("r")])
        assert await journal.read("r") == (started("r"), answered("r", "It."), finished("r"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("/journal", "/nowhere"), "does not exist"),
        (("postgres@", "nobody:secret-word@"), "nobody"),
        (("?host", "x?password=secret-word&host"), "journal postgresql.*does not exist"),
    ],
)
async def test_a_database_that_does_not_let_us_in_says_why_without_the_password(
    postgres_url: str, change: tuple[str, str], why: str
) -> None:
    with pytest.raises(JournalUnavailable, match=why) as caught:
        async with open_journal(postgres_url.replace(*change)):
            pass
    assert "secret-word" not in str(caught.value)
