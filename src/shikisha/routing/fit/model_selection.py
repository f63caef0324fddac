"""The ladder: fit every rung, measure each on tasks that it has not seen, keep the best that can be defended.

Every rung is fitted anew for each of five outer folds and judged on the fold left out; a higher rung is kept only when
the 95 % interval of its paired gain in area, at equal spending, over the rung kept so far excludes harm. Then all is
fitted on all tasks. Invariant: whatever is said of a rung was found on tasks that neither its fit nor its dial has
seen; where workers joined late (`joining`), that is of the others, and only the last fit and its dials hold newcomers.
Deliberately absent: partial logs (`partial`), files, and words for people (the CLI and the page).

Fitting every rung on one set of tasks: the parts, and a dial over them for each rung.

Invariants: a dial's points are measured on tasks that were not in the fit (folds inside these tasks); folds hang on the
tasks' content, so that copies of a task are never on both sides; copies that filling in made are no more tasks, and
what was filled in is neither heard nor what costs are measured by. Deliberately absent: which rung to keep (`ladder`).

What the few outcomes of newcomers leave open: it comes on top of the error of every setting that asks them.

How probably a newcomer is right is a logistic model whose weights are known so well and no better (`borrowing`). Tasks
are filled in and played twice with lots of their own; where both a newcomer and the outcome differ, half the product of
the two differences, times the features, is in the mean how accuracy moves with those weights (the likelihood ratio
identity), so that a setting which never asks a newcomer is not in doubt. Invariant: errors only grow. Deliberately
absent: doubt about costs, and about whose wrong answers a newcomer shares.

Threads: fits run side by side, one on each core, and the linear algebra inside them has no threads of its own.

The matrices of a fit are small. A linear algebra library that starts a thread for each core spends its time waiting for
them, the more so where every core is busy already: five times the processor time on two cores. Invariant: what a fit
comes to hangs neither on how many cores there are nor on what runs beside it. Deliberately absent: processes, which
would each need the whole panel.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil, hypot
from os import sched_getaffinity

import numpy as np

from shikisha.core.errors import MissingExtra
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.cost_frontier import (
    BUDGETS,
    REPORTED_BUDGETS,
    Frontier,
    affordable_share,
    compute_frontier,
    mix_for_budget,
    paired_gain,
)
from shikisha.routing.fit.fit_cascade import fit_cascade
from shikisha.routing.fit.fit_response_model import fit_response_model
from shikisha.routing.fit.fit_router import cache_prompt_features, fit_router
from shikisha.routing.fit.fit_stopping_rule import (
    StoppingConfig,
    StoppingData,
    area_under_frontier,
    fit_stopping,
    search_pools,
)
from shikisha.routing.fit.fit_table import RoutingPreference, fit_table
from shikisha.routing.fit.log_quality import new_worker_notes
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.new_workers import (
    find_new_workers,
    fit_similarity,
    impute_outcomes,
    imputed_mask,
    num_imputations,
    without_new_workers,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, fill_missing_as_silent
from shikisha.routing.policy_data import (
    AreaGain,
    Candidate,
    FrontierPoint,
    HeldOutEvidence,
    KnownWorker,
    Policy,
    PolicyOrigin,
)
from shikisha.routing.state import DecisionRule
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.text_features import ResponseModel
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

TABLE, ROUTER, CASCADE, POLICY = "table", "router", "cascade", "policy"
FOLDS = 5


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """What a user wants of learning: which folds, and what the rule prefers besides."""

    seed: int = 0
    preference: RoutingPreference | None = None
    recipe: StoppingConfig = field(default_factory=StoppingConfig)


@dataclass(frozen=True, slots=True)
class CrossFittedRule:
    """A part, and what each of its settings came to on tasks that were not in the fit, [T, L]."""

    part: DecisionRule
    won: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class PolicyFit:
    """The parts, and the dial of each rung over them, from the simplest rung."""

    parts: tuple[DecisionRule, ...]
    dials: Mapping[str, TradeOff]
    hearing: ResponseModel | None = None


def fit_candidates(
    panel: OutcomeMatrix, wants: LearningOptions, rungs: Sequence[str], filled: OutcomeMatrix | None = None
) -> PolicyFit:
    """Fit these rungs on all tasks of a panel, as it was `filled` in where workers joined late (`joining`)."""
    unit, best, recorded = panel.cost_unit(), float(panel.mean_scores()[panel.best_worker()]), panel
    panel = panel if filled is None else filled
    folds = assign_folds(panel.hashes, f"fit {wants.seed}")
    scale = unit if filled is None else _fitting_unit(recorded, filled)
    made: dict[str, list[CrossFittedRule]] = {}
    hearing: ResponseModel | None = None
    induced: list[CrossFittedRule] = []
    if POLICY in rungs:
        ground = replace(StoppingData.of(panel, folds, wants.recipe), unit=scale)
        chosen = search_pools(ground)
        hearing, ground = _fit_responses(ground, chosen[0], recorded)
        panel = ground.panel
        fitted = (fit_stopping(ground, pool) for pool in chosen)
        induced = [CrossFittedRule(one.part, one.won, one.cost * (scale / unit)) for one in fitted]
    tabled = fit_table(fill_missing_as_silent(panel), folds, scale, wants.preference)
    made[TABLE] = [CrossFittedRule(tabled.part, tabled.won, tabled.cost * (scale / unit))]
    if ROUTER in rungs:
        routed = fit_router(panel, folds, scale, wants.preference.speed if wants.preference else 0.0)
        made[ROUTER] = [CrossFittedRule(routed.part, routed.won, routed.cost * (scale / unit))]
    if CASCADE in rungs:
        cascaded = fit_cascade(panel, folds, scale)
        made[CASCADE] = [CrossFittedRule(cascaded.part, cascaded.won, cascaded.cost * (scale / unit))]
    if POLICY in rungs:
        made[POLICY] = [*induced, *made[TABLE]]  # not the cascade: its promises are the more hopeful ones
    dials = TradeOff((), unit if panel.paid.any() else 0.0, best)
    return replace(_trim_unused(made, dials, len(panel) // len(recorded)), hearing=hearing)


def _fitting_unit(recorded: OutcomeMatrix, filled: OutcomeMatrix) -> float:
    """Return what one unit of cost is while fitting: the mean dollars of the best single worker, or of a newcomer.

    That is where one is thought better than the best and is dearer: prices in units of a cheap worker would bar it.
    """
    best, thought = recorded.best_worker(), replace(filled, there=filled.there | imputed_mask(filled))
    hoped = thought.best_worker()
    paid = float(recorded.paid[:, best].sum() / max(1, recorded.there[:, best].sum()))
    return max(paid, float(thought.paid[:, hoped].sum() / max(1, thought.there[:, hoped].sum()))) or 1.0


def _fit_responses(
    deaf: StoppingData, pool: Sequence[int], recorded: OutcomeMatrix
) -> tuple[ResponseModel | None, StoppingData]:
    """Return a hearing, and what fits share with it; without one where the texts bring this pool nothing."""
    hearing, told = fit_response_model(recorded, deaf.folds[: len(recorded)])
    if hearing is None or told is None:
        return None, deaf
    tells = np.tile(told, (len(deaf.panel) // len(recorded), 1))
    ground = replace(StoppingData.of(replace(deaf.panel, tells=tells), deaf.folds, deaf.recipe), unit=deaf.unit)
    better = area_under_frontier(fit_stopping(ground, pool)) > area_under_frontier(fit_stopping(deaf, pool))
    return (hearing, ground) if better else (None, deaf)


def assign_folds(hashes: Sequence[str], salt: str, count: int = FOLDS) -> Ints:
    """[T]: the fold of each task, by its content; every fold has tasks where there are enough."""
    keys = [sha256(f"{salt}\0{content}".encode()).digest() for content in hashes]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([ranks[key] % count for key in keys], np.int64)


def setting_points(tried: Sequence[CrossFittedRule], first: int = 0, copies: int = 1) -> list[OperatingPoint]:
    """Return a point for each setting of each part, which are counted from `first`; tasks are there so many times."""
    found = []
    for place, one in enumerate(tried, first):
        errors = one.won.std(axis=0) / np.sqrt(max(1, len(one.won) // copies))
        for setting in range(one.won.shape[1]):
            cost, won = float(one.cost[:, setting].mean()), float(one.won[:, setting].mean())
            found.append(OperatingPoint(place, setting, cost, won, float(errors[setting])))
    return found


def _trim_unused(made: Mapping[str, list[CrossFittedRule]], empty: TradeOff, copies: int) -> PolicyFit:
    """Return the parts and settings that some dial stands on, and nothing else; dials are `empty` with points."""
    every: list[CrossFittedRule] = []
    for tried in made.values():
        every += [one for one in tried if not any(one is other for other in every)]
    hulls = {}
    for rung, tried in made.items():
        places = [next(place for place, other in enumerate(every) if other is one) for one in tried]
        points = [
            point for one, place in zip(tried, places, strict=True) for point in setting_points([one], place, copies)
        ]
        hulls[rung] = upper_hull(points)
    used = sorted({(point.part, point.setting) for hull in hulls.values() for point in hull})
    parts: list[DecisionRule] = []
    moved: dict[tuple[int, int], tuple[int, int]] = {}
    for place in sorted({part for part, _ in used}):
        settings = [setting for part, setting in used if part == place]
        held = every[place].part
        for index, setting in enumerate(settings):
            moved[place, setting] = (len(parts), index if isinstance(held, StoppingRule) else setting)
        parts.append(held.select_settings(settings) if isinstance(held, StoppingRule) else held)
    dials = {
        rung: replace(empty, points=tuple(_relocate_point(point, moved) for point in hull))
        for rung, hull in hulls.items()
    }
    return PolicyFit(tuple(parts), dials)


def _relocate_point(point: OperatingPoint, moved: Mapping[tuple[int, int], tuple[int, int]]) -> OperatingPoint:
    part, setting = moved[point.part, point.setting]
    return OperatingPoint(part, setting, point.cost, point.accuracy, point.error)


MAX_REPLAYED_TASKS = 3_000  # tasks that are played


def widen_errors(fitted: PolicyFit, panel: OutcomeMatrix, seed: int = 0) -> PolicyFit:
    """Return the fit with errors that hold how little is known of a panel's newcomers; without any as it is."""
    if not find_new_workers(panel):
        return fitted
    twice = _PairedImputations.of(replace(panel.with_response_model(fitted.hearing), texts=()), seed)
    places = {(point.part, point.setting) for dial in fitted.dials.values() for point in dial.points}
    more = {place: twice.error(fitted.parts[place[0]], place[1]) for place in sorted(places)}

    def wider(dial: TradeOff) -> TradeOff:
        points = [replace(point, error=hypot(point.error, more[point.part, point.setting])) for point in dial.points]
        return replace(dial, points=tuple(points))

    return replace(fitted, dials={rung: wider(dial) for rung, dial in fitted.dials.items()})


