"""A learned policy: its decision rules, the candidates built on them, which one is selected, and the evidence.

Invariants: a policy is frozen data; the workers known at fitting time are stored by name, and a pool that lacks some of
them or has others is no error (missing workers are not asked); usage statistics are counts of tasks and sums of scores,
so the usage of a mixture is the weighted sum of its settings. Files are in `policy_file`, runs in `conductors`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from shikisha.core.errors import UnknownName
from shikisha.core.fast_dataclass import dataclass, field, fields
from shikisha.core.plan import Plan
from shikisha.core.task import OPERATOR, Scope
from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.state import Actions, DecisionRule, DecisionState, TaskTypes
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.trade_off import OperatingMix, OperatingPoint, OperatingTarget, TradeOff

# Prefix of the description where a policy cannot act, before a colon and the reason.
CANNOT_ACT = "cannot act"
# The candidate whose trade-off is over all others' settings.
COMBINED = "combined"


@dataclass(frozen=True, slots=True)
class PolicyUsage:
    """`places` [P, 2] (rule, setting); `tasks` [D + 1] of the log, and how many of them were `played`.

    `first`, `second`, `asked` [P, D + 1, J]: in how many of those each worker is asked first, second, at all.
    """

    places: Floats
    tasks: Floats
    played: Floats
    first: Floats
    second: Floats
    asked: Floats

    def at(self, mix: OperatingMix) -> "AskCounts | None":
        """Return the expected asks of this mix; None where its settings were not counted."""
        low, high = self._place(mix.low), self._place(mix.high)
        if low is None or high is None:
            return None
        first, second, asked = (
            (1 - mix.share) * counts[low] + mix.share * counts[high] for counts in (self.first, self.second, self.asked)
        )
        return AskCounts(first, second, asked)

    def _place(self, point: OperatingPoint) -> int | None:
        found = np.flatnonzero((self.places == (point.part, point.setting)).all(axis=1))
        return int(found[0]) if len(found) else None

    def to_arrays(self) -> Mapping[str, Floats]:
        """Return its arrays."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> "PolicyUsage":
        """Return the usage with these arrays; KeyError where one is missing, ValueError where one does not fit."""
        usage = cls(**{each.name: arrays[each.name] for each in fields(cls)})
        settings, kinds, workers = usage.asked.shape
        shapes = [(settings, 2), (kinds,), (kinds,), *[(settings, kinds, workers)] * 3]
        for each, shape in zip(fields(cls), shapes, strict=True):
            if arrays[each.name].shape != shape:
                raise ValueError(f"{each.name}: expected the shape {shape}, found {arrays[each.name].shape}")
        return usage


@dataclass(frozen=True, slots=True)
class AskCounts:
    """[D + 1, J]: expected number of tasks of each type in which a worker is asked first, second, and at all."""

    first: Floats
    second: Floats
    asked: Floats


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """A worker as the log knows it: mean score, dollars and seconds a task, over how many tasks.

    `shunned` says why it must not be asked any more; empty: it may be.
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
    """Return the most accurate worker among those with at least half as many outcomes as others."""
    most = max(worker.tasks for worker in workers)
    return max((worker for worker in workers if 2 * worker.tasks >= most), key=lambda worker: worker.score)


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The result of a budget on held-out tasks: `budget` and `spent` in units, accuracy with its 95 % interval."""

    budget: float
    spent: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AreaGain:
    """The mean paired difference to `over` on held-out tasks, with its 95 % interval."""

    over: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class HeldOutEvidence:
    """The results of a candidate on held-out tasks: its frontier, the area under it, and its gains in area.

    `promised` is the mean absolute error of the trade-off over budgets (accuracy, cost), `needs` how many more outcomes
    would separate the candidate from the simpler one (0: none, None: unknown).
    """

    area: float
    frontier: tuple[FrontierPoint, ...] = ()
    gains: tuple[AreaGain, ...] = ()
    promised: tuple[float, float] = (0.0, 0.0)
    needs: int | None = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Another strategy on the same held-out tasks, for comparison."""

    name: str
    area: float
    frontier: tuple[FrontierPoint, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate policy: its trade-off over the policy's rules, and its evidence.

    Names: table, policy, combined, in older files cascade.
    """

    name: str
    dial: TradeOff
    evidence: HeldOutEvidence | None = None


