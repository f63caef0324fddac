"""What is read from a journal: rows in pages, bodies by hash, a run as events. Each is one transaction's work.

Invariant: a body that is gone, or is not what its hash says, is JournalTampered and never an empty text; where its run
was erased, its place says so. Deliberately absent: anything that `run.Run` derives, and search in texts.

What stands in the place of erased texts, wherever they are read.

Invariant: everything that a run wrote before its last `bodies.erased` counts as erased for it, even where the store
still has the text for another run; what stands for it says so and is never taken for a text, and what programs read
(plans, the parts of a task) stays readable to them. Deliberately absent: erasing (`erasing`).

Lists of runs: the newest ones, and the child runs of one.

Invariant: a Summary is made from a folded run, so a list can never say other than `trace` does. Deliberately absent:
a table of runs beside the events (its every row would be a second truth).
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from time import gmtime, strftime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, LargeBinary, cast, select

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
from shikisha.journal.codec import body_hash, body_references, body_text, decode_event
from shikisha.journal.schema import BODIES, EVENTS, STARTED

_AT_ONCE = 500  # values in an IN list
_READ_BY_PROGRAMS = frozenset(
    {"config", "history", "attachments", "exchanges", "tools", "answer_schema", "options", "calls"}
)


@dataclass(frozen=True, slots=True)
class Erasure:
    """A run's last erasure: its place in the journal, its time, and by hash what remains of each plan."""

    seq: int
    at: float
    plans: Mapping[str, str]

    @property
    def sign(self) -> str:
        """What is read in the place of a text."""
        return erased_marker(self.at)


def erased_marker(at: float) -> str:
    """Return what is read in the place of a text that was erased then."""
    return f"[erased {strftime('%Y-%m-%d', gmtime(at))}]"


def read_erasures(connection: Connection, runs: Collection[str]) -> dict[str, Erasure]:
    """Return the last erasure of each of these runs that was erased."""
    names, told = sorted(runs), list[tuple[int, str, float, str]]()
    for start in range(0, len(names), _AT_ONCE):
        some = EVENTS.c.run.in_(names[start : start + _AT_ONCE])
        columns = (EVENTS.c.seq, EVENTS.c.run, EVENTS.c.at, EVENTS.c.data)
        found = select(*columns).where(some, EVENTS.c.kind == BodiesErased.kind).order_by(EVENTS.c.seq)
        told += [(seq, run, at, data) for seq, run, at, data in connection.execute(found)]
    return last_erasures(told)


def last_erasures(told: Iterable[tuple[int, str, float, str]]) -> dict[str, Erasure]:
    """Return each run's last erasure, of all erasures by place: their places, runs, times and data."""
    found: dict[str, Erasure] = {}
    for seq, run, at, data in told:
        try:
            plans = {**(found[run].plans if run in found else {}), **json.loads(data).get("plans", {})}
        except (ValueError, TypeError, AttributeError) as error:
            raise JournalTampered(f"event {seq} of run {run}: it makes no event: {error!r}") from error
        found[run] = Erasure(seq, at, plans)
    return found


def placeholder_texts(erasure: Erasure, kind: str, data: str) -> dict[str, str]:
    """Return by hash what stands for each text of an event."""
    referred = body_references(kind, data)
    stand = dict.fromkeys(referred.values(), erasure.sign)
    for name in _READ_BY_PROGRAMS & referred.keys():
        stand[referred[name]] = _field_default(kind, name)
    if kind == PlanProposed.kind:
        stand[referred["plan"]] = erasure.plans.get(referred["plan"]) or Plan().dumps()
    if kind == QuestionAsked.kind and json.loads(data).get("asks") == QuestionKind.TOOLS:
        stand[referred["prompt"]] = "[]"
    return stand


def redact_plan(plan: str, at: float) -> str:
    """Return a plan without its words: who was asked, and who saw what."""
    steps = Plan.loads(plan).steps
    return Plan(tuple(Step(erased_marker(at), step.worker, step.access) for step in steps)).dumps()


def _field_default(kind: str, name: str) -> str:
    return next(str(field.default) for field in fields(EVENT_CLASSES[kind]) if field.name == name)


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
    return [EventRow(*row) for row in found]


def read_bodies(connection: Connection, hashes: Iterable[str]) -> dict[str, bytes]:
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
class EventTexts:
    """The texts that a page of events refers to, by hash; where a run was erased, what stands for them."""

    texts: Mapping[str, str]
    erasures: Mapping[str, Erasure]

    def of(self, row: EventRow) -> Mapping[str, str]:
        """Return the texts of this event."""
        gone = self.erasures.get(row.run)
        if gone is None or row.seq > gone.seq:
            return self.texts
        return placeholder_texts(gone, row.kind, row.data)


