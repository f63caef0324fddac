"""How many streams of events may be open at this server: each looks into the journal now and then.

Invariants: streams together never take more than half of the connections, and a key no more than half of that; bounded
by the keys that listen now: a key nobody listens with is not remembered. Deliberately absent: streams of runs that a
request itself began (the caps on runs bound those).
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import Request

from shikisha.server import sse
from shikisha.server.principal import Principal
from shikisha.server.problems import Problem

MOST = 100  # of a key


class Listeners:
    """Counts the streams of a server that may have so many connections (None: as many as come)."""

    def __init__(self, connections: int | None = None) -> None:
        self._most = None if connections is None else max(2, connections // 2)
        self._most_of_key = MOST if self._most is None else min(MOST, max(1, self._most // 2))
        self._open: Counter[str] = Counter()

    def listened(self, by: Principal, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Return the events as a stream of this key's; Problem (429, 503) when too many are open."""
        self._check(by.key)
        return self._counted(by.key, events)

    def _check(self, key: str) -> None:
        if self._open[key] >= self._most_of_key:
            said = f"the key has {self._most_of_key} streams open, which is the most here"
            raise Problem(429, said, "too_many_streams", wait=1)
        if self._most is not None and self._open.total() >= self._most:
            raise Problem(503, f"{self._most} streams are open, which is the most here", "too_many_streams", wait=1)

    async def _counted(self, key: str, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        try:
            self._check(key)  # again: many may have begun since
        except Problem as problem:
            yield b"event: error\n" + sse.data(problem.body())
            await events.aclose()
            return
        self._open[key] += 1
        try:
            async with aclosing(events):
                async for each in events:
                    yield each
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def listened(request: Request, by: Principal, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Return the events as a stream of this key's; Problem when too many are open."""
    listeners: Listeners = request.app.state.listeners
    return listeners.listened(by, events)
