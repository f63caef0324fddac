"""A run's explanation as frozen data: rounds, steps, calls, checks and questions, with the why of each in words.

Steps, rounds and attempts count from 0; a fault is its kind and message in one text. Deliberately absent: how it is
made from events (`tell`) and how it is written down for people (`text`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass

from shikisha.events import CheckStatus, Mark, OnFail, QuestionKind, Reason, Role, Status


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a worker, and `why` it was made, in words.

    `ended` False: its outcome is not in the journal. `fault` is why it has no answer, `answer` what it gave.
    `dollars` None: nobody can say; `uncertain_…` is what it may have used besides. `understated`: the worker said that
    it used less than can be true, and `tokens` are an estimate. `view` is the hash of what the worker was shown;
    `child` the run that the call was.
    """

    attempt: int
    worker: str
    role: Role
    reason: Reason
    why: str
    instead_of: str | None
    granted: tuple[int, ...]
    ended: bool
    answer: str | None
    fault: str | None
    seconds: float
    tokens: int
    dollars: float | None
    uncertain_tokens: int
    uncertain_dollars: float | None
    understated: bool
    model: str
    view: str
    child: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """An earlier step that the worker was shown: its subtask, and its answer or why it has none."""

    step: int
    subtask: str
    answer: str | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class Checked:
    """A check's verdict on an attempt's answer, and what it led to (None: the step went on)."""

    attempt: int
    check: str
    status: CheckStatus
    reason: str
    leads_to: OnFail | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a person; `approved` None: nobody has answered. `actor` is who did, `via` how it reached us.

    `expires` is the Unix time after which a yes is none; 0: never.
    """

    asks: QuestionKind
    worker: str
    prompt: str
    approved: bool | None
    actor: str | None
    via: str | None
    text: str | None
    remark: str = ""
    expires: float = 0.0


@dataclass(frozen=True, slots=True)
class StepStory:
    """A step: whom the plan names, what they were shown and what not, what was tried, what it came to.

    `withheld` are the plan's earlier steps that the access list does not grant. `worker` gave the result.
    """

    step: int
    subtask: str
    ordinal: int
    planned: str
    seen: tuple[Seen, ...]
    withheld: tuple[int, ...]
    calls: tuple[Call, ...]
    checks: tuple[Checked, ...]
    questions: tuple[Asked, ...]
    ended: bool
    worker: str | None
    answer: str | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A text that was no plan: what is wrong with it and where."""

    what: str
    where: str
    text: str


@dataclass(frozen=True, slots=True)
class RoundStory:
    """A round: who conducted (`substituted`: which fallback did), the plan as written, its note, shape and steps.

    `shape` None: no plan is in the journal. `calls` and `questions` are those of the planning. `keeps` is the round
    whose answer an empty plan ships (None: the latest), `propensity` the probability with which the plan was drawn
    (None: without chance), `beside` what others would have proposed.
    """

    round: int
    conductor: str
    substituted: str | None
    version: str
    note: str
    text: str
    shape: str | None
    final: bool
    rejected: tuple[Rejected, ...]
    calls: tuple[Call, ...]
    questions: tuple[Asked, ...]
    steps: tuple[StepStory, ...]
    keeps: int | None = None
    propensity: float | None = None
    beside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graded:
    """What a checker found: the mark, the score if there is one, what it extracted; `judged`: by a language model.

    `actor` is the person who graded, where one did.
    """

    checker: str
    mark: Mark
    score: float | None
    found: str | None
    evidence: str
    judged: bool
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What became of a call's effect in a rollback that `actor` wanted: undone, or kept and why."""

    call: str
    worker: str
    by: str
    undone: bool
    why: str
    actor: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a run. `seconds` are those in which it was performed; a child run counts with the call that it was.

    `uncertain_…` is what calls may have used whose outcome nobody knows, and in no other figure.
    """

    rounds: int
    steps: int
    calls: int
    retries: int
    redone: int
    tokens: int
    dollars: float | None
    uncertain_tokens: int
    uncertain_dollars: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """A run, explained. `substitutions` says, a line each, where another than the planned one acted.

    `conversation` is what was said before the prompt, a line a turn; `attached` names what belongs to the prompt.
    `reward` None: it was given none. `changed_by` is the person who changed the answer in review.
    """

    run: str
    parent: str | None
    status: Status
    why: str
    conductor: str
    pool: tuple[str, ...]
    prompt: str
    context: str
    answer: str | None
    answered_by: str | None
    totals: Totals
    substitutions: tuple[str, ...]
    rounds: tuple[RoundStory, ...]
    children: tuple["Explanation", ...] = ()
    grades: tuple[Graded, ...] = ()
    reward: Mapping[str, float] | None = None
    changed_by: str | None = None
    effects: tuple[Effect, ...] = ()
    conversation: str = ""
    attached: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return it as what JSON has: objects, lists, texts, numbers."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, str) else value
