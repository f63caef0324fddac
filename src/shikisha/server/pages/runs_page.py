"""`/ui/runs`: the list of runs with its filters; `/ui/compare`: two runs, or two models or conductors, side by side.

Invariants: a login sees runs of its own tenant only (an admin all). A filter is a link, so it can be bookmarked;
unknown values are ignored. Every share or mean stands next to the number of runs behind it; runs of unknown cost are
left out of the mean and counted. A search finds nothing that its reader may not read. Of two ways, one is marked as
better only where the 95 % interval of the difference excludes 0. Of a policy that did not act, the address names one of
those that the key may use, never a file; nothing is called, and what is not known is named so.

What differs between two texts, word by word, and between two plans, step by step.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from importlib.util import find_spec
from itertools import groupby, islice, takewhile
from math import hypot, inf
from operator import itemgetter
from pathlib import Path
from time import time
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.config.conductor_settings import PolicyTable
from shikisha.core.budget import wilson
from shikisha.core.errors import ConfigError
from shikisha.core.events import RunStatus
from shikisha.core.fair_work import FairSemaphore
from shikisha.core.fast_dataclass import dataclass, fields, replace
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.journal.run_index import MAX_HITS, SESSION_NAMES, TextHit, TextQuery, first_hits
from shikisha.plots import run_charts
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.run_progress import may_be_reviewed
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.login import PageRoute, PageSession, ReaderLogin, Service
from shikisha.server.pages.run_page import RunView, run_view, visible_events
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.pages.workers_page import visible_cards
from shikisha.server.store import RunFilter, RunOrder, ServedRun, ServedState
from shikisha.server.store.run_figures import RunFigures, ended_runs, run_scores, way_figures
from shikisha.server.store.served_rows import RIGHT_SCORE

MAX_COMPARED = 600  # words on either side: comparing them takes some 100 ms at worst
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")  # with the space before it, or every space would be like every other


@dataclass(frozen=True, slots=True)
class DiffPiece:
    """A piece of both texts (`same`), of the first only (`out`) or of the second only (`in`)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step of either plan, or of both: who performs it, what it sees, and its subtask's differences.

    `kind` is same, changed, out (only in the first) or in.
    """

    index: int
    kind: str
    workers: tuple[str, str]
    sees: tuple[tuple[int, ...], tuple[int, ...]]
    subtask: tuple[DiffPiece, ...]


def diff_words(one: str, other: str) -> tuple[DiffPiece, ...]:
    """Return the pieces of two texts in order."""
    left, right = _pieces(one), _pieces(other)
    begin = _common_start(left, right)
    end = _common_start(left[begin:][::-1], right[begin:][::-1])
    middle = _diff_middle(left[begin : len(left) - end], right[begin : len(right) - end])
    marked = [
        *(("same", word) for word in left[:begin]),
        *middle,
        *(("same", word) for word in left[len(left) - end :]),
    ]
    return tuple(DiffPiece(kind, "".join(word for _, word in run)) for kind, run in groupby(marked, itemgetter(0)))


def _common_start(left: Sequence[str], right: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _diff_middle(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of a longest common subsequence as they are, and around them what goes before what comes.

    A table of all pairs takes the same time whatever the words are, which quicker ways do not.
    """
    longest = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for at in range(len(left) - 1, -1, -1):
        row, below, word = longest[at], longest[at + 1], left[at]
        for to in range(len(right) - 1, -1, -1):
            row[to] = below[to + 1] + 1 if word == right[to] else max(below[to], row[to + 1])
    at = to = 0
    while at < len(left) or to < len(right):
        if at < len(left) and to < len(right) and left[at] == right[to]:
            yield "same", left[at]
            at, to = at + 1, to + 1
        elif at < len(left) and (to == len(right) or longest[at + 1][to] >= longest[at][to + 1]):
            yield "out", left[at]
            at += 1
        else:
            yield "in", right[to]
            to += 1


