"""Learning from partial logs: the rule from what was asked, a policy from the tasks that some workers did together.

Everything is judged off-policy (`offpolicy`), each task by parts and tables fitted without it; settings that the log
cannot carry stand on no dial, and the policy is kept only where the interval of its gain over the rule excludes harm.
Where one worker was asked after another, the rule is of first asks, which alone tell what a worker is worth alone
(`turns`); the policy is fitted on later outcomes too, and judged by the tasks on which the log asked in its order.
Invariants: a pair that nobody recorded counts for nothing, and a worker of whom the log knows nothing on a type is not
asked there; without propensities nothing is promised. Deliberately absent: cascades, whose settings differ from fold to
fold; and weights in fitting the policy, since only the way it is judged has to be unbiased.
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
from shikisha.routing.state import DecisionRule, LengthScales
from shikisha.routing.stopping_rule import AnswerScorer, StoppingRule
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

MAX_POLICY_WORKERS = 4  # workers of a policy
_MEASURED_BUDGETS = np.array((*REPORTED_BUDGETS, *BUDGETS))
_Z = 1.96
_UNPROVED = "the dial shows what the log says of workers where they were asked, and promises nothing"
_RuleSetting = tuple[int, int]  # a part and a setting


@dataclass(frozen=True, slots=True)
class _RuleTrial:
    """A part fitted on all tasks, and for each of its settings the terms of parts that were fitted without the task."""

    part: DecisionRule
    terms: tuple[PolicyTerms, ...]


@dataclass(frozen=True, slots=True)
class _PartialLog:
    """What fits on a partial log stand on: its tasks in folds, and the best single worker's dollars and accuracy."""

    panel: OutcomeMatrix
    folds: Ints
    split: CrossFitSplit
    unit: float
    best: float
    seed: int

    @classmethod
    def of(cls, panel: OutcomeMatrix, seed: int) -> "_PartialLog":
        """Split the tasks, and find the best single worker."""
        folds = assign_folds(panel.hashes, f"partial {seed}")
        split = CrossFitSplit.of(panel, folds)
        best, dollars = _best_single(panel, split)
        return cls(panel, folds, split, dollars or 1.0, best, seed)

    @property
    def dollars(self) -> float:
        """One unit of cost for a dial; 0 where nothing costs anything."""
        return self.unit if self.panel.paid.any() else 0.0

    def without(self, fold: int) -> OutcomeMatrix:
        """Return the tasks of the other folds."""
        return self.panel.at(self.folds != fold)


def fit_partial_log(panel: OutcomeMatrix, seed: int = 0, about: PolicyOrigin | None = None) -> Policy:
    """Fit what a partial log supports; ConfigError when it holds no outcome of known worth.

    Its evidence is doubly robust; where there is none (no propensities, too few tasks) the policy's notes say why.
    """
    told, held = coverage_of(panel), replace(propagate_scores(panel).with_response_model(None), texts=())
    if not known_outcomes(held).any():
        raise ConfigError("the log holds no outcome with a score: there is nothing to learn from")
    begun = about or PolicyOrigin("outcomes", "", len(panel), seed=seed)
    begun = replace(begun, notes=(*begun.notes, *told.findings))
    if told.kind is LogKind.UNTOLD:
        return _unproved_policy(held, begun, "nobody knows with what probability these workers were asked")
    used = ordered_asks(held.at(told.drawn)) if told.kind is LogKind.DRAWN else held
    if len(set(used.hashes)) < MIN_EFFECTIVE_TASKS:
        return _unproved_policy(held, begun, f"{len(used)} tasks are too few: {MIN_EFFECTIVE_TASKS:.0f} are the least")
    return _select_policy(_PartialLog.of(used, seed), begun)


def table_from_outcomes(table: ExpectedOutcomes, unit: float) -> TableRule:
    """Return the rule; a worker of whom nothing is known on a type is worth less there than any that is known.

    That is a success of 0 at the price of the dearest; it is not taken for wrong, but it is not asked either.
    """
    dark = table.cells < MIN_SUPPORT
    dark &= ~dark.all(axis=1, keepdims=True)
    cost = np.where(dark, table.dollars.max(axis=1, keepdims=True), table.dollars) / unit
    return TableRule(np.where(dark, 0.0, table.success), cost, np.zeros((len(PRICES), cost.shape[1])), PRICES)


