"""Trials: the canary against the live policy, from runs that a lot divided between them.

A task's lot hangs on its content, so the two have different tasks and their means are compared unpaired. Where both
would have done the same all along (each run tells what the other would have done beside it), the outcome is the same in
the mean, whoever acted: only the tasks on which they part count, times the share of such tasks. Of these, differences
of means have Newcombe's hybrid interval (1998) from those of the two means (`evaluate.statistics`). Invariants: the
unit is the task, however often it was run; runs from before the shares were what they are, and runs of which nobody
knows what the other would have done, are no part of it; grades are told apart by whose word they are. Deliberately
absent: what follows from it (`verdict`), shadows (`shadowing`), and corrections for looking at a trial again and again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import TypeAlias

from shikisha.evaluate.statistics import Bounds, mean, mean_interval, score_interval
from shikisha.events import Basis
from shikisha.policy.acts import CANNOT, act_of
from shikisha.run import RoundRecord, Run

Of: TypeAlias = "Callable[[Sample], float | None]"


@dataclass(frozen=True, slots=True)
class Sample:
    """A run of the trial: its task, who acted, whether the other would have done otherwise, and what came of it.

    `score` None: nobody graded it. `dollars` None: nobody can say. `failed`: it ended without an answer.
    """

    task: str
    version: str
    differs: bool
    score: float | None
    basis: Basis | None
    dollars: float | None
    reward: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over tasks with its 95 % interval."""

    mean: float
    low: float
    high: float
    tasks: int


@dataclass(frozen=True, slots=True)
class Arm:
    """One policy's runs. `graded` are its tasks with a grade by whose word it is; figures None: nothing to tell of."""

    version: str
    runs: int
    tasks: int
    graded: Mapping[Basis, int]
    right: Figure | None
    dollars: Figure | None
    reward: Figure | None
    failed: Figure | None


@dataclass(frozen=True, slots=True)
class Change:
    """How much more the canary comes to than the live policy, with the 95 % interval; over so many tasks of each."""

    mean: float
    low: float
    high: float
    canary: int
    live: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial came to. `differing` is the share of the tasks on which the two part.

    `right` counts the grades that count for the verdict, `by_basis` each kind of grade alone. Changes are None where
    one of the two has nothing to compare.
    """

    live: Arm
    canary: Arm
    differing: Figure
    right: Change | None
    by_basis: Mapping[Basis, Change]
    dollars: Change | None
    reward: Change | None
    failed: Change | None
    counts: tuple[Basis, ...]


@dataclass(frozen=True, slots=True)
class _Measure:
    """Something to compare: what of a sample, how its mean's interval is found, and the most that it can differ by."""

    of: Of
    interval: Callable[[Sequence[float]], Bounds]
    span: float = 1.0


@dataclass(slots=True)
class _ByTask:
    """Means by task of the runs that have a value: of all, and of those that differ."""

    all: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    differing: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def samples(runs: Iterable[Run], live: str, canary: str, since: float = 0.0) -> list[Sample]:
    """Return the runs that are part of the trial of these two versions since then."""
    found = (_sample(run, live, canary) for run in runs if run.started.at >= since)
    return [sample for sample in found if sample is not None]


def trial(held: Sequence[Sample], live: str, canary: str, counts: Collection[Basis] = tuple(Basis)) -> Trial:
    """Return what these samples come to; of the grades, those of these kinds count for `right`."""
    ours, theirs = ([one for one in held if one.version == version] for version in (canary, live))
    costs = [one.dollars for one in held if one.dollars is not None]
    rewards = [one.reward for one in held if one.reward is not None]
    parts = _task_means(held, lambda one: float(one.differs)).all
    share = _figure([mean(values) for values in parts.values()], score_interval) or Figure(0.0, 0.0, 1.0, 0)

    def compared(measure: _Measure) -> Change | None:
        return _change(ours, theirs, share, measure)

    by_basis = {basis: compared(_Measure(_scored((basis,)), score_interval)) for basis in Basis}
    return Trial(
        live=_arm(theirs, live, counts),
        canary=_arm(ours, canary, counts),
        differing=share,
        right=compared(_Measure(_scored(counts), score_interval)),
        by_basis={basis: change for basis, change in by_basis.items() if change is not None},
        dollars=compared(_Measure(lambda one: one.dollars, mean_interval, max(costs, default=0.0))),
        reward=compared(
            _Measure(lambda one: one.reward, mean_interval, max(rewards, default=0.0) - min(rewards, default=0.0))
        ),
        failed=compared(_Measure(lambda one: float(one.failed), score_interval)),
        counts=tuple(basis for basis in Basis if basis in counts),
    )


