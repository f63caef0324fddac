"""Fitting cascades: what a setting is said to come to is what playing it comes to; it beats the rule where it can."""

from dataclasses import replace
from itertools import pairwise
from math import nan

import numpy as np
import pytest
from panels import POOL, Made, folds, missing, panel, scores_only, untyped
from paths import ROOT

from recorded_pools import NOT_ZE21
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.cascade_rule import END_OF_ORDER
from shikisha.routing.fit.fit_cascade import FittedCascade, StopPoints, fit_cascade, fit_logistic
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.state import OPEN_FORM, TaskTypes

RECORDED = ROOT.parent / "shared" / "recorded"
AT = (0.02, 0.1, 0.5)  # prices
SILENT = {name: replace(made, silent=0.1) for name, made in POOL.items()}
MANY = SILENT | {"other": Made((0.5, 0.6), 0.1), "fourth": Made((0.7, 0.8), 0.6)}


def with_gaps(held: OutcomeMatrix) -> OutcomeMatrix:
    return missing(held, np.random.default_rng(3).random(held.codes.shape) < 0.3)


def open_text(held: OutcomeMatrix) -> OutcomeMatrix:
    """The same panel as if its answers had no canonical form: hardly any two agree."""
    own = 10 * np.broadcast_to(np.arange(len(held.workers)), held.codes.shape) + held.codes
    return replace(
        held,
        types=TaskTypes(held.types.names, (OPEN_FORM, OPEN_FORM), OPEN_FORM),
        codes=np.where(held.codes < 0, -1, own),
    )


PANELS = {
    "full": panel(SILENT),
    "many": panel(MANY, tasks=200),
    "gaps": with_gaps(panel(SILENT)),
    "no types": panel(SILENT, kinds=()),
    "scores": scores_only(panel(SILENT)),
    "open": open_text(panel(SILENT)),
    "untyped": untyped(panel(SILENT)),
    "one worker": panel({"alone": Made(silent=0.1)}, tasks=20),
    "three tasks": panel(tasks=3),
    "one task": panel(tasks=1),
    "two workers": panel({"one": Made(), "two": Made(cost=2.0)}, tasks=50),
}


@pytest.mark.parametrize("held", PANELS.values(), ids=PANELS)
def test_what_it_comes_to_is_what_playing_it_without_each_fold_comes_to(held: OutcomeMatrix) -> None:
    parts = folds(held)
    found = fit_cascade(held, parts)
    assert found.won.shape == found.cost.shape == (len(held), found.part.settings)
    for fold, part in enumerate(found.by_fold):
        rows = parts == fold
        for setting in range(part.settings):
            played = replay(part, setting, held.at(rows))
            assert (played.won == found.won[rows, setting]).all()
            assert played.paid / held.cost_unit() == pytest.approx(found.cost[rows, setting])


@pytest.mark.parametrize("held", PANELS.values(), ids=PANELS)
def test_its_settings_are_on_the_hull_from_the_cheapest_to_the_best(held: OutcomeMatrix) -> None:
    found = fit_cascade(held, folds(held))
    points = list(zip(found.cost.mean(axis=0), found.won.mean(axis=0), strict=True))
    slopes = [(up[1] - low[1]) / (up[0] - low[0]) for low, up in pairwise(points)]
    assert all(slope > 0 for slope in slopes)
    assert all(more > less for more, less in pairwise(slopes))


def orders_of(found: FittedCascade) -> set[tuple[int, ...]]:
    return {
        tuple(worker for worker in order if worker != END_OF_ORDER)
        for order in found.part.orders.reshape(-1, 3).tolist()
    }


def test_orders_go_from_cheap_to_dear_and_name_nobody_twice() -> None:
    held = panel(MANY, tasks=600)
    orders = orders_of(fit_cascade(held, folds(held)))
    costs = held.dollars.mean(axis=0)
    assert {len(order) for order in orders} == {1, 2, 3}
    assert all(costs[low] < costs[up] for order in orders for low, up in pairwise(order))


