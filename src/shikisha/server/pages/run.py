"""One run's page: routes. What may be done with the run is decided here and shown by the view.

Invariant: every route looks first whether the login may see the run (`seen`), and a run that it may not see is absent.
Deliberately absent: what is shown of a run (`view_run`), and which of it is sent while it goes on (`live`).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from html import escape
from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import func, select
from sse_starlette import EventSourceResponse, ServerSentEvent

from shikisha.clean import clean
from shikisha.errors import TaskError, UnknownRun
from shikisha.events import Event, RunStarted, Status
from shikisha.journal.listing import Summary
from shikisha.journal.tables import EVENTS
from shikisha.run import Run
from shikisha.server.asking import actor
from shikisha.server.doors import owned
from shikisha.server.feedback import graded
from shikisha.server.house import House, root_of
from shikisha.server.lapses import door, until
from shikisha.server.live import Happened, Heard
from shikisha.server.pages import live as living
from shikisha.server.pages import view_journal, view_run
from shikisha.server.pages.doors import (
    SEERS,
    Approve,
    Begin,
    Checked,
    Housed,
    PageRoute,
    See,
    Sent,
    Session,
    field,
    led,
    looking,
)
from shikisha.server.pages.rendering import HOME, SECURITY, environment, page
from shikisha.server.principal import Scope
from shikisha.server.problems import Problem
from shikisha.server.rollback import rolled_back
from shikisha.server.withholding import hides, withheld
from shikisha.task import unstorable
from shikisha.undo import Wish

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_LONGEST_NUMBER = 20  # digits of an event's number
_PING = 15  # seconds between comments that keep a connection
_LOOK = 1.0  # seconds between two looks at a run that waits
_REMARK = 2_000


@dataclass(frozen=True, slots=True)
class May:
    """What this login may do with this run now."""

    cancel: bool
    answer: bool
    judge: bool
    undo: bool


@dataclass(frozen=True, slots=True)
class Looking:
    """Who looks at a run, what of it its events do not tell: its child runs, and workers whose calls can be undone."""

    session: Session
    children: Sequence[Summary]
    compensated: frozenset[str]


@router.get(f"{HOME}/runs/{{run}}")
async def show(request: Request, run: str, session: See, house: Housed) -> Response:
    """Show a run as it stands."""
    events = await seen(house, session, run)
    looking = await _looking(house, session, run, events)
    view = view_run.view(events, time(), looking.children)
    follows = view.run.finished is None
    return page(request, "run.html.jinja", {"view": view, "may": may(looking, view.run), "follows": follows})


@router.get(f"{HOME}/runs/{{run}}/live")
async def live(request: Request, run: str, session: See, house: Housed, after: int = -1) -> Response:
    """Send what changes on the run's page, from an event on."""
    last = request.headers.get("last-event-id", "")
    begin = int(last) if last.isascii() and last.isdigit() and len(last) <= _LONGEST_NUMBER else after
    events = await seen(house, session, run)
    told = _told(house, session, run, events[: max(begin, 0) + 1])
    return EventSourceResponse(until(door(request, looking(*SEERS), _shut), told), headers=SECURITY, ping=_PING)


@router.get(f"{HOME}/runs/{{run}}/journal")
async def journal(request: Request, run: str, session: See, house: Housed) -> Response:
    """Show every event of the run."""
    await seen(house, session, run)
    if await hides(house, session.by, run):
        raise Problem(403, "the journal of this run is shown once a person has let its answer pass", "withheld")
    told = [line async for line in house.journal.export(run)]
    return page(request, "journal.html.jinja", {"run": run, "lines": view_journal.lines(told)})


@router.post(f"{HOME}/runs/{{run}}/cancel", dependencies=[Checked])
async def cancel(run: str, session: Begin, house: Housed) -> Response:
    """Stop the run for good."""
    await seen(house, session, run)
    await house.cancel(root_of(run))
    return led(f"{HOME}/runs/{run}")


@router.post(f"{HOME}/runs/{{run}}/rollback", dependencies=[Checked])
async def rollback(run: str, session: Approve, house: Housed) -> Response:
    """Undo what the run's calls did, as far as compensating workers are configured."""
    past = Run.fold(await seen(house, session, run))
    await rolled_back(house, session.by, past, Wish(actor(session.by), again=True))
    return led(f"{HOME}/runs/{run}#effects")


@router.post(f"{HOME}/runs/{{run}}/feedback")
async def feedback(run: str, session: Begin, house: Housed, form: Sent) -> Response:
    """Write down what somebody thinks of the answer."""
    past = Run.fold(await seen(house, session, run))
    if past.answer is None:
        raise Problem(409, f"run {run} has no answer to judge", "no_answer")
    remark, right = field(form, "note"), field(form, "right") == "yes"
    if len(remark) > _REMARK or unstorable(remark):
        raise TaskError(f"a remark has at most {_REMARK:,} characters, and none that cannot be kept")
    said = house.composition.vault.scrub(remark)
    house.clerk.add(graded(run, float(right), said, actor(session.by)))
    await house.journal.flush()
    return led(f"{HOME}/runs/{run}#answer")