def _select_policy(stand: _PartialLog, about: PolicyOrigin) -> Policy:
    table = _try_table(stand)
    why = _why_unjudgeable(table)
    if why:
        return _unproved_policy(stand.panel, about, why)
    boards = {TABLE: _JudgedSettings.of(stand, [table])}
    notes, parts = [*about.notes, *_logged_comparison(boards[TABLE])], [table.part]
    induced = _try_stopping(stand)
    why = induced if isinstance(induced, str) else _why_unjudgeable(induced)
    if not isinstance(induced, str) and not why:
        both = _JudgedSettings.of(stand, [table, induced])
        if any(point.part for point in both.dial(np.ones(len(both.won), bool)).points):
            boards[POLICY] = both
            parts.append(induced.part)
        else:
            why = _no_better(induced)
    if why:
        notes.append(f"there is no policy that asks several: {why}")
    rungs = tuple(_build_candidates(boards))
    kept = POLICY if any(one.low > 0 for rung in rungs for one in _candidate_gains(rung)) else TABLE
    workers = _known_workers(stand.panel, expected_outcomes(stand.panel))
    return Policy(replace(about, notes=tuple(notes)), workers, stand.panel.types, tuple(parts), rungs, kept)


def _candidate_gains(rung: Candidate) -> tuple[AreaGain, ...]:
    return rung.evidence.gains if rung.evidence else ()


def _try_table(stand: _PartialLog) -> _RuleTrial:
    """Try the rule: each fold with a table of the others."""
    parts = [table_from_outcomes(table, stand.unit) for table in stand.split.tables]
    return _RuleTrial(
        table_from_outcomes(expected_outcomes(stand.panel), stand.unit), _terms_by_setting(stand.split, parts)
    )


