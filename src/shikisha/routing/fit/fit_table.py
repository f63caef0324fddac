"""Fitting the table rule: success and cost by task type and worker, shrunk to the worker's mean.

How strongly types shrink is chosen by held-out error. Load limits are kept by one offset per worker, the dual price of
its limit: a linear program over types gives a start, then coordinate ascent raises or lowers each offset until its
worker's share equals its limit. Invariant: a worker has a positive offset only where its share reaches its limit.
Limits per minute or in tokens are the engine's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_ANSWER
from shikisha.routing.table_rule import TableRule

# Workers whose utilities differ by less share a type at random.
TIE_MARGIN = 0.02
# Offsets that move less have converged.
_CONVERGED = 1e-6
_ROUNDS = 40
_EPSILON = 1e-9
PRICES = np.geomspace(0.002, 20.0, 60)
# Pseudo-tasks for costs, which vary less by type than success.
COST_SHRINKAGE = 20.0
SHRINKAGES = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


def capacity_offsets(free: TableRule, matrix: OutcomeMatrix, limits: Mapping[str, float]) -> Floats:
    """Return [L, J], the offsets that keep each worker's share of these tasks within its limit."""
    # Each limited worker's index and limit; refuse limits that cannot be kept.
    workers = matrix.workers
    for name, limit in limits.items():
        if name not in workers:
            raise UnknownName("worker in the load limits", name, workers)
        if not 0 <= limit <= 1:
            raise ConfigError(f"load limits: {name}: expected a share of all tasks, from 0 to 1, found {limit!r}")
    if len(limits) == len(workers) and sum(limits.values()) < 1 - _EPSILON:
        raise ConfigError(f"load limits: all workers together may take only {sum(limits.values()):.3g} of the tasks")
    most = {workers.index(name): limit for name, limit in limits.items()}
    moved, types = free.task_offsets(matrix.batch), matrix.batch.types
    offsets = np.zeros((free.settings, len(matrix.workers)))
    for setting in range(free.settings):
        worth = free.worth(setting)
        start = _dual_prices(worth, np.bincount(types % len(worth), minlength=len(worth)) / max(1, len(types)), most)
        offsets[setting] = _solve_offsets(worth[types] + moved, most, start)
    return offsets


def _dual_prices(worth: Floats, sizes: Floats, most: Mapping[int, float]) -> Floats:
    """Return [J], the dual prices of the limits if types could be split at will; `sizes` [D + 1] are their shares."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("learn", "load limits") from None
    kinds, workers = worth.shape
    everybody = np.kron(np.eye(kinds), np.ones(workers))
    loads = np.array([np.kron(sizes, np.arange(workers) == worker) for worker in most])
    solution = linprog(
        -(sizes[:, None] * worth).ravel(),
        A_ub=loads,
        b_ub=np.array(list(most.values())) + _EPSILON,
        A_eq=everybody,
        b_eq=np.ones(kinds),
        bounds=(0, 1),
    )
    offsets = np.zeros(workers)
    offsets[list(most)] = np.maximum(0.0, -solution.ineqlin.marginals)
    return offsets


def _solve_offsets(worth: Floats, most: Mapping[int, float], start: Floats) -> Floats:
    """Return [J], the offsets for tasks with this utility of the workers, [T, J]."""
    offsets = start.copy()
    for _ in range(_ROUNDS):
        before = offsets.copy()
        for worker, share in most.items():
            offsets[worker] = _solve_offset(worth, offsets, worker, share)
        if np.abs(offsets - before).max() < _CONVERGED:
            break
    return offsets


def _solve_offset(worth: Floats, offsets: Floats, worker: int, share: float) -> float:
    """Return the smallest offset with which this worker is best on no more than its share of the tasks."""
    others = worth - offsets
    others[:, worker] = -np.inf
    margin = worth[:, worker] - others.max(axis=1)
    allowed = ceil(share * len(margin) - _EPSILON)
    if allowed >= len(margin):
        return 0.0
    ranked = np.partition(-margin, [max(0, allowed - 1), allowed])
    outside = -ranked[allowed]  # the best task beyond its share
    inside = -ranked[allowed - 1] if allowed else outside + TIE_MARGIN
    return max(0.0, float(outside + inside) / 2)


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table, and its results on tasks outside the fit: won and cost (units), [T, L].

    `expected` [L] is the accuracy of its settings as the table itself estimates it, on the level of `won`.
    """

    part: TableRule
    won: Floats
    cost: Floats
    expected: Floats


