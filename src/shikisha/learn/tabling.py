"""Fitting the rule: success and cost by task type and worker, shrunk to the worker's own mean.

Invariant: a type with few tasks says little: some tasks at the worker's mean stand beside those that there are, as many
as tell held-back scores best. Deliberately absent: anything about the prompt but its type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shikisha.learn.crowding import SWAY, crowding
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOTHING
from shikisha.policy.table import Table

PRICES = np.geomspace(0.002, 20.0, 60)
SHRINK = 20.0  # for costs
STRENGTHS = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
_INSTANT = 1e-3  # seconds; nobody is faster


@dataclass(frozen=True, slots=True)
class Preference:
    """What counts besides success and money: `speed` / seconds is added, `limits` are the most shares of all tasks."""

    speed: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tabled:
    """A table, and what it came to on tasks that were not in the fit: won and cost (units), [T, L]."""

    part: Table
    won: Floats
    cost: Floats


def tabulate(panel: Panel, folds: Ints, unit: float = 0.0, preference: Preference | None = None) -> Tabled:
    """Fit the rule; `unit` is what one unit of cost is in dollars (0: the panel's own).

    UnknownName or ConfigError for load limits that cannot be kept.
    """
    dollars, strength = unit or panel.unit(), strength_of(panel, folds)
    won, cost = np.zeros((len(panel), len(PRICES))), np.zeros((len(panel), len(PRICES)))
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        part = table_of(panel.at(~rows), dollars, strength, preference)
        won[rows], cost[rows] = come_to(part, panel.at(rows), dollars)
    return Tabled(table_of(panel, dollars, strength, preference), won, cost)


def table_of(panel: Panel, unit: float, strength: float = SHRINK, preference: Preference | None = None) -> Table:
    """Return the rule of all tasks of a panel."""
    held = preference or Preference()
    success = _shrunk(_by_type(panel, panel.won, ~np.isnan(panel.scores)), strength)
    cost = _shrunk(_by_type(panel, panel.paid, panel.there | ~np.isnan(panel.dollars)), SHRINK) / unit
    bonus = np.tile(held.speed / np.maximum(_INSTANT, _seconds(panel)), (len(PRICES), 1))
    if not held.limits:
        return Table(success, cost, bonus, PRICES)
    free = Table(success, cost, bonus, PRICES, SWAY)
    return Table(success, cost, bonus - crowding(free, panel, held.limits), PRICES, SWAY)


def come_to(part: Table, panel: Panel, unit: float) -> tuple[Floats, Floats]:
    """Return [T, L] what each setting wins and costs (units) on a panel: what `play` would find, for all at once."""
    moved, types = part.moved(panel.batch), panel.batch.types
    best = np.stack([(part.worth(setting)[types] + moved).argmax(axis=1) for setting in range(part.settings)], axis=1)
    rows = np.arange(len(panel))[:, None]
    return np.where(panel.codes > NOTHING, panel.won, 0.0)[rows, best], panel.paid[rows, best] / unit


def strength_of(panel: Panel, folds: Ints) -> float:
    """Return how many tasks at a worker's mean stand beside a type's own: with it, differences are told best.

    Only differences between workers count (each task's mean is taken off), because the rule compares workers.
    """
    wrong = np.zeros(len(STRENGTHS))
    won, known = panel.won, ~np.isnan(panel.scores)
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        own, rest = known[rows], panel.at(~rows)
        by_type = _by_type(rest, won[~rows], known[~rows])
        for place, strength in enumerate(STRENGTHS):
            off = (won[rows] - _shrunk(by_type, strength)[panel.batch.types[rows]]) * own
            off -= own * (off.sum(axis=1) / np.maximum(1, own.sum(axis=1)))[:, None]
            wrong[place] += (off**2).sum()
    return STRENGTHS[int(wrong.argmin())]


def _by_type(panel: Panel, values: Floats, known: Flags) -> tuple[Floats, Floats, Floats]:
    """Return sums and counts by type of what is known [D, J], and the worker's means [J]."""
    types, held = panel.batch.types, values * known
    rows = [types == kind for kind in range(len(panel.types.names))]
    shape = (len(rows), values.shape[1])
    sums = np.array([held[row].sum(axis=0) for row in rows]).reshape(shape)
    counts = np.array([known[row].sum(axis=0) for row in rows]).reshape(shape)
    return sums, counts, held.sum(axis=0) / np.maximum(1, known.sum(axis=0))


def _shrunk(by_type: tuple[Floats, Floats, Floats], strength: float) -> Floats:
    """[D + 1, J]: means by type, shrunk to the worker's mean, which is the last row."""
    sums, counts, means = by_type
    return np.vstack([(sums + strength * means) / (counts + strength), means])


def _seconds(panel: Panel) -> Floats:
    """[J]: mean seconds a task; without end where nothing is known, so that nothing is gained by it."""
    known = ~np.isnan(panel.seconds)
    total = np.nan_to_num(panel.seconds).sum(axis=0)
    means: Floats = np.divide(total, known.sum(axis=0), out=np.full(len(total), np.inf), where=known.any(axis=0))
    return means
