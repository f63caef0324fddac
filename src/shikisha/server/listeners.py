"""How many streams of events a key may have open at this server: each looks into the journal now and then.

Invariant: bounded by the keys that listen now; a key nobody listens with is not remembered. Deliberately absent:
streams of runs that a request itself began (the caps on runs bound those).
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import Request

from shikisha.server.principal import Principal
from shikisha.server.problems import Problem

MOST = 100


def listened(request: Request, by: Principal, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Return the events as a stream of this key's; Problem (429) when it has too many open."""
    state = request.app.state
    if not hasattr(state, "listeners"):
        state.listeners = Counter()
    open_now: Counter[str] = state.listeners
    if open_now[by.key] >= MOST:
        raise Problem(429, f"the key has {MOST} streams open, which is the most here", "too_many_streams", wait=1)
    return _counted(open_now, by.key, events)


async def _counted(open_now: Counter[str], key: str, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    open_now[key] += 1
    try:
        async with aclosing(events):
            async for each in events:
                yield each
    finally:
        open_now[key] -= 1
        if not open_now[key]:
            del open_now[key]