@dataclass(frozen=True, slots=True)
class _PairedImputations:
    """The same tasks filled in twice; `doubts` are, for each newcomer, its place, features [T, p] and covariance."""

    one: OutcomeMatrix
    other: OutcomeMatrix
    doubts: tuple[tuple[int, Floats, Floats], ...]

    @classmethod
    def of(cls, panel: OutcomeMatrix, seed: int) -> "_PairedImputations":
        """Fill in, with lots that no fit has seen, and keep at most MOST tasks, drawn by their content."""
        both, count, likeness = impute_outcomes(panel, seed + 1, 2), len(panel), fit_similarity(panel)
        rows = np.sort(np.argsort(np.array(panel.hashes), kind="stable")[:MAX_REPLAYED_TASKS])
        doubts = []
        for worker in find_new_workers(panel):
            features, covariance = likeness.doubt(worker)
            doubts.append((worker, features[rows], covariance))
        return cls(both.at(rows), both.at(rows + count), tuple(doubts))

    def error(self, part: DecisionRule, setting: int) -> float:
        """Return the standard error that newcomers add to what this setting wins."""
        apart = replay(part, setting, self.one).won - replay(part, setting, self.other).won
        variance = 0.0
        for worker, features, covariance in self.doubts:
            right = (self.one.won[:, worker] > 0.5) * 1.0 - (self.other.won[:, worker] > 0.5)
            slope = (apart * right) @ features / (2 * len(features))
            variance += float(slope @ covariance @ slope)
        return float(np.sqrt(variance))


