"""Lists of runs: the newest ones, and the child runs of one.

Invariant: a Summary is made from a folded run, so a list can never say other than `trace` does. Deliberately absent:
a table of runs beside the events (its every row would be a second truth).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, select

from shikisha.budget import NOTHING, Amount
from shikisha.errors import JournalTampered, UnknownRun
from shikisha.events import Event, RunFinished, RunPaused, RunResumed, RunStarted, Status
from shikisha.journal.codec import decode
from shikisha.journal.queries import Row, rows, words
from shikisha.journal.tables import EVENTS, STARTED
from shikisha.run import Run

_AT_ONCE = 100
_EXCERPT = 80
_COURSE = tuple(kind.kind for kind in (RunStarted, RunPaused, RunResumed, RunFinished))


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in a list. `started_at` is Unix time; `prompt` its first words; `dollars` None: nobody can say.

    `uncertain` is what may have been used besides.
    """

    id: str
    status: Status
    conductor: str
    started_at: float
    prompt: str
    tokens: int
    dollars: float | None
    parent: str | None = None
    uncertain: Amount = NOTHING

    @classmethod
    def of(cls, run: Run) -> "Summary":
        """Return the summary of a run; its child runs' costs are in theirs."""
        begun, charged = run.started, run.charged
        words = " ".join(begun.prompt.split())
        prompt = words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…"
        amounts = (charged.tokens, charged.dollars)
        return cls(run.id, run.status, begun.conductor, begun.at, prompt, *amounts, begun.parent, run.uncertain)


def newest(connection: Connection, limit: int, status: Status | None) -> tuple[Summary, ...]:
    """Return the runs that began last, newest first, all or those of a status."""
    found: list[str] = []
    statement = select(EVENTS.c.seq, EVENTS.c.run).where(STARTED).order_by(EVENTS.c.seq.desc()).limit(_AT_ONCE)
    page = connection.execute(statement).all()
    while page and len(found) < limit:
        names = [row.run for row in page]
        found += names if status is None else _of_status(connection, names, status)
        page = connection.execute(statement.where(EVENTS.c.seq < page[-1].seq)).all()
    return _summaries(connection, found[:limit])


def children(connection: Connection, run: str) -> tuple[Summary, ...]:
    """Return a run's child runs, oldest first; UnknownRun when there is no such run.

    A child begins while its parent is performed, so only what began between the parent's ends is looked through.
    """
    return _summaries(connection, child_names(connection, run))


def child_names(connection: Connection, run: str) -> list[str]:
    """Return the ids of a run's child runs, oldest first; UnknownRun when there is no such run."""
    own = rows(connection, EVENTS.c.run == run)
    if not own:
        raise UnknownRun(f"no run {run} in this journal")
    where: list[ColumnElement[bool]] = [STARTED, EVENTS.c.seq > own[0].seq]
    if own[-1].kind == RunFinished.kind:
        where.append(EVENTS.c.seq < own[-1].seq)
    begun = [_without_texts(row) for row in rows(connection, *where)]
    return [each.run for each in begun if isinstance(each, RunStarted) and each.parent == run]


def _of_status(connection: Connection, names: Sequence[str], status: Status) -> list[str]:
    course = _by_run(rows(connection, EVENTS.c.run.in_(names), EVENTS.c.kind.in_(_COURSE)))
    return [name for name in names if _fold(_without_texts(row) for row in course[name]).status is status]


def _summaries(connection: Connection, names: Sequence[str]) -> tuple[Summary, ...]:
    found = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        page = rows(connection, EVENTS.c.run.in_(some))
        told = words(connection, page)
        runs = _by_run(page)
        for name in some:
            events = (decode(row.kind, row.run, row.at, row.data, told.of(row)) for row in runs[name])
            found.append(Summary.of(_fold(events)))
    return tuple(found)


def _by_run(page: Iterable[Row]) -> dict[str, list[Row]]:
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in page:
        runs[row.run].append(row)
    return runs


def _without_texts(row: Row) -> Event:
    return decode(row.kind, row.run, row.at, row.data, defaultdict(str))


def _fold(events: Iterable[Event]) -> Run:
    try:
        return Run.fold(events)
    except ValueError as error:
        raise JournalTampered(str(error)) from error
