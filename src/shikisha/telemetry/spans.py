"""Spans of runs, made of the engine's events as they come.

A run is `invoke_workflow`; under it stand a `plan` for each round and an `invoke_agent` for each step, and under these
one span for each attempt (`chat`, `execute_tool`, or `attempt` for people and child runs); a child run hangs under the
attempt that started it. A step links to every step that it could see, because a tree cannot show a graph. Checks and
grades are `gen_ai.evaluation.result` events.

Invariants: a span is told once, when it has ended; a run that pauses has every span closed, and what goes on with it is
a further part: a root span of its own in the same trace, linked to the part before. `recall` lets a process that never
saw the earlier part know it from the journal; what was open when another process died is then told here, as cut off.
Deliberately absent: sampling and sending (`export`), durations as metrics (`meters`).
"""

from collections.abc import Callable, Mapping, Sequence

from shikisha.errors import FaultKind
from shikisha.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CheckDecided,
    EffectKept,
    EffectUndone,
    Event,
    PlanProposed,
    PlanRejected,
    QuestionAnswered,
    QuestionAsked,
    RollbackBegun,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    StepFinished,
)
from shikisha.telemetry import attributes as say
from shikisha.telemetry import names
from shikisha.telemetry.facts import Facts
from shikisha.telemetry.ids import Place, span_of
from shikisha.telemetry.names import Kind
from shikisha.telemetry.span import Emit, Link, Moment, Span
from shikisha.telemetry.steps import Steps
from shikisha.telemetry.thread import Thread, Threads, keep

_AFTERWARDS = (
    QuestionAnswered,
    RollbackBegun,
    AttemptStarted,
    AttemptFinished,
    AttemptFailed,
    EffectUndone,
    EffectKept,
)

Sampled = Callable[[Span], bool]


