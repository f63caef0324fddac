"""The items of a response and the numbered events of its stream, built from the events of its run.

Invariant: items and sequence numbers are a pure function of the run's events, so a client can fetch a stream again
from any number, on any server, without loss or repetition. Numbers are consecutive: the journal holds no deltas, so a
text is always cut at the same places (`_piece_end`), however it came. When an attempt fails whose text clients hear as
it grows, its item ends as `incomplete` for all of them. Only where a server was killed in the middle of such a text do
numbers go on beyond any that it can have used (`ABANDONED_NUMBERS`): nobody knows how much of it was heard.
"""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TypeAlias

from shikisha.core.errors import FaultKind
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CallRole,
    Event,
    PlanProposed,
    QuestionAsked,
    QuestionKind,
    RunFinished,
    RunPaused,
    RunStarted,
    RunStatus,
    StepFinished,
)
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import dump_json
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.run_result import answer_or_error
from shikisha.server.lifecycle.broadcast import RunUpdate, TextUpdate
from shikisha.server.lifecycle.tool_calls import client_tool_calls
from shikisha.server.responses.schema import (
    AgentName,
    AnswerMessage,
    AnswerText,
    ApprovalItem,
    CustomToolCallItem,
    FunctionCallItem,
    ItemStatus,
    OutputItem,
    ReasoningItem,
    ResponseStatus,
    SummaryText,
)
from shikisha.server.responses.stored_response import approval_id, client_questions

ItemEvent: TypeAlias = tuple[str, Mapping[str, object]]
_INPUT_EVENTS = (("delta", "delta"), ("done", "input"))
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"


@dataclass(frozen=True, slots=True)
class AgentNames:
    """Whether items and events say whose they are (OpenAI's multi-agent beta does it so)."""

    told: bool = False

    def agent(self, worker: str) -> AgentName | None:
        """Return the agent of an item."""
        return AgentName(agent_name=worker) if self.told and worker else None

    def by(self, worker: str) -> Mapping[str, object]:
        """Return what an event says of it."""
        agent = self.agent(worker)
        return {} if agent is None else {"agent": agent}


def reasoning_item(name: str, line: str, worker: str) -> ReasoningItem:
    """Return a line about a step as an item."""
    return ReasoningItem(
        id=name, summary=[SummaryText(type="summary_text", text=line)], agent=AgentName(agent_name=worker)
    )


def call_items(
    asked: QuestionAsked, names: AgentNames, custom: Container[str] = ()
) -> Iterator[FunctionCallItem | CustomToolCallItem]:
    """Yield the calls of the client's tools that a run waits for; `custom` are those whose input is free text."""
    for place, call in enumerate(client_tool_calls(asked)):
        name, agent = f"{asked.run}_{asked.question}_{place}", names.agent(asked.worker)
        if call.name in custom:
            # A model that knows the tool may call its one text something else.
            given = json.loads(call.arguments)  # an object: calls are checked with their reply
            texts = [each for each in given.values() if isinstance(each, str)]
            text = texts[0] if len(texts) == 1 else call.arguments
            yield CustomToolCallItem(id=f"ctc_{name}", call_id=call.id, name=call.name, input=text, agent=agent)
        else:
            said = call.arguments
            yield FunctionCallItem(id=f"fc_{name}", call_id=call.id, name=call.name, arguments=said, agent=agent)


def approval_item(asked: QuestionAsked, names: AgentNames) -> ApprovalItem:
    """Return a request for a person's leave."""
    return ApprovalItem(
        id=approval_id(asked.run, asked.question),
        name=asked.worker,
        arguments=dump_json({"asks": asked.prompt}),
        server_label="shikisha",
        agent=names.agent(asked.worker),
    )


def item_events(item: OutputItem, index: int) -> Iterator[ItemEvent]:
    """Yield the types and fields of the events that bring an item."""
    by: Mapping[str, object] = {} if item.agent is None else {"agent": item.agent}
    where = {"item_id": item.id, "output_index": index}
    empty: OutputItem = item
    between: list[ItemEvent] = []
    if isinstance(item, ReasoningItem):
        empty, between = item.model_copy(update={"summary": [], "status": "in_progress"}), list(_summary_events(item))
    elif isinstance(item, CustomToolCallItem):
        empty = item.model_copy(update={"input": "", "status": "in_progress"})
        between = [(f"response.custom_tool_call_input.{kind}", {word: item.input}) for kind, word in _INPUT_EVENTS]
    elif isinstance(item, FunctionCallItem):
        empty = item.model_copy(update={"arguments": "", "status": "in_progress"})
        between = list(_argument_events(item))
    yield _ADDED, {"output_index": index, "item": empty, **by}
    for kind, fields in between:
        yield kind, {**where, **fields, **by}
    yield _DONE, {"output_index": index, "item": item, **by}


