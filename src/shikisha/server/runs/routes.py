"""`/runs`: start a run from a plain task, list runs, read one whole, follow its events, cancel it.

Invariants: a run of another tenant is absent (404). An event has the same number on every server forever, so a reader
can continue where it stopped; a stream sends one message per event and ends with the run. The resolved configuration
is the operator's and is left out of events. Erasing runs is in `keys.admin_routes`.
"""

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import asdict, replace
from math import isfinite
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from shikisha.core.errors import ShikishaError
from shikisha.core.events import Event, RunFinished
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.explain.explanation import explain
from shikisha.server.http import streams
from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import check_tenant, require_reader, require_scope
from shikisha.server.http.request import RequestOptions, read_json, read_request_options, request_body_doc, validate_as
from shikisha.server.http.run_result import api_error_of, run_usage, started_headers
from shikisha.server.http.streams import (
    limit_stream,
    revocation_check,
    run_unless_disconnected,
    stream_grace,
    stream_until_revoked,
)
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle import run_progress
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun, check_schema_sizes, check_schemas
from shikisha.server.lifecycle.broadcast import EventUpdate
from shikisha.server.lifecycle.run_progress import hides_texts, withhold_texts
from shikisha.server.lifecycle.service import RunService, StartedRun, read_idempotency_key, root_run_id, start_once
from shikisha.server.lifecycle.sessions import continue_session
from shikisha.server.runs.schema import OpenQuestionInfo, RunInfo, RunList, RunListEntry, RunQuery, RunRequest
from shikisha.server.store import RunFilter, ServedRun, ServedState

_POLL_SECONDS = 0.25  # seconds between two looks at a run that waits


async def event_stream_of_run(
    service: RunService, run: str, after: int, *, pieces: bool = False, hidden: bool = False
) -> AsyncGenerator[bytes]:
    """Yield a run's events after a number, until it ends; `hidden`: without texts that wait for a review."""
    heard = after
    try:
        while True:
            async with aclosing(service.listen(run, heard)) as hearing:
                async for item in hearing:
                    if isinstance(item, EventUpdate):
                        heard = item.number
                        event = withhold_texts(item.event) if hidden else item.event
                        yield _event_bytes(event.kind, event_fields(event), heard)
                    elif pieces:
                        yield _event_bytes("text", asdict(item))
            if await has_no_more_events(service, run, heard):
                yield _event_bytes("end", {"status": str((await service.read_run(run)).status)})
                return
            await asyncio.sleep(_POLL_SECONDS)
    except ShikishaError as error:
        for each in await stream_error(api_error_of(error)):
            yield each


async def stream_error(problem: ApiError) -> tuple[bytes]:
    """Return the last event of a stream that ends before the run does: why."""
    return (_event_bytes("error", dict(problem.body())),)


async def has_no_more_events(service: RunService, run: str, after: int) -> bool:
    """Whether a run has ended and has no events after a number."""
    served, past = await service.find_served(root_run_id(run)), await service.journal.read(run)
    ended = served.state in (ServedState.ENDED, ServedState.STOPPED) or any(
        isinstance(each, RunFinished) for each in past
    )
    return ended and len(past) - 1 <= after


async def wait_until_ended(service: RunService, run: str) -> None:
    """Wait until a run has ended, or waits for somebody."""
    while (await service.find_served(run)).state is ServedState.OPEN:
        async with aclosing(service.listen(run)) as hearing:
            async for _ in hearing:
                pass
        if service.closing:
            return
        await asyncio.sleep(0.01)


def event_fields(event: Event) -> dict[str, object]:
    """Return an event as JSON has it."""
    told = {name: value for name, value in asdict(event).items() if name != "config"}
    return {"kind": event.kind, **told}


def _event_bytes(kind: str, told: dict[str, object], number: int | None = None) -> bytes:
    head = "" if number is None else f"id: {number}\n"
    if number is not None:
        told = {"number": number, **told}
    return f"{head}event: {kind}\ndata: {json.dumps(told, separators=(',', ':'))}\n\n".encode()


async def run_info(service: RunService, by: Principal, name: str) -> RunInfo:
    """Return a run, whole, but for what this principal may not see; UnknownRun when there is none."""
    served, family = await service.find_served(root_run_id(name)), await run_progress.visible_family(service, by, name)
    run = family[name]
    spent = run_usage(run, family.values())
    end = run.finished
    return RunInfo(
        id=name,
        root=served.run,
        status=run.status,
        state=served.state,
        why=run.why,
        fault=end.fault if end else None,
        answer=run.answer,
        api=served.api,
        model=served.model,
        created=run.started.at,
        ended=end.at if end else None,
        background=served.detached,
        metadata=dict(served.metadata),
        domain=run.started.domain,
        labels=list(run.started.labels),
        tokens=spent.tokens,
        dollars=spent.dollars,
        uncertain_tokens=spent.uncertain.tokens,
        uncertain_dollars=spent.uncertain.dollars,
        questions=_open_questions(family.values()),
        children=[child.id for child in family.values() if child.started.parent == name],
        explanation=explain(run, [child for child in family.values() if child.id != name]),
    )