def acts(run: Run, turn: RoundRecord) -> str | None:
    """Say what the plan of a round does; None while there is none."""
    if turn.proposed is None or turn.plan is None:
        return None
    before = [past.plan for past in run.rounds[: turn.index] if past.plan is not None]
    return act_of(turn.plan, turn.proposed.keeps, before, run.started.pool)


def _sample(run: Run, live: str, canary: str) -> Sample | None:
    first = run.rounds[0].proposed if run.rounds else None
    if run.finished is None or first is None or first.version not in {live, canary}:
        return None
    other = canary if first.version == live else live
    if first.beside.get(other, CANNOT).startswith(CANNOT):
        return None
    grade = run.grade
    return Sample(
        run.task.content_hash,
        first.version,
        any(turn.proposed is not None and turn.proposed.beside.get(other) != acts(run, turn) for turn in run.rounds),
        None if grade is None else grade.score,
        None if grade is None else grade.basis,
        run.charged.dollars,
        run.rewards[-1].total if run.rewards else None,
        failed=run.answer is None,
    )


def _scored(counts: Collection[Basis]) -> Of:
    return lambda one: one.score if one.basis in counts else None


def _arm(held: Sequence[Sample], version: str, counts: Collection[Basis]) -> Arm:
    def figure(measure: _Measure) -> Figure | None:
        return _figure([mean(values) for values in _task_means(held, measure.of).all.values()], measure.interval)

    return Arm(
        version,
        len(held),
        len({one.task for one in held}),
        {basis: len({one.task for one in held if one.basis is basis}) for basis in Basis},
        figure(_Measure(_scored(counts), score_interval)),
        figure(_Measure(lambda one: one.dollars, mean_interval)),
        figure(_Measure(lambda one: one.reward, mean_interval)),
        figure(_Measure(lambda one: float(one.failed), score_interval)),
    )


def _task_means(held: Sequence[Sample], of: Of) -> _ByTask:
    found = _ByTask()
    for one in held:
        value = of(one)
        if value is not None:
            found.all[one.task].append(value)
            if one.differs:
                found.differing[one.task].append(value)
    return found


def _figure(values: Sequence[float], interval: Callable[[Sequence[float]], Bounds]) -> Figure | None:
    return Figure(mean(values), *interval(values), len(values)) if values else None


def _change(ours: Sequence[Sample], theirs: Sequence[Sample], share: Figure, measure: _Measure) -> Change | None:
    """Return how the means of two arms differ: those of the tasks on which they part, times these tasks' share."""
    arms = [_task_means(held, measure.of) for held in (ours, theirs)]
    counts = [len(arm.all) for arm in arms]
    if not all(counts):
        return None
    one, other = (_figure([mean(values) for values in arm.differing.values()], measure.interval) for arm in arms)
    if one is None or other is None:  # how much they differ where they part is anyone's guess
        most = share.high * measure.span
        return Change(0.0, -most, most, *counts)
    gap = one.mean - other.mean
    low = hypot(one.mean - one.low, other.high - other.mean)
    high = hypot(one.high - one.mean, other.mean - other.low)
    unsure = abs(gap) * max(share.mean - share.low, share.high - share.mean)
    middle = share.mean * gap
    return Change(middle, middle - hypot(share.mean * low, unsure), middle + hypot(share.mean * high, unsure), *counts)
