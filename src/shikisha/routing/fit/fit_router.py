"""Fitting the router rule: the table rule and adjustments by prompt, weighted by how well they predict held-out tasks.

Three sources (words of all tasks, surface features of all tasks, and maps per type) are fitted on four of five folds
and evaluated on the fifth. Non-negative least squares weights them (stacking, Breiman 1996); all weights are 0 unless
they predict held-out scores clearly better than the table rule. Words and surface features of all tasks are ridge
regressions. The few tasks of one type get Gaussian processes over words, features or products of features for each
contrast between workers, averaged by evidence with most of the prior on no signal (MacKay 1992). Invariants: what a
router is reported to win was won on tasks that neither its maps nor its weights have seen; only differences between
workers are fitted, since a router compares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.fit_table import PRICES, RoutingPreference, build_table, choose_shrinkage
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.router_rule import (
    ALL_TYPES,
    WORD_BUCKETS,
    FeatureScale,
    PromptVocabulary,
    RouterRule,
    SuccessMap,
    SuccessMaps,
    evaluate_quadratic,
    zero_maps,
)
from shikisha.routing.state import NO_ANSWER, TaskBatch
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import HashedWords

# Fewer tasks carry no signal; more of one type make the eigendecomposition slow.
MIN_TASKS, MAX_TASKS = 20, 500
# Prior probability of no signal, for each contrast within a type.
_NO_SIGNAL = 0.9
# Shares of signal in a contrast to average over.
_SHARES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6])
# Ridge strengths, in tasks.
_WORDS, _LOOKS = 5.0, 100.0
# Weight of single features relative to their products.
_PLAIN = 0.3
_VOCABULARY = 2**17
# Rounds and tolerance of conjugate gradients.
_ROUNDS, _TOLERANCE = 40, 1e-8
# A feature must differ from its median in this many tasks.
_MIN_DIFFERING = 4
_TINY = 1e-9
# Adjustments must improve held-out prediction by this many standard errors.
_MIN_STANDARD_ERRORS = 2.0


def build_vocabulary(batch: TaskBatch) -> PromptVocabulary:
    """Return the words in at least two prompts; the most frequent ones where those are too many."""
    words = batch.grams
    places, counts = np.unique(words.places, return_counts=True)
    least = 2 if len(counts) <= _VOCABULARY else max(2, int(np.sort(counts)[-_VOCABULARY]))
    kept = counts >= least
    return PromptVocabulary(places[kept].astype(np.int64), np.log((1 + len(words)) / (1 + counts[kept])) + 1)


def fit_feature_scale(features: Floats) -> FeatureScale:
    """Return mean and spread of these surface features, [T, NUM_SHAPE_FEATURES]."""
    spread = features.std(axis=0)
    differ = ((features != np.median(features, axis=0)).sum(axis=0) >= _MIN_DIFFERING) & (spread > _TINY)
    return FeatureScale(
        np.where(differ, features.mean(axis=0), 0.0), np.where(differ, 1 / np.where(differ, spread, 1.0), 0.0)
    )


def fit_word_weights(read: HashedWords, size: int, residuals: Floats) -> Floats:
    """Return [V, J], ridge weights of words `read` by a vocabulary of this size for residuals `left`, [T, J]."""
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise MissingExtra("learn", "a router that reads prompts") from None
    rows = csr_matrix((read.weights, read.places, read.starts), (len(read), size))
    across = rows.T.tocsr()
    return np.asarray(
        across @ _conjugate_gradients(lambda dual: rows @ (across @ dual) + _WORDS * dual, residuals), np.float64
    )


def fit_shape_map(features: Floats, residuals: Floats) -> SuccessMap | None:
    """Return the map of surface features for all tasks; None where there are too few."""
    if len(features) < MIN_TASKS:
        return None
    scale, centered = fit_feature_scale(features), residuals - residuals.mean(axis=0)
    scaled = scale.of(features)
    strength = _LOOKS * _mean_squared_length(scaled)

    def times(dual: Floats) -> Floats:
        predicted = evaluate_quadratic(scaled, *_quadratic_weights(scaled, dual - dual.mean(axis=0)))
        return np.asarray(predicted - predicted.mean(axis=0) + strength * dual, np.float64)

    lines, squares = _quadratic_weights(scaled, _conjugate_gradients(times, centered))
    words = np.zeros((WORD_BUCKETS, residuals.shape[1]))
    return SuccessMap(ALL_TYPES, scale, lines, squares, words, -evaluate_quadratic(scaled, lines, squares).mean(axis=0))


def fit_type_map(kind: int, features: Floats, words: HashedWords, residuals: Floats) -> SuccessMap | None:
    """Return the map of a type from its tasks' features and bucketed words; None where there is no signal."""
    if len(residuals) < MIN_TASKS:
        return None
    contrasts, across = _principal_contrasts(residuals - residuals.mean(axis=0))
    if not len(across):
        return None
    scale = fit_feature_scale(features)
    scaled, said = scale.of(features), np.zeros((len(residuals), WORD_BUCKETS))
    np.add.at(said, (words.rows, words.places), words.weights)
    along = scaled @ scaled.T
    views = [_KernelView.of(gram) for gram in (said @ said.T, along, along * (along + 2 * _PLAIN))]
    duals = [view.over(dual @ across) for view, dual in zip(views, average_by_evidence(views, contrasts), strict=True)]
    weights = said.T @ duals[0]
    lines, squares = _quadratic_weights(scaled, duals[2])
    lines += scaled.T @ duals[1]
    shift = said.mean(axis=0) @ weights + evaluate_quadratic(scaled, lines, squares).mean(axis=0)
    return SuccessMap(kind, scale, lines, squares, weights, -shift)


