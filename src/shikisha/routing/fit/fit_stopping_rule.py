"""Fitting the stopping rule: backward induction over all sets of asked workers, at all prices at once.

For each set of asked workers, a ridge regression estimates what asking each other worker is worth beyond shipping now.
Its targets are what the fitted policy downstream really earns (Longstaff and Schwartz 2001), not its estimates, whose
maximum would be too optimistic. The answer scorer is a penalized conditional logit on all answers and on
random subsets of them, as it will see partial states. Invariants: every estimate that decides a task's fate during
fitting comes from folds that exclude the task; the likelihood is concave, so equal data give equal scorers; the pool
search sees training tasks only.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.routing.arrays import Flags, Floats, Floats32, Ints
from shikisha.routing.boosted_scorer import LOGIT_COLUMN, BoostedTrees, boosted_posterior, candidate_features
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, scores_by_answer
from shikisha.routing.state import (
    NOT_ASKED,
    SHIP,
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

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.ensemble import HistGradientBoostingClassifier

# Fitting the boosted scorer on complete answers and on random subsets of them, as it will see partial states.
#
# Invariants: what it thinks of a task comes from trees and from a conditional logit that were fitted without the task's
# fold; outcomes without a score teach nothing; equal data give equal trees.

# The posterior by fits that exclude the task, in states of these tasks [N]; these workers' answers count.
PosteriorOutsideFolds = Callable[[DecisionState, Ints, Sequence[int]], tuple[Floats, Floats]]
# States that are read at once, to bound memory.
_CHUNK = 4_096
# With fewer tasks there is nothing to boost.
MIN_BOOSTED_TASKS = 200
# Trees are fitted without each of so many groups of folds.
_GROUPS = 3
# Trees must lower the log-loss on the first group by this many standard errors.
_MIN_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class BoostingConfig:
    """Size and shrinkage of the trees, and on how many random subsets of a task's answers they are fitted."""

    trees: int = 100
    rate: float = 0.1
    leaves: int = 12
    smallest_leaf: int = 30
    ridge: float = 5.0
    columns: float = 0.3
    subsets: int = 3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FittedBoost:
    """Trees of all tasks, their log odds of features, and for each fold those of trees without it."""

    trees: BoostedTrees
    as_fitted: Callable[[Floats], Floats]
    by_fold: tuple[Callable[[Floats], Floats], ...]


def fit_boosted_scorer(
    matrix: OutcomeMatrix,
    folds: Ints,
    pool: Sequence[int],
    posterior: PosteriorOutsideFolds,
    config: BoostingConfig | None = None,
) -> FittedBoost | None:
    """Fit trees on the states that asking workers of `pool` leads to.

    None where there is too little to read, or where trees without the first group of folds ([T]) predict its answers
    no better than the conditional logit.
    """
    settings = config or BoostingConfig()
    if matrix.evidence is None or len(matrix) < MIN_BOOSTED_TASKS:
        return None
    rows, features, labels = _training_rows(matrix, tuple(pool), posterior, settings)
    groups = np.arange(int(folds.max()) + 1) % _GROUPS
    own = groups[folds[rows]]
    by_group = []
    for group in np.unique(groups).tolist():
        part = own != group
        if labels[part].all() or not labels[part].any():
            return None
        by_group.append(fit_trees(features[part], labels[part], settings).decision_function)
        if not group and not trees_gain(by_group[0](features[~part]), features[~part], labels[~part], rows[~part]):
            return None
    whole = fit_trees(features, labels, settings)
    return FittedBoost(trees_as_arrays(whole), whole.decision_function, tuple(by_group[group] for group in groups))


def trees_gain(log_odds: Floats, features: Floats, labels: Flags, tasks: Ints) -> bool:
    """Return whether trees have a lower log-loss than the conditional logit, whose log odds are a feature."""
    losses = [np.logaddexp(0.0, np.where(labels, -odds, odds)) for odds in (log_odds, features[:, LOGIT_COLUMN])]
    _, places = np.unique(tasks, return_inverse=True)
    by_task = np.bincount(places, losses[1] - losses[0]) / np.bincount(places)
    error = float(by_task.std()) / np.sqrt(max(1, len(by_task)))
    return bool(by_task.mean() > _MIN_STANDARD_ERRORS * error)


