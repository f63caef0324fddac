"""`/v1/chat/completions`: a request, checked whole, becomes a run, or goes on with the one that waits for its tools.

Invariant: a client is told no before anything is begun, reserved or charged. Deliberately absent: what is honoured
(`wire.chat`), who may do what (`ordering`), and how the answer is written (`completing`).

Chat completions as clients read them: a whole one, or chunks.

Invariants: every chunk of a stream has the same id and model; a role chunk comes first, then deltas, then one chunk
that says how it ended, then the usage if it was asked for, then `[DONE]`; what goes wrong once the stream is open comes
in it as an error, and `[DONE]` follows. Deliberately absent: when anything is told (`telling`, `attending`).

One chat completion under way: a run that is attended for its client, and what is written of it.

Invariants: what can be refused was refused before this begins; whatever happens then ends in a whole completion, an
error, or a stream with its end marker. A run whose client leaves is cancelled, unless all that the client waited for is
there already. Deliberately absent: reading requests (`chat`).
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
from shikisha.core.messages import ToolCall
from shikisha.core.run import Run
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Pool
from shikisha.server.chat.conversation import task_from_chat
from shikisha.server.chat.schema import ChatRequest, check_supported
from shikisha.server.http import streams
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
from shikisha.server.http.streams import run_unless_disconnected
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
    """What the assistant says, and how it ended."""

    text: str
    finish: str = FINISH_STOP
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


def completion_body(
    head: CompletionHead, said: AssistantMessage, usage: UsageFields, about: object
) -> dict[str, object]:
    """Return a whole completion."""
    message: dict[str, object] = {
        "role": "assistant",
        "content": said.text if said.text or not said.calls else None,
        "refusal": None,
    }
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = _tool_call_fields(said.calls)
    whole: dict[str, object] = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish}],
        "usage": usage,
    }
    return whole if about is None else whole | {"shikisha": about}


class ChunkWriter:
    """Writes the chunks of one completion."""

    def __init__(self, head: CompletionHead) -> None:
        names = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model}
        self._open = f"data: {json.dumps(names, separators=(',', ':'))[:-1]}"

    def role(self) -> bytes:
        """Return the first chunk."""
        return self._delta({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """Return a piece of the answer."""
        return self._delta({"content": piece})

    def reasoning(self, line: str) -> bytes:
        """Return a line about how the answer is made."""
        return self._delta({"reasoning_content": f"{line}\n"})

    def calls(self, calls: Sequence[ToolCall]) -> bytes:
        """Return the calls of the client's tools that are wanted."""
        return self._delta(
            {"tool_calls": [{"index": place, **call} for place, call in enumerate(_tool_call_fields(calls))]}
        )

    def finish(self, reason: str, about: object = None) -> bytes:
        """Return the chunk that says how it ended."""
        return self._delta({}, reason, {} if about is None else {"shikisha": about})

    def usage(self, usage: UsageFields) -> bytes:
        """Return the chunk with the usage."""
        return f'{self._open},"choices":[],"usage":{json.dumps(usage)}}}\n\n'.encode()

    @staticmethod
    def error(problem: ApiError, run: str) -> bytes:
        """Return an error, in band."""
        return streams.sse_data({**problem.body(), "run": run})

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


APPROVALS_PAGE = "/ui/approvals"
LastUpdate = ProgressUpdate | ToolCallsNeeded | StillWaiting | None


