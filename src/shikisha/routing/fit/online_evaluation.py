"""Online evaluation: A/B trials of a canary, shadow evaluation, and the gate for promoting a policy.

A trial compares two policies that drew different tasks by content hash, so means are unpaired; only tasks on which the
two act differently count, times their share, with Newcombe's hybrid interval (1998). A shadow is followed on the live
policy's runs: where it would act the same, the outcome is known; elsewhere it is bounded by worst and best. The gate
promotes only where harm beyond a margin (right less often, no answer more often, higher cost) is excluded. Invariants:
the unit is the task, however often it ran; runs from before the current shares, and runs without the other policy's
decision, are left out; grades are separated by their basis, and a language model's grade counts only where trusted.
Promotion itself is a person's decision. Intervals are not corrected for repeated looks.

A policy that did not act is asked again at each round of a past run, with what the run knew then and nothing later.
Where it would have done all that the run did, the run's outcome is its own; elsewhere nothing is known. Where chance
drew what was done, inverse propensities (Horvitz and Thompson, 1952) weigh what was drawn by the recorded chances. They
hold only where these reach every task: then the mean weight is 1, and where its interval excludes 1, nothing is stated.
Invariants of such a replay: nothing is called; a language model's grades do not count; subtasks' wordings are not
compared.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil, hypot, prod
from typing import TypeAlias

from shikisha.core.call import Card
from shikisha.core.errors import PlanError, ShikishaError
from shikisha.core.events import GradeBasis
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.plan import Plan
from shikisha.core.run import RoundRecord, RoundResult, Run
from shikisha.engine.conductor import Conductor, Situation
from shikisha.engine.pool import Member
from shikisha.engine.worker import Reply, Request
from shikisha.evals.statistics import Bounds, difference_interval, mean, mean_interval, score_interval
from shikisha.outcomes.importers.journal_runs import plan_propensity
from shikisha.routing.policy_data import CANNOT_ACT, describe_action

MeasureFunction: TypeAlias = "Callable[[TrialRun], float | None]"
_BASIS_NAMES = {GradeBasis.EXECUTED: "checks", GradeBasis.PERSON: "people", GradeBasis.JUDGE: "a language model"}


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A run of the trial: its task, which policy acted, whether the other would have differed, and the result.

    `score` None: not graded. `dollars` None: unknown. `failed`: it ended without an answer.
    """

    task: str
    version: str
    differs: bool
    score: float | None
    basis: GradeBasis | None
    dollars: float | None
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
    """One policy's runs. `graded` counts its graded tasks by basis; a None estimate has no data."""

    version: str
    runs: int
    tasks: int
    graded: Mapping[GradeBasis, int]
    right: MeanEstimate | None
    dollars: MeanEstimate | None
    failed: MeanEstimate | None


@dataclass(frozen=True, slots=True)
class TrialDifference:
    """The difference of the canary to the live policy with its 95 % interval, and the tasks of each."""

    mean: float
    low: float
    high: float
    canary: int
    live: int


@dataclass(frozen=True, slots=True)
class CanaryTrial:
    """The results of a trial. `differing` is the share of the tasks on which the two act differently.

    `right` uses the grades that count for the decision, `by_basis` each basis alone. Differences are None where one arm
    has no data.
    """

    live: TrialArm
    canary: TrialArm
    differing: MeanEstimate
    right: TrialDifference | None
    by_basis: Mapping[GradeBasis, TrialDifference]
    dollars: TrialDifference | None
    failed: TrialDifference | None
    counts: tuple[GradeBasis, ...]


@dataclass(frozen=True, slots=True)
class _TrialMeasure:
    """A quantity to compare: how to read it from a run, its interval estimator, and its maximum difference."""

    of: MeasureFunction
    interval: Callable[[Sequence[float]], Bounds]
    span: float = 1.0


@dataclass(slots=True)
class _TaskValues:
    """Means by task of the runs that have a value: of all, and of those that differ."""

    all: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    differing: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def trial_runs(runs: Iterable[Run], live: str, canary: str, since: float = 0.0) -> list[TrialRun]:
    """Return the runs since then that belong to the trial of these two versions."""
    samples = (_trial_run(run, live, canary) for run in runs if run.started.at >= since)
    return [sample for sample in samples if sample is not None]


