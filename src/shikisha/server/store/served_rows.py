"""The table of served runs: a row as a record, batched writes with the journal's commits, and searches.

Invariants: nothing that a client wrote can make a row that the database refuses (NUL and lone surrogates are
replaced, numbers fit 64 bits). The last change of a run wins, and a batch can be repeated. A list is sorted newest
first unless it is asked otherwise, and its cursor continues exactly where the page ended; search text is taken
literally.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select, true

from shikisha.core.budget import Amount
from shikisha.core.events import RecordsChanged, RunStatus
from shikisha.core.fast_dataclass import dataclass, field, fields
from shikisha.journal.chain import RowStatement, execute_rows
from shikisha.journal.records import records_event, row_hash
from shikisha.journal.run_index import SESSION_NAMES, TextQuery, matching_texts
from shikisha.journal.schema import RUN_TEXTS, RUN_WORKERS, RUNS, SERVED

MAX_INTEGER = 2**63 - 1
_FRESH_SECONDS = 3_600.0
_MAX_SESSION_RUNS = 1_000
RIGHT_SCORE = 0.5  # a grade from here on counts as right


class ServedState(StrEnum):
    """What a server may do with a run."""

    OPEN = "open"  # it is performed by its owner, or waits for someone to claim it
    WAITING = "waiting"  # it waits for a person or for its client; whoever has the answer takes it
    STOPPED = "stopped"  # it was stopped by its user, or is quarantined; a person may have it taken up again
    ENDED = "ended"  # it is over


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """A root run that was ordered of a server; times are Unix times, `owner` is the member that performs it.

    `wire` is its request as its API needs it again, `excerpt` the first words of its task, `idempotency` the client's
    own key for the request, and `request_hash` tells whether another request under that key is the same. `dollars`
    None: it is unknown (yet); what may have been used besides is in `uncertain_…`. `stopping`: someone wants its owner
    to stop it. `erased` is when its texts were. `ends` and `strikes` are what it is blamed for (`blame`).
    """

    run: str
    tenant: str
    key: str
    api: str
    model: str
    conductor: str
    created: float = field(default_factory=time.time)
    state: ServedState = ServedState.OPEN
    owner: str | None = None
    updated: float = 0.0
    wire: str = "{}"
    idempotency: str | None = None
    request_hash: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    excerpt: str = ""
    domain: str = ""
    labels: tuple[str, ...] = ()
    detached: bool = False
    status: RunStatus = RunStatus.RUNNING
    tokens: int = 0
    dollars: float | None = None
    stopping: bool = False
    erased: float | None = None
    ends: int = 0
    strikes: int = 0
    uncertain_tokens: int = 0
    uncertain_dollars: float = 0.0

    @property
    def used(self) -> Amount:
        """What it is known to have used."""
        return Amount(self.tokens, self.dollars)

    @property
    def uncertain(self) -> Amount:
        """What it may have used besides."""
        return Amount(self.uncertain_tokens, self.uncertain_dollars)

    def row(self) -> dict[str, object]:
        """Return the values of its row."""
        values: dict[str, object] = dict(zip(SERVED_COLUMNS, _COLUMN_VALUES(self), strict=True)) | {
            "api": str(self.api),
            "state": str(self.state),
            "status": str(self.status),
            "updated": self.updated or self.created,
            "metadata": json.dumps(dict(self.metadata)) if self.metadata else "{}",
            "labels": json.dumps(self.labels) if self.labels else "[]",
            "tokens": min(self.tokens, MAX_INTEGER),
            "uncertain_tokens": min(self.uncertain_tokens, MAX_INTEGER),
        }
        whole = "".join([value for value in values.values() if type(value) is str])
        if whole.isascii() and "\x00" not in whole:  # most rows are storable as they are
            return values
        return {name: storable(value) for name, value in values.items()}

    @classmethod
    def of(cls, row: Mapping[str, object]) -> "ServedRun":
        """Return the run of a row."""
        made = {
            "state": ServedState(str(row["state"])),
            "status": RunStatus(str(row["status"])),
            "metadata": json.loads(str(row["metadata"])),
            "labels": tuple(json.loads(str(row["labels"]))),
        }
        return cls(**{name: row[name] for name in SERVED_COLUMNS} | made)  # type: ignore[arg-type]  # as `row` made them


SERVED_COLUMNS = tuple(each.name for each in fields(ServedRun))
_COLUMN_VALUES: Callable[[ServedRun], tuple[object, ...]] = attrgetter(*SERVED_COLUMNS)


def storable(value: object) -> object:
    """Return the value as every store takes it."""
    if not isinstance(value, str):
        return value
    text = str(value)  # an enum's member is its text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\x00", "\ufffd")


_STATE_COLUMNS, _FIGURE_COLUMNS = (
    ("state", "owner", "updated"),
    (
        "status",
        "tokens",
        "dollars",
        "uncertain_tokens",
        "uncertain_dollars",
    ),
)


_COLUMN_LIST = ", ".join(SERVED_COLUMNS)
_ADD_ROW = f"INSERT INTO served ({_COLUMN_LIST}) VALUES ({', '.join('?' * len(SERVED_COLUMNS))}) ON CONFLICT DO NOTHING"  # noqa: S608
_ADD_ROWS_AT_ONCE = (
    f"INSERT INTO served ({_COLUMN_LIST}) SELECT {_COLUMN_LIST} "  # noqa: S608 - the names are our own columns'
    "FROM jsonb_populate_recordset(NULL::served, $1) ON CONFLICT DO NOTHING"
)


def _updates_at_once(names: tuple[str, ...], rows: list[dict[str, object]]) -> RowStatement:
    """Return the statement of PostgreSQL's that changes these columns, each row in its run."""
    changes = ", ".join(f"{name} = said.{name}" for name in names)
    given = "jsonb_populate_recordset(NULL::served, $1) AS said"
    sql = f"UPDATE served SET {changes} FROM {given} WHERE served.run = said.run"  # noqa: S608 - our own columns
    return RowStatement(sql, [{name.split("_", 1)[1]: value for name, value in row.items()} for row in rows])


