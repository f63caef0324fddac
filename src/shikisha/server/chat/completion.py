"""A completion: the run behind one request of an API whose client waits for its answer, in no API's own shape.

`/v1/chat/completions`, `/v1/completions` and `/v1/messages` begin or resume a run here and follow it to its answer,
to calls of the client's tools, or to an error. Invariants: whatever can be refused is refused before anything is
started, reserved or charged; after that a request ends in a whole answer, an error, or a stream with its end marker;
a run whose client disconnects is canceled. How anything is written is the business of each API.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fastapi.responses import JSONResponse

from shikisha.core.errors import ShikishaError
from shikisha.core.events import Event
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import ToolCall
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Pool
from shikisha.engine.single_step import single_member
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import MetadataDetail, RequestOptions
from shikisha.server.http.run_result import (
    NO_RETRY,
    NO_RUN_USAGE,
    RunAnswer,
    RunUsage,
    answer_or_error,
    api_error_of,
    finished_headers,
    run_metadata,
    run_usage,
)
from shikisha.server.keys.key import Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun
from shikisha.server.lifecycle.broadcast import LiveRun
from shikisha.server.lifecycle.executor import LostConnection
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
from shikisha.server.lifecycle.service import RunService, start_once
from shikisha.server.lifecycle.sessions import continue_session
from shikisha.server.lifecycle.tool_calls import ToolResumption, find_tool_resumption

FINISH_STOP, FINISH_LENGTH, FINISH_TOOL_CALLS = "stop", "length", "tool_calls"
_UNFOLLOWED = ProgressTerms(0, lambda _: False)
LastUpdate = ProgressUpdate | ToolCallsNeeded | StillWaiting | None


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A validated request. `tool_choice` holds for the call that reads the results of a client's tools.

    `wire` is what the API wants to know of it later (`ServedRun`).
    """

    service: RunService
    by: Principal
    model: str
    task: Task
    options: RequestOptions
    api: Api = Api.CHAT
    stream: bool = False
    idempotency: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    tool_choice: str = ""
    wire: str = "{}"

    async def start(self, lost: LostConnection | None = None) -> "RunCompletion":
        """Start a run, or resume the one that waits for the tool results in the request.

        A run of one step is performed at once where the client wants nothing before its end, until that is `lost`.
        """
        service, task = self.service, self.task
        model = service.catalogue.find(self.model, self.by)
        if task.exchanges:
            resumption = await find_tool_resumption(
                service.store, service.journal, self.by, task.exchanges, model.name, self.options, self.tool_choice
            )
            if resumption is not None:
                return await self._resume(resumption)
        requested = RequestedRun(
            model.name, task, self.api, self.options, self.wire, idempotency=self.idempotency, metadata=self.metadata
        )
        if self.options.session:
            requested = await continue_session(service, self.by, requested)
        order = service.authorizer.authorize(requested, self.by)
        if lost is not None and self._wants_answer_alone(order):
            here = await service.complete(order, lost)
            if here.result is not None and here.result.finished is not None:
                return RunCompletion.of_ended(service, here.result, order.model, self.options)
            known = await service.journal.read(here.run)
            return self._completion(known, order.model, service.cast(order.conductor, order.pool), -1)
        started = await start_once(service, order)
        live = service.live(started.run)
        events = live.events if live is not None else await service.journal.read(started.run)
        completion = self._completion(events, order.model, service.cast(order.conductor, order.pool), -1)
        completion.owned, completion.live = started.fresh, live
        return completion

    def _wants_answer_alone(self, order: AuthorizedRun) -> bool:
        pool, conductor = self.service.cast(order.conductor, order.pool)
        alone = self.options.detail is MetadataDetail.NONE and not (self.options.progress or self.stream)
        return alone and order.idempotency is None and single_member(conductor, pool) is not None

    async def _resume(self, resumption: ToolResumption) -> "RunCompletion":
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
    ) -> "RunCompletion":
        pool, conductor = cast
        run = Run.fold(events[:1])
        live = self.stream and can_stream(run.task, conductor, self.service.container.autonomy_policy())
        terms = ProgressTerms(run.started.caps.rounds, streamable_workers(pool), live)
        nested = any(card.kind == "conductor" for card in pool.cards)
        tracker = ProgressTracker(terms, after)
        return RunCompletion(self.service, run.id, model, int(run.started.at), tracker, self.options, nested=nested)


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """The assistant's message and its finish reason; `notes` are lines about earlier steps."""

    text: str
    finish: str = FINISH_STOP
    calls: tuple[ToolCall, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionEnd:
    """How a completion ended: with a message or an error; `metadata` is the `shikisha` object, where it is wanted."""

    usage: RunUsage
    message: AssistantMessage
    error: ApiError | None = None
    metadata: object = None


class CompletionWriter(Protocol):
    """Writes the stream of a completion in an API's own shape."""

    def begin(self) -> Iterable[bytes]:
        """Return the events before anything is known of the answer."""
        ...

    def text(self, piece: str) -> Iterable[bytes]:
        """Return the events of a piece of the answer."""
        ...

    def note(self, line: str) -> Iterable[bytes]:
        """Return the events of a line about an earlier step."""
        ...

    def end(self, ended: CompletionEnd) -> Iterable[bytes]:
        """Return the events after the last piece of the answer."""
        ...

    def error(self, problem: ApiError) -> Iterable[bytes]:
        """Return the events that end the stream with an error."""
        ...


@dataclass(slots=True)
class RunCompletion:
    """A completion in progress.

    `before` is the usage of earlier completions of its run; `nested`: the run may have child runs; `owned`: this
    request started the run, and not an earlier one with the same idempotency key.
    """

    service: RunService
    run: str
    model: str
    created: int
    tracker: ProgressTracker
    options: RequestOptions
    nested: bool = False
    owned: bool = True
    before: RunUsage = NO_RUN_USAGE
    done: bool = False
    live: LiveRun | None = None
    ended: Run | None = None
    _last: LastUpdate = None

    @classmethod
    def of_ended(cls, service: RunService, run: Run, model: str, options: RequestOptions) -> "RunCompletion":
        """Return the completion of a run that has ended before anybody followed it."""
        tracker = ProgressTracker(_UNFOLLOWED)
        return cls(service, run.id, model, int(run.started.at), tracker, options, done=True, ended=run)

    async def on_disconnect(self) -> None:
        """Cancel the run, since its client has left."""
        if self.owned and not self.done:
            await self.service.cancel(self.run)

    async def whole(self) -> CompletionEnd:
        """Wait for the run, and return its end."""
        if self.ended is not None:
            found, usage = answer_or_error(self.ended), run_usage(self.ended)
            if isinstance(found, ApiError):
                return CompletionEnd(usage, AssistantMessage(""), found)
            return CompletionEnd(usage, AssistantMessage(found.text, FINISH_LENGTH if found.cut else FINISH_STOP))
        text, notes = "", list[str]()
        async for update in self._updates(self.live):  # nobody sees a piece before the end
            if isinstance(update, AnswerPiece):
                text += update.text
            else:
                notes.append(update.line)
        return await self._end(text, notes if self.options.progress else ())

    async def stream(self, writer: CompletionWriter) -> AsyncGenerator[bytes]:
        """Yield the events of the stream."""
        for sent in writer.begin():
            yield sent
        text, error = "", None
        try:
            async for update in self._updates():
                if isinstance(update, AnswerPiece):
                    text += update.text
                    events = writer.text(update.text)
                else:
                    events = writer.note(update.line) if self.options.progress else ()
                for sent in events:
                    yield sent
            ended = await self._end(text)
            error = ended.error
        except ApiError as raised:
            error = raised
        except ShikishaError as raised:
            error = api_error_of(raised)
        self.done = True
        if error is not None:
            for sent in writer.error(error):
                yield sent
            return
        if len(ended.message.text) > len(text):
            for sent in writer.text(ended.message.text[len(text) :]):
                yield sent
        for sent in writer.end(ended):
            yield sent

    async def _updates(self, whole: LiveRun | None = None) -> AsyncGenerator[AnswerPiece | ProgressNote]:
        patience = self.service.settings.approval_wait
        async for update in wait_for_run(self.service, self.run, self.tracker, patience, whole):
            if isinstance(update, AnswerPiece | ProgressNote):
                yield update
            else:
                self._last = update

    async def _end(self, text: str, notes: Sequence[str] = ()) -> CompletionEnd:
        """Return the end of a run whose updates were all heard."""
        self.done = True
        run = Run.fold(self.tracker.events) if self.live is None else self.live.fold(self.tracker.events)
        family = (await self.service.read_family(self.run)).values() if self.nested else ()
        usage = run_usage(run, family).less(self.before)
        visible = visible_run(run, self.tracker.events, self.service.container.autonomy_policy())
        metadata = run_metadata(visible, self.options.detail, self.service.settings.url)
        return CompletionEnd(usage, self._message(run, text, tuple(notes)), self._error(self._last, run), metadata)

    def _message(self, run: Run, text: str, notes: tuple[str, ...]) -> AssistantMessage:
        """Return the message, given the text so far."""
        if isinstance(self._last, ToolCallsNeeded):
            return AssistantMessage(text, FINISH_TOOL_CALLS, self._last.calls, notes)
        found = answer_or_error(run)
        if isinstance(found, RunAnswer) and found.cut:
            return AssistantMessage(found.text, FINISH_LENGTH, notes=notes)
        return AssistantMessage(text, FINISH_STOP, notes=notes)

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


async def start_several(orders: Sequence[CompletionRequest]) -> list[RunCompletion]:
    """Start the runs of one request; where one cannot be started, those before it are left."""
    runs = list[RunCompletion]()
    try:
        for order in orders:
            runs.append(await order.start())
    except BaseException:
        await leave_several(runs)
        raise
    return runs


async def leave_several(runs: Sequence[RunCompletion]) -> None:
    """Cancel the runs of one request, whose client is gone."""
    for run in runs:
        await run.on_disconnect()


async def whole_response(
    runs: Sequence[RunCompletion],
    headers: Mapping[str, str],
    body: Callable[[Sequence[CompletionEnd]], dict[str, object]],
) -> JSONResponse:
    """Wait for the runs of one request, and return their body with the usage of all, or the first error."""
    ends = await asyncio.gather(*(run.whole() for run in runs))
    usage = sum((each.usage for each in ends[1:]), ends[0].usage)
    headers = {**headers, **finished_headers(runs[0].run, usage)}
    for run, ended in zip(runs, ends, strict=True):
        if (error := ended.error) is not None:
            failed = {**error.body(), "run": run.run}
            return JSONResponse(failed, error.status, {**error.headers(), **NO_RETRY, **headers})
    return JSONResponse({**body(ends), "usage": usage.chat_fields()}, headers=headers)
