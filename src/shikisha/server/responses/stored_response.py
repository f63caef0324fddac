"""Stored responses: the request that is kept with a run, the turns of that run, and the input items of each turn.

A run that waits for its client is several responses. A turn ends where the run waits for what its client can give:
results of its tools, or, for a key that may approve, a decision. Invariant: turns are a pure function of the run's
events and of whether its key may approve. A response of another tenant, one that was not to be stored, a deleted one
and an erased one are all absent (404). Deleting hides a response here; the journal keeps the run for audit.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import Connection, update

from shikisha.core.errors import UnknownRun
from shikisha.core.events import Event, QuestionAnswered, QuestionAsked, QuestionKind, RunPaused, RunStatus
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.messages import load_tool_calls, load_tool_results
from shikisha.core.run import Run
from shikisha.core.visibility import Labels, join_labels
from shikisha.journal.schema import SERVED
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import MetadataDetail
from shikisha.server.keys.key import Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun
from shikisha.server.lifecycle.service import RunService
from shikisha.server.lifecycle.tool_calls import client_tool_calls
from shikisha.server.responses.input_conversation import output_text
from shikisha.server.responses.schema import (
    AnswerMessage,
    AnswerText,
    ApprovalDecisionItem,
    ApprovalItem,
    ApprovalRequest,
    ApprovalResponse,
    CustomToolCall,
    CustomToolCallItem,
    FunctionCall,
    FunctionCallItem,
    FunctionCallOutput,
    FunctionOutputItem,
    InputFile,
    InputImage,
    InputItem,
    InputItemList,
    InputMessage,
    InputText,
    OutputText,
    ReasoningItem,
    RefusalPart,
    ResponseItem,
    ResponseMessage,
    ResponseRequest,
)
from shikisha.server.store import ServedRun

_RESPONSE_ID = re.compile(r"resp_([0-9a-z-]{1,64})(?:\.([1-9][0-9]{0,3}))?")
_APPROVAL_ID = re.compile(r"mcpr_([0-9a-z-]{1,64})_([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class ResponseTurn:
    """A response's part of a run: its number, its events' range, and what it waits for from its client at its end."""

    number: int
    begin: int
    end: int
    waits: tuple[QuestionAsked, ...] = ()

    def answers(self, events: Sequence[Event]) -> tuple[QuestionAnswered, ...]:
        """Return the answers with which it began."""
        found = []
        for event in events[self.begin : self.end]:
            if not isinstance(event, QuestionAnswered):
                break
            found.append(event)
        return tuple(found)


def response_turns(events: Sequence[Event], *, approves: bool) -> tuple[ResponseTurn, ...]:
    """Return a run's legs; the last one's end is the last event so far."""
    found: list[ResponseTurn] = []
    begin = 0
    for place, event in enumerate(events):
        if isinstance(event, RunPaused) and event.status is RunStatus.SUSPENDED:
            waits = client_questions(Run.fold(events[: place + 1]), approves=approves)
            if waits:
                found.append(ResponseTurn(len(found), begin, place + 1, waits))
                begin = place + 1
    if begin < len(events):
        found.append(ResponseTurn(len(found), begin, len(events)))
    return tuple(found)


def client_questions(run: Run, *, approves: bool) -> tuple[QuestionAsked, ...]:
    """Return the open questions of a run that waits which its client can answer."""
    kinds = {QuestionKind.TOOLS, QuestionKind.APPROVE} if approves else {QuestionKind.TOOLS}
    return tuple(asked for asked in run.open_questions if asked.asks in kinds)


def response_id(run: str, leg: int = 0) -> str:
    """Return the id of a response: `resp_RUN`, and `resp_RUN.N` for the N-th turn after that."""
    return f"resp_{run}.{leg}" if leg else f"resp_{run}"


def read_response_id(text: str) -> tuple[str, int] | None:
    """Return the run and the leg of a response's id; None for what is none of ours."""
    found = _RESPONSE_ID.fullmatch(text)
    return (found[1], int(found[2] or 0)) if found else None


