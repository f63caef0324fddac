"""Model selection: fit all candidates once, judge each by what it does on tasks that it was not fitted on.

Candidates from simple to complex: the table, the stepwise policy that reads answers, and the combined dial over the
settings of both and single workers (`combined_dial`). Every rule is cross-fitted: what a task earns under it comes from
a fit without the task. Which settings a dial holds is chosen anew without each fold of tasks, and measured on that
fold, so that no choice is judged by the tasks that made it. The combined dial is selected unless the 95 % interval of
its paired gain in area over the table, at equal spending, is harm; without it, a more complex candidate is selected
only where that interval excludes harm.
Invariants: every figure reported of a candidate comes from tasks that neither its fit nor its choice of settings has
seen; folds depend on the content of tasks, so copies of a task share a fold; the stepwise policy, and with it all that
is measured, takes at most POLICY_TASKS tasks, drawn by content; results do not depend on the number of cores.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256

import numpy as np

from shikisha.core.errors import MissingExtra, UnknownName
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.combined_dial import (
    CrossFittedRule,
    combine_candidates,
    content_folds,
    setting_points,
)
from shikisha.routing.fit.cost_frontier import (
    BUDGETS,
    compute_frontier,
    paired_gain,
)
from shikisha.routing.fit.fit_stopping_rule import StoppingConfig, StoppingData, fit_stopping
from shikisha.routing.fit.fit_table import evaluate_table, fit_table
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, fill_missing_as_silent
from shikisha.routing.fit.policy_figures import choose_candidate
from shikisha.routing.fit.verdict import (
    MARGINS,
    MEASURED_BUDGETS,
    HeldOutTrial,
    reach_verdict,
    target_mix,
    untold_verdict,
)
from shikisha.routing.policy_data import (
    COMBINED,
    Baseline,
    Candidate,
    HeldOutEvidence,
    KnownWorker,
    Policy,
    PolicyOrigin,
    best_worker,
)
from shikisha.routing.state import DecisionRule
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

TABLE, POLICY = "table", "policy"
BEST_SINGLE, SINGLE_MIX = "best single worker", "random mix"
FOLDS = 5
# The stepwise policy's time and memory grow with the tasks. On MP13 it lost .005 of area with 2,000 of 5,900.
POLICY_TASKS = 6_000
# Workers that the stepwise policy may ask: it is fitted on all sets of them.
POOL_SIZE = 6
# The accuracy that one unit of cost must bring, where workers are chosen for the pool.
_POOL_PRICES = (0.0, 0.05, 0.3)
# With fewer tasks only the table is fitted.
MIN_TASKS = 100
# No difference of success makes up for this much.
_ALWAYS = 10.0
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """Options of learning: the seed of the folds, and the configuration of the stopping rule.

    `rung` is the candidate to select whatever the evidence says ("": none).
    """

    seed: int = 0
    rung: str = ""
    config: StoppingConfig = field(default_factory=StoppingConfig)


@dataclass(frozen=True, slots=True)
class PolicyFit:
    """The rules, and the trade-off of each candidate over them, from the simplest candidate.

    `trials` hold what candidates and baselines did on held-out tasks; empty where there are too few.
    """

    parts: tuple[DecisionRule, ...]
    dials: Mapping[str, TradeOff]
    trials: Mapping[str, HeldOutTrial] = field(default_factory=dict)


def fit_candidates(
    matrix: OutcomeMatrix,
    options: LearningOptions,
    names: Sequence[str],
    report: ProgressCallback = lambda _: None,
) -> PolicyFit:
    """Fit these candidates on a full matrix, and measure them on the tasks that each fit left out."""
    unit, best_score = matrix.cost_unit(), float(matrix.mean_scores()[matrix.best_worker()])
    folds, silent = assign_folds(matrix.hashes, f"fit {options.seed}"), fill_missing_as_silent(matrix)
    rows = measured_rows(matrix, names)
    report("table")
    table = fit_table(silent, folds, unit)
    own_cost = evaluate_table(table.part, silent, unit)[1].mean(axis=0)
    fitted = {TABLE: CrossFittedRule(table.part, table.won, table.cost, own_cost, table.expected).at(rows)}
    if POLICY in names:
        report("stepwise policy")
        fitted[POLICY] = _fit_stepwise(matrix.at(rows), folds[rows], options.config, unit)
    singles = _single_workers(table.part, silent.at(rows), unit)
    board = SettingBoard.of(fitted, singles, tuple(names), matrix.at(rows).hashes)
    report("measuring on held-out tasks")
    return judge_board(board, TradeOff((), unit if matrix.paid.any() else 0.0, best_score))


def _fit_stepwise(matrix: OutcomeMatrix, folds: Ints, config: StoppingConfig, unit: float) -> CrossFittedRule:
    """Return the stopping rule over a pool of the workers that are worth most, at each of _POOL_PRICES in turn."""
    means, costs = matrix.mean_scores(), matrix.paid.mean(axis=0) / (unit or 1.0)
    ranked = [np.argsort(price * costs - means, kind="stable").tolist() for price in _POOL_PRICES]
    in_turn = [worker for place in zip(*ranked, strict=True) for worker in place]
    pool = sorted(list(dict.fromkeys(in_turn))[:POOL_SIZE])
    data = replace(StoppingData.of(matrix, folds, config), unit=unit).boosted(pool)
    one = fit_stopping(data, pool)
    return CrossFittedRule(one.part, one.won, one.cost, one.spent)


def _single_workers(table: TableRule, matrix: OutcomeMatrix, unit: float) -> CrossFittedRule:
    """Return a rule that asks one worker for every task, a setting for each; nothing is fitted to its results."""
    workers = len(matrix.workers)
    part = replace(table, bonus=np.eye(workers) * _ALWAYS, prices=np.zeros(workers))
    won, cost = evaluate_table(part, matrix, unit)
    return CrossFittedRule(part, won, cost, cost.mean(axis=0))


def assign_folds(hashes: Sequence[str], salt: str, count: int = FOLDS) -> Ints:
    """Return [T]: the fold of each task, by its content; every fold has tasks where there are enough."""
    keys = [sha256(f"{salt}\0{content}".encode()).digest() for content in hashes]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([ranks[key] % count for key in keys], np.int64)


@dataclass(frozen=True, slots=True)
class SettingBoard:
    """All rules, cross-fitted on the same tasks; the last one asks single workers. `names` are the candidates."""

    rules: tuple[CrossFittedRule, ...]
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    hashes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        fitted: Mapping[str, CrossFittedRule],
        singles: CrossFittedRule,
        names: tuple[str, ...],
        hashes: tuple[str, ...],
    ) -> "SettingBoard":
        """Return the board of these rules by candidate, and of single workers."""
        return cls((*fitted.values(), singles), (*fitted, SINGLE_MIX), names, hashes)

    def hulls(self) -> dict[str, tuple[OperatingPoint, ...]]:
        """Return the operating points of each candidate, and of mixes of single workers."""
        places = {kind: place for place, kind in enumerate(self.kinds)}
        hulls = {kind: upper_hull(setting_points([self.rules[place]], place)) for kind, place in places.items()}
        if POLICY in places:
            hulls[POLICY] = upper_hull((*hulls[POLICY], *hulls[TABLE]))
        if COMBINED in self.names:
            simplest_first = [
                [place, places[TABLE]] if kind == POLICY else [place]
                for kind, place in places.items()
                if kind != SINGLE_MIX
            ]
            hulls[COMBINED] = combine_candidates(self.rules, simplest_first, [places[SINGLE_MIX]], self.hashes)
        return hulls

    def at(self, rows: Ints) -> "SettingBoard":
        """Return the board of these tasks alone; what settings cost is what they cost there."""
        rules = tuple(replace(rule.at(rows), spent=rule.cost[rows].mean(axis=0)) for rule in self.rules)
        return replace(self, rules=rules, hashes=tuple(self.hashes[row] for row in rows))

    @property
    def places(self) -> list[tuple[int, int]]:
        """All (rule, setting) pairs, in the order of the columns of `won` and `cost`."""
        return [(place, setting) for place, rule in enumerate(self.rules) for setting in range(rule.won.shape[1])]


def judge_board(board: SettingBoard, empty: TradeOff) -> PolicyFit:
    """Return the candidates' trade-offs, which are `empty` with points, and what they did on held-out tasks."""
    # Drop rules and settings that are on no candidate's trade-off; trade-offs are `empty` with points.
    hulls = board.hulls()
    candidates = {name: points for name, points in hulls.items() if name in board.names}
    used = sorted({(point.part, point.setting) for hull in candidates.values() for point in hull})
    parts: list[DecisionRule] = []
    moved: dict[tuple[int, int], tuple[int, int]] = {}
    for place in sorted({part for part, _ in used}):
        settings = [setting for part, setting in used if part == place]
        rule = board.rules[place].part
        for index, setting in enumerate(settings):
            moved[place, setting] = (len(parts), index if isinstance(rule, StoppingRule) else setting)
        parts.append(rule.select_settings(settings) if isinstance(rule, StoppingRule) else rule)

    def relocated(point: OperatingPoint) -> OperatingPoint:
        part, setting = moved[point.part, point.setting]
        return replace(point, part=part, setting=setting)

    dials = {name: replace(empty, points=tuple(map(relocated, hull))) for name, hull in candidates.items()}
    fitted = PolicyFit(tuple(parts), dials)
    return fitted if len(set(board.hashes)) < 2 * FOLDS else replace(fitted, trials=_measure(board, hulls, empty))