def _pieces(text: str) -> list[str]:
    """Return a text's words, spaces and signs; what is beyond the bound is one piece."""
    found = list(islice(_PIECE.finditer(text), MAX_COMPARED))
    rest = text[found[-1].end() :] if found else text
    return [match[0] for match in found] + ([rest] if rest else [])


def diff_plans(plans: tuple[Plan, Plan], pools: tuple[Sequence[str], Sequence[str]]) -> tuple[StepDiff, ...]:
    """Return what differs between two plans; steps are compared by their place."""
    return tuple(_diff_steps(plans, pools, index) for index in range(max(map(len, plans))))


def _diff_steps(plans: tuple[Plan, Plan], pools: tuple[Sequence[str], Sequence[str]], index: int) -> StepDiff:
    steps = [plan.steps[index] if index < len(plan) else None for plan in plans]
    names = [pool[step.worker] if step else "" for step, pool in zip(steps, pools, strict=True)]
    sees = [step.access if step else () for step in steps]
    one, other = (step.subtask if step else "" for step in steps)
    kind = "out" if steps[1] is None else "in" if steps[0] is None else "changed"
    if kind == "changed" and names[0] == names[1] and sees[0] == sees[1] and one == other:
        kind = "same"
    return StepDiff(index, kind, (names[0], names[1]), (sees[0], sees[1]), diff_words(one, other))


PAGE_SIZE = 50
MAX_EXPORTED = 20_000  # runs in one file
INDEX_PAGES = 6  # pages of new events that a look takes into the index first; the server takes in the others
_MAX_FIELD = 200
SHOWN_STATUSES = tuple(RunStatus)


@dataclass(frozen=True, slots=True)
class SearchScope:
    """In which parts of texts somebody may search (none named: in all), and whether in child runs too."""

    parts: tuple[str, ...] = ()
    roots: bool = False


ALL_TEXTS = SearchScope()


GRADES = {"yes": "right", "no": "wrong", "model-yes": "right, says a model", "model-no": "wrong, says a model"}
_FIRST_FIELDS = ("text", "status", "model", "key")  # in the form at once; the others are under "More filters"


