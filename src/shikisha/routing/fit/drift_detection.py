"""Drift detection: noticing, outcome by outcome, that a worker has become worse than expected, and by how much.

Each worker has a wager against it that is fair while it is as good as expected for the task's type: a mixture of
betting martingales over several sizes of a fall, restarted at each outcome and summed (a Shiryaev-Roberts statistic;
Shin, Ramdas and Rinaldo, arXiv 2203.03532). Expected success comes from the policy where all workers are asked for all
tasks; otherwise from an earlier stretch of the same traffic, since graded outcomes then come from tasks chosen by other
answers. Invariants: while a worker is as good as expected, on average at least FALSE_ALARM_INTERVAL of its outcomes
pass before an alarm, for any order of types and any scores in [0, 1]; outcomes that set the expectation are not judged
by it; a fall ends when the latest outcomes say so. Improvements are not detected. `reroute_policy` goes on without
workers that fell, when nothing can be refitted: rules keep their settings, operating points are measured again, and
evidence and usage of the earlier policy are dropped, since they describe another one.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np

from shikisha.core.errors import UnknownName
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.evals.statistics import score_interval
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.fit_table import build_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.state import UNKNOWN_TYPE
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

_REMEASURED_NOTE = "the trade-off was measured again on tasks that the policy was fitted on, so it is too optimistic"


# At least this many outcomes of a worker pass between false alarms on average.
FALSE_ALARM_INTERVAL = 20_000
# Sizes of a fall, in log odds.
FALL_SIZES = (0.3, 0.6, 1.2, 2.4)
# A smaller fall in success is no drift.
MIN_FALL = 0.02
# Odds with which the latest outcomes must speak against a fall that is over.
RECOVERY_ODDS = 1_000.0
# The expectation is lowered by this many standard errors (one-sided 95 %).
_NORMAL_QUANTILE = 1.64
# Success is kept this far from 0 and 1, where log odds are infinite.
_EDGE = 0.02
# The first outcomes of a worker set the expectation: always the same ones, however long the traffic grows.
BASELINE_OUTCOMES = 300
# With fewer graded outcomes nothing can be said.
FEW_OUTCOMES = 50
# With fewer graded outcomes on a type there is no expectation for it.
_MIN_TYPE_OUTCOMES = 5


@dataclass(frozen=True, slots=True)
class ExpectedSuccess:
    """Expected `success` [D + 1, J], the last row for tasks of unknown type, and its standard error [J]."""

    success: Floats
    error: Floats


@dataclass(frozen=True, slots=True)
class WorkerDrift:
    """A worker that became worse: the task ids `since` when and when it was `noticed`, over how many of its outcomes.

    `usual` is the expected success since then, `found` the observed one, `low` to `high` its 95 % interval as if the
    time had been given. The data chose the time, so `found` is biased towards a larger fall.
    """

    worker: str
    since: str
    noticed: str
    outcomes: int
    usual: float
    found: float
    low: float
    high: float


def detect_drift(
    recent: OutcomeMatrix, usual: ExpectedSuccess, every: int = FALSE_ALARM_INTERVAL
) -> tuple[WorkerDrift, ...]:
    """Return the workers that became worse within these tasks, in order of time, and have not recovered."""
    drifts = []
    for worker in range(len(recent.workers)):
        rows = np.flatnonzero(recent.there[:, worker] & ~np.isnan(recent.scores[:, worker]))
        # [D + 1]: a lower bound of a worker's expected success by type.
        lower = usual.success[:, worker] - max(MIN_FALL, _NORMAL_QUANTILE * float(usual.error[worker]))
        lower_expectation = np.asarray(np.clip(lower, _EDGE, 1 - _EDGE), np.float64)
        expected = lower_expectation[recent.batch.types[rows]]
        places = _lasting_fall(recent.won[rows, worker], expected, every)
        if places is not None:
            drifts.append(_describe_drift(recent, worker, rows, places, usual))
    return tuple(drifts)


def drop_outdated(matrix: OutcomeMatrix) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix, in order of time, without what workers did before a lasting fall, and notes about it.

    Each worker's first outcomes set the expectation, so a worker that falls among those is not noticed.
    """
    graded = matrix.there & ~np.isnan(matrix.scores)
    early = _first_outcomes(graded)
    judged = graded & ~early & _cells_with_baseline(matrix, early) & (early.sum(axis=0) >= FEW_OUTCOMES)
    fallen = detect_drift(matrix.without_outcomes(~judged), expected_by_outcomes(matrix.without_outcomes(~early)))
    outdated, notes = np.zeros_like(graded), []
    for drift in fallen:
        column, begun = matrix.workers.index(drift.worker), matrix.ids.index(drift.since)
        outdated[:begun, column] = matrix.there[:begun, column]
        fell = f"fell from {drift.usual:.3f} to {drift.found:.3f} from {drift.since} on"
        notes.append(f"{drift.worker} {fell}; its {outdated[:, column].sum():,} earlier outcomes are left out")
    return (matrix.without_outcomes(outdated) if fallen else matrix), tuple(notes)


