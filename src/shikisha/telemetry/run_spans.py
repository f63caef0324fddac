"""Spans of runs, made of the engine's events as they come.

A run is `invoke_workflow`; under it stand a `plan` for each round and an `invoke_agent` for each step, and under these
one span for each attempt (`chat`, `execute_tool`, or `attempt` for people and child runs); a child run hangs under the
attempt that started it. A step links to every step that it could see, because a tree cannot show a graph. Checks and
grades are `gen_ai.evaluation.result` events.

Invariants: a span is told once, when it has ended; a run that pauses has every span closed, and what goes on with it is
a further part: a root span of its own in the same trace, linked to the part before. `recall` lets a process that never
saw the earlier part know it from the journal; what was open when another process died is then told here, as cut off.
Deliberately absent: sampling and sending (`export`), durations as metrics (`meters`).

What is remembered of one run while its spans are told.

Invariant: whatever is open here is a span that has begun and that nobody has been told of yet; when the run stops, for
good or not, everything open is closed. A thread whose run is over is small: places, and no spans. Deliberately absent:
what spans say (`attributes`).

The spans of a round: its planning, its steps, and the attempts of both.

Invariant: a step's span begins with the first thing that happens for it and ends with its result; attempts of one step
follow one another, so at most one is open. A step links to every step on its access list. Deliberately absent: runs
(`spans`), and what spans say (`attributes`).
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from shikisha.core.budget import Amount, Caps
from shikisha.core.errors import FaultKind
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
)
from shikisha.core.plan import Plan
from shikisha.telemetry import attributes as say
from shikisha.telemetry import conventions
from shikisha.telemetry.conventions import OpenInferenceKind
from shikisha.telemetry.span_model import (
    RunSpan,
    SpanCallback,
    SpanEvent,
    SpanLink,
    SpanRef,
    SpanValue,
    span_id,
    trace_id,
)
from shikisha.telemetry.worker_facts import CallKind, WorkerFacts

_MOST_OPEN = 20_000  # runs whose end never came (their process lost the journal) must not pile up
_MOST_KEPT = 2_000  # runs that have ended or wait, kept for late grades and for going on
_BELOW = re.compile(r"(?:-\d+-(?:\d+|plan)-\d+(?:\.\d+)?)+$")  # what a child run's id adds to its root's
_NOTHING: dict[str, SpanValue] = {}
V = TypeVar("V")
StepPlace = tuple[int, int | None]  # a round's step; None: its planning


@dataclass(slots=True)
class RunTrace:
    """A run: where its spans hang, which are open, and what they share."""

    run: str
    trace: int
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
    uncertain: Amount = Amount()  # what calls without a known outcome may have used besides
    plan: Plan | None = None
    plan_hash: str = ""
    version: str = ""
    open: dict[StepPlace, RunSpan] = field(default_factory=dict)  # steps and plannings
    calls: dict[StepPlace, tuple[str, RunSpan]] = field(default_factory=dict)  # the attempt of each that is being made
    made: dict[StepPlace, int] = field(default_factory=dict)  # attempts, by step
    places: dict[StepPlace, SpanRef] = field(default_factory=dict)  # of steps, for links
    asked: dict[str, StepPlace | None] = field(default_factory=dict)  # None: about the answer
    answered: dict[StepPlace, QuestionAnswered] = field(default_factory=dict)

    def place(self, what: str) -> SpanRef:
        """Return the place of a span of this part."""
        return SpanRef(self.trace, span_id(self.run, self.part, what), sampled=self.sampled)

    def left(self) -> dict[str, SpanValue]:
        """Return what is left of the caps, as attributes; nothing where there is no cap or nobody can say."""
        if self.caps.dollars is None and self.caps.tokens is None:
            return _NOTHING
        said: dict[str, SpanValue] = {}
        counted = self.used + self.uncertain
        if self.caps.dollars is not None and counted.dollars is not None:
            said[conventions.BUDGET_DOLLARS] = max(0.0, self.caps.dollars - counted.dollars)
        if self.caps.tokens is not None:
            said[conventions.BUDGET_TOKENS] = max(0, self.caps.tokens - counted.tokens)
        return said

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
    """The runs that are being performed, those that are over or wait, and the traces that runs were ordered in."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, RunTrace] = OrderedDict()
        self.over: OrderedDict[str, RunTrace] = OrderedDict()
        self.ordered: OrderedDict[str, SpanRef] = OrderedDict()

    def begin(self, thread: RunTrace) -> RunTrace | None:
        """Take a run in; return one that has to go for it, where there are too many."""
        self.open[thread.run] = thread
        return self.open.popitem(last=False)[1] if len(self.open) > _MOST_OPEN else None

    def end(self, thread: RunTrace) -> None:
        """Keep little of a run that is over or waits."""
        self.open.pop(thread.run, None)
        keep_newest(self.over, thread.run, thread)

    def trace(self, run: str, parent: SpanRef | None) -> int:
        """Return the trace that a run is in: its parent's, or the one reckoned from its root's id."""
        if parent is not None:
            return parent.trace
        root = _BELOW.sub("", run)
        return self.ordered[root].trace if root in self.ordered else trace_id(root)


