"""Figures of a policy as tables and plots show them: results by budget, what is selected and why, usage by type.

Invariants: budgets that pay for a part of the tasks only are left out, although the area counts them; usage shares are
of the tasks of one type.
"""

from collections.abc import Mapping, Sequence
from math import isclose

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.fit.cost_frontier import REPORTED_BUDGETS
from shikisha.routing.policy_data import (
    COMBINED,
    AreaGain,
    Candidate,
    FrontierPoint,
    HeldOutEvidence,
    KnownWorker,
    Policy,
)
from shikisha.routing.trade_off import OperatingMix, OperatingTarget, TargetMetric

# The terminal shows these budgets; the page shows all.
CONSOLE_BUDGETS = tuple(budget for budget in REPORTED_BUDGETS if budget <= 1)
# Spending this much of a budget counts as overspending.
_OVERSPENT_FACTOR = 1.1
NO_TYPE_LABEL = "(no type)"


@dataclass(frozen=True, slots=True)
class FrontierLine:
    """A candidate or a baseline as a row: its results, and whether it is the selected candidate."""

    name: str
    area: float
    frontier: tuple[FrontierPoint, ...]
    rung: bool
    kept: bool = False
    note: str = ""

    def at(self, budget: float) -> FrontierPoint | None:
        """Return the point of this budget; None where it was not measured."""
        return next((met for met in self.frontier if isclose(met.budget, budget, rel_tol=1e-6)), None)


def frontier_lines(policy: Policy) -> tuple[FrontierLine, ...]:
    """Return all measured candidates, then the baselines whose cost can be varied."""
    rungs = [
        FrontierLine(one.name, one.evidence.area, paid_for(one), True, one.name == policy.kept, one.evidence.note)
        for one in policy.rungs
        if one.evidence is not None
    ]
    baselines = [FrontierLine(one.name, one.area, one.frontier, False, note=one.note) for one in policy.yardsticks]
    return (*rungs, *(line for line in baselines if not _has_fixed_cost(line.frontier)))


def paid_for(candidate: Candidate) -> tuple[FrontierPoint, ...]:
    """Return the frontier of a candidate without budgets below its cheapest setting, which pay for a part only."""
    found = candidate.evidence.frontier if candidate.evidence else ()
    return tuple(met for met in found if met.budget >= candidate.dial.points[0].cost)


def fixed_cost_baselines(policy: Policy) -> tuple[tuple[str, FrontierPoint], ...]:
    """Return the baselines of fixed cost: a name and the point of the largest budget."""
    return tuple((one.name, one.frontier[-1]) for one in policy.yardsticks if _has_fixed_cost(one.frontier))


def _has_fixed_cost(frontier: Sequence[FrontierPoint]) -> bool:
    costs = [met.spent for met in frontier]
    return bool(costs) and max(costs) - min(costs) <= 1e-6 * max(1.0, *costs)


def is_overspent(met: FrontierPoint, budget: float) -> bool:
    """Return whether the cost clearly exceeds the budget: the cheapest setting does, or the trade-off was wrong."""
    return met.spent > _OVERSPENT_FACTOR * budget


def choose_candidate(names: Sequence[str], evidence: Mapping[str, HeldOutEvidence]) -> str:
    """Return the combined dial, which weighs the candidates itself, unless it does harm.

    Without it, or where its gain over the simplest one excludes a benefit: the most complex candidate whose gain over
    the one chosen before it excludes harm.
    """
    combined = evidence.get(COMBINED)
    if combined and not any(one.over == names[0] and one.high < 0 for one in combined.gains):
        return COMBINED
    selected = names[0]
    for candidate in names[1:]:
        support = evidence.get(candidate)
        if support and any(one.over == selected and one.low > 0 for one in support.gains):
            selected = candidate
    return selected


def supported_candidate(policy: Policy) -> str:
    """Return the candidate that the evidence alone selects."""
    evidence = {one.name: one.evidence for one in policy.rungs if one.evidence is not None}
    return choose_candidate([one.name for one in policy.rungs], evidence)


def gain_over_simplest(policy: Policy) -> AreaGain | None:
    """Return the selected candidate's gain in area over the simplest one; None where it was not measured."""
    evidence, simplest = policy.rung().evidence, policy.rungs[0].name
    return next((gain for gain in evidence.gains if gain.over == simplest), None) if evidence else None


def workers_with_few_outcomes(policy: Policy) -> tuple[KnownWorker, ...]:
    """Return workers with less than half as many outcomes as others: never the best single worker."""
    most = max(worker.tasks for worker in policy.workers)
    return tuple(worker for worker in policy.workers if 0 < 2 * worker.tasks < most)


def default_setting(candidate: Candidate) -> tuple[OperatingMix, OperatingTarget]:
    """Return the setting to show by default: as good as the best single worker, or the best there is."""
    wish = OperatingTarget(TargetMetric.QUALITY, 1.0)
    if candidate.dial.points[-1].accuracy < candidate.dial.best_single:
        wish = OperatingTarget(TargetMetric.BEST)
    return candidate.dial.at(wish), wish


def trade_off_settings(candidate: Candidate) -> tuple[tuple[str, OperatingMix], ...]:
    """Return named settings: the cheapest, the budgets between, and the best."""
    points, trade_off = candidate.dial.points, candidate.dial
    inside = [budget for budget in REPORTED_BUDGETS if points[0].cost < budget < points[-1].cost]
    first = ("cheapest", OperatingMix(points[0], points[0], 0.0))
    last = ("best", OperatingMix(points[-1], points[-1], 0.0))
    between = [(f"{100 * budget:g} %", trade_off.for_cost(budget)) for budget in inside]
    return (first, *between, last) if len(points) > 1 else (last,)


@dataclass(frozen=True, slots=True)
class TypeUsage:
    """A type of task: who is asked first, in which share of the tasks a second worker, and mostly which one.

    `share` is how often `first` is asked first, `asks` how many workers are asked a task.
    """

    kind: str
    tasks: int
    first: str
    share: float
    asks: float
    more: float
    second: str | None


def usage_by_type(policy: Policy, mix: OperatingMix) -> tuple[TypeUsage, ...]:
    """Return how a setting treats each type, the most frequent type first; empty where not counted."""
    habits = policy.habits
    asks = habits.at(mix) if habits else None
    if habits is None or asks is None:
        return ()
    kinds, names, usage = [*policy.types.names, NO_TYPE_LABEL], policy.names, []
    for index in np.argsort(-habits.tasks, kind="stable").tolist():
        if not (played := float(habits.played[index])):
            continue
        first, seconds = int(asks.first[index].argmax()), asks.second[index].copy()
        more = float(seconds.sum()) / played
        seconds[first] = 0.0  # the second worker where another one was asked first
        second = names[int(seconds.argmax())] if seconds.any() else None
        share, every = float(asks.first[index, first]) / played, float(asks.asked[index].sum()) / played
        usage.append(
            TypeUsage(kinds[index], round(float(habits.tasks[index])), names[first], share, every, more, second)
        )
    return tuple(usage)


def ask_shares(policy: Policy, mix: OperatingMix) -> Mapping[str, float] | None:
    """Return the share of all tasks in which each worker is asked; None where not counted."""
    asks = policy.habits.at(mix) if policy.habits else None
    if policy.habits is None or asks is None:
        return None
    shares = asks.asked.sum(axis=0) / max(1.0, float(policy.habits.played.sum()))
    return dict(zip(policy.names, shares.tolist(), strict=True))
