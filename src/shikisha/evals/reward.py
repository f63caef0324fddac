"""Rewards: what a finished run is worth to a learner, in named parts that a configuration weighs and sums.

The parts are those of the field: `format` (0 no plan, 0.5 a plan, 1 a plan and a right answer: the Conductor's own,
arXiv 2512.04388), `correct` (the grade's score), `cost` (dollars), `latency` (seconds), `critical_path` (steps that
wait for one another) and `preference` (workers that the user likes more or less, as ToolOrchestra weighs tools, arXiv
2511.21689). Invariants: a part is a pure function of a run and its grade; `cost`, `latency` and `critical_path`
penalize right answers only, unless `always` is set, so that a cheap failure gains nothing; the critical path depends on
the plans and not on the clock; a run that a worker's or a grader's fault spoiled has no reward (None) and is never a
bad one. Algorithms normalize over groups; there is no discount over rounds.
"""

from collections.abc import Mapping
from math import isfinite
from time import time

from shikisha.core.errors import ConfigError, FaultKind
from shikisha.core.events import AnswerGraded, GradeMark, RewardGiven
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.plan import step_depths
from shikisha.core.run import Run
from shikisha.evals.graders import Grade

# Faults that a better plan would have avoided; any other fault is the worker's or the grader's.
_PLANNING_FAULTS = frozenset(
    {
        FaultKind.NO_PLAN,
        FaultKind.UNREADABLE,
        FaultKind.BAD_ARGUMENTS,
        FaultKind.TOOL_ERROR,
        FaultKind.BLOCKED,
        FaultKind.CHECK_FAILED,
    }
)

_PENALTIES = ("cost", "latency", "critical_path")
_PLAN_CAPS = frozenset({"steps", "rounds", "depth", "tokens", "dollars"})  # caps that a thriftier plan would have kept


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """How much each part counts: per point of score, per dollar, per second, per step of a preferred worker.

    `cost`, `latency` and `critical_path` (per step on it) are taken away; with `always`, from wrong answers too.
    """

    format: float = 1.0
    correct: float = 0.0
    cost: float = 0.0
    latency: float = 0.0
    critical_path: float = 0.0
    preference: Mapping[str, float] = field(default_factory=dict)
    always: bool = False

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("format", "correct", *_PENALTIES)}
        for name, weight in {**numbers, **{f"preference.{k}": v for k, v in self.preference.items()}}.items():
            if not isfinite(weight):
                raise ConfigError(f"reward {name}: expected a finite number, not {weight!r}")
        for name in _PENALTIES:
            if numbers[name] < 0:
                raise ConfigError(f"reward {name}: expected a weight from 0 (it is taken away), not {numbers[name]!r}")


PAPER_WEIGHTS = RewardWeights()  # 0 / 0.5 / 1


@dataclass(frozen=True, slots=True)
class Reward:
    """The weighted parts by name; those that weigh nothing are left out."""

    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self.parts.values())


def run_reward(run: Run, grade: Grade, weights: RewardWeights = PAPER_WEIGHTS) -> Reward | None:
    """Return what a run with this grade is worth; None where a fault that is not the conductor's spoiled it.

    A grade in which the judged program had a say (`Grade.shared`) is worth nothing: it would teach to cheat.
    """
    score = grade.score
    if score is None or grade.shared or has_external_failure(run):
        return None
    right = grade.mark is GradeMark.RIGHT
    planned = bool(run.rounds) and run.rounds[0].proposed is not None and run.rounds[0].proposed.substituted is None
    format_score = 1.0 if planned and right else 0.5 if planned else 0.0
    parts = {
        "format": weights.format * (format_score),
        "correct": weights.correct * score,
    }
    if weights.preference:
        parts["preference"] = sum(weights.preference.get(worker, 0.0) for worker in step_workers(run))
    if weights.cost and (right or weights.always):
        dollars = run.charged.dollars
        if dollars is None:
            raise ConfigError(f"run {run.id}: the reward counts dollars, and a worker of this run has no price")
        parts["cost"] = -weights.cost * dollars
    if right or weights.always:
        parts["latency"] = -weights.latency * run.active_seconds
        parts["critical_path"] = -weights.critical_path * critical_path(run)
    return Reward({name: value for name, value in parts.items() if value})


def has_external_failure(run: Run) -> bool:
    """Whether the run ended without an answer by a fault that no better plan would have avoided."""
    if run.answer is not None or run.finished is None:
        return run.finished is None
    faults = [step.result.fault for turn in run.rounds for step in turn.steps.values() if step.result]
    if run.finished.fault is FaultKind.CAP:
        return run.finished.cap not in _PLAN_CAPS
    if run.finished.fault not in (None, FaultKind.NO_PLAN):
        return run.finished.fault not in _PLANNING_FAULTS
    return any(fault is not None and fault.kind not in _PLANNING_FAULTS for fault in faults)


def step_workers(run: Run) -> tuple[str, ...]:
    """Return who performed the run's steps, in order, after any substitution."""
    steps = [turn.steps[index] for turn in run.rounds for index in sorted(turn.steps)]
    return tuple(step.finished.worker for step in steps if step.finished is not None)


def critical_path(run: Run) -> int:
    """Return how many of the run's steps had to be performed one after another: of each round its longest chain."""
    plans = [turn.plan for turn in run.rounds if turn.plan is not None and turn.plan.steps]
    return sum(1 + max(step_depths([step.access for step in plan.steps])) for plan in plans)


def grade_events(run: str, grade: Grade, given: Reward | None) -> tuple[AnswerGraded | RewardGiven, ...]:
    """Return what a journal keeps of a grade and a reward."""
    now = time()
    graded = AnswerGraded(
        run=run,
        at=now,
        checker=grade.grader,
        mark=grade.mark,
        score=grade.score,
        found=grade.found,
        evidence=grade.evidence,
        judged=grade.judged,
    )
    if given is None:
        return (graded,)
    return graded, RewardGiven(run=run, at=now, parts=dict(given.parts), total=given.total)
