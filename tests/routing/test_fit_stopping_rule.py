"""Scorers and inductions: calibrated, honest on new tasks, thrifty at high prices, alike for one task and many."""

from dataclasses import replace

import numpy as np
import pytest
from panels import POOL, Made, folds, panel, scores_only, untyped

from shikisha.routing.fit.fit_stopping_rule import (
    FittedStopping,
    StoppingConfig,
    StoppingData,
    fit_scorers,
    fit_stopping,
)
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_WORKER, SHIP, AnswerBelief

THREE = {"one": Made(0.7, 0.1), "two": Made(0.7, 0.1), "three": Made(0.7, 1.0)}


def fitted(held: OutcomeMatrix, prices: tuple[float, ...] = (0.01, 0.3, 20.0)) -> FittedStopping:
    ground = StoppingData.of(held, folds(held), StoppingConfig(prices=np.array(prices)))
    return fit_stopping(ground, range(len(held.workers)))


def test_probabilities_are_calibrated_on_tasks_that_the_scorer_has_not_seen() -> None:
    held, fresh = panel(THREE, tasks=1500), panel(THREE, tasks=1500, seed=1)
    seen = fresh.state_after(np.ones((1500, 3), bool))
    belief = AnswerBelief.of(fit_scorers(held, folds(held))[0].posterior(seen))
    right = np.array(
        [fresh.scores[row][fresh.codes[row] == code].max(initial=0) for row, code in enumerate(belief.top)]
    )
    sure = belief.best > 0.9
    assert right[sure].mean() == pytest.approx(belief.best[sure].mean(), abs=0.03)
    assert right[~sure].mean() == pytest.approx(belief.best[~sure].mean(), abs=0.06)


def test_agreement_counts_less_where_workers_err_alike() -> None:
    alone, alike = (fit_scorers(panel(THREE, tasks=1500, alike=alike), np.arange(1500) % 2)[0] for alike in (0.0, 0.9))
    assert alike.pairs[0, 1] < alone.pairs[0, 1]


def test_the_scorer_does_not_care_how_answers_are_numbered() -> None:
    held = panel(THREE, tasks=50)
    scorer, turned = (
        fit_scorers(held, folds(held))[0],
        replace(held, codes=np.where(held.codes >= 0, 7 - held.codes, held.codes)),
    )
    one, other = (scorer.posterior(each.state_after(np.ones((50, 3), bool))) for each in (held, turned))
    assert np.sort(one[0], axis=1)[:, -3:] == pytest.approx(np.sort(other[0], axis=1)[:, -3:])


def test_what_the_fit_promises_is_what_new_tasks_bring() -> None:
    held, fresh = panel(tasks=1200, alike=0.3), panel(tasks=1200, alike=0.3, seed=1)
    found = fitted(held)
    for setting in range(3):
        played = replay(found.part, setting, fresh)
        assert played.won.mean() == pytest.approx(found.won[:, setting].mean(), abs=0.05)
        assert played.paid.mean() / held.cost_unit() == pytest.approx(found.cost[:, setting].mean(), abs=0.2)


def test_the_dearer_money_is_the_less_is_spent() -> None:
    costs = fitted(panel(tasks=800)).cost.mean(axis=0)
    assert costs[0] > costs[1] > costs[2]


def test_asking_several_beats_the_best_single_worker_where_errors_are_independent() -> None:
    held = panel(THREE, tasks=1200)
    assert fitted(held).won[:, 0].mean() > held.mean_scores().max() + 0.02


def test_one_task_is_decided_as_it_is_among_many() -> None:
    held = panel(tasks=120)
    part = fitted(held).part
    seen = held.state_after(np.random.default_rng(0).random((120, 3)) < 0.5)
    whole = part.act(seen, 1)
    for row in range(120):
        alone = part.act(seen.at(np.array([row])), 1)
        assert (alone.ask[0], alone.ship[0]) == (whole.ask[row], whole.ship[row])


def test_nobody_is_asked_twice_or_while_not_there_and_what_is_shipped_was_given() -> None:
    held = panel(tasks=300)
    part = fitted(held).part
    there = np.array([True, False, True])
    asked = np.random.default_rng(0).random((300, 3)) < 0.4
    acts = part.act(held.state_after(asked, there), 0)
    asks, ships = acts.ask != SHIP, (acts.ask == SHIP) & (acts.ship != NO_WORKER)
    assert there[acts.ask[asks]].all()
    assert not asked[asks, acts.ask[asks]].any()
    assert asked[ships, acts.ship[ships]].all()


@pytest.mark.parametrize(
    "held",
    [
        panel(tasks=40),
        panel(tasks=60, kinds=()),
        untyped(panel(tasks=60)),
        scores_only(panel(tasks=60)),
        panel({"only": Made(0.5)}, tasks=60),
        panel({name: replace(made, cost=0.0) for name, made in POOL.items()}, tasks=60),
        panel({"a": Made(1.0), "b": Made(1.0)}, tasks=60),
        panel({"a": Made(0.0), "b": Made(0.0, silent=1.0)}, tasks=60),
    ],
    ids=["few", "no types", "unknown types", "scores only", "one worker", "free", "always right", "never right"],
)
def test_odd_logs_give_figures_and_no_warnings(held: OutcomeMatrix) -> None:
    found = fitted(held)
    assert np.isfinite(found.won).all()
    assert np.isfinite(found.cost).all()
    assert np.isfinite(replay(found.part, 1, held).won).all()
