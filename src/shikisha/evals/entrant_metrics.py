"""From an entrant's samples to its figures, and the records that hold the figures of a whole evaluation.

Invariants: the order of the samples changes nothing; accuracy is over graded samples and nothing else (no answer is a
0, an ungraded sample is left out and counted); work and cost are over all samples, since all of them were paid for;
only `against` looks at another entrant. Shares, accuracies and intervals are fractions; `dollars` are totals.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import fsum
from typing import TypeVar

from shikisha.core.events import GradeMark, RunStatus
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.evals.samples import Entrant, EntrantRole, Sample
from shikisha.evals.statistics import (
    calibration_error,
    confidence_bins,
    difference_interval,
    entropy,
    mean,
    mean_interval,
    quantile,
    score_interval,
)
from shikisha.evals.taskset import DIMENSIONS, GradeRigour, TaskDimensions, TaskSpecification


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A paired difference of mean scores over the tasks that both did: mean, 95 % interval, and counts.

    `better` and `worse` count tasks by their scores; `significant` when the interval excludes 0.
    """

    to: str
    tasks: int
    mean: float
    interval: ConfidenceInterval
    better: int
    worse: int

    @property
    def significant(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True, slots=True)
class EqualDollars:
    """The mix of two baselines that spends what an entrant does, and the paired difference of the entrant from it.

    `high` does `share` of the tasks and `low` the others; no mix of the baselines is more accurate for these dollars.
    It is chosen on the tasks reported, which favors the baselines. `dollars` is what the mix spends on a task, `spent`
    what the entrant does: more than the mix where dollars buy the baselines nothing, less where none is as cheap.
    """

    low: str
    high: str
    share: float
    accuracy: float
    dollars: float
    spent: float
    difference: PairedDifference


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """A part of the tasks: how many, their mean score, and each worker's share of the steps performed for them."""

    tasks: int
    accuracy: float
    workers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DimensionGroup:
    """The graded tasks at one place of a dimension: their mean score and mean known cost, with 95 % intervals."""

    tasks: int
    accuracy: float
    interval: ConfidenceInterval
    dollars: float | None = None
    dollars_interval: ConfidenceInterval | None = None


@dataclass(frozen=True, slots=True)
class SpecificationCliff:
    """What is lost from tasks that give the steps to tasks with the same goals that do not.

    `to` is the specification compared with `steps`: `open`, or `goal` where no task is open. `lost` is the paired
    difference over goals (steps less the other); `dollars` are the mean known costs of a task on each side.
    """

    to: str
    steps: float
    other: float
    lost: PairedDifference
    dollars: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class ConfidenceBin:
    """Samples of like confidence: how many, their mean confidence and mean score."""

    tasks: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class ConfidenceCalibration:
    """Ten bins of confidence and the expected calibration error (Guo et al., arXiv 1706.04599); `of` says whose."""

    of: str
    bins: tuple[ConfidenceBin, ...]
    error: float


@dataclass(frozen=True, slots=True)
class SecondRound:
    """What further rounds changed: runs that had one, wrong answers made right, right ones made wrong."""

    runs: int
    repaired: int
    broke: int


@dataclass(frozen=True, slots=True)
class EntrantFigures:
    """An entrant's figures.

    `tasks` are the graded samples (`ungraded` are not among them; `no_answer` are, with score 0), `judged` how many of
    them a language model graded. `against` is the difference from the best single worker. `valid` is the share of
    samples whose first plan was the conductor's own and well formed, `accuracy_given_valid` the accuracy of those.
    `dollars` is the total of known costs, `uncertain` what calls without a known outcome may have cost besides (in no
    mean), and `unpriced` how many samples have none. `steps`, `rounds`, `tokens` are means a task. `workers` are
    shares of steps, `entropy` their entropy in bits; `topologies` count shapes, `graphs` access lists of first plans;
    `failures` count faults of runs that ended without an answer, `failure_classes` where runs with tools went wrong.
    """

    name: str
    part: EntrantRole
    tasks: int
    accuracy: float
    interval: ConfidenceInterval
    against: PairedDifference | None = None
    at_equal_dollars: EqualDollars | None = None
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
    failure_classes: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, TaskGroup] = field(default_factory=dict)
    difficulties: Mapping[str, TaskGroup] = field(default_factory=dict)
    calibration: ConfidenceCalibration | None = None
    dimensions: Mapping[str, Mapping[str, DimensionGroup]] = field(default_factory=dict)
    cliff: SpecificationCliff | None = None
    reward: float | None = None
    worker: str | None = None
    note: str = ""

    @property
    def dollars_a_task(self) -> float | None:
        """The mean of the known costs; None where none is known."""
        priced = self.tasks + self.ungraded - self.unpriced
        return self.dollars / priced if priced > 0 else None