def _quadratic_weights(scaled: Floats, dual: Floats) -> tuple[Floats, Floats]:
    """Return linear and quadratic weights of duals [n, J] of the product kernel."""
    return 2 * _PLAIN * scaled.T @ dual, np.stack([(scaled * column[:, None]).T @ scaled for column in dual.T])


def _mean_squared_length(scaled: Floats) -> float:
    """Return the mean squared length of these rows in the centered feature space."""
    lengths, usual = (scaled**2).sum(axis=1), scaled.T @ scaled / len(scaled)
    middle = 2 * _PLAIN * (scaled.mean(axis=0) ** 2).sum() + (usual**2).sum()
    return max(_TINY, float((lengths**2 + 2 * _PLAIN * lengths).mean() - middle))


@dataclass(frozen=True, slots=True)
class _KernelView:
    """A centered kernel as eigen-`values` [n] and `vectors` [n, n]; `size` is its normalization."""

    values: Floats
    vectors: Floats
    size: float

    @classmethod
    def of(cls, gram: Floats) -> "_KernelView":
        means = gram.mean(axis=0)
        centred = gram - means - means[:, None] + means.mean()
        size = max(_TINY, float(np.trace(centred)) / len(gram))
        values, vectors = np.linalg.eigh(centred / size)
        return cls(np.maximum(values, 0.0), vectors, size)

    def over(self, dual: Floats) -> Floats:
        """Return duals of the original features from those of the centered and scaled ones."""
        duals: Floats = (dual - dual.mean(axis=0)) / self.size
        return duals


