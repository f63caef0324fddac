"""`/ui/runs/RUN`: one run with its plan, steps, timeline and journal, updated live, and what may be done with it.

Invariants: every route first checks whether the login may see the run. Everything shown is read off the run's events,
so a live page and one opened years later agree; a step's state is never guessed from the clock. A live page sends
only the parts that changed, and ends up as a reload would show it.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from functools import partial
from html import escape
from time import monotonic, time
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import func, select
from sse_starlette import EventSourceResponse, ServerSentEvent

from shikisha.core.errors import TaskError, UnknownRun
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    Event,
    QuestionAsked,
    RunStarted,
    RunStatus,
)
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Attempt, Run, StepRecord
from shikisha.core.task import storage_problem
from shikisha.core.text import clean_text, one_line
from shikisha.engine.compensation import RollbackOrder
from shikisha.explain import MOST_EVIDENCE, assurance, track_record
from shikisha.explain.explanation import CallExplanation, Explanation, RoundExplanation, StepExplanation, explain
from shikisha.journal.schema import EVENTS
from shikisha.journal.stored_events import RunOverview
from shikisha.plots import run_charts
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.auth import check_tenant
from shikisha.server.http.streams import next_item, revocation_check, stream_until_revoked
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.broadcast import EventUpdate, RunUpdate, TextUpdate
from shikisha.server.lifecycle.run_progress import hides_texts, withhold_texts
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.pages.login import (
    FORM_CHECK,
    READER_SCOPES,
    ApproverLogin,
    CheckedForm,
    PageRoute,
    PageSession,
    ReaderLogin,
    RunnerLogin,
    Service,
    form_text,
    redirect,
    require_login,
)
from shikisha.server.pages.templates import SECURITY_HEADERS, UI_ROOT, render_page, template_environment
from shikisha.server.runs.review_routes import feedback_event, roll_back_run

_BATCH_SECONDS = 0.15  # seconds in which what follows is sent together
_REDRAW_SECONDS = 1.0  # seconds after which a running clock is drawn again
PageParts = Mapping[str, str]
TextByStep = Mapping[tuple[int, int], str]


def changed_parts(before: PageParts, after: PageParts) -> list[str]:
    """Return the parts that changed as out-of-band swaps; a round that is new or has grown is sent whole."""
    sending: list[str] = []
    whole: set[str] = set()
    for name, html in after.items():
        if name.startswith("round-"):
            number = name.removeprefix("round-")
            own = [part for part in after if part in (name, f"plan-{number}") or part.startswith(f"step-{number}-")]
            if name not in before:
                sending.append(f'<div hx-swap-oob="beforeend:#rounds">{html}</div>')
                whole.update(own)
            elif any(part not in before for part in own):
                sending.append(_as_swap(name, html))
                whole.update(own)
        elif name not in whole and before.get(name) != html:
            sending.append(_as_swap(name, html))
    return sending


def _as_swap(name: str, html: str) -> str:
    return html.replace(f'id="{name}"', f'id="{name}" hx-swap-oob="true"', 1)


def growing_texts(batch: Sequence[RunUpdate]) -> TextByStep:
    """Return pieces of growing answers by round and step, without those of an attempt after which another one began."""
    found: dict[tuple[int, int], str] = {}
    for heard in batch:
        if isinstance(heard, TextUpdate):
            found[heard.round, heard.step] = found.get((heard.round, heard.step), "") + heard.piece
        elif isinstance(heard.event, AttemptStarted) and heard.event.step is not None:
            found.pop((heard.event.round, heard.event.step), None)
    return found


async def follow_page(
    events: Sequence[Event],
    listening: AsyncIterator[RunUpdate],
    draw: Callable[[Sequence[Event]], PageParts],
    said: Callable[[TextByStep], str],
) -> AsyncIterator[tuple[int, str]]:
    """Yield (number of the last event, what to send) until the run ends or waits.

    `draw` makes the parts of these events' page, `said` pieces of answers ready to be appended.
    """
    known = list(events)
    shown = draw(known)
    async with aclosing(_batch_updates(listening)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            known += [heard.event for heard in batch if isinstance(heard, EventUpdate)]
            fresh = draw(known)
            sending, shown = changed_parts(shown, fresh), fresh
            told = said(
                {
                    (turn, step): text
                    for (turn, step), text in growing_texts(batch).items()
                    if f'id="said-{turn}-{step}"' in fresh.get(f"step-{turn}-{step}", "")
                }
            )
            if sending or told:
                yield len(known) - 1, "\n".join([*sending, told])


async def _batch_updates(listening: AsyncIterator[RunUpdate]) -> AsyncIterator[list[RunUpdate]]:
    """Yield what is heard in handfuls, and an empty one when nothing was heard for a while."""
    following: asyncio.Task[RunUpdate] | None = None
    try:
        while True:
            batch: list[RunUpdate] = []
            until = monotonic() + _REDRAW_SECONDS
            while (left := until - monotonic()) > 0:
                if following is None:
                    following = asyncio.create_task(next_item(listening))
                done, _ = await asyncio.wait({following}, timeout=left)
                if not done:
                    break
                heard = following
                following = None
                try:
                    batch.append(heard.result())
                except EOFError:
                    yield batch
                    return
                if len(batch) == 1:
                    until = monotonic() + _BATCH_SECONDS
            yield batch
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait([following])


_SUMMARY_FIELDS = (
    "why", "worker", "conductor", "status", "reason", "fault", "check", "asks", "actor", "note", "prompt", "answer",
)  # fmt: skip


def journal_lines(exported: Iterable[str]) -> list[dict[str, object]]:
    """Read the journal's lines of JSON; `data` is all of an event, `place` its round and step in words."""
    return [_journal_line(json.loads(text)) for text in exported]


