"""Drift: noticing, outcome by outcome, that a worker has fallen below what is usual, and how far.

Each worker has a wager against it that is fair while it is as good as usual, for its outcome's task type: a mixture of
betting martingales (for falls of several sizes, since nobody knows the size), begun anew at every outcome and added up
(a Shiryaev-Roberts statistic; Shin, Ramdas & Rinaldo, arXiv 2203.03532). Invariant: while a worker is as good as usual,
at least `every` of its outcomes pass in the mean before an alarm, whatever the order of types and however scores are
spread in [0, 1]. Usual is taken a little lower than it is thought to be, by how uncertain it is. A fall counts until
the latest outcomes say that it is over, or was none. Deliberately absent: workers that get better, and outcomes that
were not asked for at random: where a worker is asked for what others could not agree on, what is usual has to be told
from an earlier stretch of the same traffic (`usual_in`).

Watching a policy's workers: for each, what is usual, what was found since, and whether it has fallen (`drift`).

What is usual is the policy's own word where every worker is asked for every task. Where a policy asks some workers only
for what others could not agree on, and where only what was shipped is graded, its word is about other tasks: there, a
worker's first outcomes of the same traffic tell. Invariants: a worker is judged by outcomes that had no part in telling
what is usual, and by tasks of types of which that is known; a worker that is not to be asked any more raises no alarm.
Deliberately absent: whose traffic it is (`config.traffic`), and what follows (`rerouting`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from shikisha.evals.statistics import score_interval
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.fit_table import build_table
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.state import UNKNOWN_TYPE
from shikisha.routing.table_rule import TableRule

FALSE_ALARM_INTERVAL = 20_000  # outcomes of a worker between false alarms, at least and in the mean
FALL_SIZES = (0.3, 0.6, 1.2, 2.4)  # in log odds
MIN_FALL = 0.02  # of success; a fall by less is none
RECOVERY_ODDS = 1_000.0  # to 1 is how the latest outcomes must speak against a fall that is over
_NORMAL_QUANTILE = 1.64  # standard errors
_EDGE = 0.02  # success is thought at least this far from 0 and 1


@dataclass(frozen=True, slots=True)
class ExpectedSuccess:
    """What is usual: `success` [D + 1, J], the last row for tasks of unknown type, and its standard error [J]."""

    success: Floats
    error: Floats


@dataclass(frozen=True, slots=True)
class WorkerDrift:
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
        return _log_odds(self.found) - _log_odds(self.usual)


def detect_drift(
    recent: OutcomeMatrix, usual: ExpectedSuccess, every: int = FALSE_ALARM_INTERVAL
) -> tuple[WorkerDrift, ...]:
    """Return the workers that have fallen in these tasks, which are in the order of time, and are not back."""
    found = []
    for worker in range(len(recent.workers)):
        rows = np.flatnonzero(recent.there[:, worker] & ~np.isnan(recent.scores[:, worker]))
        expected = _lower_expectation(usual, worker)[recent.batch.types[rows]]
        places = _lasting_fall(recent.won[rows, worker], expected, every)
        if places is not None:
            found.append(_describe_drift(recent, worker, rows, places, usual))
    return tuple(found)


def find_alarm(scores: Floats, expected: Floats, every: int = FALSE_ALARM_INTERVAL) -> int | None:
    """Return the place of the outcome at which these scores [N] are no longer those `expected` [N]; None: they are."""
    factors = _wager_factors(scores, expected)
    wealth = np.zeros(factors.shape[1])
    for place, row in enumerate(factors):
        wealth = (1 + wealth) * row
        if wealth.mean() >= every:
            return place
    return None


def expected_by_policy(policy: Policy) -> ExpectedSuccess:
    """Return what a policy takes for usual: its rule's success by type, as certain as its outcomes are many."""
    tables = [part for part in policy.parts if isinstance(part, TableRule)]
    score = np.array([worker.score for worker in policy.workers])
    kinds = len(policy.types.names) + 1
    success = tables[0].success if tables else np.tile(score, (kinds, 1))
    return ExpectedSuccess(success, _standard_error(score, np.array([worker.tasks for worker in policy.workers])))


def expected_by_outcomes(earlier: OutcomeMatrix) -> ExpectedSuccess:
    """Return what was usual in an earlier stretch of the same traffic."""
    known = (~np.isnan(earlier.scores)).sum(axis=0)
    return ExpectedSuccess(build_table(earlier, 1.0).success, _standard_error(earlier.mean_scores(), known))