def evaluate_trial(
    samples: Sequence[TrialRun], live: str, canary: str, counts: Collection[GradeBasis] = tuple(GradeBasis)
) -> CanaryTrial:
    """Return the results of a trial; grades of these bases count for `right`."""
    canary_runs, live_runs = ([one for one in samples if one.version == version] for version in (canary, live))
    costs = [one.dollars for one in samples if one.dollars is not None]
    differing_by_task = _task_means(samples, lambda one: float(one.differs)).all
    share = _estimate_mean([mean(values) for values in differing_by_task.values()], score_interval) or MeanEstimate(
        0.0, 0.0, 1.0, 0
    )

    def compare(measure: _TrialMeasure) -> TrialDifference | None:
        return _estimate_difference(canary_runs, live_runs, share, measure)

    by_basis = {basis: compare(_TrialMeasure(_score_measure((basis,)), score_interval)) for basis in GradeBasis}
    return CanaryTrial(
        live=_build_arm(live_runs, live, counts),
        canary=_build_arm(canary_runs, canary, counts),
        differing=share,
        right=compare(_TrialMeasure(_score_measure(counts), score_interval)),
        by_basis={basis: change for basis, change in by_basis.items() if change is not None},
        dollars=compare(_TrialMeasure(lambda one: one.dollars, mean_interval, max(costs, default=0.0))),
        failed=compare(_TrialMeasure(lambda one: float(one.failed), score_interval)),
        counts=tuple(basis for basis in GradeBasis if basis in counts),
    )


def round_action(run: Run, turn: RoundRecord) -> str | None:
    """Describe what the plan of a round does; None while there is none."""
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
        failed=run.answer is None,
    )


def _score_measure(counts: Collection[GradeBasis]) -> MeasureFunction:
    return lambda one: one.score if one.basis in counts else None


def _build_arm(samples: Sequence[TrialRun], version: str, counts: Collection[GradeBasis]) -> TrialArm:
    def figure(measure: _TrialMeasure) -> MeanEstimate | None:
        return _estimate_mean(
            [mean(values) for values in _task_means(samples, measure.of).all.values()], measure.interval
        )

    return TrialArm(
        version,
        len(samples),
        len({one.task for one in samples}),
        {basis: len({one.task for one in samples if one.basis is basis}) for basis in GradeBasis},
        figure(_TrialMeasure(_score_measure(counts), score_interval)),
        figure(_TrialMeasure(lambda one: one.dollars, mean_interval)),
        figure(_TrialMeasure(lambda one: float(one.failed), score_interval)),
    )


def _task_means(samples: Sequence[TrialRun], of: MeasureFunction) -> _TaskValues:
    by_task = _TaskValues()
    for one in samples:
        value = of(one)
        if value is not None:
            by_task.all[one.task].append(value)
            if one.differs:
                by_task.differing[one.task].append(value)
    return by_task


def _estimate_mean(values: Sequence[float], interval: Callable[[Sequence[float]], Bounds]) -> MeanEstimate | None:
    return MeanEstimate(mean(values), *interval(values), len(values)) if values else None


def _estimate_difference(
    canary_runs: Sequence[TrialRun], live_runs: Sequence[TrialRun], share: MeanEstimate, measure: _TrialMeasure
) -> TrialDifference | None:
    """Return the difference in means: that of the tasks on which the arms differ, times their share."""
    arms = [_task_means(held, measure.of) for held in (canary_runs, live_runs)]
    counts = [len(arm.all) for arm in arms]
    if not all(counts):
        return None
    one, other = (_estimate_mean([mean(values) for values in arm.differing.values()], measure.interval) for arm in arms)
    if one is None or other is None:  # the difference where they part is unknown
        most = share.high * measure.span
        return TrialDifference(0.0, -most, most, *counts)
    gap = one.mean - other.mean
    low = hypot(one.mean - one.low, other.high - other.mean)
    high = hypot(one.high - one.mean, other.mean - other.low)
    share_error = abs(gap) * max(share.mean - share.low, share.high - share.mean)
    middle = share.mean * gap
    return TrialDifference(
        middle, middle - hypot(share.mean * low, share_error), middle + hypot(share.mean * high, share_error), *counts
    )