def _journal_line(told: Mapping[str, object]) -> dict[str, object]:
    data = told["data"]
    fields: Mapping[str, object] = data if isinstance(data, dict) else {}
    whole = json.dumps({name: fields[name] for name in fields if name != "config"}, ensure_ascii=False, indent=1)
    return {**told, "place": _event_place(fields), "what": _event_summary(fields), "data": whole}


def _event_place(data: Mapping[str, object]) -> str:
    if "round" not in data or data["round"] is None:
        return ""
    step = data.get("step")
    said = f"round {data['round']}" if step is None else f"round {data['round']}, step {step}"
    return f"{said}, call {data['attempt']}" if data.get("attempt") is not None else said


def _event_summary(data: Mapping[str, object]) -> str:
    told = [f"{one_line(str(data[name]), 120)}" for name in _SUMMARY_FIELDS if data.get(name)]
    return " · ".join(told[:4])


class StepPhase(StrEnum):
    """Where a step, or a round's planning, stands."""

    PLANNED = "planned"  # its turn has not come
    RUNNING = "running"  # a call is under way, or its answer is being checked
    RETRYING = "retrying"  # the last call failed; another is about to be made
    WAITING = "waiting"  # for a person
    DONE = "done"  # it has a result
    FAILED = "failed"  # it has none, and will have none
    STOPPED = "stopped"  # nobody performs it at the moment
    LEFT = "left"  # the run ended without it


@dataclass(frozen=True, slots=True)
class CallView:
    """A call and when it was made; `children` are the runs that it was."""

    story: CallExplanation
    began: float
    state: StepPhase
    key: str
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepView:
    """A step, where it stands, and the labels of its data."""

    story: StepExplanation
    state: StepPhase
    calls: tuple[CallView, ...]
    labels: tuple[str, ...]
    began: float | None
    seconds: float | None
    tokens: int
    dollars: float | None
    items: tuple["StepView", ...] = ()

    @property
    def subtask(self) -> str:
        """What its worker is told."""
        return self.story.subtask

    @property
    def worker(self) -> str:
        """Who performs it now: whoever gave the result, or was called last, or is planned."""
        return self.story.worker or (self.calls[-1].story.worker if self.calls else self.story.planned)


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round: who planned and how, the graph twice (for a desk, for a telephone), the steps."""

    story: RoundExplanation
    state: StepPhase
    calls: tuple[CallView, ...]
    steps: tuple[StepView, ...]
    wide: run_charts.PlanGraph
    narrow: run_charts.PlanGraph

    @property
    def round(self) -> int:
        """Its number."""
        return self.story.round

    @property
    def shape(self) -> str | None:
        """The name of its plan's shape."""
        return self.story.shape


