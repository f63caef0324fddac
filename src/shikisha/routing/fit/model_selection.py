"""Model selection: fit all candidates, evaluate each on held-out tasks, select the best that the evidence supports.

Candidates from simple to complex are fitted for each of five outer folds and evaluated on the fold left out (of large
logs, only for as many folds as have enough tasks). The last one is the combined dial over the settings of all others
(`combined_dial`); it is selected unless the 95 % interval of its paired gain in area over the simplest one, at equal
spending, is harm. Without it, a more complex candidate is selected only where that interval over the one selected so
far excludes harm. Then all are fitted on all tasks.
Invariants: every figure reported of a candidate comes from tasks that neither its fit nor its operating points have
seen; folds depend on the content of tasks, so copies of a task share a fold; where workers are new, evidence covers the
others, and only the final fit includes new workers, whose uncertainty widens the errors of settings that ask them;
results depend neither on the number of cores nor on what runs at the same time.
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
from shikisha.routing.fit.combined_dial import CrossFittedRule, combine_candidates, setting_points
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
from shikisha.routing.fit.fit_router import cache_prompt_features, fit_router
from shikisha.routing.fit.fit_stopping_rule import (
    FittedStopping,
    StateCache,
    StoppingConfig,
    StoppingData,
    fit_stopping,
    fitted_frontier,
    rank_searched_workers,
    search_pools,
)
from shikisha.routing.fit.fit_table import RoutingPreference, evaluate_table, fit_table
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
    COMBINED,
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
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

TABLE, ROUTER, CASCADE, POLICY = "table", "router", "cascade", "policy"
FOLDS = 5
# Replaying more tasks takes time without changing the errors much.
MAX_REPLAYED_TASKS = 3_000
# With so many held-out tasks a difference in area is known to .002, and another fold costs another fit.
ENOUGH_EVALUATED = 5_000
# With fewer tasks only the table is fitted.
MIN_TASKS = 100
_Z = 1.96
# No difference of success makes up for this much.
_ALWAYS = 10.0
_SIMPLEST_FIRST = (TABLE, ROUTER, CASCADE, POLICY)
_MEASURED_BUDGETS = (*REPORTED_BUDGETS, *BUDGETS)
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """Options of learning: the seed of the folds, routing preferences, and the configuration of the stopping rule."""

    seed: int = 0
    preference: RoutingPreference | None = None
    config: StoppingConfig = field(default_factory=StoppingConfig)


@dataclass(frozen=True, slots=True)
class PolicyFit:
    """The rules, and the trade-off of each candidate over them, from the simplest candidate."""

    parts: tuple[DecisionRule, ...]
    dials: Mapping[str, TradeOff]


def fit_candidates(
    matrix: OutcomeMatrix, options: LearningOptions, names: Sequence[str], filled: OutcomeMatrix | None = None
) -> PolicyFit:
    """Fit these candidates on all tasks of a matrix, with imputed outcomes from `filled` for new workers."""
    unit, best_score, recorded = matrix.cost_unit(), float(matrix.mean_scores()[matrix.best_worker()]), matrix
    matrix = matrix if filled is None else filled
    folds = assign_folds(matrix.hashes, f"fit {options.seed}")
    scale = unit if filled is None else _fitting_unit(recorded, filled)
    by_candidate: dict[str, list[CrossFittedRule]] = {}
    stopping_rules = _fit_stepwise(matrix, folds, (options.config, scale, unit)) if POLICY in names else []
    ratio, silent = scale / unit, fill_missing_as_silent(matrix)
    table = fit_table(silent, folds, scale, options.preference)
    own_cost = evaluate_table(table.part, silent, scale)[1]
    tabled = _cross_fitted(table.part, table.won, table.cost, own_cost.mean(axis=0), ratio)
    by_candidate[TABLE] = [replace(tabled, expected=table.expected)]
    if ROUTER in names:
        router = fit_router(matrix, folds, scale, options.preference.speed if options.preference else 0.0)
        by_candidate[ROUTER] = [_cross_fitted(router.part, router.won, router.cost, router.cost.mean(axis=0), ratio)]
    if CASCADE in names:
        cascade = fit_cascade(matrix, folds, scale)
        by_candidate[CASCADE] = [_cross_fitted(cascade.part, cascade.won, cascade.cost, cascade.spent, ratio)]
    if POLICY in names:
        by_candidate[POLICY] = [
            *stopping_rules,
            *by_candidate[TABLE],
        ]  # not the cascade, whose promises are more optimistic
    singles = [_single_workers(table.part, silent, unit)] if COMBINED in names else []
    dials = TradeOff((), unit if matrix.paid.any() else 0.0, best_score)
    copies = len(matrix) // len(recorded)
    return _trim_unused(by_candidate, dials, copies, (singles, matrix.hashes))


def _cross_fitted(part: DecisionRule, won: Floats, cost: Floats, spent: Floats, ratio: float) -> CrossFittedRule:
    return CrossFittedRule(part, won, cost * ratio, spent * ratio)


def _single_workers(table: TableRule, matrix: OutcomeMatrix, unit: float) -> CrossFittedRule:
    """Return a rule that asks one worker for every task, a setting for each; nothing is fitted to its results."""
    workers = len(matrix.workers)
    part = replace(table, bonus=np.eye(workers) * _ALWAYS, prices=np.zeros(workers), sway=0.0)
    won, cost = evaluate_table(part, matrix, unit)
    return CrossFittedRule(part, won, cost, cost.mean(axis=0))


def _fitting_unit(recorded: OutcomeMatrix, filled: OutcomeMatrix) -> float:
    """Return the unit of cost while fitting: mean dollars of the best single worker, or of a better new worker.

    A new worker that is better and more expensive than the best would be ruled out by prices in units of a cheap
    worker.
    """
    best, with_imputed = recorded.best_worker(), replace(filled, there=filled.there | imputed_mask(filled))
    return max(_mean_paid(recorded)[best], _mean_paid(with_imputed)[with_imputed.best_worker()]) or 1.0


def _mean_paid(matrix: OutcomeMatrix) -> list[float]:
    """Return each worker's mean cost, added up as `OutcomeMatrix.cost_unit` does, so that units agree to the bit."""
    means: list[float] = (matrix.paid.sum(axis=0) / np.maximum(1, matrix.there.sum(axis=0))).tolist()
    return means