def _measure(
    board: SettingBoard, finals: Mapping[str, tuple[OperatingPoint, ...]], empty: TradeOff
) -> dict[str, HeldOutTrial]:
    """Return what each candidate and baseline did: every fold of tasks meets the dial that was chosen without it."""
    won, cost = (np.concatenate([getattr(rule, name) for rule in board.rules], axis=1) for name in ("won", "cost"))
    places, folds = board.places, content_folds(board.hashes)
    trials: dict[str, list[HeldOutTrial]] = {}
    for fold in np.unique(folds).tolist():
        inside = np.flatnonzero(folds == fold)
        hulls = board.at(np.flatnonzero(folds != fold)).hulls()
        best = hulls[SINGLE_MIX][-1]
        base = places.index((best.part, best.setting))
        for name, points in hulls.items():
            dial, final = (replace(empty, points=each) for each in (points, finals[name]))
            trial = HeldOutTrial.of(dial, final, (won[inside], cost[inside], places), base, inside)
            trials.setdefault(name, []).append(trial)
    return {name: HeldOutTrial.joined(parts) for name, parts in trials.items()}


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
class Selection:
    """A policy, and for each of these tasks (ids) what its most accurate setting wins and pays (dollars), held out."""

    policy: Policy
    ids: tuple[str, ...] = ()
    won: Floats = field(default_factory=lambda: np.zeros(0))
    paid: Floats = field(default_factory=lambda: np.zeros(0))


