"""Figures of a policy as tables and plots show them: results by budget, cost of an accuracy, gains, usage by type.

Invariants: a figure between two measured budgets is the mixture of both, which is what the policy would run; budgets
that pay for a part of the tasks only are left out, although the area counts them; usage shares are of the tasks of one
type, and rates of agreement come from all tasks that both workers answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

import numpy as np

from shikisha.routing.arrays import Floats
from shikisha.routing.fit.cost_frontier import REPORTED_BUDGETS
from shikisha.routing.policy_data import (
    COMBINED,
    AreaGain,
    AskCounts,
    Baseline,
    Candidate,
    FrontierPoint,
    HeldOutEvidence,
    KnownWorker,
    Policy,
    PolicyUsage,
)
from shikisha.routing.trade_off import OperatingMix, OperatingTarget, TargetMetric

# The terminal shows these budgets; the page shows all.
CONSOLE_BUDGETS = tuple(budget for budget in REPORTED_BUDGETS if budget <= 1)
# Spending this much of a budget counts as overspending.
_OVERSPENT_FACTOR = 1.1
_TINY, _RELATIVE_TOLERANCE = 1e-9, 1e-6
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
        """Return the point of this budget, None below the cheapest measured one."""
        return interpolate_budget(self.frontier, budget)


@dataclass(frozen=True, slots=True)
class SelectionStep:
    """A candidate after the first, its gain over the one selected before (None: not measured), and the outcome."""

    rung: str
    gain: AreaGain | None
    taken: bool
    needs: int | None


def frontier_lines(policy: Policy) -> tuple[FrontierLine, ...]:
    """Return all measured candidates, then the baselines whose cost can be varied."""
    rungs = [
        FrontierLine(
            candidate.name,
            candidate.evidence.area,
            affordable_points(candidate.evidence),
            True,
            candidate.name == policy.kept,
            candidate.evidence.note,
        )
        for candidate in policy.rungs
        if candidate.evidence is not None
    ]
    baselines = [
        FrontierLine(one.name, one.area, affordable_points(one), False, note=one.note) for one in policy.yardsticks
    ]
    return (*rungs, *(line for line in baselines if not _has_fixed_cost(line.frontier)))


def fixed_cost_baselines(policy: Policy) -> tuple[tuple[str, FrontierPoint], ...]:
    """Return the baselines of fixed cost: a name and a point."""
    points = [(one.name, affordable_points(one)) for one in policy.yardsticks]
    return tuple((name, frontier[0]) for name, frontier in points if _has_fixed_cost(frontier))


def affordable_points(measured: HeldOutEvidence | Baseline) -> tuple[FrontierPoint, ...]:
    """Return the frontier without the first budgets that pay for a part of the tasks only.

    There the score is proportional to the budget, since the cheapest setting is used for as many tasks as it pays for.
    """
    frontier = measured.frontier
    rates = [met.accuracy / met.budget for met in frontier if met.budget > 0]
    if len(rates) < len(frontier) or len(rates) < 2 or not isclose(rates[0], rates[1], rel_tol=_RELATIVE_TOLERANCE):
        return frontier
    parts = sum(isclose(rate, rates[0], rel_tol=_RELATIVE_TOLERANCE) for rate in rates)
    ends = frontier[parts - 1 : parts + 1]
    if len(ends) > 1 and isclose(ends[0].accuracy, ends[1].accuracy, rel_tol=_RELATIVE_TOLERANCE):
        parts -= 1  # that budget is just enough for all tasks
    return frontier[parts:]


def _has_fixed_cost(frontier: Sequence[FrontierPoint]) -> bool:
    costs = [met.spent for met in frontier]
    return bool(costs) and max(costs) - min(costs) <= _TINY + 1e-6 * max(costs)


def interpolate_budget(frontier: Sequence[FrontierPoint], budget: float) -> FrontierPoint | None:
    """Return the point of this budget: as measured, mixed from its neighbors, or the most expensive one."""
    below = [met for met in frontier if met.budget <= budget + _TINY]
    above = [met for met in frontier if met.budget >= budget - _TINY]
    if not below:
        return None
    low = below[-1]
    if not above or low.budget >= budget - _TINY:
        return low
    high = above[0]
    share = (budget - low.budget) / (high.budget - low.budget)
    spent, accuracy, least, most = (
        (1 - share) * one + share * other
        for one, other in (
            (low.spent, high.spent),
            (low.accuracy, high.accuracy),
            (low.low, high.low),
            (low.high, high.high),
        )
    )
    return FrontierPoint(budget, spent, accuracy, least, most)


def is_overspent(met: FrontierPoint, budget: float) -> bool:
    """Return whether the cost clearly exceeds the budget: the cheapest setting does, or the trade-off was wrong."""
    return met.spent > _OVERSPENT_FACTOR * budget


def cost_to_reach(frontier: Sequence[FrontierPoint], accuracy: float) -> float | None:
    """Return the cost at which this accuracy is first reached, by linear interpolation; None: never."""
    before: FrontierPoint | None = None
    for met in frontier:
        if met.accuracy >= accuracy:
            if before is None or met.accuracy <= before.accuracy:
                return met.spent
            share = (accuracy - before.accuracy) / (met.accuracy - before.accuracy)
            return before.spent + share * (met.spent - before.spent)
        before = met
    return None


def selection_steps(policy: Policy) -> tuple[SelectionStep, ...]:
    """Repeat the selection by the evidence: each gain over the candidate selected before, and what followed.

    The combined dial is compared with the simplest candidate, and taken unless that shows harm.
    """
    steps, base = [], policy.rungs[0].name
    for candidate in policy.rungs[1:]:
        evidence, weighs_others = candidate.evidence, candidate.name == COMBINED
        against = policy.rungs[0].name if weighs_others else base
        gain_found = next((gain for gain in evidence.gains if gain.over == against), None) if evidence else None
        taken = gain_found is not None and (gain_found.high >= 0 if weighs_others else gain_found.low > 0)
        steps.append(SelectionStep(candidate.name, gain_found, taken, evidence.needs if evidence else None))
        base = candidate.name if taken else base
    return tuple(steps)


def defended_candidate(policy: Policy) -> str:
    """Return the candidate that the evidence alone selects."""
    taken = [step.rung for step in selection_steps(policy) if step.taken]
    return taken[-1] if taken else policy.rungs[0].name


def best_single_worker(policy: Policy) -> KnownWorker:
    """Return the worker that all costs and qualities are relative to."""
    return policy.best_single


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


def trade_off_settings(
    candidate: Candidate, budgets: Sequence[float] = REPORTED_BUDGETS
) -> tuple[tuple[str, OperatingMix], ...]:
    """Return named settings: the cheapest, the budgets between, and the best."""
    points, trade_off = candidate.dial.points, candidate.dial
    inside = [budget for budget in budgets if points[0].cost < budget < points[-1].cost]
    first = ("cheapest", OperatingMix(points[0], points[0], 0.0))
    last = ("best", OperatingMix(points[-1], points[-1], 0.0))
    between = [(f"{100 * budget:g} %", trade_off.for_cost(budget)) for budget in inside]
    return (first, *between, last) if len(points) > 1 else (last,)


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How often something was right, over how many tasks; None where it never occurred."""

    tasks: int
    right: float | None