def keep_newest(kept: OrderedDict[str, V], name: str, value: V) -> None:
    """Keep a value, and no more of them than there is room for: the oldest goes."""
    kept[name] = value
    while len(kept) > _MOST_KEPT:
        kept.popitem(last=False)


class StepSpans:
    """Makes the spans of rounds. `end` is told of each that has ended, and when."""

    def __init__(
        self, facts: Mapping[str, WorkerFacts], end: Callable[[RunSpan, float], None], *, content: bool
    ) -> None:
        self._facts = dict(facts)
        self._end = end
        self._content = content
        self.calls: dict[str, RunSpan] = {}  # attempts in flight, by key: child runs hang under them

    # a round and its steps -------------------------------------------------------------------------------------------

    def plan(self, thread: RunTrace, event: PlanProposed) -> None:
        """Tell of a plan: the planning has ended."""
        span = self._opened(thread, (event.round, None), event.at)
        plan = Plan.loads(event.plan)
        thread.plan, thread.plan_hash, thread.version = plan, say.plan_hash(event), event.version
        span.attributes.update(say.plan_attributes(event, thread.plan_hash, len(plan)))
        if self._content:
            span.attributes[conventions.PLAN_TEXT] = event.text or event.plan
        del thread.open[event.round, None]
        self._end(span, event.at)

    def _opened(self, thread: RunTrace, spot: StepPlace, at: float) -> RunSpan:
        """Return the span of a step or of a round's planning, begun if it was not."""
        span = thread.open.get(spot)
        if span is None:
            make = self._planning if spot[1] is None else self._step
            thread.open[spot] = span = make(thread, spot, at)
            answer = thread.answered.get(spot)
            if answer is not None:
                span.attributes.update(say.decision_attributes(answer))
        return span

    def _planning(self, thread: RunTrace, spot: StepPlace, at: float) -> RunSpan:
        said: say.Attributes = {
            conventions.KIND: OpenInferenceKind.CHAIN.value,
            conventions.OPERATION: conventions.PLAN,
            conventions.AGENT_NAME: thread.conductor,
            conventions.RUN: thread.run,
            conventions.ROUND: spot[0],
        }
        began = min(thread.last, at)  # a round's planning begins when whatever was before is over
        name = f"{conventions.PLAN} {thread.conductor}".rstrip()
        return RunSpan(name, thread.place(f"plan {spot[0]}"), thread.root_place, began, said)

    def _step(self, thread: RunTrace, spot: StepPlace, at: float) -> RunSpan:
        round_index, index = spot[0], spot[1] or 0
        planned = thread.plan.steps[index] if thread.plan and index < len(thread.plan) else None
        ordinal = planned.worker if planned else -1
        worker = self._of(thread.pool[ordinal]) if 0 <= ordinal < len(thread.pool) else WorkerFacts("")
        said: say.Attributes = {
            conventions.KIND: OpenInferenceKind.AGENT.value,
            conventions.OPERATION: conventions.INVOKE_AGENT,
            conventions.AGENT_NAME: worker.name,
            conventions.RUN: thread.run,
            conventions.ROUND: round_index,
            conventions.STEP: index,
            conventions.STEP_ID: f"{round_index}.{index}",
            conventions.DEPTH: thread.about.get(conventions.DEPTH, 0),
            conventions.ACCESS: planned.access if planned else (),
            conventions.PLAN_HASH: thread.plan_hash,
        }
        if worker.description:
            said[conventions.AGENT_DESCRIPTION] = worker.description
        if worker.via is CallKind.CHAT:
            said.update(say.model_attributes(worker))
        if self._content and planned:
            said.update(say.input_attributes(planned.subtask))
        seen = planned.access if planned else ()
        links = [_access_link(thread, round_index, step) for step in seen if (round_index, step) in thread.places]
        place = thread.places[spot] = thread.place(f"step {round_index}.{index}")
        return RunSpan(
            f"{conventions.INVOKE_AGENT} {worker.name}".rstrip(), place, thread.root_place, at, said, links=links
        )

    def step_over(self, thread: RunTrace, event: StepFinished) -> None:
        """Tell of a step's result: the step has ended."""
        spot = (event.round, event.step)
        span = self._opened(thread, spot, event.at)
        said = span.attributes
        said[conventions.WORKER] = event.worker
        said[conventions.ATTEMPTS] = thread.made.get(spot, 0)
        if event.labels:
            said[conventions.LABELS] = event.labels
        if event.fault is not None:
            said[conventions.FAULT] = span.error = event.fault.value
        del thread.open[spot]
        self._end(span, event.at)

    # calls -----------------------------------------------------------------------------------------------------------

    def call(self, thread: RunTrace, event: AttemptStarted) -> None:
        """Begin an attempt."""
        spot = (event.round, event.step)
        above = None if event.round < 0 else self._opened(thread, spot, event.at)  # a rollback's calls are the run's
        worker = self._of(event.worker)
        thread.made[spot] = thread.made.get(spot, 0) + 1
        place = thread.place(f"attempt {event.round}.{event.step}.{event.attempt}")
        said = say.attempt_attributes(event, worker)
        under, chat = above.place if above else thread.root_place, worker.via is CallKind.CHAT
        span = RunSpan(_call_name(event.worker, worker), place, under, event.at, said, client=chat)
        if self._content and worker.via is CallKind.TOOL and event.role is CallRole.STEP and thread.plan:
            said[conventions.TOOL_ARGUMENTS] = thread.plan.steps[event.step or 0].subtask
        thread.calls[spot] = (event.key, span)
        self.calls[event.key] = span

    def called(self, thread: RunTrace, event: AttemptFinished | AttemptFailed) -> None:
        """Tell of an attempt's outcome: it has ended."""
        key, span = thread.calls.pop((event.round, event.step), ("", None))
        chat = span is not None and span.client
        if isinstance(event, AttemptFinished):
            thread.used += Amount(event.usage.total, event.dollars)
            said = say.reply_attributes(event, chat)
        else:
            thread.used += event.charged
            said = say.failure_attributes(event, chat)
        thread.uncertain += event.uncertain
        if span is None:
            return  # begun in an earlier part, and closed there
        self.calls.pop(key, None)
        span.attributes.update(said)
        span.attributes.update(thread.left())
        if isinstance(event, AttemptFailed):
            span.error = "" if event.fault in say.NO_ERRORS else event.fault.value
        elif self._content:
            self._content_of(thread, event, span)
        self._end(span, event.at)

    def _content_of(self, thread: RunTrace, event: AttemptFinished, span: RunSpan) -> None:
        said = say.output_attributes(event.text, event.finish.value)
        if conventions.TOOL_NAME in span.attributes:
            span.attributes[conventions.TOOL_RESULT] = event.text
        else:
            span.attributes.update(said)
        above = thread.open.get((event.round, event.step))
        if above is not None and event.step is not None and span.attributes[conventions.ROLE] == CallRole.STEP.value:
            above.attributes.update(said)  # and not what a judge said of it

    def check(self, thread: RunTrace, event: CheckDecided) -> None:
        """Tell of a check's verdict."""
        said = say.check_attributes(event)
        if self._content and event.reason:
            said[conventions.EVALUATION_WHY] = event.reason
        self.moment(thread, (event.round, event.step), SpanEvent(conventions.EVALUATION, event.at, said))

    def moment(self, thread: RunTrace, spot: StepPlace, moment: SpanEvent) -> None:
        """Tell of something that happened in a step or in a round's planning."""
        self._opened(thread, spot, moment.at).moments.append(moment)

    def question(self, thread: RunTrace, event: QuestionAsked) -> None:
        """Tell that a person (or the client, for its tools) is asked: in the step, or in the run for its answer."""
        spot = None if event.asks is QuestionKind.REVIEW else (event.round, event.step)
        thread.asked[event.question] = spot
        span = thread.root if spot is None else self._opened(thread, spot, event.at)
        if span is not None:
            span.moments.append(SpanEvent(conventions.QUESTION, event.at, say.question_attributes(event)))

    def answer(self, thread: RunTrace, event: QuestionAnswered) -> None:
        """Tell of a person's decision, now or when the step that it is for goes on."""
        if event.question not in thread.asked:
            return
        spot, said = thread.asked[event.question], say.decision_attributes(event)
        if spot is not None:
            thread.answered[spot] = event
        span = thread.root if spot is None else thread.open.get(spot)
        if span is not None:
            span.attributes.update(said)
            span.moments.append(SpanEvent(conventions.APPROVAL, event.at, said))
        elif spot is None:
            thread.about.update(said)

    def lost(self, thread: RunTrace) -> None:
        """Forget the calls that were being made: the run has stopped."""
        for key, _ in thread.calls.values():
            self.calls.pop(key, None)

    def _of(self, worker: str) -> WorkerFacts:
        return self._facts.get(worker) or WorkerFacts(worker)


