"""Workers that joined late: what is filled in for them is like them, is told apart, and helps."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from math import inf

import numpy as np
import pytest
from panels import Made, folds, missing, panel, scores_only, untyped
from paths import ROOT

from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.cost_frontier import BUDGETS, mix_for_budget
from shikisha.routing.fit.fit_stopping_rule import StoppingConfig, StoppingData, fit_stopping
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.model_selection import assign_folds
from shikisha.routing.fit.new_workers import (
    MIN_OUTCOMES,
    find_new_workers,
    impute_outcomes,
    imputed_mask,
    num_imputations,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.state import NO_ANSWER
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

SIX = {
    "tiny": Made((0.5, 0.35), 0.01),
    "cheap": Made((0.7, 0.45), 0.02),
    "middle": Made((0.6, 0.7), 0.2, silent=0.05),
    "good": Made((0.75, 0.72), 0.5, tokens=200.0),
    "dear": Made((0.85, 0.8), 1.0, tokens=300.0),
    "late": Made((0.85, 0.6), 0.05, tokens=50.0, seconds=2.0),
}
LATE = 5
RECORDED = ROOT.parent / "shared" / "recorded"
NAMES = (
    "deepseek-v2.5-0908",
    "gemini-1.5-flash",
    "gpt-4o-2024-08-06",
    "Qwen2-72B-Instruct",
    "Phi-3.5-mini-instruct",
)


@cache
def whole(tasks: int = 1500, seed: int = 0) -> OutcomeMatrix:
    return panel(SIX, tasks, alike=0.5, seed=seed)


def few(held: OutcomeMatrix, count: int = 100, seed: int = 0) -> OutcomeMatrix:
    """The panel in which the late worker was asked for so many tasks only."""
    cells = np.zeros(held.codes.shape, bool)
    cells[:, LATE] = True
    cells[np.random.default_rng(seed).choice(len(held), count, replace=False), LATE] = False
    return missing(held, cells)


def agreement(held: OutcomeMatrix, one: int, other: int) -> float:
    """How often two workers give the same wrong answer, of the times that the first is wrong."""
    wrong = (held.won[:, one] < 0.5) & (held.codes[:, one] > NO_ANSWER)
    return float((held.codes[wrong, one] == held.codes[wrong, other]).mean())


def area(curves: list[tuple[Floats, Floats]]) -> float:
    """The area under the hull of these accuracies and costs."""
    points = [
        OperatingPoint(0, 0, float(cost), float(won))
        for wons, costs in curves
        for won, cost in zip(wons.mean(axis=0), costs.mean(axis=0), strict=True)
    ]
    dial = TradeOff(upper_hull(points), 1.0, 0.0)
    return float(np.mean([mix_for_budget(dial, float(budget)).accuracy for budget in BUDGETS]))


def off(held: OutcomeMatrix, seeds: Iterable[int], count: int) -> tuple[float, float]:
    """The mean square error of the late worker's mean: by its few outcomes, and as filled in."""
    true = held.mean_scores()[LATE]
    panels = [few(held, count, seed) for seed in seeds]
    own = [(each.mean_scores()[LATE] - true) ** 2 for each in panels]
    borrowed = [(impute_outcomes(each).mean_scores()[LATE] - true) ** 2 for each in panels]
    return float(np.mean(own)), float(np.mean(borrowed))


def test_a_full_panel_is_returned_as_it_is() -> None:
    assert impute_outcomes(whole()) is whole()
    assert find_new_workers(whole()) == ()


def test_what_was_recorded_is_never_changed_and_what_was_filled_in_is_told_apart() -> None:
    held = few(whole())
    found = impute_outcomes(held)
    recorded = ~np.isnan(held.scores)
    for name in ("codes", "scores", "dollars", "tokens", "lengths"):
        assert np.array_equal(getattr(found, name)[recorded], getattr(held, name)[recorded], equal_nan=True)
    assert np.array_equal(imputed_mask(found), ~recorded)
    assert np.array_equal(found.there, held.there)
    assert not imputed_mask(held).any()


