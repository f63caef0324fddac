"""`POST /v1/completions`, OpenAI's legacy API: the prompt is a task, which is answered and not gone on with.

For clients that know nothing newer. Invariants: as in `completion`; what only a model's own text can have (`suffix`,
`echo`, `logprobs`, `best_of`) is refused by name.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from shikisha.core.messages import Json
from shikisha.core.task import Task
from shikisha.server.chat.completion import CompletionEnd, CompletionRequest, RunCompletion
from shikisha.server.chat.schema import ChatStreamOptions
from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import (
    RequestModel,
    ignored_header,
    read_json,
    read_request_options,
    request_body_doc,
    validate_known,
)
from shikisha.server.http.run_result import NO_RETRY, finished_headers, started_headers
from shikisha.server.http.streams import DONE_EVENT, event_stream, run_unless_disconnected, sse_data, stream_grace
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api
from shikisha.server.lifecycle.service import RunService, read_idempotency_key

router = APIRouter(tags=["chat"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]
_LEGACY_DOC: dict[int | str, dict[str, object]] = {
    200: {
        "description": "A text completion, or its chunks if `stream` is true",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["id", "choices", "model", "usage"]}},
            "text/event-stream": SSE_CONTENT,
        },
    }
}
PromptText = Annotated[str, Field(min_length=1)]


class TextCompletionRequest(RequestModel):
    """The body of `POST /v1/completions`."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    prompt: PromptText | Annotated[list[PromptText], Field(min_length=1, max_length=1)]
    max_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    n: Literal[1] | None = None
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    logprobs: None = None
    suffix: None = None
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None


@router.post(
    "/v1/completions",
    summary="Create a text completion (legacy)",
    responses={**error_responses(402, 404, 409, 502, 504), **_LEGACY_DOC},
    openapi_extra=request_body_doc(TextCompletionRequest),
)
async def create_text_completion(request: Request, by: RunPrincipal) -> Response:
    """Answer a prompt: a conductor plans, and workers of the pool perform."""
    service: RunService = request.app.state.service
    raw = await read_json(request)
    body, unknown = validate_known(raw, TextCompletionRequest, refuse=service.settings.unknown == "refuse")
    completion = await CompletionRequest(
        service,
        by,
        body.model,
        Task(body.prompt if isinstance(body.prompt, str) else body.prompt[0], options=_options(body)),
        read_request_options(request.headers),
        Api.COMPLETIONS,
        stream=bool(body.stream),
        idempotency=read_idempotency_key(request.headers),
        metadata={} if body.user is None else {"user": body.user},
    ).start()
    headers = ignored_header(unknown, service.container.secret_store.scrub)
    if body.stream:
        wanted = bool(body.stream_options and body.stream_options.include_usage)
        events = completion.stream(TextCompletionWriter(completion, usage_wanted=wanted))
        headers |= started_headers(completion.run)
        return event_stream(events, headers, completion.on_disconnect, stream_grace(service))
    return await run_unless_disconnected(request, _whole(completion, headers), completion.on_disconnect)


def _options(body: TextCompletionRequest) -> dict[str, Json]:
    options: dict[str, Json] = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "stop": [body.stop] if isinstance(body.stop, str) else body.stop,
        "seed": body.seed,
        "max_completion_tokens": body.max_tokens,
    }
    return {name: value for name, value in options.items() if value is not None}


async def _whole(completion: RunCompletion, headers: dict[str, str]) -> JSONResponse:
    ended = await completion.whole()
    headers = {**headers, **finished_headers(completion.run, ended.usage)}
    if (error := ended.error) is not None:
        body = {**error.body(), "run": completion.run}
        return JSONResponse(body, error.status, {**error.headers(), **NO_RETRY, **headers})
    body = {
        **_head(completion),
        "choices": [_choice(ended.message.text, ended.message.finish)],
        "usage": ended.usage.chat_fields(),
    }
    return JSONResponse(body, headers=headers)


def _head(completion: RunCompletion) -> dict[str, object]:
    return {
        "id": f"cmpl-{completion.run}",
        "object": "text_completion",
        "created": completion.created,
        "model": completion.model,
    }


def _choice(text: str, finish: str | None = None) -> dict[str, object]:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}


class TextCompletionWriter:
    """Writes the chunks of one text completion."""

    def __init__(self, completion: RunCompletion, *, usage_wanted: bool) -> None:
        self._head, self._run = _head(completion), completion.run
        self._usage_wanted = usage_wanted

    def begin(self) -> Iterable[bytes]:
        """Return nothing: the first chunk has text."""
        return ()

    def text(self, piece: str) -> Iterable[bytes]:
        """Return a piece of the answer."""
        return (sse_data({**self._head, "choices": [_choice(piece)]}),)

    def note(self, _: str) -> Iterable[bytes]:
        """Return nothing: this API has no place for it."""
        return ()

    def end(self, ended: CompletionEnd) -> Iterable[bytes]:
        """Return the finish reason, the usage if it is wanted, and the end marker."""
        yield sse_data({**self._head, "choices": [_choice("", ended.message.finish)]})
        if self._usage_wanted:
            yield sse_data({**self._head, "choices": [], "usage": ended.usage.chat_fields()})
        yield DONE_EVENT

    def error(self, problem: ApiError) -> Iterable[bytes]:
        """Return the error and the end marker."""
        return (sse_data({**problem.body(), "run": self._run}), DONE_EVENT)
