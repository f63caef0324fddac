"""`/runs`: a task as it is becomes a run; runs are listed, looked at whole, followed event by event, and cancelled.

Invariant: nobody sees a run of another tenant, nor learns that there is one (404). Events have the same numbers on
every server and for ever, so a reader goes on where it stopped. Deliberately absent: erasure (an admin's), answering
what a run waits for (`approvals`), and explaining (`explain`).
"""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from shikisha.server import sse
from shikisha.server.awaiting import grace, unless_left
from shikisha.server.doors import asker, owned, seer
from shikisha.server.headers import of_begun
from shikisha.server.house import House, root_of
from shikisha.server.idempotency import Begun, begun, key_of
from shikisha.server.lapses import door, until
from shikisha.server.listeners import listened
from shikisha.server.narrowing import Narrowing, narrowing
from shikisha.server.ordering import Wish
from shikisha.server.orders import Api, Order
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.refusals import SSE, refusals
from shikisha.server.runs_following import ended, events, over, refused
from shikisha.server.runs_view import cursor, read_cursor, shown, summary
from shikisha.server.store import Filter
from shikisha.server.wire.reading import documented, fit, read
from shikisha.server.wire.runs import RunList, RunRequest, RunsAsked, RunShown
from shikisha.server.wire.schemas import check_schemas, check_sizes
from shikisha.server.withholding import hides
from shikisha.task import Task

router = APIRouter(prefix="/runs", tags=["runs"])
Asker = Annotated[Principal, Depends(asker(Scope.RUN))]
Seer = Annotated[Principal, Depends(seer)]
Admin = Annotated[Principal, Depends(asker(Scope.ADMIN))]
Named = Annotated[str, Path(min_length=1, max_length=256)]
_EVENTS: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/event-stream": SSE}, "description": "The events"},
    204: {"description": "The run is over, and there are no further events"},
}


_RUN: dict[int | str, dict[str, object]] = {200: {"model": RunShown}, 202: {"model": RunShown}}


@router.post(
    "", summary="Begin a run", openapi_extra=documented(RunRequest), responses={**refusals(402, 404, 409), **_RUN}
)
async def begin(request: Request, by: Asker) -> Response:
    """Have a task done: 200 with the run once it has ended or waits for somebody, 202 at once in the background."""
    house: House = request.app.state.house
    raw = await read(request, lambda raw: check_sizes(raw, Api.RUNS))
    asked = fit(raw, RunRequest)
    order = _order(house, by, asked, narrowing(request.headers), key_of(request.headers))
    await check_schemas(order.task, Api.RUNS)
    made = await begun(house, order)
    if not asked.background:
        await unless_left(request, ended(house, made.run), lambda: _gone(house, made))
    body = (await shown(house, by, made.run)).model_dump(mode="json")
    return JSONResponse(body, 202 if asked.background else 200, of_begun(made.run))


@router.get("", summary="List runs", responses=refusals())
async def listed(request: Request, by: Seer, wanted: Annotated[RunsAsked, Query()]) -> RunList:
    """Return a page of the runs of the key's tenant, newest first; an admin sees all of them, or one tenant's."""
    house: House = request.app.state.house
    if wanted.tenant is not None:
        owned(by, wanted.tenant, "tenant of this name")
    asked = Filter(
        tenant=wanted.tenant if Scope.ADMIN in by.scopes else by.tenant,
        states=tuple(wanted.state or ()),
        statuses=tuple(wanted.status or ()),
        model=wanted.model,
        api=wanted.api,
        text=wanted.text or "",
        since=wanted.since,
        until=wanted.until,
        after=read_cursor(wanted.after),
        limit=wanted.limit,
    )
    page = await house.store.search(asked)
    following = None if page.after is None else cursor(page.after)
    return RunList(data=[summary(run) for run in page.runs], has_more=page.after is not None, next=following)


@router.get("/{run}", summary="Look a run up", responses=refusals(404))
async def look(request: Request, run: Named, by: Seer) -> RunShown:
    """Return a run, or a child run, with everything that is known of it."""
    house: House = request.app.state.house
    await _own(house, by, run)
    return await shown(house, by, run)


