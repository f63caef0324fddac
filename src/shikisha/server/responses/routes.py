"""`/v1/responses`: create, retrieve, cancel and delete responses, and resume a run that waits for its client.

Invariants: whatever can be refused is refused before anything is started, reserved or charged. An answer belongs to a
question of a run of the same tenant; only a key with the scope `approve` may approve calls (5). The same answers sent
twice count once and find the same response. A request that differs from its run (other tools, another format) starts
a run of its own.
"""

import re
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from shikisha.core.errors import UnknownRun
from shikisha.core.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.messages import NO_TOOL, ToolExchange, load_tool_calls, load_tool_results
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.approvals import Decision
from shikisha.server.http import streams
from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import require_reader, require_scope
from shikisha.server.http.request import (
    RequestOptions,
    drop_foreign,
    ignored_header,
    read_json,
    read_request_options,
    request_body_doc,
    validate_known,
)
from shikisha.server.http.run_result import started_headers
from shikisha.server.http.streams import (
    limit_stream,
    revocation_check,
    run_unless_disconnected,
    stream_grace,
    stream_until_revoked,
)
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun, check_schema_sizes, check_schemas
from shikisha.server.lifecycle.questions import PersonQuestion, check_decision
from shikisha.server.lifecycle.service import RunService, read_idempotency_key, start_once
from shikisha.server.lifecycle.tool_calls import VIA_API, client_tool_calls, find_tool_resumption
from shikisha.server.responses.delivery import ResponseDelivery, build_response, deliver_response
from shikisha.server.responses.input_conversation import (
    conversation_of_run,
    read_tool_choice,
    task_from_response,
    trailing_results,
)
from shikisha.server.responses.schema import (
    ITEM_TYPES,
    REFUSED_ITEMS,
    TOOL_TYPES,
    ApprovalResponse,
    DeletedResponse,
    InputItemList,
    ResponseObject,
    ResponseRequest,
)
from shikisha.server.responses.stored_response import SortOrder as Sorting
from shikisha.server.responses.stored_response import (
    StoredRequest,
    StoredResponse,
    find_response,
    forget_response,
    input_page,
    new_served_run,
    read_approval_id,
    read_response_id,
    response_at_turn,
    response_turns,
    stored_request,
)
from shikisha.server.store import ServedRun

_CALL_ID = re.compile(r"call_(\d{6}-\d{6}-[0-9a-z]{8})_")
_FIXED_FIELDS = ("tools", "text", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "instructions")


@dataclass(frozen=True, slots=True)
class ResumedRun:
    """A run to resume, and the turn that this makes; `answers` are recorded first."""

    served: ServedRun
    leg: int
    answers: tuple[QuestionAnswered, ...]


async def find_resumed_run(
    service: RunService, by: Principal, request: ResponseRequest, options: RequestOptions
) -> ResumedRun | None:
    """Return the run that a request resumes; None when it starts a run of its own."""
    decisions = [item for item in request.items if isinstance(item, ApprovalResponse)]
    if decisions:
        return await _resume_by_decisions(service, by, decisions)
    results = trailing_results(request.items)
    if results is None:
        return None
    try:
        model = service.catalogue.find(request.model, by).name
        choice = NO_TOOL if request.tool_choice == "none" else read_tool_choice(request)[1]
        back = await find_tool_resumption(service.store, service.journal, by, [results], model, options, choice)
    except ApiError as problem:
        said = problem.message.replace("messages:", "input:")
        raise ApiError(problem.status, said, problem.code, param="input") from None
    if back is None:
        return await _answered_before(service, by, results)
    kept = stored_request(back.served)
    if kept is None or not _asks_the_same(kept.request, request) or not _names_run(request, back.served):
        return None
    events = await service.journal.read(back.served.run)
    before = len(response_turns(events[: back.after + 1], approves=kept.approves))
    return ResumedRun(back.served, before, () if back.answer is None else (back.answer,))


async def submit_answers(service: RunService, resumed: ResumedRun) -> None:
    """Record the answers, and resume the run once all are there."""
    *first, last = resumed.answers or (None,)
    for answer in first:
        if answer is not None:
            service.recorder.add(answer)
    if last is not None:
        await service.answer(last)
        answers = (await service.read_run(last.run)).answers
        for said in resumed.answers:
            kept = answers.get(said.question)
            if kept is None or (kept.approved, kept.text) != (said.approved, said.text):
                raise ApiError(
                    409, "somebody else was quicker, and said something else", "question_answered", param="input"
                )


