"""Figures of many runs at once, from the index of runs: by day, model, key and worker, and by session.

Invariants: a figure counts root runs that a server performed, of one tenant or of all, that began since some day.
Quantiles are counted on the index's logarithmic scale of seconds (5 % a step), so that no list of times is ever read.
Every query returns at most a few thousand rows, however many runs there are. What was not priced is counted and left
out of sums.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import inf, sqrt

from sqlalchemy import ColumnElement, Connection, Subquery, Table, and_, case, func, or_, select

from shikisha.core.fast_dataclass import dataclass, field
from shikisha.journal.run_index import NO_PACE, seconds_of
from shikisha.journal.schema import RUN_DAYS, RUN_WORKERS, RUNS, WORKER_DAYS
from shikisha.server.store.served_rows import RIGHT_SCORE, storable

LEAST_COMPARED = 30  # runs, or calls, on either side of a comparison
MOST_NAMES = 12  # models, keys or workers that are told apart
_SESSIONS = 50
_MOST_WORKER_ROWS = 20_000
_CALLED = RUNS.join(RUN_WORKERS, RUN_WORKERS.c.run == RUNS.c.run)
_NEWEST_RUNS = 20_000  # that are looked at one by one


class FigureGroup(StrEnum):
    """What runs are told apart by."""

    DAY = "day"
    MODEL = "model"
    KEY = "key"


@dataclass(slots=True)
class RunFigures:
    """What some runs came to, or some calls: then `done` are the good ones. `paces` counts them by their time."""

    name: str
    runs: int = 0
    done: int = 0
    failed: int = 0
    graded: int = 0
    right: int = 0
    tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    paces: dict[int, int] = field(default_factory=dict)
    squares: float = 0.0  # of dollars, where they were asked for

    @property
    def right_share(self) -> float | None:
        """The share of right answers among those graded."""
        return self.right / self.graded if self.graded else None

    @property
    def done_share(self) -> float | None:
        """The share that ended with an answer; of calls, those that were good."""
        return self.done / self.runs if self.runs else None

    @property
    def dollars_spread(self) -> float:
        """How far the mean cost reaches to either side (95 %); infinite where too few are of known cost."""
        return mean_reach(self.dollars, self.squares, self.runs - self.unpriced)

    @property
    def dollars_each(self) -> float | None:
        """The mean cost of those whose cost is known."""
        priced = self.runs - self.unpriced
        return self.dollars / priced if priced else None

    def quantile(self, share: float) -> float | None:
        """Return the seconds below which this share lies, to within some per cent."""
        total = sum(self.paces.values())
        passed = 0
        for pace in sorted(self.paces):
            passed += self.paces[pace]
            if passed >= share * total:
                return seconds_of(pace)
        return None

    @property
    def p50(self) -> float | None:
        """The median time."""
        return self.quantile(0.5)

    @property
    def p95(self) -> float | None:
        """The time that one in twenty exceeds."""
        return self.quantile(0.95)

    def add(self, other: "RunFigures") -> None:
        """Count another's runs too."""
        for name in ("runs", "done", "failed", "graded", "right", "tokens", "dollars", "unpriced", "squares"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for pace, count in other.paces.items():
            self.paces[pace] = self.paces.get(pace, 0) + count


def mean_reach(total: float, squares: float, count: int) -> float:
    """Return how far a mean reaches to either side (95 %), from its sum and that of squares; infinite of too few."""
    if count < LEAST_COMPARED:  # a normal interval promises too much of few
        return inf
    return 1.96 * sqrt(max(0.0, squares / count - (total / count) ** 2) / (count - 1))


def sum_figures(name: str, figures: Iterable[RunFigures]) -> RunFigures:
    """Return what several came to together."""
    total = RunFigures(name)
    for each in figures:
        total.add(each)
    return total


def figures_by(
    connection: Connection, group: FigureGroup, tenant: str | None, since: int
) -> dict[str | int, RunFigures]:
    """Return the figures by day (a number since 1970), or of the models or keys that cost most; from this day on."""
    column, where = RUN_DAYS.c[group], _of_tenant(RUN_DAYS, tenant, since)
    if group is not FigureGroup.DAY:
        top = select(column).where(*where).group_by(column)
        top = top.order_by(func.sum(RUN_DAYS.c.nanodollars).desc(), func.sum(RUN_DAYS.c.runs).desc(), column)
        where.append(column.in_(connection.execute(top.limit(MOST_NAMES)).scalars().all()))
    names = ("runs", "done", "failed", "graded", "good", "tokens", "nanodollars", "unpriced")
    sums = [func.sum(RUN_DAYS.c[name]) for name in names]
    query = select(column, RUN_DAYS.c.pace, *sums).where(*where).group_by(column, RUN_DAYS.c.pace)
    return _gather((row[0], row[1], dict(zip(names, row[2:], strict=True))) for row in connection.execute(query))


def worker_figures(connection: Connection, tenant: str | None, since: int) -> dict[str, dict[int, RunFigures]]:
    """Return the figures of the calls to each worker, by day, from this day on."""
    names = ("calls", "good", "tokens", "nanodollars", "unpriced")
    sums = [func.sum(WORKER_DAYS.c[name]) for name in names]
    by = (WORKER_DAYS.c.worker, WORKER_DAYS.c.day, WORKER_DAYS.c.pace)
    query = select(*by, *sums).where(*_of_tenant(WORKER_DAYS, tenant, since)).group_by(*by).limit(_MOST_WORKER_ROWS)
    found: dict[str, dict[int, RunFigures]] = {}
    for worker, day, pace, *numbers in connection.execute(query):
        told = dict(zip(names, numbers, strict=True))
        part = _part(worker, pace, {**told, "runs": told["calls"], "done": told["good"], "failed": 0, "graded": 0})
        found.setdefault(worker, {}).setdefault(day, RunFigures(worker)).add(part)
    return found


def recent_worker_figures(connection: Connection, tenant: str | None, since: int) -> dict[str, dict[str, RunFigures]]:
    """Return the figures of the calls to each worker by kind of task, over the newest runs from this day on.

    `graded` and `right` count the runs in which it took part, each once, however many of its child runs it served.
    """
    root = _newest_roots(tenant, since)
    joined = _CALLED.join(root, root.c.run == RUNS.c.root)
    served = select(RUN_WORKERS.c.worker, root.c.domain, root.c.run, root.c.score).select_from(joined).distinct()
    each = served.subquery()
    dollars = func.coalesce(func.sum(RUN_WORKERS.c.dollars), 0.0)
    sums = [*(func.sum(RUN_WORKERS.c[name]) for name in ("calls", "good", "tokens")), dollars]
    unpriced = func.sum(case((RUN_WORKERS.c.dollars.is_(None), RUN_WORKERS.c.calls), else_=0))
    by = (RUN_WORKERS.c.worker, root.c.domain, RUN_WORKERS.c.pace)
    query = select(*[*by, *sums, unpriced]).select_from(joined).group_by(*by)
    found: dict[str, dict[str, RunFigures]] = {}
    for worker, domain, pace, calls, good, tokens, paid, missing in connection.execute(query.limit(_MOST_WORKER_ROWS)):
        part = RunFigures(worker, calls, good, tokens=tokens, dollars=paid, unpriced=missing)
        part.paces = {} if pace == NO_PACE else {pace: calls}
        found.setdefault(worker, {}).setdefault(domain, RunFigures(worker)).add(part)
    marks = select(each.c.worker, each.c.domain, *_graded(each)).group_by(each.c.worker, each.c.domain)
    for row in connection.execute(marks.limit(_MOST_WORKER_ROWS)):
        if marked := found.get(row[0], {}).get(row[1]):
            marked.graded, marked.right = row[2], row[3]
    return found


def way_figures(connection: Connection, by: str, tenant: str | None, since: int) -> dict[str, RunFigures]:
    """Return the figures of all runs from this day on, by `model` or `conductor`."""
    where = [*_of_tenant(RUNS, tenant, since), RUNS.c.parent.is_(None), RUNS.c.model != ""]
    where.append(RUNS.c.status.not_in(("", "running", "suspended")))  # what waits for a person has not failed
    done, score, dollars = RUNS.c.status == "done", RUNS.c.score, RUNS.c.dollars
    sums = (
        func.count(),
        func.sum(case((done, 1), else_=0)),
        func.count(score),
        func.coalesce(func.sum(case((score >= RIGHT_SCORE, 1), else_=0)), 0),
        func.sum(RUNS.c.tokens),
        func.coalesce(func.sum(dollars), 0.0),
        func.count() - func.count(dollars),
        func.coalesce(func.sum(dollars * dollars), 0.0),
    )
    name = RUNS.c[by]
    query = select(name, RUNS.c.pace, *sums).where(*where).group_by(name, RUNS.c.pace).limit(_MOST_WORKER_ROWS)
    found: dict[str, RunFigures] = {}
    for way, pace, runs, ended, graded, right, tokens, paid, unpriced, squares in connection.execute(query):
        part = RunFigures(way, runs, ended, runs - ended, graded, right, int(tokens), paid, unpriced, squares=squares)
        part.paces = {} if pace == NO_PACE else {pace: runs}
        found.setdefault(way, RunFigures(way)).add(part)
    return found


@dataclass(frozen=True, slots=True)
class AloneFigures:
    """Runs that one worker answered alone ("": all other runs): how many are priced, the sums of their dollars and of
    the squares, and how many are graded and right. Alone, dollars are those of the worker; else of the run.
    """

    worker: str
    priced: int
    dollars: float
    squares: float
    graded: int
    right: int


def alone_figures(connection: Connection, tenant: str | None, since: int) -> Sequence[AloneFigures]:
    """Return what each worker's runs came to that it answered alone, over the newest runs from this day on."""
    root = _newest_roots(tenant, since)
    calls = select(
        RUNS.c.root,
        case((func.count(RUN_WORKERS.c.worker.distinct()) == 1, func.min(RUN_WORKERS.c.worker)), else_="").label("by"),
        func.sum(RUN_WORKERS.c.dollars).label("dollars"),
    )
    each = calls.select_from(_CALLED.join(root, root.c.run == RUNS.c.root)).group_by(RUNS.c.root).subquery()
    dollars = case((each.c.by == "", root.c.dollars), else_=each.c.dollars)
    graded, right = _graded(root)
    query = select(each.c.by, func.count(dollars), func.sum(dollars), func.sum(dollars * dollars), graded, right)
    rows = connection.execute(query.select_from(each.join(root, root.c.run == each.c.root)).group_by(each.c.by))
    return [
        AloneFigures(by, n, total or 0.0, squares or 0.0, known, good) for by, n, total, squares, known, good in rows
    ]


def run_scores(connection: Connection, runs: Sequence[str]) -> dict[str, float]:
    """Return the scores of those of these runs that were graded."""
    query = select(RUNS.c.run, RUNS.c.score).where(RUNS.c.run.in_(runs), RUNS.c.score.is_not(None))
    return {row.run: row.score for row in connection.execute(query)}


def _newest_roots(tenant: str | None, since: int) -> Subquery:
    columns = (RUNS.c.run, RUNS.c.domain, RUNS.c.dollars, RUNS.c.score)
    where = [*_of_tenant(RUNS, tenant, since), RUNS.c.parent.is_(None)]
    return select(*columns).where(*where).order_by(RUNS.c.began.desc()).limit(_NEWEST_RUNS).subquery("roots")


def _graded(root: Subquery) -> tuple[ColumnElement[int], ColumnElement[int]]:
    return func.count(root.c.score), func.coalesce(func.sum(case((root.c.score >= RIGHT_SCORE, 1), else_=0)), 0)


def _of_tenant(table: Table, tenant: str | None, since: int) -> list[ColumnElement[bool]]:
    recent = [table.c.day >= since]
    return recent if tenant is None else [*recent, table.c.tenant == storable(tenant)]


def _gather(rows: Iterable[tuple[str | int, int, Mapping[str, int]]]) -> dict[str | int, RunFigures]:
    found: dict[str | int, RunFigures] = {}
    for name, pace, numbers in rows:
        found.setdefault(name, RunFigures(str(name))).add(_part(str(name), pace, numbers))
    return found


def _part(name: str, pace: int, numbers: Mapping[str, int]) -> RunFigures:
    told = {each: int(value) for each, value in numbers.items()}
    made = RunFigures(name, told["runs"], told["done"], told["failed"], told["graded"], told["good"], told["tokens"])
    made.dollars, made.unpriced = told["nanodollars"] / 1e9, told["unpriced"]
    made.paces = {} if pace == NO_PACE else {pace: made.runs}
    return made


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """A session: its runs, when the first and the last began, and what they came to."""

    session: str
    tenant: str
    runs: int
    first: float
    last: float
    tokens: int
    dollars: float
    unpriced: int
    graded: int
    right: int


def list_sessions(
    connection: Connection, tenant: str | None, after: tuple[float, str, str] | None = None, limit: int = _SESSIONS
) -> Sequence[SessionFigures]:
    """Return sessions, that with the newest run first, from a cursor (the last's `last`, tenant and name) on."""
    last = func.max(RUNS.c.began)
    columns = (
        RUNS.c.session,
        RUNS.c.tenant,
        func.count(),
        func.min(RUNS.c.began),
        last,
        func.sum(RUNS.c.tokens),
        func.coalesce(func.sum(RUNS.c.dollars), 0.0),
        func.sum(case((RUNS.c.dollars.is_(None), 1), else_=0)),
        func.count(RUNS.c.score),
        func.sum(case((RUNS.c.score >= RIGHT_SCORE, 1), else_=0)),
    )
    where = [RUNS.c.session != "", RUNS.c.parent.is_(None)]
    if tenant is not None:
        where.append(RUNS.c.tenant == storable(tenant))
    query = select(*columns).where(*where).group_by(RUNS.c.session, RUNS.c.tenant)
    if after is not None:
        value, tenant_name, session = after
        same = RUNS.c.session == session
        behind = or_(RUNS.c.session < session, and_(same, RUNS.c.tenant < tenant_name))
        query = query.having(or_(last < value, and_(last == value, behind)))
    found = connection.execute(query.order_by(last.desc(), RUNS.c.session.desc(), RUNS.c.tenant.desc()).limit(limit))
    return tuple(
        SessionFigures(
            name, of, int(runs), first, newest, int(tokens), float(dollars), int(unpriced), int(graded), int(right)
        )
        for name, of, runs, first, newest, tokens, dollars, unpriced, graded, right in found
    )


def mean_call_dollars(connection: Connection, workers: Sequence[str], tenant: str | None) -> Mapping[str, float]:
    """Return the mean cost of a call to each of these workers, over its newest thousand runs of known cost."""
    found = {}
    for worker in workers:
        own = RUN_WORKERS.c.worker == storable(worker)
        newest = select(RUN_WORKERS.c.dollars, RUN_WORKERS.c.calls).select_from(_CALLED)
        newest = newest.where(own, RUN_WORKERS.c.dollars.is_not(None))
        newest = newest if tenant is None else newest.where(RUNS.c.tenant == storable(tenant))
        part = newest.order_by(RUN_WORKERS.c.run.desc()).limit(1_000).subquery()
        dollars, calls = connection.execute(select(func.sum(part.c.dollars), func.sum(part.c.calls))).one()
        if calls:
            found[worker] = float(dollars) / int(calls)
    return found
