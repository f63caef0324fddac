"""Fitting cascades: for each price and task type, the worker order and the stopping thresholds with highest utility.

Singles, pairs and triples of candidates are searched in order of cost, with thresholds at quantiles of confidence. A
type's own figures are pooled with those of all types, which dominate where a type has few tasks (in the limit, one
order for all: FrugalGPT, arXiv 2305.05176). Invariants: what a setting is reported to achieve was measured on tasks
whose outcomes neither fitted its confidences nor chose its orders and thresholds; weights and thresholds are rounded as
a policy file rounds them, so a cascade decides the same before and after saving. The logistic regression is Newton's
method with a penalty per weight, which scikit-learn's estimators do not offer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
# Newton converges quadratically: after such a step the error is about its square.
_CONVERGED = 1e-4
QUANTILES = 20
_RIDGE_PENALTY, _CONSTANT_PENALTY = 3.0, 0.01
# Below every threshold, so a missing answer never stops a cascade.
_NO_ANSWER_CONFIDENCE = -1.0
MAX_STEPS = 3
MAX_CANDIDATES = 10
# Prices: the accuracy that one unit of cost must bring.
PRICES = np.geomspace(0.004, 8.0, 32)
# Pooling to try: the weight of a type's own tasks, and of how many tasks of all types.
POOLING_WEIGHTS = ((1.0, 10.0), (1.0, 100.0), (1.0, 1000.0), (0.0, 1.0))
WorkerOrder: TypeAlias = tuple[int, ...]


def fit_logistic(features: Floats, labels: Floats, penalty: Floats, start: Floats | None = None) -> Floats:
    """Return the weights [p] of features [T, p] for labels [T] in [0, 1], starting at `start`."""
    weights = np.zeros(features.shape[1]) if start is None else start
    loss = _logistic_loss(features, labels, penalty, weights)
    for _ in range(_ROUNDS):
        probability = sigmoid(features, weights)
        gradient = features.T @ (probability - labels) + penalty * weights
        scaled = features * np.sqrt(probability * (1 - probability))[:, None]
        step = np.asarray(np.linalg.solve(scaled.T @ scaled + np.diag(penalty), gradient), np.float64)
        weights, loss = _halve_step(features, labels, penalty, (weights, step, loss))
        if np.abs(step).max() < _CONVERGED:
            break
    return weights


def _halve_step(
    features: Floats, labels: Floats, penalty: Floats, at: tuple[Floats, Floats, float]
) -> tuple[Floats, float]:
    """Return the weights after the largest halving of the step that does not increase the loss."""
    weights, step, loss = at
    for halvings in range(_HALVINGS):
        candidate = weights - step / 2**halvings
        candidate_loss = _logistic_loss(features, labels, penalty, candidate)
        if candidate_loss <= loss:
            return candidate, candidate_loss
    return weights, loss


def _logistic_loss(features: Floats, labels: Floats, penalty: Floats, weights: Floats) -> float:
    odds = features @ weights
    return float((np.logaddexp(0, odds) - labels * odds).sum() + 0.5 * (penalty * weights**2).sum())


@dataclass(frozen=True, slots=True)
class StopPoint:
    """What is known after one sequence of workers: `weights` [F + 1, p] of fits without each fold and of all tasks.

    `sure` [T] is the confidence by fits without the task, `as_fitted` [T] that by the fit of all tasks, `least` [n] the
    candidate thresholds, ascending, and `passed` [T] how many of those a task's confidence reaches.
    """

    weights: Floats
    sure: Floats
    as_fitted: Floats
    least: Floats
    passed: Ints


@dataclass(frozen=True)
class StopPoints:
    """The stopping points of a matrix, each fitted on first use."""

    matrix: OutcomeMatrix
    folds: Ints
    scales: LengthScales
    seen: DecisionState
    _known: dict[tuple[int, ...], StopPoint] = field(default_factory=dict)

    @classmethod
    def of(cls, matrix: OutcomeMatrix, folds: Ints) -> "StopPoints":
        """Return the stopping points of a matrix."""
        usual = fit_length_scales(matrix)
        scales = LengthScales(_round_to_float32(usual.written), _round_to_float32(usual.spread))
        return cls(matrix, folds, scales, matrix.state_after(np.ones(matrix.codes.shape, bool)))

    def after(self, asked: tuple[int, ...]) -> StopPoint:
        """Return the stopping point after these workers, in the order in which they are asked."""
        if asked not in self._known:
            features, won = confidence_features(self.seen, asked, self.scales), self.matrix.won[:, asked[-1]]
            answered = self.matrix.codes[:, asked[-1]] > NO_ANSWER
            known = answered & ~np.isnan(self.matrix.scores[:, asked[-1]])
            penalty = np.full(features.shape[1], _RIDGE_PENALTY)
            penalty[0] = _CONSTANT_PENALTY
            overall = fit_logistic(features[known], won[known], penalty)
            weights, sure = [], np.full(len(won), _NO_ANSWER_CONFIDENCE)
            for fold in range(int(self.folds.max()) + 1):
                rows, own = known & (self.folds != fold), answered & (self.folds == fold)
                weights.append(_round_to_float32(fit_logistic(features[rows], won[rows], penalty, overall)))
                sure[own] = sigmoid(features[own], weights[-1])
            weights.append(_round_to_float32(overall))
            own_sure = np.where(answered, sigmoid(features, weights[-1]), _NO_ANSWER_CONFIDENCE)
            least = _candidate_thresholds(sure[answered])
            self._known[asked] = StopPoint(
                np.array(weights),
                sure,
                own_sure,
                least,
                np.searchsorted(least, sure, side="right"),
            )
        return self._known[asked]


def _candidate_thresholds(confidence: Floats) -> Floats:
    """Return 0, which ships any answer, and values between confidences that occur."""
    values = np.unique(confidence)
    if len(values) < 2:
        return np.zeros(1)
    wanted = np.quantile(confidence, np.linspace(0, 1, QUANTILES + 2)[1:-1])
    places = np.clip(np.searchsorted(values, wanted), 1, len(values) - 1)
    return np.unique(np.append(_round_to_float32((values[places - 1] + values[places]) / 2), 0.0))


def _round_to_float32(values: Floats) -> Floats:
    return values.astype(np.float32).astype(np.float64)


@dataclass(frozen=True, slots=True)
class FittedCascade:
    """A cascade, and its results on tasks outside the fit: won and cost (units), [T, L].

    `by_fold` are the cascades that achieved them, each fitted without its fold. `spent` [L] is the mean cost of the
    cascade itself, which is fitted on all tasks.
    """

    part: CascadeRule
    won: Floats
    cost: Floats
    spent: Floats
    by_fold: tuple[CascadeRule, ...]


def fit_cascade(matrix: OutcomeMatrix, folds: Ints, unit: float = 0.0) -> FittedCascade:
    """Fit a cascade; `unit` is the dollars of one unit of cost (0: the matrix's own)."""
    data = _CascadeData.of(matrix, folds, unit or matrix.cost_unit())
    # All orders to try, shortest first, of workers that no cheaper one beats and the best of the others.
    mean_scores = matrix.mean_scores()
    costs = matrix.paid.sum(axis=0) / np.maximum(1, (matrix.there | ~np.isnan(matrix.dollars)).sum(axis=0))
    ranked = np.lexsort((mean_scores, costs)).tolist()
    unbeaten = [
        worker for worker in ranked if not ((costs <= costs[worker]) & (mean_scores > mean_scores[worker])).any()
    ]
    others = [worker for worker in np.argsort(-mean_scores, kind="stable").tolist() if worker not in unbeaten]
    chosen = {*unbeaten[-MAX_CANDIDATES:], *others[: max(0, MAX_CANDIDATES - len(unbeaten))]}
    candidates = [worker for worker in ranked if worker in chosen]
    orders = [order for size in range(1, MAX_STEPS + 1) for order in combinations(candidates, size)]
    rules = _search_orders(data, orders)
    by_fold = tuple(_build_cascade(data, rules, fold) for fold in range(data.count))
    won, cost = _evaluate_folds(data, by_fold)
    whole = _build_cascade(data, rules, data.count)
    spent = _evaluate_folds(data, (whole,) * data.count, "as_fitted")[1].mean(axis=0)
    return FittedCascade(whole, won, cost, spent, by_fold)


@dataclass(frozen=True, slots=True)
class _CascadeData:
    """Stopping points of a matrix with `count` folds; `won`, `cost` (units) and whether there is an answer, [T, J].

    `group` [T] numbers fold and type together, types first; the last type is the unknown one.
    """

    matrix: OutcomeMatrix
    stops: StopPoints
    won: Floats
    cost: Floats
    answered: Flags
    count: int
    kinds: int
    group: Ints

    @classmethod
    def of(cls, matrix: OutcomeMatrix, folds: Ints, unit: float) -> "_CascadeData":
        answered = matrix.codes > NO_ANSWER
        kinds, count = len(matrix.types.names) + 1, int(folds.max()) + 1
        group = folds * kinds + matrix.batch.types % kinds
        won = np.where(answered, matrix.won, 0.0)
        return cls(matrix, StopPoints.of(matrix, folds), won, matrix.paid / unit, answered, count, kinds, group)


@dataclass(frozen=True, slots=True)
class _BestOrders:
    """The best orders without each fold, and of all tasks, for each type: [L, F + 1, D + 1].

    `order` is an index into `orders`, `cell` a pair of thresholds of its first two steps; `worth` is their utility, and
    `come` [2, L, F, D + 1] what they win and cost on the folds that they were chosen without.
    """

    orders: Sequence[WorkerOrder]
    order: Ints
    cell: Ints
    worth: Floats
    come: Floats

    @classmethod
    def none(cls, data: _CascadeData, orders: Sequence[WorkerOrder]) -> "_BestOrders":
        """Return orders of utility -inf."""
        shape = (len(POOLING_WEIGHTS) * len(PRICES), data.count + 1, data.kinds)
        worth, come = np.full(shape, -np.inf), np.zeros((2, shape[0], data.count, data.kinds))
        return cls(orders, np.zeros(shape, np.int64), np.zeros(shape, np.int64), worth, come)

    def weigh(self, setting: int, number: int, worth: Floats, own_results: Floats) -> None:
        """Take this order where its utility [F + 1, D + 1, n] exceeds the best so far; `own` are its results."""
        cell = worth.argmax(axis=2)
        most = np.take_along_axis(worth, cell[:, :, None], axis=2)[:, :, 0]
        better = most > self.worth[setting]
        if better.any():
            self.worth[setting][better], self.order[setting][better] = most[better], number
            self.cell[setting][better] = cell[better]
            results = np.take_along_axis(own_results, cell[None, :-1, :, None], axis=3)[..., 0]
            self.come[:, setting] = np.where(better[:-1], results, self.come[:, setting])

    def on_hull(self, tasks: int) -> "_BestOrders":
        """Keep the settings that no mixture of others beats."""
        won, cost = self.come.sum(axis=(2, 3)) / tasks
        points = [
            OperatingPoint(0, setting, *point)
            for setting, point in enumerate(zip(cost.tolist(), won.tolist(), strict=True))
        ]
        settings = [point.setting for point in upper_hull(points)]
        return _BestOrders(
            self.orders, self.order[settings], self.cell[settings], self.worth[settings], self.come[:, settings]
        )


def _search_orders(data: _CascadeData, orders: Sequence[WorkerOrder]) -> _BestOrders:
    """Return the best orders at each price whose settings are on the hull."""
    best = _BestOrders.none(data, orders)
    sizes = np.bincount(data.group // data.kinds, minlength=data.count)
    tasks = np.append(len(data.matrix) - sizes, len(data.matrix))
    for number, order in enumerate(orders):
        own = _threshold_sums(data, order)
        total = own.sum(axis=1, keepdims=True)
        without = np.concatenate([total - own, total], axis=1)
        pooled = without.sum(axis=2, keepdims=True) / np.maximum(1, tasks)[:, None, None]
        for index, (own_weight, pooled_weight) in enumerate(POOLING_WEIGHTS):
            won, cost = (own_weight * without + pooled_weight * pooled).astype(np.float32)
            for step, price in enumerate(PRICES.astype(np.float32), index * len(PRICES)):
                best.weigh(step, number, won - price * cost, own)
    return best.on_hull(len(data.matrix))


def _threshold_sums(data: _CascadeData, order: WorkerOrder) -> Floats:
    """Return [2, F, D + 1, n]: score and cost of an order for each pair of thresholds, by fold and type.

    A shorter order is padded with steps that cost nothing and change nothing.
    """
    won, cost = _outcomes_by_step(data, order)
    stops = [data.stops.after(order[:size]) for size in range(1, len(order))]
    sizes = [len(stop.least) for stop in stops] + [1] * (MAX_STEPS - 1 - len(stops))
    cells = data.group
    for index, size in enumerate(sizes):
        cells = cells * (size + 1) + (stops[index].passed if index < len(stops) else 0)
    groups, (first, second) = data.count * data.kinds, sizes

    def spread(values: Floats) -> Floats:  # sums by group and thresholds reached
        sums = np.asarray(np.bincount(cells, values, groups * (first + 1) * (second + 1)), np.float64)
        return sums.reshape(groups, first + 1, second + 1)

    def continued(values: Floats) -> Floats:  # of tasks beyond the first step
        return np.cumsum(spread(values), axis=1)[:, :-1]

    at_first, later = spread(won[0]).sum(axis=2), continued(won[1])
    total = (at_first.sum(axis=1, keepdims=True) - np.cumsum(at_first, axis=1)[:, :-1])[:, :, None]
    total = total + later.sum(axis=2, keepdims=True) - np.cumsum(later, axis=2)[:, :, :-1]
    total = total + np.cumsum(continued(won[2]), axis=2)[:, :, :-1]
    paid = spread(cost[0]).sum(axis=(1, 2))[:, None, None] + continued(cost[1]).sum(axis=2, keepdims=True)
    paid = paid + np.cumsum(continued(cost[2]), axis=2)[:, :, :-1]
    return np.stack([total, paid]).reshape(2, data.count, data.kinds, first * second)


def _outcomes_by_step(data: _CascadeData, order: WorkerOrder) -> tuple[list[Floats], list[Floats]]:
    """Return, for each step, [T] what shipping then wins, and what the step costs."""
    won, cost = [np.zeros(len(data.matrix))], []
    for worker in order:
        won.append(np.where(data.answered[:, worker], data.won[:, worker], won[-1]))
        cost.append(data.cost[:, worker])
    missing = MAX_STEPS - len(order)
    return [*won[1:], *[won[-1]] * missing], [*cost, *[np.zeros(len(data.matrix))] * missing]


def _build_cascade(data: _CascadeData, rules: _BestOrders, fold: int) -> CascadeRule:
    """Return the cascade fitted without this fold; for the number of folds, the one of all tasks."""
    settings = len(rules.order)
    orders = np.full((settings, data.kinds, MAX_STEPS), END_OF_ORDER, np.int64)
    thresholds, confidences = np.zeros(orders.shape), {}
    for setting, kind in np.ndindex(settings, data.kinds):
        order = rules.orders[rules.order[setting, fold, kind]]
        least = [data.stops.after(order[:size]).least for size in range(1, len(order))]
        places = np.unravel_index(rules.cell[setting, fold, kind], [*map(len, least), 1])
        orders[setting, kind, : len(order)] = order
        thresholds[setting, kind, : len(least)] = [held[at] for held, at in zip(least, places, strict=False)]
        for asked in [asked for size in range(1, len(order)) for asked in combinations(order[:-1], size)]:
            confidences[asked] = data.stops.after(asked).weights[fold]
    spares = np.argsort(-data.matrix.mean_scores(), kind="stable")
    return CascadeRule(orders, thresholds, confidences, data.stops.scales, spares)


def _evaluate_folds(
    data: _CascadeData, by_fold: Sequence[CascadeRule], confidence: str = "sure"
) -> tuple[Floats, Floats]:
    """Return [T, L] what each setting wins and costs, each task with the cascade of its fold."""
    shape = (len(data.matrix), by_fold[0].settings)
    won, cost = np.zeros(shape), np.zeros(shape)
    for group in np.unique(data.group):
        fold, kind = divmod(int(group), data.kinds)
        rows = np.flatnonzero(data.group == group)
        for setting in range(shape[1]):
            won[rows, setting], cost[rows, setting] = _walk_cascade(
                data, by_fold[fold], (setting, kind, confidence), rows
            )
    return won, cost


def _walk_cascade(
    data: _CascadeData, cascade: CascadeRule, at: tuple[int, int, str], rows: Ints
) -> tuple[Floats, Floats]:
    """Return what these tasks of one type win and cost at one setting, by one of the confidences of stop points."""
    everybody = np.ones(len(data.matrix.workers), bool)
    steps = cascade.steps(*at[:2], everybody)
    won, cost, going = np.zeros(len(rows)), np.zeros(len(rows)), np.ones(len(rows), bool)
    for size, (worker, least) in enumerate(steps, 1):
        cost += going * data.cost[rows, worker]
        won = np.where(going & data.answered[rows, worker], data.won[rows, worker], won)
        if size < len(steps):
            going &= getattr(data.stops.after(tuple(one for one, _ in steps[:size])), at[2])[rows] < least
    return won, cost
