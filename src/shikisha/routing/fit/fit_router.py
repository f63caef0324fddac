"""Fitting the router: the rule by type, and maps of prompts that are trusted as far as held-back tasks bear them out.

Three sources (words of every task, looks of every task, and the types' own maps) are fitted on four folds of five and
tried on the fifth; how far each is trusted is the non-negative combination that tells the held-back scores best
(stacking, Breiman 1996), or not at all where it does not tell them clearly better than the rule does. Invariant: what
a router is said to have won was won on tasks that neither its maps nor its trust have seen. Deliberately absent:
load limits (`tabling` keeps them), and costs by prompt.

Fitting maps: what a prompt's words and looks tell about who is right, beyond what its type does.

For every task: ridge regressions (`words_of`, `looks_map`). For the tasks of one type, of which there are few
(`type_map`): each contrast between workers is a Gaussian process over words, looks or products of looks, averaged over
those and over shares of signal by their evidence, with most of the prior on no signal at all (MacKay 1992). Invariants:
differences between workers are fitted, since a router compares; equal data give equal maps. Deliberately absent: how
far the maps are trusted (`routing`).
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

MIN_TASKS, MAX_TASKS = 20, 500  # tasks: fewer tell nothing, and of a type no more than so many are looked at
_NO_SIGNAL = 0.9  # the prior of it, for each contrast within a type
_SHARES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6])  # of signal in a contrast, where there is any
_WORDS, _LOOKS = 5.0, 100.0  # strengths of the ridges, in tasks
_PLAIN = 0.3  # what looks by themselves count beside their products
_VOCABULARY = 2**17
_ROUNDS, _TOLERANCE = 40, 1e-8  # of conjugate gradients
_MIN_DIFFERING = 4  # tasks that must look other than is usual
_TINY = 1e-9


def build_vocabulary(batch: TaskBatch) -> PromptVocabulary:
    """Return the words that stand in at least two prompts; the most frequent, where those are too many."""
    words = batch.grams
    places, counts = np.unique(words.places, return_counts=True)
    least = 2 if len(counts) <= _VOCABULARY else max(2, int(np.sort(counts)[-_VOCABULARY]))
    kept = counts >= least
    return PromptVocabulary(places[kept].astype(np.int64), np.log((1 + len(words)) / (1 + counts[kept])) + 1)


def fit_feature_scale(looks: Floats) -> FeatureScale:
    """Return what looks are usual among these, [T, SHAPES]."""
    spread = looks.std(axis=0)
    differ = ((looks != np.median(looks, axis=0)).sum(axis=0) >= _MIN_DIFFERING) & (spread > _TINY)
    return FeatureScale(
        np.where(differ, looks.mean(axis=0), 0.0), np.where(differ, 1 / np.where(differ, spread, 1.0), 0.0)
    )


def fit_word_weights(read: HashedWords, size: int, left: Floats) -> Floats:
    """Return [V, J], weights of words `read` by a lexicon of this size, for what is `left` to explain, [T, J]."""
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise MissingExtra("learn", "a router that reads prompts") from None
    rows = csr_matrix((read.weights, read.places, read.starts), (len(read), size))
    across = rows.T.tocsr()
    return np.asarray(
        across @ _conjugate_gradients(lambda dual: rows @ (across @ dual) + _WORDS * dual, left), np.float64
    )


def fit_shape_map(looks: Floats, left: Floats) -> SuccessMap | None:
    """Return the map of looks for every task; None where there is nothing to tell."""
    if len(looks) < MIN_TASKS:
        return None
    scale, own = fit_feature_scale(looks), left - left.mean(axis=0)
    scaled = scale.of(looks)
    strength = _LOOKS * _mean_squared_length(scaled)

    def times(dual: Floats) -> Floats:
        told = evaluate_quadratic(scaled, *_quadratic_weights(scaled, dual - dual.mean(axis=0)))
        return np.asarray(told - told.mean(axis=0) + strength * dual, np.float64)

    lines, squares = _quadratic_weights(scaled, _conjugate_gradients(times, own))
    words = np.zeros((WORD_BUCKETS, left.shape[1]))
    return SuccessMap(ALL_TYPES, scale, lines, squares, words, -evaluate_quadratic(scaled, lines, squares).mean(axis=0))


def fit_type_map(kind: int, looks: Floats, words: HashedWords, left: Floats) -> SuccessMap | None:
    """Return the map of a type from its tasks' looks and bucketed words; None where there is nothing to tell."""
    if len(left) < MIN_TASKS:
        return None
    contrasts, across = _principal_contrasts(left - left.mean(axis=0))
    if not len(across):
        return None
    scale = fit_feature_scale(looks)
    scaled, said = scale.of(looks), np.zeros((len(left), WORD_BUCKETS))
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
    """Return the lines and squares of duals [n, J] of the products of looks, with some of the looks themselves."""
    return 2 * _PLAIN * scaled.T @ dual, np.stack([(scaled * column[:, None]).T @ scaled for column in dual.T])


