"""The store notes runs with the journal's commits, finds them, and each is performed by one server."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from fresh import fresh
from journals import finished, keep, started, whole
from postgres import Cluster
from sqlalchemy import Connection, select, update
from stores import lapse, opened, order, silent, there

from shikisha.core.budget import Amount
from shikisha.core.errors import IdempotencyConflict, JournalUnavailable, RunStillOpen, ServerFenced
from shikisha.core.events import RunStatus
from shikisha.journal import open_journal
from shikisha.journal.schema import MEMBERS, SERVED
from shikisha.server.store import RunFilter, ServedState, claims, open_store


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh journal of either kind."""
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


async def test_a_run_is_enlisted_and_marked_with_its_events(url: str) -> None:
    async with opened(url) as (journal, store):
        await store.add_run(order("r", labels=("a",), metadata={"x": "y"}))
        await keep(journal, [started("r")])
        found = await there(store, "r")
        assert (found.owner, found.labels, found.metadata) == (store.member.id, ("a",), {"x": "y"})
        journal.add(finished("r"))
        store.mark("r", ServedState.ENDED, status=RunStatus.DONE, used=Amount(7, 0.5), uncertain=Amount(3, 0.25))
        await journal.flush()
        found = await there(store, "r")
        assert (found.state, found.owner, found.status) == (ServedState.ENDED, None, RunStatus.DONE)
        assert (found.used, found.uncertain) == (Amount(7, 0.5), Amount(3, 0.25))


async def test_a_second_request_under_a_key_is_a_conflict(url: str) -> None:
    async with opened(url) as (_, store):
        await store.add_run(order("one", idempotency="i", request_hash="h"))
        with pytest.raises(IdempotencyConflict, match=r"the same request .*: run one") as caught:
            await store.add_run(order("two", idempotency="i", request_hash="h"))
        assert (caught.value.run, caught.value.same) == ("one", True)
        await store.add_run(order("three", key="k2", idempotency="i"))
        await store.add_run(order("four", idempotency="another"))  # one key makes many requests
        with pytest.raises(IdempotencyConflict, match="run four"):
            await store.add_run(order("five", idempotency="another"))
        assert await store.find("two") is None
        assert (await store.recall("k1", "i")) == (await store.find("one"))


