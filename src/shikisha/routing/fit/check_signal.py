"""The test signal: a score that is known as soon as an answer is there, because what gave it also runs in service.

Tests pass, a schema fits, the user took it: an answer that fails is no answer to a policy, as a step whose output check
fails is none in the engine. So a cascade asks the next worker exactly where the test fails, even where a log has scores
and no answers. Invariants: scores are unchanged; an answer without a score says nothing and is left out; without
recorded answers no two workers are taken to agree. Deliberately absent: a signal that is not the score, and how often
it errs; such a log is learned from with its answers.
"""

from dataclasses import replace

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.plots.format import plural
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
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