@dataclass(frozen=True, slots=True)
class ShadowedRun:
    """A live run with a shadow's decisions: whether the shadow would have done the `same`, and its known results.

    `live` is the run's score, None if not graded; `score` is the shadow's, None if unknown.
    """

    task: str
    same: bool
    live: float | None
    score: float | None


@dataclass(frozen=True, slots=True)
class ShadowResult:
    """What is known of a shadow: `same` and `known` are shares of the tasks.

    How much more often it is right lies between `low` and `high` (95 %).
    """

    version: str
    runs: int
    same: MeanEstimate | None
    known: MeanEstimate | None
    low: float
    high: float


def shadowed_runs(
    runs: Iterable[Run], live: str, shadow: str, counts: Collection[GradeBasis] = tuple(GradeBasis)
) -> list[ShadowedRun]:
    """Return the finished runs of the live policy with this shadow's decisions; grades of these bases count."""
    shadowed = []
    for run in runs:
        first = run.rounds[0].proposed if run.rounds else None
        if run.finished is not None and first is not None and first.version == live and shadow in first.beside:
            shadowed.append(_shadowed_run(run, shadow, counts))
    return shadowed


def evaluate_shadow(shadowed: Sequence[ShadowedRun], version: str) -> ShadowResult:
    """Return what these runs say about a shadow."""
    graded = [one for one in shadowed if one.live is not None]
    worst = _values_by_task(graded, lambda one: (one.score or 0.0) - (one.live or 0.0))
    best = _values_by_task(graded, lambda one: (1.0 if one.score is None else one.score) - (one.live or 0.0))
    return ShadowResult(
        version,
        len(shadowed),
        _share_estimate(shadowed, lambda one: float(one.same)),
        _share_estimate(graded, lambda one: float(one.score is not None)),
        difference_interval(worst)[0],
        difference_interval(best)[1],
    )


def _shadowed_run(run: Run, shadow: str, counts: Collection[GradeBasis]) -> ShadowedRun:
    grade = run.grade
    score = None if grade is None or grade.basis not in counts else grade.score
    for turn in run.rounds:
        if (turn.proposed.beside.get(shadow) if turn.proposed else None) != round_action(run, turn):
            return ShadowedRun(run.task.content_hash, same=False, live=score, score=None)
    return ShadowedRun(run.task.content_hash, same=True, live=score, score=score)


def _share_estimate(shadowed: Sequence[ShadowedRun], of: Callable[[ShadowedRun], float]) -> MeanEstimate | None:
    values = _values_by_task(shadowed, of)
    return MeanEstimate(mean(values), *score_interval(values), len(values)) if values else None


def _values_by_task(shadowed: Sequence[ShadowedRun], of: Callable[[ShadowedRun], float]) -> list[float]:
    by_task: dict[str, list[float]] = defaultdict(list)
    for one in shadowed:
        by_task[one.task].append(of(one))
    return [mean(values) for values in by_task.values()]


@dataclass(frozen=True, slots=True)
class PromotionLimits:
    """Harm that a trial must exclude: right, or answering, less often by more than `margin`; `dearer` higher cost.

    `dearer` is a share of the live policy's cost; `least` is the minimum number of graded tasks of either.
    """

    margin: float = 0.02
    dearer: float = 0.1
    least: int = 50


@dataclass(frozen=True, slots=True)
class PromotionVerdict:
    """Whether to promote, why not, and how many more canary tasks may change that (None: no number of them)."""

    promote: bool
    reasons: tuple[str, ...] = ()
    missing: int | None = 0


@dataclass(frozen=True, slots=True)
class _PromotionObjection:
    why: str
    missing: int | None


def trusted_bases(*, trust_judge: bool) -> tuple[GradeBasis, ...]:
    """Return the bases whose grades count."""
    return tuple(basis for basis in GradeBasis if trust_judge or basis is not GradeBasis.JUDGE)


def decide_promotion(trial: CanaryTrial, limits: PromotionLimits | None = None) -> PromotionVerdict:
    """Return the decision that follows from a trial."""
    bounds = limits or PromotionLimits()
    objections = [*_sample_size_objections(trial, bounds), *_harm_objections(trial, bounds)]
    missing_tasks = [objection.missing for objection in objections]
    missing = None if None in missing_tasks else max((need for need in missing_tasks if need is not None), default=0)
    return PromotionVerdict(not objections, tuple(objection.why for objection in objections), missing)


