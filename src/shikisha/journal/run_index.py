"""The index of runs: what each run came to, whom it called, and its texts, kept next to the events for quick answers.

Invariants: the index says nothing that a fold over the events does not say, and can be thrown away: `index_events`
makes it again from place `indexed` on, a page of events at a time, so that an old journal of any size is taken in
without keeping writers waiting: a page is read and folded beside them, and only its rows are written under their lock,
if neither another process nor an erasure came between. Texts of a run are searchable only once it has ended, its task
before that. An erasure takes a run's texts out in its own transaction (`forget_texts`), and a run that was erased is
never searchable again. A run whose events make no run is kept with the status "", so that lists can say so. The sums by
day are kept with the rows that they sum up.

Search in what runs were asked, what their steps said, and what they answered, by words, newest first.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from hashlib import sha256
from json import loads
from math import log10
from typing import TYPE_CHECKING

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    TextClause,
    and_,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    literal_column,
    select,
    text,
    update,
)

from shikisha.core.errors import JournalTampered, ShikishaError
from shikisha.core.events import (
    RECORDS,
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    BodiesErased,
    CallRole,
    CheckStatus,
    Event,
    GradeBasis,
    PlanProposed,
    RunFinished,
    RunStarted,
)
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Attempt, Run, StepRecord, root_run_id
from shikisha.journal import queries
from shikisha.journal.codec import body_hash, body_keys, body_text, make_event, stored_values
from shikisha.journal.schema import (
    EVENTS,
    HEAD,
    INDEXED,
    RUN_DAYS,
    RUN_TEXTS,
    RUN_WORKERS,
    RUNS,
    SERVED,
    WORKER_DAYS,
    add_rows,
)
from shikisha.journal.stored_events import EventRow, RunOverview, last_erasures, placeholder_texts

if TYPE_CHECKING:
    from shikisha.journal.drivers import JournalDriver


PAGE_EVENTS = 500  # events taken in at once: other writers wait some milliseconds for the rows that come of them
_MERGE_STEPS = 1_000
MAX_SEARCHED = 4_000  # characters of a text that can be found
NO_PACE = -1_000_000  # of what took no time that counts
PACES_PER_DECADE = 48  # steps of the logarithmic scale of seconds: 5 % each
SESSION_NAMES = ("session_id", "session")  # metadata of a request that name the session it belongs to
_READ_TEXTS: Mapping[str, tuple[str, ...]] = {
    RunStarted.kind: ("prompt", "domain"),
    PlanProposed.kind: ("plan",),
    AttemptFinished.kind: ("text",),
    RunFinished.kind: ("answer",),
}
# What these faults say is not about the worker.
NEUTRAL_FAULTS = frozenset({"cancelled", "waiting", "cap", "denied", "not_cleared", "blocked"})


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How many events the index has taken in, and how many there are."""

    indexed: int
    events: int

    @property
    def complete(self) -> bool:
        """Whether it has all of them."""
        return self.indexed >= self.events


def index_progress(connection: Connection) -> IndexProgress:
    """Return how far the index is."""
    done = connection.execute(select(INDEXED.c.count)).scalar_one()
    return IndexProgress(done, connection.execute(select(HEAD.c.count)).scalar_one())


async def index_events(
    driver: "JournalDriver",
    pages: int | None = None,
    page_events: int = PAGE_EVENTS,
    ended: "MutableMapping[str, EndedRun] | None" = None,
) -> IndexProgress:
    """Take in what is new, at most so many pages of events; return how far that led.

    `ended` are runs that are known already, by id: they are taken out of it.
    """
    ended = {} if ended is None else ended
    progress = await driver.read(index_progress)
    while not progress.complete and (pages is None or pages > 0):
        page = await driver.read(partial(_read_page, page_events=page_events, ended=ended))
        progress = await driver.write(partial(_write_page, page=page))
        pages = None if pages is None else pages - 1
    return progress


def pace_of(seconds: float) -> int:
    """Return the place of a time on the logarithmic scale."""
    return round(PACES_PER_DECADE * log10(max(seconds, 1e-4)))


