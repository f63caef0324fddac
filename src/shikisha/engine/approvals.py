"""Asking a person: may this exact call be made, or: answer this subtask yourself, or: may this be the answer.

Invariants: a question's id is the hash of the exact call (run, round, step, worker, everything the worker would be
shown), so a decision fits that call and no other. A decision comes from an Approver or from the journal and from
nowhere else, so no worker's output can approve anything (invariant 5). When no person is there, the run suspends and
waits. Deliberately absent: how people are reached (the CLI and the server each bring an Approver).
"""

from hashlib import sha256
from typing import Protocol

from shikisha.core.errors import ClosedReason, QuestionClosed, TaskError
from shikisha.core.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run
from shikisha.core.task import storage_problem


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """What a person is asked: `prompt` shows the call in words, `id` is the hash of the call itself."""

    id: str
    asks: QuestionKind
    run: str
    round: int
    step: int | None
    worker: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision: `approved` for APPROVE, `text` for ANSWER, both for REVIEW; by whom, via what, and why.

    `tool_choice` is a client's, with the results of its tools.
    """

    approved: bool
    actor: str
    text: str = ""
    via: str = "cli"
    remark: str = ""
    tool_choice: str = ""


EXPIRED = Decision(False, "nobody", via="expiry", remark="expired: no answer came in time")


def answer_question(run: Run, question: str, decision: Decision, at: float) -> QuestionAnswered:
    """Return a person's answer to an open question of this run, as the journal keeps it.

    QuestionClosed when it is not open at this time (Unix), TaskError when the question cannot be answered so.
    """
    asked = require_open_question(run, question, at)
    text = decision.text.strip()
    if problem := storage_problem(decision.text) or storage_problem(decision.remark):
        raise TaskError(f"the answer holds {problem}")
    if text and (asked.asks is QuestionKind.APPROVE or not decision.approved):
        raise TaskError("a text goes with an answer or a changed answer only: expected none")
    if asked.asks is QuestionKind.ANSWER and decision.approved and not text:
        raise TaskError(f"{asked.worker!r} is a person who answers: expected a text, or a no")
    return QuestionAnswered(
        run=run.id,
        at=at,
        question=question,
        approved=decision.approved,
        actor=decision.actor,
        via=decision.via,
        text=decision.text,
        remark=decision.remark,
    )


def require_open_question(run: Run, question: str, at: float) -> QuestionAsked:
    """Return the question if this run waits for its answer at this time (Unix); QuestionClosed says why it doesn't."""
    asked = run.asked.get(question)
    if asked is None:
        raise QuestionClosed(ClosedReason.UNKNOWN, f"run {run.id} asks no question {question}")
    if (answer := run.answers.get(question)) is not None:
        raise QuestionClosed(
            ClosedReason.ANSWERED, f"question {question} is answered already: {answer.actor} was first"
        )
    if asked not in run.open_questions:
        raise QuestionClosed(ClosedReason.OVER, f"run {run.id} waits for no answer to question {question} any more")
    if 0 < asked.expires <= at:
        raise QuestionClosed(ClosedReason.EXPIRED, f"question {question} has expired, which counts as a no")
    return asked


class Approver(Protocol):
    """Where people are asked."""

    async def ask(self, question: ApprovalQuestion) -> Decision | None:
        """Return a person's decision, or None when nobody is there now."""
        ...


class NoApprover:
    """An approver that is never there: every question suspends its run."""

    async def ask(self, question: ApprovalQuestion) -> Decision | None:
        """Return None."""


def question_id(run: str, round_index: int, step: int | None, asks: QuestionKind, worker: str, view: str) -> str:
    """Return the id of a question: 16 hex digits of the SHA-256 of the exact call."""
    return sha256("\x1f".join((run, str(round_index), str(step), asks, worker, view)).encode()).hexdigest()[:16]
