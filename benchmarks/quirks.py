"""Lessons from failures where workers have a recurring quirk: how many failures are repeated with memory and without.

    python benchmarks/quirks.py [--seeds 1,2,3] [--days 12] [--a-day 60] [--json]

Workers, questions, planner and reflector are simulated, and named so. Every member of the crew has the same quirk: it
is right more often if it is told to mind units and dates, which no card says. The planner shows steps
what they need and believes true cards. Each night a simulated reflector writes one lesson for each of up to five failed
runs, useful with a chance of one half; lessons go on trial, are shown to half of the tasks that they fit, and are kept
or retired as `shikisha memory learn` does. Reported are failures a day with memory and without on the same questions,
and their ratio over the second half of the days, with the interval of the paired difference.
"""

import argparse
import asyncio
import json
from dataclasses import replace

import numpy as np

from common import machine
from shikisha.conductors.advised import AdvisedConductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR
from shikisha.evals.statistics import mean_interval
from shikisha.learned.lessons import (
    Lesson,
    LessonBook,
    LessonState,
    book_file,
    failed_runs,
    judge_lessons,
    make_lesson,
    merge_lessons,
    widen_lessons,
)
from shikisha.simulation.office.learning_week import perform_day, planned_by_simulation, with_honest_cards
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
from shikisha.simulation.office.simulated_planner import IDLE_ADVICE, USEFUL_ADVICE
from shikisha.simulation.office.staff import WordingFeature
from shikisha.simulation.seeded_random import hash_fraction

QUIRK = frozenset({WordingFeature.UNIT})
REFLECTIONS = 5  # a night


def quirky_questions(traffic: RecurringTraffic, first: int, count: int) -> list[OfficeTask]:
    """Return questions for a crew with true cards and one quirk."""
    items = with_honest_cards(traffic.tasks(first, count), traffic)
    crew = items[0].crew
    members = [
        replace(one, wants=QUIRK, levels={kind: 0.97 if kind in one.strong else 0.1 for kind in one.levels})
        for one in crew.members
    ]
    same = replace(crew, members=tuple(members))
    return [item.with_crew(same) for item in items]


def reflect(run: Run, seed: int) -> Lesson:
    """Return what the simulated reflector writes on a failed run."""
    able = hash_fraction("able", seed, run.id) < 0.5
    said = USEFUL_ADVICE if able else IDLE_ADVICE[:3]
    return make_lesson(
        said[int(hash_fraction("which", seed, run.id) * len(said))], " ".join(run.started.prompt.split()), [run.id]
    )


async def days_of(seed: int, days: int, a_day: int, *, memory: bool) -> tuple[list[list[bool]], list[Lesson]]:
    """Perform days; return which runs failed by day, and the lessons at the end."""
    traffic, runs, lessons, failures = RecurringTraffic(seed), list[Run](), list[Lesson](), list[list[bool]]()
    for day in range(days):
        book = LessonBook(tuple(lessons), book_file(lessons, OPERATOR, 0.0))

        def conductor(item: OfficeTask, known: LessonBook = book) -> LanguageModelConductor | AdvisedConductor:
            inner = planned_by_simulation(item)
            return AdvisedConductor(inner, None, known) if known.lessons else inner

        told, result = await perform_day(quirky_questions(traffic, day * a_day, a_day), conductor)
        failures.append([not right for right in result.right])
        if memory:
            runs += told
            new = [reflect(run, seed) for run in failed_runs(told)[:REFLECTIONS]]
            lessons = widen_lessons(judge_lessons(merge_lessons(lessons, new), runs), runs)
    return failures, lessons


async def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--days", type=int, default=12)
    parser.add_argument("--a-day", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    table, late = dict[str, object](), list[tuple[bool, bool]]()
    for seed in map(int, asked.seeds.split(",")):
        without, _ = await days_of(seed, asked.days, asked.a_day, memory=False)
        with_, lessons = await days_of(seed, asked.days, asked.a_day, memory=True)
        half = asked.days // 2
        pairs = [pair for day in range(half, asked.days) for pair in zip(with_[day], without[day], strict=True)]
        late += pairs
        states = {str(state): sum(one.state is state for one in lessons) for state in LessonState}
        table[f"seed {seed}"] = {
            "failures a day without": [sum(day) for day in without],
            "failures a day with": [sum(day) for day in with_],
            "lessons": states,
            "kept": [one.text for one in lessons if one.state is LessonState.KEPT],
        }
    with_sum, without_sum = sum(pair[0] for pair in late), sum(pair[1] for pair in late)
    differences = [float(pair[0]) - float(pair[1]) for pair in late]
    low, high = mean_interval(differences)
    table["failures of the second half, with / without"] = [with_sum, without_sum, round(with_sum / without_sum, 3)]
    table["difference in the share that fails"] = [round(each, 3) for each in (float(np.mean(differences)), low, high)]
    if asked.json:
        print(json.dumps(table, indent=1))
        return
    print(f"Recurring quirks, simulated ({machine()})")
    for name, row in table.items():
        print(f"  {name}: {row}")


if __name__ == "__main__":
    asyncio.run(main())