@dataclass(frozen=True, slots=True)
class RunListQuery:
    """What a list is filtered and sorted by, as its form shows it: texts all; `after` is the cursor.

    `since` and `until` are days, both inclusive (UTC), `least` and `most` dollars, `right` is one of GRADES, `up` is 1
    where the smallest comes first.
    """

    text: str = ""
    status: str = ""
    model: str = ""
    key: str = ""
    worker: str = ""
    label: str = ""
    domain: str = ""
    session: str = ""
    since: str = ""
    until: str = ""
    least: str = ""
    most: str = ""
    right: str = ""
    sort: str = ""
    up: str = ""
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "RunListQuery":
        """Read an address's query."""
        given = {name: query.get(name, "").strip()[:_MAX_FIELD] for name in _QUERY_FIELDS}
        known = {
            "status": given["status"] in tuple(SHOWN_STATUSES),
            "right": given["right"] in GRADES,
            "sort": given["sort"] in tuple(RunOrder) and given["sort"] != RunOrder.BEGAN,
            "up": given["up"] == "1",
            **{name: _read_day(given[name]) is not None for name in ("since", "until")},
            **{name: _read_dollars(given[name]) is not None for name in ("least", "most")},
        }
        return cls(**{name: value if known.get(name, True) else "" for name, value in given.items()})

    @property
    def narrows(self) -> bool:
        """Whether it leaves anything out."""
        return any(getattr(self, name) for name in _QUERY_FIELDS[:-3])

    @property
    def narrows_further(self) -> bool:
        """Whether a filter is set that the form shows only when asked."""
        return any(getattr(self, name) for name in _QUERY_FIELDS[:-3] if name not in _FIRST_FIELDS)

    @property
    def refreshes(self) -> bool:
        """Whether the list is cheap enough to be asked for again every few seconds, and shows what is new."""
        return not (self.after or self.text or self.sort or self.up)

    def query(self, after: str = "") -> str:
        """Return the query of an address that asks the same, from a cursor on."""
        told = {name: getattr(self, name) for name in _QUERY_FIELDS} | {"after": after}
        return urlencode({name: value for name, value in told.items() if value})

    def sorted_query(self, by: str) -> str:
        """Return the query that sorts by this column, the other way round where it is sorted by that already."""
        own = self.sort or RunOrder.BEGAN
        up = "1" if own == by and not self.up else ""
        return replace(self, sort="" if by == RunOrder.BEGAN else by, up=up, after="").query()

    def sorting(self, by: str) -> str:
        """Return how this column is sorted, as `aria-sort` has it."""
        if (self.sort or RunOrder.BEGAN) != by:
            return "none"
        return "ascending" if self.up else "descending"

    def filter(self, tenant: str | None, size: int = PAGE_SIZE, scope: SearchScope = ALL_TEXTS) -> RunFilter:
        """Return it as the store's; a tenant's own runs, or everybody's for None."""
        since, until = _read_day(self.since), _read_day(self.until)
        return RunFilter(
            tenant=tenant,
            statuses=(RunStatus(self.status),) if self.status else (),
            model=self.model or None,
            key=self.key or None,
            words=TextQuery(self.text, tenant, scope.parts, scope.roots) if self.text else None,
            worker=self.worker,
            label=self.label,
            domain=self.domain,
            session=self.session,
            since=since,
            until=None if until is None else until + 86_400,
            least=_read_dollars(self.least),
            most=_read_dollars(self.most),
            right=None if not self.right else self.right.endswith("yes"),
            judged=self.right.startswith("model"),
            order=RunOrder(self.sort or RunOrder.BEGAN),
            ascending=bool(self.up),
            after=_read_cursor(self.after),
            limit=size,
        )


_QUERY_FIELDS = tuple(each.name for each in fields(RunListQuery))


def _read_day(text: str) -> float | None:
    """Return when a day began; None for what is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if len(text) == len("2026-01-01") else None
    except ValueError:
        return None


def _read_dollars(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


def shown_status(served: ServedRun) -> RunStatus:
    """Return where a served run stands: by its row's state, as far as that says more than the last status does."""
    if served.state is ServedState.OPEN:
        return RunStatus.RUNNING
    if served.state is ServedState.WAITING:
        return RunStatus.SUSPENDED
    return served.status


def session_of(served: ServedRun) -> str:
    """Return the session that a run's request named; empty where it named none."""
    return next((served.metadata[name] for name in SESSION_NAMES if served.metadata.get(name)), "")


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
    progress = await service.journal.index(INDEX_PAGES)
    wanted = asked.filter(session.tenant, scope=search_scope(service, session))
    found = await service.store.search(wanted)
    hits: Mapping[str, TextHit] = {}
    if wanted.words is not None and found.runs:
        roots = [served.run for served in found.runs]
        hits = await service.journal.query(partial(first_hits, asked=wanted.words, roots=roots))
    after = "" if found.after is None else f"{found.after[0]!r}~{found.after[1]}"
    shown = {
        "asked": asked,
        "runs": found.runs,
        "hits": hits,
        "status_of": shown_status,
        "session_of": session_of,
        "next": asked.query(after) if after else "",
        "key_names": await key_names(service, session),
        "models": [model.name for model in service.catalogue.listed(session.by)],
        "workers": [card.name for card in visible_cards(service, session)],
        "shown_at": time(),
        "missing": 0 if progress.complete else progress.events - progress.indexed,  # a search may leave these out
        "most_exported": MAX_EXPORTED,
        "most_hits": MAX_HITS,
        "grades": GRADES,
    }
    return render_page(request, "runs.html.jinja", shown)


