"""Worker removal: continuing without a worker, or with a worse one, when nothing can be refitted.

A worker that drifted is discounted by its fall in log odds in every rule; one that kept less than half of its success
is not asked any more. Then the operating points are measured again. Invariants: rules keep their settings; evidence and
usage of the earlier policy are dropped, since they describe another policy.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.routing.arrays import Floats
from shikisha.routing.cascade_rule import CascadeRule
from shikisha.routing.fit.drift_detection import WorkerDrift
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import OLD_RESPONSE_MODEL, KnownWorker, Policy
from shikisha.routing.router_rule import RouterRule
from shikisha.routing.state import DecisionRule
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

# A worker that keeps a smaller share of its expected success is not asked any more.
MIN_REMAINING_SUCCESS = 0.5
# Success is kept this far from 0 and 1, where log odds are infinite.
_EDGE = 1e-3
_REMEASURED_NOTE = "the trade-off was measured again on tasks that the policy was fitted on, so it is too optimistic"


def reroute_policy(policy: Policy, fallen: Sequence[WorkerDrift], matrix: OutcomeMatrix | None = None) -> Policy:
    """Return the policy adjusted to what these workers have become.

    `panel` are tasks on which to measure the operating points again, as they would be now; without it, costs and
    accuracies stay as they were.
    """
    adjusted, current = policy, matrix
    for drift in fallen:
        index = policy.names.index(drift.worker)
        note = f"{drift.worker} fell from {drift.usual:.3f} to {drift.found:.3f} from {drift.since} on"
        if drift.found < MIN_REMAINING_SUCCESS * drift.usual:
            adjusted = _exclude_workers(adjusted, (drift.worker,), note)
        else:
            parts = tuple(_discount_rule(part, index, drift) for part in adjusted.parts)
            adjusted = _with_note(replace(adjusted, parts=parts), note)
        current = None if current is None else simulate_drift(current, drift)
    return adjusted if current is None else remeasure_policy(adjusted, current)


def remove_workers(policy: Policy, names: Sequence[str], matrix: OutcomeMatrix | None = None) -> Policy:
    """Return the policy that never asks these workers; `panel` as for `reroute_policy`."""
    adjusted = _exclude_workers(policy, names, f"without {', '.join(names)}")
    return adjusted if matrix is None else remeasure_policy(adjusted, matrix)


def remeasure_policy(policy: Policy, matrix: OutcomeMatrix) -> Policy:
    """Return the policy with operating points measured on this matrix, of the workers that both have.

    UnknownName where the matrix lacks a worker of the policy, ConfigError for a policy with a response model.
    """
    for name in policy.names:
        if name not in matrix.workers:
            raise UnknownName("worker of the policy in the log to measure on", name, matrix.workers)
    if policy.hearing is not None:
        raise ConfigError(OLD_RESPONSE_MODEL)
    with_texts = matrix.select_workers(policy.names)
    available = policy.may_ask(
        tuple(name for index, name in enumerate(policy.names) if with_texts.there[:, index].any())
    )
    candidates = []
    for candidate in policy.rungs:
        unit = candidate.dial.unit or 1.0
        points = []
        for index in sorted({point.part for point in candidate.dial.points}):
            part = policy.parts[index]
            for setting in range(part.settings):
                played = replay(part, setting, with_texts, available)
                error = float(played.won.std()) / len(played) ** 0.5
                points.append(
                    OperatingPoint(index, setting, float(played.paid.mean()) / unit, float(played.won.mean()), error)
                )
        candidates.append(
            replace(candidate, dial=TradeOff(upper_hull(points), candidate.dial.unit, candidate.dial.best_single))
        )
    return _with_note(replace(policy, rungs=tuple(candidates)), _REMEASURED_NOTE)


def simulate_drift(matrix: OutcomeMatrix, drift: WorkerDrift) -> OutcomeMatrix:
    """Return the matrix as if the worker had drifted before: some of its right answers become distinct wrong ones.

    The tasks' content draws which ones.
    """
    column = matrix.workers.index(drift.worker)
    share_lost = 1 - drift.found / max(drift.usual, _EDGE)
    changed = (
        np.array(
            [
                (int.from_bytes(sha256((f"{drift.worker}\0{content}").encode()).digest()[:6]) / 2**48)
                for content in matrix.hashes
            ]
        )
        < share_lost
    )
    rows = np.flatnonzero(changed & (matrix.won[:, column] > 0) & (matrix.codes[:, column] >= 0))
    codes, scores = matrix.codes.copy(), matrix.scores.copy()
    codes[rows, column], scores[rows, column] = matrix.codes[rows].max(axis=1) + 1, 0.0
    evidence = matrix.evidence and matrix.evidence.with_candidates(int(codes.max(initial=0)) + 1)
    return replace(matrix, codes=codes, scores=scores, evidence=evidence)


def _discount_rule(rule: DecisionRule, worker: int, drift: WorkerDrift) -> DecisionRule:
    match rule:
        case TableRule():
            return _discount_table(rule, worker, drift)
        case RouterRule():
            return replace(rule, table=_discount_table(rule.table, worker, drift))
        case CascadeRule():
            weights = {
                asked: _discount_confidence(own, asked, worker, drift) for asked, own in rule.confidences.items()
            }
            return replace(rule, confidences=weights)
        case StoppingRule():
            support = rule.scorer.support.copy()
            support[:, worker] += drift.shift
            gains = {asked: _discount_gains(rule, asked, worker, drift) for asked in rule.gains}
            return replace(rule, scorer=replace(rule.scorer, support=support), gains=gains)
    return rule


def _discount_table(table: TableRule, worker: int, drift: WorkerDrift) -> TableRule:
    success = table.success.copy()
    success[:, worker] = _shift_log_odds(success[:, worker], drift.shift)
    return replace(table, success=success)


def _discount_confidence(weights: Floats, asked: tuple[int, ...], worker: int, drift: WorkerDrift) -> Floats:
    """Return the weights of confidence in the last worker asked; the first weight is the constant."""
    adjusted = weights.copy()
    adjusted[0] += drift.shift if asked[-1] == worker else 0.0
    return adjusted


def _discount_gains(rule: StoppingRule, asked: tuple[int, ...], worker: int, drift: WorkerDrift) -> Floats:
    """Return gains [p, n, L] in which asking the worker brings less.

    At first, when its answer may be the only one, by its fall in success (feature 0 is 1); later in proportion.
    """
    others = [other for other in rule.workers if other not in asked]
    gains = rule.gains[asked].copy()
    if worker in others:
        index = others.index(worker)
        if asked:
            gains[:, index] *= drift.found / max(drift.usual, _EDGE)
        else:
            gains[0, index] -= drift.usual - drift.found
    return gains


def _exclude_workers(policy: Policy, names: Sequence[str], words: str) -> Policy:
    def exclude(worker: KnownWorker) -> KnownWorker:
        return replace(worker, shunned=words) if worker.name in names else worker

    return _with_note(replace(policy, workers=tuple(map(exclude, policy.workers))), words)


def _with_note(policy: Policy, note: str) -> Policy:
    """Return the policy without the measurements of its predecessor, and with a note of the change."""
    candidates = tuple(replace(candidate, evidence=None) for candidate in policy.rungs)
    about = replace(policy.about, notes=(*policy.about.notes, note))
    return replace(policy, about=about, rungs=candidates, habits=None)


def _shift_log_odds(success: Floats, shift: float) -> Floats:
    clipped = np.clip(success, _EDGE, 1 - _EDGE)
    return np.asarray(1 / (1 + (1 - clipped) / clipped * np.exp(-shift)), np.float64)
