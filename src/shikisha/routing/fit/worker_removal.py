"""Getting on without a worker, or with less of it, when nothing can be fitted anew: shunned, discounted, measured.

A worker that fell (`drift`) is worth less by its fall in log odds: to the rule, to confidence in its answers, and to
whoever decides whether to ask it; where hardly anything is left of it, it is not asked any more. Then the dial is
measured again, because settings that leaned on it now cost and bring something else. Invariants: parts keep their
settings; what was measured before (evidence, habits) is not carried over to what is another policy now. Deliberately
absent: fitting.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from shikisha.core.errors import UnknownName
from shikisha.routing.arrays import Floats
from shikisha.routing.cascade_rule import CascadeRule
from shikisha.routing.fit.drift_detection import WorkerDrift
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import KnownWorker, Policy
from shikisha.routing.router_rule import RouterRule
from shikisha.routing.state import DecisionRule
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

MIN_REMAINING_SUCCESS = 0.5  # of its usual success must be left of a worker that is still to be asked
_EDGE = 1e-3  # success is thought at least this far from 0 and 1
_REMEASURED_NOTE = "the dial was measured again on tasks that the policy was fitted on: rather too good"


def reroute_policy(policy: Policy, fallen: Sequence[WorkerDrift], panel: OutcomeMatrix | None = None) -> Policy:
    """Return the policy that makes do with what these workers have become.

    `panel` is of tasks on which to measure the dial again, as they would be now; without one the dial's costs and
    accuracies are those from before.
    """
    found, now = policy, panel
    for drift in fallen:
        place = policy.names.index(drift.worker)
        words = f"{drift.worker} fell from {drift.usual:.3f} to {drift.found:.3f} from {drift.since} on"
        if drift.found < MIN_REMAINING_SUCCESS * drift.usual:
            found = _exclude_workers(found, (drift.worker,), words)
        else:
            parts = tuple(_discount_rule(part, place, drift) for part in found.parts)
            found = _with_note(replace(found, parts=parts), words)
        now = None if now is None else simulate_drift(now, drift)
    return found if now is None else remeasure_policy(found, now)


def remove_workers(policy: Policy, names: Sequence[str], panel: OutcomeMatrix | None = None) -> Policy:
    """Return the policy that never asks these workers; `panel` as for `routed_around`."""
    found = _exclude_workers(policy, names, f"made to do without {', '.join(names)}")
    return found if panel is None else remeasure_policy(found, panel)


def remeasure_policy(policy: Policy, panel: OutcomeMatrix) -> Policy:
    """Return the policy with its dials measured on this panel, of the workers that it may ask and the panel has.

    UnknownName where the panel is not of this policy's workers.
    """
    for name in policy.names:
        if name not in panel.workers:
            raise UnknownName("worker of the policy among the tasks to measure on", name, panel.workers)
    heard = panel.select_workers(policy.names).with_response_model(policy.hearing)
    there = policy.may_ask(tuple(name for place, name in enumerate(policy.names) if heard.there[:, place].any()))
    rungs = []
    for rung in policy.rungs:
        unit = rung.dial.unit or 1.0
        points = []
        for place in sorted({point.part for point in rung.dial.points}):
            part = policy.parts[place]
            for setting in range(part.settings):
                played = replay(part, setting, heard, there)
                error = float(played.won.std()) / len(played) ** 0.5
                points.append(
                    OperatingPoint(place, setting, float(played.paid.mean()) / unit, float(played.won.mean()), error)
                )
        rungs.append(replace(rung, dial=TradeOff(upper_hull(points), rung.dial.unit, rung.dial.best_single)))
    return _with_note(replace(policy, rungs=tuple(rungs)), _REMEASURED_NOTE)


def simulate_drift(panel: OutcomeMatrix, drift: WorkerDrift) -> OutcomeMatrix:
    """Return the panel as if the worker had been as it is now: some of its right answers are wrong, each in its way.

    Which ones is drawn by the tasks' content.
    """
    column = panel.workers.index(drift.worker)
    lost = 1 - drift.found / max(drift.usual, _EDGE)
    drawn = np.array([_hash_to_unit(f"{drift.worker}\0{content}") for content in panel.hashes]) < lost
    rows = np.flatnonzero(drawn & (panel.won[:, column] > 0) & (panel.codes[:, column] >= 0))
    codes, scores = panel.codes.copy(), panel.scores.copy()
    codes[rows, column], scores[rows, column] = panel.codes[rows].max(axis=1) + 1, 0.0
    return replace(panel, codes=codes, scores=scores)


def _discount_rule(part: DecisionRule, worker: int, drift: WorkerDrift) -> DecisionRule:
    match part:
        case TableRule():
            return _discount_table(part, worker, drift)
        case RouterRule():
            return replace(part, table=_discount_table(part.table, worker, drift))
        case CascadeRule():
            weights = {
                asked: _discount_confidence(own, asked, worker, drift) for asked, own in part.confidences.items()
            }
            return replace(part, confidences=weights)
        case StoppingRule():
            support = part.scorer.support.copy()
            support[:, worker] += drift.shift
            gains = {asked: _discount_gains(part, asked, worker, drift) for asked in part.gains}
            return replace(part, scorer=replace(part.scorer, support=support), gains=gains)
    return part


def _discount_table(table: TableRule, worker: int, drift: WorkerDrift) -> TableRule:
    success = table.success.copy()
    success[:, worker] = _shift_log_odds(success[:, worker], drift.shift)
    return replace(table, success=success)


def _discount_confidence(weights: Floats, asked: tuple[int, ...], worker: int, drift: WorkerDrift) -> Floats:
    """Return the weights of confidence in the last of those asked; the first is the constant."""
    found = weights.copy()
    found[0] += drift.shift if asked[-1] == worker else 0.0
    return found


def _discount_gains(part: StoppingRule, asked: tuple[int, ...], worker: int, drift: WorkerDrift) -> Floats:
    """Return gains [p, n, L] in which asking the worker brings less.

    At first, when its answer may be all there is, by its fall in success (the first feature is 1); later in proportion.
    """
    others = [other for other in part.workers if other not in asked]
    found = part.gains[asked].copy()
    if worker in others:
        place = others.index(worker)
        if asked:
            found[:, place] *= drift.found / max(drift.usual, _EDGE)
        else:
            found[0, place] -= drift.usual - drift.found
    return found


def _exclude_workers(policy: Policy, names: Sequence[str], words: str) -> Policy:
    def shunned(worker: KnownWorker) -> KnownWorker:
        return replace(worker, shunned=words) if worker.name in names else worker

    return _with_note(replace(policy, workers=tuple(map(shunned, policy.workers))), words)


def _with_note(policy: Policy, words: str) -> Policy:
    """Return the policy without what was measured of the one that it was, and with a note of what it is now."""
    rungs = tuple(replace(rung, evidence=None) for rung in policy.rungs)
    about = replace(policy.about, notes=(*policy.about.notes, words))
    return replace(policy, about=about, rungs=rungs, habits=None)


def _shift_log_odds(success: Floats, shift: float) -> Floats:
    held = np.clip(success, _EDGE, 1 - _EDGE)
    return np.asarray(1 / (1 + (1 - held) / held * np.exp(-shift)), np.float64)


def _hash_to_unit(text: str) -> float:
    return int.from_bytes(sha256(text.encode()).digest()[:6]) / 2**48