@single_threaded_blas()
def select_policy(
    matrix: OutcomeMatrix,
    options: LearningOptions | None = None,
    about: PolicyOrigin | None = None,
    report: ProgressCallback = lambda _: None,
) -> Selection:
    """Fit and measure all candidates on a full matrix and return the policy; `report` receives progress."""
    settings, origin = options or LearningOptions(), about or PolicyOrigin("outcomes", "", len(matrix))
    names, notes = candidate_names(matrix)
    fitted = fit_candidates(matrix, settings, names, report)
    origin = replace(origin, seed=settings.seed, notes=(*origin.notes, *notes))
    log = matrix, known_workers(matrix), matrix.cost_unit()
    return finish_selection(fitted, names, log, origin, rung=settings.rung)


def finish_selection(
    fitted: PolicyFit,
    names: Sequence[str],
    log: tuple[OutcomeMatrix, tuple[KnownWorker, ...], float],
    about: PolicyOrigin,
    note: str = "",
    rung: str = "",
) -> Selection:
    """Return the policy of a fit: the selected candidate, its evidence, and the verdict; `log` ends with the unit.

    `rung` is the candidate that somebody asks for; UnknownName where there is none of this name.
    """
    if rung and rung not in names:
        raise UnknownName("rung", rung, names)
    matrix, workers, unit = log
    rows = measured_rows(matrix, names)
    contents = [matrix.hashes[row] for row in rows]
    evidence = _build_evidence(fitted, names, contents)
    selected = rung or choose_candidate(names, evidence)
    candidates = []
    for name in names:
        dial, own = _widen_ungraded(fitted.dials[name], matrix.graded_share), evidence.get(name)
        candidates.append(Candidate(name, dial, None if own is None else replace(own, note=note)))
    trial, few = fitted.trials.get(selected), MIN_TASKS - len(set(contents))
    if trial is None or few > 0:
        verdict = untold_verdict(max(few, 1) * len(workers))
    else:
        dial, names_of = fitted.dials[selected], tuple(worker.name for worker in workers)
        alone = {target: names_of[worker] for target, worker in _sole_workers(fitted.parts, dial)}
        verdict = reach_verdict(
            trial, dial, (best_worker(workers).name, alone), contents, len(workers), matrix.graded_share
        )
    about = replace(about, verdict=verdict)
    policy = Policy(about, workers, matrix.types, fitted.parts, tuple(candidates), selected)
    if trial is None:
        return Selection(policy)
    ids = tuple(matrix.ids[row] for row in rows)
    return Selection(replace(policy, yardsticks=_baselines(fitted)), ids, trial.won[:, -1], trial.cost[:, -1] * unit)


