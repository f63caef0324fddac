"""`/ui/runs`: the list of runs with its filters; `/ui/compare`: two runs, or two models or conductors, side by side.

Invariants: a login sees runs of its own tenant only (an admin all). A filter is a link, so it can be bookmarked;
unknown values are ignored. Every share or mean stands next to the number of runs behind it; runs of unknown cost are
left out of the mean and counted. A side is marked as better only if both have a figure. `shikisha eval` gives
confidence intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.core.events import RunStatus
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages import run_page
from shikisha.server.pages.login import PageRoute, PageSession, ReaderLogin, Service
from shikisha.server.pages.run_page import RunView, visible_events
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.pages.workers_page import quantile, recent_activity
from shikisha.server.store import RunFilter, RunPage, ServedRun, ServedState

PAGE_SIZE = 50
_MAX_FIELD = 200
SHOWN_STATUSES = tuple(RunStatus)


@dataclass(frozen=True, slots=True)
class RunListQuery:
    """What a list is filtered by, as its form shows it; `after` is the cursor."""

    text: str = ""
    status: str = ""
    model: str = ""
    key: str = ""
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "RunListQuery":
        """Read an address's query."""
        given = {name: query.get(name, "").strip()[:_MAX_FIELD] for name in ("text", "status", "model", "key", "after")}
        if given["status"] not in tuple(SHOWN_STATUSES):
            given["status"] = ""
        return cls(**given)

    @property
    def narrows(self) -> bool:
        """Whether it leaves anything out."""
        return any((self.text, self.status, self.model, self.key))

    def query(self, after: str = "") -> str:
        """Return the query of an address that asks the same, from a cursor on."""
        told = {"text": self.text, "status": self.status, "model": self.model, "key": self.key, "after": after}
        return urlencode({name: value for name, value in told.items() if value})

    def filter(self, tenant: str | None, size: int = PAGE_SIZE) -> RunFilter:
        """Return it as the store's; a tenant's own runs, or everybody's for None."""
        return RunFilter(
            tenant=tenant,
            statuses=(RunStatus(self.status),) if self.status else (),
            model=self.model or None,
            key=self.key or None,
            text=self.text,
            after=_read_cursor(self.after),
            limit=size,
        )


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the list; `dollars` None: it is unknown; `going`: it is not known yet.

    `uncertain` is what it may have cost besides.
    """

    run: str
    excerpt: str
    status: RunStatus
    model: str
    key: str
    tenant: str
    api: str
    began: float
    seconds: float
    tokens: int
    dollars: float | None
    uncertain: float
    labels: tuple[str, ...]
    domain: str
    going: bool


@dataclass(frozen=True, slots=True)
class RunsView:
    """A page of the list. `next` is the query of the next page, or empty."""

    asked: RunListQuery
    rows: tuple[RunRow, ...]
    next: str
    models: tuple[str, ...]
    keys: Mapping[str, str]
    shown_at: float


def runs_view(
    asked: RunListQuery, page: RunPage, names: Mapping[str, str], models: tuple[str, ...], now: float
) -> RunsView:
    """Return a page of the list; `names` are the keys' names by id."""
    rows = tuple(_run_row(served, names, now) for served in page.runs)
    after = "" if page.after is None else f"{page.after[0]!r}~{page.after[1]}"
    return RunsView(asked, rows, asked.query(after) if after else "", models, names, now)


def shown_status(served: ServedRun) -> RunStatus:
    """Return where a served run stands: by its row's state, as far as that says more than the last status does."""
    if served.state is ServedState.OPEN:
        return RunStatus.RUNNING
    if served.state is ServedState.WAITING:
        return RunStatus.SUSPENDED
    return served.status


def _run_row(served: ServedRun, names: Mapping[str, str], now: float) -> RunRow:
    going = served.state is ServedState.OPEN
    return RunRow(
        run=served.run,
        excerpt=served.excerpt or ("its texts were erased" if served.erased else ""),
        status=shown_status(served),
        model=served.model,
        key=names.get(served.key, served.key),
        tenant=served.tenant,
        api=served.api,
        began=served.created,
        seconds=max(0.0, (now if going else served.updated) - served.created),
        tokens=served.tokens,
        dollars=served.dollars,
        uncertain=served.uncertain_dollars,
        labels=served.labels,
        domain=served.domain,
        going=going,
    )