@dataclass(frozen=True, slots=True)
class RouterCurve:
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
class EvaluationReport:
    """A whole evaluation: what was evaluated, the entrants' figures, and the caveats.

    `best_single` names the entry that all are compared with. `tasks`, `scores` and `dollars` hold the samples task by
    task (None: not done or not graded), so that two evaluations can be compared; `hashes` are the tasks' content
    hashes, `dimensions` where each stands (`TaskDimensions`), in the same order. `pgr` is each entrant's share of the
    gap between the weakest and the best single worker; `hull` the convex hull of the single workers in (dollars a task,
    accuracy). `notes` are caveats: costs derived from list prices, simulated workers, tasks left out.
    """

    taskset: str
    version: str
    created: str
    pool: tuple[str, ...]
    entries: tuple[EntrantFigures, ...]
    best_single: str | None
    tasks: tuple[str, ...]
    hashes: tuple[str, ...]
    scores: Mapping[str, tuple[float | None, ...]]
    dollars: Mapping[str, tuple[float | None, ...]]
    dimensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pgr: Mapping[str, float] = field(default_factory=dict)
    hull: tuple[tuple[float, float], ...] = ()
    curves: tuple[RouterCurve, ...] = ()
    aiq: float | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    complete: bool = True
    why: str = ""