def _try_stopping(stand: _PartialLog) -> "_RuleTrial | str":
    """Try an induction over workers that did enough tasks together, or say why there is none."""
    if not stand.panel.answers:
        return "the log has no answers, so nothing can be learned from whether they agree"
    part = _fit_shared_stopping(stand.panel, expected_outcomes(stand.panel), stand, MIN_SHARED_TASKS)
    if part is None:
        return f"no two workers did {MIN_SHARED_TASKS} tasks together"
    parts = []
    for fold, table in enumerate(stand.split.tables):
        rest = stand.without(fold)
        one = _fit_shared_stopping(rest, table, stand, MIN_SHARED_TASKS * len(rest) // len(stand.panel))
        if one is None:
            return f"hardly more than {MIN_SHARED_TASKS} tasks were done by two workers together"
        parts.append(one)
    return _RuleTrial(part, _terms_by_setting(stand.split, parts))


def _terms_by_setting(split: CrossFitSplit, parts: Sequence[DecisionRule]) -> tuple[PolicyTerms, ...]:
    """Return the terms of each setting, each fold followed by its own part."""

    def at(setting: int) -> PolicyTerms:
        return split.terms(lambda fold, panel, table: follow_rule(parts[fold], setting, panel, table))

    return tuple(at(setting) for setting in range(parts[0].settings))


def _fit_shared_stopping(
    panel: OutcomeMatrix, table: ExpectedOutcomes, stand: _PartialLog, least: int
) -> StoppingRule | None:
    """Fit an induction on the tasks that its workers did together; None where no two of them did as many as `least`."""
    chosen = _shared_workers(panel, table, least)
    if len(chosen) < 2:
        return None
    small = panel.at(tasks_done_by_all(panel, chosen)).select_workers([panel.workers[place] for place in chosen])
    ground = StoppingData.of(small, assign_folds(small.hashes, f"fit {stand.seed}"))
    part = fit_stopping(replace(ground, unit=stand.unit), range(len(chosen))).part
    return widen_rule(part, chosen, len(panel.workers))


def _shared_workers(panel: OutcomeMatrix, table: ExpectedOutcomes, least: int) -> tuple[int, ...]:
    """Return up to MOST workers that did so many tasks together: those nobody beats at their cost first, best first."""
    skill, cost = table.success[-1], table.dollars[-1]
    beaten = np.array([((cost <= own) & (skill > good)).any() for own, good in zip(cost, skill, strict=True)])
    order = np.lexsort((-skill, beaten))
    for begins in order:
        chosen = [int(begins)]
        for worker in order:
            more = tuple(sorted({*chosen, int(worker)}))
            if len(chosen) < len(more) <= MAX_POLICY_WORKERS and tasks_done_by_all(panel, more).sum() >= least:
                chosen = list(more)
        if len(chosen) > 1:
            return tuple(chosen)
    return ()


def widen_rule(part: StoppingRule, places: Sequence[int], workers: int) -> StoppingRule:
    """Return an induction of a few workers as one of all, among whom they have these places, in ascending order."""
    columns = np.array(places, np.int64)

    def wide(narrow: Floats, otherwise: float = 0.0) -> Floats:
        held = np.full((*narrow.shape[:-1], workers), otherwise)
        held[..., columns] = narrow
        return held

    pairs = np.zeros((workers, workers))
    pairs[np.ix_(columns, columns)] = part.scorer.pairs
    scorer = AnswerScorer(part.scorer.none, wide(part.scorer.support), pairs, wide(part.scorer.sound))
    scales = LengthScales(wide(part.scales.written), wide(part.scales.spread, 1.0))
    gains = {tuple(places[one] for one in asked): worth for asked, worth in part.gains.items()}
    return StoppingRule(tuple(places), scorer, scales, gains)


def _judgeable_settings(trials: Sequence[_RuleTrial]) -> Iterator[tuple[_RuleSetting, PolicyTerms]]:
    """Yield the settings that the log can carry."""
    for place, trial in enumerate(trials):
        for setting, terms in enumerate(trial.terms):
            if estimate_refusal(terms) is None:
                yield (place, setting), terms


def _no_better(trial: _RuleTrial) -> str:
    """Return that none of the settings which could be judged is better than the rule, and why others could not be."""
    refused = [one for one in (estimate_refusal(terms) for terms in trial.terms) if one]
    if not refused:
        return "the rule is as good at every price"
    nearest = max(refused, key=lambda one: one.overlap.effective).reason
    return f"the rule is as good as those of its settings that can be judged; {len(refused)} cannot: {nearest}"


def _why_unjudgeable(trial: _RuleTrial) -> str:
    """Return why no setting can be judged (the one that is nearest to it); nothing where some can."""
    if next(_judgeable_settings([trial]), None):
        return ""
    refused = (estimate_refusal(terms) for terms in trial.terms)
    return max((one for one in refused if one), key=lambda one: one.overlap.effective).reason


@dataclass(frozen=True, slots=True)
class _JudgedSettings:
    """The settings that some trials stand on: what each came to, [T, n] (cost in units), and their places."""

    stand: _PartialLog
    places: tuple[_RuleSetting, ...]
    won: Floats
    cost: Floats
    effective: Mapping[_RuleSetting, float]

    @classmethod
    def of(cls, stand: _PartialLog, trials: Sequence[_RuleTrial]) -> "_JudgedSettings":
        """Lay out what the trials can be judged by."""
        standing = dict(_judgeable_settings(trials))
        won, paid = (np.stack([getattr(one, name) for one in standing.values()], axis=1) for name in ("won", "paid"))
        effective = {place: measure_overlap(terms).effective for place, terms in standing.items()}
        return cls(stand, tuple(standing), won, paid / stand.unit, effective)

    def dial(self, rows: Flags) -> TradeOff:
        """Return the dial that these tasks make."""
        won, cost = self.won[rows], self.cost[rows]
        errors = won.std(axis=0) / np.sqrt(max(1, len(won)))
        means = zip(self.places, cost.mean(axis=0), won.mean(axis=0), errors, strict=True)
        points = [
            OperatingPoint(*place, max(0.0, float(paid)), float(right), float(error))
            for place, paid, right, error in means
        ]
        return TradeOff(upper_hull(points), self.stand.dollars, self.stand.best)

    def judge(self, budgets: Floats) -> tuple[Frontier, Floats]:
        """Return what budgets come to, each fold's by the dial of the others, and what those had promised [B, 2]."""
        shape = (len(self.won), len(budgets))
        found, promised = Frontier(budgets, np.zeros(shape), np.zeros(shape)), []
        for fold, own in enumerate(self.stand.split.rows):
            dial = self.dial(self.stand.folds != fold)
            part = compute_frontier(dial, self.won[own], self.cost[own], self.places, budgets)
            found.won[own], found.cost[own] = part.won, part.cost
            mixes = [(mix_for_budget(dial, float(budget)), affordable_share(dial, float(budget))) for budget in budgets]
            promised.append([(paid * mix.accuracy, paid * mix.cost) for mix, paid in mixes])
        return found, np.mean(promised, axis=0)


def _build_candidates(boards: Mapping[str, _JudgedSettings]) -> Iterator[Candidate]:
    """Yield the rungs with their evidence, from the lowest."""
    below: tuple[str, Frontier] | None = None
    for name, board in boards.items():
        dial = board.dial(np.ones(len(board.won), bool))
        front, promised = board.judge(_MEASURED_BUDGETS)
        area = Frontier(BUDGETS, front.won[:, len(REPORTED_BUDGETS) :], front.cost[:, len(REPORTED_BUDGETS) :])
        gains = (_paired_gain(below[0], area, below[1], board.stand.split.rows),) if below else ()
        effective = min(board.effective[point.part, point.setting] for point in dial.points)
        off = np.abs(promised - np.stack([front.won.mean(axis=0), front.cost.mean(axis=0)], axis=1)).mean(axis=0)
        evidence = HeldOutEvidence(
            area.area,
            tuple(sorted(_frontier_points(front), key=lambda met: met.budget)),
            gains,
            (float(off[0]), float(off[1])),
            _outcomes_needed(gains, int(board.stand.panel.there.sum())),
            f"off-policy (DR), effective sample {effective:,.0f} of {len(board.won):,} tasks",
        )
        yield Candidate(name, dial, evidence)
        below = name, area


def _frontier_points(front: Frontier) -> Iterator[FrontierPoint]:
    for place, budget in enumerate(front.budgets):
        right = EstimateInterval.of(front.won[:, place])
        yield FrontierPoint(float(budget), float(front.cost[:, place].mean()), right.mean, right.low, right.high)


def _paired_gain(name: str, one: Frontier, other: Frontier, rows: Sequence[Ints]) -> AreaGain:
    """Return the paired gain in area over the other: the wider of its intervals over tasks and over folds.

    Folds have dials of their own, and how these come out by chance is not seen in the differences within a fold.
    """
    more = one.by_task - other.by_task
    tasks, folds = EstimateInterval.of(more), EstimateInterval.of(np.array([more[own].mean() for own in rows]))
    reach = max(tasks.high - tasks.mean, folds.high - folds.mean)
    return AreaGain(name, tasks.mean, tasks.mean - reach, tasks.mean + reach)


def _outcomes_needed(gains: Sequence[AreaGain], outcomes: int) -> int | None:
    """Return how many more outcomes it takes for the gain to show, if it is what it seems; None: if it is none."""
    if not gains or gains[0].low > 0:
        return 0
    if gains[0].mean <= 0:
        return None
    error = (gains[0].high - gains[0].low) / (2 * _Z)
    return ceil(max(0.0, outcomes * ((_Z * error / gains[0].mean) ** 2 - 1)))


def _best_single(panel: OutcomeMatrix, split: CrossFitSplit) -> tuple[float, float]:
    """Return accuracy and dollars of the best single worker: as judged from the log if it can be, else as expected."""
    best = best_worker(_known_workers(panel, expected_outcomes(panel)))
    shares = np.zeros(panel.there.shape)
    shares[:, panel.workers.index(best.name)] = 1.0
    told = estimate_value(split.single_ask_terms(shares))
    return (told.accuracy.mean, told.dollars.mean) if isinstance(told, PolicyValue) else (best.score, best.dollars)


def _logged_comparison(board: _JudgedSettings) -> list[str]:
    """Return a line on what was asked till now, where one worker was asked for each task, and on the same cost now."""
    panel = board.stand.panel
    if (panel.there.sum(axis=1) != 1).any() or (panel.there & ~known_outcomes(panel)).any():
        return []
    won, paid = panel.won.sum(axis=1), panel.paid.sum(axis=1) / board.stand.unit
    front, _ = board.judge(np.array([paid.mean()]))
    more = EstimateInterval.of(front.won[:, 0] - won)
    till = f"those who were asked for these tasks came to {_format_interval(EstimateInterval.of(won))} at a cost of {paid.mean():.3f}"
    return [f"{till}; at a cost of {front.cost.mean():.3f} the rule comes to {_format_interval(more, '+')} more"]


def _format_interval(held: EstimateInterval, sign: str = "") -> str:
    return f"{held.mean:{sign}.3f} [{held.low:{sign}.3f}, {held.high:{sign}.3f}]"


def _unproved_policy(panel: OutcomeMatrix, about: PolicyOrigin, why: str) -> Policy:
    """Return the rule of what is recorded, with a dial that says what the rule itself expects."""
    table = expected_outcomes(panel, told=False)
    workers = _known_workers(panel, table)
    best = best_worker(workers)
    part = table_from_outcomes(table, best.dollars or 1.0)
    types, points = panel.batch.types, []
    for setting in range(part.settings):
        asked = part.choose(panel.batch, setting)
        cost, right = (float(held[types, asked].mean()) for held in (part.cost, part.success))
        points.append(OperatingPoint(0, setting, cost, right))
    dial = TradeOff(upper_hull(points), best.dollars, best.score)
    notes = (*about.notes, f"nothing could be judged: {why}; {_UNPROVED}")
    rung = Candidate(TABLE, dial, None)
    return Policy(replace(about, notes=notes), workers, panel.types, (part,), (rung,), TABLE)


def _known_workers(panel: OutcomeMatrix, table: ExpectedOutcomes) -> tuple[KnownWorker, ...]:
    """Return the workers; scores and dollars are those of all tasks, not of the ones that each was asked for.

    How many outcomes they stand on does not count those that others' answers led to.
    """
    found, tasks = [], known_outcomes(first_asks(panel)).sum(axis=0)
    for column, name in enumerate(panel.workers):
        seconds, tokens = (_mean_of_known(held[:, column]) for held in (panel.seconds, panel.tokens))
        score, dollars = float(table.success[-1, column]), float(table.dollars[-1, column])
        found.append(KnownWorker(name, score, dollars, int(tasks[column]), seconds, tokens or 0.0))
    return tuple(found)


def _mean_of_known(values: Floats) -> float | None:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else None
