"""Routers as yardsticks: they read a prompt, say how probably each worker is right, and ask the one worth most.

Worth is the estimated score less a price times what the worker costs on tasks of that type in the mean. Each router is
tried at many prices; its variants (how many neighbours) are settings as well, so a dial picks them on the training
part. Invariant: one worker is asked, whatever it says. Deliberately absent: other people's code; what is said to be
after somebody is our restatement of what they published, with our features.

    nearest    the mean score of the most alike prompts                              (k nearest neighbours)
    logistic   a logistic regression a worker, on words and types
    factored   a worker's vector times a projection of the prompt's                  (after RouteLLM, arXiv 2406.18665)

Prompts as the routers among the yardsticks see them: hashed words weighed by how rare they are, and their types.

TF-IDF (Sparck Jones 1972) over the hashed words that policies use too, so that the same text has the same places
everywhere. Invariants: how rare a word is, and the directions of `reduced`, are learned from one panel and used on
others; each row of words has length 1. Deliberately absent: embeddings of sentences, which need a downloaded model.
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

_FEW, _COMMON = 2, 0.5  # a word in fewer tasks than this, or in a larger share of them, is left out
_SEED = 0


@dataclass(frozen=True, slots=True)
class TfidfFeatures:
    """What each hashed word counts, [SIZE]; 0 for those that are left out."""

    rarity: Floats

    @classmethod
    def of(cls, panel: OutcomeMatrix) -> "TfidfFeatures":
        """Learn from a panel how rare each word is."""
        count = np.bincount(panel.batch.words.places, minlength=PROMPT_BUCKETS)
        rarity = np.log((1 + len(panel)) / (1 + count)) + 1
        return cls(np.where((count < _FEW) | (count > _COMMON * len(panel)), 0.0, rarity))

    def rows(self, batch: TaskBatch) -> "csr_matrix":
        """Return the words of these tasks, [T, SIZE], sparse."""
        try:
            from scipy.sparse import csr_matrix
            from sklearn.preprocessing import normalize
        except ImportError:
            raise MissingExtra("learn", "a router that reads prompts") from None
        words = batch.words
        held = words.weights * self.rarity[words.places]
        rows = csr_matrix((held, words.places, words.starts), (len(batch), PROMPT_BUCKETS))
        rows.sum_duplicates()
        rows.eliminate_zeros()
        return normalize(rows, copy=False)


@dataclass(frozen=True, slots=True)
class ReducedTexts:
    """Texts along the directions in which a panel's prompts differ most, with a column for each task type besides."""

    texts: TfidfFeatures
    directions: Floats
    kinds: int

    @classmethod
    def of(cls, panel: OutcomeMatrix, size: int) -> "ReducedTexts":
        """Learn so many directions from a panel (latent semantic analysis, Deerwester et al. 1990)."""
        from sklearn.decomposition import TruncatedSVD

        texts = TfidfFeatures.of(panel)
        found = TruncatedSVD(min(size, len(panel) - 1), random_state=_SEED).fit(texts.rows(panel.batch))
        return cls(texts, np.asarray(found.components_.T, np.float64), len(panel.types.names))

    def rows(self, batch: TaskBatch) -> Floats:
        """Return [T, n + D]; a task of unknown type has nothing in the last D columns."""
        along = np.asarray(self.texts.rows(batch) @ self.directions, np.float64)
        spread = np.linalg.norm(along, axis=1, keepdims=True)
        return np.concatenate([along / np.maximum(spread, 1e-9), type_one_hot(batch, self.kinds)], axis=1)


def type_one_hot(batch: TaskBatch, kinds: int) -> Floats:
    """Return [T, D]: one where the task is of this type."""
    hot: Floats = np.eye(kinds + 1)[batch.types][:, :kinds]
    return hot


if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

ScoreEstimator = Callable[[TaskBatch], Floats]  # [V, T, J]: each variant's estimate of every worker's score
EstimatorFitter = Callable[[OutcomeMatrix], ScoreEstimator]

NEIGHBOURS = (10, 40, 160)
_ROWS = 256  # whose likeness to all others is held at once
_PULL = 5.0  # neighbours of mean score that stand beside the real ones
_DIRECTIONS, _RANK = 64, 12
_RIDGE, _FACTOR_RIDGE = 1.0, 12.0  # of the logistic one and of the factored one, by log-loss on training folds
_STEPS = 60


def router_baselines() -> dict[str, BaselineFitter]:
    """Return the routers by name."""
    return {
        "nearest": route_by_estimate(fit_nearest_neighbors),
        "logistic": route_by_estimate(fit_logistic_router),
        "factored": route_by_estimate(fit_factored_router),
    }


