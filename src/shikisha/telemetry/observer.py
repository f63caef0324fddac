"""The observer that a command or server passes to the engine, and what it scrubs before anything is exported.

Invariants: whatever happens here, a run does not notice. An error is logged once, by its type, and the next event is
observed all the same (a broken observer must not fill a disk). Secrets are scrubbed from all that leaves. Deliberately
absent: threads of our own.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from shikisha.core.budget import Amount, Caps
from shikisha.core.errors import PROCESS_STOPS, FaultKind
from shikisha.core.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CallRole,
    CheckDecided,
    EffectKept,
    EffectUndone,
    Event,
    GuardDecided,
    MapStarted,
    PlanProposed,
    PlanRejected,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RollbackStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    StepFinished,
    ToolRefused,
    ToolResultsCut,
    ToolsOffered,
    TurnRouted,
)
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.plan import Plan, item_place, step_name
from shikisha.core.secrets import SecretStore
from shikisha.telemetry import attributes as span_attributes
from shikisha.telemetry import conventions
from shikisha.telemetry.attributes import (
    CallKind,
    RunSpan,
    SpanCallback,
    SpanEvent,
    SpanLink,
    SpanRef,
    SpanValue,
    WorkerFacts,
    parse_traceparent,
    span_id,
    trace_id,
)
from shikisha.telemetry.conventions import OpenInferenceKind

if TYPE_CHECKING:
    from shikisha.telemetry.export import OTelExporter

# Spans of runs, made of the engine's events as they come.
#
# A run is `invoke_workflow`; under it are a `plan` for each round and an `invoke_agent` for each step, and under these
# one span for each attempt (`chat`, `execute_tool`, or `attempt` for people and child runs). A child run is under the
# attempt that started it. A step links to every step that it could see, because a tree cannot show a graph. Checks and
# grades are `gen_ai.evaluation.result` events.
#
# Invariants: a span is emitted once, when it has ended. A step's span begins with the first event of the step and ends
# with its result; a step's attempts follow one another, so at most one is open. When a run pauses or ends, all open
# spans are closed; a resumed run has a further part: a root span of its own in the same trace, linked to the part
# before. `recall` reads an earlier part that another process performed from the journal; what was open when that
# process died is emitted here, as cut off. A trace whose run is over keeps places, and no spans. Deliberately absent:
# what spans say (`attributes`), sampling, sending and metrics (`export`).

_MOST_OPEN = 20_000  # runs: those whose end never came (their process lost the journal) must not pile up
_MOST_KEPT = 2_000  # runs that have ended or wait, kept for late grades and for their next part
_BELOW = re.compile(r"(?:-\d+-(?:\d+|plan)-\d+(?:\.\d+)?)+$")  # what a child run's id adds to its root's
_NOTHING: dict[str, SpanValue] = {}
V = TypeVar("V")
StepPlace = tuple[int, int | None]  # a round's step; None: its planning


@dataclass(slots=True)
class RunTrace:
    """A run: the places of its spans, which of them are open, and what they share."""

    run: str
    trace_id: int
    conductor: str = ""
    pool: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)
    about: dict[str, SpanValue] = field(default_factory=dict)  # attributes of every part's root
    parent: SpanRef | None = None
    part: int = 0
    sampled: bool = True
    root: RunSpan | None = None
    root_place: SpanRef | None = None  # of the latest part
    last: float = 0.0
    used: Amount = Amount()
    uncertain: Amount = Amount()  # what calls without a known outcome may have used as well
    plan: Plan | None = None
    plan_hash: str = ""
    version: str = ""
    open: dict[StepPlace, RunSpan] = field(default_factory=dict)  # steps and plannings
    calls: dict[tuple[StepPlace, int], tuple[str, RunSpan]] = field(default_factory=dict)  # attempts being made
    made: dict[StepPlace, int] = field(default_factory=dict)  # attempts, by step
    places: dict[StepPlace, SpanRef] = field(default_factory=dict)  # of steps, for links
    asked: dict[str, StepPlace | None] = field(default_factory=dict)  # None: about the answer
    answered: dict[StepPlace, QuestionAnswered] = field(default_factory=dict)

    def place(self, what: str) -> SpanRef:
        """Return the place of a span of this part."""
        return SpanRef(self.trace_id, span_id(self.run, self.part, what), sampled=self.sampled)

    def left(self) -> dict[str, SpanValue]:
        """Return what is left of the caps, as attributes; nothing where there is no cap or the use is unknown."""
        if self.caps.dollars is None and self.caps.tokens is None:
            return _NOTHING
        attributes: dict[str, SpanValue] = {}
        counted = self.used + self.uncertain
        if self.caps.dollars is not None and counted.dollars is not None:
            attributes[conventions.BUDGET_DOLLARS] = max(0.0, self.caps.dollars - counted.dollars)
        if self.caps.tokens is not None:
            attributes[conventions.BUDGET_TOKENS] = max(0, self.caps.tokens - counted.tokens)
        return attributes

    def close(self) -> Iterator[RunSpan]:
        """Take every open span out, the inner ones first, the root last."""
        for _, span in self.calls.values():
            yield span
        yield from self.open.values()
        if self.root is not None:
            yield self.root
        self.calls.clear()
        self.open.clear()
        self.root = None


class RunTraces:
    """The runs that are being performed, those that are over or wait, and the traces that clients named."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, RunTrace] = OrderedDict()
        self.over: OrderedDict[str, RunTrace] = OrderedDict()
        self.ordered: OrderedDict[str, SpanRef] = OrderedDict()

    def begin(self, trace: RunTrace) -> RunTrace | None:
        """Add a run; return the one that has to go for it, where there are too many."""
        self.open[trace.run] = trace
        return self.open.popitem(last=False)[1] if len(self.open) > _MOST_OPEN else None

    def end(self, trace: RunTrace) -> None:
        """Keep little of a run that is over or waits."""
        self.open.pop(trace.run, None)
        keep_newest(self.over, trace.run, trace)

    def trace_of(self, run: str, parent: SpanRef | None) -> int:
        """Return the id of a run's trace: its parent's, its client's, or the one computed from its root's id."""
        if parent is not None:
            return parent.trace_id
        root = _BELOW.sub("", run)
        return self.ordered[root].trace_id if root in self.ordered else trace_id(root)


