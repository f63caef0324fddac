"""Runs that wait in vain: once a question's time is over, its run goes on, which makes a no of it.

Invariants: nothing is decided here (the engine says that nobody answered in time, in the journal), so a look too many
does no harm, and two servers that look at once do no more than one; a server that starts finds what expired while none
ran, and what was answered by one that died before it went on. Deliberately absent: how long questions wait
([autonomy], [server]).
"""

import heapq
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING

from shikisha.errors import JournalUnavailable
from shikisha.events import Event, QuestionAsked
from shikisha.server.store import Filter, State

if TYPE_CHECKING:
    from shikisha.server.house import House

_LOG = logging.getLogger(__name__)
_WHOLE = 300.0  # seconds between two looks at all that waits: other servers' questions are not heard here
_PAGE = 200


class Expiring:
    """Knows when the next question expires, and goes on with its run then."""

    def __init__(
        self,
        root_of: Callable[[str], str],
        clock: Callable[[], float] = time,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self._root_of, self._clock, self._steady = root_of, clock, steady
        self._due: list[tuple[float, str]] = []  # a heap
        self._known: set[tuple[float, str]] = set()
        self._next_whole = -_WHOLE  # by the steady clock: one that is put back must not keep us from looking

    def note(self, event: Event) -> None:
        """Take note of a question that is asked here (the house's watcher)."""
        if isinstance(event, QuestionAsked) and event.expires > 0:
            self._note(event.expires, self._root_of(event.run))

    async def look(self, house: "House") -> None:
        """Go on with every run that waits for an answer which cannot come any more."""
        now = self._clock()
        if self._steady() >= self._next_whole:
            await self._gather(house)
            self._next_whole = self._steady() + _WHOLE
        while self._due and self._due[0][0] <= now:
            entry = self._due[0]
            await _try(partial(self._end_waiting, house, entry[1], now), entry[1])
            heapq.heappop(self._due)
            self._known.discard(entry)

    async def _end_waiting(self, house: "House", root: str, now: float) -> None:
        if await self._waits_in_vain(house, root, now):
            await house.go_on(root)

    def _note(self, expires: float, root: str) -> None:
        if (expires, root) not in self._known:
            self._known.add((expires, root))
            heapq.heappush(self._due, (expires, root))

    async def _gather(self, house: "House") -> None:
        """Note the questions of all runs that wait, whoever performed them; go on with those that have an answer."""
        after, more = None, True
        while more:
            page = await house.store.search(Filter(states=(State.WAITING,), after=after, limit=_PAGE))
            for served in page.runs:
                await _try(partial(self._look_at, house, served.run), served.run)
            after, more = page.after, page.after is not None

    async def _look_at(self, house: "House", root: str) -> None:
        asked = await _open(house, root)
        if not asked:  # whoever wrote the answer down died before it could go on
            await house.go_on(root)
        for expires in asked:
            if expires > 0:
                self._note(expires, root)

    async def _waits_in_vain(self, house: "House", root: str, now: float) -> bool:
        served = await house.store.find(root)
        if served is None or served.state is not State.WAITING:
            return False
        return any(0 < expires <= now for expires in await _open(house, root))


async def _try(look: Callable[[], Awaitable[None]], root: str) -> None:
    """Look at a run that waits; what cannot be read is left as it is, so that others are looked at all the same."""
    try:
        await look()
    except JournalUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - what is stored may be anything
        _LOG.error("run %s waits, and cannot be looked at: %s", root, type(error).__name__)


async def _open(house: "House", root: str) -> list[float]:
    """Return when the open questions of a run and its child runs expire, 0 for those that never do."""
    family = await house.family(root)
    return [asked.expires for run in family.values() for asked in run.open_questions]
