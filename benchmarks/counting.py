"""What it takes to count an evaluation, and whether its intervals are as wide as they say.

    python benchmarks/counting.py [--json]

Samples are made up: 13 single workers and 4 conductors, 8,398 tasks in 14 domains, as many as the recorded MMLU-Pro
tasks with the pool of 13. Coverage is how often the 95 % interval of a paired difference holds the true difference,
over simulated evaluations of two workers that agree on most tasks.
"""

import tracemalloc
from collections.abc import Callable
from random import Random
from time import perf_counter

from common import Figure
from common import report as show
from shikisha.core.events import GradeMark, RunStatus
from shikisha.evals.entrant_metrics import EntrantInfo
from shikisha.evals.report import EvaluationInfo, build_report, dump_report, load_report
from shikisha.evals.samples import EntrantRole, Sample
from shikisha.evals.statistics import bootstrap, difference_interval

TASKS, SINGLES, CONDUCTORS, DOMAINS = 8_398, 13, 4, 14
TRIALS = 2_000


def sample(name: str, task: int, random: Random, workers: tuple[str, ...]) -> Sample:
    """Return a made-up sample."""
    right = random.random() < 0.7
    return Sample(
        name,
        f"task {task}",
        f"{task:064x}",
        f"domain {task % DOMAINS}",
        "",
        RunStatus.DONE,
        GradeMark.RIGHT if right else GradeMark.WRONG,
        float(right),
        rounds=1,
        workers=workers,
        shape="one-shot" if len(workers) == 1 else "fan-out+join",
        access=(*((),) * (len(workers) - 1), tuple(range(len(workers) - 1))),
        tokens=random.randrange(200, 2_000),
        dollars=random.random() / 1_000,
        seconds=random.random(),
        confidence=None if len(workers) == 1 else random.randrange(1, 4) / 3,
    )


def everything() -> tuple[list[EntrantInfo], dict[str, list[Sample]], EvaluationInfo]:
    """Return who is in the evaluation, their samples, and what it is about."""
    random = Random(0)
    singles = [EntrantInfo(f"single {index}", EntrantRole.SINGLE, f"worker {index}") for index in range(SINGLES)]
    asked = [EntrantInfo(f"conductor {index}") for index in range(CONDUCTORS)]
    samples = {
        who.name: [sample(who.name, task, random, _cast(who, random)) for task in range(TASKS)]
        for who in (*asked, *singles)
    }
    tasks = {each.task_id: each.task_hash for each in samples[asked[0].name]}
    return [*asked, *singles], samples, EvaluationInfo("made up", "0", tasks, tuple(str(who.worker) for who in singles))


def _cast(who: EntrantInfo, random: Random) -> tuple[str, ...]:
    return (who.worker,) if who.worker else tuple(f"worker {random.randrange(SINGLES)}" for _ in range(4))


def coverage(tasks: int) -> float:
    """Return the share of simulated evaluations of so many tasks whose interval holds the true difference."""
    random, held = Random(tasks), 0
    for _ in range(TRIALS):
        low, high = difference_interval(random.choices((1.0, 0.0, -1.0), (12, 80, 8), k=tasks))
        held += low <= 0.04 <= high
    return held / TRIALS


def widthless() -> int:
    """Return how many intervals of equal differences claim to know the mean exactly."""
    found = (difference_interval([value] * count) for value in (-1.0, 0.0, 0.5, 1.0) for count in range(1, 41))
    return sum(low == high for low, high in found)


def seconds(work: Callable[[], object]) -> float:
    """Return the best of three times."""
    times = []
    for _ in range(3):
        begun = perf_counter()
        work()
        times.append(perf_counter() - begun)
    return min(times)


def main() -> None:
    """Measure and print."""
    made = everything()
    counted = build_report(*made)
    text = dump_report(counted)
    assert load_report(text) == counted
    random = Random(1)
    binary, uneven = [random.choice((-1.0, 0.0, 1.0)) for _ in range(10_000)], [random.random() for _ in range(10_000)]
    tracemalloc.start()
    build_report(*made)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    figures = [
        Figure("report of 17 entrants, 8,398 tasks: best of 3", seconds(lambda: build_report(*made)), "s", 2.0),
        Figure("its memory beyond the samples, at most", peak / 2**20, "MiB"),
        Figure("as JSON: write", seconds(lambda: dump_report(counted)), "s"),
        Figure("as JSON: read and check", seconds(lambda: load_report(text)), "s"),
        Figure("as JSON: size", len(text) / 2**20, "MiB"),
        Figure("interval of 10,000 differences in {-1, 0, 1}", seconds(lambda: bootstrap(binary)), "s", 0.2),
        Figure("interval of 10,000 distinct differences", seconds(lambda: bootstrap(uneven)), "s", 0.2),
        *(
            Figure(f"coverage of the 95 % interval, {n:,} tasks", coverage(n) * 100, "%")
            for n in (6, 10, 20, 29, 50, 200, 1_000)
        ),
        Figure("intervals of width 0, of 160 of equal differences", widthless(), "", 0),
    ]
    show("Counting an evaluation", figures)


if __name__ == "__main__":
    main()