def approval_id(run: str, question: str) -> str:
    """Return the id under which a client sees a request for approval."""
    return f"mcpr_{run}_{question}"


def read_approval_id(text: str) -> tuple[str, str] | None:
    """Return the run and the question of a request for approval that was made here; None for any other id."""
    found = _APPROVAL_ID.fullmatch(text)
    return (found[1], found[2]) if found else None


class StoredRequest(BaseModel):
    """A request as it is stored. `approves`: its key may approve calls; `progress`: steps are reported."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request: ResponseRequest
    approves: bool = False
    progress: bool = False
    detail: MetadataDetail = MetadataDetail.NONE

    def dumped(self) -> str:
        """Return it as `Order.wire`."""
        return self.model_dump_json(exclude_unset=True, by_alias=True)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response: its run's row and events, what was asked, and its leg; `upto` are the events up to its end."""

    served: ServedRun
    kept: StoredRequest
    events: tuple[Event, ...]
    leg: ResponseTurn
    last: bool  # whether the run has come no further

    @property
    def id(self) -> str:
        """The response's id."""
        return response_id(self.served.run, self.leg.number)

    @property
    def run(self) -> Run:
        """The run as it stood at the response's end."""
        return Run.fold(self.events[: self.leg.end])

    @property
    def labels(self) -> Labels:
        """The labels of everything in the run; whatever continues its conversation inherits them."""
        results = (result for turn in self.run.rounds for result in turn.results if result is not None)
        return join_labels(self.run.started.labels, *(result.labels for result in results))

    @property
    def before(self) -> Run | None:
        """The run as it stood before the response began; None for the first one."""
        return Run.fold(self.events[: self.leg.begin]) if self.leg.begin else None


def new_served_run(run: str, order: AuthorizedRun, created: float) -> ServedRun:
    """Return what is known of a run that was begun just now."""
    return ServedRun(
        run=run,
        tenant=order.by.tenant,
        key=order.by.key,
        api=order.api,
        model=order.model,
        conductor=order.conductor,
        created=created,
        wire=order.wire,
        detached=order.detached,
    )


def stored_request(served: ServedRun) -> StoredRequest | None:
    """Return what was kept of a run's request; None where nothing is, or not by this API."""
    if served.api != Api.RESPONSES:
        return None
    try:
        return StoredRequest.model_validate_json(served.wire)
    except ValidationError:
        return None


async def find_response(service: RunService, by: Principal, name: str, param: str | None = None) -> StoredResponse:
    """Return a response that may be seen; ApiError (404) when there is none of this id."""
    absent = ApiError(404, f"there is no response {name[:80]!r}", "response_not_found", param=param)
    place = read_response_id(name)
    if place is None:
        raise absent
    run, number = place
    try:
        served = await service.find_served(run)
        kept = stored_request(served)
        if kept is None or kept.request.store is False or not by.owns(served.tenant):
            raise absent
        return response_at_turn(served, kept, await service.journal.read(run), number)
    except (UnknownRun, IndexError):
        raise absent from None


def response_at_turn(served: ServedRun, kept: StoredRequest, events: tuple[Event, ...], number: int) -> StoredResponse:
    """Return a run's response of this number; IndexError when there is none."""
    found = response_turns(events, approves=kept.approves)
    return StoredResponse(served, kept, events, found[number], number == len(found) - 1)


async def forget_response(service: RunService, found: StoredResponse) -> None:
    """Hide a run's responses, and cancel the run if it is in progress, since its answer could not be read."""
    if found.run.finished is None:
        await service.cancel(found.served.run)

    def forget(connection: Connection) -> None:
        connection.execute(update(SERVED).where(SERVED.c.run == found.served.run).values(wire="{}"))

    await service.journal.write(forget)


class SortOrder(StrEnum):
    """Which end comes first."""

    ASC = "asc"
    DESC = "desc"


