"""Who may work on a run that is over, or that no server knows: one at a time, and nobody who was taken for dead."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fresh import fresh
from journals import finished, started
from sqlalchemy import Connection, update
from stores import lapse, opened, order, silent, there

from shikisha.core.budget import Amount
from shikisha.core.errors import ServerFenced
from shikisha.core.events import RunStatus
from shikisha.journal.schema import MEMBERS
from shikisha.server.store import ServedState
from shikisha.server.store.members import _place_of


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal of each kind."""
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    return str(request.getfixturevalue("postgres").fresh())


async def test_one_holds_a_run_that_has_no_row_until_it_leaves(url: str) -> None:
    async with opened(url) as (_, one):
        async with opened(url) as (_, other):
            assert [await other.hold("r1"), await one.hold("r1"), await one.hold("r2")] == [True, False, True]
            assert await other.hold("r1")  # whoever has it, has it
        assert await one.hold("r1")


async def test_who_was_silent_holds_nothing_and_stores_nothing(url: str) -> None:
    async with silent(url) as (journal, one), opened(url) as (_, other):
        assert await one.hold("r1")
        await lapse(journal)
        assert await other.hold("r1")
        journal.add(started("r1"))
        with pytest.raises(ServerFenced):
            await journal.flush()


async def test_a_run_that_is_over_is_taken_by_one_where_it_is_wanted(url: str) -> None:
    async with opened(url) as (journal, one), opened(url) as (_, other):
        await one.add_run(order("r1"))
        journal.add(started("r1"))
        one.mark("r1", ServedState.ENDED, status=RunStatus.DONE, used=Amount(7))
        journal.add(finished("r1"))
        await journal.flush()
        assert [await other.take("r1"), await other.take("r1", ended=True), await one.take("r1", ended=True)] == [
            False,
            True,
            False,
        ]
        assert (await there(one, "r1")).owner == other.member.id


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a process started")
async def test_the_runs_of_a_process_that_is_gone_are_claimed_at_the_second_look_whatever_its_lease(url: str) -> None:
    async with silent(url, lease=600.0) as (journal, dead), opened(url, lease=600.0) as (_, other):
        await dead.add_run(order("r1"))
        journal.add(started("r1"))
        await journal.flush()
        assert [await other.claim(9), await other.claim(9)] == [(), ()]  # its process is this one
        gone = await asyncio.create_subprocess_exec("/bin/sleep", "60")
        place = _place_of(gone.pid)
        gone.kill()
        await gone.wait()

        def put(place: str) -> Callable[[Connection], None]:
            mine = update(MEMBERS).where(MEMBERS.c.id == dead.member.id)
            return lambda connection: connection.execute(mine.values(place=place)).close()

        number = f":{gone.pid} "
        others = [
            place.replace(number, f"{number}another-boot"),
            place.partition(" ")[0],
            place.replace("pid:[", "pid:[9"),
            f"elsewhere.{place}",
            "",
        ]
        for unknown in others:
            await journal.write(put(unknown))
            assert [await other.claim(9), await other.claim(9)] == [(), ()], unknown
        await journal.write(put(place))
        assert await other.claim(9) == ()  # its watchdog may say how it ended
        assert [served.run for served in await other.claim(9)] == ["r1"]
        journal.add(finished("r1"))
        with pytest.raises(ServerFenced):
            await journal.flush()