def _summary_events(item: ReasoningItem) -> Iterator[ItemEvent]:
    for place, summary in enumerate(item.summary):
        whole, where = summary.model_dump(), {"summary_index": place}
        yield "response.reasoning_summary_part.added", {**where, "part": {**whole, "text": ""}}
        yield "response.reasoning_summary_text.delta", {**where, "delta": summary.text}
        yield "response.reasoning_summary_text.done", {**where, "text": summary.text}
        yield "response.reasoning_summary_part.done", {**where, "part": whole}


def _argument_events(item: FunctionCallItem) -> Iterator[ItemEvent]:
    yield "response.function_call_arguments.delta", {"delta": item.arguments}
    yield "response.function_call_arguments.done", {"name": item.name, "arguments": item.arguments}


ABANDONED_NUMBERS = 2**18
_OPENING_EVENTS, _CLOSING_EVENTS = 2, 3  # events before and after the text
_MAX_PIECES = ABANDONED_NUMBERS - _OPENING_EVENTS - _CLOSING_EVENTS
_SHORTEST_PIECE, _LONGEST_PIECE, _GROWTH = 4, 64, 64


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of the stream: its sequence number, its type, and what it holds besides."""

    number: int
    type: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class StreamedMessage:
    """A message, whose first event has the number `base`; `heard`: its text is sent as it is generated.

    `text` is the whole once its call has ended.
    """

    id: str
    base: int
    index: int
    agent: AgentName | None = None
    attempt: int = -1
    heard: bool = False
    text: str | None = None
    _shown: int = 0  # characters that were sent
    _held: str = ""  # what has come since
    _sent_events: int = 0

    @property
    def next(self) -> int:
        """The number of its next event, or of what follows it."""
        return self.base + self._sent_events

    def say(self, piece: str) -> Iterator[StreamEvent]:
        """Send a piece of text."""
        if self.heard and self.text is None and self._sent_events + len(piece) <= _MAX_PIECES:
            self._held += piece
            yield from self._show()

    def whole(self, text: str) -> Iterator[StreamEvent]:
        """Set the final text of its call; send the rest of it where it is sent as it comes."""
        self.text = text
        if self.heard:
            yield from self._show_all(text)

    def close(self, text: str) -> Iterator[StreamEvent]:
        """Show what is left of the answer, and its end."""
        yield from self._show_all(text)
        part = AnswerText(text=text)
        yield self._sent("output_text.done", text=text, logprobs=[])
        yield self._sent("content_part.done", part=part)
        yield self._item("done", self.item(text))

    def give_up(self, partial: str) -> Iterator[StreamEvent]:
        """End it as incomplete where its text was sent as it came; `partial` is all that came of it."""
        text = partial if self.text is None else self.text
        if self.heard and (text or self._sent_events):
            yield from self._show_all(text)
            yield self._item("done", self.item(text, "incomplete"))

    def lose(self, after: int) -> Iterator[StreamEvent]:
        """End it as incomplete for a listener that has its start: nobody knows how much of it was sent."""
        if self.heard:
            known, self._sent_events = self._sent_events or after >= self.base, ABANDONED_NUMBERS
            ended = self._item("done", self.item("", "incomplete"))
            if known:
                yield ended

    def item(self, text: str | None, status: ItemStatus = "completed") -> AnswerMessage:
        """Return it as an item."""
        content = [] if text is None else [AnswerText(text=text)]
        return AnswerMessage(id=self.id, status=status, content=content, agent=self.agent)

    def _show_all(self, text: str) -> Iterator[StreamEvent]:
        self._held = text[self._shown :]
        yield from self._show(end=True)

    def _show(self, *, end: bool = False) -> Iterator[StreamEvent]:
        if not self._sent_events:
            yield self._item("added", self.item(None, "in_progress"))
            yield self._sent("content_part.added", part=AnswerText(text=""))
        begin = 0
        while rest := len(self._held) - begin:
            # Where a delta ends that begins with this character: short ones first, so that a text begins at once
            size = self._shown + min(_LONGEST_PIECE, max(_SHORTEST_PIECE, self._shown // _GROWTH)) - self._shown
            if rest < size and not end:
                break
            piece = self._held[begin : begin + size]
            begin, self._shown = begin + len(piece), self._shown + len(piece)
            yield self._sent("output_text.delta", delta=piece, logprobs=[])
        self._held = self._held[begin:]

    def _item(self, kind: str, item: AnswerMessage) -> StreamEvent:
        return self._numbered(f"output_item.{kind}", {"output_index": self.index, "item": item})

    def _sent(self, kind: str, **fields: object) -> StreamEvent:
        return self._numbered(kind, {"item_id": self.id, "output_index": self.index, "content_index": 0, **fields})

    def _numbered(self, kind: str, fields: Mapping[str, object]) -> StreamEvent:
        number, self._sent_events = self.next, self._sent_events + 1
        by = {} if self.agent is None else {"agent": self.agent}
        return StreamEvent(number, f"response.{kind}", {**fields, **by})


_MAX_SUBTASK = 160


def _never_streams(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ResponseTerms:
    """How a response is built: which turn, whether steps are reported, whether its client may approve calls.

    `audible` says whether a worker's pieces may be passed on before its answer stands. `after` is the last number that
    the listener has, `custom` the names of the tools whose input is free text.
    """

    leg: int = 0
    progress: bool = False
    approves: bool = False
    audible: Callable[[str], bool] = _never_streams
    after: int = -1
    custom: frozenset[str] = frozenset()


@dataclass(slots=True)
class ResponseBuilder:
    """Builds one response from its run's updates. `output` holds its items; `standing` None: in progress."""

    terms: ResponseTerms = ResponseTerms()
    events: list[Event] = field(default_factory=list)  # the run's, up to the response's end
    output: list[OutputItem] = field(default_factory=list)
    standing: ResponseStatus | None = None
    last: int = -1  # the highest number so far
    _leg: int = 0
    _next: int = 0
    _index: int = 0
    _begun: bool = False
    _place: tuple[int, int] | None = None  # round and step that will give the answer
    _plan: Plan | None = None
    _message: StreamedMessage | None = None
    _held: list[ReasoningItem] = field(default_factory=list)

    def hear(self, heard: RunUpdate) -> list[StreamEvent]:
        """Return what the stream holds for this, without what the listener has."""
        if self.standing is not None:
            return []
        leg = self._leg
        told = list(self._said(heard) if isinstance(heard, TextUpdate) else self._happened(heard.number, heard.event))
        return self._missing(told) if leg == self.terms.leg else []

    def stop(self) -> list[StreamEvent]:
        """Return how the stream ends when its run was cancelled."""
        return self._missing([*self._give_up(), *self._end("cancelled", "response.incomplete")])

    def _missing(self, told: Iterable[StreamEvent]) -> list[StreamEvent]:
        missing = []
        for sent in told:
            self.last = max(self.last, sent.number)
            if sent.number > self.terms.after:
                missing.append(sent)
        return missing

    def _said(self, said: TextUpdate) -> Iterator[StreamEvent]:
        if self._message is not None and (said.round, said.step) == self._place:
            yield from self._message.say(said.piece)

    def _happened(self, number: int, event: Event) -> Iterator[StreamEvent]:
        self.events.append(event)
        if not self._begun:
            self._begun = True
            yield from self._numbered([("response.created", {}), ("response.in_progress", {})])
        match event:
            case PlanProposed():
                yield from self._planned(number, event)
            case AttemptStarted(role=CallRole.STEP) if (event.round, event.step) == self._place:
                yield from self._give_up()
                self._open(event)
            case AttemptFinished() | AttemptFailed():
                yield from self._attempted(event)
            case StepFinished():
                yield from self._stepped(number, event)
            case RunPaused(status=RunStatus.SUSPENDED):
                yield from self._waits()
            case RunFinished():
                yield from self._finished(event)
            case _:
                pass

    # the message that will be the answer ----------------------------------------------------------------------------

    def _open(self, event: AttemptStarted) -> None:
        name = f"msg_{event.run}_{event.round}_{event.step}_{event.attempt}"
        self._message = self._made(name, event.worker)
        self._message.attempt = event.attempt
        self._message.heard = self.terms.audible(event.worker)

    def _made(self, name: str, worker: str) -> StreamedMessage:
        index, self._index = self._index, self._index + 1
        return StreamedMessage(name, self._next, index, AgentNames(self.terms.progress).agent(worker))

    def _attempted(self, event: AttemptFinished | AttemptFailed) -> Iterator[StreamEvent]:
        message = self._message
        if message is None or (event.round, event.step) != self._place or event.attempt != message.attempt:
            return
        if isinstance(event, AttemptFinished):
            yield from message.whole(event.text)
        elif event.fault is FaultKind.TRUNCATED and event.partial:
            yield from message.whole(event.partial)  # it may be all the answer that there will be
        else:
            yield from self._give_up(event.partial, lost=event.fault is FaultKind.UNCERTAIN)

    def _give_up(self, partial: str | None = None, *, lost: bool = False) -> Iterator[StreamEvent]:
        """End a message that is not the answer: its call failed, or a check or a person did not let it pass."""
        message, self._message = self._message, None
        if message is not None:
            if lost and partial is None:
                yield from message.lose(self.terms.after)
            else:
                yield from message.give_up(partial or "")
            self._next = message.next
            yield from self._release()

    def _close(self, message: StreamedMessage, text: str) -> Iterator[StreamEvent]:
        self._message = None
        yield from message.close(text)
        self._next = message.next
        self.output.append(message.item(text))
        yield from self._release()

    # lines about steps ----------------------------------------------------------------------------------------------

    def _planned(self, number: int, event: PlanProposed) -> Iterator[StreamEvent]:
        begun, plan = self.events[0], Plan.loads(event.plan)
        self._plan, pool = plan, begun.pool if isinstance(begun, RunStarted) else ()
        is_last = event.final or (isinstance(begun, RunStarted) and event.round + 1 >= begun.caps.rounds)
        self._place = (event.round, len(plan) - 1) if is_last and len(plan) else None
        names = [pool[step.worker] if step.worker < len(pool) else "?" for step in plan.steps]
        line = f"Round {event.round + 1}: " + (" → ".join(names) or "the answer is kept")
        yield from self._line(f"rs_{event.run}_{number}", line, event.conductor)

    def _stepped(self, number: int, event: StepFinished) -> Iterator[StreamEvent]:
        if self._plan is None or (event.round, event.step) == self._place or event.step >= len(self._plan):
            return
        subtask = " ".join(self._plan.steps[event.step].subtask.split())
        shown = subtask if len(subtask) <= _MAX_SUBTASK else subtask[: _MAX_SUBTASK - 1] + "…"
        came = "done" if event.fault is None else f"failed ({event.fault})"
        yield from self._line(f"rs_{event.run}_{number}", f"{event.worker}: {shown} ({came})", event.worker)

    def _line(self, name: str, text: str, worker: str) -> Iterator[StreamEvent]:
        if self.terms.progress:
            self._held.append(reasoning_item(name, text, worker))
            if self._message is None:
                yield from self._release()

    def _release(self) -> Iterator[StreamEvent]:
        held, self._held = self._held, []
        for item in held:
            yield from self._item(item)

    # how it ends ----------------------------------------------------------------------------------------------------

    def _waits(self) -> Iterator[StreamEvent]:
        """End the leg if the run waits for its client."""
        run = Run.fold(self.events)
        waits = client_questions(run, approves=self.terms.approves)
        if not waits:
            return
        message, besides = self._message, _text_beside_calls(run, waits)
        if message is not None and besides and message.text == besides:
            yield from self._close(message, besides)
        else:
            yield from self._give_up()
            if besides:
                yield from self._close(self._made(f"msg_{run.id}_{waits[0].question}", waits[0].worker), besides)
        names = AgentNames(self.terms.progress)
        for asked in waits:
            tools = asked.asks is QuestionKind.TOOLS
            for item in call_items(asked, names, self.terms.custom) if tools else [approval_item(asked, names)]:
                yield from self._item(item)
        if self._leg == self.terms.leg:
            yield from self._end("completed", "response.completed")
        else:
            self._leg, self._next, self._index, self._begun, self.output = self._leg + 1, 0, 0, False, []

    def _finished(self, event: RunFinished) -> Iterator[StreamEvent]:
        came, message = answer_or_error(Run.fold(self.events)), self._message
        if isinstance(came, ApiError):
            yield from self._give_up()
            yield from self._end("failed", "response.failed")
            return
        if message is None or message.text != came.text:
            yield from self._give_up()
            message = self._made(f"msg_{event.run}", _answering_worker(self.events, event))
        yield from self._close(message, came.text)
        if came.cut or event.status is RunStatus.CAPPED:
            yield from self._end("incomplete", "response.incomplete")
        else:
            yield from self._end("completed", "response.completed")

    def _end(self, standing: ResponseStatus, kind: str) -> Iterator[StreamEvent]:
        yield from self._release()
        self.standing = standing
        yield from self._numbered([(kind, {})])

    def _item(self, item: OutputItem) -> Iterator[StreamEvent]:
        index, self._index = self._index, self._index + 1
        self.output.append(item)
        yield from self._numbered(item_events(item, index))

    def _numbered(self, parts: Iterable[ItemEvent]) -> Iterator[StreamEvent]:
        for kind, fields in parts:
            number, self._next = self._next, self._next + 1
            yield StreamEvent(number, kind, fields)


def _text_beside_calls(run: Run, waits: Iterable[QuestionAsked]) -> str:
    """Return the text next to the calls that a run waits for."""
    for asked in waits:
        if asked.asks is QuestionKind.TOOLS:
            attempts = run.round(asked.round).step(asked.step).attempts
            spoken = [call.outcome.text for call in attempts if isinstance(call.outcome, AttemptFinished)]
            if spoken and spoken[-1]:
                return spoken[-1]
    return ""


def _answering_worker(events: Iterable[Event], end: RunFinished) -> str:
    """Return who gave the answer."""
    for event in events:
        if isinstance(event, StepFinished) and (event.round, event.step) == (end.round, end.step):
            return event.worker
    return ""
