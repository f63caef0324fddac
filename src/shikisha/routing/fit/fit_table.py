"""Fitting the table rule: success and cost by task type and worker, shrunk to the worker's mean.

How strongly types shrink is chosen by held-out error. Deliberately absent: load limits, which are the engine's and the
option `balance`'s.
"""

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_ANSWER
from shikisha.routing.table_rule import TableRule

PRICES = np.geomspace(0.002, 20.0, 60)
# Pseudo-tasks for costs, which vary less by type than success.
COST_SHRINKAGE = 20.0
SHRINKAGES = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table, and its results on tasks outside the fit: won and cost (units), [T, L].

    `expected` [L] is the accuracy of its settings as the table itself estimates it, on the level of `won`.
    """

    part: TableRule
    won: Floats
    cost: Floats
    expected: Floats


def fit_table(matrix: OutcomeMatrix, folds: Ints, unit: float = 0.0) -> FittedTable:
    """Fit the table; `unit` is the dollars of one unit of cost (0: the matrix's own)."""
    dollars, strength = unit or matrix.cost_unit(), choose_shrinkage(matrix, folds)
    won, cost = np.zeros((len(matrix), len(PRICES))), np.zeros((len(matrix), len(PRICES)))
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        table = build_table(matrix.at(~rows), dollars, strength)
        won[rows], cost[rows] = evaluate_table(table, matrix.at(rows), dollars)
    whole = build_table(matrix, dollars, strength)
    # [L]: the success that a table expects of its settings on these tasks.
    types = matrix.batch.types
    choices = [whole.worth(setting).argmax(axis=1)[types] for setting in range(whole.settings)]
    estimates = np.array([float(whole.success[types, chosen].mean()) for chosen in choices])
    return FittedTable(whole, won, cost, estimates + won.mean() - estimates.mean())


def build_table(matrix: OutcomeMatrix, unit: float, strength: float = COST_SHRINKAGE) -> TableRule:
    """Return the table of all tasks of a matrix."""
    success = _shrink_to_mean(_sum_by_type(matrix, matrix.won, ~np.isnan(matrix.scores)), strength)
    cost = (
        _shrink_to_mean(_sum_by_type(matrix, matrix.paid, matrix.there | ~np.isnan(matrix.dollars)), COST_SHRINKAGE)
        / unit
    )
    return TableRule(success, cost, np.zeros((len(PRICES), len(matrix.workers))), PRICES)


def evaluate_table(table: TableRule, matrix: OutcomeMatrix, unit: float) -> tuple[Floats, Floats]:
    """Return [T, L] what each setting wins and costs (units): what `replay` would find, for all settings at once."""
    types = matrix.batch.types
    best = np.stack([table.worth(setting).argmax(axis=1)[types] for setting in range(table.settings)], axis=1)
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
