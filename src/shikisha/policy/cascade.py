"""The cascade: ask cheap workers before dear ones and stop at the first answer one can be confident of (FrugalGPT).

Confidence in the latest answer is logistic in the task's type, whether there is an answer, how unusually long its
output is, and whether it agrees with each earlier one (Chen et al., arXiv 2305.05176, whose scorer reads the text).
Invariant: the answer shipped is the last one asked for; where that is none, the last one that was given. Deliberately
absent: votes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import NOBODY, NOTHING, SHIP, Acts, Seen, by_asked
from shikisha.policy.features import Scales
from shikisha.policy.parts import Held

_END = -1


@dataclass(frozen=True, slots=True)
class Cascade:
    """`orders` [L, S] of workers, -1 after the last; `thresholds` [L, S], the confidence from which each step ships.

    `confidences` hold the weights of each sequence of workers asked: [D + 2 + n], for types, silence, length, and
    agreement with each of the n earlier ones (an unknown type counts as none).
    """

    kind: ClassVar[str] = "cascade"
    orders: Ints
    thresholds: Floats
    confidences: Mapping[tuple[int, ...], Floats]
    scales: Scales

    @property
    def settings(self) -> int:
        """One for each order with its thresholds."""
        return len(self.orders)

    def act(self, seen: Seen, setting: int) -> Acts:
        """Ask the next one in order, or ship where the confidence suffices."""
        order = tuple(int(worker) for worker in self.orders[setting] if worker != _END and seen.may_ask[worker])
        ask, ship = np.full(len(seen), SHIP, np.int64), np.full(len(seen), NOBODY, np.int64)
        for asked, rows in by_asked(seen):
            there = seen.at(rows)
            past = [worker for worker in order if worker in asked]
            rest = [worker for worker in order if worker not in asked]
            ship[rows] = _latest(there, past)
            if not rest:
                continue
            stops = np.zeros(len(rows), bool)
            if past:
                stops = self.confidence(there, tuple(past)) >= self.thresholds[setting, len(past) - 1]
            ask[rows] = np.where(stops, SHIP, rest[0])
        return Acts(ask, ship)

    def confidence(self, seen: Seen, asked: tuple[int, ...]) -> Floats:
        """Return [T], how probably the answer of the last of these is right; 0 for a sequence it was not fitted for."""
        if asked not in self.confidences:
            return np.zeros(len(seen))
        odds = looks(seen, asked, self.scales) @ self.confidences[asked]
        chance: Floats = 1 / (1 + np.exp(-odds))
        return chance

    def held(self) -> Held:
        """Return its arrays; the weights of a sequence are written as `confidence 3 0`."""
        arrays: dict[str, Floats] = {
            "orders": self.orders.astype(float),
            "thresholds": self.thresholds,
            "written": self.scales.written,
            "spread": self.scales.spread,
            "groups": self.scales.groups,
        }
        return arrays | {" ".join(["confidence", *map(str, at)]): held for at, held in self.confidences.items()}

    @classmethod
    def of(cls, held: Held) -> "Cascade":
        """Return the cascade that `held` wrote."""
        known = {
            tuple(map(int, name.split()[1:])): weights
            for name, weights in held.items()
            if name.startswith("confidence")
        }
        scales = Scales(held["written"], held["spread"], held["groups"])
        return cls(held["orders"].astype(np.int64), held["thresholds"], known, scales)


def looks(seen: Seen, asked: tuple[int, ...], scales: Scales) -> Floats:
    """Return [T, D + 2 + n], what confidence in the last of these is read from."""
    last, known = asked[-1], len(scales.written) - 1
    code = seen.codes[:, last]
    columns = [np.eye(known + 1)[seen.batch.types][:, :known], (code <= NOTHING)[:, None].astype(float)]
    columns.append(scales.lengths(seen, (last,)))
    columns += [((seen.codes[:, one] == code) & (code > NOTHING))[:, None].astype(float) for one in asked[:-1]]
    return np.concatenate(columns, axis=1)


def _latest(seen: Seen, past: list[int]) -> Ints:
    """[T]: the last of these that gave an answer."""
    found = np.full(len(seen), NOBODY, np.int64)
    for worker in past:
        found = np.where(seen.codes[:, worker] > NOTHING, worker, found)
    return found
