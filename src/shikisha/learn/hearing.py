"""Fitting the hearing: for each worker a logistic model of being right over the words of what it wrote.

Invariant: what is told of a task during fitting comes from folds that the task is not in; each fold's fit begins at
zero, since one that begins at a fit on all tasks would carry their labels along. Deliberately absent: anything but
words; types stand in the fit only so that words do not have to say them.
"""

from typing import TYPE_CHECKING

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.hearing import Hearing
from shikisha.policy.words import HEARD, Words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_RIDGE = 1.5
_TYPES = 0.15
_ROUNDS = 60
_LEAST = 200  # texts of a worker below which nobody listens to it
_RARE = 5  # texts in which a word must stand


def listen(panel: Panel, folds: Ints) -> tuple[Hearing | None, Floats | None]:
    """Return a hearing, and [T, J] what is told of each answer by fits without it; two None where no text is kept."""
    heard = [worker for worker, words in enumerate(panel.texts) if words and (~words.empty).sum() >= _LEAST]
    if not heard:
        return None, None
    kinds, workers = len(panel.types.names), len(panel.workers)
    rarity = _rarity([panel.texts[worker] for worker in heard])
    weights, usual = np.zeros((workers, HEARD)), np.zeros((kinds + 1, workers))
    flags, tells = np.zeros(workers, bool), np.zeros(panel.codes.shape)
    count = int(folds.max()) + 1
    for worker in heard:
        words = panel.texts[worker]
        if words is None:
            continue
        scaled, said = words.scaled(rarity), ~words.empty
        matrix, labels = _matrix(scaled, panel, kinds), panel.won[:, worker] > 0.5
        odds = np.zeros(len(panel))
        for fold in range(count):
            rows = np.flatnonzero((folds != fold) & said)
            found = _logistic(matrix[rows], labels[rows].astype(float), kinds)
            weights[worker] += found / count
            odds[folds == fold] = scaled.dot(found)[folds == fold]
        flags[worker] = True
        usual[:, worker] = _usual(odds, said, panel.batch.types, kinds)
        told = np.clip(odds - usual[panel.batch.types, worker], -3, 3)
        tells[:, worker] = np.where(said, told, 0.0)
    return Hearing(weights, rarity, usual, flags), tells


def _rarity(texts: "list[Words | None]") -> Floats:
    """[HEARD]: how rare each word is (log of one over its share of the texts); 0 for those hardly ever seen."""
    found = [words for words in texts if words is not None]
    seen = np.bincount(np.concatenate([words.places for words in found]), minlength=HEARD)
    total = sum(len(words) for words in found)
    return np.where(seen >= _RARE, 1 + np.log((1 + total) / (1 + seen)), 0.0)


def _matrix(words: Words, panel: Panel, kinds: int) -> "csr_matrix":
    """Return [T, HEARD + D + 1], the words, the type, and a constant."""
    try:
        from scipy.sparse import csr_matrix, hstack
    except ImportError:
        raise MissingExtra("learn", "listening to answers") from None
    kept = words.weights > 0
    rows = words.rows[kept]
    table = csr_matrix((words.weights[kept], (rows, words.places[kept])), shape=(len(words), HEARD))
    types = np.eye(kinds + 1)[panel.batch.types]
    types[:, kinds] = 1.0
    return hstack([table, csr_matrix(types)]).tocsr()


def _logistic(matrix: "csr_matrix", labels: Floats, kinds: int) -> Floats:
    """Return the words' weights of a ridge logistic regression."""
    from scipy.optimize import minimize

    penalty = np.full(matrix.shape[1], _RIDGE)
    penalty[HEARD:] = _TYPES
    across = matrix.T.tocsr()

    def loss(theta: Floats) -> tuple[float, Floats]:
        odds = matrix @ theta
        chance = 1 / (1 + np.exp(-odds))
        value = np.logaddexp(0, odds).sum() - odds @ labels + 0.5 * (penalty * theta**2).sum()
        return float(value), across @ (chance - labels) + penalty * theta

    start = np.zeros(HEARD + kinds + 1)
    held = {"maxiter": _ROUNDS, "ftol": 1e-5, "maxcor": 8}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=held).x
    return np.asarray(found[:HEARD], np.float64)


def _usual(odds: Floats, said: Flags, types: Ints, kinds: int) -> Floats:
    """[D + 1]: the mean log odds of the texts of each type; of all, for a type without any and for unknown types."""
    overall = float(odds[said].mean()) if said.any() else 0.0
    means = [odds[said & (types == kind)] for kind in range(kinds)]
    return np.array([*(float(own.mean()) if len(own) else overall for own in means), overall])
