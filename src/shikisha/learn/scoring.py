"""Fitting the answer scorer: a penalised conditional logit, on all answers and on random subsets of them.

A task is seen with every worker's answer and again with random subsets, because that is what the scorer will see when
only some have been asked. Invariant: the fit is the maximum of a concave likelihood less a quadratic penalty, so equal
data give equal scorers. Deliberately absent: calibration by subset (what is built on it, `inducing`, does that).
"""

from dataclasses import dataclass

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.scorer import Scorer

_NONE, _WORKER = 0.1, 0.01  # penalties that merely keep the fit finite
_ABSENT = -1e9


@dataclass(frozen=True, slots=True)
class Penalties:
    """How much a worker's weight for one task type, and what a pair counts besides, is held back (ridge)."""

    types: float = 12.0
    pairs: float = 15.0
    subsets: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Sums:
    """Which cells of [N, K] each term adds to: by worker (cells, types), and by pair of workers (cells)."""

    rows: int
    count: int
    workers: tuple[tuple[Ints, Ints], ...]
    pairs: tuple[tuple[int, int, Ints], ...]
    types: Ints
    right: Floats
    given: Floats
    weight: float


def fit_scorer(panel: Panel, penalties: Penalties | None = None) -> Scorer:
    """Return the scorer of a panel; outcomes without a score count as not right."""
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("learn", "fitting a scorer") from None
    held = penalties or Penalties()
    kinds, workers = len(panel.types.names), len(panel.workers)
    sums = _sums(panel, held)
    start = np.concatenate([np.zeros(1 + kinds), np.ones(workers), np.zeros(kinds * workers + len(sums.pairs))])
    penalty = np.concatenate(
        [
            np.full(1 + kinds, _NONE),
            np.full(workers, _WORKER),
            np.full(kinds * workers, held.types),
            np.full(len(sums.pairs), held.pairs),
        ]
    )
    found = minimize(
        lambda theta: _loss(theta, sums, kinds, workers, penalty),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 120, "ftol": 1e-7},
    ).x
    return _scorer(found, panel, sums, kinds)


def rightness(panel: Panel) -> Floats:
    """[T, K]: how right each candidate answer is, the mean score of those who gave it."""
    count = max(1, int(panel.codes.max(initial=0)) + 1)
    total, given = np.zeros((len(panel), count)), np.zeros((len(panel), count))
    for column in range(len(panel.workers)):
        rows = np.flatnonzero((panel.codes[:, column] >= 0) & ~np.isnan(panel.scores[:, column]))
        np.add.at(total, (rows, panel.codes[rows, column]), panel.scores[rows, column])
        np.add.at(given, (rows, panel.codes[rows, column]), 1.0)
    return np.divide(total, given, out=np.zeros_like(total), where=given > 0)


def _sums(panel: Panel, held: Penalties) -> _Sums:
    """Lay out the tasks, seen whole and in random subsets, as sums over cells."""
    random = np.random.default_rng(held.seed)
    masks = [np.ones(panel.codes.shape, bool)]
    for _ in range(held.subsets):
        share = random.uniform(0.1, 0.9, (len(panel), 1))
        masks.append(random.random(panel.codes.shape) < share)
    codes = np.concatenate([np.where(mask, panel.codes, -1) for mask in masks])
    types = np.tile(panel.batch.types, len(masks))
    right: Flags = np.tile(np.greater(rightness(panel), 0.5), (len(masks), 1))
    rows, count = right.shape
    base = np.arange(rows) * count
    given = np.zeros(rows * count, bool)
    by_worker, by_pair = [], []
    for worker in range(codes.shape[1]):
        said = np.flatnonzero(codes[:, worker] >= 0)
        cells = base[said] + codes[said, worker]
        given[cells] = True
        by_worker.append((cells, types[said]))
        for other in range(worker):
            both = said[codes[said, worker] == codes[said, other]]
            by_pair.append((worker, other, base[both] + codes[both, worker]))
    shape = given.reshape(rows, count)
    return _Sums(
        rows, count, tuple(by_worker), tuple(by_pair), types, (right & shape).astype(float), shape, 1 / len(masks)
    )


def _loss(theta: Floats, sums: _Sums, kinds: int, workers: int, penalty: Floats) -> tuple[float, Floats]:
    """Return the penalised negative log-likelihood and its gradient."""
    base, support, pairs = _unpacked(theta, kinds, workers)
    scores = np.zeros(sums.rows * sums.count)
    for worker, (cells, types) in enumerate(sums.workers):
        scores[cells] += support[types, worker]
    for (_, _, cells), weight in zip(sums.pairs, pairs, strict=True):
        scores[cells] += weight
    table = np.where(sums.given, scores.reshape(sums.rows, sums.count), _ABSENT)
    nothing = base[sums.types]
    top = np.maximum(table.max(axis=1), nothing)
    chance, missed = np.exp(table - top[:, None]), np.exp(nothing - top)
    total = chance.sum(axis=1) + missed
    chance, missed = chance / total[:, None], missed / total
    hit = (chance * sums.right).sum(axis=1)
    some: Flags = np.greater(sums.right.sum(axis=1), 0)
    loss = -np.log(np.where(some, hit, missed) + 1e-12).sum() * sums.weight
    target = np.where(some[:, None], chance * sums.right / np.maximum(hit, 1e-300)[:, None], 0.0)
    slope = ((chance - target) * sums.weight).ravel()
    missed_slope = (missed - ~some) * sums.weight
    slope_none = np.bincount(sums.types % (kinds + 1), missed_slope, kinds + 1)
    slope_own = np.zeros((kinds + 1, workers))
    for worker, (cells, types) in enumerate(sums.workers):
        slope_own[:, worker] = np.bincount(types % (kinds + 1), slope[cells], kinds + 1)
    slope_pairs = np.array([slope[cells].sum() for _, _, cells in sums.pairs])
    slope_none = np.append(slope_none.sum(), slope_none[:kinds])
    gradient = np.concatenate([slope_none, slope_own.sum(axis=0), slope_own[:kinds].ravel(), slope_pairs])
    return float(loss + 0.5 * (penalty * theta**2).sum()), gradient + penalty * theta


def _scorer(theta: Floats, panel: Panel, sums: _Sums, kinds: int) -> Scorer:
    workers = len(panel.workers)
    none, support, pairs = _unpacked(theta, kinds, workers)
    table = np.zeros((workers, workers))
    for (worker, other, _), weight in zip(sums.pairs, pairs, strict=True):
        table[worker, other] = table[other, worker] = weight
    return Scorer(none, support, table)


def _unpacked(theta: Floats, kinds: int, workers: int) -> tuple[Floats, Floats, Floats]:
    """Return the score of none by type, the workers' support by type (a last row for unknown types each), and pairs."""
    ends = np.cumsum([1, kinds, workers, kinds * workers])
    overall, none, weights, own, pairs = np.split(theta, ends)
    support = np.vstack([weights + own.reshape(kinds, workers), weights])
    return np.append(overall + none, overall), support, pairs
