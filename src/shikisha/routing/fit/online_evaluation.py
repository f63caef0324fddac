"""Trials: the canary against the live policy, from runs that a lot divided between them.

A task's lot hangs on its content, so the two have different tasks and their means are compared unpaired. Where both
would have done the same all along (each run tells what the other would have done beside it), the outcome is the same in
the mean, whoever acted: only the tasks on which they part count, times the share of such tasks. Of these, differences
of means have Newcombe's hybrid interval (1998) from those of the two means (`evaluate.statistics`). Invariants: the
unit is the task, however often it was run; runs from before the shares were what they are, and runs of which nobody
knows what the other would have done, are no part of it; grades are told apart by whose word they are. Deliberately
absent: what follows from it (`verdict`), shadows (`shadowing`), and corrections for looking at a trial again and again.

What a shadow would have come to, as far as the live policy's runs can tell.

Where a shadow would have done the same to the end, the outcome is the live one's; where it would have shipped an answer
that the run had by then, it is what that answer is worth, if that is known; where it would have asked somebody else,
nobody knows. Invariants: what nobody knows is bounded by the worst and the best and never guessed; the unit is the
task. Deliberately absent: any estimate for the unknown part, which is no random part of the tasks (make the shadow a
canary to learn about it).

Whether a canary may become the live policy: only where a trial excludes harm, by more than a margin, well enough.

Harm is being right less often, ending without an answer more often, or costing more. Invariants: what the interval does
not exclude may be so; a language model's word counts only where one is told to trust it; whoever refuses says why, and
how many more tasks it would take if things are as they seem. Deliberately absent: promoting (a person does), and
weighing a gain in one thing against a loss in another.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, hypot
from typing import TypeAlias

from shikisha.core.budget import Amount
from shikisha.core.events import GradeBasis
from shikisha.core.run import RoundRecord, Run
from shikisha.evals.graders.inferred_scores import infer_scores, shipped_step
from shikisha.evals.statistics import Bounds, difference_interval, mean, mean_interval, score_interval
from shikisha.routing.policy_data import CANNOT_ACT, describe_action, describe_ship

MeasureFunction: TypeAlias = "Callable[[TrialRun], float | None]"


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A run of the trial: its task, who acted, whether the other would have done otherwise, and what came of it.

    `score` None: nobody graded it. `dollars` None: nobody can say. `failed`: it ended without an answer.
    """

    task: str
    version: str
    differs: bool
    score: float | None
    basis: GradeBasis | None
    dollars: float | None
    reward: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean over tasks with its 95 % interval."""

    mean: float
    low: float
    high: float
    tasks: int


@dataclass(frozen=True, slots=True)
class TrialArm:
    """One policy's runs. `graded` are its tasks with a grade by whose word it is; figures None: nothing to tell of."""

    version: str
    runs: int
    tasks: int
    graded: Mapping[GradeBasis, int]
    right: MeanEstimate | None
    dollars: MeanEstimate | None
    reward: MeanEstimate | None
    failed: MeanEstimate | None


@dataclass(frozen=True, slots=True)
class TrialDifference:
    """How much more the canary comes to than the live policy, with the 95 % interval; over so many tasks of each."""

    mean: float
    low: float
    high: float
    canary: int
    live: int


@dataclass(frozen=True, slots=True)
class CanaryTrial:
    """What a trial came to. `differing` is the share of the tasks on which the two part.

    `right` counts the grades that count for the verdict, `by_basis` each kind of grade alone. Changes are None where
    one of the two has nothing to compare.
    """

    live: TrialArm
    canary: TrialArm
    differing: MeanEstimate
    right: TrialDifference | None
    by_basis: Mapping[GradeBasis, TrialDifference]
    dollars: TrialDifference | None
    reward: TrialDifference | None
    failed: TrialDifference | None
    counts: tuple[GradeBasis, ...]


@dataclass(frozen=True, slots=True)
class _TrialMeasure:
    """Something to compare: what of a sample, how its mean's interval is found, and the most that it can differ by."""

    of: MeasureFunction
    interval: Callable[[Sequence[float]], Bounds]
    span: float = 1.0


@dataclass(slots=True)
class _TaskValues:
    """Means by task of the runs that have a value: of all, and of those that differ."""

    all: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    differing: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def trial_runs(runs: Iterable[Run], live: str, canary: str, since: float = 0.0) -> list[TrialRun]:
    """Return the runs that are part of the trial of these two versions since then."""
    found = (_trial_run(run, live, canary) for run in runs if run.started.at >= since)
    return [sample for sample in found if sample is not None]


