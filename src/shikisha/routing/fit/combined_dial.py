"""One dial over all candidates: per budget, the simplest candidate unless a more complex one is shown to gain.

The simplest candidate is the dial to begin with, and others join from simple to complex. A candidate's gain over the
dial so far is estimated at each budget and shrunk twice: its mean over budgets towards what is usual over sets of so
many outcomes, and each budget's towards that mean, by how much budgets truly differ (empirical Bayes, Efron and Morris
1973). Its settings join where what is left is above 0, and are promised the dial so far plus that gain, or what was
seen of them where that is less. Invariants: gains are paired, on tasks outside the fit and the choice of settings, and
at equal spending; copies of a task count as one; the best single worker, with what it reaches where it was not chosen,
stands on the dial or is dominated.
"""

from collections.abc import Sequence

import numpy as np

from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.cost_frontier import compute_frontier
from shikisha.routing.state import DecisionRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

# Settings are chosen, and their gains taken, on different tasks in so many folds.
_FOLDS = 5
# Budgets at which gains are estimated.
_GRID = np.geomspace(0.02, 2.0, 15)
# What a more complex candidate gains on average over sets of many outcomes, and how far sets differ in it (area). With
# fewer than _BREAK_EVEN tasks it loses, since it has more to learn; half of the way is gone at _HALF_WAY.
_PRIOR_GAIN, _PRIOR_SPREAD = 0.01, 0.01
_BREAK_EVEN, _HALF_WAY = 300, 1_000
# The same for mixes of single workers, which ignore the type of a task.
_PRIOR_GAIN_OF_SINGLES = -0.005


@dataclass(frozen=True, slots=True)
class CrossFittedRule:
    """A rule, and the results of its settings on tasks outside the fit, [T, L]; `spent` [L] as it costs itself.

    Scores are of rules that were fitted without the task. `spent` is the mean cost of `part`, which was fitted on all.
    `expected` [L], where there is one, is a steadier estimate of the accuracy of settings than their mean score.
    """

    part: DecisionRule
    won: Floats
    cost: Floats
    spent: Floats
    expected: Floats | None = None

    def at(self, rows: Ints) -> "CrossFittedRule":
        """Return the results on these tasks; expected accuracies move to their level."""
        won = self.won[rows]
        expected = None if self.expected is None else self.expected + float(won.mean() - self.won.mean())
        return replace(self, won=won, cost=self.cost[rows], expected=expected)


def setting_points(rules: Sequence[CrossFittedRule], first: int = 0) -> list[OperatingPoint]:
    """Return an operating point per setting of each rule, numbered from `first`."""
    operating_points = []
    for place, rule in enumerate(rules, first):
        errors = rule.won.std(axis=0) / np.sqrt(max(1, len(rule.won)))
        accuracy = rule.won.mean(axis=0) if rule.expected is None else rule.expected
        for setting in range(rule.won.shape[1]):
            cost, won = float(rule.spent[setting]), float(accuracy[setting])
            operating_points.append(OperatingPoint(place, setting, cost, won, float(errors[setting])))
    return operating_points


def combine_candidates(
    rules: Sequence[CrossFittedRule],
    candidates: Sequence[Sequence[int]],
    singles: Sequence[int],
    hashes: Sequence[str],
) -> tuple[OperatingPoint, ...]:
    """Return the points of one dial over candidates, from the simplest: each is a list of places in `rules`.

    `singles` are those of single workers, and `hashes` the contents of the tasks.
    """
    outcomes = _Outcomes.of(rules, hashes)
    first, *others = candidates
    dial = _Dial.of(outcomes, first)
    for places in others:
        dial = dial.joined_by(places)
    dial = dial.joined_by(singles, _PRIOR_GAIN_OF_SINGLES)
    return upper_hull((*dial.points, outcomes.best_of(singles)))


def content_folds(hashes: Sequence[str]) -> Ints:
    """Return [T]: a fold for each task, one for its copies; hashes are sorted, so neighbors have nothing in common."""
    _, places = np.unique(np.array(hashes), return_inverse=True)
    return places.reshape(-1) % _FOLDS


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """The results of all settings: their points, scores [N, S] by content, and a fold for each content ([N])."""

    points: tuple[OperatingPoint, ...]
    won: Floats
    folds: Ints

    @classmethod
    def of(cls, rules: Sequence[CrossFittedRule], hashes: Sequence[str]) -> "_Outcomes":
        _, places = np.unique(np.array(hashes), return_inverse=True)
        won = np.concatenate([_mean_by_place(rule.won, places.reshape(-1)) for rule in rules], axis=1)
        return cls(tuple(setting_points(rules)), won, np.arange(len(won)) % _FOLDS)

    def hull(self, places: Sequence[int], without: int | None = None) -> tuple[OperatingPoint, ...]:
        """Return the settings of these rules that no mixture beats, in all outcomes or those outside a fold."""
        columns = [column for column, point in enumerate(self.points) if point.part in places]
        points = [self.points[column] for column in columns]
        if without is not None and len(self.won) > _FOLDS:
            inside = self.folds == without
            rest = self.won[:, columns]
            moved = rest[~inside].mean(axis=0) - rest.mean(axis=0)
            points = [
                replace(point, accuracy=point.accuracy + float(move)) for point, move in zip(points, moved, strict=True)
            ]
        return upper_hull(points)

    def best_of(self, places: Sequence[int]) -> OperatingPoint:
        """Return the most accurate setting of these rules, with what the most accurate of other folds reach."""
        best = max(self.hull(places), key=lambda point: point.accuracy)
        reached = []
        for fold in range(_FOLDS):
            chosen = max(self.hull(places, fold), key=lambda point: point.accuracy)
            column = next(
                index
                for index, point in enumerate(self.points)
                if (point.part, point.setting) == (chosen.part, chosen.setting)
            )
            reached.append(self.won[self.folds == fold, column])
        return replace(best, accuracy=min(best.accuracy, float(np.concatenate(reached).mean())))

    def curve(self, dial: Sequence[OperatingPoint]) -> Floats:
        """Return [N, B]: what each budget wins, task by task."""
        places = [(point.part, point.setting) for point in self.points]
        spent = np.broadcast_to([point.cost for point in self.points], self.won.shape)
        return compute_frontier(TradeOff(tuple(dial), 1.0, 0.0), self.won, spent, places, _GRID).won

    def outside_curve(self, dials: Sequence[Sequence[OperatingPoint]]) -> Floats:
        """Return [N, B]: the same where each fold is met by the dial that was chosen without it."""
        curve = np.zeros((len(self.won), len(_GRID)))
        for fold, dial in enumerate(dials):
            inside = self.folds == fold
            curve[inside] = replace(self, won=self.won[inside], folds=self.folds[inside]).curve(dial)
        return curve


