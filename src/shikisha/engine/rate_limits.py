"""How many calls a worker may have at once, and how many a second, over all runs of an engine.

Invariant: a gate is held for exactly one call and is released however the call ends. Deliberately absent: fairness
between runs beyond first come, first served.
"""

from asyncio import Semaphore
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from aiolimiter import AsyncLimiter

from shikisha.engine.worker import Card

_NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()


class ConcurrencyLimits:
    """One gate for each worker that has a limit, made when it is first called."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], Semaphore] = {}
        self._paces: dict[tuple[str, float], AsyncLimiter] = {}

    def hold(self, card: Card) -> AbstractAsyncContextManager[None]:
        """Wait for a place among this worker's calls, and then for its pace."""
        return _NO_LIMIT if card.concurrency is None and card.rate is None else self._hold(card)

    @asynccontextmanager
    async def _hold(self, card: Card) -> AsyncIterator[None]:
        slots = None
        if card.concurrency is not None:
            slots = self._slots.setdefault((card.limits or card.name, card.concurrency), Semaphore(card.concurrency))
            await slots.acquire()
        try:
            if card.rate is not None:
                pace = (card.limits or card.name, card.rate)
                if pace not in self._paces:
                    self._paces[pace] = AsyncLimiter(1, 1 / card.rate)
                await self._paces[pace].acquire()
            yield
        finally:
            if slots is not None:
                slots.release()
