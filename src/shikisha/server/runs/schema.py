"""Request and response bodies of `/runs`, `/approvals`, `/feedback` and `/runs/{run}/rollback`.

Invariant: a request can only narrow what its key may do; an approval shows the exact subtask and every earlier answer
that the call would see.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from shikisha.core.errors import FaultKind
from shikisha.core.events import GradeMark, QuestionKind, RunStatus
from shikisha.explain.explanation import Explanation
from shikisha.server.http.request import RequestModel
from shikisha.server.lifecycle.authorization import Api
from shikisha.server.store import ServedState

LabelText = Annotated[str, Field(min_length=1, max_length=64)]
ShortText = Annotated[str, Field(max_length=256)]
_MAX_CAP = 10**12


class RunBudgets(RequestModel):
    """Caps of one run, tighter than those of the key and of the server."""

    steps: Annotated[int, Field(ge=1, le=_MAX_CAP)] | None = None
    rounds: Annotated[int, Field(ge=1, le=_MAX_CAP)] | None = None
    depth: Annotated[int, Field(ge=0, le=_MAX_CAP)] | None = None
    tokens: Annotated[int, Field(ge=1, le=_MAX_CAP)] | None = None
    dollars: Annotated[float, Field(ge=0, le=_MAX_CAP)] | None = None
    seconds: Annotated[float, Field(gt=0, le=_MAX_CAP)] | None = None


class RunRequest(RequestModel):
    """The body of `POST /runs`. Either a model or a conductor is named, or neither; `pool` names workers."""

    prompt: Annotated[str, Field(min_length=1)]
    context: str = ""
    domain: Annotated[str, Field(max_length=200)] = ""
    labels: Annotated[list[LabelText], Field(max_length=32, default_factory=list)]
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    conductor: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    pool: Annotated[list[LabelText], Field(min_length=1, max_length=256)] | None = None
    budgets: RunBudgets = RunBudgets()
    answer_schema: dict[str, JsonValue] | None = None
    background: bool = False
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
        Field(max_length=16, default_factory=dict),
    ]


class RunQuery(BaseModel):
    """Which runs are listed; times are Unix times, `text` is looked for in the first words of tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: list[ServedState] | None = None
    status: list[RunStatus] | None = None
    model: ShortText | None = None
    api: Api | None = None
    text: ShortText | None = None
    since: Annotated[float, Field(ge=0, le=_MAX_CAP)] | None = None
    until: Annotated[float, Field(ge=0, le=_MAX_CAP)] | None = None
    tenant: ShortText | None = None
    after: ShortText | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class AnswerModel(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OpenQuestionInfo(AnswerModel):
    """Something that the run waits for; `expires` 0: never."""

    run: str
    question: str
    asks: QuestionKind
    worker: str
    round: int
    step: int | None
    prompt: str
    expires: float


class RunListEntry(AnswerModel):
    """A run in a list. `dollars` null: unknown; `uncertain_…`: what calls of unknown outcome may have used."""

    id: str
    object: Literal["run"] = "run"
    status: RunStatus
    state: ServedState
    api: str
    model: str
    conductor: str
    tenant: str
    key: str
    created: float
    updated: float
    excerpt: str
    domain: str
    labels: list[str]
    metadata: dict[str, str]
    background: bool
    tokens: int
    dollars: float | None
    uncertain_tokens: int
    uncertain_dollars: float | None


class RunList(AnswerModel):
    """A page of runs, newest first; `next` is the cursor of the next page."""

    object: Literal["list"] = "list"
    data: list[RunListEntry]
    has_more: bool
    next: str | None


class RunInfo(AnswerModel):
    """A run: its state, answer, open questions, child runs, and explanation."""

    id: str
    object: Literal["run"] = "run"
    root: str
    status: RunStatus
    state: ServedState
    why: str
    fault: FaultKind | None
    answer: str | None
    api: str
    model: str
    created: float
    ended: float | None
    background: bool
    metadata: dict[str, str]
    domain: str
    labels: list[str]
    tokens: int
    dollars: float | None
    uncertain_tokens: int
    uncertain_dollars: float | None
    questions: list[OpenQuestionInfo]
    children: list[str]
    explanation: Explanation


Remark = Annotated[str, Field(max_length=10_000)]


class DecisionRequest(RequestModel):
    """The body of `POST /approvals/{approval}`: yes or no, and for an answer or a changed one its text."""

    approved: bool
    text: Annotated[str, Field(max_length=10_000_000)] = ""
    remark: Remark = ""


class SeenStepInfo(AnswerModel):
    """An earlier step that the call would be shown; `answer` null: it has none, and `fault` says why."""

    step: int
    worker: str
    answer: str | None
    fault: str | None


class ApprovedCallInfo(AnswerModel):
    """The call that waits for a yes: its subtask word by word, and what it would be shown."""

    subtask: str
    sees: list[SeenStepInfo]


class DecisionInfo(AnswerModel):
    """A person's decision."""

    approved: bool
    actor: str
    via: str
    text: str
    remark: str
    at: float


class ApprovalInfo(AnswerModel):
    """A question to a person. `call` null: the question is about no call of a plan. `answer` is what a review is about.

    `dollars` null: nobody can say what the call may cost at most. `expires` null: never. `page`: where people answer.
    """

    object: Literal["approval"] = "approval"
    id: str
    run: str
    asked_by: str
    question: str
    asks: QuestionKind
    state: Literal["open", "answered", "expired", "over"]
    worker: str
    round: int
    step: int | None
    prompt: str
    task: str
    call: ApprovedCallInfo | None
    why: str
    answer: str | None
    tokens: int
    dollars: float | None
    asked_at: float
    expires: float | None
    page: str
    decision: DecisionInfo | None


class ApprovalList(AnswerModel):
    """A page of open questions; `next` is the `after` of the next page."""

    object: Literal["list"] = "list"
    data: list[ApprovalInfo]
    has_more: bool
    next: str | None


class FeedbackRequest(RequestModel):
    """The body of `POST /feedback`: how good a run's answer is, from 0 to 1, or `up` (1) or `down` (0)."""

    run: Annotated[str, Field(min_length=1, max_length=256)]
    score: Annotated[float, Field(ge=0, le=1)] | Annotated[int, Field(ge=0, le=1)] | Literal["up", "down"]
    remark: Remark = ""

    @property
    def worth(self) -> float:
        """The score as a number."""
        return {"up": 1.0, "down": 0.0}[self.score] if isinstance(self.score, str) else float(self.score)


class FeedbackInfo(AnswerModel):
    """A grade that was noted."""

    object: Literal["feedback"] = "feedback"
    run: str
    mark: GradeMark
    score: float
    actor: str


class RollbackRequest(RequestModel):
    """The body of `POST /runs/{run}/rollback`; `dollars` caps it, in addition to the run's own caps."""

    remark: Remark = ""
    dollars: Annotated[float, Field(ge=0, le=1e12)] | None = None


class EffectInfo(AnswerModel):
    """What became of the effect of one call."""

    call: str
    worker: str
    by: str
    undone: bool
    fault: FaultKind | None
    message: str


class RollbackInfo(AnswerModel):
    """What became of a run's effects, in all its rollbacks together."""

    object: Literal["rollback"] = "rollback"
    run: str
    status: RunStatus
    effects: list[EffectInfo]
