"""Router baselines: they read a prompt, estimate each worker's success, and ask the one with the highest utility.

Utility is the estimated score less a price times the mean cost of the worker on tasks of that type. TF-IDF (Sparck
Jones 1972) is over the hashed words that policies use. Routers named after a publication restate it with our features.

    nearest    the mean score of the most similar prompts                            (k nearest neighbors)
    logistic   a logistic regression per worker, on words and types
    factored   a worker's vector times a projection of the prompt's                  (after RouteLLM, arXiv 2406.18665)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.baselines import BaselineFitter, BaselineOutcomes, FittedBaseline, score_picks
from shikisha.routing.fit.fit_table import PRICES, build_table
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import TaskBatch
from shikisha.routing.text_features import PROMPT_BUCKETS

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Words in fewer tasks, or in a larger share of them, are ignored.
_FEW, _COMMON = 2, 0.5
_SEED = 0
# Estimates of every worker's score by variant, [V, T, J].
ScoreEstimator = Callable[[TaskBatch], Floats]
EstimatorFitter = Callable[[OutcomeMatrix], ScoreEstimator]
NEIGHBOURS = (10, 40, 160)
# Rows of the similarity matrix held in memory at once.
_ROWS = 256
# Pseudo-neighbors with the mean score, so that few neighbors do not decide alone.
_PULL = 5.0
_DIRECTIONS, _RANK = 64, 12
# Ridge of the logistic and the factored router, chosen by log-loss on training folds.
_RIDGE, _FACTOR_RIDGE = 1.0, 12.0
_STEPS = 60


@dataclass(frozen=True, slots=True)
class TfidfFeatures:
    """The inverse document frequency of each hashed word, [PROMPT_BUCKETS]; 0 for those left out."""

    rarity: Floats

    @classmethod
    def of(cls, matrix: OutcomeMatrix) -> "TfidfFeatures":
        """Learn the frequencies from a matrix."""
        count = np.bincount(matrix.batch.words.places, minlength=PROMPT_BUCKETS)
        rarity = np.log((1 + len(matrix)) / (1 + count)) + 1
        return cls(np.where((count < _FEW) | (count > _COMMON * len(matrix)), 0.0, rarity))

    def rows(self, batch: TaskBatch) -> "csr_matrix":
        """Return the TF-IDF vectors of these tasks, [T, PROMPT_BUCKETS], sparse."""
        try:
            from scipy.sparse import csr_matrix
            from sklearn.preprocessing import normalize
        except ImportError:
            raise MissingExtra("learn", "a router that reads prompts") from None
        words = batch.words
        scaled = words.weights * self.rarity[words.places]
        rows = csr_matrix((scaled, words.places, words.starts), (len(batch), PROMPT_BUCKETS))
        rows.sum_duplicates()
        rows.eliminate_zeros()
        return normalize(rows, copy=False)


@dataclass(frozen=True, slots=True)
class ReducedTexts:
    """Texts along the principal directions of a matrix's prompts, with one column per task type."""

    texts: TfidfFeatures
    directions: Floats
    kinds: int

    @classmethod
    def of(cls, matrix: OutcomeMatrix, size: int) -> "ReducedTexts":
        """Learn so many directions from a matrix (latent semantic analysis, Deerwester et al. 1990)."""
        from sklearn.decomposition import TruncatedSVD

        texts = TfidfFeatures.of(matrix)
        svd = TruncatedSVD(min(size, len(matrix) - 1), random_state=_SEED).fit(texts.rows(matrix.batch))
        return cls(texts, np.asarray(svd.components_.T, np.float64), len(matrix.types.names))

    def rows(self, batch: TaskBatch) -> Floats:
        """Return [T, n + D]; a task of unknown type has zeros in the last D columns."""
        along = np.asarray(self.texts.rows(batch) @ self.directions, np.float64)
        spread = np.linalg.norm(along, axis=1, keepdims=True)
        return np.concatenate([along / np.maximum(spread, 1e-9), type_one_hot(batch, self.kinds)], axis=1)


def type_one_hot(batch: TaskBatch, kinds: int) -> Floats:
    """Return [T, D]: one where the task is of this type."""
    hot: Floats = np.eye(kinds + 1)[batch.types][:, :kinds]
    return hot


if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def router_baselines() -> dict[str, BaselineFitter]:
    """Return the routers by name."""
    return {
        "nearest": route_by_estimate(fit_nearest_neighbors),
        "logistic": route_by_estimate(fit_logistic_router),
        "factored": route_by_estimate(fit_factored_router),
    }


def route_by_estimate(guesses: EstimatorFitter) -> BaselineFitter:
    """Return the baseline that asks the worker with the highest estimated utility; a setting per variant and price."""

    def fit(matrix: OutcomeMatrix) -> FittedBaseline:
        guess, cost = guesses(matrix), build_table(matrix, matrix.cost_unit()).cost

        def perform(held_out: OutcomeMatrix) -> BaselineOutcomes:
            costs = cost[held_out.batch.types]
            picks = [best_by_price(estimate, costs, price) for estimate in guess(held_out.batch) for price in PRICES]
            return score_picks(np.stack(picks, axis=1), held_out)

        return perform

    return fit