def search_scope(service: RunService, session: PageSession) -> SearchScope:
    """Return in which texts this login may search: not in those that a person has to let pass first."""
    policy = service.container.autonomy_policy()
    classes = (policy.otherwise, *policy.classes)
    if session.may(KeyScope.APPROVE) or not any(map(may_be_reviewed, classes)):
        return ALL_TEXTS
    return SearchScope(("task", "answer"), roots=True)


async def key_names(service: RunService, session: PageSession) -> dict[str, str]:
    """Return the names of the keys that this login may know, by id: its own, or an admin's all."""
    if session.may(KeyScope.ADMIN):
        return {key.id: key.name for key in await service.keys.keys()}
    return {key.id: key.name for key in await service.keys.keys(session.by.tenant)}


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """A figure of both sides; `better` is 0 or 1, None where neither is; `gap` is the second less the first, with its
    95 % interval.
    """

    name: str
    values: tuple[float | None, float | None]
    form: str
    better: int | None
    gap: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A task that both did: a run of each."""

    task: str
    left: ServedRun
    right: ServedRun


def comparison_lines(one: RunFigures, other: RunFigures) -> tuple[ComparisonLine, ...]:
    """Return two ways' figures side by side; one is better only where the interval of the difference excludes 0."""
    done = _share_line("ended with an answer", (one.done, one.runs), (other.done, other.runs))
    right = _share_line("right, of those graded", (one.right, one.graded), (other.right, other.graded))
    judged = _share_line("right, says a model", (one.judged_right, one.judged), (other.judged_right, other.judged))
    graded = (right, judged) if one.judged or other.judged else (right,)
    costs, reach = (one.dollars_each, other.dollars_each), hypot(one.dollars_spread, other.dollars_spread)
    paid = _comparison_line("cost, mean", costs, "money")
    if None not in costs and reach < inf:
        gap = (costs[1] or 0.0) - (costs[0] or 0.0)
        paid = replace(paid, gap=(gap, gap - reach, gap + reach))
    times = [(f"time, p{100 * share:.0f}", (one.quantile(share), other.quantile(share))) for share in (0.5, 0.95)]
    rest = [ComparisonLine(name, values, "lasting", None) for name, values in times]
    tokens = tuple(each.tokens / each.runs if each.runs else None for each in (one, other))
    return (done, *graded, _decided(paid), *rest, ComparisonLine("tokens, mean", (tokens[0], tokens[1]), "count", None))


def _share_line(name: str, one: tuple[int, int], other: tuple[int, int]) -> ComparisonLine:
    """Return two shares with Newcombe's interval of their difference (1998)."""
    shares = [right / of if of else None for right, of in (one, other)]
    line = ComparisonLine(name, (shares[0], shares[1]), "share", None)
    if shares[0] is None or shares[1] is None:
        return line
    (low, high), (low_other, high_other) = wilson(*one), wilson(*other)
    gap = shares[1] - shares[0]
    least = gap - hypot(shares[1] - low_other, high - shares[0])
    return _decided(replace(line, gap=(gap, least, gap + hypot(high_other - shares[1], shares[0] - low))), more=True)


def _decided(line: ComparisonLine, *, more: bool = False) -> ComparisonLine:
    """Say which side is better, where chance does not explain it."""
    if line.gap is None or line.gap[1] <= 0 <= line.gap[2]:
        return replace(line, better=None)
    return replace(line, better=int((line.gap[0] > 0) is more))


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


def run_differences(one: RunView, other: RunView) -> dict[str, object]:
    """Return what differs in the tasks, the first plans and the answers of two runs."""
    plans = [next((turn.plan for turn in view.run.rounds if turn.plan is not None), Plan()) for view in (one, other)]
    answers = (one.story.answer or "", other.story.answer or "")
    return {
        "prompt_diff": diff_words(one.story.prompt, other.story.prompt),
        "subtask_diff": diff_words(*(_first_subtask(view) for view in (one, other))),
        "plan_diff": diff_plans((plans[0], plans[1]), (one.story.pool, other.story.pool)),
        "answer_diff": diff_words(*answers) if all(answers) else (),
    }