@dataclass(frozen=True, slots=True)
class _Dial:
    """The dial so far, and those that were chosen without each fold.

    The best of many settings was lucky too, so gains are taken where it was not chosen.
    """

    outcomes: _Outcomes
    points: tuple[OperatingPoint, ...]
    by_fold: tuple[tuple[OperatingPoint, ...], ...]

    @classmethod
    def of(cls, outcomes: _Outcomes, places: Sequence[int]) -> "_Dial":
        """Return the dial of the simplest candidate."""
        by_fold = tuple(outcomes.hull(places, fold) for fold in range(_FOLDS))
        return cls(outcomes, outcomes.hull(places), by_fold)

    def joined_by(self, places: Sequence[int], usual: float | None = None) -> "_Dial":
        """Return the dial with the settings of a candidate that are shown to gain; `usual` is its prior gain."""
        own = self.outcomes.hull(places)
        by_fold = [self.outcomes.hull(places, fold) for fold in range(_FOLDS)]
        gains = self.outcomes.outside_curve(by_fold) - self.outcomes.outside_curve(self.by_fold)
        seen = self.outcomes.curve(own).mean(axis=0)
        return _Dial(
            self.outcomes,
            _join(self.points, own, shrink_gains(gains, usual), seen),
            tuple(
                _join(dial, other, shrink_gains(gains[self.outcomes.folds != fold], usual), seen)
                for fold, (dial, other) in enumerate(zip(self.by_fold, by_fold, strict=True))
            ),
        )


def _join(
    dial: tuple[OperatingPoint, ...], own: Sequence[OperatingPoint], gains: Floats, seen: Floats
) -> tuple[OperatingPoint, ...]:
    """Return the dial with the points that gain over it, with what they are shown to reach; `seen` [B] is their own."""
    joining = [point for point in own if _at(point, gains) > 0]
    # [B]: the accuracy that a dial promises for each budget.
    trade_off = TradeOff(tuple(dial), 1.0, 0.0)
    cheapest = dial[0].cost
    shares = [min(1.0, budget / cheapest) if cheapest > 0 else 1.0 for budget in _GRID]
    mixes = [trade_off.for_cost(max(float(budget), cheapest)) for budget in _GRID]
    promised = np.array([share * mix.accuracy for share, mix in zip(shares, mixes, strict=True)])
    discount = np.maximum(0.0, seen - promised - gains)
    return upper_hull((*dial, *[replace(point, accuracy=point.accuracy - _at(point, discount)) for point in joining]))


def _at(point: OperatingPoint, by_budget: Floats) -> float:
    """Return the value at the cost of this point."""
    return float(np.interp(np.log(max(point.cost, _GRID[0] / 10)), np.log(_GRID), by_budget))


def shrink_gains(gains: Floats, usual: float | None = None) -> Floats:
    """Return [B]: the mean gain at each budget of gains [N, B] by task, shrunk as the module says.

    `usual` is the gain before anything is seen; by default that of a more complex candidate on so many tasks.
    """
    count = max(2, len(gains))
    by_budget, overall = gains.mean(axis=0), gains.mean(axis=1)
    mean, variance = float(overall.mean()), float(overall.var(ddof=1) / count)
    trust = _PRIOR_SPREAD**2 / (_PRIOR_SPREAD**2 + variance)
    prior = _PRIOR_GAIN * (count - _BREAK_EVEN) / (count + _HALF_WAY) if usual is None else usual
    kept = trust * mean + (1 - trust) * prior
    apart = gains - overall[:, None]
    noise = apart.var(axis=0, ddof=1) / count
    between = max(0.0, float((by_budget - mean).var() - noise.mean()))
    weight = between / np.maximum(between + noise, 1e-30)
    shrunk: Floats = kept + weight * (by_budget - mean)
    return shrunk


def _mean_by_place(values: Floats, places: Ints) -> Floats:
    """Return [N, L]: the mean of the rows of each place."""
    total = np.zeros((int(places.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(total, places, values)
    return total / np.bincount(places)[:, None]