def seconds_of(pace: float) -> float:
    """Return the time at a place of the scale."""
    return float(10 ** (pace / PACES_PER_DECADE))


def scope_word(tenant: str) -> str:
    """Return the word by which texts of a tenant are found: a hash, so that no tenant's name can be taken for it."""
    return f"t{sha256(tenant.encode('utf-8', 'replace')).hexdigest()[:20]}"


def storable_text(said: str) -> str:
    """Return a text as every store takes it, composed (NFKC) so that it is found however it is typed."""
    if said.isascii():
        return said.replace("\x00", "\ufffd")
    return unicodedata.normalize("NFKC", said.encode("utf-8", "replace").decode().replace("\x00", "\ufffd"))


def forget_texts(connection: Connection, runs: Iterable[str]) -> int:
    """Take the texts of these runs out of the index, for good; return how many there were."""
    connection.execute(select(INDEXED.c.count).with_for_update())  # no page is being indexed meanwhile
    gone = 0
    for names in queries.in_chunks(runs):
        gone += _delete_texts(connection, names)
        blank = {"excerpt": "", "session": "", "domain": "", "searchable": 0}
        connection.execute(update(RUNS).where(RUNS.c.run.in_(names)).values(blank))
    return gone


def has_word_table(connection: Connection) -> bool:
    """Whether SQLite was built with what searches by words."""
    return connection.dialect.name == "sqlite" and inspect(connection).has_table("run_words")


async def forget_words(driver: "JournalDriver") -> None:
    """Rewrite SQLite's word index without what was deleted, a part at a time.

    FTS5 keeps deleted entries until their segment is merged, and only SQLite 3.42 can leave none in the first place.
    Where others add words so fast that this comes to no end, it is rewritten at once, and they wait.
    """
    for _ in range(_MERGE_STEPS):
        if not await driver.write(_merge_words):
            return
    await driver.write(_rewrite_words)


def _rewrite_words(connection: Connection) -> None:
    connection.execute(text("INSERT INTO run_words(run_words) VALUES ('optimize')"))


def _merge_words(connection: Connection) -> bool:
    """Rewrite a part of the index; return whether something is left."""
    if not has_word_table(connection):
        return False
    before = connection.execute(text("SELECT total_changes()")).scalar_one()
    connection.execute(text("INSERT INTO run_words(run_words, rank) VALUES ('merge', -400)"))  # pages
    return bool(connection.execute(text("SELECT total_changes()")).scalar_one() - before >= 2)


@dataclass(frozen=True, slots=True)
class _IndexedRun:
    """A run's rows in the index; `texts` None: those that are there stay."""

    row: dict[str, object]
    workers: list[dict[str, object]]
    texts: list[dict[str, object]] | None


@dataclass(frozen=True, slots=True)
class _IndexPage:
    """What comes of the events from place `begin` to place `end`, when the chain had `total`.

    `runs` are in parts that a statement takes, each with the runs that the index has already.
    """

    begin: int
    end: int
    total: int
    runs: Sequence[tuple[Sequence[_IndexedRun], Mapping[str, int]]]


def _read_page(connection: Connection, page_events: int, ended: "MutableMapping[str, EndedRun]") -> _IndexPage:
    """Read and fold the next page of events."""
    done = connection.execute(select(INDEXED.c.count)).scalar_one()
    total = connection.execute(select(HEAD.c.count)).scalar_one()
    page = select(EVENTS.c.seq, EVENTS.c.run).where(EVENTS.c.seq >= done).order_by(EVENTS.c.seq).limit(page_events)
    touched = connection.execute(page).all()
    if not touched:  # rows that the head counts are missing: `journal verify` says so
        return _IndexPage(done, total, total, ())
    parts = queries.in_chunks(row.run for row in touched if row.run != RECORDS)
    return _IndexPage(done, touched[-1].seq + 1, total, [_read_runs(connection, names, ended) for names in parts])


