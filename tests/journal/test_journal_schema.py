"""A store's tables are made, brought up to date, or left alone, under its lock."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from journals import behind, keep, started, whole
from paths import SUPPORT
from sqlalchemy import Connection, insert, select, text

import shikisha.journal.migrations
import shikisha.server.keys.key_tables  # the tables of keys are declared there
from shikisha.core.errors import JournalError
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.journal import open_journal
from shikisha.journal.chain import GENESIS, chain_hash
from shikisha.journal.codec import EncodedEvent, encode_event
from shikisha.journal.drivers import parse_store_url
from shikisha.journal.run_index import index_progress
from shikisha.journal.schema import EVENTS, METADATA, RUNS, prepare_tables, table_revision, upgrade_tables
from shikisha.journal.sqlite import connect
from shikisha.journal.stored_events import CURRENT_REVISION

MIGRATIONS = Path(shikisha.journal.migrations.__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


async def test_the_migrations_make_the_tables_that_are_declared(path: Path) -> None:
    def differences(connection: Connection) -> list[object]:
        found = compare_metadata(MigrationContext.configure(connection), METADATA)
        made_otherwise = ("alembic_version", "run_words")  # the second is SQLite's word index, with tables of its own
        return [each for each in found if not any(name in str(each) for name in made_otherwise)]

    url = parse_store_url(str(path))
    async with connect(url, 1.0) as driver:
        await prepare_tables(url, driver, 1.0)
        assert await driver.read(differences) == []


def test_the_newest_migration_is_the_current_version() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == CURRENT_REVISION


async def test_an_older_store_is_upgraded_and_keeps_its_events(path: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    (older / "versions").mkdir(parents=True)
    (older / "versions" / "v0001.py").write_text((MIGRATIONS / "versions" / "v0001.py").read_text())
    entries = [encode_event(event) for event in whole("old")]
    async with connect(parse_store_url(str(path)), 1.0) as driver:
        await driver.write(lambda connection: upgrade_tables(connection, older))
        assert await driver.read(table_revision) == "0001"
        await driver.write(partial(as_version_1, entries))
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("new"))
        assert (await journal.verify()).count == 2 * len(entries)
        assert await journal.read("old") == tuple(whole("old"))
    async with connect(parse_store_url(str(path)), 1.0) as driver:
        assert await driver.read(table_revision) == CURRENT_REVISION


async def test_the_index_reads_again_what_a_model_graded_and_nothing_before_it(path: Path) -> None:
    said = AnswerGraded(run="m", at=10.0, checker="judge", mark=GradeMark.RIGHT, score=1.0, judged=True)
    async with open_journal(str(path)) as journal:
        await keep(journal, [*whole("p"), *whole("m"), said, *whole("later")])
        await journal.index()
    with behind(path) as connection:  # as version 10 left it
        connection.execute("ALTER TABLE runs DROP COLUMN judged")
        for name in ("judged", "judged_good"):
            connection.execute(f"ALTER TABLE run_days DROP COLUMN {name}")
        connection.execute("DROP TABLE views")
        connection.execute("UPDATE alembic_version SET version_num = '0010'")
    async with open_journal(str(path)) as journal:
        assert (await journal.query(index_progress)).indexed == 2 * len(whole("p"))
        marked = select(RUNS.c.run).where(RUNS.c.judged)
        assert not await journal.query(lambda connection: connection.execute(marked).all())
        assert (await journal.index()).complete
        assert await journal.query(lambda connection: connection.execute(marked).scalars().all()) == ["m"]


def as_version_1(entries: list[EncodedEvent], connection: Connection) -> None:
    """Write these events as the first version did."""
    last = GENESIS
    for seq, entry in enumerate(entries):
        last = chain_hash(last, seq, entry.tail)
        values = {"seq": seq, "run": entry.run, "kind": entry.kind, "at": entry.at, "data": entry.data, "hash": last}
        connection.execute(insert(EVENTS).values(values))
        for key, body in entry.bodies:
            if not connection.execute(text("SELECT 1 FROM bodies WHERE hash = :key"), {"key": key}).first():
                connection.execute(text("INSERT INTO bodies VALUES (:key, :body)"), {"key": key, "body": body})
    connection.execute(text("UPDATE head SET count = :count, hash = :hash"), {"count": len(entries), "hash": last})


async def test_a_newer_store_is_refused_and_left_as_it_is(path: Path) -> None:
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("r"))
    with behind(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(JournalError, match=r"version 9999, and this Shikisha knows them up to"):
        async with open_journal(str(path)):
            pass
    with behind(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


async def test_a_server_that_runs_goes_on_when_a_newer_one_has_migrated_and_no_more_of_its_version_start(
    path: Path,
) -> None:
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("before"))
        with behind(path) as connection:  # what a newer version may do: add
            connection.execute("CREATE TABLE later (x TEXT)")
            connection.execute("ALTER TABLE served ADD COLUMN more TEXT")
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        await keep(journal, whole("after"))
        assert [run.id for run in await journal.runs()] == ["after", "before"]
        assert (await journal.verify()).ok
        with pytest.raises(JournalError, match="version 9999"):
            async with open_journal(str(path)):
                pass


@pytest.mark.parametrize(
    ("version", "step"),
    [("UPDATE alembic_version SET version_num = '0006'", "0007"), ("DELETE FROM alembic_version", "0001")],
)
async def test_tables_that_were_migrated_by_half_are_refused_and_left_as_they_are(
    path: Path, version: str, step: str
) -> None:
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("r"))
    with behind(path) as connection:
        connection.execute(version)
        before = connection.execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(JournalError, match=rf"the step to {step} does not fit them \(table \w+ already exists\)"):
        async with open_journal(str(path)):
            pass
    with behind(path) as connection:
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == before
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (len(whole("r")),)


async def test_a_process_that_dies_in_a_migration_leaves_the_store_as_it_was(path: Path) -> None:
    script = (
        "import os, sys; from shikisha.journal.drivers import parse_store_url, store_module\n"
        "from shikisha.journal.schema import upgrade_tables\n"
        "def work(connection):\n upgrade_tables(connection); os._exit(9)\n"
        f"url = parse_store_url({str(path)!r}); store_module(url).migrate(url, 5.0, work)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await process.wait() == 9
    async with connect(parse_store_url(str(path)), 1.0) as driver:
        assert await driver.read(table_revision) is None
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("r"))
        assert (await journal.verify()).ok


async def test_many_that_open_a_fresh_store_at_once_all_succeed(path: Path) -> None:
    async def open_and_add(run: str) -> None:
        async with open_journal(str(path)) as journal:
            await keep(journal, [started(run)])

    await asyncio.gather(*(open_and_add(f"r{number}") for number in range(8)))
    async with open_journal(str(path)) as journal:
        assert (await journal.verify()).count == 8


@pytest.mark.full
async def test_processes_that_open_a_fresh_store_at_once_all_succeed(path: Path) -> None:
    command = [sys.executable, str(SUPPORT / "journal_process.py"), str(path)]
    processes = [
        await asyncio.create_subprocess_exec(*command, f"{number}-", "4", stdout=subprocess.DEVNULL)
        for number in range(4)
    ]
    assert [await process.wait() for process in processes] == [0] * 4
    async with open_journal(str(path)) as journal:
        assert (await journal.verify()).count == 4 * 4 * 6


@pytest.mark.parametrize("fresh", [True, False])
async def test_alembic_is_imported_only_when_there_is_something_to_do(path: Path, fresh: bool) -> None:
    if not fresh:
        async with open_journal(str(path)):
            pass
    script = (
        "import asyncio, sys; from shikisha.journal import open_journal\n"
        f"async def main():\n async with open_journal({str(path)!r}): pass\n"
        "asyncio.run(main()); print('alembic' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    assert (await process.communicate())[0].decode().strip() == str(fresh)