def test_equal_panels_and_seeds_are_filled_in_alike() -> None:
    one, again, other = (impute_outcomes(few(whole()), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.codes, again.codes)
    assert np.array_equal(one.dollars, again.dollars)
    assert not np.array_equal(one.codes, other.codes)


def test_small_panels_are_filled_in_several_times_each_time_anew() -> None:
    held = few(whole())
    found, count = impute_outcomes(held, copies=num_imputations(held)), len(held)
    assert (num_imputations(held), num_imputations(whole())) == (3, 1)
    assert (found.ids, found.batch.prompts) == (held.ids * 3, held.batch.prompts * 3)
    first, second = (found.at(np.arange(count) + count * place) for place in range(2))
    assert np.array_equal(first.codes, impute_outcomes(held).codes)
    assert not np.array_equal(first.codes, second.codes)
    assert np.array_equal(first.codes[:, :LATE], second.codes[:, :LATE])
    places = assign_folds(found.hashes, "any")
    assert np.array_equal(places[:count], places[count : 2 * count])


def test_every_task_gets_an_outcome_whose_answer_and_score_fit_those_of_others() -> None:
    found = impute_outcomes(few(whole()))
    assert not np.isnan(found.scores).any()
    for row in range(0, len(found), 7):
        same = found.codes[row] == found.codes[row, LATE]
        if found.codes[row, LATE] > NO_ANSWER:
            assert len(set(found.scores[row][same])) == 1
        else:
            assert found.scores[row, LATE] == 0


@pytest.mark.parametrize("seed", range(3))
def test_it_is_as_good_by_type_as_dear_and_as_much_like_others_as_it_really_is(seed: int) -> None:
    held = whole(3000, seed)
    found = impute_outcomes(few(held, 150, seed))
    for kind in range(2):
        rows = held.batch.types == kind
        assert found.won[rows, LATE].mean() == pytest.approx(held.won[rows, LATE].mean(), abs=0.11)
    assert found.paid[:, LATE].mean() == pytest.approx(held.paid[:, LATE].mean(), rel=0.1)
    assert np.nanmean(found.tokens[:, LATE]) == pytest.approx(np.nanmean(held.tokens[:, LATE]), rel=0.15)
    assert np.corrcoef(found.won[:, LATE], found.won[:, 4])[0, 1] == pytest.approx(
        np.corrcoef(held.won[:, LATE], held.won[:, 4])[0, 1], abs=0.15
    )
    assert agreement(found, LATE, 3) == pytest.approx(agreement(held, LATE, 3), abs=0.15)


def test_borrowing_is_nearer_to_the_truth_than_the_few_outcomes_are() -> None:
    held = panel(SIX, 1500, alike=0.9)
    own, borrowed = off(held, range(12), 60)
    assert borrowed < 0.75 * own


def test_most_of_what_a_hidden_worker_was_worth_comes_back() -> None:
    held = whole(2000)
    unit, places = held.cost_unit(), folds(held)
    areas = {}
    for name, one in (
        ("all", held),
        ("few", impute_outcomes(few(held))),
        ("none", held.select_workers(held.workers[:LATE])),
    ):
        tabled = fit_table(one, places, unit)
        real = np.minimum(np.arange(len(one.workers)), LATE)
        chosen = [tabled.part.choose(held.batch, setting) for setting in range(tabled.part.settings)]
        rows = np.arange(len(held))
        won = np.stack([held.won[rows, real[each]] for each in chosen], axis=1)
        cost = np.stack([held.paid[rows, real[each]] for each in chosen], axis=1) / unit
        areas[name] = area([(won, cost)])
    assert areas["all"] - areas["none"] > 0.01
    assert areas["few"] - areas["none"] > 0.7 * (areas["all"] - areas["none"])


def test_an_induction_is_fitted_on_what_was_filled_in() -> None:
    found = impute_outcomes(few(whole(600)))
    fitted = fit_stopping(
        StoppingData.of(found, folds(found), StoppingConfig(prices=np.array([0.05, 1.0]))), (1, 4, LATE)
    )
    assert fitted.won[:, 0].mean() > found.mean_scores()[1]


@pytest.mark.parametrize("count", [0, MIN_OUTCOMES - 1, MIN_OUTCOMES])
def test_workers_with_hardly_any_outcome_are_left_alone(count: int) -> None:
    held = few(whole(), count)
    assert find_new_workers(held) == ((LATE,) if count >= MIN_OUTCOMES else ())
    assert (impute_outcomes(held) is held) == (count < MIN_OUTCOMES)


def test_nothing_is_filled_in_where_nobody_is_known_to_be_like() -> None:
    cells = np.zeros(whole().codes.shape, bool)
    cells[100:, 1:] = True
    held = missing(whole(), cells)
    assert impute_outcomes(held) is held


def test_several_newcomers_are_filled_in_one_after_another() -> None:
    cells = np.zeros(whole().codes.shape, bool)
    cells[120:, 1], cells[:-200, 4] = True, True
    found = impute_outcomes(missing(whole(), cells))
    assert find_new_workers(missing(whole(), cells)) == (4, 1)
    assert imputed_mask(found).sum(axis=0).tolist() == [0, len(found) - 120, 0, 0, len(found) - 200, 0]


def test_logs_without_answers_types_or_costs_are_filled_in_too() -> None:
    bare = replace(untyped(scores_only(whole())), dollars=np.full(whole().codes.shape, np.nan))
    found = impute_outcomes(few(bare))
    assert np.isnan(found.dollars).all()
    assert all(len(set(row)) == len(row) for row in found.codes.tolist())
    assert found.won[:, LATE].mean() == pytest.approx(bare.won[:, LATE].mean(), abs=0.12)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_newcomer_that_was_always_right_or_wrong_is_not_thought_to_be_so_for_ever(score: float) -> None:
    held = few(whole(), 12)
    scores = held.scores.copy()
    scores[~np.isnan(scores[:, LATE]), LATE] = score
    mean = impute_outcomes(replace(held, scores=scores)).mean_scores()[LATE]
    assert 0.05 < mean < 0.99
    assert (mean > 0.6) == (score > 0.5)


def test_what_is_free_stays_free() -> None:
    free = replace(whole(), dollars=whole().dollars * (np.arange(6) != LATE))
    found = impute_outcomes(few(free))
    assert (found.dollars[:, LATE] == 0).all()
    assert found.dollars.max() < inf


@pytest.mark.recorded
@pytest.mark.parametrize("late", ["gpt-4o-mini-2024-07-18", "claude-3-5-haiku-20241022"])
def test_recorded_workers_are_borrowed_well(late: str) -> None:
    if not RECORDED.is_dir():
        pytest.skip(f"no recorded answers in {RECORDED}")
    names = (*NAMES, late)
    own, borrowed = off(build_outcome_matrix(OutcomeLog.read(RECORDED / "zeroeval", names), names), range(10), 100)
    assert borrowed < 0.8 * own
