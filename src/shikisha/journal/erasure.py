"""Erasing what runs and their child runs said: bodies go, the events and their chain stay, and an event says so.

Invariants: a body goes when no run refers to it that is not erased, and stays until then; what goes and the events that
say so are one transaction, so nothing is ever missing without its erasure in the chain. Looking for other runs' use of
a shared body reads the journal backwards, outside of that transaction; inside it only what was added since is looked
at. The hash of a text stays: whoever guesses the whole text can confirm the guess. Deliberately absent: the server's
own rows (`server.store`), and copies of the store that others made.
"""

import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, delete, false, or_, select

from shikisha.core.errors import UnknownRun
from shikisha.core.events import BodiesErased, PlanProposed
from shikisha.journal.chain import EventBatch, lock_head
from shikisha.journal.codec import body_references, body_text, encode_event
from shikisha.journal.queries import EventRow, child_run_ids, event_rows, read_bodies, read_erasures, redact_plan
from shikisha.journal.schema import BODIES, EVENTS

_AT_ONCE = 500  # values in an IN list
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

    `along` is done first in the writing transaction, with the named runs; it raises where they may not be erased.
    """

    runs: tuple[str, ...]
    actor: str
    why: str
    along: ErasureHook | None = None
    _family: tuple[str, ...] = ()
    _doubtful: set[str] = field(default_factory=set)
    _used: set[str] = field(default_factory=set)
    _top: int = -1
    _next: int | None = None
    _batch: EventBatch | None = None
    _gone: ErasureResult = ErasureResult()

    def survey(self, connection: Connection) -> bool:
        """Look through one page of events for other runs' use of shared texts; return whether that was all."""
        if self._next is None:
            self._family = _families(connection, self.runs)
            self._doubtful = _shared(connection, self._family, _texts_of(connection, self._family))
            self._top = self._next = _last(connection)
        page = _backwards(connection, self._next) if self._doubtful - self._used else []
        self._look(connection, page)
        if page:
            self._next = page[-1].seq - 1
        return not page

    def erase(self, connection: Connection) -> ErasureResult:
        """Erase, and return what went."""
        lock_head(connection)
        if self._batch is not None and self._batch.stored(connection):
            return self._gone  # the commit's answer was lost
        if self.along is not None:
            self.along(connection, self.runs)
        self._look(connection, event_rows(connection, EVENTS.c.seq > self._top))
        texts = _texts_of(connection, self._family)
        new = _shared(connection, self._family, texts) - self._doubtful  # became shared meanwhile: it stays
        going = texts - new - self._used
        self._say(connection, going)
        _remove(connection, going)
        self._gone = ErasureResult(self._family, len(going), len(texts - going))
        return self._gone

    def _look(self, connection: Connection, page: Collection[EventRow]) -> None:
        """Note the doubtful texts that are used by events of others which are not erased."""
        wanted = self._doubtful - self._used
        using = [(row, wanted.intersection(_HASH.findall(row.data))) for row in page if row.run not in self._family]
        using = [(row, found) for row, found in using if found]
        gone = read_erasures(connection, {row.run for row, _ in using})
        for row, found in using:
            if row.run not in gone or row.seq > gone[row.run].seq:
                self._used |= found

    def _say(self, connection: Connection, going: set[str]) -> None:
        at, events = time.time(), []
        for run in self._family:
            page = event_rows(connection, EVENTS.c.run == run)
            removed = going & {key for row in page for key in body_references(row.kind, row.data).values()}
            plans = _plans(connection, page, at)
            events.append(
                BodiesErased(run=run, at=at, actor=self.actor, why=self.why, removed=len(removed), plans=plans)
            )
        if events:
            self._batch = EventBatch([encode_event(event) for event in events])
            self._batch.append(connection)


def _families(connection: Connection, runs: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    waiting = list(dict.fromkeys(runs))
    while waiting:
        run = waiting.pop(0)
        if run not in found:
            found[run] = None
            waiting += child_run_ids(connection, run)
    return tuple(found)


def _rows_of_runs(runs: Sequence[str], connection: Connection) -> list[EventRow]:
    found = []
    for start in range(0, len(runs), _AT_ONCE):
        found += event_rows(connection, EVENTS.c.run.in_(runs[start : start + _AT_ONCE]))
    return found


def _texts_of(connection: Connection, runs: Sequence[str]) -> set[str]:
    """Return the hashes of the texts of these runs that the store has."""
    referred = {key for row in _rows_of_runs(runs, connection) for key in body_references(row.kind, row.data).values()}
    return _stored_hashes(connection, referred)


def _shared(connection: Connection, family: Collection[str], texts: Collection[str]) -> set[str]:
    """Return which texts may be used by other runs: those that are noted as shared, or as another's."""
    others = or_(BODIES.c.shared, BODIES.c.run.is_(None), BODIES.c.run.not_in(family) if family else false())
    return _stored_hashes(connection, texts, others)


def _stored_hashes(connection: Connection, texts: Collection[str], *where: ColumnElement[bool]) -> set[str]:
    wanted, found = sorted(texts), set[str]()
    for start in range(0, len(wanted), _AT_ONCE):
        some = BODIES.c.hash.in_(wanted[start : start + _AT_ONCE])
        found.update(connection.execute(select(BODIES.c.hash).where(some, *where)).scalars())
    return found


def _plans(connection: Connection, page: Sequence[EventRow], at: float) -> dict[str, str]:
    """Return by hash what remains of a run's plans that are not erased yet."""
    last = max((row.seq for row in page if row.kind == BodiesErased.kind), default=-1)
    keys = [
        body_references(row.kind, row.data)["plan"] for row in page if row.kind == PlanProposed.kind and row.seq > last
    ]
    return {key: redact_plan(body_text(body), at) for key, body in read_bodies(connection, keys).items()}


def _remove(connection: Connection, texts: Collection[str]) -> None:
    wanted = sorted(texts)
    for start in range(0, len(wanted), _AT_ONCE):
        connection.execute(delete(BODIES).where(BODIES.c.hash.in_(wanted[start : start + _AT_ONCE])))


def _last(connection: Connection) -> int:
    found = connection.execute(select(EVENTS.c.seq).order_by(EVENTS.c.seq.desc()).limit(1)).scalar_one_or_none()
    if found is None:
        raise UnknownRun("this journal has no runs")
    return int(found)


def _backwards(connection: Connection, start: int) -> list[EventRow]:
    found = select(EVENTS).where(EVENTS.c.seq <= start).order_by(EVENTS.c.seq.desc()).limit(_PAGE)
    return [EventRow(*row) for row in connection.execute(found)]
