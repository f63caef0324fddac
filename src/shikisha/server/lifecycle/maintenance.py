"""Looking after runs: those of servers that died are taken over, cancelled ones are stopped, stuck ones go on.

Invariant: a look that fails (the journal is away) is made again, and what is wrong with one run or one part of it keeps
no other from being looked after, and never ends the house. Deliberately absent: deciding which server is dead (the
store's leases).

Runs that wait in vain: once a question's time is over, its run goes on, which makes a no of it.

Invariants: nothing is decided here (the engine says that nobody answered in time, in the journal), so a look too many
does no harm, and two servers that look at once do no more than one; a server that starts finds what expired while none
ran, and what was answered by one that died before it went on. Deliberately absent: how long questions wait
([autonomy], [server]).

Retention: the texts of runs that are older than the configuration keeps them are erased, a few at a time.

Invariant: an erasure is the same as an admin's: journaled, and the hash chain stays verifiable; runs that are open or
wait are left alone until they are over. Deliberately absent: deleting events (who did what, and at which cost, stays).
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING

from shikisha.core.errors import JournalUnavailable
from shikisha.core.events import Event, QuestionAsked
from shikisha.server.ops.watchdog import run_context
from shikisha.server.store import RunFilter, ServedRun, ServedState

if TYPE_CHECKING:
    from shikisha.server.lifecycle.service import RunService

_LOG = logging.getLogger(__name__)
_MAX_PAUSE = 2.5  # seconds between two looks, however long the lease: people wait for what they approved elsewhere
_RESUMED_AT_ONCE = 8  # runs that are read at once, as many as the database has connections to spare


async def maintain_runs(house: "RunService") -> None:
    """Look after runs until cancelled, several times a lease and every few seconds."""
    while True:
        await maintain_once(house)
        await asyncio.sleep(min(house.settings.lease / 4, _MAX_PAUSE))


async def maintain_once(house: "RunService") -> None:
    """Look once: come back after an expulsion, stop what was cancelled elsewhere, go on with what nobody performs."""
    for part in (
        _rejoin_store,
        _stop_cancelled,
        _resume_stuck,
        _return_budgets,
        _expire_approvals,
        _erase_old_runs,
        _claim_orphans,
        _announce_quarantines,
    ):
        try:
            await part(house)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            _LOG.warning("looking after runs: %s: %s", part.__name__.strip("_"), type(error).__name__)


async def _rejoin_store(house: "RunService") -> None:
    if house.expulsions and house.idle:
        await house.store.join()
        house.expulsions = 0


async def _stop_cancelled(house: "RunService") -> None:
    for name in await house.store.stopped():
        if name in house.running or (await house.served(name)).state is ServedState.WAITING:
            await house.cancel(name)


async def _resume_stuck(house: "RunService") -> None:
    for name in tuple(house.stuck):
        try:
            await house.unstick(name)
        except JournalUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - other people's code, and the table says what it raised
            _give_up_run(house, name, error)
        house.stuck.discard(name)


async def _return_budgets(house: "RunService") -> None:
    await house.purses.rest()


async def _expire_approvals(house: "RunService") -> None:
    await house.expiring.look(house)


async def _erase_old_runs(house: "RunService") -> None:
    await house.retaining.look(house)


async def _claim_orphans(house: "RunService") -> None:
    room = house.settings.max_runs - len(house.running)
    if room > 0 and not house.expulsions:
        claimed = await house.store.claim(room)
        gate = asyncio.Semaphore(_RESUMED_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for served in claimed:
                group.create_task(_resume_claimed(house, served, gate), context=run_context(served.run))


async def _announce_quarantines(house: "RunService") -> None:
    """Write into the journal which runs are quarantined; the database knows it already."""
    for served in () if house.expulsions else await house.store.unannounced():
        await house.quarantine(served)


async def _resume_claimed(house: "RunService", served: ServedRun, gate: asyncio.Semaphore) -> None:
    """Go on with a run that was claimed; while the journal is away it comes with the next claim."""
    async with gate:
        try:
            await house.resume(served.run, served)
        except JournalUnavailable as error:
            house.store.drop(served.run)
            _LOG.warning("run %s cannot be gone on with now: %s", served.run, type(error).__name__)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            _give_up_run(house, served.run, error)


def _give_up_run(house: "RunService", name: str, error: BaseException) -> None:
    """Leave a run that cannot be read or performed to people: nobody takes it up by itself again."""
    _LOG.error("run %s is given up: %s", name, type(error).__name__)
    house.store.mark(name, ServedState.STOPPED)


if TYPE_CHECKING:
    from shikisha.server.lifecycle.service import RunService

_FULL_SCAN_SECONDS = 300.0  # seconds between two looks at all that waits: other servers' questions are not heard here
_SCAN_PAGE = 200


class ApprovalTimeouts:
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
        self._next_whole = (
            -_FULL_SCAN_SECONDS
        )  # by the steady clock: one that is put back must not keep us from looking

    def note(self, event: Event) -> None:
        """Take note of a question that is asked here (the house's watcher)."""
        if isinstance(event, QuestionAsked) and event.expires > 0:
            self._note(event.expires, self._root_of(event.run))

    async def look(self, house: "RunService") -> None:
        """Go on with every run that waits for an answer which cannot come any more."""
        now = self._clock()
        if self._steady() >= self._next_whole:
            await self._gather(house)
            self._next_whole = self._steady() + _FULL_SCAN_SECONDS
        while self._due and self._due[0][0] <= now:
            entry = self._due[0]
            await _try_run(partial(self._end_waiting, house, entry[1], now), entry[1])
            heapq.heappop(self._due)
            self._known.discard(entry)

    async def _end_waiting(self, house: "RunService", root: str, now: float) -> None:
        if await self._waits_in_vain(house, root, now):
            await house.go_on(root)

    def _note(self, expires: float, root: str) -> None:
        if (expires, root) not in self._known:
            self._known.add((expires, root))
            heapq.heappush(self._due, (expires, root))

    async def _gather(self, house: "RunService") -> None:
        """Note the questions of all runs that wait, whoever performed them; go on with those that have an answer."""
        after, more = None, True
        while more:
            page = await house.store.search(RunFilter(states=(ServedState.WAITING,), after=after, limit=_SCAN_PAGE))
            for served in page.runs:
                await _try_run(partial(self._look_at, house, served.run), served.run)
            after, more = page.after, page.after is not None

    async def _look_at(self, house: "RunService", root: str) -> None:
        asked = await _open_deadlines(house, root)
        if not asked:  # whoever wrote the answer down died before it could go on
            await house.go_on(root)
        for expires in asked:
            if expires > 0:
                self._note(expires, root)

    async def _waits_in_vain(self, house: "RunService", root: str, now: float) -> bool:
        served = await house.store.find(root)
        if served is None or served.state is not ServedState.WAITING:
            return False
        return any(0 < expires <= now for expires in await _open_deadlines(house, root))


async def _try_run(look: Callable[[], Awaitable[None]], root: str) -> None:
    """Look at a run that waits; what cannot be read is left as it is, so that others are looked at all the same."""
    try:
        await look()
    except JournalUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - other people's code, and the table says what it raised
        _LOG.error("run %s waits, and cannot be looked at: %s", root, type(error).__name__)


async def _open_deadlines(house: "RunService", root: str) -> list[float]:
    """Return when the open questions of a run and its child runs expire, 0 for those that never do."""
    family = await house.family(root)
    return [asked.expires for run in family.values() for asked in run.open_questions]


if TYPE_CHECKING:
    from shikisha.server.lifecycle.service import RunService

RETENTION_SECONDS = 600.0  # seconds between two sweeps that found nothing more to do
_ERASED_AT_ONCE = 50  # runs in one transaction
_DAY_SECONDS = 86400.0
RETENTION_ACTOR = "retention"


@dataclass(slots=True)
class Retention:
    """When the next sweep is due (monotonic clock)."""

    due: float = 0.0

    async def look(self, house: "RunService") -> int:
        """Erase a batch where it is due; return how many runs lost their texts."""
        days = house.settings.keep_days
        if days is None or monotonic() < self.due:
            return 0
        old = RunFilter(until=time() - days * _DAY_SECONDS, limit=_ERASED_AT_ONCE)
        gone = await house.store.sweep(old, actor=RETENTION_ACTOR, why=f"older than {days:g} days")
        if not gone.runs:
            self.due = monotonic() + RETENTION_SECONDS
        return len(gone.runs)
