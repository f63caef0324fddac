"""Runs that take servers down are found out and quarantined; those that were only in flight are not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import time

import pytest
from fresh import fresh
from journals import keep, started
from postgres import Cluster
from sqlalchemy import Connection, select, update
from stores import opened, order, silent, there

from shikisha.core.events import RunStatus
from shikisha.journal import Journal, open_journal
from shikisha.journal.schema import MEMBERS
from shikisha.server.store import RunStore, ServedState, open_store
from shikisha.server.store.claims import (
    QUARANTINE_STRIKES,
    TRIAL_ENDS,
    MemberEnd,
    clear_suspicion,
    judge_end,
    release_quarantined,
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh journal of either kind."""
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


async def begin(journal: Journal, store: RunStore, *runs: str) -> None:
    for run in runs:
        await store.add_run(order(run))
        await keep(journal, [started(run)])


class Servers:
    """Servers of one journal, each with a connection of its own, that end badly."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url, self._stack = url, stack

    async def start(self, lease: float = 30.0) -> tuple[Journal, RunStore]:
        return await self._stack.enter_async_context(silent(self._url, lease))

    async def again(self, journal: Journal, store: RunStore, ended: MemberEnd, *named: str) -> tuple[Journal, RunStore]:
        """End a server, as its watchdog saw it, and start another, which claims what it may."""
        await end(journal, store, ended, *named)
        journal, store = await self.start()
        await store.claim(9)
        return journal, store


@pytest.fixture
async def servers(url: str) -> AsyncIterator[Servers]:
    """Servers that end badly."""
    async with AsyncExitStack() as stack:
        yield Servers(url, stack)


async def end(journal: Journal, store: RunStore, ended: MemberEnd, *named: str) -> None:
    """End a server, as its watchdog saw it."""
    await journal.write(partial(judge_end, member=store.member.id, ended=ended, named=named))


async def late(journal: Journal) -> None:
    """Let every lease have run out just now."""

    def work(connection: Connection) -> None:
        connection.execute(update(MEMBERS).values(alive_until=time() - 1))

    await journal.write(work)


async def counted(store: RunStore, run: str) -> tuple[int, int]:
    found = await there(store, run)
    return found.ends, found.strikes


async def test_the_only_run_that_was_computed_twice_is_quarantined_and_nobody_claims_it(
    url: str, servers: Servers
) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "poison", "innocent")
        journal, dying = await servers.again(journal, dying, MemberEnd.STALLED, "poison")
        assert [(await there(heir, run)).owner for run in ("poison", "innocent")] == [dying.member.id] * 2
        await end(journal, dying, MemberEnd.STALLED, "poison")
        assert [each.run for each in await heir.claim(9)] == ["innocent"]
        poison = await there(heir, "poison")
        assert (poison.state, poison.status, poison.strikes) == (
            ServedState.STOPPED,
            RunStatus.QUARANTINED,
            QUARANTINE_STRIKES,
        )
        assert await counted(heir, "innocent") == (0, 0)


async def test_kills_that_each_find_another_run_computing_quarantine_nobody(url: str, servers: Servers) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "a", "b")
        for _ in range(2 * QUARANTINE_STRIKES):
            journal, dying = await servers.again(journal, dying, MemberEnd.CRASHED, "a")
            journal, dying = await servers.again(journal, dying, MemberEnd.CRASHED)  # on trial, and not computing
            for run in "ab":  # they survive for a while
                await journal.write(partial(clear_suspicion, me=dying.member.id, run=run))
        assert [(await there(heir, run)).strikes for run in "ab"] == [0, 0]


async def test_a_run_whose_servers_vanish_is_blamed_only_once_it_is_tried(url: str, servers: Servers) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "poison")
        seen = []
        for _ in range(1 + QUARANTINE_STRIKES):
            journal, dying = await servers.again(journal, dying, MemberEnd.CRASHED, "poison")
            seen.append(await counted(heir, "poison"))
        assert seen == [(TRIAL_ENDS, 0), (TRIAL_ENDS + 1, 1), (TRIAL_ENDS + 2, 2)]
        assert (await there(heir, "poison")).status is RunStatus.QUARANTINED


async def test_its_quarantine_is_told_once_by_one_server(url: str, servers: Servers) -> None:
    async with opened(url) as (own, one), opened(url) as (_, two):
        journal, dying = await servers.start()
        await begin(journal, dying, "poison")
        journal, dying = await servers.again(journal, dying, MemberEnd.STALLED, "poison")
        await end(journal, dying, MemberEnd.STALLED, "poison")
        told = [await one.unannounced(), await two.unannounced(), await one.unannounced()]
        assert [[each.run for each in some] for some in told] == [["poison"], [], []]
        assert not await two.take("poison")
        one.mark("poison", ServedState.STOPPED, status=RunStatus.QUARANTINED)
        await own.flush()
        assert not await two.unannounced()


async def test_a_quarantine_that_a_dying_server_was_to_tell_is_told_by_another(url: str, servers: Servers) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "poison")
        for _ in range(QUARANTINE_STRIKES - 1):
            journal, dying = await servers.again(journal, dying, MemberEnd.STALLED, "poison")
        await end(journal, dying, MemberEnd.STALLED, "poison")
        journal, dying = await servers.start()
        assert len(await dying.unannounced()) == 1
        await end(journal, dying, MemberEnd.CRASHED)
        assert len(await heir.unannounced()) == 1


async def test_kills_that_find_nobody_computing_quarantine_nobody(url: str, servers: Servers) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "a", "b")
        for _ in range(TRIAL_ENDS - 1):
            journal, dying = await servers.again(journal, dying, MemberEnd.CRASHED)
        assert [await counted(heir, run) for run in ("a", "b")] == [(TRIAL_ENDS - 1, 0)] * 2


async def test_a_clean_end_counts_for_nothing(url: str) -> None:
    async with opened(url) as (own, heir):
        async with open_journal(url) as journal, open_store(journal) as leaving:
            await begin(journal, leaving, "r")
        await end(own, leaving, MemberEnd.CRASHED, "r")  # a watchdog that did not hear the goodbye
        assert [each.run for each in await heir.claim(9)] == ["r"]
        assert await counted(heir, "r") == (0, 0)


async def test_what_waits_for_a_person_is_not_in_flight(url: str, servers: Servers) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "r")
        dying.mark("r", ServedState.WAITING, status=RunStatus.SUSPENDED)
        await journal.flush()
        await end(journal, dying, MemberEnd.STALLED, "r")
        assert (await there(heir, "r")).state is ServedState.WAITING
        assert await counted(heir, "r") == (0, 0)


async def test_several_suspects_are_performed_one_at_a_time_and_the_one_on_trial_is_blamed(
    url: str, servers: Servers
) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "a", "b", "c")
        await end(journal, dying, MemberEnd.CRASHED, "a", "b", "c")
        assert [await counted(heir, run) for run in "abc"] == [(TRIAL_ENDS, 0)] * 3
        journal, dying = await servers.start()
        await begin(journal, dying, "fresh")
        assert [each.run for each in await dying.claim(9)] == ["a"]
        assert await dying.claim(9) == ()  # while one is on trial here
        assert [each.run for each in await heir.claim(9)] == ["b"]  # and elsewhere another is
        await end(journal, dying, MemberEnd.CRASHED)  # nobody is named, and it was not alone: it is tried again
        assert [await counted(heir, run) for run in ("a", "fresh")] == [(TRIAL_ENDS + 1, 0), (1, 0)]
        journal, dying = await servers.start()
        assert [each.run for each in await dying.claim(1)] == ["fresh", "a"]
        await end(journal, dying, MemberEnd.CRASHED, "a")
        assert [await counted(heir, run) for run in ("a", "fresh")] == [(TRIAL_ENDS + 2, 1), (1, 0)]


async def test_a_stall_that_no_run_is_named_for_tries_all_that_were_in_flight(url: str, servers: Servers) -> None:
    async with opened(url) as (_, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "a", "b")
        await end(journal, dying, MemberEnd.STALLED)
        assert [await counted(heir, run) for run in "ab"] == [(TRIAL_ENDS, 0)] * 2


async def test_who_survives_its_trial_is_cleared(servers: Servers) -> None:
    journal, dying = await servers.start()
    await begin(journal, dying, "a", "b")
    await end(journal, dying, MemberEnd.STALLED)
    journal, brief = await servers.start(lease=0.001)
    assert [each.run for each in await brief.claim(9)] == ["a"]
    await asyncio.sleep(0.01)
    assert [each.run for each in await brief.claim(9)] == ["b"]  # the first one's trial is over
    await journal.flush()
    assert await counted(brief, "a") == (0, 0)


async def test_a_server_whose_end_nobody_saw_is_judged_when_its_lease_is_over(url: str) -> None:
    async with silent(url) as (journal, lost), opened(url) as (own, heir):
        await begin(journal, lost, "r")
        await late(journal)
        assert [each.run for each in await heir.claim(9)] == ["r"]
        assert await counted(heir, "r") == (1, 0)
        await end(own, lost, MemberEnd.STALLED, "r")  # its watchdog comes late: one strike, once
        await end(own, lost, MemberEnd.STALLED, "r")
        found = await there(heir, "r")
        assert (found.strikes, found.owner, found.state) == (1, heir.member.id, ServedState.OPEN)
        how = select(MEMBERS.c.ended).where(MEMBERS.c.id == lost.member.id)
        assert (await own.write(lambda connection: connection.execute(how).scalar_one())) == f"{MemberEnd.STALLED} r"


async def test_a_lease_that_a_clock_far_ahead_took_is_over(url: str) -> None:
    async with silent(url, lease=366 * 86400.0) as (journal, ahead), opened(url) as (_, heir):
        await begin(journal, ahead, "r")
        assert [each.run for each in await heir.claim(9)] == ["r"]


async def test_a_released_run_is_claimed_as_if_it_had_done_nothing(url: str, servers: Servers) -> None:
    async with opened(url) as (own, heir):
        journal, dying = await servers.start()
        await begin(journal, dying, "r")
        assert not await own.write(partial(release_quarantined, run="r"))
        for _ in range(QUARANTINE_STRIKES):
            journal, dying = await servers.again(journal, dying, MemberEnd.STALLED, "r")
        assert await own.write(partial(release_quarantined, run="r"))
        assert [each.run for each in await heir.claim(9)] == ["r"]
        assert await counted(heir, "r") == (0, 0)
