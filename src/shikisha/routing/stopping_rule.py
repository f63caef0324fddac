"""The step by step policy: from who was asked and what they said, whom to ask next, or that it is time to ship.

For each set of asked workers it holds a linear estimate of what asking each other one is worth beyond shipping now, at
every price of money it was fitted for (Longstaff and Schwartz 2001; fitted in `learn`). Invariant: it asks where the
estimate is above 0, and ships the most probable answer otherwise. Deliberately absent: fitting, and what money costs.

The answer scorer: how probably each answer that has been given is right, and how probably none is.

A conditional logit (McFadden 1974) over the answers that differ and "none of them": an answer's score is the sum of its
supporters' weights, each of its task type and more where its text sounds sure (`hearing`), and of what each pair of
supporters counts more or less because they err alike. Invariants: no answer's probability hangs on what its code is;
probabilities and "none" sum to 1. Deliberately absent: anything that is not a sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.state import (
    SHIP,
    Actions,
    AnswerBelief,
    ArrayMap,
    DecisionState,
    LengthScales,
    best_supporter,
    group_by_asked,
    initial_features,
    state_features,
)

_UNSUPPORTED_SCORE = -1e9  # the score of an answer that nobody gave


@dataclass(frozen=True, slots=True)
class AnswerScorer:
    """D task types and a last row for unknown ones; J workers.

    `none` [D + 1] is the score of "no answer is right", `support` [D + 1, J] what a supporter counts, `pairs` [J, J]
    (symmetric, 0 on the diagonal) what two supporters of one answer count besides, `sound` [J] what it counts that a
    supporter's text sounds surer than usual by one in log odds.
    """

    none: Floats
    support: Floats
    pairs: Floats
    sound: Floats

    def posterior(self, seen: DecisionState, among: Sequence[int] | None = None) -> tuple[Floats, Floats]:
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
            scores[cells] += (
                self.support[types[rows], worker] + self.sound[worker] * seen.response_log_odds(worker)[rows]
            )
            given[cells] = True
        for place, worker in enumerate(among):
            for earlier in range(place):
                weight = self.pairs[worker, among[earlier]]
                if weight:
                    rows = np.flatnonzero(said[:, place] & (held[:, place] == held[:, earlier]))
                    scores[base[rows] + held[rows, place]] += weight
        table = np.where(given, scores, _UNSUPPORTED_SCORE).reshape(len(held), count)
        none = self.none[types]
        top = np.maximum(table.max(axis=1), none)
        weights, nothing = np.exp(table - top[:, None]), np.exp(none - top)
        total = weights.sum(axis=1) + nothing
        return weights / total[:, None], nothing / total


_NEVER = -np.inf
_GAIN_DIGITS = 5  # of a gain: where the order of asking makes no difference, rounding errors must not either


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """`workers` are those of the policy that it asks (places), `gains` [p, n, L] by the set of places asked.

    n counts the workers of `workers` that are not in the set, in order; L its settings.
    """

    kind: ClassVar[str] = "induction"
    workers: tuple[int, ...]
    scorer: AnswerScorer
    scales: LengthScales
    gains: Mapping[tuple[int, ...], Floats]

    @property
    def settings(self) -> int:
        """One for each price of money."""
        return int(next(iter(self.gains.values())).shape[2])

    def act(self, seen: DecisionState, setting: int) -> Actions:
        """Ask whoever is worth most, or ship the most probable answer."""
        ask = np.full(len(seen), SHIP, np.int64)
        ship = np.full(len(seen), -1, np.int64)
        for asked, rows in group_by_asked(seen):
            ask[rows], ship[rows] = self._act(seen.at(rows) if len(rows) < len(seen) else seen, asked, setting)
        return Actions(ask, ship)

    def _act(self, seen: DecisionState, asked: tuple[int, ...], setting: int) -> tuple[Ints, Ints]:
        belief = AnswerBelief.of(self.scorer.posterior(seen, asked))
        ship = best_supporter(seen, asked, np.where(belief.best > 0, belief.top, -1))
        known = tuple(worker for worker in asked if worker in self.workers)
        others = [worker for worker in self.workers if worker not in known]
        if known not in self.gains or not others:
            return np.full(len(seen), SHIP, np.int64), ship
        if not asked and not seen.may_ask[others].any():
            return self._stand_in(seen), ship
        features = state_features(seen, known, belief, self.scales) if known else initial_features(seen, self.scales)
        worth = np.round(features @ self.gains[known][:, :, setting], _GAIN_DIGITS)
        worth[:, ~seen.may_ask[others]] = _NEVER
        best = worth.argmax(axis=1)
        least = 0.0 if known else _NEVER  # while there is nothing to ship, the least bad one is asked
        asks = worth.max(axis=1) > least
        return np.where(asks, np.array(others)[best], SHIP), ship

    def _stand_in(self, seen: DecisionState) -> Ints:
        """Return whom to ask where none of its own workers is there: of the others, whose word counts most."""
        counts = np.where(seen.may_ask, self.scorer.support[seen.batch.types], _NEVER)
        return np.where(seen.may_ask.any(), counts.argmax(axis=1), SHIP)

    def select_settings(self, settings: Sequence[int]) -> "StoppingRule":
        """Return the induction of these settings alone, in this order."""
        chosen = {asked: worth[:, :, list(settings)] for asked, worth in self.gains.items()}
        return replace(self, gains=chosen)

    def to_arrays(self) -> ArrayMap:
        """Return its arrays; a set of asked workers is written as `gains 1 4`."""
        arrays: dict[str, Floats] = {
            "workers": np.array(self.workers, float),
            "none": self.scorer.none,
            "support": self.scorer.support,
            "pairs": self.scorer.pairs,
            "sound": self.scorer.sound,
            "written": self.scales.written,
            "spread": self.scales.spread,
        }
        return arrays | {" ".join(["gains", *map(str, asked)]): worth for asked, worth in self.gains.items()}

    @classmethod
    def of(cls, held: ArrayMap) -> "StoppingRule":
        """Return the induction that `held` wrote."""
        gains = {tuple(map(int, name.split()[1:])): worth for name, worth in held.items() if name.startswith("gains")}
        return cls(
            tuple(int(worker) for worker in held["workers"]),
            AnswerScorer(held["none"], held["support"], held["pairs"], held["sound"]),
            LengthScales(held["written"], held["spread"]),
            gains,
        )
