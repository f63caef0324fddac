"""Fitting the rule: success and cost by task type and worker, shrunk to the worker's own mean.

Invariant: a type with few tasks says little: some tasks at the worker's mean stand beside those that there are, as many
as tell held-back scores best. Deliberately absent: anything about the prompt but its type.

Crowding: what is taken off a worker's worth, so that no more than its share of all tasks goes to it.

The offsets are the dual prices of the limits. A linear programme over types finds them but for the lots by which a type
is shared out; then each is raised, or let down, until its worker's share is its limit, in turn, until none moves (dual
ascent by coordinates: a worker's margin over the best of the others gives its exact step). Invariant: a worker has an
offset above 0 only where its share is its limit. Deliberately absent: limits by the minute or by tokens, which are the
engine's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_ANSWER
from shikisha.routing.table_rule import TableRule

TIE_MARGIN = 0.02  # between workers whose worth differs by less, a type is shared out by its tasks' lots
_CONVERGED = 1e-6  # a move of an offset that is the last
_ROUNDS = 40
_EPSILON = 1e-9


def capacity_offsets(free: TableRule, panel: OutcomeMatrix, limits: Mapping[str, float]) -> Floats:
    """Return [L, J] the offsets with which a table keeps each worker's share of this panel's tasks within its limit."""
    most = _capacity_limits(panel.workers, limits)
    moved, types = free.task_offsets(panel.batch), panel.batch.types
    offsets = np.zeros((free.settings, len(panel.workers)))
    for setting in range(free.settings):
        worth = free.worth(setting)
        start = _dual_prices(worth, np.bincount(types % len(worth), minlength=len(worth)) / max(1, len(types)), most)
        offsets[setting] = _solve_offsets(worth[types] + moved, most, start)
    return offsets


def _capacity_limits(workers: tuple[str, ...], limits: Mapping[str, float]) -> dict[int, float]:
    """Return each limited worker's place and limit; refuse limits that nobody could keep."""
    for name, share in limits.items():
        if name not in workers:
            raise UnknownName("worker in the load limits", name, workers)
        if not 0 <= share <= 1:
            raise ConfigError(f"load limits: {name}: expected a share of all tasks, from 0 to 1, found {share!r}")
    if len(limits) == len(workers) and sum(limits.values()) < 1 - _EPSILON:
        raise ConfigError(
            f"load limits: all workers together may take {sum(limits.values()):.3g} of the tasks, not all"
        )
    return {workers.index(name): share for name, share in limits.items()}


def _dual_prices(worth: Floats, sizes: Floats, most: Mapping[int, float]) -> Floats:
    """Return [J] the prices of the limits, were types shared out at will; `sizes` [D + 1] are the types' shares."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("learn", "load limits") from None
    kinds, workers = worth.shape
    everybody = np.kron(np.eye(kinds), np.ones(workers))
    loads = np.array([np.kron(sizes, np.arange(workers) == worker) for worker in most])
    found = linprog(
        -(sizes[:, None] * worth).ravel(),
        A_ub=loads,
        b_ub=np.array(list(most.values())) + _EPSILON,
        A_eq=everybody,
        b_eq=np.ones(kinds),
        bounds=(0, 1),
    )
    offsets = np.zeros(workers)
    offsets[list(most)] = np.maximum(0.0, -found.ineqlin.marginals)
    return offsets


def _solve_offsets(worth: Floats, most: Mapping[int, float], start: Floats) -> Floats:
    """Return [J] the offsets for tasks on which the workers are worth this much, [T, J]."""
    offsets = start.copy()
    for _ in range(_ROUNDS):
        before = offsets.copy()
        for worker, share in most.items():
            offsets[worker] = _solve_offset(worth, offsets, worker, share)
        if np.abs(offsets - before).max() < _CONVERGED:
            break
    return offsets


def _solve_offset(worth: Floats, offsets: Floats, worker: int, share: float) -> float:
    """Return the least offset with which this worker is best on no more than its share of the tasks."""
    others = worth - offsets
    others[:, worker] = -np.inf
    margin = worth[:, worker] - others.max(axis=1)
    allowed = ceil(share * len(margin) - _EPSILON)
    if allowed >= len(margin):
        return 0.0
    ranked = np.partition(-margin, [max(0, allowed - 1), allowed])
    first = -ranked[allowed]  # the best of those that it may not have
    last = -ranked[allowed - 1] if allowed else first + TIE_MARGIN
    return max(0.0, float(first + last) / 2)


PRICES = np.geomspace(0.002, 20.0, 60)
COST_SHRINKAGE = 20.0  # for costs
SHRINKAGES = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
_MIN_SECONDS = 1e-3  # seconds; nobody is faster


@dataclass(frozen=True, slots=True)
class RoutingPreference:
    """What counts besides success and money: `speed` / seconds is added, `limits` are the most shares of all tasks."""

    speed: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table, and what it came to on tasks that were not in the fit: won and cost (units), [T, L]."""

    part: TableRule
    won: Floats
    cost: Floats


