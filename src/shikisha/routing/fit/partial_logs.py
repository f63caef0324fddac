"""Learning from partial logs: a table rule from recorded outcomes, a stopping rule from tasks done by several workers.

All is evaluated off-policy (`off_policy`), each task by rules and tables fitted without it. Settings that the log
cannot support are left out, and the stopping rule is selected only where the interval of its gain over the table
excludes harm. With turns, the table uses first asks, while the stopping rule is also fitted on later ones: only its
evaluation has to be unbiased. Invariants: an unrecorded outcome counts for nothing, and a worker without outcomes on a
type is not asked there; without propensities nothing is promised. Cascades are absent because their settings differ
from fold to fold.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.cost_frontier import (
    BUDGETS,
    REPORTED_BUDGETS,
    Frontier,
    affordable_share,
    compute_frontier,
    mix_for_budget,
)
from shikisha.routing.fit.fit_stopping_rule import StoppingData, fit_stopping
from shikisha.routing.fit.fit_table import PRICES
from shikisha.routing.fit.incumbents import TaskScores, task_scores
from shikisha.routing.fit.log_quality import (
    MIN_SHARED_TASKS,
    MIN_SUPPORT,
    LogKind,
    known_outcomes,
    propagate_scores,
    tasks_done_by_all,
)
from shikisha.routing.fit.log_quality import measure_coverage as coverage_of
from shikisha.routing.fit.model_selection import POLICY, TABLE, assign_folds
from shikisha.routing.fit.off_policy import (
    MIN_EFFECTIVE_TASKS,
    CrossFitSplit,
    EstimateInterval,
    ExpectedOutcomes,
    PolicyTerms,
    PolicyValue,
    estimate_refusal,
    estimate_value,
    expected_outcomes,
    follow_rule,
    measure_overlap,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, first_asks, ordered_asks
from shikisha.routing.policy_data import (
    AreaGain,
    Candidate,
    FrontierPoint,
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

# More workers share too few tasks in practice.
MAX_POLICY_WORKERS = 4
_MEASURED_BUDGETS = np.array((*REPORTED_BUDGETS, *BUDGETS))
_Z = 1.96
_UNLIMITED = 1e9  # a budget that every setting is within
_UNPROVED = "the trade-off shows recorded results where workers were asked, and promises nothing"
# A rule and a setting.
_RuleSetting = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _RuleTrial:
    """A rule fitted on all tasks, and for each setting the terms of rules that were fitted without the task."""

    part: DecisionRule
    terms: tuple[PolicyTerms, ...]


@dataclass(frozen=True, slots=True)
class _PartialLog:
    """A partial log in folds, with the best single worker's dollars and accuracy."""

    matrix: OutcomeMatrix
    folds: Ints
    split: CrossFitSplit
    unit: float
    best: float
    seed: int

    @classmethod
    def of(cls, matrix: OutcomeMatrix, seed: int) -> "_PartialLog":
        """Split the tasks, and find the best single worker."""
        folds = assign_folds(matrix.hashes, f"partial {seed}")
        split = CrossFitSplit.of(matrix, folds)
        best, dollars = _best_single(matrix, split)
        return cls(matrix, folds, split, dollars or _highest_dollars(matrix), best, seed)

    @property
    def dollars(self) -> float:
        """The dollars of one unit of cost; 0 where nothing costs anything."""
        return self.unit if self.matrix.paid.any() else 0.0

    def without(self, fold: int) -> OutcomeMatrix:
        """Return the tasks of the other folds."""
        return self.matrix.at(self.folds != fold)


@dataclass(frozen=True, slots=True)
class PartialFit:
    """A policy, and what its most accurate setting achieves by task; None, and `why`, where nothing was evaluated."""

    policy: Policy
    scores: TaskScores | None = None
    why: str = ""


