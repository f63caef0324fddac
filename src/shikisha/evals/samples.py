"""Samples: what came of one task through one entrant, as one flat record that can be kept as a line of JSON.

Invariant: a Sample holds everything that tables, pages and comparisons count; nothing in it is derived from another
sample. Deliberately absent: the answers' texts (journals keep those; `found` is what the checker extracted).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from sys import intern
from typing import TypeVar, cast

from shikisha.core.errors import FaultKind
from shikisha.core.events import RunStatus
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Pool
from shikisha.evals.graders import GradeMark
from shikisha.evals.taskset import TaskItem

T = TypeVar("T", bound=tuple[object, ...])


class EntrantRole(StrEnum):
    """Why an entrant is there."""

    ASKED = "asked"  # somebody wants to know
    SINGLE = "single"  # one worker of the pool for everything
    RANDOM = "random"  # plans drawn by lot
    FIXED = "fixed"  # the best fixed topology, chosen on other tasks
    CONSISTENCY = "consistency"  # the best worker asked again and again, at equal cost
    ORACLE = "oracle"  # the best of the single workers, task by task: reckoned, never run


@dataclass(frozen=True, slots=True)
class Entrant:
    """A conductor in an evaluation, over which pool it plays each task, and why it is there.

    `worker` names the single worker (SINGLE) or the one asked again (CONSISTENCY); `note` says what a reader must know.
    Samples of another `version` of the same name (a rules file that was changed) do not count. `kept`: it plays as far
    as replies are kept, and pays for none.
    """

    name: str
    conductor: Conductor
    pool: Callable[[TaskItem], Pool] = field(compare=False)
    part: EntrantRole = EntrantRole.ASKED
    worker: str | None = None
    note: str = ""
    version: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One task through one entrant.

    `valid`: the first plan proposed was the conductor's own and well formed (None: nothing was proposed, a cap or fault
    came first). `first_score` is what the first round alone came to, None where there was one round only. `workers` are
    those who performed steps, in order, after any substitution; `shape` is `Plan.topology()` of the first plan and
    `access` its access lists. `dollars` None: unknown; `uncertain` are those that calls without a known outcome may
    have cost besides. `seconds` are wall-clock from the run's start to its end.
    `confidence` is the share of the steps whose answer is, in canonical form, the run's answer (None with fewer than
    two answers), unless the conductor stated its own. `paid` are the dollars spent for it now, what came from the
    response cache left out. `version` is the entrant's and `grading` the item's: a sample of others does not count.
    """

    entrant: str
    task_id: str
    task_hash: str
    domain: str
    difficulty: str
    status: RunStatus
    mark: GradeMark
    score: float | None
    judged: bool = False
    found: str | None = None
    evidence: str = ""
    valid: bool | None = True
    first_score: float | None = None
    rounds: int = 0
    workers: tuple[str, ...] = ()
    shape: str = ""
    access: tuple[tuple[int, ...], ...] = ()
    faults: tuple[FaultKind, ...] = ()
    tokens: int = 0
    dollars: float | None = 0.0
    uncertain: float = 0.0
    paid: float = 0.0
    seconds: float = 0.0
    confidence: float | None = None
    reward: float | None = None
    version: str = ""
    grading: str = ""

    @property
    def steps(self) -> int:
        """How many steps were performed."""
        return len(self.workers)

    def dumps(self) -> str:
        """Return it as a line of JSON."""
        data = {name: getattr(self, name) for name in _NAMES}
        return _dumps(data)

    @classmethod
    def loads(cls, line: str) -> "Sample":
        """Return the sample that `dumps` wrote; ValueError, KeyError or TypeError when it is none."""
        data = json.loads(line)
        for name in _SHARED:  # a quarter of a million samples repeat a few thousand texts
            data[name] = intern(data[name])
        data["status"], data["mark"] = RunStatus(data["status"]), GradeMark(data["mark"])
        data["workers"] = _intern_tuple(tuple(data["workers"]))
        data["faults"] = tuple(map(FaultKind, data["faults"]))
        data["access"] = _intern_tuple(tuple(tuple(seen) for seen in data["access"]))
        return cls(**data)


_NAMES = tuple(each.name for each in fields(Sample))
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_SHARED = ("entrant", "task_id", "task_hash", "domain", "difficulty", "shape", "evidence", "version", "grading")
_TUPLES: dict[tuple[object, ...], tuple[object, ...]] = {}
_MOST_TUPLES = 100_000


def _intern_tuple(made: T) -> T:
    """Return the first tuple that was equal to this one, so that equal ones are kept once."""
    if len(_TUPLES) >= _MOST_TUPLES:
        _TUPLES.clear()
    return cast("T", _TUPLES.setdefault(made, made))