def _fit_stepwise(
    matrix: OutcomeMatrix, folds: Ints, settings: tuple[StoppingConfig, float, float]
) -> list[CrossFittedRule]:
    """Return the stopping rules.

    `settings` are the configuration and the units of cost, in fitting and as reported. Of a large pool only the workers
    that are searched take part: the pair weights of the others would take most of the time.
    """
    config, scale, unit = settings
    searched = np.sort(np.array(rank_searched_workers(matrix), np.int64))
    narrow = matrix.select_workers([matrix.workers[worker] for worker in searched])
    data = replace(StoppingData.of(narrow, folds, config), unit=scale)
    return [
        _cross_fitted(
            one.part.widen(searched.tolist(), len(matrix.workers)), one.won, one.cost, one.spent, scale / unit
        )
        for one in _fit_pools(data, search_pools(data))
    ]


def _fit_pools(data: StoppingData, pools: Sequence[tuple[int, ...]]) -> list[FittedStopping]:
    """Fit a stopping rule for each pool, with trees that read the answers where cross-fitting excludes harm by them."""
    plain = fit_stopping(data, pools[0])
    boosted = data.boosted(sorted({worker for pool in pools for worker in pool}))
    states = StateCache(boosted)
    states.share(pools[-1])
    if boosted is not data:
        reading = fit_stopping(boosted, pools[0], states=states)
        if trees_pay(fitted_frontier(reading), fitted_frontier(plain)):
            return [reading, *(fit_stopping(boosted, pool, states=states) for pool in pools[1:])]
    return [plain, *(fit_stopping(data, pool) for pool in pools[1:])]


def trees_pay(reading: Frontier, plain: Frontier) -> bool:
    """Whether the paired 95 % interval of what trees bring on tasks outside their fits excludes harm."""
    return paired_gain("", reading, plain).low > 0


def assign_folds(hashes: Sequence[str], salt: str, count: int = FOLDS) -> Ints:
    """Return [T]: the fold of each task, by its content; every fold has tasks where there are enough."""
    keys = [sha256(f"{salt}\0{content}".encode()).digest() for content in hashes]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([ranks[key] % count for key in keys], np.int64)


def num_evaluated_folds(folds: Ints) -> int:
    """Return how many outer folds are held out in turn: as many as have ENOUGH_EVALUATED tasks, or all."""
    tasks = np.cumsum(np.bincount(folds))
    return min(int(np.searchsorted(tasks, ENOUGH_EVALUATED)) + 1, len(tasks))