def _mean_squared_length(scaled: Floats) -> float:
    """Return how long rows of these features are, squared and in the mean, around their middle."""
    lengths, usual = (scaled**2).sum(axis=1), scaled.T @ scaled / len(scaled)
    middle = 2 * _PLAIN * (scaled.mean(axis=0) ** 2).sum() + (usual**2).sum()
    return max(_TINY, float((lengths**2 + 2 * _PLAIN * lengths).mean() - middle))


@dataclass(frozen=True, slots=True)
class _KernelView:
    """How alike tasks are, centred, by eigen-`values` [n] and `vectors` [n, n]; `size` is what they were divided by."""

    values: Floats
    vectors: Floats
    size: float

    @classmethod
    def of(cls, gram: Floats) -> "_KernelView":
        middle = gram.mean(axis=0)
        centred = gram - middle - middle[:, None] + middle.mean()
        size = max(_TINY, float(np.trace(centred)) / len(gram))
        values, vectors = np.linalg.eigh(centred / size)
        return cls(np.maximum(values, 0.0), vectors, size)

    def over(self, dual: Floats) -> Floats:
        """Return duals of features as they are, from duals of the centred and sized ones."""
        held: Floats = (dual - dual.mean(axis=0)) / self.size
        return held


def average_by_evidence(views: Sequence[_KernelView], contrasts: Floats) -> list[Floats]:
    """Return for each view the duals [n, r] of what is told of each contrast [n, r], averaged by evidence.

    The noise's size has been profiled out: evidence is relative to that of noise alone.
    """
    count, power = len(contrasts), np.maximum(_TINY, (contrasts**2).mean(axis=0))
    evidence, duals = [], []
    for view in views:
        turned = view.vectors.T @ contrasts
        for share in _SHARES:
            spread = (share * view.values + 1 - share)[:, None]
            fit = (turned**2 / spread).mean(axis=0) / power
            evidence.append(-0.5 * (np.log(spread).sum() + count * np.log(np.maximum(_TINY, fit))))
            duals.append(share * (view.vectors @ (turned / spread)))
    odds = np.array(evidence) + np.log((1 - _NO_SIGNAL) / len(evidence))
    most = np.maximum(odds.max(axis=0), np.log(_NO_SIGNAL))
    chances = np.exp(odds - most)
    chances /= chances.sum(axis=0) + np.exp(np.log(_NO_SIGNAL) - most)
    held = [chance * dual for chance, dual in zip(chances, duals, strict=True)]
    size = len(_SHARES)
    return [np.sum(held[start : start + size], axis=0) for start in range(0, len(held), size)]


def _principal_contrasts(left: Floats) -> tuple[Floats, Floats]:
    """Return the principal contrasts between workers: what each task has of them [n, r], and their workers [r, J]."""
    along, sizes, across = np.linalg.svd(left, full_matrices=False)
    some = np.flatnonzero(sizes > 1e-6 * max(_TINY, sizes.max(initial=0.0)))[: max(0, left.shape[1] - 1)]
    return along[:, some] * sizes[some], across[some]


def _conjugate_gradients(times: Callable[[Floats], Floats], target: Floats) -> Floats:
    """Solve `times(x) = target` [n, J] by conjugate gradients, each column by itself (Hestenes & Stiefel 1952)."""
    found, rest = np.zeros_like(target), target.copy()
    along, size = rest.copy(), (rest**2).sum(axis=0)
    enough = _TOLERANCE * size
    for _ in range(_ROUNDS):
        if (size <= enough).all():
            break
        turned = times(along)
        far = size / np.maximum((along * turned).sum(axis=0), _TINY**3)
        found, rest = found + far * along, rest - far * turned
        size, before = (rest**2).sum(axis=0), size
        along = rest + size / np.maximum(before, _TINY**3) * along
    return found


_MIN_STANDARD_ERRORS = 2.0  # standard errors by which held-back scores must be told better


@dataclass(frozen=True, slots=True)
class FittedRouter:
    """A router, and what it came to on tasks that were not in the fit: won and cost (units), [T, L]."""

    part: RouterRule
    won: Floats
    cost: Floats