def evaluate_trial(
    held: Sequence[TrialRun], live: str, canary: str, counts: Collection[GradeBasis] = tuple(GradeBasis)
) -> CanaryTrial:
    """Return what these samples come to; of the grades, those of these kinds count for `right`."""
    ours, theirs = ([one for one in held if one.version == version] for version in (canary, live))
    costs = [one.dollars for one in held if one.dollars is not None]
    rewards = [one.reward for one in held if one.reward is not None]
    parts = _task_means(held, lambda one: float(one.differs)).all
    share = _estimate_mean([mean(values) for values in parts.values()], score_interval) or MeanEstimate(
        0.0, 0.0, 1.0, 0
    )

    def compared(measure: _TrialMeasure) -> TrialDifference | None:
        return _estimate_difference(ours, theirs, share, measure)

    by_basis = {basis: compared(_TrialMeasure(_score_measure((basis,)), score_interval)) for basis in GradeBasis}
    return CanaryTrial(
        live=_build_arm(theirs, live, counts),
        canary=_build_arm(ours, canary, counts),
        differing=share,
        right=compared(_TrialMeasure(_score_measure(counts), score_interval)),
        by_basis={basis: change for basis, change in by_basis.items() if change is not None},
        dollars=compared(_TrialMeasure(lambda one: one.dollars, mean_interval, max(costs, default=0.0))),
        reward=compared(
            _TrialMeasure(lambda one: one.reward, mean_interval, max(rewards, default=0.0) - min(rewards, default=0.0))
        ),
        failed=compared(_TrialMeasure(lambda one: float(one.failed), score_interval)),
        counts=tuple(basis for basis in GradeBasis if basis in counts),
    )


def round_action(run: Run, turn: RoundRecord) -> str | None:
    """Say what the plan of a round does; None while there is none."""
    if turn.proposed is None or turn.plan is None:
        return None
    before = [past.plan for past in run.rounds[: turn.index] if past.plan is not None]
    return describe_action(turn.plan, turn.proposed.keeps, before, run.started.pool)


def _trial_run(run: Run, live: str, canary: str) -> TrialRun | None:
    first = run.rounds[0].proposed if run.rounds else None
    if run.finished is None or first is None or first.version not in {live, canary}:
        return None
    other = canary if first.version == live else live
    if first.beside.get(other, CANNOT_ACT).startswith(CANNOT_ACT):
        return None
    grade = run.grade
    return TrialRun(
        run.task.content_hash,
        first.version,
        any(
            turn.proposed is not None and turn.proposed.beside.get(other) != round_action(run, turn)
            for turn in run.rounds
        ),
        None if grade is None else grade.score,
        None if grade is None else grade.basis,
        run.charged.dollars,
        run.rewards[-1].total if run.rewards else None,
        failed=run.answer is None,
    )


def _score_measure(counts: Collection[GradeBasis]) -> MeasureFunction:
    return lambda one: one.score if one.basis in counts else None


def _build_arm(held: Sequence[TrialRun], version: str, counts: Collection[GradeBasis]) -> TrialArm:
    def figure(measure: _TrialMeasure) -> MeanEstimate | None:
        return _estimate_mean([mean(values) for values in _task_means(held, measure.of).all.values()], measure.interval)

    return TrialArm(
        version,
        len(held),
        len({one.task for one in held}),
        {basis: len({one.task for one in held if one.basis is basis}) for basis in GradeBasis},
        figure(_TrialMeasure(_score_measure(counts), score_interval)),
        figure(_TrialMeasure(lambda one: one.dollars, mean_interval)),
        figure(_TrialMeasure(lambda one: one.reward, mean_interval)),
        figure(_TrialMeasure(lambda one: float(one.failed), score_interval)),
    )


def _task_means(held: Sequence[TrialRun], of: MeasureFunction) -> _TaskValues:
    found = _TaskValues()
    for one in held:
        value = of(one)
        if value is not None:
            found.all[one.task].append(value)
            if one.differs:
                found.differing[one.task].append(value)
    return found


def _estimate_mean(values: Sequence[float], interval: Callable[[Sequence[float]], Bounds]) -> MeanEstimate | None:
    return MeanEstimate(mean(values), *interval(values), len(values)) if values else None


