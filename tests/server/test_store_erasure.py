"""Served runs are erased by run, key, tenant and age, with their rows; what is performed is left alone."""

from pathlib import Path

import pytest
from fresh import fresh
from journals import finished, keep, started, whole
from postgres import Cluster
from stores import opened, order, there

from shikisha.core.errors import RunStillOpen, UnknownRun
from shikisha.core.events import RunPaused, RunStatus
from shikisha.journal import ErasureResult, Journal
from shikisha.server.store import RunFilter, RunStore, ServedRun, ServedState

SECRET = "the patient is Ann Smith"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


async def served(journal: Journal, store: RunStore, served: ServedRun, state: ServedState = ServedState.ENDED) -> None:
    """Serve a run whose words are its own."""
    await store.add_run(served)
    ended = state is ServedState.ENDED
    store.mark(served.run, state, status=RunStatus.DONE if ended else RunStatus.SUSPENDED)
    last = finished(served.run) if ended else RunPaused(run=served.run, at=2.0, status=RunStatus.SUSPENDED)
    await keep(journal, [started(served.run, prompt=f"{SECRET} in {served.run}"), last])


async def test_a_row_loses_its_words_with_the_run(url: str) -> None:
    async with opened(url) as (journal, store):
        await served(journal, store, order("r", wire=f'["{SECRET}"]', excerpt=SECRET, metadata={"who": SECRET}))
        assert (await store.erase(["r"], actor="ann")).runs == ("r",)
        found = await there(store, "r")
        assert (found.wire, found.metadata, found.excerpt[:10]) == ("{}", {}, "[erased 20")
        assert SECRET not in repr(await journal.read("r"))
        assert found.erased is not None


async def test_what_is_performed_is_not_erased_and_nothing_is_done(url: str) -> None:
    async with opened(url) as (journal, store):
        await served(journal, store, order("over"))
        await store.add_run(order("open"))
        await keep(journal, [started("open")])
        with pytest.raises(RunStillOpen, match="run open is being performed"):
            await store.erase(["over", "open"], actor="ann")
        assert (await there(store, "over")).erased is None
        assert SECRET in repr(await journal.read("over"))


async def test_what_waited_is_over_once_it_is_erased(url: str) -> None:
    async with opened(url) as (journal, store):
        await served(journal, store, order("r"), ServedState.WAITING)
        await store.erase(["r"], actor="ann")
        assert not await store.take("r")
        assert (await there(store, "r")).state is ServedState.ENDED


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (RunFilter(tenant="acme"), {"a", "b", "c"}),
        (RunFilter(key="k2"), {"b", "d"}),
        (RunFilter(until=3.0), {"a", "b"}),
        (RunFilter(until=3.0, key="k2"), {"b"}),
        (RunFilter(states=(ServedState.WAITING,)), {"c"}),
        (RunFilter(tenant="nobody"), set()),
    ],
)
async def test_a_sweep_erases_what_is_asked_for_and_no_more(url: str, asked: RunFilter, expected: set[str]) -> None:
    async with opened(url) as (journal, store):
        await served(journal, store, order("a", 1.0))
        await served(journal, store, order("b", 2.0, key="k2"))
        await served(journal, store, order("c", 3.0), ServedState.WAITING)
        await served(journal, store, order("d", 4.0, key="k2", tenant="other"))
        await store.add_run(order("open", 0.0, key="k2"))
        await keep(journal, [started("open")])
        assert set((await store.sweep(asked, actor="retention")).runs) == expected
        assert await store.sweep(asked, actor="retention") == ErasureResult()
        gone = {run.run for run in (await store.search(RunFilter())).runs if run.erased is not None}
        assert gone == expected
        assert (await journal.verify()).ok


async def test_a_sweep_goes_on_in_bounded_batches(url: str) -> None:
    async with opened(url) as (journal, store):
        for number in range(5):
            await served(journal, store, order(f"r{number}", float(number)))
        batches = []
        while gone := (await store.sweep(RunFilter(until=99.0, limit=2), actor="retention")).runs:
            batches.append(gone)
        assert batches == [("r0", "r1"), ("r2", "r3"), ("r4",)]


async def test_the_words_of_rows_are_nowhere_in_the_files(tmp_path: Path) -> None:
    async with opened(str(tmp_path / "journal.db")) as (journal, store):
        await served(journal, store, order("r", wire=f'["{SECRET}"]' * 1000, excerpt=SECRET))
        assert SECRET.encode() in everything(tmp_path)
        await store.erase(["r"], actor="ann")
        assert SECRET.encode() not in everything(tmp_path)


async def test_a_run_that_was_never_there_cannot_be_erased(url: str) -> None:
    async with opened(url) as (journal, store):
        await keep(journal, whole("unserved"))
        with pytest.raises(UnknownRun):
            await store.erase(["r"], actor="ann")
        assert (await store.erase(["unserved"], actor="ann")).removed == 3


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())
