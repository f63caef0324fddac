"""Answers of a database that are remembered for a moment.

Invariant: no answer is older than `FRESH` when it is given, counted from before it was asked for; what is put in by
hand is never overtaken by what was asked before. One question is asked once at a time. Bounded. Deliberately absent:
answers that are given although the database cannot be asked (it fails closed).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

V = TypeVar("V")
FRESH = 1.0  # seconds
_MOST = 10_000


class _Turn(asyncio.Lock):
    """A lock that a weak dictionary can hold."""


class Fresh(Generic[V]):
    """Remembers what `ask(name)` answered."""

    def __init__(self, ask: Callable[[str], Awaitable[V]], clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, V]] = OrderedDict()
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    async def get(self, name: str) -> V:
        """Return the answer, asked for if need be."""
        known = self._known.get(name)
        if known is not None and self._young(known[0]):
            return known[1]
        async with self._turns.setdefault(name, _Turn()):
            known = self._known.get(name)
            if known is not None and self._young(known[0]):
                return known[1]
            asked = self._clock()
            answer = await self._ask(name)
            known = self._known.get(name)
            if known is not None and known[0] > asked:
                return known[1]
            self._put(name, asked, answer)
            return answer

    def put(self, name: str, answer: V) -> None:
        """Remember an answer that is known to be right from now on."""
        self._put(name, self._clock(), answer)

    def drop(self, name: str) -> None:
        """Forget an answer: the next one who asks gets a new one."""
        self._known.pop(name, None)

    def _young(self, at: float) -> bool:
        return 0 <= self._clock() - at < FRESH

    def _put(self, name: str, at: float, answer: V) -> None:
        self._known[name] = (at, answer)
        self._known.move_to_end(name)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