def _estimate_difference(
    ours: Sequence[TrialRun], theirs: Sequence[TrialRun], share: MeanEstimate, measure: _TrialMeasure
) -> TrialDifference | None:
    """Return how the means of two arms differ: those of the tasks on which they part, times these tasks' share."""
    arms = [_task_means(held, measure.of) for held in (ours, theirs)]
    counts = [len(arm.all) for arm in arms]
    if not all(counts):
        return None
    one, other = (_estimate_mean([mean(values) for values in arm.differing.values()], measure.interval) for arm in arms)
    if one is None or other is None:  # how much they differ where they part is anyone's guess
        most = share.high * measure.span
        return TrialDifference(0.0, -most, most, *counts)
    gap = one.mean - other.mean
    low = hypot(one.mean - one.low, other.high - other.mean)
    high = hypot(one.high - one.mean, other.mean - other.low)
    unsure = abs(gap) * max(share.mean - share.low, share.high - share.mean)
    middle = share.mean * gap
    return TrialDifference(
        middle, middle - hypot(share.mean * low, unsure), middle + hypot(share.mean * high, unsure), *counts
    )


@dataclass(frozen=True, slots=True)
class ShadowedRun:
    """A live run beside which a shadow decided: whether it would have done the `same`, and what would be known of it.

    `live` is the run's score, None where nobody graded it; `score` and `dollars` are the shadow's, None: unknown.
    """

    task: str
    same: bool
    live: float | None
    score: float | None
    dollars: float | None
    spent: float | None


@dataclass(frozen=True, slots=True)
class ShadowResult:
    """What is known of a shadow: `same` and `known` are shares of the tasks; how much more often it is right lies
    between `low` and `high` (95 %); `dollars` are how much more it spends a task where that is known.
    """

    version: str
    runs: int
    same: MeanEstimate | None
    known: MeanEstimate | None
    low: float
    high: float
    dollars: float | None


def shadowed_runs(
    runs: Iterable[Run], live: str, shadow: str, counts: Collection[GradeBasis] = tuple(GradeBasis)
) -> list[ShadowedRun]:
    """Return the ended runs of the live policy beside which this shadow decided; grades of these kinds count."""
    found = []
    for run in runs:
        first = run.rounds[0].proposed if run.rounds else None
        if run.finished is not None and first is not None and first.version == live and shadow in first.beside:
            found.append(_shadowed_run(run, shadow, counts))
    return found


def evaluate_shadow(held: Sequence[ShadowedRun], version: str) -> ShadowResult:
    """Return what is known of a shadow from these runs."""
    graded = [one for one in held if one.live is not None]
    worst = _values_by_task(graded, lambda one: (one.score or 0.0) - (one.live or 0.0))
    best = _values_by_task(graded, lambda one: (1.0 if one.score is None else one.score) - (one.live or 0.0))
    more = [one for one in held if one.dollars is not None and one.spent is not None]
    return ShadowResult(
        version,
        len(held),
        _share_estimate(held, lambda one: float(one.same)),
        _share_estimate(graded, lambda one: float(one.score is not None)),
        difference_interval(worst)[0],
        difference_interval(best)[1],
        mean(_values_by_task(more, lambda one: (one.dollars or 0.0) - (one.spent or 0.0))) if more else None,
    )


def _shadowed_run(run: Run, shadow: str, counts: Collection[GradeBasis]) -> ShadowedRun:
    grade, task, spent = run.grade, run.task.content_hash, run.charged.dollars
    score = None if grade is None or grade.basis not in counts else grade.score
    for turn in run.rounds:
        said = turn.proposed.beside.get(shadow) if turn.proposed else None
        if said == round_action(run, turn):
            continue
        worth, paid = _shadow_shipment(run, turn, said, score)
        known = None if score is None else worth
        return ShadowedRun(task, same=False, live=score, score=known, dollars=paid, spent=spent)
    return ShadowedRun(task, same=True, live=score, score=score, dollars=spent, spent=spent)


def _shadow_shipment(
    run: Run, turn: RoundRecord, said: str | None, score: float | None
) -> tuple[float | None, float | None]:
    """Return score and dollars where the shadow would have shipped an answer that the run had before this round."""
    for past in run.rounds[: turn.index]:
        for place, step in enumerate(past.plan.steps if past.plan else ()):
            if said == describe_ship(run.started.pool[step.worker]):
                paid = sum((_round_cost(before) for before in run.rounds[: turn.index]), Amount()).dollars
                if (past.index, place) == shipped_step(run):
                    return score, paid
                worth = infer_scores(run).get((past.index, place))
                return (None if worth is None else worth.score), paid
    return None, None


def _round_cost(turn: RoundRecord) -> Amount:
    records = (turn.planning, *turn.steps.values())
    return sum((attempt.charged for record in records for attempt in record.attempts), Amount())


def _share_estimate(held: Sequence[ShadowedRun], of: Callable[[ShadowedRun], float]) -> MeanEstimate | None:
    values = _values_by_task(held, of)
    return MeanEstimate(mean(values), *score_interval(values), len(values)) if values else None


