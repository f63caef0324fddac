"""Drift: noticing, outcome by outcome, that a worker has fallen below what is usual, and how far.

Each worker has a wager against it that is fair while it is as good as usual, for its outcome's task type: a mixture of
betting martingales (for falls of several sizes, since nobody knows the size), begun anew at every outcome and added up
(a Shiryaev-Roberts statistic; Shin, Ramdas & Rinaldo, arXiv 2203.03532). Invariant: while a worker is as good as usual,
at least `every` of its outcomes pass in the mean before an alarm, whatever the order of types and however scores are
spread in [0, 1]. Usual is taken a little lower than it is thought to be, by how uncertain it is. A fall counts until
the latest outcomes say that it is over, or was none. Deliberately absent: workers that get better, and outcomes that
were not asked for at random: where a worker is asked for what others could not agree on, what is usual has to be told
from an earlier stretch of the same traffic (`usual_in`).
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
BACK = 1_000.0  # to 1 is how the latest outcomes must speak against a fall that is over
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
    """Return the workers that have fallen in these tasks, which are in the order of time, and are not back."""
    found = []
    for worker in range(len(recent.workers)):
        rows = np.flatnonzero(recent.there[:, worker] & ~np.isnan(recent.scores[:, worker]))
        expected = _held(usual, worker)[recent.batch.types[rows]]
        places = _lasting(recent.won[rows, worker], expected, every)
        if places is not None:
            found.append(_told(recent, worker, rows, places, usual))
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


def _lasting(scores: Floats, expected: Floats, every: int) -> tuple[int, int] | None:
    """Return the places where the fall that lasts began, and where it was noticed."""
    start = 0
    while (place := alarm(scores[start:], expected[start:], every)) is not None:
        noticed = start + place
        gains = np.log(_factors(scores[start:], expected[start:]))
        begun = _since(gains[: place + 1])
        size = int(gains[begun:].sum(axis=0).argmax())  # as all outcomes since have it
        back = _back(gains[place + 1 :, size])
        if back is None:
            return start + begun, noticed
        start = noticed + 1 + back
    return None


def _since(gains: Floats) -> int:
    """Return where a fall began, most probably: the size and the beginning that explain most of what came after."""
    after = np.cumsum(gains[::-1], axis=0)[::-1]
    return int(after.max(axis=1).argmax())


def _back(gains: Floats) -> int | None:
    """Return from where on outcomes say that the fall is over, if they do.

    From some place to the end they must be so much more probable if it is than if it is not; while it is not, that
    happens by chance once in BACK looks at most, however the place is chosen (Ville's inequality, read backwards).
    """
    after = np.cumsum(gains[::-1])[::-1]
    return int(after.argmin()) if after.min(initial=0.0) <= -np.log(BACK) else None


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