Scores = Mapping[str, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EntrantInfo:
    """Whom an entry is about: an entrant without what it takes to perform it."""

    name: str
    part: EntrantRole = EntrantRole.ASKED
    worker: str | None = None
    note: str = ""

    @classmethod
    def of(cls, entrant: Entrant) -> "EntrantInfo":
        """Return whom this entrant's entry is about."""
        return cls(entrant.name, entrant.part, entrant.worker, entrant.note)


def scores_of(samples: Iterable[Sample]) -> dict[str, float]:
    """Return the scores of the graded samples by task id."""
    return {sample.task_id: sample.score for sample in samples if sample.score is not None}


def entrant_figures(
    who: EntrantInfo,
    samples: Sequence[Sample],
    best: Scores | None = None,
    best_name: str = "",
    dimensions: Mapping[str, TaskDimensions] | None = None,
) -> EntrantFigures:
    """Count an entrant's samples, one a task.

    `best` are the scores of whom it is compared with, `dimensions` where the tasks stand, both by task id.
    """
    scores = scores_of(samples)
    graded = [sample for sample in samples if sample.score is not None]
    values = list(scores.values())
    priced = [sample.dollars for sample in samples if sample.dollars is not None]
    planned = [sample for sample in samples if sample.shape]
    workers = shares(chain.from_iterable(sample.workers for sample in samples))
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    seconds = [sample.seconds for sample in samples]
    return EntrantFigures(
        who.name,
        who.part,
        len(graded),
        mean(values),
        ConfidenceInterval(*score_interval(values)),
        against=paired_difference(scores, best, best_name) if best is not None else None,
        valid=_valid(samples),
        accuracy_given_valid=_mean_if_any([s.score for s in graded if s.valid and s.score is not None]),
        dollars=fsum(priced),
        uncertain=fsum(sample.uncertain for sample in samples),
        unpriced=len(samples) - len(priced),
        paid=fsum(sample.paid for sample in samples),
        tokens=mean([sample.tokens for sample in samples]),
        steps=mean([len(sample.workers) for sample in samples]),
        rounds=mean([sample.rounds for sample in samples]),
        seconds_p50=quantile(seconds, 0.5),
        seconds_p95=quantile(seconds, 0.95),
        workers=workers,
        entropy=entropy(workers.values()),
        topologies=_most_first(Counter(sample.shape for sample in planned)),
        graphs=tuple(_most_first(Counter(sample.access for sample in planned)).items()),
        multi_step=mean([len(sample.access) > 1 for sample in planned]),
        second_round=_second_round(graded),
        no_answer=sum(sample.mark is GradeMark.NO_ANSWER for sample in graded),
        ungraded=len(samples) - len(graded),
        judged=sum(sample.judged for sample in graded),
        failures=_most_first(Counter(chain.from_iterable(map(_failures, samples)))),
        failure_classes=_most_first(Counter(sample.failure for sample in samples if sample.failure)),
        domains=_groups(samples, [sample.domain for sample in samples]),
        difficulties=_groups(samples, [sample.difficulty for sample in samples]),
        calibration=_calibration(who.name, graded),
        dimensions=_dimension_groups(graded, dimensions or {}),
        cliff=_specification_cliff(graded, dimensions or {}),
        reward=_mean_if_any(rewards),
        worker=who.worker,
        note=who.note,
    )


def paired_difference(ours: Scores, theirs: Scores, to: str) -> PairedDifference | None:
    """Return the paired difference `ours` - `theirs` over the tasks of both; None where there is no such task."""
    differences = [score - theirs[task] for task, score in ours.items() if task in theirs]
    if not differences:
        return None
    better, worse = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    interval = ConfidenceInterval(*difference_interval(differences))
    return PairedDifference(to, len(differences), mean(differences), interval, better, worse)


def shares(names: Iterable[str]) -> dict[str, float]:
    """Return each name's share of the names, the most frequent first."""
    counts = _most_first(Counter(names))
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()}


def oracle_samples(singles: Sequence[Sequence[Sample]], name: str = "oracle") -> list[Sample]:
    """Return the samples of an oracle that knows the best single worker for each task: computed, never run.

    For each task it is the graded sample with the best score, among those the one with the least known cost, among
    those the first; where no single worker was graded, a sample that was not.
    """
    best: dict[str, Sample] = {}
    for sample in chain.from_iterable(singles):
        other = best.get(sample.task_id)
        if other is None or _rank(sample) > _rank(other):
            best[sample.task_id] = sample
    return [replace(sample, entrant=name, paid=0.0, confidence=None, reward=None) for sample in best.values()]


def _rank(sample: Sample) -> tuple[float, float]:
    cost = float("inf") if sample.dollars is None else sample.dollars
    return -1.0 if sample.score is None else sample.score, -cost