def read_texts(connection: Connection, page: Sequence[EventRow], *, whole: bool = True) -> EventTexts:
    """Return the texts that these events refer to; JournalTampered where one is missing or changed.

    `whole`: they are all events of their runs, so that erasures are among them.
    """
    told = [(row.seq, row.run, row.at, row.data) for row in page if row.kind == BodiesErased.kind]
    gone = last_erasures(told) if whole else read_erasures(connection, {row.run for row in page})
    kept = [row for row in page if row.run not in gone or row.seq > gone[row.run].seq]
    found = read_bodies(connection, (key for row in kept for key in body_references(row.kind, row.data).values()))
    for row in kept:
        for key in body_references(row.kind, row.data).values():
            if key not in found or body_hash(found[key]) != key:
                fate = "changed" if key in found else "missing"
                raise JournalTampered(f"event {row.seq} of run {row.run}: a text of it ({key[:12]}…) is {fate}")
    return EventTexts({key: body_text(body) for key, body in found.items()}, gone)


def read_events(connection: Connection, run: str) -> tuple[Event, ...]:
    """Return a run's events in the order written; UnknownRun when there are none."""
    page = event_rows(connection, EVENTS.c.run == run)
    if not page:
        raise UnknownRun(f"no run {run} in this journal")
    told = read_texts(connection, page)
    return tuple(decode_event(row.kind, row.run, row.at, row.data, told.of(row)) for row in page)


def export_lines(connection: Connection, after: int, run: str | None, limit: int) -> list[tuple[int, str]]:
    """Return up to `limit` events after a place, of one run or of all, each as its place and one line of JSON."""
    where = [EVENTS.c.seq > after, *([EVENTS.c.run == run] if run is not None else [])]
    page = event_rows(connection, *where, limit=limit)
    told = read_texts(connection, page, whole=False)
    return [(row.seq, _export_line(row, told.of(row))) for row in page]


def _export_line(row: EventRow, texts: Mapping[str, str]) -> str:
    told = {name: texts[key] for name, key in body_references(row.kind, row.data).items()}
    return json.dumps({**row._asdict(), "data": {**json.loads(row.data), **told}})


_RUNS_AT_ONCE = 100
_EXCERPT = 80
_LIFECYCLE_KINDS = tuple(kind.kind for kind in (RunStarted, RunPaused, RunResumed, RunFinished))


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run in a list. `started_at` is Unix time; `prompt` its first words; `dollars` None: nobody can say.

    `uncertain` is what may have been used besides.
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
        """Return the summary of a run; its child runs' costs are in theirs."""
        begun, charged = run.started, run.charged
        words = " ".join(begun.prompt.split())
        prompt = words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…"
        amounts = (charged.tokens, charged.dollars)
        return cls(run.id, run.status, begun.conductor, begun.at, prompt, *amounts, begun.parent, run.uncertain)


def newest_runs(connection: Connection, limit: int, status: RunStatus | None) -> tuple[RunOverview, ...]:
    """Return the runs that began last, newest first, all or those of a status."""
    found: list[str] = []
    statement = select(EVENTS.c.seq, EVENTS.c.run).where(STARTED).order_by(EVENTS.c.seq.desc()).limit(_RUNS_AT_ONCE)
    page = connection.execute(statement).all()
    while page and len(found) < limit:
        names = [row.run for row in page]
        found += names if status is None else _of_status(connection, names, status)
        page = connection.execute(statement.where(EVENTS.c.seq < page[-1].seq)).all()
    return _summaries(connection, found[:limit])


def child_runs(connection: Connection, run: str) -> tuple[RunOverview, ...]:
    """Return a run's child runs, oldest first; UnknownRun when there is no such run.

    A child begins while its parent is performed, so only what began between the parent's ends is looked through.
    """
    return _summaries(connection, child_run_ids(connection, run))


def child_run_ids(connection: Connection, run: str) -> list[str]:
    """Return the ids of a run's child runs, oldest first; UnknownRun when there is no such run."""
    own = event_rows(connection, EVENTS.c.run == run)
    if not own:
        raise UnknownRun(f"no run {run} in this journal")
    where: list[ColumnElement[bool]] = [STARTED, EVENTS.c.seq > own[0].seq]
    if own[-1].kind == RunFinished.kind:
        where.append(EVENTS.c.seq < own[-1].seq)
    begun = [_without_texts(row) for row in event_rows(connection, *where)]
    return [each.run for each in begun if isinstance(each, RunStarted) and each.parent == run]


def _of_status(connection: Connection, names: Sequence[str], status: RunStatus) -> list[str]:
    course = _by_run(event_rows(connection, EVENTS.c.run.in_(names), EVENTS.c.kind.in_(_LIFECYCLE_KINDS)))
    return [name for name in names if _fold(_without_texts(row) for row in course[name]).status is status]


def _summaries(connection: Connection, names: Sequence[str]) -> tuple[RunOverview, ...]:
    found = []
    for start in range(0, len(names), _RUNS_AT_ONCE):
        some = names[start : start + _RUNS_AT_ONCE]
        page = event_rows(connection, EVENTS.c.run.in_(some))
        told = read_texts(connection, page)
        runs = _by_run(page)
        for name in some:
            events = (decode_event(row.kind, row.run, row.at, row.data, told.of(row)) for row in runs[name])
            found.append(RunOverview.of(_fold(events)))
    return tuple(found)


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