def _trim_unused(
    by_candidate: Mapping[str, list[CrossFittedRule]],
    empty: TradeOff,
    copies: int,
    combined: tuple[Sequence[CrossFittedRule], Sequence[str]] = ((), ()),
) -> PolicyFit:
    """Drop rules and settings that are on no trade-off; trade-offs are `empty` with points.

    `combined` are rules of single workers and the tasks' hashes: with those there is one dial over all candidates.
    """
    singles, hashes = combined
    rules: list[CrossFittedRule] = []
    for fitted in (*by_candidate.values(), singles):
        rules += [one for one in fitted if not any(one is other for other in rules)]

    def places_of(fitted: Sequence[CrossFittedRule]) -> list[int]:
        return [next(place for place, other in enumerate(rules) if other is one) for one in fitted]

    hulls = {}
    for candidate, fitted in by_candidate.items():
        points = [
            point
            for one, place in zip(fitted, places_of(fitted), strict=True)
            for point in setting_points([one], place, copies)
        ]
        hulls[candidate] = upper_hull(points)
    if singles:
        simplest_first = [places_of(by_candidate[name]) for name in _SIMPLEST_FIRST if name in by_candidate]
        hulls[COMBINED] = combine_candidates(rules, simplest_first, places_of(singles), (hashes, copies))
    used = sorted({(point.part, point.setting) for hull in hulls.values() for point in hull})
    parts: list[DecisionRule] = []
    moved: dict[tuple[int, int], tuple[int, int]] = {}
    for place in sorted({part for part, _ in used}):
        settings = [setting for part, setting in used if part == place]
        rule = rules[place].part
        for index, setting in enumerate(settings):
            moved[place, setting] = (len(parts), index if isinstance(rule, StoppingRule) else setting)
        parts.append(rule.select_settings(settings) if isinstance(rule, StoppingRule) else rule)
    dials = {
        candidate: replace(empty, points=tuple(_relocate_point(point, moved) for point in hull))
        for candidate, hull in hulls.items()
    }
    return PolicyFit(tuple(parts), dials)


def _relocate_point(point: OperatingPoint, moved: Mapping[tuple[int, int], tuple[int, int]]) -> OperatingPoint:
    part, setting = moved[point.part, point.setting]
    return OperatingPoint(part, setting, point.cost, point.accuracy, point.error)


def widen_errors(fitted: PolicyFit, matrix: OutcomeMatrix, seed: int = 0) -> PolicyFit:
    """Return the fit with errors widened by the uncertainty of new workers; unchanged without any.

    How probably a new worker is right is a logistic model with a covariance of its weights. Tasks are imputed twice and
    replayed with independent draws. Where both a new worker's outcome and the result differ, half the product of the
    differences, times the features, is on average the gradient of accuracy by those weights (likelihood-ratio
    identity), so a setting that never asks a new worker gets no wider. Uncertainty about costs is not included.
    """
    if not find_new_workers(matrix):
        return fitted
    imputations = _PairedImputations.of(replace(matrix, texts=()), seed)
    places = {(point.part, point.setting) for trade_off in fitted.dials.values() for point in trade_off.points}
    extra_errors = {place: imputations.error(fitted.parts[place[0]], place[1]) for place in sorted(places)}

    def wider(trade_off: TradeOff) -> TradeOff:
        points = [
            replace(point, error=hypot(point.error, extra_errors[point.part, point.setting]))
            for point in trade_off.points
        ]
        return replace(trade_off, points=tuple(points))

    return replace(fitted, dials={candidate: wider(trade_off) for candidate, trade_off in fitted.dials.items()})


@dataclass(frozen=True, slots=True)
class _PairedImputations:
    """The same tasks imputed twice; `doubts` are the index, features [T, p] and covariance of each new worker."""

    one: OutcomeMatrix
    other: OutcomeMatrix
    doubts: tuple[tuple[int, Floats, Floats], ...]

    @classmethod
    def of(cls, matrix: OutcomeMatrix, seed: int) -> "_PairedImputations":
        """Impute with draws that no fit has seen, and keep at most MAX_REPLAYED_TASKS tasks, drawn by content."""
        both, count, likeness = impute_outcomes(matrix, seed + 1, 2), len(matrix), fit_similarity(matrix)
        rows = np.sort(np.argsort(np.array(matrix.hashes), kind="stable")[:MAX_REPLAYED_TASKS])
        doubts = []
        for worker in find_new_workers(matrix):
            features, covariance = likeness.doubt(worker)
            doubts.append((worker, features[rows], covariance))
        return cls(both.at(rows), both.at(rows + count), tuple(doubts))

    def error(self, part: DecisionRule, setting: int) -> float:
        """Return the standard error that new workers add to this setting's score."""
        apart = replay(part, setting, self.one).won - replay(part, setting, self.other).won
        variance = 0.0
        for worker, features, covariance in self.doubts:
            right = (self.one.won[:, worker] > 0.5) * 1.0 - (self.other.won[:, worker] > 0.5)
            slope = (apart * right) @ features / (2 * len(features))
            variance += float(slope @ covariance @ slope)
        return float(np.sqrt(variance))


