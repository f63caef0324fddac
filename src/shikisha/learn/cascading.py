"""Fitting cascades: for every price and every type of task the order and the thresholds that are worth most.

Singles, pairs and triples of candidates are tried in order of cost, with thresholds at quantiles of confidence. Beside
a type's own figures stand those of all types together, which decide where there is little else (and alone in the limit,
one order for all: FrugalGPT, arXiv 2305.05176). Invariant: what a setting is said to come to was found on tasks whose
outcomes neither its confidences were fitted to nor its orders and thresholds were chosen by; only which settings to
keep was. Deliberately absent: a dear worker before a cheaper one, and more than three steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.learn.stops import Stops
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOTHING
from shikisha.policy.cascade import END, Cascade
from shikisha.policy.dial import Point, on_hull

STEPS = 3
CANDIDATES = 10
PRICES = np.geomspace(0.004, 8.0, 32)  # accuracy that one unit of cost must bring
WEIGHTS = ((1.0, 10.0), (1.0, 100.0), (1.0, 1000.0), (0.0, 1.0))  # of a type's own tasks, and of how many of all types
Order: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cascaded:
    """A cascade, and what it came to on tasks that were not in the fit: won and cost (units), [T, L].

    `by_fold` are the cascades that came to it, each fitted without its fold.
    """

    part: Cascade
    won: Floats
    cost: Floats
    by_fold: tuple[Cascade, ...]


def cascade(panel: Panel, folds: Ints, unit: float = 0.0, weights: Sequence[tuple[float, float]] = WEIGHTS) -> Cascaded:
    """Fit a cascade; `unit` is what one unit of cost is in dollars (0: the panel's own).

    `weights` are tried: of a type's own tasks, and of how many of all; ((0, 1),) is one order for all, FrugalGPT's.
    """
    ground = replace(_Ground.of(panel, folds, unit or panel.unit()), weights=tuple(weights))
    orders = _orders(panel)
    rules = _best(ground, orders)
    by_fold = tuple(_part(ground, rules, fold) for fold in range(ground.count))
    won, cost = _come_to(ground, by_fold)
    return Cascaded(_part(ground, rules, ground.count), won, cost, by_fold)


@dataclass(frozen=True, slots=True)
class _Ground:
    """`stops` of a panel with `count` folds; `won`, `cost` (units) and whether there is an answer, [T, J].

    `group` [T] numbers fold and type together, types first; the last type is the unknown one.
    """

    panel: Panel
    stops: Stops
    won: Floats
    cost: Floats
    answered: Flags
    count: int
    kinds: int
    group: Ints
    weights: tuple[tuple[float, float], ...] = WEIGHTS

    @classmethod
    def of(cls, panel: Panel, folds: Ints, unit: float) -> "_Ground":
        answered = panel.codes > NOTHING
        kinds, count = len(panel.types.names) + 1, int(folds.max()) + 1
        group = folds * kinds + panel.batch.types % kinds
        won = np.where(answered, panel.won, 0.0)
        return cls(panel, Stops.of(panel, folds), won, panel.paid / unit, answered, count, kinds, group)


def _orders(panel: Panel) -> list[Order]:
    """Return every order to try, the shortest first: of those whom no cheaper one beats, and the best of the others."""
    means = panel.means()
    costs = panel.paid.sum(axis=0) / np.maximum(1, (panel.there | ~np.isnan(panel.dollars)).sum(axis=0))
    ranked = np.lexsort((means, costs)).tolist()
    unbeaten = [worker for worker in ranked if not ((costs <= costs[worker]) & (means > means[worker])).any()]
    others = [worker for worker in np.argsort(-means, kind="stable").tolist() if worker not in unbeaten]
    kept = {*unbeaten[-CANDIDATES:], *others[: max(0, CANDIDATES - len(unbeaten))]}
    candidates = [worker for worker in ranked if worker in kept]
    return [order for size in range(1, STEPS + 1) for order in combinations(candidates, size)]


@dataclass(frozen=True, slots=True)
class _Rules:
    """What is best without each fold, and of all tasks, for each type: [L, F + 1, D + 1].

    `order` is a place in `orders`, `cell` one of the pairs of thresholds of its first two steps; `worth` is what they
    are worth, and `come` [2, L, F, D + 1] what they win and cost on the folds that they were chosen without.
    """

    orders: Sequence[Order]
    order: Ints
    cell: Ints
    worth: Floats
    come: Floats

    @classmethod
    def none(cls, ground: _Ground, orders: Sequence[Order]) -> "_Rules":
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

    def on_hull(self, tasks: int) -> "_Rules":
        """Return the rules of the settings that no mixture of others beats."""
        won, cost = self.come.sum(axis=(2, 3)) / tasks
        points = [
            Point(0, setting, *point) for setting, point in enumerate(zip(cost.tolist(), won.tolist(), strict=True))
        ]
        kept = [point.setting for point in on_hull(points)]
        return _Rules(self.orders, self.order[kept], self.cell[kept], self.worth[kept], self.come[:, kept])


def _best(ground: _Ground, orders: Sequence[Order]) -> _Rules:
    """Return the best rules at each price, as far as their settings are on the hull."""
    found = _Rules.none(ground, orders)
    sizes = np.bincount(ground.group // ground.kinds, minlength=ground.count)
    tasks = np.append(len(ground.panel) - sizes, len(ground.panel))
    for number, order in enumerate(orders):
        own = _sums(ground, order)
        every = own.sum(axis=1, keepdims=True)
        without = np.concatenate([every - own, every], axis=1)
        pooled = without.sum(axis=2, keepdims=True) / np.maximum(1, tasks)[:, None, None]
        for place, (single, beside) in enumerate(ground.weights):
            won, cost = (single * without + beside * pooled).astype(np.float32)
            for step, price in enumerate(PRICES.astype(np.float32), place * len(PRICES)):
                found.weigh(step, number, won - price * cost, own)
    return found.on_hull(len(ground.panel))


def _sums(ground: _Ground, order: Order) -> Floats:
    """Return [2, F, D + 1, n]: score won and cost of an order's tasks for each pair of thresholds, by fold and type.

    An order of fewer steps is one whose further steps cost nothing and change nothing.
    """
    won, cost = _after(ground, order)
    stops = [ground.stops.after(order[:size]) for size in range(1, len(order))]
    sizes = [len(stop.least) for stop in stops] + [1] * (STEPS - 1 - len(stops))
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


def _after(ground: _Ground, order: Order) -> tuple[list[Floats], list[Floats]]:
    """Return, for each step, [T] what shipping then brings, and what the step costs."""
    won, cost = [np.zeros(len(ground.panel))], []
    for worker in order:
        won.append(np.where(ground.answered[:, worker], ground.won[:, worker], won[-1]))
        cost.append(ground.cost[:, worker])
    missing = STEPS - len(order)
    return [*won[1:], *[won[-1]] * missing], [*cost, *[np.zeros(len(ground.panel))] * missing]


def _part(ground: _Ground, rules: _Rules, fold: int) -> Cascade:
    """Return the cascade fitted without this fold; with the number of folds, the one of all tasks."""
    settings = len(rules.order)
    orders = np.full((settings, ground.kinds, STEPS), END, np.int64)
    thresholds, confidences = np.zeros(orders.shape), {}
    for setting, kind in np.ndindex(settings, ground.kinds):
        order = rules.orders[rules.order[setting, fold, kind]]
        least = [ground.stops.after(order[:size]).least for size in range(1, len(order))]
        places = np.unravel_index(rules.cell[setting, fold, kind], [*map(len, least), 1])
        orders[setting, kind, : len(order)] = order
        thresholds[setting, kind, : len(least)] = [held[at] for held, at in zip(least, places, strict=False)]
        for asked in _sequences(order):
            confidences[asked] = ground.stops.after(asked).weights[fold]
    spares = np.argsort(-ground.panel.means(), kind="stable")
    return Cascade(orders, thresholds, confidences, ground.stops.scales, spares)


def _sequences(order: Order) -> list[Order]:
    """Return the sequences after which this order may stop, also where some of its workers are not there."""
    return [asked for size in range(1, len(order)) for asked in combinations(order[:-1], size)]


def _come_to(ground: _Ground, by_fold: Sequence[Cascade]) -> tuple[Floats, Floats]:
    """Return [T, L] what each setting wins and costs, each task with the cascade that has not seen it."""
    shape = (len(ground.panel), by_fold[0].settings)
    won, cost = np.zeros(shape), np.zeros(shape)
    for group in np.unique(ground.group):
        fold, kind = divmod(int(group), ground.kinds)
        rows = np.flatnonzero(ground.group == group)
        for setting in range(shape[1]):
            won[rows, setting], cost[rows, setting] = _walked(ground, by_fold[fold], (setting, kind), rows)
    return won, cost


def _walked(ground: _Ground, part: Cascade, at: tuple[int, int], rows: Ints) -> tuple[Floats, Floats]:
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