@dataclass(frozen=True, slots=True)
class RunView:
    """A run. `number` counts its events; `live`: more is to be expected; `shown_at` is when it was looked at,
    `performed_at` when it was last seen to be performed.
    """

    story: Explanation
    run: Run
    number: int
    live: bool
    shown_at: float
    performed_at: float
    rounds: tuple[RoundView, ...]
    waiting: tuple[QuestionAsked, ...]
    wide: run_charts.Timeline | None
    narrow: run_charts.Timeline | None
    children: tuple[RunOverview, ...]

    @property
    def status(self) -> RunStatus:
        """The run's status."""
        return self.run.status

    @property
    def seconds(self) -> float:
        """Seconds in which it was performed, up to the look at it while it continues."""
        return self.run.active_seconds + (max(0.0, self.shown_at - self.performed_at) if self.live else 0.0)


def run_view(events: Sequence[Event], now: float, children: Sequence[RunOverview] = ()) -> RunView:
    """Return a run as it is shown, from its events so far; `children` are the runs that its steps are."""
    run = Run.fold(events)
    live = run.status is RunStatus.RUNNING
    story = explain(run)
    end = now if live else run_charts.last_performed(events)
    rounds = tuple(_round_view(run, told, children) for told in story.rounds)
    wide, narrow = (
        run_charts.timeline(events, end, run_charts.WIDE_TIMELINE),
        run_charts.timeline(events, end, run_charts.NARROW_TIMELINE),
    )
    asked = tuple(run.open_questions)
    performed = run_charts.last_performed(events)
    return RunView(story, run, len(events), live, now, performed, rounds, asked, wide, narrow, tuple(children))


def _round_view(run: Run, told: RoundExplanation, children: Sequence[RunOverview]) -> RoundView:
    turn = run.rounds[told.round]
    steps = tuple(_step_view(run, told, step, children) for step in told.steps)
    access = [tuple(seen.step for seen in step.seen) for step in told.steps]
    state = StepPhase.DONE if turn.plan is not None else _step_phase(run, turn.planning)
    calls = tuple(_call_views(run, turn.planning, told.calls, children))
    return RoundView(
        told, state, calls, steps, run_charts.wide_plan_graph(access), run_charts.narrow_plan_graph(access)
    )


def _step_view(run: Run, turn: RoundExplanation, told: StepExplanation, children: Sequence[RunOverview]) -> StepView:
    record = run.rounds[turn.round].steps.get(told.step) or StepRecord(told.step)
    calls = tuple(_call_views(run, record, told.calls, children))
    items = tuple(_step_view(run, turn, item, children) for item in told.items)
    dollars = [*[call.story.dollars for call in calls], *[item.dollars for item in items]]
    known = None if None in dollars else sum(cost for cost in dollars if cost is not None)
    end = record.finished
    began = calls[0].began if calls else min((item.began for item in items if item.began is not None), default=None)
    return StepView(
        told,
        _step_phase(run, record),
        calls,
        end.labels if end else (),
        began,
        end.at - began if end and began is not None else None,
        sum(call.story.tokens for call in calls) + sum(item.tokens for item in items),
        known,
        items,
    )


def _call_views(
    run: Run, record: StepRecord, told: Sequence[CallExplanation], children: Sequence[RunOverview]
) -> Iterator[CallView]:
    for attempt, story in zip(record.attempts, told, strict=True):
        key = attempt.started.key
        own = tuple(child.id for child in children if child.id == key or child.id.startswith(f"{key}."))
        yield CallView(story, attempt.started.at, _call_phase(run, attempt), key, own)


def _call_phase(run: Run, attempt: Attempt) -> StepPhase:
    match attempt.outcome:
        case AttemptFinished():
            return StepPhase.DONE
        case AttemptFailed():
            return StepPhase.FAILED
        case _:
            return StepPhase.RUNNING if run.status is RunStatus.RUNNING else StepPhase.STOPPED


