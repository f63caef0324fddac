"""Fitting inductions: backward over every set of asked workers, for all prices of money at once.

From the last worker back to the first: for each set of asked workers a ridge regression says what asking each other
worker is worth beyond shipping now. Its targets are what the fitted policy downstream really brings (Longstaff and
Schwartz 2001), not its estimates, which a maximum would make too hopeful. Invariant: every estimate that decides a
task's fate during fitting comes from folds that the task is not in, so that the curve found on the way is honest
but for the choice of settings. Deliberately absent: which workers to take (`pools`), and what a budget buys (`dial`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.learn.scoring import Penalties, fit_scorer
from shikisha.policy.arrays import Floats, Ints, Lean
from shikisha.policy.batch import Seen, supporter
from shikisha.policy.features import LIGHT, LIGHT_AT_FIRST, Belief, Scales, at_first, of_state
from shikisha.policy.induction import Induction
from shikisha.policy.scorer import Scorer

Asked: TypeAlias = tuple[int, ...]
PRICES = np.geomspace(0.004, 30.0, 32)  # accuracy that one unit of cost must bring
_STILL = 1e-3  # the penalty of the constant


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a fit is held back (ridge), and how much of a label every vote decides (`soft`)."""

    prices: Floats = field(default_factory=lambda: PRICES)
    light: float = 10.0
    heavy: float = 500.0
    soft: float = 0.75
    penalties: Penalties = field(default_factory=Penalties)


@dataclass(frozen=True)
class Ground:
    """What fits on one panel share: folds ([T]), a scorer for each fold (fitted on the others) and one on all."""

    panel: Panel
    folds: Ints
    recipe: Recipe
    scorers: tuple[Scorer, ...]
    scorer: Scorer
    unit: float

    @classmethod
    def of(cls, panel: Panel, folds: Ints, recipe: Recipe | None = None) -> "Ground":
        """Fit the scorers of a panel."""
        held = recipe or Recipe()
        count = int(folds.max()) + 1
        scorers = tuple(fit_scorer(panel.at(folds != fold), held.penalties) for fold in range(count))
        return cls(panel, folds, held, scorers, fit_scorer(panel, held.penalties), panel.unit())

    @cached_property
    def scales(self) -> Scales:
        """What is usual on this panel."""
        return scales_of(self.panel)

    @cached_property
    def by_fold(self) -> tuple[tuple[Ints, Seen], ...]:
        """The rows of each fold, and those tasks when everyone has been asked."""
        whole = self.panel.seen(np.ones(self.panel.codes.shape, bool))
        rows = [np.flatnonzero(self.folds == fold) for fold in range(len(self.scorers))]
        return tuple((own, whole.at(own)) for own in rows)

    @cached_property
    def teacher(self) -> Floats:
        """[T, K]: the probability of each candidate given every vote, by scorers that have not seen the task."""
        return self.belief(tuple(range(len(self.panel.workers)))).answers

    def belief(self, asked: Asked) -> Belief:
        """Return what is believed when these have been asked, by scorers that have not seen the task."""
        count = max(1, int(self.panel.codes.max(initial=0)) + 1)
        answers, none = np.zeros((len(self.panel), count)), np.zeros(len(self.panel))
        for (rows, seen), scorer in zip(self.by_fold, self.scorers, strict=True):
            found, none[rows] = scorer.posterior(seen, asked)
            answers[rows, : found.shape[1]] = found
        return Belief.of((answers, none))