def _training_rows(
    matrix: OutcomeMatrix, pool: tuple[int, ...], posterior: PosteriorOutsideFolds, config: BoostingConfig
) -> tuple[Ints, Floats, Flags]:
    """Return the task, the features and the label of each candidate of each state that is fitted on."""
    complete = matrix.state_after(np.ones(matrix.codes.shape, bool))
    right = scores_by_answer(matrix, matrix.graded)
    found = []
    for workers, tasks, asked in _sample_states(matrix, pool, config):
        for first in range(0, len(tasks), _CHUNK):
            part = slice(first, first + _CHUNK)
            state = complete.at(tasks[part])
            state = replace(state, codes=np.where(asked[part], state.codes, NOT_ASKED))
            (own, codes), features = candidate_features(state, workers, posterior(state, tasks[part], workers))
            labels = right[tasks[part][own], codes]
            known = ~np.isnan(labels)
            found.append((tasks[part][own][known], features[known], labels[known] > 0.5))
    rows, table, hits = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(table), np.concatenate(hits)


def _sample_states(
    matrix: OutcomeMatrix, pool: tuple[int, ...], config: BoostingConfig
) -> list[tuple[tuple[int, ...], Ints, Flags]]:
    """Return workers, tasks [N], and who was asked [N, J]: all workers, the whole pool, and random subsets of it."""
    everybody, order, tasks = tuple(range(len(matrix.workers))), np.array(sorted(pool)), np.arange(len(matrix))
    states = [(everybody, tasks, np.ones((len(tasks), len(everybody)), bool))]
    if len(pool) < len(everybody):
        states.append(
            (tuple(order.tolist()), tasks, np.isin(np.arange(len(everybody)), order)[None].repeat(len(tasks), 0))
        )
    random = np.random.default_rng(config.seed)
    for _ in range(config.subsets):
        sizes = random.integers(1, max(2, len(order)), len(tasks))
        ranks = random.random((len(tasks), len(order))).argsort(axis=1).argsort(axis=1)
        asked = np.zeros((len(tasks), len(everybody)), bool)
        asked[:, order] = ranks < sizes[:, None]
        states.append((tuple(order.tolist()), tasks, asked))
    return states


