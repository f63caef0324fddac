"""What is read from a journal: events in pages, texts by hash, a run as events, lists of runs; each in one transaction.

Invariants: a body that is gone, or is not what its hash says, is JournalTampered and never an empty text. Everything
that a run wrote before its last `bodies.erased` counts as erased for it, even where the store still has the text for
another run: a placeholder stands for it that is never taken for a text, and what programs read (plans, the parts of a
task) stays readable to them. A RunOverview is made from a folded run, so a list says the same as `runs show`; which
runs are of a status, the index says (`run_index`), as far as it has all events. Deliberately absent: erasing
(`erasure`), and search in texts (`run_search`).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from time import gmtime, strftime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, LargeBinary, cast, func, select

from shikisha.core.budget import ZERO, Amount
from shikisha.core.errors import JournalTampered, UnknownRun
from shikisha.core.events import (
    EVENT_CLASSES,
    BodiesErased,
    Event,
    PlanProposed,
    QuestionAsked,
    QuestionKind,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
)
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.journal.codec import body_hash, body_references, body_text, decode_event, list_references
from shikisha.journal.schema import BODIES, EVENTS, HEAD, RUNS, STARTED

_IN_LIST = 500  # values in an IN list: SQLite and PostgreSQL limit the parameters of a statement
_READ_BY_PROGRAMS = frozenset(
    {"config", "history", "attachments", "exchanges", "tools", "answer_schema", "options", "calls"}
)


@dataclass(frozen=True, slots=True)
class Erasure:
    """A run's last erasure: its place in the journal, its time, and by hash what remains of each plan."""

    seq: int
    at: float
    plans: Mapping[str, str]


def erased_marker(at: float) -> str:
    """Return the placeholder of a text that was erased at this Unix time."""
    return f"[erased {strftime('%Y-%m-%d', gmtime(at))}]"


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


def last_erasures(rows: Iterable["EventRow"]) -> dict[str, Erasure]:
    """Return each run's last erasure, of these `bodies.erased` events in the order written."""
    erasures: dict[str, Erasure] = {}
    for row in rows:
        known = erasures[row.run].plans if row.run in erasures else {}
        try:
            plans = {**known, **json.loads(row.data).get("plans", {})}
        except (ValueError, TypeError, AttributeError) as error:
            raise JournalTampered(f"event {row.seq} of run {row.run}: it makes no event: {error!r}") from error
        erasures[row.run] = Erasure(row.seq, row.at, plans)
    return erasures


def placeholder_texts(erasure: Erasure, kind: str, data: str) -> dict[str, str]:
    """Return by hash the placeholder of each text of an event."""
    references = body_references(kind, data)
    placeholders = dict.fromkeys(references.values(), erased_marker(erasure.at))
    for each in fields(EVENT_CLASSES[kind]) if references else ():
        if each.name in _READ_BY_PROGRAMS and each.name in references:
            placeholders[references[each.name]] = str(each.default)
    if kind == PlanProposed.kind:
        placeholders[references["plan"]] = erasure.plans.get(references["plan"]) or Plan().dumps()
    if kind == QuestionAsked.kind and json.loads(data).get("asks") == QuestionKind.TOOLS:
        placeholders[references["prompt"]] = "[]"
    return placeholders


def redact_plan(plan: str, at: float) -> str:
    """Return a plan without its subtasks: its workers and access lists stay."""
    steps = Plan.loads(plan).steps
    return Plan(tuple(Step(erased_marker(at), step.worker, step.access, step.each) for step in steps)).dumps()


class EventRow(NamedTuple):
    """An event as it is stored."""

    seq: int
    run: str
    kind: str
    at: float
    data: str
    hash: str


def event_rows(connection: Connection, *where: ColumnElement[bool], limit: int | None = None) -> list[EventRow]:
    """Return the events for which all of `where` holds, in the order written."""
    found = connection.execute(select(EVENTS).where(*where).order_by(EVENTS.c.seq).limit(limit))
    return list(map(EventRow._make, found.all()))


def read_bodies(connection: Connection, hashes: Iterable[str]) -> dict[str, bytes]:
    """Return the bodies that the store has for these hashes."""
    body = cast(BODIES.c.body, LargeBinary)  # SQLite lets a writer store a text in its place
    bodies: dict[str, bytes] = {}
    for keys in in_chunks(hashes):
        bodies.update(connection.execute(select(BODIES.c.hash, body).where(BODIES.c.hash.in_(keys))).all())
    return bodies


@dataclass(frozen=True, slots=True)
class EventTexts:
    """The texts that a page of events refers to, by hash; for erased runs, their placeholders."""

    texts: Mapping[str, str]
    erasures: Mapping[str, Erasure]
    lists: Mapping[str, str] = field(default_factory=dict)

    def of(self, row: EventRow) -> Mapping[str, str]:
        """Return the texts of this event."""
        erasure = self.erasures.get(row.run)
        if erasure is None or row.seq > erasure.seq:
            return self.texts
        return {**self.lists, **placeholder_texts(erasure, row.kind, row.data)}


