"""The simulated taskset: generated, verifiable tasks over simulated workers, each task with its own pool.

Invariants: the same split, seed and count give the same sequence every time; splits share no name, wording or
description of a worker; an item's Task does not hold its reference answer. The Taskset's `test` split is the
generator's `heldout`, and `eval --split` takes either word.
"""

from collections.abc import Iterator, Mapping

from shikisha.core.errors import UnknownName
from shikisha.evals import taskset as sets
from shikisha.evals.dimensions import TaskDimensions, TaskEnvironment
from shikisha.evals.graders import Grade, grade_from_score, no_answer_grade
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.simulation.task_generator import (
    LARGE_TASKS,
    SMALL_TASKS,
    SimulatedTask,
    TaskDistribution,
    answer_matches,
    generate_task,
    generate_tasks,
)
from shikisha.simulation.values import ValueKind, normalize_answer, parse_value
from shikisha.simulation.vocabulary import WordingSplit

SimulatedItem = SimulatedTask

__all__ = [
    "SIMULATED_DISTRIBUTIONS",
    "SIMULATED_NAME",
    "SimulatedGrader",
    "SimulatedItem",
    "TaskDistribution",
    "answer_matches",
    "simulated_item",
    "simulated_items",
    "simulated_taskset",
]

SIMULATED_NAME = "rehearsal"
SIMULATED_DISTRIBUTIONS: Mapping[str, TaskDistribution] = {
    SIMULATED_NAME: SMALL_TASKS,
    f"{SIMULATED_NAME}-{LARGE_TASKS.edition.name}": LARGE_TASKS,
}

_SIMULATED_SPLITS = {
    sets.TaskSplit.TRAIN: WordingSplit.TRAIN,
    sets.TaskSplit.DEV: WordingSplit.DEV,
    sets.TaskSplit.TEST: WordingSplit.HELDOUT,
}


def simulated_items(
    split: str, seed: int = 0, count: int | None = None, recipe: TaskDistribution = SMALL_TASKS
) -> Iterator[SimulatedItem]:
    """Yield the split's items (`train`, `dev` or `heldout`), `count` of them or without end."""
    if split not in {known.value for known in WordingSplit}:
        raise UnknownName("split", split, [known.value for known in WordingSplit])
    return generate_tasks(WordingSplit(split), seed, recipe, count)


def simulated_taskset(split: sets.TaskSplit, seed: int, count: int, name: str = SIMULATED_NAME) -> sets.Taskset:
    """Return so many tasks of a split as a Taskset, each item with its own pool; difficulty is the number of parts."""
    found = generate_tasks(_SIMULATED_SPLITS[split], seed, SIMULATED_DISTRIBUTIONS[name], count)
    return sets.Taskset(f"{name}[{split}]", (_item(one, split) for one in found))


def simulated_item(
    split: sets.TaskSplit, seed: int, index: int, recipe: TaskDistribution = SMALL_TASKS
) -> sets.TaskItem:
    """Return one task of a split, for those who take them as they need them and without end."""
    return _item(generate_task(_SIMULATED_SPLITS[split], seed, index, recipe), split)


class SimulatedGrader:
    """Grades by the item's own rule: normal forms are compared. A sentence (a refusal, say) is no answer."""

    name = "rehearsal"
    form = AnswerForm.TEXT

    def __init__(self, item: SimulatedItem) -> None:
        self._item = item

    async def grade(self, answer: str) -> Grade:
        """Compare the answer with the gold."""
        found = normalize_answer(answer)
        right = self._item.grade(answer)
        if not right and all(parse_value(found, sort) is None for sort in ValueKind):
            return no_answer_grade(self.name, "expected a number, a day or a word")
        return grade_from_score(self.name, float(right), found, f"{found!r} compared with {self._item.gold!r}")


_DIMENSIONS = TaskDimensions(TaskEnvironment.TOOL)  # its pool has look-up, calculator and calendar


def _item(one: SimulatedItem, split: sets.TaskSplit) -> sets.TaskItem:
    count = len(one.kinds)
    difficulty = f"{count} part{'s' if count > 1 else ''}"
    steady = not one.question.noisy
    return sets.TaskItem(one.task, SimulatedGrader(one), difficulty, split, one.pool, steady=steady, said=_DIMENSIONS)