def _wager_factors(scores: Floats, expected: Floats) -> Floats:
    """[N, F]: what each outcome multiplies a wager against the worker by, for each size of fall.

    1 + stake (expected - score) has mean 1 where the score is as expected, and less where it is better. With this stake
    it is the likelihood ratio of a right-or-wrong score after a fall by so much.
    """
    fallen = _sigmoid(_log_odds_array(expected)[:, None] - np.array(FALL_SIZES))
    stake = (expected[:, None] - fallen) / (expected * (1 - expected))[:, None]
    factors: Floats = 1 + stake * (expected - scores)[:, None]
    return factors


def _lasting_fall(scores: Floats, expected: Floats, every: int) -> tuple[int, int] | None:
    """Return the places where the fall that lasts began, and where it was noticed."""
    start = 0
    while (place := find_alarm(scores[start:], expected[start:], every)) is not None:
        noticed = start + place
        gains = np.log(_wager_factors(scores[start:], expected[start:]))
        begun = _change_point(gains[: place + 1])
        size = int(gains[begun:].sum(axis=0).argmax())  # as all outcomes since have it
        back = _recovery_point(gains[place + 1 :, size])
        if back is None:
            return start + begun, noticed
        start = noticed + 1 + back
    return None


def _change_point(gains: Floats) -> int:
    """Return where a fall began, most probably: the size and the beginning that explain most of what came after."""
    after = np.cumsum(gains[::-1], axis=0)[::-1]
    return int(after.max(axis=1).argmax())


def _recovery_point(gains: Floats) -> int | None:
    """Return from where on outcomes say that the fall is over, if they do.

    From some place to the end they must be so much more probable if it is than if it is not; while it is not, that
    happens by chance once in BACK looks at most, however the place is chosen (Ville's inequality, read backwards).
    """
    after = np.cumsum(gains[::-1])[::-1]
    return int(after.argmin()) if after.min(initial=0.0) <= -np.log(RECOVERY_ODDS) else None


def _describe_drift(
    recent: OutcomeMatrix, worker: int, rows: Ints, places: tuple[int, int], usual: ExpectedSuccess
) -> WorkerDrift:
    begun, noticed = places
    since = rows[begun:]
    scores = recent.won[since, worker]
    low, high = score_interval(scores.tolist())
    expected = float(usual.success[recent.batch.types[since], worker].mean())
    ids = (recent.ids[rows[begun]], recent.ids[rows[noticed]])
    return WorkerDrift(recent.workers[worker], *ids, len(since), expected, float(scores.mean()), low, high)


def _lower_expectation(usual: ExpectedSuccess, worker: int) -> Floats:
    """[D + 1]: what is usual for a worker by type, as low as it may well be."""
    lower = usual.success[:, worker] - max(MIN_FALL, _NORMAL_QUANTILE * float(usual.error[worker]))
    return np.asarray(np.clip(lower, _EDGE, 1 - _EDGE), np.float64)


def _standard_error(score: Floats, tasks: Floats | Ints) -> Floats:
    return np.asarray(np.sqrt((score * (1 - score) + 0.01) / np.maximum(1, tasks)), np.float64)


def _log_odds(success: float) -> float:
    return float(_log_odds_array(np.array([success]))[0])


def _log_odds_array(success: Floats) -> Floats:
    held = np.clip(success, _EDGE / 2, 1 - _EDGE / 2)
    return np.asarray(np.log(held / (1 - held)), np.float64)


def _sigmoid(odds: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-odds)), np.float64)


BASELINE_OUTCOMES = (
    300  # graded outcomes of a worker that tell what is usual: always the same ones, however long the traffic grows
)
FEW_OUTCOMES = 50  # graded outcomes that tell hardly anything
_MIN_TYPE_OUTCOMES = 5  # graded outcomes of a worker on a type without which nothing is known of it there


class ExpectationSource(StrEnum):
    """Who tells what is usual."""

    POLICY = "policy"  # the policy itself: as its workers were when it was fitted, by type of task
    EARLIER = "earlier"  # an earlier stretch of the same traffic


class WorkerState(StrEnum):
    """How a worker stands."""

    FELL = "fell"  # it is worse than usual
    USUAL = "as usual"  # nothing says so
    FEW = "too few"  # outcomes with a score to tell anything
    NONE = "none graded"  # or none at all
    SHUNNED = "not asked"  # any more, by this policy


@dataclass(frozen=True, slots=True)
class WorkerStanding:
    """A worker: `outcomes` it was judged by, what was `usual` for them and what was `found`, with its 95 % interval.

    `early` outcomes told what is usual, and `aside` ones are of types of which nobody knows that. For a worker that
    fell, all figures are of what came since (`drift`), the interval as if that time had been given.
    """

    worker: str
    state: WorkerState
    outcomes: int
    early: int
    aside: int
    usual: float | None = None
    found: float | None = None
    low: float | None = None
    high: float | None = None
    drift: WorkerDrift | None = None