@dataclass(frozen=True, slots=True)
class Fitted:
    """An induction, and what it came to on tasks that were not in the fit: won and cost (units), [T, L]."""

    part: Induction
    won: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What goes on from a set of asked workers, for each price [T, L]: value, score won, and cost to come."""

    value: Lean
    won: Lean
    cost: Lean


def induce(
    ground: Ground, workers: Sequence[int], prices: Floats | None = None, states: "States | None" = None
) -> Fitted:
    """Fit an induction over these workers (places in the panel), at these prices or the recipe's.

    `states` are what several fits on this ground share; without it, each state is looked at anew.
    """
    order, states = tuple(sorted(workers)), states or States(ground)
    held = ground.recipe.prices if prices is None else prices
    gains: dict[Asked, Floats] = {}
    ahead: dict[Asked, _Ahead] = {}
    for size in range(len(order), -1, -1):
        current = {}
        for asked in combinations(order, size):
            state = states.at(asked)
            if size == len(order):
                current[asked] = state.shipped(len(held))
                continue
            others = [worker for worker in order if worker not in asked]
            current[asked], gains[asked] = _step(state, others, ahead, held)
        ahead = current
    start = ahead[()]
    part = Induction(order, ground.scorer, ground.scales, gains)
    return Fitted(part, start.won.astype(np.float64), start.cost.astype(np.float64))


@dataclass(frozen=True, slots=True)
class _State:
    """All tasks when the same workers have been asked: features, what shipping brings, and the same as a soft label."""

    ground: Ground
    asked: Asked
    features: Lean
    ship: Floats
    label: Floats

    @classmethod
    def at(cls, ground: Ground, asked: Asked) -> "_State":
        panel = ground.panel
        if not asked:
            nothing = np.zeros(len(panel))
            return cls(ground, asked, _lean(at_first(_seen(panel, asked), ground.scales)), nothing, nothing)
        seen, belief = _seen(panel, asked), ground.belief(asked)
        shipped = supporter(seen, asked, np.where(belief.best > 0, belief.top, -1))
        rows = np.arange(len(panel))
        ship = np.where(shipped >= 0, panel.won[rows, shipped], 0.0)
        soft = ground.recipe.soft
        taught = ground.teacher[rows, belief.top]
        label = np.where(shipped >= 0, (1 - soft) * ship + soft * taught, 0.0)
        features = _lean(of_state(seen, asked, belief, ground.scales))
        return cls(ground, asked, features, ship, label.astype(np.float32))

    def shipped(self, prices: int) -> _Ahead:
        """Return what shipping now comes to at every price."""
        label, ship = (
            np.repeat(column[:, None].astype(np.float32), prices, axis=1) for column in (self.label, self.ship)
        )
        return _Ahead(label, ship, np.zeros_like(label))


class States:
    """The states of a ground; those in which none but the `shared` workers have been asked are kept once looked at."""

    def __init__(self, ground: Ground) -> None:
        self._ground, self._shared, self._kept = ground, frozenset[int](), dict[Asked, _State]()

    def share(self, workers: Sequence[int]) -> None:
        """Keep the states of these workers from now on, and forget those of others."""
        self._shared = frozenset(workers)
        self._kept = {asked: state for asked, state in self._kept.items() if self._shared.issuperset(asked)}

    def at(self, asked: Asked) -> _State:
        """Return the state in which these have been asked."""
        state = self._kept.get(asked) or _State.at(self._ground, asked)
        if self._shared.issuperset(asked):
            self._kept[asked] = state
        return state


def _step(state: _State, others: Sequence[int], ahead: Mapping[Asked, _Ahead], prices: Floats) -> tuple[_Ahead, Floats]:
    """Return what goes on from here, and the fitted gains [p, n, L]."""
    ground = state.ground
    costs = (ground.panel.paid / ground.unit).astype(np.float32)
    reached = [ahead[tuple(sorted((*state.asked, worker)))] for worker in others]
    targets = np.stack(
        [
            after.value - costs[:, worker, None] * prices.astype(np.float32) - state.label[:, None]
            for after, worker in zip(reached, others, strict=True)
        ],
        axis=1,
    )
    flat = targets.reshape(len(targets), -1)
    fitted, found = _ridge(state.features, flat, _penalty(state), ground.folds)
    worth = found.reshape(targets.shape)
    best = worth.argmax(axis=1)
    asks = worth.max(axis=1) > 0 if state.asked else np.ones(best.shape, bool)
    now = state.shipped(len(prices))
    for place, (after, worker) in enumerate(zip(reached, others, strict=True)):
        rows, columns = np.nonzero(asks & (best == place))
        price = costs[rows, worker]
        now.value[rows, columns] = targets[rows, place, columns] + state.label[rows]
        now.won[rows, columns] = after.won[rows, columns]
        now.cost[rows, columns] = after.cost[rows, columns] + price
    return now, fitted.reshape(-1, len(others), len(prices))


def _penalty(state: _State) -> Floats:
    recipe = state.ground.recipe
    penalty = np.full(state.features.shape[1], recipe.heavy)
    penalty[: LIGHT if state.asked else LIGHT_AT_FIRST] = recipe.light
    penalty[0] = _STILL
    return penalty


def _ridge(features: Lean, targets: Floats, penalty: Floats, folds: Ints) -> tuple[Floats, Floats]:
    """Return ridge coefficients on all rows, and for each row the prediction of the fit without its fold."""
    rows = [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]
    own = [features[held] for held in rows]
    grams = [(each.T @ each).astype(np.float64) for each in own]
    crosses = [(each.T @ targets[held]).astype(np.float64) for each, held in zip(own, rows, strict=True)]
    gram, cross = np.sum(grams, axis=0) + np.diag(penalty), np.sum(crosses, axis=0)
    found = np.empty_like(targets)
    for held, each, less, without in zip(rows, own, grams, crosses, strict=True):
        found[held] = each @ np.linalg.solve(gram - less, cross - without).astype(np.float32)
    return np.asarray(np.linalg.solve(gram, cross), np.float64), found


def _lean(features: Floats) -> Lean:
    return features.astype(np.float32)


def _seen(panel: Panel, asked: Asked) -> Seen:
    mask = np.zeros(panel.codes.shape, bool)
    mask[:, list(asked)] = True
    return panel.seen(mask)


def scales_of(panel: Panel) -> Scales:
    """Return what is usual on a panel: log output tokens by type and worker, and their spread."""
    written = np.log1p(panel.tokens)
    types, kinds = panel.batch.types, len(panel.types.names)
    overall = _mean(written)
    rows = [_mean(written[types == kind], overall) for kind in range(kinds)]
    return Scales(np.array([*rows, overall]), np.sqrt(_mean((written - overall) ** 2)) + 1e-3)


def _mean(values: Floats, otherwise: Floats | None = None) -> Floats:
    """[J]: the mean of what is known in each column."""
    count = (~np.isnan(values)).sum(axis=0)
    spare = np.zeros(values.shape[1]) if otherwise is None else otherwise
    return np.where(count > 0, np.nan_to_num(values).sum(axis=0) / np.maximum(1, count), spare)
