"""`POST /v1/completions`, OpenAI's legacy API: a text is completed by one worker, at its endpoint's own route.

Several prompts are as many runs. Invariants: as in `completion`; a plan that would do anything but pass the text on is
an error (`visibility.adapt_request`), and no answer to the text as if it were a question. Deliberately absent: several
choices a prompt and log-probabilities, which are refused by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, model_validator

from shikisha.core.messages import Json
from shikisha.core.task import Task
from shikisha.server.chat.completion import (
    CompletionEnd,
    CompletionRequest,
    RunCompletion,
    leave_several,
    start_several,
    whole_response,
)
from shikisha.server.chat.schema import MAX_CHOICES, ChatStreamOptions
from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.connections import CONNECTION
from shikisha.server.http.request import (
    RequestModel,
    ignored_header,
    read_json,
    read_request_options,
    refuse_session,
    request_body_doc,
    validate_known,
)
from shikisha.server.http.run_result import started_headers
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
    prompt: PromptText | Annotated[list[PromptText], Field(min_length=1, max_length=MAX_CHOICES)]
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
    echo: bool | None = None
    logprobs: None = None
    suffix: Annotated[str, Field(max_length=10**6)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None

    @model_validator(mode="after")
    def _one_stream(self) -> "TextCompletionRequest":
        if self.stream and len(self.prompts) > 1:
            raise ValueError("prompt: expected one with stream: each is a run of its own")
        return self

    @property
    def prompts(self) -> list[str]:
        """The texts to complete."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt


@router.post(
    "/v1/completions",
    summary="Create a text completion (legacy)",
    responses={**error_responses(402, 404, 409, 502, 504), **_LEGACY_DOC},
    openapi_extra=request_body_doc(TextCompletionRequest),
)
async def create_text_completion(request: Request, by: RunPrincipal) -> Response:
    """Complete a text: a conductor says which worker does."""
    service: RunService = request.app.state.service
    raw = await read_json(request)
    body, unknown = validate_known(raw, TextCompletionRequest, refuse=service.settings.unknown == "refuse")
    options, idempotency = read_request_options(request.headers), read_idempotency_key(request.headers)
    if len(body.prompts) > 1:
        refuse_session(options, "expected one prompt: each turn of a session has one answer")
    wanted = CompletionRequest(
        service,
        by,
        body.model,
        _task(body, body.prompts[0]),
        options,
        Api.COMPLETIONS,
        stream=bool(body.stream),
        idempotency=idempotency,
        metadata={} if body.user is None else {"user": body.user},
    )
    headers = ignored_header(unknown, service.container.secret_store.scrub)
    if len(body.prompts) > 1:
        orders = [
            replace(wanted, task=_task(body, prompt), idempotency=idempotency and f"{idempotency}#{place}")
            for place, prompt in enumerate(body.prompts)
        ]
        runs = await start_several(orders)
        return await run_unless_disconnected(request, _whole(runs, headers), partial(leave_several, runs))
    completion = await wanted.start(request.scope.get(CONNECTION))
    if body.stream:
        counted = bool(body.stream_options and body.stream_options.include_usage)
        events = completion.stream(TextCompletionWriter(completion, usage_wanted=counted))
        headers |= started_headers(completion.run)
        return event_stream(events, headers, completion.on_disconnect, stream_grace(service))
    return await run_unless_disconnected(request, _whole([completion], headers), completion.on_disconnect)


def _task(body: TextCompletionRequest, prompt: str) -> Task:
    own: dict[str, Json] = {"prompt": prompt, "suffix": body.suffix, "echo": body.echo}
    return Task(
        prompt, options=_options(body), as_sent={name: value for name, value in own.items() if value is not None}
    )


def _options(body: TextCompletionRequest) -> dict[str, Json]:
    options: dict[str, Json] = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "stop": [body.stop] if isinstance(body.stop, str) else body.stop,
        "seed": body.seed,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "max_completion_tokens": body.max_tokens,
    }
    return {name: value for name, value in options.items() if value is not None}


async def _whole(runs: Sequence[RunCompletion], headers: dict[str, str]) -> JSONResponse:
    def body(ends: Sequence[CompletionEnd]) -> dict[str, object]:
        choices = [_choice(ended.message.text, ended.message.finish, place) for place, ended in enumerate(ends)]
        return {**_head(runs[0]), "choices": choices}

    return await whole_response(runs, headers, body)


def _head(completion: RunCompletion) -> dict[str, object]:
    return {
        "id": f"cmpl-{completion.run}",
        "object": "text_completion",
        "created": completion.created,
        "model": completion.model,
    }


def _choice(text: str, finish: str | None = None, index: int = 0) -> dict[str, object]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish}


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
