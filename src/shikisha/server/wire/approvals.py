"""What `/approvals`, `/feedback` and `/runs/{run}/rollback` take and give.

Invariant: what is asked for is shown whole: the exact subtask and every earlier answer that the call would be shown.
Deliberately absent: what pages show of it.
"""

from typing import Annotated, Literal

from pydantic import Field

from shikisha.errors import FaultKind
from shikisha.events import Mark, QuestionKind, Status
from shikisha.server.wire.reading import Wire
from shikisha.server.wire.runs import Shown

Remark = Annotated[str, Field(max_length=10_000)]


class DecisionRequest(Wire):
    """The body of `POST /approvals/{approval}`: yes or no, and for an answer or a changed one its text."""

    approved: bool
    text: Annotated[str, Field(max_length=10_000_000)] = ""
    remark: Remark = ""


class SeenStep(Shown):
    """An earlier step that the call would be shown; `answer` null: it has none, and `fault` says why."""

    step: int
    worker: str
    answer: str | None
    fault: str | None


class Exactly(Shown):
    """The call that waits for a yes: its subtask word by word, and what it would be shown."""

    subtask: str
    sees: list[SeenStep]


class DecisionShown(Shown):
    """What somebody said."""

    approved: bool
    actor: str
    via: str
    text: str
    remark: str
    at: float


class ApprovalShown(Shown):
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
    call: Exactly | None
    why: str
    answer: str | None
    tokens: int
    dollars: float | None
    asked_at: float
    expires: float | None
    page: str
    decision: DecisionShown | None


class ApprovalList(Shown):
    """A page of open questions; `next` is the `after` of the next page."""

    object: Literal["list"] = "list"
    data: list[ApprovalShown]
    has_more: bool
    next: str | None


class FeedbackRequest(Wire):
    """The body of `POST /feedback`: how good a run's answer is, from 0 to 1, or `up` (1) or `down` (0)."""

    run: Annotated[str, Field(min_length=1, max_length=256)]
    score: Annotated[float, Field(ge=0, le=1)] | Annotated[int, Field(ge=0, le=1)] | Literal["up", "down"]
    remark: Remark = ""

    @property
    def worth(self) -> float:
        """The score as a number."""
        return {"up": 1.0, "down": 0.0}[self.score] if isinstance(self.score, str) else float(self.score)


class FeedbackShown(Shown):
    """A grade that was noted."""

    object: Literal["feedback"] = "feedback"
    run: str
    mark: Mark
    score: float
    actor: str


class RollbackRequest(Wire):
    """The body of `POST /runs/{run}/rollback`; `dollars` caps it, beside the caps that the run had itself."""

    remark: Remark = ""
    dollars: Annotated[float, Field(ge=0, le=1e12)] | None = None


class EffectShown(Shown):
    """What became of the effect of one call."""

    call: str
    worker: str
    by: str
    undone: bool
    fault: FaultKind | None
    message: str


class RollbackShown(Shown):
    """What became of a run's effects, in all its rollbacks together."""

    object: Literal["rollback"] = "rollback"
    run: str
    status: Status
    effects: list[EffectShown]
