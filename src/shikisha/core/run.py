"""A run: everything that happened for one task, folded from its events.

Invariants: `Run.fold(events)` is a pure function of the events; nothing about a run is kept anywhere else. Totals are
derived. A person's answer counts if it was asked for, is the first one, and, where it is a yes, came in time (5).
Deliberately absent: any way to change a run (write an event instead).
"""

import os
from collections.abc import Collection, Iterable, Sequence
from time import gmtime, strftime
from typing import TypeAlias

from shikisha.core.budget import Amount, Usage
from shikisha.core.errors import ConfigError, Fault
from shikisha.core.events import (
    AnswerChanged,
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    BodiesErased,
    CallRole,
    CheckDecided,
    CheckStatus,
    ContextGathered,
    EffectKept,
    EffectUndone,
    EndReached,
    Event,
    GradeBasis,
    GuardDecided,
    MapStarted,
    PlanProposed,
    PlanRejected,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RewardGiven,
    RollbackStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    StepFinished,
    ToolRefused,
    ToolResultsCut,
    ToolsOffered,
    TurnRouted,
)
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.plan import MOST_ITEMS, Plan, item_step
from shikisha.core.plan_parser import join_answers
from shikisha.core.task import Scope, Task, TaskBodies

_IDLE_EVENTS = (QuestionAnswered, RunResumed, AnswerGraded, RewardGiven, BodiesErased)
# Crockford's base 32: no i, l, o or u, so that an id can be read out and typed.
_LETTERS, _ID_LENGTH = b"0123456789abcdefghjkmnpqrstvwxyz" * 8, 8  # as many of each letter as there are bytes


class NewRunId(str):
    """A run id that was just drawn: no journal needs to be searched for a run of that id."""

    __slots__ = ()


def new_run_id() -> NewRunId:
    """Return a fresh run id that sorts by time: `261120-114437-` and eight random characters (40 bits)."""
    characters = os.urandom(_ID_LENGTH).translate(_LETTERS).decode()
    return NewRunId(f"{strftime('%y%m%d-%H%M%S', gmtime())}-{characters}")


def root_run_id(run: str) -> str:
    """Return the id of the run that a run or child run belongs to; the id of a child begins with it."""
    return "-".join(run.split("-")[:3])


def child_run_id(key: str, number: int) -> str:
    """Return the id of the child run that an attempt under this key starts as its number `number`, from 0."""
    return f"{key}.{number}" if number else key


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """A check's finding: its status, the reason in words, and the name of the check."""

    check: str
    status: CheckStatus
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether the check holds."""
        return self.status is CheckStatus.PASS


@dataclass(frozen=True, slots=True)
class Result:
    """What a step came to: an answer, or a fault; `worker` is who gave it, after any substitution, `usage` its use.

    `labels` are the data labels of whatever it was made from, `confidence` the worker's own (None: it does not say).
    """

    worker: str
    text: str | None = None
    fault: Fault | None = None
    verdicts: tuple[CheckVerdict, ...] = ()
    usage: Usage | None = field(default=None, compare=False)
    labels: frozenset[str] = frozenset()
    confidence: float | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.text is not None and self.fault is None


def join_results(worker: str, results: Sequence[Result | None], labels: frozenset[str]) -> Result:
    """Return a map step's result from those of its items: their answers as a list, and the checks they did not pass."""
    there = [result for result in results if result is not None]
    text = join_answers([result.text if result is not None and result.ok else None for result in results])
    verdicts = tuple(verdict for result in there for verdict in result.verdicts if not verdict.passed)
    return Result(worker, text, None, verdicts, labels=labels)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """An earlier round: its plan, each step's result in plan order, and the version of the policy that planned it."""

    plan: Plan
    results: tuple[Result, ...]
    version: str = field(default="", compare=False)

    @property
    def final(self) -> Result | None:
        """The last step's result."""
        return self.results[-1] if self.results else None


@dataclass(slots=True)
class Attempt:
    """One call to a worker: its start, and its outcome if one is journaled."""

    started: AttemptStarted
    outcome: AttemptFinished | AttemptFailed | None = None

    @property
    def in_flight(self) -> bool:
        """Whether the call was in flight when the journal ends: it may have been performed."""
        return self.outcome is None

    @property
    def charged(self) -> Amount:
        """What it is known to have used."""
        match self.outcome:
            case AttemptFinished(usage=usage, dollars=dollars):
                return Amount(usage.total, dollars)
            case AttemptFailed(charged=charged):
                return charged
            case _:
                return Amount()

    @property
    def uncertain(self) -> Amount:
        """What it may have used besides, as nobody can know: its reservation where its outcome is not known."""
        return self.started.reserved if self.outcome is None else self.outcome.uncertain

    @property
    def counted(self) -> Amount:
        """What counts against caps and budgets: the known use and the uncertain one."""
        return self.charged + self.uncertain