def _write_page(connection: Connection, page: _IndexPage) -> IndexProgress:
    """Write what came of a page, unless another process wrote it, or texts of it may be erased by now."""
    done = connection.execute(select(INDEXED.c.count).with_for_update()).scalar_one()
    erased = select(EVENTS.c.seq).where(EVENTS.c.seq >= page.total, EVENTS.c.kind == BodiesErased.kind).limit(1)
    if done == page.begin and connection.execute(erased).first() is None:
        for made, known in page.runs:
            # Make the rows of these runs again.
            names = [str(each.row["run"]) for each in made]
            if known:
                _sum_days(connection, list(known), -1)
                connection.execute(delete(RUN_WORKERS).where(RUN_WORKERS.c.run.in_(list(known))))
                connection.execute(delete(RUNS).where(RUNS.c.run.in_(list(known))))
            add_rows(connection, RUNS, [each.row for each in made])
            add_rows(connection, RUN_WORKERS, [row for each in made for row in each.workers])
            _sum_days(connection, names, 1)
            if known:
                days = {row.day for row in connection.execute(select(RUNS.c.day).where(RUNS.c.run.in_(list(known))))}
                connection.execute(delete(RUN_DAYS).where(RUN_DAYS.c.day.in_(days), RUN_DAYS.c.runs == 0))
                connection.execute(delete(WORKER_DAYS).where(WORKER_DAYS.c.day.in_(days), WORKER_DAYS.c.calls == 0))
            renewed = [str(each.row["run"]) for each in made if each.texts is not None]
            if stale := [name for name in renewed if known.get(name)]:
                _delete_texts(connection, stale)
            if texts := [row for each in made for row in each.texts or ()]:
                connection.execute(insert(RUN_TEXTS), texts)
                if has_word_table(connection):
                    adding = "INSERT INTO run_words(rowid, text, scope) SELECT id, text, scope FROM run_texts"
                    statement = text(f"{adding} WHERE run IN :runs").bindparams(bindparam("runs", expanding=True))
                    connection.execute(statement, {"runs": sorted({str(row["run"]) for row in texts})})
        done = page.end
        connection.execute(update(INDEXED).values(count=done))
    return IndexProgress(done, page.total)


def _read_runs(
    connection: Connection, names: Sequence[str], ended: "MutableMapping[str, EndedRun]"
) -> tuple[Sequence[_IndexedRun], Mapping[str, int]]:
    """Return what these runs came to, and how many texts the index has of those that it has."""
    there = connection.execute(select(RUNS.c.run, RUNS.c.searchable).where(RUNS.c.run.in_(names)))
    known = {row.run: row.searchable for row in there}
    orders = _read_orders(connection, {root_run_id(name) for name in names})
    made = list[_IndexedRun]()
    ready = {name: own for name in names if (own := ended.pop(name, None)) is not None}
    counted = select(EVENTS.c.run, func.count(), func.min(EVENTS.c.seq)).where(EVENTS.c.run.in_(list(ready)))
    for name, rows, seq in connection.execute(counted.group_by(EVENTS.c.run)) if ready else ():
        if rows == ready[name].rows:  # nothing has followed its end
            made.append(ready[name].indexed(seq, orders.get(root_run_id(name), _NO_ORDER), known.get(name, 0)))
    done = {str(each.row["run"]) for each in made}
    by_run: dict[str, list[_StoredEvent]] = {name: [] for name in names if name not in done}
    for row in queries.event_rows(connection, EVENTS.c.run.in_(list(by_run))) if by_run else ():
        by_run[row.run].append(_StoredEvent.of(row))
    bodies = _read_bodies(connection, (each for own in by_run.values() for each in own))
    made += [
        _index_run(own, bodies, orders.get(root_run_id(name), _NO_ORDER), known.get(name, 0))
        for name, own in by_run.items()
    ]
    return made, known


def _day_sums(table: str, keys: str, sums: Mapping[str, str], source: str) -> TextClause:
    """Return the statement that adds sums over some runs to those of their days, or with :sign -1 takes them out."""
    own = ", ".join(f"CAST(:sign * {each} AS BIGINT)" for each in sums.values())
    more = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in sums)
    said = (
        f"INSERT INTO {table} ({keys}, {', '.join(sums)}) SELECT {source.format(keys=keys, sums=own)} "
        f"GROUP BY {keys} ON CONFLICT ({keys}) DO UPDATE SET {more}"
    )
    return text(said).bindparams(bindparam("runs", expanding=True))