def _sole_workers(parts: Sequence[DecisionRule], dial: TradeOff) -> Iterator[tuple[float, int]]:
    """Yield the margins of the verdict's targets at which one worker is asked for everything, and that worker."""
    for margin in MARGINS:
        mix = target_mix(dial, margin)
        asked = set[int]()
        for point in {mix.low, mix.high} if mix.share else {mix.low}:
            part = parts[point.part]
            if not isinstance(part, TableRule):
                asked |= {-1, -2}
                break
            asked |= set(part.worth(point.setting).argmax(axis=1).tolist())
        if len(asked) == 1:
            yield margin, asked.pop()


def measured_rows(matrix: OutcomeMatrix, names: Sequence[str]) -> Ints:
    """Return the tasks that are measured: all, or where a stepwise policy is fitted at most POLICY_TASKS of them."""
    if POLICY not in names or len(matrix) <= POLICY_TASKS:
        return np.arange(len(matrix))
    return np.sort(np.argsort(np.array(matrix.hashes), kind="stable")[:POLICY_TASKS])


def _widen_ungraded(trade_off: TradeOff, graded: float) -> TradeOff:
    """Return the trade-off with the errors of as many tasks as were graded."""
    points = [replace(point, error=point.error / max(graded, 1e-3) ** 0.5) for point in trade_off.points]
    return trade_off if graded >= 1 else replace(trade_off, points=tuple(points))


def candidate_names(matrix: OutcomeMatrix) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which candidates this matrix supports, and notes about those that it does not."""
    if len(matrix) < MIN_TASKS:
        return (TABLE,), (
            f"{len(matrix)} tasks are too few to learn more than the table: at least {MIN_TASKS} are needed",
        )
    if len(matrix.workers) < 2:
        return (TABLE,), ("with one worker there is nothing to choose",)
    if not matrix.answers:
        return (TABLE, COMBINED), ("the log has no answers, so agreement cannot be learned",)
    return (TABLE, POLICY, COMBINED), ()


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


def _build_evidence(fitted: PolicyFit, names: Sequence[str], contents: Sequence[str]) -> dict[str, HeldOutEvidence]:
    """Return the evidence for each candidate; none where there are too few tasks to hold some out."""
    trials, evidence = fitted.trials, {}
    for place, name in enumerate(names if trials else ()):
        trial = trials[name]
        below = reversed(names[:place])
        gains = tuple(paired_gain(other, trial.alike, trials[other].alike, contents) for other in below)
        means = np.stack([trial.frontier.won.mean(axis=0), trial.frontier.cost.mean(axis=0)], axis=1)
        off = np.abs(trial.promised - means).mean(axis=0)
        promised = float(off[0]), float(off[1])
        evidence[name] = HeldOutEvidence(trial.alike.area, trial.points(), gains, promised)
    return evidence


def _baselines(fitted: PolicyFit) -> tuple[Baseline, ...]:
    """Return the best single worker, and mixes of single workers, on the same held-out tasks."""
    note = "single workers on the hull of cost and accuracy, drawn at random (the Zero router of RouterBench)"
    trial = fitted.trials[SINGLE_MIX]
    mix = Baseline(SINGLE_MIX, trial.alike.area, trial.points(), note)
    right, spent = trial.base[:, :1], trial.base[:, 1:]
    dial = TradeOff((OperatingPoint(0, 0, float(spent.mean()), float(right.mean())),), 1.0, 0.0)
    budgets = np.sort(MEASURED_BUDGETS[dial.points[0].cost <= MEASURED_BUDGETS])
    alone = compute_frontier(dial, right, spent, [(0, 0)], budgets).points() if len(budgets) else ()
    area = compute_frontier(dial, right, spent, [(0, 0)], BUDGETS).area
    return Baseline(BEST_SINGLE, area, alone, "the worker with the highest mean score on the other tasks"), mix