def find_alarm(scores: Floats, expected: Floats, every: int = FALSE_ALARM_INTERVAL) -> int | None:
    """Return the index of the outcome at which these scores [N] no longer fit those `expected` [N], or None."""
    factors = _wager_factors(scores, expected)
    wealth = np.zeros(factors.shape[1])
    for index, row in enumerate(factors):
        wealth = (1 + wealth) * row
        if wealth.mean() >= every:
            return index
    return None


def expected_by_policy(policy: Policy) -> ExpectedSuccess:
    """Return what a policy expects: its table's success by type, with the standard error of its outcomes."""
    tables = [part for part in policy.parts if isinstance(part, TableRule)]
    score = np.array([worker.score for worker in policy.workers])
    kinds = len(policy.types.names) + 1
    success = tables[0].success if tables else np.tile(score, (kinds, 1))
    return ExpectedSuccess(success, _standard_error(score, np.array([worker.tasks for worker in policy.workers])))


def expected_by_outcomes(earlier: OutcomeMatrix) -> ExpectedSuccess:
    """Return what an earlier stretch of the same traffic leads to expect."""
    known = (~np.isnan(earlier.scores)).sum(axis=0)
    return ExpectedSuccess(build_table(earlier, 1.0).success, _standard_error(earlier.mean_scores(), known))


def _wager_factors(scores: Floats, expected: Floats) -> Floats:
    """Return [N, F]: the factor by which each outcome multiplies a wager against the worker, for each size of fall.

    1 + stake (expected - score) has mean 1 where the score is as expected, and less where it is better. With this stake
    it is the likelihood ratio of a binary score after such a fall.
    """
    lower = _sigmoid(_log_odds(expected)[:, None] - np.array(FALL_SIZES))
    stake = (expected[:, None] - lower) / (expected * (1 - expected))[:, None]
    factors: Floats = 1 + stake * (expected - scores)[:, None]
    return factors


def _lasting_fall(scores: Floats, expected: Floats, every: int) -> tuple[int, int] | None:
    """Return the indices where the lasting fall began and where it was noticed."""
    start = 0
    while (index := find_alarm(scores[start:], expected[start:], every)) is not None:
        noticed = start + index
        gains = np.log(_wager_factors(scores[start:], expected[start:]))
        onset = _change_point(gains[: index + 1])
        size = int(gains[onset:].sum(axis=0).argmax())  # re-estimated from all outcomes since then
        # From some index to the end, outcomes must be that much more probable if the fall is over. While it is not,
        # that happens by chance at most once in RECOVERY_ODDS looks, however the index is chosen (Ville's inequality,
        # backwards).
        after = np.cumsum(gains[index + 1 :, size][::-1])[::-1]
        recovered = int(after.argmin()) if after.min(initial=0.0) <= -np.log(RECOVERY_ODDS) else None
        if recovered is None:
            return start + onset, noticed
        start = noticed + 1 + recovered
    return None


def _change_point(gains: Floats) -> int:
    """Return the most probable start of a fall: the size and start that explain most of what followed."""
    after = np.cumsum(gains[::-1], axis=0)[::-1]
    return int(after.max(axis=1).argmax())


