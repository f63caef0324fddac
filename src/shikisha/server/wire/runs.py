"""What `/runs` takes and gives: a task as it is, and a run with everything that is known of it.

Invariant: whatever a request says narrows what its key may do. A run's explanation is `explain`'s own, as data.
Deliberately absent: the shapes of OpenAI's APIs.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from shikisha.errors import FaultKind
from shikisha.events import QuestionKind, Status
from shikisha.explain.story import Explanation
from shikisha.server.orders import Api
from shikisha.server.store import State
from shikisha.server.wire.reading import Wire

Labelled = Annotated[str, Field(min_length=1, max_length=64)]
Word = Annotated[str, Field(max_length=256)]
_MOST = 10**12


class Budgets(Wire):
    """Caps of one run, tighter than those of the key and of the server."""

    steps: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    rounds: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    depth: Annotated[int, Field(ge=0, le=_MOST)] | None = None
    tokens: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    dollars: Annotated[float, Field(ge=0, le=_MOST)] | None = None
    seconds: Annotated[float, Field(gt=0, le=_MOST)] | None = None


class RunRequest(Wire):
    """The body of `POST /runs`. Either a model or a conductor is named, or neither; `pool` names workers."""

    prompt: Annotated[str, Field(min_length=1)]
    context: str = ""
    domain: Annotated[str, Field(max_length=200)] = ""
    labels: Annotated[list[Labelled], Field(max_length=32, default_factory=list)]
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    conductor: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    pool: Annotated[list[Labelled], Field(min_length=1, max_length=256)] | None = None
    budgets: Budgets = Budgets()
    answer_schema: dict[str, JsonValue] | None = None
    background: bool = False
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
        Field(max_length=16, default_factory=dict),
    ]


class RunsAsked(BaseModel):
    """Which runs are listed; times are Unix times, `text` is looked for in the first words of tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: list[State] | None = None
    status: list[Status] | None = None
    model: Word | None = None
    api: Api | None = None
    text: Word | None = None
    since: Annotated[float, Field(ge=0, le=_MOST)] | None = None
    until: Annotated[float, Field(ge=0, le=_MOST)] | None = None
    tenant: Word | None = None
    after: Word | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class Shown(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OpenQuestion(Shown):
    """Something that the run waits for; `expires` 0: never."""

    run: str
    question: str
    asks: QuestionKind
    worker: str
    round: int
    step: int | None
    prompt: str
    expires: float


class RunSummary(Shown):
    """A run in a list. `dollars` null: nobody can say (yet); `uncertain_…`: what may have been used besides."""

    id: str
    object: Literal["run"] = "run"
    status: Status
    state: State
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


class RunList(Shown):
    """A page of runs, newest first; `next` is the cursor of the next page."""

    object: Literal["list"] = "list"
    data: list[RunSummary]
    has_more: bool
    next: str | None


class RunShown(Shown):
    """A run, whole: where it stands, its answer, what it waits for, its child runs, and how it all came about."""

    id: str
    object: Literal["run"] = "run"
    root: str
    status: Status
    state: State
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
    questions: list[OpenQuestion]
    children: list[str]
    explanation: Explanation