class Spans:
    """An observer of the engine. `emit` is given every span that has ended, `sampled` asked about every root."""

    def __init__(
        self,
        emit: Emit,
        facts: Mapping[str, Facts] | None = None,
        *,
        sampled: Sampled | None = None,
        content: bool = False,
    ) -> None:
        self._emit = self._tell = emit
        self._sampled = sampled
        self._content = content
        self._steps = Steps(facts or {}, self._end, content=content)
        self._threads = Threads()

    # what is told ----------------------------------------------------------------------------------------------------

    def adopt(self, run: str, parent: Place) -> None:
        """Let a run that is about to begin, or to go on, be part of the trace of whoever ordered it."""
        keep(self._threads.ordered, run, parent)

    def recall(self, events: Sequence[Event]) -> None:
        """Take in what the journal has of a run that this process is about to go on with; nothing of it is told."""
        if not events or events[0].run in self._threads.open:
            return
        self._threads.over.pop(events[0].run, None)
        self._tell = _silent
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

    def _inside(self, thread: Thread, event: Event) -> None:
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
                self._steps.moment(thread, (event.round, None), Moment(names.PLAN_REJECTED, event.at, {}))
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
            case RollbackBegun() | EffectUndone() | EffectKept():
                self._instant(thread, event)
            case _:
                pass

    def _outside(self, event: Event) -> None:
        """Take in an event of a run that is over, waits, or was never seen."""
        thread = self._threads.over.get(event.run)
        if isinstance(event, RunResumed):
            self._threads.over.pop(event.run, None)
            self._go_on(thread or Thread(event.run, 0, last=event.at), event.at, known=thread is not None)
        elif isinstance(event, AnswerGraded):
            if thread is None:
                thread = Thread(event.run, self._threads.trace(event.run, None))
                thread.root_place = thread.place("run")
            self._grade(thread, event)
        elif isinstance(event, _AFTERWARDS) and thread is not None:
            self._inside(thread, event)

    # a run -----------------------------------------------------------------------------------------------------------

    def _begin(self, event: RunStarted) -> None:
        thread = Thread(event.run, 0, event.conductor, event.pool, event.caps, say.run_begun(event), last=event.at)
        if self._content:
            thread.about.update(say.said_to(event.prompt))
        self._open_part(thread, event.at)

    def _open_part(self, thread: Thread, at: float, links: Sequence[Link] = ()) -> None:
        """Begin a part of a run: its first, or a further one."""
        parent = self._parent(thread.run)
        thread.parent = parent
        thread.trace = self._threads.trace(thread.run, parent)
        thread.sampled = True
        place = thread.place("run")
        name = f"{names.INVOKE_WORKFLOW} {thread.conductor}" if thread.conductor else names.INVOKE_WORKFLOW
        root = Span(name, place, parent, at, dict(thread.about), links=list(links))
        if self._sampled is not None and not self._sampled(root):
            thread.sampled = False
            root.place = thread.place("run")
        thread.root, thread.root_place = root, root.place
        lost = self._threads.begin(thread)
        if lost is not None:
            self._cut_off(lost)

    def _go_on(self, thread: Thread, at: float, *, known: bool = True) -> None:
        """Begin a further part, linked to the one before."""
        if known:
            before, thread.part = thread.root_place, thread.part + 1
        else:  # nobody recalled it: the first part's place can be reckoned all the same, and this one is told apart
            trace = self._threads.trace(thread.run, self._parent(thread.run))
            before = Place(trace, span_of(thread.run, 0, "run"))
            thread.part = max(1, int(at * 1000))
            thread.about = {names.KIND: Kind.CHAIN.value, names.OPERATION: names.INVOKE_WORKFLOW, names.RUN: thread.run}
        thread.about[names.RUN_PART] = thread.part
        thread.last = at
        self._open_part(thread, at, [Link(before, {names.LINK: "earlier part"})] if before is not None else [])

    def _parent(self, run: str) -> Place | None:
        """Return what a run hangs under: the attempt that started it, or what whoever ordered it named."""
        attempt = self._steps.calls.get(run) or self._steps.calls.get(run.rpartition(".")[0])
        return attempt.place if attempt is not None else self._threads.ordered.get(run)

    def _stop(self, thread: Thread, event: RunFinished | RunPaused) -> None:
        """Close what is open, the root last: the run has ended, or waits."""
        root = thread.root
        paused = isinstance(event, RunPaused)
        self._steps.lost(thread)
        for span in thread.close():
            if span is not root:
                span.attributes[names.STATUS] = event.status.value if paused else "unfinished"
            elif isinstance(event, RunFinished):
                self._last_words(thread, span, event)
            else:
                span.attributes[names.RUN_STATUS] = event.status.value
                span.attributes.update(say.cost(thread.used, thread.uncertain) | thread.left())
            self._end(span, event.at)
        self._threads.end(thread)

    def _last_words(self, thread: Thread, root: Span, event: RunFinished) -> None:
        root.attributes.update(say.run_ended(event) | say.cost(thread.used, thread.uncertain) | thread.left())
        if thread.version:
            root.attributes[names.POLICY_VERSION] = thread.version
        root.error = say.run_error(event)
        if self._content:
            root.attributes[names.RUN_WHY] = event.why
            if event.answer is not None:
                root.attributes.update(say.said_by(event.answer))

    def _cut_off(self, thread: Thread) -> None:
        """Close what was open when whoever performed the run was gone."""
        self._steps.lost(thread)
        for span in thread.close():
            span.attributes[names.RUN_CUT_OFF] = True
            span.error = FaultKind.UNCERTAIN.value
            self._end(span, thread.last)

    # grades ----------------------------------------------------------------------------------------------------------

    def _grade(self, thread: Thread, event: AnswerGraded) -> None:
        """Tell of a grade: it comes when the run is over, so it has a span of its own under the run's."""
        said = say.graded(event)
        if self._content and event.evidence:
            said[names.EVALUATION_WHY] = event.evidence
        about: say.Attributes = {names.KIND: Kind.EVALUATOR.value, names.RUN: thread.run}
        place = thread.place(f"grade {event.checker} {event.at!r}")
        span = Span(f"{names.EVALUATE} {event.checker}", place, thread.root_place, event.at, about)
        span.moments.append(Moment(names.EVALUATION, event.at, said))
        self._end(span, event.at)

    def _instant(self, thread: Thread, event: RollbackBegun | EffectUndone | EffectKept) -> None:
        """Tell of a rollback, or of what became of an effect; its compensating calls have spans of their own."""
        name = names.ROLLBACK if isinstance(event, RollbackBegun) else f"{names.UNDO} {event.worker}"
        said = say.undone(event)
        said[names.KIND], said[names.RUN] = Kind.CHAIN.value, thread.run
        span = Span(name, thread.place(f"{event.kind} {event.at!r}"), thread.root_place, event.at, said)
        span.error = event.fault.value if isinstance(event, EffectKept) and event.fault is not None else ""
        self._end(span, event.at)

    def _end(self, span: Span, at: float) -> None:
        span.end = max(span.start, at)
        if span.error:
            span.attributes[names.ERROR_TYPE] = span.error
        self._tell(span)


def _silent(span: Span) -> None:
    """Tell nobody."""