def _describe_drift(
    recent: OutcomeMatrix, worker: int, rows: Ints, places: tuple[int, int], usual: ExpectedSuccess
) -> WorkerDrift:
    start, noticed = places
    since = rows[start:]
    scores = recent.won[since, worker]
    low, high = score_interval(scores.tolist())
    expected = float(usual.success[recent.batch.types[since], worker].mean())
    ids = (recent.ids[rows[start]], recent.ids[rows[noticed]])
    return WorkerDrift(recent.workers[worker], *ids, len(since), expected, float(scores.mean()), low, high)


def _standard_error(score: Floats, tasks: Floats | Ints) -> Floats:
    return np.asarray(np.sqrt((score * (1 - score) + 0.01) / np.maximum(1, tasks)), np.float64)


def _log_odds(success: Floats) -> Floats:
    clipped = np.clip(success, _EDGE / 2, 1 - _EDGE / 2)
    return np.asarray(np.log(clipped / (1 - clipped)), np.float64)


def _sigmoid(odds: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-odds)), np.float64)


class ExpectationSource(StrEnum):
    """Where the expectation comes from."""

    POLICY = "policy"  # the policy: its workers when it was fitted, by type of task
    EARLIER = "earlier"  # an earlier stretch of the same traffic


class WorkerState(StrEnum):
    """The state of a worker."""

    FELL = "fell"  # it is worse than expected
    USUAL = "as usual"  # no sign of a fall
    FEW = "too few"  # too few graded outcomes to decide
    NONE = "none graded"  # no graded outcome
    SHUNNED = "not asked"  # excluded by this policy