def _sample_size_objections(trial: CanaryTrial, limits: PromotionLimits) -> Iterator[_PromotionObjection]:
    judged = trial.canary.graded[GradeBasis.JUDGE] if GradeBasis.JUDGE not in trial.counts else 0
    judge_note = f"; {judged:,} more were graded by a language model alone, which does not count" if judged else ""
    for arm, name in ((trial.canary, "the canary"), (trial.live, "the live policy")):
        tasks = arm.right.tasks if arm.right else 0
        if tasks < limits.least:
            graders = " or ".join(_BASIS_NAMES[basis] for basis in trial.counts)
            yield _PromotionObjection(
                f"{tasks:,} tasks of {name} were graded by {graders}: at least {limits.least} are needed{judge_note}",
                limits.least - tasks,
            )
        judge_note = ""


def _harm_objections(trial: CanaryTrial, limits: PromotionLimits) -> Iterator[_PromotionObjection]:
    if trial.right is not None:
        yield from _loss_objections("right less often", trial.right, limits.margin, rare=not trial.differing.mean)
    if trial.failed is not None:
        failed = [arm.failed.mean for arm in (trial.canary, trial.live) if arm.failed]
        yield from _loss_objections(
            "without an answer more often", _negate_difference(trial.failed), limits.margin, rare=not any(failed)
        )
    live = trial.live.dollars
    if trial.dollars is not None and live is not None:
        savings = _negate_difference(trial.dollars)
        if not live.mean:
            yield from _loss_objections("expensive, where the live policy is free", savings, 0.0)
        else:
            relative = TrialDifference(
                savings.mean / live.mean, savings.low / live.mean, savings.high / live.mean, *_task_counts(savings)
            )
            yield from _loss_objections("more expensive", relative, limits.dearer)


def _loss_objections(
    what: str, change: TrialDifference, margin: float, *, rare: bool = False
) -> Iterator[_PromotionObjection]:
    """Object where a change may be worse by more than the margin.

    An interval narrows with the square root of the number of tasks, or, for events never observed (`rare`), linearly.
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


# a policy that did not act, asked again on past runs

LEAST_WEIGHED = 30  # tasks: of fewer, no interval of weights means anything


@dataclass(frozen=True, slots=True)
class FirstChoice:
    """Whom a policy would ask first: on how many tasks, and on how many of these that worker's answer was graded."""

    worker: str
    tasks: int
    known: int


@dataclass(frozen=True, slots=True)
class PastTraffic:
    """What past runs say of a policy. `refused` counts the runs for which it makes no plan, by reason.

    `acted` is how often the runs themselves were right. `reach` is the mean weight over the graded tasks whose chances
    are recorded; `right` and `dollars` (a task) are by inverse propensity, and None where that is not known.
    """

    decided: ShadowResult
    refused: Mapping[str, int]
    choices: tuple[FirstChoice, ...]
    acted: MeanEstimate | None
    reach: MeanEstimate | None
    right: MeanEstimate | None
    dollars: MeanEstimate | None


@dataclass(frozen=True, slots=True)
class _Decided:
    """A run with what the policy would have done: whom it asks first, and whether all else is the `same`."""

    run: Run
    first: str
    same: bool

    @property
    def score(self) -> float | None:
        """What a person or a program gave."""
        grade = self.run.grade
        return None if grade is None or grade.basis is GradeBasis.JUDGE else grade.score

    @property
    def weight(self) -> float | None:
        """One over the chance of what was done, 0 where the policy does otherwise; None where it is not recorded."""
        chances = [plan_propensity(turn) for turn in self.run.rounds if turn.plan is not None]
        known = [chance for chance in chances if chance is not None]
        if len(known) < len(chances) or not known:
            return None
        return 1 / prod(known) if self.same else 0.0


