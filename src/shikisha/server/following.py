"""Hearing a run from wherever it is performed: here, in another server, or long ago.

Invariant: the numbers of events are the same on every path (their places among the run's events in the journal), so a
listener that moves from one server to another misses nothing and hears nothing twice. Deliberately absent: text pieces
of runs that are performed elsewhere (the journal has whole answers only).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from shikisha.journal import Journal
from shikisha.server.live import Happened, Heard, Live
from shikisha.server.store import State, Store

_LOOK = 0.2  # seconds between two looks into the journal


async def follow(
    journal: Journal, store: Store, live: Callable[[], Live | None], name: str, after: int
) -> AsyncGenerator[Heard]:
    """Yield a run's events after a number, then everything that follows, until it ends, is stopped, or waits."""
    heard = after
    while True:
        here = live()
        if here is not None:
            async with aclosing(here.listen(heard)) as listening:
                async for item in listening:
                    if isinstance(item, Happened):
                        heard = item.number
                    yield item
            if live() is None:
                return
            continue
        served = await store.find(name)
        over = served is None or served.state is not State.OPEN  # looked at first: what it ended with is read below
        for number, event in enumerate(await journal.read(name)):
            if number > heard:
                heard = number
                yield Happened(number, event)
        if over:
            return
        await asyncio.sleep(_LOOK)
