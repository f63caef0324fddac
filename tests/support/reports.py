"""Reports of evaluations that never took place, with figures as they could be, for the tests of tables and pages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from recorded_pools import MP13
from shikisha.evals.entrant_metrics import (
    ConfidenceBin,
    ConfidenceCalibration,
    ConfidenceInterval,
    EntrantFigures,
    EvaluationReport,
    PairedDifference,
    RouterCurve,
    SecondRound,
    TaskGroup,
)
from shikisha.evals.samples import EntrantRole

DOMAINS = (
    *("biology", "business", "chemistry", "computer_science", "economics", "engineering", "health"),
    *("history", "law", "math", "other", "philosophy", "physics", "psychology"),
)
DIFFICULTIES = ("easy", "medium", "hard")
SHAPES: Mapping[str, tuple[tuple[tuple[int, ...], ...], ...]] = {
    "one-shot": (((),),),
    "chain": (((), (0,)), ((), (0,), (0, 1)), ((), (0,), (1,))),
    "independent": (((), (), ()),),
    "fan-out+join": (((), (), (0, 1)), ((), (), (), (0, 1, 2)), ((), (), (), (), (0, 1, 2, 3))),
    "mixed": (((), (), (0,), (1,), (2, 3)), ((), (0,), (0,), (1, 2))),
}


def around(mean: float, half: float) -> ConfidenceInterval:
    return ConfidenceInterval(mean - half, mean + half)


def shares(random: Random, names: Sequence[str]) -> dict[str, float]:
    weights = [random.expovariate(1) ** 2 for _ in names]
    return {name: weight / sum(weights) for name, weight in zip(names, weights, strict=True)}


def groups(random: Random, names: Sequence[str], accuracy: float, workers: Sequence[str]) -> dict[str, TaskGroup]:
    return {
        name: TaskGroup(
            random.randint(40, 900), min(1.0, max(0.0, random.gauss(accuracy, 0.1))), shares(random, workers)
        )
        for name in names
    }


def single(name: str, accuracy: float, best: tuple[str, float], dollars: float, random: Random) -> EntrantFigures:
    """A worker of the pool that did everything alone."""
    return EntrantFigures(
        name=name,
        part=EntrantRole.SINGLE,
        tasks=8398,
        accuracy=accuracy,
        interval=around(accuracy, 0.01),
        against=None if name == best[0] else difference(best[0], accuracy - best[1], 0.011),
        valid=1.0,
        accuracy_given_valid=accuracy,
        dollars=8398 * dollars,
        tokens=random.uniform(300, 1200),
        steps=1.0,
        rounds=1.0,
        seconds_p50=random.uniform(0.5, 4),
        seconds_p95=random.uniform(5, 40),
        workers={name: 1.0},
        topologies={"one-shot": 8398},
        graphs=((((),), 8398),),
        no_answer=random.randint(0, 400),
        domains=groups(random, DOMAINS, accuracy, [name]),
        difficulties=groups(random, DIFFICULTIES, accuracy, [name]),
        worker=name,
    )


def difference(to: str, mean: float, half: float) -> PairedDifference:
    better, worse = (round(8398 * max(0.0, side)) + 200 for side in (mean, -mean))
    return PairedDifference(to, 8398, mean, around(mean, half), better, worse)


def conductor(name: str, part: EntrantRole, accuracy: float, best: tuple[str, float], random: Random) -> EntrantFigures:
    """A conductor with everything that an entry may hold."""
    shapes = {shape: random.randint(20, 3000) for shape in SHAPES}
    graphs = sorted(
        ((graph, random.randint(5, 900)) for kinds in SHAPES.values() for graph in kinds), key=lambda pair: -pair[1]
    )
    made = single(name, accuracy, best, random.uniform(0.0008, 0.006), random)
    return replace(
        made,
        part=part,
        valid=0.981,
        accuracy_given_valid=accuracy + 0.004,
        steps=random.uniform(2, 4),
        rounds=1.2,
        workers=shares(random, MP13),
        entropy=random.uniform(1, 3.4),
        topologies=shapes,
        graphs=tuple(graphs),
        multi_step=0.63,
        second_round=SecondRound(812, 190, 61),
        failures={"timeout": 12, "truncated": 3, "no_plan": 40},
        domains=groups(random, DOMAINS, accuracy, MP13),
        calibration=calibration(name, random),
        worker=None,
        reward=accuracy - 0.03,
    )


def calibration(name: str, random: Random) -> ConfidenceCalibration:
    bins = tuple(
        ConfidenceBin(
            random.randint(3, 2500), (index + 0.5) / 10, min(1.0, max(0.0, random.gauss((index + 0.5) / 10, 0.08)))
        )
        for index in range(2, 10)
    )
    return ConfidenceCalibration(name, (ConfidenceBin(0, 0.0, 0.0), ConfidenceBin(0, 0.0, 0.0), *bins), 0.063)


def curve(name: str, bend: float) -> RouterCurve:
    points = tuple((x / 400, 0.5 + 0.22 * (x / 400) ** bend) for x in range(401))
    return RouterCurve(name, MP13[6], MP13[0], points, 1 / (1 + bend), 0.5 ** (1 / bend), 0.8 ** (1 / bend), 0.64)


def report(seed: int = 0) -> EvaluationReport:
    """Seventeen entrants over fourteen domains, made from a seed."""
    random = Random(seed)
    accuracies = [0.725, 0.703, 0.62, 0.64, 0.55, 0.52, 0.445, 0.457, 0.44, 0.43, 0.37, 0.35, 0.29]
    best = (MP13[0], accuracies[0])
    costs = [0.0049, 0.0025, 0.00012, 0.0006, 0.004, 0.0006, 0.00004, 0.00005, 0.0003, 0.00007, 0.0004, 0.00004, 0.0]
    singles = [single(*each, random) for each in zip(MP13, accuracies, [best] * 13, costs, strict=True)]
    cast = [
        ("cascade: agree 2, then gpt4o@hist", EntrantRole.ASKED, 0.741),
        ("weighted vote", EntrantRole.ASKED, 0.7281),
        ("random plans", EntrantRole.RANDOM, 0.51),
        ("best fixed topology", EntrantRole.FIXED, 0.733),
        ("self-consistency", EntrantRole.CONSISTENCY, 0.736),
        ("oracle", EntrantRole.ORACLE, 0.943),
    ]
    entries = (*(conductor(name, part, accuracy, best, random) for name, part, accuracy in cast), *singles)
    return EvaluationReport(
        taskset="mmlu-pro[test]",
        version="9f2c" * 16,
        created="2025-11-21T14:03:22+00:00",
        pool=MP13,
        entries=entries,
        best_single=MP13[0],
        tasks=tuple(f"mmlu-pro/{index}" for index in range(8398)),
        hashes=tuple(f"{index:064x}" for index in range(8398)),
        scores={},
        dollars={},
        pgr={entry.name: (entry.accuracy - 0.29) / 0.435 for entry in entries},
        hull=((0.0, 0.29), (0.00004, 0.445), (0.00012, 0.62), (0.0025, 0.703), (0.0049, 0.725)),
        curves=(curve("similarity router", 0.6), curve("random router", 1.0)),
        aiq=0.655,
        notes=("Costs are derived from approximate list prices of 2024 and characters / 4, not billed.",),
        seconds=312.4,
    )


def hostile() -> EvaluationReport:
    """A report in which every text comes from somebody who means ill."""
    worker = '"><script>alert(1)</script>'
    names = [
        worker,
        "\" onload='alert(2)' x=\"",
        "</style></title></svg><img src=x onerror=alert(3)>",
        "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe",
        "{{ 7 * 7 }} {% raw %} [red]markup[/red]",
    ]
    made = report(1)
    entries = tuple(
        replace(
            entry,
            name=f"{names[index % 5]}{index}",
            workers={f"{name}": 0.2 for name in names},
            topologies={names[2]: 10, names[0]: 3},
            failures={names[0]: 3},
            domains={name: TaskGroup(5, 0.5, dict.fromkeys(names, 0.2)) for name in names},
            difficulties={name: TaskGroup(5, 0.5) for name in names},
            note=names[index % 5],
            worker=worker,
        )
        for index, entry in enumerate(made.entries)
    )
    singles = [entry for entry in entries if entry.part is EntrantRole.SINGLE]
    return replace(
        made,
        taskset=names[0],
        version=names[1],
        created=names[2],
        pool=tuple(names),
        entries=entries,
        best_single=singles[0].name,
        curves=tuple(replace(each, name=names[0], weak=names[1], strong=names[2]) for each in made.curves),
        notes=tuple(names),
        complete=False,
        why=names[3],
    )
