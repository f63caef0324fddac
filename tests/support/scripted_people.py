"""Doubles of those whom an engine asks: an approver, and a source of context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shikisha.core.task import Task
from shikisha.engine.approvals import ApprovalQuestion, Decision
from shikisha.engine.gatherer import ContextPiece


class ScriptedApprover:
    """Decisions by worker name, given in advance, and the questions that were asked."""

    def __init__(self, decisions: Mapping[str, Decision]) -> None:
        self._decisions = decisions
        self.seen: list[ApprovalQuestion] = []

    async def ask(self, question: ApprovalQuestion) -> Decision | None:
        """Return what was scripted for the question's worker, if anything."""
        self.seen.append(question)
        return self._decisions.get(question.worker)


@dataclass(frozen=True, slots=True)
class ScriptedGatherer:
    """The same pieces for every task."""

    pieces: tuple[ContextPiece, ...]

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:  # noqa: ARG002 - the protocol's
        """Return the pieces."""
        return self.pieces
