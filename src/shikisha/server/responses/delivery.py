"""A response in progress: waits for its run, and writes the response object or the stream.

Invariant: a stream ends with `response.completed`, `.incomplete` or `.failed`, or with an `error` event when it ends
before the run does (nobody approved in time, or the server stops); the run continues and can be fetched again. A
response says the same whenever it is read after its end, and bills what was used since the previous response of its
run. A run whose client disconnects is canceled unless the request set `background`.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.events import RunFinished, RunStatus
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Run
from shikisha.engine.autonomy import AutonomyPolicy
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.run_result import (
    NO_RETRY,
    RunUsage,
    answer_or_error,
    api_error_of,
    finished_headers,
    run_metadata,
    run_usage,
)
from shikisha.server.lifecycle.broadcast import EventUpdate
from shikisha.server.lifecycle.run_progress import can_stream, streamable_workers, visible_run
from shikisha.server.lifecycle.service import RunService
from shikisha.server.responses.schema import (
    IncompleteDetails,
    ReasoningOptions,
    ResponseFailure,
    ResponseObject,
    ResponseStatus,
    ResponseTextFormat,
    ResponseTextOptions,
    ResponseUsage,
)
from shikisha.server.responses.stored_response import StoredRequest, StoredResponse, response_at_turn, response_id
from shikisha.server.responses.stream_events import ResponseBuilder, ResponseTerms, StreamEvent
from shikisha.server.store import ServedRun, ServedState

_CAP_REASONS = {"tokens": "max_output_tokens"}


def build_response(found: StoredResponse) -> ResponseBuilder:
    """Return a response's course, as far as it has come."""
    kept = found.kept
    custom = kept.request.custom_tools
    course = ResponseBuilder(ResponseTerms(found.leg.number, kept.progress, kept.approves, custom=custom))
    for number, event in enumerate(found.events[: found.leg.end]):
        course.hear(EventUpdate(number, event))
    if course.standing is None and found.served.state is ServedState.STOPPED:
        course.stop()
    return course


def response_usage(found: StoredResponse, family: Iterable[Run]) -> RunUsage:
    """Return what a response used."""
    family = list(family)
    before = found.before
    spent = run_usage(found.run, family)
    return spent if before is None else spent.less(run_usage(before, family))


def response_object(
    found: StoredResponse,
    course: ResponseBuilder,
    spent: RunUsage | None,
    autonomy_policy: AutonomyPolicy,
    url: str | None = None,
) -> ResponseObject:
    """Return the response object; `spent` None: what it used is not known yet."""
    asked, run = found.kept.request, Run.fold(course.events)
    standing = course.standing or _open_status(found, course)
    over = course.standing is not None
    return ResponseObject(
        id=found.id,
        created_at=found.events[found.leg.begin].at,
        completed_at=course.events[-1].at if standing == "completed" else None,
        status=standing,
        background=found.served.detached,
        error=_response_failure(run) if standing == "failed" else None,
        incomplete_details=_incomplete_details(run) if standing == "incomplete" else None,
        instructions=asked.instructions,
        max_output_tokens=asked.max_output_tokens,
        metadata=asked.metadata or {},
        model=found.served.model,
        output=course.output,
        parallel_tool_calls=asked.parallel_tool_calls is not False,
        previous_response_id=_previous_response(found.kept, found.served, found.leg.number),
        prompt_cache_key=asked.prompt_cache_key,
        reasoning=asked.reasoning or ReasoningOptions(),
        safety_identifier=asked.safety_identifier,
        store=asked.store is not False,
        temperature=asked.temperature,
        text=_text_options(asked.text),
        tool_choice=asked.tool_choice or "auto",
        tools=asked.tools or [],
        top_p=asked.top_p,
        truncation=asked.truncation or "disabled",
        usage=ResponseUsage.model_validate(spent.response_fields()) if over and spent is not None else None,
        user=asked.user,
        shikisha=run_metadata(visible_run(run, course.events, autonomy_policy), found.kept.detail, url)
        if over
        else None,
    )


def response_error(course: ResponseBuilder) -> ApiError | None:
    """Return why there is no answer, once that is so."""
    if course.standing not in ("failed", "cancelled"):
        return None
    came = answer_or_error(Run.fold(course.events))
    return came if isinstance(came, ApiError) else None


def _open_status(found: StoredResponse, course: ResponseBuilder) -> ResponseStatus:
    return "queued" if found.served.detached and len(course.events) - found.leg.begin <= 1 else "in_progress"


def _previous_response(kept: StoredRequest, served: ServedRun, leg: int) -> str | None:
    return response_id(served.run, leg - 1) if leg else kept.request.previous_response_id


def _response_failure(run: Run) -> ResponseFailure | None:
    came = answer_or_error(run)
    return ResponseFailure(code=came.code, message=came.message) if isinstance(came, ApiError) else None


def _incomplete_details(run: Run) -> IncompleteDetails | None:
    end: RunFinished | None = run.finished
    if end is None:
        return None
    if end.status is RunStatus.CAPPED and end.cap is not None:
        return IncompleteDetails(reason=_CAP_REASONS.get(end.cap, f"max_{end.cap}"))
    return IncompleteDetails(reason="max_output_tokens")


def _text_options(asked: ResponseTextOptions | None) -> ResponseTextOptions:
    form = asked.format if asked and asked.format else ResponseTextFormat(type="text")
    return ResponseTextOptions(format=form, verbosity=asked.verbosity if asked else None)


_POLL_SECONDS = 0.25  # seconds between two looks at a run that waits for a person
_EVENTS_WITH_RESPONSE = ("created", "queued", "in_progress", "completed", "incomplete", "failed")