def _step_phase(run: Run, record: StepRecord) -> StepPhase:
    """Return where a step stands, by what is journaled of it."""
    result = record.result
    if result is not None:
        return StepPhase.DONE if result.ok else StepPhase.FAILED
    records = (record, *(record.items or ()))
    attempts = [attempt for each in records for attempt in each.attempts]
    if run.finished is not None:
        return StepPhase.FAILED if attempts else StepPhase.LEFT
    if any(asked.question not in run.answers for each in records for asked in each.questions):
        return StepPhase.WAITING
    if run.status is not RunStatus.RUNNING:
        return StepPhase.STOPPED if attempts else StepPhase.PLANNED
    if record.items is not None:
        return StepPhase.RUNNING
    if not record.attempts:
        return StepPhase.RUNNING if record.index < 0 else StepPhase.PLANNED
    return StepPhase.RETRYING if isinstance(record.attempts[-1].outcome, AttemptFailed) else StepPhase.RUNNING


router = APIRouter(route_class=PageRoute, include_in_schema=False)
_MAX_NUMBER_DIGITS = 20  # digits of an event's number
_PING_SECONDS = 15  # seconds between comments that keep a connection
_POLL_SECONDS = 1.0  # seconds between two looks at a run that waits
_MAX_REMARK = 2_000


@dataclass(frozen=True, slots=True)
class RunPermissions:
    """What this login may do with this run now."""

    cancel: bool
    answer: bool
    judge: bool
    undo: bool


@dataclass(frozen=True, slots=True)
class RunViewer:
    """Who looks at a run, what of it its events do not tell: its child runs, and workers whose calls can be undone."""

    session: PageSession
    children: Sequence[RunOverview]
    compensated: frozenset[str]


@router.get(f"{UI_ROOT}/runs/{{run}}")
async def show_run(request: Request, run: str, session: ReaderLogin, service: Service) -> Response:
    """Show a run as it stands."""
    events = await visible_events(service, session, run)
    looking = await _run_viewer(service, session, run, events)
    view = run_view(events, time(), looking.children)
    follows = view.run.finished is None
    trust = ""
    if not follows:
        started = view.run.started
        graded = await service.journal.graded(started.domain, started.tenant, MOST_EVIDENCE)
        trust = " ".join(assurance(view.story, track_record(view.run, graded)))
    shown = {"view": view, "may": run_permissions(looking, view.run), "follows": follows, "trust": trust}
    return render_page(request, "run.html.jinja", shown)


@router.get(f"{UI_ROOT}/runs/{{run}}/live")
async def stream_run(
    request: Request, run: str, session: ReaderLogin, service: Service, after: int = -1, chat: bool = False
) -> Response:
    """Send what changes on the run's page, or in a chat's turn, from an event on."""
    last = request.headers.get("last-event-id", "")
    begin = int(last) if last.isascii() and last.isdigit() and len(last) <= _MAX_NUMBER_DIGITS else after
    events = await visible_events(service, session, run)
    parts = chat_parts if chat else page_parts
    told = _stream_changes(service, session, run, events[: max(begin, 0) + 1], parts)
    return EventSourceResponse(
        stream_until_revoked(revocation_check(request, require_login(*READER_SCOPES), _revoked_events), told),
        headers=SECURITY_HEADERS,
        ping=_PING_SECONDS,
    )


@router.get(f"{UI_ROOT}/runs/{{run}}/journal")
async def show_journal(request: Request, run: str, session: ReaderLogin, service: Service) -> Response:
    """Show every event of the run."""
    await visible_events(service, session, run)
    if await hides_texts(service, session.by, run):
        raise ApiError(403, "the journal of this run is shown once a person has let its answer pass", "withheld")
    told = [line async for line in service.journal.export(run)]
    return render_page(request, "journal.html.jinja", {"run": run, "lines": journal_lines(told)})