@dataclass(frozen=True, slots=True)
class WorkerStanding:
    """A worker: `outcomes` it was judged by, expected (`usual`) and observed (`found`) success, its 95 % interval.

    `early` outcomes set the expectation, and `aside` ones are of types without one. For a worker that drifted, all
    figures are of the time since, the interval as if that time had been given.
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
    """[T, J] each: outcomes that set the expectation, those to judge, and those that cannot be compared."""

    early: Flags
    judged: Flags
    aside: Flags


def assess_workers(
    policy: Policy, traffic: OutcomeMatrix, source: ExpectationSource, since: int | None = None
) -> tuple[WorkerStanding, ...]:
    """Return the standings of the policy's workers in its traffic, whose tasks are in order of time.

    Tasks from index `since` on are judged; earlier ones set the expectation, or are ignored where the policy does.
    Without `since`, each worker's first outcomes set it, half of them at most.
    """
    graded = traffic.there & ~np.isnan(traffic.scores)
    late = np.arange(len(traffic))[:, None] >= (since or 0)
    if source is ExpectationSource.POLICY:
        usual, unknown_type = (
            expected_by_policy(policy),
            (traffic.batch.types == UNKNOWN_TYPE) & (len(policy.types.names) > 0),
        )
        cells = _split_cells(np.zeros_like(graded), graded & late, np.broadcast_to(unknown_type[:, None], graded.shape))
    else:
        early = _first_outcomes(graded) if since is None else graded & ~late
        usual, unknown_type = (
            expected_by_outcomes(traffic.without_outcomes(~early)),
            ~_cells_with_baseline(traffic, early),
        )
        cells = _split_cells(early, graded & ~early & late, unknown_type)
    enough = (cells.early.sum(axis=0) >= FEW_OUTCOMES) | (source is ExpectationSource.POLICY)
    asked = np.array([not worker.shunned for worker in policy.workers])
    watched = traffic.without_outcomes(~(cells.judged & enough & asked))
    return tuple(_build_standings(policy, watched, usual, cells))


def _split_cells(early: Flags, late: Flags, unlike: Flags) -> _OutcomeCells:
    return _OutcomeCells(early, late & ~unlike, late & unlike)


def _first_outcomes(graded: Flags) -> Flags:
    """Return [T, J]: each worker's first outcomes."""
    most = np.minimum(BASELINE_OUTCOMES, graded.sum(axis=0) // 2)
    return np.asarray(graded & (graded.cumsum(axis=0) <= most), bool)


def _cells_with_baseline(traffic: OutcomeMatrix, early: Flags) -> Flags:
    """Return [T, J]: whether early outcomes set the worker's expectation for tasks of this type."""
    kinds = traffic.batch.types
    known = np.zeros_like(early)
    for kind in np.unique(kinds):
        known[kinds == kind] = early[kinds == kind].sum(axis=0) >= _MIN_TYPE_OUTCOMES
    return known


def _build_standings(
    policy: Policy, watched: OutcomeMatrix, usual: ExpectedSuccess, cells: _OutcomeCells
) -> Iterator[WorkerStanding]:
    drifted = {drift.worker: drift for drift in detect_drift(watched, usual)}
    for index, worker in enumerate(policy.workers):
        early, judged, aside = (int(each[:, index].sum()) for each in (cells.early, cells.judged, cells.aside))
        standing = WorkerStanding(worker.name, WorkerState.NONE, judged, early, aside)
        drift = drifted.get(worker.name)
        if worker.shunned:
            yield replace(standing, state=WorkerState.SHUNNED)
        elif drift is not None:
            figures = replace(standing, usual=drift.usual, found=drift.found, low=drift.low, high=drift.high)
            drifted_standing = replace(figures, state=WorkerState.FELL, outcomes=drift.outcomes, drift=drift)
            yield drifted_standing
        elif watched.there[:, index].any():
            rows = np.flatnonzero(watched.there[:, index])
            scores = watched.won[rows, index]
            low, high = score_interval(scores.tolist())
            expected = float(usual.success[watched.batch.types[rows], index].mean())
            state = WorkerState.FEW if len(rows) < FEW_OUTCOMES else WorkerState.USUAL
            usual_standing = replace(
                standing, state=state, usual=expected, found=float(scores.mean()), low=low, high=high
            )
            yield usual_standing
        else:
            yield replace(standing, state=WorkerState.FEW if early + judged + aside else WorkerState.NONE)


def reroute_policy(policy: Policy, fallen: Sequence[WorkerDrift], matrix: OutcomeMatrix | None = None) -> Policy:
    """Return the policy that never asks these workers.

    `matrix` are tasks on which to measure the operating points again; without it, costs and accuracies stay as they
    were.
    """
    if not fallen:
        return policy
    why = {
        drift.worker: f"{drift.worker} fell from {drift.usual:.3f} to {drift.found:.3f} from {drift.since} on"
        for drift in fallen
    }
    workers = tuple(replace(one, shunned=why.get(one.name, one.shunned)) for one in policy.workers)
    candidates = tuple(replace(candidate, evidence=None) for candidate in policy.rungs)
    about = replace(policy.about, notes=(*policy.about.notes, *why.values()), verdict=None)
    adjusted = replace(policy, about=about, workers=workers, rungs=candidates, habits=None)
    return adjusted if matrix is None else remeasure_policy(adjusted, matrix)


def remeasure_policy(policy: Policy, matrix: OutcomeMatrix) -> Policy:
    """Return the policy with operating points measured on this matrix, of the workers that both have.

    UnknownName where the matrix lacks a worker of the policy.
    """
    for name in policy.names:
        if name not in matrix.workers:
            raise UnknownName("worker of the policy in the log to measure on", name, matrix.workers)
    panel = matrix.select_workers(policy.names)
    available = policy.may_ask(tuple(name for index, name in enumerate(policy.names) if panel.there[:, index].any()))
    candidates = []
    for candidate in policy.rungs:
        unit, points = candidate.dial.unit or 1.0, []
        for index in sorted({point.part for point in candidate.dial.points}):
            for setting in range(policy.parts[index].settings):
                played = replay(policy.parts[index], setting, panel, available)
                cost, won = float(played.paid.mean()) / unit, float(played.won.mean())
                points.append(OperatingPoint(index, setting, cost, won, float(played.won.std()) / len(played) ** 0.5))
        dial = TradeOff(upper_hull(points), candidate.dial.unit, candidate.dial.best_single)
        candidates.append(replace(candidate, dial=dial))
    about = replace(policy.about, notes=(*policy.about.notes, _REMEASURED_NOTE))
    return replace(policy, about=about, rungs=tuple(candidates))
