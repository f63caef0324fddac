"""Skills and practice in a simulated office: planning saved, skills that fail later, and tasks to a fixed rate.

    python benchmarks/skills.py [--seeds 1,2,3] [--runs 300] [--tests 200] [--practice] [--json]

Workers, questions and planner are simulated, and named so. Skills: a crew whose members are right in 97 % of what their
true cards claim; after so many graded runs of the prompted conductor skills are mined, and new questions are performed
with and without them. Reported are the planner's dollars on questions of the twelve recurring types and on those of
types that have a skill, the paired difference in right answers (95 %), and of the skills that were admitted, those that
give another plan than the planner's for any new question that it answered right.

`--practice`: the crew with misleading cards. A pool of tasks is practised in rounds of twenty, chosen by need
(`order_by_need`, estimated by what was learned so far) or drawn uniformly; after each round step values are fitted anew
and choose the workers of held-out questions. Reported is after how many tasks each reaches the rate that uniform
practice reaches with all rounds.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from common import machine
from shikisha.conductors.skilled import SkilledConductor
from shikisha.conductors.value_conductor import ValueConductor
from shikisha.config.practice import order_by_need
from shikisha.core.run import Run
from shikisha.evals.graders import Grade, grade_from_score
from shikisha.evals.statistics import mean_interval
from shikisha.evals.taskset import TaskItem
from shikisha.learned.fit_step_value import fit_step_value
from shikisha.learned.skills import Skill, mine_skills, replay_on_runs
from shikisha.learned.step_samples import run_samples
from shikisha.learned.step_value import StepValue
from shikisha.simulation.office.learning_week import WORTH, perform_day, planned_by_simulation, with_honest_cards
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.recurring_traffic import RecurringTraffic

FIRST_TEST = 10_000
ROUND, ROUNDS = 20, 12
EXPLORE = 0.5


def able_questions(traffic: RecurringTraffic, first: int, count: int) -> list[OfficeTask]:
    """Return questions for the crew with true cards, each member right in 97 % of what it claims."""
    items = with_honest_cards(traffic.tasks(first, count), traffic)
    crew = items[0].crew
    able = [
        replace(one, wants=frozenset(), levels={kind: 0.97 if kind in one.strong else 0.1 for kind in one.levels})
        for one in crew.members
    ]
    same = replace(crew, members=tuple(able))
    return [item.with_crew(same) for item in items]


def fits(skills: Sequence[Skill], item: OfficeTask) -> bool:
    """Whether an admitted skill fits a question."""
    return any(skill.admitted and skill.match(item.task.prompt) is not None for skill in skills)


async def planning_saved(seed: int, runs: int, tests: int) -> dict[str, object]:
    """Mine skills from a journal, and perform new questions with and without them."""
    traffic = RecurringTraffic(seed)
    past, before = await perform_day(able_questions(traffic, 0, runs), planned_by_simulation)
    skills = mine_skills(past)
    items = able_questions(traffic, FIRST_TEST, tests)
    plain_runs, plain = await perform_day(items, planned_by_simulation)
    _, skilled = await perform_day(items, lambda item: SkilledConductor(planned_by_simulation(item), tuple(skills)))
    replayed = [replay_on_runs(skill, plain_runs) for skill in skills]
    recurring = [at for at, item in enumerate(items) if item.task.domain.startswith("type")]
    known = [at for at in recurring if fits(skills, items[at])]

    def saved(places: Sequence[int]) -> float:
        return 1 - sum(skilled.planning[at] for at in places) / max(1e-12, sum(plain.planning[at] for at in places))

    return {
        "right in the past": before.accuracy,
        "skills": len(skills),
        "recurring": len(recurring),
        "with a skill": len(known),
        "saved, recurring": saved(recurring),
        "saved, with a skill": saved(known) if known else 0.0,
        "replays, of which not the right plan": [
            sum(one.replays[0] for one in replayed),
            sum(one.replays[0] - one.replays[1] for one in replayed),
        ],
        "differences": [float(a) - float(b) for a, b in zip(skilled.right, plain.right, strict=True)],
    }


class OfficeGrader:
    """Grades one question of the office."""

    name = "office"

    def __init__(self, item: OfficeTask) -> None:
        self.item = item

    async def grade(self, answer: str) -> Grade:
        """Return 1.0 or 0.0."""
        return grade_from_score("office", float(self.item.grade(answer)), answer, "")


async def held_out_rate(values: StepValue, items: Sequence[OfficeTask]) -> float:
    """Return the share of held-out questions that step values get right."""

    def conductor(item: OfficeTask) -> ValueConductor:
        return ValueConductor("value", values, (planned_by_simulation(item),), WORTH, 0.0)

    _, result = await perform_day(items, conductor)
    return result.accuracy


async def practised(seed: int, by_need: bool, tests: int) -> list[float]:
    """Practise in rounds; return the held-out rate after each."""
    traffic, rng = RecurringTraffic(seed), random.Random(seed)
    pool = list(traffic.tasks(0, 3 * ROUND * ROUNDS))
    held_out = list(traffic.tasks(FIRST_TEST, tests))
    values, runs, rates = fit_step_value([]), list[Run](), list[float]()
    names = pool[0].pool.names
    for _ in range(ROUNDS):
        if by_need and values.workers:
            rows = [TaskItem(item.task, OfficeGrader(item)) for item in pool]
            places = {row.task.id: at for at, row in enumerate(rows)}
            chosen = [places[row.task.id] for row in order_by_need(rows, values, names)[:ROUND]]
        else:
            chosen = rng.sample(range(len(pool)), ROUND)
        items = [pool[at] for at in chosen]
        pool = [item for at, item in enumerate(pool) if at not in set(chosen)]

        def conductor(item: OfficeTask, learned: StepValue = values) -> ValueConductor:
            return ValueConductor("value", learned, (planned_by_simulation(item),), WORTH, EXPLORE)

        runs += (await perform_day(items, conductor))[0]
        values = fit_step_value(run_samples(runs))
        rates.append(await held_out_rate(values, held_out))
    return rates


def tasks_to(rates: Sequence[float], goal: float) -> int:
    """Return after how many tasks a rate is reached; one more round than all, if never."""
    return ROUND * (1 + next((at for at, rate in enumerate(rates) if rate >= goal), ROUNDS))


async def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--practice", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    table: dict[str, object] = {}
    if asked.practice:
        for seed in seeds:
            uniform, need = await practised(seed, False, asked.tests), await practised(seed, True, asked.tests)
            goal = float(np.mean(uniform[-3:]))
            table[f"practice, seed {seed}"] = {
                "goal": round(goal, 3),
                "tasks by need / uniform": [tasks_to(need, goal), tasks_to(uniform, goal)],
                "rates by need": [round(rate, 3) for rate in need],
                "rates uniform": [round(rate, 3) for rate in uniform],
            }
    else:
        rows = [await planning_saved(seed, asked.runs, asked.tests) for seed in seeds]
        differences = [each for row in rows for each in row.pop("differences")]  # type: ignore[attr-defined]
        low, high = mean_interval(differences)
        table = {f"skills, seed {seed}": row for seed, row in zip(seeds, rows, strict=True)}
        table["right with skills, less without"] = [round(each, 3) for each in (float(np.mean(differences)), low, high)]
    if asked.json:
        print(json.dumps(table, indent=1))
        return
    print(f"Skills and practice, simulated ({machine()})")
    for name, row in table.items():
        print(f"  {name}: {row}")


if __name__ == "__main__":
    asyncio.run(main())