ToolEvent: TypeAlias = ToolsOffered | ToolRefused | GuardDecided | ToolResultsCut | TurnRouted


@dataclass(slots=True)
class StepRecord:
    """A step's attempts, checks, questions and result so far; `tools` is what was decided of an agent's tools.

    `items` are the records of a map step's items, once it has begun; they are steps of the round too.
    """

    index: int
    attempts: list[Attempt] = field(default_factory=list)
    checks: list[CheckDecided] = field(default_factory=list)
    questions: list[QuestionAsked] = field(default_factory=list)
    tools: list[ToolEvent] = field(default_factory=list)
    finished: StepFinished | None = None
    items: "list[StepRecord] | None" = None

    @property
    def tool_calls(self) -> int:
        """How many calls of tools an agent has made in it."""
        return len({attempt.started.call for attempt in self.attempts if attempt.started.role is CallRole.TOOL})

    @property
    def is_agent(self) -> bool:
        """Whether its worker calls tools of ours."""
        return any(not isinstance(each, TurnRouted) for each in self.tools)

    @property
    def is_routed(self) -> bool:
        """Whether it was decided, turn by turn, who goes on with what the client's tools return."""
        return any(isinstance(each, TurnRouted) for each in self.tools)

    @property
    def result(self) -> Result | None:
        """The recorded result; None while there is none."""
        if self.finished is None:
            return None
        end = self.finished
        verdicts = tuple(
            CheckVerdict(check.check, check.status, check.reason)
            for check in self.checks
            if check.attempt == end.attempt
        )
        labels = frozenset(end.labels)
        if end.fault is not None:
            return Result(end.worker, None, Fault(end.fault, end.message), verdicts, labels=labels)
        if self.items is not None:
            return join_results(end.worker, [item.result for item in self.items], labels)
        given = self._given(end.attempt)
        if given is None:
            return Result(end.worker, None, None, verdicts, labels=labels)
        return Result(end.worker, given.text, None, verdicts, given.usage, labels, given.confidence)

    @property
    def accepted_attempt(self) -> Attempt | None:
        """The attempt whose answer the step kept; None without one."""
        end = self.finished
        if end is None or end.fault is not None:
            return None
        return next((one for one in self.attempts if one.started.attempt == end.attempt), None)

    def _given(self, number: int | None) -> AttemptFinished | None:
        for attempt in self.attempts:
            if attempt.started.attempt == number and isinstance(attempt.outcome, AttemptFinished):
                return attempt.outcome
        return None


@dataclass(slots=True)
class RoundRecord:
    """A round: how its plan came about, the plan, and the steps of its performance, with each item of a map step."""

    index: int
    planning: StepRecord
    rejected: list[PlanRejected] = field(default_factory=list)
    proposed: PlanProposed | None = None
    plan: Plan | None = None
    steps: dict[int, StepRecord] = field(default_factory=dict)

    def step(self, index: int | None) -> StepRecord:
        """Return the record of a step, or of the planning for None."""
        if index is None:
            return self.planning
        if index not in self.steps:
            self.steps[index] = StepRecord(index)
        return self.steps[index]

    @property
    def results(self) -> tuple[Result | None, ...]:
        """The steps' results in plan order."""
        count = len(self.plan) if self.plan else 0
        return tuple(self.steps[i].result if i in self.steps else None for i in range(count))