@dataclass(slots=True)
class RowChanges:
    """New rows, and by run the states and figures that changed."""

    rows: list[dict[str, object]] = field(default_factory=list)
    states: dict[str, dict[str, object]] = field(default_factory=dict)
    figures: dict[str, dict[str, object]] = field(default_factory=dict)

    def __call__(self, connection: Connection) -> None:
        """Write all changes, sorted by run, so that two servers cannot deadlock."""
        if self.rows:
            execute_rows(connection, _ADD_ROW, [tuple([row[name] for name in SERVED_COLUMNS]) for row in self.rows])
        for names, rows in self._updates():
            changes = ", ".join(f"{name} = ?" for name in names)
            said = [(*[row[f"new_{name}"] for name in names], row["of_run"]) for row in rows]
            execute_rows(connection, f"UPDATE served SET {changes} WHERE run = ?", said)  # noqa: S608 - our own columns

    def statements(self) -> tuple[RowStatement, ...]:
        """Return the same changes as statements of PostgreSQL's."""
        added = (RowStatement(_ADD_ROWS_AT_ONCE, self.rows),) if self.rows else ()
        return (*added, *(_updates_at_once(names, rows) for names, rows in self._updates()))

    def records(self) -> RecordsChanged | None:
        """Return what it makes of who owns which run."""
        owned = {str(row["run"]): row_hash("served", row) for row in self.rows}
        return records_event(rows={"served": owned}) if owned else None

    def _updates(self) -> Iterator[tuple[tuple[str, ...], list[dict[str, object]]]]:
        """Yield columns that change together, and the rows that say how, in the order of the runs."""
        both = self.states.keys() & self.figures.keys()  # a run's end says both, and one statement is half of two
        whole = {run: self.states[run] | self.figures[run] for run in both}
        rest = [{run: row for run, row in part.items() if run not in both} for part in (self.states, self.figures)]
        for names, said in zip(
            (_STATE_COLUMNS + _FIGURE_COLUMNS, _STATE_COLUMNS, _FIGURE_COLUMNS), (whole, *rest), strict=True
        ):
            if said:
                yield names, [said[run] for run in sorted(said)]


class RunOrder(StrEnum):
    """What a list is sorted by; the largest comes first unless `ascending`."""

    BEGAN = "began"
    COST = "cost"  # a run of unknown cost counts as less than nothing
    TIME = "time"
    TOKENS = "tokens"


_SORTED_BY: Mapping[RunOrder, ColumnElement[float]] = {
    RunOrder.BEGAN: SERVED.c.created,
    RunOrder.COST: func.coalesce(SERVED.c.dollars, -1.0),
    RunOrder.TIME: SERVED.c.updated - SERVED.c.created,
    RunOrder.TOKENS: SERVED.c.tokens,
}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs: those for which all of it holds; None, "" and () say nothing. `text` is looked for in excerpts.

    `since` and `until` are Unix times of the beginning, the first inclusive; `least` and `most` are dollars. `words`
    are looked for in all texts, and `worker` says who was called, both as far as the index of runs has come. `right`:
    whether the grade that counts is at least one half, a person's or a program's; `judged`: a language model's.
    `reference`: a value of the run's metadata. `after` is the
    cursor of a page's end: what the list is sorted by, and the run.
    """

    tenant: str | None = None
    states: tuple[ServedState, ...] = ()
    statuses: tuple[RunStatus, ...] = ()
    key: str | None = None
    model: str | None = None
    api: str | None = None
    text: str = ""
    since: float | None = None
    until: float | None = None
    after: tuple[float, str] | None = None
    limit: int = 50
    words: TextQuery | None = None
    worker: str = ""
    label: str = ""
    domain: str = ""
    session: str = ""
    reference: str = ""
    least: float | None = None
    most: float | None = None
    right: bool | None = None
    judged: bool = False
    order: RunOrder = RunOrder.BEGAN
    ascending: bool = False


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs, newest first, and the cursor of the next page; None when this is the last."""

    runs: tuple[ServedRun, ...]
    after: tuple[float, str] | None = None


