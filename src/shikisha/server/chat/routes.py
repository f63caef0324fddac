"""`POST /v1/chat/completions`: read, validate, and write what `completion` finds as OpenAI's clients read it.

Invariant: in a stream every chunk has the same id and model: first the role, then deltas, then the finish reason, then
the usage if the client asked for it, then `[DONE]`; an error after the first chunk is sent in the stream.
"""

import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.messages import NO_TOOL, ToolCall, encode_ascii_json, encode_json
from shikisha.server.chat.completion import (
    FINISH_LENGTH,
    FINISH_STOP,
    AssistantMessage,
    CompletionEnd,
    CompletionRequest,
    RunCompletion,
    leave_several,
    start_several,
    whole_response,
)
from shikisha.server.chat.conversation import task_from_chat
from shikisha.server.chat.schema import ChatRequest, check_supported
from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import require_reader, require_scope
from shikisha.server.http.connections import CONNECTION
from shikisha.server.http.request import (
    drop_foreign,
    ignored_header,
    parse_json,
    read_json,
    read_request_options,
    refuse_session,
    request_body_doc,
    validate_known,
)
from shikisha.server.http.run_result import (
    NO_RETRY,
    RunAnswer,
    UsageFields,
    answer_or_error,
    finished_headers,
    run_usage,
    started_headers,
)
from shikisha.server.http.streams import (
    DONE_EVENT,
    event_stream,
    merge_streams,
    run_unless_disconnected,
    sse_data,
    stream_grace,
)
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, check_schema_sizes, check_schemas
from shikisha.server.lifecycle.service import RunService, read_idempotency_key

_require_run_scope = require_scope(KeyScope.RUN)
RunPrincipal = Annotated[Principal, Depends(_require_run_scope)]