def core_executor() -> ThreadPoolExecutor:
    """Return what runs as many functions at a time as there are cores, in the order in which they are submitted."""
    return ThreadPoolExecutor(len(sched_getaffinity(0)))


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep linear algebra to the thread that calls it; also a decorator."""
    try:
        import scipy.linalg  # noqa: F401  brings a library of its own, which must be there to be limited
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise MissingExtra("learn", "learning") from None
    with threadpool_limits(limits=1, user_api="blas"):
        yield


MIN_TASKS = 100  # tasks below which nothing but the rule is fitted
_Z = 1.96
_MEASURED_BUDGETS = (*REPORTED_BUDGETS, *BUDGETS)


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where a panel comes from: the log's name and hash, how its costs came about, and what must be said of it."""

    log: str = "outcomes"
    log_hash: str = ""
    cost_kind: str = ""
    notes: tuple[str, ...] = ()


ProgressCallback = Callable[[str], None]


@single_threaded_blas()
def select_policy(
    panel: OutcomeMatrix,
    wants: LearningOptions | None = None,
    source: LogSource | None = None,
    tell: ProgressCallback = lambda _: None,
) -> Policy:
    """Fit the ladder on a full panel and return the policy; `tell` hears how it goes."""
    held, come = wants or LearningOptions(), source or LogSource()
    others = without_new_workers(panel)
    rungs, notes = candidate_names(others)
    if held.preference and held.preference.limits:
        rungs, notes = (TABLE,), (*notes, f"load limits are kept by the {TABLE} alone, which is kept for that")
    if ROUTER in rungs:
        cache_prompt_features(panel)  # once for all folds
    tell("fitting on all tasks")
    with core_executor() as threads:
        fitting = threads.submit(_fit_final, panel, held, rungs)
        evidence = _cross_validate(others, _options_without_new_workers(panel, others, held), rungs, (tell, threads))
        final = fitting.result()
    kept = choose_candidate(rungs, evidence)
    about = PolicyOrigin(
        come.log,
        come.log_hash,
        len(panel),
        f"{datetime.now(UTC):%Y-%m-%d}",
        come.cost_kind,
        held.seed,
        (*new_worker_notes(panel), *come.notes, *notes),
    )
    evidence = _note_new_workers(evidence, [name for name in panel.workers if name not in others.workers])
    made = tuple(Candidate(name, final.dials[name], evidence.get(name)) for name in rungs)
    return Policy(about, known_workers(panel), panel.types, final.parts, made, kept, hearing=final.hearing)


