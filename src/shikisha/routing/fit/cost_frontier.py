"""Cost-accuracy frontiers: what budgets achieve, task by task, and the area under them that summarizes a policy.

A budget is met by a mixture of two settings chosen on one part of the tasks and evaluated on another. Invariants:
figures are expectations over the mixture, task by task, so frontiers on the same tasks can be compared in pairs;
budgets are in units (1.0 is the mean cost of the best single worker).
"""

from collections.abc import Sequence

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.evals.statistics import difference_interval, score_interval
from shikisha.routing.arrays import Floats
from shikisha.routing.policy_data import AreaGain, FrontierPoint
from shikisha.routing.trade_off import OperatingMix, TradeOff

BUDGETS = np.geomspace(0.02, 2.0, 15)
REPORTED_BUDGETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Frontier:
    """[T, B]: the score won and the cost (units) of each task at each budget."""

    budgets: Floats
    won: Floats
    cost: Floats

    @property
    def by_task(self) -> Floats:
        """[T]: each task's contribution to the area."""
        mean: Floats = self.won.mean(axis=1)
        return mean

    @property
    def area(self) -> float:
        """The mean accuracy over the budgets."""
        return float(self.won.mean())

    def points(self) -> tuple[FrontierPoint, ...]:
        """Return the point of each budget."""
        result = []
        for place, budget in enumerate(self.budgets):
            won = self.won[:, place]
            # Estimates may lie outside [0, 1] where grades are missing.
            met = (min(1.0, max(0.0, value)) for value in (float(won.mean()), *score_interval(won.tolist())))
            result.append(FrontierPoint(float(budget), float(self.cost[:, place].mean()), *met))
        return tuple(result)


def compute_frontier(
    trade_off: TradeOff, won: Floats, cost: Floats, places: Sequence[tuple[int, int]], budgets: Floats
) -> Frontier:
    """Return a trade-off's frontier on tasks where each (rule, setting) of `places` has results `won`, `cost` [T, n].

    A budget below the cheapest setting pays for that setting on a part of the tasks.
    """
    column = {place: index for index, place in enumerate(places)}
    out_won, out_cost = np.zeros((len(won), len(budgets))), np.zeros((len(won), len(budgets)))
    for index, budget in enumerate(budgets):
        mix, share_paid = mix_for_budget(trade_off, float(budget)), affordable_share(trade_off, float(budget))
        for point, share in ((mix.low, share_paid * (1 - mix.share)), (mix.high, share_paid * mix.share)):
            if share:
                at = column[point.part, point.setting]
                out_won[:, index] += share * won[:, at]
                out_cost[:, index] += share * cost[:, at]
    return Frontier(np.asarray(budgets, np.float64), out_won, out_cost)


def mix_for_budget(trade_off: TradeOff, budget: float) -> OperatingMix:
    """Return the mix that meets this budget, or the cheapest setting where none does."""
    return trade_off.for_cost(max(budget, trade_off.points[0].cost))


def affordable_share(trade_off: TradeOff, budget: float) -> float:
    """Return the share of the tasks for which a budget pays for the cheapest setting."""
    return min(1.0, budget / trade_off.points[0].cost) if trade_off.points[0].cost > 0 else 1.0


def paired_gain(name: str, one: Frontier, other: Frontier, contents: Sequence[str] = ()) -> AreaGain:
    """Return the paired difference in area of `one` over `other`, which is called `name`.

    Tasks with equal `contents` are copies and count as one piece of evidence.
    """
    difference = one.by_task - other.by_task
    low, high = difference_interval((_mean_by_content(difference, contents) if contents else difference).tolist())
    return AreaGain(name, float(difference.mean()), low, high)


def _mean_by_content(difference: Floats, contents: Sequence[str]) -> Floats:
    """Return one number for each content; their mean is that of all tasks."""
    known, places = np.unique(np.array(contents), return_inverse=True)
    sums: Floats = np.bincount(places.reshape(-1), difference).astype(np.float64)
    return sums * (len(known) / len(difference))