def fit_partial_log(matrix: OutcomeMatrix, seed: int = 0, about: PolicyOrigin | None = None) -> PartialFit:
    """Fit what a partial log supports; ConfigError when it holds no outcome of known value.

    Its evidence is doubly robust; where there is none (no propensities, too few tasks) the policy's notes say why.
    """
    coverage, scored = coverage_of(matrix), replace(propagate_scores(matrix), texts=())
    if not known_outcomes(scored).any():
        raise ConfigError("the log holds no outcome with a score: there is nothing to learn from")
    origin = about or PolicyOrigin("outcomes", "", len(matrix), seed=seed)
    origin = replace(origin, notes=(*origin.notes, *coverage.findings))
    if coverage.kind is LogKind.UNTOLD:
        why = "not every worker was asked for every complete task"
        return PartialFit(_unproved_policy(scored, origin, "the propensities are unknown"), why=why)
    ordered = ordered_asks(scored.at(coverage.drawn)) if coverage.kind is LogKind.DRAWN else scored
    if len(set(ordered.hashes)) < MIN_EFFECTIVE_TASKS:
        few = f"{len(ordered)} tasks are too few: at least {MIN_EFFECTIVE_TASKS:.0f} are needed"
        return PartialFit(_unproved_policy(scored, origin, few), why=few)
    return _select_policy(_PartialLog.of(ordered, seed), origin)


def table_from_outcomes(table: ExpectedOutcomes, unit: float) -> TableRule:
    """Return the table; a worker without outcomes on a type has lower utility there than any known one.

    That is a success of 0 at the highest cost: not taken as wrong, but not asked either.
    """
    dark = table.cells < MIN_SUPPORT
    dark &= ~dark.all(axis=1, keepdims=True)
    cost = np.where(dark, table.dollars.max(axis=1, keepdims=True), table.dollars) / unit
    return TableRule(np.where(dark, 0.0, table.success), cost, np.zeros((len(PRICES), cost.shape[1])), PRICES)


def _select_policy(log: _PartialLog, about: PolicyOrigin) -> PartialFit:
    table = _try_table(log)
    why = _why_unjudgeable(table)
    if why:
        return PartialFit(_unproved_policy(log.matrix, about, why), why=why)
    judged = {TABLE: _JudgedSettings.of(log, [table])}
    notes, parts = [*about.notes, *_logged_comparison(judged[TABLE])], [table.part]
    stopping = _try_stopping(log)
    why = stopping if isinstance(stopping, str) else _why_unjudgeable(stopping)
    if not isinstance(stopping, str) and not why:
        both = _JudgedSettings.of(log, [table, stopping])
        if any(point.part for point in both.dial(np.ones(len(both.won), bool)).points):
            judged[POLICY] = both
            parts.append(stopping.part)
        else:
            why = _no_better(stopping)
    if why:
        notes.append(f"no stopping rule: {why}")
    candidates = tuple(_build_candidates(judged))
    kept = POLICY if any(one.low > 0 for candidate in candidates for one in _candidate_gains(candidate)) else TABLE
    workers = _known_workers(log.matrix, expected_outcomes(log.matrix))
    policy = Policy(replace(about, notes=tuple(notes)), workers, log.matrix.types, tuple(parts), candidates, kept)
    return PartialFit(policy, judged[kept].best_by_task())


def _candidate_gains(candidate: Candidate) -> tuple[AreaGain, ...]:
    return candidate.evidence.gains if candidate.evidence else ()


def _try_table(log: _PartialLog) -> _RuleTrial:
    """Evaluate the table: each fold with a table of the others."""
    parts = [table_from_outcomes(table, log.unit) for table in log.split.tables]
    return _RuleTrial(table_from_outcomes(expected_outcomes(log.matrix), log.unit), _terms_by_setting(log.split, parts))


