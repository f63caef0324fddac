"""The journal: an append-only, hash-chained log of events in SQLite or PostgreSQL, and what can be read from it.

Invariant 4 rests on it: events are stored in the order added, and `flush` returns once everything added is on disk.
Reading sees everything added before. Nothing outlives `open_journal`: on leaving, what was added is stored, the writer
ends and the connections close. Deliberately absent: changing or deleting events; their texts can be erased.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, delete, select

from shikisha.core.errors import JournalUnavailable, UnknownRun
from shikisha.core.events import Event, RunStatus
from shikisha.core.run import Run, root_run_id
from shikisha.journal import queries
from shikisha.journal.drivers import JournalDriver, parse_store_url, store_module
from shikisha.journal.erasure import UNFINISHED, Eraser, ErasureResult
from shikisha.journal.records import check_records
from shikisha.journal.run_index import PAGE_EVENTS, EndedRun, IndexProgress, forget_words, index_events
from shikisha.journal.schema import APPLIED, SERVED, prepare_tables
from shikisha.journal.stored_events import RunOverview
from shikisha.journal.verification import (
    ChainCheckpoint,
    ChainSegment,
    SegmentAudit,
    SegmentFindings,
    Verification,
    combine_findings,
)
from shikisha.journal.writer import JournalWriter

T = TypeVar("T")
_ALL_RUNS = 2**31
_MAX_ENDED = 5_000  # runs that wait to be indexed
_PAGE = 200  # events an export holds at a time


def _tenants(connection: Connection) -> dict[str, str]:
    """Return whose the served runs are."""
    return {row.run: row.tenant for row in connection.execute(select(SERVED.c.run, SERVED.c.tenant))}


class Journal(JournalWriter):
    """A Recorder that stores its events in a database; `open_journal` returns it."""

    _driver: JournalDriver

    def __init__(self, driver: JournalDriver) -> None:
        super().__init__(driver)
        self._forgetting: list[Callable[[], Awaitable[None]]] = []
        self._unfinished = True  # as far as we know
        self._ended: dict[str, EndedRun] = {}

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run a function of a connection in a transaction of its own; it may be run twice when an answer is lost."""
        return await self._driver.write(work)

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run a function that only reads; it sees what is committed, which need not be all that was added."""
        return await self._driver.read(work)

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written; UnknownRun when there are none."""
        await self.flush()
        return await self._driver.read(partial(queries.read_events, run=run))

    async def runs(self, *, limit: int = 20, status: RunStatus | None = None) -> tuple[RunOverview, ...]:
        """Return the runs that began last, newest first, all or those of a status."""
        await self.flush()
        indexed = status is not None and await self._try_to_index()
        return await self._driver.read(partial(queries.newest_runs, limit=limit, status=status, indexed=indexed))

    async def all_runs(self) -> list[Run]:
        """Return all runs, the oldest first, each with its tenant: that of a run of an earlier version too."""
        return await self.fold_runs([one.id for one in reversed(await self.runs(limit=_ALL_RUNS))])

    async def fold_runs(self, names: Iterable[str]) -> list[Run]:
        """Return these runs, each with its tenant: that of a run of an earlier version too."""
        found = [Run.fold(await self.read(name)) for name in names]
        unknown = [run for run in found if run.started.tenant is None]
        owners = await self.query(_tenants) if unknown else {}
        for run in unknown:  # a run that no server was asked for is the operator's
            run.started = replace(run.started, tenant=owners.get(root_run_id(run.id), ""))
        return found

    async def index(self, pages: int | None = None, page_events: int = PAGE_EVENTS) -> IndexProgress:
        """Take what was stored lately into the index of runs, at most so many pages of it; return how far that led."""
        return await index_events(self._driver, pages, page_events, self._ended)

    def note_ended(self, run: Run, rows: int) -> None:
        """Keep what the index needs of a run that ended here, in so many rows, so that it need not be read for it."""
        self._ended[run.id] = EndedRun.of(run, rows)
        if len(self._ended) > _MAX_ENDED:
            self._ended.pop(next(iter(self._ended)), None)

    async def _try_to_index(self) -> bool:
        """Whether the index has all events, after taking them in; not where the store cannot be written."""
        try:
            return (await self.index()).complete
        except JournalUnavailable:
            return False

    async def children(self, run: str) -> tuple[RunOverview, ...]:
        """Return the child runs of a run, oldest first; UnknownRun when there is no such run."""
        await self.flush()
        return await self._driver.read(partial(queries.child_runs, run=run))

    async def verify(self, expect: str | None = None, since: ChainCheckpoint | None = None) -> Verification:
        """Check events, texts and governance records against the hash chain, and that a hash noted earlier is in it.

        `since`: check that the chain holds this checkpoint, and only the events after it.
        """
        found = [await self.audit(ChainSegment(since.count if since else 0), expect, since)]
        return await self.conclude(found, expect, since)

    async def conclude(
        self, found: Sequence[SegmentFindings], expect: str | None = None, since: ChainCheckpoint | None = None
    ) -> Verification:
        """Return the verification of segments that were checked apart, with the governance records of this moment."""
        return combine_findings(found, expect, since, await self._driver.snapshot(check_records))

    async def audit(
        self, segment: ChainSegment, expect: str | None = None, since: ChainCheckpoint | None = None
    ) -> SegmentFindings:
        """Check a segment of the chain; `conclude` says what segments say together."""
        await self.flush()
        audit = SegmentAudit(expect, segment, since)
        while not await self._driver.read(audit.step):
            pass
        return audit.findings()

    async def count_events(self) -> int:
        """Return how many events the chain has by its head."""
        await self.flush()
        return await self._driver.read(queries.count_events)

    async def erase(
        self,
        runs: Iterable[str],
        *,
        actor: str,
        why: str = "",
        hook: Callable[[Connection, Sequence[str]], None] | None = None,
    ) -> ErasureResult:
        """Erase every text of these runs and their child runs; the events stay, and one more in each says so.

        A text that another run has too stays until that is erased, and is not shown for these. Nothing may be added to
        these runs meanwhile: end them first. `hook` is called in the same transaction and may refuse by raising.
        Raises UnknownRun, with nothing done, when there is no such run.
        """
        await self.flush()
        eraser = Eraser(tuple(runs), actor, why, hook)
        while not await self._driver.read(eraser.survey):
            pass
        result = await self._driver.write(eraser.erase)
        self._unfinished = True
        await self.finish_erasures()
        return result

    def on_erased(self, forget: Callable[[], Awaitable[None]]) -> None:
        """Have another store forget what erased runs left in it, as a part of every erasure (`finish_erasures`)."""
        self._forgetting.append(forget)

    async def finish_erasures(self) -> None:
        """Finish what an erasure left undone, here or in a process that died; JournalUnavailable if that fails.

        Other stores are asked each time, as another server of this journal may have erased.
        """
        if self._unfinished:
            marked = select(APPLIED.c.batch).where(APPLIED.c.writer == UNFINISHED)
            if await self._driver.read(lambda connection: connection.execute(marked).first()):
                await forget_words(self._driver)
                await self._purge()
                await self._driver.write(lambda at: at.execute(delete(APPLIED).where(APPLIED.c.writer == UNFINISHED)))
        for forget in self._forgetting:
            await forget()
        self._unfinished = False

    async def _purge(self) -> None:
        if not await self._driver.purge_deleted():
            raise JournalUnavailable(
                "the texts are erased, but somebody reads an older state of the store, whose log has them until then: "
                "ask again"
            )

    async def export(self, run: str | None = None) -> AsyncIterator[str]:
        """Yield the events of one run or of all as lines of JSON, texts in place; UnknownRun when there are none."""
        await self.flush()
        after, read = -1, 0
        while page := await self._driver.read(partial(queries.export_lines, after=after, run=run, limit=_PAGE)):
            after, read = page[-1][0], read + len(page)
            for _, line in page:
                yield line
        if run is not None and not read:
            raise UnknownRun(f"no run {run} in this journal")


@asynccontextmanager
async def open_journal(url: str, patience: float) -> AsyncIterator[Journal]:
    """Open the journal at a URL, as `shikisha.journal.open_journal` says."""
    location = parse_store_url(url)
    async with store_module(location).connect(location, patience) as driver:
        await prepare_tables(location, driver, patience)
        async with Journal(driver) as journal:
            yield journal
