"""Maintenance of runs: takes over runs of dead servers, stops canceled ones, resumes stuck ones, enforces deadlines.

Each look also ends waits whose deadline has passed, erases texts that are older than `keep_days` (both: `deadlines`),
and keeps the index of runs up to date. Invariant: a look that fails is repeated, and trouble with one run affects no
other. The store's leases decide which server is dead.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from shikisha.core.errors import JournalUnavailable, ShikishaError
from shikisha.server.ops.watchdog import run_context
from shikisha.server.store import ServedRun, ServedState

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
    await service.retention.look(service.store, service.settings.keep_days)


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