def _try_stopping(log: _PartialLog) -> "_RuleTrial | str":
    """Evaluate a stopping rule over workers that share enough tasks, or say why there is none."""
    if not log.matrix.answers:
        return "the log has no answers, so agreement cannot be learned"
    part = _fit_shared_stopping(log.matrix, expected_outcomes(log.matrix), log, MIN_SHARED_TASKS)
    if part is None:
        return f"no two workers share {MIN_SHARED_TASKS} tasks"
    parts = []
    for fold, table in enumerate(log.split.tables):
        rest = log.without(fold)
        rule = _fit_shared_stopping(rest, table, log, MIN_SHARED_TASKS * len(rest) // len(log.matrix))
        if rule is None:
            return f"two workers share hardly more than {MIN_SHARED_TASKS} tasks"
        parts.append(rule)
    return _RuleTrial(part, _terms_by_setting(log.split, parts))


def _terms_by_setting(split: CrossFitSplit, parts: Sequence[DecisionRule]) -> tuple[PolicyTerms, ...]:
    """Return the terms of each setting, each fold followed by its own rule."""

    def at(setting: int) -> PolicyTerms:
        return split.terms(lambda fold, matrix, table: follow_rule(parts[fold], setting, matrix, table))

    return tuple(at(setting) for setting in range(parts[0].settings))


def _fit_shared_stopping(
    matrix: OutcomeMatrix, table: ExpectedOutcomes, log: _PartialLog, least: int
) -> StoppingRule | None:
    """Fit a stopping rule on shared tasks of its workers; None where no two share as many as `least`."""
    chosen = _shared_workers(matrix, table, least)
    if len(chosen) < 2:
        return None
    small = matrix.at(tasks_done_by_all(matrix, chosen)).select_workers([matrix.workers[index] for index in chosen])
    ground = StoppingData.of(small, assign_folds(small.hashes, f"fit {log.seed}"))
    part = fit_stopping(replace(ground, unit=log.unit), range(len(chosen))).part
    return part.widen(chosen, len(matrix.workers))


def _shared_workers(matrix: OutcomeMatrix, table: ExpectedOutcomes, least: int) -> tuple[int, ...]:
    """Return up to MAX_POLICY_WORKERS workers that share enough tasks: undominated ones first, best first."""
    success, cost = table.success[-1], table.dollars[-1]
    beaten = np.array([((cost <= own) & (success > good)).any() for own, good in zip(cost, success, strict=True)])
    order = np.lexsort((-success, beaten))
    for first in order:
        chosen = [int(first)]
        for worker in order:
            more = tuple(sorted({*chosen, int(worker)}))
            if len(chosen) < len(more) <= MAX_POLICY_WORKERS and tasks_done_by_all(matrix, more).sum() >= least:
                chosen = list(more)
        if len(chosen) > 1:
            return tuple(chosen)
    return ()


def _judgeable_settings(trials: Sequence[_RuleTrial]) -> Iterator[tuple[_RuleSetting, PolicyTerms]]:
    """Yield the settings that the log can support."""
    for index, trial in enumerate(trials):
        for setting, terms in enumerate(trial.terms):
            if estimate_refusal(terms) is None:
                yield (index, setting), terms


def _no_better(trial: _RuleTrial) -> str:
    """Say that no supported setting is better than the table, and why others are not supported."""
    refused = [one for one in (estimate_refusal(terms) for terms in trial.terms) if one]
    if not refused:
        return "the table is as good at every price"
    nearest = max(refused, key=lambda one: one.overlap.effective).reason
    return f"the table is as good as the settings that can be evaluated; {len(refused)} cannot: {nearest}"


def _why_unjudgeable(trial: _RuleTrial) -> str:
    """Return why no setting is supported (that of the nearest one); empty where some are."""
    if next(_judgeable_settings([trial]), None):
        return ""
    refused = (estimate_refusal(terms) for terms in trial.terms)
    return max((one for one in refused if one), key=lambda one: one.overlap.effective).reason


@dataclass(frozen=True, slots=True)
class _JudgedSettings:
    """The supported settings of some trials: results of each, [T, n] (cost in units), and their places."""

    log: _PartialLog
    places: tuple[_RuleSetting, ...]
    won: Floats
    cost: Floats
    effective: Mapping[_RuleSetting, float]

    @classmethod
    def of(cls, log: _PartialLog, trials: Sequence[_RuleTrial]) -> "_JudgedSettings":
        """Collect the supported settings."""
        supported = dict(_judgeable_settings(trials))
        won, paid = (np.stack([getattr(one, name) for one in supported.values()], axis=1) for name in ("won", "paid"))
        effective = {index: measure_overlap(terms).effective for index, terms in supported.items()}
        return cls(log, tuple(supported), won, paid / log.unit, effective)

    def dial(self, rows: Flags) -> TradeOff:
        """Return the trade-off measured on these tasks."""
        won, cost = self.won[rows], self.cost[rows]
        errors = won.std(axis=0) / np.sqrt(max(1, len(won)))
        means = zip(self.places, cost.mean(axis=0), won.mean(axis=0), errors, strict=True)
        points = [
            OperatingPoint(*index, max(0.0, float(paid)), float(right), float(error))
            for index, paid, right, error in means
        ]
        return TradeOff(upper_hull(points), self.log.dollars, self.log.best)

    def judge(self, budgets: Floats) -> tuple[Frontier, Floats]:
        """Return the frontier, each fold by the trade-off of the others, and what those promised [B, 2]."""
        shape = (len(self.won), len(budgets))
        result, promised = Frontier(budgets, np.zeros(shape), np.zeros(shape)), []
        for fold, own in enumerate(self.log.split.rows):
            trade_off = self.dial(self.log.folds != fold)
            part = compute_frontier(trade_off, self.won[own], self.cost[own], self.places, budgets)
            result.won[own], result.cost[own] = part.won, part.cost
            mixes = [
                (mix_for_budget(trade_off, float(budget)), affordable_share(trade_off, float(budget)))
                for budget in budgets
            ]
            promised.append([(paid * mix.accuracy, paid * mix.cost) for mix, paid in mixes])
        return result, np.mean(promised, axis=0)

    def best_by_task(self) -> TaskScores:
        """Return what the most accurate setting achieves, each fold by the trade-off of the others."""
        front, _ = self.judge(np.array([_UNLIMITED]))
        return task_scores(self.log.matrix.ids, front.won[:, 0], front.cost[:, 0] * self.log.unit)


def _build_candidates(judged: Mapping[str, _JudgedSettings]) -> Iterator[Candidate]:
    """Yield the candidates with their evidence, from the simplest."""
    below: tuple[str, Frontier] | None = None
    for name, supported in judged.items():
        trade_off = supported.dial(np.ones(len(supported.won), bool))
        front, promised = supported.judge(_MEASURED_BUDGETS)
        area = Frontier(BUDGETS, front.won[:, len(REPORTED_BUDGETS) :], front.cost[:, len(REPORTED_BUDGETS) :])
        gains = (_paired_gain(below[0], area, below[1], supported.log.split.rows),) if below else ()
        effective = min(supported.effective[point.part, point.setting] for point in trade_off.points)
        off = np.abs(promised - np.stack([front.won.mean(axis=0), front.cost.mean(axis=0)], axis=1)).mean(axis=0)
        evidence = HeldOutEvidence(
            area.area,
            tuple(sorted(_frontier_points(front), key=lambda met: met.budget)),
            gains,
            (float(off[0]), float(off[1])),
            _outcomes_needed(gains, int(supported.log.matrix.there.sum())),
            f"off-policy (DR), effective sample {effective:,.0f} of {len(supported.won):,} tasks",
        )
        yield Candidate(name, trade_off, evidence)
        below = name, area


def _frontier_points(front: Frontier) -> Iterator[FrontierPoint]:
    for index, budget in enumerate(front.budgets):
        right = EstimateInterval.of(front.won[:, index])
        yield FrontierPoint(float(budget), float(front.cost[:, index].mean()), right.mean, right.low, right.high)


def _paired_gain(name: str, one: Frontier, other: Frontier, rows: Sequence[Ints]) -> AreaGain:
    """Return the paired gain in area over the other: the wider of its intervals over tasks and over folds.

    Folds have their own trade-offs, and differences within a fold do not show their random variation.
    """
    difference = one.by_task - other.by_task
    tasks, folds = (
        EstimateInterval.of(difference),
        EstimateInterval.of(np.array([difference[own].mean() for own in rows])),
    )
    half_width = max(tasks.high - tasks.mean, folds.high - folds.mean)
    return AreaGain(name, tasks.mean, tasks.mean - half_width, tasks.mean + half_width)


def _outcomes_needed(gains: Sequence[AreaGain], total: int) -> int | None:
    """Return how many more outcomes would show the gain, if it is as estimated; None if there is none."""
    if not gains or gains[0].low > 0:
        return 0
    if gains[0].mean <= 0:
        return None
    error = (gains[0].high - gains[0].low) / (2 * _Z)
    return ceil(max(0.0, total * ((_Z * error / gains[0].mean) ** 2 - 1)))


def _best_single(matrix: OutcomeMatrix, split: CrossFitSplit) -> tuple[float, float]:
    """Return accuracy and dollars of the best single worker: off-policy if possible, else as expected."""
    best = best_worker(_known_workers(matrix, expected_outcomes(matrix)))
    shares = np.zeros(matrix.there.shape)
    shares[:, matrix.workers.index(best.name)] = 1.0
    value = estimate_value(split.single_ask_terms(shares))
    return (value.accuracy.mean, value.dollars.mean) if isinstance(value, PolicyValue) else (best.score, best.dollars)


def _highest_dollars(matrix: OutcomeMatrix) -> float:
    """Return the mean dollars of the most expensive worker; 1.0 where nothing costs anything."""
    return float((matrix.paid.sum(axis=0) / np.maximum(1, matrix.there.sum(axis=0))).max(initial=0.0)) or 1.0


def _logged_comparison(supported: _JudgedSettings) -> list[str]:
    """Compare the logged policy with the table at the same cost, where one worker was asked for each task."""
    matrix = supported.log.matrix
    if (matrix.there.sum(axis=1) != 1).any() or (matrix.there & ~known_outcomes(matrix)).any():
        return []
    won, paid = matrix.won.sum(axis=1), matrix.paid.sum(axis=1) / supported.log.unit
    front, _ = supported.judge(np.array([paid.mean()]))
    difference = EstimateInterval.of(front.won[:, 0] - won)
    logged = f"{_format_interval(EstimateInterval.of(won))} at a cost of {paid.mean():.3f}"
    compared = f"at a cost of {front.cost.mean():.3f} the table achieves {_format_interval(difference, '+')} more"
    return [f"the workers asked in the log achieved {logged}; {compared}"]


def _format_interval(held: EstimateInterval, sign: str = "") -> str:
    return f"{held.mean:{sign}.3f} [{held.low:{sign}.3f}, {held.high:{sign}.3f}]"


def _unproved_policy(matrix: OutcomeMatrix, about: PolicyOrigin, why: str) -> Policy:
    """Return the table of recorded outcomes, with a trade-off of its own expectations."""
    table = expected_outcomes(matrix, weighted=False)
    workers = _known_workers(matrix, table)
    best = best_worker(workers)
    unit = best.dollars or _highest_dollars(matrix)
    rule = table_from_outcomes(table, unit)
    types, points = matrix.batch.types, []
    for setting in range(rule.settings):
        asked = rule.choose(matrix.batch, setting)
        cost, accuracy = (float(held[types, asked].mean()) for held in (rule.cost, rule.success))
        points.append(OperatingPoint(0, setting, cost, accuracy))
    trade_off = TradeOff(upper_hull(points), unit if matrix.paid.any() else 0.0, best.score)
    notes = (*about.notes, f"nothing could be evaluated: {why}; {_UNPROVED}")
    candidate = Candidate(TABLE, trade_off, None)
    return Policy(replace(about, notes=notes), workers, matrix.types, (rule,), (candidate,), TABLE)


def _known_workers(matrix: OutcomeMatrix, table: ExpectedOutcomes) -> tuple[KnownWorker, ...]:
    """Return the workers; scores and dollars are those of all tasks, not of the ones each was asked for.

    Outcomes that others' answers led to do not count.
    """
    result, tasks = [], known_outcomes(first_asks(matrix)).sum(axis=0)
    for column, name in enumerate(matrix.workers):
        seconds, tokens = (_mean_of_known(held[:, column]) for held in (matrix.seconds, matrix.tokens))
        score, dollars = float(table.success[-1, column]), float(table.dollars[-1, column])
        result.append(KnownWorker(name, score, dollars, int(tasks[column]), seconds, tokens or 0.0))
    return tuple(result)


def _mean_of_known(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
