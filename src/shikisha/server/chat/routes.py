"""`POST /v1/chat/completions`, from top to bottom: read, validate, start or resume a run, and write the completion.

Invariants: whatever can be refused is refused before anything is started, reserved or charged. After that, a request
ends in a whole completion, an error, or a stream with its end marker. In a stream every chunk has the same id and
model: first the role, then deltas, then the finish reason, then the usage if the client asked for it, then `[DONE]`;
an error after the first chunk is sent in the stream. A run whose client disconnects is canceled.
"""

import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from shikisha.core.errors import ShikishaError
from shikisha.core.events import Event
from shikisha.core.messages import NO_TOOL, ToolCall
from shikisha.core.run import Run
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Pool
from shikisha.server.chat.conversation import task_from_chat
from shikisha.server.chat.schema import ChatRequest, check_supported
from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import RequestOptions, read_json, read_request_options, request_body_doc, validate_as
from shikisha.server.http.run_result import (
    NO_RETRY,
    RunAnswer,
    RunUsage,
    UsageFields,
    answer_or_error,
    api_error_of,
    finished_headers,
    run_metadata,
    run_usage,
    started_headers,
)
from shikisha.server.http.streams import DONE_EVENT, event_stream, run_unless_disconnected, sse_data, stream_grace
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, RequestedRun, check_schema_sizes, check_schemas
from shikisha.server.lifecycle.questions import ToolResumption, find_tool_resumption
from shikisha.server.lifecycle.run_progress import (
    AnswerPiece,
    AnswerReplaced,
    ProgressNote,
    ProgressTerms,
    ProgressTracker,
    ProgressUpdate,
    RunEnded,
    RunPausedUpdate,
    StillWaiting,
    ToolCallsNeeded,
    can_stream,
    streamable_workers,
    visible_run,
    wait_for_run,
)
from shikisha.server.lifecycle.service import RunService, read_idempotency_key, start_once

FINISH_STOP, FINISH_LENGTH, FINISH_TOOL_CALLS = "stop", "length", "tool_calls"
LastUpdate = ProgressUpdate | ToolCallsNeeded | StillWaiting | None
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
    raw = await read_json(request, lambda raw: check_schema_sizes(raw, Api.CHAT))
    check_supported(raw)
    body = validate_as(raw, ChatRequest)
    options, idempotency = read_request_options(request.headers), read_idempotency_key(request.headers)
    completion = await _ChatStart(service, by, body, options, idempotency).start()
    if body.stream:
        headers = started_headers(completion.run)
        return event_stream(completion.stream(), headers, completion.on_disconnect, stream_grace(service))
    return await run_unless_disconnected(request, completion.complete(), completion.on_disconnect)


@dataclass(frozen=True, slots=True)
class _ChatStart:
    """A validated request, and what it takes to start or resume its run."""

    service: RunService
    by: Principal
    body: ChatRequest
    options: RequestOptions
    idempotency: str | None

    async def start(self) -> "ChatCompletion":
        """Start a run, or resume the one that waits for the tool results in the request."""
        service, task = self.service, task_from_chat(self.body)
        await check_schemas(task, Api.CHAT)
        model = service.catalogue.find(self.body.model, self.by)
        if task.exchanges:
            choice = NO_TOOL if self.body.tool_choice == "none" else task.tool_choice
            resumption = await find_tool_resumption(service, self.by, task.exchanges, model.name, self.options, choice)
            if resumption is not None:
                return await self._resume(resumption)
        named = {"user": self.body.user, "safety_identifier": self.body.safety_identifier}
        metadata = {name: value for name, value in named.items() if value is not None} | dict(self.body.metadata or {})
        requested = RequestedRun(
            model.name, task, Api.CHAT, self.options, idempotency=self.idempotency, metadata=metadata
        )
        order = service.authorizer.authorize(requested, self.by)
        started = await start_once(service, order)
        live = service.live(started.run)
        events = live.events if live is not None else await service.journal.read(started.run)
        completion = self._completion(events, order.model, service.cast(order.conductor, order.pool), -1)
        completion.owned = started.fresh
        return completion

    async def _resume(self, resumption: ToolResumption) -> "ChatCompletion":
        """Record the tool results, and follow the run from there on."""
        service, served = self.service, resumption.served
        events = await service.journal.read(served.run)
        past = Run.fold(events[: resumption.after + 1])
        cast = service.cast(served.conductor, past.started.pool)
        completion = self._completion(events, served.model, cast, resumption.after)
        family = (await service.read_family(served.run)).values() if completion.nested else ()
        completion.before = run_usage(past, family)
        if resumption.answer is not None:
            await service.answer(resumption.answer)
        return completion

    def _completion(
        self, events: Sequence[Event], model: str, cast: tuple[Pool, Conductor], after: int
    ) -> "ChatCompletion":
        (pool, conductor), body = cast, self.body
        run = Run.fold(events[:1])
        live = bool(body.stream) and can_stream(run.task, conductor, self.service.container.autonomy_policy())
        terms = ProgressTerms(run.started.caps.rounds, streamable_workers(pool), live)
        head = CompletionHead(run.id, model, int(run.started.at))
        completion = ChatCompletion(self.service, head, ProgressTracker(terms, after), self.options)
        completion.nested = any(card.kind == "conductor" for card in pool.cards)
        completion.usage_wanted = bool(body.stream_options and body.stream_options.include_usage)
        return completion


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


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """The assistant's message and its finish reason."""

    text: str
    finish: str = FINISH_STOP
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


