"""Yardsticks: known answers on made panels, and bounds that hold whatever the data."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from panels import POOL, Made, folds, missing, panel, scores_only, untyped

from router_baselines import ReducedTexts, TfidfFeatures, router_baselines
from shikisha.routing.fit.baselines import (
    BEST_SINGLE,
    LEARNED_VOTE,
    MAJORITY_VOTE,
    ORACLE,
    SINGLE_MIX,
    WEIGHTED_VOTE,
    BaselineFitter,
    BaselineOutcomes,
    FittedBaseline,
    ScoredVote,
    WeightedVote,
    affordable_sets,
    baseline_records,
    fit_best_single,
    fit_learned_vote,
    fit_majority_vote,
    fit_oracle,
    fit_single_mix,
    fit_weighted_vote,
    quick_baselines,
    quick_frontiers,
    try_baseline,
    vote_weights,
)
from shikisha.routing.fit.cost_frontier import BUDGETS, Frontier
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_ANSWER, TaskBatch
from shikisha.routing.stopping_rule import AnswerScorer

SPECIALISTS: Mapping[str, Made] = {"mathematician": Made((0.95, 0.15), 0.5), "lawyer": Made((0.15, 0.95), 0.5)}
VOTES = pytest.mark.parametrize("yard", [fit_majority_vote, fit_weighted_vote, fit_learned_vote])


@cache
def all_of() -> dict[str, Frontier]:
    """Every quick yardstick on one made panel."""
    train = panel(tasks=400)
    return quick_frontiers(train, folds(train), panel(tasks=300, seed=1))


def mean(front: Frontier) -> tuple[list[float], list[float]]:
    """What a frontier spends and wins in the mean, by budget."""
    return front.cost.mean(axis=0).tolist(), front.won.mean(axis=0).tolist()


def with_codes(held: OutcomeMatrix, rows: list[list[int]]) -> OutcomeMatrix:
    """The first tasks of a panel, with these answers instead of its own."""
    few = held.at(np.arange(len(rows)))
    return replace(few, codes=np.array(rows), lengths=np.ones(few.codes.shape, np.int64))


def test_nobody_does_better_than_the_oracle() -> None:
    bound = all_of()[ORACLE].won.mean(axis=0)
    for name, front in all_of().items():
        assert (front.won.mean(axis=0) <= bound + 1e-12).all() or name == BEST_SINGLE  # which overspends small budgets
        assert front.won.mean(axis=0)[-1] <= bound[-1]


def test_the_oracle_asks_the_cheapest_right_worker_and_else_the_cheapest() -> None:
    held = panel(tasks=200)
    came = fit_oracle(held)(held)
    right = held.scores == 1
    cheapest = np.where(right, held.dollars, np.inf).min(axis=1)
    assert came.won[:, 0].tolist() == right.any(axis=1).astype(float).tolist()
    assert came.paid[:, 0].tolist() == np.where(right.any(axis=1), cheapest, held.dollars.min(axis=1)).tolist()


def test_the_best_single_worker_is_asked_for_everything_and_costs_about_one() -> None:
    train, held = panel(tasks=400), panel(tasks=300, seed=1)
    found = try_baseline(fit_best_single, train, folds(train), held)
    assert found.asks.tolist() == [[0.0, 0.0, 1.0]]
    assert found.won[:, 0].tolist() == held.won[:, 2].tolist()
    assert found.spent.mean() == pytest.approx(1.0, abs=0.05)


def test_a_mix_by_lot_lies_on_the_hull_of_the_single_workers() -> None:
    two = {name: POOL[name] for name in ("cheap", "dear")}
    train, held = panel(two, tasks=400), panel(two, tasks=300, seed=1)
    front = try_baseline(fit_single_mix, train, folds(train), held).frontier()
    cheap, dear = zip(held.dollars.mean(axis=0) / train.cost_unit(), held.won.mean(axis=0), strict=True)
    for cost, accuracy in zip(*mean(front), strict=True):
        share = max(0.0, (cost - cheap[0]) / (dear[0] - cheap[0]))
        paid = min(1.0, cost / cheap[0])  # of the tasks, where a budget is below the cheapest worker
        assert accuracy == pytest.approx(paid * (cheap[1] + share * (dear[1] - cheap[1])))


@pytest.mark.parametrize("name", [SINGLE_MIX, MAJORITY_VOTE, WEIGHTED_VOTE, LEARNED_VOTE])
def test_budgets_chosen_in_training_are_about_kept(name: str) -> None:
    spent, _ = mean(all_of()[name])
    for budget, cost in zip(BUDGETS.tolist(), spent, strict=True):
        assert cost <= 1.15 * budget + 0.01


def test_weights_that_are_equal_are_a_majority() -> None:
    held = panel({f"w{number}": Made(0.5) for number in range(5)}, tasks=300)
    counted = [Counter(row).most_common() for row in held.codes.tolist()]
    won = WeightedVote(np.full(5, 2.5), np.arange(5))(held, (0, 1, 2, 3, 4))
    for pairs, code in zip(counted, won.tolist(), strict=True):
        assert dict(pairs)[code] == pairs[0][1]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param([0, 1, 1], 1, id="two against the best"),
        pytest.param([0, 1, 2], 1, id="all differ, so the best one's"),
        pytest.param([0, NO_ANSWER, 0], 0, id="the best one is silent"),
        pytest.param([NO_ANSWER, NO_ANSWER, NO_ANSWER], -1, id="nobody answers"),
    ],
)
def test_a_majority_of_three(row: list[int], code: int) -> None:
    held = with_codes(panel(), [row])
    assert WeightedVote(np.ones(3), np.array([1, 0, 2]))(held, (0, 1, 2)).tolist() == [code]


def test_a_weighty_voter_outvotes_two_light_ones_and_those_not_asked_do_not_count() -> None:
    held = with_codes(panel(), [[0, 1, 1]])
    tally = WeightedVote(np.array([3.0, 1.0, 1.5]), np.arange(3))
    assert [tally(held, asked).tolist() for asked in ((0, 1, 2), (1, 2), (2,))] == [[0], [1], [1]]


def test_a_better_worker_weighs_more_and_even_a_useless_one_something() -> None:
    held = panel({"good": Made(0.9), "middling": Made(0.6), "useless": Made(0.001)}, tasks=400)
    good, middling, useless = vote_weights(held).tolist()
    assert good > middling > useless > 0


def test_wrong_answers_that_agree_make_votes_weigh_less() -> None:
    workers = {name: Made(0.5) for name in "abc"}
    apart, together = (vote_weights(panel(workers, tasks=400, alike=share)) for share in (0.0, 1.0))
    assert (apart > together + 1).all()


def test_votes_are_of_the_best_of_those_who_cost_at_most_so_much() -> None:
    held = panel(tasks=400)  # in order of cost: cheap, middle, dear; of skill: dear, middle, cheap
    assert affordable_sets(held) == ((0,), (1,), (1, 0), (2,), (2, 1), (2, 1, 0))
    assert affordable_sets(held, (1, 9)) == ((0,), (0,), (1,), (1, 0), (2,), (2, 1, 0))


@VOTES
def test_a_vote_of_three_good_independent_workers_beats_each(yard: BaselineFitter) -> None:
    workers = {name: Made(0.75, 1.0) for name in "abc"}
    train, held = panel(workers, tasks=600), panel(workers, tasks=600, seed=1)
    front = try_baseline(yard, train, folds(train), held).frontier(np.array([3.5]))
    assert front.won.mean() > held.mean_scores().max() + 0.03


@VOTES
def test_a_vote_pays_everybody_it_asks(yard: BaselineFitter) -> None:
    train, held = panel(), panel(tasks=60, seed=1)
    came = yard(train)(held)
    assert came.paid.sum(axis=0) == pytest.approx(came.asks @ held.dollars.sum(axis=0))


@VOTES
def test_a_vote_in_which_nobody_answers_wins_nothing(yard: BaselineFitter) -> None:
    silent = missing(panel(tasks=40, seed=1), np.ones((40, 3), bool))
    came = yard(panel())(silent)
    assert came.won.sum() == came.paid.sum() == 0


def test_a_scored_vote_hears_only_those_asked() -> None:
    held = with_codes(panel(), [[0, 1, 1]])
    scorer = AnswerScorer(np.zeros(3), np.tile([1.0, 0.8, 0.7], (3, 1)), np.zeros((3, 3)), np.zeros(3))
    assert [ScoredVote(scorer)(held, asked).tolist() for asked in ((0, 1, 2), (0, 1))] == [[1], [0]]


@pytest.mark.parametrize("name", list(router_baselines()))
def test_a_router_learns_from_words_who_is_good_at_what(name: str) -> None:
    train, held = untyped(panel(SPECIALISTS, tasks=400)), untyped(panel(SPECIALISTS, tasks=200, seed=1))
    found = try_baseline(router_baselines()[name], train, folds(train), held)
    assert found.frontier(np.array([1.5])).won.mean() > held.mean_scores().max() + 0.3
    assert found.asks.sum(axis=1) == pytest.approx(np.ones(len(found.cost)))


@pytest.mark.parametrize("name", list(router_baselines()))
def test_a_router_asks_the_cheapest_where_money_is_all_that_counts(name: str) -> None:
    train = panel(tasks=200)
    assert try_baseline(router_baselines()[name], train, folds(train), train).shares(0.0) == pytest.approx(
        [1.0, 0.0, 0.0], abs=0.05
    )


def test_words_have_length_one_and_what_is_rare_or_everywhere_is_left_out() -> None:
    held = panel(tasks=200)
    rows = TfidfFeatures.of(held).rows(held.batch)
    assert np.sqrt(rows.multiply(rows).sum(axis=1)) == pytest.approx(np.ones((200, 1)))
    unknown = TaskBatch(("nobody ever wrote xylophone", "Question which of the following about"), np.zeros(2, np.int64))
    assert TfidfFeatures.of(held).rows(unknown).nnz == 0


def test_prompts_of_one_type_are_nearer_along_the_main_directions() -> None:
    held = untyped(panel(tasks=200))
    rows = ReducedTexts.of(held, 8).rows(held.batch)
    alike, kind = rows @ rows.T, np.arange(200) % 2
    assert rows.shape == (200, 8)
    assert alike[kind[:, None] == kind].mean() > alike[kind[:, None] != kind].mean() + 0.2


def test_a_training_curve_comes_from_tasks_that_were_not_in_the_fit() -> None:
    def remembering(fitted: OutcomeMatrix) -> FittedBaseline:
        def perform(held: OutcomeMatrix) -> BaselineOutcomes:
            known = np.array([[float(task in fitted.ids)] for task in held.ids])
            return BaselineOutcomes(known, np.ones_like(known), np.ones((1, 3)))

        return perform

    train = panel(tasks=100)
    found = try_baseline(remembering, train, folds(train), train)
    assert found.accuracy.tolist() == [0.0]
    assert found.won.mean() == 1.0


def test_asking_a_missing_row_costs_nothing_and_gives_nothing() -> None:
    train, held = panel(tasks=100), panel(tasks=60, seed=1)
    cells = np.zeros(held.codes.shape, bool)
    cells[:30] = True
    came = fit_single_mix(train)(missing(held, cells))
    assert came.won[:30].sum() == came.paid[:30].sum() == 0
    assert came.won[30:].tolist() == held.won[30:].tolist()


def test_panels_without_answers_have_no_votes() -> None:
    assert set(quick_baselines(panel())) == {
        BEST_SINGLE,
        SINGLE_MIX,
        MAJORITY_VOTE,
        WEIGHTED_VOTE,
        LEARNED_VOTE,
        ORACLE,
    }
    assert set(quick_baselines(scores_only(panel()))) == {BEST_SINGLE, SINGLE_MIX, ORACLE}


def test_where_nothing_costs_anything_every_budget_buys_the_best() -> None:
    free = {name: replace(made, cost=0.0) for name, made in POOL.items()}
    train, held = panel(free, tasks=200), panel(free, tasks=100, seed=1)
    found = quick_frontiers(train, folds(train), held)
    assert mean(found[SINGLE_MIX])[1] == pytest.approx([held.won[:, 2].mean()] * len(BUDGETS))
    assert mean(found[ORACLE])[0] == [0.0] * len(BUDGETS)


def test_what_is_told_is_the_area_from_a_budget_on_and_every_budget() -> None:
    train = panel(tasks=200)
    found = quick_frontiers(train, folds(train), train, np.array([0.02, 1.0]))
    (mix,) = [one for one in baseline_records(found, first=1) if one.name == SINGLE_MIX]
    assert mix.area == pytest.approx(found[SINGLE_MIX].won[:, 1].mean())
    assert [met.budget for met in mix.frontier] == [0.02, 1.0]
    assert "drawn at random" in mix.note


def test_votes_of_a_large_pool_are_over_the_workers_that_a_policy_may_ask() -> None:
    random = np.random.default_rng(0)
    many = panel({f"w{index}": Made(float(skill), 0.1) for index, skill in enumerate(random.uniform(0.2, 0.9, 40))}, 60)
    trial = try_baseline(quick_baselines(many)[MAJORITY_VOTE], many, folds(many), many)
    asked = trial.asks.max(axis=0) > 0
    assert trial.asks.shape[1] == 40
    assert asked.sum() <= 32
    assert asked[many.best_worker()]
