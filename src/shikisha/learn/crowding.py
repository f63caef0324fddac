"""Crowding: what is taken off a worker's worth, so that no more than its share of all tasks goes to it.

The offsets are the dual prices of the limits: each is raised, or let down, until its worker's share is its limit, in
turn, until none moves (coordinate ascent; each worker's margin over the best of the others gives its exact step).
Invariant: a worker has an offset above 0 only where its share is its limit. Deliberately absent: limits by the minute
or by tokens; those are the engine's.
"""

from collections.abc import Mapping

import numpy as np

from shikisha.errors import ConfigError, UnknownName
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Floats
from shikisha.policy.table import Table

SWAY = 0.02  # between workers whose worth differs by less, a type is shared out by its tasks' lots
_NEAR = 1e-4  # how much a share may still be off
_ROUNDS = 200


def crowding(free: Table, panel: Panel, limits: Mapping[str, float]) -> Floats:
    """Return [L, J] the offsets with which a table keeps each worker's share of this panel's tasks within its limit."""
    most = _most(panel.workers, limits)
    moved, offsets = free.moved(panel.batch), np.zeros((free.settings, len(panel.workers)))
    for setting in range(free.settings):
        worth = free.worth(setting)[panel.batch.types] + moved
        offsets[setting] = _offsets(worth, most, offsets[max(0, setting - 1)])
    return offsets


def _most(workers: tuple[str, ...], limits: Mapping[str, float]) -> dict[int, float]:
    """Return each limited worker's place and limit; refuse limits that nobody could keep."""
    for name, share in limits.items():
        if name not in workers:
            raise UnknownName("worker in the load limits", name, workers)
        if not 0 <= share <= 1:
            raise ConfigError(f"load limits: {name}: expected a share of all tasks, from 0 to 1, found {share!r}")
    if len(limits) == len(workers) and sum(limits.values()) < 1:
        raise ConfigError(
            f"load limits: all workers together may take {sum(limits.values()):.3g} of the tasks, not all"
        )
    return {workers.index(name): share for name, share in limits.items()}


def _offsets(worth: Floats, most: Mapping[int, float], start: Floats) -> Floats:
    """Return [J] the offsets for tasks on which the workers are worth this much, [T, J]."""
    offsets = start.copy()
    for _ in range(_ROUNDS):
        before = offsets.copy()
        for worker, share in most.items():
            offsets[worker] = _offset(worth, offsets, worker, share)
        if np.abs(offsets - before).max() < _NEAR * SWAY:
            break
    return offsets


def _offset(worth: Floats, offsets: Floats, worker: int, share: float) -> float:
    """Return the least offset with which this worker is best on no more than its share of the tasks."""
    others = worth - offsets
    others[:, worker] = -np.inf
    margin = worth[:, worker] - others.max(axis=1)
    allowed = int(share * len(margin))
    if allowed >= len(margin):
        return 0.0
    ranked = np.partition(-margin, [max(0, allowed - 1), allowed])
    first = -ranked[allowed]  # the best of those that it may not have
    last = -ranked[allowed - 1] if allowed else first + SWAY
    return max(0.0, float(first + last) / 2)