def find_page(connection: Connection, asked: RunFilter) -> RunPage:
    """Return the runs that are asked for."""
    limit, by = max(asked.limit, 1), _SORTED_BY[asked.order]
    where = filter_conditions(connection, asked)
    if asked.after is not None:
        value, run = asked.after
        further = (by > value, SERVED.c.run > run) if asked.ascending else (by < value, SERVED.c.run < run)
        where.append(or_(further[0], and_(by == value, further[1])))
    order = (by.asc(), SERVED.c.run.asc()) if asked.ascending else (by.desc(), SERVED.c.run.desc())
    columns = select(SERVED, by.label("sorted_by")).where(*where).order_by(*order).limit(limit + 1)
    found = connection.execute(columns).mappings().all()
    runs = tuple(ServedRun.of(dict(row)) for row in found[:limit])
    last = (float(found[limit - 1]["sorted_by"]), runs[-1].run) if len(found) > limit else None
    return RunPage(runs, last)


def count_by_state(connection: Connection, asked: RunFilter) -> dict[ServedState, int]:
    """Return how many runs there are of each state, wherever the cursor stands."""
    where = filter_conditions(connection, asked)
    statement = select(SERVED.c.state, func.count()).where(*where).group_by(SERVED.c.state)
    return {ServedState(state): number for state, number in connection.execute(statement)}


def filter_conditions(connection: Connection, asked: RunFilter) -> list[ColumnElement[bool]]:
    """Return what must hold, all of it, of a run that is asked for."""
    same = {"tenant": asked.tenant, "key": asked.key, "model": asked.model, "api": asked.api}
    same |= {"domain": asked.domain or None}
    where = [SERVED.c[name] == storable(value) for name, value in same.items() if value is not None]
    if asked.states:
        where.append(SERVED.c.state.in_(asked.states))
    if asked.statuses:
        where.append(SERVED.c.status.in_(asked.statuses))
    if asked.text:
        where.append(SERVED.c.excerpt.icontains(str(storable(asked.text)), autoescape=True))
    for bound, holds in (
        (asked.since, SERVED.c.created.__ge__),
        (asked.until, SERVED.c.created.__lt__),
        (asked.least, SERVED.c.dollars.__ge__),
        (asked.most, SERVED.c.dollars.__le__),
    ):
        if bound is not None:
            where.append(holds(bound))
    return where + _indexed_conditions(connection, asked)


def _indexed_conditions(connection: Connection, asked: RunFilter) -> list[ColumnElement[bool]]:
    """Return what the index of runs is asked for."""
    where: list[ColumnElement[bool]] = []
    if asked.label:  # in JSON, where a quote in a label has a backslash before it
        where.append(SERVED.c.labels.contains(json.dumps(str(storable(asked.label))), autoescape=True))
    if asked.words is not None:
        ids = matching_texts(connection, asked.words)
        where.append(SERVED.c.run.in_(select(RUN_TEXTS.c.root).where(RUN_TEXTS.c.id.in_(ids))))
    if asked.worker:
        own = RUN_WORKERS.c.run == SERVED.c.run
        where.append(exists().where(own, RUN_WORKERS.c.worker == storable(asked.worker)))
    if asked.reference:
        where.append(SERVED.c.metadata.contains(f": {json.dumps(asked.reference)}", autoescape=True))
    if asked.session:
        # The newest runs of a session; a turn of a chat counts at once, however far behind the index is
        own = RUNS.c.tenant == storable(asked.tenant) if asked.tenant is not None else true()
        indexed = select(RUNS.c.run).where(RUNS.c.session == storable(asked.session), own)
        newest = indexed.order_by(RUNS.c.began.desc()).limit(_MAX_SESSION_RUNS)
        names = (f'"{name}": {json.dumps(asked.session)}' for name in SESSION_NAMES)
        named = or_(*(SERVED.c.metadata.contains(name, autoescape=True) for name in names))
        fresh = select(SERVED.c.run).where(SERVED.c.created > time.time() - _FRESH_SECONDS, named)
        fresh = fresh.order_by(SERVED.c.created.desc()).limit(_MAX_SESSION_RUNS)
        where.append(SERVED.c.run.in_([*connection.execute(newest).scalars(), *connection.execute(fresh).scalars()]))
    if asked.right is not None:
        marked = RUNS.c.score >= RIGHT_SCORE if asked.right else RUNS.c.score < RIGHT_SCORE
        where.append(exists().where(RUNS.c.run == SERVED.c.run, RUNS.c.judged.is_(asked.judged), marked))
    return where
