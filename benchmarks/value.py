"""Learning on the job in a simulated office: what all that is learned brings after a week, and each without.

    python benchmarks/value.py [--seeds 11,12,13] [--days 7] [--a-day 43] [--tests 200] [--json]

All workers, questions and the planner are simulated. One crew of six with misleading cards (15 % true), questions of
one to five parts, 60 % of them of twelve recurring types. The prompted conductor `lm:` asks a simulated planner that
reads its real prompt and believes cards; its tokens are priced as a small model's. After each day everything is
learned anew from the journaled runs, all graded by their final answer only. Then new questions are performed without
exploration.

Next to step values, notes on the cards are these values in counts; without steps they are notes by meaning, with the
shipped encoder. Lessons are made each night from the record alone. The advice is searched for once, after the week, by
`tune`'s search with a simulated reflector on the last 100 tasks and at most 300 runs, with all else in force; all rows
have it but one.

Rows: the planner's own choice with misleading and with true cards; everything learned; each part left out; and, for
the dial, other worths of a right answer. Intervals are paired over questions, seeds together: right and dollars of
the row less those of the planner with true cards. The last lines time a decision over 500 plans.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import process_time

import numpy as np

from common import machine
from shikisha.conductors.value_conductor import ValueConductor
from shikisha.core.budget import Price
from shikisha.core.plan import Plan, Step
from shikisha.core.task import OPERATOR, Task
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.worker import Card
from shikisha.learned.learned_file import LearnedFile
from shikisha.learned.prompt_search import PromptSearch, Reflection, TunedRun
from shikisha.learned.step_value import StepValue
from shikisha.learned.tuned_prompt import prompt_file
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.simulation.office.learning_week import (
    DayResult,
    LearningState,
    LearningSwitches,
    learned_conductor,
    perform_day,
    perform_week,
    planned_by_simulation,
    with_honest_cards,
)
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
from shikisha.simulation.office.simulated_planner import SimulatedReflector

FIRST_TEST = 10_000
ALL = "everything learned"
SWITCHES = {
    ALL: LearningSwitches(),
    "without steps": LearningSwitches(steps=False),
    "without notes": LearningSwitches(notes=False),
    "without skills": LearningSwitches(skills=False),
    "without lessons": LearningSwitches(lessons=False),
}
WORTHS = (0.02, 0.01)
TUNE_TASKS, TUNE_RUNS = 100, 300


class Plans:
    """Proposes one plan."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.name, self.plan = name, plan

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan."""
        del situation
        return Proposal(self.plan)


async def measure(
    seed: int, days: int, a_day: int, tests: int
) -> tuple[dict[str, DayResult], dict[str, list[float]], LearningState]:
    """Return each row's results on the test questions, and the accuracy of each day."""
    traffic = RecurringTraffic(seed)
    items = traffic.tasks(FIRST_TEST, tests)

    async def result(conductor: Callable[[OfficeTask], Conductor], honest: bool = False) -> DayResult:
        return (await perform_day(with_honest_cards(items, traffic) if honest else items, conductor))[1]

    rows = {
        "planner, misleading cards": await result(planned_by_simulation),
        "planner, true cards": await result(planned_by_simulation, honest=True),
    }
    curves, kept, advice = dict[str, list[float]](), LearningState(), None
    for name, switches in SWITCHES.items():
        state, results = await perform_week(traffic, switches, days, a_day, shipped_encoder().encode)
        curves[name] = [day.accuracy for day in results] + [day.cost for day in results]
        if name == ALL:
            tasks = traffic.tasks(0, days * a_day)[-TUNE_TASKS:]
            advice = await tuned_advice(tasks, state, switches, results[-1].cost, seed)
        state.advice = advice
        rows[name] = await result(partial(learned_conductor, state=state, switches=switches))
        if name == ALL:
            kept = state
            for worth in WORTHS:
                acts = partial(learned_conductor, state=state, switches=switches, worth=worth)
                rows[f"{name}, a right answer worth ${worth:g}"] = await result(acts)
            untuned = replace(switches, prompt=False)
            rows["without tuned advice"] = await result(partial(learned_conductor, state=state, switches=untuned))
    return rows, curves, kept


