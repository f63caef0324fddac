"""Absent outcomes: a rule does not send a type to whom hardly anything is known of there."""

import numpy as np
import pytest
from panels import Made, missing, panel

from shikisha.routing.fit.model_selection import TABLE, LearningOptions, fit_candidates
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, fill_missing_as_silent, missing_shares
from shikisha.routing.trade_off import TradeOff

MADE = {"lucky": Made((0.7, 0.98), 1.0), "steady": Made((0.6, 0.8), 1.0)}
HELD = panel(MADE, tasks=600)


def without(share: float) -> OutcomeMatrix:
    """Return the panel in which so much of the second type was not asked of the first worker."""
    rows = np.flatnonzero(HELD.batch.types == 1)
    lacks = np.zeros(HELD.codes.shape, bool)
    lacks[rows[: round(share * len(rows))], 0] = True
    return missing(HELD, lacks)


@pytest.mark.parametrize("share", [0.0, 0.15])
def test_what_is_lacking_by_accident_is_left_as_it_is(share: float) -> None:
    held = without(share)
    assert missing_shares(held) == pytest.approx(np.array([[0, 0], [share, 0]]))
    assert fill_missing_as_silent(held) is held


def test_where_much_of_a_type_is_lacking_a_worker_has_no_answer_there_for_nothing() -> None:
    held = without(0.8)
    lacks = ~held.there
    found = fill_missing_as_silent(held)
    assert found.there.all()
    assert (found.scores[lacks] == 0).all()
    assert (found.dollars[lacks] == 0).all()
    assert np.array_equal(found.scores[~lacks], held.scores[~lacks])
    assert np.array_equal(found.codes, held.codes)


def test_tasks_of_unknown_types_are_left_alone() -> None:
    held = missing(panel(MADE, tasks=40, kinds=()), np.arange(40)[:, None] < 30)
    assert fill_missing_as_silent(held) is held


@pytest.mark.parametrize(("share", "asked"), [(0.0, 0), (0.8, 1)])
def test_the_rule_keeps_to_those_that_are_known(share: float, asked: int) -> None:
    fitted = fit_candidates(without(share), LearningOptions(), (TABLE,))
    dial: TradeOff = fitted.dials[TABLE]
    best = dial.points[-1]
    seen = HELD.state_after(np.zeros(HELD.codes.shape, bool))
    acts = fitted.parts[best.part].act(seen, best.setting)
    assert set(acts.ask[HELD.batch.types == 1].tolist()) == {asked}
