"""A journal keeps what it is given, in order, and gives it back."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from journals import answered, behind, finished, keep, started, whole

from shikisha.core.errors import ConfigError, JournalUnavailable, UnknownRun
from shikisha.core.events import Event, RunPaused, RunResumed, RunStatus
from shikisha.journal import Journal, open_journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[Journal]:
    async with open_journal(str(path)) as opened:
        yield opened


async def test_a_run_is_read_as_it_was_added_among_others(journal: Journal) -> None:
    one, other = whole("one"), whole("other", answer="半分\ud83d\0")
    await keep(journal, [event for pair in zip(one, other, strict=True) for event in pair])
    assert await journal.read("one") == tuple(one)
    assert await journal.read("other") == tuple(other)


async def test_a_run_outlives_the_process(path: Path) -> None:
    async with open_journal(f"sqlite+aiosqlite:///{path}") as first:
        await keep(first, whole("r"))
    async with open_journal(str(path)) as second:
        assert await second.read("r") == tuple(whole("r"))


async def test_an_unknown_run_is_said_to_be_unknown(journal: Journal) -> None:
    with pytest.raises(UnknownRun, match="no run nobody"):
        await journal.read("nobody")
    with pytest.raises(UnknownRun, match="no run nobody"):
        await journal.children("nobody")
    with pytest.raises(UnknownRun, match="no run nobody"):
        [line async for line in journal.export("nobody")]


async def test_reading_sees_what_was_added_and_not_flushed(journal: Journal) -> None:
    journal.add(started("r"))
    assert await journal.read("r") == (started("r"),)


async def test_leaving_stores_what_was_added(path: Path) -> None:
    async with open_journal(str(path)) as first:
        first.add(started("r"))
    with behind(path) as connection:
        assert connection.execute("SELECT seq, run FROM events").fetchall() == [(0, "r")]


async def test_a_flush_is_durable_before_it_returns(journal: Journal, path: Path) -> None:
    for number in range(5):
        journal.add(started(f"r{number}"))
        await journal.flush()
        with behind(path) as connection:
            assert connection.execute("SELECT count(*) FROM events").fetchone() == (number + 1,)


async def test_many_runs_at_once_share_commits_and_keep_each_runs_order(journal: Journal) -> None:
    async def live(run: str) -> None:
        for event in whole(run):
            journal.add(event)
            await journal.flush()

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(live(f"r{number}"))
    for number in range(50):
        assert await journal.read(f"r{number}") == tuple(whole(f"r{number}"))
    assert (await journal.verify()).ok


async def test_the_same_text_is_stored_once(journal: Journal, path: Path) -> None:
    await keep(journal, whole("one") + whole("two"))
    await keep(journal, whole("three"))
    with behind(path) as connection:
        texts = [bytes(row[0]) for row in connection.execute("SELECT body FROM bodies")]
    assert sorted(texts)[:2] == [b"It.", b"What is it?"]
    assert len(texts) == 3


async def test_a_cancelled_flush_disturbs_nobody(journal: Journal) -> None:
    journal.add(started("r"))
    impatient, patient = (asyncio.create_task(journal.flush()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    assert impatient.cancelled()
    assert await journal.read("r") == (started("r"),)


async def test_an_error_inside_comes_out_as_it_is_and_what_was_added_is_kept(path: Path) -> None:
    async def add_and_fail() -> None:
        async with open_journal(str(path)) as first:
            first.add(started("r"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await add_and_fail()
    async with open_journal(str(path)) as second:
        assert await second.read("r") == (started("r"),)


async def test_cancelling_inside_keeps_what_was_added(path: Path) -> None:
    async def add_and_wait(added: asyncio.Event) -> None:
        async with open_journal(str(path)) as first:
            first.add(started("r"))
            added.set()
            await asyncio.Event().wait()

    added = asyncio.Event()
    task = asyncio.create_task(add_and_wait(added))
    await added.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with open_journal(str(path)) as second:
        assert await second.read("r") == (started("r"),)


async def test_nothing_can_be_added_after_leaving(path: Path) -> None:
    async with open_journal(str(path)) as journal:
        await keep(journal, [started("r")])
    with pytest.raises(JournalUnavailable, match="closed"):
        journal.add(finished("r"))


async def test_runs_are_listed_newest_first(journal: Journal) -> None:
    await keep(journal, [*whole("old"), *whole("child", parent="old"), started("new", at=7.0, prompt="Why?\n" * 40)])
    new, child, old = await journal.runs()
    assert (old.id, old.status, old.conductor, old.prompt) == ("old", RunStatus.DONE, "fixed:single", "What is it?")
    assert (old.tokens, old.dollars, old.started_at) == (15, 0.02, 1.0)
    assert (child.id, child.parent, old.parent) == ("child", "old", None)
    assert (new.id, new.status, new.tokens, new.started_at) == ("new", RunStatus.RUNNING, 0, 7.0)
    assert new.prompt.startswith("Why? Why?")
    assert len(new.prompt) == 80
    assert [run.id for run in await journal.runs(limit=2)] == ["new", "child"]


async def test_runs_are_found_by_status_however_far_back(journal: Journal) -> None:
    def paused(run: str) -> Event:
        return RunPaused(run=run, at=2.0, status=RunStatus.SUSPENDED)

    await keep(journal, [started("a"), paused("a"), started("b"), paused("b"), RunResumed(run="b", at=3.0)])
    await keep(journal, [event for number in range(250) for event in (started(f"r{number}"), finished(f"r{number}"))])
    assert [run.id for run in await journal.runs(status=RunStatus.SUSPENDED)] == ["a"]
    assert [run.id for run in await journal.runs(status=RunStatus.RUNNING)] == ["b"]
    assert len(await journal.runs(status=RunStatus.DONE, limit=210)) == 210


async def test_the_child_runs_of_a_run_are_found(journal: Journal) -> None:
    await keep(journal, [started("p"), started("q"), started("a", parent="p"), started("b", parent="q"), finished("a")])
    await keep(journal, [started("c", parent="p"), finished("p"), started("d")])
    assert [run.id for run in await journal.children("p")] == ["a", "c"]
    assert [run.id for run in await journal.children("q")] == ["b"]
    assert await journal.children("a") == ()


async def test_an_export_has_every_event_with_its_texts(journal: Journal) -> None:
    await keep(journal, whole("one", answer="It is\nthis."))
    await keep(journal, [answered("two", f"answer {number}") for number in range(450)])
    lines = [json.loads(line) async for line in journal.export()]
    assert [line["seq"] for line in lines] == list(range(456))
    assert lines[0] | {"hash": ""} == {
        "seq": 0,
        "run": "one",
        "kind": "run.started",
        "at": 1.0,
        "data": {
            "conductor": "fixed:single",
            "pool": ["ann"],
            "caps": lines[0]["data"]["caps"],
            "prompt": "What is it?",
        },
        "hash": "",
    }
    assert lines[5]["data"]["answer"] == "It is\nthis."
    assert [json.loads(line)["seq"] async for line in journal.export("one")] == list(range(6))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://host/db", "no store of kind 'mysql'; known are sqlite and postgresql"),
        ("sqlite://", "path of a file"),
        ("sqlite:///:memory:", "path of a file"),
        ("a b://x:secret-word@y", "neither a path nor a database URL"),
    ],
)
async def test_a_url_that_names_no_store_says_what_is_expected(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        async with open_journal(url):
            pass
    assert "secret-word" not in str(caught.value)


def test_asking_for_the_package_does_not_import_sqlalchemy() -> None:
    script = "import sys, shikisha.journal; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0  # noqa: S603 - our own words


def test_an_unknown_name_of_the_package_is_an_error() -> None:
    import shikisha.journal

    with pytest.raises(AttributeError, match="Jurnal"):
        shikisha.journal.Jurnal  # noqa: B018 - looked up for its error
