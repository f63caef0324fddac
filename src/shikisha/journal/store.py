"""The journal: an append-only, hash-chained log of events in SQLite or PostgreSQL, and what can be read from it.

Invariant 4 rests on it: events are stored in the order added, and `flush` returns once everything added is on disk.
Reading sees everything added before. Nothing outlives `open_journal`: on leaving, what was added is stored, the writer
ends and the connections close. Deliberately absent: changing or deleting events; their texts can be erased.
"""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, delete, false, insert, or_, select

from shikisha.core.errors import JournalUnavailable, UnknownRun
from shikisha.core.events import BodiesErased, Event, PlanProposed, RunStatus
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Run, root_run_id
from shikisha.journal import queries
from shikisha.journal.chain import GENESIS, EventBatch, chain_hash, lock_head
from shikisha.journal.codec import body_hash, body_references, body_text, canonical_tail, encode_event, list_references
from shikisha.journal.drivers import JournalDriver, parse_store_url, store_module
from shikisha.journal.queries import child_run_ids, event_rows, in_chunks, read_bodies, read_erasures
from shikisha.journal.records import NO_RECORDS, RecordFindings, check_records
from shikisha.journal.run_index import PAGE_EVENTS, EndedRun, IndexProgress, forget_texts, forget_words, index_events
from shikisha.journal.schema import APPLIED, BODIES, EVENTS, HEAD, SERVED, prepare_tables
from shikisha.journal.stored_events import EventRow, RunOverview, expand_rows, redact_plan
from shikisha.journal.writer import JournalWriter

# Whether a journal is still what was written: every row, its place, its texts, where the chain ends, the records.
#
# Invariant: a changed, cut, inserted or reordered row and a changed or missing text is found and named by its place. A
# text that is missing because its run was erased later, as the chain says, is counted and is no problem. One thing the
# store alone cannot show: that a writer rewrote the chain from some place to its end, or cut its end and moved the
# head. A head noted elsewhere earlier (`expect`) shows it. Every row holds its hash, so segments of the chain are
# checked apart, in any order: each begins with the hash of the row before it, which the segment before recomputes.
# Deliberately absent: repair.