def fit_trees(features: Floats, labels: Flags, config: BoostingConfig) -> "HistGradientBoostingClassifier":
    """Return trees that are fitted to these rows."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError:
        raise MissingExtra("learn", "fitting a boosted scorer") from None
    trees = HistGradientBoostingClassifier(
        learning_rate=config.rate,
        max_iter=config.trees,
        max_leaf_nodes=config.leaves,
        min_samples_leaf=config.smallest_leaf,
        l2_regularization=config.ridge,
        max_features=config.columns,
        early_stopping=False,
        random_state=config.seed,
    )
    return trees.fit(features, labels)


def trees_as_arrays(fitted: "HistGradientBoostingClassifier") -> BoostedTrees:
    """Return fitted trees as arrays; smaller trees are padded with leaves that nothing leads to."""
    trees = [predictor.nodes for (predictor,) in fitted._predictors]
    shape = (len(trees), max(len(nodes) for nodes in trees))
    feature, threshold, value = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
    left = np.tile(np.arange(shape[1]), (shape[0], 1))
    right = left.copy()
    for row, nodes in enumerate(trees):
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        feature[row, inner], threshold[row, inner] = nodes["feature_idx"][inner], nodes["num_threshold"][inner]
        left[row, inner], right[row, inner] = nodes["left"][inner], nodes["right"][inner]
        value[row, : len(nodes)] = nodes["value"]
    start = float(np.ravel(fitted._baseline_prediction)[0])
    return BoostedTrees(feature, threshold, left, right, value, start)


# These penalties merely keep the fit finite.
_NONE_PENALTY, _WORKER_PENALTY = 0.1, 0.01
# Beyond these log odds probabilities no longer change, and exp would overflow.
_MAX_LOG_ODDS = 40.0
AskedWorkers: TypeAlias = tuple[int, ...]
# Prices: the accuracy that one unit of cost must bring.
PRICES = np.geomspace(0.004, 30.0, 32)
# The constant is hardly penalized.
_CONSTANT_PENALTY = 1e-3


@dataclass(frozen=True, slots=True)
class ScorerPenalties:
    """Ridge penalties: of a worker's weight for one type, and of pairs."""

    types: float = 12.0
    pairs: float = 15.0
    subsets: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _DesignMatrix:
    """One row per candidate answer of each partial state: `matrix` [R, p], `owner` [R] its state, `right` [R].

    `some` [N]: whether a right answer was given; `types` [N]; `weight` of each state.
    """

    entries_matrix: "csr_matrix"
    owner: Ints
    right: Floats
    some: Floats
    types: Ints
    weight: float

    def without(self, tasks: Flags) -> "_DesignMatrix":
        """Return the rows of the states of all tasks but these ([T])."""
        kept = ~np.tile(tasks, len(self.types) // len(tasks))
        rows = np.flatnonzero(kept[self.owner])
        owner = (np.cumsum(kept) - 1)[self.owner[rows]]
        return _DesignMatrix(
            self.entries_matrix[rows], owner, self.right[rows], self.some[kept], self.types[kept], self.weight
        )


def fit_scorers(
    matrix: OutcomeMatrix, folds: Ints, penalties: ScorerPenalties | None = None
) -> tuple[AnswerScorer, tuple[AnswerScorer, ...]]:
    """Return the scorer of all tasks, and for each fold ([T]) the scorer of the others, all from one design."""
    settings = penalties or ScorerPenalties()
    whole = _build_design(matrix, settings)
    by_fold = [_fit_design(whole.without(folds == fold), matrix, settings) for fold in range(int(folds.max()) + 1)]
    return _fit_design(whole, matrix, settings), tuple(by_fold)


def _fit_design(design: _DesignMatrix, matrix: OutcomeMatrix, settings: ScorerPenalties) -> AnswerScorer:
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("learn", "fitting a scorer") from None
    kinds, workers = len(matrix.types.names), len(matrix.workers)
    sizes = _parameter_sizes(kinds, workers)
    strengths = (_NONE_PENALTY, _NONE_PENALTY, _WORKER_PENALTY, settings.types, settings.pairs)
    penalty = np.repeat(strengths, sizes)
    start = np.repeat((0.0, 0.0, 1.0, 0.0, 0.0), sizes)
    across = design.entries_matrix.T.tocsr()
    solution = minimize(
        lambda theta: _scorer_loss(theta, design, across, penalty),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 100, "ftol": 1e-7, "maxcor": 10},
    ).x
    ends = np.cumsum(_parameter_sizes(kinds, workers))[:-1]
    overall, none, weights, own, pairs = np.split(solution, ends)
    table = np.zeros((workers, workers))
    table[np.tril_indices(workers, -1)] = pairs
    support = np.vstack([weights + own.reshape(kinds, workers), weights])
    return AnswerScorer(np.append(overall + none, overall), support, table + table.T)


def _parameter_sizes(kinds: int, workers: int) -> tuple[int, ...]:
    """Return the number of parameters: none, none by type, support, by type, pairs."""
    return 1, kinds, workers, kinds * workers, workers * (workers - 1) // 2