async def _answered_before(service: RunService, by: Principal, results: ToolExchange) -> ResumedRun | None:
    """Return the response that an earlier request with the same results resumed, if there is one."""
    found = _CALL_ID.match(results.calls[0].id)
    served = None if found is None else await service.store.find(found[1])
    kept = None if served is None or not by.owns(served.tenant) else stored_request(served)
    if served is None or kept is None:
        return None
    events = await service.journal.read(served.run)
    run, came = Run.fold(events), {result.tool_call_id: result.content for result in results.results}
    for leg in response_turns(events, approves=kept.approves):
        if any(_given_results(run, asked) == came for asked in leg.waits):
            return ResumedRun(served, leg.number + 1, ())
    return None


def _given_results(run: Run, asked: QuestionAsked) -> dict[str, str] | None:
    """Return what a client answered to a question for its tools, under its own ids."""
    answer = run.answers.get(asked.question)
    if answer is None or asked.asks is not QuestionKind.TOOLS:
        return None
    results = load_tool_results(answer.text, load_tool_calls(asked.prompt))
    return {call.id: each.content for call, each in zip(client_tool_calls(asked), results, strict=True)}


async def _resume_by_decisions(service: RunService, by: Principal, decisions: Sequence[ApprovalResponse]) -> ResumedRun:
    places = [read_approval_id(item.approval_request_id) for item in decisions]
    runs = {place[0] for place in places if place is not None}
    if None in places or len(runs) != 1:
        raise _approval_not_found()
    try:
        served = await service.find_served(runs.pop())
        events = await service.journal.read(served.run)
    except UnknownRun:
        raise _approval_not_found() from None
    kept = stored_request(served)
    if kept is None or not by.owns(served.tenant):
        raise _approval_not_found()
    if not by.may(KeyScope.APPROVE):
        raise ApiError(403, f"the key {by.name!r} lacks the scope 'approve'", "missing_scope")
    run, questions = Run.fold(events), [place[1] for place in places if place is not None]
    open_now = [PersonQuestion(served, run, run.asked[name]) if name in run.asked else None for name in questions]
    answers = [
        await _decision_event(service, asking, item, by) for asking, item in zip(open_now, decisions, strict=True)
    ]
    fresh = tuple(answer for answer in answers if answer is not None)
    ended = response_turns(events, approves=kept.approves)
    number = next((leg.number for leg in ended for asked in leg.waits if asked.question in questions), None)
    if number is None:
        raise _approval_not_found()
    return ResumedRun(served, number + 1, fresh)


async def _decision_event(
    service: RunService, asking: PersonQuestion | None, item: ApprovalResponse, by: Principal
) -> QuestionAnswered | None:
    """Return a decision as the journal is to have it; None when it was decided so already."""
    if asking is None or asking.asked.asks is not QuestionKind.APPROVE:
        raise _approval_not_found()
    before = asking.run.answers.get(asking.asked.question)
    if before is not None and before.approved == item.approve:
        return None
    said = Decision(item.approve, by.actor, via=VIA_API, remark=item.reason or "")
    try:
        return await check_decision(service, by, asking, said)
    except ApiError as problem:
        problem.param = "input"
        raise


def _approval_not_found() -> ApiError:
    return ApiError(404, "no such request for approval waits here", "approval_not_found", param="input")


def _asks_the_same(kept: ResponseRequest, request: ResponseRequest) -> bool:
    """Whether a request asks for nothing else than what its run does."""
    for name in _FIXED_FIELDS:
        wanted = getattr(request, name)
        if wanted is not None and wanted != getattr(kept, name):
            return False
    effort = request.reasoning.effort if request.reasoning else None
    return effort is None or effort == (kept.reasoning.effort if kept.reasoning else None)


def _names_run(request: ResponseRequest, served: ServedRun) -> bool:
    """Whether the previous response, if one is named, is of this run."""
    if request.previous_response_id is None:
        return True
    place = read_response_id(request.previous_response_id)
    return place is not None and place[0] == served.run


