"""A locked or full store, and a killed process: new runs are refused, and what was acknowledged is there."""

import asyncio
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pytest
from journals import answered, behind, finished, keep, started, whole
from paths import SUPPORT

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.errors import JournalUnavailable
from shikisha.journal import Journal, open_journal, sqlite
from shikisha.journal.drivers import parse_store_url
from support import TASK, engine, member, plan_of, pool_of, seen

LIVES = [sys.executable, str(SUPPORT / "journal_process.py")]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock of a journal's file."""
    with behind(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


async def test_a_locked_journal_refuses_in_time_and_loses_nothing(path: Path) -> None:
    async with open_journal(str(path), patience=0.2) as journal:
        await keep(journal, [started("r")])
        begun = monotonic()
        with locked(path), pytest.raises(JournalUnavailable, match="locked"):
            await keep(journal, [finished("r")])
        assert 0.2 <= monotonic() - begun < 10.0
        await journal.flush()
        assert await journal.read("r") == (started("r"), finished("r"))


async def test_a_lock_that_goes_away_in_time_is_waited_for(path: Path) -> None:
    async with open_journal(str(path)) as journal:
        journal.add(started("r"))
        with locked(path):
            flush = asyncio.create_task(journal.flush())
            await asyncio.sleep(0.3)
            assert not flush.done()
        await flush


async def test_reading_goes_on_while_the_journal_is_locked(path: Path) -> None:
    async with open_journal(str(path), patience=0.2) as journal:
        await keep(journal, whole("r"))
        with locked(path):
            assert await journal.read("r") == tuple(whole("r"))
            assert (await journal.verify()).ok


async def test_leaving_says_when_events_could_not_be_stored(path: Path) -> None:
    async def add_while_locked(stack: ExitStack) -> None:
        async with open_journal(str(path), patience=0.1) as journal:
            await keep(journal, [started("r")])
            stack.enter_context(locked(path))
            journal.add(finished("r"))

    with ExitStack() as stack, pytest.raises(JournalUnavailable, match="1 events could not be stored"):
        await add_while_locked(stack)


async def test_a_run_that_cannot_be_kept_is_refused_before_anything_is_done_for_it(path: Path) -> None:
    ann = member("ann", "A")
    async with open_journal(str(path), patience=0.1) as journal:
        with locked(path), pytest.raises(JournalUnavailable):
            await engine(journal).run(TASK, pool_of(ann), ScriptedConductor([plan_of((0, ()))]))
        assert not seen(ann)
        run = await engine(journal).run(TASK, pool_of(ann), ScriptedConductor([plan_of((0, ()))]))
        assert (run.answer, len(seen(ann))) == ("A", 1)


@pytest.mark.parametrize("name", ["absent/journal.db", "text.db"])
async def test_a_store_that_cannot_be_opened_is_unavailable(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.db").write_text("This is no database, whatever its name says. " * 99)
    with pytest.raises(JournalUnavailable, match=name):
        async with open_journal(str(tmp_path / name)):
            pass


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)  # noqa: S603 - the system's own command
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)  # noqa: S603, S607 - the same


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Leave no room on a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    yield
    filler.unlink()


@contextmanager
def no_file_may_grow_beyond(size: int) -> Iterator[None]:
    """Have the system refuse what is written after this place in any file of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def check_refuses_and_recovers(journal: Journal, no_room: AbstractContextManager[None]) -> None:
    await keep(journal, whole("before"))
    with no_room:
        with pytest.raises(JournalUnavailable):
            await keep(journal, [answered("old", "x" * 500_000)])
        with pytest.raises(JournalUnavailable):
            await keep(journal, [started("new")])
    await keep(journal, whole("after"))
    assert await journal.read("old") == (answered("old", "x" * 500_000),)
    assert await journal.read("before") == tuple(whole("before"))
    assert await journal.read("after") == tuple(whole("after"))
    assert (await journal.verify()).ok


async def test_a_full_disk_refuses_new_runs_loses_none_and_needs_no_restart(disk: Path) -> None:
    async with open_journal(str(disk / "journal.db")) as journal:
        await check_refuses_and_recovers(journal, full(disk))


async def test_a_file_that_may_not_grow_refuses_new_runs_loses_none_and_needs_no_restart(path: Path) -> None:
    async with open_journal(str(path)) as journal:
        await check_refuses_and_recovers(journal, no_file_may_grow_beyond(200_000))


async def test_a_journal_cannot_be_begun_on_a_full_disk(disk: Path) -> None:
    with full(disk), pytest.raises(JournalUnavailable, match="full"):
        async with open_journal(str(disk / "journal.db")):
            pass
    async with open_journal(str(disk / "journal.db")) as journal:
        await keep(journal, whole("r"))


async def check_holds_all(path: Path, acknowledged: set[str]) -> None:
    async with open_journal(str(path)) as journal:
        assert (await journal.verify()).ok
        for run in acknowledged:
            assert await journal.read(run) == tuple(whole(run))


def lived(path: Path, prefix: str, seconds: float) -> set[str]:
    """Let a process write runs for a while and kill it; return the runs that it said were stored."""
    command = [*LIVES, str(path), prefix, "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own script
        assert process.stdout is not None
        first = process.stdout.readline()
        sleep(seconds)
        process.kill()
        rest = process.stdout.read()
    return {line for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")}


@pytest.mark.full
async def test_invariant_4_what_was_acknowledged_outlives_kill_9(path: Path) -> None:
    chance = random.Random(4)
    for number in range(4):
        acknowledged = {line.strip() for line in lived(path, f"life{number}-", chance.uniform(0.0, 0.1))}
        assert acknowledged
        await check_holds_all(path, acknowledged)


@pytest.mark.full
async def test_several_processes_share_one_journal(path: Path) -> None:
    live = partial(asyncio.create_subprocess_exec, *LIVES, str(path), stdout=subprocess.DEVNULL)
    processes = [await live(f"{name}-", "40") for name in ("ann", "bob", "cyd")]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    await check_holds_all(path, {f"{name}-{number}" for name in ("ann", "bob", "cyd") for number in range(40)})


async def test_a_log_that_cannot_be_emptied_is_an_unavailable_journal(path: Path) -> None:
    """The checkpoint is made beside SQLAlchemy's transactions, whose errors are wrapped."""
    url = parse_store_url(str(path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with sqlite.connect(url, 1.0) as driver:
        await driver.write(lambda connection: connection.exec_driver_sql("CREATE TABLE t (a)"))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # nothing can be written
            with pytest.raises(JournalUnavailable, match="disk"):
                await driver.purge_deleted()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await driver.purge_deleted()
