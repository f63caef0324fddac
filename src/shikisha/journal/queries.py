"""What is read from a journal: rows in pages, bodies by hash, a run as events. Each is one transaction's work.

Invariant: a body that is gone, or is not what its hash says, is JournalTampered and never an empty text; where its run
was erased, its place says so. Deliberately absent: anything that `run.Run` derives, and search in texts.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, LargeBinary, cast, select

from shikisha.errors import JournalTampered, UnknownRun
from shikisha.events import BodiesErased, Event
from shikisha.journal.codec import body_hash, body_text, decode, references
from shikisha.journal.erased import Erasure, erasures, last_of, stand_ins
from shikisha.journal.tables import BODIES, EVENTS

_AT_ONCE = 500  # values in an IN list


class Row(NamedTuple):
    """An event as it is stored."""

    seq: int
    run: str
    kind: str
    at: float
    data: str
    hash: str


def rows(connection: Connection, *where: ColumnElement[bool], limit: int | None = None) -> list[Row]:
    """Return the events for which all of `where` holds, in the order written."""
    found = connection.execute(select(EVENTS).where(*where).order_by(EVENTS.c.seq).limit(limit))
    return [Row(*row) for row in found]


def bodies(connection: Connection, hashes: Iterable[str]) -> dict[str, bytes]:
    """Return the bodies that there are for these hashes."""
    wanted = sorted(set(hashes))
    body = cast(BODIES.c.body, LargeBinary)  # SQLite lets anyone store a text in its place
    found: dict[str, bytes] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        statement = select(BODIES.c.hash, body).where(BODIES.c.hash.in_(some))
        found.update(connection.execute(statement).all())
    return found


@dataclass(frozen=True, slots=True)
class Words:
    """The texts that a page of events refers to, by hash; where a run was erased, what stands for them."""

    texts: Mapping[str, str]
    erasures: Mapping[str, Erasure]

    def of(self, row: Row) -> Mapping[str, str]:
        """Return the texts of this event."""
        gone = self.erasures.get(row.run)
        if gone is None or row.seq > gone.seq:
            return self.texts
        return stand_ins(gone, row.kind, row.data)


def words(connection: Connection, page: Sequence[Row], *, whole: bool = True) -> Words:
    """Return the texts that these events refer to; JournalTampered where one is missing or changed.

    `whole`: they are all events of their runs, so that erasures are among them.
    """
    told = [(row.seq, row.run, row.at, row.data) for row in page if row.kind == BodiesErased.kind]
    gone = last_of(told) if whole else erasures(connection, {row.run for row in page})
    kept = [row for row in page if row.run not in gone or row.seq > gone[row.run].seq]
    found = bodies(connection, (key for row in kept for key in references(row.kind, row.data).values()))
    for row in kept:
        for key in references(row.kind, row.data).values():
            if key not in found or body_hash(found[key]) != key:
                fate = "changed" if key in found else "missing"
                raise JournalTampered(f"event {row.seq} of run {row.run}: a text of it ({key[:12]}…) is {fate}")
    return Words({key: body_text(body) for key, body in found.items()}, gone)


def events(connection: Connection, run: str) -> tuple[Event, ...]:
    """Return a run's events in the order written; UnknownRun when there are none."""
    page = rows(connection, EVENTS.c.run == run)
    if not page:
        raise UnknownRun(f"no run {run} in this journal")
    told = words(connection, page)
    return tuple(decode(row.kind, row.run, row.at, row.data, told.of(row)) for row in page)


def lines(connection: Connection, after: int, run: str | None, limit: int) -> list[tuple[int, str]]:
    """Return up to `limit` events after a place, of one run or of all, each as its place and one line of JSON."""
    where = [EVENTS.c.seq > after, *([EVENTS.c.run == run] if run is not None else [])]
    page = rows(connection, *where, limit=limit)
    told = words(connection, page, whole=False)
    return [(row.seq, _line(row, told.of(row))) for row in page]


def _line(row: Row, texts: Mapping[str, str]) -> str:
    told = {name: texts[key] for name, key in references(row.kind, row.data).items()}
    return json.dumps({**row._asdict(), "data": {**json.loads(row.data), **told}})
