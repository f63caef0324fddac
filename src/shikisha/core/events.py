"""What happened, one frozen record a happening. A run is a fold over its events (`run`), and nothing else.

Invariants: a decision is an event of its own and is written before its effect; an event never changes; every text that
a person, a model or a tool wrote is a `Body` or `Free`, which a store keeps once by content hash and can erase without
breaking the chain. Steps, rounds and attempts count from 0. `at` is Unix time in seconds. `step` None stands for the
planning of a round; rounds below 0 are rollbacks (-1 the first). A grade, a reward and rollbacks may follow the run's
end. Deliberately absent: anything that can be derived (totals, durations of a run, what was withheld).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, TypeVar

from shikisha.core.budget import Amount, Caps, Usage
from shikisha.core.errors import FaultCause, FaultKind
from shikisha.core.fast_dataclass import dataclass, field

T = TypeVar("T")
BODY = "body"
RECORDS = "~records"  # the run of RecordsChanged; no run has this id
Body = Annotated[str, BODY]
FREE = "free"
Free = Annotated[T, FREE]  # what a stranger may have written besides texts: kept as a body, JSON where it is no text


class CallRole(StrEnum):
    """What a call to a worker is for."""

    STEP = "step"  # a step of the plan
    PLAN = "plan"  # a conductor that asks a model
    CHECK = "check"  # a handoff check that asks a worker
    UNDO = "undo"  # a compensating call, which takes an earlier call's effect back
    TOOL = "tool"  # a tool that an agent calls in the course of a step
    PROBE = "probe"  # a look at the state of things that a guard wants


EFFECT_ROLES = frozenset({CallRole.STEP, CallRole.TOOL})  # whose calls may start child runs, and can be undone


class AttemptReason(StrEnum):
    """Why this attempt, with this worker, is made."""

    FIRST = "first"  # what the plan says
    RETRY = "retry"  # the same worker once more after a passing fault
    REDO = "redo"  # the same worker once more, told which check failed
    FALLBACK = "fallback"  # the worker configured to stand in after a fault
    ESCALATION = "escalation"  # the dearer worker configured for faults and failed checks
    RESUME = "resume"  # repeated under the same key: it was in flight when the process died
    TOOLS = "tools"  # the work goes on with what the client's tools came to
    COMPARED = "compared"  # asked as well for one turn: the two replies are compared, and one goes on
    AGREED = "agreed"  # nobody is called: what the step was to bring together says the same


class FinishReason(StrEnum):
    """How a worker's answer ended."""

    STOP = "stop"  # it was done
    LENGTH = "length"  # it ran into its output limit
    REFUSED = "refused"  # it declined


class RunStatus(StrEnum):
    """Where a run stands."""

    RUNNING = "running"  # being performed, or killed and resumable
    SUSPENDED = "suspended"  # waits for a person
    INTERRUPTED = "interrupted"  # stopped by its user; resumable
    QUARANTINED = "quarantined"  # it took servers down; a person may release it
    DONE = "done"  # ended with an answer
    FAILED = "failed"  # ended without one
    CAPPED = "capped"  # ended by a cap, with what was done so far


class CheckStatus(StrEnum):
    """A check's verdict."""

    PASS = "pass"  # holds
    FAIL = "fail"  # does not hold
    NO_ANSWER = "no_answer"  # nothing to judge could be extracted


class GradeMark(StrEnum):
    """What a whole answer is worth, in a word."""

    RIGHT = "right"  # score 1
    PARTIAL = "partial"  # a score between 0 and 1
    WRONG = "wrong"  # score 0
    NO_ANSWER = "no_answer"  # nothing to compare could be extracted, or the run gave no answer: score 0
    UNGRADED = "ungraded"  # the grader itself failed (a judge without a word, a broken sandbox): no score


class GradeBasis(StrEnum):
    """Whose word a grade is, the weightiest first."""

    EXECUTED = "executed"  # a grader's, which ran a test or compared with a right answer
    PERSON = "person"  # a person's
    JUDGE = "judge"  # a language model's


class OnCheckFailure(StrEnum):
    """What a failed handoff check leads to."""

    REDO = "redo"  # ask the same worker again, with the reason
    ESCALATE = "escalate"  # ask the worker configured as dearer
    STOP = "stop"  # end the run
    PASS = "pass"  # go on; the verdict is recorded and the conductor sees it


class GuardMoment(StrEnum):
    """When a guard decides."""

    BEFORE = "before"  # may the call be made?
    AFTER = "after"  # did the call do what it was to do?