def _fit_final(panel: OutcomeMatrix, wants: LearningOptions, rungs: Sequence[str]) -> PolicyFit:
    """Fit on all tasks, with all that newcomers were not asked filled in."""
    if not find_new_workers(panel):
        return fit_candidates(panel, wants, rungs)
    filled = impute_outcomes(replace(panel, texts=()), wants.seed, num_imputations(panel))
    return widen_errors(fit_candidates(panel, wants, rungs, filled), panel, wants.seed)


def _options_without_new_workers(
    panel: OutcomeMatrix, others: OutcomeMatrix, wants: LearningOptions
) -> LearningOptions:
    """Return what is wanted of the others alone: where all have load limits, they share what newcomers would take."""
    held = wants.preference
    if held is None or not held.limits or others is panel:
        return wants
    late = set(panel.workers).difference(others.workers)
    limits = {name: share for name, share in held.limits.items() if name not in late}
    total = sum(limits.values()) if len(limits) == len(others.workers) else 1.0
    if 0 < total < 1:
        limits = {name: share / total for name, share in limits.items()}
    return replace(wants, preference=replace(held, limits=limits))


def _note_new_workers(evidence: dict[str, HeldOutEvidence], late: Sequence[str]) -> dict[str, HeldOutEvidence]:
    """Return the evidence with whom it leaves out."""
    note = f"measured without {', '.join(late)}, of whom too few outcomes are known; the dial has them" if late else ""
    return {name: replace(one, note=note) for name, one in evidence.items()}


