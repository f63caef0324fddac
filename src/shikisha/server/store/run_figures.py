"""Figures of many runs at once, from the index of runs: by day, model, key and worker, and by session.

Invariants: a figure counts root runs that a server performed, of one tenant or of all, that began since some day.
Quantiles are counted on the index's logarithmic scale of seconds (5 % a step), so that no list of times is ever read.
Every query returns at most a few thousand rows, however many runs there are. What was not priced is counted and left
out of sums.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import inf, sqrt
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Subquery, Table, and_, case, func, or_, select

from shikisha.core.fast_dataclass import dataclass, field, fields
from shikisha.core.run import Run
from shikisha.journal.queries import fold_readable
from shikisha.journal.run_index import NO_PACE, seconds_of
from shikisha.journal.schema import RUN_DAYS, RUN_WORKERS, RUNS, WORKER_DAYS
from shikisha.server.store.served_rows import RIGHT_SCORE, storable

LEAST_COMPARED = 30  # runs, or calls, on either side of a comparison
MOST_NAMES = 12  # models, keys or workers that are told apart
_SESSIONS = 50
_MOST_ROWS = 40_000
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
    judged: int = 0  # graded by a language model alone, and what it takes for right: not among `graded`
    judged_right: int = 0

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
        for name in (each.name for each in fields(self) if each.name not in ("name", "paces")):
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
    names = ("runs", "done", "failed", "graded", "tokens", "nanodollars", "unpriced", "judged")
    named = {**{name: name for name in names}, "right": "good", "judged_right": "judged_good"}
    sums = {name: func.sum(RUN_DAYS.c[stored]) for name, stored in named.items()}
    return {key[0]: found for key, found in _gather(connection, (column, RUN_DAYS.c.pace), sums, where).items()}


def worker_figures(connection: Connection, tenant: str | None, since: int) -> dict[str, dict[int, RunFigures]]:
    """Return the figures of the calls to each worker, by day, from this day on."""
    days = WORKER_DAYS.c
    sums = {"runs": func.sum(days.calls), "done": func.sum(days.good)}
    sums |= {name: func.sum(days[name]) for name in ("tokens", "nanodollars", "unpriced")}
    by = (days.worker, days.day, days.pace)
    found: dict[str, dict[int, RunFigures]] = {}
    for (worker, day), figures in _gather(connection, by, sums, _of_tenant(WORKER_DAYS, tenant, since)).items():
        found.setdefault(worker, {})[day] = figures
    return found


def recent_worker_figures(connection: Connection, tenant: str | None, since: int) -> dict[str, dict[str, RunFigures]]:
    """Return the figures of the calls to each worker by kind of task, over the newest runs from this day on.

    `graded` and `right` count the runs in which it took part, each once, however many of its child runs it served.
    """
    root, called = _newest_roots(tenant, since), RUN_WORKERS.c
    joined = _CALLED.join(root, root.c.run == RUNS.c.root)
    served = select(called.worker, root.c.domain, root.c.run, root.c.score, root.c.judged).select_from(joined)
    each = served.distinct().subquery()
    sums = {
        "runs": func.sum(called.calls),
        "done": func.sum(called.good),
        "tokens": func.sum(called.tokens),
        "dollars": func.coalesce(func.sum(called.dollars), 0.0),
        "unpriced": func.sum(case((called.dollars.is_(None), called.calls), else_=0)),
    }
    found: dict[str, dict[str, RunFigures]] = {}
    for (worker, domain), figures in _gather(
        connection, (called.worker, root.c.domain, called.pace), sums, of=joined
    ).items():
        found.setdefault(worker, {})[domain] = figures
    marks = select(each.c.worker, each.c.domain, *_graded(each).values()).group_by(each.c.worker, each.c.domain)
    for row in connection.execute(marks.limit(_MOST_ROWS)):
        if marked := found.get(row[0], {}).get(row[1]):
            marked.graded, marked.right, marked.judged, marked.judged_right = row[2:]
    return found


def way_figures(connection: Connection, by: str, tenant: str | None, since: int) -> dict[str, RunFigures]:
    """Return the figures of all runs from this day on, by `model` or `conductor`."""
    done, dollars = RUNS.c.status == "done", RUNS.c.dollars
    sums = {
        "done": func.sum(case((done, 1), else_=0)),
        "failed": func.sum(case((done, 0), else_=1)),
        "squares": func.coalesce(func.sum(dollars * dollars), 0.0),
        **_run_sums(),
    }
    found = _gather(connection, (RUNS.c[by], RUNS.c.pace), sums, _ended_roots(tenant, since))
    return {name: figures for (name,), figures in found.items()}


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
    graded = list(_graded(root).values())[:2]
    query = select(each.c.by, func.count(dollars), func.sum(dollars), func.sum(dollars * dollars), *graded)
    rows = connection.execute(query.select_from(each.join(root, root.c.run == each.c.root)).group_by(each.c.by))
    return [
        AloneFigures(by, n, total or 0.0, squares or 0.0, known, good) for by, n, total, squares, known, good in rows
    ]


def run_scores(connection: Connection, runs: Sequence[str]) -> dict[str, float]:
    """Return the scores of those of these runs that people or programs graded."""
    graded = (RUNS.c.score.is_not(None), RUNS.c.judged.is_(False))
    query = select(RUNS.c.run, RUNS.c.score).where(RUNS.c.run.in_(runs), *graded)
    return {row.run: row.score for row in connection.execute(query)}


def ended_runs(connection: Connection, tenant: str | None, since: int, limit: int) -> list[Run]:
    """Return the newest root runs from this day on that ended."""
    newest = select(RUNS.c.run).where(*_ended_roots(tenant, since)).order_by(RUNS.c.began.desc()).limit(limit)
    return fold_readable(connection, connection.execute(newest).scalars().all())


def _ended_roots(tenant: str | None, since: int) -> list[ColumnElement[bool]]:
    ended = RUNS.c.status.not_in(("", "running", "suspended"))  # what waits for a person has not failed
    return [*_of_tenant(RUNS, tenant, since), RUNS.c.parent.is_(None), RUNS.c.model != "", ended]


def _newest_roots(tenant: str | None, since: int) -> Subquery:
    columns = (RUNS.c.run, RUNS.c.domain, RUNS.c.dollars, RUNS.c.score, RUNS.c.judged)
    where = [*_of_tenant(RUNS, tenant, since), RUNS.c.parent.is_(None)]
    return select(*columns).where(*where).order_by(RUNS.c.began.desc()).limit(_NEWEST_RUNS).subquery("roots")


def _graded(runs: FromClause) -> dict[str, ColumnElement[int]]:
    """Return how many people or programs graded, and how many are right; then the same of a language model's grades."""
    scores = [case((runs.c.judged.is_(judged), runs.c.score)) for judged in (False, True)]
    right = [func.coalesce(func.sum(case((score >= RIGHT_SCORE, 1), else_=0)), 0) for score in scores]
    counts = [count for pair in zip(map(func.count, scores), right, strict=True) for count in pair]
    return dict(zip(("graded", "right", "judged", "judged_right"), counts, strict=True))


