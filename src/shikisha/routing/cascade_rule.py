"""The cascade: ask cheap workers before dear ones and stop at the first answer one can be confident of (FrugalGPT).

Each type of task has its order of workers. Confidence in the latest answer is logistic in the task's type, how
unusually long its output is, how sure it sounds, and whether it agrees with each earlier one (Chen et al., arXiv
2305.05176, whose scorer reads the text). Invariants: no answer leads on, never stops; the answer shipped is the last
one asked for, or where that is none, the last one given. Deliberately absent: votes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.state import (
    NO_ANSWER,
    NO_WORKER,
    SHIP,
    Actions,
    ArrayMap,
    DecisionState,
    LengthScales,
    group_by_asked,
)

END_OF_ORDER = -1  # in an order: nobody comes after
CascadeSteps: TypeAlias = tuple[
    tuple[int, float], ...
]  # workers, each with the confidence from which its answer is shipped


@dataclass(frozen=True, slots=True)
class CascadeRule:
    """`orders` [L, D + 1, S] of workers, END after the last; `thresholds` likewise, from which confidence a step ships.

    The last row of both is for tasks of unknown type. `confidences` hold the weights of each sequence of workers asked,
    for what `looks` returns. `spares` [J] are all workers: the first that is there stands in for an order of which
    nobody is.
    """

    kind: ClassVar[str] = "cascade"
    orders: Ints
    thresholds: Floats
    confidences: Mapping[tuple[int, ...], Floats]
    scales: LengthScales
    spares: Ints

    @property
    def settings(self) -> int:
        """One for each set of orders with their thresholds."""
        return len(self.orders)

    def act(self, seen: DecisionState, setting: int) -> Actions:
        """Ask the next one in order, or ship where the confidence suffices."""
        ask, ship = np.full(len(seen), SHIP, np.int64), np.full(len(seen), NO_WORKER, np.int64)
        for kind in np.unique(seen.batch.types):
            rows = np.flatnonzero(seen.batch.types == kind)
            held, steps = seen.at(rows), self.steps(setting, kind, seen.may_ask)
            for asked, own in group_by_asked(held):
                ask[rows[own]], ship[rows[own]] = self._act(held.at(own), asked, steps)
        return Actions(ask, ship)

    def steps(self, setting: int, kind: int, may_ask: Flags) -> CascadeSteps:
        """Return whom to ask in turn for tasks of this type, of those who are there."""
        order = zip(self.orders[setting, kind].tolist(), self.thresholds[setting, kind].tolist(), strict=True)
        found = tuple((worker, least) for worker, least in order if worker != END_OF_ORDER and may_ask[worker])
        return found or tuple((int(worker), 1.0) for worker in self.spares if may_ask[worker])[:1]

    def confidence(self, seen: DecisionState, asked: tuple[int, ...]) -> Floats:
        """Return [T], how probably the answer of the last of these is right; 0 for a sequence it was not fitted for."""
        if asked not in self.confidences:
            return np.zeros(len(seen))
        return sigmoid(confidence_features(seen, asked, self.scales), self.confidences[asked])

    def to_arrays(self) -> ArrayMap:
        """Return its arrays; the weights of a sequence are written as `confidence 3 0`."""
        arrays: dict[str, Floats] = {
            "orders": self.orders.astype(float),
            "thresholds": self.thresholds,
            "written": self.scales.written,
            "spread": self.scales.spread,
            "spares": self.spares.astype(float),
        }
        return arrays | {" ".join(["confidence", *map(str, at)]): held for at, held in self.confidences.items()}

    @classmethod
    def of(cls, held: ArrayMap) -> "CascadeRule":
        """Return the cascade that `held` wrote."""
        known = {
            tuple(map(int, name.split()[1:])): weights
            for name, weights in held.items()
            if name.startswith("confidence")
        }
        scales = LengthScales(held["written"], held["spread"])
        orders, spares = held["orders"].astype(np.int64), held["spares"].astype(np.int64)
        return cls(orders, held["thresholds"], known, scales, spares)

    def _act(self, seen: DecisionState, asked: tuple[int, ...], steps: CascadeSteps) -> tuple[Ints, Ints]:
        order = [worker for worker, _ in steps]
        past = [worker for worker in order if worker in asked]
        ship = _last_answering(seen, [*(worker for worker in asked if worker not in order), *past])
        place = order.index(past[-1]) if past else -1
        if place + 1 == len(order):
            return np.full(len(seen), SHIP, np.int64), ship
        if not past:
            return np.full(len(seen), order[0], np.int64), ship
        sure = self.confidence(seen, tuple(past)) >= steps[place][1]
        return np.where(sure & (seen.codes[:, past[-1]] > NO_ANSWER), SHIP, order[place + 1]), ship


def confidence_features(seen: DecisionState, asked: tuple[int, ...], scales: LengthScales) -> Floats:
    """Return [T, 3 + D + n (2 + D)], what confidence in the last of these is read from; n have been asked before it.

    A constant, the length and the sound of its answer, the type; for each earlier one silence, agreement, and agreement
    by type.
    """
    last, known = asked[-1], len(scales.written) - 1
    code, types = seen.codes[:, last], np.eye(known + 1)[seen.batch.types][:, :known]
    columns = [np.ones((len(seen), 1)), scales.lengths(seen, (last,)), seen.response_log_odds(last)[:, None], types]
    for one in asked[:-1]:
        agrees = ((seen.codes[:, one] == code) & (code > NO_ANSWER))[:, None].astype(float)
        columns += [(seen.codes[:, one] <= NO_ANSWER)[:, None].astype(float), agrees, agrees * types]
    return np.concatenate(columns, axis=1)


def sigmoid(features: Floats, weights: Floats) -> Floats:
    """Return [T], the logistic of features times weights."""
    found: Floats = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
    return found


def _last_answering(seen: DecisionState, past: list[int]) -> Ints:
    """[T]: the last of these that gave an answer."""
    found = np.full(len(seen), NO_WORKER, np.int64)
    for worker in past:
        found = np.where(seen.codes[:, worker] > NO_ANSWER, worker, found)
    return found