def input_page(found: StoredResponse, after: str | None, limit: int, order: SortOrder) -> InputItemList:
    """Return a page of a response's input."""
    items = list(_answer_items(found) if found.leg.number else _request_items(found))
    if order is SortOrder.DESC:
        items.reverse()
    if after is not None:
        names = [item.id for item in items]
        if after not in names:
            raise ApiError(
                400, f"after: there is no item {after[:80]!r} in this response's input", "invalid_value", param="after"
            )
        items = items[names.index(after) + 1 :]
    shown = items[:limit]
    ends = (shown[0].id, shown[-1].id) if shown else (None, None)
    return InputItemList(data=shown, first_id=ends[0], last_id=ends[1], has_more=len(items) > limit)


def _request_items(found: StoredResponse) -> Iterator[InputItem]:
    for place, item in enumerate(found.kept.request.items):
        yield _input_item(item, f"{found.served.run}_{place}")


def _input_item(item: ResponseItem, name: str) -> InputItem:
    match item:
        case ResponseMessage(role="assistant"):
            return AnswerMessage(id=f"msg_in_{name}", content=[AnswerText(text=_message_text(item))])
        case ResponseMessage():
            return _input_message(item, f"msg_in_{name}")
        case FunctionCall():
            return FunctionCallItem(id=f"fc_in_{name}", call_id=item.call_id, name=item.name, arguments=item.arguments)
        case FunctionCallOutput():
            output = output_text(item)
            return FunctionOutputItem(type=item.type, id=f"fco_in_{name}", call_id=item.call_id, output=output)
        case CustomToolCall():
            return CustomToolCallItem(id=f"ctc_in_{name}", call_id=item.call_id, name=item.name, input=item.input)
        case ApprovalRequest():
            return ApprovalItem(id=item.id, name=item.name, arguments=item.arguments, server_label=item.server_label)
        case ApprovalResponse():
            told = {"approval_request_id": item.approval_request_id, "approve": item.approve, "reason": item.reason}
            return ApprovalDecisionItem.model_validate({"id": f"mcpa_in_{name}", **told})
        case _:
            return ReasoningItem(id=item.id or f"rs_in_{name}", summary=item.summary)


def _input_message(item: ResponseMessage, name: str) -> InputMessage:
    role = "user" if item.role == "assistant" else item.role
    if isinstance(item.content, str):
        return InputMessage(id=name, role=role, content=[InputText(type="input_text", text=item.content)])
    parts: list[InputText | InputImage | InputFile] = []
    for part in item.content:
        match part:
            case InputText() | InputImage() | InputFile():
                parts.append(part)
            case OutputText():
                parts.append(InputText(type="input_text", text=part.text))
            case RefusalPart():
                parts.append(InputText(type="input_text", text=part.refusal))
    return InputMessage(id=name, role=role, content=parts)


def _message_text(item: ResponseMessage) -> str:
    if isinstance(item.content, str):
        return item.content
    said: Sequence[str] = [
        part.refusal if isinstance(part, RefusalPart) else part.text
        for part in item.content
        if isinstance(part, RefusalPart | OutputText | InputText)
    ]
    return "\n\n".join(said)


def _answer_items(found: StoredResponse) -> Iterator[InputItem]:
    """Yield what a later response of a run was made from: the answers that it began with."""
    asked = Run.fold(found.events).asked
    for place, answer in enumerate(found.leg.answers(found.events)):
        question, name = asked[answer.question], f"{found.served.run}.{found.leg.number}_{place}"
        if question.asks is QuestionKind.TOOLS:
            results = load_tool_results(answer.text, load_tool_calls(question.prompt))
            for call, result in zip(client_tool_calls(question), results, strict=True):
                yield FunctionOutputItem(id=f"fco_in_{call.id}", call_id=call.id, output=result.content)
        else:
            told = {"approval_request_id": approval_id(found.served.run, question.question), "approve": answer.approved}
            yield ApprovalDecisionItem.model_validate(
                {"id": f"mcpa_in_{name}", **told, "reason": answer.remark or None}
            )
