"""Playing: a part is performed act by act on what was recorded, and pays for it."""

import numpy as np
from panels import folds, missing, panel, replay_mix

from shikisha.routing.fit.fit_stopping_rule import StoppingData, fit_stopping
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.state import NO_WORKER
from shikisha.routing.trade_off import OperatingMix, OperatingPoint, hash_to_unit

PANEL = panel(tasks=200)


def test_what_is_won_and_paid_is_what_is_recorded() -> None:
    table = fit_table(PANEL, folds(PANEL)).part
    played = replay(table, 0, PANEL, np.array([False, True, False]))
    assert played.won.tolist() == np.where(PANEL.codes[:, 1] >= 0, PANEL.scores[:, 1], 0.0).tolist()
    assert played.paid.tolist() == PANEL.dollars[:, 1].tolist()


def test_a_missing_row_costs_nothing_and_answers_nothing() -> None:
    held = missing(PANEL, np.broadcast_to(np.arange(3) == 0, (200, 3)))
    table = fit_table(PANEL, folds(PANEL)).part
    played = replay(table, len(table.prices) - 1, held, np.array([True, False, False]))
    assert not played.paid.any()
    assert (played.shipped == NO_WORKER).all()


def test_a_mix_plays_each_task_with_the_setting_that_its_content_draws() -> None:
    part = fit_stopping(StoppingData.of(PANEL, folds(PANEL)), range(3)).part
    mix = OperatingMix(OperatingPoint(0, part.settings - 1, 0.0, 0.0), OperatingPoint(0, 0, 1.0, 1.0), 0.4)
    played = replay_mix((part,), mix, PANEL)
    high = np.array([hash_to_unit(content) < 0.4 for content in PANEL.hashes])
    assert (played.paid[high] == replay(part, 0, PANEL).paid[high]).all()
    assert (played.paid[~high] == replay(part, part.settings - 1, PANEL).paid[~high]).all()
