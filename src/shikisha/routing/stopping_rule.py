"""The stopping rule: given which workers were asked and what they answered, ask another worker or ship now.

For each set of asked workers, a linear estimate says what asking each other worker is worth beyond shipping now, at
each price (least-squares Monte Carlo for optimal stopping, Longstaff and Schwartz 2001; fitted in `routing.fit`). A
conditional logit (McFadden 1974) scores the distinct answers and "none of them": the sum of the weights of an answer's
supporters, by task type, and of pair weights for workers that err alike. Where
they are kept, boosted trees that read the candidate answers have the last word (`boosted_scorer`).
Invariants: it asks while the best estimate is above 0 and otherwise ships the most probable answer; probabilities do
not depend on how answers are numbered, and sum to 1 with "none".
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.boosted_scorer import BoostedTrees, boosted_posterior, candidate_features
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

# The score of a code that nobody gave.
_UNSUPPORTED_SCORE = -1e9
_NEVER = -np.inf
# Gains are rounded: rounding errors must not decide where the order of asking makes no difference.
_GAIN_DIGITS = 5


@dataclass(frozen=True, slots=True)
class AnswerScorer:
    """Scores of answers by D task types, with a last row for unknown ones, and J workers.

    `none` [D + 1] is the score of "no answer is right", `support` [D + 1, J] that of a supporter, `pairs` [J, J]
    (symmetric, 0 on the diagonal) what two supporters of one answer add.
    """

    none: Floats
    support: Floats
    pairs: Floats

    def posterior(self, state: DecisionState, workers: Sequence[int] | None = None) -> tuple[Floats, Floats]:
        """Return ([T, K], [T]): the probability of each of K candidate codes, and of none; 0 for codes nobody gave.

        `among` are the workers whose answers count; by default all that were asked.
        """
        workers = range(state.codes.shape[1]) if workers is None else workers
        codes, types = state.codes[:, list(workers)], state.batch.types
        count = max(1, int(codes.max(initial=0)) + 1)
        base = np.arange(len(codes)) * count
        scores, given = np.zeros(len(codes) * count), np.zeros(len(codes) * count, bool)
        answered = codes >= 0
        for index, worker in enumerate(workers):
            rows = np.flatnonzero(answered[:, index])
            cells = base[rows] + codes[rows, index]
            scores[cells] += self.support[types[rows], worker]
            given[cells] = True
        for index, worker in enumerate(workers):
            for earlier in range(index):
                weight = self.pairs[worker, workers[earlier]]
                if weight:
                    rows = np.flatnonzero(answered[:, index] & (codes[:, index] == codes[:, earlier]))
                    scores[base[rows] + codes[rows, index]] += weight
        table = np.where(given, scores, _UNSUPPORTED_SCORE).reshape(len(codes), count)
        none = self.none[types]
        top = np.maximum(table.max(axis=1), none)
        weights, nothing = np.exp(table - top[:, None]), np.exp(none - top)
        total = weights.sum(axis=1) + nothing
        return weights / total[:, None], nothing / total


def believe(
    scorer: AnswerScorer, boost: BoostedTrees | None, state: DecisionState, asked: tuple[int, ...]
) -> AnswerBelief:
    """Return the belief of a scorer, and of trees where there are some and the state has what they read."""
    posterior = scorer.posterior(state, asked)
    if boost is None or state.evidence is None:
        return AnswerBelief.of(posterior)
    cells, features = candidate_features(state, asked, posterior)
    return AnswerBelief.of(boosted_posterior(boost.log_odds(features), cells, posterior))


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """`workers` (indices) that it asks, and `gains` [p, n, L] by the tuple of those already asked.

    n counts the remaining workers, in order; L the settings. `boost` may be None.
    """

    kind: ClassVar[str] = "induction"
    workers: tuple[int, ...]
    scorer: AnswerScorer
    scales: LengthScales
    gains: Mapping[tuple[int, ...], Floats]
    boost: BoostedTrees | None = None

    @property
    def settings(self) -> int:
        """One for each price."""
        return int(next(iter(self.gains.values())).shape[2])

    def act(self, state: DecisionState, setting: int) -> Actions:
        """Ask the worker with the highest gain, or ship the most probable answer."""
        ask = np.full(len(state), SHIP, np.int64)
        ship = np.full(len(state), -1, np.int64)
        for asked, rows in group_by_asked(state):
            ask[rows], ship[rows] = self._act(state.at(rows) if len(rows) < len(state) else state, asked, setting)
        return Actions(ask, ship)

    def _act(self, state: DecisionState, asked: tuple[int, ...], setting: int) -> tuple[Ints, Ints]:
        belief = self.belief(state, asked)
        ship = best_supporter(state, asked, np.where(belief.best > 0, belief.top, -1))
        known = tuple(worker for worker in asked if worker in self.workers)
        others = [worker for worker in self.workers if worker not in known]
        if known not in self.gains or not others:
            return np.full(len(state), SHIP, np.int64), ship
        if not asked and not state.may_ask[others].any():
            return self._stand_in(state), ship
        features = state_features(state, known, belief, self.scales) if known else initial_features(state, self.scales)
        worth = np.round(features @ self.gains[known][:, :, setting], _GAIN_DIGITS)
        worth -= state.pressures()[others]
        worth[:, ~state.may_ask[others]] = _NEVER
        best = worth.argmax(axis=1)
        least = 0.0 if known else _NEVER  # without an answer to ship, the best one is asked even at a loss
        asks = worth.max(axis=1) > least
        return np.where(asks, np.array(others)[best], SHIP), ship

    def belief(self, state: DecisionState, asked: tuple[int, ...]) -> AnswerBelief:
        """Return how probable each candidate answer is after these workers were asked."""
        return believe(self.scorer, self.boost, state, asked)

    def _stand_in(self, state: DecisionState) -> Ints:
        """Return whom to ask where none of its own workers is available: the other one with the highest support."""
        support = self.scorer.support[state.batch.types] - state.pressures()
        counts = np.where(state.may_ask, support, _NEVER)
        return np.where(state.may_ask.any(), counts.argmax(axis=1), SHIP)

    def select_settings(self, settings: Sequence[int]) -> "StoppingRule":
        """Return the rule with these settings alone, in this order."""
        chosen = {asked: worth[:, :, list(settings)] for asked, worth in self.gains.items()}
        return replace(self, gains=chosen)

    def to_arrays(self) -> ArrayMap:
        """Return its arrays; a set of asked workers is named like `gains 1 4`."""
        arrays: dict[str, Floats] = {
            "workers": np.array(self.workers, float),
            "none": self.scorer.none,
            "support": self.scorer.support,
            "pairs": self.scorer.pairs,
            "written": self.scales.written,
            "spread": self.scales.spread,
        }
        arrays.update({" ".join(["gains", *map(str, asked)]): worth for asked, worth in self.gains.items()})
        arrays.update(self.boost.to_arrays() if self.boost else {})
        return arrays

    @classmethod
    def of(cls, arrays: ArrayMap) -> "StoppingRule":
        """Return the rule with these arrays."""
        gains = {tuple(map(int, name.split()[1:])): worth for name, worth in arrays.items() if name.startswith("gains")}
        return cls(
            tuple(int(worker) for worker in arrays["workers"]),
            AnswerScorer(arrays["none"], arrays["support"], arrays["pairs"]),
            LengthScales(arrays["written"], arrays["spread"]),
            gains,
            BoostedTrees.of(arrays),
        )