class _DirectRoute(APIRoute):
    """A route that calls its endpoint directly, and is documented like any other.

    FastAPI's own handling of dependencies costs as much per request as the rest of the front end.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """Return the request handler."""
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            response: Response = await endpoint(request, await _require_run_scope(request))
            return response

        return answer


router = APIRouter(tags=["chat"], route_class=_DirectRoute)
stored_router = APIRouter(tags=["chat"])
ReaderPrincipal = Annotated[Principal, Depends(require_reader)]
_STORED = '{"store": true}'  # what is kept of a request whose completion may be retrieved
_MAX_ID = 80
_CHAT_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "description": "A chat completion, or its chunks if `stream` is true",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["id", "choices", "model", "usage"]}},
            "text/event-stream": SSE_CONTENT,
        },
    }
}


@router.post(
    "/v1/chat/completions",
    summary="Create a chat completion",
    responses={**error_responses(402, 404, 409, 502, 504), **_CHAT_RESPONSES},
    openapi_extra=request_body_doc(ChatRequest),
)
async def create_chat_completion(request: Request, by: RunPrincipal) -> Response:
    """Create the next message of a conversation: a conductor plans, and workers of the pool perform."""
    service: RunService = request.app.state.service
    raw = sent = await read_json(request, lambda raw: check_schema_sizes(raw, Api.CHAT))
    refuse = service.settings.unknown == "refuse"
    foreign = [] if refuse else drop_foreign(raw.get("tools"), "tools", {"function"})
    check_supported(raw)
    body, unknown = validate_known(raw, ChatRequest, refuse=refuse)
    options, idempotency = read_request_options(request.headers), read_idempotency_key(request.headers)
    if foreign or unknown:  # they were taken out of the body
        sent = parse_json(await request.body())
    task = task_from_chat(body, sent)
    await check_schemas(task, Api.CHAT)
    wanted = CompletionRequest(
        service,
        by,
        body.model,
        task,
        options,
        stream=bool(body.stream),
        idempotency=idempotency,
        metadata=_metadata(body),
        tool_choice=NO_TOOL if body.tool_choice == "none" else task.tool_choice,
        wire=_STORED if body.store else "{}",
    )
    ignored = ignored_header([*foreign, *unknown], service.container.secret_store.scrub)
    if (body.n or 1) > 1:
        return await _several_choices(request, wanted, body, ignored)
    completion = await wanted.start(request.scope.get(CONNECTION))
    chat = ChatCompletion(completion, _usage_wanted(body), ignored)
    if body.stream:
        headers = {**ignored, **started_headers(completion.run)}
        return event_stream(chat.stream(), headers, completion.on_disconnect, stream_grace(service))
    if completion.ended is not None:
        return await chat.whole()
    return await run_unless_disconnected(request, chat.whole(), completion.on_disconnect)


@stored_router.get(
    "/v1/chat/completions/{completion_id}", summary="Retrieve a stored chat completion", responses=error_responses(404)
)
async def read_chat_completion(request: Request, completion_id: str, by: ReaderPrincipal) -> dict[str, object]:
    """Return the completion of a run of this tenant that has ended, if its request said `store: true`."""
    service: RunService = request.app.state.service
    name = completion_id.removeprefix("chatcmpl-")
    served = await service.store.find(name) if len(name) < len(completion_id) <= _MAX_ID else None
    if served is not None and by.owns(served.tenant) and (served.api, served.wire) == (Api.CHAT, _STORED):
        run = await service.read_run(name)
        found = answer_or_error(run)
        if isinstance(found, RunAnswer):
            usage = run_usage(run, (await service.read_family(name)).values()).chat_fields()
            message = AssistantMessage(found.text, FINISH_LENGTH if found.cut else FINISH_STOP)
            return completion_body(CompletionHead(name, served.model, int(run.started.at)), message, usage, None)
    why = f"there is no stored completion {completion_id[:_MAX_ID]!r} that has ended with an answer"
    raise ApiError(404, why, "not_found", param="completion_id")


async def _several_choices(
    request: Request, wanted: CompletionRequest, body: ChatRequest, headers: Mapping[str, str]
) -> Response:
    """Perform as many runs, and return their answers as choices; where one cannot begin or fails, none is whole."""
    if body.store:
        raise ApiError(400, "store: expected n = 1: each choice is a run of its own", "invalid_value", param="store")
    refuse_session(wanted.options, "expected n = 1: each turn of a session has one answer")
    if wanted.task.exchanges:
        raise ApiError(400, "n: expected 1 with results of tools: they belong to one run", "invalid_value", param="n")
    keys = [wanted.idempotency and f"{wanted.idempotency}#{place}" for place in range(body.n or 1)]
    runs = await start_several([replace(wanted, idempotency=key) for key in keys])
    leave = partial(leave_several, runs)
    if body.stream:
        headers = {**headers, **started_headers(runs[0].run)}
        events = _stream_choices(runs, usage_wanted=_usage_wanted(body))
        return event_stream(events, headers, leave, stream_grace(wanted.service))
    return await run_unless_disconnected(request, _all_choices(runs, headers), leave)


async def _stream_choices(runs: Sequence[RunCompletion], *, usage_wanted: bool) -> AsyncGenerator[bytes]:
    """Yield the chunks of all choices as they come, up to the one end marker: of the last choice, or after an error."""
    head, ends = ChatCompletion(runs[0], usage_wanted, {}).head, list[CompletionEnd]()
    writers = [
        ChunkWriter(head, usage_wanted=usage_wanted, index=place, choices=len(runs), ends=ends)
        for place in range(len(runs))
    ]
    merged = merge_streams([run.stream(writer) for run, writer in zip(runs, writers, strict=True)])
    async with aclosing(merged):
        async for sent in merged:
            yield sent
            if sent == DONE_EVENT:
                break
    await leave_several(runs)


def _usage_wanted(body: ChatRequest) -> bool:
    return bool(body.stream_options and body.stream_options.include_usage)


async def _all_choices(runs: Sequence[RunCompletion], headers: Mapping[str, str]) -> JSONResponse:
    def body(ends: Sequence[CompletionEnd]) -> dict[str, object]:
        choices = [
            {**_choice_fields(ended.message, place), "run": run.run}
            for place, (run, ended) in enumerate(zip(runs, ends, strict=True))
        ]
        return {**ChatCompletion(runs[0], usage_wanted=False, headers={}).body(ends[0]), "choices": choices}

    return await whole_response(runs, headers, body)


@dataclass(frozen=True, slots=True)
class DirectHandler:
    """A route, and what answers it without the router."""

    route: APIRoute
    answer: Callable[[Request], Coroutine[None, None, Response]]


def direct_routes() -> dict[str, DirectHandler]:
    """Return the routes that can be answered without the router, by path."""
    own = [route for route in router.routes if isinstance(route, _DirectRoute)]
    return {route.path: DirectHandler(route, route.get_route_handler()) for route in own}


def _metadata(body: ChatRequest) -> Mapping[str, str]:
    named = {"user": body.user, "safety_identifier": body.safety_identifier}
    return {name: value for name, value in named.items() if value is not None} | dict(body.metadata or {})


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """The completion of a chat request.

    `usage_wanted`: its stream ends with a usage chunk; `headers` go with the run's.
    """

    completion: RunCompletion
    usage_wanted: bool
    headers: Mapping[str, str]

    @property
    def head(self) -> "CompletionHead":
        """What all chunks share."""
        return CompletionHead(self.completion.run, self.completion.model, self.completion.created)

    async def whole(self) -> Response:
        """Wait for the run, and return the completion or the error."""
        ended, run = await self.completion.whole(), self.completion.run
        headers = {**self.headers, **finished_headers(run, ended.usage)}
        if (error := ended.error) is not None:
            body = {**error.body(), "run": run} | ({} if ended.metadata is None else {"shikisha": ended.metadata})
            return JSONResponse(body, error.status, {**error.headers(), **NO_RETRY, **headers})
        return Response(encode_json(self.body(ended)), headers=headers, media_type="application/json")

    def body(self, ended: CompletionEnd) -> dict[str, object]:
        """Return the body of a completion that has ended well."""
        return completion_body(self.head, ended.message, ended.usage.chat_fields(), ended.metadata)

    def stream(self) -> AsyncGenerator[bytes]:
        """Yield the chunks of the stream."""
        return self.completion.stream(ChunkWriter(self.head, usage_wanted=self.usage_wanted))


@dataclass(frozen=True, slots=True)
class CompletionHead:
    """What all chunks of a completion share."""

    run: str
    model: str
    created: int

    @property
    def id(self) -> str:
        """The completion's id, which names its run."""
        return f"chatcmpl-{self.run}"


