"""Controls of `conductor.py` that take more than a name: a topology that is chosen, money that is matched, lots.

Invariants: what is chosen is chosen on development tasks; what is matched in cost is matched to within what the lots of
single tasks leave. Deliberately absent: anything that reads skills.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from conductor_played import Contender, control, performed
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.budget import format_dollars
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card
from shikisha.evals.statistics import mix_for_cost
from shikisha.simulation import baseline_conductors
from shikisha.simulation.baseline_conductors import BaselineConductor
from shikisha.simulation.demo_run import SimulatedRun, run_tasks
from shikisha.simulation.instructions import CANONICAL_PHRASES, InstructionKind
from shikisha.simulation.seeded_random import hash_number, seeded_generator, shuffle_by_hash
from shikisha.simulation.task_generator import SimulatedTask
from shikisha.simulation.worker_profiles import GENERALIST, JUDGE, NOVICE
from shikisha.workers.vote import VoteWorker

MODELS = (GENERALIST, NOVICE, JUDGE)
_TOPOLOGIES = ("single", "vote", "fan-out-join", "chain", "planner-executor-verifier", "mixture-of-agents", "debate")
_ATTEMPTS = (0, 1, 3, 4)  # of the generalist; 0: the novice once. Two that differ decide nothing, a plan has five steps


def best_fixed(dev: Sequence[SimulatedTask], found: Sequence[SimulatedTask]) -> Contender:
    """Choose among fixed topologies by development tasks; return what the best of them comes to on the others.

    Each is cast by price, over the tasks' own pools and over the models and the judge, whether they stand there or not.
    """
    conductors: list[Conductor] = [fixed_conductor(name) for name in _TOPOLOGIES]
    conductors += [baseline_conductors.SELF_CONSISTENCY, baseline_conductors.PLANNER_EXECUTOR_VERIFIER]
    entries = [(conductor, cast) for conductor in conductors for cast in ((), MODELS)]
    tried = [control(dev, conductor, cast) for conductor, cast in entries]
    merits = [(one.right.mean(), -one.dollars.mean()) for one in tried]
    conductor, cast = entries[max(range(len(entries)), key=merits.__getitem__)]
    over = "over both models and the judge" if cast else "over the task's own pool"
    note = f"{conductor.name}, {over}, chosen on {len(dev)} development tasks"
    return replace(control(found, conductor, cast), note=note)


def checked_router(found: Sequence[SimulatedTask]) -> Contender:
    """Let the generalist, who joins every pool for it, check what the keyword router's worker says."""

    def plan(task: Task, cards: tuple[Card, ...]) -> Plan:
        first = baseline_conductors.KEYWORD_ROUTER.plan(task, cards)
        checker = next(at for at, card in enumerate(cards) if card.name == GENERALIST)
        return Plan((*first.steps, Step(CANONICAL_PHRASES[InstructionKind.CHECK][0], checker, (0,))))

    joined = [item.with_workers(*dict.fromkeys((*(name for name, _ in item.workers), GENERALIST))) for item in found]
    return Contender([asyncio.run(run_tasks(joined, BaselineConductor("keyword router, checked", plan)))])


def at_equal_dollars(forms: Mapping[str, Contender], dollars: float) -> Contender:
    """Mix two of these forms, task by task, until they spend so much, where that brings more right answers.

    They are chosen on the very tasks, which favors the control. What is cheapest is not made cheaper.
    """
    points = {(float(one.dollars.mean()), float(one.right.mean())): name for name, one in forms.items()}
    low, high, often = mix_for_cost(points, dollars)
    plain, dearer = (forms[points[point]].trials[0] for point in (low, high))
    chosen = set(shuffle_by_hash(range(len(plain)), "which get the dearer form")[: round(often * len(plain))])
    mixed = [dearer[at] if at in chosen else plain[at] for at in range(len(plain))]
    rest = f"{points[high]} for {often:.1%} of the tasks, else {points[low]}" if often else points[low]
    spent = "" if often else f", {format_dollars(low[0])}: nothing dearer brings more"
    return Contender([mixed], f"{rest}{spent}")


