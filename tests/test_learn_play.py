"""Playing: a part is performed act by act on what was recorded, and pays for it."""

import numpy as np

from panels import folds, missing, panel
from shikisha.learn.inducing import Ground, induce
from shikisha.learn.play import mixed, outcome_of, play
from shikisha.learn.tabling import tabulate
from shikisha.policy.batch import NOBODY
from shikisha.policy.dial import Mix, Point, lot

PANEL = panel(tasks=200)


def test_what_is_won_and_paid_is_what_is_recorded() -> None:
    asked = np.zeros((200, 3), bool)
    asked[:, 1] = True
    played = outcome_of(PANEL, asked, np.where(np.arange(200) % 2, 1, NOBODY))
    assert played.won.tolist() == (PANEL.scores[:, 1] * (np.arange(200) % 2)).tolist()
    assert played.paid.tolist() == PANEL.dollars[:, 1].tolist()


def test_a_missing_row_costs_nothing_and_answers_nothing() -> None:
    held = missing(PANEL, np.broadcast_to(np.arange(3) == 0, (200, 3)))
    table = tabulate(PANEL, folds(PANEL)).part
    played = play(table, len(table.prices) - 1, held, np.array([True, False, False]))
    assert not played.paid.any()
    assert (played.shipped == NOBODY).all()


def test_a_mix_plays_each_task_with_the_setting_that_its_content_draws() -> None:
    part = induce(Ground.of(PANEL, folds(PANEL)), range(3)).part
    mix = Mix(Point(0, part.settings - 1, 0.0, 0.0), Point(0, 0, 1.0, 1.0), 0.4)
    played = mixed((part,), mix, PANEL)
    high = np.array([lot(content) < 0.4 for content in PANEL.hashes])
    assert (played.paid[high] == play(part, 0, PANEL).paid[high]).all()
    assert (played.paid[~high] == play(part, part.settings - 1, PANEL).paid[~high]).all()
