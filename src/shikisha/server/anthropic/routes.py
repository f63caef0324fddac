"""`POST /v1/messages` and `/v1/messages/count_tokens`, as Anthropic's SDKs and Claude Code speak it.

Invariants: as in `chat.completion`; in a stream come `message_start`, then for each content block its start, deltas and
stop, then `message_delta` with the stop reason and the whole usage, then `message_stop`; an error after the first event
is an `error` event. Every message has an id of its own, though a run that waits for its client's tools gives several.
Errors have Anthropic's shape (`http.api_errors`).
"""

import json
from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sse_starlette import ServerSentEvent

from shikisha.core.messages import NO_TOOL, ToolCall
from shikisha.server.anthropic.conversation import (
    estimate_tokens,
    read_anthropic_choice,
    task_from_messages,
)
from shikisha.server.anthropic.schema import BLOCK_TYPES, REFUSED_BLOCKS, TOOL_TYPES, MessagesRequest, TokenCountRequest
from shikisha.server.chat.completion import (
    FINISH_LENGTH,
    FINISH_STOP,
    FINISH_TOOL_CALLS,
    CompletionEnd,
    CompletionRequest,
    RunCompletion,
)
from shikisha.server.http.api_errors import SSE_CONTENT, AnthropicErrorBody, ApiError, anthropic_body, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.connections import CONNECTION
from shikisha.server.http.request import (
    drop_foreign,
    ignored_header,
    read_json,
    read_request_options,
    request_body_doc,
    validate_known,
)
from shikisha.server.http.run_result import NO_RETRY, RunUsage, finished_headers, started_headers
from shikisha.server.http.streams import event_stream, named_event, run_unless_disconnected, stream_grace
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, check_schema_sizes, check_schemas
from shikisha.server.lifecycle.service import RunService, read_idempotency_key

router = APIRouter(prefix="/v1/messages", tags=["messages"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]
_STOP_REASONS = {FINISH_STOP: "end_turn", FINISH_LENGTH: "max_tokens", FINISH_TOOL_CALLS: "tool_use"}
_PING = ServerSentEvent('{"type": "ping"}', event="ping", sep="\n")
_NOTES_SIGNATURE = "shikisha"  # of a thinking block that holds notes of ours
_MESSAGE_DOC: dict[int | str, dict[str, object]] = {
    200: {
        "description": "A message, or its events if `stream` is true",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["id", "type", "content", "usage"]}},
            "text/event-stream": SSE_CONTENT,
        },
    }
}


class TokenCount(BaseModel):
    """About how many tokens an input has."""

    input_tokens: int


@router.post(
    "",
    summary="Create a message",
    responses={**error_responses(402, 404, 409, 502, 504, model=AnthropicErrorBody), **_MESSAGE_DOC},
    openapi_extra=request_body_doc(MessagesRequest),
)
async def create_message(request: Request, by: RunPrincipal) -> Response:
    """Create the next message of a conversation: a conductor plans, and workers of the pool perform."""
    service: RunService = request.app.state.service
    raw = await read_json(request, lambda raw: check_schema_sizes(raw, Api.MESSAGES))
    refuse = service.settings.unknown == "refuse"
    foreign = _drop_foreign(raw, refuse=refuse)
    body, unknown = validate_known(raw, MessagesRequest, refuse=refuse)
    options, idempotency = read_request_options(request.headers), read_idempotency_key(request.headers)
    task, choice = task_from_messages(body), read_anthropic_choice(body)
    await check_schemas(task, Api.MESSAGES)
    user = body.metadata.user_id if body.metadata else None
    completion = await CompletionRequest(
        service,
        by,
        body.model,
        task,
        options,
        Api.MESSAGES,
        stream=bool(body.stream),
        idempotency=idempotency,
        metadata={} if user is None else {"user": user},
        tool_choice=NO_TOOL if choice == NO_TOOL else task.tool_choice,
    ).start(request.scope.get(CONNECTION))
    headers = ignored_header([*foreign, *unknown], service.container.secret_store.scrub)
    if body.stream:
        headers |= started_headers(completion.run)
        events = completion.stream(MessageWriter(completion))
        return event_stream(events, headers, completion.on_disconnect, stream_grace(service), _PING)
    return await run_unless_disconnected(request, _whole_message(completion, headers), completion.on_disconnect)


@router.post(
    "/count_tokens",
    summary="Estimate the tokens of a message's input",
    responses=error_responses(404, model=AnthropicErrorBody),
    openapi_extra=request_body_doc(TokenCountRequest),
)
async def count_tokens(request: Request, by: RunPrincipal, response: Response) -> TokenCount:
    """Return about how many tokens an input has. It is an estimate: each worker has a tokenizer of its own."""
    service: RunService = request.app.state.service
    raw = await read_json(request)
    refuse = service.settings.unknown == "refuse"
    foreign = _drop_foreign(raw, refuse=refuse)
    body, unknown = validate_known(raw, TokenCountRequest, refuse=refuse)
    service.catalogue.find(body.model, by)
    response.headers.update(ignored_header([*foreign, *unknown], service.container.secret_store.scrub))
    return TokenCount(input_tokens=estimate_tokens(body))