def completion_body(
    head: CompletionHead, message: AssistantMessage, usage: UsageFields, metadata: object
) -> dict[str, object]:
    """Return the body of a whole completion."""
    body: dict[str, object] = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [_choice_fields(message)],
        "usage": usage,
    }
    return body if metadata is None else body | {"shikisha": metadata}


def _choice_fields(message: AssistantMessage, index: int = 0) -> dict[str, object]:
    fields: dict[str, object] = {
        "role": "assistant",
        "content": message.text if message.text or not message.calls else None,
        "refusal": None,
    }
    if message.notes:
        fields["reasoning_content"] = "\n".join(message.notes)
    if message.calls:
        fields["tool_calls"] = _tool_call_fields(message.calls)
    return {"index": index, "message": fields, "logprobs": None, "finish_reason": message.finish}


class ChunkWriter:
    """Writes the chunks of one choice; the last choice to end, of so many with the same `ends`, ends the stream."""

    def __init__(
        self,
        head: CompletionHead,
        *,
        usage_wanted: bool = False,
        index: int = 0,
        choices: int = 1,
        ends: list[CompletionEnd] | None = None,
    ) -> None:
        names = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model}
        # The members that all chunks share are serialized once; the closing brace is left open.
        self._open = f"data: {json.dumps(names, separators=(',', ':'))[:-1]}"
        self._run, self._usage_wanted = head.run, usage_wanted
        self._index, self._choices, self._ends = index, choices, [] if ends is None else ends

    def begin(self) -> Iterable[bytes]:
        """Return the role chunk."""
        return (self._delta({"role": "assistant", "content": ""}),)

    def text(self, piece: str) -> Iterable[bytes]:
        """Return a piece of the answer."""
        return (self._delta({"content": piece}),)

    def note(self, line: str) -> Iterable[bytes]:
        """Return a line about the progress of the run."""
        return (self._delta({"reasoning_content": f"{line}\n"}),)

    def end(self, ended: CompletionEnd) -> Iterable[bytes]:
        """Return the calls of the client's tools, the finish reason, the usage if it is wanted, and the end marker."""
        if ended.message.calls:
            fields = [{"index": place, **call} for place, call in enumerate(_tool_call_fields(ended.message.calls))]
            yield self._delta({"tool_calls": fields})
        yield self._delta({}, ended.message.finish, {} if ended.metadata is None else {"shikisha": ended.metadata})
        self._ends.append(ended)
        if len(self._ends) < self._choices:
            return
        if self._usage_wanted:
            usage = sum((each.usage for each in self._ends[1:]), self._ends[0].usage)
            yield f'{self._open},"choices":[],"usage":{json.dumps(usage.chat_fields())}}}\n\n'.encode()
        yield DONE_EVENT

    def error(self, problem: ApiError) -> Iterable[bytes]:
        """Return the error and the end marker."""
        return (sse_data({**problem.body(), "run": self._run}), DONE_EVENT)

    def _delta(
        self, delta: dict[str, object], finish: str | None = None, more: dict[str, object] | None = None
    ) -> bytes:
        choice = {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": finish}
        rest = json.dumps(more, separators=(",", ":"))[1:-1] if more else ""
        written = encode_ascii_json(choice)
        return f'{self._open},"choices":[{written}]{"," + rest if rest else ""}}}\n\n'.encode()


def _tool_call_fields(calls: Sequence[ToolCall]) -> list[dict[str, object]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