def keep_newest(kept: OrderedDict[str, V], name: str, value: V) -> None:
    """Keep a value, and drop the oldest beyond the limit."""
    kept[name] = value
    while len(kept) > _MOST_KEPT:
        kept.popitem(last=False)


class StepSpans:
    """Makes the spans of rounds. `end` is called with each that has ended, and its time."""

    def __init__(
        self, facts: Mapping[str, WorkerFacts], end: Callable[[RunSpan, float], None], *, content: bool
    ) -> None:
        self._facts = dict(facts)
        self._end = end
        self._content = content
        self.calls: dict[str, RunSpan] = {}  # attempts in flight, by key: child runs hang under them

    # a round and its steps -------------------------------------------------------------------------------------------

    def end_planning(self, trace: RunTrace, event: PlanProposed) -> None:
        """End the planning of a round with its plan."""
        span = self._opened(trace, (event.round, None), event.at)
        plan = Plan.loads(event.plan)
        trace.plan, trace.plan_hash, trace.version = plan, span_attributes.plan_hash(event), event.version
        span.attributes.update(span_attributes.plan_attributes(event, trace.plan_hash, len(plan)))
        if self._content:
            span.attributes[conventions.PLAN_TEXT] = event.text or event.plan
        del trace.open[event.round, None]
        self._end(span, event.at)

    def _opened(self, trace: RunTrace, step_place: StepPlace, at: float) -> RunSpan:
        """Return the span of a step or of a round's planning, begun if it was not."""
        span = trace.open.get(step_place)
        if span is None:
            make = self._planning if step_place[1] is None else self._step
            trace.open[step_place] = span = make(trace, step_place, at)
            answer = trace.answered.get(step_place)
            if answer is not None:
                span.attributes.update(span_attributes.decision_attributes(answer))
        return span

    def _planning(self, trace: RunTrace, step_place: StepPlace, at: float) -> RunSpan:
        attributes: span_attributes.Attributes = {
            conventions.KIND: OpenInferenceKind.CHAIN.value,
            conventions.OPERATION: conventions.PLAN,
            conventions.AGENT_NAME: trace.conductor,
            conventions.RUN: trace.run,
            conventions.ROUND: step_place[0],
        }
        began = min(trace.last, at)  # a round's planning begins when whatever was before is over
        name = f"{conventions.PLAN} {trace.conductor}".rstrip()
        return RunSpan(name, trace.place(f"plan {step_place[0]}"), trace.root_place, began, attributes)

    def _step(self, trace: RunTrace, step_place: StepPlace, at: float) -> RunSpan:
        round_index, index = step_place[0], step_place[1] or 0
        planned = trace.plan.step_of(index) if trace.plan and trace.plan.plans(index) else None
        ordinal = planned.worker if planned else -1
        worker = self._of(trace.pool[ordinal]) if 0 <= ordinal < len(trace.pool) else WorkerFacts("")
        attributes: span_attributes.Attributes = {
            conventions.KIND: OpenInferenceKind.AGENT.value,
            conventions.OPERATION: conventions.INVOKE_AGENT,
            conventions.AGENT_NAME: worker.name,
            conventions.RUN: trace.run,
            conventions.ROUND: round_index,
            conventions.STEP: index,
            conventions.STEP_ID: f"{round_index}.{step_name(index)}",
            conventions.DEPTH: trace.about.get(conventions.DEPTH, 0),
            conventions.ACCESS: planned.access if planned else (),
            conventions.PLAN_HASH: trace.plan_hash,
        }
        if worker.description:
            attributes[conventions.AGENT_DESCRIPTION] = worker.description
        if worker.via is CallKind.CHAT:
            attributes.update(span_attributes.model_attributes(worker))
        if self._content and planned:
            attributes.update(span_attributes.input_attributes(planned.subtask))
        seen = planned.access if planned else ()
        links = [
            SpanLink(trace.places[round_index, step], {conventions.LINK: "access", conventions.STEP: step})
            for step in seen
            if (round_index, step) in trace.places
        ]
        place = trace.places[step_place] = trace.place(f"step {round_index}.{index}")
        item = item_place(index)
        above = trace.places.get((round_index, item[0]), trace.root_place) if item else trace.root_place
        return RunSpan(f"{conventions.INVOKE_AGENT} {worker.name}".rstrip(), place, above, at, attributes, links=links)

    def begin_map(self, trace: RunTrace, event: MapStarted) -> None:
        """Begin a map step, under which the spans of its items are."""
        self._opened(trace, (event.round, event.step), event.at)

    def end_step(self, trace: RunTrace, event: StepFinished) -> None:
        """End a step with its result."""
        step_place = (event.round, event.step)
        span = self._opened(trace, step_place, event.at)
        attributes = span.attributes
        attributes[conventions.WORKER] = event.worker
        attributes[conventions.ATTEMPTS] = trace.made.get(step_place, 0)
        if event.labels:
            attributes[conventions.LABELS] = event.labels
        if event.fault is not None:
            attributes[conventions.FAULT] = span.error = event.fault.value
        del trace.open[step_place]
        self._end(span, event.at)

    # calls -----------------------------------------------------------------------------------------------------------

    def begin_attempt(self, trace: RunTrace, event: AttemptStarted) -> None:
        """Begin an attempt."""
        step_place = (event.round, event.step)
        above = (
            None if event.round < 0 else self._opened(trace, step_place, event.at)
        )  # a rollback's calls are the run's
        worker = self._of(event.worker)
        trace.made[step_place] = trace.made.get(step_place, 0) + 1
        place = trace.place(f"attempt {event.round}.{event.step}.{event.attempt}")
        attributes = span_attributes.attempt_attributes(event, worker)
        under, chat = above.place if above else trace.root_place, worker.via is CallKind.CHAT and not event.call
        span = RunSpan(_call_name(event, worker), place, under, event.at, attributes, client=chat)
        if self._content and event.call:
            attributes[conventions.TOOL_ARGUMENTS] = event.arguments
        elif self._content and worker.via is CallKind.TOOL and event.role is CallRole.STEP and trace.plan:
            attributes[conventions.TOOL_ARGUMENTS] = trace.plan.step_of(event.step or 0).subtask
        trace.calls[step_place, event.attempt] = (event.key, span)
        self.calls[event.key] = span

    def end_attempt(self, trace: RunTrace, event: AttemptFinished | AttemptFailed) -> None:
        """End an attempt with its outcome."""
        key, span = trace.calls.pop(((event.round, event.step), event.attempt), ("", None))
        chat = span is not None and span.client
        if isinstance(event, AttemptFinished):
            trace.used += Amount(event.usage.total, event.dollars)
            attributes = span_attributes.reply_attributes(event, chat)
        else:
            trace.used += event.charged
            attributes = span_attributes.failure_attributes(event, chat)
        trace.uncertain += event.uncertain
        if span is None:
            return  # begun in an earlier part, and closed there
        self.calls.pop(key, None)
        span.attributes.update(attributes)
        span.attributes.update(trace.left())
        if isinstance(event, AttemptFailed):
            span.error = "" if event.fault in span_attributes.NO_ERRORS else event.fault.value
        elif self._content:
            attributes = span_attributes.output_attributes(event.text, event.finish.value)
            if conventions.TOOL_NAME in span.attributes:
                span.attributes[conventions.TOOL_RESULT] = event.text
            else:
                span.attributes.update(attributes)
            above = trace.open.get((event.round, event.step))
            if (
                above is not None
                and event.step is not None
                and span.attributes[conventions.ROLE] == CallRole.STEP.value
            ):
                above.attributes.update(attributes)  # the step's own answer, not the opinion of a check's worker
        self._end(span, event.at)

    def add_check(self, trace: RunTrace, event: CheckDecided) -> None:
        """Add a check's verdict to its step."""
        attributes = span_attributes.check_attributes(event)
        if self._content and event.reason:
            attributes[conventions.EVALUATION_WHY] = event.reason
        self.add_event(trace, (event.round, event.step), SpanEvent(conventions.EVALUATION, event.at, attributes))

    def add_event(self, trace: RunTrace, step_place: StepPlace, event: SpanEvent) -> None:
        """Add an event to a step or to a round's planning."""
        self._opened(trace, step_place, event.at).events.append(event)

    def add_question(self, trace: RunTrace, event: QuestionAsked) -> None:
        """Add a question to a person (or to the client, for its tools): to the step, or to the run for its answer."""
        step_place = None if event.asks is QuestionKind.REVIEW else (event.round, event.step)
        trace.asked[event.question] = step_place
        span = trace.root if step_place is None else self._opened(trace, step_place, event.at)
        if span is not None:
            span.events.append(SpanEvent(conventions.QUESTION, event.at, span_attributes.question_attributes(event)))

    def add_decision(self, trace: RunTrace, event: QuestionAnswered) -> None:
        """Add a person's decision, now or when the step that it is for is resumed."""
        if event.question not in trace.asked:
            return
        step_place, attributes = trace.asked[event.question], span_attributes.decision_attributes(event)
        if step_place is not None:
            trace.answered[step_place] = event
        span = trace.root if step_place is None else trace.open.get(step_place)
        if span is not None:
            span.attributes.update(attributes)
            span.events.append(SpanEvent(conventions.APPROVAL, event.at, attributes))
        elif step_place is None:
            trace.about.update(attributes)

    def forget_calls(self, trace: RunTrace) -> None:
        """Forget the calls that were being made: the run has stopped."""
        for key, _ in trace.calls.values():
            self.calls.pop(key, None)

    def _of(self, worker: str) -> WorkerFacts:
        return self._facts.get(worker) or WorkerFacts(worker)