def core_executor() -> ThreadPoolExecutor:
    """Return an executor with one thread per core."""
    return ThreadPoolExecutor(len(sched_getaffinity(0)))


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit linear algebra to the calling thread; also a decorator.

    Matrices of a fit are small. A library that starts a thread per core spends its time waiting for them: five times
    the processor time on two cores.
    """
    try:
        import scipy.linalg  # noqa: F401  brings a library of its own, which must be there to be limited
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise MissingExtra("learn", "learning") from None
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where a matrix comes from: the log's name and hash, how its costs came about, and notes for readers."""

    log: str = "outcomes"
    log_hash: str = ""
    cost_kind: str = ""
    notes: tuple[str, ...] = ()


@single_threaded_blas()
def select_policy(
    matrix: OutcomeMatrix,
    options: LearningOptions | None = None,
    source: LogSource | None = None,
    report: ProgressCallback = lambda _: None,
) -> Policy:
    """Fit and evaluate all candidates on a full matrix and return the policy; `tell` receives progress."""
    settings, log_source = options or LearningOptions(), source or LogSource()
    established = without_new_workers(matrix)
    names, notes = candidate_names(established)
    if settings.preference and settings.preference.limits:
        names, notes = (TABLE,), (*notes, f"only the {TABLE} keeps load limits, so it is selected")
    if ROUTER in names:
        cache_prompt_features(matrix)  # once for all folds
    report("fitting on all tasks")
    with core_executor() as threads:
        final_fit = threads.submit(_fit_final, matrix, settings, names)
        evidence = _cross_validate(
            established, _options_without_new_workers(matrix, established, settings), names, (report, threads)
        )
        final = _widen_ungraded(final_fit.result(), matrix.graded_share)
    selected = choose_candidate(names, evidence)
    about = PolicyOrigin(
        log_source.log,
        log_source.log_hash,
        len(matrix),
        f"{datetime.now(UTC):%Y-%m-%d}",
        log_source.cost_kind,
        settings.seed,
        (*new_worker_notes(matrix), *log_source.notes, *notes),
    )
    evidence = _note_new_workers(evidence, [name for name in matrix.workers if name not in established.workers])
    candidates = tuple(Candidate(name, final.dials[name], evidence.get(name)) for name in names)
    return Policy(about, known_workers(matrix), matrix.types, final.parts, candidates, selected)


def _fit_final(matrix: OutcomeMatrix, options: LearningOptions, names: Sequence[str]) -> PolicyFit:
    """Fit on all tasks, with imputed outcomes of new workers."""
    if not find_new_workers(matrix):
        return fit_candidates(matrix, options, names)
    imputed = impute_outcomes(replace(matrix, texts=()), options.seed, num_imputations(matrix))
    return widen_errors(fit_candidates(matrix, options, names, imputed), matrix, options.seed)


def _widen_ungraded(fitted: PolicyFit, graded: float) -> PolicyFit:
    """Return the fit with the errors of as many tasks as were graded."""
    if graded >= 1:
        return fitted

    def wider(trade_off: TradeOff) -> TradeOff:
        points = [replace(point, error=point.error / max(graded, 1e-3) ** 0.5) for point in trade_off.points]
        return replace(trade_off, points=tuple(points))

    return replace(fitted, dials={candidate: wider(trade_off) for candidate, trade_off in fitted.dials.items()})


def _options_without_new_workers(
    matrix: OutcomeMatrix, established: OutcomeMatrix, options: LearningOptions
) -> LearningOptions:
    """Return the options for established workers: where all have load limits, they share those of new ones."""
    stated = options.preference
    if stated is None or not stated.limits or established is matrix:
        return options
    late = set(matrix.workers).difference(established.workers)
    limits = {name: share for name, share in stated.limits.items() if name not in late}
    total = sum(limits.values()) if len(limits) == len(established.workers) else 1.0
    if 0 < total < 1:
        limits = {name: share / total for name, share in limits.items()}
    return replace(options, preference=replace(stated, limits=limits))


