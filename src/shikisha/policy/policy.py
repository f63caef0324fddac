"""A policy: the ladder of what was learned from a log, which rung is kept, and the evidence for it.

Invariants: a policy is frozen data; who was known when it was fitted stands in it by name, and a pool that lacks some
of them, or has others, is no error: who is not there is not asked. Deliberately absent: files (`file`), runs
(`conductors.policy`), and anything that changes by being used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shikisha.errors import UnknownName
from shikisha.policy.arrays import Flags
from shikisha.policy.batch import Acts, Seen
from shikisha.policy.dial import Dial, Mix, Wish
from shikisha.policy.habits import Habits
from shikisha.policy.hearing import Hearing
from shikisha.policy.parts import Part
from shikisha.policy.types import Types


@dataclass(frozen=True, slots=True)
class Known:
    """A worker as the log knew it: mean score, dollars and seconds a task, over how many tasks.

    `shunned` says why it is not to be asked any more; nothing: it may be.
    """

    name: str
    score: float
    dollars: float
    tasks: int
    seconds: float | None = None
    tokens: float = 0.0
    description: str = ""
    shunned: str = ""


def best_of(workers: Sequence[Known]) -> Known:
    """Return the worker that is right most often; one that did not even half as much as others is not known."""
    most = max(worker.tasks for worker in workers)
    return max((worker for worker in workers if 2 * worker.tasks >= most), key=lambda worker: worker.score)


@dataclass(frozen=True, slots=True)
class Met:
    """What a budget came to on held-back tasks: `budget` and `spent` in units, accuracy with its 95 % interval."""

    budget: float
    spent: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gain:
    """The mean paired difference against `over` on held-back tasks, with its 95 % interval."""

    over: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a rung came to on held-back tasks: its frontier, the area under it (`budgets`), and its gains in area.

    `promised` is how far the dial's word was off in the mean over budgets (accuracy, cost), `needs` how many more
    outcomes the rung would need before it can be told from the one below (0: none, None: nobody can say).
    """

    area: float
    frontier: tuple[Met, ...] = ()
    gains: tuple[Gain, ...] = ()
    promised: tuple[float, float] = (0.0, 0.0)
    needs: int | None = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Something else on the same held-back tasks, to compare with: what it came to at its budgets or settings."""

    name: str
    area: float
    frontier: tuple[Met, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rung:
    """A way to decide: its dial over the policy's parts, and its evidence. `name`: table, cascade, policy, ..."""

    name: str
    dial: Dial
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class About:
    """Where a policy comes from: the log and its hash, how many tasks, when, and what a reader must know."""

    log: str
    log_hash: str
    tasks: int
    made: str = ""
    cost_kind: str = ""
    seed: int = 0
    notes: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """`workers` in the order of all arrays, task `types`, `parts`, `rungs` from the simplest, and the one `kept`.

    `yardsticks` are what else was measured on the same held-back tasks, `habits` what its settings do with the log,
    `hearing` what the texts of answers tell.
    """

    about: About
    workers: tuple[Known, ...]
    types: Types
    parts: tuple[Part, ...]
    rungs: tuple[Rung, ...]
    kept: str
    yardsticks: tuple[Yardstick, ...] = ()
    habits: Habits | None = None
    hearing: Hearing | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return tuple(worker.name for worker in self.workers)

    @property
    def best_single(self) -> Known:
        """The worker that all costs and qualities are measured by."""
        return best_of(self.workers)

    def rung(self, name: str = "") -> Rung:
        """Return the rung of this name, by default the one that is kept; UnknownName when there is none."""
        wanted = name or self.kept
        for rung in self.rungs:
            if rung.name == wanted:
                return rung
        raise UnknownName("rung", wanted, [rung.name for rung in self.rungs])

    def mix(self, wish: Wish, rung: str = "") -> Mix:
        """Return what meets the wish."""
        return self.rung(rung).dial.at(wish)

    def may_ask(self, there: Mapping[str, object] | tuple[str, ...]) -> Flags:
        """Return [J]: which of the policy's workers are there and not shunned."""
        return np.array([worker.name in there and not worker.shunned for worker in self.workers], bool)

    def act(self, seen: Seen, part: int, setting: int) -> Acts:
        """Return what a part does for each task at this setting."""
        return self.parts[part].act(seen, setting)