@router.post(f"{UI_ROOT}/runs/{{run}}/cancel", dependencies=[FORM_CHECK])
async def cancel_run(run: str, session: RunnerLogin, service: Service) -> Response:
    """Stop the run for good."""
    await visible_events(service, session, run)
    await service.cancel(root_run_id(run))
    return redirect(f"{UI_ROOT}/runs/{run}")


@router.post(f"{UI_ROOT}/runs/{{run}}/rollback", dependencies=[FORM_CHECK])
async def roll_back(run: str, session: ApproverLogin, service: Service) -> Response:
    """Undo what the run's calls did, as far as compensating workers are configured."""
    past = Run.fold(await visible_events(service, session, run))
    await roll_back_run(service, session.by, past, RollbackOrder(session.by.actor, again=True))
    return redirect(f"{UI_ROOT}/runs/{run}#effects")


@router.post(f"{UI_ROOT}/runs/{{run}}/feedback")
async def give_feedback(run: str, session: RunnerLogin, service: Service, form: CheckedForm) -> Response:
    """Write down what somebody thinks of the answer."""
    past = Run.fold(await visible_events(service, session, run))
    if past.answer is None:
        raise ApiError(409, f"run {run} has no answer to judge", "no_answer")
    remark, right = form_text(form, "note"), form_text(form, "right") == "yes"
    if len(remark) > _MAX_REMARK or storage_problem(remark):
        raise TaskError(f"a remark has at most {_MAX_REMARK:,} characters, and none that cannot be kept")
    said = service.container.secret_store.scrub(remark)
    service.recorder.add(feedback_event(run, float(right), said, session.by.actor))
    await service.journal.flush()
    if "queue" in form:
        return redirect(f"{UI_ROOT}/queue?{urlencode([*parse_qsl(form_text(form, 'queue')), ('last', run)])}")
    return redirect(f"{UI_ROOT}/runs/{run}#answer")


async def _revoked_events(problem: ApiError) -> tuple[ServerSentEvent, ServerSentEvent]:
    note = f'<p class="note bad" role="alert">This page gets no more updates: {escape(problem.message)}</p>'
    swapped = f'<div hx-swap-oob="afterbegin:#head">{note}</div>'
    return ServerSentEvent(swapped, event="parts"), ServerSentEvent("over", event="over")


async def visible_events(service: RunService, session: PageSession, run: str) -> Sequence[Event]:
    """Return a run's events if this login may see them; ApiError (404) otherwise, as if there were no such run."""
    served = await service.store.find(root_run_id(run))
    if served is None and not session.may(KeyScope.ADMIN):
        raise ApiError(404, f"there is no run {run}", "not_found")
    if served is not None:
        check_tenant(session.by, served.tenant, f"run {run}")
    try:
        return await _read_visible(service, session, run)
    except UnknownRun:
        raise ApiError(404, f"there is no run {run}", "not_found") from None


async def _read_visible(service: RunService, session: PageSession, run: str) -> Sequence[Event]:
    """Return a run's events as this login may see them: without what a person has to let pass first."""
    events = await service.journal.read(run)
    return tuple(map(withhold_texts, events)) if await hides_texts(service, session.by, run) else events


def run_permissions(looking: RunViewer, run: Run) -> RunPermissions:
    """Return what may be done."""
    session, root = looking.session, run.started.parent is None
    begins, approves = session.may(KeyScope.RUN), session.may(KeyScope.APPROVE)
    over = run.finished is not None or run.status is RunStatus.INTERRUPTED
    undoable = any(each.started.worker in looking.compensated for each in run.attempts)
    return RunPermissions(
        cancel=begins and not over and root,
        answer=approves,
        judge=begins and run.answer is not None,
        undo=approves and root and undoable and run.status is not RunStatus.RUNNING,
    )


async def _run_viewer(service: RunService, session: PageSession, run: str, events: Sequence[Event]) -> RunViewer:
    children = await service.journal.children(run)
    begun = events[0]
    names = begun.pool if isinstance(begun, RunStarted) else ()
    known = set(names) <= set(service.container.names)
    cards = service.container.cards(names) if names and known else ()
    return RunViewer(session, children, frozenset(card.name for card in cards if card.compensate))


