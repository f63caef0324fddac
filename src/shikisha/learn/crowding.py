"""Crowding: what is taken off a worker's worth, so that no more than its share of all tasks goes to it.

The offsets are the dual prices of the limits. A linear programme over types finds them but for the lots by which a type
is shared out; then each is raised, or let down, until its worker's share is its limit, in turn, until none moves (dual
ascent by coordinates: a worker's margin over the best of the others gives its exact step). Invariant: a worker has an
offset above 0 only where its share is its limit. Deliberately absent: limits by the minute or by tokens, which are the
engine's.
"""

from collections.abc import Mapping
from math import ceil

import numpy as np

from shikisha.errors import ConfigError, MissingExtra, UnknownName
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Floats
from shikisha.policy.table import Table

SWAY = 0.02  # between workers whose worth differs by less, a type is shared out by its tasks' lots
_NEAR = 1e-6  # a move of an offset that is the last
_ROUNDS = 40
_LITTLE = 1e-9


def crowding(free: Table, panel: Panel, limits: Mapping[str, float]) -> Floats:
    """Return [L, J] the offsets with which a table keeps each worker's share of this panel's tasks within its limit."""
    most = _most(panel.workers, limits)
    moved, types = free.moved(panel.batch), panel.batch.types
    offsets = np.zeros((free.settings, len(panel.workers)))
    for setting in range(free.settings):
        worth = free.worth(setting)
        start = _duals(worth, np.bincount(types % len(worth), minlength=len(worth)) / max(1, len(types)), most)
        offsets[setting] = _offsets(worth[types] + moved, most, start)
    return offsets


def _most(workers: tuple[str, ...], limits: Mapping[str, float]) -> dict[int, float]:
    """Return each limited worker's place and limit; refuse limits that nobody could keep."""
    for name, share in limits.items():
        if name not in workers:
            raise UnknownName("worker in the load limits", name, workers)
        if not 0 <= share <= 1:
            raise ConfigError(f"load limits: {name}: expected a share of all tasks, from 0 to 1, found {share!r}")
    if len(limits) == len(workers) and sum(limits.values()) < 1 - _LITTLE:
        raise ConfigError(
            f"load limits: all workers together may take {sum(limits.values()):.3g} of the tasks, not all"
        )
    return {workers.index(name): share for name, share in limits.items()}


def _duals(worth: Floats, sizes: Floats, most: Mapping[int, float]) -> Floats:
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
        b_ub=np.array(list(most.values())) + _LITTLE,
        A_eq=everybody,
        b_eq=np.ones(kinds),
        bounds=(0, 1),
    )
    offsets = np.zeros(workers)
    offsets[list(most)] = np.maximum(0.0, -found.ineqlin.marginals)
    return offsets


def _offsets(worth: Floats, most: Mapping[int, float], start: Floats) -> Floats:
    """Return [J] the offsets for tasks on which the workers are worth this much, [T, J]."""
    offsets = start.copy()
    for _ in range(_ROUNDS):
        before = offsets.copy()
        for worker, share in most.items():
            offsets[worker] = _offset(worth, offsets, worker, share)
        if np.abs(offsets - before).max() < _NEAR:
            break
    return offsets


def _offset(worth: Floats, offsets: Floats, worker: int, share: float) -> float:
    """Return the least offset with which this worker is best on no more than its share of the tasks."""
    others = worth - offsets
    others[:, worker] = -np.inf
    margin = worth[:, worker] - others.max(axis=1)
    allowed = ceil(share * len(margin) - _LITTLE)
    if allowed >= len(margin):
        return 0.0
    ranked = np.partition(-margin, [max(0, allowed - 1), allowed])
    first = -ranked[allowed]  # the best of those that it may not have
    last = -ranked[allowed - 1] if allowed else first + SWAY
    return max(0.0, float(first + last) / 2)