_PAID = "SUM(CASE WHEN dollars IS NULL THEN 0 ELSE ROUND(dollars * 1e9) END)"
_RUN_SUMS = _day_sums(
    "run_days",
    "day, tenant, key, model, pace",
    {
        "runs": "COUNT(*)",
        "done": "SUM(CASE WHEN status = 'done' THEN 1 ELSE 0 END)",
        "failed": "SUM(CASE WHEN status IN ('failed', 'capped') THEN 1 ELSE 0 END)",
        "graded": "COUNT(CASE WHEN judged THEN NULL ELSE score END)",
        "good": "SUM(CASE WHEN score >= 0.5 AND NOT judged THEN 1 ELSE 0 END)",
        "judged": "COUNT(CASE WHEN judged THEN score END)",
        "judged_good": "SUM(CASE WHEN score >= 0.5 AND judged THEN 1 ELSE 0 END)",
        "unpriced": "SUM(CASE WHEN dollars IS NULL THEN 1 ELSE 0 END)",
        "tokens": "SUM(tokens)",
        "nanodollars": _PAID,
    },
    "{keys}, {sums} FROM runs WHERE run IN :runs AND parent IS NULL AND key <> ''",
)
_WORKER_SUMS = _day_sums(
    "worker_days",
    "day, tenant, worker, pace",
    {
        "calls": "SUM(calls)",
        "good": "SUM(good)",
        "unpriced": "SUM(CASE WHEN dollars IS NULL THEN calls ELSE 0 END)",
        "tokens": "SUM(tokens)",
        "nanodollars": _PAID,
    },
    "{keys}, {sums} FROM (SELECT day, tenant, worker, run_workers.pace AS pace, calls, good, run_workers.dollars AS "
    "dollars, run_workers.tokens AS tokens FROM run_workers JOIN runs ON runs.run = run_workers.run "
    "WHERE run_workers.run IN :runs AND key <> '') AS called",
)


def _sum_days(connection: Connection, names: Sequence[str], sign: int) -> None:
    """Add what the index says of these runs to the sums of their days, or take it out."""
    for statement in (_RUN_SUMS, _WORKER_SUMS):
        connection.execute(statement, {"runs": list(names), "sign": sign})


def _delete_texts(connection: Connection, names: Sequence[str]) -> int:
    if has_word_table(connection):
        taking = (
            "INSERT INTO run_words(run_words, rowid, text, scope) "
            "SELECT 'delete', id, text, scope FROM run_texts WHERE run IN :runs"
        )
        connection.execute(text(taking).bindparams(bindparam("runs", expanding=True)), {"runs": list(names)})
    return connection.execute(delete(RUN_TEXTS).where(RUN_TEXTS.c.run.in_(names))).rowcount


@dataclass(frozen=True, slots=True)
class _Order:
    """Who ordered a run of a server, and as part of which session."""

    tenant: str = ""
    key: str = ""
    model: str = ""
    session: str = ""


_NO_ORDER = _Order()


def _read_orders(connection: Connection, roots: set[str]) -> dict[str, _Order]:
    columns = (SERVED.c.run, SERVED.c.tenant, SERVED.c.key, SERVED.c.model, SERVED.c.metadata)
    found: dict[str, _Order] = {}
    for names in queries.in_chunks(roots):
        for run, tenant, key, model, metadata in connection.execute(select(*columns).where(SERVED.c.run.in_(names))):
            told = loads(metadata)
            session = next((str(told[name]) for name in SESSION_NAMES if told.get(name)), "")
            found[run] = _Order(tenant, key, model, session[:200])
    return found


@dataclass(frozen=True, slots=True)
class _StoredEvent:
    """An event's row, with its data read once, and the hashes of those of its texts that are shown or searched."""

    row: EventRow
    values: Mapping[str, object] | None
    wanted: tuple[str, ...]

    @classmethod
    def of(cls, row: EventRow) -> "_StoredEvent":
        values, wanted = stored_values(row.data), _READ_TEXTS.get(row.kind)
        return cls(
            row,
            values,
            tuple([key for name, key in body_keys(row.kind, values).items() if name in wanted]) if wanted else (),
        )