def _build_design(matrix: OutcomeMatrix, settings: ScorerPenalties) -> _DesignMatrix:
    """Lay out all tasks, complete and as random subsets."""
    from scipy.sparse import csr_matrix

    # The codes of all tasks, complete and with random workers left out, and the number of copies.
    random = np.random.default_rng(settings.seed)
    states = [matrix.codes]
    for _ in range(settings.subsets):
        share = random.uniform(0.1, 0.9, (len(matrix), 1))
        states.append(np.where(random.random(matrix.codes.shape) < share, matrix.codes, -1))
    codes, copies = np.concatenate(states), len(states)
    types = np.tile(matrix.batch.types, copies)
    right = np.tile(np.greater(np.nan_to_num(scores_by_answer(matrix)), 0.5), (copies, 1))
    base, entries = np.arange(len(codes)) * right.shape[1], _SparseEntries()
    kinds, workers = len(matrix.types.names), codes.shape[1]
    by_type, by_pair = workers, workers * (1 + kinds)
    pair = by_pair
    for worker in range(workers):
        answered = np.flatnonzero(codes[:, worker] >= 0)
        cells = base[answered] + codes[answered, worker]
        entries.add(cells, worker)
        typed = types[answered] >= 0
        entries.add(cells[typed], by_type + types[answered][typed] * workers + worker)
        for other in range(worker):
            both = answered[codes[answered, worker] == codes[answered, other]]
            entries.add(base[both] + codes[both, worker], pair)
            pair += 1
    cells, columns, values = entries.joined()
    given = np.zeros(right.size, bool)
    given[cells] = True
    there, places = np.flatnonzero(given), np.cumsum(given) - 1
    shape = (len(there), by_pair + workers * (workers - 1) // 2)
    entries_matrix = csr_matrix((values, (places[cells], columns)), shape=shape)
    owner = there // right.shape[1]
    hits = right.ravel()[there].astype(float)
    some = np.bincount(owner, hits, len(codes)) > 0
    return _DesignMatrix(entries_matrix, owner, hits, some.astype(float), types, 1 / copies)


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
    """Return the penalized negative log-likelihood and its gradient."""
    free = len(theta) - design.entries_matrix.shape[1]
    count, types = len(design.types), design.types
    by_type = np.append(theta[0] + theta[1:free], theta[0])
    nothing = np.exp(by_type[types])
    worth = np.exp(np.clip(design.entries_matrix @ theta[free:], -_MAX_LOG_ODDS, _MAX_LOG_ODDS))
    total = nothing + np.bincount(design.owner, worth, count)
    correct_mass = np.where(design.some > 0, np.bincount(design.owner, worth * design.right, count), nothing)
    loss = -np.log(correct_mass / total).sum() * design.weight
    owner = design.owner
    target = np.where(design.some[owner] > 0, worth * design.right / correct_mass[owner], 0.0)
    slope = (worth / total[owner] - target) * design.weight
    missed = (nothing / total - (design.some == 0)) * design.weight
    none = np.bincount(types % free, missed, free)
    gradient = np.concatenate([[none.sum()], none[: free - 1], across @ slope])
    return float(loss + 0.5 * (penalty * theta**2).sum()), gradient + penalty * theta


@dataclass(frozen=True, slots=True)
class StoppingConfig:
    """Ridge penalties of a fit, and the share of a label that the votes of all workers decide (`soft`).

    Without `boosting` no trees are fitted that read the candidate answers.
    """

    prices: Floats = field(default_factory=lambda: PRICES)
    light: float = 10.0
    heavy: float = 500.0
    soft: float = 0.75
    penalties: ScorerPenalties = field(default_factory=ScorerPenalties)
    boosting: BoostingConfig | None = field(default_factory=BoostingConfig)


@dataclass(frozen=True)
class StoppingData:
    """What fits on one matrix share: folds ([T]), a scorer per fold (fitted on the others) and one on all tasks."""

    matrix: OutcomeMatrix
    folds: Ints
    config: StoppingConfig
    scorers: tuple[AnswerScorer, ...]
    scorer: AnswerScorer
    unit: float
    boost: FittedBoost | None = None

    @classmethod
    def of(cls, matrix: OutcomeMatrix, folds: Ints, config: StoppingConfig | None = None) -> "StoppingData":
        """Fit the scorers of a matrix."""
        settings = config or StoppingConfig()
        scorer, by_fold = fit_scorers(matrix, folds, settings.penalties)
        return cls(matrix, folds, settings, by_fold, scorer, matrix.cost_unit())

    @cached_property
    def scales(self) -> LengthScales:
        """The scales of output lengths."""
        return fit_length_scales(self.matrix)

    @cached_property
    def by_fold(self) -> tuple[tuple[Ints, DecisionState], ...]:
        """The rows of each fold, and those tasks with all workers asked."""
        rows = [np.flatnonzero(self.folds == fold) for fold in range(len(self.scorers))]
        return tuple((fold_rows, self.complete.at(fold_rows)) for fold_rows in rows)

    @cached_property
    def complete(self) -> DecisionState:
        """All tasks with all workers asked."""
        return self.matrix.state_after(np.ones(self.matrix.codes.shape, bool))

    @cached_property
    def teacher(self) -> Floats:
        """[T, K]: the probability of each candidate given all votes, by scorers that exclude the task."""
        return self.belief(tuple(range(len(self.matrix.workers)))).answers

    def belief(self, asked: AskedWorkers, *, as_fitted: bool = False) -> AnswerBelief:
        """Return the belief after these were asked, by scorers and trees that exclude the task.

        `as_fitted`: by those of all tasks, which the file holds. Where states are few, others would put all tasks of a
        state on the other side of a decision, and costs would be another rule's.
        """
        posterior = self.posterior(asked)
        if as_fitted:
            answers, none = self.scorer.posterior(self.complete, asked)
            posterior = np.pad(answers, ((0, 0), (0, posterior[0].shape[1] - answers.shape[1]))), none
        if self.boost is None:
            return AnswerBelief.of(posterior)
        (tasks, codes), features = candidate_features(self.complete, asked, posterior)
        log_odds, folds = np.zeros(len(tasks)), self.folds[tasks]
        if as_fitted and len(tasks):
            log_odds = self.boost.as_fitted(features)
        for fold, trees in enumerate(() if as_fitted else self.boost.by_fold):
            if (rows := np.flatnonzero(folds == fold)).size:
                log_odds[rows] = trees(features[rows])
        return AnswerBelief.of(boosted_posterior(log_odds, (tasks, codes), posterior))

    def posterior(self, asked: AskedWorkers) -> tuple[Floats, Floats]:
        """Return ([T, K], [T]): how probable each candidate and none is, by conditional logits without the task."""
        count = max(1, int(self.matrix.codes.max(initial=0)) + 1)
        answers, none = np.zeros((len(self.matrix), count)), np.zeros(len(self.matrix))
        for (rows, seen), scorer in zip(self.by_fold, self.scorers, strict=True):
            probabilities, none[rows] = scorer.posterior(seen, asked)
            answers[rows, : probabilities.shape[1]] = probabilities
        return answers, none

    def posterior_of(self, state: DecisionState, tasks: Ints, workers: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the same for any states of these tasks ([N]), who may differ in whom they asked of these workers."""
        count = max(1, int(self.matrix.codes.max(initial=0)) + 1)
        answers, none = np.zeros((len(tasks), count)), np.zeros(len(tasks))
        for fold, scorer in enumerate(self.scorers):
            rows = np.flatnonzero(self.folds[tasks] == fold)
            probabilities, none[rows] = scorer.posterior(state.at(rows), workers)
            answers[rows, : probabilities.shape[1]] = probabilities
        return answers, none

    def boosted(self, pool: Sequence[int]) -> "StoppingData":
        """Return the data with trees that read the candidate answers, where they are shown to gain on one fold."""
        if self.config.boosting is None:
            return self
        boost = fit_boosted_scorer(self.matrix, self.folds, pool, self.posterior_of, self.config.boosting)
        return self if boost is None else replace(self, boost=boost)


@dataclass(frozen=True, slots=True)
class FittedStopping:
    """A stopping rule, and its results on tasks outside the fit: won and cost (units), [T, L].

    `spent` [L] is the mean cost of the rule itself, which is fitted on all tasks.
    """

    part: StoppingRule
    won: Floats
    cost: Floats
    spent: Floats


@dataclass(frozen=True, slots=True)
class _Continuation:
    """The continuation from a set of asked workers at each price [T, L]: value, score won, and cost to come.

    `spent` is the cost to come by the rule that is fitted on all tasks; the others are by rules without the task.
    """

    value: Floats32
    won: Floats32
    cost: Floats32
    spent: Floats32


def fit_stopping(data: StoppingData, workers: Sequence[int]) -> FittedStopping:
    """Fit a stopping rule over these workers (indices)."""
    order, price_grid = tuple(sorted(workers)), data.config.prices
    gains: dict[AskedWorkers, Floats] = {}
    ahead: dict[AskedWorkers, _Continuation] = {}
    for size in range(len(order), -1, -1):
        current = {}
        for asked in combinations(order, size):
            state = _StoppingState.at(data, asked)
            if size == len(order):
                current[asked] = state.shipped(len(price_grid))
                continue
            others = [worker for worker in order if worker not in asked]
            current[asked], gains[asked] = _fit_step(state, others, ahead, price_grid)
        ahead = current
    start = ahead[()]
    rule = StoppingRule(order, data.scorer, data.scales, gains, None if data.boost is None else data.boost.trees)
    won, cost = (table.astype(np.float64) for table in (start.won, start.cost))
    return FittedStopping(rule, won, cost, start.spent.mean(axis=0, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class _StoppingState:
    """All tasks after the same workers were asked: features, score of shipping now, and the same as a soft label.

    `as_fitted` are the features that the rule in the file would see.
    """

    data: StoppingData
    asked: AskedWorkers
    features: Floats32
    as_fitted: Floats32
    ship: Floats
    label: Floats

    @classmethod
    def at(cls, data: StoppingData, asked: AskedWorkers) -> "_StoppingState":
        matrix = data.matrix
        if not asked:
            nothing, first = np.zeros(len(matrix)), initial_features(_state_after(matrix, asked), data.scales)
            return cls(data, asked, _to_float32(first), _to_float32(first), nothing, nothing)
        seen, belief = _state_after(matrix, asked), data.belief(asked)
        shipped = best_supporter(seen, asked, np.where(belief.best > 0, belief.top, -1))
        rows = np.arange(len(matrix))
        ship = np.where(shipped >= 0, matrix.won[rows, shipped], 0.0)
        soft = data.config.soft
        by_votes = data.teacher[rows, belief.top]
        label = np.where(shipped >= 0, (1 - soft) * matrix.won[rows, shipped] + soft * by_votes, 0.0)
        features = _to_float32(state_features(seen, asked, belief, data.scales))
        own = _to_float32(state_features(seen, asked, data.belief(asked, as_fitted=True), data.scales))
        return cls(data, asked, features, own, ship, label.astype(np.float32))

    def shipped(self, prices: int) -> _Continuation:
        """Return the continuation of shipping now, at every price."""
        label, ship = (
            np.repeat(column[:, None].astype(np.float32), prices, axis=1) for column in (self.label, self.ship)
        )
        return _Continuation(label, ship, np.zeros_like(label), np.zeros_like(label))


def _fit_step(
    state: _StoppingState, others: Sequence[int], ahead: Mapping[AskedWorkers, _Continuation], prices: Floats
) -> tuple[_Continuation, Floats]:
    """Return the continuation from this state, and the fitted gains [p, n, L]."""
    data = state.data
    costs = (data.matrix.paid / data.unit).astype(np.float32)
    next_states = [ahead[tuple(sorted((*state.asked, worker)))] for worker in others]
    targets = np.stack(
        [
            next_state.value - costs[:, worker, None] * prices.astype(np.float32) - state.label[:, None]
            for next_state, worker in zip(next_states, others, strict=True)
        ],
        axis=1,
    )
    flat = targets.reshape(len(targets), -1)
    config = state.data.config
    penalty = np.full(state.features.shape[1], config.heavy)
    penalty[: WEAKLY_PENALIZED if state.asked else WEAKLY_PENALIZED_AT_START] = config.light
    penalty[0] = _CONSTANT_PENALTY
    fitted, predictions = _cross_fit_ridge(state.features, flat, penalty, data.folds)
    continuation = state.shipped(len(prices))
    own: Floats32 = (state.as_fitted @ fitted.astype(np.float32)).reshape(targets.shape)
    choice = _best_ask(predictions.reshape(targets.shape), bool(state.asked))
    own_choice = _best_ask(own, bool(state.asked))
    for index, (next_state, worker) in enumerate(zip(next_states, others, strict=True)):
        rows, columns = np.nonzero(choice == index)
        continuation.value[rows, columns] = targets[rows, index, columns] + state.label[rows]
        continuation.won[rows, columns] = next_state.won[rows, columns]
        continuation.cost[rows, columns] = next_state.cost[rows, columns] + costs[rows, worker]
        rows, columns = np.nonzero(own_choice == index)
        continuation.spent[rows, columns] = next_state.spent[rows, columns] + costs[rows, worker]
    return continuation, fitted.reshape(-1, len(others), len(prices))


def _best_ask(worth: Floats | Floats32, may_ship: bool) -> Ints:
    """Return [T, L]: the place of the ask that is worth most, or SHIP where none is worth anything."""
    best = worth.argmax(axis=1)
    return np.where(worth.max(axis=1) > 0, best, SHIP) if may_ship else best


def _cross_fit_ridge(features: Floats32, targets: Floats, penalty: Floats, folds: Ints) -> tuple[Floats, Floats]:
    """Return ridge coefficients on all rows, and for each row the prediction of the fit without its fold."""
    rows = [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]
    fold_features = [features[fold_rows] for fold_rows in rows]
    grams = [(block.T @ block).astype(np.float64) for block in fold_features]
    crosses = [
        (block.T @ targets[fold_rows]).astype(np.float64) for block, fold_rows in zip(fold_features, rows, strict=True)
    ]
    gram, cross = np.sum(grams, axis=0) + np.diag(penalty), np.sum(crosses, axis=0)
    predictions = np.empty_like(targets)
    for fold_rows, block, less, without in zip(rows, fold_features, grams, crosses, strict=True):
        predictions[fold_rows] = block @ np.linalg.solve(gram - less, cross - without).astype(np.float32)
    return np.asarray(np.linalg.solve(gram, cross), np.float64), predictions


def _to_float32(features: Floats) -> Floats32:
    return features.astype(np.float32)


def _state_after(matrix: OutcomeMatrix, asked: AskedWorkers) -> DecisionState:
    mask = np.zeros(matrix.codes.shape, bool)
    mask[:, list(asked)] = True
    return matrix.state_after(mask)


def fit_length_scales(matrix: OutcomeMatrix) -> LengthScales:
    """Return mean log output tokens by type and worker, and their spread."""
    written = np.log1p(matrix.tokens)
    types, kinds = matrix.batch.types, len(matrix.types.names)
    overall = _column_means(written)
    rows = [_column_means(written[types == kind], overall) for kind in range(kinds)]
    return LengthScales(np.array([*rows, overall]), np.sqrt(_column_means((written - overall) ** 2)) + 1e-3)


def _column_means(values: Floats, otherwise: Floats | None = None) -> Floats:
    """Return [J]: the mean of the known values of each column."""
    count = (~np.isnan(values)).sum(axis=0)
    spare = np.zeros(values.shape[1]) if otherwise is None else otherwise
    return np.where(count > 0, np.nan_to_num(values).sum(axis=0) / np.maximum(1, count), spare)
