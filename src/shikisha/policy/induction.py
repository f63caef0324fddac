"""The step by step policy: from who was asked and what they said, whom to ask next, or that it is time to ship.

For each set of asked workers it holds a linear estimate of what asking each other one is worth beyond shipping now, at
every price of money it was fitted for (Longstaff and Schwartz 2001; fitted in `learn`). Invariant: it asks where the
estimate is above 0, and ships the most probable answer otherwise. Deliberately absent: fitting, and what money costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import SHIP, Acts, Seen, by_asked, supporter
from shikisha.policy.features import Belief, Scales, at_first, of_state
from shikisha.policy.parts import Held
from shikisha.policy.scorer import Scorer

_NEVER = -np.inf
_DIGITS = 5  # of a gain: where the order of asking makes no difference, rounding errors must not either


@dataclass(frozen=True, slots=True)
class Induction:
    """`workers` are those of the policy that it asks (places), `gains` [p, n, L] by the set of places asked.

    n counts the workers of `workers` that are not in the set, in order; L its settings.
    """

    kind: ClassVar[str] = "induction"
    workers: tuple[int, ...]
    scorer: Scorer
    scales: Scales
    gains: Mapping[tuple[int, ...], Floats]

    @property
    def settings(self) -> int:
        """One for each price of money."""
        return int(next(iter(self.gains.values())).shape[2])

    def act(self, seen: Seen, setting: int) -> Acts:
        """Ask whoever is worth most, or ship the most probable answer."""
        ask = np.full(len(seen), SHIP, np.int64)
        ship = np.full(len(seen), -1, np.int64)
        for asked, rows in by_asked(seen):
            ask[rows], ship[rows] = self._act(seen.at(rows) if len(rows) < len(seen) else seen, asked, setting)
        return Acts(ask, ship)

    def _act(self, seen: Seen, asked: tuple[int, ...], setting: int) -> tuple[Ints, Ints]:
        belief = Belief.of(self.scorer.posterior(seen, asked))
        ship = supporter(seen, asked, np.where(belief.best > 0, belief.top, -1))
        known = tuple(worker for worker in asked if worker in self.workers)
        others = [worker for worker in self.workers if worker not in known]
        if known not in self.gains or not others:
            return np.full(len(seen), SHIP, np.int64), ship
        if not asked and not seen.may_ask[others].any():
            return self._stand_in(seen), ship
        features = of_state(seen, known, belief, self.scales) if known else at_first(seen, self.scales)
        worth = np.round(features @ self.gains[known][:, :, setting], _DIGITS)
        worth[:, ~seen.may_ask[others]] = _NEVER
        best = worth.argmax(axis=1)
        least = 0.0 if known else _NEVER  # while there is nothing to ship, the least bad one is asked
        asks = worth.max(axis=1) > least
        return np.where(asks, np.array(others)[best], SHIP), ship

    def _stand_in(self, seen: Seen) -> Ints:
        """Return whom to ask where none of its own workers is there: of the others, whose word counts most."""
        counts = np.where(seen.may_ask, self.scorer.support[seen.batch.types], _NEVER)
        return np.where(seen.may_ask.any(), counts.argmax(axis=1), SHIP)

    def taking(self, settings: Sequence[int]) -> "Induction":
        """Return the induction of these settings alone, in this order."""
        chosen = {asked: worth[:, :, list(settings)] for asked, worth in self.gains.items()}
        return replace(self, gains=chosen)

    def held(self) -> Held:
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
    def of(cls, held: Held) -> "Induction":
        """Return the induction that `held` wrote."""
        gains = {tuple(map(int, name.split()[1:])): worth for name, worth in held.items() if name.startswith("gains")}
        return cls(
            tuple(int(worker) for worker in held["workers"]),
            Scorer(held["none"], held["support"], held["pairs"], held["sound"]),
            Scales(held["written"], held["spread"]),
            gains,
        )
