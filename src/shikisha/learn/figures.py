"""A policy's figures as tables and drawings quote them: what a budget buys, where an accuracy is reached, who gained.

Invariants: a figure between two measured budgets is the mixture of both, which is what the dial would perform; nothing
is said of budgets that pay for a part of the tasks only, although the area counts them. Deliberately absent: words
(`summary`) and measuring (`ladder`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from shikisha.learn.frontier import POINTS
from shikisha.policy.dial import Aim, Mix, Wish
from shikisha.policy.policy import Evidence, Gain, Known, Met, Policy, Rung, Yardstick

BUDGETS = tuple(budget for budget in POINTS if budget <= 1)  # the terminal's; the page has them all
_OVER = 1.1  # spending so much of a budget is said to be too much
_TINY, _SAME = 1e-9, 1e-6


@dataclass(frozen=True, slots=True)
class Line:
    """A rung or a yardstick as a row: what it came to, and whether it is the rung that is kept."""

    name: str
    area: float
    frontier: tuple[Met, ...]
    rung: bool
    kept: bool = False
    note: str = ""

    def at(self, budget: float) -> Met | None:
        """Return what this budget bought, None where nothing so cheap was measured."""
        return met_at(self.frontier, budget)


@dataclass(frozen=True, slots=True)
class Step:
    """A rung above the first, its gain over the one kept before it (None: not measured), and whether it was taken."""

    rung: str
    gain: Gain | None
    taken: bool
    needs: int | None


def lines(policy: Policy) -> tuple[Line, ...]:
    """Return every rung that was measured, then every yardstick whose cost can be turned."""
    rungs = [
        Line(rung.name, rung.evidence.area, paid(rung.evidence), True, rung.name == policy.kept, rung.evidence.note)
        for rung in policy.rungs
        if rung.evidence is not None
    ]
    others = [Line(one.name, one.area, paid(one), False, note=one.note) for one in policy.yardsticks]
    return (*rungs, *(line for line in others if not _still(line.frontier)))


def marks(policy: Policy) -> tuple[tuple[str, Met], ...]:
    """Return the yardsticks that cost the same whatever the budget: a name and what it came to."""
    bought = [(one.name, paid(one)) for one in policy.yardsticks]
    return tuple((name, frontier[0]) for name, frontier in bought if _still(frontier))


def paid(measured: Evidence | Yardstick) -> tuple[Met, ...]:
    """Return the frontier without the first budgets that pay for a part of the tasks only.

    There what is won rises as the budget does, since the cheapest setting is taken for as many tasks as it pays for.
    """
    frontier = measured.frontier
    rates = [met.accuracy / met.budget for met in frontier if met.budget > 0]
    if len(rates) < len(frontier) or len(rates) < 2 or not isclose(rates[0], rates[1], rel_tol=_SAME):
        return frontier
    parts = sum(isclose(rate, rates[0], rel_tol=_SAME) for rate in rates)
    ends = frontier[parts - 1 : parts + 1]
    if len(ends) > 1 and isclose(ends[0].accuracy, ends[1].accuracy, rel_tol=_SAME):
        parts -= 1  # that budget is just enough for all tasks: more brings no more
    return frontier[parts:]


def _still(frontier: Sequence[Met]) -> bool:
    costs = [met.spent for met in frontier]
    return bool(costs) and max(costs) - min(costs) <= _TINY + 1e-6 * max(costs)


def met_at(frontier: Sequence[Met], budget: float) -> Met | None:
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
    return Met(budget, spent, accuracy, least, most)


def overspent(met: Met, budget: float) -> bool:
    """Whether it cost clearly more than the budget: its cheapest setting does, or its dial was wrong about it."""
    return met.spent > _OVER * budget


def reach(frontier: Sequence[Met], accuracy: float) -> float | None:
    """Return at which cost this accuracy was first reached, between two budgets in proportion; None: never."""
    before: Met | None = None
    for met in frontier:
        if met.accuracy >= accuracy:
            if before is None or met.accuracy <= before.accuracy:
                return met.spent
            share = (accuracy - before.accuracy) / (met.accuracy - before.accuracy)
            return before.spent + share * (met.spent - before.spent)
        before = met
    return None


def steps(policy: Policy) -> tuple[Step, ...]:
    """Climb the ladder once more by its evidence: what was gained over the rung kept before, and what followed."""
    found, base = [], policy.rungs[0].name
    for rung in policy.rungs[1:]:
        proof = rung.evidence
        gained = next((gain for gain in proof.gains if gain.over == base), None) if proof else None
        taken = gained is not None and gained.low > 0
        found.append(Step(rung.name, gained, taken, proof.needs if proof else None))
        base = rung.name if taken else base
    return tuple(found)


def defended(policy: Policy) -> str:
    """Return the rung that the evidence alone would keep."""
    taken = [step.rung for step in steps(policy) if step.taken]
    return taken[-1] if taken else policy.rungs[0].name


def best_single(policy: Policy) -> Known:
    """Return the worker that all costs and qualities are measured by."""
    return policy.best_single


def hardly_known(policy: Policy) -> tuple[Known, ...]:
    """Return workers with less than half of the outcomes that others have: none of them can be the best single one."""
    most = max(worker.tasks for worker in policy.workers)
    return tuple(worker for worker in policy.workers if 0 < 2 * worker.tasks < most)


def usual(rung: Rung) -> tuple[Mix, Wish]:
    """Return the setting to show unless told: as good as the best single worker, or the best there is."""
    wish = Wish(Aim.QUALITY, 1.0)
    if rung.dial.points[-1].accuracy < rung.dial.best_single:
        wish = Wish(Aim.BEST)
    return rung.dial.at(wish), wish


def settings(rung: Rung, budgets: Sequence[float] = POINTS) -> tuple[tuple[str, Mix], ...]:
    """Return the dial's marks: its cheapest setting, the budgets between, and its best, each with what it is."""
    points, dial = rung.dial.points, rung.dial
    inside = [budget for budget in budgets if points[0].cost < budget < points[-1].cost]
    first = ("cheapest", Mix(points[0], points[0], 0.0))
    last = ("best", Mix(points[-1], points[-1], 0.0))
    between = [(f"{100 * budget:g} %", dial.within(budget)) for budget in inside]
    return (first, *between, last) if len(points) > 1 else (last,)