def fit_router(panel: OutcomeMatrix, folds: Ints, unit: float = 0.0, speed: float = 0.0) -> FittedRouter:
    """Fit the router; `unit` is one unit of cost in dollars (0: the panel's own), `speed` is as in `Preference`."""
    cache_prompt_features(panel)
    scheme = _RouterConfig(unit or panel.cost_unit(), choose_shrinkage(panel, folds), RoutingPreference(speed))
    told, left, tables = np.zeros((3, *panel.codes.shape)), np.zeros(panel.codes.shape), []
    for fold in range(int(folds.max()) + 1):
        rows = np.flatnonzero(folds == fold)
        held, fitted = panel.at(rows), _RouterSources.of(panel.at(folds != fold), scheme)
        told[:, rows], left[rows] = fitted.tell(held.batch), _residuals(held, fitted.table)
        tables.append(fitted.table)
    won, cost = np.zeros((len(panel), len(PRICES))), np.zeros((len(panel), len(PRICES)))
    for fold, table in enumerate(tables):
        rows, rest = np.flatnonzero(folds == fold), folds != fold
        moved = np.tensordot(_stacking_weights(told[:, rest], left[rest]), told[:, rows], 1)
        won[rows], cost[rows] = _evaluate_router(table, moved, panel.at(rows), scheme.unit)
    return FittedRouter(_RouterSources.of(panel, scheme).trusted(_stacking_weights(told, left)), won, cost)


def cache_prompt_features(panel: OutcomeMatrix) -> None:
    """Read all prompts; what is taken of this panel from now on knows what was read."""
    _ = panel.batch.looks, panel.batch.grams


@dataclass(frozen=True, slots=True)
class _RouterConfig:
    """What does not change from fold to fold: the unit of cost, how the rule shrinks, and what it prefers."""

    unit: float
    strength: float
    preference: RoutingPreference


@dataclass(frozen=True, slots=True)
class _RouterSources:
    """The rule and what is told besides, each source as if it were trusted in full."""

    table: TableRule
    lexicon: PromptVocabulary
    weights: Floats
    every: tuple[SuccessMap, ...]
    own: tuple[SuccessMap, ...]

    @classmethod
    def of(cls, panel: OutcomeMatrix, scheme: _RouterConfig) -> "_RouterSources":
        table = build_table(panel, scheme.unit, scheme.strength, scheme.preference)
        lexicon = build_vocabulary(panel.batch)
        left, read = _residuals(panel, table), lexicon.read(panel.batch.grams)
        looks, words, own = panel.batch.looks, lexicon.bucketed(read), []
        for kind in range(len(panel.types.names)):
            rows = np.flatnonzero(panel.batch.types == kind)[:MAX_TASKS]
            own.append(fit_type_map(kind, looks[rows], words.at(rows), left[rows]))
        weights = fit_word_weights(read, len(lexicon.places), left)
        return cls(table, lexicon, weights, _present_maps([fit_shape_map(looks, left)]), _present_maps(own))

    def tell(self, batch: TaskBatch) -> Floats:
        """Return [3, T, J], what each source tells."""
        return np.stack([self._maps(trust).of(batch) for trust in np.eye(3)])

    def trusted(self, trust: Floats) -> RouterRule:
        return RouterRule(self.table, self._maps(trust))

    def _maps(self, trust: Sequence[float] | Floats) -> SuccessMaps:
        words, looks, own = trust
        maps = [one.times(looks) for one in self.every if looks] + [one.times(own) for one in self.own if own]
        return (
            SuccessMaps(self.lexicon, words * self.weights, tuple(maps))
            if words or maps
            else zero_maps(len(self.weights.T))
        )


def _present_maps(maps: Sequence[SuccessMap | None]) -> tuple[SuccessMap, ...]:
    return tuple(one for one in maps if one is not None)


def _residuals(panel: OutcomeMatrix, table: TableRule) -> Floats:
    """[T, J]: what the rule leaves to explain of the differences between workers; 0 for what is not recorded."""
    known = ~np.isnan(panel.scores)
    left = (panel.won - table.success[panel.batch.types]) * known
    middle = left.sum(axis=1) / np.maximum(1, known.sum(axis=1))
    return np.asarray((left - middle[:, None]) * known, np.float64)


def _stacking_weights(told: Floats, left: Floats) -> Floats:
    """[3]: how far each source is trusted, by what it told of held-back tasks."""
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise MissingExtra("learn", "a router that reads prompts") from None
    found = np.asarray(nnls(told.reshape(len(told), -1).T, left.ravel())[0], np.float64)
    better = (left**2 - (left - np.tensordot(found, told, 1)) ** 2).sum(axis=1)
    error = float(better.std()) / np.sqrt(max(1, len(better)))
    return found if better.mean() > _MIN_STANDARD_ERRORS * error else np.zeros_like(found)


def _evaluate_router(table: TableRule, moved: Floats, panel: OutcomeMatrix, unit: float) -> tuple[Floats, Floats]:
    """Return [T, L] what each price wins and costs (units), with the worth of workers moved so."""
    types, rows = panel.batch.types, np.arange(len(panel))[:, None]
    best = np.stack([(table.worth(price)[types] + moved).argmax(axis=1) for price in range(table.settings)], axis=1)
    shipped: Flags = panel.codes > NO_ANSWER
    return np.where(shipped, panel.won, 0.0)[rows, best], panel.paid[rows, best] / unit
