"""The store notes runs with the journal's commits, finds them, and each is performed by one server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from journals import finished, keep, started, whole
from shikisha.errors import Conflict, Expelled, UnknownRun
from shikisha.events import Status
from shikisha.journal import Journal, open_journal
from shikisha.server.store import Filter, Served, State, Store, open_store
from shikisha.server.store.members import new_member


def order(run: str, created: float = 1.0, **more: object) -> Served:
    first = {
        "run": run,
        "tenant": "acme",
        "key": "k1",
        "api": "chat",
        "model": "m",
        "conductor": "c",
        "created": created,
    }
    return Served(**{**first, **more})  # type: ignore[arg-type]


@asynccontextmanager
async def opened(path: Path, lease: float = 30.0) -> AsyncIterator[tuple[Journal, Store]]:
    async with open_journal(str(path / "journal.db")) as journal, open_store(journal, lease) as store:
        yield journal, store


async def test_a_run_is_enlisted_and_marked_with_its_events(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store):
        await store.enlist(order("r", labels=("a",), metadata={"x": "y"}))
        await keep(journal, [started("r")])
        found = await store.find("r")
        assert (found.owner, found.labels, found.metadata) == (store.member.id, ("a",), {"x": "y"})
        journal.add(finished("r"))
        store.mark("r", State.ENDED, status=Status.DONE, tokens=7, dollars=0.5)
        await journal.flush()
        found = await store.find("r")
        assert (found.state, found.owner, found.status) == (State.ENDED, None, Status.DONE)
        assert (found.tokens, found.dollars) == (7, 0.5)


async def test_a_second_request_under_a_key_is_a_conflict(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, store):
        await store.enlist(order("one", idempotency="i", request_hash="h"))
        with pytest.raises(Conflict, match=r"the same request .*: run one") as caught:
            await store.enlist(order("two", idempotency="i", request_hash="h"))
        assert (caught.value.run, caught.value.same) == ("one", True)
        await store.enlist(order("three", key="k2", idempotency="i"))
        with pytest.raises(UnknownRun):
            await store.find("two")
        assert (await store.recall("k1", "i")) == (await store.find("one"))


async def test_pages_go_on_where_the_last_one_ended(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store):
        for number in range(7):
            await store.enlist(order(f"r{number}", created=float(number // 2), excerpt=f"100% of_{number}"))
        await journal.flush()
        seen, asked = [], Filter(tenant="acme", text="100% OF_", limit=3)
        page = await store.search(asked)
        while page.after:
            seen += [each.run for each in page.runs]
            page = await store.search(Filter(tenant="acme", limit=3, after=page.after))
        assert [*seen, *(each.run for each in page.runs)] == [f"r{number}" for number in reversed(range(7))]
        assert not (await store.search(Filter(text="100_ of"))).runs
        assert await store.count(Filter()) == {State.OPEN: 7}


async def test_what_a_server_left_is_claimed_by_one_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store):
        for run in ("one", "two"):
            await store.enlist(order(run))
            await keep(journal, [started(run)])
    async with opened(tmp_path) as (_, one), opened(tmp_path) as (_, two):
        claimed = await asyncio.gather(one.claim(10), two.claim(10))
        assert sorted(each.run for some in claimed for each in some) == ["one", "two"]
        assert await two.claim(10) == ()


async def test_a_server_that_gave_no_sign_is_expelled_and_writes_nothing_more(tmp_path: Path) -> None:
    told: list[str] = []
    async with open_journal(str(tmp_path / "journal.db")) as journal, opened(tmp_path) as (other, heir):
        silent = Store(journal, new_member(0.2))  # nobody beats for it
        await silent.join()
        silent.on_expelled(lambda: told.append("expelled"))
        await silent.enlist(order("r"))
        await keep(journal, [started("r")])
        await asyncio.sleep(0.25)
        assert [each.run for each in await heir.claim(5)] == ["r"]
        journal.add(finished("r"))
        waiting = asyncio.create_task(journal.flush())
        with pytest.raises(Expelled, match=silent.member.id):
            await waiting
        assert told == ["expelled"]
        for use in (partial(journal.add, finished("r")), partial(silent.mark, "r", State.ENDED)):
            with pytest.raises(Expelled):
                use()
        assert await other.read("r") == (started("r"),)
        await silent.join()
        await keep(journal, whole("new"))
        assert await other.read("new") == tuple(whole("new"))