def _call_name(event: AttemptStarted, worker: WorkerFacts) -> str:
    name = event.worker
    if event.call:
        return f"{conventions.EXECUTE_TOOL} {event.tool or name}"
    if worker.via is CallKind.CHAT:
        return f"{conventions.CHAT} {worker.model or name}"
    return f"{conventions.EXECUTE_TOOL if worker.via is CallKind.TOOL else conventions.ATTEMPT} {name}"


_AFTER_THE_END = (
    QuestionAnswered,
    RollbackStarted,
    AttemptStarted,
    AttemptFinished,
    AttemptFailed,
    EffectUndone,
    EffectKept,
)

Sampler = Callable[[RunSpan], bool]


class RunSpans:
    """An observer of the engine. `emit` is called with every span that has ended, `sampled` with every root."""

    def __init__(
        self,
        emit: SpanCallback,
        facts: Mapping[str, WorkerFacts] | None = None,
        *,
        sampled: Sampler | None = None,
        content: bool = False,
    ) -> None:
        self._emit = self._tell = emit
        self._sampled = sampled
        self._content = content
        self._steps = StepSpans(facts or {}, self._end, content=content)
        self._traces = RunTraces()

    # events ----------------------------------------------------------------------------------------------------------

    def adopt(self, run: str, parent: SpanRef) -> None:
        """Make a run that is about to begin or to be resumed part of its client's trace."""
        keep_newest(self._traces.ordered, run, parent)

    def recall(self, events: Sequence[Event]) -> None:
        """Read the journaled events of a run that this process is about to resume; none of it is emitted."""
        if not events or events[0].run in self._traces.open:
            return
        self._traces.over.pop(events[0].run, None)
        self._tell = _discard
        try:
            for event in events:
                self.observe(event)
        finally:
            self._tell = self._emit

    def observe(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, RunStarted):
            self._begin(event)
            return
        trace = self._traces.open.get(event.run)
        if trace is None:
            self._add_to_stopped(event)
            return
        self._add_to_open(trace, event)
        trace.last = event.at

    def _add_to_open(self, trace: RunTrace, event: Event) -> None:
        match event:
            case AttemptStarted():
                self._steps.begin_attempt(trace, event)
            case AttemptFinished() | AttemptFailed():
                self._steps.end_attempt(trace, event)
            case MapStarted():
                self._steps.begin_map(trace, event)
            case StepFinished():
                self._steps.end_step(trace, event)
            case PlanProposed():
                self._steps.end_planning(trace, event)
            case CheckDecided():
                self._steps.add_check(trace, event)
            case ToolsOffered() | ToolRefused() | GuardDecided() | ToolResultsCut() | TurnRouted():
                decision = SpanEvent(event.kind, event.at, span_attributes.tool_attributes(event))
                self._steps.add_event(trace, (event.round, event.step), decision)
            case PlanRejected():
                self._steps.add_event(trace, (event.round, None), SpanEvent(conventions.PLAN_REJECTED, event.at, {}))
            case QuestionAsked():
                self._steps.add_question(trace, event)
            case QuestionAnswered():
                self._steps.add_decision(trace, event)
            case RunFinished() | RunPaused():
                self._stop(trace, event)
            case RunResumed():
                self._cut_off(trace)
                self._resume(trace, event.at)
            case AnswerGraded():
                self._emit_grade(trace, event)
            case RollbackStarted() | EffectUndone() | EffectKept():
                self._emit_rollback(trace, event)
            case _:
                pass

    def _add_to_stopped(self, event: Event) -> None:
        """Add an event of a run that is over, waits, or was never seen."""
        trace = self._traces.over.get(event.run)
        if isinstance(event, RunResumed):
            self._traces.over.pop(event.run, None)
            self._resume(trace or RunTrace(event.run, 0, last=event.at), event.at, known=trace is not None)
        elif isinstance(event, AnswerGraded):
            if trace is None:
                trace = RunTrace(event.run, self._traces.trace_of(event.run, None))
                trace.root_place = trace.place("run")
            self._emit_grade(trace, event)
        elif isinstance(event, _AFTER_THE_END) and trace is not None:
            self._add_to_open(trace, event)

    # a run -----------------------------------------------------------------------------------------------------------

    def _begin(self, event: RunStarted) -> None:
        trace = RunTrace(
            event.run,
            0,
            event.conductor,
            event.pool,
            event.caps,
            span_attributes.run_started_attributes(event),
            last=event.at,
        )
        if self._content:
            trace.about.update(span_attributes.input_attributes(event.prompt))
        self._open_part(trace, event.at)

    def _open_part(self, trace: RunTrace, at: float, links: Sequence[SpanLink] = ()) -> None:
        """Begin a part of a run: its first, or a further one."""
        parent = self._parent(trace.run)
        trace.parent = parent
        trace.trace_id = self._traces.trace_of(trace.run, parent)
        trace.sampled = True
        place = trace.place("run")
        name = f"{conventions.INVOKE_WORKFLOW} {trace.conductor}" if trace.conductor else conventions.INVOKE_WORKFLOW
        root = RunSpan(name, place, parent, at, dict(trace.about), links=list(links))
        if self._sampled is not None and not self._sampled(root):
            trace.sampled = False
            root.place = trace.place("run")
        trace.root, trace.root_place = root, root.place
        lost = self._traces.begin(trace)
        if lost is not None:
            self._cut_off(lost)

    def _resume(self, trace: RunTrace, at: float, *, known: bool = True) -> None:
        """Begin a further part, linked to the one before."""
        if known:
            before, trace.part = trace.root_place, trace.part + 1
        else:  # not recalled: the first part's place is computed from the run's id, and this part is numbered by time
            before = SpanRef(self._traces.trace_of(trace.run, self._parent(trace.run)), span_id(trace.run, 0, "run"))
            trace.part = max(1, int(at * 1000))
            trace.about = {
                conventions.KIND: OpenInferenceKind.CHAIN.value,
                conventions.OPERATION: conventions.INVOKE_WORKFLOW,
                conventions.RUN: trace.run,
            }
        trace.about[conventions.RUN_PART] = trace.part
        trace.last = at
        self._open_part(trace, at, [SpanLink(before, {conventions.LINK: "earlier part"})] if before is not None else [])

    def _parent(self, run: str) -> SpanRef | None:
        """Return the span above a run's root: the attempt that started it, or the one that its client named."""
        attempt = self._steps.calls.get(run) or self._steps.calls.get(run.rpartition(".")[0])
        return attempt.place if attempt is not None else self._traces.ordered.get(run)

    def _stop(self, trace: RunTrace, event: RunFinished | RunPaused) -> None:
        """Close what is open, the root last: the run has ended, or waits."""
        root = trace.root
        paused = isinstance(event, RunPaused)
        self._steps.forget_calls(trace)
        for span in trace.close():
            if span is not root:
                span.attributes[conventions.STATUS] = event.status.value if paused else "unfinished"
            elif isinstance(event, RunFinished):
                span.attributes.update(span_attributes.run_finished_attributes(event))
                span.error = span_attributes.run_error(event)
                if trace.version:
                    span.attributes[conventions.POLICY_VERSION] = trace.version
                if self._content:
                    span.attributes[conventions.RUN_WHY] = event.why
                    if event.answer is not None:
                        span.attributes.update(span_attributes.output_attributes(event.answer))
            else:
                span.attributes[conventions.RUN_STATUS] = event.status.value
            if span is root:
                span.attributes.update(span_attributes.cost_attributes(trace.used, trace.uncertain) | trace.left())
            self._end(span, event.at)
        self._traces.end(trace)

    def _cut_off(self, trace: RunTrace) -> None:
        """Close what was open when the process that performed the run died."""
        self._steps.forget_calls(trace)
        for span in trace.close():
            span.attributes[conventions.RUN_CUT_OFF] = True
            span.error = FaultKind.UNCERTAIN.value
            self._end(span, trace.last)

    # grades ----------------------------------------------------------------------------------------------------------

    def _emit_grade(self, trace: RunTrace, event: AnswerGraded) -> None:
        """Emit a grade: it comes when the run is over, so it has a span of its own under the run's."""
        attributes = span_attributes.grade_attributes(event)
        if self._content and event.evidence:
            attributes[conventions.EVALUATION_WHY] = event.evidence
        about: span_attributes.Attributes = {
            conventions.KIND: OpenInferenceKind.EVALUATOR.value,
            conventions.RUN: trace.run,
        }
        place = trace.place(f"grade {event.checker} {event.at!r}")
        span = RunSpan(f"{conventions.EVALUATE} {event.checker}", place, trace.root_place, event.at, about)
        span.events.append(SpanEvent(conventions.EVALUATION, event.at, attributes))
        self._end(span, event.at)

    def _emit_rollback(self, trace: RunTrace, event: RollbackStarted | EffectUndone | EffectKept) -> None:
        """Emit a rollback, or the outcome for an effect; its compensating calls have spans of their own."""
        name = conventions.ROLLBACK if isinstance(event, RollbackStarted) else f"{conventions.UNDO} {event.worker}"
        attributes = span_attributes.rollback_attributes(event)
        attributes[conventions.KIND], attributes[conventions.RUN] = OpenInferenceKind.CHAIN.value, trace.run
        span = RunSpan(name, trace.place(f"{event.kind} {event.at!r}"), trace.root_place, event.at, attributes)
        span.error = event.fault.value if isinstance(event, EffectKept) and event.fault is not None else ""
        self._end(span, event.at)

    def _end(self, span: RunSpan, at: float) -> None:
        span.end = max(span.start, at)
        if span.error:
            span.attributes[conventions.ERROR_TYPE] = span.error
        self._tell(span)