def _read_bodies(connection: Connection, events: Iterable[_StoredEvent]) -> dict[str, str]:
    """Return the texts that are shown or searched, by hash, of those that are what their hash says."""
    found = queries.read_bodies(connection, {key for each in events for key in each.wanted})
    return {key: body_text(body) for key, body in found.items() if body_hash(body) == key}


class _Texts(dict[str, str]):
    """A run's texts by hash; one that the index does not read is empty."""

    def __missing__(self, key: str) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run's part of the index, apart from who ordered it; `rows` is how many rows of the journal made it.

    A server has its runs folded as they end: the index need not read them again.
    """

    rows: int
    run: str
    over: bool  # it has ended, or was erased: its texts are as they will be
    began: float
    fields: Mapping[str, object]
    workers: list[dict[str, object]]
    texts: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, run: Run, rows: int) -> "EndedRun":
        """Return it."""
        begun, charged, grade = run.started, run.charged, run.grade
        fields = {
            "parent": begun.parent,
            "conductor": storable_text(begun.conductor),
            "status": str(run.status),
            "excerpt": "" if run.erased else storable_text(RunOverview.of(run).prompt),
            "domain": storable_text(begun.domain),
            "seconds": run.active_seconds,
            "pace": pace_of(run.active_seconds),
            "tokens": charged.tokens,
            "dollars": charged.dollars,
            "uncertain_dollars": run.uncertain.dollars or 0.0,
            "score": grade.score if grade else None,
            "judged": grade is not None and grade.basis is GradeBasis.JUDGE,
        }
        over = run.finished is not None or run.erased is not None
        return cls(rows, run.id, over, begun.at, fields, _worker_rows(run), _run_texts(run))

    def indexed(self, seq: int, order: "_Order", known: int) -> "_IndexedRun":
        """Return its rows, of a run that begins in this place and of which the index has so many texts."""
        renewed = (self.over or not known) and not (known > 1 and self.texts)
        shared = {"run": self.run, "root": root_run_id(self.run), "scope": scope_word(order.tenant)}
        texts: list[dict[str, object]] | None = None
        if renewed:
            texts = [{**shared, "part": part, "text": said} for part, said in self.texts]
        row = {**_order_columns(self.run, seq, order, self.began), **self.fields}
        row["searchable"] = known if texts is None else len(texts)
        return _IndexedRun(row, self.workers, texts)


def _index_run(events: Sequence[_StoredEvent], bodies: Mapping[str, str], order: _Order, known: int) -> _IndexedRun:
    rows = [each.row for each in events]
    name = rows[0].run
    try:
        run = Run.fold(_decode_events(events, bodies))
    except (ShikishaError, ValueError, TypeError, KeyError, IndexError) as error:
        # Whatever a changed row makes of the fold: the run's page and `journal verify` say it in full.
        why = str(error)
        empty = dict.fromkeys(("conductor", "status", "domain"), "")
        none = {
            "seconds": 0.0,
            "pace": pace_of(0.0),
            "tokens": 0,
            "dollars": None,
            "uncertain_dollars": 0.0,
            "score": None,
            "judged": False,
        }
        columns = _order_columns(name, rows[0].seq, order, rows[0].at)
        unreadable_row = columns | empty | none | {"parent": None, "excerpt": storable_text(why)[:200], "searchable": 0}
        return _IndexedRun((unreadable_row), [], [])
    return EndedRun.of(run, len(rows)).indexed(rows[0].seq, order, known)


def _decode_events(events: Sequence[_StoredEvent], bodies: Mapping[str, str]) -> Iterable[Event]:
    erased = [each.row for each in events if each.row.kind == BodiesErased.kind]
    erasure = last_erasures(erased).get(erased[0].run) if erased else None
    for each in events:
        row, texts = each.row, _Texts()
        if erasure is not None and row.seq <= erasure.seq:
            texts.update(placeholder_texts(erasure, row.kind, row.data))
        else:
            for key in each.wanted:
                if key not in bodies:
                    raise JournalTampered(f"event {row.seq} of run {row.run}: a text of it is missing or changed")
                texts[key] = bodies[key]
        yield make_event(row.kind, row.run, row.at, each.values, texts)


def _order_columns(run: str, seq: int, order: _Order, began: float) -> dict[str, object]:
    return {
        "run": run,
        "seq": seq,
        "root": root_run_id(run),
        "tenant": order.tenant,
        "key": order.key,
        "model": order.model,
        "session": storable_text(order.session),
        "began": began,
        "day": int(began // 86_400),
    }


def _run_texts(run: Run) -> list[tuple[str, str]]:
    """Return what can be found of a run, as (part, text): its task, and once it has ended its steps and its answer."""
    if run.erased is not None:
        return []
    found = [("task", run.started.prompt)]
    if run.finished is not None:
        answer = run.answer
        for turn in run.rounds:
            for step, result in zip(turn.plan.steps if turn.plan else (), turn.results, strict=False):
                said = result.text if result is not None and result.text != answer else None
                if step.subtask != run.started.prompt or said:
                    found.append(("step", f"{step.subtask}\n{said}" if said else step.subtask))
        found.append(("answer", answer or ""))
    return [(part, storable_text(said)[:MAX_SEARCHED]) for part, said in found]


def _worker_rows(run: Run) -> list[dict[str, object]]:
    """Return what came of the calls to each worker for steps, checks and planning left out."""
    calls: dict[str, list[tuple[Attempt, bool]]] = {}
    for turn in run.rounds:
        for step in turn.steps.values():
            refused = {check.attempt for check in step.checks if check.status is not CheckStatus.PASS}
            for attempt in filter(partial(_counts_for_worker, step), step.attempts):
                good = isinstance(attempt.outcome, AttemptFinished) and attempt.started.attempt not in refused
                calls.setdefault(storable_text(attempt.started.worker), []).append((attempt, good))
    return [_worker_row(run.id, worker, own) for worker, own in calls.items()]


def _counts_for_worker(_: StepRecord, attempt: Attempt) -> bool:
    """Whether a call says something of its worker: it has ended, as a step's own, and not by somebody else's doing."""
    begun, outcome = attempt.started, attempt.outcome
    plain = begun.role is CallRole.STEP and begun.reason is not AttemptReason.AGREED and outcome is not None
    return plain and not (isinstance(outcome, AttemptFailed) and str(outcome.fault) in NEUTRAL_FAULTS)


def _worker_row(run: str, worker: str, calls: Sequence[tuple[Attempt, bool]]) -> dict[str, object]:
    answered = [
        attempt.outcome.seconds for attempt, good in calls if good and isinstance(attempt.outcome, AttemptFinished)
    ]
    charged = [attempt.charged for attempt, _ in calls]
    known = [each.dollars for each in charged if each.dollars is not None]
    return {
        "run": run,
        "worker": worker,
        "calls": len(calls),
        "good": len(answered),
        "seconds": sum(answered),
        "pace": pace_of(sum(answered) / len(answered)) if answered else NO_PACE,
        "tokens": sum(each.tokens for each in charged),
        "dollars": sum(known) if len(known) == len(charged) else None,
    }


MAX_WORDS = 12
MAX_HITS = 2_000
MAX_SCANNED = 20_000
_MAX_QUERY = 300  # characters
_WORD = re.compile(r"[^\W_]+")
# PostgreSQL would take "foo.bar" and "-5" as words of their own.
_PLAIN_WORDS = "regexp_replace(run_texts.text, '[^[:alnum:]]+', ' ', 'g')"
# Scripts that are written without spaces between words, from Thai to the CJK blocks.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class TextQuery:
    """What is looked for: words as typed, a tenant (None: any), and in which parts (task, step, answer; (): all).

    `roots`: not in child runs.
    """

    words: str
    tenant: str | None = None
    parts: tuple[str, ...] = ()
    roots: bool = False

    @property
    def terms(self) -> tuple[str, ...]:
        """The words that are looked for."""
        found = _WORD.findall(storable_text(self.words[:_MAX_QUERY]))
        return tuple(dict.fromkeys(word.lower() for word in found))[:MAX_WORDS]


def matching_texts(connection: Connection, asked: TextQuery) -> Select[int]:
    """Return the statement that gives the ids of the newest texts that match; none where no word is typed."""
    terms = asked.terms
    ids = select(RUN_TEXTS.c.id).where(*_conditions(asked)).order_by(RUN_TEXTS.c.id.desc()).limit(MAX_HITS)
    if not terms:
        return ids.where(literal_column("1 = 0"))
    if _UNSPACED.search("".join(terms)) or (connection.dialect.name == "sqlite" and not has_word_table(connection)):
        newest = select(func.max(RUN_TEXTS.c.id)).scalar_subquery()
        return ids.where(RUN_TEXTS.c.id > newest - MAX_SCANNED, *[_holds(term) for term in terms], *_scope(asked))
    if connection.dialect.name == "sqlite":
        words = " AND ".join(f'text:"{term}"*' for term in terms)
        scoped = words if asked.tenant is None else f"{words} AND scope:{scope_word(asked.tenant)}"
        # The newest matches are taken from the word index alone, so that a common word costs no more than a rare one.
        matching = text("SELECT rowid FROM run_words WHERE run_words MATCH :words ORDER BY rowid DESC LIMIT :most")
        hits = matching.bindparams(bindparam("words", scoped), bindparam("most", MAX_HITS))
        return ids.where(RUN_TEXTS.c.id.in_(hits.columns(RUN_TEXTS.c.id)))
    document = func.to_tsvector(literal_column("'simple'"), literal_column(_PLAIN_WORDS))  # as the index has it
    query = func.to_tsquery(literal_column("'simple'"), " & ".join(f"{term}:*" for term in terms))
    return ids.where(document.op("@@")(query), *_scope(asked))


def _conditions(asked: TextQuery) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if asked.parts:
        where.append(RUN_TEXTS.c.part.in_(asked.parts))
    if asked.roots:
        where.append(RUN_TEXTS.c.run == RUN_TEXTS.c.root)
    return where


def _scope(asked: TextQuery) -> list[ColumnElement[bool]]:
    return [] if asked.tenant is None else [RUN_TEXTS.c.scope == scope_word(asked.tenant)]


def _holds(term: str) -> ColumnElement[bool]:
    return RUN_TEXTS.c.text.icontains(term, autoescape=True)


@dataclass(frozen=True, slots=True)
class TextHit:
    """A text that matches: in which run and part, the words around the first match, and the match itself."""

    run: str
    part: str
    before: str
    match: str
    after: str


def first_hits(connection: Connection, asked: TextQuery, roots: Sequence[str], around: int = 70) -> dict[str, TextHit]:
    """Return the newest match in each of these runs and their child runs, by root run."""
    columns = (RUN_TEXTS.c.run, RUN_TEXTS.c.root, RUN_TEXTS.c.part, RUN_TEXTS.c.text)
    where = and_(RUN_TEXTS.c.id.in_(matching_texts(connection, asked)), RUN_TEXTS.c.root.in_(roots))
    found: dict[str, TextHit] = {}
    for run, root, part, said in connection.execute(select(*columns).where(where).order_by(RUN_TEXTS.c.id.desc())):
        if root not in found:
            found[root] = _hit(run, part, " ".join(said.split()), asked.terms, around)
    return found


def _hit(run: str, part: str, said: str, terms: Sequence[str], around: int) -> TextHit:
    """Return the place of the first word that is found as it was typed; the text's beginning where accents differ."""
    lowered = said.lower()
    places = [(lowered.find(term), len(term)) for term in terms]
    begin, length = min(((at, size) for at, size in places if at >= 0), default=(0, 0))
    start, end = max(0, begin - around), begin + length + around
    before = ("…" if start else "") + said[start:begin]
    return TextHit(
        run, part, before, said[begin : begin + length], said[begin + length : end] + "…" * (end < len(said))
    )