def fit_table(
    panel: OutcomeMatrix, folds: Ints, unit: float = 0.0, preference: RoutingPreference | None = None
) -> FittedTable:
    """Fit the rule; `unit` is what one unit of cost is in dollars (0: the panel's own).

    UnknownName or ConfigError for load limits that cannot be kept.
    """
    dollars, strength = unit or panel.cost_unit(), choose_shrinkage(panel, folds)
    won, cost = np.zeros((len(panel), len(PRICES))), np.zeros((len(panel), len(PRICES)))
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        part = build_table(panel.at(~rows), dollars, strength, preference)
        won[rows], cost[rows] = evaluate_table(part, panel.at(rows), dollars)
    return FittedTable(build_table(panel, dollars, strength, preference), won, cost)


def build_table(
    panel: OutcomeMatrix, unit: float, strength: float = COST_SHRINKAGE, preference: RoutingPreference | None = None
) -> TableRule:
    """Return the rule of all tasks of a panel."""
    held = preference or RoutingPreference()
    success = _shrink_to_mean(_sum_by_type(panel, panel.won, ~np.isnan(panel.scores)), strength)
    cost = (
        _shrink_to_mean(_sum_by_type(panel, panel.paid, panel.there | ~np.isnan(panel.dollars)), COST_SHRINKAGE) / unit
    )
    bonus = np.tile(held.speed / np.maximum(_MIN_SECONDS, _mean_seconds(panel)), (len(PRICES), 1))
    if not held.limits:
        return TableRule(success, cost, bonus, PRICES)
    free = TableRule(success, cost, bonus, PRICES, TIE_MARGIN)
    return TableRule(success, cost, bonus - capacity_offsets(free, panel, held.limits), PRICES, TIE_MARGIN)


def evaluate_table(part: TableRule, panel: OutcomeMatrix, unit: float) -> tuple[Floats, Floats]:
    """Return [T, L] what each setting wins and costs (units) on a panel: what `play` would find, for all at once."""
    moved, types = part.task_offsets(panel.batch), panel.batch.types
    best = np.stack([(part.worth(setting)[types] + moved).argmax(axis=1) for setting in range(part.settings)], axis=1)
    rows = np.arange(len(panel))[:, None]
    return np.where(panel.codes > NO_ANSWER, panel.won, 0.0)[rows, best], panel.paid[rows, best] / unit


def choose_shrinkage(panel: OutcomeMatrix, folds: Ints) -> float:
    """Return how many tasks at a worker's mean stand beside a type's own: with it, differences are told best.

    Only differences between workers count (each task's mean is taken off), because the rule compares workers.
    """
    wrong = np.zeros(len(SHRINKAGES))
    won, known = panel.won, ~np.isnan(panel.scores)
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        own, rest = known[rows], panel.at(~rows)
        by_type = _sum_by_type(rest, won[~rows], known[~rows])
        for place, strength in enumerate(SHRINKAGES):
            off = (won[rows] - _shrink_to_mean(by_type, strength)[panel.batch.types[rows]]) * own
            off -= own * (off.sum(axis=1) / np.maximum(1, own.sum(axis=1)))[:, None]
            wrong[place] += (off**2).sum()
    return SHRINKAGES[int(wrong.argmin())]


def _sum_by_type(panel: OutcomeMatrix, values: Floats, known: Flags) -> tuple[Floats, Floats, Floats]:
    """Return sums and counts by type of what is known [D, J], and the worker's means [J]."""
    types, held = panel.batch.types, values * known
    rows = [types == kind for kind in range(len(panel.types.names))]
    shape = (len(rows), values.shape[1])
    sums = np.array([held[row].sum(axis=0) for row in rows]).reshape(shape)
    counts = np.array([known[row].sum(axis=0) for row in rows]).reshape(shape)
    return sums, counts, held.sum(axis=0) / np.maximum(1, known.sum(axis=0))


def _shrink_to_mean(by_type: tuple[Floats, Floats, Floats], strength: float) -> Floats:
    """[D + 1, J]: means by type, shrunk to the worker's mean, which is the last row."""
    sums, counts, means = by_type
    return np.vstack([(sums + strength * means) / (counts + strength), means])


def _mean_seconds(panel: OutcomeMatrix) -> Floats:
    """[J]: mean seconds a task; without end where nothing is known, so that nothing is gained by it."""
    known = ~np.isnan(panel.seconds)
    total = np.nan_to_num(panel.seconds).sum(axis=0)
    means: Floats = np.divide(total, known.sum(axis=0), out=np.full(len(total), np.inf), where=known.any(axis=0))
    return means
