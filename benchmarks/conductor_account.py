"""What is told of a contender in `conductor.py`: figures by name, each with interval and seeds, on one cut's tasks.

Invariant: shares of the optimum are of what the optimal policy came to on the very same tasks and luck. Deliberately
absent: how it is printed, and which figures are aimed at (`conductor`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conductor_figures import Estimate, Lots
from conductor_played import Contender, Floats
from shikisha.core.plan import Plan
from shikisha.simulation.baseline_conductors import best_plan, profiles_of
from shikisha.simulation.task_generator import SimulatedTask
from shikisha.training.plan_reward import plan_shape

OPTIMUM, RULES, ROUTER, SINGLE = (
    "optimum (is told all skills)",
    "hand-written rules",
    "keyword router",
    "generalist alone",
)
ROUTER_AT_EQUAL_DOLLARS = f"{ROUTER} at equal dollars"
ALL_AT_EQUAL_DOLLARS = "all controls at equal dollars, the best mix"
ONE_SHOT, CHAIN, FAN_OUT = "one-part tasks in one shot", "chains of the right length", "fan-out and join where it pays"
_JOINED, _VOTED = "of these: parts joined", "of these: readings and a vote"
SHARE, COST, ENTROPY = "of the optimum", "dollars, of the rules'", "worker entropy, of the optimum's"
ROW = ("right", SHARE, "dollars", COST, ENTROPY, "valid")  # what stands in every contender's line


@dataclass(frozen=True)
class Cut:
    """A cut's tasks, and the best plan for each."""

    tasks: Sequence[SimulatedTask]
    plans: Sequence[Plan]
    lots: Lots

    @classmethod
    def of(cls, tasks: Sequence[SimulatedTask]) -> "Cut":
        """Look up the best plans and draw the resamples."""
        plans = [best_plan(item.question, profiles_of(item.pool.cards)).plan for item in tasks]
        return cls(tasks, plans, Lots(len(tasks)))

    def where(self, fits: Callable[[SimulatedTask, Plan], bool]) -> Floats:
        """Return [1, T]: 1 for the tasks that fit."""
        return np.array([[fits(item, plan) for item, plan in zip(self.tasks, self.plans, strict=True)]], float)

    def shapes(self, one: Contender) -> dict[str, Estimate]:
        """Return how often the shape is right where the optimal policy's is one call, a chain, or a join or vote."""
        shapes, wanted = np.array(one.shapes), np.array([plan_shape(plan) for plan in self.plans])
        hit: Mapping[str, Floats] = {
            ONE_SHOT: (shapes == "one-shot 1").astype(float),
            CHAIN: (shapes == wanted).astype(float),
            FAN_OUT: np.char.startswith(shapes, "fan-out+join").astype(float),
        }
        groups: Mapping[str, tuple[str, Floats]] = {
            ONE_SHOT: (ONE_SHOT, self.where(lambda item, plan: len(plan) == 1 and len(item.kinds) == 1)),
            CHAIN: (CHAIN, self.where(lambda _, plan: plan.topology() == "chain")),
            FAN_OUT: (FAN_OUT, self.where(lambda _, plan: plan.topology() == "fan-out+join")),
            _JOINED: (FAN_OUT, self.where(lambda item, plan: _fans(plan) and item.question.joined)),
            _VOTED: (FAN_OUT, self.where(lambda item, plan: _fans(plan) and not item.question.joined)),
        }
        return {
            name: self.lots.ratio(hit[what] * inside, np.broadcast_to(inside, hit[what].shape))
            for name, (what, inside) in groups.items()
        }

    def kinds(self) -> dict[str, Floats]:
        """Return [1, T] for each kind of question: 1 for its tasks."""
        names = [kind_of(item) for item in self.tasks]
        return {kind: np.array([[name == kind for name in names]], float) for kind in sorted(set(names))}


def _fans(plan: Plan) -> bool:
    return plan.topology() == "fan-out+join"


def kind_of(item: SimulatedTask) -> str:
    """Name the kind of a question."""
    if item.lacking:
        return "a specialist missing"
    if item.question.noisy:
        return "noisy"
    return "join" if item.question.joined else f"{len(item.kinds)} part{'s' if len(item.kinds) > 1 else ''}"


def figures(cut: Cut, made: Mapping[str, Contender], name: str, in_full: bool) -> dict[str, Estimate]:
    """Return what is told of a contender; `in_full` with shapes and kinds of questions."""
    return dict(_figures(cut, made, name, in_full))


def _figures(cut: Cut, made: Mapping[str, Contender], name: str, in_full: bool) -> Iterator[tuple[str, Estimate]]:
    one, optimum, lots = made[name], made[OPTIMUM], cut.lots
    workers = sorted({worker for each in (one, optimum) for counted in each.asked for worker in counted})
    yield "right", lots.ratio(one.right)
    yield SHARE, lots.ratio(one.right, optimum.right)
    yield "dollars", lots.ratio(one.dollars)
    yield COST, lots.ratio(one.dollars, made[RULES].dollars)
    yield ENTROPY, lots.entropy(one.counts(workers), optimum.counts(workers))
    yield "valid", lots.ratio(one.valid)
    yield "calls", lots.ratio(one.calls)
    yield "right, given a valid plan", lots.ratio(one.right * one.valid, one.valid)
    for other in (SINGLE, ROUTER, RULES, OPTIMUM, ROUTER_AT_EQUAL_DOLLARS, ALL_AT_EQUAL_DOLLARS):
        if other != name and other in made:
            yield f"less {other}", lots.less(one.right, made[other].right)
    if in_full:
        yield f"dollars, of the {SINGLE}'s", lots.ratio(one.dollars, made[SINGLE].dollars)
        yield from cut.shapes(one).items()
        for kind, inside in cut.kinds().items():
            yield f"{kind}: right", lots.ratio(one.right * inside, np.broadcast_to(inside, one.right.shape))
            yield f"{kind}: {SHARE}", lots.ratio(one.right * inside, optimum.right * inside)


def told(cut: Cut, made: Mapping[str, Contender], name: str, found: Mapping[str, Estimate]) -> dict[str, object]:
    """Return it as JSON data, with who was asked and which shapes were planned."""
    one = made[name]
    return {
        "tasks": len(cut.tasks),
        "seeds": len(one.trials),
        "note": one.note,
        "figures": {what: each.told() for what, each in found.items()},
        "topologies": one.topologies(),
        "workers": one.shares(),
    }