@dataclass(slots=True)
class ResponseDelivery:
    """A response of a run, for one client. `patient`: a person is waited for however long they take.

    `own`: the client began the run, which is nobody's once it has left. `nested`: the run may have child runs.
    """

    service: RunService
    served: ServedRun
    kept: StoredRequest
    course: ResponseBuilder
    patient: bool = False
    own: bool = False
    nested: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)  # what goes with the response besides the run's

    @property
    def run(self) -> str:
        """The run's id."""
        return self.served.run

    async def gone(self) -> None:
        """Cancel the run if it is its client's own: the client has left."""
        if self.own and not self.patient and self.course.standing is None:
            await self.service.cancel(self.run)

    async def answer(self) -> JSONResponse:
        """Return the response once it has ended, or the error that it ended with."""
        async with aclosing(self._heard()) as hearing:
            async for _ in hearing:
                pass
        found, spent = self._found(), await self._spent()
        headers, problem = {**self.headers, **finished_headers(self.run, spent)}, response_error(self.course)
        given = self._rendered(found, spent)
        if problem is None:
            return JSONResponse(given.model_dump(mode="json", by_alias=True), headers=headers)
        body = {**problem.body(), "run": self.run}
        body |= {} if given.shikisha is None else {"shikisha": given.shikisha}
        return JSONResponse(body, problem.status, {**problem.headers(), **NO_RETRY, **headers})

    async def object(self) -> ResponseObject:
        """Return the response as it stands."""
        spent = await self._spent() if self.course.standing is not None else None
        return self._rendered(self._found(), spent)

    def _rendered(self, found: StoredResponse, spent: RunUsage | None) -> ResponseObject:
        service = self.service
        return response_object(found, self.course, spent, service.container.autonomy_policy(), service.settings.url)

    async def now(self) -> ResponseObject:
        """Return the response as the journal has it."""
        self.served, events = await self.service.find_served(self.run), await self.service.journal.read(self.run)
        self.course = build_response(response_at_turn(self.served, self.kept, events, self.course.terms.leg))
        return await self.object()

    def _found(self) -> StoredResponse:
        """Return the response as far as this listener knows it."""
        return response_at_turn(self.served, self.kept, tuple(self.course.events), self.course.terms.leg)

    async def _spent(self) -> RunUsage:
        return response_usage(self._found(), (await self.service.read_family(self.run)).values() if self.nested else ())

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the stream as server-sent events."""
        try:
            async with aclosing(self._heard()) as hearing:
                async for sent in hearing:
                    yield await self._written(sent)
        except ApiError as problem:
            yield self._error(problem)
        except ShikishaError as error:
            yield self._error(api_error_of(error))

    async def refused(self, problem: ApiError) -> tuple[bytes]:
        """Return the last event of a stream whose key was revoked, as if its client had disconnected."""
        await self.gone()
        return (self._error(problem),)

    async def _heard(self) -> AsyncGenerator[StreamEvent]:
        """Yield what the stream holds, until the response ends; ApiError when it does not."""
        heard, until, clock = -1, None, asyncio.get_running_loop().time
        while True:
            async with aclosing(self.service.listen(self.run, heard)) as hearing:
                async for item in hearing:
                    heard = item.number if isinstance(item, EventUpdate) else heard
                    for sent in self.course.hear(item):
                        yield sent
                    if self.course.standing is not None:
                        return
            self.served = await self.service.find_served(self.run)
            if self.served.state is ServedState.STOPPED:
                for sent in self.course.stop():
                    yield sent
                return
            if self.service.closing:
                said = f"this server is being stopped; run {self.run} is taken up again"
                raise ApiError(503, said, "server_stopping", wait=self.service.settings.drain)
            until = clock() + self.service.settings.approval_wait if until is None else until
            if not self.patient and self.served.state is ServedState.WAITING and clock() >= until:
                raise self.service.approval_required(self.run)
            await asyncio.sleep(_POLL_SECONDS)

    async def _written(self, sent: StreamEvent) -> bytes:
        fields = dict(sent.fields)
        if sent.type.removeprefix("response.") in _EVENTS_WITH_RESPONSE:
            fields["response"] = await self.object()
        return response_event(sent.type, {**fields, "sequence_number": sent.number})

    def _error(self, problem: ApiError) -> bytes:
        told = {"code": problem.code, "message": problem.message, "param": problem.param}
        return response_event("error", {**told, "sequence_number": self.course.last + 1})


def response_event(kind: str, fields: dict[str, object]) -> bytes:
    """Return a server-sent event of this type."""
    told = json.dumps({"type": kind, **fields}, default=_json_value, separators=(",", ":"))
    return f"event: {kind}\ndata: {told}\n\n".encode()


def _json_value(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is no part of an event")


def deliver_response(service: RunService, found: StoredResponse, after: int = -1) -> ResponseDelivery:
    """Return a response of a run that was found, for one who listens from after a number."""
    kept, served = found.kept, found.served
    begun = found.run.started
    audible, custom = _streamable_workers(service, found), kept.request.custom_tools
    terms = ResponseTerms(found.leg.number, kept.progress, kept.approves, audible, after, custom)
    nested = any(card.kind == "conductor" for card in service.container.cards() if card.name in begun.pool)
    return ResponseDelivery(service, served, kept, ResponseBuilder(terms), patient=served.detached, nested=nested)


def _streamable_workers(service: RunService, found: StoredResponse) -> Callable[[str], bool]:
    """Return what says of a worker whether its pieces may be passed on; no worker's where the run can't be cast now."""
    run = found.run
    try:
        pool, conductor = service.cast(found.served.conductor, run.started.pool)
    except ConfigError:
        return lambda _: False
    if not can_stream(run.task, conductor, service.container.autonomy_policy()):
        return lambda _: False
    return streamable_workers(pool)