def read_texts(connection: Connection, page: Sequence[EventRow], *, whole: bool = True) -> EventTexts:
    """Return the texts that these events refer to; JournalTampered where one is missing or changed.

    `whole`: they are all events of their runs, so that erasures are among them.
    """
    if whole:
        erasures = last_erasures(row for row in page if row.kind == BodiesErased.kind)
    else:
        erasures = read_erasures(connection, (row.run for row in page))
    unerased = [row for row in page if row.run not in erasures or row.seq > erasures[row.run].seq]
    listed = [(row, key) for row in page for key in list_references(row.kind, row.data).values()]
    references = [(row, key) for row in unerased for key in body_references(row.kind, row.data).values()] + listed
    bodies = read_bodies(connection, (key for _, key in references))
    for row, key in references:
        if key not in bodies or body_hash(bodies[key]) != key:
            fate = "changed" if key in bodies else "missing"
            raise JournalTampered(f"event {row.seq} of run {row.run}: a text of it ({key[:12]}…) is {fate}")
    texts = {key: body_text(body) for key, body in bodies.items()}
    return EventTexts(texts, erasures, {key: texts[key] for _, key in listed})


def read_events(connection: Connection, run: str) -> tuple[Event, ...]:
    """Return a run's events in the order written; UnknownRun when there are none."""
    page = event_rows(connection, EVENTS.c.run == run)
    if not page:
        raise UnknownRun(f"no run {run} in this journal")
    texts = read_texts(connection, page)
    return tuple(decode_event(row.kind, row.run, row.at, row.data, texts.of(row)) for row in page)


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
    """What a run was asked and what it answered (None: nothing); `more`: its task has further parts."""

    prompt: str
    context: str = ""
    answer: str | None = None
    more: bool = False


def read_tasks_and_answers(connection: Connection, runs: Iterable[str]) -> dict[str, TaskAndAnswer]:
    """Return the task and answer of each of these runs; JournalTampered where a text is missing or changed."""
    found: dict[str, TaskAndAnswer] = {}
    for names in in_chunks(runs):
        rows = event_rows(connection, EVENTS.c.run.in_(names), EVENTS.c.kind.in_([RunStarted.kind, RunFinished.kind]))
        texts = read_texts(connection, rows, whole=False)
        for row in rows:
            event = decode_event(row.kind, row.run, row.at, row.data, texts.of(row))
            if isinstance(event, RunStarted):
                more = bool(event.history or event.attachments or event.exchanges or event.tools)
                found[row.run] = TaskAndAnswer(event.prompt, event.context, None, more)
            elif isinstance(event, RunFinished) and row.run in found:
                found[row.run] = replace(found[row.run], answer=event.answer)
    return found


_RUNS_AT_ONCE = 100
_EXCERPT = 80
_LIFECYCLE_KINDS = tuple(kind.kind for kind in (RunStarted, RunPaused, RunResumed, RunFinished))


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run in a list. `started_at` is Unix time, `prompt` its first words; `dollars` None: the cost is unknown.

    `uncertain` is what may have been used as well.
    """

    id: str
    status: RunStatus
    conductor: str
    started_at: float
    prompt: str
    tokens: int
    dollars: float | None
    parent: str | None = None
    uncertain: Amount = ZERO

    @classmethod
    def of(cls, run: Run) -> "RunOverview":
        """Return the overview of a run; its child runs' costs are in theirs."""
        begun, charged = run.started, run.charged
        words = " ".join(begun.prompt.split())
        prompt = words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…"
        amounts = (charged.tokens, charged.dollars)
        return cls(run.id, run.status, begun.conductor, begun.at, prompt, *amounts, begun.parent, run.uncertain)


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
            rows = _by_run(event_rows(connection, EVENTS.c.run.in_(names), EVENTS.c.kind.in_(_LIFECYCLE_KINDS)))
            names = [name for name in names if _fold(map(_without_texts, rows[name])).status is status]
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
    where: list[ColumnElement[bool]] = [STARTED, EVENTS.c.seq > own[0].seq]
    if own[-1].kind == RunFinished.kind:
        where.append(EVENTS.c.seq < own[-1].seq)
    begun = [_without_texts(row) for row in event_rows(connection, *where)]
    return [each.run for each in begun if isinstance(each, RunStarted) and each.parent == run]


def _overviews(connection: Connection, names: Sequence[str]) -> tuple[RunOverview, ...]:
    overviews = []
    for start in range(0, len(names), _RUNS_AT_ONCE):
        some = names[start : start + _RUNS_AT_ONCE]
        page = event_rows(connection, EVENTS.c.run.in_(some))
        texts, rows = read_texts(connection, page), _by_run(page)
        for name in some:
            events = (decode_event(row.kind, row.run, row.at, row.data, texts.of(row)) for row in rows[name])
            overviews.append(RunOverview.of(_fold(events)))
    return tuple(overviews)


def _by_run(page: Iterable[EventRow]) -> dict[str, list[EventRow]]:
    runs: dict[str, list[EventRow]] = defaultdict(list)
    for row in page:
        runs[row.run].append(row)
    return runs


def _without_texts(row: EventRow) -> Event:
    return decode_event(row.kind, row.run, row.at, row.data, defaultdict(str))


def _fold(events: Iterable[Event]) -> Run:
    try:
        return Run.fold(events)
    except ValueError as error:
        raise JournalTampered(str(error)) from error