def _mean_if_any(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _valid(samples: Sequence[Sample]) -> float | None:
    return _mean_if_any([sample.valid for sample in samples if sample.valid is not None])


def _second_round(graded: Sequence[Sample]) -> SecondRound | None:
    pairs = [(s.first_score, s.score) for s in graded if s.first_score is not None and s.score is not None]
    repaired, broke = sum(first < last for first, last in pairs), sum(first > last for first, last in pairs)
    return SecondRound(len(pairs), repaired, broke) if pairs else None


def _failures(sample: Sample) -> Iterable[str]:
    """Return why a run ended without an answer, each kind once; how it ended where no fault was recorded."""
    if sample.faults:
        return {str(kind) for kind in sample.faults}
    if sample.mark is GradeMark.NO_ANSWER and sample.status is not RunStatus.DONE:
        return (str(sample.status),)
    return ()


def _groups(samples: Sequence[Sample], labels: Sequence[str]) -> dict[str, TaskGroup]:
    """Return the groups by label; none where no sample has a label."""
    members: dict[str, list[Sample]] = {}
    for label, sample in zip(labels, samples, strict=True):
        members.setdefault(label, []).append(sample)
    return {label: _group(members[label]) for label in sorted(members)} if any(members) else {}


def _group(samples: Sequence[Sample]) -> TaskGroup:
    scores = [sample.score for sample in samples if sample.score is not None]
    return TaskGroup(len(scores), mean(scores), shares(chain.from_iterable(sample.workers for sample in samples)))


def sample_rigour(sample: Sample, said: TaskDimensions) -> GradeRigour:
    """Return how strictly a sample was graded: what a language model graded is nothing else, whatever its task says."""
    return GradeRigour.JUDGE if sample.judged else said.rigour


def _dimension_groups(
    graded: Sequence[Sample], dimensions: Mapping[str, TaskDimensions]
) -> dict[str, dict[str, DimensionGroup]]:
    """Return the graded samples by each dimension, its places in the order of its definition."""
    placed = [(sample, dimensions[sample.task_id]) for sample in graded if sample.task_id in dimensions]
    found: dict[str, dict[str, DimensionGroup]] = {}
    for name, places in DIMENSIONS.items():
        members: dict[str, list[Sample]] = {place: [] for place in places}
        for sample, said in placed:
            place = sample_rigour(sample, said) if name == "rigour" else getattr(said, name)
            members[place].append(sample)
        found[name] = {place: _dimension_group(held) for place, held in members.items() if held}
    return found if placed else {}


def _dimension_group(graded: Sequence[Sample]) -> DimensionGroup:
    scores = [sample.score for sample in graded if sample.score is not None]
    costs = [sample.dollars for sample in graded if sample.dollars is not None]
    dollars, interval = (mean(costs), ConfidenceInterval(*mean_interval(costs))) if costs else (None, None)
    return DimensionGroup(len(scores), mean(scores), ConfidenceInterval(*score_interval(scores)), dollars, interval)


def _specification_cliff(
    graded: Sequence[Sample], dimensions: Mapping[str, TaskDimensions]
) -> SpecificationCliff | None:
    """Return what is lost from given steps to an open goal, over the goals that have tasks of both kinds."""
    by_goal: dict[str, dict[str, list[Sample]]] = {}
    for sample in graded:
        said = dimensions.get(sample.task_id)
        if said is not None and said.goal:
            by_goal.setdefault(said.goal, {}).setdefault(said.specification, []).append(sample)
    for other in (TaskSpecification.OPEN, TaskSpecification.GOAL):
        pairs = {
            goal: (kinds[TaskSpecification.STEPS], kinds[other])
            for goal, kinds in by_goal.items()
            if TaskSpecification.STEPS in kinds and other in kinds
        }
        if not pairs:
            continue
        given = {goal: _mean_score(steps) for goal, (steps, _) in pairs.items()}
        left = {goal: _mean_score(rest) for goal, (_, rest) in pairs.items()}
        lost = paired_difference(given, left, str(other))
        if lost is not None:
            costs = tuple(_mean_cost([sample for pair in pairs.values() for sample in pair[side]]) for side in (0, 1))
            return SpecificationCliff(
                str(other), mean(list(given.values())), mean(list(left.values())), lost, (costs[0], costs[1])
            )
    return None


def _mean_score(samples: Sequence[Sample]) -> float:
    return mean([sample.score for sample in samples if sample.score is not None])


def _mean_cost(samples: Sequence[Sample]) -> float | None:
    return _mean_if_any([sample.dollars for sample in samples if sample.dollars is not None])


def _calibration(of: str, graded: Sequence[Sample]) -> ConfidenceCalibration | None:
    sure = [(s.confidence, s.score) for s in graded if s.confidence is not None and s.score is not None]
    if not sure:
        return None
    bins = confidence_bins([confidence for confidence, _ in sure], [score for _, score in sure])
    return ConfidenceCalibration(of, tuple(ConfidenceBin(*each) for each in bins), calibration_error(bins))


def _most_first(counts: Counter[T]) -> dict[T, int]:
    """Return the counts from the highest down, equal ones by their text, so that no order of counting shows."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0]))))