async def tuned_advice(
    items: Sequence[OfficeTask], state: LearningState, switches: LearningSwitches, cost: float, seed: int
) -> LearnedFile | None:
    """Return the advice that a search on a week's tasks accepts; None where it accepts none."""
    reflector, loop = SimulatedReflector(seed), asyncio.get_running_loop()

    def perform(advice: str, place: int, left: float) -> TunedRun:
        advised = replace(state, advice=prompt_file(advice, (), OPERATOR, None, 0.0))
        conductor = partial(learned_conductor, state=advised, switches=switches)
        done = asyncio.run_coroutine_threadsafe(perform_day([items[place]], conductor), loop).result()
        return TunedRun(float(done[1].right[0]), min(done[1].cost, left), "", "| right" if done[1].right[0] else "| no")

    def reflect(prompt: str, number: int, left: float) -> Reflection:
        return Reflection(reflector.edit(f"{prompt} {number}"), min(0.002, left))

    search = PromptSearch(len(items), perform, reflect, TUNE_RUNS * cost, seed=seed)
    found = await asyncio.to_thread(search.run, "", cost, 0.002)
    return prompt_file(found.advice, (), OPERATOR, None, 0.0) if found.accepted else None


def difference(values: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """Return the mean difference with its paired bootstrap interval."""
    gaps = values - others
    draws = np.random.default_rng(0).integers(0, len(gaps), (2_000, len(gaps)))
    low, high = np.quantile(gaps[draws].mean(1), (0.025, 0.975))
    return float(gaps.mean()), float(low), float(high)


def ratio(values: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of two means with its paired bootstrap interval."""
    draws = np.random.default_rng(0).integers(0, len(values), (2_000, len(values)))
    low, high = np.quantile(values[draws].mean(1) / others[draws].mean(1), (0.025, 0.975))
    return float(values.mean() / others.mean()), float(low), float(high)


async def decision_milliseconds(model: StepValue) -> float:
    """Return the CPU time of a decision over 500 plans of three steps."""
    cards = tuple(Card(name, price=Price(call=0.001)) for name in model.workers)
    rng = np.random.default_rng(0)
    subtasks = [f"Which room is person {at} in?" for at in range(40)]
    plans = [
        Plan(tuple(Step(subtasks[int(rng.integers(40))], int(rng.integers(len(cards)))) for _ in range(3)))
        for _ in range(460)
    ]
    proposers = tuple(Plans(f"p{at}", plan) for at, plan in enumerate(plans))
    conductor = ValueConductor("value", model, proposers, forms=False)  # and forty with other workers: 500
    times = []
    for at in range(9):
        begun = process_time()
        await conductor.propose(Situation(Task(f"What is it? {at}"), cards))
        times.append(1_000 * (process_time() - begun))
    return float(np.median(times))


async def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="11,12,13")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--a-day", type=int, default=43)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    found = [await measure(seed, arguments.days, arguments.a_day, arguments.tests) for seed in seeds]
    table: dict[str, dict[str, object]] = {}
    told = "planner, true cards"
    for name in found[0][0]:
        right, dollars = (
            np.concatenate([getattr(rows[name], field) for rows, _, _ in found]).astype(float)
            for field in ("right", "dollars")
        )
        base, paid = (
            np.concatenate([getattr(rows[told], field) for rows, _, _ in found]).astype(float)
            for field in ("right", "dollars")
        )
        planning = np.concatenate([rows[name].planning for rows, _, _ in found])
        table[name] = {
            "right": float(right.mean()),
            "dollars": float(dollars.mean()),
            "planning": float(planning.mean()),
            "right, less true cards": difference(right, base),
            "dollars, of true cards": ratio(dollars, paid),
            "by seed": [(round(rows[name].accuracy, 3), round(rows[name].cost, 5)) for rows, _, _ in found],
        }
    decision = await decision_milliseconds(found[0][2].values)
    curves = {name: np.mean([one[1][name] for one in found], axis=0).round(4).tolist() for name in SWITCHES}
    if arguments.json:
        print(json.dumps({"rows": table, "by day: right, dollars": curves, "decision ms": decision}, indent=1))
        return
    print(f"A week in the simulated office, seeds {arguments.seeds}, {arguments.tests} questions each ({machine()})")
    for name, row in table.items():
        gap, share = row["right, less true cards"], row["dollars, of true cards"]
        assert isinstance(gap, tuple)
        assert isinstance(share, tuple)
        print(
            f"  {name:<46} right {row['right']:.3f} ${row['dollars']:.5f} (planning {row['planning']:.5f})  "
            f"right {gap[0]:+.3f} [{gap[1]:+.3f}, {gap[2]:+.3f}]  $ x {share[0]:.2f} [{share[1]:.2f}, {share[2]:.2f}]"
            f"  {row['by seed']}"
        )
    for name, curve in curves.items():
        print(f"  {name:<24} by day, right then dollars: {curve}")
    print(
        f"  a decision over 500 plans: {decision:.1f} ms CPU; skills {[len(one[2].skills) for one in found]}, "
        f"advice {[one[2].advice is not None for one in found]}"
    )


if __name__ == "__main__":
    asyncio.run(main())