async def replay_traffic(
    runs: Iterable[Run], setting: Callable[[Run], tuple[Conductor, tuple[Card, ...]]], name: str
) -> PastTraffic:
    """Return what these runs say of a policy; `setting` returns its conductor for a run's pool, and that pool's cards.

    Runs that have not ended, and those whose texts were erased, are left out.
    """
    decided, refused = list[_Decided](), Counter[str]()
    for run in runs:
        if run.finished is None or run.erased is not None:
            continue
        try:
            decided.append(await _decide(run, *setting(run)))
        except (ShikishaError, ValueError, LookupError, ArithmeticError) as error:  # as for a shadow
            refused[error.what if isinstance(error, PlanError) else str(error)] += 1
    graded = [one for one in decided if one.score is not None]
    weighed = [(one, weight) for one in graded if (weight := one.weight) is not None]
    reach = _estimate((one, weight) for one, weight in weighed)
    holds = reach is not None and reach.tasks >= LEAST_WEIGHED and reach.low <= 1 <= reach.high
    paid = [(one, one.run.charged.dollars) for one, _ in weighed]
    priced = [(one, dollars) for one, dollars in paid if dollars is not None]
    seen = [
        ShadowedRun(one.run.task.content_hash, one.same, one.score, one.score if one.same else None) for one in decided
    ]
    return PastTraffic(
        evaluate_shadow(seen, name),
        refused,
        _choices(decided),
        _estimate(((one, one.score or 0.0) for one in graded), score_interval),
        reach,
        _estimate((one, weight * (one.score or 0.0)) for one, weight in weighed) if holds else None,
        _estimate((one, (one.weight or 0.0) * dollars) for one, dollars in priced)
        if holds and len(priced) == len(weighed)
        else None,
    )


async def _decide(run: Run, conductor: Conductor, cards: tuple[Card, ...]) -> _Decided:
    past, first, caps = list[RoundResult](), "", run.started.caps
    last = run.rounds[-1].proposed if run.rounds else None

    def decided(*, same: bool) -> _Decided:
        return _Decided(run, first, same)

    while True:
        steps = sum(len(each.plan) for each in past)
        left = replace(caps, rounds=max(0, caps.rounds - len(past)), steps=max(0, caps.steps - steps))
        made = await conductor.propose(Situation(run.task, cards, tuple(past), left, _ask_nobody))
        first = first or ", ".join(cards[step.worker].name for step in made.plan.steps)
        turn = run.rounds[len(past)] if len(past) < len(run.rounds) else None
        done = turn.plan if turn is not None and turn.plan else Plan()
        if _acts(made.plan) != _acts(done):
            return decided(same=False)
        if done.ships:
            kept = last.keeps if last is not None and turn is not None else None
            own = len(past) - 1
            return decided(same=(own if made.keeps is None else made.keeps) == (own if kept is None else kept))
        results = [] if turn is None else [result for result in turn.results if result is not None]
        if len(results) < len(done):
            raise PlanError("a step of the run has no result", run.id)
        past.append(RoundResult(done, tuple(results), made.version))
        if made.final:
            ends = len(past) == sum(bool(each.plan) for each in run.rounds)
            return decided(same=ends and (last is None or last.keeps in (None, len(past) - 1)))


def _acts(plan: Plan) -> list[tuple[int, object]]:
    return [(step.worker, step.access) for step in plan.steps]


async def _ask_nobody(_: Member, __: Request) -> Reply:
    raise PlanError("it asks a model for its plans, and a replay calls nothing", "replay")


def _choices(decided: Sequence[_Decided]) -> tuple[FirstChoice, ...]:
    asked: dict[str, set[str]] = defaultdict(set)
    known: dict[str, set[str]] = defaultdict(set)
    for one in decided:
        task, end = one.run.task.content_hash, one.run.finished
        asked[one.first].add(task)
        if one.score is not None and end is not None and end.round is not None and end.step is not None:
            step = one.run.round(end.round).steps.get(end.step)
            if step is not None and step.result is not None:
                known[step.result.worker].add(task)
    found = [FirstChoice(name, len(tasks), len(tasks & known[name])) for name, tasks in asked.items()]
    return tuple(sorted(found, key=lambda each: (-each.tasks, each.worker)))


def _estimate(
    values: Iterable[tuple[_Decided, float]], interval: Callable[[Sequence[float]], Bounds] = mean_interval
) -> MeanEstimate | None:
    by_task: dict[str, list[float]] = defaultdict(list)
    for one, value in values:
        by_task[one.run.task.content_hash].append(value)
    means = [mean(each) for each in by_task.values()]
    return MeanEstimate(mean(means), *interval(means), len(means)) if means else None
