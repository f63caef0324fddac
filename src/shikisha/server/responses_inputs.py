"""The items that a response was made from, a page at a time.

Invariant: an item has the same id whenever it is listed. A response that went on with its client's answers was made
from those answers. Deliberately absent: what earlier responses were made from (each lists its own).
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from shikisha.events import QuestionKind
from shikisha.run import Run
from shikisha.server.legs import approval_id
from shikisha.server.problems import Problem
from shikisha.server.responses_asking import output_text
from shikisha.server.responses_keeping import Found
from shikisha.server.toolcalls import outward
from shikisha.server.wire.responses_answer import (
    AnswerMessage,
    AnswerText,
    ApprovalItem,
    CallItem,
    Decided,
    InputItem,
    InputItems,
    InputMessage,
    OutputOfCall,
    ReasoningItem,
)
from shikisha.server.wire.responses_request import (
    ApprovalRequest,
    ApprovalResponse,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    Item,
    Message,
    OutputText,
    Refusal,
)
from shikisha.turn import read_calls, read_results


class Order(StrEnum):
    """Which end comes first."""

    ASC = "asc"
    DESC = "desc"


def page(found: Found, after: str | None, limit: int, order: Order) -> InputItems:
    """Return a page of a response's input."""
    items = list(_answers(found) if found.leg.number else _asked(found))
    if order is Order.DESC:
        items.reverse()
    if after is not None:
        names = [item.id for item in items]
        if after not in names:
            raise Problem(
                400, f"after: there is no item {after[:80]!r} in this response's input", "invalid_value", param="after"
            )
        items = items[names.index(after) + 1 :]
    shown = items[:limit]
    ends = (shown[0].id, shown[-1].id) if shown else (None, None)
    return InputItems(data=shown, first_id=ends[0], last_id=ends[1], has_more=len(items) > limit)


def _asked(found: Found) -> Iterator[InputItem]:
    for place, item in enumerate(found.kept.request.items):
        yield _item(item, f"{found.served.run}_{place}")


def _item(item: Item, name: str) -> InputItem:
    match item:
        case Message(role="assistant"):
            return AnswerMessage(id=f"msg_in_{name}", content=[AnswerText(text=_text(item))])
        case Message():
            return _message(item, f"msg_in_{name}")
        case FunctionCall():
            return CallItem(id=f"fc_in_{name}", call_id=item.call_id, name=item.name, arguments=item.arguments)
        case FunctionCallOutput():
            return OutputOfCall(id=f"fco_in_{name}", call_id=item.call_id, output=output_text(item))
        case ApprovalRequest():
            return ApprovalItem(id=item.id, name=item.name, arguments=item.arguments, server_label=item.server_label)
        case ApprovalResponse():
            told = {"approval_request_id": item.approval_request_id, "approve": item.approve, "reason": item.reason}
            return Decided.model_validate({"id": f"mcpa_in_{name}", **told})
        case _:
            return ReasoningItem(id=item.id or f"rs_in_{name}", summary=item.summary)


def _message(item: Message, name: str) -> InputMessage:
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
            case Refusal():
                parts.append(InputText(type="input_text", text=part.refusal))
    return InputMessage(id=name, role=role, content=parts)


def _text(item: Message) -> str:
    if isinstance(item.content, str):
        return item.content
    said: Sequence[str] = [
        part.refusal if isinstance(part, Refusal) else part.text
        for part in item.content
        if isinstance(part, Refusal | OutputText | InputText)
    ]
    return "\n\n".join(said)


def _answers(found: Found) -> Iterator[InputItem]:
    """Yield what a later response of a run was made from: the answers that it began with."""
    asked = Run.fold(found.events).asked
    for place, answer in enumerate(found.leg.answers(found.events)):
        question, name = asked[answer.question], f"{found.served.run}.{found.leg.number}_{place}"
        if question.asks is QuestionKind.TOOLS:
            results = read_results(answer.text, read_calls(question.prompt))
            for call, result in zip(outward(question), results, strict=True):
                yield OutputOfCall(id=f"fco_in_{call.id}", call_id=call.id, output=result.content)
        else:
            told = {"approval_request_id": approval_id(found.served.run, question.question), "approve": answer.approved}
            yield Decided.model_validate({"id": f"mcpa_in_{name}", **told, "reason": answer.remark or None})
