"""Fitting the answer scorer: a penalised conditional logit, on all answers and on random subsets of them.

A task is seen with every worker's answer and again with random subsets, because that is what the scorer will see when
only some have been asked. Invariant: the fit is the maximum of a concave likelihood less a quadratic penalty, so equal
data give equal scorers. Deliberately absent: calibration by subset (what is built on it, `inducing`, does that).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.scorer import Scorer

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_NONE, _WORKER, _SOUND = 0.1, 0.01, 1.0  # penalties that merely keep the fit finite
_FAR = 40.0  # log odds beyond which nothing changes


@dataclass(frozen=True, slots=True)
class Penalties:
    """What is held back (ridge): a worker's weight for one type, what a pair counts besides, and one worker's sound."""

    types: float = 12.0
    pairs: float = 15.0
    sound: float = 30.0
    subsets: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Design:
    """A row for each candidate answer of each task as seen: `matrix` [R, p], `owner` [R] its task, `right` [R].

    `some` [N]: whether a right answer was given; `types` [N]; `weight` of each task as seen.
    """

    matrix: "csr_matrix"
    owner: Ints
    right: Floats
    some: Floats
    types: Ints
    weight: float


def fit_scorer(panel: Panel, penalties: Penalties | None = None) -> Scorer:
    """Return the scorer of a panel; outcomes without a score count as not right."""
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise MissingExtra("learn", "fitting a scorer") from None
    held = penalties or Penalties()
    kinds, workers = len(panel.types.names), len(panel.workers)
    design = _design(panel, held)
    sizes = _sizes(kinds, workers)
    strengths = (_NONE, _NONE, _WORKER, held.types, held.pairs, _SOUND, held.sound)
    penalty = np.repeat(strengths, sizes)
    start = np.repeat((0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0), sizes)
    across = design.matrix.T.tocsr()
    found = minimize(
        lambda theta: _loss(theta, design, across, penalty),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 100, "ftol": 1e-7, "maxcor": 10},
    ).x
    return _scorer(found, kinds, workers)


def rightness(panel: Panel) -> Floats:
    """[T, K]: how right each candidate answer is, the mean score of those who gave it."""
    count = max(1, int(panel.codes.max(initial=0)) + 1)
    total, given = np.zeros((len(panel), count)), np.zeros((len(panel), count))
    for column in range(len(panel.workers)):
        rows = np.flatnonzero((panel.codes[:, column] >= 0) & ~np.isnan(panel.scores[:, column]))
        np.add.at(total, (rows, panel.codes[rows, column]), panel.scores[rows, column])
        np.add.at(given, (rows, panel.codes[rows, column]), 1.0)
    return np.divide(total, given, out=np.zeros_like(total), where=given > 0)


def _sizes(kinds: int, workers: int) -> tuple[int, ...]:
    """Return how many parameters there are: none, none by type, support, by type, pairs, sound, sound by worker."""
    return 1, kinds, workers, kinds * workers, workers * (workers - 1) // 2, 1, workers


def _design(panel: Panel, held: Penalties) -> _Design:
    """Lay out the tasks, seen whole and in random subsets."""
    from scipy.sparse import csr_matrix

    codes, copies = _subsets(panel, held)
    types = np.tile(panel.batch.types, copies)
    right = np.tile(np.greater(rightness(panel), 0.5), (copies, 1))
    tells = None if panel.tells is None else np.tile(panel.tells, (copies, 1))
    base, entries = np.arange(len(codes)) * right.shape[1], _Entries()
    kinds, workers = len(panel.types.names), codes.shape[1]
    by_type, by_pair = workers, workers * (1 + kinds)
    sound = by_pair + workers * (workers - 1) // 2
    pair = by_pair
    for worker in range(workers):
        said = np.flatnonzero(codes[:, worker] >= 0)
        cells = base[said] + codes[said, worker]
        entries.add(cells, worker)
        typed = types[said] >= 0
        entries.add(cells[typed], by_type + types[said][typed] * workers + worker)
        if tells is not None:
            entries.add(cells, sound, tells[said, worker])
            entries.add(cells, sound + 1 + worker, tells[said, worker])
        for other in range(worker):
            both = said[codes[said, worker] == codes[said, other]]
            entries.add(base[both] + codes[both, worker], pair)
            pair += 1
    cells, columns, values = entries.joined()
    given = np.zeros(right.size, bool)
    given[cells] = True
    there, places = np.flatnonzero(given), np.cumsum(given) - 1
    shape = (len(there), sound + 1 + workers)
    matrix = csr_matrix((values, (places[cells], columns)), shape=shape)
    owner = there // right.shape[1]
    hits = right.ravel()[there].astype(float)
    some = np.bincount(owner, hits, len(codes)) > 0
    return _Design(matrix, owner, hits, some.astype(float), types, 1 / copies)


def _subsets(panel: Panel, held: Penalties) -> tuple[Ints, int]:
    """Return the codes of all tasks, whole and with random workers left out, and how many times they are there."""
    random = np.random.default_rng(held.seed)
    seen = [panel.codes]
    for _ in range(held.subsets):
        share = random.uniform(0.1, 0.9, (len(panel), 1))
        seen.append(np.where(random.random(panel.codes.shape) < share, panel.codes, -1))
    return np.concatenate(seen), len(seen)


class _Entries:
    """Collects the entries of a sparse matrix."""

    def __init__(self) -> None:
        self._held: list[tuple[Ints, Ints, Floats]] = []

    def add(self, cells: Ints, column: int | Ints, values: float | Floats = 1.0) -> None:
        size = len(cells)
        self._held.append((cells, np.broadcast_to(column, size), np.broadcast_to(values, size)))

    def joined(self) -> tuple[Ints, Ints, Floats]:
        cells, columns, values = zip(*self._held, strict=True)
        return np.concatenate(cells), np.concatenate(columns), np.concatenate(values).astype(float)


def _loss(theta: Floats, design: _Design, across: "csr_matrix", penalty: Floats) -> tuple[float, Floats]:
    """Return the penalised negative log-likelihood and its gradient."""
    free = len(theta) - design.matrix.shape[1]
    count, types = len(design.types), design.types
    by_type = np.append(theta[0] + theta[1:free], theta[0])
    nothing = np.exp(by_type[types])
    worth = np.exp(np.clip(design.matrix @ theta[free:], -_FAR, _FAR))
    total = nothing + np.bincount(design.owner, worth, count)
    hit = np.where(design.some > 0, np.bincount(design.owner, worth * design.right, count), nothing)
    loss = -np.log(hit / total).sum() * design.weight
    owner = design.owner
    target = np.where(design.some[owner] > 0, worth * design.right / hit[owner], 0.0)
    slope = (worth / total[owner] - target) * design.weight
    missed = (nothing / total - (design.some == 0)) * design.weight
    none = np.bincount(types % free, missed, free)
    gradient = np.concatenate([[none.sum()], none[: free - 1], across @ slope])
    return float(loss + 0.5 * (penalty * theta**2).sum()), gradient + penalty * theta


def _scorer(theta: Floats, kinds: int, workers: int) -> Scorer:
    ends = np.cumsum(_sizes(kinds, workers))[:-1]
    overall, none, weights, own, pairs, sound, by_worker = np.split(theta, ends)
    table = np.zeros((workers, workers))
    table[np.tril_indices(workers, -1)] = pairs
    support = np.vstack([weights + own.reshape(kinds, workers), weights])
    return Scorer(np.append(overall + none, overall), support, table + table.T, sound + by_worker)