def _discard(span: RunSpan) -> None:
    """Tell nobody."""


_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class TelemetryObserver:
    """Exports runs as spans and metrics. `observe` takes every event; `recall`, those from before a run is resumed."""

    def __init__(
        self,
        export: "OTelExporter",
        secret_store: SecretStore,
        facts: Mapping[str, WorkerFacts],
        *,
        content: bool = False,
    ) -> None:
        self._export = export
        self._secret_store = secret_store
        self._spans = RunSpans(self._take, facts, sampled=export.sampled, content=content)
        self._failed: set[str] = set()

    def observe(self, event: Event) -> None:
        """Observe an event as it happens."""
        self._safely(self._spans.observe, event)

    def recall(self, events: Sequence[Event]) -> None:
        """Read a run's journaled events before it is resumed here, so that its trace continues."""
        self._safely(self._spans.recall, events)

    def adopt(self, run: str, traceparent: str | None) -> None:
        """Make a run part of its client's trace (a W3C `traceparent` header), before it begins or is resumed."""
        parent = parse_traceparent(traceparent)
        if parent is not None:
            self._spans.adopt(run, parent)

    def shutdown(self) -> None:
        """Send what is left and stop. It may take seconds: call it in a thread."""
        self._safely(lambda export: export.shutdown(), self._export)

    def _take(self, span: RunSpan) -> None:
        if not self._secret_store.empty and self._holds_key(span):
            self._scrub(span)
        self._export.take(span)

    def _holds_key(self, span: RunSpan) -> bool:
        """Whether any text of a span holds a secret. All texts are searched as one, since every run pays for this."""
        texts = [span.name, *_texts(span.attributes)]
        for event in span.events:
            texts += _texts(event.attributes)
        whole = "\n".join(texts)
        return self._secret_store.scrub(whole) is not whole

    def _scrub(self, span: RunSpan) -> None:
        span.name = self._secret_store.scrub(span.name)
        for attributes in (span.attributes, *[event.attributes for event in span.events]):
            for name, value in attributes.items():
                if isinstance(value, str):
                    attributes[name] = self._secret_store.scrub(value)
                elif isinstance(value, tuple):
                    attributes[name] = tuple(
                        [self._secret_store.scrub(each) if isinstance(each, str) else each for each in value]
                    )

    def _safely(self, do: Callable[[T], None], what: T) -> None:
        try:
            do(what)
        except PROCESS_STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - telemetry must not end a run, whatever it raises
            name = type(error).__name__
            if name not in self._failed:
                self._failed.add(name)
                _LOG.warning("telemetry: %s; spans may be missing (logged once)", name)


def _texts(attributes: Mapping[str, SpanValue]) -> list[str]:
    texts = [value for value in attributes.values() if isinstance(value, str)]
    return texts + [str(part) for value in attributes.values() if isinstance(value, tuple) for part in value]
