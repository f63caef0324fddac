"""The spans of a round: its planning, its steps, and the attempts of both.

Invariant: a step's span begins with the first thing that happens for it and ends with its result; attempts of one step
follow one another, so at most one is open. A step links to every step on its access list. Deliberately absent: runs
(`spans`), and what spans say (`attributes`).
"""

from collections.abc import Callable, Mapping

from shikisha.budget import Amount
from shikisha.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CheckDecided,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    Role,
    StepFinished,
)
from shikisha.plan import Plan
from shikisha.telemetry import attributes as say
from shikisha.telemetry import names
from shikisha.telemetry.facts import Facts, Via
from shikisha.telemetry.names import Kind
from shikisha.telemetry.span import Link, Moment, Span
from shikisha.telemetry.thread import Spot, Thread


class Steps:
    """Makes the spans of rounds. `end` is told of each that has ended, and when."""

    def __init__(self, facts: Mapping[str, Facts], end: Callable[[Span, float], None], *, content: bool) -> None:
        self._facts = dict(facts)
        self._end = end
        self._content = content
        self.calls: dict[str, Span] = {}  # attempts in flight, by key: child runs hang under them

    # a round and its steps -------------------------------------------------------------------------------------------

    def plan(self, thread: Thread, event: PlanProposed) -> None:
        """Tell of a plan: the planning has ended."""
        span = self._opened(thread, (event.round, None), event.at)
        plan = Plan.loads(event.plan)
        thread.plan, thread.plan_hash, thread.version = plan, say.plan_hash(event), event.version
        span.attributes.update(say.planned(event, thread.plan_hash, len(plan)))
        if self._content:
            span.attributes[names.PLAN_TEXT] = event.text or event.plan
        del thread.open[event.round, None]
        self._end(span, event.at)

    def _opened(self, thread: Thread, spot: Spot, at: float) -> Span:
        """Return the span of a step or of a round's planning, begun if it was not."""
        span = thread.open.get(spot)
        if span is None:
            make = self._planning if spot[1] is None else self._step
            thread.open[spot] = span = make(thread, spot, at)
            answer = thread.answered.get(spot)
            if answer is not None:
                span.attributes.update(say.answered(answer))
        return span

    def _planning(self, thread: Thread, spot: Spot, at: float) -> Span:
        said: say.Attributes = {
            names.KIND: Kind.CHAIN.value,
            names.OPERATION: names.PLAN,
            names.AGENT_NAME: thread.conductor,
            names.RUN: thread.run,
            names.ROUND: spot[0],
        }
        began = min(thread.last, at)  # a round's planning begins when whatever was before is over
        name = f"{names.PLAN} {thread.conductor}".rstrip()
        return Span(name, thread.place(f"plan {spot[0]}"), thread.root_place, began, said)

    def _step(self, thread: Thread, spot: Spot, at: float) -> Span:
        round_index, index = spot[0], spot[1] or 0
        planned = thread.plan.steps[index] if thread.plan and index < len(thread.plan) else None
        ordinal = planned.worker if planned else -1
        worker = self._of(thread.pool[ordinal]) if 0 <= ordinal < len(thread.pool) else Facts("")
        said: say.Attributes = {
            names.KIND: Kind.AGENT.value,
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: worker.name,
            names.RUN: thread.run,
            names.ROUND: round_index,
            names.STEP: index,
            names.STEP_ID: f"{round_index}.{index}",
            names.DEPTH: thread.about.get(names.DEPTH, 0),
            names.ACCESS: planned.access if planned else (),
            names.PLAN_HASH: thread.plan_hash,
        }
        if worker.description:
            said[names.AGENT_DESCRIPTION] = worker.description
        if worker.via is Via.CHAT:
            said.update(say.model(worker))
        if self._content and planned:
            said.update(say.said_to(planned.subtask))
        seen = planned.access if planned else ()
        links = [_seen(thread, round_index, step) for step in seen if (round_index, step) in thread.places]
        place = thread.places[spot] = thread.place(f"step {round_index}.{index}")
        return Span(f"{names.INVOKE_AGENT} {worker.name}".rstrip(), place, thread.root_place, at, said, links=links)

    def step_over(self, thread: Thread, event: StepFinished) -> None:
        """Tell of a step's result: the step has ended."""
        spot = (event.round, event.step)
        span = self._opened(thread, spot, event.at)
        said = span.attributes
        said[names.WORKER] = event.worker
        said[names.ATTEMPTS] = thread.made.get(spot, 0)
        if event.labels:
            said[names.LABELS] = event.labels
        if event.fault is not None:
            said[names.FAULT] = span.error = event.fault.value
        del thread.open[spot]
        self._end(span, event.at)

    # calls -----------------------------------------------------------------------------------------------------------

    def call(self, thread: Thread, event: AttemptStarted) -> None:
        """Begin an attempt."""
        spot = (event.round, event.step)
        above = None if event.round < 0 else self._opened(thread, spot, event.at)  # a rollback's calls are the run's
        worker = self._of(event.worker)
        thread.made[spot] = thread.made.get(spot, 0) + 1
        place = thread.place(f"attempt {event.round}.{event.step}.{event.attempt}")
        said = say.called(event, worker)
        under, chat = above.place if above else thread.root_place, worker.via is Via.CHAT
        span = Span(_call_name(event.worker, worker), place, under, event.at, said, client=chat)
        if self._content and worker.via is Via.TOOL and event.role is Role.STEP and thread.plan:
            said[names.TOOL_ARGUMENTS] = thread.plan.steps[event.step or 0].subtask
        thread.calls[spot] = (event.key, span)
        self.calls[event.key] = span

    def called(self, thread: Thread, event: AttemptFinished | AttemptFailed) -> None:
        """Tell of an attempt's outcome: it has ended."""
        key, span = thread.calls.pop((event.round, event.step), ("", None))
        chat = span is not None and span.client
        if isinstance(event, AttemptFinished):
            thread.used += Amount(event.usage.total, event.dollars)
            said = say.gave(event, chat)
        else:
            thread.used += event.charged
            said = say.failed(event, chat)
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

    def _content_of(self, thread: Thread, event: AttemptFinished, span: Span) -> None:
        said = say.said_by(event.text, event.finish.value)
        if names.TOOL_NAME in span.attributes:
            span.attributes[names.TOOL_RESULT] = event.text
        else:
            span.attributes.update(said)
        above = thread.open.get((event.round, event.step))
        if above is not None and event.step is not None and span.attributes[names.ROLE] == Role.STEP.value:
            above.attributes.update(said)  # and not what a judge said of it

    def check(self, thread: Thread, event: CheckDecided) -> None:
        """Tell of a check's verdict."""
        said = say.checked(event)
        if self._content and event.reason:
            said[names.EVALUATION_WHY] = event.reason
        self.moment(thread, (event.round, event.step), Moment(names.EVALUATION, event.at, said))

    def moment(self, thread: Thread, spot: Spot, moment: Moment) -> None:
        """Tell of something that happened in a step or in a round's planning."""
        self._opened(thread, spot, moment.at).moments.append(moment)

    def question(self, thread: Thread, event: QuestionAsked) -> None:
        """Tell that a person (or the client, for its tools) is asked: in the step, or in the run for its answer."""
        spot = None if event.asks is QuestionKind.REVIEW else (event.round, event.step)
        thread.asked[event.question] = spot
        span = thread.root if spot is None else self._opened(thread, spot, event.at)
        if span is not None:
            span.moments.append(Moment(names.QUESTION, event.at, say.asked(event)))

    def answer(self, thread: Thread, event: QuestionAnswered) -> None:
        """Tell of a person's decision, now or when the step that it is for goes on."""
        if event.question not in thread.asked:
            return
        spot, said = thread.asked[event.question], say.answered(event)
        if spot is not None:
            thread.answered[spot] = event
        span = thread.root if spot is None else thread.open.get(spot)
        if span is not None:
            span.attributes.update(said)
            span.moments.append(Moment(names.APPROVAL, event.at, said))
        elif spot is None:
            thread.about.update(said)

    def lost(self, thread: Thread) -> None:
        """Forget the calls that were being made: the run has stopped."""
        for key, _ in thread.calls.values():
            self.calls.pop(key, None)

    def _of(self, worker: str) -> Facts:
        return self._facts.get(worker) or Facts(worker)


def _seen(thread: Thread, round_index: int, step: int) -> Link:
    return Link(thread.places[round_index, step], {names.LINK: "access", names.STEP: step})


def _call_name(name: str, worker: Facts) -> str:
    if worker.via is Via.CHAT:
        return f"{names.CHAT} {worker.model or name}"
    return f"{names.EXECUTE_TOOL if worker.via is Via.TOOL else names.ATTEMPT} {name}"