@dataclass(frozen=True, slots=True)
class _OutcomeCells:
    """[T, J] each: outcomes that tell what is usual, those to be judged, and those that cannot be compared."""

    early: Flags
    judged: Flags
    aside: Flags


def assess_workers(
    policy: Policy, traffic: OutcomeMatrix, told: ExpectationSource, since: int | None = None
) -> tuple[WorkerStanding, ...]:
    """Return how the policy's workers stand in its traffic, whose tasks are in the order of time.

    Watched are tasks from the place `since` on; what was before it tells what is usual, or is left out where the policy
    tells. Without one each worker's first outcomes tell, half of them at most.
    """
    graded = traffic.there & ~np.isnan(traffic.scores)
    late = np.arange(len(traffic))[:, None] >= (since or 0)
    if told is ExpectationSource.POLICY:
        usual, unlike = (
            expected_by_policy(policy),
            (traffic.batch.types == UNKNOWN_TYPE) & (len(policy.types.names) > 0),
        )
        cells = _split_cells(np.zeros_like(graded), graded & late, np.broadcast_to(unlike[:, None], graded.shape))
    else:
        early = _first_outcomes(graded) if since is None else graded & ~late
        usual, unlike = expected_by_outcomes(traffic.without_outcomes(~early)), ~_cells_with_baseline(traffic, early)
        cells = _split_cells(early, graded & ~early & late, unlike)
    enough = (cells.early.sum(axis=0) >= FEW_OUTCOMES) | (told is ExpectationSource.POLICY)
    asked = np.array([not worker.shunned for worker in policy.workers])
    watched = traffic.without_outcomes(~(cells.judged & enough & asked))
    return tuple(_build_standings(policy, watched, usual, cells))


def drifted_workers(found: Sequence[WorkerStanding]) -> tuple[WorkerDrift, ...]:
    """Return the falls among these."""
    return tuple(standing.drift for standing in found if standing.drift is not None)


def _split_cells(early: Flags, late: Flags, unlike: Flags) -> _OutcomeCells:
    return _OutcomeCells(early, late & ~unlike, late & unlike)


def _first_outcomes(graded: Flags) -> Flags:
    """[T, J]: each worker's first outcomes."""
    most = np.minimum(BASELINE_OUTCOMES, graded.sum(axis=0) // 2)
    return np.asarray(graded & (graded.cumsum(axis=0) <= most), bool)


def _cells_with_baseline(traffic: OutcomeMatrix, early: Flags) -> Flags:
    """[T, J]: whether the worker's early outcomes tell what is usual for it on tasks of this type."""
    kinds = traffic.batch.types
    found = np.zeros_like(early)
    for kind in np.unique(kinds):
        found[kinds == kind] = early[kinds == kind].sum(axis=0) >= _MIN_TYPE_OUTCOMES
    return found


def _build_standings(
    policy: Policy, watched: OutcomeMatrix, usual: ExpectedSuccess, cells: _OutcomeCells
) -> Iterator[WorkerStanding]:
    drifted = {drift.worker: drift for drift in detect_drift(watched, usual)}
    for place, worker in enumerate(policy.workers):
        early, judged, aside = (int(each[:, place].sum()) for each in (cells.early, cells.judged, cells.aside))
        standing = WorkerStanding(worker.name, WorkerState.NONE, judged, early, aside)
        drift = drifted.get(worker.name)
        if worker.shunned:
            yield replace(standing, state=WorkerState.SHUNNED)
        elif drift is not None:
            yield _drifted_standing(standing, drift)
        elif watched.there[:, place].any():
            yield _usual_standing(standing, watched, usual, place)
        else:
            yield replace(standing, state=WorkerState.FEW if early + judged + aside else WorkerState.NONE)


def _drifted_standing(standing: WorkerStanding, drift: WorkerDrift) -> WorkerStanding:
    figures = replace(standing, usual=drift.usual, found=drift.found, low=drift.low, high=drift.high)
    return replace(figures, state=WorkerState.FELL, outcomes=drift.outcomes, drift=drift)


def _usual_standing(
    standing: WorkerStanding, watched: OutcomeMatrix, usual: ExpectedSuccess, place: int
) -> WorkerStanding:
    rows = np.flatnonzero(watched.there[:, place])
    scores = watched.won[rows, place]
    low, high = score_interval(scores.tolist())
    expected = float(usual.success[watched.batch.types[rows], place].mean())
    state = WorkerState.FEW if len(rows) < FEW_OUTCOMES else WorkerState.USUAL
    return replace(standing, state=state, usual=expected, found=float(scores.mean()), low=low, high=high)
