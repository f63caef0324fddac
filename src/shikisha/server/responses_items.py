"""The items of a response, and the events of a stream that bring each of them, but for the answer's text.

Invariant: an item's id and its events are made of the run's events alone. Deliberately absent: sequence numbers (they
are given in the order in which `responses_course` takes these), and the answer's message (`responses_message`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shikisha.events import QuestionAsked
from shikisha.server.legs import approval_id
from shikisha.server.toolcalls import outward
from shikisha.server.wire.responses_answer import ApprovalItem, CallItem, OutputItem, ReasoningItem
from shikisha.server.wire.responses_request import AgentName, SummaryText
from shikisha.turn import written_json

Part: TypeAlias = tuple[str, Mapping[str, object]]
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"


@dataclass(frozen=True, slots=True)
class Names:
    """Whether items and events say whose they are (OpenAI's multi-agent beta does it so)."""

    told: bool = False

    def agent(self, worker: str) -> AgentName | None:
        """Return the agent of an item."""
        return AgentName(agent_name=worker) if self.told and worker else None

    def by(self, worker: str) -> Mapping[str, object]:
        """Return what an event says of it."""
        agent = self.agent(worker)
        return {} if agent is None else {"agent": agent}


def reasoning(name: str, line: str, worker: str) -> ReasoningItem:
    """Return a line about a step as an item."""
    return ReasoningItem(
        id=name, summary=[SummaryText(type="summary_text", text=line)], agent=AgentName(agent_name=worker)
    )


def calls(asked: QuestionAsked, names: Names) -> Iterator[CallItem]:
    """Yield the calls of the client's tools that a run waits for."""
    for place, call in enumerate(outward(asked)):
        yield CallItem(
            id=f"fc_{asked.run}_{asked.question}_{place}",
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
            agent=names.agent(asked.worker),
        )


def approval(asked: QuestionAsked, names: Names) -> ApprovalItem:
    """Return a request for a person's leave."""
    return ApprovalItem(
        id=approval_id(asked.run, asked.question),
        name=asked.worker,
        arguments=written_json({"asks": asked.prompt}),
        server_label="shikisha",
        agent=names.agent(asked.worker),
    )


def parts(item: OutputItem, index: int) -> Iterator[Part]:
    """Yield the types and fields of the events that bring an item."""
    by: Mapping[str, object] = {} if item.agent is None else {"agent": item.agent}
    where = {"item_id": item.id, "output_index": index}
    empty: OutputItem = item
    between: list[Part] = []
    if isinstance(item, ReasoningItem):
        empty, between = item.model_copy(update={"summary": [], "status": "in_progress"}), list(_summary(item))
    elif isinstance(item, CallItem):
        empty = item.model_copy(update={"arguments": "", "status": "in_progress"})
        between = list(_arguments(item))
    yield _ADDED, {"output_index": index, "item": empty, **by}
    for kind, fields in between:
        yield kind, {**where, **fields, **by}
    yield _DONE, {"output_index": index, "item": item, **by}


def _summary(item: ReasoningItem) -> Iterator[Part]:
    for place, summary in enumerate(item.summary):
        whole, where = summary.model_dump(), {"summary_index": place}
        yield "response.reasoning_summary_part.added", {**where, "part": {**whole, "text": ""}}
        yield "response.reasoning_summary_text.delta", {**where, "delta": summary.text}
        yield "response.reasoning_summary_text.done", {**where, "text": summary.text}
        yield "response.reasoning_summary_part.done", {**where, "part": whole}


def _arguments(item: CallItem) -> Iterator[Part]:
    yield "response.function_call_arguments.delta", {"delta": item.arguments}
    yield "response.function_call_arguments.done", {"name": item.name, "arguments": item.arguments}