def request_to_store(request: ResponseRequest, by: Principal, options: RequestOptions) -> StoredRequest:
    """Return what is kept of a request."""
    body = request.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude={"stream", "stream_options"})
    request = ResponseRequest.model_validate(body)
    return StoredRequest(
        request=request,
        approves=by.may(KeyScope.APPROVE),
        progress=request.progress or options.progress,
        detail=options.detail,
    )


router = APIRouter(prefix="/v1/responses", tags=["responses"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]
ReaderPrincipal = Annotated[Principal, Depends(require_reader)]
ResponseId = Annotated[str, Path(min_length=1, max_length=256)]
_RESPONSE_DOC: dict[int | str, dict[str, object]] = {
    200: {"model": ResponseObject, "content": {"text/event-stream": SSE_CONTENT}}
}


@router.post(
    "",
    summary="Create a response",
    openapi_extra=request_body_doc(ResponseRequest),
    responses={**error_responses(402, 404, 409, 502, 504), **_RESPONSE_DOC},
)
async def create_response(request: Request, by: RunPrincipal) -> Response:
    """Create the next message of a conversation: a conductor plans, and workers of the pool perform."""
    service: RunService = request.app.state.service
    raw = await read_json(request, lambda raw: check_schema_sizes(raw, Api.RESPONSES))
    refuse = service.settings.unknown == "refuse"
    foreign = _drop_foreign(raw, refuse=refuse)
    asked, unknown = validate_known(raw, ResponseRequest, refuse=refuse)
    made = await _ResponseStart(
        service, by, asked, read_request_options(request.headers), read_idempotency_key(request.headers)
    ).begun()
    made.headers = ignored_header([*foreign, *unknown], service.container.secret_store.scrub)
    headers = {**made.headers, **started_headers(made.run)}
    if asked.stream:
        told = stream_until_revoked(revocation_check(request, require_scope(KeyScope.RUN), made.refused), made.stream())
        return streams.event_stream(told, headers, made.gone, stream_grace(service))
    if asked.background:
        return _json_response(await made.now(), headers)
    return await run_unless_disconnected(request, made.answer(), made.gone)


def _drop_foreign(raw: dict[str, object], *, refuse: bool) -> list[str]:
    """Leave out tools and items that are unknown here, unless such requests are refused; return their places."""
    if refuse:
        return []
    return [
        *drop_foreign(raw.get("tools"), "tools", TOOL_TYPES),
        *drop_foreign(raw.get("input"), "input", {*ITEM_TYPES, *REFUSED_ITEMS}),
    ]


@router.get("/{response_id}", summary="Retrieve a response", responses={**error_responses(404), **_RESPONSE_DOC})
async def read_response(
    request: Request,
    response_id: ResponseId,
    by: ReaderPrincipal,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=-1)] = None,
) -> Response:
    """Return a response in its current state, or its stream after the event `starting_after`."""
    service: RunService = request.app.state.service
    found = await find_response(service, by, response_id)
    if starting_after is not None and not stream:
        raise ApiError(400, "starting_after: only with stream=true", "invalid_value", param="starting_after")
    headers = started_headers(found.served.run)
    if stream:
        made = deliver_response(service, found, -1 if starting_after is None else starting_after)
        told = stream_until_revoked(
            revocation_check(request, require_reader, made.refused), limit_stream(request, by, made.stream())
        )
        return streams.event_stream(told, headers, grace=stream_grace(service))
    return _json_response(await deliver_response(service, found).now(), headers)


@router.delete("/{response_id}", summary="Delete a response", responses=error_responses(404))
async def delete_response(request: Request, response_id: ResponseId, by: RunPrincipal) -> DeletedResponse:
    """Delete all responses of a run, and cancel the run if it is in progress. The journal keeps it for audit."""
    service: RunService = request.app.state.service
    found = await find_response(service, by, response_id)
    await forget_response(service, found)
    return DeletedResponse(id=response_id)


@router.post(
    "/{response_id}/cancel",
    summary="Cancel a background response",
    responses={**error_responses(404, 409), 200: {"model": ResponseObject}},
)
async def cancel_response(request: Request, response_id: ResponseId, by: RunPrincipal) -> Response:
    """Cancel a response that was created with `background`. A response that has ended stays unchanged."""
    service: RunService = request.app.state.service
    found = await find_response(service, by, response_id)
    if not found.served.detached:
        said = f"response {response_id} was not ordered in the background: it ends when its client leaves"
        raise ApiError(409, said, "not_in_background")
    await service.cancel(found.served.run)
    return _json_response(await deliver_response(service, found).now(), started_headers(found.served.run))


