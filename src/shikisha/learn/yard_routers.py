"""Routers as yardsticks: they read a prompt, say how probably each worker is right, and ask the one worth most.

Worth is the estimated score less a price times what the worker costs on tasks of that type in the mean. Each router is
tried at many prices; its variants (how many neighbours) are settings as well, so a dial picks them on the training
part. Invariant: one worker is asked, whatever it says. Deliberately absent: other people's code; what is said to be
after somebody is our restatement of what they published, with our features.

    nearest    the mean score of the most alike prompts                              (k nearest neighbours)
    logistic   a logistic regression a worker, on words and types
    factored   a worker's vector times a projection of the prompt's                  (after RouteLLM, arXiv 2406.18665)
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.learn.panel import Panel
from shikisha.learn.tabling import PRICES, table_of
from shikisha.learn.yard_texts import Reduced, Texts, one_hot
from shikisha.learn.yard_trials import Came, Perform, Yard, of_picks
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import Batch

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Guess = Callable[[Batch], Floats]  # [V, T, J]: each variant's estimate of every worker's score
Guesses = Callable[[Panel], Guess]

NEIGHBOURS = (10, 40, 160)
_ROWS = 256  # whose likeness to all others is held at once
_PULL = 5.0  # neighbours of mean score that stand beside the real ones
_DIRECTIONS, _RANK = 64, 12
_RIDGE, _HELD = 1.0, 12.0  # of the logistic one and of the factored one, by log-loss on training folds
_STEPS = 60
_SEED = 0


def routers() -> dict[str, Yard]:
    """Return the routers by name."""
    return {"nearest": routed(nearest), "logistic": routed(logistic), "factored": routed(factored)}


def routed(guesses: Guesses) -> Yard:
    """Return the yardstick that asks whoever is worth most by these guesses; a setting for each variant and price."""

    def yard(panel: Panel) -> Perform:
        guess, cost = guesses(panel), table_of(panel, panel.unit()).cost

        def perform(held: Panel) -> Came:
            dear = cost[held.batch.types]
            picks = [best(estimate, dear, price) for estimate in guess(held.batch) for price in PRICES]
            return of_picks(np.stack(picks, axis=1), held)

        return perform

    return yard


def best(estimate: Floats, cost: Floats, price: float) -> Ints:
    """Return [T], who is worth most at a price: `estimate` and `cost` [T, J]."""
    return np.asarray((estimate - price * cost).argmax(axis=1), np.int64)


def nearest(panel: Panel) -> Guess:
    """Fit nearest neighbours by the cosine of their words; a variant for each number of NEIGHBOURS."""
    texts, known = Texts.of(panel), ~np.isnan(panel.scores)
    words, means = texts.rows(panel.batch), panel.means()

    def guess(batch: Batch) -> Floats:
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


def logistic(panel: Panel) -> Guess:
    """Fit a logistic regression for each worker, on words and types."""
    from scipy.sparse import csr_matrix, hstack

    texts, kinds = Texts.of(panel), len(panel.types.names)

    def rows(batch: Batch) -> "csr_matrix":
        return hstack([texts.rows(batch), csr_matrix(one_hot(batch, kinds))], format="csr")

    seen, workers = rows(panel.batch), len(panel.workers)

    def loss(theta: Floats) -> tuple[float, Floats]:
        weights, own = theta[:-workers].reshape(-1, workers), theta[-workers:]
        value, slope = _log_loss(seen @ weights + own, panel)
        steep = np.concatenate([(seen.T @ slope + _RIDGE * weights).ravel(), slope.sum(axis=0)])
        return value + 0.5 * _RIDGE * float((weights**2).sum()), steep

    theta = _least(loss, np.zeros((seen.shape[1] + 1) * workers))
    return lambda batch: _chance(rows(batch) @ theta[:-workers].reshape(-1, workers) + theta[-workers:])[None]


def factored(panel: Panel) -> Guess:
    """Fit a vector for each worker and a projection of prompts, whose product is the log odds of being right.

    RouteLLM fits the like on who won against whom in pairs, with a downloaded embedding of the prompt; here it is every
    worker's own score, and words reduced to their main directions, with the task's type beside them.
    """
    reduced = Reduced.of(panel, _DIRECTIONS)
    seen, workers = reduced.rows(panel.batch), len(panel.workers)
    size = seen.shape[1] * _RANK

    def parts(theta: Floats) -> tuple[Floats, Floats, Floats]:
        project, vectors, own = np.split(theta, [size, size + workers * _RANK])
        return project.reshape(-1, _RANK), vectors.reshape(workers, _RANK), own

    def loss(theta: Floats) -> tuple[float, Floats]:
        project, vectors, own = parts(theta)
        along = seen @ project
        value, slope = _log_loss(along @ vectors.T + own, panel)
        held = 0.5 * _HELD * float((project**2).sum() + (vectors**2).sum())
        steep = (seen.T @ (slope @ vectors) + _HELD * project, slope.T @ along + _HELD * vectors, slope.sum(axis=0))
        return value + held, np.concatenate([part.ravel() for part in steep])

    random = np.random.default_rng(_SEED)
    start = np.append(random.normal(0, 0.1, size + workers * _RANK), np.zeros(workers))
    project, vectors, own = parts(_least(loss, start))
    return lambda batch: _chance(reduced.rows(batch) @ project @ vectors.T + own)[None]


def _log_loss(odds: Floats, panel: Panel) -> tuple[float, Floats]:
    """Return the log-loss of these log odds [T, J] over what is known, and its slope."""
    known: Flags = ~np.isnan(panel.scores)
    value = (np.logaddexp(0.0, odds) - panel.won * odds) * known
    return float(value.sum()), (_chance(odds) - panel.won) * known


def _chance(odds: Floats) -> Floats:
    chance: Floats = 0.5 * (1 + np.tanh(0.5 * odds))
    return chance


def _least(loss: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("learn", "fitting a router") from None
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return np.asarray(found.x, np.float64)