@dataclass(slots=True)
class Rollback:
    """A rollback: who wanted it, its compensating calls by effect (`record.steps`), and what became of each effect."""

    begun: RollbackStarted
    record: RoundRecord
    settled: dict[str, EffectUndone | EffectKept] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """A run as its events tell it."""

    started: RunStarted
    rounds: list[RoundRecord] = field(default_factory=list)
    asked: dict[str, QuestionAsked] = field(default_factory=dict)
    answers: dict[str, QuestionAnswered] = field(default_factory=dict)
    reached: EndReached | None = None
    finished: RunFinished | None = None
    paused: RunPaused | None = None  # since when and why nobody performs it
    rollbacks: list[Rollback] = field(default_factory=list)
    grades: list[AnswerGraded] = field(default_factory=list)
    rewards: list[RewardGiven] = field(default_factory=list)
    erased: BodiesErased | None = None
    context: ContextGathered | None = None
    changes: list[AnswerChanged] = field(default_factory=list)
    status: RunStatus = RunStatus.RUNNING
    active_seconds: float = 0.0
    _since: float = 0.0

    @classmethod
    def fold(cls, events: Iterable[Event]) -> "Run":
        """Fold the events of one run, in the order they were written; the first must be its RunStarted."""
        stream = iter(events)
        first = next(stream, None)
        if not isinstance(first, RunStarted):
            raise ValueError(f"a run's first event is run.started, not {first.kind if first else 'nothing'}")
        run = cls(first, _since=first.at)
        for event in stream:
            run.take(event)
        return run

    @property
    def id(self) -> str:
        """The run's id."""
        return self.started.run

    @property
    def why(self) -> str:
        """Why the run ended as it did, or why it is quarantined; empty while neither is so."""
        if self.finished is not None:
            return self.finished.why
        return self.paused.why if self.paused and self.status is RunStatus.QUARANTINED else ""

    @property
    def task(self) -> Task:
        """The task, as every worker was shown it."""
        begun = self.started
        task = Task(begun.prompt, begun.context, begun.task_id, begun.domain, begun.labels, tenant=begun.tenant)
        bodies = TaskBodies(
            history=begun.history,
            attachments=begun.attachments,
            exchanges=begun.exchanges,
            tools=begun.tools,
            answer_schema=begun.answer_schema,
            options=begun.options,
            as_sent=begun.as_sent,
        )
        return task.with_bodies(bodies, parallel_tool_calls=begun.parallel_tool_calls, tool_choice=begun.tool_choice)

    @property
    def scope(self) -> Scope:
        """Whose data the run is, and the labels of its task and of all that its steps brought."""
        brought = [step.finished.labels for turn in self.rounds for step in turn.steps.values() if step.finished]
        return Scope(self.started.tenant, frozenset(self.started.labels).union(*brought))

    @property
    def answer(self) -> str | None:
        """The answer, once the run has ended with one."""
        return self.finished.answer if self.finished else None

    @property
    def grade(self) -> AnswerGraded | None:
        """The grade that counts: an executed one before a person's before a language model's, the last of equals."""
        ranks = list(GradeBasis)
        scored = [grade for grade in self.grades if grade.score is not None]
        return min(reversed(scored), key=lambda grade: ranks.index(grade.basis), default=None)

    @property
    def attempts(self) -> list[Attempt]:
        """Every call of the run: planning, steps and checks, by round and step."""
        records = [record for turn in self.rounds for record in (turn.planning, *turn.steps.values())]
        return [attempt for record in records for attempt in record.attempts]

    @property
    def charged(self) -> Amount:
        """What the run is known to have used: its calls, and its child runs as far as they have ended (each in its
        parent's attempt).
        """
        return sum((attempt.charged for attempt in self._paid), Amount())

    @property
    def uncertain(self) -> Amount:
        """What the run may have used besides: by calls whose outcome nobody knows. It is no cost."""
        return sum((attempt.uncertain for attempt in self._paid), Amount())

    @property
    def counted(self) -> Amount:
        """What counts against caps and budgets: both."""
        return self.charged + self.uncertain

    @property
    def _paid(self) -> list[Attempt]:
        """Every call, compensating ones included."""
        undoing = [step for rollback in self.rollbacks for step in rollback.record.steps.values()]
        return [*self.attempts, *[attempt for step in undoing for attempt in step.attempts]]

    @property
    def open_questions(self) -> list[QuestionAsked]:
        """Questions to a person that nobody has answered; none once the run has ended without them."""
        if self.finished is not None:
            return []
        records = [record for turn in self.rounds for record in (turn.planning, *turn.steps.values())]
        asked = [question for record in records for question in record.questions]
        if self.reached is not None:  # what calls waited for is no matter any more
            asked = [question for question in asked if question.asks is QuestionKind.REVIEW]
        return [question for question in asked if question.question not in self.answers]

    @property
    def effects(self) -> dict[str, EffectUndone | EffectKept]:
        """What became, in all rollbacks together, of the effects of the run's calls, by the call's key."""
        return {key: event for rollback in self.rollbacks for key, event in rollback.settled.items()}

    @property
    def reviewed(self) -> QuestionAnswered | None:
        """What a person said of the answer, where one was to say it."""
        reviews = [asked for asked in self.asked.values() if asked.asks is QuestionKind.REVIEW]
        return self.answers.get(reviews[-1].question) if reviews else None

    def round(self, index: int) -> RoundRecord:
        """Return the record of a round, made when it is first spoken of; of a rollback for -1 and below."""
        if index < 0:
            return self.rollbacks[-1 - index].record
        while len(self.rounds) <= index:
            number = len(self.rounds)
            self.rounds.append(RoundRecord(number, StepRecord(-1)))
        return self.rounds[index]

    def take(self, event: Event) -> None:
        """Take the run's next event; ValueError for one that is not of this run, or of an unknown kind."""
        if event.run != self.id:
            raise ValueError(f"an event of run {event.run} among those of run {self.id}")
        idle = isinstance(event, _IDLE_EVENTS) or (
            isinstance(event, RunPaused) and event.status is RunStatus.QUARANTINED
        )
        if self.finished is None and not idle:
            self.active_seconds += max(0.0, event.at - self._since)
        self._since = event.at
        match event:
            case AttemptStarted():
                self.round(event.round).step(event.step).attempts.append(Attempt(event))
            case AttemptFinished() | AttemptFailed():
                self._settle(event)
            case StepFinished() | MapStarted():
                self._advance(event)
            case PlanProposed():
                turn = self.round(event.round)
                turn.proposed, turn.plan = event, Plan.loads(event.plan)
            case EndReached() | RunFinished():
                self._end(event)
            case PlanRejected():
                self.round(event.round).rejected.append(event)
            case CheckDecided() | ToolsOffered() | ToolRefused() | GuardDecided() | ToolResultsCut() | TurnRouted():
                self._decide(event)
            case QuestionAsked() | QuestionAnswered():
                self._consult(event)
            case ContextGathered() | AnswerChanged():
                self._frame(event)
            case RunPaused() | RunResumed():
                self._pause(event)
            case RollbackStarted() | EffectUndone() | EffectKept():
                self._undo(event)
            case AnswerGraded() | RewardGiven() | BodiesErased():
                self._follow(event)
            case _:
                raise ValueError(f"run {self.id}: an event of unknown kind {event.kind!r}")

    def _frame(self, event: ContextGathered | AnswerChanged) -> None:
        if isinstance(event, ContextGathered):
            self.context = event
        else:
            self.changes.append(event)

    def _pause(self, event: RunPaused | RunResumed) -> None:
        if isinstance(event, RunPaused):
            self.paused, self.status = event, event.status
        else:
            self.paused, self.status = None, RunStatus.RUNNING

    def _advance(self, event: StepFinished | MapStarted) -> None:
        if isinstance(event, StepFinished):
            self.round(event.round).step(event.step).finished = event
            return
        if not 0 <= event.items <= MOST_ITEMS:
            raise ValueError(f"run {self.id}: a map step has at most {MOST_ITEMS} items, not {event.items}")
        turn = self.round(event.round)
        turn.step(event.step).items = [turn.step(item_step(event.step, item)) for item in range(event.items)]

    def _end(self, event: EndReached | RunFinished) -> None:
        if isinstance(event, RunFinished):
            self.finished, self.status = event, event.status
        else:
            self.reached = event

    def _decide(self, event: "CheckDecided | ToolEvent") -> None:
        record = self.round(event.round).step(event.step)
        if isinstance(event, CheckDecided):
            record.checks.append(event)
        else:
            record.tools.append(event)

    def _consult(self, event: QuestionAsked | QuestionAnswered) -> None:
        if isinstance(event, QuestionAsked):
            self.round(event.round).step(event.step).questions.append(event)
            self.asked[event.question] = event
        elif self._counts(event):
            self.answers[event.question] = event

    def _undo(self, event: RollbackStarted | EffectUndone | EffectKept) -> None:
        if isinstance(event, RollbackStarted):
            self.rollbacks.append(Rollback(event, RoundRecord(-1 - len(self.rollbacks), StepRecord(-1))))
        else:
            self.rollbacks[event.rollback].settled[event.effect] = event

    def _counts(self, answer: QuestionAnswered) -> bool:
        asked = self.asked.get(answer.question)
        if asked is None or answer.question in self.answers:
            return False
        return not (answer.approved and 0 < asked.expires < answer.at)

    def _follow(self, event: AnswerGraded | RewardGiven | BodiesErased) -> None:
        match event:
            case AnswerGraded():
                self.grades.append(event)
            case RewardGiven():
                self.rewards.append(event)
            case BodiesErased():
                self.erased = event

    def _settle(self, event: AttemptFinished | AttemptFailed) -> None:
        for attempt in self.round(event.round).step(event.step).attempts:
            if attempt.started.attempt == event.attempt:
                attempt.outcome = event
                return
        raise ValueError(f"run {self.id}: attempt {event.attempt} of step {event.step} ended but never started")


def runs_in_scope(
    runs: Iterable[Run], tenant: str | None, labels: Collection[str] | None = ()
) -> tuple[Scope, list[Run]]:
    """Return the runs of a tenant ("": the operator) that have no labels but these (None: any), and the scope of all.

    Without a `tenant` the runs must be of one: ConfigError names those that there are.
    """
    found = list(runs)
    if tenant is None:
        owners = sorted({run.started.tenant for run in found if run.started.tenant is not None})
        if len(owners) > 1:
            names = ", ".join(repr(name) for name in owners)
            raise ConfigError(f"the runs are of several tenants: name one with --tenant ({names}; '' is the operator)")
        tenant = owners[0] if owners else ""
    if labels is None:
        labels = frozenset[str]().union(*(run.scope.labels for run in found if run.started.tenant == tenant))
    scope = Scope(tenant, frozenset(labels))
    return scope, [run for run in found if run.scope.admits(scope)]
