"""The rehearsal taskset: verifiable tasks over the embedded orchestra, as many as wanted, each with its own pool.

Invariant: `rehearsal(split, seed, count)` is the same sequence every time, its splits share no name, wording or
description of a worker, and an item's Task does not hold its gold. As a Taskset its `test` split is the generator's
`heldout`, and `eval --split` takes either word. `SETS` are the tasksets by name: one for each edition of the
orchestra. What questions and workers are is in `orchestra`.
"""

from collections.abc import Iterator, Mapping

from shikisha import taskset as sets
from shikisha.errors import UnknownName
from shikisha.grade import Grade, graded, no_answer
from shikisha.grade.canon import Form
from shikisha.orchestra.tasks import LARGE_STANDARD, STANDARD, Item, Recipe, grade, item, items
from shikisha.orchestra.values import Sort, normal, read
from shikisha.orchestra.wording import Split

RehearsalItem = Item

__all__ = ["NAME", "SETS", "Recipe", "RehearsalChecker", "RehearsalItem", "grade", "rehearsal", "single", "taskset"]

NAME = "rehearsal"
SETS: Mapping[str, Recipe] = {NAME: STANDARD, f"{NAME}-{LARGE_STANDARD.edition.name}": LARGE_STANDARD}

_WORLDS = {sets.Split.TRAIN: Split.TRAIN, sets.Split.DEV: Split.DEV, sets.Split.TEST: Split.HELDOUT}


def rehearsal(
    split: str, seed: int = 0, count: int | None = None, recipe: Recipe = STANDARD
) -> Iterator[RehearsalItem]:
    """Yield the split's items (`train`, `dev` or `heldout`), `count` of them or without end."""
    if split not in {known.value for known in Split}:
        raise UnknownName("split", split, [known.value for known in Split])
    return items(Split(split), seed, recipe, count)


def taskset(split: sets.Split, seed: int, count: int, name: str = NAME) -> sets.Taskset:
    """Return so many tasks of a split as a Taskset, each item with its own pool; difficulty is the number of parts."""
    found = items(_WORLDS[split], seed, SETS[name], count)
    return sets.Taskset(f"{name}[{split}]", (_item(one, split) for one in found))


def single(split: sets.Split, seed: int, index: int, recipe: Recipe = STANDARD) -> sets.Item:
    """Return one task of a split, for those who take them as they need them and without end."""
    return _item(item(_WORLDS[split], seed, index, recipe), split)


class RehearsalChecker:
    """Grades by the item's own rule: normal forms are compared. A sentence (a refusal, say) is no answer."""

    name = "rehearsal"
    form = Form.TEXT

    def __init__(self, item: RehearsalItem) -> None:
        self._item = item

    async def grade(self, answer: str) -> Grade:
        """Compare the answer with the gold."""
        found = normal(answer)
        right = self._item.grade(answer)
        if not right and all(read(found, sort) is None for sort in Sort):
            return no_answer(self.name, "expected a number, a day or a word")
        return graded(self.name, float(right), found, f"{found!r} compared with {self._item.gold!r}")


def _item(one: RehearsalItem, split: sets.Split) -> sets.Item:
    count = len(one.kinds)
    difficulty = f"{count} part{'s' if count > 1 else ''}"
    return sets.Item(one.task, RehearsalChecker(one), difficulty, split, one.pool, steady=not one.question.noisy)
