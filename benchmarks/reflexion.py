"""Reflexion's published runs, replayed: what reflection brought on each code set, and what a gate makes of it.

    python benchmarks/reflexion.py --runs reflexion.git [--orders 1000] [--json]

`--runs` is a bare or plain clone of github.com/noahshinn/reflexion. Its four code sets were run with reflection after
failed self-written tests, and without (`simple`): the same tasks, each with whether its final program was right.

Gated: tasks come in a drawn order. Reflection is a lesson on trial: tasks get it or not by a draw (share), outcomes are
judged after each second task by the rule that `memory` uses (`judged_state`), and it is kept for all or retired for
all from then on. Reported is the mean difference to no reflection over the orders, the share of orders that end below
it by more than a hundredth, and how the trial ended.

Gated by the check: reflection follows a failed check (a task of which the file has reflections). It is withheld until
eight first answers that failed the check are graded, then used while more than half of those withheld were really
wrong; every fourth is withheld still, to go on measuring the check. No product code does this: it shows what would.
"""

import argparse
import json
import random
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from common import machine
from shikisha.learned.lessons import LessonState, judged_state, make_lesson

FIRST_ALARMS, STILL_WITHHELD = 8, 0.25
ROOT = "programming_runs/root"
SETS = {
    "HumanEval, Python": (
        "simple_human_eval_py_logging/humaneval-py..gz_simple_1_gpt-4_pass_at_k_1_py.jsonl",
        "reflexion_humaneval_py_pass_at_1/reflexion_humaneval_py_pass_at_1.jsonl",
    ),
    "HumanEval, Rust, hardest 50": (
        "simple_humaneval_rs_hard50/humaneval-rs._simple_1_gpt-4_pass_at_k_1_rs.jsonl",
        "reflexion_humaneval_rs_hard50/humaneval-rs._reflexion_5_gpt-4_pass_at_k_1_rs.jsonl",
    ),
    "MBPP, Python": (
        "simple_mbpp_py/mbpp-py._simple_1_gpt-4_pass_at_k_1_py.jsonl",
        "reflexion_mbpp_py/mbpp-py._reflexion_5_gpt-4_pass_at_k_1_py.jsonl",
    ),
    "MBPP, Rust": (
        "simple_mbpp_rs/mbpp-rs._simple_1_gpt-4_pass_at_k_1_rs.jsonl",
        "reflexion_mbpp_rs/mbpp-rs._reflexion_5_gpt-4_pass_at_k_1_rs.jsonl",
    ),
}


def read_solved(repository: Path, file: str) -> Mapping[str, tuple[bool, bool]]:
    """Return by task whether its program was right, and whether there were reflections."""
    told = subprocess.run(  # noqa: S603 - arguments of our own
        ["git", "-C", str(repository), "show", f"HEAD:{ROOT}/{file}"],  # noqa: S607
        capture_output=True,
        check=True,
    ).stdout
    rows = [json.loads(line) for line in told.splitlines() if line.strip()]
    return {
        str(row.get("task_id") or row["name"]).rpartition("/")[2]: (
            bool(row["is_solved"]),
            bool(row.get("reflections")),
        )
        for row in rows
    }


def gated_by_check(tasks: list[tuple[bool, bool, bool]], rng: random.Random) -> float:
    """Return the accuracy over tasks (right without, with reflection, check failed) in a drawn order."""
    right = alarms = true_alarms = 0
    for place in rng.sample(range(len(tasks)), len(tasks)):
        without, with_, failed = tasks[place]
        trusted = alarms >= FIRST_ALARMS and 2 * true_alarms > alarms
        if not failed or (trusted and rng.random() >= STILL_WITHHELD):
            right += with_ if failed else without
        else:
            right += without
            alarms += 1
            true_alarms += not without
    return right / len(tasks)


def gated(pairs: list[tuple[bool, bool]], share: float, rng: random.Random) -> tuple[float, LessonState]:
    """Return the accuracy over tasks (without, with reflection) in a drawn order, and how the trial ended."""
    lesson, right = make_lesson("Reflect.", "code", ["run"]), 0
    sides = {True: [0, 0.0], False: [0, 0.0]}
    for place in rng.sample(range(len(pairs)), len(pairs)):
        without, with_ = pairs[place]
        drawn = rng.random() < share if lesson.state is LessonState.TRIAL else lesson.state is LessonState.KEPT
        outcome = with_ if drawn else without
        right += outcome
        if lesson.state is LessonState.TRIAL:
            sides[drawn][0] += 1
            sides[drawn][1] += outcome
            if sum(int(side[0]) for side in sides.values()) % 2 == 0:
                shown, withheld = ((int(sides[side][0]), sides[side][1]) for side in (True, False))
                lesson = replace(lesson, shown=shown, withheld=withheld)
                lesson = replace(lesson, state=judged_state(lesson))
    return right / len(pairs), lesson.state


def replay(repository: Path, orders: int) -> dict[str, object]:
    """Return the figures of each set."""
    table: dict[str, object] = {}
    for name, (simple, reflexion) in SETS.items():
        without, with_ = read_solved(repository, simple), read_solved(repository, reflexion)
        same = sorted(set(without) & set(with_))
        pairs = [(without[task][0], with_[task][0]) for task in same]
        flagged = [(*pair, with_[task][1]) for pair, task in zip(pairs, same, strict=True)]
        none = float(np.mean([pair[0] for pair in pairs]))
        row: dict[str, object] = {
            "tasks": [len(without), len(with_), len(same)],
            "right without / with": [sum(right for right, _ in rows.values()) for rows in (without, with_)],
            "without / with": [round(none, 3), round(float(np.mean([pair[1] for pair in pairs])), 3)],
        }
        for share in (0.5, 0.1):
            rng = random.Random(f"{name} {share}")
            found = [gated(pairs, share, rng) for _ in range(orders)]
            differences = np.array([accuracy - none for accuracy, _ in found])
            row[f"gated, {share:.0%} on trial"] = {
                "less none": round(float(differences.mean()), 4),
                "more than .01 below": round(float((differences < -0.01).mean()), 3),
                **{str(state): round(n / orders, 3) for state, n in Counter(end for _, end in found).items()},
            }
        failed = [one for one in flagged if one[2]]
        rng = random.Random(name)
        differences = np.array([gated_by_check(flagged, rng) - none for _ in range(orders)])
        row["check failed, of these the first answer was wrong"] = [len(failed), sum(not one[0] for one in failed)]
        row["gated by the check"] = {
            "less none": round(float(differences.mean()), 4),
            "more than .01 below": round(float((differences < -0.01).mean()), 3),
            "reflection after every failed check, less none": round(
                sum(one[1] - one[0] for one in failed) / len(pairs), 4
            ),
        }
        table[name] = row
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = replay(arguments.runs, arguments.orders)
    if arguments.json:
        print(json.dumps(table, indent=1))
        return
    print(f"Reflexion's published runs ({machine()})")
    for name, row in table.items():
        print(f"  {name}: {row}")


if __name__ == "__main__":
    main()