@dataclass(slots=True)
class ChatCompletion:
    """A completion in progress.

    `before` is the usage of earlier completions of its run; `nested`: the run may have child runs; `owned`: this
    request started the run, and not an earlier one with the same idempotency key.
    """

    service: RunService
    head: CompletionHead
    tracker: ProgressTracker
    options: RequestOptions
    nested: bool = False
    owned: bool = True
    usage_wanted: bool = False
    before: RunUsage = field(default_factory=RunUsage)
    done: bool = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self.head.run

    async def on_disconnect(self) -> None:
        """Cancel the run, since its client has left."""
        if self.owned and not self.done:
            await self.service.cancel(self.run)

    async def complete(self) -> JSONResponse:
        """Wait for the run, and return the completion or the error."""
        text, notes, last = "", list[str](), None
        async for update in wait_for_run(self.service, self.run, self.tracker, self.service.settings.approval_wait):
            match update:
                case AnswerPiece():
                    text += update.text
                case ProgressNote():
                    notes.append(update.line)
                case _:
                    last = update
        self.done = True
        run, usage = await self._result()
        headers, metadata = finished_headers(self.run, usage), self._metadata(run)
        if (error := self._error(last, run)) is not None:
            body = {**error.body(), "run": self.run} | ({} if metadata is None else {"shikisha": metadata})
            return JSONResponse(body, error.status, {**error.headers(), **NO_RETRY, **headers})
        reasoning = "\n".join(notes) if self.options.progress else ""
        message = _assistant_message(last, run, text, reasoning)
        return JSONResponse(completion_body(self.head, message, usage.chat_fields(), metadata), headers=headers)

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the chunks of the stream."""
        chunks, last = ChunkWriter(self.head), None
        yield chunks.role()
        try:
            async for update in wait_for_run(self.service, self.run, self.tracker, self.service.settings.approval_wait):
                match update:
                    case AnswerPiece():
                        yield chunks.text(update.text)
                    case ProgressNote():
                        if self.options.progress:
                            yield chunks.reasoning(update.line)
                    case _:
                        last = update
            run, usage = await self._result()
            error = self._error(last, run)
        except ApiError as raised:
            error = raised
        except ShikishaError as raised:
            error = api_error_of(raised)
        self.done = True
        if error is not None:
            yield sse_data({**error.body(), "run": self.run})
            yield DONE_EVENT
            return
        sent = self.tracker.text
        message = _assistant_message(last, run, sent)
        if len(message.text) > len(sent):
            yield chunks.text(message.text[len(sent) :])
        if message.calls:
            yield chunks.calls(message.calls)
        yield chunks.finish(message.finish, self._metadata(run))
        if self.usage_wanted:
            yield chunks.usage(usage.chat_fields())
        yield DONE_EVENT

    def _error(self, last: LastUpdate, run: Run) -> ApiError | None:
        """Return why there is no answer to send; None when there is one."""
        match last:
            case ToolCallsNeeded():
                return None
            case AnswerReplaced():
                said = f"run {self.run}: the streamed text is not the answer, since a later attempt replaced it"
                return ApiError(502, f"{said}; the run has the answer", "answer_replaced")
            case StillWaiting(suspended=True):
                return self.service.approval_required(self.run)
            case RunEnded() | RunPausedUpdate():
                found = answer_or_error(run)
                if not isinstance(found, ApiError):
                    return None if found.text.startswith(self.tracker.text) else self._error(AnswerReplaced(), run)
                if not (isinstance(last, RunPausedUpdate) and self.service.closing):
                    return found
            case _:
                pass
        said = f"run {self.run} is interrupted, and will be resumed"
        return ApiError(503, said, "run_interrupted", wait=self.service.settings.drain)

    async def _result(self) -> tuple[Run, RunUsage]:
        """Return the run as it stands, and the usage since the previous completion of the run."""
        run = Run.fold(self.tracker.events)
        family = (await self.service.read_family(self.run)).values() if self.nested else ()
        return run, run_usage(run, family).less(self.before)

    def _metadata(self, run: Run) -> object:
        visible = visible_run(run, self.tracker.events, self.service.container.autonomy_policy())
        return run_metadata(visible, self.options.detail, self.service.settings.url)


def _assistant_message(last: LastUpdate, run: Run, text: str, reasoning: str = "") -> AssistantMessage:
    """Return the message, given the text sent so far and the last update of the run."""
    if isinstance(last, ToolCallsNeeded):
        return AssistantMessage(text, FINISH_TOOL_CALLS, last.calls, reasoning)
    found = answer_or_error(run)
    if isinstance(found, RunAnswer) and found.cut:
        return AssistantMessage(found.text, FINISH_LENGTH, reasoning=reasoning)
    return AssistantMessage(text, FINISH_STOP, reasoning=reasoning)


def completion_body(
    head: CompletionHead, message: AssistantMessage, usage: UsageFields, metadata: object
) -> dict[str, object]:
    """Return the body of a whole completion."""
    fields: dict[str, object] = {
        "role": "assistant",
        "content": message.text if message.text or not message.calls else None,
        "refusal": None,
    }
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.calls:
        fields["tool_calls"] = _tool_call_fields(message.calls)
    body: dict[str, object] = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "message": fields, "logprobs": None, "finish_reason": message.finish}],
        "usage": usage,
    }
    return body if metadata is None else body | {"shikisha": metadata}


class ChunkWriter:
    """Writes the chunks of one completion."""

    def __init__(self, head: CompletionHead) -> None:
        names = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model}
        # The members that all chunks share are serialized once; the closing brace is left open.
        self._open = f"data: {json.dumps(names, separators=(',', ':'))[:-1]}"

    def role(self) -> bytes:
        """Return the first chunk."""
        return self._delta({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """Return a piece of the answer."""
        return self._delta({"content": piece})

    def reasoning(self, line: str) -> bytes:
        """Return a line about the progress of the run."""
        return self._delta({"reasoning_content": f"{line}\n"})

    def calls(self, calls: Sequence[ToolCall]) -> bytes:
        """Return the calls of the client's tools."""
        fields = [{"index": place, **call} for place, call in enumerate(_tool_call_fields(calls))]
        return self._delta({"tool_calls": fields})

    def finish(self, reason: str, metadata: object = None) -> bytes:
        """Return the chunk with the finish reason."""
        return self._delta({}, reason, {} if metadata is None else {"shikisha": metadata})

    def usage(self, usage: UsageFields) -> bytes:
        """Return the chunk with the usage."""
        return f'{self._open},"choices":[],"usage":{json.dumps(usage)}}}\n\n'.encode()

    def _delta(
        self, delta: dict[str, object], finish: str | None = None, more: dict[str, object] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        rest = json.dumps(more, separators=(",", ":"))[1:-1] if more else ""
        written = json.dumps(choice, separators=(",", ":"))
        return f'{self._open},"choices":[{written}]{"," + rest if rest else ""}}}\n\n'.encode()


def _tool_call_fields(calls: Sequence[ToolCall]) -> list[dict[str, object]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
