"""Fitting the rule: what it comes to is what playing it comes to; shrinkage and load limits."""

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from panels import POOL, Made, folds, missing, panel, scores_only, untyped

from shikisha.routing.fit.fit_table import (
    PRICES,
    SHRINKAGES,
    build_table,
    choose_shrinkage,
    fit_table,
)
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix

SILENT = {name: replace(made, silent=0.1) for name, made in POOL.items()}
KINDS = tuple(f"type {letter}" for letter in "abcdefgh")


def with_gaps(held: OutcomeMatrix) -> OutcomeMatrix:
    return missing(held, np.random.default_rng(3).random(held.codes.shape) < 0.2)


@pytest.mark.parametrize(
    "held",
    [
        panel(SILENT),
        with_gaps(panel(SILENT)),
        panel(kinds=()),
        scores_only(panel(SILENT)),
        untyped(panel()),
        panel({"alone": Made()}, tasks=20),
        panel(tasks=3),
    ],
    ids=["full", "gaps", "no types", "scores", "untyped", "one worker", "three tasks"],
)
def test_what_the_rule_comes_to_is_what_playing_it_on_other_folds_comes_to(held: OutcomeMatrix) -> None:
    parts = folds(held)
    found = fit_table(held, parts)
    assert found.won.shape == found.cost.shape == (len(held), found.part.settings)
    strength = choose_shrinkage(held, parts)
    for fold in range(int(parts.max()) + 1):
        rest, own = held.at(parts != fold), held.at(parts == fold)
        part = build_table(rest, held.cost_unit(), strength)
        for setting in range(0, len(PRICES), 12):
            played = replay(part, setting, own)
            assert (played.won == found.won[parts == fold, setting]).all()
            assert played.paid / held.cost_unit() == pytest.approx(found.cost[parts == fold, setting])


def test_a_type_with_few_tasks_is_shrunk_to_the_workers_mean() -> None:
    held = panel(tasks=41, kinds=("common", "rare"))
    common = np.flatnonzero(held.batch.types == 0)
    rare = np.flatnonzero(held.batch.types == 1)[:1]
    few = held.at(np.concatenate([common, rare]))
    found = build_table(few, 1.0, strength=10.0).success
    means = few.won.mean(axis=0)
    assert found[-1] == pytest.approx(means)
    assert found[1] == pytest.approx((few.won[-1] + 10 * means) / 11)


@pytest.mark.parametrize(("skills", "less"), [((0.05, 0.95), True), ((0.5, 0.5), False)])
def test_types_that_differ_are_shrunk_less_than_types_that_do_not(skills: tuple[float, ...], less: bool) -> None:
    workers = {"one": Made(skills), "two": Made(skills[::-1])}
    held = panel(workers, tasks=200, kinds=KINDS)
    strength = choose_shrinkage(held, folds(held))
    assert strength in SHRINKAGES
    assert (strength < 20) is less


def test_unknown_scores_count_neither_for_nor_against_a_worker() -> None:
    held = panel(tasks=400)
    gaps = np.zeros(held.codes.shape, bool)
    gaps[200:, 0] = True
    part, first = build_table(missing(held, gaps), 1.0), build_table(held.at(np.arange(200)), 1.0)
    assert part.success[:, 0] == pytest.approx(first.success[:, 0])
    assert part.cost[:, 0] == pytest.approx(first.cost[:, 0])


@pytest.mark.parametrize("score", [0.0, 1.0, nan])
def test_outcomes_of_one_class_and_no_costs_are_no_trouble(score: float) -> None:
    held = panel(tasks=30)
    same = replace(held, scores=np.full_like(held.scores, score), dollars=np.full_like(held.dollars, nan))
    found = fit_table(same, folds(same))
    assert (found.won == np.nan_to_num(score)).all()
    assert (found.cost == 0).all()


def test_few_tasks_rank_settings_by_estimates_that_luck_moves_less() -> None:
    same = panel(
        {name: Made(0.6, cost) for name, cost in zip("abcdef", (0.1, 0.2, 0.3, 0.5, 0.8, 1.0), strict=True)}, 60
    )
    found = fit_table(same, folds(same))
    seen = found.won.mean(axis=0)
    assert found.expected.mean() == pytest.approx(seen.mean())
    assert np.ptp(found.expected) < np.ptp(seen)
    many = panel({"a": Made((0.9, 0.4), 0.2), "b": Made((0.5, 0.8), 1.0)}, 3_000)
    found = fit_table(many, folds(many))
    assert found.expected == pytest.approx(found.won.mean(axis=0), abs=0.01)
