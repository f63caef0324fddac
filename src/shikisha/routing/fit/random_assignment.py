"""Random assignment: logs of A/B traffic and overlapping prompts, whose propensities nobody recorded.

Where a worker was drawn without regard to the task, its propensity is its share of the tasks of a type that were given
to so many workers, and a log can be judged as if that had been written down (estimated propensities: Hirano, Imbens and
Ridder 2003). Sound are only policies that ask one worker: how probable it was that two were asked together is not
known. Tests of balance refuse logs in which a worker's tasks differ from those of others of the same type, in form,
words, or in what others score on them, and logs in which more workers were asked where one failed. Invariants: an
estimate needs the user's word that assignment was random, since a test can refuse it and cannot prove it; what depends
on something that the log does not show (the hour, the client) goes unnoticed.
"""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.plots.number_format import plural
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.text_features import PROMPT_BUCKETS

# A log without selection is refused at most this often.
_FALSE_ALARMS = 0.01
# Numbers of workers asked for a task from which on they count as one.
_MANY_ASKED = 4
# With fewer tasks of a type and number of workers asked, shares are those of all types.
_MIN_STRATUM = 50
# Words are seen in so many random projections.
_PROJECTIONS = 12
_FORMS = ("longer prompts", "more digits", "more formulas", "more lettered options")
_EASE, _WORDS = "tasks on which others score higher", "prompts with other words"
_OPPOSITES = {
    "longer prompts": "shorter prompts",
    "more digits": "fewer digits",
    "more formulas": "fewer formulas",
    "more lettered options": "fewer lettered options",
    _EASE: "tasks on which others score lower",
    _WORDS: _WORDS,
}
# How many workers were asked may go with scores by so many standard errors.
_MAX_ERRORS = 4.0
# A worker with fewer tasks, or others with fewer, cannot be compared.
_MIN_COMPARED = 30