def run_list_entry(served: ServedRun) -> RunListEntry:
    """Return a run as a list shows it."""
    return RunListEntry(
        id=served.run,
        status=served.status,
        state=served.state,
        api=served.api,
        model=served.model,
        conductor=served.conductor,
        tenant=served.tenant,
        key=served.key,
        created=served.created,
        updated=served.updated,
        excerpt=served.excerpt,
        domain=served.domain,
        labels=list(served.labels),
        metadata=dict(served.metadata),
        background=served.detached,
        tokens=served.tokens,
        dollars=served.dollars,
        uncertain_tokens=served.uncertain_tokens,
        uncertain_dollars=served.uncertain_dollars,
    )


def encode_cursor(after: tuple[float, str]) -> str:
    """Return the end of a page as a word."""
    return urlsafe_b64encode(json.dumps(after).encode()).decode().rstrip("=")


def decode_cursor(word: str | None) -> tuple[float, str] | None:
    """Return the end of a page; 400 for a word that is none."""
    if word is None:
        return None
    try:
        created, run = json.loads(urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        at, name = float(created), str(run)
        if not isfinite(at) or not name.isascii() or "\x00" in name:
            raise ValueError
        return at, name
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise ApiError(400, "after: expected the `next` of a page", "invalid_value", param="after") from None


def _open_questions(family: Iterable[Run]) -> list[OpenQuestionInfo]:
    return [
        OpenQuestionInfo(
            run=asked.run,
            question=asked.question,
            asks=asked.asks,
            worker=asked.worker,
            round=asked.round,
            step=asked.step,
            prompt=asked.prompt,
            expires=asked.expires,
        )
        for run in family
        for asked in run.open_questions
    ]


router = APIRouter(prefix="/runs", tags=["runs"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]
ReaderPrincipal = Annotated[Principal, Depends(require_reader)]
AdminPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.ADMIN))]
RunIdPath = Annotated[str, Path(min_length=1, max_length=256)]
_EVENT_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/event-stream": SSE_CONTENT}, "description": "The events"},
    204: {"description": "The run is over, and there are no further events"},
}


_RUN_RESPONSES: dict[int | str, dict[str, object]] = {200: {"model": RunInfo}, 202: {"model": RunInfo}}


@router.post(
    "",
    summary="Start a run",
    openapi_extra=request_body_doc(RunRequest),
    responses={**error_responses(402, 404, 409), **_RUN_RESPONSES},
)
async def begin_run(request: Request, by: RunPrincipal) -> Response:
    """Perform a task: 200 with the run once it ends or waits for somebody; 202 at once with `background`."""
    service: RunService = request.app.state.service
    raw = await read_json(request, lambda raw: check_schema_sizes(raw, Api.RUNS))
    asked = validate_as(raw, RunRequest)
    options, key = read_request_options(request.headers), read_idempotency_key(request.headers)
    order = await _authorize_run(service, by, asked, options, key)
    await check_schemas(order.task, Api.RUNS)
    made = await start_once(service, order)
    if not asked.background:
        await run_unless_disconnected(
            request, wait_until_ended(service, made.run), lambda: _cancel_if_own(service, made)
        )
    body = (await run_info(service, by, made.run)).model_dump(mode="json")
    return JSONResponse(body, 202 if asked.background else 200, started_headers(made.run))


@router.get("", summary="List runs", responses=error_responses())
async def list_runs(request: Request, by: ReaderPrincipal, wanted: Annotated[RunQuery, Query()]) -> RunList:
    """Return a page of the tenant's runs, newest first. An admin sees all runs, or those of one tenant."""
    service: RunService = request.app.state.service
    if wanted.tenant is not None:
        check_tenant(by, wanted.tenant, "tenant of this name")
    asked = RunFilter(
        tenant=wanted.tenant if KeyScope.ADMIN in by.scopes else by.tenant,
        states=tuple(wanted.state or ()),
        statuses=tuple(wanted.status or ()),
        model=wanted.model,
        api=wanted.api,
        text=wanted.text or "",
        since=wanted.since,
        until=wanted.until,
        after=decode_cursor(wanted.after),
        limit=wanted.limit,
    )
    page = await service.store.search(asked)
    following = None if page.after is None else encode_cursor(page.after)
    return RunList(data=[run_list_entry(run) for run in page.runs], has_more=page.after is not None, next=following)


@router.get("/{run}", summary="Retrieve a run", responses=error_responses(404))
async def read_run(request: Request, run: RunIdPath, by: ReaderPrincipal) -> RunInfo:
    """Return a run or child run with its explanation, open questions and costs."""
    service: RunService = request.app.state.service
    await check_run_access(service, by, run)
    return await run_info(service, by, run)