@dataclass(slots=True)
class ChatCompletion:
    """A completion under way. `before` is what earlier responses of its run billed; `nested`: it may have children."""

    house: RunService
    head: CompletionHead
    teller: ProgressTracker
    narrowing: RequestOptions
    nested: bool = False
    theirs: bool = True  # this client's alone: False where an earlier request began the run
    usage_wanted: bool = False
    before: RunUsage = field(default_factory=RunUsage)
    done: bool = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self.head.run

    async def gone(self) -> None:
        """Cancel the run: its client has left."""
        if self.theirs and not self.done:
            await self.house.cancel(self.run)

    async def whole(self) -> JSONResponse:
        """Return the completion, or the error, once there is one."""
        text, notes, last = "", list[str](), None
        async for told in self._attended():
            match told:
                case AnswerPiece():
                    text += told.text
                case ProgressNote():
                    notes.append(told.line)
                case _:
                    last = told
        self.done = True
        run, used = await self._billed()
        if (problem := self._objection(last, run)) is not None:
            return self._refusal(problem, run, used)
        reasoning = "\n".join(notes) if self.narrowing.progress else ""
        said = _assistant_message(last, run, text)
        message = AssistantMessage(said.text, said.finish, said.calls, reasoning)
        body = completion_body(self.head, message, used.chat(), self._about(run))
        return JSONResponse(body, headers=finished_headers(self.run, used))

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the stream."""
        chunks, last = ChunkWriter(self.head), None
        yield chunks.role()
        try:
            async for told in self._attended():
                match told:
                    case AnswerPiece():
                        yield chunks.text(told.text)
                    case ProgressNote():
                        if self.narrowing.progress:
                            yield chunks.reasoning(told.line)
                    case _:
                        last = told
            run, used = await self._billed()
            problem = self._objection(last, run)
        except ApiError as error:
            problem = error
        except ShikishaError as error:
            problem = api_error_of(error)
        self.done = True
        if problem is not None:
            yield chunks.error(problem, self.run)
            yield streams.DONE_EVENT
            return
        for chunk in self._ending(chunks, last, run):
            yield chunk
        if self.usage_wanted:
            yield chunks.usage(used.chat())
        yield streams.DONE_EVENT

    def _attended(self) -> AsyncGenerator[ProgressUpdate | ToolCallsNeeded | StillWaiting]:
        return wait_for_run(self.house, self.run, self.teller, self.house.settings.approval_wait)

    def _ending(self, chunks: ChunkWriter, last: LastUpdate, run: Run) -> list[bytes]:
        told = self.teller.text
        said = _assistant_message(last, run, told)
        rest = [chunks.text(said.text[len(told) :])] if len(said.text) > len(told) else []
        calls = [chunks.calls(said.calls)] if said.calls else []
        return [*rest, *calls, chunks.finish(said.finish, self._about(run))]

    def _objection(self, last: LastUpdate, run: Run) -> ApiError | None:
        """Return what stands in the way of an answer; None when nothing does."""
        match last:
            case ToolCallsNeeded():
                return None
            case AnswerReplaced():
                said = f"run {self.run}: what was streamed is not the answer: a further attempt said something else"
                return ApiError(502, f"{said}; the run has it", "answer_replaced")
            case StillWaiting(suspended=True):
                at = f"{(self.house.settings.url or '').rstrip('/')}{APPROVALS_PAGE}"
                return ApiError(409, f"run {self.run} waits for a person, at {at}", "approval_required")
            case RunEnded() | RunPausedUpdate():
                found = answer_or_error(run)
                if isinstance(found, ApiError):
                    return self._closing() if isinstance(last, RunPausedUpdate) and self.house.closing else found
                told = self.teller.text
                return None if found.text.startswith(told) else self._objection(AnswerReplaced(), run)
            case _:
                return self._closing()

    def _closing(self) -> ApiError:
        said = f"run {self.run} is not performed just now, and is taken up again"
        return ApiError(503, said, "run_interrupted", wait=self.house.settings.drain)

    def _refusal(self, problem: ApiError, run: Run, used: RunUsage) -> JSONResponse:
        """Return the error of a run that was begun; no client should try again by itself: each try has a price."""
        told = self._about(run)
        body = {**problem.body(), "run": self.run} | ({} if told is None else {"shikisha": told})
        headers = {**problem.headers(), **NO_RETRY, **finished_headers(self.run, used)}
        return JSONResponse(body, problem.status, headers)

    async def _billed(self) -> tuple[Run, RunUsage]:
        """Return the run as it stands, and what this response bills."""
        run = Run.fold(self.teller.events)
        family = (await self.house.family(self.run)).values() if self.nested else ()
        return run, run_usage(run, family).less(self.before)

    def _about(self, run: Run) -> object:
        told = visible_run(run, self.teller.events, self.house.composition.autonomy_policy())
        return run_metadata(told, self.narrowing.detail, self.house.settings.url)


def _assistant_message(last: LastUpdate, run: Run, text: str) -> AssistantMessage:
    """Return what the assistant says, given what was told of it and the last thing that was."""
    if isinstance(last, ToolCallsNeeded):
        return AssistantMessage(text, FINISH_TOOL_CALLS, last.calls)
    found = answer_or_error(run)
    if isinstance(found, RunAnswer) and found.cut:
        return AssistantMessage(found.text, FINISH_LENGTH)
    return AssistantMessage(text, FINISH_STOP)


_require_run_scope = require_scope(KeyScope.RUN)
RunPrincipal = Annotated[Principal, Depends(_require_run_scope)]


class _DirectRoute(APIRoute):
    """A route whose endpoint takes the request and who asks, documented as others are: what FastAPI does at each
    request to find that out costs as much as the door itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """Return what answers a request."""
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            given: Response = await endpoint(request, await _require_run_scope(request))
            return given

        return answer


