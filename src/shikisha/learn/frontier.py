"""Frontiers: what budgets come to, task by task, and the area under accuracy that one number sums them up in.

A budget is met by a mixture of two settings chosen on one part of the tasks and judged on another. Invariants: figures
are expectations over the mixture's lot, task by task, so that two frontiers on the same tasks can be compared in pairs;
BUDGETS and POINTS are in units (1.0 is the best single worker's mean cost). Deliberately absent: fitting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.evaluate.statistics import difference_interval, score_interval
from shikisha.policy.arrays import Floats
from shikisha.policy.dial import Dial, Mix
from shikisha.policy.policy import Gain, Met

BUDGETS = np.geomspace(0.02, 2.0, 15)
POINTS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Frontier:
    """[T, B]: the score won and the cost (units) of each task at each budget."""

    budgets: Floats
    won: Floats
    cost: Floats

    @property
    def by_task(self) -> Floats:
        """[T]: each task's part in the area."""
        mean: Floats = self.won.mean(axis=1)
        return mean

    @property
    def area(self) -> float:
        """The mean accuracy over the budgets."""
        return float(self.won.mean())

    def met(self) -> tuple[Met, ...]:
        """Return what each budget came to."""
        found = []
        for place, budget in enumerate(self.budgets):
            won = self.won[:, place]
            low, high = score_interval(won.tolist())
            found.append(Met(float(budget), float(self.cost[:, place].mean()), float(won.mean()), low, high))
        return tuple(found)


def frontier(dial: Dial, won: Floats, cost: Floats, places: Sequence[tuple[int, int]], budgets: Floats) -> Frontier:
    """Return the frontier of a dial on tasks where each (part, setting) of `places` came to `won`, `cost` [T, n].

    A budget below the cheapest setting is met by the cheapest setting for as many of the tasks as it pays for.
    """
    column = {place: index for index, place in enumerate(places)}
    out_won, out_cost = np.zeros((len(won), len(budgets))), np.zeros((len(won), len(budgets)))
    for index, budget in enumerate(budgets):
        mix, paid = met_by(dial, float(budget)), affordable(dial, float(budget))
        for point, share in ((mix.low, paid * (1 - mix.share)), (mix.high, paid * mix.share)):
            if share:
                at = column[point.part, point.setting]
                out_won[:, index] += share * won[:, at]
                out_cost[:, index] += share * cost[:, at]
    return Frontier(np.asarray(budgets, np.float64), out_won, out_cost)


def met_by(dial: Dial, budget: float) -> Mix:
    """Return what meets this budget, or the cheapest setting where none does."""
    return dial.within(max(budget, dial.points[0].cost))


def affordable(dial: Dial, budget: float) -> float:
    """Return for which share of the tasks a budget pays for the cheapest setting."""
    return min(1.0, budget / dial.points[0].cost) if dial.points[0].cost > 0 else 1.0


def gain(name: str, one: Frontier, other: Frontier, contents: Sequence[str] = ()) -> Gain:
    """Return the paired difference in area of one over the other, which is called `name`.

    `contents` say which tasks are copies of one another: together these are one piece of evidence.
    """
    difference = one.by_task - other.by_task
    low, high = difference_interval((_by_content(difference, contents) if contents else difference).tolist())
    return Gain(name, float(difference.mean()), low, high)


def _by_content(difference: Floats, contents: Sequence[str]) -> Floats:
    """Return a number for each content whose mean is that of all tasks."""
    known, places = np.unique(np.array(contents), return_inverse=True)
    sums: Floats = np.bincount(places.reshape(-1), difference).astype(np.float64)
    return sums * (len(known) / len(difference))
