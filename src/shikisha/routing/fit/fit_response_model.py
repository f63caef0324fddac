"""Fitting the hearing: for each worker a logistic model of being right over the words of what it wrote.

Invariant: what is told of a task during fitting comes from folds that the task is not in; each fold's fit begins at
zero, since one that begins at a fit on all tasks would carry their labels along. Deliberately absent: anything but
words; types stand in the fit only so that words do not have to say them.
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
_MIN_TEXTS = 200  # texts of a worker below which nobody listens to it
_MAX_WORKERS = 8  # workers that are listened to
_MIN_OCCURRENCES = 5  # texts in which a word must stand


def fit_response_model(panel: OutcomeMatrix, folds: Ints) -> tuple[ResponseModel | None, Floats | None]:
    """Return a hearing, and [T, J] what is told of each answer by fits without it; two None where no text is kept."""
    heard = _workers_with_texts(panel)
    if not heard:
        return None, None
    kinds, workers = len(panel.types.names), len(panel.workers)
    rarity = _inverse_frequency(list(heard.values()))
    weights, usual = np.zeros((workers, RESPONSE_BUCKETS)), np.zeros((kinds + 1, workers))
    tells = np.zeros(panel.codes.shape)
    for worker, words in heard.items():
        scaled, said = words.scaled(rarity), ~words.empty
        found = _fit_folds(scaled, panel, worker, folds)
        weights[worker] = found.mean(axis=0)
        odds = np.zeros(len(panel))
        for fold, own in enumerate(found):
            odds[folds == fold] = scaled.dot(own)[folds == fold]
        usual[:, worker] = _mean_log_odds(odds, said, panel.batch.types, kinds)
        told = np.clip(odds - usual[panel.batch.types, worker], -MAX_LOG_ODDS, MAX_LOG_ODDS)
        tells[:, worker] = np.where(said, told, 0.0)
    flags = np.isin(np.arange(workers), list(heard))
    return ResponseModel(weights, rarity, usual, flags), tells


def _inverse_frequency(texts: list[HashedWords]) -> Floats:
    """[HEARD]: how rare each word is (log of one over its share of the texts); 0 for those hardly ever seen."""
    seen = np.bincount(np.concatenate([words.places for words in texts]), minlength=RESPONSE_BUCKETS)
    total = sum(len(words) for words in texts)
    return np.where(seen >= _MIN_OCCURRENCES, 1 + np.log((1 + total) / (1 + seen)), 0.0)


def _workers_with_texts(panel: OutcomeMatrix) -> dict[int, HashedWords]:
    """Return whom to listen to, and the words: the best of those of whom enough texts are kept."""
    found: dict[int, HashedWords] = {}
    for worker in np.argsort(-panel.mean_scores(), kind="stable").tolist():
        words = panel.texts[worker] if panel.texts else None
        graded = ~np.isnan(panel.scores[:, worker])
        if words is not None and (~words.empty & graded).sum() >= _MIN_TEXTS and len(found) < _MAX_WORKERS:
            found[worker] = words
    return found


def _fit_folds(words: HashedWords, panel: OutcomeMatrix, worker: int, folds: Ints) -> Floats:
    """Return [F, HEARD], the words' weights of fits that have not seen the fold."""
    try:
        from scipy.sparse import csr_matrix, hstack
    except ImportError:
        raise MissingExtra("learn", "listening to answers") from None
    kinds, kept = len(panel.types.names), words.weights > 0
    used, places = np.unique(words.places[kept], return_inverse=True)
    table = csr_matrix((words.weights[kept], (words.rows[kept], places)), shape=(len(words), len(used)))
    types = np.eye(kinds + 1)[panel.batch.types]
    types[:, kinds] = 1.0
    matrix = hstack([table, csr_matrix(types)]).tocsr()
    graded = ~np.isnan(panel.scores[:, worker])
    labels, count = (panel.won[:, worker] > 0.5).astype(float), int(folds.max()) + 1
    found = np.zeros((count, RESPONSE_BUCKETS))
    for fold in range(count):
        rows = np.flatnonzero((folds != fold) & ~words.empty & graded)
        found[fold, used] = _fit_word_weights(matrix[rows], labels[rows], len(used))
    return found


def _fit_word_weights(matrix: "csr_matrix", labels: Floats, words: int) -> Floats:
    """Return the weights of the words, which are the first columns, of a ridge logistic regression."""
    from scipy.optimize import minimize

    penalty = np.full(matrix.shape[1], _RIDGE)
    penalty[words:] = _TYPE_PENALTY
    across = matrix.T.tocsr()

    def loss(theta: Floats) -> tuple[float, Floats]:
        odds = matrix @ theta
        chance = 1 / (1 + np.exp(-odds))
        value = np.logaddexp(0, odds).sum() - odds @ labels + 0.5 * (penalty * theta**2).sum()
        return float(value), across @ (chance - labels) + penalty * theta

    start = np.zeros(matrix.shape[1])
    held = {"maxiter": _ROUNDS, "ftol": 1e-5, "maxcor": 8}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=held).x
    return np.asarray(found[:words], np.float64)


def _mean_log_odds(odds: Floats, said: Flags, types: Ints, kinds: int) -> Floats:
    """[D + 1]: the mean log odds of the texts of each type; of all, for a type without any and for unknown types."""
    overall = float(odds[said].mean()) if said.any() else 0.0
    means = [odds[said & (types == kind)] for kind in range(kinds)]
    return np.array([*(float(own.mean()) if len(own) else overall for own in means), overall])
