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

`--composed`: an office whose people ask for each thing in one sentence each. Skills are mined from graded runs of the
prompted conductor on 48 recurring types of at most n parts; then fresh questions of n and of n + 1 parts are
performed by planner alone, with skills that fit as a whole, and with plans composed of skills' parts. Crews: able ones
with true cards as above, and the crew with misleading cards. Reported are the right rates on questions of n and of
n + 1 parts that composition covers (ratio with a bootstrap over questions), the paired difference to the planner
on the same questions, the share that is covered, and the planner's dollars.

`--drift`: drawn outcomes of skills that are as right as planners were or less, judged after every tenth run.
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
from shikisha.core.task import Task
from shikisha.evals.graders import Grade, grade_from_score
from shikisha.evals.statistics import mean_interval
from shikisha.evals.taskset import TaskItem
from shikisha.learned.fit_step_value import fit_step_value
from shikisha.learned.skills import Skill, is_drifted, mine_skills, replay_on_runs
from shikisha.learned.step_samples import run_samples
from shikisha.learned.step_value import StepValue
from shikisha.simulation.office.learning_week import WORTH, perform_day, planned_by_simulation, with_honest_cards
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.questions import draw_question, office_authors, redraw_literals, write_part
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
from shikisha.simulation.seeded_random import seeded_generator

FIRST_TEST = 10_000
ROUND, ROUNDS = 20, 12
EXPLORE = 0.5
HOUSE_AUTHOR, HOUSE_TYPES = "formal", 48


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


def asked_in_house_style(traffic: RecurringTraffic, count: int, key: tuple[object, ...], index: int) -> OfficeTask:
    """Return a question of `count` parts, drawn by `key`, with literals by `index`; one sentence for each operation."""
    drawn = draw_question(
        count, seeded_generator("house", traffic.seed, *key), office_authors(traffic.split), conditional=0
    )
    drawn = redraw_literals(drawn, seeded_generator("house literals", traffic.seed, *key, index), 0)
    said = []
    for part in drawn.parts:
        sentence = write_part(part, HOUSE_AUTHOR, seeded_generator("house style", part.operation.name, bool(part.uses)))
        said.append(sentence[0].upper() + sentence[1:])
    question = replace(drawn, author=HOUSE_AUTHOR, sentences=tuple(said), text=" ".join(said))
    task_id = "/".join(map(str, ("house", traffic.seed, *key, index)))
    return OfficeTask(Task(question.text, id=task_id), question, traffic.crew, 1.0, luck=traffic.seed)


def crewed(items: Sequence[OfficeTask], traffic: RecurringTraffic, able: bool) -> list[OfficeTask]:
    """Return the questions for the able crew with true cards, or as they are."""
    if not able:
        return list(items)
    crew = able_questions(traffic, 0, 1)[0].crew
    return [item.with_crew(crew) for item in items]


async def composed_rates(seed: int, depth: int, runs: int, tests: int, able: bool) -> dict[str, list[float]]:
    """Mine skills of at most `depth` parts; perform fresh questions of `depth` and one more part, three ways."""
    traffic = RecurringTraffic(seed)
    past = [
        asked_in_house_style(traffic, 1 + place % depth, ("type", depth, place), at)
        for at in range(runs)
        for place in (at % HOUSE_TYPES,)
    ]
    skills = tuple(mine_skills((await perform_day(crewed(past, traffic, able), planned_by_simulation))[0]))
    found = dict[str, list[float]]()
    for count in (depth, depth + 1):
        fresh = [asked_in_house_style(traffic, count, ("fresh", depth, count, at), at) for at in range(tests)]
        items = crewed(fresh, traffic, able)
        _, plain = await perform_day(items, planned_by_simulation)
        ways = {}
        for composes in (False, True):

            def conductor(item: OfficeTask, composes: bool = composes) -> SkilledConductor:
                return SkilledConductor(planned_by_simulation(item), skills, composes)

            ways[composes] = (await perform_day(items, conductor))[1]
        name = "n" if count == depth else "n + 1"
        found |= {
            f"{name} planner": list(map(float, plain.right)),
            f"{name} composed": list(map(float, ways[True].right)),
            f"{name} covered": [float(cost == 0) for cost in ways[True].planning],
            f"{name} whole": [float(cost == 0) for cost in ways[False].planning],
            f"{name} saved": [1 - sum(ways[True].planning) / sum(plain.planning)],
        }
    return found | {"skills": [float(len(skills))]}


def summarize_composed(rows: Sequence[dict[str, list[float]]]) -> dict[str, object]:
    """Return the figures of all seeds together."""
    joined = {name: np.array([each for row in rows for each in row[name]]) for name in rows[0]}
    table: dict[str, object] = {"skills": joined["skills"].astype(int).tolist()}
    covered = {name: joined[f"{name} covered"] > 0 for name in ("n", "n + 1")}
    for name in covered:
        right, planner = joined[f"{name} composed"], joined[f"{name} planner"]
        if not covered[name].any():
            return table | {f"{name}: covered (by one whole skill)": [0.0, 0.0]}
        low, high = mean_interval((right - planner)[covered[name]].tolist())
        table[f"{name}: covered (by one whole skill)"] = [
            round(float(covered[name].mean()), 3), round(float(joined[f"{name} whole"].mean()), 3)
        ]  # fmt: skip
        table[f"{name}: right / planner's, where covered"] = [
            round(float(each[covered[name]].mean()), 3) for each in (right, planner)
        ]
        table[f"{name}: less the planner's"] = [
            round(each, 3) for each in (float((right - planner)[covered[name]].mean()), low, high)
        ]
        table[f"{name}: right / planner's, of all"] = [round(float(each.mean()), 3) for each in (right, planner)]
        table[f"{name}: planning saved"] = round(float(joined[f"{name} saved"].mean()), 3)
    one, more = (joined[f"{name} composed"][covered[name]] for name in ("n", "n + 1"))
    rng = np.random.default_rng(0)
    ratios = [rng.choice(more, len(more)).mean() / max(1e-9, rng.choice(one, len(one)).mean()) for _ in range(2_000)]
    table["rate at n + 1, of that at n"] = [
        round(float(each), 3) for each in (more.mean() / one.mean(), *np.quantile(ratios, (0.025, 0.975)))
    ]
    return table


def retired_share(before: float, now: float, trials: int = 2_000) -> list[float]:
    """Judge skills after every tenth of 200 runs, with 30 of planners; return the share retired, and the median run."""
    rng, ends = np.random.default_rng(0), list[int]()
    for _ in range(trials):
        others = (30, float((rng.random(30) < before).sum()))
        right = np.cumsum(rng.random(200) < now)
        looks = [count for count in range(10, 201, 10) if is_drifted((count, float(right[count - 1])), others)]
        ends += looks[:1]
    return [round(len(ends) / trials, 3), float(np.median(ends)) if ends else 0.0]


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
    parser.add_argument("--drift", action="store_true")
    parser.add_argument("--composed", action="store_true")
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
    elif asked.drift:
        for before, now in ((0.9, 0.9), (0.7, 0.7), (0.5, 0.5), (0.9, 0.6), (0.9, 0.3), (0.7, 0.4)):
            table[f"right before {before}, now {now}: retired, after runs"] = retired_share(before, now)
    elif asked.composed:
        for able in (True, False):
            for depth in (2, 3, 4):
                found = [await composed_rates(seed, depth, asked.runs, asked.tests, able) for seed in seeds]
                cards = "able crew, true cards" if able else "misleading cards"
                table[f"{cards}, n = {depth}"] = summarize_composed(found)
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