def _drop_foreign(raw: dict[str, object], *, refuse: bool) -> list[str]:
    """Leave out blocks and tools that only Anthropic knows, unless such requests are refused; return their places."""
    if refuse:
        return []
    dropped = drop_foreign(raw.get("tools"), "tools", TOOL_TYPES)
    messages = raw.get("messages")
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            dropped += drop_foreign(message.get("content"), f"messages[{place}].content", BLOCK_TYPES | REFUSED_BLOCKS)
    return dropped


async def _whole_message(completion: RunCompletion, headers: dict[str, str]) -> JSONResponse:
    """Wait for the run, and return the message or the error."""
    ended = await completion.whole()
    headers = {**headers, **finished_headers(completion.run, ended.usage)}
    if (error := ended.error) is not None:
        body = {**anthropic_body(error), "run": completion.run}
        body |= {} if ended.metadata is None else {"shikisha": ended.metadata}
        return JSONResponse(body, error.status, {**error.headers(), **NO_RETRY, **headers})
    return JSONResponse(message_body(completion, ended), headers=headers)


def message_body(completion: RunCompletion, ended: CompletionEnd) -> dict[str, object]:
    """Return the body of a whole message."""
    said = ended.message
    content: list[dict[str, object]] = []
    if said.notes:
        content.append({"type": "thinking", "thinking": "\n".join(said.notes), "signature": _NOTES_SIGNATURE})
    if said.text:
        content.append({"type": "text", "text": said.text})
    content += [{**_tool_use_block(call), "input": json.loads(call.arguments)} for call in said.calls]
    body = {
        **_message_head(completion),
        "content": content,
        "stop_reason": _STOP_REASONS[said.finish],
        "usage": usage_fields(ended.usage),
    }
    return body if ended.metadata is None else body | {"shikisha": ended.metadata}


def usage_fields(used: RunUsage) -> dict[str, object]:
    """Return the `usage` object: the final answer's tokens, and what all other calls of the run used besides."""
    answer, others = used.answer, used.others
    return {
        "input_tokens": answer.input_tokens - answer.cacheable_tokens,
        "cache_creation_input_tokens": answer.cache_write_tokens + answer.cache_write_1h_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "output_tokens": answer.output_tokens,
        "orchestration_input_tokens": others.input_tokens,
        "orchestration_output_tokens": others.output_tokens,
        "cost": used.dollars,
    }


def _message_head(completion: RunCompletion) -> dict[str, object]:
    return {
        "id": f"msg_{completion.run}_{completion.tracker.after + 1}",
        "type": "message",
        "role": "assistant",
        "model": completion.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _tool_use_block(call: ToolCall) -> dict[str, object]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


class MessageWriter:
    """Writes the events of one message. One content block is open at a time."""

    def __init__(self, completion: RunCompletion) -> None:
        self._head = _message_head(completion)
        self._run = completion.run
        self._index = -1
        self._open = ""  # the type of the block that is open

    def begin(self) -> Iterable[bytes]:
        """Return the start of the message; what it used is known at its end."""
        message = {**self._head, "usage": usage_fields(RunUsage())}
        yield named_event("message_start", {"type": "message_start", "message": message})
        yield _PING.encode()

    def text(self, piece: str) -> Iterable[bytes]:
        """Return a piece of the answer."""
        yield from self._block("text", {"type": "text", "text": ""})
        yield self._delta({"type": "text_delta", "text": piece})

    def note(self, line: str) -> Iterable[bytes]:
        """Return a line about the progress of the run, as thinking."""
        yield from self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        yield self._delta({"type": "thinking_delta", "thinking": f"{line}\n"})

    def end(self, ended: CompletionEnd) -> Iterable[bytes]:
        """Return the calls of the client's tools, the stop reason and the usage, and the end."""
        for call in ended.message.calls:
            yield from self._block("tool_use", _tool_use_block(call))
            yield self._delta({"type": "input_json_delta", "partial_json": call.arguments})
            yield from self._close()
        yield from self._close()
        delta = {"stop_reason": _STOP_REASONS[ended.message.finish], "stop_sequence": None}
        last = {"type": "message_delta", "delta": delta, "usage": usage_fields(ended.usage)}
        yield named_event("message_delta", last if ended.metadata is None else {**last, "shikisha": ended.metadata})
        yield named_event("message_stop", {"type": "message_stop"})

    def error(self, problem: ApiError) -> Iterable[bytes]:
        """Return the error."""
        yield named_event("error", {**anthropic_body(problem), "run": self._run})

    def _block(self, kind: str, block: dict[str, object]) -> Iterable[bytes]:
        """Open a block of this type, unless it is open; close the one before."""
        if self._open == kind and kind != "tool_use":
            return
        yield from self._close()
        self._index, self._open = self._index + 1, kind
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        yield named_event("content_block_start", start)

    def _close(self) -> Iterable[bytes]:
        if not self._open:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": _NOTES_SIGNATURE})
        self._open = ""
        yield named_event("content_block_stop", {"type": "content_block_stop", "index": self._index})

    def _delta(self, delta: dict[str, object]) -> bytes:
        event = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return named_event("content_block_delta", event)
