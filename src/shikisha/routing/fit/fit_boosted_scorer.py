"""Fitting the boosted scorer on complete answers and on random subsets of them, as it will see partial states.

Invariants: what it thinks of a task comes from trees and from a conditional logit that were fitted without the task's
fold; outcomes without a score teach nothing; equal data give equal trees.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.boosted_scorer import LOGIT_COLUMN, BoostedTrees, candidate_features
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, scores_by_answer
from shikisha.routing.state import NOT_ASKED, DecisionState

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

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