def test_a_fold_has_no_say_in_what_it_is_played_with() -> None:
    held = panel(SILENT)
    parts = folds(held)
    changed = replace(held, scores=np.where((parts == 0)[:, None], 1 - held.scores, held.scores))
    one, other = ({order: weights[0] for order, weights in stops_of(each, parts).items()} for each in (held, changed))
    assert all((one[order] == other[order]).all() for order in one)
    assert any((stops_of(held, parts)[order][1] != stops_of(changed, parts)[order][1]).any() for order in one)


def stops_of(
    held: OutcomeMatrix, parts: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> dict[tuple[int, ...], np.ndarray]:
    stops = StopPoints.of(held, parts)
    return {order: stops.after(order).weights for order in ((0,), (1,), (0, 1))}


def test_it_beats_the_rule_where_agreement_tells_who_is_right() -> None:
    workers = {"one": Made(0.7, 0.1), "two": Made(0.7, 0.12), "best": Made(0.9, 1.0)}
    held = panel(workers, tasks=1500)
    fitted = (fit_cascade(held, folds(held)), fit_table(held, folds(held)))
    worth = [(one.won - 0.25 * one.cost).mean(axis=0).max() for one in fitted]
    assert worth[0] > worth[1] + 0.04


def test_the_same_panel_makes_the_same_cascade() -> None:
    held = panel(MANY, tasks=150)
    one, other = (fit_cascade(held, folds(held)).part.to_arrays() for _ in range(2))
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("score", [0.0, 1.0, nan])
@pytest.mark.parametrize("free", [True, False])
def test_outcomes_of_one_class_and_no_costs_are_no_trouble(score: float, free: bool) -> None:
    held = panel(tasks=40)
    same = replace(held, scores=np.full_like(held.scores, score))
    given = replace(same, dollars=np.full_like(held.dollars, nan)) if free else same
    found = fit_cascade(given, folds(held))
    assert (found.won == np.nan_to_num(score)).all()
    assert found.part.settings == 1
    assert orders_of(found) <= {(0,), (1,), (2,)}


def test_a_fit_is_where_the_slope_of_the_loss_is_nought() -> None:
    random = np.random.default_rng(0)
    features = np.concatenate([np.ones((500, 1)), random.normal(size=(500, 3))], axis=1)
    labels = (random.random(500) < 1 / (1 + np.exp(-features @ [0.5, 2.0, -1.0, 0.0]))).astype(float)
    penalty = np.array([0.01, 3.0, 3.0, 3.0])
    weights = fit_logistic(features, labels, penalty)
    slope = features.T @ (1 / (1 + np.exp(-features @ weights)) - labels) + penalty * weights
    assert np.abs(slope).max() < 1e-4
    assert weights == pytest.approx([0.5, 2.0, -1.0, 0.0], abs=0.4)
    assert fit_logistic(features, labels, penalty, np.full(4, 30.0)) == pytest.approx(weights, abs=1e-6)


@pytest.mark.parametrize("label", [0.0, 0.5, 1.0])
def test_labels_of_one_class_give_finite_weights(label: float) -> None:
    weights = fit_logistic(np.ones((50, 2)), np.full(50, label), np.full(2, 0.5))
    assert np.sign(weights).tolist() == [np.sign(label - 0.5)] * 2
    assert fit_logistic(np.zeros((0, 2)), np.zeros(0), np.ones(2)).tolist() == [0.0, 0.0]


@pytest.mark.recorded
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded answers in {RECORDED}")
def test_on_recorded_answers_it_is_worth_more_than_one_order_for_all_types_and_more_than_the_rule() -> None:
    log = OutcomeLog.read(RECORDED / "zeroeval")
    held = build_outcome_matrix(log, [name for name in log.workers if name not in NOT_ZE21])
    train, rest = (held.at(np.flatnonzero(folds(held, 2) == half)) for half in (0, 1))
    worth = []
    for part, played in (
        (fit_cascade(train, folds(train)).part, rest),
        (fit_cascade(untyped(train), folds(train)).part, untyped(rest)),
        (fit_table(train, folds(train)).part, rest),
    ):
        runs = [replay(part, setting, played) for setting in range(part.settings)]
        paid = [run.paid.mean() / train.cost_unit() for run in runs]
        at = [max(run.won.mean() - price * cost for run, cost in zip(runs, paid, strict=True)) for price in AT]
        worth.append(np.mean(at))
    assert worth[0] > max(worth[1:]) + 0.005
