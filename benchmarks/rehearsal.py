"""The embedded orchestra: how fast it is, what workers and yardsticks reach, and whether that is what was computed.

    python benchmarks/rehearsal.py [--tasks 2000] [--seed 1] [--split heldout] [--json]

Speed: items drawn a second (with their pools), microseconds of a worker's answer, by kind of work and of worker. Then
every yardstick through the real engine, by number of parts, with 95 % intervals; the optimum beside its computed
chance; and every worker alone, beside its nominal skill.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

from common import Figure, machine
from shikisha.engine.worker import Request
from shikisha.evals.statistics import wilson
from shikisha.simulation.baseline_conductors import best_plan, profiles_of
from shikisha.simulation.demo_run import BASELINE_CONTENDERS, run_tasks
from shikisha.simulation.questions import FAMILIES, parse_question
from shikisha.simulation.simulated_workers import SimulatedWorker
from shikisha.simulation.task_generator import SimulatedTask, generate_tasks
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import PROFILES

ALONE = "answer the question"
Groups = dict[str, list[bool]]


PARTS = ("all", "1 part", "2 parts", "3 parts", "join", "gauge in 2+", "lacking")
FAMILY = tuple(FAMILIES)


def kinds(item: SimulatedTask) -> tuple[str, ...]:
    """Say to which groups of questions an item belongs: one of PARTS, and its family if it has one part."""
    if item.lacking:
        return "all", "lacking"
    if len(item.kinds) == 1:
        return "all", "1 part", item.kinds[0]
    if item.question.noisy:
        return "all", "gauge in 2+"
    return "all", "join" if item.question.joined else f"{len(item.kinds)} parts"


def speed(found: Sequence[SimulatedTask], split: WordingSplit, seed: int) -> list[Figure]:
    """Measure the generator and the workers."""
    figures = [
        Figure(
            "items drawn",
            _rate(lambda: list(generate_tasks(split, seed + 1, count=3_000)), 3_000),
            "items/s",
            5_000,
            True,
        )
    ]
    for family, name in (("fact", "fact"), ("arithmetic", "arithmetic"), ("text", "text"), ("gauge", "gauge")):
        requests = [Request(item.task, ALONE, key=item.task.id) for item in found if item.kinds == (family,)]
        figures.append(_answering(f"{family} tool, question already read", name, requests))
    requests = [Request(item.task, ALONE) for item in found]
    figures.append(_answering("generalist, question already read", "simulated-generalist", requests))
    seconds = _seconds(lambda: [parse_question.__wrapped__(item.task.prompt) for item in found])
    figures.append(Figure("reading a question for the first time", seconds / len(found) * 1e6, "us", 200))
    seconds = _seconds(lambda: [best_plan(item.question, profiles_of(item.pool.cards)) for item in found])
    figures.append(Figure("the optimal plan", seconds / len(found) * 1e6, "us"))
    return figures


def _answering(what: str, name: str, requests: Sequence[Request]) -> Figure:
    player = SimulatedWorker(PROFILES[name])
    for request in requests:
        player.answer(request)
    seconds = _seconds(lambda: [player.answer(request) for request in requests])
    return Figure(what, seconds / len(requests) * 1e6, "us", 200)


def _seconds(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


def _rate(work: Callable[[], object], count: int) -> float:
    work()
    return count / _seconds(work)


def grouped(results: Iterable[tuple[SimulatedTask, bool]]) -> Groups:
    """Collect what was right, by group of questions."""
    groups: Groups = defaultdict(list)
    for item, right in results:
        for group in kinds(item):
            groups[group].append(right)
    return groups


def line(name: str, groups: Groups, columns: Sequence[str]) -> str:
    """Write a row: the share of right answers with half its interval, by group."""
    cells = []
    for column in columns:
        right, count = sum(groups[column]), len(groups[column])
        low, high = wilson(right, count)
        cells.append(f"{right / count:.3f}±{(high - low) / 2:.3f}" if count else "-")
    return f"  {name:<30}" + "".join(f"{cell:>13}" for cell in cells)


async def yardsticks(found: Sequence[SimulatedTask]) -> dict[str, Groups]:
    """Put the items through every yardstick."""
    table = {}
    for contender in BASELINE_CONTENDERS:
        staged = [item.with_workers(*contender.workers) if contender.workers else item for item in found]
        trials = await run_tasks(staged, contender.conductor)
        table[contender.label] = grouped((item, trial.right) for item, trial in zip(found, trials, strict=True))
    return table


def computed(found: Sequence[SimulatedTask]) -> dict[str, list[float]]:
    """Return the optimal plan's chances, by group of questions."""
    chances = defaultdict(list)
    for item in found:
        chance = best_plan(item.question, profiles_of(item.pool.cards)).success
        for group in kinds(item):
            chances[group].append(chance)
    return chances


def alone(found: Sequence[SimulatedTask]) -> dict[str, tuple[Groups, dict[str, float]]]:
    """Ask every worker every question, and return what was right beside the nominal shares."""
    table = {}
    for name, profile in PROFILES.items():
        player = SimulatedWorker(profile, luck=1)
        said = [(item, item.grade(player.answer(Request(item.task, ALONE, key=item.task.id)))) for item in found]
        nominal = defaultdict(list)
        for item in found:
            for group in kinds(item):
                nominal[group].append(profile.skill(item.kinds))
        table[name] = (grouped(said), {group: sum(skills) / len(skills) for group, skills in nominal.items()})
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", choices=[split.value for split in WordingSplit], default="heldout")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    split = WordingSplit(arguments.split)
    found = list(generate_tasks(split, arguments.seed, count=arguments.tasks))
    figures = speed(found, split, arguments.seed)
    table, chances, solo = asyncio.run(yardsticks(found)), computed(found), alone(found)
    if arguments.json:
        shares = {name: {group: sum(right) / len(right) for group, right in of.items()} for name, of in table.items()}
        print(json.dumps({"speed": [figure.__dict__ for figure in figures], "shares": shares}, indent=1))
        return
    print(f"{arguments.tasks} {split} tasks, seed {arguments.seed} ({machine()})")
    for figure in figures:
        print(f"  {figure.what:<42} {figure.value:>10,.1f} {figure.unit}")
    for columns in (PARTS, FAMILY):
        print("\n  " + " " * 30 + "".join(f"{column:>13}" for column in columns))
        for name, groups in table.items():
            print(line(name, groups, columns))
        print(f"  {'the optimum, computed':<30}" + "".join(f"{_mean(chances[column]):>13}" for column in columns))
    print("\n  asked alone, below it the nominal skill")
    print("  " + " " * 30 + "".join(f"{column:>13}" for column in PARTS))
    for name, (groups, nominal) in solo.items():
        print(line(name, groups, PARTS))
        print(f"  {'':<30}" + "".join(f"{nominal.get(column, 0.0):>13.3f}" for column in PARTS))


def _mean(chances: Sequence[float]) -> str:
    return f"{sum(chances) / len(chances):.3f}" if chances else "-"


if __name__ == "__main__":
    main()
