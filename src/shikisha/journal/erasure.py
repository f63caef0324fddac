"""Erase the texts of runs and their child runs: bodies go, the events and their chain stay, and an event says so.

Invariants: an erasure is over once every store has forgotten: a mark that is written with it is deleted last, so that
one that a process did not live to finish is finished by the next (`Journal.finish_erasures`). A body goes once every
run that refers to it is erased, and stays until then; what can be found of the runs by a search goes with them. What
goes and the events that say so are one transaction, so nothing is ever missing without its erasure in the chain. The
survey of other runs' use of a shared body reads the journal backwards, outside of that transaction; inside it only what
was added since is read. The hash of a text stays: a reader who guesses the whole text can confirm the guess.
Deliberately absent: the server's own rows (`server.store`), and copies of the store that others made.
"""

import re
import time
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import ColumnElement, Connection, delete, false, insert, or_, select

from shikisha.core.errors import UnknownRun
from shikisha.core.events import BodiesErased, PlanProposed
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.journal.chain import EventBatch, lock_head
from shikisha.journal.codec import body_references, body_text, encode_event
from shikisha.journal.queries import child_run_ids, event_rows, in_chunks, read_bodies, read_erasures
from shikisha.journal.run_index import forget_texts
from shikisha.journal.schema import APPLIED, BODIES, EVENTS
from shikisha.journal.stored_events import EventRow, redact_plan

UNFINISHED = "erasure"  # in `applied`: something of an erasure may be left in files or other stores
_NEVER_STALE = 1e15
_PAGE = 2000  # events looked through at a time
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
            backwards = select(EVENTS).where(EVENTS.c.seq <= self._next).order_by(EVENTS.c.seq.desc()).limit(_PAGE)
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