def candidate_names(panel: OutcomeMatrix) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which rungs this panel can carry, and what must be said of those that it cannot."""
    if len(panel) < MIN_TASKS:
        return (TABLE,), (
            f"{len(panel)} tasks are too few to learn more than the rule from: {MIN_TASKS} are the least",
        )
    if len(panel.workers) < 2:
        return (TABLE,), ("one worker leaves nothing to choose",)
    if not panel.answers:
        return (TABLE, ROUTER), ("the log has no answers, so nothing can be learned from whether they agree",)
    return (TABLE, CASCADE, POLICY), ()


def known_workers(panel: OutcomeMatrix) -> tuple[KnownWorker, ...]:
    """Return the workers as the panel knows them."""
    means, found = panel.mean_scores(), []
    for column, name in enumerate(panel.workers):
        there = panel.there[:, column]
        seconds = panel.seconds[there, column]
        tokens = panel.tokens[there, column]
        found.append(
            KnownWorker(
                name,
                float(means[column]),
                float(panel.paid[there, column].mean()) if there.any() else 0.0,
                int((~np.isnan(panel.scores[:, column])).sum()),
                float(np.nanmean(seconds)) if not np.isnan(seconds).all() else None,
                float(np.nanmean(tokens)) if not np.isnan(tokens).all() else 0.0,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _FoldEvaluation:
    """What the rungs came to on one outer fold: what budgets came to, and what the dial had promised ([B, 2]).

    `alike` are frontiers at equal spending: a rung whose dial overspends must not look better for that.
    """

    contents: tuple[str, ...]
    frontiers: dict[str, Frontier]
    alike: dict[str, Frontier]
    promised: dict[str, Floats]


def _cross_validate(
    panel: OutcomeMatrix,
    wants: LearningOptions,
    rungs: Sequence[str],
    beside: tuple[ProgressCallback, ThreadPoolExecutor],
) -> dict[str, HeldOutEvidence]:
    """Return the evidence for each rung; none where there are too few tasks to hold some back."""
    tell, threads = beside
    if len(set(panel.hashes)) < 2 * FOLDS:
        return {}
    folds = assign_folds(panel.hashes, f"outer {wants.seed}")

    def one(fold: int) -> _FoldEvaluation:
        tell(f"fold {fold + 1} of {FOLDS}")
        return _evaluate_fold(panel, folds == fold, wants, rungs)

    judged = list(threads.map(one, range(FOLDS)))
    return _build_evidence(judged, rungs, len(panel.workers))


def _evaluate_fold(panel: OutcomeMatrix, held: Flags, wants: LearningOptions, rungs: Sequence[str]) -> _FoldEvaluation:
    train, rest = panel.at(np.flatnonzero(~held)), panel.at(np.flatnonzero(held))
    fitted, unit = fit_candidates(train, wants, rungs), train.cost_unit()
    judged = _FoldEvaluation(rest.hashes, {}, {}, {})
    for rung in rungs:
        dial = fitted.dials[rung]
        trial = replay_settings(fitted, dial.points, rest, unit)
        judged.frontiers[rung] = trial.frontier(dial, np.array(_MEASURED_BUDGETS))
        judged.alike[rung] = trial.frontier(trial.corrected(dial), BUDGETS)
        mixes = [mix_for_budget(dial, budget) for budget in _MEASURED_BUDGETS]
        paid = [affordable_share(dial, budget) for budget in _MEASURED_BUDGETS]
        judged.promised[rung] = np.array(
            [(share * mix.accuracy, share * mix.cost) for share, mix in zip(paid, mixes, strict=True)]
        )
    return judged


@dataclass(frozen=True, slots=True)
class SettingOutcomes:
    """What (part, setting) pairs came to on some tasks: won and cost (units), [T, n]."""

    places: tuple[tuple[int, int], ...]
    won: Floats
    cost: Floats

    def frontier(self, dial: TradeOff, budgets: Floats) -> Frontier:
        """Return what a dial's budgets come to."""
        return compute_frontier(dial, self.won, self.cost, self.places, budgets)

    def corrected(self, dial: TradeOff) -> TradeOff:
        """Return the dial with what its points cost on these tasks; what they win stays as it was promised."""
        costs = dict(zip(self.places, self.cost.mean(axis=0).tolist(), strict=True))
        points = [replace(point, cost=costs[point.part, point.setting]) for point in dial.points]
        return replace(dial, points=upper_hull(points))


