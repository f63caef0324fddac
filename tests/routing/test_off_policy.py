"""Off-policy values: right on average, inside their intervals, narrower where they should be, or refused."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from panels import Made, folds, missing, panel
from partial_logs import asked, each_apart, one_each, second_opinions

from shikisha.routing.arrays import Floats
from shikisha.routing.fit.fit_table import PRICES, build_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.off_policy import (
    CrossFitSplit,
    EstimateInterval,
    EstimateRefusal,
    OffPolicyMethod,
    PolicyTerms,
    PolicyValue,
    estimate_difference,
    estimate_refusal,
    estimate_value,
    expected_outcomes,
    follow_rule,
    measure_overlap,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_WORKER, SHIP, Actions, ArrayMap, DecisionState

HELD = panel(tasks=1200)
SKEWED = np.where(HELD.batch.types[:, None] == 0, [0.6, 0.3, 0.1], [0.1, 0.3, 0.6])
LOGS: dict[str, Callable[[int], OutcomeMatrix]] = {
    "uniform": lambda seed: one_each(HELD, np.full(3, 1 / 3), seed),
    "skewed": lambda seed: one_each(HELD, SKEWED, seed),
    "apart": lambda seed: each_apart(HELD, SKEWED, seed),
}


@dataclass(frozen=True)
class InTurn:
    """Asks these workers in this order, whatever they say, and ships what the last one says."""

    order: tuple[int, ...]
    kind: ClassVar[str] = "in turn"
    settings: int = 1

    def act(self, seen: DecisionState, setting: int) -> Actions:  # noqa: ARG002 - the protocol's signature
        count = seen.asked.sum(axis=1)
        ends = count == len(self.order)
        ship = np.where(seen.codes[:, self.order[-1]] >= 0, self.order[-1], NO_WORKER)
        return Actions(np.where(ends, SHIP, np.resize(self.order, 9)[count]), np.where(ends, ship, NO_WORKER))

    def to_arrays(self) -> ArrayMap:
        return {}


RULE = build_table(panel(tasks=1200, seed=7), 1.0)
MIDDLE = 30  # a setting that asks different workers for different types


def terms(held: OutcomeMatrix, order: tuple[int, ...] = ()) -> PolicyTerms:
    part, setting = (InTurn(order), 0) if order else (RULE, MIDDLE)
    return CrossFitSplit.of(held, folds(held)).rule_terms(part, setting)


def told(held: OutcomeMatrix, method: OffPolicyMethod = OffPolicyMethod.DR, order: tuple[int, ...] = ()) -> PolicyValue:
    found = estimate_value(terms(held, order), method)
    assert isinstance(found, PolicyValue)
    return found


def refused(found: PolicyTerms) -> EstimateRefusal:
    why = estimate_refusal(found)
    assert why is not None
    assert estimate_value(found) == why
    return why


@pytest.mark.parametrize("method", OffPolicyMethod)
@pytest.mark.parametrize("log", LOGS)
def test_estimates_are_right_on_average(log: str, method: OffPolicyMethod) -> None:
    truth = replay(RULE, MIDDLE, HELD)
    found = [told(LOGS[log](seed), method) for seed in range(16)]
    for name, aim in (("accuracy", truth.won.mean()), ("dollars", truth.paid.mean())):
        means = np.array([getattr(one, name).mean for one in found])
        assert means.mean() == pytest.approx(aim, abs=4 * means.std() / 4)


def test_intervals_hold_the_value_of_the_policy_about_nineteen_times_in_twenty() -> None:
    many = panel(tasks=20_000, seed=3)
    truth, held = replay(RULE, MIDDLE, many).won.mean(), 0
    random = np.random.default_rng(1234)
    for seed in range(100):
        log = one_each(many.at(random.integers(0, len(many), 600)), np.array([0.4, 0.4, 0.2]), seed)
        found = told(log).accuracy
        held += found.low <= truth <= found.high
    assert 88 <= held <= 99


def test_the_doubly_robust_interval_is_narrower_than_the_one_of_weights_alone() -> None:
    wide, narrow = (told(LOGS["uniform"](0), method).accuracy for method in (OffPolicyMethod.IPS, OffPolicyMethod.DR))
    assert narrow.high - narrow.low < 0.7 * (wide.high - wide.low)


@pytest.mark.parametrize("method", OffPolicyMethod)
def test_a_full_log_gives_what_playing_it_gives(method: OffPolicyMethod) -> None:
    truth, found = replay(RULE, MIDDLE, HELD), told(HELD, method)
    assert found.accuracy.mean == pytest.approx(truth.won.mean())
    assert found.dollars.mean == pytest.approx(truth.paid.mean())
    assert found.overlap.effective == pytest.approx(len(HELD))


def test_asking_one_worker_is_followed_and_routed_alike() -> None:
    log = LOGS["apart"](0)
    split, shares = CrossFitSplit.of(log, folds(log)), np.zeros((len(log), 3))
    shares[:, 1] = 1.0
    one, other = split.rule_terms(InTurn((1,)), 0), split.single_ask_terms(shares)
    for name in ("weight", "gained", "spent", "won", "paid"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))


def test_a_policy_by_lot_is_worth_the_mean_of_what_it_draws_from() -> None:
    log = LOGS["skewed"](1)
    split = CrossFitSplit.of(log, folds(log))
    even = split.single_ask_terms(np.full((len(log), 3), 1 / 3))
    found = estimate_value(even)
    assert isinstance(found, PolicyValue)
    assert found.accuracy.low <= HELD.won.mean() <= found.accuracy.high


def test_policies_that_ask_several_are_worth_what_they_are_on_tasks_that_hold_it_all() -> None:
    aim = replay(InTurn((0, 2)), 0, HELD)
    found = [told(each_apart(HELD, np.array([0.6, 0.2, 0.5]), seed), order=(0, 2)) for seed in range(16)]
    for name, truth in (("accuracy", aim.won.mean()), ("dollars", aim.paid.mean())):
        means = np.array([getattr(one, name).mean for one in found])
        assert means.mean() == pytest.approx(truth, abs=4 * means.std() / 4)


def test_where_one_was_asked_after_the_other_the_order_counts() -> None:
    found = []
    for seed in range(16):
        log = second_opinions(HELD, 0, 2, seed)
        split = CrossFitSplit.of(log, folds(log))
        assert not split.rule_terms(InTurn((2, 0)), 0).weight.any()
        worth = estimate_value(split.rule_terms(InTurn((0, 2)), 0))
        assert isinstance(worth, PolicyValue)
        found.append(worth.accuracy.mean)
    assert np.mean(found) == pytest.approx(HELD.won[:, 2].mean(), abs=4 * float(np.std(found)) / 4)


def test_a_difference_is_told_better_on_the_same_tasks_than_apart() -> None:
    log = LOGS["skewed"](0)
    one, other = terms(log), terms(log, (1,))
    found = estimate_difference(one, other)
    assert isinstance(found, EstimateInterval)
    assert found.mean == pytest.approx(float(one.won.mean() - other.won.mean()))
    assert estimate_difference(one, one) == EstimateInterval(0.0, 0.0, 0.0)


def test_propensities_that_are_not_how_the_log_came_about_are_noticed() -> None:
    log = LOGS["uniform"](0)
    why = refused(terms(replace(log, propensities=log.propensities / 2)))
    assert "the propensities do not match the log" in why.reason
    assert why.overlap.level == pytest.approx(2.0, abs=0.2)


def test_a_worker_that_is_never_asked_for_a_type_cannot_be_judged_there() -> None:
    never = np.where(HELD.batch.types[:, None] == 0, [0.5, 0.5, 0.0], [0.3, 0.3, 0.4])
    why = refused(terms(one_each(HELD, never), (2,)))
    assert why.reason == "for 50% of the tasks it asks workers without outcomes there"
    assert why.needs is None


def test_a_policy_that_asks_several_is_refused_where_nobody_did_a_task_together() -> None:
    why = refused(terms(LOGS["uniform"](0), (0, 1)))
    assert why.overlap.followed == 0
    assert why.needs is None


def test_a_sample_that_is_too_small_says_how_many_tasks_are_needed() -> None:
    many = panel(tasks=6000)
    rare = np.array([0.9, 0.08, 0.02])
    why = refused(terms(one_each(many.at(np.arange(2000)), rare), (2,)))
    assert why.needs is not None
    assert f"about {why.needs:,} more tasks logged like these are needed" in why.reason
    enough = min(6000, int(1.3 * (2000 + why.needs)))
    assert isinstance(estimate_value(terms(one_each(many.at(np.arange(enough)), rare), (2,))), PolicyValue)


def test_a_refusal_of_one_refuses_the_difference() -> None:
    log = LOGS["uniform"](0)
    assert isinstance(estimate_difference(terms(log), terms(log, (0, 1))), EstimateRefusal)


def test_a_pair_that_nobody_recorded_is_not_wrong() -> None:
    log = one_each(HELD, np.array([0.1, 0.8, 0.1]))
    assert expected_outcomes(log).success[-1] == pytest.approx(HELD.won.mean(axis=0), abs=0.1)
    assert expected_outcomes(log).dollars[-1] == pytest.approx(HELD.paid.mean(axis=0), rel=0.1)


def test_a_worker_is_not_taken_for_bad_because_it_was_asked_for_hard_tasks() -> None:
    workers = {name: Made((0.9, 0.4)) for name in ("easy", "hard")}
    held = panel(workers, tasks=2000)
    log = one_each(held, np.where(held.batch.types[:, None] == 0, [0.98, 0.02], [0.02, 0.98]))
    found = expected_outcomes(log)
    assert found.success[-1, 0] == pytest.approx(found.success[-1, 1], abs=0.12)
    assert log.mean_scores()[0] - log.mean_scores()[1] > 0.4


def test_outcomes_of_a_worker_that_was_picked_for_its_tasks_do_not_count() -> None:
    held = asked(HELD, np.stack([np.ones(1200, bool), HELD.won[:, 0] == 0, np.zeros(1200, bool)], axis=1), np.ones(3))
    table = expected_outcomes(held)
    assert (table.cells[:, 0] > 0).all()
    assert (table.cells[:, 1:] == 0).all()
    assert (expected_outcomes(held, weighted=False).cells[:, 1] > 0).all()


def test_an_answer_without_a_score_is_not_followed() -> None:
    log = replace(HELD, scores=np.where(np.arange(1200)[:, None] % 2 == np.zeros(3), np.nan, HELD.scores))
    found = terms(log, (0,))
    assert (found.weight == np.arange(1200) % 2).all()
    assert refused(found).overlap.level == pytest.approx(0.5)


def test_an_asked_worker_without_an_answer_brings_nothing() -> None:
    quiet = panel({"quiet": Made(0.9, silent=1.0), "loud": Made(0.5)}, tasks=400)
    log = each_apart(replace(quiet, scores=np.where([True, False], np.nan, quiet.scores)), np.full(2, 0.5))
    found = told(log, order=(0,))
    assert found.accuracy.mean == pytest.approx(0.0, abs=0.01)


def test_terms_stand_in_the_order_of_the_tasks() -> None:
    log = LOGS["apart"](0)
    found = terms(log, (2,))
    assert ((found.weight > 0) == log.there[:, 2]).all()


def test_dollars_that_nobody_recorded_are_taken_as_expected() -> None:
    log = LOGS["uniform"](0)
    some = replace(log, dollars=np.where(np.arange(1200)[:, None] % 3 == np.zeros(3), np.nan, log.dollars))
    found = told(some, order=(1,)).dollars
    assert found.low <= HELD.dollars[:, 1].mean() <= found.high


def test_a_few_terms_of_great_weight_widen_the_interval() -> None:
    def width(values: Floats) -> float:
        found = EstimateInterval.of(values)
        return (found.high - found.low) / float(values.std())

    even, heavy = np.resize([1.0, -1.0], 1000), np.resize([1.0, -1.0], 1000)
    heavy[:3] = 30.0
    assert width(even) == pytest.approx(2 * 1.96 / np.sqrt(1000), rel=0.01)
    assert width(heavy) > 1.2 * width(even)


def test_nothing_recorded_is_a_refusal() -> None:
    nothing = missing(HELD, np.ones(HELD.there.shape, bool))
    assert measure_overlap(terms(nothing)).effective == 0.0
    assert refused(follow_rule(RULE, MIDDLE, nothing, expected_outcomes(nothing))).needs is None


def test_prices_of_the_rule_reach_from_cheap_to_dear() -> None:
    log = LOGS["apart"](2)
    split = CrossFitSplit.of(log, folds(log))
    cheap, dear = (estimate_value(split.rule_terms(RULE, setting)) for setting in (len(PRICES) - 1, 0))
    assert isinstance(cheap, PolicyValue)
    assert isinstance(dear, PolicyValue)
    assert cheap.dollars.high < dear.dollars.low