def _run_sums() -> dict[str, ColumnElement[float]]:
    """Return what is summed over rows of the index of runs, by the names of RunFigures."""
    dollars = RUNS.c.dollars
    return {
        "runs": func.count(),
        "tokens": func.sum(RUNS.c.tokens),
        "dollars": func.coalesce(func.sum(dollars), 0.0),
        "unpriced": func.count() - func.count(dollars),
        **_graded(RUNS),
    }


def _of_tenant(table: Table, tenant: str | None, since: int) -> list[ColumnElement[bool]]:
    recent = [table.c.day >= since]
    return recent if tenant is None else [*recent, table.c.tenant == storable(tenant)]


def _gather(
    connection: Connection,
    by: Sequence[ColumnElement[Any]],
    sums: Mapping[str, ColumnElement[float]],
    where: Sequence[ColumnElement[bool]] = (),
    of: FromClause | None = None,
) -> dict[tuple[Any, ...], RunFigures]:
    """Return the sums by the values of these columns, the last of which is the pace."""
    query = select(*by, *sums.values()).where(*where).group_by(*by).limit(_MOST_ROWS)
    found: dict[tuple[Any, ...], RunFigures] = {}
    for row in connection.execute(query if of is None else query.select_from(of)):
        (*key, pace), numbers = row[: len(by)], row[len(by) :]
        part = RunFigures(str(key[0]), **_numbers(sums, numbers))
        part.paces = {} if pace == NO_PACE else {pace: part.runs}
        found.setdefault(tuple(key), RunFigures(part.name)).add(part)
    return found


def _numbers(names: Iterable[str], values: Iterable[float]) -> dict[str, Any]:
    """Return sums by the names of RunFigures; some databases sum whole numbers as decimals."""
    told: dict[str, Any] = {
        name: (float if name in ("dollars", "squares") else int)(value)
        for name, value in zip(names, values, strict=True)
    }
    if "nanodollars" in told:
        told["dollars"] = told.pop("nanodollars") / 1e9
    return told


@dataclass(slots=True)
class SessionFigures(RunFigures):
    """A session by its `name`: whose it is, and when its first and its last run began."""

    tenant: str = ""
    first: float = 0.0
    last: float = 0.0


def list_sessions(
    connection: Connection, tenant: str | None, after: tuple[float, str, str] | None = None, limit: int = _SESSIONS
) -> Sequence[SessionFigures]:
    """Return sessions, that with the newest run first, from a cursor (the last's `last`, tenant and name) on."""
    last, sums = func.max(RUNS.c.began), _run_sums()
    columns = (RUNS.c.session, RUNS.c.tenant, func.min(RUNS.c.began), last, *sums.values())
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
        SessionFigures(name, tenant=of, first=first, last=newest, **_numbers(sums, numbers))
        for name, of, first, newest, *numbers in found
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
