"""Grades that are missing, and grades that a check in service also gives.

Missing: answers that nobody graded count for nothing, neither as right nor as wrong. A grade of one answer is one of
all equal answers to the task, so answers with many supporters are graded more often than lone ones, and are right more
often. What nobody graded is expected to be right as often as what the same worker said of the same type with as many
supporters and somebody graded, shrunk to all types, and to what anybody said. Means are unbiased where grades are
missing at random, given worker, type and supporters. Fits and evaluations get draws with that expectation, one for each
answer. Invariants: a recorded grade is never changed; a type of which hardly anything is graded is left out.

The test signal: tests pass, a schema fits, the user took it. An answer that fails is none to a policy, as a step whose
output check fails is none in the engine, so it asks the next worker exactly where the test fails, even where a log has
scores and no answers. Invariants: an answer without a score says nothing and is left out; without recorded answers no
two workers are taken to agree. Deliberately absent: a signal that is not the score, and how often it errs.
"""

from dataclasses import replace

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.plots.format import percent, plural
from shikisha.routing.arrays import Flags
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, propagate_scores
from shikisha.routing.state import NO_ANSWER, OPEN_FORM

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