class QuestionKind(StrEnum):
    """What a person is asked for."""

    APPROVE = "approve"  # may this exact call be made?
    ANSWER = "answer"  # the person is the worker
    TOOLS = "tools"  # the client is to call its tools: `prompt` is a JSON list of calls, the answer one of results
    REVIEW = "review"  # may this answer be the run's? They may change it


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every event has: its run and its time."""

    kind: ClassVar[str] = ""
    run: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """A run is acknowledged. `parent` names the run whose step is this run, `pool` its workers in order.

    `history` to `as_sent` are the task's further parts as JSON texts (`task.TaskBodies`).
    """

    kind: ClassVar[str] = "run.started"
    conductor: str
    pool: tuple[str, ...]
    caps: Caps
    prompt: Body
    context: Body = ""
    task_id: Free[str] = ""
    domain: Free[str] = ""
    labels: Free[tuple[str, ...]] = ()
    parent: str | None = None
    depth: int = 0
    config: Body = "{}"
    history: Body = ""
    attachments: Body = ""
    exchanges: Body = ""
    tools: Body = ""
    answer_schema: Body = ""
    options: Body = ""
    as_sent: Body = ""
    parallel_tool_calls: bool | None = None
    tool_choice: Free[str] = ""
    tenant: str | None = None  # not in runs of earlier versions: for those that were served, the server's table has it


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGathered(Event):
    """What was gathered for the task before its first plan; the texts that were taken are in its context.

    `taken` is a JSON list of source, name, first, last, score, tokens and labels, and `left` one of source, name and
    why. `dropped` are the sources that a trial left out, drawn with probability `propensity` (None: there is no trial).
    """

    kind: ClassVar[str] = "context.gathered"
    taken: Body
    left: Body = "[]"
    tokens: int = 0
    seconds: float = 0.0
    sources: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    propensity: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChanged(Event):
    """A configured step after the last call changed the answer before it ships: which one, and what it was before."""

    kind: ClassVar[str] = "answer.changed"
    by: str
    before: Body
    after: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed(Event):
    """The run goes on in another process or at another time."""

    kind: ClassVar[str] = "run.resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaused(Event):
    """The run stopped before its end and can be resumed; `status` is SUSPENDED or INTERRUPTED."""

    kind: ClassVar[str] = "run.paused"
    status: RunStatus
    why: Free[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(Event):
    """The run's end: DONE, FAILED or CAPPED, why, and the answer at hand with the round and step it came from."""

    kind: ClassVar[str] = "run.finished"
    status: RunStatus
    why: Free[str] = ""
    cap: str | None = None
    fault: FaultKind | None = None
    round: int | None = None
    step: int | None = None
    answer: Body | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReached(Event):
    """No further call is made: the run will end so, once a person has seen its answer or its effects are undone.

    The fields are those of its RunFinished, which follows; `asks` says in words why a person is to see the answer
    (empty: nobody is).
    """

    kind: ClassVar[str] = "end.reached"
    status: RunStatus
    why: Free[str] = ""
    cap: str | None = None
    fault: FaultKind | None = None
    round: int | None = None
    step: int | None = None
    answer: Body | None = None
    asks: Free[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProposed(Event):
    """A conductor's plan for a round; `plan` is the JSON twin, `text` what the conductor wrote.

    `substituted` says which fallback conductor made it, and `note` why it looks as it does. `final` announces that no
    further round is wanted. `keeps` is the round whose answer an empty plan ships (None: the latest), `propensity` the
    probability with which the plan was drawn (None: without chance), `beside` what others would have proposed, by name.
    `joins`: the last step only brings together what the steps that it sees have answered. `partial`: no result of the
    round is an answer to the task.
    """

    kind: ClassVar[str] = "plan.proposed"
    round: int
    conductor: str
    plan: Body
    text: Body = ""
    note: Body = ""
    version: str = ""
    substituted: str | None = None
    final: bool = False
    keeps: int | None = None
    propensity: float | None = None
    beside: Free[Mapping[str, str]] = field(default_factory=dict)
    joins: bool = False
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRejected(Event):
    """A text that a conductor wrote and that is no plan."""

    kind: ClassVar[str] = "plan.rejected"
    round: int
    conductor: str
    what: Free[str]
    where: Free[str]
    text: Body = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Event):
    """A call is about to be made: to whom, why, under which idempotency key, with which granted steps in view.

    `view` is the SHA-256 of exactly what the worker is shown; `instead_of` names the worker that it stands in for;
    `reserved` is held against the budget until the outcome is known. Where an agent calls a tool, `call` is the place
    of the call in the step ("2.0": the first call of the agent's third reply), `tool` its name at its worker and
    `arguments` what it is called with; a guard's probe bears the place of the call that it is for.
    """

    kind: ClassVar[str] = "attempt.started"
    round: int
    step: int | None
    attempt: int
    worker: str
    key: str
    role: CallRole = CallRole.STEP
    reason: AttemptReason = AttemptReason.FIRST
    instead_of: str | None = None
    granted: tuple[int, ...] = ()
    view: str = ""
    reserved: Amount = Amount()
    call: str = ""
    tool: Free[str] = ""
    arguments: Body = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFinished(Event):
    """The call gave an answer. `model` is what the worker says it was; `usage` and `dollars` what it used.

    `stated` is what the worker said of its use where that is less than can be true (`usage` is then our estimate), and
    `uncertain` what its child runs may have used besides.
    `calls` are those of tools that it wants to be made (the client's, or an agent's own), as a JSON list; `text` is
    what it said besides.
    `confidence` is the worker's own, 0 to 1 (None: it does not say). `envelope` is what the endpoint sent with the turn
    besides (see `messages.Envelope`), and `notes` say what was odd about the reply without being wrong.
    """

    kind: ClassVar[str] = "attempt.finished"
    round: int
    step: int | None
    attempt: int
    worker: str
    text: Body
    usage: Usage = Usage()
    dollars: float | None = 0.0
    finish: FinishReason = FinishReason.STOP
    model: Free[str] = ""
    seconds: float = 0.0
    calls: Body = ""
    stated: Usage | None = None
    uncertain: Amount = Amount()
    confidence: float | None = None
    envelope: Body = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(Event):
    """The call gave no answer. `charged` is what it is known to have used; `retry_after` the worker's own wish.

    `uncertain` is what it may have used besides, where nobody can know: it counts against every cap, and is no cost.
    Journals from before there was this field have it in `charged`, and there it stays. `cause` is what the endpoint
    stated, and `param` the parameter that it means.
    """

    kind: ClassVar[str] = "attempt.failed"
    round: int
    step: int | None
    attempt: int
    worker: str
    fault: FaultKind
    message: Body = ""
    charged: Amount = Amount()
    retry_after: float | None = None
    partial: Body | None = None
    seconds: float = 0.0
    uncertain: Amount = Amount()
    cause: FaultCause = FaultCause.UNKNOWN
    param: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDecided(Event):
    """A handoff check's verdict on an attempt's answer, and what it leads to (None: the step goes on)."""

    kind: ClassVar[str] = "check.decided"
    round: int
    step: int
    attempt: int
    check: str
    status: CheckStatus
    reason: Body = ""
    leads_to: OnCheckFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsOffered(Event):
    """An agent is offered these tools from its turn `turn` on; `tools` is what `tools.dump_offer` writes.

    `query` is what they were searched with, `found` the names of what the search brought, `call` the place of the
    agent's own call of `find_tools`, where it made one. `pins` has the hash of each source, and `withheld` says of each
    tool that was found and is not offered why not.
    """

    kind: ClassVar[str] = "tools.offered"
    round: int
    step: int
    turn: int
    worker: str
    tools: Body
    query: Body = ""
    call: str = ""
    found: Free[tuple[str, ...]] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    withheld: Free[Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRefused(Event):
    """A call that an agent wanted is not made: `fault` says what kind of refusal it is, and the agent is told why."""

    kind: ClassVar[str] = "tool.refused"
    round: int
    step: int
    call: str
    tool: Free[str]
    fault: FaultKind
    message: Body = ""
    arguments: Body = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDecided(Event):
    """A guard's decision on one call of a tool; `failure` is the class of failure that it found, in a word.

    `call` is the place of the call in the step (as in AttemptStarted), "" where the step's own worker is guarded.
    """

    kind: ClassVar[str] = "guard.decided"
    round: int
    step: int
    call: str
    tool: Free[str]
    guard: str
    moment: GuardMoment
    passed: bool
    reason: Body = ""
    failure: Free[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultsCut(Event):
    """What an agent is shown from turn `turn` on no longer fits its window: the results of these calls are cut.

    `before` and `after` are estimates in tokens, `window` is what there is room for.
    """

    kind: ClassVar[str] = "results.cut"
    round: int
    step: int
    turn: int
    calls: tuple[str, ...]
    before: int
    after: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRouted(Event):
    """Who makes turn `turn` of a step whose calls the client makes; `instead_of` made the turn before, if another one.

    `second` is asked as well, to compare. `kept`: both have answered, and `worker` is whose reply goes on (a third one
    is asked for it). `facts` is a JSON object of what decided: numbers and names, no text of the conversation.
    """

    kind: ClassVar[str] = "turn.routed"
    round: int
    step: int
    turn: int
    worker: str
    instead_of: str | None = None
    second: str = ""
    kept: bool = False
    note: Body = ""
    facts: Body = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Event):
    """A person is asked. `question` is the hash of the exact call, so an answer fits this call and no other.

    `expires` is the Unix time after which a yes is none (0: never); `bound` what the call may use at most.
    """

    kind: ClassVar[str] = "question.asked"
    round: int
    step: int | None
    worker: str
    question: str
    asks: QuestionKind
    prompt: Body
    expires: float = 0.0
    bound: Amount = Amount()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(Event):
    """A person's answer: `approved` for APPROVE, `text` for ANSWER, both for REVIEW (a text replaces the answer).

    `actor` is who, `via` how it reached us, `remark` why. `tool_choice` (for TOOLS, as in `Task`) is what the client
    wants of the call that reads the results.
    """

    kind: ClassVar[str] = "question.answered"
    question: str
    approved: bool
    actor: str
    via: str = "cli"
    text: Body = ""
    remark: Body = ""
    tool_choice: Free[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStarted(Event):
    """A map step is about to be performed for each of the `items` of the list that it goes through.

    What follows of an item is recorded under its own step number (`plan.item_step`).
    """

    kind: ClassVar[str] = "map.started"
    round: int
    step: int
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(Event):
    """A step's recorded result: the answer of `attempt`, or a fault; `labels` are those of its data.

    A map step's answer is the list of its items' answers, which have results of their own.
    """

    kind: ClassVar[str] = "step.finished"
    round: int
    step: int
    worker: str
    attempt: int | None = None
    fault: FaultKind | None = None
    message: Body = ""
    labels: Free[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackStarted(Event):
    """The effects of the run's calls are about to be undone: by whose word, and why. Rollbacks count from 0."""

    kind: ClassVar[str] = "rollback.begun"
    rollback: int
    actor: str
    why: Body = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectUndone(Event):
    """The effect of the call with this key is undone: `worker` made it, `by` took it back."""

    kind: ClassVar[str] = "effect.undone"
    rollback: int
    effect: str
    worker: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectKept(Event):
    """The effect of the call with this key could not be undone, and why; None: the call itself has no known result."""

    kind: ClassVar[str] = "effect.kept"
    rollback: int
    effect: str
    worker: str
    by: str
    fault: FaultKind | None = None
    message: Body = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGraded(Event):
    """A grader's finding on the run's answer, after its end: `found` is what was extracted, `score` in [0, 1] or none.

    `judged`: a language model graded it. `actor` is the person who did, where one did; `evidence` is then their remark.
    """

    kind: ClassVar[str] = "answer.graded"
    checker: str
    mark: GradeMark
    score: float | None = None
    found: Body | None = None
    evidence: Body = ""
    judged: bool = False
    actor: str = ""

    @property
    def basis(self) -> GradeBasis:
        """Whose word it is."""
        return GradeBasis.JUDGE if self.judged else GradeBasis.PERSON if self.actor else GradeBasis.EXECUTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardGiven(Event):
    """What the run is worth to whoever learns from it: the named parts, each already weighted, and their sum."""

    kind: ClassVar[str] = "reward.given"
    parts: Mapping[str, float]
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BodiesErased(Event):
    """All texts of the run before this are erased; `why` itself cannot be."""

    kind: ClassVar[str] = "bodies.erased"
    actor: str
    why: str = ""
    removed: int = 0  # texts that are gone from the store; the others are other runs' too
    plans: Mapping[str, str] = field(default_factory=dict)  # by hash, what remains of each plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsChanged(Event):
    """Governance records changed (`journal.records`); the event is of the pseudo run RECORDS.

    `rows` has by table and key the hash of what a row is now ("": it is gone). `used` is what the server `member` has
    used so far, by a JSON list of key and day, as nanodollars, tokens and requests; `spend` sets a key's sums so.
    """

    kind: ClassVar[str] = "records.changed"
    rows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    member: str = ""
    used: Mapping[str, list[int]] = field(default_factory=dict)
    spend: Mapping[str, list[int]] = field(default_factory=dict)


EVENT_CLASSES: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        RunStarted,
        ContextGathered,
        AnswerChanged,
        RunResumed,
        RunPaused,
        EndReached,
        RunFinished,
        PlanProposed,
        PlanRejected,
        AttemptStarted,
        AttemptFinished,
        AttemptFailed,
        CheckDecided,
        ToolsOffered,
        ToolRefused,
        GuardDecided,
        ToolResultsCut,
        TurnRouted,
        QuestionAsked,
        QuestionAnswered,
        MapStarted,
        StepFinished,
        RollbackStarted,
        EffectUndone,
        EffectKept,
        AnswerGraded,
        RewardGiven,
        BodiesErased,
        RecordsChanged,
    )
}