def page_parts(looking: RunViewer, events: Sequence[Event]) -> PageParts:
    """Return the parts of a run's page by their ids, a round before its own parts."""
    view = run_view(events, time(), looking.children)
    given = {"home": UI_ROOT, "session": looking.session}
    made = template_environment().get_template("run_parts.html.jinja").make_module(given)
    able, session = run_permissions(looking, view.run), looking.session
    found = {name: str(getattr(made, name)(view, able, session)) for name in ("head", "waiting", "answer", "effects")}
    for turn in view.rounds:
        found[f"round-{turn.round}"] = str(made.round(view, turn))  # type: ignore[attr-defined]
        found[f"plan-{turn.round}"] = str(made.plan(view, turn))  # type: ignore[attr-defined]
        for step in turn.steps:
            found[f"step-{turn.round}-{step.story.step}"] = str(made.step_of(view, turn, step))  # type: ignore[attr-defined]
    return found | {name: str(getattr(made, name)(view)) for name in ("line", "children")}


def chat_parts(looking: RunViewer, events: Sequence[Event]) -> PageParts:
    """Return the parts of a turn in a chat: where its run stands, and who says what; named as on a run's page."""
    view = run_view(events, time(), looking.children)
    made = template_environment().get_template("run_parts.html.jinja").make_module({"home": UI_ROOT})
    found = {"chat-state": str(made.chat_state(view))}  # type: ignore[attr-defined]
    for turn in view.rounds:
        found[f"round-{turn.round}"] = str(made.chat_round(view, turn))  # type: ignore[attr-defined]
        for step in turn.steps:
            found[f"step-{turn.round}-{step.story.step}"] = str(made.chat_step(turn, step))  # type: ignore[attr-defined]
    return found


def appended_texts(told: TextByStep) -> str:
    """Return pieces of growing answers, ready to be appended to theirs."""
    return "".join(
        f'<div hx-swap-oob="beforeend:#said-{place[0]}-{place[1]}">{escape(clean_text(text))}</div>'
        for place, text in told.items()
    )


async def _stream_changes(
    service: RunService,
    session: PageSession,
    run: str,
    events: Sequence[Event],
    parts: Callable[[RunViewer, Sequence[Event]], PageParts],
) -> AsyncGenerator[ServerSentEvent]:
    """Tell a listener what changes until the run is over, through all its pauses."""
    known = list(events)
    while True:
        draw = partial(parts, await _run_viewer(service, session, run, known))
        heard = _visible_updates(service, session, run, len(known) - 1)
        async with aclosing(follow_page(known, heard, draw, appended_texts)) as following:  # type: ignore[type-var]
            async for number, sending in following:
                yield ServerSentEvent(sending, event="parts", id=str(number))
        known = list(await _read_visible(service, session, run))
        if Run.fold(known).finished is not None:
            yield ServerSentEvent("over", event="over")
            return
        known = await _wait_for_more(service, run, known)


async def _visible_updates(service: RunService, session: PageSession, run: str, after: int) -> AsyncIterator[RunUpdate]:
    """Yield what happens in a run; a child run is read from the journal, as often as its parent is heard."""
    if root_run_id(run) == run:
        hidden = await hides_texts(service, session.by, run)
        async with aclosing(service.listen(run, after)) as listening:
            async for item in listening:
                if not hidden:
                    yield item
                elif isinstance(item, EventUpdate):
                    yield EventUpdate(item.number, withhold_texts(item.event))
        return
    for number, event in enumerate(await _read_visible(service, session, run)):
        if number > after:
            yield EventUpdate(number, event)


async def _wait_for_more(service: RunService, run: str, known: list[Event]) -> list[Event]:
    """Return what was known once there is more; a run that waits may do so for days."""
    count, seen = select(func.count()).where(EVENTS.c.run == run), 0  # of rows, which may hold several events
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        rows = await service.journal.query(lambda connection: connection.execute(count).scalar_one())
        if rows > seen and len(await service.journal.read(run)) > len(known):
            return known
        seen = rows
