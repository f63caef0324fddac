"""The recommendation: which workers to keep and which to drop, what that saves, and what it costs in accuracy.

Halves of the tasks are held out in turn. On the other half the candidates are fitted, and the cheapest setting is
chosen that promises the best single worker's accuracy. Workers that both together hardly ask are dropped. On the half
held out that setting runs without them, in pairs with the best single worker for every task. Invariants: no figure is
of tasks that its rules or its setting have seen; work is bounded by MAX_TASKS, drawn by content; a loss that the
interval does not keep within TOLERATED_LOSS is said to be one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.evals.statistics import difference_interval
from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import (
    TABLE,
    LearningOptions,
    PolicyFit,
    assign_folds,
    candidate_names,
    fit_candidates,
    single_threaded_blas,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.state import DecisionRule
from shikisha.routing.trade_off import OperatingMix, OperatingTarget, TargetMetric, TradeOff, hash_to_unit

MAX_TASKS = 3_000
# A worker that is asked for a smaller share of the tasks is dropped.
MIN_ASKED = 0.1
# With fewer tasks nothing is recommended.
MIN_TASKS = 60
# A larger loss of accuracy is not "still right".
TOLERATED_LOSS = 0.02
_HALVES = 2


@dataclass(frozen=True, slots=True)
class PoolRecommendation:
    """Workers to keep and to drop; savings as a share of the bill, and the change of accuracy with its interval.

    `keep` are those that are asked often. `against` is what it is compared with, `target` the option of the
    policy, `saved` None where no cost is known.
    """

    keep: tuple[str, ...]
    drop: tuple[str, ...]
    saved: float | None
    change: float
    low: float
    high: float
    tasks: int
    against: str
    target: str

    @property
    def sentence(self) -> str:
        """The recommendation in one line."""
        names = f"Keep {', '.join(self.keep)}" + (f"; drop {', '.join(self.drop)}" if self.drop else "; drop none")
        bill = "" if self.saved is None else f"{-100 * self.saved:+.0f} % of the bill at ".replace("-", "−")
        half = 50 * (self.high - self.low)
        points = f"{100 * self.change:+.1f} ± {half:.1f} points".replace("-", "−")
        told = f"{names}: {bill}{points}, against {self.against}, on {self.tasks:,} held-out tasks ({self.target})."
        if self.low < -TOLERATED_LOSS:
            told += f" A loss of up to {-100 * self.low:.1f} points is not excluded."
        return told


@single_threaded_blas()
def recommend_pool(policy: Policy, matrix: OutcomeMatrix, seed: int = 0) -> PoolRecommendation | None:
    """Return what to keep and drop by a full matrix of established workers; None where there is too little to say."""
    if len(matrix.workers) < 2 or len(set(matrix.hashes)) < MIN_TASKS:
        return None
    rows = np.sort(np.argsort(np.array(matrix.hashes), kind="stable")[:MAX_TASKS])
    some = matrix.at(rows)
    names = candidate_names(some)[0]
    kept = policy.kept if policy.kept in names else TABLE
    folds = assign_folds(some.hashes, f"recommend {seed}", _HALVES)
    halves = [_fit_half(some, folds == half, names, kept, seed) for half in range(_HALVES)]
    shares = np.mean([half.shares for half in halves], axis=0)
    won, paid, single, spent = (np.zeros(len(some)) for _ in range(4))
    for number, half in enumerate(halves):
        test = np.flatnonzero(folds == number)
        held_out = some.at(test).for_evaluation()
        won[test], paid[test] = _play(half.fitted.parts, half.mix, held_out, shares >= MIN_ASKED)
        single[test] = np.where(held_out.codes[:, half.best] >= 0, held_out.won[:, half.best], 0.0)
        spent[test] = held_out.paid[:, half.best]
    change = won - single
    low, high = difference_interval(change.tolist())
    priced = policy.rung().dial.unit > 0 and spent.sum() > 0
    cost = float(paid.sum() / spent.sum()) if priced else 1.0
    return PoolRecommendation(
        tuple(matrix.workers[worker] for worker in np.argsort(-shares).tolist() if shares[worker] >= MIN_ASKED),
        tuple(matrix.workers[worker] for worker in np.argsort(-shares).tolist() if shares[worker] < MIN_ASKED),
        1 - cost if priced else None,
        float(change.mean()),
        low,
        high,
        len(some),
        f"{policy.best_single.name} for every task",
        f"?max_cost={ceil(100 * cost)}%" if priced else "its best setting",
    )


@dataclass(frozen=True, slots=True)
class _FittedHalf:
    """What one half teaches: rules, setting, best single worker, and how often each worker is asked [J]."""

    fitted: PolicyFit
    mix: OperatingMix
    best: int
    shares: Floats


def _fit_half(matrix: OutcomeMatrix, held_out: Flags, names: Sequence[str], kept: str, seed: int) -> _FittedHalf:
    train = matrix.at(np.flatnonzero(~held_out))
    fitted = fit_candidates(train, LearningOptions(seed=seed), names)
    mix = cheapest_as_good(fitted.dials[kept])
    asked = _asked(fitted.parts, mix, train)
    return _FittedHalf(fitted, mix, train.best_worker(), asked)


def cheapest_as_good(trade_off: TradeOff) -> OperatingMix:
    """Return the cheapest setting that promises the best single worker's accuracy, or the best."""
    try:
        return trade_off.at(OperatingTarget(TargetMetric.QUALITY, 1.0))
    except ConfigError:
        return trade_off.at(OperatingTarget(TargetMetric.BEST))


def _asked(rules: Sequence[DecisionRule], mix: OperatingMix, matrix: OutcomeMatrix) -> Floats:
    """Return [J]: the share of tasks for which a mix asks each worker."""
    low, high = (replay(rules[point.part], point.setting, matrix).asked.mean(axis=0) for point in (mix.low, mix.high))
    return np.asarray((1 - mix.share) * low + mix.share * high, np.float64)


def _play(
    rules: Sequence[DecisionRule], mix: OperatingMix, matrix: OutcomeMatrix, may_ask: Flags
) -> tuple[Floats, Floats]:
    """Return scores and dollars of a mix that asks no others; a task's content draws which setting it gets."""
    drawn = np.array([hash_to_unit(content) for content in matrix.hashes]) < mix.share
    low, high = (replay(rules[point.part], point.setting, matrix, may_ask) for point in (mix.low, mix.high))
    return np.where(drawn, high.won, low.won), np.where(drawn, high.paid, low.paid)