def fit_table(
    matrix: OutcomeMatrix, folds: Ints, unit: float = 0.0, limits: Mapping[str, float] | None = None
) -> FittedTable:
    """Fit the table; `unit` is the dollars of one unit of cost (0: the matrix's own), `limits` the largest shares.

    UnknownName or ConfigError for load limits that cannot be kept.
    """
    dollars, strength = unit or matrix.cost_unit(), choose_shrinkage(matrix, folds)
    won, cost = np.zeros((len(matrix), len(PRICES))), np.zeros((len(matrix), len(PRICES)))
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        table = build_table(matrix.at(~rows), dollars, strength, limits)
        won[rows], cost[rows] = evaluate_table(table, matrix.at(rows).for_evaluation(), dollars)
    whole = build_table(matrix, dollars, strength, limits)
    # [L]: the success that a table expects of its settings on these tasks.
    moved, types = whole.task_offsets(matrix.batch), matrix.batch.types
    means = []
    for setting in range(whole.settings):
        best = (whole.worth(setting)[types] + moved).argmax(axis=1)
        means.append(float(whole.success[types, best].mean()))
    estimates = np.array(means)
    return FittedTable(whole, won, cost, estimates + won.mean() - estimates.mean())


def build_table(
    matrix: OutcomeMatrix, unit: float, strength: float = COST_SHRINKAGE, limits: Mapping[str, float] | None = None
) -> TableRule:
    """Return the table of all tasks of a matrix."""
    success = _shrink_to_mean(_sum_by_type(matrix, matrix.won, ~np.isnan(matrix.scores)), strength)
    cost = (
        _shrink_to_mean(_sum_by_type(matrix, matrix.paid, matrix.there | ~np.isnan(matrix.dollars)), COST_SHRINKAGE)
        / unit
    )
    bonus = np.zeros((len(PRICES), len(matrix.workers)))
    if not limits:
        return TableRule(success, cost, bonus, PRICES)
    free = TableRule(success, cost, bonus, PRICES, TIE_MARGIN)
    return TableRule(success, cost, bonus - capacity_offsets(free, matrix, limits), PRICES, TIE_MARGIN)


def evaluate_table(table: TableRule, matrix: OutcomeMatrix, unit: float) -> tuple[Floats, Floats]:
    """Return [T, L] what each setting wins and costs (units): what `replay` would find, for all settings at once."""
    moved, types = table.task_offsets(matrix.batch), matrix.batch.types
    best = np.stack([(table.worth(setting)[types] + moved).argmax(axis=1) for setting in range(table.settings)], axis=1)
    rows = np.arange(len(matrix))[:, None]
    return np.where(matrix.codes > NO_ANSWER, matrix.won, 0.0)[rows, best], matrix.paid[rows, best] / unit


def choose_shrinkage(matrix: OutcomeMatrix, folds: Ints) -> float:
    """Return how many pseudo-tasks at the worker's mean to add to a type's own, by held-out error.

    Only differences between workers count (each task's mean is subtracted), because the rule compares workers.
    """
    wrong = np.zeros(len(SHRINKAGES))
    won, known = matrix.won, ~np.isnan(matrix.scores)
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        own, rest = known[rows], matrix.at(~rows)
        by_type = _sum_by_type(rest, won[~rows], known[~rows])
        for index, strength in enumerate(SHRINKAGES):
            off = (won[rows] - _shrink_to_mean(by_type, strength)[matrix.batch.types[rows]]) * own
            off -= own * (off.sum(axis=1) / np.maximum(1, own.sum(axis=1)))[:, None]
            wrong[index] += (off**2).sum()
    return SHRINKAGES[int(wrong.argmin())]


def _sum_by_type(matrix: OutcomeMatrix, values: Floats, known: Flags) -> tuple[Floats, Floats, Floats]:
    """Return sums and counts of known values by type [D, J], and the worker's means [J]."""
    types, values_known = matrix.batch.types, values * known
    rows = [types == kind for kind in range(len(matrix.types.names))]
    shape = (len(rows), values.shape[1])
    sums = np.array([values_known[row].sum(axis=0) for row in rows]).reshape(shape)
    counts = np.array([known[row].sum(axis=0) for row in rows]).reshape(shape)
    return sums, counts, values_known.sum(axis=0) / np.maximum(1, known.sum(axis=0))


def _shrink_to_mean(by_type: tuple[Floats, Floats, Floats], strength: float) -> Floats:
    """Return [D + 1, J]: means by type, shrunk to the worker's mean, which is the last row."""
    sums, counts, means = by_type
    return np.vstack([(sums + strength * means) / (counts + strength), means])
