"""Fitting cascades: for every price and every type of task the order and the thresholds that are worth most.

Singles, pairs and triples of candidates are tried in order of cost, with thresholds at quantiles of confidence. Beside
a type's own figures stand those of all types together, which decide where there is little else (and alone in the limit,
one order for all: FrugalGPT, arXiv 2305.05176). Invariant: what a setting is said to come to was found on tasks whose
outcomes neither its confidences were fitted to nor its orders and thresholds were chosen by; only which settings to
keep was. Deliberately absent: a dear worker before a cheaper one, and more than three steps.

Logistic regression by Newton's method, with a quadratic penalty of its own for each weight.

Invariant: every penalty is above 0, so the loss has one least point, and equal data give equal weights. Labels may be
anything from 0 to 1. Deliberately absent: sparse features (scikit-learn has those).

Where a cascade may stop: how sure it is after each sequence of workers, and from which confidence it could ship.

Invariant: a task's own confidence comes from a fit without its fold; no answer has a confidence below every threshold.
What is kept is rounded as a policy file rounds it, so that a cascade decides alike before and after it was saved.
Deliberately absent: which stops a cascade has (`cascading`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.cascade_rule import END_OF_ORDER, CascadeRule, confidence_features, sigmoid
from shikisha.routing.fit.fit_stopping_rule import fit_length_scales
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_ANSWER, DecisionState, LengthScales
from shikisha.routing.trade_off import OperatingPoint, upper_hull

_ROUNDS, _HALVINGS = 30, 20
_CONVERGED = 1e-4  # a step as short as this leaves an error of about its square


def fit_logistic(features: Floats, labels: Floats, penalty: Floats, start: Floats | None = None) -> Floats:
    """Return the weights [p] of features [T, p] for labels [T] in [0, 1]; `start` is where to begin."""
    weights = np.zeros(features.shape[1]) if start is None else start
    loss = _logistic_loss(features, labels, penalty, weights)
    for _ in range(_ROUNDS):
        found = sigmoid(features, weights)
        slope = features.T @ (found - labels) + penalty * weights
        bent = features * np.sqrt(found * (1 - found))[:, None]
        step = np.asarray(np.linalg.solve(bent.T @ bent + np.diag(penalty), slope), np.float64)
        weights, loss = _halve_step(features, labels, penalty, (weights, step, loss))
        if np.abs(step).max() < _CONVERGED:
            break
    return weights


def _halve_step(
    features: Floats, labels: Floats, penalty: Floats, at: tuple[Floats, Floats, float]
) -> tuple[Floats, float]:
    """Return the weights after a step, or as much of it as makes the loss less; a whole step may go too far."""
    weights, step, loss = at
    for halvings in range(_HALVINGS):
        tried = weights - step / 2**halvings
        found = _logistic_loss(features, labels, penalty, tried)
        if found <= loss:
            return tried, found
    return weights, loss


def _logistic_loss(features: Floats, labels: Floats, penalty: Floats, weights: Floats) -> float:
    odds = features @ weights
    return float((np.logaddexp(0, odds) - labels * odds).sum() + 0.5 * (penalty * weights**2).sum())


QUANTILES = 20
_RIDGE_PENALTY, _CONSTANT_PENALTY = 3.0, 0.01
_NO_ANSWER_CONFIDENCE = -1.0  # the confidence in no answer


@dataclass(frozen=True, slots=True)
class StopPoint:
    """What is known after one sequence of workers: `weights` [F + 1, p] of fits without each fold and of all tasks.

    `sure` [T] is the confidence, `least` [n] the thresholds to choose from, ascending, and `passed` [T] how many of
    those a task's confidence reaches.
    """

    weights: Floats
    sure: Floats
    least: Floats
    passed: Ints


@dataclass(frozen=True)
class StopPoints:
    """The stops of a panel, each fitted when it is first asked for."""

    panel: OutcomeMatrix
    folds: Ints
    scales: LengthScales
    seen: DecisionState
    _known: dict[tuple[int, ...], StopPoint] = field(default_factory=dict)

    @classmethod
    def of(cls, panel: OutcomeMatrix, folds: Ints) -> "StopPoints":
        """Return the stops of a panel."""
        usual = fit_length_scales(panel)
        scales = LengthScales(_round_to_float32(usual.written), _round_to_float32(usual.spread))
        return cls(panel, folds, scales, panel.state_after(np.ones(panel.codes.shape, bool)))

    def after(self, asked: tuple[int, ...]) -> StopPoint:
        """Return the stop after these workers, in the order in which they are asked."""
        if asked not in self._known:
            self._known[asked] = self._fitted(asked)
        return self._known[asked]

    def _fitted(self, asked: tuple[int, ...]) -> StopPoint:
        features, won = confidence_features(self.seen, asked, self.scales), self.panel.won[:, asked[-1]]
        answered = self.panel.codes[:, asked[-1]] > NO_ANSWER
        known = answered & ~np.isnan(self.panel.scores[:, asked[-1]])
        penalty = np.full(features.shape[1], _RIDGE_PENALTY)
        penalty[0] = _CONSTANT_PENALTY
        whole = fit_logistic(features[known], won[known], penalty)
        weights, sure = [], np.full(len(won), _NO_ANSWER_CONFIDENCE)
        for fold in range(int(self.folds.max()) + 1):
            rows, own = known & (self.folds != fold), answered & (self.folds == fold)
            weights.append(_round_to_float32(fit_logistic(features[rows], won[rows], penalty, whole)))
            sure[own] = sigmoid(features[own], weights[-1])
        least = _candidate_thresholds(sure[answered])
        return StopPoint(
            np.array([*weights, _round_to_float32(whole)]), sure, least, np.searchsorted(least, sure, side="right")
        )


def _candidate_thresholds(sure: Floats) -> Floats:
    """Return 0, from which any answer is shipped, and some values that lie between confidences that occur."""
    values = np.unique(sure)
    if len(values) < 2:
        return np.zeros(1)
    wanted = np.quantile(sure, np.linspace(0, 1, QUANTILES + 2)[1:-1])
    places = np.clip(np.searchsorted(values, wanted), 1, len(values) - 1)
    return np.unique(np.append(_round_to_float32((values[places - 1] + values[places]) / 2), 0.0))


def _round_to_float32(values: Floats) -> Floats:
    return values.astype(np.float32).astype(np.float64)


MAX_STEPS = 3
MAX_CANDIDATES = 10
PRICES = np.geomspace(0.004, 8.0, 32)  # accuracy that one unit of cost must bring
POOLING_WEIGHTS = (
    (1.0, 10.0),
    (1.0, 100.0),
    (1.0, 1000.0),
    (0.0, 1.0),
)  # of a type's own tasks, and of how many of all types
WorkerOrder: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FittedCascade:
    """A cascade, and what it came to on tasks that were not in the fit: won and cost (units), [T, L].

    `by_fold` are the cascades that came to it, each fitted without its fold.
    """

    part: CascadeRule
    won: Floats
    cost: Floats
    by_fold: tuple[CascadeRule, ...]


def fit_cascade(
    panel: OutcomeMatrix, folds: Ints, unit: float = 0.0, weights: Sequence[tuple[float, float]] = POOLING_WEIGHTS
) -> FittedCascade:
    """Fit a cascade; `unit` is what one unit of cost is in dollars (0: the panel's own).

    `weights` are tried: of a type's own tasks, and of how many of all; ((0, 1),) is one order for all, FrugalGPT's.
    """
    ground = replace(_CascadeData.of(panel, folds, unit or panel.cost_unit()), weights=tuple(weights))
    orders = _candidate_orders(panel)
    rules = _search_orders(ground, orders)
    by_fold = tuple(_build_cascade(ground, rules, fold) for fold in range(ground.count))
    won, cost = _evaluate_folds(ground, by_fold)
    return FittedCascade(_build_cascade(ground, rules, ground.count), won, cost, by_fold)


@dataclass(frozen=True, slots=True)
class _CascadeData:
    """`stops` of a panel with `count` folds; `won`, `cost` (units) and whether there is an answer, [T, J].

    `group` [T] numbers fold and type together, types first; the last type is the unknown one.
    """

    panel: OutcomeMatrix
    stops: StopPoints
    won: Floats
    cost: Floats
    answered: Flags
    count: int
    kinds: int
    group: Ints
    weights: tuple[tuple[float, float], ...] = POOLING_WEIGHTS

    @classmethod
    def of(cls, panel: OutcomeMatrix, folds: Ints, unit: float) -> "_CascadeData":
        answered = panel.codes > NO_ANSWER
        kinds, count = len(panel.types.names) + 1, int(folds.max()) + 1
        group = folds * kinds + panel.batch.types % kinds
        won = np.where(answered, panel.won, 0.0)
        return cls(panel, StopPoints.of(panel, folds), won, panel.paid / unit, answered, count, kinds, group)


def _candidate_orders(panel: OutcomeMatrix) -> list[WorkerOrder]:
    """Return every order to try, the shortest first: of those whom no cheaper one beats, and the best of the others."""
    means = panel.mean_scores()
    costs = panel.paid.sum(axis=0) / np.maximum(1, (panel.there | ~np.isnan(panel.dollars)).sum(axis=0))
    ranked = np.lexsort((means, costs)).tolist()
    unbeaten = [worker for worker in ranked if not ((costs <= costs[worker]) & (means > means[worker])).any()]
    others = [worker for worker in np.argsort(-means, kind="stable").tolist() if worker not in unbeaten]
    kept = {*unbeaten[-MAX_CANDIDATES:], *others[: max(0, MAX_CANDIDATES - len(unbeaten))]}
    candidates = [worker for worker in ranked if worker in kept]
    return [order for size in range(1, MAX_STEPS + 1) for order in combinations(candidates, size)]


@dataclass(frozen=True, slots=True)
class _BestOrders:
    """What is best without each fold, and of all tasks, for each type: [L, F + 1, D + 1].

    `order` is a place in `orders`, `cell` one of the pairs of thresholds of its first two steps; `worth` is what they
    are worth, and `come` [2, L, F, D + 1] what they win and cost on the folds that they were chosen without.
    """

    orders: Sequence[WorkerOrder]
    order: Ints
    cell: Ints
    worth: Floats
    come: Floats

    @classmethod
    def none(cls, ground: _CascadeData, orders: Sequence[WorkerOrder]) -> "_BestOrders":
        """Return rules that are worth less than any."""
        shape = (len(ground.weights) * len(PRICES), ground.count + 1, ground.kinds)
        worth, come = np.full(shape, -np.inf), np.zeros((2, shape[0], ground.count, ground.kinds))
        return cls(orders, np.zeros(shape, np.int64), np.zeros(shape, np.int64), worth, come)

    def weigh(self, setting: int, number: int, worth: Floats, own: Floats) -> None:
        """Take this order where it is worth more [F + 1, D + 1, n] than what was best; `own` is what it comes to."""
        cell = worth.argmax(axis=2)
        most = np.take_along_axis(worth, cell[:, :, None], axis=2)[:, :, 0]
        better = most > self.worth[setting]
        if better.any():
            self.worth[setting][better], self.order[setting][better] = most[better], number
            self.cell[setting][better] = cell[better]
            came = np.take_along_axis(own, cell[None, :-1, :, None], axis=3)[..., 0]
            self.come[:, setting] = np.where(better[:-1], came, self.come[:, setting])

    def on_hull(self, tasks: int) -> "_BestOrders":
        """Return the rules of the settings that no mixture of others beats."""
        won, cost = self.come.sum(axis=(2, 3)) / tasks
        points = [
            OperatingPoint(0, setting, *point)
            for setting, point in enumerate(zip(cost.tolist(), won.tolist(), strict=True))
        ]
        kept = [point.setting for point in upper_hull(points)]
        return _BestOrders(self.orders, self.order[kept], self.cell[kept], self.worth[kept], self.come[:, kept])


def _search_orders(ground: _CascadeData, orders: Sequence[WorkerOrder]) -> _BestOrders:
    """Return the best rules at each price, as far as their settings are on the hull."""
    found = _BestOrders.none(ground, orders)
    sizes = np.bincount(ground.group // ground.kinds, minlength=ground.count)
    tasks = np.append(len(ground.panel) - sizes, len(ground.panel))
    for number, order in enumerate(orders):
        own = _threshold_sums(ground, order)
        every = own.sum(axis=1, keepdims=True)
        without = np.concatenate([every - own, every], axis=1)
        pooled = without.sum(axis=2, keepdims=True) / np.maximum(1, tasks)[:, None, None]
        for place, (single, beside) in enumerate(ground.weights):
            won, cost = (single * without + beside * pooled).astype(np.float32)
            for step, price in enumerate(PRICES.astype(np.float32), place * len(PRICES)):
                found.weigh(step, number, won - price * cost, own)
    return found.on_hull(len(ground.panel))


def _threshold_sums(ground: _CascadeData, order: WorkerOrder) -> Floats:
    """Return [2, F, D + 1, n]: score won and cost of an order's tasks for each pair of thresholds, by fold and type.

    An order of fewer steps is one whose further steps cost nothing and change nothing.
    """
    won, cost = _outcomes_by_step(ground, order)
    stops = [ground.stops.after(order[:size]) for size in range(1, len(order))]
    sizes = [len(stop.least) for stop in stops] + [1] * (MAX_STEPS - 1 - len(stops))
    cells = ground.group
    for place, size in enumerate(sizes):
        cells = cells * (size + 1) + (stops[place].passed if place < len(stops) else 0)
    groups, (first, second) = ground.count * ground.kinds, sizes

    def spread(values: Floats) -> Floats:  # sums by group and by how many thresholds each confidence reaches
        found = np.asarray(np.bincount(cells, values, groups * (first + 1) * (second + 1)), np.float64)
        return found.reshape(groups, first + 1, second + 1)

    def gone_on(values: Floats) -> Floats:  # of those who do not stop at the first step
        return np.cumsum(spread(values), axis=1)[:, :-1]

    at_first, later = spread(won[0]).sum(axis=2), gone_on(won[1])
    total = (at_first.sum(axis=1, keepdims=True) - np.cumsum(at_first, axis=1)[:, :-1])[:, :, None]
    total = total + later.sum(axis=2, keepdims=True) - np.cumsum(later, axis=2)[:, :, :-1]
    total = total + np.cumsum(gone_on(won[2]), axis=2)[:, :, :-1]
    paid = spread(cost[0]).sum(axis=(1, 2))[:, None, None] + gone_on(cost[1]).sum(axis=2, keepdims=True)
    paid = paid + np.cumsum(gone_on(cost[2]), axis=2)[:, :, :-1]
    return np.stack([total, paid]).reshape(2, ground.count, ground.kinds, first * second)


def _outcomes_by_step(ground: _CascadeData, order: WorkerOrder) -> tuple[list[Floats], list[Floats]]:
    """Return, for each step, [T] what shipping then brings, and what the step costs."""
    won, cost = [np.zeros(len(ground.panel))], []
    for worker in order:
        won.append(np.where(ground.answered[:, worker], ground.won[:, worker], won[-1]))
        cost.append(ground.cost[:, worker])
    missing = MAX_STEPS - len(order)
    return [*won[1:], *[won[-1]] * missing], [*cost, *[np.zeros(len(ground.panel))] * missing]


def _build_cascade(ground: _CascadeData, rules: _BestOrders, fold: int) -> CascadeRule:
    """Return the cascade fitted without this fold; with the number of folds, the one of all tasks."""
    settings = len(rules.order)
    orders = np.full((settings, ground.kinds, MAX_STEPS), END_OF_ORDER, np.int64)
    thresholds, confidences = np.zeros(orders.shape), {}
    for setting, kind in np.ndindex(settings, ground.kinds):
        order = rules.orders[rules.order[setting, fold, kind]]
        least = [ground.stops.after(order[:size]).least for size in range(1, len(order))]
        places = np.unravel_index(rules.cell[setting, fold, kind], [*map(len, least), 1])
        orders[setting, kind, : len(order)] = order
        thresholds[setting, kind, : len(least)] = [held[at] for held, at in zip(least, places, strict=False)]
        for asked in _stopping_sequences(order):
            confidences[asked] = ground.stops.after(asked).weights[fold]
    spares = np.argsort(-ground.panel.mean_scores(), kind="stable")
    return CascadeRule(orders, thresholds, confidences, ground.stops.scales, spares)


def _stopping_sequences(order: WorkerOrder) -> list[WorkerOrder]:
    """Return the sequences after which this order may stop, also where some of its workers are not there."""
    return [asked for size in range(1, len(order)) for asked in combinations(order[:-1], size)]


def _evaluate_folds(ground: _CascadeData, by_fold: Sequence[CascadeRule]) -> tuple[Floats, Floats]:
    """Return [T, L] what each setting wins and costs, each task with the cascade that has not seen it."""
    shape = (len(ground.panel), by_fold[0].settings)
    won, cost = np.zeros(shape), np.zeros(shape)
    for group in np.unique(ground.group):
        fold, kind = divmod(int(group), ground.kinds)
        rows = np.flatnonzero(ground.group == group)
        for setting in range(shape[1]):
            won[rows, setting], cost[rows, setting] = _walk_cascade(ground, by_fold[fold], (setting, kind), rows)
    return won, cost


def _walk_cascade(ground: _CascadeData, part: CascadeRule, at: tuple[int, int], rows: Ints) -> tuple[Floats, Floats]:
    """Return what these tasks of one type win and cost at one setting."""
    everybody = np.ones(len(ground.panel.workers), bool)
    steps = part.steps(*at, everybody)
    won, cost, going = np.zeros(len(rows)), np.zeros(len(rows)), np.ones(len(rows), bool)
    for size, (worker, least) in enumerate(steps, 1):
        cost += going * ground.cost[rows, worker]
        won = np.where(going & ground.answered[rows, worker], ground.won[rows, worker], won)
        if size < len(steps):
            going &= ground.stops.after(tuple(one for one, _ in steps[:size])).sure[rows] < least
    return won, cost
