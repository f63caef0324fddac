"""What an evaluation comes to, as data: one Entry an entrant, in one Report.

Invariant: an Entry is counted from its entrant's samples alone; only `against` looks at another's. Shares, accuracies
and intervals are fractions; `dollars` are totals, means are said to be. Deliberately absent: how it is counted
(`counting`) and how it is shown (`table`, `page`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shikisha.evaluate.samples import Part


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference of mean scores over the tasks that both did: mean, 95 % interval, and counts.

    `better` and `worse` count tasks by their scores; `significant` when the interval excludes 0.
    """

    to: str
    tasks: int
    mean: float
    interval: Interval
    better: int
    worse: int

    @property
    def significant(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True, slots=True)
class Group:
    """A part of the tasks: how many, their mean score, and each worker's share of the steps performed for them."""

    tasks: int
    accuracy: float
    workers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bin:
    """Samples of like confidence: how many, their mean confidence and mean score."""

    tasks: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Ten bins of confidence and the expected calibration error (Guo et al., arXiv 1706.04599); `of` says whose."""

    of: str
    bins: tuple[Bin, ...]
    error: float


@dataclass(frozen=True, slots=True)
class SecondRound:
    """What further rounds changed: runs that had one, wrong answers made right, right ones made wrong."""

    runs: int
    repaired: int
    broke: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entrant's figures.

    `tasks` are the graded samples (`ungraded` are not among them; `no_answer` are, with score 0), `judged` how many of
    them a language model graded. `valid` is the share of samples whose first plan was the conductor's own and well
    formed, `accuracy_given_valid` the accuracy of those. `dollars` is the total of known costs, `uncertain` what
    calls without a known outcome may have cost besides (in no mean), and `unpriced` how many
    samples have none. `steps`, `rounds`, `tokens` are means a task. `workers` are shares of steps, `entropy` their
    entropy in bits; `topologies` count shapes, `graphs` access lists of first plans; `failures` count faults of runs
    that ended without an answer.
    """

    name: str
    part: Part
    tasks: int
    accuracy: float
    interval: Interval
    against: Difference | None = None
    valid: float | None = None
    accuracy_given_valid: float | None = None
    dollars: float = 0.0
    uncertain: float = 0.0
    unpriced: int = 0
    paid: float = 0.0
    tokens: float = 0.0
    steps: float = 0.0
    rounds: float = 0.0
    seconds_p50: float = 0.0
    seconds_p95: float = 0.0
    workers: Mapping[str, float] = field(default_factory=dict)
    entropy: float = 0.0
    topologies: Mapping[str, int] = field(default_factory=dict)
    graphs: tuple[tuple[tuple[tuple[int, ...], ...], int], ...] = ()
    multi_step: float = 0.0
    second_round: SecondRound | None = None
    no_answer: int = 0
    ungraded: int = 0
    judged: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, Group] = field(default_factory=dict)
    difficulties: Mapping[str, Group] = field(default_factory=dict)
    calibration: Calibration | None = None
    reward: float | None = None
    worker: str | None = None
    note: str = ""

    @property
    def dollars_a_task(self) -> float | None:
        """The mean of the known costs; None where none is known."""
        priced = self.tasks + self.ungraded - self.unpriced
        return self.dollars / priced if priced > 0 else None


@dataclass(frozen=True, slots=True)
class Curve:
    """A router between a weak and a strong worker as its threshold moves: (share of calls to the strong one, accuracy).

    Summed up as RouteLLM does (arXiv 2406.18665): `apgr`, and `cpt` (the share of strong calls that recovers 50 % and
    80 % of the gap; None: never), and as RouterBench's AIQ (arXiv 2403.12031) over dollars where they are known.
    """

    name: str
    weak: str
    strong: str
    points: tuple[tuple[float, float], ...]
    apgr: float
    cpt50: float | None
    cpt80: float | None
    aiq: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole evaluation: what was evaluated, the entries, and what must be said beside the figures.

    `best_single` names the entry that all are compared with. `tasks`, `scores` and `dollars` hold the samples task by
    task (None: not done or not graded), so that two evaluations can be compared; `hashes` are the tasks' content
    hashes. `pgr` is each entrant's share of the gap between the weakest and the best single worker; `hull` the convex
    hull of the single workers in (dollars a task, accuracy). `notes` are caveats: costs derived from list prices,
    simulated workers, tasks left out.
    """

    taskset: str
    version: str
    created: str
    pool: tuple[str, ...]
    entries: tuple[Entry, ...]
    best_single: str | None
    tasks: tuple[str, ...]
    hashes: tuple[str, ...]
    scores: Mapping[str, tuple[float | None, ...]]
    dollars: Mapping[str, tuple[float | None, ...]]
    pgr: Mapping[str, float] = field(default_factory=dict)
    hull: tuple[tuple[float, float], ...] = ()
    curves: tuple[Curve, ...] = ()
    aiq: float | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    complete: bool = True
    why: str = ""
