"""The answer scorer: how probably each answer that has been given is right, and how probably none is.

A conditional logit (McFadden 1974) over the answers that differ and "none of them": an answer's score is the sum of its
supporters' weights, each of its task type and more where its text sounds sure (`hearing`), and of what each pair of
supporters counts more or less because they err alike. Invariants: no answer's probability hangs on what its code is;
probabilities and "none" sum to 1. Deliberately absent: anything that is not a sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.policy.arrays import Floats
from shikisha.policy.batch import Seen

_ABSENT = -1e9  # the score of an answer that nobody gave


@dataclass(frozen=True, slots=True)
class Scorer:
    """D task types and a last row for unknown ones; J workers.

    `none` [D + 1] is the score of "no answer is right", `support` [D + 1, J] what a supporter counts, `pairs` [J, J]
    (symmetric, 0 on the diagonal) what two supporters of one answer count besides, `sound` [J] what it counts that a
    supporter's text sounds surer than usual by one in log odds.
    """

    none: Floats
    support: Floats
    pairs: Floats
    sound: Floats

    def posterior(self, seen: Seen, among: Sequence[int] | None = None) -> tuple[Floats, Floats]:
        """Return ([T, K], [T]): the probability of each of K candidate codes, and of none; 0 for those nobody gave.

        `among` are the workers whose answers count; by default all that have been asked.
        """
        among = range(seen.codes.shape[1]) if among is None else among
        held, types = seen.codes[:, list(among)], seen.batch.types
        count = max(1, int(held.max(initial=0)) + 1)
        base = np.arange(len(held)) * count
        scores, given = np.zeros(len(held) * count), np.zeros(len(held) * count, bool)
        said = held >= 0
        for place, worker in enumerate(among):
            rows = np.flatnonzero(said[:, place])
            cells = base[rows] + held[rows, place]
            scores[cells] += self.support[types[rows], worker] + self.sound[worker] * seen.told(worker)[rows]
            given[cells] = True
        for place, worker in enumerate(among):
            for earlier in range(place):
                weight = self.pairs[worker, among[earlier]]
                if weight:
                    rows = np.flatnonzero(said[:, place] & (held[:, place] == held[:, earlier]))
                    scores[base[rows] + held[rows, place]] += weight
        table = np.where(given, scores, _ABSENT).reshape(len(held), count)
        none = self.none[types]
        top = np.maximum(table.max(axis=1), none)
        weights, nothing = np.exp(table - top[:, None]), np.exp(none - top)
        total = weights.sum(axis=1) + nothing
        return weights / total[:, None], nothing / total
