"""When runs are due: the deadlines of what they wait for, and the age at which their texts are erased.

Where a deadline has passed, the engine records the refusal. Erasure keeps the hash chain verifiable.
"""

import heapq
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic, time
from typing import Protocol

from shikisha.core.errors import JournalUnavailable
from shikisha.core.events import QuestionAsked
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run
from shikisha.server.store import RunFilter, RunStore, ServedState

_LOG = logging.getLogger(__name__)
_FULL_SCAN_SECONDS = 300.0  # seconds between two looks at all that waits: other servers' questions are not heard here
_SCAN_PAGE = 200
RETENTION_SECONDS = 600.0  # seconds between two sweeps that found nothing more to do
_ERASED_AT_ONCE = 50  # runs in one transaction
_DAY_SECONDS = 86400.0
RETENTION_ACTOR = "retention"


class WaitingRuns(Protocol):
    """What a look at deadlines needs of the service."""

    store: RunStore

    async def continue_run(self, name: str) -> object:
        """Resume a run that has its answer, or whose deadline has passed."""
        ...

    async def read_family(self, name: str) -> dict[str, Run]:
        """Return a run and its child runs by name."""
        ...


class ApprovalTimeouts:
    """Knows when the next question expires, and resumes its run then."""

    def __init__(
        self,
        root_of: Callable[[str], str],
        clock: Callable[[], float] = time,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self._root_of, self._clock, self._steady = root_of, clock, steady
        self._due: list[tuple[float, str]] = []  # a heap
        self._known: set[tuple[float, str]] = set()
        self._next_whole = (
            -_FULL_SCAN_SECONDS
        )  # by the steady clock: one that is put back must not keep us from looking

    def note(self, event: QuestionAsked) -> None:
        """Take note of a question that is asked here."""
        if event.expires > 0:
            self._note(event.expires, self._root_of(event.run))

    async def look(self, service: WaitingRuns) -> None:
        """Resume every run that waits for an answer past its deadline."""
        now = self._clock()
        if self._steady() >= self._next_whole:
            await self._gather(service)
            self._next_whole = self._steady() + _FULL_SCAN_SECONDS
        while self._due and self._due[0][0] <= now:
            entry = self._due[0]
            await _try_run(partial(self._end_waiting, service, entry[1], now), entry[1])
            heapq.heappop(self._due)
            self._known.discard(entry)

    async def _end_waiting(self, service: WaitingRuns, root: str, now: float) -> None:
        if await self._waits_in_vain(service, root, now):
            await service.continue_run(root)

    def _note(self, expires: float, root: str) -> None:
        if (expires, root) not in self._known:
            self._known.add((expires, root))
            heapq.heappush(self._due, (expires, root))

    async def _gather(self, service: WaitingRuns) -> None:
        """Collect the deadlines of all waiting runs, and resume those that have an answer."""
        after, more = None, True
        while more:
            page = await service.store.search(RunFilter(states=(ServedState.WAITING,), after=after, limit=_SCAN_PAGE))
            for served in page.runs:
                await _try_run(partial(self._look_at, service, served.run), served.run)
            after, more = page.after, page.after is not None

    async def _look_at(self, service: WaitingRuns, root: str) -> None:
        asked = await _open_deadlines(service, root)
        if not asked:  # whoever wrote the answer down died before it could go on
            await service.continue_run(root)
        for expires in asked:
            if expires > 0:
                self._note(expires, root)

    async def _waits_in_vain(self, service: WaitingRuns, root: str, now: float) -> bool:
        served = await service.store.find(root)
        if served is None or served.state is not ServedState.WAITING:
            return False
        return any(0 < expires <= now for expires in await _open_deadlines(service, root))


async def _try_run(look: Callable[[], Awaitable[None]], root: str) -> None:
    """Look at a run that waits; what cannot be read is left as it is, so that others are looked at all the same."""
    try:
        await look()
    except JournalUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - other people's code, and the table says what it raised
        _LOG.error("run %s waits, and cannot be looked at: %s", root, type(error).__name__)


async def _open_deadlines(service: WaitingRuns, root: str) -> list[float]:
    """Return when the open questions of a run and its child runs expire, 0 for those that never do."""
    family = await service.read_family(root)
    return [asked.expires for run in family.values() for asked in run.open_questions]


@dataclass(slots=True)
class Retention:
    """When the next sweep is due (monotonic clock)."""

    due: float = 0.0

    async def look(self, store: RunStore, days: float | None) -> int:
        """Erase a batch of the runs that are older, where it is due; return how many lost their texts."""
        if days is None or monotonic() < self.due:
            return 0
        old = RunFilter(until=time() - days * _DAY_SECONDS, limit=_ERASED_AT_ONCE)
        gone = await store.sweep(old, actor=RETENTION_ACTOR, why=f"older than {days:g} days")
        if not gone.runs:
            self.due = monotonic() + RETENTION_SECONDS
        return len(gone.runs)
