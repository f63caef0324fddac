"""Missing grades: answers that nobody graded count for nothing, neither as right nor as wrong.

A grade of one answer is one of all equal answers to the task, so answers with many supporters are graded more often
than lone ones, and are right more often. The probability of being graded is therefore counted by type and number of
supporters. Each answer then has an *estimate* that is doubly robust (Robins, Rotnitzky and Zhao 1994): what a model of
the graded answers expects, and for a graded one the difference from its grade over that probability. Means of estimates
are unbiased where grades are missing at random, given the type and the supporters, whatever the model's quality, and
their spread shows what is unknown. Fits need scores, so they get draws from the model. Invariants: a recorded grade is
never changed; expectations come from other tasks; a type of which hardly anything is graded is left out.
"""

from dataclasses import dataclass, replace

import numpy as np

from shikisha.plots.number_format import percent, plural
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.cascade_rule import sigmoid
from shikisha.routing.fit.fit_cascade import fit_logistic
from shikisha.routing.fit.model_selection import assign_folds
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_ANSWER

_FOLDS = 3
# Numbers of supporters from which another probability of being graded is counted.
_SUPPORT_STEPS = (1, 2, 3, 4, 6, 9)
# A probability is that of a type and step with as many answers, else that of the step in all types.
_MIN_COUNTED = 50
# With fewer graded answers of a type nothing is known of it.
_MIN_GRADED = 10
# No graded answer stands for more others than that.
_LEAST_PROBABILITY = 0.02
_RIDGE = 1.0
_MAX_NAMED = 3


def complete_grades(matrix: OutcomeMatrix, seed: int = 0) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix with a score and an estimate for each answer that nobody graded, and notes about it."""
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


@dataclass(frozen=True, slots=True)
class _Answers:
    """Distinct answers: task and type [G], features [G, p], supporters, and the mean grade of each (NaN: none).

    Where a worker has no answer, that is one without supporters.
    """

    rows: Ints
    types: Ints
    features: Floats
    support: Ints
    grades: Floats


def _complete(matrix: OutcomeMatrix, seed: int) -> OutcomeMatrix:
    most = int(matrix.codes.max(initial=0)) + 1
    width = most + len(matrix.workers)
    rows, columns = np.nonzero(matrix.there)
    codes = matrix.codes[rows, columns]
    keys, places = np.unique(rows * width + np.where(codes > NO_ANSWER, codes, most + columns), return_inverse=True)
    answers = _distinct_answers(matrix, keys // width, places, (rows, columns))
    known = ~np.isnan(answers.grades)
    folds = assign_folds(matrix.hashes, f"grades {seed}", _FOLDS)[answers.rows]
    expected = _expect_grades(answers, folds)
    probability = _graded_probability(answers)
    estimates = expected + np.where(known, (np.nan_to_num(answers.grades) - expected) / probability, 0.0)
    binary = bool(np.isin(matrix.scores[~np.isnan(matrix.scores)], (0.0, 1.0)).all())
    drawn = (np.random.default_rng(seed).random(len(keys)) < expected).astype(float) if binary else expected
    scores, values = matrix.scores.copy(), matrix.scores.copy()
    own = scores[rows, columns]
    scores[rows, columns] = np.where(np.isnan(own), np.where(known, answers.grades, drawn)[places], own)
    values[rows, columns] = estimates[places]
    return replace(matrix, scores=scores, estimates=values, graded=matrix.there & ~np.isnan(matrix.scores))


def _distinct_answers(matrix: OutcomeMatrix, tasks: Ints, places: Ints, cells: tuple[Ints, Ints]) -> _Answers:
    rows, columns = cells
    supporters = np.zeros((len(tasks), len(matrix.workers)))
    supporters[places, columns] = 1.0
    silent = np.zeros(len(tasks), bool)
    silent[places[matrix.codes[rows, columns] <= NO_ANSWER]] = True
    support = np.where(silent, 0, supporters.sum(axis=1)).astype(np.int64)
    given = np.bincount(tasks, support, len(matrix))
    distinct = np.bincount(tasks, support > 0, len(matrix))
    own = matrix.scores[rows, columns]
    graded = ~np.isnan(own)
    counts = np.bincount(places[graded], minlength=len(tasks))
    sums = np.bincount(places[graded], own[graded], len(tasks))
    types = matrix.batch.types[tasks]
    kinds = np.eye(len(matrix.types.names) + 1)[types % (len(matrix.types.names) + 1)]
    share = support / np.maximum(1, given[tasks])
    shape = np.column_stack([np.ones(len(tasks)), share, share**2, 1 / np.maximum(1, distinct[tasks])])
    grades = np.divide(sums, counts, out=np.full(len(tasks), np.nan), where=counts > 0)
    return _Answers(tasks, types, np.hstack([shape, supporters, kinds]), support, grades)


def _expect_grades(answers: _Answers, folds: Ints) -> Floats:
    """Return [G]: the expected grade of each answer, from graded answers to other tasks."""
    known, expected = ~np.isnan(answers.grades), np.zeros(len(answers.rows))
    overall = float(answers.grades[known].mean())
    silent = answers.support == 0
    for fold in range(_FOLDS):
        train, test = known & (folds != fold) & ~silent, (folds == fold) & ~silent
        if train.sum() < _MIN_GRADED:
            expected[test] = overall
            continue
        penalty = np.append(1e-6, np.full(answers.features.shape[1] - 1, _RIDGE))
        weights = fit_logistic(answers.features[train], answers.grades[train], penalty)
        expected[test] = sigmoid(answers.features[test], weights)
    if (known & silent).sum() >= _MIN_GRADED:  # else no answer is worth nothing
        expected[silent] = answers.grades[known & silent].mean()
    return expected


def _graded_probability(answers: _Answers) -> Floats:
    """Return [G]: the probability that an answer like this is graded, by type and number of supporters."""
    steps = np.searchsorted(_SUPPORT_STEPS, answers.support, side="right")
    known, found = ~np.isnan(answers.grades), np.zeros(len(answers.rows))
    for step in np.unique(steps).tolist():
        of_step = steps == step
        for kind in np.unique(answers.types[of_step]).tolist():
            alike = of_step & (answers.types == kind)
            found[alike] = (known[alike] if alike.sum() >= _MIN_COUNTED else known[of_step]).mean()
    return np.maximum(found, _LEAST_PROBABILITY)
