"""A policy's figures as tables and drawings quote them: what a budget buys, where an accuracy is reached, who gained.

Invariants: a figure between two measured budgets is the mixture of both, which is what the dial would perform; nothing
is said of budgets that pay for a part of the tasks only, although the area counts them. Deliberately absent: words
(`summary`) and measuring (`ladder`).

Ways: how a setting goes about each type of task, read from a policy's habits.

Invariants: shares are of the tasks of the type; what agreement is worth was counted on every task that both workers
answered, so it does not hang on when the policy asks. Deliberately absent: playing (`habits`), and accuracy, which the
log cannot tell honestly of settings that were fitted on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

import numpy as np

from shikisha.routing.arrays import Floats
from shikisha.routing.fit.cost_frontier import REPORTED_BUDGETS
from shikisha.routing.policy_data import (
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

CONSOLE_BUDGETS = tuple(budget for budget in REPORTED_BUDGETS if budget <= 1)  # the terminal's; the page has them all
_OVERSPENT_FACTOR = 1.1  # spending so much of a budget is said to be too much
_TINY, _RELATIVE_TOLERANCE = 1e-9, 1e-6


@dataclass(frozen=True, slots=True)
class FrontierLine:
    """A rung or a yardstick as a row: what it came to, and whether it is the rung that is kept."""

    name: str
    area: float
    frontier: tuple[FrontierPoint, ...]
    rung: bool
    kept: bool = False
    note: str = ""

    def at(self, budget: float) -> FrontierPoint | None:
        """Return what this budget bought, None where nothing so cheap was measured."""
        return interpolate_budget(self.frontier, budget)


@dataclass(frozen=True, slots=True)
class SelectionStep:
    """A rung above the first, its gain over the one kept before it (None: not measured), and whether it was taken."""

    rung: str
    gain: AreaGain | None
    taken: bool
    needs: int | None


def frontier_lines(policy: Policy) -> tuple[FrontierLine, ...]:
    """Return every rung that was measured, then every yardstick whose cost can be turned."""
    rungs = [
        FrontierLine(
            rung.name,
            rung.evidence.area,
            affordable_points(rung.evidence),
            True,
            rung.name == policy.kept,
            rung.evidence.note,
        )
        for rung in policy.rungs
        if rung.evidence is not None
    ]
    others = [
        FrontierLine(one.name, one.area, affordable_points(one), False, note=one.note) for one in policy.yardsticks
    ]
    return (*rungs, *(line for line in others if not _has_fixed_cost(line.frontier)))


def fixed_cost_baselines(policy: Policy) -> tuple[tuple[str, FrontierPoint], ...]:
    """Return the yardsticks that cost the same whatever the budget: a name and what it came to."""
    bought = [(one.name, affordable_points(one)) for one in policy.yardsticks]
    return tuple((name, frontier[0]) for name, frontier in bought if _has_fixed_cost(frontier))


def affordable_points(measured: HeldOutEvidence | Baseline) -> tuple[FrontierPoint, ...]:
    """Return the frontier without the first budgets that pay for a part of the tasks only.

    There what is won rises as the budget does, since the cheapest setting is taken for as many tasks as it pays for.
    """
    frontier = measured.frontier
    rates = [met.accuracy / met.budget for met in frontier if met.budget > 0]
    if len(rates) < len(frontier) or len(rates) < 2 or not isclose(rates[0], rates[1], rel_tol=_RELATIVE_TOLERANCE):
        return frontier
    parts = sum(isclose(rate, rates[0], rel_tol=_RELATIVE_TOLERANCE) for rate in rates)
    ends = frontier[parts - 1 : parts + 1]
    if len(ends) > 1 and isclose(ends[0].accuracy, ends[1].accuracy, rel_tol=_RELATIVE_TOLERANCE):
        parts -= 1  # that budget is just enough for all tasks: more brings no more
    return frontier[parts:]


def _has_fixed_cost(frontier: Sequence[FrontierPoint]) -> bool:
    costs = [met.spent for met in frontier]
    return bool(costs) and max(costs) - min(costs) <= _TINY + 1e-6 * max(costs)


def interpolate_budget(frontier: Sequence[FrontierPoint], budget: float) -> FrontierPoint | None:
    """Return what this budget bought: as measured, mixed from its neighbours, or all that the dearest could use."""
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
    """Whether it cost clearly more than the budget: its cheapest setting does, or its dial was wrong about it."""
    return met.spent > _OVERSPENT_FACTOR * budget


def cost_to_reach(frontier: Sequence[FrontierPoint], accuracy: float) -> float | None:
    """Return at which cost this accuracy was first reached, between two budgets in proportion; None: never."""
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
    """Climb the ladder once more by its evidence: what was gained over the rung kept before, and what followed."""
    found, base = [], policy.rungs[0].name
    for rung in policy.rungs[1:]:
        proof = rung.evidence
        gained = next((gain for gain in proof.gains if gain.over == base), None) if proof else None
        taken = gained is not None and gained.low > 0
        found.append(SelectionStep(rung.name, gained, taken, proof.needs if proof else None))
        base = rung.name if taken else base
    return tuple(found)


def defended_candidate(policy: Policy) -> str:
    """Return the rung that the evidence alone would keep."""
    taken = [step.rung for step in selection_steps(policy) if step.taken]
    return taken[-1] if taken else policy.rungs[0].name


def best_single_worker(policy: Policy) -> KnownWorker:
    """Return the worker that all costs and qualities are measured by."""
    return policy.best_single


def workers_with_few_outcomes(policy: Policy) -> tuple[KnownWorker, ...]:
    """Return workers with less than half of the outcomes that others have: none of them can be the best single one."""
    most = max(worker.tasks for worker in policy.workers)
    return tuple(worker for worker in policy.workers if 0 < 2 * worker.tasks < most)


def default_setting(rung: Candidate) -> tuple[OperatingMix, OperatingTarget]:
    """Return the setting to show unless told: as good as the best single worker, or the best there is."""
    wish = OperatingTarget(TargetMetric.QUALITY, 1.0)
    if rung.dial.points[-1].accuracy < rung.dial.best_single:
        wish = OperatingTarget(TargetMetric.BEST)
    return rung.dial.at(wish), wish


def trade_off_settings(
    rung: Candidate, budgets: Sequence[float] = REPORTED_BUDGETS
) -> tuple[tuple[str, OperatingMix], ...]:
    """Return the dial's marks: its cheapest setting, the budgets between, and its best, each with what it is."""
    points, dial = rung.dial.points, rung.dial
    inside = [budget for budget in budgets if points[0].cost < budget < points[-1].cost]
    first = ("cheapest", OperatingMix(points[0], points[0], 0.0))
    last = ("best", OperatingMix(points[-1], points[-1], 0.0))
    between = [(f"{100 * budget:g} %", dial.for_cost(budget)) for budget in inside]
    return (first, *between, last) if len(points) > 1 else (last,)


