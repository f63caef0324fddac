"""Opening the house and closing it: the journal, the store, the keys, and the one group in which runs are performed.

Invariant: on leaving, runs get `drain` seconds to end; what has not ended by then is interrupted, released, and taken
up by the next server. What looks after runs (claiming those of dead servers, noticing cancellations) ends first.
Deliberately absent: signals (the HTTP server's business).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from shikisha.config.compose import Composition
from shikisha.config.foreseeing import foresee
from shikisha.errors import JournalUnavailable
from shikisha.journal import open_journal
from shikisha.server.caring import care
from shikisha.server.house import House
from shikisha.server.keys import KeyKeeper
from shikisha.server.purses import Purses
from shikisha.server.store import open_store
from shikisha.server.webhooks import Webhooks

_TOLD_WITHIN = 2.0  # seconds that receivers of webhooks get when the house is closed


@asynccontextmanager
async def open_house(composition: Composition, journal_url: str = "") -> AsyncIterator[House]:
    """Open everything that serving needs, and close it in order. ConfigError for conductors that could not conduct."""
    foresee(composition)
    lease = composition.settings.server.lease
    async with (
        open_journal(journal_url or composition.journal_url()) as journal,
        open_store(journal, lease) as store,
    ):
        keys = KeyKeeper(journal, operator=_operator(composition))
        purses = Purses(journal, store, keys)
        house = House(composition, journal, store, keys, purses)
        store.on_expelled(house.expelled)
        webhooks = Webhooks.of(house)
        house.watchers.append(webhooks.note)
        interrupted: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            house.enter(group)
            house.first_key = await keys.bootstrap()
            caring = group.create_task(care(house), name="care")
            telling = group.create_task(webhooks.deliver(), name="webhooks")
            try:
                yield house
            except BaseException as error:  # noqa: BLE001 - the group would wrap it: it is raised again below, as it is
                interrupted = error
            caring.cancel()
            await house.close()
            await webhooks.rest(_TOLD_WITHIN)
            telling.cancel()
            with suppress(
                JournalUnavailable
            ):  # the journal itself says so as it is closed; what is granted is found again
                await purses.close()
        for end in house.endings:
            await asyncio.to_thread(end)
        if interrupted is not None:
            raise interrupted


def _operator(composition: Composition) -> str | None:
    """Return the admin key that the operator chose, if they did."""
    variable = composition.settings.server.admin_key_env
    return None if variable is None else composition.vault.read(variable)