def route_by_estimate(guesses: EstimatorFitter) -> BaselineFitter:
    """Return the yardstick that asks whoever is worth most by these guesses; a setting for each variant and price."""

    def yard(panel: OutcomeMatrix) -> FittedBaseline:
        guess, cost = guesses(panel), build_table(panel, panel.cost_unit()).cost

        def perform(held: OutcomeMatrix) -> BaselineOutcomes:
            dear = cost[held.batch.types]
            picks = [best_by_price(estimate, dear, price) for estimate in guess(held.batch) for price in PRICES]
            return score_picks(np.stack(picks, axis=1), held)

        return perform

    return yard


def best_by_price(estimate: Floats, cost: Floats, price: float) -> Ints:
    """Return [T], who is worth most at a price: `estimate` and `cost` [T, J]."""
    return np.asarray((estimate - price * cost).argmax(axis=1), np.int64)


def fit_nearest_neighbors(panel: OutcomeMatrix) -> ScoreEstimator:
    """Fit nearest neighbours by the cosine of their words; a variant for each number of NEIGHBOURS."""
    texts, known = TfidfFeatures.of(panel), ~np.isnan(panel.scores)
    words, means = texts.rows(panel.batch), panel.mean_scores()

    def guess(batch: TaskBatch) -> Floats:
        rows = texts.rows(batch)
        found = np.empty((len(NEIGHBOURS), len(batch), len(panel.workers)))
        for start in range(0, len(batch), _ROWS):
            alike = np.asarray((rows[start : start + _ROWS] @ words.T).todense(), np.float64)
            near = np.argsort(-alike, axis=1, kind="stable")[:, : NEIGHBOURS[-1]]
            for place, count in enumerate(NEIGHBOURS):
                among = near[:, :count]
                total = (panel.won[among] * known[among]).sum(axis=1) + _PULL * means
                found[place, start : start + _ROWS] = total / (known[among].sum(axis=1) + _PULL)
        return found

    return guess


def fit_logistic_router(panel: OutcomeMatrix) -> ScoreEstimator:
    """Fit a logistic regression for each worker, on words and types."""
    from scipy.sparse import csr_matrix, hstack

    texts, kinds = TfidfFeatures.of(panel), len(panel.types.names)

    def rows(batch: TaskBatch) -> "csr_matrix":
        return hstack([texts.rows(batch), csr_matrix(type_one_hot(batch, kinds))], format="csr")

    seen, workers = rows(panel.batch), len(panel.workers)

    def loss(theta: Floats) -> tuple[float, Floats]:
        weights, own = theta[:-workers].reshape(-1, workers), theta[-workers:]
        value, slope = _log_loss(seen @ weights + own, panel)
        steep = np.concatenate([(seen.T @ slope + _RIDGE * weights).ravel(), slope.sum(axis=0)])
        return value + 0.5 * _RIDGE * float((weights**2).sum()), steep

    theta = _minimize(loss, np.zeros((seen.shape[1] + 1) * workers))
    return lambda batch: _sigmoid(rows(batch) @ theta[:-workers].reshape(-1, workers) + theta[-workers:])[None]


def fit_factored_router(panel: OutcomeMatrix) -> ScoreEstimator:
    """Fit a vector for each worker and a projection of prompts, whose product is the log odds of being right.

    RouteLLM fits the like on who won against whom in pairs, with a downloaded embedding of the prompt; here it is every
    worker's own score, and words reduced to their main directions, with the task's type beside them.
    """
    reduced = ReducedTexts.of(panel, _DIRECTIONS)
    seen, workers = reduced.rows(panel.batch), len(panel.workers)
    size = seen.shape[1] * _RANK

    def parts(theta: Floats) -> tuple[Floats, Floats, Floats]:
        project, vectors, own = np.split(theta, [size, size + workers * _RANK])
        return project.reshape(-1, _RANK), vectors.reshape(workers, _RANK), own

    def loss(theta: Floats) -> tuple[float, Floats]:
        project, vectors, own = parts(theta)
        along = seen @ project
        value, slope = _log_loss(along @ vectors.T + own, panel)
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


def _log_loss(odds: Floats, panel: OutcomeMatrix) -> tuple[float, Floats]:
    """Return the log-loss of these log odds [T, J] over what is known, and its slope."""
    known: Flags = ~np.isnan(panel.scores)
    value = (np.logaddexp(0.0, odds) - panel.won * odds) * known
    return float(value.sum()), (_sigmoid(odds) - panel.won) * known


def _sigmoid(odds: Floats) -> Floats:
    chance: Floats = 0.5 * (1 + np.tanh(0.5 * odds))
    return chance


def _minimize(loss: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("learn", "fitting a router") from None
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return np.asarray(found.x, np.float64)
