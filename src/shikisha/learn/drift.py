"""Drift: noticing, outcome by outcome, that a worker has fallen below what is usual, and how far.

Each worker has a wager against it that is fair while it is as good as usual, for its outcome's task type: a mixture of
betting martingales (for falls of several sizes, since nobody knows the size), begun anew at every outcome and added up
(a Shiryaev-Roberts statistic; Shin, Ramdas & Rinaldo, arXiv 2203.03532). Invariant: while a worker is as good as usual,
at least `every` of its outcomes pass in the mean before an alarm, whatever the order of types and however scores are
spread in [0, 1]. Usual is taken a little lower than it is thought to be, by how uncertain it is. Deliberately absent:
workers that get better, and outcomes that were not asked for at random: where a worker is asked for what others could
not agree on, what is usual has to be told from an earlier stretch of the same traffic (`usual_in`).
"""

from dataclasses import dataclass

import numpy as np

from shikisha.evaluate.statistics import score_interval
from shikisha.learn.panel import Panel
from shikisha.learn.tabling import table_of
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.policy import Policy
from shikisha.policy.table import Table

EVERY = 20_000  # outcomes of a worker between false alarms, at least and in the mean
FALLS = (0.3, 0.6, 1.2, 2.4)  # in log odds
LEAST = 0.02  # of success; a fall by less is none
_SURE = 1.64  # standard errors
_EDGE = 0.02  # success is thought at least this far from 0 and 1


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual: `success` [D + 1, J], the last row for tasks of unknown type, and its standard error [J]."""

    success: Floats
    error: Floats


@dataclass(frozen=True, slots=True)
class Drift:
    """A worker that has fallen: tasks (ids) `since` when and when it was `noticed`, over how many outcomes of it.

    `usual` is the success that was to be expected since, `found` what it was, `low` to `high` its 95 % interval as if
    the time had been given. The time was chosen by the data, so what is found is rather too bad than too good.
    """

    worker: str
    since: str
    noticed: str
    outcomes: int
    usual: float
    found: float
    low: float
    high: float

    @property
    def shift(self) -> float:
        """The fall in log odds (negative)."""
        return _odds(self.found) - _odds(self.usual)


def drifts(recent: Panel, usual: Usual, every: int = EVERY) -> tuple[Drift, ...]:
    """Return the workers that have fallen in these tasks, which are in the order of time; first alarms only."""
    found = []
    for worker in range(len(recent.workers)):
        rows = np.flatnonzero(recent.there[:, worker] & ~np.isnan(recent.scores[:, worker]))
        expected = _held(usual, worker)[recent.batch.types[rows]]
        scores = recent.won[rows, worker]
        place = alarm(scores, expected, every)
        if place is not None:
            begun = _since(scores[: place + 1], expected[: place + 1])
            found.append(_told(recent, worker, rows, (begun, place), usual))
    return tuple(found)


def alarm(scores: Floats, expected: Floats, every: int = EVERY) -> int | None:
    """Return the place of the outcome at which these scores [N] are no longer those `expected` [N]; None: they are."""
    factors = _factors(scores, expected)
    wealth = np.zeros(factors.shape[1])
    for place, row in enumerate(factors):
        wealth = (1 + wealth) * row
        if wealth.mean() >= every:
            return place
    return None


def usual_of(policy: Policy) -> Usual:
    """Return what a policy takes for usual: its rule's success by type, as certain as its outcomes are many."""
    tables = [part for part in policy.parts if isinstance(part, Table)]
    score = np.array([worker.score for worker in policy.workers])
    kinds = len(policy.types.names) + 1
    success = tables[0].success if tables else np.tile(score, (kinds, 1))
    return Usual(success, _error(score, np.array([worker.tasks for worker in policy.workers])))


def usual_in(earlier: Panel) -> Usual:
    """Return what was usual in an earlier stretch of the same traffic."""
    known = (~np.isnan(earlier.scores)).sum(axis=0)
    return Usual(table_of(earlier, 1.0).success, _error(earlier.means(), known))


def _factors(scores: Floats, expected: Floats) -> Floats:
    """[N, F]: what each outcome multiplies a wager against the worker by, for each size of fall.

    1 + stake (expected - score) has mean 1 where the score is as expected, and less where it is better. With this stake
    it is the likelihood ratio of a right-or-wrong score after a fall by so much.
    """
    fallen = _chance(_odds_of(expected)[:, None] - np.array(FALLS))
    stake = (expected[:, None] - fallen) / (expected * (1 - expected))[:, None]
    factors: Floats = 1 + stake * (expected - scores)[:, None]
    return factors


def _since(scores: Floats, expected: Floats) -> int:
    """Return where the fall began, most probably: the size and the beginning that explain most of what came after."""
    gains = np.log(_factors(scores, expected))
    after = np.cumsum(gains[::-1], axis=0)[::-1]
    return int(after.max(axis=1).argmax())


def _told(recent: Panel, worker: int, rows: Ints, places: tuple[int, int], usual: Usual) -> Drift:
    begun, noticed = places
    since = rows[begun:]
    scores = recent.won[since, worker]
    low, high = score_interval(scores.tolist())
    expected = float(usual.success[recent.batch.types[since], worker].mean())
    ids = (recent.ids[rows[begun]], recent.ids[rows[noticed]])
    return Drift(recent.workers[worker], *ids, len(since), expected, float(scores.mean()), low, high)


def _held(usual: Usual, worker: int) -> Floats:
    """[D + 1]: what is usual for a worker by type, as low as it may well be."""
    lower = usual.success[:, worker] - max(LEAST, _SURE * float(usual.error[worker]))
    return np.asarray(np.clip(lower, _EDGE, 1 - _EDGE), np.float64)


def _error(score: Floats, tasks: Floats | Ints) -> Floats:
    return np.asarray(np.sqrt((score * (1 - score) + 0.01) / np.maximum(1, tasks)), np.float64)


def _odds(success: float) -> float:
    return float(_odds_of(np.array([success]))[0])


def _odds_of(success: Floats) -> Floats:
    held = np.clip(success, _EDGE / 2, 1 - _EDGE / 2)
    return np.asarray(np.log(held / (1 - held)), np.float64)


def _chance(odds: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-odds)), np.float64)
