"""`shikisha tune`: whether it ships harm, keeps its cap, and finds planted advice.

    python benchmarks/tune.py [--null 1000] [--seeds 20] [--runs 300] [--json]

Null: advice changes nothing (tasks are right with a chance of .4, whatever the advice says); how often is advice
accepted all the same? Planted: a simulated planner, named so, that shows no step an earlier result until it is
advised to, and follows each piece of advice on 90 % of the tasks; simulated staff, right in 97 % of what their true
cards claim, that all want two things to be told that no card says. A simulated reflector adds one sentence an edit:
with a chance of one half a useful one (about lacking results where the feedback says that one was lacking, else one
of four about what to tell workers), else one of eight that are idle or harmful; one answer in ten is no JSON, one in
ten the same advice again. The cap in dollars is what so many runs cost. `found` counts seeds whose accepted advice
has a planted sentence, `all` those with all three; right before and after is measured on 200 further questions.
"""

import argparse
import asyncio
import json
import random
from dataclasses import replace

import numpy as np

from common import machine
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.config.prompt_tuner import JournaledTuner
from shikisha.core.budget import Caps
from shikisha.core.prompts import PlanFormat, PromptStyle
from shikisha.core.task import OPERATOR
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card
from shikisha.evals.graders import Grade, grade_from_score
from shikisha.evals.taskset import TaskItem
from shikisha.learned.prompt_search import PromptSearch, Reflection, SearchResult, TunedRun
from shikisha.simulation.office.learning_week import perform_day, with_honest_cards
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
from shikisha.simulation.office.simulated_planner import SHOW_RESULTS, USEFUL_ADVICE, SimulatedReflector, planner_member
from shikisha.simulation.office.staff import WordingFeature

COST = 0.001
PLANTED = frozenset({WordingFeature.FORMAT, WordingFeature.UNIT})


def null_search(seed: int) -> bool:
    """Search where nothing helps; return whether advice was accepted."""

    def perform(advice: str, place: int, left: float) -> TunedRun:
        right = random.Random(f"{seed} {place} {advice}").random() < 0.4
        return TunedRun(float(right), min(COST, left), "", "| so")

    def reflect(prompt: str, number: int, left: float) -> Reflection:
        return Reflection(json.dumps({"advice": f"{seed} {number} {len(prompt)}"}), min(COST, left))

    return PromptSearch(80, perform, reflect, 0.3, seed=seed).run("", COST, COST).accepted


class OfficeGrader:
    """Grades one question of the office."""

    name = "office"

    def __init__(self, item: OfficeTask) -> None:
        self.item = item

    async def grade(self, answer: str) -> Grade:
        """Return 1.0 or 0.0."""
        return grade_from_score("office", float(self.item.grade(answer)), answer, "")


def planner(item: OfficeTask, advice: str = "") -> LanguageModelConductor:
    """Return the prompted conductor of one question, with advice."""
    style = PromptStyle(PlanFormat.JSON)
    return LanguageModelConductor(
        "lm:simulated", planner_member(item.question, forgetful=True), style=style, rounds=1, advice=advice
    )


def planted_questions(seed: int, first: int, count: int) -> list[OfficeTask]:
    """Return questions for a crew with true cards whose members all want the planted features."""
    traffic = RecurringTraffic(seed)
    items = with_honest_cards(traffic.tasks(first, count), traffic)
    crew = items[0].crew
    able = [
        replace(member, wants=PLANTED, levels={kind: 0.97 if kind in member.strong else 0.1 for kind in member.levels})
        for member in crew.members
    ]
    same = replace(crew, members=tuple(able))
    return [item.with_crew(same) for item in items]


async def planted_search(seed: int, runs: int) -> tuple[SearchResult, float, float]:
    """Search where two pieces of advice help; return the result, and accuracy without and with the advice."""
    items = planted_questions(seed, 0, 100)
    recorder = MemoryRecorder()
    rows = [TaskItem(item.task, OfficeGrader(item)) for item in items]
    pools = [item.pool for item in items]
    reflector = Pool(
        [Member(Card("reflector", "simulated", "simulated", max_output_tokens=500), SimulatedReflector(seed))]
    )
    engine, caps = Engine(recorder), Caps(steps=20, rounds=3)

    def tuner(at: int) -> JournaledTuner:
        return JournaledTuner(
            "t", engine, recorder, pools[0], planner(items[at]), rows, reflector, caps, OPERATOR, pools
        )

    _, before = await perform_day(planted_questions(seed, 10_000, 200), planner)
    loop = asyncio.get_running_loop()
    search = PromptSearch(
        len(items),
        lambda advice, at, left: asyncio.run_coroutine_threadsafe(tuner(at).perform(advice, at, left), loop).result(),
        lambda prompt, at, left: asyncio.run_coroutine_threadsafe(tuner(0).reflect(prompt, at, left), loop).result(),
        runs * before.cost,
        seed=seed,
    )
    found = await asyncio.to_thread(search.run, "", before.cost, 0.002)
    _, after = await perform_day(planted_questions(seed, 10_000, 200), lambda item: planner(item, found.advice))
    assert found.spent <= runs * before.cost
    return found, before.accuracy, after.accuracy


async def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    shipped = sum(null_search(seed) for seed in range(arguments.null))
    results = [await planted_search(seed, arguments.runs) for seed in range(arguments.seeds)]
    planted = (SHOW_RESULTS, *USEFUL_ADVICE[:2])
    has = [[sentence in found.advice for sentence in planted] for found, _, _ in results]
    figures = {
        "null: accepted": [shipped, arguments.null],
        "planted: found": sum(any(row) for row in has),
        "planted: results shown": sum(row[0] for row in has),
        "planted: all": sum(all(row) for row in has),
        "seeds": arguments.seeds,
        "runs, mean / most": [
            float(np.mean([one.runs for one, _, _ in results])),
            max(one.runs for one, _, _ in results),
        ],
        "dollars, mean": float(np.mean([one.spent for one, _, _ in results])),
        "right before / after": [
            float(np.mean([row[1] for row in results])),
            float(np.mean([row[2] for row in results])),
        ],
        "worse after": sum(after < before for _, before, after in results),
    }
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"Tuning, simulated ({machine()})")
    for name, figure in figures.items():
        print(f"  {name:<24} {figure}")


if __name__ == "__main__":
    asyncio.run(main())
