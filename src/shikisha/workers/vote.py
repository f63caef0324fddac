"""A worker that counts votes: it answers with what most of its granted results say.

Invariant: its answer is one of the granted answers, letter for letter, so a vote cannot introduce anything. In a tie
the earliest answer wins; a step without a result has no vote.
"""

from collections.abc import Sequence
from typing import TypeAlias

from pydantic import Field, NonNegativeFloat

from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.engine.worker import WorkerKind
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize

# What two answers must have in common to count as the same.
VoteForm: TypeAlias = AnswerForm


class VoteSettings(Table):
    """How answers are compared, and the weights of the first, second, … granted result (1 beyond the list)."""

    by: VoteForm = Field(default=VoteForm.TEXT, description="the canonical form in which answers are compared")
    weights: tuple[NonNegativeFloat, ...] = Field(
        default=(), description="the weight of the first, second, ... visible result; 1 beyond the list"
    )


Settings = VoteSettings  # the name that `config.kinds` looks up


def build(settings: VoteSettings, card: Card, secret_store: SecretStore) -> "VoteWorker":  # noqa: ARG001 - every adapter's signature
    """Return a counter of votes."""
    return VoteWorker(settings.by, settings.weights)


KIND = WorkerKind(settings=VoteSettings, build=build, any_task=True, uncalled="it counts the answers of others")


class VoteWorker:
    """Answers with the winner among the granted results and nothing else."""

    def __init__(self, by: VoteForm = VoteForm.TEXT, weights: Sequence[float] = ()) -> None:
        self._by = by
        self._weights = tuple(weights)

    async def perform(self, request: Request) -> Reply:
        """Count the votes; BAD_ARGUMENTS when no granted result has one."""
        votes: dict[str, float] = {}
        texts: dict[str, str] = {}
        for place, granted in enumerate(request.granted):
            vote = None if granted.text is None else canonicalize(granted.text, self._by)
            if vote is not None and granted.text is not None:
                votes[vote] = votes.get(vote, 0.0) + self._weight(place)
                texts.setdefault(vote, granted.text)
        if not votes:
            raise WorkerError(FaultKind.BAD_ARGUMENTS, f"none of {len(request.granted)} granted results has a vote")
        return Reply(texts[max(votes, key=votes.__getitem__)])

    def _weight(self, place: int) -> float:
        return self._weights[place] if place < len(self._weights) else 1.0