async def _shut(problem: Problem) -> tuple[ServerSentEvent, ServerSentEvent]:
    note = f'<p class="note bad" role="alert">This page is told of no more: {escape(problem.message)}</p>'
    swapped = f'<div hx-swap-oob="afterbegin:#head">{note}</div>'
    return ServerSentEvent(swapped, event="parts"), ServerSentEvent("over", event="over")


async def seen(house: House, session: Session, run: str) -> Sequence[Event]:
    """Return a run's events if this login may see them; Problem (404) otherwise, as if there were no such run."""
    served = await house.store.find(root_of(run))
    if served is None and not session.may(Scope.ADMIN):
        raise Problem(404, f"there is no run {run}", "not_found")
    if served is not None:
        owned(session.by, served.tenant, f"run {run}")
    try:
        return await _read(house, session, run)
    except UnknownRun:
        raise Problem(404, f"there is no run {run}", "not_found") from None


async def _read(house: House, session: Session, run: str) -> Sequence[Event]:
    """Return a run's events as this login may see them: without what a person has to let pass first."""
    events = await house.journal.read(run)
    return tuple(map(withheld, events)) if await hides(house, session.by, run) else events


def may(looking: Looking, run: Run) -> May:
    """Return what may be done."""
    session, root = looking.session, run.started.parent is None
    begins, approves = session.may(Scope.RUN), session.may(Scope.APPROVE)
    over = run.finished is not None or run.status is Status.INTERRUPTED
    undoable = any(each.started.worker in looking.compensated for each in run.attempts)
    return May(
        cancel=begins and not over and root,
        answer=approves,
        judge=begins and run.answer is not None,
        undo=approves and root and undoable and run.status is not Status.RUNNING,
    )


async def _looking(house: House, session: Session, run: str, events: Sequence[Event]) -> Looking:
    children = await house.journal.children(run)
    begun = events[0]
    names = begun.pool if isinstance(begun, RunStarted) else ()
    known = set(names) <= set(house.composition.names)
    cards = house.composition.cards(names) if names and known else ()
    return Looking(session, children, frozenset(card.name for card in cards if card.compensate))


def parts(looking: Looking, events: Sequence[Event]) -> living.Parts:
    """Return the parts of a run's page by their ids, a round before its own parts."""
    view = view_run.view(events, time(), looking.children)
    made = environment().get_template("run_parts.html.jinja").make_module({"home": HOME})
    able, session = may(looking, view.run), looking.session
    found = {name: str(getattr(made, name)(view, able, session)) for name in ("head", "waiting", "answer", "effects")}
    for turn in view.rounds:
        found[f"round-{turn.round}"] = str(made.round(view, turn))  # type: ignore[attr-defined]
        found[f"plan-{turn.round}"] = str(made.plan(view, turn))  # type: ignore[attr-defined]
        for step in turn.steps:
            found[f"step-{turn.round}-{step.story.step}"] = str(made.step_of(view, turn, step))  # type: ignore[attr-defined]
    return found | {name: str(getattr(made, name)(view)) for name in ("line", "children")}


def said(told: living.Told) -> str:
    """Return pieces of growing answers, ready to be appended to theirs."""
    return "".join(
        f'<div hx-swap-oob="beforeend:#said-{place[0]}-{place[1]}">{escape(clean(text))}</div>'
        for place, text in told.items()
    )


async def _told(house: House, session: Session, run: str, events: Sequence[Event]) -> AsyncGenerator[ServerSentEvent]:
    """Tell a listener what changes until the run is over, through all its pauses."""
    known = list(events)
    while True:
        draw = partial(parts, await _looking(house, session, run, known))
        heard = _heard(house, session, run, len(known) - 1)
        async with aclosing(living.follow(known, heard, draw, said)) as following:  # type: ignore[type-var]
            async for number, sending in following:
                yield ServerSentEvent(sending, event="parts", id=str(number))
        known = list(await _read(house, session, run))
        if Run.fold(known).finished is not None:
            yield ServerSentEvent("over", event="over")
            return
        known = await _changed(house, run, known)


async def _heard(house: House, session: Session, run: str, after: int) -> AsyncIterator[Heard]:
    """Yield what happens in a run; a child run is read from the journal, as often as its parent is heard."""
    if root_of(run) == run:
        hidden = await hides(house, session.by, run)
        async with aclosing(house.listen(run, after)) as listening:
            async for item in listening:
                if not hidden:
                    yield item
                elif isinstance(item, Happened):
                    yield Happened(item.number, withheld(item.event))
        return
    for number, event in enumerate(await _read(house, session, run)):
        if number > after:
            yield Happened(number, event)


async def _changed(house: House, run: str, known: list[Event]) -> list[Event]:
    """Return what was known once there is more; a run that waits may do so for days."""
    count = select(func.count()).where(EVENTS.c.run == run)
    while True:
        await asyncio.sleep(_LOOK)
        if await house.journal.query(lambda connection: connection.execute(count).scalar_one()) > len(known):
            return known