def estimate_propensities(matrix: OutcomeMatrix) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix with propensities, and a note; ConfigError where assignment was not random, or is known."""
    if (matrix.there & ~np.isnan(matrix.propensities)).any():
        raise ConfigError(
            "--random-assignment: the log records how probably each worker was asked; leave the option out"
        )
    if matrix.turns is not None:
        raise ConfigError("--random-assignment: the log records turns, so later workers depend on earlier answers")
    strata = _strata(matrix)
    _refuse_dependent_asks(matrix)
    imbalance = find_imbalance(matrix, strata)
    if imbalance is not None:
        raise ConfigError(
            f"--random-assignment: {imbalance.worker} was asked for {imbalance.what} than others of the same type "
            f"({imbalance.errors:.1f} standard errors on {plural(imbalance.tasks, 'task')}), so workers were not drawn "
            "without regard to the task, and their results cannot be compared. Record propensities, or ask every "
            "worker for the same tasks"
        )
    shares = _inclusion_shares(matrix, strata)
    note = (
        "propensities are estimated, since you say that workers were drawn without regard to the task; nothing in the "
        "prompts speaks against it. Only policies that ask one worker are judged"
    )
    return replace(matrix, propensities=np.where(matrix.there, shares, np.nan)), (note,)


def _refuse_dependent_asks(matrix: OutcomeMatrix) -> None:
    """Refuse logs in which how many workers were asked goes with what one answered, as after a cascade."""
    several, types = (matrix.there.sum(axis=1) > 1).astype(float)[:, None], matrix.batch.types
    for worker, name in enumerate(matrix.workers):
        rows = np.flatnonzero(matrix.there[:, worker] & ~np.isnan(matrix.scores[:, worker]))
        if len(rows) < _MIN_COMPARED:
            continue
        more = _centered(several[rows], types[rows])[:, 0]
        score = _centered(matrix.won[rows][:, [worker]], types[rows])
        slope, error = _standardized(score, more)
        if abs(float(slope[0])) > _MAX_ERRORS * max(float(error[0, 0]) ** 0.5, 1e-9):
            how = "right" if slope[0] > 0 else "wrong"
            raise ConfigError(
                f"--random-assignment: where {name} is {how}, more workers were asked, so some were asked because of "
                "others' answers (or of the task), and their results cannot be compared. Record propensities and "
                "turns, or ask every worker for the same tasks"
            )


@dataclass(frozen=True, slots=True)
class Imbalance:
    """A worker whose tasks differ from those of others, in what, by how many standard errors, on how many tasks."""

    worker: str
    what: str
    errors: float
    tasks: int


def find_imbalance(matrix: OutcomeMatrix, strata: Ints) -> Imbalance | None:
    """Return the worker whose tasks differ most from others' within strata; None where chance explains it.

    What others score has a test of its own: among many features of prompts it would go unnoticed.
    """
    features, names = _task_features(matrix)
    centered = _centered(features, strata)
    found: list[tuple[float, Imbalance]] = []
    for worker, count in enumerate(matrix.there.sum(axis=0).tolist()):
        if min(count, len(matrix) - count) < _MIN_COMPARED:
            continue
        asked = _centered(matrix.there[:, [worker]].astype(float), strata)[:, 0]
        ease = _centered(_ease_of_others(matrix, worker)[:, None], strata)
        for columns, told in ((centered, names), (ease, (_EASE,))):
            slopes, errors = _standardized(columns, asked)
            freedom = int(np.linalg.matrix_rank(errors))
            surprise = _chi_square_as_normal(float(slopes @ np.linalg.pinv(errors) @ slopes), freedom)
            scores = slopes / np.sqrt(np.maximum(np.diag(errors), 1e-12))
            place = int(np.abs(scores).argmax())
            what = told[place] if scores[place] > 0 else _OPPOSITES[told[place]]
            found.append((surprise, Imbalance(matrix.workers[worker], what, abs(float(scores[place])), count)))
    if not found:
        return None
    surprise, worst = max(found, key=lambda one: one[0])
    return worst if surprise > NormalDist().inv_cdf(1 - _FALSE_ALARMS / len(found)) else None


def _strata(matrix: OutcomeMatrix) -> Ints:
    """Return [T]: a number for each type and count of workers asked; a task that was asked often may differ."""
    asked = np.minimum(matrix.there.sum(axis=1), _MANY_ASKED)
    own = (matrix.batch.types + 1) * (_MANY_ASKED + 1) + asked
    sizes = np.bincount(own)
    strata: Ints = np.where(sizes[own] >= _MIN_STRATUM, own, asked).astype(np.int64)
    return strata


def _inclusion_shares(matrix: OutcomeMatrix, strata: Ints) -> Floats:
    """Return [T, J]: how probably each worker was among those asked for such a task."""
    _, places = np.unique(strata, return_inverse=True)
    counts = np.zeros((int(places.max()) + 1, len(matrix.workers)))
    np.add.at(counts, places, matrix.there.astype(float))
    shares: Floats = (counts / np.bincount(places)[:, None])[places]
    return shares


def _task_features(matrix: OutcomeMatrix) -> tuple[Floats, tuple[str, ...]]:
    """Return what is known of tasks before anybody answers, [T, F], and the names of the columns."""
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (PROMPT_BUCKETS, _PROJECTIONS))
    words = matrix.batch.words.times(signs)
    return np.concatenate([matrix.batch.shape, words], axis=1), (*_FORMS, *[_WORDS] * _PROJECTIONS)


def _ease_of_others(matrix: OutcomeMatrix, worker: int) -> Floats:
    """Return [T]: the mean score of the other workers that were asked, less what those usually score; 0 if none was."""
    known: Flags = matrix.there & ~np.isnan(matrix.scores)
    known[:, worker] = False
    beyond = np.where(known, matrix.won - matrix.mean_scores(), 0.0)
    ease: Floats = beyond.sum(axis=1) / np.maximum(1, known.sum(axis=1))
    return ease


def _centered(values: Floats, strata: Ints) -> Floats:
    """Return the columns less their means within strata."""
    _, places = np.unique(strata, return_inverse=True)
    total = np.zeros((int(places.max()) + 1, values.shape[1]))
    np.add.at(total, places, values)
    centered: Floats = values - (total / np.bincount(places)[:, None])[places]
    return centered


def _standardized(columns: Floats, asked: Floats) -> tuple[Floats, Floats]:
    """Return the sums of products of features with being asked, and their covariance if these are independent."""
    products = columns * asked[:, None]
    return products.sum(axis=0), products.T @ products


def _chi_square_as_normal(value: float, freedom: int) -> float:
    """Return the standard normal quantile of a chi-square value (Wilson and Hilferty 1931)."""
    if freedom < 1:
        return 0.0
    spread = 2 / (9 * freedom)
    return float(((value / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)
