"""A conductor that sees worker notes on the cards: what outcomes say of each worker at work like the task's.

It wraps any conductor and changes what that reads, not what it may do. Each card's description gets one sentence for
each clause of the task that outcomes say something about. With `explore`, that share of the tasks names the worker
that is tried least, so that a new worker gets its chance. A hash of the task decides which tasks.

Invariants: a note is data; it adds no worker and raises no budget (1, 5). The notes' version is in the proposal's note,
so that the journal says what was seen. Deliberately absent: reading runs (`notes.step_outcomes`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol, runtime_checkable

from shikisha.core.budget import format_dollars
from shikisha.core.task import Scope, Task
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.worker import Card
from shikisha.notes.worker_notes import NoteEstimate, WorkerNotes
from shikisha.retrieval.terms import split_clauses

_MOST_CLAUSES = 4
_LEAST_TRIES = 1.0  # like the clause, weighed; below, nothing is said of it
_CLAUSE_CHARACTERS = 48


class NoteSource(Protocol):
    """What answers for a text: worker notes, or step values as notes."""

    @property
    def version(self) -> str:
        """The version, for the journal."""
        ...

    def estimate(self, text: str, workers: Sequence[str], reader: Scope) -> list[NoteEstimate]:
        """Return what a task of this scope may know of each worker at a text, in their order."""
        ...


@runtime_checkable
class NotesReader(Conductor, Protocol):
    """A conductor that takes notes as they are, not as sentences on cards."""

    def with_notes(self, notes: WorkerNotes) -> Conductor:
        """Return the conductor with these notes."""
        ...


@dataclass(frozen=True, slots=True)
class NotedConductor:
    """Shows `notes` on the cards to `inner`; `explore` is the share of tasks that name the least tried worker."""

    inner: Conductor
    notes: NoteSource
    explore: float = 0.0

    @property
    def name(self) -> str:
        """The inner conductor's name."""
        return self.inner.name

    async def propose(self, situation: Situation) -> Proposal:
        """Return what the inner conductor proposes for cards with notes."""
        cards, tried = self.noted_cards(situation.task, situation.cards)
        proposal = await self.inner.propose(replace(situation, cards=cards))
        seen = f"notes {self.notes.version[:12]}" + (f", explores {tried}" if tried else "")
        return replace(proposal, note=f"{proposal.note}; {seen}" if proposal.note else seen)

    def noted_cards(self, task: Task, cards: Sequence[Card]) -> tuple[tuple[Card, ...], str]:
        """Return the cards with what is known, and the name of the worker that is to be tried (or "")."""
        names = [card.name for card in cards]
        clauses = list(split_clauses(task.prompt))[:_MOST_CLAUSES]
        found = [(clause, self.notes.estimate(clause, names, task.scope)) for clause in clauses]
        overall = found[0][1] if found else self.notes.estimate("", names, task.scope)
        tried = self._least_tried(task, overall)
        said = [" ".join(self._said(place, overall, found, tried)) for place in range(len(cards))]
        noted = [f"{card.description} {more}".strip() for card, more in zip(cards, said, strict=True)]
        return tuple(replace(card, description=text) for card, text in zip(cards, noted, strict=True)), tried

    def _said(
        self,
        place: int,
        overall: Sequence[NoteEstimate],
        found: Sequence[tuple[str, list[NoteEstimate]]],
        tried: str,
    ) -> list[str]:
        known = overall[place]
        said = []
        if known.all_tries:
            right, tries = f"{known.all_right:.0f}", f"{known.all_tries:.0f}"
            said.append(f"Outcomes: right on {right} of {tries}, {format_dollars(known.dollars)} a call.")
        for clause, estimates in found:
            one = estimates[place]
            if one.tries >= _LEAST_TRIES:
                about = " ".join(clause.split())[:_CLAUSE_CHARACTERS]
                said.append(f"At work like '{about}': right on {one.right:.0f} of {one.tries:.0f}.")
        if tried == known.worker:
            said.append("Hardly tried so far: give it a part if it may fit.")
        return said

    def _least_tried(self, task: Task, overall: Sequence[NoteEstimate]) -> str:
        if not self.explore or not overall:
            return ""
        draw = int.from_bytes(sha256(f"{self.notes.version} {task.content_hash}".encode()).digest()[:8], "big") / 2**64
        return min(overall, key=lambda one: one.all_tries).worker if draw < self.explore else ""
