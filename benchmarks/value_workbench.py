"""WorkBench's eight recorded model settings as a pool: step values choose one for each of its 690 tasks.

    PYTHONPATH=deps python benchmarks/value_workbench.py WorkBench [--verdicts verdicts.json] [--seeds 1,2,3] [--json]

`tool_worlds.py` says where WorkBench and `deps` come from. A published run is right, or harmful, by WorkBench's own
verdict; these are computed once and kept in `--verdicts`. Five folds of tasks: values are fitted on what all settings
did in four, and choose for the fifth by the task's text alone. Controls: the setting that is best in the four folds
(chosen on the same outcomes), and the oracle. Intervals are paired over tasks, mean over seeds.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from common import machine
from shikisha.core.task import OPERATOR
from shikisha.learned.fit_step_value import fit_step_value
from shikisha.learned.step_samples import RunSample, StepAnswer, StepUnit
from tool_worlds import WorkBench

FOLDS = 5
Verdicts = dict[str, dict[str, tuple[bool, bool]]]


def read_verdicts(root: Path, kept: Path | None) -> Verdicts:
    """Return by task and setting whether its run was right, and whether it was harmful."""
    if kept is not None and kept.exists():
        return {
            task: {name: (bool(right), bool(harm)) for name, (right, harm) in row.items()}
            for task, row in json.loads(kept.read_text()).items()
        }
    where = None if kept is None else kept.resolve()
    world, found = WorkBench(root), defaultdict[str, dict[str, tuple[bool, bool]]](dict)
    for domain in WorkBench.DOMAINS:
        for run in world.runs(domain):
            right = world.right(run.actions, run.gold, run.error)
            found[f"{domain}\t{run.query}"][run.model] = (bool(right), bool(world.harmful(run.actions, run.gold)))
    if where is not None:
        where.write_text(json.dumps(found))
    return dict(found)


def samples_of(verdicts: Verdicts, tasks: list[str]) -> list[RunSample]:
    """Return one run of one step for each task and setting."""
    return [
        RunSample(
            f"{task} {name}",
            task,
            (StepUnit(task.partition("\t")[2], (StepAnswer(name, str(right), 0.0, 0.0, False),), 0),),
            float(right),
            0.0,
            OPERATOR,
        )
        for task in tasks
        for name, (right, _) in verdicts[task].items()
    ]


def choose(verdicts: Verdicts, seed: int) -> dict[str, dict[str, str]]:
    """Return by policy which setting each task is given to, by folds."""
    tasks = sorted(verdicts)
    order = np.random.default_rng(seed).permutation(len(tasks))
    found = defaultdict[str, dict[str, str]](dict)
    for fold in range(FOLDS):
        test = [tasks[at] for at in order[fold::FOLDS]]
        train = sorted(set(tasks) - set(test))
        model = fit_step_value(samples_of(verdicts, train))
        names = sorted({name for task in train for name in verdicts[task]})
        shares = {
            name: np.mean([verdicts[task][name][0] for task in train if name in verdicts[task]]) for name in names
        }
        best = max(names, key=lambda name: float(shares[name]))
        chances = model.chances([task.partition("\t")[2] for task in test], names)
        for task, row in zip(test, chances, strict=True):
            found["step values"][task] = names[int(np.argmax(row))]
            found["best setting of the other folds"][task] = best
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workbench", type=Path)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    verdicts = read_verdicts(arguments.workbench, arguments.verdicts)
    tasks = sorted(verdicts)
    right, harm = defaultdict[str, list[list[float]]](list), defaultdict[str, list[list[float]]](list)
    for seed in map(int, arguments.seeds.split(",")):
        for name, picks in choose(verdicts, seed).items():
            right[name].append([float(verdicts[task][picks[task]][0]) for task in tasks])
            harm[name].append([float(verdicts[task][picks[task]][1]) for task in tasks])
    oracle = float(np.mean([any(one for one, _ in verdicts[task].values()) for task in tasks]))
    means = {name: np.mean(rows, axis=0) for name, rows in right.items()}
    gaps = means["step values"] - means["best setting of the other folds"]
    draws = np.random.default_rng(0).integers(0, len(gaps), (4_000, len(gaps)))
    low, high = np.quantile(gaps[draws].mean(1), (0.025, 0.975))
    figures = {name: {"right": float(row.mean()), "harmful": float(np.mean(harm[name]))} for name, row in means.items()}
    result = {**figures, "oracle": oracle, "gain": [float(gaps.mean()), float(low), float(high)], "tasks": len(tasks)}
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    print(f"WorkBench, {len(tasks)} tasks, eight recorded settings ({machine()})")
    for key, value in result.items():
        print(f"  {key:<34} {value}")


if __name__ == "__main__":
    main()