def _note_new_workers(evidence: dict[str, HeldOutEvidence], late: Sequence[str]) -> dict[str, HeldOutEvidence]:
    """Return the evidence with a note about the workers it leaves out."""
    note = f"measured without {', '.join(late)}, who have too few outcomes; the trade-off includes them" if late else ""
    return {name: replace(one, note=note) for name, one in evidence.items()}


def candidate_names(matrix: OutcomeMatrix) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which candidates this matrix supports, and notes about those that it does not."""
    if len(matrix) < MIN_TASKS:
        return (TABLE,), (
            f"{len(matrix)} tasks are too few to learn more than the table: at least {MIN_TASKS} are needed",
        )
    if len(matrix.workers) < 2:
        return (TABLE,), ("with one worker there is nothing to choose",)
    if not matrix.answers:
        return (TABLE, ROUTER, COMBINED), ("the log has no answers, so agreement cannot be learned",)
    return (TABLE, CASCADE, POLICY, COMBINED), ()


def known_workers(matrix: OutcomeMatrix) -> tuple[KnownWorker, ...]:
    """Return the workers with their mean figures."""
    means, result = matrix.mean_scores(), []
    for column, name in enumerate(matrix.workers):
        recorded = matrix.there[:, column]
        seconds = matrix.seconds[recorded, column]
        tokens = matrix.tokens[recorded, column]
        result.append(
            KnownWorker(
                name,
                float(means[column]),
                float(matrix.paid[recorded, column].mean()) if recorded.any() else 0.0,
                int((~np.isnan(matrix.scores[:, column]) if matrix.graded is None else matrix.graded[:, column]).sum()),
                float(np.nanmean(seconds)) if not np.isnan(seconds).all() else None,
                float(np.nanmean(tokens)) if not np.isnan(tokens).all() else 0.0,
            )
        )
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _FoldEvaluation:
    """Results of the candidates on one outer fold: by budget, and as the trade-off promised ([B, 2]).

    `alike` are frontiers at equal spending: a candidate whose trade-off overspends must not look better for it.
    """

    contents: tuple[str, ...]
    frontiers: dict[str, Frontier]
    alike: dict[str, Frontier]
    promised: dict[str, Floats]


def _cross_validate(
    matrix: OutcomeMatrix,
    options: LearningOptions,
    names: Sequence[str],
    runtime: tuple[ProgressCallback, ThreadPoolExecutor],
) -> dict[str, HeldOutEvidence]:
    """Return the evidence for each candidate; none where there are too few tasks to hold some out."""
    report, threads = runtime
    if len(set(matrix.hashes)) < 2 * FOLDS:
        return {}
    folds = assign_folds(matrix.hashes, f"outer {options.seed}")

    count = num_evaluated_folds(folds)

    def one(fold: int) -> _FoldEvaluation:
        report(f"fold {fold + 1} of {count}")
        return _evaluate_fold(matrix, folds == fold, options, names)

    evaluations = list(threads.map(one, range(count)))
    return _build_evidence(evaluations, names, len(matrix.workers))


def _evaluate_fold(
    matrix: OutcomeMatrix, held_out: Flags, options: LearningOptions, names: Sequence[str]
) -> _FoldEvaluation:
    train, test = matrix.at(np.flatnonzero(~held_out)), matrix.at(np.flatnonzero(held_out)).for_evaluation()
    fitted, unit = fit_candidates(train, options, names), train.cost_unit()
    evaluation = _FoldEvaluation(test.hashes, {}, {}, {})
    for candidate in names:
        trade_off = fitted.dials[candidate]
        outcomes = replay_settings(fitted, trade_off.points, test, unit)
        evaluation.frontiers[candidate] = outcomes.frontier(trade_off, np.array(_MEASURED_BUDGETS))
        evaluation.alike[candidate] = outcomes.frontier(outcomes.corrected(trade_off), BUDGETS)
        mixes = [mix_for_budget(trade_off, budget) for budget in _MEASURED_BUDGETS]
        shares = [affordable_share(trade_off, budget) for budget in _MEASURED_BUDGETS]
        evaluation.promised[candidate] = np.array(
            [(share * mix.accuracy, share * mix.cost) for share, mix in zip(shares, mixes, strict=True)]
        )
    return evaluation


@dataclass(frozen=True, slots=True)
class SettingOutcomes:
    """Results of (rule, setting) pairs on some tasks: won and cost (units), [T, n]."""

    places: tuple[tuple[int, int], ...]
    won: Floats
    cost: Floats

    def frontier(self, trade_off: TradeOff, budgets: Floats) -> Frontier:
        """Return the frontier of a trade-off."""
        return compute_frontier(trade_off, self.won, self.cost, self.places, budgets)

    def corrected(self, trade_off: TradeOff) -> TradeOff:
        """Return the trade-off with the observed costs of its points; accuracies stay as promised."""
        costs = dict(zip(self.places, self.cost.mean(axis=0).tolist(), strict=True))
        points = [replace(point, cost=costs[point.part, point.setting]) for point in trade_off.points]
        return replace(trade_off, points=upper_hull(points))


def replay_settings(
    fitted: PolicyFit, points: Sequence[OperatingPoint], matrix: OutcomeMatrix, unit: float
) -> SettingOutcomes:
    """Replay these points on the tasks of a matrix."""
    places = tuple(sorted({(point.part, point.setting) for point in points}))
    runs = [replay(fitted.parts[part], setting, matrix) for part, setting in places]
    won, cost = (np.stack([getattr(run, name) for run in runs], axis=1) for name in ("won", "paid"))
    return SettingOutcomes(places, won, cost / unit)


def replay_frontier(
    fitted: PolicyFit, trade_off: TradeOff, matrix: OutcomeMatrix, unit: float, budgets: Floats
) -> Frontier:
    """Return the frontier of a trade-off on these tasks."""
    mixes = [mix_for_budget(trade_off, float(budget)) for budget in budgets]
    points = [point for mix in mixes for point in (mix.low, mix.high)]
    return replay_settings(fitted, points, matrix, unit).frontier(trade_off, budgets)


def _build_evidence(
    evaluations: Sequence[_FoldEvaluation], names: Sequence[str], workers: int
) -> dict[str, HeldOutEvidence]:
    frontiers = {
        candidate: concat_frontiers([fold.frontiers[candidate] for fold in evaluations]) for candidate in names
    }
    areas = {candidate: concat_frontiers([fold.alike[candidate] for fold in evaluations]) for candidate in names}
    contents = [content for fold in evaluations for content in fold.contents]
    evidence = {}
    for place, candidate in enumerate(names):
        below = names[:place]
        gains = tuple(paired_gain(name, areas[candidate], areas[name], contents) for name in reversed(below))
        promised = np.mean([fold.promised[candidate] for fold in evaluations], axis=0)
        front = frontiers[candidate]
        off = np.abs(promised - np.stack([front.won.mean(axis=0), front.cost.mean(axis=0)], axis=1)).mean(axis=0)
        evidence[candidate] = HeldOutEvidence(
            areas[candidate].area,
            _sorted_points(front),
            gains,
            (float(off[0]), float(off[1])),
            _outcomes_needed(gains, len(front.won), workers),
        )
    return evidence


def concat_frontiers(parts: Sequence[Frontier]) -> Frontier:
    """Return one frontier over the tasks of several."""
    won, cost = (np.concatenate([getattr(part, name) for part in parts]) for name in ("won", "cost"))
    return Frontier(parts[0].budgets, won, cost)


def _sorted_points(front: Frontier) -> tuple[FrontierPoint, ...]:
    return tuple(sorted(front.points(), key=lambda met: met.budget))


def _outcomes_needed(gains: Sequence[AreaGain], tasks: int, workers: int) -> int | None:
    """Return how many more outcomes would show the gain over the simpler candidate, if it is as estimated."""
    if not gains or gains[0].low > 0:
        return 0
    nearest = gains[0]
    if nearest.mean <= 0:
        return None
    error = (nearest.high - nearest.low) / (2 * _Z)
    return ceil(max(0.0, tasks * ((_Z * error / nearest.mean) ** 2 - 1)) * workers)


def choose_candidate(names: Sequence[str], evidence: Mapping[str, HeldOutEvidence]) -> str:
    """Return the combined dial, which weighs the candidates itself, unless it does harm.

    Without it, or where its gain over the simplest one excludes a benefit: the most complex candidate whose gain over
    the one chosen before it excludes harm.
    """
    combined = evidence.get(COMBINED)
    if combined and not any(one.over == names[0] and one.high < 0 for one in combined.gains):
        return COMBINED
    selected = names[0]
    for candidate in names[1:]:
        support = evidence.get(candidate)
        if support and any(one.over == selected and one.low > 0 for one in support.gains):
            selected = candidate
    return selected