def best_by_price(estimate: Floats, cost: Floats, price: float) -> Ints:
    """Return [T], the worker with the highest utility at a price: `estimate` and `cost` [T, J]."""
    return np.asarray((estimate - price * cost).argmax(axis=1), np.int64)


def fit_nearest_neighbors(matrix: OutcomeMatrix) -> ScoreEstimator:
    """Fit nearest neighbors by cosine similarity of words; a variant for each number of NEIGHBOURS."""
    texts, known = TfidfFeatures.of(matrix), ~np.isnan(matrix.scores)
    words, means = texts.rows(matrix.batch), matrix.mean_scores()

    def guess(batch: TaskBatch) -> Floats:
        rows = texts.rows(batch)
        estimates = np.empty((len(NEIGHBOURS), len(batch), len(matrix.workers)))
        for start in range(0, len(batch), _ROWS):
            similarity = np.asarray((rows[start : start + _ROWS] @ words.T).todense(), np.float64)
            nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : NEIGHBOURS[-1]]
            for index, count in enumerate(NEIGHBOURS):
                among = nearest[:, :count]
                total = (matrix.won[among] * known[among]).sum(axis=1) + _PULL * means
                estimates[index, start : start + _ROWS] = total / (known[among].sum(axis=1) + _PULL)
        return estimates

    return guess


def fit_logistic_router(matrix: OutcomeMatrix) -> ScoreEstimator:
    """Fit a logistic regression for each worker, on words and types."""
    from scipy.sparse import csr_matrix, hstack

    texts, kinds = TfidfFeatures.of(matrix), len(matrix.types.names)

    def rows(batch: TaskBatch) -> "csr_matrix":
        return hstack([texts.rows(batch), csr_matrix(type_one_hot(batch, kinds))], format="csr")

    seen, workers = rows(matrix.batch), len(matrix.workers)

    def loss(theta: Floats) -> tuple[float, Floats]:
        weights, own = theta[:-workers].reshape(-1, workers), theta[-workers:]
        value, slope = _log_loss(seen @ weights + own, matrix)
        steep = np.concatenate([(seen.T @ slope + _RIDGE * weights).ravel(), slope.sum(axis=0)])
        return value + 0.5 * _RIDGE * float((weights**2).sum()), steep

    theta = _minimize(loss, np.zeros((seen.shape[1] + 1) * workers))
    return lambda batch: _sigmoid(rows(batch) @ theta[:-workers].reshape(-1, workers) + theta[-workers:])[None]


def fit_factored_router(matrix: OutcomeMatrix) -> ScoreEstimator:
    """Fit a vector for each worker and a projection of prompts, whose product is the log odds of being right.

    RouteLLM fits the like on pairwise preferences with a downloaded embedding of the prompt; here it is every worker's
    own score, and words reduced to their principal directions, with the task's type.
    """
    reduced = ReducedTexts.of(matrix, _DIRECTIONS)
    seen, workers = reduced.rows(matrix.batch), len(matrix.workers)
    size = seen.shape[1] * _RANK

    def parts(theta: Floats) -> tuple[Floats, Floats, Floats]:
        project, vectors, own = np.split(theta, [size, size + workers * _RANK])
        return project.reshape(-1, _RANK), vectors.reshape(workers, _RANK), own

    def loss(theta: Floats) -> tuple[float, Floats]:
        project, vectors, own = parts(theta)
        along = seen @ project
        value, slope = _log_loss(along @ vectors.T + own, matrix)
        held = 0.5 * _FACTOR_RIDGE * float((project**2).sum() + (vectors**2).sum())
        steep = (
            seen.T @ (slope @ vectors) + _FACTOR_RIDGE * project,
            slope.T @ along + _FACTOR_RIDGE * vectors,
            slope.sum(axis=0),
        )
        return value + held, np.concatenate([part.ravel() for part in steep])

    random = np.random.default_rng(_SEED)
    start = np.append(random.normal(0, 0.1, size + workers * _RANK), np.zeros(workers))
    project, vectors, own = parts(_minimize(loss, start))
    return lambda batch: _sigmoid(reduced.rows(batch) @ project @ vectors.T + own)[None]


def _log_loss(odds: Floats, matrix: OutcomeMatrix) -> tuple[float, Floats]:
    """Return the log-loss of these log odds [T, J] over known scores, and its gradient."""
    graded: Flags = ~np.isnan(matrix.scores)
    value = (np.logaddexp(0.0, odds) - matrix.won * odds) * graded
    return float(value.sum()), (_sigmoid(odds) - matrix.won) * graded


def _sigmoid(odds: Floats) -> Floats:
    chance: Floats = 0.5 * (1 + np.tanh(0.5 * odds))
    return chance


def _minimize(loss: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("learn", "fitting a router") from None
    result = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return np.asarray(result.x, np.float64)
