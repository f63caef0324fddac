"""Hearing: how sure the text of an answer sounds, from its words ("however", "none of the options", "closest").

A logistic model for each worker over the hashed words of what it wrote, fitted in `learn`. Invariant: what is told is
relative to what is usual for the worker and the task's type, so that an answer without a text, or a worker that was
never heard, tells nothing (0). Deliberately absent: what the words mean, and the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.words import HEARD, Words, spoken

FAR = 3.0  # in log odds


@dataclass(frozen=True, slots=True)
class Hearing:
    """`weights` [J, HEARD] by worker, `rarity` [HEARD] of words, `usual` [D + 1, J] log odds by type, `heard` [J]."""

    weights: Floats
    rarity: Floats
    usual: Floats
    heard: Flags

    def tells(self, texts: Sequence[Words | None], types: Ints) -> Floats:
        """Return [T, J]: how much surer than usual each worker's text sounds, in log odds; 0 where there is no text."""
        found = np.zeros((len(types), len(self.weights)))
        for worker, words in enumerate(texts):
            if words is not None and self.heard[worker]:
                odds = words.scaled(self.rarity).dot(self.weights[worker])
                told = np.clip(odds - self.usual[types, worker], -FAR, FAR)
                found[:, worker] = np.where(words.empty, 0.0, told)
        return found

    def tell(self, worker: int, text: str, kind: int) -> float:
        """Return the same for one text."""
        texts: list[Words | None] = [None] * len(self.weights)
        texts[worker] = _spoken(text)
        return float(self.tells(texts, np.array([kind], np.int64))[0, worker])

    def held(self) -> dict[str, Floats]:
        """Return its arrays."""
        heard = self.heard.astype(float)
        return {"weights": self.weights, "rarity": self.rarity, "usual": self.usual, "heard": heard}

    @classmethod
    def of(cls, held: dict[str, Floats]) -> "Hearing":
        """Return the hearing that `held` wrote."""
        return cls(held["weights"], held["rarity"], held["usual"], held["heard"] > 0)


def deaf(workers: int, types: int) -> Hearing:
    """Return a hearing that hears nobody."""
    return Hearing(np.zeros((workers, HEARD)), np.ones(HEARD), np.zeros((types + 1, workers)), np.zeros(workers, bool))


@lru_cache(maxsize=64)
def _spoken(text: str) -> Words:
    """Return the words of one text; a run's next decision asks for those of its earlier answers again."""
    return spoken([text])
