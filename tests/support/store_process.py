"""A server of its own that performs served runs: it begins some, goes on with what others left, and may die any time.

Usage: store_process.py URL NAME LEASE COUNT. It prints the name of each run that it acknowledged. Performing a run is
journaling that one did: `run.resumed` first, then a step at a time. It ends when no run is open any more.
"""

import asyncio
import random
import sys
from contextlib import suppress
from time import time

from journals import attempt, finished, started
from stores import order

from shikisha.core.errors import JournalUnavailable
from shikisha.core.events import AttemptStarted, Event, RunResumed, RunStatus
from shikisha.journal import Journal, open_journal
from shikisha.server.store import RunFilter, RunStore, ServedState, open_store

STEPS = 4


async def perform(journal: Journal, store: RunStore, run: str) -> None:
    """Go on with a run from where the journal ends."""
    begun = {event.round for event in await journal.read(run) if isinstance(event, AttemptStarted)}
    journal.add(RunResumed(run=run, at=time()))
    for number in range(STEPS):
        if number not in begun:
            journal.add(_attempt(run, number))
            await journal.flush()
            await asyncio.sleep(random.random() * 0.15)
    store.mark(run, ServedState.ENDED, status=RunStatus.DONE)
    journal.add(finished(run))
    await journal.flush()


def _attempt(run: str, number: int) -> Event:
    first = attempt(run)
    assert isinstance(first, AttemptStarted)
    return AttemptStarted(
        run=run,
        at=time(),
        round=number,
        step=0,
        attempt=0,
        worker="ann",
        key=f"{run}-{number}",
        reserved=first.reserved,
    )


async def begin(journal: Journal, store: RunStore, run: str) -> None:
    """Acknowledge a run, and perform it."""
    await store.add_run(order(run, time()))
    journal.add(started(run))
    await journal.flush()
    print(run, flush=True)  # noqa: T201 - what this script is for
    await perform(journal, store, run)


async def main(url: str, name: str, lease: float, count: int) -> None:
    random.seed(name)
    async with open_journal(url) as journal, open_store(journal, lease) as store:
        with suppress(JournalUnavailable):  # expelled: whoever took over performs them
            await asyncio.gather(*(begin(journal, store, f"{name}-{number}") for number in range(count)))
        while not store.expelled and (await store.count(RunFilter())).get(ServedState.OPEN):
            found = await store.claim(random.randint(1, 4))
            with suppress(JournalUnavailable):
                await asyncio.gather(*(perform(journal, store, served.run) for served in found))
            await asyncio.sleep(lease / 8)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