def replay_settings(
    fitted: PolicyFit, points: Sequence[OperatingPoint], panel: OutcomeMatrix, unit: float
) -> SettingOutcomes:
    """Play these points on the tasks of a panel."""
    places = tuple(sorted({(point.part, point.setting) for point in points}))
    heard = panel.with_response_model(fitted.hearing)
    runs = [replay(fitted.parts[part], setting, heard) for part, setting in places]
    won, cost = (np.stack([getattr(run, name) for run in runs], axis=1) for name in ("won", "paid"))
    return SettingOutcomes(places, won, cost / unit)


def replay_frontier(fitted: PolicyFit, dial: TradeOff, panel: OutcomeMatrix, unit: float, budgets: Floats) -> Frontier:
    """Return what a dial's budgets come to on these tasks."""
    mixes = [mix_for_budget(dial, float(budget)) for budget in budgets]
    points = [point for mix in mixes for point in (mix.low, mix.high)]
    return replay_settings(fitted, points, panel, unit).frontier(dial, budgets)


def _build_evidence(
    judged: Sequence[_FoldEvaluation], rungs: Sequence[str], workers: int
) -> dict[str, HeldOutEvidence]:
    whole = {rung: concat_frontiers([fold.frontiers[rung] for fold in judged]) for rung in rungs}
    areas = {rung: concat_frontiers([fold.alike[rung] for fold in judged]) for rung in rungs}
    contents = [content for fold in judged for content in fold.contents]
    found = {}
    for place, rung in enumerate(rungs):
        below = rungs[:place]
        gains = tuple(paired_gain(name, areas[rung], areas[name], contents) for name in reversed(below))
        promised = np.mean([fold.promised[rung] for fold in judged], axis=0)
        front = whole[rung]
        off = np.abs(promised - np.stack([front.won.mean(axis=0), front.cost.mean(axis=0)], axis=1)).mean(axis=0)
        found[rung] = HeldOutEvidence(
            areas[rung].area,
            _sorted_points(front),
            gains,
            (float(off[0]), float(off[1])),
            _outcomes_needed(gains, len(front.won), workers),
        )
    return found


def concat_frontiers(parts: Sequence[Frontier]) -> Frontier:
    """Return one frontier over the tasks of several."""
    won, cost = (np.concatenate([getattr(part, name) for part in parts]) for name in ("won", "cost"))
    return Frontier(parts[0].budgets, won, cost)


def _sorted_points(front: Frontier) -> tuple[FrontierPoint, ...]:
    return tuple(sorted(front.points(), key=lambda met: met.budget))


def _outcomes_needed(gains: Sequence[AreaGain], tasks: int, workers: int) -> int | None:
    """Return how many more outcomes it would take for the gain over the rung below to show, if it is what it seems."""
    if not gains or gains[0].low > 0:
        return 0
    nearest = gains[0]
    if nearest.mean <= 0:
        return None
    error = (nearest.high - nearest.low) / (2 * _Z)
    return ceil(max(0.0, tasks * ((_Z * error / nearest.mean) ** 2 - 1)) * workers)


def choose_candidate(rungs: Sequence[str], evidence: Mapping[str, HeldOutEvidence]) -> str:
    """Return the highest rung whose gain over the one kept before it excludes harm."""
    kept = rungs[0]
    for rung in rungs[1:]:
        proof = evidence.get(rung)
        if proof and any(one.over == kept and one.low > 0 for one in proof.gains):
            kept = rung
    return kept
