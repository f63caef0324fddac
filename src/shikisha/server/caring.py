"""Looking after runs: those of servers that died are taken over, cancelled ones are stopped, stuck ones go on.

Invariant: a look that fails (the journal is away) is made again, and what is wrong with one run or one part of it keeps
no other from being looked after, and never ends the house. Deliberately absent: deciding which server is dead (the
store's leases).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from shikisha.errors import JournalUnavailable
from shikisha.server.store import Served, State
from shikisha.server.watchdog import context_of

if TYPE_CHECKING:
    from shikisha.server.house import House

_LOG = logging.getLogger(__name__)
_LONGEST = 2.5  # seconds between two looks, however long the lease: people wait for what they approved elsewhere
_AT_ONCE = 8  # runs that are read at once, as many as the database has connections to spare


async def care(house: "House") -> None:
    """Look after runs until cancelled, several times a lease and every few seconds."""
    while True:
        await look(house)
        await asyncio.sleep(min(house.settings.lease / 4, _LONGEST))


async def look(house: "House") -> None:
    """Look once: come back after an expulsion, stop what was cancelled elsewhere, go on with what nobody performs."""
    for part in (_rejoin, _stop, _unstick, _rest, _expire, _retain, _claim, _announce):
        try:
            await part(house)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - it is looked again soon, and what remains is looked after now
            _LOG.warning("looking after runs: %s: %s", part.__name__.strip("_"), type(error).__name__)


async def _rejoin(house: "House") -> None:
    if house.expulsions and house.idle:
        await house.store.join()
        house.expulsions = 0


async def _stop(house: "House") -> None:
    for name in await house.store.stopped():
        if name in house.running or (await house.served(name)).state is State.WAITING:
            await house.cancel(name)


async def _unstick(house: "House") -> None:
    for name in tuple(house.stuck):
        try:
            await house.unstick(name)
        except JournalUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one run's trouble is no other's
            _give_up(house, name, error)
        house.stuck.discard(name)


async def _rest(house: "House") -> None:
    await house.purses.rest()


async def _expire(house: "House") -> None:
    await house.expiring.look(house)


async def _retain(house: "House") -> None:
    await house.retaining.look(house)


async def _claim(house: "House") -> None:
    room = house.settings.most_runs - len(house.running)
    if room > 0 and not house.expulsions:
        claimed = await house.store.claim(room)
        gate = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for served in claimed:
                group.create_task(_go_on(house, served, gate), context=context_of(served.run))


async def _announce(house: "House") -> None:
    """Write into the journal which runs are quarantined; the database knows it already."""
    for served in () if house.expulsions else await house.store.unannounced():
        await house.quarantine(served)


async def _go_on(house: "House", served: Served, gate: asyncio.Semaphore) -> None:
    """Go on with a run that was claimed; while the journal is away it comes with the next claim."""
    async with gate:
        try:
            await house.resume(served.run, served)
        except JournalUnavailable as error:
            house.store.drop(served.run)
            _LOG.warning("run %s cannot be gone on with now: %s", served.run, type(error).__name__)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - what is stored may be anything, and others wait to be gone on with
            _give_up(house, served.run, error)


def _give_up(house: "House", name: str, error: BaseException) -> None:
    """Leave a run that cannot be read or performed to people: nobody takes it up by itself again."""
    _LOG.error("run %s is given up: %s", name, type(error).__name__)
    house.store.mark(name, State.STOPPED)