def average_by_evidence(views: Sequence[_KernelView], contrasts: Floats) -> list[Floats]:
    """Return for each view the duals [n, r] of each contrast [n, r], averaged by evidence.

    The noise variance is profiled out: evidence is relative to that of noise alone.
    """
    count, power = len(contrasts), np.maximum(_TINY, (contrasts**2).mean(axis=0))
    evidence, duals = [], []
    for view in views:
        rotated = view.vectors.T @ contrasts
        for share in _SHARES:
            spread = (share * view.values + 1 - share)[:, None]
            variance = (rotated**2 / spread).mean(axis=0) / power
            evidence.append(-0.5 * (np.log(spread).sum() + count * np.log(np.maximum(_TINY, variance))))
            duals.append(share * (view.vectors @ (rotated / spread)))
    odds = np.array(evidence) + np.log((1 - _NO_SIGNAL) / len(evidence))
    most = np.maximum(odds.max(axis=0), np.log(_NO_SIGNAL))
    chances = np.exp(odds - most)
    chances /= chances.sum(axis=0) + np.exp(np.log(_NO_SIGNAL) - most)
    weighted = [chance * dual for chance, dual in zip(chances, duals, strict=True)]
    size = len(_SHARES)
    return [np.sum(weighted[start : start + size], axis=0) for start in range(0, len(weighted), size)]


def _principal_contrasts(residuals: Floats) -> tuple[Floats, Floats]:
    """Return the principal contrasts between workers: scores of tasks [n, r] and loadings of workers [r, J]."""
    along, sizes, across = np.linalg.svd(residuals, full_matrices=False)
    some = np.flatnonzero(sizes > 1e-6 * max(_TINY, sizes.max(initial=0.0)))[: max(0, residuals.shape[1] - 1)]
    return along[:, some] * sizes[some], across[some]


def _conjugate_gradients(times: Callable[[Floats], Floats], target: Floats) -> Floats:
    """Solve `times(x) = target` [n, J] by conjugate gradients, column by column (Hestenes and Stiefel 1952)."""
    solution, residual = np.zeros_like(target), target.copy()
    direction, size = residual.copy(), (residual**2).sum(axis=0)
    enough = _TOLERANCE * size
    for _ in range(_ROUNDS):
        if (size <= enough).all():
            break
        product = times(direction)
        step_size = size / np.maximum((direction * product).sum(axis=0), _TINY**3)
        solution, residual = solution + step_size * direction, residual - step_size * product
        size, before = (residual**2).sum(axis=0), size
        direction = residual + size / np.maximum(before, _TINY**3) * direction
    return solution


@dataclass(frozen=True, slots=True)
class FittedRouter:
    """A router, and its results on tasks outside the fit: won and cost (units), [T, L]."""

    part: RouterRule
    won: Floats
    cost: Floats


def fit_router(matrix: OutcomeMatrix, folds: Ints, unit: float = 0.0, speed: float = 0.0) -> FittedRouter:
    """Fit the router; `unit` is the dollars of one unit of cost (0: the matrix's own), `speed` a preference."""
    cache_prompt_features(matrix)
    scheme = _RouterConfig(unit or matrix.cost_unit(), choose_shrinkage(matrix, folds), RoutingPreference(speed))
    adjustments, residuals, tables = np.zeros((3, *matrix.codes.shape)), np.zeros(matrix.codes.shape), []
    for fold in range(int(folds.max()) + 1):
        rows = np.flatnonzero(folds == fold)
        held_out, sources = matrix.at(rows), _RouterSources.of(matrix.at(folds != fold), scheme)
        adjustments[:, rows], residuals[rows] = sources.tell(held_out.batch), _residuals(held_out, sources.table)
        tables.append(sources.table)
    won, cost = np.zeros((len(matrix), len(PRICES))), np.zeros((len(matrix), len(PRICES)))
    for fold, table in enumerate(tables):
        rows, rest = np.flatnonzero(folds == fold), folds != fold
        adjustment = np.tensordot(_stacking_weights(adjustments[:, rest], residuals[rest]), adjustments[:, rows], 1)
        won[rows], cost[rows] = _evaluate_router(table, adjustment, matrix.at(rows), scheme.unit)
    return FittedRouter(_RouterSources.of(matrix, scheme).trusted(_stacking_weights(adjustments, residuals)), won, cost)


def cache_prompt_features(matrix: OutcomeMatrix) -> None:
    """Compute the prompt features once; subsets of this matrix reuse them."""
    _ = matrix.batch.looks, matrix.batch.grams


