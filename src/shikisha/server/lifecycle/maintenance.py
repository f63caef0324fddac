"""Maintenance of runs: takes over runs of dead servers, stops canceled ones, resumes stuck ones, enforces deadlines.

Each look also ends waits whose deadline has passed (`ApprovalTimeouts`: the engine then records the refusal) and
erases texts that are older than `keep_days` (`Retention`: the hash chain stays verifiable), and keeps the index of runs
up to date. Invariant: a look that
fails is repeated, and trouble with one run affects no other. The store's leases decide which server is dead.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING

from shikisha.core.errors import JournalUnavailable, ShikishaError
from shikisha.core.events import Event, QuestionAsked
from shikisha.server.ops.watchdog import run_context
from shikisha.server.store import RunFilter, ServedRun, ServedState

if TYPE_CHECKING:
    from shikisha.learned.journal_learner import JournalLearner
    from shikisha.server.lifecycle.service import RunService

_LOG = logging.getLogger(__name__)
_MAX_PAUSE = 2.5  # seconds between two looks, however long the lease: people wait for what they approved elsewhere
_INDEX_PAGES = 20  # pages of events that a look takes into the index: an old journal is taken in over some minutes
_RESUMED_AT_ONCE = 8  # runs that are read at once, as many as the database has connections to spare


async def maintain_runs(service: "RunService") -> None:
    """Look after runs until cancelled, several times a lease and every few seconds."""
    while True:
        await maintain_once(service)
        await asyncio.sleep(min(service.settings.lease / 4, _MAX_PAUSE))


async def maintain_once(service: "RunService") -> None:
    """Run all maintenance tasks once."""
    for part in (
        _rejoin_store,
        _stop_cancelled,
        _resume_stuck,
        _return_budgets,
        _expire_approvals,
        _finish_erasures,
        _erase_old_runs,
        _claim_orphans,
        _announce_quarantines,
        _index_runs,
    ):
        try:
            await part(service)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            _LOG.warning("looking after runs: %s: %s", part.__name__.strip("_"), type(error).__name__)


async def _rejoin_store(service: "RunService") -> None:
    if service.expulsions and service.idle:
        await service.store.join()
        service.expulsions = 0


async def _stop_cancelled(service: "RunService") -> None:
    for name in await service.store.stopped():
        if name in service.running or (await service.find_served(name)).state is ServedState.WAITING:
            await service.cancel(name)


async def _resume_stuck(service: "RunService") -> None:
    for name in tuple(service.stuck):
        try:
            await service.retry_stuck(name)
        except JournalUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one run's trouble is no other's
            _give_up_run(service, name, error)
        service.stuck.discard(name)


async def _return_budgets(service: "RunService") -> None:
    await service.key_budgets.return_unused()


async def _expire_approvals(service: "RunService") -> None:
    await service.approval_timeouts.look(service)


async def _finish_erasures(service: "RunService") -> None:
    await service.journal.finish_erasures()


async def _erase_old_runs(service: "RunService") -> None:
    await service.retention.look(service)


async def _claim_orphans(service: "RunService") -> None:
    room = service.settings.max_runs - len(service.running)
    if room > 0 and not service.expulsions:
        claimed = await service.store.claim(room)
        gate = asyncio.Semaphore(_RESUMED_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for served in claimed:
                group.create_task(_resume_claimed(service, served, gate), context=run_context(served.run, served.key))


async def _announce_quarantines(service: "RunService") -> None:
    """Write into the journal which runs are quarantined; the database knows it already."""
    for served in () if service.expulsions else await service.store.unannounced():
        await service.quarantine(served)


async def _index_runs(service: "RunService") -> None:
    """Take what was journaled lately into the index of runs, so that a page never waits for it."""
    await service.journal.index(_INDEX_PAGES)


async def _resume_claimed(service: "RunService", served: ServedRun, gate: asyncio.Semaphore) -> None:
    """Go on with a run that was claimed; while the journal is away it comes with the next claim."""
    async with gate:
        try:
            await service.resume(served.run, served)
        except JournalUnavailable as error:
            service.store.drop(served.run)
            _LOG.warning("run %s cannot be gone on with now: %s", served.run, type(error).__name__)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - what is stored may be anything, and others wait to be gone on with
            _give_up_run(service, served.run, error)


def _give_up_run(service: "RunService", name: str, error: BaseException) -> None:
    """Stop a run that cannot be read or performed, so that no server resumes it by itself."""
    _LOG.error("run %s is given up: %s", name, type(error).__name__)
    service.store.mark(name, ServedState.STOPPED)


_FULL_SCAN_SECONDS = 300.0  # seconds between two looks at all that waits: other servers' questions are not heard here
_SCAN_PAGE = 200


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

    def note(self, event: Event) -> None:
        """Take note of a question that is asked here (the service's watcher)."""
        if isinstance(event, QuestionAsked) and event.expires > 0:
            self._note(event.expires, self._root_of(event.run))

    async def look(self, service: "RunService") -> None:
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

    async def _end_waiting(self, service: "RunService", root: str, now: float) -> None:
        if await self._waits_in_vain(service, root, now):
            await service.continue_run(root)

    def _note(self, expires: float, root: str) -> None:
        if (expires, root) not in self._known:
            self._known.add((expires, root))
            heapq.heappush(self._due, (expires, root))

    async def _gather(self, service: "RunService") -> None:
        """Collect the deadlines of all waiting runs, and resume those that have an answer."""
        after, more = None, True
        while more:
            page = await service.store.search(RunFilter(states=(ServedState.WAITING,), after=after, limit=_SCAN_PAGE))
            for served in page.runs:
                await _try_run(partial(self._look_at, service, served.run), served.run)
            after, more = page.after, page.after is not None

    async def _look_at(self, service: "RunService", root: str) -> None:
        asked = await _open_deadlines(service, root)
        if not asked:  # whoever wrote the answer down died before it could go on
            await service.continue_run(root)
        for expires in asked:
            if expires > 0:
                self._note(expires, root)

    async def _waits_in_vain(self, service: "RunService", root: str, now: float) -> bool:
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


async def _open_deadlines(service: "RunService", root: str) -> list[float]:
    """Return when the open questions of a run and its child runs expire, 0 for those that never do."""
    family = await service.read_family(root)
    return [asked.expires for run in family.values() for asked in run.open_questions]


def background_learning(service: "RunService") -> Callable[[], Coroutine[object, object, None]]:
    """Return what learns from runs until it is cancelled, where learning is on; erasures take part from now on."""
    table = service.container.settings.learning
    if not table.on and not (service.container.folder / table.folder).exists():
        return partial(asyncio.sleep, 0)
    from shikisha.learned.journal_learner import JournalLearner

    files, terms = service.container.learning_files(), service.container.learning_terms()
    learner = JournalLearner(files, service.journal, terms)
    service.journal.on_erased(learner.forget)
    return partial(_keep_learning, learner) if table.on else partial(asyncio.sleep, 0)


async def watch_turns(service: "RunService") -> Callable[[], Coroutine[object, object, None]]:
    """Return what makes shadow turns until it is cancelled; ConfigError where the mode `on` is not justified yet."""
    router, table = service.turn_router, service.container.settings.turns
    if router is None:
        return partial(asyncio.sleep, 0)
    from shikisha.server.lifecycle.shadow_turns import ShadowTurns

    shadow = ShadowTurns(service, router, table)
    await shadow.check()
    service.observers.append(shadow.note)
    service.history_observers.append(router.recall)
    return shadow.work


async def _keep_learning(learner: "JournalLearner") -> None:
    while True:
        try:
            await learner.look()
        except (ShikishaError, OSError) as error:
            _LOG.warning("learning from runs: %s", error)
        except Exception:  # noqa: BLE001 - numbers that no fit can take must not end the server
            _LOG.exception("learning from runs failed")
        await asyncio.sleep(_MAX_PAUSE)


RETENTION_SECONDS = 600.0  # seconds between two sweeps that found nothing more to do
_ERASED_AT_ONCE = 50  # runs in one transaction
_DAY_SECONDS = 86400.0
RETENTION_ACTOR = "retention"


@dataclass(slots=True)
class Retention:
    """When the next sweep is due (monotonic clock)."""

    due: float = 0.0

    async def look(self, service: "RunService") -> int:
        """Erase a batch where it is due; return how many runs lost their texts."""
        days = service.settings.keep_days
        if days is None or monotonic() < self.due:
            return 0
        old = RunFilter(until=time() - days * _DAY_SECONDS, limit=_ERASED_AT_ONCE)
        gone = await service.store.sweep(old, actor=RETENTION_ACTOR, why=f"older than {days:g} days")
        if not gone.runs:
            self.due = monotonic() + RETENTION_SECONDS
        return len(gone.runs)
