"""Answers made to pass without answering, honest ones next to them, and the recorded answers of real models.

    python benchmarks/hostile_answers.py [--json]

The hostile and the honest answers are those of `tests/evals/test_hostile_answers.py`. Recorded answers are graded from
the models' full texts and compared with the recorded scores, which other people's extraction gave; `recorded.py`
says where
the files are, and without them these figures are left out. "Lost" are answers that were recorded as right and are not
graded right here: what a grader that is too strict would lose.
"""

import asyncio
import runpy
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from common import Figure, report
from shikisha.core.errors import ConfigError
from shikisha.evals.graders import GradeMark, Grader, GraderTools
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.outcomes.log_reader import open_log

ANSWERS = Path(__file__).parent.parent / "tests" / "evals" / "test_hostile_answers.py"
FOLDER = Path(__file__).parent.parent.parent / "shared" / "recorded"
Gold = str | Mapping[str, object]
Block = tuple[str, Gold, str]
Marked = Callable[[str, Gold, str], Awaitable[Mapping[str, GradeMark]]]
KINDS = ("choice", "text", "number", "math")


async def count_right(blocks: Sequence[Block], grade: Marked) -> Counter[tuple[str, bool]]:
    """Count the answers of these blocks, by grader and whether they are graded right."""
    found: Counter[tuple[str, bool]] = Counter()
    for kind, gold, block in blocks:
        found.update((kind, mark is GradeMark.RIGHT) for mark in (await grade(kind, gold, block)).values())
    return found


async def made_up() -> list[Figure]:
    """Return how many hostile answers are graded right, and how many honest ones are not."""
    sys.path.append(str(ANSWERS.parent.parent / "support"))
    module = runpy.run_path(str(ANSWERS))
    hostile = await count_right(module["HOSTILE"], module["marked"])
    honest = await count_right(module["HONEST"], module["marked"])
    figures = []
    for kind in KINDS:
        count = hostile[kind, True] + hostile[kind, False]
        figures.append(Figure(f"{kind}: hostile answers graded right, of {count:,}", hostile[kind, True], "", 0))
        count = honest[kind, True] + honest[kind, False]
        figures.append(Figure(f"{kind}: honest answers not graded right, of {count:,}", honest[kind, False], "", 0))
    return figures


async def recorded(name: str, kind: str) -> list[Figure]:
    """Return how grades of full texts agree with the recorded scores, for the tasks of one kind."""
    log = open_log(FOLDER / name)
    found: Counter[tuple[bool, bool]] = Counter()
    graders: dict[str, Grader] = {}
    for task_id in log.task_ids:
        gold = log.gold(task_id)
        if gold.kind == kind and gold.answer is not None:
            settings: dict[str, object] = {"answer": gold.answer} | ({"options": 10} if kind == "choice" else {})
            graders[task_id] = build_grader(kind, settings, GraderTools(), task_id)
    for worker in log.workers:
        responses = log.responses(worker)
        for outcome in log.outcomes_of(worker):
            response = responses.get(outcome.task_id)
            if outcome.task_id in graders and outcome.score is not None and response is not None:
                grade = await graders[outcome.task_id].grade(response)
                found[outcome.score >= 1, grade.mark is GradeMark.RIGHT] += 1
    total = found.total()
    agreed = found[True, True] + found[False, False]
    return [
        Figure(f"{name}, {kind}: agreement, {total:,} answers", 100 * agreed / total, "%"),
        Figure(f"{name}, {kind}: recorded as right and lost", found[True, False], ""),
        Figure(f"{name}, {kind}: right here alone", found[False, True], ""),
    ]


async def measured() -> list[Figure]:
    """Measure all there is."""
    figures = await made_up()
    for name, kind in (("mmlu-pro", "choice"), ("zeroeval", "number"), ("zeroeval", "text")):
        try:
            figures += await recorded(name, kind)
        except ConfigError as error:
            print(f"no recorded answers of {name}: {error}", file=sys.stderr)
    return figures


def main() -> None:
    """Measure and print."""
    report("Answers made to pass", asyncio.run(measured()))


if __name__ == "__main__":
    main()
