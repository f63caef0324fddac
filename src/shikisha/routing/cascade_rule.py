"""The cascade rule: ask cheap workers before expensive ones and stop at the first confident answer (FrugalGPT).

Policies of before December 2026 hold it; it gained nothing on logs of others, and is fitted no more.
Each task type has its order of workers. Confidence in the latest answer is logistic in the task's type, how unusually
long the output is, and whether it agrees with each earlier answer (Chen et al., arXiv
2305.05176). Invariants: a missing answer never stops the cascade; it ships the last answer
that was given.
"""

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import numpy as np

from shikisha.core.fast_dataclass import dataclass
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

END_OF_ORDER = -1
CascadeSteps: TypeAlias = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class CascadeRule:
    """`orders` [L, D + 1, S] of workers, padded with END_OF_ORDER, and `thresholds` of the same shape.

    A step ships from its threshold of confidence on. The last row of types is for unknown types. `confidences` maps
    each sequence of asked workers to the weights of its `confidence_features`. `spares` [J] lists all workers: the
    first available one replaces an order of which none is available.
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

    def act(self, state: DecisionState, setting: int) -> Actions:
        """Ask the next worker in order, or ship where confidence suffices."""
        ask, ship = np.full(len(state), SHIP, np.int64), np.full(len(state), NO_WORKER, np.int64)
        for kind in np.unique(state.batch.types):
            rows = np.flatnonzero(state.batch.types == kind)
            group, steps = state.at(rows), self.steps(setting, kind, state.may_ask)
            for asked, own in group_by_asked(group):
                ask[rows[own]], ship[rows[own]] = self._act(group.at(own), asked, steps)
        return Actions(ask, ship)

    def steps(self, setting: int, kind: int, may_ask: Flags) -> CascadeSteps:
        """Return the available workers to ask in turn for tasks of this type, with their thresholds."""
        order = zip(self.orders[setting, kind].tolist(), self.thresholds[setting, kind].tolist(), strict=True)
        available = tuple((worker, least) for worker, least in order if worker != END_OF_ORDER and may_ask[worker])
        return available or tuple((int(worker), 1.0) for worker in self.spares if may_ask[worker])[:1]

    def confidence(self, state: DecisionState, asked: tuple[int, ...]) -> Floats:
        """Return [T], the probability that the last worker's answer is right; 0 for a sequence without weights."""
        if asked not in self.confidences:
            return np.zeros(len(state))
        return sigmoid(confidence_features(state, asked, self.scales), self.confidences[asked])

    def to_arrays(self) -> ArrayMap:
        """Return its arrays; the weights of a sequence are named like `confidence 3 0`."""
        arrays: dict[str, Floats] = {
            "orders": self.orders.astype(float),
            "thresholds": self.thresholds,
            "written": self.scales.written,
            "spread": self.scales.spread,
            "spares": self.spares.astype(float),
        }
        return arrays | {" ".join(["confidence", *map(str, at)]): weights for at, weights in self.confidences.items()}

    @classmethod
    def of(cls, arrays: ArrayMap) -> "CascadeRule":
        """Return the cascade with these arrays."""
        confidences = {
            tuple(map(int, name.split()[1:])): weights
            for name, weights in arrays.items()
            if name.startswith("confidence")
        }
        scales = LengthScales(arrays["written"], arrays["spread"])
        orders, spares = arrays["orders"].astype(np.int64), arrays["spares"].astype(np.int64)
        return cls(orders, arrays["thresholds"], confidences, scales, spares)

    def _act(self, state: DecisionState, asked: tuple[int, ...], steps: CascadeSteps) -> tuple[Ints, Ints]:
        order = [worker for worker, _ in steps]
        past = [worker for worker in order if worker in asked]
        ship = _last_answering(state, [*(worker for worker in asked if worker not in order), *past])
        index = order.index(past[-1]) if past else -1
        if index + 1 == len(order):
            return np.full(len(state), SHIP, np.int64), ship
        if not past:
            return np.full(len(state), order[0], np.int64), ship
        # A call that others wait for must promise more than one that nobody does.
        sure = self.confidence(state, tuple(past)) >= steps[index][1] - state.pressures()[order[index + 1]]
        return np.where(sure & (state.codes[:, past[-1]] > NO_ANSWER), SHIP, order[index + 1]), ship


def confidence_features(state: DecisionState, asked: tuple[int, ...], scales: LengthScales) -> Floats:
    """Return [T, 3 + D + n (2 + D)] features of confidence in the last of `asked`, after n others.

    A constant, the length of its answer, 0, the type; for each earlier worker, no answer, agreement, and agreement by
    type.
    """
    last, known = asked[-1], len(scales.written) - 1
    code, types = state.codes[:, last], np.eye(known + 1)[state.batch.types][:, :known]
    # The third column was of a model that left; files keep its weight, which counts for nothing.
    columns = [np.ones((len(state), 1)), scales.lengths(state, (last,)), np.zeros((len(state), 1)), types]
    for worker in asked[:-1]:
        agrees = ((state.codes[:, worker] == code) & (code > NO_ANSWER))[:, None].astype(float)
        columns += [(state.codes[:, worker] <= NO_ANSWER)[:, None].astype(float), agrees, agrees * types]
    return np.concatenate(columns, axis=1)


def sigmoid(features: Floats, weights: Floats) -> Floats:
    """Return [T], the logistic function of features times weights."""
    probability: Floats = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
    return probability


def _last_answering(state: DecisionState, past: list[int]) -> Ints:
    """Return [T], the last of these workers that gave an answer."""
    last = np.full(len(state), NO_WORKER, np.int64)
    for worker in past:
        last = np.where(state.codes[:, worker] > NO_ANSWER, worker, last)
    return last
