"""Step values as notes on cards: what they say of each worker at work like the task's, as counts that a planner reads.

`WorkerNotes` weighs notes by how alike wordings are and shares blame among runs; step values have learned which
wordings are of one kind. Their chance p with its variance v says as much as n = 1 / (v p (1 - p)) outcomes would, and
at least as much as an even share of the worker's calls among the kinds; n p of these count as right. Invariant: the
same file gives the same counts; it answers only for tasks of its scope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from shikisha.core.task import Scope
from shikisha.learned.step_value import StepValue
from shikisha.notes.worker_notes import NoteEstimate

_MOST_TRIES = 60.0


@dataclass(frozen=True, slots=True)
class ValueNotes:
    """Answers as `WorkerNotes` do, by step values."""

    values: StepValue

    @property
    def version(self) -> str:
        """The version of the step values."""
        return self.values.version

    def estimate(self, text: str, workers: Sequence[str], reader: Scope) -> list[NoteEstimate]:
        """Return what is known of each worker at a text, in their order."""
        if not self.values.scope.admits(reader):
            return [NoteEstimate(name, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0) for name in workers]
        means, spread = self.values.logits([text, ""], list(workers))
        found = []
        for at, name in enumerate(workers):
            chance, usual = (1 / (1 + exp(-max(-30.0, min(30.0, float(row[at]))))) for row in means)
            known = name in self.values.workers
            count = float(self.values.tries[self.values.workers.index(name)]) if known else 0.0
            even = count / max(1, len(self.values.encoder.centres))
            told = 1 / max(1e-6, float(spread[0, at]) * chance * (1 - chance))
            tries = min(_MOST_TRIES, count, max(even, told))
            dollars = self.values.price(name) or 0.0
            found.append(NoteEstimate(name, tries, chance * tries, chance, count, usual * count, dollars))
        return found