def paired_scores(pairs: Sequence[SharedTask], scores: Mapping[str, float]) -> tuple[int, int, int] | None:
    """Return of how many tasks both runs are graded, and on how many only the first, or the second, is right."""
    found = [(scores.get(pair.left.run), scores.get(pair.right.run)) for pair in pairs]
    both = [(one >= RIGHT_SCORE, other >= RIGHT_SCORE) for one, other in found if one is not None and other is not None]
    return (len(both), both.count((True, False)), both.count((False, True))) if both else None


def _first_subtask(view: RunView) -> str:
    return next((step.subtask for turn in view.rounds for step in turn.steps), "")


def shared_tasks(served: Sequence[ServedRun], names: tuple[str, str], by: str) -> tuple[SharedTask, ...]:
    """Return tasks that both ways did lately, the newest first; tasks are the same when their beginnings are."""
    latest: dict[str, dict[str, ServedRun]] = {}
    for each in served:  # newest first
        name = each.model if by == "model" else each.conductor
        if each.excerpt and name in names:
            latest.setdefault(each.excerpt, {}).setdefault(name, each)
    both = [(task, found) for task, found in latest.items() if len(found) == len(set(names)) > 1]
    return tuple(SharedTask(task, found[names[0]], found[names[1]]) for task, found in both)


def _comparison_line(
    name: str, values: tuple[float | None, float | None], form: str, *, more: bool = False
) -> ComparisonLine:
    one, other = values
    if one is None or other is None or one == other:
        return ComparisonLine(name, values, form, None)
    return ComparisonLine(name, values, form, int((other > one) is more))


_COMPARED_RUNS = 1_000  # among which tasks are looked for that both did
COMPARED_DAYS, _DAY = 7, 86_400
PERIODS = (1, 7, 30, 90)  # days