router = APIRouter(tags=["chat"], route_class=_DirectRoute)
_CHAT_GRACE_SHARE = 0.9  # of the seconds that runs get to end when the server is stopped
_CHAT_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "description": "A chat completion, or with stream its chunks",
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
    """Have a conversation's next answer made by the pool, under a conductor."""
    house: RunService = request.app.state.house
    raw = await read_json(request, lambda raw: check_schema_sizes(raw, Api.CHAT))
    check_supported(raw)
    asked = validate_as(raw, ChatRequest)
    completing = await _ChatStart(
        house, by, asked, read_request_options(request.headers), read_idempotency_key(request.headers)
    ).begun()
    if asked.stream:
        grace = _CHAT_GRACE_SHARE * house.settings.drain
        return streams.event_stream(completing.chunks(), started_headers(completing.run), completing.gone, grace)
    return await run_unless_disconnected(request, completing.whole(), completing.gone)


@dataclass(frozen=True, slots=True)
class _ChatStart:
    """A request that has been read: who asks what, of which house, within which limits."""

    house: RunService
    by: Principal
    asked: ChatRequest
    narrow: RequestOptions
    idempotency: str | None

    async def begun(self) -> ChatCompletion:
        """Begin a run, or go on with the one that waits for what the request brings."""
        house, task = self.house, task_from_chat(self.asked)
        await check_schemas(task, Api.CHAT)
        model = house.catalogue.find(self.asked.model, self.by)
        back = await find_tool_resumption(house, self.by, task.exchanges, model.name, self.narrow)
        if back is not None:
            return await self._resumed(back)
        wish = RequestedRun(
            model.name, task, Api.CHAT, self.narrow, idempotency=self.idempotency, metadata=_run_tags(self.asked)
        )
        order = house.ordering.order(wish, self.by)
        made = await start_once(house, order)
        live = house.live(made.run)
        events = live.events if live is not None else await house.journal.read(made.run)
        completing = self._completing(events, order.model, house.cast(order.conductor, order.pool), -1)
        completing.theirs = made.fresh
        return completing

    async def _resumed(self, back: ToolResumption) -> ChatCompletion:
        """Hand the results in, and attend the run from there on."""
        house, served = self.house, back.served
        events = await house.journal.read(served.run)
        past = Run.fold(events[: back.after + 1])
        cast = house.cast(served.conductor, past.started.pool)
        made = self._completing(events, served.model, cast, back.after)
        made.before = run_usage(past, (await house.family(served.run)).values() if made.nested else ())
        if back.answer is not None:
            await house.answer(back.answer)
        return made

    def _completing(
        self, events: Sequence[Event], model: str, cast: tuple[Pool, Conductor], after: int
    ) -> ChatCompletion:
        (pool, conductor), asked = cast, self.asked
        run = Run.fold(events[:1])
        heard = bool(asked.stream) and can_stream(run.task, conductor, self.house.composition.autonomy_policy())
        terms = ProgressTerms(run.started.caps.rounds, streamable_workers(pool), heard)
        head = CompletionHead(run.id, model, int(run.started.at))
        made = ChatCompletion(self.house, head, ProgressTracker(terms, after), self.narrow)
        made.nested = any(card.kind == "conductor" for card in pool.cards)
        made.usage_wanted = bool(asked.stream_options and asked.stream_options.include_usage)
        return made


def _run_tags(asked: ChatRequest) -> dict[str, str]:
    """Return what is kept with the run and found again."""
    named = {"user": asked.user, "safety_identifier": asked.safety_identifier}
    return {name: value for name, value in named.items() if value is not None} | dict(asked.metadata or {})
