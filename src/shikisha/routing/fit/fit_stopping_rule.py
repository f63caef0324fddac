"""Fitting inductions: backward over every set of asked workers, for all prices of money at once.

From the last worker back to the first: for each set of asked workers a ridge regression says what asking each other
worker is worth beyond shipping now. Its targets are what the fitted policy downstream really brings (Longstaff and
Schwartz 2001), not its estimates, which a maximum would make too hopeful. Invariant: every estimate that decides a
task's fate during fitting comes from folds that the task is not in, so that the curve found on the way is honest
but for the choice of settings. Deliberately absent: which workers to take (`pools`), and what a budget buys (`dial`).

Fitting the answer scorer: a penalised conditional logit, on all answers and on random subsets of them.

A task is seen with every worker's answer and again with random subsets, because that is what the scorer will see when
only some have been asked. Invariant: the fit is the maximum of a concave likelihood less a quadratic penalty, so equal
data give equal scorers. Deliberately absent: calibration by subset (what is built on it, `inducing`, does that).

Which workers an induction gets: the pools that bring most, found by adding and exchanging one worker at a time.

It begins with the best single worker and adds whoever widens the area under accuracy over cost most, on tasks that the
fit has not seen; before a pool is kept, each of its workers is tried against the most promising of the others. Workers
drop out of the search as they turn out to bring little. Invariant: the search sees the training part and nothing else.
Deliberately absent: searching every subset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.routing.arrays import Floats, Floats32, Ints
from shikisha.routing.fit.cost_frontier import BUDGETS, compute_frontier
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import (
    WEAKLY_PENALIZED,
    WEAKLY_PENALIZED_AT_START,
    AnswerBelief,
    DecisionState,
    LengthScales,
    best_supporter,
    initial_features,
    state_features,
)
from shikisha.routing.stopping_rule import AnswerScorer, StoppingRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_NONE_PENALTY, _WORKER_PENALTY, _SOUND_PENALTY = 0.1, 0.01, 1.0  # penalties that merely keep the fit finite
_MAX_LOG_ODDS = 40.0  # log odds beyond which nothing changes


@dataclass(frozen=True, slots=True)
class ScorerPenalties:
    """What is held back (ridge): a worker's weight for one type, what a pair counts besides, and one worker's sound."""

    types: float = 12.0
    pairs: float = 15.0
    sound: float = 30.0
    subsets: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _DesignMatrix:
    """A row for each candidate answer of each task as seen: `matrix` [R, p], `owner` [R] its task, `right` [R].

    `some` [N]: whether a right answer was given; `types` [N]; `weight` of each task as seen.
    """

    matrix: "csr_matrix"
    owner: Ints
    right: Floats
    some: Floats
    types: Ints
    weight: float


def fit_scorer(panel: OutcomeMatrix, penalties: ScorerPenalties | None = None) -> AnswerScorer:
    """Return the scorer of a panel; outcomes without a score count as not right."""
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("learn", "fitting a scorer") from None
    held = penalties or ScorerPenalties()
    kinds, workers = len(panel.types.names), len(panel.workers)
    design = _build_design(panel, held)
    sizes = _parameter_sizes(kinds, workers)
    strengths = (_NONE_PENALTY, _NONE_PENALTY, _WORKER_PENALTY, held.types, held.pairs, _SOUND_PENALTY, held.sound)
    penalty = np.repeat(strengths, sizes)
    start = np.repeat((0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0), sizes)
    across = design.matrix.T.tocsr()
    found = minimize(
        lambda theta: _scorer_loss(theta, design, across, penalty),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 100, "ftol": 1e-7, "maxcor": 10},
    ).x
    return _unpack_scorer(found, kinds, workers)


def answer_correctness(panel: OutcomeMatrix) -> Floats:
    """[T, K]: how right each candidate answer is, the mean score of those who gave it."""
    count = max(1, int(panel.codes.max(initial=0)) + 1)
    total, given = np.zeros((len(panel), count)), np.zeros((len(panel), count))
    for column in range(len(panel.workers)):
        rows = np.flatnonzero((panel.codes[:, column] >= 0) & ~np.isnan(panel.scores[:, column]))
        np.add.at(total, (rows, panel.codes[rows, column]), panel.scores[rows, column])
        np.add.at(given, (rows, panel.codes[rows, column]), 1.0)
    return np.divide(total, given, out=np.zeros_like(total), where=given > 0)


def _parameter_sizes(kinds: int, workers: int) -> tuple[int, ...]:
    """Return how many parameters there are: none, none by type, support, by type, pairs, sound, sound by worker."""
    return 1, kinds, workers, kinds * workers, workers * (workers - 1) // 2, 1, workers


def _build_design(panel: OutcomeMatrix, held: ScorerPenalties) -> _DesignMatrix:
    """Lay out the tasks, seen whole and in random subsets."""
    from scipy.sparse import csr_matrix

    codes, copies = _sample_subsets(panel, held)
    types = np.tile(panel.batch.types, copies)
    right = np.tile(np.greater(answer_correctness(panel), 0.5), (copies, 1))
    tells = None if panel.tells is None else np.tile(panel.tells, (copies, 1))
    base, entries = np.arange(len(codes)) * right.shape[1], _SparseEntries()
    kinds, workers = len(panel.types.names), codes.shape[1]
    by_type, by_pair = workers, workers * (1 + kinds)
    sound = by_pair + workers * (workers - 1) // 2
    pair = by_pair
    for worker in range(workers):
        said = np.flatnonzero(codes[:, worker] >= 0)
        cells = base[said] + codes[said, worker]
        entries.add(cells, worker)
        typed = types[said] >= 0
        entries.add(cells[typed], by_type + types[said][typed] * workers + worker)
        if tells is not None:
            entries.add(cells, sound, tells[said, worker])
            entries.add(cells, sound + 1 + worker, tells[said, worker])
        for other in range(worker):
            both = said[codes[said, worker] == codes[said, other]]
            entries.add(base[both] + codes[both, worker], pair)
            pair += 1
    cells, columns, values = entries.joined()
    given = np.zeros(right.size, bool)
    given[cells] = True
    there, places = np.flatnonzero(given), np.cumsum(given) - 1
    shape = (len(there), sound + 1 + workers)
    matrix = csr_matrix((values, (places[cells], columns)), shape=shape)
    owner = there // right.shape[1]
    hits = right.ravel()[there].astype(float)
    some = np.bincount(owner, hits, len(codes)) > 0
    return _DesignMatrix(matrix, owner, hits, some.astype(float), types, 1 / copies)


def _sample_subsets(panel: OutcomeMatrix, held: ScorerPenalties) -> tuple[Ints, int]:
    """Return the codes of all tasks, whole and with random workers left out, and how many times they are there."""
    random = np.random.default_rng(held.seed)
    seen = [panel.codes]
    for _ in range(held.subsets):
        share = random.uniform(0.1, 0.9, (len(panel), 1))
        seen.append(np.where(random.random(panel.codes.shape) < share, panel.codes, -1))
    return np.concatenate(seen), len(seen)


class _SparseEntries:
    """Collects the entries of a sparse matrix."""

    def __init__(self) -> None:
        self._held: list[tuple[Ints, Ints, Floats]] = []

    def add(self, cells: Ints, column: int | Ints, values: float | Floats = 1.0) -> None:
        size = len(cells)
        self._held.append((cells, np.broadcast_to(column, size), np.broadcast_to(values, size)))

    def joined(self) -> tuple[Ints, Ints, Floats]:
        cells, columns, values = zip(*self._held, strict=True)
        return np.concatenate(cells), np.concatenate(columns), np.concatenate(values).astype(float)


def _scorer_loss(theta: Floats, design: _DesignMatrix, across: "csr_matrix", penalty: Floats) -> tuple[float, Floats]:
    """Return the penalised negative log-likelihood and its gradient."""
    free = len(theta) - design.matrix.shape[1]
    count, types = len(design.types), design.types
    by_type = np.append(theta[0] + theta[1:free], theta[0])
    nothing = np.exp(by_type[types])
    worth = np.exp(np.clip(design.matrix @ theta[free:], -_MAX_LOG_ODDS, _MAX_LOG_ODDS))
    total = nothing + np.bincount(design.owner, worth, count)
    hit = np.where(design.some > 0, np.bincount(design.owner, worth * design.right, count), nothing)
    loss = -np.log(hit / total).sum() * design.weight
    owner = design.owner
    target = np.where(design.some[owner] > 0, worth * design.right / hit[owner], 0.0)
    slope = (worth / total[owner] - target) * design.weight
    missed = (nothing / total - (design.some == 0)) * design.weight
    none = np.bincount(types % free, missed, free)
    gradient = np.concatenate([[none.sum()], none[: free - 1], across @ slope])
    return float(loss + 0.5 * (penalty * theta**2).sum()), gradient + penalty * theta


def _unpack_scorer(theta: Floats, kinds: int, workers: int) -> AnswerScorer:
    ends = np.cumsum(_parameter_sizes(kinds, workers))[:-1]
    overall, none, weights, own, pairs, sound, by_worker = np.split(theta, ends)
    table = np.zeros((workers, workers))
    table[np.tril_indices(workers, -1)] = pairs
    support = np.vstack([weights + own.reshape(kinds, workers), weights])
    return AnswerScorer(np.append(overall + none, overall), support, table + table.T, sound + by_worker)


AskedWorkers: TypeAlias = tuple[int, ...]
PRICES = np.geomspace(0.004, 30.0, 32)  # accuracy that one unit of cost must bring
_CONSTANT_PENALTY = 1e-3  # the penalty of the constant


@dataclass(frozen=True, slots=True)
class StoppingConfig:
    """How a fit is held back (ridge), and how much of a label every vote decides (`soft`)."""

    prices: Floats = field(default_factory=lambda: PRICES)
    light: float = 10.0
    heavy: float = 500.0
    soft: float = 0.75
    penalties: ScorerPenalties = field(default_factory=ScorerPenalties)


@dataclass(frozen=True)
class StoppingData:
    """What fits on one panel share: folds ([T]), a scorer for each fold (fitted on the others) and one on all."""

    panel: OutcomeMatrix
    folds: Ints
    recipe: StoppingConfig
    scorers: tuple[AnswerScorer, ...]
    scorer: AnswerScorer
    unit: float

    @classmethod
    def of(cls, panel: OutcomeMatrix, folds: Ints, recipe: StoppingConfig | None = None) -> "StoppingData":
        """Fit the scorers of a panel."""
        held = recipe or StoppingConfig()
        count = int(folds.max()) + 1
        scorers = tuple(fit_scorer(panel.at(folds != fold), held.penalties) for fold in range(count))
        return cls(panel, folds, held, scorers, fit_scorer(panel, held.penalties), panel.cost_unit())

    @cached_property
    def scales(self) -> LengthScales:
        """What is usual on this panel."""
        return fit_length_scales(self.panel)

    @cached_property
    def by_fold(self) -> tuple[tuple[Ints, DecisionState], ...]:
        """The rows of each fold, and those tasks when everyone has been asked."""
        whole = self.panel.state_after(np.ones(self.panel.codes.shape, bool))
        rows = [np.flatnonzero(self.folds == fold) for fold in range(len(self.scorers))]
        return tuple((own, whole.at(own)) for own in rows)

    @cached_property
    def teacher(self) -> Floats:
        """[T, K]: the probability of each candidate given every vote, by scorers that have not seen the task."""
        return self.belief(tuple(range(len(self.panel.workers)))).answers

    def belief(self, asked: AskedWorkers) -> AnswerBelief:
        """Return what is believed when these have been asked, by scorers that have not seen the task."""
        count = max(1, int(self.panel.codes.max(initial=0)) + 1)
        answers, none = np.zeros((len(self.panel), count)), np.zeros(len(self.panel))
        for (rows, seen), scorer in zip(self.by_fold, self.scorers, strict=True):
            found, none[rows] = scorer.posterior(seen, asked)
            answers[rows, : found.shape[1]] = found
        return AnswerBelief.of((answers, none))


@dataclass(frozen=True, slots=True)
class FittedStopping:
    """An induction, and what it came to on tasks that were not in the fit: won and cost (units), [T, L]."""

    part: StoppingRule
    won: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class _Continuation:
    """What goes on from a set of asked workers, for each price [T, L]: value, score won, and cost to come."""

    value: Floats32
    won: Floats32
    cost: Floats32


def fit_stopping(
    ground: StoppingData, workers: Sequence[int], prices: Floats | None = None, states: "StateCache | None" = None
) -> FittedStopping:
    """Fit an induction over these workers (places in the panel), at these prices or the recipe's.

    `states` are what several fits on this ground share; without it, each state is looked at anew.
    """
    order, states = tuple(sorted(workers)), states or StateCache(ground)
    held = ground.recipe.prices if prices is None else prices
    gains: dict[AskedWorkers, Floats] = {}
    ahead: dict[AskedWorkers, _Continuation] = {}
    for size in range(len(order), -1, -1):
        current = {}
        for asked in combinations(order, size):
            state = states.at(asked)
            if size == len(order):
                current[asked] = state.shipped(len(held))
                continue
            others = [worker for worker in order if worker not in asked]
            current[asked], gains[asked] = _fit_step(state, others, ahead, held)
        ahead = current
    start = ahead[()]
    part = StoppingRule(order, ground.scorer, ground.scales, gains)
    return FittedStopping(part, start.won.astype(np.float64), start.cost.astype(np.float64))


@dataclass(frozen=True, slots=True)
class _StoppingState:
    """All tasks when the same workers have been asked: features, what shipping brings, and the same as a soft label."""

    ground: StoppingData
    asked: AskedWorkers
    features: Floats32
    ship: Floats
    label: Floats

    @classmethod
    def at(cls, ground: StoppingData, asked: AskedWorkers) -> "_StoppingState":
        panel = ground.panel
        if not asked:
            nothing = np.zeros(len(panel))
            return cls(
                ground,
                asked,
                _to_float32(initial_features(_state_after(panel, asked), ground.scales)),
                nothing,
                nothing,
            )
        seen, belief = _state_after(panel, asked), ground.belief(asked)
        shipped = best_supporter(seen, asked, np.where(belief.best > 0, belief.top, -1))
        rows = np.arange(len(panel))
        ship = np.where(shipped >= 0, panel.won[rows, shipped], 0.0)
        soft = ground.recipe.soft
        taught = ground.teacher[rows, belief.top]
        label = np.where(shipped >= 0, (1 - soft) * ship + soft * taught, 0.0)
        features = _to_float32(state_features(seen, asked, belief, ground.scales))
        return cls(ground, asked, features, ship, label.astype(np.float32))

    def shipped(self, prices: int) -> _Continuation:
        """Return what shipping now comes to at every price."""
        label, ship = (
            np.repeat(column[:, None].astype(np.float32), prices, axis=1) for column in (self.label, self.ship)
        )
        return _Continuation(label, ship, np.zeros_like(label))


class StateCache:
    """The states of a ground; those in which none but the `shared` workers have been asked are kept once looked at."""

    def __init__(self, ground: StoppingData) -> None:
        self._ground, self._shared, self._kept = ground, frozenset[int](), dict[AskedWorkers, _StoppingState]()

    def share(self, workers: Sequence[int]) -> None:
        """Keep the states of these workers from now on, and forget those of others."""
        self._shared = frozenset(workers)
        self._kept = {asked: state for asked, state in self._kept.items() if self._shared.issuperset(asked)}

    def at(self, asked: AskedWorkers) -> _StoppingState:
        """Return the state in which these have been asked."""
        state = self._kept.get(asked) or _StoppingState.at(self._ground, asked)
        if self._shared.issuperset(asked):
            self._kept[asked] = state
        return state


def _fit_step(
    state: _StoppingState, others: Sequence[int], ahead: Mapping[AskedWorkers, _Continuation], prices: Floats
) -> tuple[_Continuation, Floats]:
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
    fitted, found = _cross_fit_ridge(state.features, flat, _feature_penalties(state), ground.folds)
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


def _feature_penalties(state: _StoppingState) -> Floats:
    recipe = state.ground.recipe
    penalty = np.full(state.features.shape[1], recipe.heavy)
    penalty[: WEAKLY_PENALIZED if state.asked else WEAKLY_PENALIZED_AT_START] = recipe.light
    penalty[0] = _CONSTANT_PENALTY
    return penalty


def _cross_fit_ridge(features: Floats32, targets: Floats, penalty: Floats, folds: Ints) -> tuple[Floats, Floats]:
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


def _to_float32(features: Floats) -> Floats32:
    return features.astype(np.float32)


def _state_after(panel: OutcomeMatrix, asked: AskedWorkers) -> DecisionState:
    mask = np.zeros(panel.codes.shape, bool)
    mask[:, list(asked)] = True
    return panel.state_after(mask)


def fit_length_scales(panel: OutcomeMatrix) -> LengthScales:
    """Return what is usual on a panel: log output tokens by type and worker, and their spread."""
    written = np.log1p(panel.tokens)
    types, kinds = panel.batch.types, len(panel.types.names)
    overall = _column_means(written)
    rows = [_column_means(written[types == kind], overall) for kind in range(kinds)]
    return LengthScales(np.array([*rows, overall]), np.sqrt(_column_means((written - overall) ** 2)) + 1e-3)


def _column_means(values: Floats, otherwise: Floats | None = None) -> Floats:
    """[J]: the mean of what is known in each column."""
    count = (~np.isnan(values)).sum(axis=0)
    spare = np.zeros(values.shape[1]) if otherwise is None else otherwise
    return np.where(count > 0, np.nan_to_num(values).sum(axis=0) / np.maximum(1, count), spare)


MIN_POOL, MAX_POOL = 4, 6  # workers in the smallest and largest pool that is kept
_SEARCH_PRICES = np.geomspace(0.01, 4.0, 8)  # prices while searching
_SHORTLIST = 7  # candidates that are looked at once pools grow dear to fit
_MIN_AREA_GAIN = 1e-4  # of area, which an exchange must bring


class _PoolSearch:
    """Areas of pools, each fitted once; what pools that are compared have in common is looked at once."""

    def __init__(self, ground: StoppingData) -> None:
        self._ground, self._states, self._known = ground, StateCache(ground), dict[tuple[int, ...], float]()

    def worth(self, pool: Sequence[int]) -> float:
        key = tuple(sorted(pool))
        if key not in self._known:
            self._known[key] = area_under_frontier(fit_stopping(self._ground, key, _SEARCH_PRICES, self._states))
        return self._known[key]

    def grown(self, pool: list[int], rest: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the pool with one worker more, and the others from the most promising."""
        self._states.share(pool)
        ranked = sorted(rest, key=lambda worker: -self.worth([*pool, worker]))
        return [*pool, ranked[0]], ranked[1:]

    def exchanged(self, pool: list[int], rest: Sequence[int]) -> list[int]:
        """Return the pool after one worker after another was exchanged for a better one."""
        for place in range(len(pool)):
            others = [worker for worker in rest if worker not in pool]
            self._states.share([*pool[:place], *pool[place + 1 :]])
            tried = [[*pool[:place], worker, *pool[place + 1 :]] for worker in others]
            best = max(tried, key=self.worth, default=pool)
            if self.worth(best) > self.worth(pool) + _MIN_AREA_GAIN:
                pool = best
        return pool


