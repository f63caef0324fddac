"""A plan: at most a handful of steps, each a subtask in words, a worker's ordinal, and an access list.

Invariant: a Plan that exists is well formed: every access list names earlier steps only, ascending and once each,
every ordinal is a real one, no subtask is empty. Whether an ordinal exists in a pool is checked against that pool's
size (`check_pool`). Deliberately absent: any repair. What is wrong is a PlanError; nothing is clamped, wrapped or
dropped (`parse` reads text, `render` in `prompt` writes it).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.core.errors import PlanError

MAX_STEPS = 5
_ENCODER = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One subtask for one worker (ordinal in the pool), which may see the earlier steps in `access`."""

    subtask: str
    worker: int
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order; the last one's result is the answer. No steps means: ship what there is."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        for index, step in enumerate(self.steps):
            _check_step(step, index)

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
        steps = [{"worker": s.worker, "subtask": s.subtask, "access": list(s.access)} for s in self.steps]
        return _ENCODER.encode({"steps": steps})

    @classmethod
    def loads(cls, text: str) -> "Plan":
        """Return the plan that `dumps` wrote. For text from anywhere else there is `parse`."""
        steps = json.loads(text)["steps"]
        return cls(tuple(Step(s["subtask"], s["worker"], tuple(s["access"])) for s in steps))

    def topology(self) -> str:
        """Name the shape of the access lists: one-shot, chain, independent, fan-out+join, or mixed."""
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


def step_depths(access: Sequence[Sequence[int]]) -> list[int]:
    """Return for each step how long the longest chain of steps before it is, by access lists of earlier steps only."""
    found: list[int] = []
    for row in access:
        found.append(1 + max((found[seen] for seen in row), default=-1))
    return found


def no_such_worker(ordinal: int, size: int) -> str:
    """Say in words that a pool of this size has no such ordinal."""
    return f"no worker {ordinal}: " + (f"the pool has ordinals 0 to {size - 1}" if size else "the pool is empty")


def _check_step(step: Step, index: int) -> None:
    if type(step.worker) is not int or step.worker < 0:
        raise PlanError(f"a worker's ordinal is a whole number from 0, not {step.worker!r}", f"model_id[{index}]")
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