async def test_pages_go_on_where_the_last_one_ended(url: str) -> None:
    async with opened(url) as (journal, store):
        for number in range(7):
            await store.add_run(order(f"r{number}", created=float(number // 2), excerpt=f"100% of_{number}"))
        await journal.flush()
        seen, asked = [], RunFilter(tenant="acme", text="100% OF_", limit=3)
        page = await store.search(asked)
        while page.after:
            seen += [each.run for each in page.runs]
            page = await store.search(RunFilter(tenant="acme", limit=3, after=page.after))
        assert [*seen, *(each.run for each in page.runs)] == [f"r{number}" for number in reversed(range(7))]
        assert not (await store.search(RunFilter(text="100_ of"))).runs
        assert await store.count(RunFilter()) == {ServedState.OPEN: 7}


async def test_what_a_server_left_is_claimed_by_one_other(url: str) -> None:
    async with opened(url) as (journal, store):
        for run in ("one", "two"):
            await store.add_run(order(run))
            await keep(journal, [started(run)])
    async with opened(url) as (_, one), opened(url) as (_, two):
        claimed = await asyncio.gather(one.claim(10), two.claim(10))
        assert sorted(each.run for some in claimed for each in some) == ["one", "two"]
        assert await two.claim(10) == ()


async def test_a_server_that_gave_no_sign_is_expelled_and_writes_nothing_more(url: str) -> None:
    told: list[str] = []
    async with silent(url) as (journal, store), opened(url) as (other, heir):
        store.on_expelled(lambda: told.append("expelled"))
        await store.add_run(order("r"))
        await keep(journal, [started("r")])
        await lapse(journal)
        assert [each.run for each in await heir.claim(5)] == ["r"]
        journal.add(finished("r"))
        waiting = asyncio.create_task(journal.flush())
        with pytest.raises(ServerFenced, match=store.member.id):
            await waiting
        assert told == ["expelled"]
        for use in (partial(journal.add, finished("r")), partial(store.mark, "r", ServedState.ENDED)):
            with pytest.raises(ServerFenced):
                use()
        assert await other.read("r") == (started("r"),)
        await store.join()
        await keep(journal, whole("new"))
        assert await other.read("new") == tuple(whole("new"))


async def test_an_expelled_server_learns_it_with_its_next_sign_though_it_has_nothing_to_say(url: str) -> None:
    told: list[str] = []
    async with silent(url) as (journal, store), opened(url) as (_, heir):
        store.on_expelled(lambda: told.append("expelled"))
        await lapse(journal)
        await heir.claim(5)
        for _ in range(2):
            with pytest.raises(ServerFenced):
                await store.beat()
        assert (told, store.expelled) == (["expelled"], True)


async def test_a_server_that_is_late_but_was_not_missed_goes_on(url: str) -> None:
    async with silent(url) as (journal, store):
        await store.add_run(order("r"))
        await lapse(journal)
        await keep(journal, whole("r"))
        await store.beat()
        assert await store.claim(5) == ()


async def test_who_was_away_itself_takes_nobody_for_dead_for_a_lease(url: str) -> None:
    async with silent(url) as (_, away), silent(url) as (journal, other), silent(url) as (_, third):
        await other.add_run(order("r"))
        await keep(journal, [started("r")])
        await lapse(journal)  # the store was away for all of them, say
        await away.beat()
        assert await away.claim(5) == ()
        assert [each.run for each in await third.claim(5)] == ["r"]


def alive_until(connection: Connection) -> float | None:
    return connection.scalar(select(MEMBERS.c.alive_until))


async def test_a_heartbeat_prolongs_the_lease(url: str) -> None:
    async with opened(url, 0.05) as (journal, store):
        await lapse(journal)
        async with asyncio.timeout(30):
            while not await journal.query(alive_until):  # noqa: ASYNC110 - the store has no events
                await asyncio.sleep(0.01)
        assert await store.claim(5) == ()


async def test_what_waits_is_taken_by_one(url: str) -> None:
    async with opened(url) as (journal, one), opened(url) as (_, two):
        await one.add_run(order("r"))
        one.mark("r", ServedState.WAITING, status=RunStatus.SUSPENDED)
        await keep(journal, [started("r")])
        assert await two.claim(5) == ()
        assert sorted(await asyncio.gather(*(store.take("r") for store in (one, two, one, two)))) == [0, 0, 0, 1]
        assert (await there(two, "r")).state is ServedState.OPEN


async def test_what_is_released_is_claimed_at_once_and_what_is_dropped_comes_back(url: str) -> None:
    async with opened(url) as (journal, one), opened(url) as (_, two):
        await one.add_run(order("r"))
        await keep(journal, [started("r")])
        assert await one.claim(5) == ()
        one.drop("r")
        assert [each.run for each in await one.claim(5)] == ["r"]
        await one.release("r")
        assert [each.run for each in await two.claim(5)] == ["r"]


async def test_a_run_begun_while_its_server_looks_for_others_is_neither_dropped_nor_claimed(url: str) -> None:
    async with opened(url) as (journal, store):
        await store.add_run(order("r"))  # its row is stored before its first event: another run's commit took it along
        await journal.flush()
        late = claims.OwnRuns(frozenset(), {"r"}.__contains__)  # it set out to look before the run was begun
        work = partial(claims.claim_runs, me=store.member, most=5, ours=late, also_late=True)
        assert await journal.write(work) == ()
        assert await store.find("r") is not None


async def test_whoever_performs_a_run_learns_that_it_is_to_stop(url: str) -> None:
    async with opened(url) as (journal, one), opened(url) as (_, two):
        await one.add_run(order("r"))
        await keep(journal, [started("r")])
        await two.stop("r")
        assert (await one.stopped(), await two.stopped()) == (("r",), ())
        one.mark("r", ServedState.STOPPED, status=RunStatus.INTERRUPTED)
        await journal.flush()
        assert await one.stopped() == ()
        assert await two.take("r")
        assert await two.stopped() == ()


async def test_a_run_that_waits_is_stopped_by_any_server(url: str) -> None:
    async with opened(url) as (journal, one), opened(url) as (_, two):
        for name in ("waits", "stays"):
            await one.add_run(order(name))
            await keep(journal, [started(name)])
            one.mark(name, ServedState.WAITING, status=RunStatus.SUSPENDED)
            await journal.flush()

        def stop(connection: Connection) -> None:
            connection.execute(update(SERVED).where(SERVED.c.run == "waits").values(stopping=True))

        await journal.write(stop)
        assert (await one.stopped(), await two.stopped()) == (("waits",), ("waits",))


async def test_somebody_who_is_no_server_sets_a_run_aside_unless_one_performs_it(url: str) -> None:
    async with opened(url) as (journal, store), opened(url) as (_, other):
        await store.add_run(order("r"))
        await keep(journal, [started("r")])
        assert await journal.write(partial(claims.state_of_run, run="r")) is ServedState.OPEN
        assert await journal.write(partial(claims.state_of_run, run="unknown")) is None
        with pytest.raises(RunStillOpen, match="run r is being performed"):
            await journal.write(partial(claims.set_aside, run="r"))
        store.mark("r", ServedState.WAITING, status=RunStatus.SUSPENDED)
        await journal.flush()
        assert await journal.write(partial(claims.set_aside, run="r")) is ServedState.WAITING
        found = await there(store, "r")
        assert (found.state, found.owner) == (ServedState.STOPPED, None)
        assert not await other.claim(9)  # nobody takes it up by itself
        assert await journal.write(partial(claims.set_aside, run="unknown")) is None


async def test_a_run_that_was_never_acknowledged_is_forgotten_with_its_server(url: str) -> None:
    async with silent(url) as (journal, dead), opened(url) as (_, store):
        await dead.add_run(order("ghost", idempotency="i"))
        await lapse(journal)
        assert await store.claim(5) == ()
        await store.add_run(order("r", idempotency="i"))


async def test_any_text_of_a_client_can_be_kept(url: str) -> None:
    async with opened(url) as (journal, store):
        odd = "half \ud83d, nothing \0, 半分, 'quoted' \\ %_"
        await store.add_run(order("r", model=odd, excerpt=odd, metadata={odd: odd}, labels=(odd,), tokens=2**70))
        store.mark("r", ServedState.ENDED, status=RunStatus.DONE, used=Amount(2**70), uncertain=Amount(2**70, None))
        await journal.flush()
        found = await there(store, "r")
        assert found.model == "half ?, nothing \ufffd, 半分, 'quoted' \\ %_"
        assert (found.metadata, found.labels) == ({odd: odd}, (odd,))
        assert [each.run for each in (await store.search(RunFilter(text="'QUOTED' \\ %_"))).runs] == ["r"]


async def test_a_server_that_left_in_order_stores_what_was_added_last(url: str) -> None:
    async with open_journal(url) as journal:
        async with open_store(journal) as store:
            await store.add_run(order("r"))
            for event in whole("r"):
                journal.add(event)
        with pytest.raises(JournalUnavailable):
            await keep(journal, [finished("r")])
    async with open_journal(url) as journal:
        assert await journal.read("r") == tuple(whole("r"))


async def test_of_many_requests_under_one_key_one_begins_a_run(url: str) -> None:
    async with opened(url) as (_, one), opened(url) as (journal, two):
        orders = [order(f"r{number}", idempotency="i", request_hash=str(number % 2)) for number in range(10)]
        tries = [store.add_run(each) for store, each in zip([one, two] * 5, orders, strict=True)]
        told = await asyncio.gather(*tries, return_exceptions=True)
        first = await two.recall("k1", "i")
        assert first is not None
        assert first.run == f"r{told.index(None)}"
        conflicts = [each for each in told if isinstance(each, IdempotencyConflict)]
        assert [each.run for each in conflicts] == [first.run] * 9
        assert sum(each.same for each in conflicts) == 4
        await keep(journal, [started("other")])


FOUND = [
    (RunFilter(), "dcba"),
    (RunFilter(tenant="acme"), "cba"),
    (RunFilter(key="k2"), "db"),
    (RunFilter(model="other"), "a"),
    (RunFilter(api="runs"), "c"),
    (RunFilter(states=(ServedState.ENDED, ServedState.WAITING)), "cb"),
    (RunFilter(statuses=(RunStatus.CAPPED,)), "b"),
    (RunFilter(since=2.0, until=4.0), "cb"),
    (RunFilter(text="mean"), "d"),
    (RunFilter(text="nothing"), ""),
    (RunFilter(tenant="acme", key="k2", states=(ServedState.ENDED,)), "b"),
    (RunFilter(limit=0), "d"),
]


async def test_runs_are_found_by_what_is_asked_for(url: str) -> None:
    async with opened(url) as (journal, store):
        await store.add_run(order("a", 1.0, model="other"))
        await store.add_run(order("b", 2.0, key="k2"))
        await store.add_run(order("c", 3.0, api="runs"))
        await store.add_run(order("d", 4.0, key="k2", tenant="else", excerpt="What does it MEAN?"))
        store.mark("b", ServedState.ENDED, status=RunStatus.CAPPED)
        store.mark("c", ServedState.WAITING, status=RunStatus.SUSPENDED)
        await journal.flush()
        for asked, expected in FOUND:
            assert "".join(run.run for run in (await store.search(asked)).runs) == expected, asked
