"""One run as it is shown: its explanation, where each step stands now, its drawings, what it waits for.

Invariants: everything is read off the events (by way of `explain`), so a page that is drawn while the run goes on and
one that is drawn years later say the same of the same events; a step's state is never guessed from the clock.
Deliberately absent: markup, and who may do something about it (`asking`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shikisha.events import (
    AttemptFailed,
    AttemptFinished,
    Event,
    QuestionAsked,
    Status,
)
from shikisha.explain.story import Call, Explanation, RoundStory, StepStory
from shikisha.explain.tell import explain
from shikisha.journal.listing import Summary
from shikisha.run import Attempt, Run, StepRecord
from shikisha.server.pages import graph, timeline


class State(StrEnum):
    """Where a step, or a round's planning, stands."""

    PLANNED = "planned"  # its turn has not come
    RUNNING = "running"  # a call is under way, or its answer is being checked
    RETRYING = "retrying"  # the last call failed; another is about to be made
    WAITING = "waiting"  # for a person
    DONE = "done"  # it has a result
    FAILED = "failed"  # it has none, and will have none
    STOPPED = "stopped"  # nobody performs it at the moment
    LEFT = "left"  # the run ended without it


@dataclass(frozen=True, slots=True)
class CallView:
    """A call and when it was made; `children` are the runs that it was."""

    story: Call
    began: float
    state: State
    key: str
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepView:
    """A step, where it stands, and the labels of its data."""

    story: StepStory
    state: State
    calls: tuple[CallView, ...]
    labels: tuple[str, ...]
    began: float | None
    seconds: float | None
    tokens: int
    dollars: float | None

    @property
    def subtask(self) -> str:
        """What its worker is told."""
        return self.story.subtask

    @property
    def worker(self) -> str:
        """Who performs it now: whoever gave the result, or was called last, or is planned."""
        return self.story.worker or (self.calls[-1].story.worker if self.calls else self.story.planned)


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round: who planned and how, the graph twice (for a desk, for a telephone), the steps."""

    story: RoundStory
    state: State
    calls: tuple[CallView, ...]
    steps: tuple[StepView, ...]
    wide: graph.Graph
    narrow: graph.Graph

    @property
    def round(self) -> int:
        """Its number."""
        return self.story.round

    @property
    def shape(self) -> str | None:
        """The name of its plan's shape."""
        return self.story.shape


@dataclass(frozen=True, slots=True)
class RunView:
    """A run. `number` counts its events; `live`: more is to be expected; `shown_at` is when it was looked at,
    `performed_at` when it was last seen to be performed.
    """

    story: Explanation
    run: Run
    number: int
    live: bool
    shown_at: float
    performed_at: float
    rounds: tuple[RoundView, ...]
    waiting: tuple[QuestionAsked, ...]
    wide: timeline.Timeline | None
    narrow: timeline.Timeline | None
    children: tuple[Summary, ...]

    @property
    def status(self) -> Status:
        """The run's status."""
        return self.run.status

    @property
    def seconds(self) -> float:
        """Seconds in which it was performed, up to the look at it while it goes on."""
        return self.run.active_seconds + (max(0.0, self.shown_at - self.performed_at) if self.live else 0.0)


def view(events: Sequence[Event], now: float, children: Sequence[Summary] = ()) -> RunView:
    """Return a run as it is shown, from its events so far; `children` are the runs that its steps are."""
    run = Run.fold(events)
    live = run.status is Status.RUNNING
    story = explain(run)
    end = now if live else timeline.last_performed(events)
    rounds = tuple(_round(run, told, children) for told in story.rounds)
    wide, narrow = timeline.timeline(events, end, timeline.WIDE), timeline.timeline(events, end, timeline.NARROW)
    asked = tuple(run.open_questions)
    performed = timeline.last_performed(events)
    return RunView(story, run, len(events), live, now, performed, rounds, asked, wide, narrow, tuple(children))


def _round(run: Run, told: RoundStory, children: Sequence[Summary]) -> RoundView:
    turn = run.rounds[told.round]
    steps = tuple(_step(run, told, step, children) for step in told.steps)
    access = [tuple(seen.step for seen in step.seen) for step in told.steps]
    state = State.DONE if turn.plan is not None else _state(run, turn.planning)
    calls = tuple(_calls(run, turn.planning, told.calls, children))
    return RoundView(told, state, calls, steps, graph.wide(access), graph.narrow(access))


def _step(run: Run, turn: RoundStory, told: StepStory, children: Sequence[Summary]) -> StepView:
    record = run.rounds[turn.round].steps.get(told.step) or StepRecord(told.step)
    calls = tuple(_calls(run, record, told.calls, children))
    dollars = [call.story.dollars for call in calls]
    known = None if None in dollars else sum(cost for cost in dollars if cost is not None)
    end = record.finished
    began = calls[0].began if calls else None
    return StepView(
        told,
        _state(run, record),
        calls,
        end.labels if end else (),
        began,
        end.at - began if end and began is not None else None,
        sum(call.story.tokens for call in calls),
        known,
    )


def _calls(run: Run, record: StepRecord, told: Sequence[Call], children: Sequence[Summary]) -> Iterator[CallView]:
    for attempt, story in zip(record.attempts, told, strict=True):
        key = attempt.started.key
        own = tuple(child.id for child in children if child.id == key or child.id.startswith(f"{key}."))
        yield CallView(story, attempt.started.at, _fate(run, attempt), key, own)


def _fate(run: Run, attempt: Attempt) -> State:
    match attempt.outcome:
        case AttemptFinished():
            return State.DONE
        case AttemptFailed():
            return State.FAILED
        case _:
            return State.RUNNING if run.status is Status.RUNNING else State.STOPPED


def _state(run: Run, record: StepRecord) -> State:
    """Return where a step stands, by what is journaled of it."""
    result = record.result
    if result is not None:
        return State.DONE if result.ok else State.FAILED
    if run.finished is not None:
        return State.FAILED if record.attempts else State.LEFT
    if any(asked.question not in run.answers for asked in record.questions):
        return State.WAITING
    if run.status is not Status.RUNNING:
        return State.STOPPED if record.attempts else State.PLANNED
    if not record.attempts:
        return State.RUNNING if record.index < 0 else State.PLANNED
    return State.RETRYING if isinstance(record.attempts[-1].outcome, AttemptFailed) else State.RUNNING
