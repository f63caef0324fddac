"""`/ui/overview`, where `/ui` leads: what was saved, learned and waits, then the figures by day, worker, model and key.

Invariants: a login sees figures of its own tenant's runs only, and budgets of its own key only unless it is an admin's;
every share stands next to the number it is of; what is unknown is counted and left out. An alert says what it compares,
and a drift is reported only where chance would rarely show it. The work does not grow with the journal: sums by day
are read (`run_figures`), and kept for some seconds. A saved view is its tenant's, and leads to a page of this server,
which shows each reader what that reader may see. Deliberately absent: sending alerts (webhooks and metrics do).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import partial
from importlib.util import find_spec
from statistics import NormalDist
from time import monotonic, time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import Connection, delete, func, insert, select

from shikisha.core.budget import format_dollars, wilson
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.journal.schema import VIEWS
from shikisha.plots.day_charts import ChartForm, DayChart, DaySeries, day_bar_chart, day_line_chart
from shikisha.plots.format import compact, format_share, seconds
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.grants import DailySpend, read_spend
from shikisha.server.keys.key import KeyScope, dollars_of
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.keys_page import KeyView, first_shown_day, keys_view
from shikisha.server.pages.login import (
    CheckedForm,
    PageRoute,
    PageSession,
    ReaderLogin,
    RunnerLogin,
    Service,
    form_text,
    redirect,
)
from shikisha.server.pages.runs_page import INDEX_PAGES, PERIODS, key_names
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.store.run_figures import (
    LEAST_COMPARED,
    AloneFigures,
    FigureGroup,
    RunFigures,
    alone_figures,
    figures_by,
    mean_reach,
    recent_worker_figures,
    sum_figures,
    worker_figures,
)
from shikisha.server.store.served_rows import storable

if TYPE_CHECKING:  # it needs numpy
    from shikisha.learned.learning_files import LearningFiles, ScopeModels
    from shikisha.learned.outcome_model import OutcomeModel

DEFAULT_PERIOD = 30
_DAY = 86_400
_KEPT_SECONDS = 4.0
_CHART_WIDTHS = (580.0, 356.0)
_MUCH_OF_BUDGET = 0.8
_SOON_DAYS = 7.0  # a budget that will last no longer is an alert
_CHANCE = 0.01  # how often there would be a false alert on a day, all workers and models together
_LEAST_FALL = 0.05  # of a share
_LEAST_RISE = 1.5  # of a cost or time


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that needs a look: of what kind (budget or drift), about whom, and in words; `way` leads there."""

    kind: str
    about: str
    words: str
    way: str
    grave: bool = False


