"""The pages of `shikisha eval show`: entrants and samples of an evaluation; one sample with task, plan and steps.

Invariants: the folder is read and never written, also while an evaluation still adds to it; a sample whose steps were
not kept says so and shows what is known of it; every text of a task, a model or a grader is escaped. A list has at most
`PAGE_SIZE` rows, and a filter is a link. Deliberately absent: figures with intervals (`shikisha eval --html` has them).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import time
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import Connection, select

from shikisha.core.errors import UnknownRun
from shikisha.core.events import Event, RunStatus
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.evals.samples import KeptSample, Sample, read_kept_samples
from shikisha.journal import Journal, RunOverview
from shikisha.journal.schema import EVENTS, STARTED
from shikisha.plots import run_charts
from shikisha.server.http.api_errors import ApiError
from shikisha.server.pages.login import PageRoute, redirect
from shikisha.server.pages.run_page import RunPermissions, journal_lines, run_view
from shikisha.server.pages.templates import UI_ROOT, render_page

PAGE_SIZE = 50
_FIELDS = ("entrant", "mark", "domain", "text", "split", "sort", "up", "page")
_SORTS = ("played", "cost", "time", "tokens", "score")
_MOST_LISTED = 200  # choices of a filter
_NOBODY = RunPermissions(cancel=False, answer=False, judge=False, undo=False)


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """What the list of samples is filtered and sorted by, as texts; `split`: only tasks that entrants differ on."""

    entrant: str = ""
    mark: str = ""
    domain: str = ""
    text: str = ""
    split: str = ""
    sort: str = ""
    up: str = ""
    page: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "SampleQuery":
        """Read an address's query."""
        given = {name: query.get(name, "").strip()[:200] for name in _FIELDS}
        given["sort"] = given["sort"] if given["sort"] in _SORTS[1:] else ""
        given["page"] = given["page"] if given["page"].isascii() and given["page"].isdigit() else ""
        return cls(**given)

    def query(self, **changed: str) -> str:
        """Return the query of an address that asks the same but for this."""
        told = {name: getattr(replace(self, **changed), name) for name in _FIELDS}
        return urlencode({name: value for name, value in told.items() if value})

    def sorted_query(self, by: str) -> str:
        """Return the query that sorts by this column, the other way round where it is sorted by that already."""
        up = "1" if self.sort == by and not self.up else ""
        return self.query(sort=by, up=up, page="")

    def sorting(self, by: str) -> str:
        """Return how this column is sorted, as `aria-sort` has it."""
        return "none" if self.sort != by else "ascending" if self.up else "descending"

    @property
    def number(self) -> int:
        """The page, from 0."""
        return int(self.page[:6] or 0)


@dataclass(frozen=True, slots=True)
class EntrantTotals:
    """An entrant in a word: samples, those graded, the mean score, dollars and median seconds."""

    name: str
    samples: int
    graded: int
    score: float | None
    no_answer: int
    dollars: float
    unpriced: int
    seconds: float


@dataclass(slots=True)
class EvaluationFolder:
    """An evaluation's folder and the journal of its runs (None: there is none); read again when it has grown."""

    folder: Path
    journal: Journal | None = None
    _size: int = -1
    _kept: tuple[KeptSample, ...] = ()
    _runs: dict[str, str] = field(default_factory=dict)
    _seen: int = -1

    @property
    def samples(self) -> tuple[KeptSample, ...]:
        """The samples that count, as of now."""
        size = (self.folder / "samples.jsonl").stat().st_size if self._size >= 0 else 0
        if size != self._size:
            self._kept, self._size = read_kept_samples(self.folder), max(size, 0)
        return self._kept

    async def run_of(self, kept: KeptSample) -> Sequence[Event]:
        """Return the events of a sample's run; none where they were not kept."""
        if self.journal is None:
            return ()
        await self.journal.query(self._read_runs)
        for digest in kept.digests():
            if digest in self._runs:
                return await self.journal.read(self._runs[digest])
        return ()

    def _read_runs(self, connection: Connection) -> None:
        """Note the runs that began since the last look, by what their ids end with; of a repeated one, the last."""
        begun = select(EVENTS.c.seq, EVENTS.c.run).where(STARTED, EVENTS.c.seq > self._seen)
        for seq, run in connection.execute(begun.order_by(EVENTS.c.seq)):
            parts = run.split("-")  # eval, the folder's hash, the pair's digest, and the number of a repetition
            if len(parts) in (3, 4) and parts[0] == "eval":
                self._runs[parts[2]] = run
            self._seen = seq


def filter_samples(samples: Sequence[KeptSample], asked: SampleQuery) -> list[KeptSample]:
    """Return the samples that are asked for, sorted."""
    split = _split_tasks(samples) if asked.split else None
    words = asked.text.lower().split()

    def wanted(sample: Sample) -> bool:
        same = (not asked.entrant or sample.entrant == asked.entrant) and (not asked.mark or sample.mark == asked.mark)
        inside = (not asked.domain or sample.domain == asked.domain) and (split is None or sample.task_id in split)
        said = f"{sample.task_id} {sample.found or ''} {sample.evidence}".lower() if words else ""
        return same and inside and all(word in said for word in words)

    found = [kept for kept in samples if wanted(kept.sample)]
    if asked.sort:
        found.sort(key=lambda kept: _sort_value(kept.sample, asked.sort), reverse=not asked.up)
    elif asked.up:
        found.reverse()
    return found