@dataclass(frozen=True, slots=True)
class TypeUsage:
    """A type of task: who is asked first, in which share of the tasks a second worker, and mostly which one.

    `share` is how often `first` is asked first. Rates: the first alone, where the second agrees, and where it differs,
    of the first and the second.
    """

    kind: str
    tasks: int
    first: str
    share: float
    asks: float
    more: float
    second: str | None
    alone: SuccessRate
    agree: SuccessRate
    differ: tuple[SuccessRate, SuccessRate]


def usage_by_type(policy: Policy, mix: OperatingMix) -> tuple[TypeUsage, ...]:
    """Return how a setting treats each type, the most frequent type first; empty where not counted."""
    habits = policy.habits
    asks = habits.at(mix) if habits else None
    if habits is None or asks is None:
        return ()
    kinds = [*policy.types.names, NO_TYPE_LABEL]
    present = [index for index in np.argsort(-habits.tasks, kind="stable").tolist() if habits.played[index]]
    return tuple(_type_usage(kinds[index], index, policy.names, habits, asks) for index in present)


def ask_shares(policy: Policy, mix: OperatingMix) -> Mapping[str, float] | None:
    """Return the share of all tasks in which each worker is asked; None where not counted."""
    asks = policy.habits.at(mix) if policy.habits else None
    if policy.habits is None or asks is None:
        return None
    shares = asks.asked.sum(axis=0) / max(1.0, float(policy.habits.played.sum()))
    return dict(zip(policy.names, shares.tolist(), strict=True))


def _type_usage(kind: str, index: int, names: tuple[str, ...], habits: PolicyUsage, asks: AskCounts) -> TypeUsage:
    played = float(habits.played[index])
    first = int(asks.first[index].argmax())
    seconds = asks.second[index].copy()
    second_share = float(seconds.sum()) / played
    seconds[first] = 0.0  # the second worker where another one was asked first
    second = int(seconds.argmax()) if seconds.any() else None
    return TypeUsage(
        kind,
        round(float(habits.tasks[index])),
        names[first],
        float(asks.first[index, first]) / played,
        float(asks.asked[index].sum()) / played,
        second_share,
        None if second is None else names[second],
        _success_rate(habits.scored[index, first], habits.won[index, first]),
        _pair_rate(habits.agree, habits.agreed, index, first, second),
        (
            _pair_rate(habits.differ, habits.differed, index, first, second),
            _pair_rate(habits.differ, habits.differed, index, second, first),
        ),
    )


def _pair_rate(times: Floats, won: Floats, index: int, one: int | None, other: int | None) -> SuccessRate:
    if one is None or other is None:
        return SuccessRate(0, None)
    return _success_rate(times[index, one, other], won[index, one, other])


def _success_rate(times: float, won: float) -> SuccessRate:
    return SuccessRate(round(float(times)), float(won) / float(times) if times else None)