def at_cost(found: Sequence[SimulatedTask], dollars: float, *, anew: bool) -> Contender:
    """Spend so many dollars a task on the generalist's attempts and a vote, mixing the two nearest numbers of attempts.

    `anew`: the attempts are independent of one another and the vote is counted for nothing, which in this world nobody
    else is granted: asked again in the same run, a model says the same again, and the judge errs now and then.
    """
    rungs = [(_alike, _anew)[anew](found, count) for count in _ATTEMPTS]
    costs = [rung.dollars.mean() for rung in rungs]
    place = max(1, next((at for at, cost in enumerate(costs) if cost >= dollars), len(costs) - 1))
    often = min(1.0, max(0.0, (dollars - costs[place - 1]) / (costs[place] - costs[place - 1])))
    chosen = set(shuffle_by_hash(range(len(found)), "which get more attempts")[: round(often * len(found))])
    low, high = (rungs[at].trials[0] for at in (place - 1, place))
    mixed = [high[at] if at in chosen else low[at] for at in range(len(found))]
    names = [f"generalist × {count}" if count else "the novice once" for count in _ATTEMPTS]
    note = f"{names[place]} for {often:.1%} of the tasks, else {names[place - 1]}"
    return Contender([mixed], note if costs[-1] >= dollars else f"{note}; a plan has no room for more")


def _alike(found: Sequence[SimulatedTask], count: int) -> Contender:
    """Let the generalist attempt it so many times, as often as it is asked in the same words, and the judge decide."""
    if not count:
        return control(found, baseline_conductors.ONLY_NOVICE, (NOVICE,))
    text = render_plan_lists(_attempts([0] * count, 1))
    return Contender([performed([item.with_workers(GENERALIST, JUDGE) for item in found], [(text,)] * len(found))])


def _anew(found: Sequence[SimulatedTask], count: int) -> Contender:
    """Let as many generalists of the same skill attempt it, each with luck of its own, and count their votes."""
    if count < 2:
        return _alike(found, count)
    text = render_plan_lists(_attempts(range(count), count))
    return Contender([performed([_several(item, count) for item in found], [(text,)] * len(found))])


def _attempts(workers: Sequence[int], judge: int) -> Plan:
    alone = tuple(Step(CANONICAL_PHRASES[InstructionKind.ANSWER][0], worker) for worker in workers)
    if len(alone) < 2:
        return Plan(alone)
    return Plan((*alone, Step(CANONICAL_PHRASES[InstructionKind.VOTE][0], judge, tuple(range(len(alone))))))


def _several(item: SimulatedTask, count: int) -> SimulatedTask:
    lucks = [item.luck, *(hash_number("attempt", item.luck, place) for place in range(1, count))]
    ones = [item.with_luck(luck).with_workers(GENERALIST).pool[0] for luck in lucks]
    members = [replace(one, card=replace(one.card, name=f"{one.card.name} {place}")) for place, one in enumerate(ones)]
    return replace(item, pool=Pool([*members, Member(Card("counter", "counts votes", "vote"), VoteWorker())]))


def by_lot(found: Sequence[SimulatedTask], one: Contender) -> Contender:
    """Return the contender's own plans with workers drawn by lot: what its routing is worth beyond its shapes."""
    return Contender([performed(found, [_rerouted(trial) for trial in row]) for row in one.trials])


def _rerouted(trial: SimulatedRun) -> tuple[str, ...]:
    """Return the text of the trial's first plan with other workers; what was no plan stays none."""
    plan = trial.run.rounds[0].plan if trial.run.rounds else None
    if plan is None:
        return ("",)
    size, draw = len(trial.item.pool), seeded_generator("by lot", trial.item.task.prompt)
    return (render_plan_lists(Plan(tuple(replace(step, worker=draw.randrange(size)) for step in plan.steps))),)
