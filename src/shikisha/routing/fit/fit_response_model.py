"""Fitting the response model: per worker, a logistic regression of being right on the words of its answers.

Invariant: the log odds of a task come from folds that exclude it; each fold starts at zero, since a warm start from all
tasks would leak their labels. Task types are in the regression only so that words need not encode them.
"""

from typing import TYPE_CHECKING

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.text_features import MAX_LOG_ODDS, RESPONSE_BUCKETS, HashedWords, ResponseModel

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_RIDGE = 1.5
_TYPE_PENALTY = 0.15
_ROUNDS = 60
# A worker with fewer texts gets no model.
_MIN_TEXTS = 200
# At most this many workers get a model, since models make up most of a policy file.
_MAX_WORKERS = 8
# Words in fewer texts are ignored.
_MIN_OCCURRENCES = 5


def fit_response_model(matrix: OutcomeMatrix, folds: Ints) -> tuple[ResponseModel | None, Floats | None]:
    """Return a response model, and [T, J] log odds by fits that exclude the task; two None where no text is kept."""
    texts = _workers_with_texts(matrix)
    if not texts:
        return None, None
    kinds, workers = len(matrix.types.names), len(matrix.workers)
    rarity = _inverse_frequency(list(texts.values()))
    weights, usual = np.zeros((workers, RESPONSE_BUCKETS)), np.zeros((kinds + 1, workers))
    tells = np.zeros(matrix.codes.shape)
    for worker, words in texts.items():
        scaled, written = words.scaled(rarity), ~words.empty
        by_fold = _fit_folds(scaled, matrix, worker, folds)
        weights[worker] = by_fold.mean(axis=0)
        odds = np.zeros(len(matrix))
        for fold, fold_weights in enumerate(by_fold):
            odds[folds == fold] = scaled.dot(fold_weights)[folds == fold]
        usual[:, worker] = _mean_log_odds(odds, written, matrix.batch.types, kinds)
        relative = np.clip(odds - usual[matrix.batch.types, worker], -MAX_LOG_ODDS, MAX_LOG_ODDS)
        tells[:, worker] = np.where(written, relative, 0.0)
    flags = np.isin(np.arange(workers), list(texts))
    return ResponseModel(weights, rarity, usual, flags), tells


def _inverse_frequency(texts: list[HashedWords]) -> Floats:
    """Return [RESPONSE_BUCKETS]: the inverse document frequency of each word; 0 for rare ones."""
    seen = np.bincount(np.concatenate([words.places for words in texts]), minlength=RESPONSE_BUCKETS)
    total = sum(len(words) for words in texts)
    return np.where(seen >= _MIN_OCCURRENCES, 1 + np.log((1 + total) / (1 + seen)), 0.0)


def _workers_with_texts(matrix: OutcomeMatrix) -> dict[int, HashedWords]:
    """Return the words of the best workers with enough texts."""
    texts: dict[int, HashedWords] = {}
    for worker in np.argsort(-matrix.mean_scores(), kind="stable").tolist():
        words = matrix.texts[worker] if matrix.texts else None
        graded = ~np.isnan(matrix.scores[:, worker])
        if words is not None and (~words.empty & graded).sum() >= _MIN_TEXTS and len(texts) < _MAX_WORKERS:
            texts[worker] = words
    return texts


def _fit_folds(words: HashedWords, matrix: OutcomeMatrix, worker: int, folds: Ints) -> Floats:
    """Return [F, RESPONSE_BUCKETS], the word weights of fits that exclude each fold."""
    try:
        from scipy.sparse import csr_matrix, hstack
    except ImportError:
        raise MissingExtra("learn", "fitting a response model") from None
    kinds, nonzero = len(matrix.types.names), words.weights > 0
    used, places = np.unique(words.places[nonzero], return_inverse=True)
    table = csr_matrix((words.weights[nonzero], (words.rows[nonzero], places)), shape=(len(words), len(used)))
    types = np.eye(kinds + 1)[matrix.batch.types]
    types[:, kinds] = 1.0
    design = hstack([table, csr_matrix(types)]).tocsr()
    graded = ~np.isnan(matrix.scores[:, worker])
    labels, count = (matrix.won[:, worker] > 0.5).astype(float), int(folds.max()) + 1
    by_fold = np.zeros((count, RESPONSE_BUCKETS))
    for fold in range(count):
        rows = np.flatnonzero((folds != fold) & ~words.empty & graded)
        by_fold[fold, used] = _fit_word_weights(design[rows], labels[rows], len(used))
    return by_fold


def _fit_word_weights(design: "csr_matrix", labels: Floats, words: int) -> Floats:
    """Return the weights of the words, the first columns, of a ridge logistic regression."""
    from scipy.optimize import minimize

    penalty = np.full(design.shape[1], _RIDGE)
    penalty[words:] = _TYPE_PENALTY
    across = design.T.tocsr()

    def loss(theta: Floats) -> tuple[float, Floats]:
        odds = design @ theta
        chance = 1 / (1 + np.exp(-odds))
        value = np.logaddexp(0, odds).sum() - odds @ labels + 0.5 * (penalty * theta**2).sum()
        return float(value), across @ (chance - labels) + penalty * theta

    start = np.zeros(design.shape[1])
    held = {"maxiter": _ROUNDS, "ftol": 1e-5, "maxcor": 8}
    weights = minimize(loss, start, jac=True, method="L-BFGS-B", options=held).x
    return np.asarray(weights[:words], np.float64)


def _mean_log_odds(odds: Floats, written: Flags, types: Ints, kinds: int) -> Floats:
    """Return [D + 1]: the mean log odds of the texts of each type; the overall mean for empty and unknown types."""
    overall = float(odds[written].mean()) if written.any() else 0.0
    means = [odds[written & (types == kind)] for kind in range(kinds)]
    return np.array([*(float(type_odds.mean()) if len(type_odds) else overall for type_odds in means), overall])
