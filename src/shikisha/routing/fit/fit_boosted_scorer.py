"""Fitting the boosted scorer on complete answers and on random subsets of them, as it will see partial states.

Invariants: what it thinks of a task comes from trees and from a conditional logit that were fitted without the task's
fold; outcomes without a score teach nothing; equal data give equal trees.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.boosted_scorer import BoostedTrees, candidate_features
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

# The posterior of fits that exclude the task, after these workers were asked [T, J] of this matrix.
PosteriorOutsideFolds = Callable[[tuple[int, ...]], tuple[Floats, Floats]]
# With fewer tasks there is nothing to boost.
MIN_BOOSTED_TASKS = 200


@dataclass(frozen=True, slots=True)
class BoostingConfig:
    """Size and shrinkage of the trees, and on how many random subsets of a task's answers they are fitted."""

    trees: int = 200
    rate: float = 0.05
    leaves: int = 12
    smallest_leaf: int = 30
    ridge: float = 5.0
    columns: float = 0.3
    subsets: int = 3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FittedBoost:
    """Trees of all tasks, and for each fold a function of features that gives the log odds of trees without it."""

    trees: BoostedTrees
    by_fold: tuple[Callable[[Floats], Floats], ...]


def fit_boosted_scorer(
    matrix: OutcomeMatrix,
    folds: Ints | None,
    pool: Sequence[int],
    posterior: PosteriorOutsideFolds,
    config: BoostingConfig | None = None,
) -> FittedBoost | None:
    """Fit trees on the states that asking workers of `pool` leads to; None where there is too little to read.

    Without `folds` ([T]) there are trees of all tasks only.
    """
    settings = config or BoostingConfig()
    if matrix.evidence is None or len(matrix) < MIN_BOOSTED_TASKS:
        return None
    rows, features, labels = _training_rows(matrix, tuple(pool), posterior, settings)
    parts = [] if folds is None else [np.flatnonzero(folds[rows] != fold) for fold in range(int(folds.max()) + 1)]
    if any(labels[part].all() or not labels[part].any() for part in (*parts, np.arange(len(rows)))):
        return None
    by_fold = tuple(fit_trees(features[part], labels[part], settings).decision_function for part in parts)
    return FittedBoost(trees_as_arrays(fit_trees(features, labels, settings)), by_fold)


def _training_rows(
    matrix: OutcomeMatrix, pool: tuple[int, ...], posterior: PosteriorOutsideFolds, config: BoostingConfig
) -> tuple[Ints, Floats, Flags]:
    """Return the task, the features and the label of each candidate of each state that is fitted on."""
    complete = matrix.state_after(np.ones(matrix.codes.shape, bool))
    count = max(1, int(matrix.codes.max(initial=0)) + 1)
    right = _known_correctness(matrix, count)
    found = []
    for asked, tasks in _sample_states(matrix, pool, config):
        answers, none = posterior(asked)
        (own, codes), features = candidate_features(complete.at(tasks), asked, (answers[tasks], none[tasks]))
        labels = right[tasks[own], codes]
        known = ~np.isnan(labels)
        found.append((tasks[own][known], features[known], labels[known] > 0.5))
    rows, table, hits = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(table), np.concatenate(hits)


def _sample_states(
    matrix: OutcomeMatrix, pool: tuple[int, ...], config: BoostingConfig
) -> list[tuple[tuple[int, ...], Ints]]:
    """Return sets of asked workers, each with its tasks: all workers, the whole pool, and random subsets of it."""
    everybody, tasks = tuple(range(len(matrix.workers))), np.arange(len(matrix))
    states = [(everybody, tasks)] + ([(tuple(sorted(pool)), tasks)] if len(pool) < len(everybody) else [])
    random = np.random.default_rng(config.seed)
    order = np.array(sorted(pool))
    keys = []
    for _ in range(config.subsets):
        sizes = random.integers(1, max(2, len(order)), len(matrix))
        ranks = random.random((len(matrix), len(order))).argsort(axis=1).argsort(axis=1)
        keys.append((ranks < sizes[:, None]) @ (1 << np.arange(len(order))))
    drawn, owners = np.concatenate(keys), np.tile(tasks, config.subsets)
    for key in np.unique(drawn):
        asked = tuple(int(worker) for place, worker in enumerate(order) if key >> place & 1)
        states.append((asked, owners[drawn == key]))
    return states


def _known_correctness(matrix: OutcomeMatrix, count: int) -> Floats:
    """Return [T, K]: the mean score of those who gave a candidate; NaN where none of them was graded."""
    total, graded = np.zeros((len(matrix), count)), np.zeros((len(matrix), count))
    known = ~np.isnan(matrix.scores) if matrix.graded is None else matrix.graded
    rows, columns = np.nonzero((matrix.codes >= 0) & known)
    np.add.at(total, (rows, matrix.codes[rows, columns]), matrix.scores[rows, columns])
    np.add.at(graded, (rows, matrix.codes[rows, columns]), 1.0)
    return np.divide(total, graded, out=np.full_like(total, np.nan), where=graded > 0)


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