class VerdictKind(StrEnum):
    """What somebody should do."""

    POLICY = "policy"  # use the policy, at the verdict's option
    SINGLE = "single"  # ask one worker for everything
    UNTOLD = "untold"  # the log cannot tell


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """What to do, as a sentence (`text`) and as data, from held-out tasks alone.

    `option` is the policy's ("": its best setting), `worker` the single one. `gain` is accuracy less the best single
    worker's with its 95 % interval, `cost` relative to that worker's, `needs` how many more graded answers would tell.
    """

    kind: VerdictKind
    text: str
    option: str = ""
    worker: str = ""
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    cost: float | None = None
    needs: int | None = None


@dataclass(frozen=True, slots=True)
class PolicyOrigin:
    """Where a policy comes from: the log and its hash, number of tasks, date, and notes for readers.

    `advice`, in files of earlier versions, says in one line which workers to keep; `verdict` is what to do.
    `scope` says for whose tasks it may act: those of the tenant whose runs it was learned from. `wording` is what its
    workers were asked besides the task ("": nothing), and are asked again.
    """

    log: str
    log_hash: str
    tasks: int
    made: str = ""
    cost_kind: str = ""
    seed: int = 0
    notes: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    advice: str = ""
    scope: Scope = OPERATOR
    wording: str = ""
    verdict: LogVerdict | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Workers in the order of all arrays, task types, rules (`parts`), candidates (`rungs`), the selected one (`kept`).

    Candidates start with the simplest. `yardsticks` are baselines on the same held-out tasks, `habits` usage statistics
    on the log. Field names are those of policy files.
    """

    about: PolicyOrigin
    workers: tuple[KnownWorker, ...]
    types: TaskTypes
    parts: tuple[DecisionRule, ...]
    rungs: tuple[Candidate, ...]
    kept: str
    yardsticks: tuple[Baseline, ...] = ()
    habits: PolicyUsage | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return tuple(worker.name for worker in self.workers)

    @property
    def best_single(self) -> KnownWorker:
        """The worker that all costs and qualities are relative to."""
        return best_worker(self.workers)

    @property
    def reads_answers(self) -> bool:
        """Whether a rule reads the candidate answers."""
        return any(isinstance(part, StoppingRule) and part.boost is not None for part in self.parts)

    def rung(self, name: str = "") -> Candidate:
        """Return the candidate of this name, by default the selected one; UnknownName when there is none."""
        wanted = name or self.kept
        for rung in self.rungs:
            if rung.name == wanted:
                return rung
        raise UnknownName("rung", wanted, [rung.name for rung in self.rungs])

    def mix(self, wish: OperatingTarget, rung: str = "") -> OperatingMix:
        """Return the mix that meets the target."""
        return self.rung(rung).dial.at(wish)

    def may_ask(self, there: Mapping[str, object] | tuple[str, ...]) -> Flags:
        """Return [J]: which of the policy's workers are available and not excluded."""
        return np.array([worker.name in there and not worker.shunned for worker in self.workers], bool)

    def act(self, state: DecisionState, part: int, setting: int) -> Actions:
        """Return the actions of a rule for each task at this setting."""
        return self.parts[part].act(state, setting)


def describe_ask(workers: Sequence[str]) -> str:
    """Describe asking these workers."""
    return f"asks {', '.join(map(repr, workers))}"


def describe_ship(worker: str) -> str:
    """Describe shipping this worker's answer."""
    return f"ships the answer of {worker!r}"


def describe_action(plan: Plan, keeps: int | None, before: Sequence[Plan], names: Sequence[str]) -> str:
    """Describe what a plan does after earlier ones; `names` are the pool's workers, by ordinal.

    Actions are equal where their descriptions in the journal are.
    """
    if not plan.ships:
        return describe_ask([names[step.worker] for step in plan.steps])
    performed = [each for each in before if not each.ships]
    if not performed:
        return "ships nothing"
    kept = performed[-1] if keeps is None else before[keeps]
    return describe_ship(names[kept.steps[-1].worker])