@router.get(f"{UI_ROOT}/compare")
async def show_comparison(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show two runs, or two ways of conducting, side by side."""
    query = request.query_params
    left, right = query.get("left", "").strip(), query.get("right", "").strip()
    if left and right:
        runs = [run_view(await visible_events(service, session, name), time()) for name in (left, right)]
        step = query.get("step", "")
        going = any(view.run.finished is None and view.status in _GOING for view in runs)
        if step:
            runs[0] = _view_of_step(runs[0], step)
        shown = {
            "runs": runs,
            "step": step,
            "going": going,
            "way": urlencode(query),
            "lines": run_comparison_lines(*runs),
            **run_differences(*runs),
        }
        return render_page(request, "compare_runs.html.jinja", shown)
    by = "conductor" if query.get("by") == "conductor" else "model"
    days = int(query["days"]) if query.get("days") in {str(each) for each in PERIODS} else COMPARED_DAYS
    since = int(time() // _DAY) - days + 1
    await service.journal.index(INDEX_PAGES)
    found = await service.journal.query(partial(way_figures, by=by, tenant=session.tenant, since=since))
    wanted = RunFilter(tenant=session.tenant, since=since * _DAY, limit=_COMPARED_RUNS)
    served = (await service.store.search(wanted)).runs
    scores = await service.journal.query(partial(run_scores, runs=[each.run for each in served]))
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
        "days": days,
        "periods": PERIODS,
        "chosen": (one, other),
        "lines": comparison_lines(found[one], found[other]) if both else (),
        "pairs": (pairs := shared_tasks(served, (one, other), by)) if both else (),
        "paired": paired_scores(pairs, scores) if both else None,
        "newest": served[:30],
    }
    return render_page(request, "compare.html.jinja", shown)


_GOING = (RunStatus.RUNNING, RunStatus.SUSPENDED)


def _view_of_step(view: RunView, place: str) -> RunView:
    """Return a run as its one step: what that was asked, what it brought, what it cost; ApiError (404) for none."""
    steps = {f"{turn.round}.{step.story.step}": (turn, step) for turn in view.rounds for step in turn.steps}
    if place not in steps:
        raise ApiError(404, f"run {view.run.id} has no step {place}", "not_found")
    turn, step = steps[place]
    totals = replace(
        view.story.totals, rounds=1, steps=1, calls=len(step.calls), tokens=step.tokens, dollars=step.dollars
    )
    story = replace(view.story, answer=step.story.answer, why=step.story.fault or "", totals=totals)
    seconds = step.seconds or 0.0
    run = replace(view.run, active_seconds=seconds, grades=[])
    alone = replace(
        turn, steps=(step,), wide=run_charts.wide_plan_graph([()]), narrow=run_charts.narrow_plan_graph([()])
    )
    return replace(view, story=story, run=run, rounds=(alone,))


# what a policy that did not act would have done


_MOST_REPLAYED = 500  # runs, the newest
_REPLAYS = FairSemaphore(1)  # a reader may ask as often as it likes, and others need the threads


def replayable_policies(service: RunService, session: PageSession) -> dict[str, str]:
    """Return the conductors that this login may use by name, each with its specification; of a registry all policies.

    Conductors that ask a model for their plans are among them: a replay says of each run that it cannot tell.
    """
    from shikisha.routing.policy_registry import policy_path, read_registry

    container, found = service.container, dict[str, str]()
    for model in service.catalogue.listed(session.by):
        if not (spec := model.conductor):
            continue
        found[spec] = spec
        table = container.settings.conductors.get(spec)
        path, _, query = spec.removeprefix("policy:").partition("?")
        if isinstance(table, PolicyTable):
            path, query = str(container.folder / table.file), table.query()
        elif not spec.startswith("policy:"):
            continue
        if Path(path).is_dir():
            for policy in read_registry(Path(path)).policies:
                found[f"{spec}: {policy.name} {policy.version}"] = (
                    f"policy:{policy_path(Path(path), policy.version)}" + (f"?{query}" if query else "")
                )
    return found


@router.get(f"{UI_ROOT}/compare/policy")
async def show_past_traffic(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show what a policy would have done on the newest runs of some days."""
    query, able = request.query_params, find_spec("numpy") is not None
    days = int(query["days"]) if query.get("days") in {str(each) for each in PERIODS} else COMPARED_DAYS
    name, found = query.get("policy", ""), dict[str, str]()
    shown: dict[str, object] = {"traffic": None, "runs": 0, "wrong": False}
    shown |= {"chosen": name, "days": days, "periods": PERIODS, "able": able, "most": _MOST_REPLAYED, "policies": found}
    try:
        found |= await asyncio.to_thread(replayable_policies, service, session) if able else {}
        if name in found:
            await service.journal.index(INDEX_PAGES)
            since = int(time() // _DAY) - days + 1
            ended = partial(ended_runs, tenant=session.tenant, since=since, limit=_MOST_REPLAYED)
            async with _REPLAYS:
                runs = await service.journal.query(ended)
                traffic = await asyncio.to_thread(_replay, service, runs, found[name], name)
            shown |= {"runs": len(runs), "traffic": traffic}
    except ConfigError:  # its words name files of the server
        shown["wrong"] = True
    return render_page(request, "compare_policy.html.jinja", shown)


def _replay(service: RunService, runs: list[Run], spec: str, name: str) -> object:
    from shikisha.routing.fit.online_evaluation import replay_traffic

    conductor, cards = service.container.conductor(spec), cache(service.container.cards)
    return asyncio.run(replay_traffic(runs, lambda run: (conductor, tuple(cards(run.started.pool))), name))