NO_TYPE_LABEL = "(no type)"


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How often something was right, over how many tasks; None where it never was the case."""

    tasks: int
    right: float | None


@dataclass(frozen=True, slots=True)
class TypeUsage:
    """A type of task: who is asked first, in which share of the tasks a second one, who that mostly is.

    `share` is how often it is `first` who begins. Right: the first alone, where the second agrees, and where it differs
    the first and the second.
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
    """Return how a setting goes about each type, the most frequent type first; nothing where it was not counted."""
    habits = policy.habits
    asks = habits.at(mix) if habits else None
    if habits is None or asks is None:
        return ()
    kinds = [*policy.types.names, NO_TYPE_LABEL]
    there = [place for place in np.argsort(-habits.tasks, kind="stable").tolist() if habits.played[place]]
    return tuple(_type_usage(kinds[place], place, policy.names, habits, asks) for place in there)


def ask_shares(policy: Policy, mix: OperatingMix) -> Mapping[str, float] | None:
    """Return in which share of all tasks each worker is asked; None where that was not counted."""
    asks = policy.habits.at(mix) if policy.habits else None
    if policy.habits is None or asks is None:
        return None
    shares = asks.asked.sum(axis=0) / max(1.0, float(policy.habits.played.sum()))
    return dict(zip(policy.names, shares.tolist(), strict=True))


def _type_usage(kind: str, place: int, names: tuple[str, ...], habits: PolicyUsage, asks: AskCounts) -> TypeUsage:
    played = float(habits.played[place])
    first = int(asks.first[place].argmax())
    seconds = asks.second[place].copy()
    more = float(seconds.sum()) / played
    seconds[first] = 0.0  # who is asked second where somebody else began
    second = int(seconds.argmax()) if seconds.any() else None
    return TypeUsage(
        kind,
        round(float(habits.tasks[place])),
        names[first],
        float(asks.first[place, first]) / played,
        float(asks.asked[place].sum()) / played,
        more,
        None if second is None else names[second],
        _success_rate(habits.scored[place, first], habits.won[place, first]),
        _pair_rate(habits.agree, habits.agreed, place, first, second),
        (
            _pair_rate(habits.differ, habits.differed, place, first, second),
            _pair_rate(habits.differ, habits.differed, place, second, first),
        ),
    )


def _pair_rate(times: Floats, won: Floats, place: int, one: int | None, other: int | None) -> SuccessRate:
    if one is None or other is None:
        return SuccessRate(0, None)
    return _success_rate(times[place, one, other], won[place, one, other])


def _success_rate(times: float, won: float) -> SuccessRate:
    return SuccessRate(round(float(times)), float(won) / float(times) if times else None)
