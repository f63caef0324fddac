"""Fitting the rule: success and cost by task type and worker, shrunk to the worker's own mean.

Invariant: a type with few tasks says little: `SHRINK` tasks at the worker's mean stand beside those that there are.
Deliberately absent: anything about the prompt but its type.
"""

from dataclasses import dataclass

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.learn.play import Played, play
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.table import Table

PRICES = np.geomspace(0.002, 20.0, 60)
SHRINK = 20.0


@dataclass(frozen=True, slots=True)
class Tabled:
    """A table, and what it came to on tasks that were not in the fit: won and cost (units), [T, L]."""

    part: Table
    won: Floats
    cost: Floats


def tabulate(panel: Panel, folds: Ints, unit: float = 0.0, bonus: Floats | None = None) -> Tabled:
    """Fit the rule; `unit` is what one unit of cost is in dollars (0: the panel's own), `bonus` [J] what is added."""
    dollars = unit or panel.unit()
    won, cost = np.zeros((len(panel), len(PRICES))), np.zeros((len(panel), len(PRICES)))
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        part, held = table_of(panel.at(~rows), dollars, bonus), panel.at(rows)
        for setting in range(part.settings):
            played: Played = play(part, setting, held)
            won[rows, setting], cost[rows, setting] = played.won, played.paid / dollars
    return Tabled(table_of(panel, dollars, bonus), won, cost)


def table_of(panel: Panel, unit: float, bonus: Floats | None = None) -> Table:
    """Return the rule of all tasks of a panel."""
    known = ~np.isnan(panel.scores)
    success = _by_type(panel, panel.won, known)
    cost = _by_type(panel, panel.paid, panel.there | ~np.isnan(panel.dollars)) / unit
    return Table(success, cost, np.zeros(len(panel.workers)) if bonus is None else bonus, PRICES)


def _by_type(panel: Panel, values: Floats, known: Flags) -> Floats:
    """[D + 1, J]: means by type over what is known, shrunk to the worker's mean, which is the last row."""
    overall = (values * known).sum(axis=0) / np.maximum(1, known.sum(axis=0))
    types, rows = panel.batch.types, []
    for kind in range(len(panel.types.names)):
        own, count = values[types == kind], known[types == kind]
        rows.append(((own * count).sum(axis=0) + SHRINK * overall) / (count.sum(axis=0) + SHRINK))
    return np.array([*rows, overall])
