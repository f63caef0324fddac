"""Looking after runs: those of servers that died are taken over, cancelled ones are stopped, stuck ones go on.

Invariant: a look that fails (the journal is away) is made again; it never ends the house. Deliberately absent: deciding
which server is dead (the store's leases).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from shikisha.errors import ShikishaError
from shikisha.server.store import Served

if TYPE_CHECKING:
    from shikisha.server.house import House

_LOG = logging.getLogger(__name__)
_AT_ONCE = 8  # runs that are read at once, as many as the database has connections to spare


async def care(house: "House") -> None:
    """Look after runs until cancelled, several times a lease."""
    while True:
        try:
            await look(house)
        except ShikishaError as error:
            _LOG.warning("looking after runs: %s", type(error).__name__)
        await asyncio.sleep(house.settings.lease / 4)


async def look(house: "House") -> None:
    """Look once: come back after an expulsion, stop what was cancelled elsewhere, go on with what nobody performs."""
    if house.expulsions and not house.running:
        await house.store.join()
        house.expulsions = 0
    for name in await house.store.stopped():
        if name in house.running:
            await house.cancel(name)
    for name in tuple(house.stuck):
        house.stuck.discard(name)
        await house.resume(name)
    await house.purses.rest()
    await house.expiring.look(house)
    await house.retaining.look(house)
    room = house.settings.most_runs - len(house.running)
    if room > 0 and not house.expulsions:
        claimed = await house.store.claim(room)
        gate = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for served in claimed:
                group.create_task(_go_on(house, served, gate))


async def _go_on(house: "House", served: Served, gate: asyncio.Semaphore) -> None:
    """Go on with a run that was claimed; one that cannot be read now comes with the next claim."""
    async with gate:
        try:
            await house.resume(served.run, served)
        except ShikishaError as error:
            house.store.drop(served.run)
            _LOG.warning("run %s cannot be gone on with now: %s", served.run, type(error).__name__)
