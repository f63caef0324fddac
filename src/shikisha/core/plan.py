"""A plan: at most a handful of steps, each a subtask in words, a worker's ordinal, and an access list.

A map step is one subtask over each item of a list that an earlier step brings: its access list says `"each 0"` for
that step. What is performed for item i of step k is recorded under a step number of its own, `item_step(k, i)`, which
no plan reaches: 2003 is item 3 of step 1.

Invariant: a Plan that exists is well formed: every access list names earlier steps only, ascending and once each,
every ordinal is a real one, no subtask is empty, and a map step may see the step whose list it goes through. Whether an
ordinal exists in a pool is checked against that pool's size (`check_pool`). Deliberately absent: any repair. What is
wrong is a PlanError; nothing is clamped, wrapped or dropped (`parse` reads text, `render` in `prompt` writes it).
"""

import json
import re
from collections.abc import Sequence

from shikisha.core.errors import PlanError
from shikisha.core.fast_dataclass import dataclass

MOST_KIND = 40  # characters of a step's kind
MAX_STEPS = 5  # of one plan, unless the configuration allows more
MOST_STEPS = 64  # that it may allow
MOST_ITEMS = 999  # of one map step
ANSWER = "Answer the question."
ANSWER_ALONE = "Answer the question on your own. Show briefly how you come to your answer, then state it."
_ITEM_NUMBERS = 1000  # step numbers that belong to one map step
EACH_PATTERN = r"each (0|[1-9][0-9]?)"
_EACH = re.compile(EACH_PATTERN)
_ENCODER = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One subtask for one worker (ordinal in the pool), which may see the earlier steps in `access`.

    `each` makes it a map step: the worker is called once for each item of that step's list, and sees only this item
    of it. `kind` names what sort of work it is, in the planner's own few words, for those who learn from outcomes.
    """

    subtask: str
    worker: int
    access: tuple[int, ...] = ()
    each: int | None = None
    kind: str = ""

    def access_entries(self) -> list[int | str]:
        """Return the access list as it is written: step numbers, and `"each 0"` for a list that is gone through."""
        return [f"each {seen}" if seen == self.each else seen for seen in self.access]


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order; the last one's result is the answer. No steps means: ship what there is."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        for index, step in enumerate(self.steps):
            if type(step.worker) is not int or step.worker < 0:
                raise PlanError(
                    f"a worker's ordinal is a whole number from 0, not {step.worker!r}", f"model_id[{index}]"
                )
            if not step.subtask.strip():
                raise PlanError("the subtask is empty", f"subtasks[{index}]")
            last = -1
            for place, seen in enumerate(step.access):
                where = f"access_list[{index}][{place}]"
                if type(seen) is not int or seen < 0:
                    raise PlanError(f"a step's index is a whole number from 0, not {seen!r}", where)
                if seen >= index:
                    raise PlanError(f"step {index} can only see earlier steps, not step {seen}", where)
                if seen <= last:
                    raise PlanError(f"step {seen} is named twice or out of order", where)
                last = seen
            if step.each is not None and step.each not in step.access:
                raise PlanError(
                    f"a map step may see the step whose list it goes through: {step.each!r}", f"access_list[{index}]"
                )

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def ships(self) -> bool:
        """Whether this is the empty plan, which keeps the answer at hand."""
        return not self.steps

    def check_pool(self, size: int) -> None:
        """Raise PlanError unless every ordinal names one of `size` workers."""
        for index, step in enumerate(self.steps):
            if step.worker >= size:
                raise PlanError(no_such_worker(step.worker, size), f"model_id[{index}]")

    def dumps(self) -> str:
        """Return the plan as its JSON twin: `{"steps": [{"worker": 2, "subtask": "...", "access": []}]}`."""
        steps = [
            {"worker": s.worker, "subtask": s.subtask, "access": s.access_entries()}
            | ({"kind": s.kind} if s.kind else {})
            for s in self.steps
        ]
        return _ENCODER.encode({"steps": steps})

    @classmethod
    def loads(cls, text: str) -> "Plan":
        """Return the plan that `dumps` wrote. For text from anywhere else there is `parse`."""
        steps = json.loads(text)["steps"]
        return cls(tuple(Step(s["subtask"], s["worker"], *_load_access(s["access"]), s.get("kind", "")) for s in steps))

    def step_of(self, number: int) -> Step:
        """Return the step with this number, or the map step whose item has it."""
        place = item_place(number)
        return self.steps[number if place is None else place[0]]

    def plans(self, number: int) -> bool:
        """Whether a step number is that of a step of this plan, or of an item of one."""
        place = item_place(number)
        return (number if place is None else place[0]) < len(self.steps)

    @property
    def maps(self) -> bool:
        """Whether a step is a map step."""
        return any(step.each is not None for step in self.steps)

    def topology(self) -> str:
        """Name the shape of the access lists: one-shot, chain, independent, fan-out+join, map, or mixed."""
        if self.maps:
            return "map"
        access = [step.access for step in self.steps]
        count = len(access)
        if count <= 1:
            return ("ship", "one-shot")[count]
        if not any(access):
            return "independent"
        if all(index - 1 in seen for index, seen in enumerate(access) if index):
            return "chain"
        if not any(access[:-1]) and len(access[-1]) == count - 1:
            return "fan-out+join"
        return "mixed"


def item_step(step: int, item: int) -> int:
    """Return the step number under which an item of a map step is performed and recorded."""
    return (step + 1) * _ITEM_NUMBERS + item


def item_place(number: int) -> tuple[int, int] | None:
    """Return the map step and the item that a step number stands for; None for that of a plan's own step."""
    if number < _ITEM_NUMBERS:
        return None
    step, item = divmod(number, _ITEM_NUMBERS)
    return step - 1, item


def step_name(number: int) -> str:
    """Return a step's number as people read it: `3`, or `1[2]` for item 2 of step 1."""
    place = item_place(number)
    return str(number) if place is None else f"{place[0]}[{place[1]}]"


def read_each(entry: object) -> int | None:
    """Return the step whose list an entry of an access list goes through; None for any other entry."""
    found = _EACH.fullmatch(entry) if isinstance(entry, str) else None
    return int(found[1]) if found else None


def _load_access(entries: Sequence[int | str]) -> tuple[tuple[int, ...], int | None]:
    each = next((at for entry in entries if (at := read_each(entry)) is not None), None)
    return tuple(entry if isinstance(entry, int) else int(entry.removeprefix("each ")) for entry in entries), each


def step_depths(access: Sequence[Sequence[int]]) -> list[int]:
    """Return for each step how long the longest chain of steps before it is, by access lists of earlier steps only."""
    found: list[int] = []
    for row in access:
        found.append(1 + max((found[seen] for seen in row), default=-1))
    return found


def no_such_worker(ordinal: int, size: int) -> str:
    """Say in words that a pool of this size has no such ordinal."""
    return f"no worker {ordinal}: " + (f"the pool has ordinals 0 to {size - 1}" if size else "the pool is empty")
