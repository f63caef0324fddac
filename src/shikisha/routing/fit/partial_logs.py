"""Learning from partial logs: a table from recorded outcomes, judged by inverse propensities.

Where only some workers were asked for a task, a task counts for a choice where the log holds it, weighted by the
inverse of its probability (Horvitz and Thompson 1952), and normalized by the mean weight (Swaminathan and Joachims
2015). The first ask of a task counts alone: later ones depend on answers, and say nothing of a worker alone.
Invariants: every term is of a table that was fitted without the task; an unrecorded outcome counts for nothing, and a
worker without outcomes on a type is not asked there; a setting that the log cannot support is left out; without
propensities nothing is promised. Propensities are never guessed. Deliberately absent: policies of several asks.
"""

from math import ceil

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.plots.format import percent, plural
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.combined_dial import CrossFittedRule
from shikisha.routing.fit.fit_table import PRICES
from shikisha.routing.fit.log_quality import (
    MIN_SUPPORT,
    WEIGHT_STANDARD_ERRORS,
    WEIGHT_TOLERANCE,
    LogKind,
    count_by_type,
    known_outcomes,
    measure_coverage,
    recorded_propensities,
    supported_outcomes,
)
from shikisha.routing.fit.model_selection import (
    TABLE,
    Selection,
    SettingBoard,
    assign_folds,
    finish_selection,
    judge_board,
    known_workers,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, first_asks, propagate_scores
from shikisha.routing.fit.verdict import untold_verdict
from shikisha.routing.policy_data import Candidate, KnownWorker, Policy, PolicyOrigin, best_worker
from shikisha.routing.state import NO_ANSWER, OPEN_FORM
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

# Grades that are missing, and grades that a check in service also gives.
#
# Missing: answers that nobody graded count for nothing, neither as right nor as wrong. A grade of one answer is one of
# all equal answers to the task, so answers with many supporters are graded more often than lone ones, and are right
# more often. What nobody graded is expected to be right as often as what the same worker said of the same type with as
# many supporters and somebody graded, shrunk to all types, and to what anybody said. Means are unbiased where grades
# are missing at random, given worker, type and supporters. Fits and evaluations get draws with that expectation, one
# for each answer. Invariants: a recorded grade is never changed; a type of which hardly anything is graded is left out.
#
# The test signal: tests pass, a schema fits, the user took it. An answer that fails is none to a policy, as a step
# whose output check fails is none in the engine, so it asks the next worker exactly where the test fails, even where a
# log has scores and no answers. Invariants: an answer without a score says nothing and is left out; without recorded
# answers no two workers are taken to agree. Deliberately absent: a signal that is not the score, and how often it errs.

# A higher score passes.
PASSING_SCORE = 0.5


def apply_test_signal(matrix: OutcomeMatrix) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix in which answers that fail are none, and notes; ConfigError where that says nothing."""
    graded = matrix.there & ~np.isnan(matrix.scores)
    passes = graded & (matrix.won > PASSING_SCORE)
    if not passes.any() or passes[graded].all():
        what = "pass" if passes.any() else "fail, or have no score"
        raise ConfigError(f"--test-signal: all answers {what}, so the scores tell nothing: expected some above 0.5")
    known = matrix.without_outcomes(matrix.there & ~graded)
    own_codes = np.broadcast_to(np.arange(len(matrix.workers)), matrix.codes.shape)
    codes = np.where(passes, matrix.codes if matrix.answers else own_codes, NO_ANSWER)
    how = 'checks = [{ check = "NAME", redo = 0 }]'
    notes = [f"answers up to a score of 0.5 count as failed: in service, give each worker the check behind it ({how})"]
    if missing := int((matrix.there & ~graded).sum()):
        notes.append(f"{plural(missing, 'answer')} without a score left out, since no test is known to pass")
    if between := int((graded & (matrix.scores > 0) & (matrix.scores < 1)).sum()):
        notes.append(f"{plural(between, 'score')} between 0 and 1, which a check that passes or fails does not give")
    # What passes is taken, however long it is and whatever its form.
    tokens, lengths = np.full_like(known.tokens, np.nan), np.zeros_like(known.lengths)
    forms = replace(matrix.types, forms=(OPEN_FORM,) * len(matrix.types.names), form=OPEN_FORM)
    types = matrix.types if matrix.answers else forms
    passing = replace(known, types=types, codes=codes, tokens=tokens, lengths=lengths, evidence=None)
    return replace(passing, answers=True), tuple(notes)


# Numbers of supporters beyond this are one case.
_MOST_SUPPORT = 5
# Grades at the expectation of all workers, added to a worker's own.
_PRIOR = 5.0
# With fewer graded answers of a type nothing is known of it.
_MIN_GRADED = 10
_MAX_NAMED = 3


def complete_grades(matrix: OutcomeMatrix, seed: int = 0) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix with a score for each answer that nobody graded, and notes about it."""
    ungraded = matrix.there & np.isnan(matrix.scores)
    if not (ungraded & (matrix.codes > NO_ANSWER)).any():
        return matrix, ()
    answers = int(matrix.there.sum())
    rows, left_out = _graded_types(matrix)
    kept = matrix if rows.all() else matrix.at(rows)
    count = f"{plural(int(ungraded.sum()), 'answer')} of {answers:,} ({percent(ungraded.sum() / answers)})"
    notes = [f"{count} without a grade count for nothing: results are estimated from the others, as a random part"]
    if left_out:
        more = f" and {len(left_out) - _MAX_NAMED} more" if len(left_out) > _MAX_NAMED else ""
        notes.append(
            f"hardly anything is graded of {', '.join(left_out[:_MAX_NAMED])}{more}: "
            f"{plural(int((~rows).sum()), 'task')} left out"
        )
    return _complete(kept, seed), tuple(notes)


def _graded_types(matrix: OutcomeMatrix) -> tuple[Flags, list[str]]:
    """Return [T], the tasks of types of which enough is graded, and the names of the other types."""
    graded = (matrix.there & ~np.isnan(matrix.scores)).sum(axis=1)
    types = matrix.batch.types
    dark = [kind for kind in np.unique(types).tolist() if graded[types == kind].sum() < _MIN_GRADED]
    if len(dark) == len(np.unique(types)):  # a small log: what there is counts
        return np.ones(len(matrix), bool), []
    return ~np.isin(types, dark), [matrix.types.names[kind] if kind >= 0 else "tasks of no type" for kind in dark]


def _complete(matrix: OutcomeMatrix, seed: int) -> OutcomeMatrix:
    graded = matrix.there & ~np.isnan(matrix.scores)
    agree = (matrix.codes[:, :, None] == matrix.codes[:, None, :]) & (matrix.codes > NO_ANSWER)[:, :, None]
    support = np.minimum(agree.sum(axis=2), _MOST_SUPPORT)
    expected, overall = np.zeros(matrix.codes.shape), float(matrix.won[graded].mean())
    for step in range(_MOST_SUPPORT + 1):
        of_step = matrix.there & (support == step)
        known = of_step & graded
        mean = (matrix.won[known].sum() + _PRIOR * overall) / (known.sum() + _PRIOR)
        by_worker = ((matrix.won * known).sum(axis=0) + _PRIOR * mean) / (known.sum(axis=0) + _PRIOR)
        for kind in np.unique(matrix.batch.types):
            own = known & (matrix.batch.types == kind)[:, None]
            by_kind = ((matrix.won * own).sum(axis=0) + _PRIOR * by_worker) / (own.sum(axis=0) + _PRIOR)
            expected = np.where(of_step & (matrix.batch.types == kind)[:, None], by_kind, expected)
    # One expectation, and one draw, for all who gave an answer.
    chance = np.divide((agree * expected[:, None, :]).sum(axis=2), agree.sum(axis=2), out=expected, where=support > 0)
    binary = bool(np.isin(matrix.scores[graded], (0.0, 1.0)).all())
    lots = np.random.default_rng([seed, len(matrix)]).random(matrix.codes.shape)
    lots = np.take_along_axis(lots, agree.argmax(axis=2), axis=1)
    drawn = (lots < chance).astype(float) if binary else chance
    told = propagate_scores(matrix).scores
    return replace(matrix, scores=np.where(matrix.there & np.isnan(told), drawn, told), graded=graded)


# No estimate is given below this effective sample size (Kish 1965).
MIN_EFFECTIVE_TASKS = 100.0
# A table may ask workers without outcomes there on at most this share of the tasks.
MAX_UNKNOWN_SHARE = 0.01
# Pseudo-tasks at the worker's own mean, added to its tasks of a type.
_PRIOR_TASKS = 20.0
_UNPROVED = "the trade-off shows recorded results where workers were asked, and promises nothing"


@dataclass(frozen=True, slots=True)
class ExpectedOutcomes:
    """Expected outcomes by type and worker, [D + 1, J]: success, dollars, and the number of outcomes (`cells`).

    The last row is for unknown types. Outcomes do not count where their weights do
    not add up to the type's tasks: a worker that is only asked where others were unsure is unknown elsewhere.
    """

    success: Floats
    dollars: Floats
    cells: Ints


def fit_partial_log(matrix: OutcomeMatrix, seed: int = 0, about: PolicyOrigin | None = None) -> tuple[Selection, str]:
    """Fit what a partial log supports; the text says why nothing was measured.

    ConfigError where the log holds no outcome of known value.
    """
    coverage, scored = measure_coverage(matrix), propagate_scores(matrix)
    if not known_outcomes(scored).any():
        raise ConfigError("the log holds no outcome with a score: there is nothing to learn from")
    origin = about or PolicyOrigin("outcomes", "", len(matrix), seed=seed)
    origin = replace(origin, notes=(*origin.notes, *coverage.findings))
    if coverage.kind is LogKind.UNTOLD:
        why = "not every worker was asked for every complete task"
        return _unproved_policy(scored, origin, "the propensities are unknown"), why
    drawn = first_asks(scored.at(coverage.drawn))
    few = MIN_EFFECTIVE_TASKS - len(set(drawn.hashes))
    if few > 0:
        why = f"{len(drawn)} tasks are too few: at least {MIN_EFFECTIVE_TASKS:.0f} are needed"
        return _unproved_policy(drawn, origin, why, ceil(few)), why
    folds, expected = assign_folds(drawn.hashes, f"partial {seed}"), expected_outcomes(drawn)
    unit = best_worker(_known_workers(drawn, expected)).dollars or _highest_dollars(drawn)
    every, cells = np.arange(len(drawn)), supported_outcomes(drawn)
    whole = table_from_outcomes(expected, unit)
    picks = np.zeros((len(drawn), whole.settings), np.int64)
    for fold in np.unique(folds).tolist():
        own = np.flatnonzero(folds == fold)
        rest = replace(expected_outcomes(drawn.at(np.setdiff1d(every, own))), cells=cells)
        part, batch = table_from_outcomes(rest, unit), drawn.at(own).batch
        picks[own] = np.stack([part.choose(batch, setting) for setting in range(part.settings)], axis=1)
    table, refused = _weigh_settings(whole, picks, drawn, (cells, unit))
    known = _known_workers(drawn, expected)
    named = [place for place, worker in enumerate(known) if 2 * worker.tasks >= max(one.tasks for one in known)]
    alone = np.broadcast_to(np.array(named), (len(drawn), len(named)))
    single_part = replace(whole, bonus=np.eye(len(known))[named] * 10.0, prices=np.zeros(len(named)))
    singles, unknown = _weigh_settings(single_part, alone, drawn, (cells, unit))
    if table is None or singles is None:
        nearest = max(refused or unknown, key=lambda one: one.effective)
        return _unproved_policy(drawn, origin, nearest.reason, nearest.needs), nearest.reason
    best = float(singles.won.mean(axis=0).max())
    empty = TradeOff((), unit if drawn.paid.any() else 0.0, best)
    board = SettingBoard((table, singles), (TABLE, "random mix"), (TABLE,), drawn.hashes)
    fitted = judge_board(board, empty)
    note = f"by inverse propensities over {len(drawn):,} first asks"
    return finish_selection(fitted, (TABLE,), (drawn, known, unit), origin, note), ""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why no figure can be given, the effective sample size, and how many more such tasks would suffice."""

    reason: str
    effective: float
    needs: int = 0


def _weigh_settings(
    part: TableRule, picks: Ints, matrix: OutcomeMatrix, support: tuple[Ints, float]
) -> tuple[CrossFittedRule | None, list[_Refusal]]:
    """Return the rule with the settings that the log supports, and their normalized terms; `picks` [T, L]."""
    cells, unit = support
    rows, types = np.arange(len(matrix))[:, None], matrix.batch.types[:, None]
    weight = np.where(known_outcomes(matrix)[rows, picks], 1 / recorded_propensities(matrix)[rows, picks], 0.0)
    dark = (cells[types, picks] == 0).mean(axis=0)
    refused, kept = [], []
    for setting in range(picks.shape[1]):
        refusal = _refuse_weights(weight[:, setting], float(dark[setting]))
        if refusal is None:
            kept.append(setting)
        else:
            refused.append(refusal)
    if not kept:
        return None, refused
    weight, chosen = weight[:, kept], picks[:, kept]
    won, cost = (_normalize(weight, table[rows, chosen]) for table in (matrix.won, matrix.paid / unit))
    part = replace(part, bonus=part.bonus[kept], prices=part.prices[kept])
    return CrossFittedRule(part, won, cost, np.maximum(0.0, cost.mean(axis=0))), refused


def _normalize(weight: Floats, values: Floats) -> Floats:
    """Return terms [T, L] whose means estimate those of the values, and whose spread gives their errors."""
    level = np.maximum(weight.mean(axis=0), 1e-12)
    mean = (weight * values).mean(axis=0) / level
    terms: Floats = mean + weight * (values - mean) / level
    return terms


def _refuse_weights(weight: Floats, dark: float) -> _Refusal | None:
    """Return why these weights [T] support no figure; None where they do."""
    tasks, level = len(weight), float(weight.mean())
    effective = float(weight.sum()) ** 2 / max(1e-12, float((weight**2).sum()))
    tolerance = WEIGHT_TOLERANCE + WEIGHT_STANDARD_ERRORS * float(weight.std() / np.sqrt(max(1, tasks)))
    sums = f"the weights of tasks that hold what it asks have a mean of {level:.2f} rather than 1"
    if level - 1 > tolerance:
        return _Refusal(f"{sums}: the propensities do not match the log", effective)
    if dark > MAX_UNKNOWN_SHARE:
        return _Refusal(f"for {dark:.0%} of the tasks it asks workers without outcomes there", effective)
    if effective < MIN_EFFECTIVE_TASKS:
        needs = ceil(tasks * (MIN_EFFECTIVE_TASKS / effective - 1)) if effective else 0
        more = f": about {needs:,} more tasks logged like these are needed" if needs else ""
        what = f"the {int((weight > 0).sum()):,} tasks of {tasks:,} that hold what it asks"
        return _Refusal(
            f"{what} have an effective size of {effective:.0f}, and {MIN_EFFECTIVE_TASKS:.0f} is needed{more}",
            effective,
            needs,
        )
    if 1 - level > tolerance:
        return _Refusal(f"{sums}: some of what it asks was never recorded, or has no score", effective)
    return None


def table_from_outcomes(table: ExpectedOutcomes, unit: float) -> TableRule:
    """Return the table; a worker without outcomes on a type has lower utility there than any known one.

    That is a success of 0 at the highest cost: not taken as wrong, but not asked either.
    """
    dark = table.cells < MIN_SUPPORT
    dark &= ~dark.all(axis=1, keepdims=True)
    cost = np.where(dark, table.dollars.max(axis=1, keepdims=True), table.dollars) / unit
    return TableRule(np.where(dark, 0.0, table.success), cost, np.zeros((len(PRICES), cost.shape[1])), PRICES)


def expected_outcomes(matrix: OutcomeMatrix, *, weighted: bool = True) -> ExpectedOutcomes:
    """Return expected outcomes by type and worker: weighted means, shrunk to the worker's own over all types.

    Of a log with turns, first asks count. Not `weighted`: propensities are unknown, and all outcomes count equally.
    """
    matrix = first_asks(matrix) if weighted else matrix
    cells = supported_outcomes(matrix) if weighted else count_by_type(matrix, known_outcomes(matrix))
    success = _weighted_means(matrix, matrix.won, known_outcomes(matrix))
    dollars = _weighted_means(matrix, matrix.paid, matrix.there & ~np.isnan(matrix.dollars))
    return ExpectedOutcomes(np.clip(success, 0, 1), dollars, cells)


def _weighted_means(matrix: OutcomeMatrix, values: Floats, cells: Flags) -> Floats:
    """Return [D + 1, J]: means of these outcomes by type; the last row is of all types, to which others are shrunk."""
    weights, kinds = cells / recorded_propensities(matrix), len(matrix.types.names)
    member = np.vstack([np.eye(kinds + 1)[matrix.batch.types % (kinds + 1)].T[:kinds], np.ones(len(matrix))])
    sums, squares, totals = (member @ part for part in (weights, weights**2, weights * values))
    means = np.divide(totals, sums, out=np.zeros_like(sums), where=sums > 0)
    sizes = np.divide(sums**2, squares, out=np.zeros_like(sums), where=squares > 0)
    shrunk: Floats = (sizes * means + _PRIOR_TASKS * means[-1]) / (sizes + _PRIOR_TASKS)
    return np.vstack([shrunk[:-1], means[-1:]])


def _highest_dollars(matrix: OutcomeMatrix) -> float:
    """Return the mean dollars of the most expensive worker; 1.0 where nothing costs anything."""
    return float((matrix.paid.sum(axis=0) / np.maximum(1, matrix.there.sum(axis=0))).max(initial=0.0)) or 1.0


def _unproved_policy(matrix: OutcomeMatrix, about: PolicyOrigin, why: str, tasks: int = 0) -> Selection:
    """Return the table of recorded outcomes, with a trade-off of its own expectations; `tasks` more would tell."""
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
    verdict = untold_verdict((tasks or ceil(MIN_EFFECTIVE_TASKS)) * len(matrix.workers), why)
    candidate = Candidate(TABLE, trade_off, None)
    origin = replace(about, notes=notes, verdict=verdict)
    return Selection(Policy(origin, workers, matrix.types, (rule,), (candidate,), TABLE))


def _known_workers(matrix: OutcomeMatrix, table: ExpectedOutcomes) -> tuple[KnownWorker, ...]:
    """Return the workers; scores and dollars are those of all tasks, not of the ones each was asked for.

    Outcomes that others' answers led to do not count.
    """
    tasks = known_outcomes(first_asks(matrix)).sum(axis=0).tolist()
    means = zip(known_workers(matrix), table.success[-1].tolist(), table.dollars[-1].tolist(), tasks, strict=True)
    return tuple(replace(one, score=score, dollars=dollars, tasks=count) for one, score, dollars, count in means)