def _values_by_task(held: Sequence[ShadowedRun], of: Callable[[ShadowedRun], float]) -> list[float]:
    found: dict[str, list[float]] = defaultdict(list)
    for one in held:
        found[one.task].append(of(one))
    return [mean(values) for values in found.values()]


_BASIS_NAMES = {GradeBasis.EXECUTED: "checks", GradeBasis.PERSON: "people", GradeBasis.JUDGE: "a language model"}


@dataclass(frozen=True, slots=True)
class PromotionLimits:
    """What a trial must exclude: being right, or answering, less often by more than `margin`; costing `dearer` more.

    `dearer` is a share of what the live policy costs; `least` are graded tasks of either, below which nothing counts.
    """

    margin: float = 0.02
    dearer: float = 0.1
    least: int = 50


@dataclass(frozen=True, slots=True)
class PromotionVerdict:
    """Whether to promote, why not, and how many more tasks of the canary may change that (None: no number of them)."""

    promote: bool
    reasons: tuple[str, ...] = ()
    missing: int | None = 0


@dataclass(frozen=True, slots=True)
class _PromotionObjection:
    why: str
    missing: int | None


def trusted_bases(*, trust_judge: bool) -> tuple[GradeBasis, ...]:
    """Return whose grades count."""
    return tuple(basis for basis in GradeBasis if trust_judge or basis is not GradeBasis.JUDGE)


def decide_promotion(found: CanaryTrial, limits: PromotionLimits | None = None) -> PromotionVerdict:
    """Return what follows from a trial."""
    held = limits or PromotionLimits()
    objections = [*_sample_size_objections(found, held), *_harm_objections(found, held)]
    needs = [objection.missing for objection in objections]
    missing = None if None in needs else max((need for need in needs if need is not None), default=0)
    return PromotionVerdict(not objections, tuple(objection.why for objection in objections), missing)


def _sample_size_objections(found: CanaryTrial, held: PromotionLimits) -> Iterator[_PromotionObjection]:
    judged = found.canary.graded[GradeBasis.JUDGE] if GradeBasis.JUDGE not in found.counts else 0
    word = f"; {judged:,} more have a language model's word alone, which does not count" if judged else ""
    for arm, name in ((found.canary, "the canary"), (found.live, "the live policy")):
        tasks = arm.right.tasks if arm.right else 0
        if tasks < held.least:
            by = " or ".join(_BASIS_NAMES[basis] for basis in found.counts)
            yield _PromotionObjection(
                f"{tasks:,} tasks of {name} were graded by {by}: {held.least} are the least{word}", held.least - tasks
            )
        word = ""


def _harm_objections(found: CanaryTrial, held: PromotionLimits) -> Iterator[_PromotionObjection]:
    if found.right is not None:
        yield from _loss_objections("right less often", found.right, held.margin, rare=not found.differing.mean)
    if found.failed is not None:
        failed = [arm.failed.mean for arm in (found.canary, found.live) if arm.failed]
        yield from _loss_objections(
            "without an answer more often", _negate_difference(found.failed), held.margin, rare=not any(failed)
        )
    live = found.live.dollars
    if found.dollars is not None and live is not None:
        saved = _negate_difference(found.dollars)
        if not live.mean:
            yield from _loss_objections("dear, where the live policy costs nothing", saved, 0.0)
        else:
            relative = TrialDifference(
                saved.mean / live.mean, saved.low / live.mean, saved.high / live.mean, *_task_counts(saved)
            )
            yield from _loss_objections("dearer", relative, held.dearer)


def _loss_objections(
    what: str, change: TrialDifference, margin: float, *, rare: bool = False
) -> Iterator[_PromotionObjection]:
    """Object where a change for the better may be one for the worse by more than the margin.

    An interval narrows with the root of the number of tasks, or, about what never happened yet (`rare`), with itself.
    """
    if change.low >= -margin:
        return
    allowed = f"{margin:.1%} is allowed"
    if change.mean <= -margin:
        interval = f"({-change.high:.1%} to {-change.low:.1%})"
        yield _PromotionObjection(f"it is {what}, by {-change.mean:.1%} {interval}: {allowed}", None)
        return
    factor = ((change.mean - change.low) / (change.mean + margin)) ** (1 if rare else 2)
    missing = ceil(change.canary * (factor - 1))
    why = f"it may be {what}, by up to {-change.low:.1%}: {allowed}; about {missing:,} more of its tasks may tell"
    yield _PromotionObjection(why, missing)


def _negate_difference(change: TrialDifference) -> TrialDifference:
    return TrialDifference(-change.mean, -change.high, -change.low, *_task_counts(change))


def _task_counts(change: TrialDifference) -> tuple[int, int]:
    return change.canary, change.live
