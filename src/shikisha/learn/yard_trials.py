"""Trials of yardsticks: what a way to decide comes to, setting by setting, so that a dial can be put on it.

A yardstick is fitted on one panel and performed on another; its training curve comes from folds, its figures from tasks
held out. Invariant: settings stand for the same thing in every fit of a yardstick, and those on its dial were chosen on
tasks that were not in the fit, and never on the tasks held out. Deliberately absent: the yardsticks themselves
(`yardsticks`, `yard_votes`, `yard_routers`), and whatever a policy file could hold.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shikisha.learn.frontier import BUDGETS, Frontier, frontier, met_by
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOTHING
from shikisha.policy.dial import Dial, Point, on_hull


@dataclass(frozen=True, slots=True)
class Came:
    """What each setting came to: `won` (score) and `paid` (dollars) [T, L]; `asks` [L, J], shares of the tasks."""

    won: Floats
    paid: Floats
    asks: Floats


Perform = Callable[[Panel], Came]
Yard = Callable[[Panel], Perform]  # fitted on a panel, it performs on others


@dataclass(frozen=True, slots=True)
class Trial:
    """`cost` and `accuracy` [L] on the training part, by folds; `won`, `spent` (units) [T, L] and `asks` held out."""

    cost: Floats
    accuracy: Floats
    won: Floats
    spent: Floats
    asks: Floats
    unit: float
    best_single: float

    @property
    def dial(self) -> Dial:
        """The dial over its settings, chosen on the training part."""
        points = (
            Point(0, setting, float(cost), float(accuracy))
            for setting, (cost, accuracy) in enumerate(zip(self.cost, self.accuracy, strict=True))
        )
        return Dial(on_hull(points), self.unit, self.best_single)

    def frontier(self, budgets: Floats = BUDGETS) -> Frontier:
        """Return what the dial's budgets came to on the tasks held out."""
        return frontier(self.dial, self.won, self.spent, [(0, setting) for setting in range(len(self.cost))], budgets)

    def shares(self, budget: float) -> Floats:
        """Return [J], on what share of the tasks held out each worker is asked within this budget."""
        mix = met_by(self.dial, budget)
        shares: Floats = (1 - mix.share) * self.asks[mix.low.setting] + mix.share * self.asks[mix.high.setting]
        return shares


def trial(yard: Yard, train: Panel, folds: Ints, held: Panel) -> Trial:
    """Try a yardstick: by folds ([T]) on the training part, and fitted on all of that on the part held out."""
    unit, cost, accuracy = train.unit(), [], []
    for fold in range(int(folds.max()) + 1):
        inside: Flags = folds == fold
        came = yard(train.at(~inside))(train.at(inside))
        cost.append(came.paid.sum(axis=0) / unit)
        accuracy.append(came.won.sum(axis=0))
    came, count = yard(train)(held), len(train)
    curve = np.sum(cost, axis=0) / count, np.sum(accuracy, axis=0) / count
    return Trial(*curve, came.won, came.paid / unit, came.asks, unit, float(train.means().max()))


def of_picks(picks: Ints, panel: Panel) -> Came:
    """Return what it comes to that one worker is asked for each task: `picks` [T, L]."""
    given = np.where(panel.codes > NOTHING, panel.won, 0.0)
    won, paid = (np.take_along_axis(table, picks, axis=1) for table in (given, panel.paid))
    asks = np.stack([(picks == worker).mean(axis=0) for worker in range(len(panel.workers))], axis=1)
    return Came(won, paid, asks)