@router.get("/{response_id}/input_items", summary="List the input items of a response", responses=error_responses(404))
async def list_input_items(
    request: Request,
    response_id: ResponseId,
    by: ReaderPrincipal,
    after: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Sorting = Sorting.DESC,
) -> InputItemList:
    """Return a page of the items that a response was created from."""
    return input_page(await find_response(request.app.state.service, by, response_id), after, limit, order)


@dataclass(frozen=True, slots=True)
class _ResponseStart:
    """A request that has been read: who asks what, of which service, within which limits, under which key of theirs."""

    service: RunService
    by: Principal
    asked: ResponseRequest
    options: RequestOptions
    key: str | None

    async def begun(self) -> ResponseDelivery:
        """Start a run, or resume the one that waits for the answers in the request."""
        if self.asked.background and self.asked.store is False:
            raise ApiError(
                400, "store: a background response is fetched later, so it is stored", "invalid_value", param="store"
            )
        back = await find_resumed_run(self.service, self.by, self.asked, self.options)
        if back is not None:
            await submit_answers(self.service, back)
            made = deliver_response(self.service, await self._found(back.served.run, back.leg))
            made.own = bool(back.answers)
            return made
        return await self._ordered()

    async def _ordered(self) -> ResponseDelivery:
        service, order = self.service, await self._order()
        found = await start_once(service, order)
        live = service.live(found.run) if found.fresh else None
        if live is None:
            return deliver_response(service, await self._found(found.run, 0))
        served = new_served_run(found.run, order, live.events[0].at)
        kept = StoredRequest.model_validate_json(order.wire)
        made = deliver_response(
            service, response_at_turn(served, kept, tuple(live.events), 0)
        )  # at once: what is said now is heard
        made.own = True
        return made

    async def _order(self) -> AuthorizedRun:
        service, asked = self.service, self.asked
        kept = request_to_store(asked, self.by, self.options)
        named = {"user": asked.user, "safety_identifier": asked.safety_identifier}
        metadata = {name: value for name, value in named.items() if value is not None} | dict(asked.metadata or {})
        if service.turn_router is not None and asked.prompt_cache_key:  # Codex names its conversation so
            metadata.setdefault("session", asked.prompt_cache_key)
        requested = RequestedRun(
            service.catalogue.find(asked.model, self.by).name,
            await self._task(),
            Api.RESPONSES,
            self.options,
            kept.dumped(),
            bool(asked.background),
            self.key,
            metadata,
        )
        return service.authorizer.authorize(requested, self.by)

    async def _task(self) -> Task:
        """Return the task, with the conversation that it continues and its labels."""
        task = await self._after(self.asked.previous_response_id)
        await check_schemas(task, Api.RESPONSES)
        return task

    async def _after(self, name: str | None) -> Task:
        if name is None:
            return task_from_response(self.asked)
        found = await find_response(self.service, self.by, name, "previous_response_id")
        if not found.last:
            said = f"previous_response_id: {name} was gone on with already"
            raise ApiError(409, said, "response_continued", param="previous_response_id")
        if build_response(found).standing is None:
            said = f"previous_response_id: {name} is still in progress"
            raise ApiError(409, said, "response_in_progress", param="previous_response_id")
        before = conversation_of_run(found.run, instructed=bool(found.kept.request.instructions))
        return replace(task_from_response(self.asked, before), labels=tuple(sorted(found.labels)))

    async def _found(self, run: str, leg: int) -> StoredResponse:
        """Return the response of a run that is ours, whether or not it is to be found later."""
        served = await self.service.find_served(run)
        kept = stored_request(served)
        if kept is None:
            raise ApiError(404, f"there is no response of run {run}", "response_not_found")
        return response_at_turn(served, kept, await self.service.journal.read(run), leg)


def _json_response(response: ResponseObject, headers: dict[str, str]) -> JSONResponse:
    return JSONResponse(response.model_dump(mode="json", by_alias=True), headers=headers)