_VERIFIED_PAGE = 500  # events checked in one transaction, so that writers of PostgreSQL need not keep old rows for long
_ENOUGH = 100  # problems: a chain that is broken in a hundred places is not worth a longer list


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """Something that is not as written, at an event's place where it has one."""

    seq: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.seq is None else f"row {self.seq}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result: how many rows were read, the chain's last hash (note it elsewhere), and what is wrong.

    `erased` are places where a text was, in runs that were erased, `records` changes of governance records, which are
    chained from row `records_since` on.
    """

    count: int
    hash: str
    problems: tuple[ChainProblem, ...] = ()
    erased: int = 0
    records: int = 0
    records_since: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class ChainSegment:
    """The rows from place `start` to before `end` (None: the chain's end)."""

    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class ChainCheckpoint:
    """Where the chain stood when it was verified: after so many rows it had this hash."""

    count: int
    hash: str


@dataclass(frozen=True, slots=True)
class SegmentFindings:
    """What was found in a segment: as `Verification`, and what only the segments together tell.

    `missing` are texts (run, place, key) that no erasure of this segment accounts for; `erased_runs` were erased in it;
    `expected`: whether the hash noted earlier was met.
    """

    count: int
    hash: str
    problems: tuple[ChainProblem, ...] = ()
    erased: int = 0
    missing: tuple[tuple[str, int, str], ...] = ()
    erased_runs: frozenset[str] = frozenset()
    expected: bool = False


def split_chain(count: int, parts: int, start: int = 0) -> tuple[ChainSegment, ...]:
    """Return segments of about one length from a place to the end; the last one has no end, since the chain grows."""
    places = [start + (count - start) * part // parts for part in range(parts)]
    return tuple(
        ChainSegment(place, places[part + 1] if part + 1 < parts else None)
        for part, place in enumerate(places)
        if part + 1 == parts or place < places[part + 1]
    )


def combine_findings(
    segments: Sequence[SegmentFindings],
    expect: str | None = None,
    since: ChainCheckpoint | None = None,
    records: RecordFindings = NO_RECORDS,
) -> Verification:
    """Return the verification of segments that follow each other, in the order of the events, and of the records."""
    problems = [problem for segment in segments for problem in segment.problems]
    problems += [ChainProblem(None, what) for what in records.problems[:_ENOUGH]]
    erased, later = 0, set[str]()
    for segment in reversed(segments):
        erased += segment.erased
        for run, seq, key in segment.missing:
            if run in later:
                erased += 1
            else:
                problems.append(ChainProblem(seq, f"a text of it ({key[:12]}…) is missing"))
        later |= segment.erased_runs
    begun = ChainCheckpoint(0, GENESIS) if since is None else since
    met = expect in {None, GENESIS, begun.hash} or any(segment.expected for segment in segments)
    if not met and len(problems) < _ENOUGH:
        fate = "it was cut or rewritten" if since is None else "only what came after the checkpoint was read"
        problems.append(ChainProblem(None, f"the hash noted earlier ({expect}) is nowhere in the chain: {fate}"))
    problems.sort(key=lambda problem: (problem.seq is None, problem.seq or 0))
    counted = begun.count + sum(segment.count for segment in segments)
    return Verification(counted, segments[-1].hash, tuple(problems), erased, records.changes, records.since)


@dataclass(slots=True)
class SegmentAudit:
    """The verification of a segment under way; `step` is called with a connection until it returns True.

    `since` is a checkpoint at the segment's start, which the chain must hold there.
    """

    expect: str | None = None
    segment: ChainSegment = ChainSegment()
    since: ChainCheckpoint | None = None
    next: int = 0
    count: int = 0
    hash: str = GENESIS
    problems: list[ChainProblem] = field(default_factory=list)
    erased: int = 0
    expected: bool = False
    _last: int | None = None
    _missing: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    _erased_runs: set[str] = field(default_factory=set)

    def step(self, connection: Connection) -> bool:
        """Check one page of events, or the end of the chain when there are no more; return whether that was all."""
        heads = connection.execute(select(HEAD.c.count, HEAD.c.hash)).all()  # before the events, or it might be ahead
        if self._last is None:
            self._begin(connection)
        where = [] if self._last is None else [EVENTS.c.seq > self._last]
        if self.segment.end is not None:
            where.append(EVENTS.c.seq < self.segment.end)
        found = connection.execute(select(EVENTS).where(*where).order_by(EVENTS.c.seq).limit(_VERIFIED_PAGE))
        page = list(map(EventRow._make, found.all()))
        if not page:
            if self.segment.end is None:
                self._check_end([(count, last) for count, last in heads])
            return True
        for row in page:
            if row.seq == self.next:
                written = chain_hash(
                    self.hash, row.seq, canonical_tail(str(row.run), str(row.kind), row.at, str(row.data))
                )
                if written != row.hash:
                    self._report(row.seq, "it is not what was written, or not where it was written")
            elif row.seq > self.next:
                gone = f"row {self.next} is" if row.seq == self.next + 1 else f"rows {self.next} to {row.seq - 1} are"
                self._report(row.seq, f"{gone} missing before it")
            else:
                self._report(row.seq, "no row was ever written in this place")
            self._last, self.next, self.hash, self.count = row.seq, row.seq + 1, str(row.hash), self.count + 1
            self.expected = self.expected or self.hash == self.expect
        self._check_texts(connection, expand_rows(page))
        return len(self.problems) >= _ENOUGH

    def findings(self) -> SegmentFindings:
        """Return what was found so far."""
        missing = tuple((run, seq, key) for run, found in self._missing.items() for seq, key in found)
        return SegmentFindings(
            self.count,
            self.hash,
            tuple(self.problems),
            self.erased,
            missing,
            frozenset(self._erased_runs),
            self.expected,
        )

    def _begin(self, connection: Connection) -> None:
        """Begin with the row before the segment: its place and its hash."""
        if not self.segment.start:
            return
        before = EVENTS.c.seq < self.segment.start
        row = connection.execute(
            select(EVENTS.c.seq, EVENTS.c.hash).where(before).order_by(EVENTS.c.seq.desc()).limit(1)
        ).first()
        if row is not None:
            self._last, self.next, self.hash = row.seq, row.seq + 1, str(row.hash)
        if self.since is not None and (self.next, self.hash) != (self.since.count, self.since.hash):
            self._report(None, f"after {self.since.count} rows the chain does not have the checkpoint's hash")

    def _check_texts(self, connection: Connection, page: list[EventRow]) -> None:
        referred = [(row, key) for row in page for key in ("", *body_references(str(row.kind), str(row.data)).values())]
        lists = [(row, key) for row in page for key in list_references(str(row.kind), str(row.data)).values()]
        found = read_bodies(connection, (key for _, key in (*referred, *lists) if key))
        wrong = {key for key, body in found.items() if body_hash(body) != key}
        for row, key in lists:  # no erasure accounts for one that is missing
            if key not in found or key in wrong:
                fate = "not what was written" if key in found else "missing"
                self._report(row.seq, f"a list of names of it ({key[:12]}…) is {fate}")
        for row, key in referred:
            if not key:  # the event itself: an erasure says that what is missing of the run so far is as it should be
                if row.kind == BodiesErased.kind:
                    self.erased += len(self._missing.pop(str(row.run), ()))
                    self._erased_runs.add(str(row.run))
            elif key not in found:
                self._missing.setdefault(str(row.run), []).append((row.seq, key))
            elif key in wrong:
                self._report(row.seq, f"a text of it ({key[:12]}…) is not what was written")

    def _check_end(self, heads: list[tuple[int, str]]) -> None:
        if len(heads) != 1:
            self._report(None, f"there is one row that says where the chain ends, not {len(heads)}")
        elif heads[0] != (self.next, self.hash):
            count, last = heads[0]
            self._report(None, f"the chain should end after {count} rows with {last[:12]}…; it ends after {self.next}")

    def _report(self, seq: int | None, what: str) -> None:
        self.problems.append(ChainProblem(seq, what))


# Erase the texts of runs and their child runs: bodies go, the events and their chain stay, and an event says so.
#
# Invariants: an erasure is over once every store has forgotten: a mark that is written with it is deleted last, so that
# one that a process did not live to finish is finished by the next (`Journal.finish_erasures`). A body goes once every
# run that refers to it is erased, and stays until then; what can be found of the runs by a search goes with them. What
# goes and the events that say so are one transaction, so nothing is ever missing without its erasure in the chain. The
# survey of other runs' use of a shared body reads the journal backwards, outside of that transaction; inside it only
# what was added since is read. The hash of a text stays: a reader who guesses the whole text can confirm the guess.
# Deliberately absent: the server's own rows (`server.store`), and copies of the store that others made.

UNFINISHED = "erasure"  # in `applied`: something of an erasure may be left in files or other stores
_NEVER_STALE = 1e15
_ERASED_PAGE = 2000  # events looked through at a time
_HASH = re.compile('"([0-9a-f]{64})"')
ErasureHook = Callable[[Connection, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """What was erased: runs (child runs too), and how many texts are gone; `kept` are other runs' too and stay."""

    runs: tuple[str, ...] = ()
    removed: int = 0
    kept: int = 0


@dataclass(slots=True)
class Eraser:
    """An erasure under way: call `survey` in reading transactions until it returns True, then `erase` in a writing one.

    `hook` is called first in the writing transaction, with the named runs; it raises where they may not be erased.
    """

    runs: tuple[str, ...]
    actor: str
    why: str
    hook: ErasureHook | None = None
    _family: tuple[str, ...] = ()
    _doubtful: set[str] = field(default_factory=set)
    _used: set[str] = field(default_factory=set)
    _top: int = -1
    _next: int | None = None
    _batch: EventBatch | None = None
    _result: ErasureResult = ErasureResult()

    def survey(self, connection: Connection) -> bool:
        """Look through one page of events for other runs' use of shared texts; return whether that was all."""
        if self._next is None:
            # These runs and all child runs of theirs; UnknownRun when there is no such run.
            runs = self.runs
            family: dict[str, None] = {}
            waiting = list(runs)
            while waiting:
                run = waiting.pop(0)
                if run not in family:
                    family[run] = None
                    waiting += child_run_ids(connection, run)
            self._family = tuple(family)
            self._doubtful = _shared(connection, self._family, _texts_of(connection, self._family))
            newest = select(EVENTS.c.seq).order_by(EVENTS.c.seq.desc()).limit(1)
            last = connection.execute(newest).scalar_one_or_none()
            if last is None:
                raise UnknownRun("this journal has no runs")
            self._top = self._next = last
        page = []
        if self._doubtful - self._used:
            below = select(EVENTS).where(EVENTS.c.seq <= self._next)
            backwards = below.order_by(EVENTS.c.seq.desc()).limit(_ERASED_PAGE)
            page = [EventRow(*row) for row in connection.execute(backwards)]
        self._note_uses(connection, page)
        if page:
            self._next = page[-1].seq - 1
        return not page

    def erase(self, connection: Connection) -> ErasureResult:
        """Erase, and return what went; what the hook raises refuses it."""
        lock_head(connection)
        if self._batch is not None and self._batch.stored(connection):
            return self._result  # the answer to the last try's commit was lost
        if self.hook is not None:
            self.hook(connection, self.runs)
        self._note_uses(connection, event_rows(connection, EVENTS.c.seq > self._top))
        texts = _texts_of(connection, self._family)
        shared_since = _shared(connection, self._family, texts) - self._doubtful  # not surveyed: such a text stays
        removed = texts - shared_since - self._used
        at, events = time.time(), []
        for run in self._family:
            page = event_rows(connection, EVENTS.c.run == run)
            own = removed & {key for row in page for key in body_references(row.kind, row.data).values()}
            plans = _plans(connection, page, at)
            events.append(BodiesErased(run=run, at=at, actor=self.actor, why=self.why, removed=len(own), plans=plans))
        if events:
            self._batch = EventBatch([encode_event(event) for event in events])
            self._batch.append(connection)
        for keys in in_chunks(removed):
            connection.execute(delete(BODIES).where(BODIES.c.hash.in_(keys)))
        forget_texts(connection, self._family)
        connection.execute(delete(APPLIED).where(APPLIED.c.writer == UNFINISHED))
        connection.execute(insert(APPLIED).values(writer=UNFINISHED, batch=0, at=_NEVER_STALE))
        self._result = ErasureResult(self._family, len(removed), len(texts - removed))
        return self._result

    def _note_uses(self, connection: Connection, page: Collection[EventRow]) -> None:
        """Note the doubtful texts that events of other runs use, unless those were erased."""
        wanted = self._doubtful - self._used
        uses = [(row, wanted.intersection(_HASH.findall(row.data))) for row in page if row.run not in self._family]
        uses = [(row, keys) for row, keys in uses if keys]
        erasures = read_erasures(connection, {row.run for row, _ in uses})
        for row, keys in uses:
            if row.run not in erasures or row.seq > erasures[row.run].seq:
                self._used |= keys


def _texts_of(connection: Connection, runs: Sequence[str]) -> set[str]:
    """Return the hashes of the texts of these runs that the store has."""
    rows = [row for names in in_chunks(runs) for row in event_rows(connection, EVENTS.c.run.in_(names))]
    references = {key for row in rows for key in body_references(row.kind, row.data).values()}
    return _stored_hashes(connection, references)


def _shared(connection: Connection, family: Collection[str], texts: Collection[str]) -> set[str]:
    """Return which texts may be used by other runs: those that are noted as shared, or as another's."""
    others = or_(BODIES.c.shared, BODIES.c.run.is_(None), BODIES.c.run.not_in(family) if family else false())
    return _stored_hashes(connection, texts, others)


def _stored_hashes(connection: Connection, texts: Collection[str], *where: ColumnElement[bool]) -> set[str]:
    hashes = set[str]()
    for keys in in_chunks(texts):
        hashes.update(connection.execute(select(BODIES.c.hash).where(BODIES.c.hash.in_(keys), *where)).scalars())
    return hashes


def _plans(connection: Connection, page: Sequence[EventRow], at: float) -> dict[str, str]:
    """Return by hash the redacted plans of a run, of those that are not erased yet."""
    last = max((row.seq for row in page if row.kind == BodiesErased.kind), default=-1)
    keys = [
        body_references(row.kind, row.data)["plan"] for row in page if row.kind == PlanProposed.kind and row.seq > last
    ]
    return {key: redact_plan(body_text(body), at) for key, body in read_bodies(connection, keys).items()}


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

    async def graded(self, domain: str, tenant: str | None, limit: int) -> list[Run]:
        """Return the newest graded runs of a kind of task, of one tenant or of all, as far as the index has come."""
        return await self.query(partial(queries.graded_runs, domain=domain, tenant=tenant, limit=limit))

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
