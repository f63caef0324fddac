"""A policy: the ladder of what was learned from a log, which rung is kept, and the evidence for it.

Invariants: a policy is frozen data; who was known when it was fitted stands in it by name, and a pool that lacks some
of them, or has others, is no error: who is not there is not asked. Deliberately absent: files (`file`), runs
(`conductors.policy`), and anything that changes by being used.

Habits: what a policy's settings do with the tasks of each type, as counted on the log it was fitted on.

P settings, D task types and a last row for unknown ones, J workers. Invariants: everything is a count of tasks or a sum
of scores, so that a mixture's habits are its settings' by their shares; what workers say together was counted on all
tasks that both answered, whomever the policy would have asked. Deliberately absent: counting (`learn.habits`), words.

What a policy's plan does, in a few words that stand in journals: acts are the same where their words are.

Deliberately absent: reading the words back (one asks which worker's words they would be).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from shikisha.core.errors import UnknownName
from shikisha.core.plan import Plan
from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.state import Actions, DecisionRule, DecisionState, TaskTypes
from shikisha.routing.text_features import ResponseModel
from shikisha.routing.trade_off import OperatingMix, OperatingPoint, OperatingTarget, TradeOff


@dataclass(frozen=True, slots=True)
class PolicyUsage:
    """`places` [P, 2] (part, setting); `tasks` [D + 1] of the log, and how many of them were `played`.

    `first`, `second`, `asked` [P, D + 1, J]: in how many of those played each worker is asked first, second, at all.
    `scored` and `won` [D + 1, J]: a worker's graded tasks, and the score it won in them. `agree` and `agreed`
    [D + 1, J, J]: in how many a worker and another gave the same answer, and the score it won; `differ` and
    `differed`: the same where the two gave different ones, and what the former won.
    """

    places: Floats
    tasks: Floats
    played: Floats
    first: Floats
    second: Floats
    asked: Floats
    scored: Floats
    won: Floats
    agree: Floats
    agreed: Floats
    differ: Floats
    differed: Floats

    def at(self, mix: OperatingMix) -> "AskCounts | None":
        """Return who is asked by this mixture; None where its settings were not counted."""
        low, high = self._place(mix.low), self._place(mix.high)
        if low is None or high is None:
            return None
        first, second, asked = (
            (1 - mix.share) * held[low] + mix.share * held[high] for held in (self.first, self.second, self.asked)
        )
        return AskCounts(first, second, asked)

    def _place(self, point: OperatingPoint) -> int | None:
        found = np.flatnonzero((self.places == (point.part, point.setting)).all(axis=1))
        return int(found[0]) if len(found) else None

    def to_arrays(self) -> Mapping[str, Floats]:
        """Return its arrays."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(cls, held: Mapping[str, Floats]) -> "PolicyUsage":
        """Return the habits that `held` wrote; KeyError where an array is missing, ValueError: one does not fit."""
        found = cls(**{each.name: held[each.name] for each in fields(cls)})
        (kinds, workers), settings = found.scored.shape, len(found.places)
        shapes = [(settings, 2), (kinds,), (kinds,), *[(settings, kinds, workers)] * 3]
        shapes += [*[(kinds, workers)] * 2, *[(kinds, workers, workers)] * 4]
        for each, shape in zip(fields(cls), shapes, strict=True):
            if held[each.name].shape != shape:
                raise ValueError(f"{each.name}: expected the shape {shape}, found {held[each.name].shape}")
        return found


@dataclass(frozen=True, slots=True)
class AskCounts:
    """[D + 1, J]: in how many tasks of each type a worker is asked first, second, and at all, in expectation."""

    first: Floats
    second: Floats
    asked: Floats


@dataclass(frozen=True, slots=True)
class KnownWorker:
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


def best_worker(workers: Sequence[KnownWorker]) -> KnownWorker:
    """Return the worker that is right most often; one that did not even half as much as others is not known."""
    most = max(worker.tasks for worker in workers)
    return max((worker for worker in workers if 2 * worker.tasks >= most), key=lambda worker: worker.score)


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """What a budget came to on held-back tasks: `budget` and `spent` in units, accuracy with its 95 % interval."""

    budget: float
    spent: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AreaGain:
    """The mean paired difference against `over` on held-back tasks, with its 95 % interval."""

    over: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class HeldOutEvidence:
    """What a rung came to on held-back tasks: its frontier, the area under it (`budgets`), and its gains in area.

    `promised` is how far the dial's word was off in the mean over budgets (accuracy, cost), `needs` how many more
    outcomes the rung would need before it can be told from the one below (0: none, None: nobody can say).
    """

    area: float
    frontier: tuple[FrontierPoint, ...] = ()
    gains: tuple[AreaGain, ...] = ()
    promised: tuple[float, float] = (0.0, 0.0)
    needs: int | None = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Something else on the same held-back tasks, to compare with: what it came to at its budgets or settings."""

    name: str
    area: float
    frontier: tuple[FrontierPoint, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to decide: its dial over the policy's parts, and its evidence. `name`: table, cascade, policy, ..."""

    name: str
    dial: TradeOff
    evidence: HeldOutEvidence | None = None


@dataclass(frozen=True, slots=True)
class PolicyOrigin:
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

    about: PolicyOrigin
    workers: tuple[KnownWorker, ...]
    types: TaskTypes
    parts: tuple[DecisionRule, ...]
    rungs: tuple[Candidate, ...]
    kept: str
    yardsticks: tuple[Baseline, ...] = ()
    habits: PolicyUsage | None = None
    hearing: ResponseModel | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return tuple(worker.name for worker in self.workers)

    @property
    def best_single(self) -> KnownWorker:
        """The worker that all costs and qualities are measured by."""
        return best_worker(self.workers)

    def rung(self, name: str = "") -> Candidate:
        """Return the rung of this name, by default the one that is kept; UnknownName when there is none."""
        wanted = name or self.kept
        for rung in self.rungs:
            if rung.name == wanted:
                return rung
        raise UnknownName("rung", wanted, [rung.name for rung in self.rungs])

    def mix(self, wish: OperatingTarget, rung: str = "") -> OperatingMix:
        """Return what meets the wish."""
        return self.rung(rung).dial.at(wish)

    def may_ask(self, there: Mapping[str, object] | tuple[str, ...]) -> Flags:
        """Return [J]: which of the policy's workers are there and not shunned."""
        return np.array([worker.name in there and not worker.shunned for worker in self.workers], bool)

    def act(self, seen: DecisionState, part: int, setting: int) -> Actions:
        """Return what a part does for each task at this setting."""
        return self.parts[part].act(seen, setting)


CANNOT_ACT = "cannot act"  # begins the words for a policy that has no act to offer, before a colon and why


def describe_ask(workers: Sequence[str]) -> str:
    """Say that these workers are asked."""
    return f"asks {', '.join(map(repr, workers))}"


def describe_ship(worker: str) -> str:
    """Say that this worker's answer becomes the run's."""
    return f"ships the answer of {worker!r}"


def describe_action(plan: Plan, keeps: int | None, before: Sequence[Plan], names: Sequence[str]) -> str:
    """Say what a plan does after those before it; `names` are the pool's workers, by ordinal."""
    if not plan.ships:
        return describe_ask([names[step.worker] for step in plan.steps])
    performed = [each for each in before if not each.ships]
    if not performed:
        return "ships nothing"
    kept = performed[-1] if keeps is None else before[keeps]
    return describe_ship(names[kept.steps[-1].worker])