def _sort_value(sample: Sample, by: str) -> float:
    value = {"cost": sample.dollars, "time": sample.seconds, "tokens": sample.tokens, "score": sample.score}[by]
    return -1.0 if value is None else float(value)


def _split_tasks(samples: Iterable[KeptSample]) -> set[str]:
    """Return the tasks that some entrants have right and others have not."""
    scores: dict[str, set[float]] = {}
    for kept in samples:
        if kept.sample.score is not None:
            scores.setdefault(kept.sample.task_id, set()).add(kept.sample.score)
    return {task for task, found in scores.items() if len(found) > 1}


def entrant_totals(samples: Iterable[KeptSample]) -> tuple[EntrantTotals, ...]:
    """Return what each entrant came to, the best first."""
    by_name: dict[str, list[Sample]] = {}
    for kept in samples:
        by_name.setdefault(kept.sample.entrant, []).append(kept.sample)
    totals = (_totals(name, own) for name, own in by_name.items())
    return tuple(sorted(totals, key=lambda each: (-(each.score or 0.0), each.name)))


def _totals(name: str, samples: Sequence[Sample]) -> EntrantTotals:
    scores = [sample.score for sample in samples if sample.score is not None]
    costs = [sample.dollars for sample in samples if sample.dollars is not None]
    seconds = sorted(sample.seconds for sample in samples)
    return EntrantTotals(
        name=name,
        samples=len(samples),
        graded=len(scores),
        score=sum(scores) / len(scores) if scores else None,
        no_answer=sum(sample.mark == "no_answer" for sample in samples),
        dollars=sum(costs),
        unpriced=len(samples) - len(costs),
        seconds=seconds[len(seconds) // 2],
    )


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
@router.get(UI_ROOT)
async def show_first_page() -> Response:
    """Lead to the samples."""
    return redirect(f"{UI_ROOT}/evaluation")


@router.get(f"{UI_ROOT}/evaluation")
async def show_samples(request: Request) -> Response:
    """Show the entrants, and the samples that are asked for."""
    folder, asked = _folder_of(request), SampleQuery.of(request.query_params)
    samples = folder.samples
    found = filter_samples(samples, asked)
    last = max(0, (len(found) - 1) // PAGE_SIZE)
    number = min(asked.number, last)
    asked = replace(asked, page=str(number) if number else "")
    rows = tuple(kept.sample for kept in found[number * PAGE_SIZE : (number + 1) * PAGE_SIZE])
    domains = tuple(sorted({kept.sample.domain for kept in samples if kept.sample.domain})[:_MOST_LISTED])
    shown = {"asked": asked, "rows": rows, "found": len(found), "last": last, "domains": domains}
    shown |= {"entrants": entrant_totals(samples), "folder": folder.folder.name}
    return render_page(request, "evaluation.html.jinja", shown)


@router.get(f"{UI_ROOT}/evaluation/sample")
async def show_sample(request: Request) -> Response:
    """Show one sample: its task, plan, each step, answer, grade and why."""
    folder, asked = _folder_of(request), SampleQuery.of(request.query_params)
    of, task = request.query_params.get("of", ""), request.query_params.get("task", "")
    samples = folder.samples
    chosen = next((kept for kept in samples if (kept.sample.entrant, kept.sample.task_id) == (of, task)), None)
    if chosen is None:
        raise ApiError(404, "there is no such sample in this folder", "not_found")
    around = filter_samples(samples, asked)
    at = next((place for place, kept in enumerate(around) if kept is chosen), None)
    events = await folder.run_of(chosen)
    access = chosen.sample.access
    shown = {
        "asked": asked,
        "sample": chosen.sample,
        "others": [kept.sample for kept in samples if kept.sample.task_id == task],  # of the same task
        "before": around[at - 1].sample if at else None,
        "after": around[at + 1].sample if at is not None and at + 1 < len(around) else None,
        "run_view": run_view(events, time(), await _children(folder, events)) if events else None,
        "graph": run_charts.narrow_plan_graph(access) if access and not events else None,  # its steps were not kept
        "may": _NOBODY,
        "folder": folder.folder.name,
    }
    return render_page(request, "sample.html.jinja", shown)


async def _children(folder: EvaluationFolder, events: Sequence[Event]) -> tuple[RunOverview, ...]:
    if folder.journal is None or not events:
        return ()
    return await folder.journal.children(events[0].run)


@router.get(f"{UI_ROOT}/runs/{{run}}")
async def show_child_run(request: Request, run: str) -> Response:
    """Show any run of the journal: a step of a sample may be one."""
    folder = _folder_of(request)
    if folder.journal is None:
        raise ApiError(404, f"there is no run {run}", "not_found")
    try:
        events = await folder.journal.read(run)
    except UnknownRun:
        raise ApiError(404, f"there is no run {run}", "not_found") from None
    view = run_view(events, time(), await folder.journal.children(run))
    shown = {"view": view, "may": _NOBODY, "follows": False, "viewing": view.status is not RunStatus.RUNNING}
    return render_page(request, "run.html.jinja", shown)


@router.get(f"{UI_ROOT}/runs/{{run}}/journal")
async def show_run_journal(request: Request, run: str) -> Response:
    """Show every event of a run."""
    folder = _folder_of(request)
    if folder.journal is None:
        raise ApiError(404, f"there is no run {run}", "not_found")
    lines = [line async for line in folder.journal.export(run)]
    return render_page(request, "journal.html.jinja", {"run": run, "lines": journal_lines(lines)})


def _folder_of(request: Request) -> EvaluationFolder:
    folder: EvaluationFolder = request.app.state.evaluation
    return folder
