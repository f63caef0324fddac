"""The course of a response: from its run's events to its items, and to the numbered events of its stream.

Invariant: items and numbers are a pure function of the run's events, so whoever fetches the stream again, from any
number, from any server, after any restart, goes on without loss or repetition. Pieces of text are in no journal, so a
delta bears the number of the place in the text where it ends: in a message whose item was added under number n, the
delta that ends with the text's c-th character bears n + 1 + c. A stream that is fetched again has the text in one
delta, cut where the client already has it. When an attempt whose text may have been heard fails, its item is done as
`incomplete`, the next attempt's item is another one, and numbers go on beyond whatever can have been heard
(`responses_message.JUMP`). Numbers rise; they are not consecutive. What happens while a message is open is told after
it. Deliberately absent: the response object around it (`responses_view`), SSE, and who listens.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from shikisha.errors import FaultKind
from shikisha.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    Event,
    PlanProposed,
    QuestionAsked,
    QuestionKind,
    Role,
    RunFinished,
    RunPaused,
    RunStarted,
    Status,
    StepFinished,
)
from shikisha.plan import Plan
from shikisha.run import Run
from shikisha.server import responses_items as items
from shikisha.server.legs import client_waits
from shikisha.server.live import Heard, Said
from shikisha.server.mapping import outcome
from shikisha.server.problems import Problem
from shikisha.server.responses_items import Names
from shikisha.server.responses_message import Message, Sent
from shikisha.server.wire.responses_answer import OutputItem, ReasoningItem, Standing

_SHORT = 160


def _inaudible(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Terms:
    """How a response is told: which leg, whether steps are told of, whether its client may approve calls.

    `audible` says whether a worker's pieces may be passed on before its answer stands. `after` is the last number that
    the listener has.
    """

    leg: int = 0
    progress: bool = False
    approves: bool = False
    audible: Callable[[str], bool] = _inaudible
    after: int = -1


@dataclass(slots=True)
class Course:
    """One response, as its run's events come in. `output` are its items; `standing` None: it goes on."""

    terms: Terms = Terms()
    events: list[Event] = field(default_factory=list)  # the run's, up to the response's end
    output: list[OutputItem] = field(default_factory=list)
    standing: Standing | None = None
    last: int = -1  # the highest number so far
    _leg: int = 0
    _next: int = 0
    _index: int = 0
    _begun: bool = False
    _place: tuple[int, int] | None = None  # round and step that will give the answer
    _plan: Plan | None = None
    _message: Message | None = None
    _held: list[ReasoningItem] = field(default_factory=list)

    def hear(self, heard: Heard) -> list[Sent]:
        """Return what the stream holds for this, without what the listener has."""
        if self.standing is not None:
            return []
        leg = self._leg
        told = list(self._said(heard) if isinstance(heard, Said) else self._happened(heard.number, heard.event))
        return self._missing(told) if leg == self.terms.leg else []

    def stop(self) -> list[Sent]:
        """Return how the stream ends when its run was cancelled."""
        return self._missing([*self._give_up(), *self._end("cancelled", "response.incomplete")])

    def _missing(self, told: Iterable[Sent]) -> list[Sent]:
        missing = []
        for sent in told:
            self.last = max(self.last, sent.number)
            rest = sent.beyond(self.terms.after)
            if rest is not None:
                missing.append(rest)
        return missing

    def _said(self, said: Said) -> Iterator[Sent]:
        if self._message is not None and (said.round, said.step) == self._place:
            yield from self._message.say(said.piece)

    def _happened(self, number: int, event: Event) -> Iterator[Sent]:
        self.events.append(event)
        if not self._begun:
            self._begun = True
            yield from self._numbered([("response.created", {}), ("response.in_progress", {})])
        match event:
            case PlanProposed():
                yield from self._planned(number, event)
            case AttemptStarted(role=Role.STEP) if (event.round, event.step) == self._place:
                yield from self._give_up()
                self._open(event)
            case AttemptFinished() | AttemptFailed():
                yield from self._attempted(event)
            case StepFinished():
                yield from self._stepped(number, event)
            case RunPaused(status=Status.SUSPENDED):
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
        # nobody has heard the beginning of what may not be passed on yet, whatever number a listener claims to have
        self._message.known = self._message.heard and self.terms.after >= self._next

    def _made(self, name: str, worker: str) -> Message:
        index, self._index = self._index, self._index + 1
        return Message(name, self._next, index, Names(self.terms.progress).agent(worker))

    def _attempted(self, event: AttemptFinished | AttemptFailed) -> Iterator[Sent]:
        message = self._message
        if message is None or (event.round, event.step) != self._place or event.attempt != message.attempt:
            return
        if isinstance(event, AttemptFinished):
            yield from message.whole(event.text)
        elif event.fault is FaultKind.TRUNCATED and event.partial:
            yield from message.whole(event.partial)  # it may be all the answer that there will be
        else:
            yield from self._give_up(event.partial or "")

    def _give_up(self, partial: str = "") -> Iterator[Sent]:
        """End a message that is not the answer: its call failed, or a check or a person did not let it pass."""
        message, self._message = self._message, None
        if message is not None:
            yield from message.give_up(message.text or partial)
            self._next = message.next + 1
            yield from self._release()

    def _close(self, message: Message, text: str) -> Iterator[Sent]:
        self._message = None
        yield from message.close(text)
        self._next = message.end()
        self.output.append(message.item(text))
        yield from self._release()

    # lines about steps ----------------------------------------------------------------------------------------------

    def _planned(self, number: int, event: PlanProposed) -> Iterator[Sent]:
        begun, plan = self.events[0], Plan.loads(event.plan)
        self._plan, pool = plan, begun.pool if isinstance(begun, RunStarted) else ()
        is_last = event.final or (isinstance(begun, RunStarted) and event.round + 1 >= begun.caps.rounds)
        self._place = (event.round, len(plan) - 1) if is_last and len(plan) else None
        names = [pool[step.worker] if step.worker < len(pool) else "?" for step in plan.steps]
        line = f"Round {event.round + 1}: " + (" → ".join(names) or "the answer is kept")
        yield from self._line(f"rs_{event.run}_{number}", line, event.conductor)

    def _stepped(self, number: int, event: StepFinished) -> Iterator[Sent]:
        if self._plan is None or (event.round, event.step) == self._place or event.step >= len(self._plan):
            return
        subtask = " ".join(self._plan.steps[event.step].subtask.split())
        shown = subtask if len(subtask) <= _SHORT else subtask[: _SHORT - 1] + "…"
        came = "done" if event.fault is None else f"failed ({event.fault})"
        yield from self._line(f"rs_{event.run}_{number}", f"{event.worker}: {shown} ({came})", event.worker)

    def _line(self, name: str, text: str, worker: str) -> Iterator[Sent]:
        if self.terms.progress:
            self._held.append(items.reasoning(name, text, worker))
            if self._message is None:
                yield from self._release()

    def _release(self) -> Iterator[Sent]:
        held, self._held = self._held, []
        for item in held:
            yield from self._item(item)

    # how it ends ----------------------------------------------------------------------------------------------------

    def _waits(self) -> Iterator[Sent]:
        """End the leg if the run waits for its client."""
        run = Run.fold(self.events)
        waits = client_waits(run, approves=self.terms.approves)
        if not waits:
            return
        message, besides = self._message, _besides(run, waits)
        if message is not None and besides and message.text == besides:
            yield from self._close(message, besides)
        else:
            yield from self._give_up()
            if besides:
                yield from self._close(self._made(f"msg_{run.id}_{waits[0].question}", waits[0].worker), besides)
        names = Names(self.terms.progress)
        for asked in waits:
            tools = asked.asks is QuestionKind.TOOLS
            for item in items.calls(asked, names) if tools else [items.approval(asked, names)]:
                yield from self._item(item)
        if self._leg == self.terms.leg:
            yield from self._end("completed", "response.completed")
        else:
            self._leg, self._next, self._index, self._begun, self.output = self._leg + 1, 0, 0, False, []

    def _finished(self, event: RunFinished) -> Iterator[Sent]:
        came, message = outcome(Run.fold(self.events)), self._message
        if isinstance(came, Problem):
            yield from self._give_up()
            yield from self._end("failed", "response.failed")
            return
        if message is None or message.text != came.text:
            yield from self._give_up()
            message = self._made(f"msg_{event.run}", _worker(self.events, event))
        yield from self._close(message, came.text)
        if came.cut or event.status is Status.CAPPED:
            yield from self._end("incomplete", "response.incomplete")
        else:
            yield from self._end("completed", "response.completed")

    def _end(self, standing: Standing, kind: str) -> Iterator[Sent]:
        yield from self._release()
        self.standing = standing
        yield from self._numbered([(kind, {})])

    def _item(self, item: OutputItem) -> Iterator[Sent]:
        index, self._index = self._index, self._index + 1
        self.output.append(item)
        yield from self._numbered(items.parts(item, index))

    def _numbered(self, parts: Iterable[items.Part]) -> Iterator[Sent]:
        for kind, fields in parts:
            number, self._next = self._next, self._next + 1
            yield Sent(number, kind, fields)


def _besides(run: Run, waits: Iterable[QuestionAsked]) -> str:
    """Return what was said beside the calls that a run waits for."""
    for asked in waits:
        if asked.asks is QuestionKind.TOOLS:
            attempts = run.round(asked.round).step(asked.step).attempts
            spoken = [call.outcome.text for call in attempts if isinstance(call.outcome, AttemptFinished)]
            if spoken and spoken[-1]:
                return spoken[-1]
    return ""


def _worker(events: Iterable[Event], end: RunFinished) -> str:
    """Return who gave the answer."""
    for event in events:
        if isinstance(event, StepFinished) and (event.round, event.step) == (end.round, end.step):
            return event.worker
    return ""
