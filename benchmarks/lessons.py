"""Lessons on trial: how often one that does nothing is kept, one that helps is found, and what recall costs.

    python benchmarks/lessons.py [--lessons 2000] [--json]

A lesson is shown to half of the tasks that it fits, and judged each time two more tasks of each side have a grade, as
a nightly `memory learn` does, until it is kept or retired. Without it a task is right with a chance of .4; with it
the same, .2, .6 or .7.
"""

import argparse
import json
import random
from collections import Counter
from dataclasses import replace
from time import process_time

import numpy as np

from common import machine
from shikisha.core.task import OPERATOR
from shikisha.learned.lessons import LessonBook, LessonState, book_file, judged_state, make_lesson

BASE = 0.4
STEP, MOST = 2, 82


def trial(chance: float, rng: random.Random) -> tuple[LessonState, int]:
    """Return how a lesson ends, and after how many tasks of a side."""
    lesson, sides = make_lesson("Do it so.", "x", ["run"]), [[0, 0.0], [0, 0.0]]
    while sides[0][0] < MOST:
        for side, right in zip(sides, (chance, BASE), strict=True):
            side[0] += STEP
            side[1] += sum(rng.random() < right for _ in range(STEP))
        (shown, good), (others, other_good) = sides
        lesson = replace(lesson, shown=(int(shown), good), withheld=(int(others), other_good))
        lesson = replace(lesson, state=judged_state(lesson))
        if lesson.state is not LessonState.TRIAL:
            break
    return lesson.state, int(sides[0][0])


def recall_milliseconds(count: int) -> float:
    """Return the CPU time of a recall from so many lessons."""
    rng = random.Random(0)
    words = [f"word{at}" for at in range(2_000)]
    lessons = [make_lesson(f"lesson {at}", " ".join(rng.choices(words, k=12)), ["run"]) for at in range(count)]
    book = LessonBook(tuple(lessons), book_file(lessons[:1], OPERATOR, 0.0))
    times = []
    for _ in range(20):
        prompt = " ".join(rng.choices(words, k=12))
        begun = process_time()
        book.recall(prompt, OPERATOR)
        times.append(1_000 * (process_time() - begun))
    return float(np.median(times))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lessons", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table: dict[str, object] = {}
    for chance in (0.2, 0.4, 0.6, 0.7):
        rng = random.Random(f"{chance}")
        ends = [trial(chance, rng) for _ in range(arguments.lessons)]
        states = Counter(str(state) for state, _ in ends)
        table[f"right {BASE} -> {chance}"] = {
            **{name: round(count / len(ends), 4) for name, count in sorted(states.items())},
            "tasks of a side": float(np.mean([tasks for _, tasks in ends])),
        }
    table["recall from 5,000 lessons, ms CPU"] = recall_milliseconds(5_000)
    if arguments.json:
        print(json.dumps(table, indent=1))
        return
    print(f"Lessons on trial, {arguments.lessons} each ({machine()})")
    for name, row in table.items():
        print(f"  {name:<34} {row}")


if __name__ == "__main__":
    main()
