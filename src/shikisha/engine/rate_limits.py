"""How many calls a worker may have at once, and how many a second, over all runs of an engine.

Invariants: a gate is held for exactly one call and is released however the call ends; `loads` counts calls in flight,
those that wait for a gate, and the steps of plans that are being performed, so that many runs that plan at the same
moment see each other. Owners of work (see `core.fair_work`) wait in turn for places and for the pace; the runs of one
are served as they come. Deliberately absent: whom to call instead (conductors decide that from `loads`).
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar

from aiolimiter import AsyncLimiter

from shikisha.core.fair_work import FairSemaphore
from shikisha.engine.worker import Card

_NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()
# What the plan being performed here has announced and not yet called, by the owner of the limits.
_ANNOUNCED: ContextVar[Counter[str] | None] = ContextVar("announced", default=None)


class ConcurrencyLimits:
    """One gate for each worker that has a limit, made when it is first called."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], FairSemaphore] = {}
        self._paces: dict[tuple[str, float], tuple[FairSemaphore, AsyncLimiter]] = {}
        self._calls = Counter[str]()  # by worker, or by whose limits it shares: in flight, waiting, or announced

    def hold(self, card: Card) -> AbstractAsyncContextManager[None]:
        """Wait for a place among this worker's calls, and then for its pace."""
        return self._hold(card) if card.limited else _NO_LIMIT

    @contextmanager
    def announced(self, cards: Iterable[Card]) -> Iterator[None]:
        """Count a plan's calls to limited workers from now on; each goes over into the call when that is made."""
        mine = Counter(card.limits or card.name for card in cards if card.limited)
        self._calls.update(mine)
        token = _ANNOUNCED.set(mine)
        try:
            yield
        finally:
            _ANNOUNCED.reset(token)
            self._calls.subtract(mine)

    def loads(self, cards: Iterable[Card]) -> dict[str, float]:
        """Return how loaded each limited worker is: calls by places, 1 and more where the next call would wait."""
        return {card.name: self._load(card) for card in cards if card.limited}

    def _load(self, card: Card) -> float:
        owner = card.limits or card.name
        load = 0.0 if card.concurrency is None else self._calls[owner] / card.concurrency
        pace = None if card.rate is None else self._paces.get((owner, card.rate))
        return load if pace is None or pace[1].has_capacity() else max(1.0, load)

    @asynccontextmanager
    async def _hold(self, card: Card) -> AsyncIterator[None]:
        owner = card.limits or card.name
        mine = _ANNOUNCED.get()
        if mine is not None and mine[owner] > 0:
            mine[owner] -= 1
        else:
            self._calls[owner] += 1
        try:
            async with self._gate(card):
                yield
        finally:
            self._calls[owner] -= 1

    @asynccontextmanager
    async def _gate(self, card: Card) -> AsyncIterator[None]:
        owner, slots = card.limits or card.name, _NO_LIMIT
        if card.concurrency is not None:
            slots = self._slots.setdefault((owner, card.concurrency), FairSemaphore(card.concurrency))
        async with slots:
            if card.rate is not None:
                if (owner, card.rate) not in self._paces:
                    self._paces[owner, card.rate] = FairSemaphore(1), AsyncLimiter(1, 1 / card.rate)
                turn, pace = self._paces[owner, card.rate]
                async with turn:  # the limiter itself serves first who came first
                    await pace.acquire()
            yield