def search_pools(ground: StoppingData) -> tuple[tuple[int, ...], ...]:
    """Return the pools to fit, each with one worker more; one pool of all where there are few workers."""
    everyone = _rank_by_skill(ground.panel)
    if len(everyone) <= MIN_POOL:
        return (tuple(sorted(everyone)),)
    search, found = _PoolSearch(ground), []
    pool, rest = everyone[:1], everyone[1:]
    while rest and len(pool) < MAX_POOL:
        pool, rest = search.grown(pool, rest)
        if len(pool) >= MIN_POOL:
            rest = rest[:_SHORTLIST]
        if len(pool) == MIN_POOL:
            before = pool
            pool = search.exchanged(pool, rest)
            rest = [worker for worker in (*rest, *before) if worker not in pool]
        if len(pool) >= MIN_POOL:
            found.append(tuple(sorted(pool)))
    return tuple(found)


def area_under_frontier(fitted: FittedStopping) -> float:
    """Return the area under what a fit came to on tasks that it has not seen."""
    points = [
        OperatingPoint(0, setting, float(cost), float(won))
        for setting, (cost, won) in enumerate(zip(fitted.cost.mean(axis=0), fitted.won.mean(axis=0), strict=True))
    ]
    dial = TradeOff(upper_hull(points), 1.0, 0.0)
    places: Sequence[tuple[int, int]] = [(0, setting) for setting in range(fitted.won.shape[1])]
    mean_won, mean_cost = fitted.won.mean(axis=0)[None], fitted.cost.mean(axis=0)[None]
    return compute_frontier(dial, mean_won, mean_cost, places, BUDGETS).area


def _rank_by_skill(panel: OutcomeMatrix) -> list[int]:
    return [int(worker) for worker in np.argsort(-panel.mean_scores(), kind="stable")]