@dataclass(frozen=True, slots=True)
class PeriodFigures:
    """What the index says of a period: figures by day, model and key, and of the calls to each worker by day; `parts`:
    of the newest of them by kind of task, with how often a worker's runs were right.
    """

    days: Mapping[int, RunFigures]
    models: Mapping[str, RunFigures]
    keys: Mapping[str, RunFigures]
    workers: Mapping[str, Mapping[int, RunFigures]]
    alone: Sequence[AloneFigures] = ()
    parts: Mapping[str, Mapping[str, RunFigures]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChartView:
    """A chart for a desk and for a telephone: its name, what its heights are, and the names of its series."""

    name: str
    unit: str
    series: tuple[str, ...]
    wide: DayChart
    narrow: DayChart


@dataclass(frozen=True, slots=True)
class ShareView:
    """A share with its 95 % interval, and what it is of."""

    right: int
    of: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BestAlone:
    """What always asking the best model would have cost and brought, from the runs that it answered alone."""

    worker: str
    runs: int
    right: ShareView
    dollars: tuple[float, float, float] | None  # of as many runs as there were: the mean and its 95 % interval


def best_alone(found: Sequence[AloneFigures], runs: int) -> BestAlone | None:
    """Return the worker that was most often right alone, with what it had cost; None where none shows enough."""
    able = [one for one in found if one.worker and one.graded >= LEAST_COMPARED]
    best = max(able, key=lambda one: (one.right / one.graded, one.graded), default=None)
    if best is None:
        return None
    dollars = None
    if best.priced >= LEAST_COMPARED:
        mean = best.dollars / best.priced
        reach = mean_reach(best.dollars, best.squares, best.priced)
        dollars = runs * mean, runs * max(0.0, mean - reach), runs * (mean + reach)
    return BestAlone(best.worker, best.priced, _share_view(best.right, best.graded), dollars)


def _share_view(right: int, of: int) -> ShareView:
    return ShareView(right, of, *wilson(right, of))


def _learned_models(files: "LearningFiles", tenant: str | None) -> "Iterator[tuple[ScopeModels, OutcomeModel | None]]":
    """Yield what was learned from a tenant's runs, all for None, with the model that acts (None: unreadable)."""
    for one in files.index().scopes:
        if tenant is None or one.scope.tenant == tenant:
            model = None
            with suppress(ConfigError):
                model = files.read(one, one.pinned or one.live)
            yield one, model


class OverviewReader:
    """Reads the figures of a period, for each tenant at most once in some seconds."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str | None, int], tuple[float, PeriodFigures]] = {}
        self._turn = asyncio.Lock()

    async def read(self, service: RunService, tenant: str | None, since: int) -> PeriodFigures:
        """Return the figures of a tenant's runs, or of all for None, from a day on."""
        async with self._turn:
            self._kept = {name: pair for name, pair in self._kept.items() if monotonic() - pair[0] < _KEPT_SECONDS}
            if (tenant, since) not in self._kept:
                read = await service.journal.query(partial(read_period, tenant=tenant, since=since))
                self._kept[tenant, since] = (monotonic(), read)
            return self._kept[tenant, since][1]


def read_period(connection: Connection, tenant: str | None, since: int) -> PeriodFigures:
    """Return the figures from a day on (a number since 1970)."""
    days, models, keys = (figures_by(connection, group, tenant, since) for group in FigureGroup)
    return PeriodFigures(
        {int(day): figures for day, figures in days.items()},
        {str(name): figures for name, figures in models.items()},
        {str(name): figures for name, figures in keys.items()},
        worker_figures(connection, tenant, since),
        alone_figures(connection, tenant, since),
        recent_worker_figures(connection, tenant, since),
    )


def overview_view(found: PeriodFigures, period: int, now: float, names: Mapping[str, str]) -> dict[str, object]:
    """Return what the page shows of a period that ends today; `names` are the keys' names by id."""
    today = int(now // _DAY)
    shown = [
        (datetime.fromtimestamp(day * _DAY, UTC).date().isoformat(), found.days.get(day, RunFigures("")))
        for day in range(today - period + 1, today + 1)
    ]
    workers = [(name, name, sum_figures(name, by_day.values())) for name, by_day in found.workers.items()]
    for name, _, figures in workers:
        marked = sum_figures(name, found.parts.get(name, {}).values())
        figures.graded, figures.right = marked.graded, marked.right
        figures.judged, figures.judged_right = marked.judged, marked.judged_right
    total = sum_figures("", found.days.values())
    return {
        "period": period,
        "total": total,
        "right": _share_view(total.right, total.graded),
        "best": best_alone(found.alone, total.runs),
        "by_day": [(day, day, figures) for day, figures in reversed(shown) if figures.runs],
        "by_model": [(name, name, figures) for name, figures in _costliest(found.models)],
        "by_key": [(key, names.get(key, key), figures) for key, figures in _costliest(found.keys)],
        "by_worker": sorted(workers, key=lambda each: (-each[2].dollars, -each[2].runs, each[0])),
        "charts": list(_charts(shown)),
    }


def _costliest(figures: Mapping[str, RunFigures]) -> list[tuple[str, RunFigures]]:
    return sorted(figures.items(), key=lambda pair: (-pair[1].dollars, -pair[1].runs, pair[0]))


def _charts(shown: Sequence[tuple[str, RunFigures]]) -> Iterator[ChartView]:
    """Yield the charts of a period."""
    days, figures = [day for day, _ in shown], [each for _, each in shown]
    done = DaySeries("done", tuple(float(each.done) for each in figures))
    failed = DaySeries("failed", tuple(float(each.failed) for each in figures))
    rest = DaySeries("other", tuple(float(each.runs - each.done - each.failed) for each in figures))
    counts = ChartForm(lambda value: compact(int(value)), least_top=4.0, whole=True)
    yield _chart("Runs", "runs a day", partial(day_bar_chart, days, (done, failed, rest)), counts, (done, failed, rest))
    spent = DaySeries("", tuple(each.dollars for each in figures))
    yield _chart("Spending", "dollars a day", partial(day_bar_chart, days, (spent,)), ChartForm(format_dollars))
    right = DaySeries("right", tuple(each.right_share for each in figures))
    shares = ChartForm(format_share, least_top=1.0)
    yield _chart("Right answers", "share of the graded runs", partial(day_line_chart, days, (right,)), shares)
    times = [DaySeries(f"p{100 * share:.0f}", tuple(each.quantile(share) for each in figures)) for share in (0.5, 0.95)]
    yield _chart("Time", "a run", partial(day_line_chart, days, times), ChartForm(seconds), times)


def _chart(
    name: str, unit: str, draw: Callable[[ChartForm], DayChart], form: ChartForm, series: Sequence[DaySeries] = ()
) -> ChartView:
    wide, narrow = (draw(replace(form, width=width)) for width in _CHART_WIDTHS)
    return ChartView(name, unit, tuple(each.name for each in series), wide, narrow)


# alerts


def budget_alerts(keys: Sequence[KeyView], spent: Sequence[DailySpend], now: float) -> Iterator[Alert]:
    """Yield the budgets that are nearly used up, or will be within days at the pace of the last week."""
    for view in keys:
        if view.state != "valid":
            continue
        for meter in view.meters:
            if meter.share >= _MUCH_OF_BUDGET:
                words = f"{meter.used} of {meter.cap} {meter.name} used, {format_share(meter.share)}"
                yield Alert("budget", view.key.name, words, f"{UI_ROOT}/keys#{view.key.id}", meter.share >= 1)
        cap, used = view.key.caps.dollars, view.spent
        # What a key spent a day over the last seven.
        key = view.key
        today = datetime.fromtimestamp(now, UTC).date()
        own = [row for row in spent if row.key == key.id and _days_before(row.day, today) < _SOON_DAYS]
        a_day = sum(dollars_of(row.used.dollars) for row in own) / _SOON_DAYS
        if cap is not None and a_day > 0 and used / cap < _MUCH_OF_BUDGET and (cap - used) / a_day < _SOON_DAYS:
            left = (cap - used) / a_day
            words = f"{format_dollars(cap - used)} left, which lasts {left:.1f} days at last week's pace"
            yield Alert("budget", view.key.name, words, f"{UI_ROOT}/keys#{view.key.id}")


def _days_before(day: str, today: date) -> float:
    try:
        return (today - date.fromisoformat(day)).days
    except ValueError:  # the row of all days together
        return float("inf")


def drift_alerts(found: PeriodFigures, today: int) -> Iterator[Alert]:
    """Yield what is worse in the last day with enough runs than in the days before it, by more than chance."""
    pairs = [(worker, _recent_and_before(by_day, today)) for worker, by_day in sorted(found.workers.items())]
    tested = [(worker, pair) for worker, pair in pairs if pair is not None]
    for worker, (recent, before) in tested:
        if _has_fallen((recent.done, recent.runs), (before.done, before.runs), len(tested)):
            words = f"good calls: {_of(recent.done, recent.runs)} lately, {_of(before.done, before.runs)} before"
            yield Alert("drift", worker, words, f"{UI_ROOT}/workers")
    pair = _recent_and_before(found.days, today)
    if pair is None:
        return
    recent, before = pair
    if min(recent.graded, before.graded) >= LEAST_COMPARED and _has_fallen(
        (recent.right, recent.graded), (before.right, before.graded), 1
    ):
        words = f"right answers: {_of(recent.right, recent.graded)} lately, {_of(before.right, before.graded)} before"
        yield Alert("drift", "all runs", words, f"{UI_ROOT}/runs?right=no", grave=True)
    for name, now_is, was, write in (
        ("cost a run", recent.dollars_each, before.dollars_each, format_dollars),
        ("median time", recent.p50, before.p50, seconds),
    ):
        if now_is is not None and was and now_is >= _LEAST_RISE * was:
            yield Alert("drift", "all runs", f"{name}: {write(now_is)} lately, {write(was)} before", f"{UI_ROOT}/runs")


def _recent_and_before(by_day: Mapping[int, RunFigures], today: int) -> tuple[RunFigures, RunFigures] | None:
    """Return today and as many days before as it takes to compare, and all days before those; None without enough."""
    recent = RunFigures("")
    for day in range(today, today - 4, -1):
        recent.add(by_day.get(day, RunFigures("")))
        if recent.runs >= LEAST_COMPARED:
            before = sum_figures("", (figures for each, figures in by_day.items() if each < day))
            return (recent, before) if before.runs >= LEAST_COMPARED else None
    return None


def _has_fallen(recent: tuple[int, int], before: tuple[int, int], tests: int) -> bool:
    """Whether a share is lower than before, by so much that chance would rarely show it (one-sided, pooled)."""
    share, was = recent[0] / recent[1], before[0] / before[1]
    pooled = (recent[0] + before[0]) / (recent[1] + before[1])
    spread = (pooled * (1 - pooled) * (1 / recent[1] + 1 / before[1])) ** 0.5
    if was - share < _LEAST_FALL or not spread:
        return False
    return bool((was - share) / spread > NormalDist().inv_cdf(1 - _CHANCE / tests))


def _of(part: int, whole: int) -> str:
    return f"{format_share(part / whole)} of {whole:,}"


_CHOICES: Mapping[str, Mapping[str, str]] = {  # what of Home can be shown alone, and in which columns
    "show": {
        "summary": "Summary", "charts": "Charts", "worker": "By worker", "model": "By model", "key": "By key",
        "day": "By day",
    },
    "column": {
        "runs": "Runs", "done": "Done", "right": "Right", "cost": "Cost", "each": "Cost each", "p50": "Time p50",
        "p95": "Time p95", "tokens": "Tokens",
    },
}  # fmt: skip
router = APIRouter(route_class=PageRoute, include_in_schema=False)


def _chosen(asked: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return which of what can be shown is asked for; all where none is."""
    return [name for name in known if name in asked] or list(known)


@router.get(f"{UI_ROOT}/overview")
async def show_overview(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show the figures of a period."""
    query = request.query_params
    asked = query.get("days", "")
    period = int(asked) if asked in {str(each) for each in PERIODS} else DEFAULT_PERIOD
    now = time()
    today, progress = int(now // _DAY), await service.journal.index(INDEX_PAGES)
    found = await _reader(request).read(service, session.tenant, today - period + 1)
    # Drift is looked for over a month, whichever period is shown.
    month = await _reader(request).read(service, session.tenant, today - DEFAULT_PERIOD + 1)
    files = service.container.learning_files() if find_spec("numpy") is not None else None
    learned = () if files is None else await asyncio.to_thread(lambda: [*_learned_models(files, session.tenant)])
    shown = {
        "view": overview_view(found, period, now, await key_names(service, session)),
        "alerts": [*await _budget_alerts(service, session, now), *drift_alerts(month, today)],
        "missing": 0 if progress.complete else progress.events - progress.indexed,  # events that the index lacks
        "periods": PERIODS,
        "learned": learned,
        "learns": service.container.settings.learning.on,
        "show": _chosen(query.getlist("show"), _CHOICES["show"]),
        "column": _chosen(query.getlist("column"), _CHOICES["column"]),
        "choices": _CHOICES,
        "kept": urlencode(
            [(kind, name) for kind in _CHOICES for name in query.getlist(kind) if name in _CHOICES[kind]]
        ),
        "views": await service.keys.database.query(partial(read_views, tenant=session.by.tenant)),
    }
    return render_page(request, "overview.html.jinja", shown)


def _reader(request: Request) -> OverviewReader:
    state = request.app.state
    if not hasattr(state, "overview"):
        state.overview = OverviewReader()
    reader: OverviewReader = state.overview
    return reader


async def _budget_alerts(service: RunService, session: PageSession, now: float) -> Sequence[Alert]:
    """Return the alerts on budgets of all keys to an admin, of his own to anybody else."""
    admin = session.may(KeyScope.ADMIN)
    own = None if admin else await service.keys.get(session.by.key)
    keys = await service.keys.keys() if admin else [own] if own is not None else []
    capped = [key for key in keys if any(getattr(key.caps, name) is not None for name in _CAPS)]
    if not capped:
        return ()
    only = None if admin else session.by.key
    spent = await service.journal.query(partial(read_spend, key=only, since=first_shown_day(now)))
    return tuple(budget_alerts(keys_view(capped, spent, now).keys, tuple(spent), now))


_CAPS = ("dollars", "tokens", "requests", "dollars_per_day", "tokens_per_day", "requests_per_day")


# saved views: addresses of pages under a name

_MOST_VIEWS, _MAX_NAME, _MAX_ADDRESS = 100, 60, 2_000  # of a tenant; characters
_PAGES = {f"{UI_ROOT}/{page}" for page in ("overview", "runs", "queue", "workers", "compare", "compare/policy")}


@dataclass(frozen=True, slots=True)
class SavedView:
    """A name, and the address that it stands for."""

    name: str
    address: str


def read_views(connection: Connection, tenant: str) -> list[SavedView]:
    """Return a tenant's views by name."""
    asked = select(VIEWS.c.name, VIEWS.c.address).where(VIEWS.c.tenant == storable(tenant)).order_by(VIEWS.c.name)
    return [SavedView(*row) for row in connection.execute(asked)]


@router.post(f"{UI_ROOT}/views")
async def save_view(session: RunnerLogin, service: Service, form: CheckedForm) -> Response:
    """Keep a page under a name, in place of what had it."""
    name, address = " ".join(form_text(form, "name").split()), form_text(form, "address")
    plain = address.isascii() and address.isprintable() and len(address) <= _MAX_ADDRESS
    if not 0 < len(name) <= _MAX_NAME or not plain or address.partition("?")[0] not in _PAGES:
        raise ApiError(400, f"expected a name of at most {_MAX_NAME} characters, and a page's address", "invalid_value")
    own = {"tenant": storable(session.by.tenant), "name": storable(name)}

    def work(connection: Connection) -> bool:
        connection.execute(delete(VIEWS).filter_by(**own))
        held = select(func.count()).select_from(VIEWS).where(VIEWS.c.tenant == own["tenant"])
        if connection.execute(held).scalar_one() >= _MOST_VIEWS:
            return False
        connection.execute(insert(VIEWS), {**own, "address": address})
        return True

    if not await service.keys.database.write(work):
        raise ApiError(409, f"a tenant keeps at most {_MOST_VIEWS} views: remove one on Home", "too_many_views")
    return redirect(address)


@router.post(f"{UI_ROOT}/views/remove")
async def remove_view(session: RunnerLogin, service: Service, form: CheckedForm) -> Response:
    """Forget a view of this tenant."""
    own = {"tenant": storable(session.by.tenant), "name": storable(form_text(form, "name"))}
    await service.keys.database.write(lambda connection: connection.execute(delete(VIEWS).filter_by(**own)).rowcount)
    return redirect(f"{UI_ROOT}/overview#views")
