"""What `learn` shows of a log of which most grades are missing, next to what it shows of the whole log.

    python benchmarks/learn_unknown.py [--seeds 3] [--tasks 4000] [--missing 0.7] [--json]

Six recorded workers of MMLU-Pro (costs from list prices). Grades are removed at random, answer by answer; the answers
stay. Compared is every accuracy that the report, `policy show` and the page have: workers, held-out frontiers of all
candidates and baselines, and the trade-off of each candidate. The control is what counting the ungraded as wrong shows.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from common import Figure, report
from recorded import FOLDER
from shikisha.config.policy_builder import LearnRequest, learn_policy
from shikisha.routing.fit.policy_report import policy_as_json

WORKERS = (
    "gpt4o@hist",
    "gemini-1.5-pro-002",
    "gemini-1.5-flash-002",
    "Meta-Llama-3_1-70B-Instruct",
    "Meta-Llama-3_1-8B-Instruct",
    "mathstral-7B",
)


def write_log(folder: Path, tasks: pd.DataFrame, outcomes: pd.DataFrame) -> Path:
    """Write a log."""
    folder.mkdir()
    tasks.to_parquet(folder / "tasks.parquet")
    outcomes.to_parquet(folder / "outcomes.parquet")
    return folder


def shown(folder: Path) -> Mapping[str, Any]:
    """Return what `learn` shows, as JSON has it."""
    return policy_as_json(learn_policy(LearnRequest(log=folder), lambda _: None), "")


def figures(told: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield every accuracy by where it stands."""
    for worker in told["workers"]:
        yield f"worker {worker['name']}", worker["score"]
    for rung in told["rungs"]:
        if rung["evidence"]:
            yield f"{rung['name']}: area", rung["evidence"]["area"]
            for point in rung["evidence"]["frontier"]:
                yield f"{rung['name']} held out at {point['budget']:.3f}", point["accuracy"]
        yield f"{rung['name']}: best of the dial", rung["dial"][-1]["accuracy"]
    for one in told["yardsticks"]:
        if one["name"] != "oracle":
            yield f"{one['name']}: area", one["area"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--missing", type=float, default=0.7)
    given, _ = parser.parse_known_args()
    if not (FOLDER / "mmlu-pro").is_dir():
        sys.exit(f"no recorded answers in {FOLDER}")
    tasks = pd.read_parquet(FOLDER / "mmlu-pro" / "tasks.parquet").sample(given.tasks, random_state=0)
    outcomes = pd.read_parquet(FOLDER / "mmlu-pro" / "outcomes.parquet")
    outcomes = outcomes[outcomes.worker.isin(WORKERS) & outcomes.task_id.isin(tasks.task_id)]
    off, bias, worst, wrong = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        whole = dict(figures(shown(write_log(Path(folder) / "whole", tasks, outcomes))))
        for seed in range(given.seeds):
            gone = np.random.default_rng(seed).random(len(outcomes)) < given.missing
            part = outcomes.assign(score=outcomes.score.where(~gone))
            found = dict(figures(shown(write_log(Path(folder) / f"part{seed}", tasks, part))))
            apart = {name: 100 * (found[name] - value) for name, value in whole.items() if name in found}
            off.append(float(np.mean(np.abs(list(apart.values())))))
            bias.append(float(np.mean(list(apart.values()))))
            name = max(apart, key=lambda one: abs(apart[one]))
            worst.append(abs(apart[name]))
            print(f"seed {seed}: worst {name}: {apart[name]:+.2f} of {100 * whole[name]:.1f}", file=sys.stderr)
            best = outcomes.worker == WORKERS[0]
            wrong.append(100 * float(part[best].score.fillna(0).mean() - outcomes[best].score.mean()))
    report(
        f"{given.missing:.0%} of the grades removed, {len(whole)} figures",
        [
            Figure("difference to the whole log, mean of all", float(np.mean(off)), "points", 2.0),
            Figure("the same with its sign", float(np.mean(bias)), "points"),
            Figure("the worst of all figures and seeds", max(worst), "points", 2.0),
            Figure("control: the best worker, ungraded counted as wrong", float(np.mean(wrong)), "points"),
        ],
    )


if __name__ == "__main__":
    main()