@dataclass(frozen=True, slots=True)
class _RouterConfig:
    """What is constant across folds: the unit of cost, the shrinkage of the table, and its preferences."""

    unit: float
    strength: float
    preference: RoutingPreference


@dataclass(frozen=True, slots=True)
class _RouterSources:
    """The table and the three sources of adjustments, each at full weight."""

    table: TableRule
    lexicon: PromptVocabulary
    weights: Floats
    every: tuple[SuccessMap, ...]
    own: tuple[SuccessMap, ...]

    @classmethod
    def of(cls, matrix: OutcomeMatrix, scheme: _RouterConfig) -> "_RouterSources":
        table = build_table(matrix, scheme.unit, scheme.strength, scheme.preference)
        lexicon = build_vocabulary(matrix.batch)
        left, read = _residuals(matrix, table), lexicon.read(matrix.batch.grams)
        looks, words, own = matrix.batch.looks, lexicon.bucketed(read), []
        for kind in range(len(matrix.types.names)):
            rows = np.flatnonzero(matrix.batch.types == kind)[:MAX_TASKS]
            own.append(fit_type_map(kind, looks[rows], words.at(rows), left[rows]))
        weights = fit_word_weights(read, len(lexicon.places), left)
        return cls(table, lexicon, weights, _present_maps([fit_shape_map(looks, left)]), _present_maps(own))

    def tell(self, batch: TaskBatch) -> Floats:
        """Return [3, T, J], the adjustment by each source."""
        return np.stack([self._maps(trust).of(batch) for trust in np.eye(3)])

    def trusted(self, trust: Floats) -> RouterRule:
        return RouterRule(self.table, self._maps(trust))

    def _maps(self, trust: Sequence[float] | Floats) -> SuccessMaps:
        words, looks, by_type = trust
        maps = [one.times(looks) for one in self.every if looks] + [one.times(by_type) for one in self.own if by_type]
        return (
            SuccessMaps(self.lexicon, words * self.weights, tuple(maps))
            if words or maps
            else zero_maps(len(self.weights.T))
        )


def _present_maps(maps: Sequence[SuccessMap | None]) -> tuple[SuccessMap, ...]:
    return tuple(one for one in maps if one is not None)


def _residuals(matrix: OutcomeMatrix, table: TableRule) -> Floats:
    """Return [T, J]: what the table leaves unexplained of differences between workers; 0 where not recorded."""
    known = ~np.isnan(matrix.scores)
    residuals = (matrix.won - table.success[matrix.batch.types]) * known
    means = residuals.sum(axis=1) / np.maximum(1, known.sum(axis=1))
    return np.asarray((residuals - means[:, None]) * known, np.float64)


def _stacking_weights(adjustments: Floats, residuals: Floats) -> Floats:
    """Return [3]: the weight of each source, by how well it predicts held-out tasks."""
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise MissingExtra("learn", "a router that reads prompts") from None
    weights = np.asarray(nnls(adjustments.reshape(len(adjustments), -1).T, residuals.ravel())[0], np.float64)
    better = (residuals**2 - (residuals - np.tensordot(weights, adjustments, 1)) ** 2).sum(axis=1)
    error = float(better.std()) / np.sqrt(max(1, len(better)))
    return weights if better.mean() > _MIN_STANDARD_ERRORS * error else np.zeros_like(weights)


def _evaluate_router(table: TableRule, adjustment: Floats, matrix: OutcomeMatrix, unit: float) -> tuple[Floats, Floats]:
    """Return [T, L] what each price wins and costs (units) with these adjustments."""
    types, rows = matrix.batch.types, np.arange(len(matrix))[:, None]
    best = np.stack(
        [(table.worth(price)[types] + adjustment).argmax(axis=1) for price in range(table.settings)], axis=1
    )
    shipped: Flags = matrix.codes > NO_ANSWER
    return np.where(shipped, matrix.won, 0.0)[rows, best], matrix.paid[rows, best] / unit
