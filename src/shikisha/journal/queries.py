"""What is read from a journal: events in pages, texts by hash, a run as events, lists of runs; each in one transaction.

What the rows mean is in `stored_events`. Which runs are of a status, the index says (`run_index`), as far as it has all
events. Deliberately absent: erasing (`store`), and search in texts (`run_search`).
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import ColumnElement, Connection, LargeBinary, cast, func, select

from shikisha.core.errors import JournalTampered, UnknownRun
from shikisha.core.events import (
    AnswerGraded,
    BodiesErased,
    Event,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
)
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.run import Run
from shikisha.journal.codec import body_references, decode_event, list_references
from shikisha.journal.schema import BODIES, EVENTS, HEAD, RUNS, STARTED
from shikisha.journal.stored_events import (
    EVIDENCE,
    Erasure,
    EventRow,
    EventTexts,
    RunOverview,
    checked_texts,
    children_among,
    decode_rows,
    events_by_run,
    expand_rows,
    few_enough,
    fold_run,
    last_erasures,
    last_of_performance,
    wanted_texts,
    without_texts,
)

_RUNS_SEARCHED = 10_000  # the newest, for grades
_IN_LIST = 500  # values in an IN list: SQLite and PostgreSQL limit the parameters of a statement


def in_chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield the different values, sorted, in lists that an IN clause takes."""
    ordered = sorted(set(values))
    for start in range(0, len(ordered), _IN_LIST):
        yield ordered[start : start + _IN_LIST]


def read_erasures(connection: Connection, runs: Iterable[str]) -> dict[str, Erasure]:
    """Return the last erasure of each of these runs that was erased."""
    rows: list[EventRow] = []
    for names in in_chunks(runs):
        rows += event_rows(connection, EVENTS.c.run.in_(names), EVENTS.c.kind == BodiesErased.kind)
    return last_erasures(rows)


def event_rows(connection: Connection, *where: ColumnElement[bool], limit: int | None = None) -> list[EventRow]:
    """Return the events of the rows for which all of `where` holds, in the order written; `limit` counts rows."""
    found = connection.execute(select(EVENTS).where(*where).order_by(EVENTS.c.seq).limit(limit))
    return expand_rows(found.all())


def read_bodies(connection: Connection, hashes: Iterable[str]) -> dict[str, bytes]:
    """Return the bodies that the store has for these hashes."""
    body = cast(BODIES.c.body, LargeBinary)  # SQLite lets a writer store a text in its place
    bodies: dict[str, bytes] = {}
    for keys in in_chunks(hashes):
        bodies.update(connection.execute(select(BODIES.c.hash, body).where(BODIES.c.hash.in_(keys))).all())
    return bodies


def read_texts(
    connection: Connection, page: Sequence[EventRow], *, whole: bool = True, only: frozenset[str] | None = None
) -> EventTexts:
    """Return the texts that these events refer to; JournalTampered where one is missing or changed.

    `whole`: they are all events of their runs, so that erasures are among them. `only`: those of these fields.
    """
    if whole:
        erasures = last_erasures(row for row in page if row.kind == BodiesErased.kind)
    else:
        erasures = read_erasures(connection, (row.run for row in page))
    wanted = wanted_texts(page, erasures, only)
    return checked_texts(wanted, erasures, read_bodies(connection, wanted.keys()))


def read_events(connection: Connection, run: str) -> tuple[Event, ...]:
    """Return a run's events in the order written; UnknownRun when there are none."""
    page = event_rows(connection, EVENTS.c.run == run)
    if not page:
        raise UnknownRun(f"no run {run} in this journal")
    return decode_rows(page, read_texts(connection, page))


def export_lines(connection: Connection, after: int, run: str | None, limit: int) -> list[tuple[int, str]]:
    """Return up to `limit` events after a place, of one run or of all, each as its place and one line of JSON."""
    where = [EVENTS.c.seq > after, *([EVENTS.c.run == run] if run is not None else [])]
    page = event_rows(connection, *where, limit=limit)
    texts, lines = read_texts(connection, page, whole=False), []
    for row in page:
        own = texts.of(row)
        in_place: dict[str, object] = {name: own[key] for name, key in body_references(row.kind, row.data).items()}
        in_place |= {name: json.loads(own[key]) for name, key in list_references(row.kind, row.data).items()}
        lines.append((row.seq, json.dumps({**row._asdict(), "data": {**json.loads(row.data), **in_place}})))
    return lines


@dataclass(frozen=True, slots=True)
class TaskAndAnswer:
    """What a run was asked, what it answered (None: nothing) and its grades; `more`: its task has further parts."""

    prompt: str
    context: str = ""
    answer: str | None = None
    more: bool = False
    grades: tuple[AnswerGraded, ...] = ()


_TASK_KINDS = (RunStarted.kind, RunFinished.kind, AnswerGraded.kind)


