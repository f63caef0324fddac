"""One dial over all candidates: per budget, the simplest candidate unless a more complex one is shown to gain.

Candidates join from the simplest on. A candidate's gain over the dial so far is estimated at each budget and shrunk
twice: its mean over budgets towards what is usual over sets of outcomes, and each budget's towards that mean, by how
much budgets truly differ (empirical Bayes, Efron and Morris 1973). Its settings join where what is left is above 0, and
are promised the dial so far plus that gain, or what was seen of them where that is less. Invariants: gains are paired,
on tasks outside the fit, and at equal spending; copies of a task count as one; the best single worker stands on the
dial or is dominated by settings that are shown to be better.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.cost_frontier import compute_frontier
from shikisha.routing.state import DecisionRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

# Budgets at which gains are estimated.
_GRID = np.geomspace(0.02, 2.0, 15)
# What a more complex candidate gains in the mean over sets of outcomes, and how far sets differ in it (area).
_PRIOR_GAIN, _PRIOR_SPREAD = 0.01, 0.02


@dataclass(frozen=True, slots=True)
class CrossFittedRule:
    """A rule, and the results of its settings on tasks outside the fit, [T, L]; `spent` [L] as it costs itself.

    Scores are of rules that were fitted without the task. `spent` is the mean cost of `part`, which was fitted on all.
    """

    part: DecisionRule
    won: Floats
    cost: Floats
    spent: Floats


def setting_points(rules: Sequence[CrossFittedRule], first: int = 0, copies: int = 1) -> list[OperatingPoint]:
    """Return an operating point per setting of each rule, numbered from `first`; `copies` of each task count as one."""
    operating_points = []
    for place, rule in enumerate(rules, first):
        errors = rule.won.std(axis=0) / np.sqrt(max(1, len(rule.won) // copies))
        for setting in range(rule.won.shape[1]):
            cost, won = float(rule.spent[setting]), float(rule.won[:, setting].mean())
            operating_points.append(OperatingPoint(place, setting, cost, won, float(errors[setting])))
    return operating_points


def combine_candidates(
    rules: Sequence[CrossFittedRule], candidates: Sequence[Sequence[int]], hashes: Sequence[str], copies: int = 1
) -> tuple[OperatingPoint, ...]:
    """Return the points of one dial over candidates, from the simplest: each is a list of places in `rules`."""
    outcomes = _Outcomes.of(rules, hashes, copies)
    dial: tuple[OperatingPoint, ...] = ()
    for places in candidates:
        own = upper_hull(point for place in places for point in outcomes.points_of(place))
        dial = upper_hull((*dial, *outcomes.joining(own, dial))) if dial else own
    return dial


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """The results of all settings: their points, scores [N, S] by content, and the costs that are spent."""

    points: tuple[OperatingPoint, ...]
    won: Floats

    @classmethod
    def of(cls, rules: Sequence[CrossFittedRule], hashes: Sequence[str], copies: int) -> "_Outcomes":
        _, places = np.unique(np.array(hashes), return_inverse=True)
        won = np.concatenate([_mean_by_place(rule.won, places.reshape(-1)) for rule in rules], axis=1)
        return cls(tuple(setting_points(rules, 0, copies)), won)

    def points_of(self, place: int) -> list[OperatingPoint]:
        return [point for point in self.points if point.part == place]

    def curve(self, dial: Sequence[OperatingPoint]) -> Floats:
        """Return [N, B]: what each budget wins, task by task."""
        places = [(point.part, point.setting) for point in self.points]
        spent = np.broadcast_to([point.cost for point in self.points], self.won.shape)
        return compute_frontier(TradeOff(tuple(dial), 1.0, 0.0), self.won, spent, places, _GRID).won

    def joining(self, own: Sequence[OperatingPoint], dial: Sequence[OperatingPoint]) -> list[OperatingPoint]:
        """Return the points of a candidate that gain over the dial so far, with what they are shown to reach."""
        own_curve, curve = self.curve(own), self.curve(dial)
        gains, logs = shrink_gains(own_curve - curve), np.log(_GRID)
        discount = np.maximum(0.0, own_curve.mean(axis=0) - _promised(dial) - gains)
        joined = []
        for point in own:
            at = np.log(max(point.cost, _GRID[0] / 10))
            if float(np.interp(at, logs, gains)) > 0:
                joined.append(replace(point, accuracy=point.accuracy - float(np.interp(at, logs, discount))))
        return joined


def shrink_gains(gains: Floats) -> Floats:
    """Return [B]: the mean gain at each budget of gains [N, B] by task, shrunk as the module says."""
    count = max(2, len(gains))
    by_budget, overall = gains.mean(axis=0), gains.mean(axis=1)
    mean, variance = float(overall.mean()), float(overall.var(ddof=1) / count)
    trust = _PRIOR_SPREAD**2 / (_PRIOR_SPREAD**2 + variance)
    kept = trust * mean + (1 - trust) * _PRIOR_GAIN
    apart = gains - overall[:, None]
    noise = apart.var(axis=0, ddof=1) / count
    between = max(0.0, float((by_budget - mean).var() - noise.mean()))
    weight = between / np.maximum(between + noise, 1e-30)
    shrunk: Floats = kept + weight * (by_budget - mean)
    return shrunk


def _promised(dial: Sequence[OperatingPoint]) -> Floats:
    """Return [B]: the accuracy that a dial promises for each budget."""
    trade_off = TradeOff(tuple(dial), 1.0, 0.0)
    cheapest = dial[0].cost
    shares = [min(1.0, budget / cheapest) if cheapest > 0 else 1.0 for budget in _GRID]
    mixes = [trade_off.for_cost(max(float(budget), cheapest)) for budget in _GRID]
    return np.array([share * mix.accuracy for share, mix in zip(shares, mixes, strict=True)])


def _mean_by_place(values: Floats, places: Ints) -> Floats:
    """Return [N, L]: the mean of the rows of each place."""
    total = np.zeros((int(places.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(total, places, values)
    return total / np.bincount(places)[:, None]