def _access_link(thread: RunTrace, round_index: int, step: int) -> SpanLink:
    return SpanLink(thread.places[round_index, step], {conventions.LINK: "access", conventions.STEP: step})


def _call_name(name: str, worker: WorkerFacts) -> str:
    if worker.via is CallKind.CHAT:
        return f"{conventions.CHAT} {worker.model or name}"
    return f"{conventions.EXECUTE_TOOL if worker.via is CallKind.TOOL else conventions.ATTEMPT} {name}"


_AFTERWARDS = (
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
    """An observer of the engine. `emit` is given every span that has ended, `sampled` asked about every root."""

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
        self._threads = RunTraces()

    # what is told ----------------------------------------------------------------------------------------------------

    def adopt(self, run: str, parent: SpanRef) -> None:
        """Let a run that is about to begin, or to go on, be part of the trace of whoever ordered it."""
        keep_newest(self._threads.ordered, run, parent)

    def recall(self, events: Sequence[Event]) -> None:
        """Take in what the journal has of a run that this process is about to go on with; nothing of it is told."""
        if not events or events[0].run in self._threads.open:
            return
        self._threads.over.pop(events[0].run, None)
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
        thread = self._threads.open.get(event.run)
        if thread is None:
            self._outside(event)
            return
        self._inside(thread, event)
        thread.last = event.at

    def _inside(self, thread: RunTrace, event: Event) -> None:
        match event:
            case AttemptStarted():
                self._steps.call(thread, event)
            case AttemptFinished() | AttemptFailed():
                self._steps.called(thread, event)
            case StepFinished():
                self._steps.step_over(thread, event)
            case PlanProposed():
                self._steps.plan(thread, event)
            case CheckDecided():
                self._steps.check(thread, event)
            case PlanRejected():
                self._steps.moment(thread, (event.round, None), SpanEvent(conventions.PLAN_REJECTED, event.at, {}))
            case QuestionAsked():
                self._steps.question(thread, event)
            case QuestionAnswered():
                self._steps.answer(thread, event)
            case RunFinished() | RunPaused():
                self._stop(thread, event)
            case RunResumed():
                self._cut_off(thread)
                self._go_on(thread, event.at)
            case AnswerGraded():
                self._grade(thread, event)
            case RollbackStarted() | EffectUndone() | EffectKept():
                self._instant(thread, event)
            case _:
                pass

    def _outside(self, event: Event) -> None:
        """Take in an event of a run that is over, waits, or was never seen."""
        thread = self._threads.over.get(event.run)
        if isinstance(event, RunResumed):
            self._threads.over.pop(event.run, None)
            self._go_on(thread or RunTrace(event.run, 0, last=event.at), event.at, known=thread is not None)
        elif isinstance(event, AnswerGraded):
            if thread is None:
                thread = RunTrace(event.run, self._threads.trace(event.run, None))
                thread.root_place = thread.place("run")
            self._grade(thread, event)
        elif isinstance(event, _AFTERWARDS) and thread is not None:
            self._inside(thread, event)

    # a run -----------------------------------------------------------------------------------------------------------

    def _begin(self, event: RunStarted) -> None:
        thread = RunTrace(
            event.run, 0, event.conductor, event.pool, event.caps, say.run_started_attributes(event), last=event.at
        )
        if self._content:
            thread.about.update(say.input_attributes(event.prompt))
        self._open_part(thread, event.at)

    def _open_part(self, thread: RunTrace, at: float, links: Sequence[SpanLink] = ()) -> None:
        """Begin a part of a run: its first, or a further one."""
        parent = self._parent(thread.run)
        thread.parent = parent
        thread.trace = self._threads.trace(thread.run, parent)
        thread.sampled = True
        place = thread.place("run")
        name = f"{conventions.INVOKE_WORKFLOW} {thread.conductor}" if thread.conductor else conventions.INVOKE_WORKFLOW
        root = RunSpan(name, place, parent, at, dict(thread.about), links=list(links))
        if self._sampled is not None and not self._sampled(root):
            thread.sampled = False
            root.place = thread.place("run")
        thread.root, thread.root_place = root, root.place
        lost = self._threads.begin(thread)
        if lost is not None:
            self._cut_off(lost)

    def _go_on(self, thread: RunTrace, at: float, *, known: bool = True) -> None:
        """Begin a further part, linked to the one before."""
        if known:
            before, thread.part = thread.root_place, thread.part + 1
        else:  # nobody recalled it: the first part's place can be reckoned all the same, and this one is told apart
            trace = self._threads.trace(thread.run, self._parent(thread.run))
            before = SpanRef(trace, span_id(thread.run, 0, "run"))
            thread.part = max(1, int(at * 1000))
            thread.about = {
                conventions.KIND: OpenInferenceKind.CHAIN.value,
                conventions.OPERATION: conventions.INVOKE_WORKFLOW,
                conventions.RUN: thread.run,
            }
        thread.about[conventions.RUN_PART] = thread.part
        thread.last = at
        self._open_part(
            thread, at, [SpanLink(before, {conventions.LINK: "earlier part"})] if before is not None else []
        )

    def _parent(self, run: str) -> SpanRef | None:
        """Return what a run hangs under: the attempt that started it, or what whoever ordered it named."""
        attempt = self._steps.calls.get(run) or self._steps.calls.get(run.rpartition(".")[0])
        return attempt.place if attempt is not None else self._threads.ordered.get(run)

    def _stop(self, thread: RunTrace, event: RunFinished | RunPaused) -> None:
        """Close what is open, the root last: the run has ended, or waits."""
        root = thread.root
        paused = isinstance(event, RunPaused)
        self._steps.lost(thread)
        for span in thread.close():
            if span is not root:
                span.attributes[conventions.STATUS] = event.status.value if paused else "unfinished"
            elif isinstance(event, RunFinished):
                self._last_words(thread, span, event)
            else:
                span.attributes[conventions.RUN_STATUS] = event.status.value
                span.attributes.update(say.cost_attributes(thread.used, thread.uncertain) | thread.left())
            self._end(span, event.at)
        self._threads.end(thread)

    def _last_words(self, thread: RunTrace, root: RunSpan, event: RunFinished) -> None:
        root.attributes.update(
            say.run_finished_attributes(event) | say.cost_attributes(thread.used, thread.uncertain) | thread.left()
        )
        if thread.version:
            root.attributes[conventions.POLICY_VERSION] = thread.version
        root.error = say.run_error(event)
        if self._content:
            root.attributes[conventions.RUN_WHY] = event.why
            if event.answer is not None:
                root.attributes.update(say.output_attributes(event.answer))

    def _cut_off(self, thread: RunTrace) -> None:
        """Close what was open when whoever performed the run was gone."""
        self._steps.lost(thread)
        for span in thread.close():
            span.attributes[conventions.RUN_CUT_OFF] = True
            span.error = FaultKind.UNCERTAIN.value
            self._end(span, thread.last)

    # grades ----------------------------------------------------------------------------------------------------------

    def _grade(self, thread: RunTrace, event: AnswerGraded) -> None:
        """Tell of a grade: it comes when the run is over, so it has a span of its own under the run's."""
        said = say.grade_attributes(event)
        if self._content and event.evidence:
            said[conventions.EVALUATION_WHY] = event.evidence
        about: say.Attributes = {conventions.KIND: OpenInferenceKind.EVALUATOR.value, conventions.RUN: thread.run}
        place = thread.place(f"grade {event.checker} {event.at!r}")
        span = RunSpan(f"{conventions.EVALUATE} {event.checker}", place, thread.root_place, event.at, about)
        span.moments.append(SpanEvent(conventions.EVALUATION, event.at, said))
        self._end(span, event.at)

    def _instant(self, thread: RunTrace, event: RollbackStarted | EffectUndone | EffectKept) -> None:
        """Tell of a rollback, or of what became of an effect; its compensating calls have spans of their own."""
        name = conventions.ROLLBACK if isinstance(event, RollbackStarted) else f"{conventions.UNDO} {event.worker}"
        said = say.rollback_attributes(event)
        said[conventions.KIND], said[conventions.RUN] = OpenInferenceKind.CHAIN.value, thread.run
        span = RunSpan(name, thread.place(f"{event.kind} {event.at!r}"), thread.root_place, event.at, said)
        span.error = event.fault.value if isinstance(event, EffectKept) and event.fault is not None else ""
        self._end(span, event.at)

    def _end(self, span: RunSpan, at: float) -> None:
        span.end = max(span.start, at)
        if span.error:
            span.attributes[conventions.ERROR_TYPE] = span.error
        self._tell(span)


def _discard(span: RunSpan) -> None:
    """Tell nobody."""
