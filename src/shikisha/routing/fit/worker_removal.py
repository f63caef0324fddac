"""Worker removal: continuing without workers that became worse, when nothing can be refitted.

They are not asked any more, and the operating points are measured again. Invariants: rules keep their settings;
evidence and usage of the earlier policy are dropped, since they describe another policy.
"""

from collections.abc import Sequence
from dataclasses import replace

from shikisha.core.errors import UnknownName
from shikisha.routing.fit.drift_detection import WorkerDrift
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

_REMEASURED_NOTE = "the trade-off was measured again on tasks that the policy was fitted on, so it is too optimistic"


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