@router.post("/{run}/cancel", summary="Cancel a run", responses=refusals(404, 409))
async def cancel(request: Request, run: Named, by: Asker) -> RunShown:
    """Stop a run for good; one that is over stays as it is."""
    house: House = request.app.state.house
    await _own(house, by, run)
    if run != root_of(run):
        raise Problem(409, f"{run} is a child run of {root_of(run)}: cancel that one", "child_run")
    await house.cancel(run)
    return await shown(house, by, run)


@router.post("/{run}/release", summary="Release a quarantined run", responses=refusals(404, 409))
async def release(request: Request, run: Named, by: Admin) -> RunShown:
    """Let servers perform a run again that took servers down: by an admin, who has seen to what it did."""
    house: House = request.app.state.house
    await _own(house, by, run)
    if not await house.release(run, by.key):
        raise Problem(409, f"run {run} is not quarantined", "not_quarantined")
    return await shown(house, by, run)


@router.get("/{run}/events", summary="Follow a run", response_class=Response, responses={**refusals(404), **_EVENTS})
async def follow(
    request: Request,
    run: Named,
    by: Seer,
    after: Annotated[int | None, Query(ge=-1)] = None,
    pieces: bool = False,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> Response:
    """Send a run's events as they happen, each with its number as `id`; `pieces`: growing answers too."""
    house: House = request.app.state.house
    await _own(house, by, run)
    since = _since(after, last_event_id)
    if since >= 0 and await over(house, run, since):
        return Response(status_code=204)
    hidden = await hides(house, by, run)
    told = events(house, run, since, pieces=pieces and not hidden, hidden=hidden)
    watched = until(door(request, seer, refused), listened(request, by, told))
    return sse.stream(watched, of_begun(root_of(run)), grace=grace(house))


def _order(house: House, by: Principal, asked: RunRequest, narrow: Narrowing, key: str | None) -> Order:
    if asked.model is not None and asked.conductor is not None:
        raise Problem(400, "conductor: either a model or a conductor can be named", "invalid_value", param="conductor")
    named = f"shikisha/{asked.conductor}" if asked.conductor is not None else asked.model or "shikisha"
    model = house.ordering.catalogue.find(named, by).name
    task = Task(asked.prompt, asked.context, "", asked.domain, tuple(asked.labels), answer_schema=asked.answer_schema)
    narrow = _narrowed(house, asked, narrow)
    wire = asked.model_dump_json(exclude_unset=True, include={"pool", "budgets"})
    wish = Wish(model, task, Api.RUNS, narrow, wire, asked.background, key, asked.metadata)
    return house.ordering.order(wish, by)


def _narrowed(house: House, asked: RunRequest, narrow: Narrowing) -> Narrowing:
    """Return what headers and body allow, each only what both do."""
    caps = dict(narrow.caps)
    for name, wanted in asked.budgets.model_dump(exclude_none=True).items():
        most = getattr(house.composition.caps, name)
        if most is not None and wanted > most:
            said = f"budgets.{name}: at most {most:g} is allowed here, and a request can only narrow that"
            raise Problem(400, said, "budget_widened", param=f"budgets.{name}")
        caps[name] = min(wanted, caps.get(name, wanted))
    strangers = [name for name in asked.pool or () if name not in house.composition.names]
    if strangers:
        raise Problem(400, f"pool: the worker {strangers[0]!r} does not exist", "no_worker", param="pool")
    workers = tuple(asked.pool) if asked.pool is not None else narrow.workers
    if asked.pool is not None and narrow.workers is not None:
        workers = tuple(name for name in asked.pool if name in narrow.workers)
    return replace(narrow, caps=caps, workers=workers)


async def _own(house: House, by: Principal, run: str) -> None:
    """Let whoever may see the run see it; there is no run otherwise."""
    served = await house.store.find(root_of(run))
    owned(by, "" if served is None else served.tenant, f"run {run[:80]!r}")
    if served is None:
        raise Problem(404, f"there is no run {run[:80]!r}", "not_found")


async def _gone(house: House, made: Begun) -> None:
    if made.fresh:
        await house.cancel(made.run)


def _since(after: int | None, last: str | None) -> int:
    if after is not None:
        return after
    if last is None or last == "":
        return -1
    if not last.isdecimal():
        raise Problem(400, "Last-Event-ID: expected the number of an event", "invalid_header", param="Last-Event-ID")
    return int(last)
