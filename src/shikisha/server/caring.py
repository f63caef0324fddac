"""Looking after runs: those of servers that died are taken over, cancelled ones are stopped, stuck ones go on.

Invariant: a look that fails (the journal is away) is made again; it never ends the house. Deliberately absent: deciding
which server is dead (the store's leases).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from shikisha.errors import ShikishaError

if TYPE_CHECKING:
    from shikisha.server.house import House

_LOG = logging.getLogger(__name__)


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
    room = house.settings.most_runs - len(house.running)
    if room > 0 and not house.expulsions:
        left = [served.run for served in await house.store.claim(room)]
        try:
            while left:
                await house.resume(left[-1])
                left.pop()
        finally:
            for run in left:  # what could not be gone on with now comes with the next claim
                house.store.drop(run)