def _read_cursor(text: str) -> tuple[float, str] | None:
    at, _, run = text.partition("~")
    try:
        return (float(at), run) if run else None
    except ValueError:
        return None


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/runs")
async def show_runs(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show the newest runs, or those that are searched for."""
    asked = RunListQuery.of(request.query_params)
    found = await service.store.search(asked.filter(session.tenant))
    names = await key_names(service, session)
    models = tuple(model.name for model in service.catalogue.listed(session.by))
    return render_page(request, "runs.html.jinja", {"view": runs_view(asked, found, names, models, time())})


async def key_names(service: RunService, session: PageSession) -> dict[str, str]:
    """Return the names of the keys that this login may know, by id: its own, or an admin's all."""
    if session.may(KeyScope.ADMIN):
        return {key.id: key.name for key in await service.keys.keys()}
    return {key.id: key.name for key in await service.keys.keys(session.by.tenant)}


@dataclass(frozen=True, slots=True)
class ConductingStats:
    """A way of conducting, over its recent runs."""

    name: str
    runs: int
    answered: int
    graded: int
    right: float | None
    dollars: float | None
    unpriced: int
    p50: float | None
    p95: float | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """A figure of both sides in words; `better` is 0 or 1, None where neither is."""

    name: str
    values: tuple[float | None, float | None]
    form: str
    better: int | None


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A task that both did: a run of each."""

    task: str
    left: ServedRun
    right: ServedRun


def stats_by_name(served: Sequence[ServedRun], scores: Mapping[str, float], by: str) -> dict[str, ConductingStats]:
    """Return the ways in which runs that are over were conducted: `by` is `model` or `conductor`."""
    groups: dict[str, list[ServedRun]] = {}
    for each in served:
        groups.setdefault(each.model if by == "model" else each.conductor, []).append(each)
    return {name: _stats_of(name, group, scores) for name, group in sorted(groups.items())}


def _stats_of(name: str, served: Sequence[ServedRun], scores: Mapping[str, float]) -> ConductingStats:
    over = [each for each in served if each.state is ServedState.ENDED]
    times = sorted(each.updated - each.created for each in over)
    costs = [each.dollars for each in over if each.dollars is not None]
    marks = [scores[each.run] for each in over if each.run in scores]
    return ConductingStats(
        name=name,
        runs=len(over),
        answered=sum(shown_status(each) == "done" for each in over),
        graded=len(marks),
        right=_mean(marks),
        dollars=_mean(costs),
        unpriced=len(over) - len(costs),
        p50=quantile(times, 0.5),
        p95=quantile(times, 0.95),
        tokens=_mean([float(each.tokens) for each in over]),
    )


def comparison_lines(one: ConductingStats, other: ConductingStats) -> tuple[ComparisonLine, ...]:
    """Return two ways' figures side by side."""
    shares = tuple(way.answered / way.runs if way.runs else None for way in (one, other))
    return (
        _comparison_line("ended with an answer", (shares[0], shares[1]), "share", more=True),
        _comparison_line("right, of those graded", (one.right, other.right), "share", more=True),
        _comparison_line("cost, mean", (one.dollars, other.dollars), "money"),
        _comparison_line("time, p50", (one.p50, other.p50), "lasting"),
        _comparison_line("time, p95", (one.p95, other.p95), "lasting"),
        _comparison_line("tokens, mean", (one.tokens, other.tokens), "count"),
    )


def run_comparison_lines(one: RunView, other: RunView) -> tuple[ComparisonLine, ...]:
    """Return two runs' figures side by side."""
    totals = one.story.totals, other.story.totals
    grades = tuple(view.run.grade.score if view.run.grade else None for view in (one, other))
    return (
        _comparison_line("grade", (grades[0], grades[1]), "share", more=True),
        _comparison_line("cost", (totals[0].dollars, totals[1].dollars), "money"),
        _comparison_line("time", (one.seconds, other.seconds), "lasting"),
        _comparison_line("tokens", (totals[0].tokens, totals[1].tokens), "count"),
        ComparisonLine("rounds", (totals[0].rounds, totals[1].rounds), "count", None),
        ComparisonLine("steps", (totals[0].steps, totals[1].steps), "count", None),
        ComparisonLine("calls", (totals[0].calls, totals[1].calls), "count", None),
    )


def shared_tasks(
    served: Sequence[ServedRun], names: tuple[str, str], by: str, most: int = 20
) -> tuple[SharedTask, ...]:
    """Return tasks that both ways did lately, the newest first; tasks are the same when their beginnings are."""
    latest: dict[str, dict[str, ServedRun]] = {}
    for each in served:  # newest first
        name = each.model if by == "model" else each.conductor
        if each.excerpt and name in names:
            latest.setdefault(each.excerpt, {}).setdefault(name, each)
    both = [(task, found) for task, found in latest.items() if len(found) == len(set(names)) > 1]
    return tuple(SharedTask(task, found[names[0]], found[names[1]]) for task, found in both[:most])


def _comparison_line(
    name: str, values: tuple[float | None, float | None], form: str, *, more: bool = False
) -> ComparisonLine:
    one, other = values
    if one is None or other is None or one == other:
        return ComparisonLine(name, values, form, None)
    return ComparisonLine(name, values, form, int((other > one) is more))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


_COMPARED_RUNS = 500  # runs that are compared


@router.get(f"{UI_ROOT}/compare")
async def show_comparison(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show two runs, or two ways of conducting, side by side."""
    query = request.query_params
    left, right = query.get("left", "").strip(), query.get("right", "").strip()
    if left and right:
        runs = [await _view_of_run(service, session, name) for name in (left, right)]
        return render_page(request, "compare_runs.html.jinja", {"runs": runs, "lines": run_comparison_lines(*runs)})
    by = "conductor" if query.get("by") == "conductor" else "model"
    served = (await service.store.search(RunFilter(tenant=session.tenant, limit=_COMPARED_RUNS))).runs
    found = stats_by_name(served, (await recent_activity(request, service, session)).scores, by)
    names = [query.get(name, "") for name in ("a", "b")]
    chosen = [name if name in found else "" for name in names]
    if not any(names):
        chosen = sorted(found, key=lambda name: -found[name].runs)[:2]
    one, other = (*chosen, "", "")[:2]
    both = one in found and other in found
    shown = {
        "by": by,
        "left": left,
        "right": right,
        "ways": found,
        "chosen": (one, other),
        "lines": comparison_lines(found[one], found[other]) if both else (),
        "pairs": shared_tasks(served, (one, other), by) if both else (),
        "newest": served[:30],
        "looked_at": len(served),
    }
    return render_page(request, "compare.html.jinja", shown)


async def _view_of_run(service: RunService, session: PageSession, name: str) -> run_page.RunView:
    return run_page.run_view(await visible_events(service, session, name), time())