@router.post("/{run}/cancel", summary="Cancel a run", responses=error_responses(404, 409))
async def cancel_run(request: Request, run: RunIdPath, by: RunPrincipal) -> RunInfo:
    """Cancel a run. A run that has ended stays unchanged."""
    service: RunService = request.app.state.service
    await check_run_access(service, by, run)
    if run != root_run_id(run):
        raise ApiError(409, f"{run} is a child run of {root_run_id(run)}: cancel that one", "child_run")
    await service.cancel(run)
    return await run_info(service, by, run)


@router.post("/{run}/release", summary="Release a quarantined run", responses=error_responses(404, 409))
async def release_run(request: Request, run: RunIdPath, by: AdminPrincipal) -> RunInfo:
    """Let servers perform a run again that was quarantined for taking servers down. Requires an admin key."""
    service: RunService = request.app.state.service
    await check_run_access(service, by, run)
    if not await service.release(run, by.key):
        raise ApiError(409, f"run {run} is not quarantined", "not_quarantined")
    return await run_info(service, by, run)


@router.get(
    "/{run}/events",
    summary="Follow a run",
    response_class=Response,
    responses={**error_responses(404), **_EVENT_RESPONSES},
)
async def follow_run_events(
    request: Request,
    run: RunIdPath,
    by: ReaderPrincipal,
    after: Annotated[int | None, Query(ge=-1)] = None,
    pieces: bool = False,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> Response:
    """Stream a run's events, each with its number as `id`. `pieces` adds text as it is generated."""
    service: RunService = request.app.state.service
    await check_run_access(service, by, run)
    since = _start_number(after, last_event_id)
    if since >= 0 and await has_no_more_events(service, run, since):
        return Response(status_code=204)
    hidden = await hides_texts(service, by, run)
    told = event_stream_of_run(service, run, since, pieces=pieces and not hidden, hidden=hidden)
    watched = stream_until_revoked(
        revocation_check(request, require_reader, stream_error), limit_stream(request, by, told)
    )
    return streams.event_stream(watched, started_headers(root_run_id(run)), grace=stream_grace(service))


async def _authorize_run(
    service: RunService, by: Principal, asked: RunRequest, options: RequestOptions, key: str | None
) -> AuthorizedRun:
    if asked.model is not None and asked.conductor is not None:
        raise ApiError(400, "conductor: either a model or a conductor can be named", "invalid_value", param="conductor")
    named = f"shikisha/{asked.conductor}" if asked.conductor is not None else asked.model or "shikisha"
    model = service.authorizer.catalogue.find(named, by).name
    task = Task(asked.prompt, asked.context, "", asked.domain, tuple(asked.labels), answer_schema=asked.answer_schema)
    # What headers and body allow, each only what both do.
    caps = dict(options.caps)
    for name, wanted in asked.budgets.model_dump(exclude_none=True).items():
        most = getattr(service.container.caps, name)
        if most is not None and wanted > most:
            said = f"budgets.{name}: at most {most:g} is allowed here, and a request can only narrow that"
            raise ApiError(400, said, "budget_widened", param=f"budgets.{name}")
        caps[name] = min(wanted, caps.get(name, wanted))
    strangers = [name for name in asked.pool or () if name not in service.container.names]
    if strangers:
        raise ApiError(400, f"pool: the worker {strangers[0]!r} does not exist", "no_worker", param="pool")
    workers = tuple(asked.pool) if asked.pool is not None else options.workers
    if asked.pool is not None and options.workers is not None:
        workers = tuple(name for name in asked.pool if name in options.workers)
    options = replace(options, caps=caps, workers=workers)
    wire = asked.model_dump_json(exclude_unset=True, include={"pool", "budgets"})
    requested = RequestedRun(model, task, Api.RUNS, options, wire, asked.background, key, asked.metadata)
    if options.session:
        requested = await continue_session(service, by, requested)
    return service.authorizer.authorize(requested, by)


async def check_run_access(service: RunService, by: Principal, run: str) -> None:
    """Raise ApiError (404) unless the principal may see the run."""
    served = await service.store.find(root_run_id(run))
    check_tenant(by, "" if served is None else served.tenant, f"run {run[:80]!r}")
    if served is None:
        raise ApiError(404, f"there is no run {run[:80]!r}", "not_found")


async def _cancel_if_own(service: RunService, made: StartedRun) -> None:
    if made.fresh:
        await service.cancel(made.run)


def _start_number(after: int | None, last: str | None) -> int:
    if after is not None:
        return after
    if last is None or last == "":
        return -1
    if not last.isdecimal():
        raise ApiError(400, "Last-Event-ID: expected the number of an event", "invalid_header", param="Last-Event-ID")
    return int(last)