def read_tasks_and_answers(connection: Connection, runs: Iterable[str]) -> dict[str, TaskAndAnswer]:
    """Return the task, answer and grades of each of these runs; JournalTampered where a text is missing or changed."""
    found: dict[str, TaskAndAnswer] = {}
    for names in in_chunks(runs):
        rows = event_rows(connection, EVENTS.c.run.in_(names), EVENTS.c.kind.in_(_TASK_KINDS))
        texts = read_texts(connection, rows, whole=False)
        for row in rows:
            event = decode_event(row.kind, row.run, row.at, row.data, texts.of(row))
            if isinstance(event, RunStarted):
                more = bool(event.history or event.attachments or event.exchanges or event.tools)
                found[row.run] = TaskAndAnswer(event.prompt, event.context, None, more)
            elif isinstance(event, RunFinished) and row.run in found:
                found[row.run] = replace(found[row.run], answer=event.answer)
            elif isinstance(event, AnswerGraded) and row.run in found:
                found[row.run] = replace(found[row.run], grades=(*found[row.run].grades, event))
    return found


_RUNS_AT_ONCE = 100
_LIFECYCLE_KINDS = tuple(kind.kind for kind in (RunStarted, RunPaused, RunResumed, RunFinished))


def count_events(connection: Connection) -> int:
    """Return how many events the chain has, as its head says; 0 where it says nothing."""
    return int(connection.execute(select(func.max(HEAD.c.count))).scalar() or 0)


def newest_runs(
    connection: Connection, limit: int, status: RunStatus | None, *, indexed: bool = False
) -> tuple[RunOverview, ...]:
    """Return the runs that began last, newest first, all or those of a status; `indexed`: the index has all events."""
    if status is not None and indexed:
        # A run that cannot be read may be of any status: it is taken in, so that folding it says what is wrong.
        of_status = select(RUNS.c.run).where(RUNS.c.status.in_([str(status), ""])).order_by(RUNS.c.seq.desc())
        return _overviews(connection, connection.execute(of_status.limit(limit)).scalars().all())
    runs: list[str] = []
    statement = select(EVENTS.c.seq, EVENTS.c.run).where(STARTED).order_by(EVENTS.c.seq.desc()).limit(_RUNS_AT_ONCE)
    page = connection.execute(statement).all()
    while page and len(runs) < limit:
        names = [row.run for row in page]
        if status is not None:
            rows = events_by_run(event_rows(connection, EVENTS.c.run.in_(names), EVENTS.c.kind.in_(_LIFECYCLE_KINDS)))
            names = [name for name in names if fold_run(map(without_texts, rows[name])).status is status]
        runs += names
        page = connection.execute(statement.where(EVENTS.c.seq < page[-1].seq)).all()
    return _overviews(connection, runs[:limit])


def child_runs(connection: Connection, run: str) -> tuple[RunOverview, ...]:
    """Return a run's child runs, oldest first; UnknownRun when there is no such run."""
    return _overviews(connection, child_run_ids(connection, run))


def child_run_ids(connection: Connection, run: str) -> list[str]:
    """Return the ids of a run's child runs, oldest first; UnknownRun when there is no such run."""
    own = event_rows(connection, EVENTS.c.run == run)
    if not own:
        raise UnknownRun(f"no run {run} in this journal")
    # A child begins while its parent is performed: only runs that began between the parent's ends are searched.
    begun = event_rows(connection, STARTED, EVENTS.c.seq > own[0].seq, EVENTS.c.seq < last_of_performance(own))
    return children_among(begun, run)


def _overviews(connection: Connection, names: Sequence[str]) -> tuple[RunOverview, ...]:
    return tuple(map(RunOverview.of, fold_named(connection, names)))


def fold_named(connection: Connection, names: Sequence[str], only: frozenset[str] | None = None) -> list[Run]:
    """Return these runs, in this order, `only` with texts of these fields; JournalTampered where one cannot be read."""
    runs = []
    for start in range(0, len(names), _RUNS_AT_ONCE):
        some = names[start : start + _RUNS_AT_ONCE]
        page = event_rows(connection, EVENTS.c.run.in_(some))
        texts, rows = read_texts(connection, page, only=only), events_by_run(page)
        runs += [fold_run(decode_rows(rows[name], texts)) for name in some if name in rows]
    return runs


def graded_runs(connection: Connection, domain: str, tenant: str | None, limit: int) -> list[Run]:
    """Return the newest runs of a kind of task that people or programs graded, of a tenant or of all.

    They are evidence of how right somebody was: without long texts, and bounded in runs looked at and events read.
    """
    columns = (RUNS.c.run, RUNS.c.domain, RUNS.c.score, RUNS.c.judged, RUNS.c.parent, RUNS.c.began)
    recent = select(*columns).where(*([] if tenant is None else [RUNS.c.tenant == tenant]))
    of = recent.order_by(RUNS.c.began.desc()).limit(_RUNS_SEARCHED).subquery().c
    graded = select(of.run).where(of.domain == domain, of.score.is_not(None), ~of.judged, of.parent.is_(None))
    names = connection.execute(graded.order_by(of.began.desc()).limit(limit)).scalars().all()
    counted = select(EVENTS.c.run, func.count()).where(EVENTS.c.run.in_(names)).group_by(EVENTS.c.run)
    counts = {row[0]: row[1] for row in connection.execute(counted)}
    return fold_readable(connection, few_enough(names, counts), EVIDENCE)


def fold_readable(connection: Connection, names: Sequence[str], only: frozenset[str] | None = None) -> list[Run]:
    """Return these runs without those that were tampered with: their own pages and `journal verify` name them."""
    try:
        return fold_named(connection, names, only)
    except JournalTampered:
        half = len(names) // 2
        return [run for some in (names[:half], names[half:]) if half for run in fold_readable(connection, some, only)]
