"""Advantages, against sums by hand."""

import numpy as np
import pytest

from shikisha.training.advantage_variants import shape_balance_bonus, shape_rarity
from shikisha.training.grpo import compute_advantages, zero_variance_share
from shikisha.training.plan_reward import NO_PLAN
from shikisha.training.settings import AdvantageSettings, ComparisonScope, GrpoTable, TrainingPhase, TrainSettings

GROUPS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
REWARDS = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
SHAPES = ["a 1", "a 1", "b 2", "b 2", "a 1", "b 2", "a 1", "b 2"]


def test_a_group_is_centred_and_scaled() -> None:
    found = compute_advantages(REWARDS, GROUPS)
    assert found[:4] == pytest.approx([1, -1, -1, 1])
    assert found[4:].mean() == pytest.approx(0)
    assert found[4:].std() == pytest.approx(1)
    assert compute_advantages(REWARDS, GROUPS, AdvantageSettings(scale_by_std=False))[4:] == pytest.approx(
        [0.25, 0.25, -0.75, 0.25]
    )


def test_a_group_of_one_mind_teaches_nothing() -> None:
    same = np.array([0.5, 0.5, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0])
    assert not compute_advantages(same, GROUPS)[:4].any()
    assert zero_variance_share(same, GROUPS) == 0.5


def test_within_compares_plans_of_a_shape_only() -> None:
    found = compute_advantages(REWARDS, GROUPS, AdvantageSettings(ComparisonScope.WITHIN), SHAPES)
    assert found[:4] == pytest.approx([1, -1, -1, 1])
    assert found[[5, 7]] == pytest.approx([0, 0])  # both right


def test_between_takes_out_what_the_batch_thinks_of_a_shape() -> None:
    found = compute_advantages(REWARDS, GROUPS, AdvantageSettings(ComparisonScope.BETWEEN), SHAPES)
    for shape in ("a 1", "b 2"):
        rows = [place for place, name in enumerate(SHAPES) if name == shape]
        assert found[rows].sum() == pytest.approx(0)


@pytest.mark.parametrize("compare", ComparisonScope)
def test_masked_completions_count_for_nothing(compare: ComparisonScope) -> None:
    masked = REWARDS.copy()
    masked[0] = np.nan
    found = compute_advantages(masked, GROUPS, AdvantageSettings(compare), SHAPES)
    assert found[0] == 0
    assert np.isfinite(found).all()
    rest = np.arange(1, 8)
    alone = compute_advantages(
        masked[rest], GROUPS[rest], AdvantageSettings(compare), [SHAPES[place] for place in rest]
    )
    assert found[rest] == pytest.approx(alone)


def test_a_group_that_is_masked_throughout_is_even() -> None:
    assert zero_variance_share(np.array([np.nan, np.nan]), np.array([0, 0])) == 1.0
    assert not compute_advantages(np.array([np.nan, np.nan]), np.array([0, 0])).any()


@pytest.mark.parametrize("compare", [ComparisonScope.WITHIN, ComparisonScope.BETWEEN])
def test_what_is_no_plan_is_held_against_plans_of_its_length(compare: ComparisonScope) -> None:
    rewards = np.array([0.0, 0.5, 0.5, 1.0, 0.0, 0.5, 0.5, 1.0])
    shapes = [f"{NO_PLAN} 2", "b 2", "a 1", "a 1"] * 2
    found = compute_advantages(rewards, GROUPS, AdvantageSettings(compare), shapes)
    assert (found[[0, 4]] < -0.3).all()
    for length in "12":
        assert found[[shape.endswith(length) for shape in shapes]].sum() == pytest.approx(0)


def test_rarity_is_the_share_of_others() -> None:
    assert shape_rarity(GROUPS, SHAPES) == pytest.approx([0.5] * 8)
    shapes = ["a 1", "b 2", "b 2", f"{NO_PLAN} 2", "a 1", "a 1", "a 1", "a 1"]
    assert shape_rarity(GROUPS, shapes) == pytest.approx([0.75, 0.5, 0.5, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("compare", ComparisonScope)
def test_holding_speaks_for_shapes_that_have_become_rare(compare: ComparisonScope) -> None:
    shapes = ["one-shot 1"] * 98 + ["chain 2"] * 2
    rewards, groups = np.array([1.0, 0.5] * 50), np.zeros(100, np.int64)
    bare, held = (
        compute_advantages(rewards, groups, AdvantageSettings(compare, shape_bonus=hold), shapes) for hold in (0.0, 0.5)
    )
    assert not (held - bare)[:98].any()
    assert (held - bare)[98:] == pytest.approx(0.5 * np.log(1 / 12 / 0.02))


def test_a_spread_counts_as_no_less_than_the_least() -> None:
    rewards = np.array([1.0, 0.98, 1.0, 1.0, 1.0, 0.5, 1.0, 0.5])
    slight, large = np.split(compute_advantages(rewards, GROUPS, AdvantageSettings(min_std=0.1)), 2)
    assert slight == pytest.approx(np.array([0.005, -0.015, 0.005, 0.005]) / 0.1)
    assert large == pytest.approx([1, -1, 1, -1])


@pytest.mark.parametrize(("hold", "held"), [(None, False), (True, True), (False, False)])
def test_settings_say_where_rare_shapes_are_held(hold: bool | None, held: bool) -> None:
    first = TrainingPhase(begin=0.0, compare=ComparisonScope.BETWEEN, performances=2)
    phases = (first, TrainingPhase(begin=0.5, compare=ComparisonScope.GROUP, hold=hold, least_spread=0.0))
    settings = TrainSettings(grpo=GrpoTable(steps=10, hold=0.3, least_spread=0.1, phases=phases, performances=8))
    assert settings.comparison_at(4) == AdvantageSettings(ComparisonScope.BETWEEN, shape_bonus=0.3, min_std=0.1)
    assert (settings.performances_at(4), settings.performances_at(5)) == (2, 8)
    assert settings.comparison_at(5) == AdvantageSettings(ComparisonScope.GROUP, shape_bonus=0.3 * held, min_std=0.0)


def test_settings_say_from_when_on_a_dollar_costs_more() -> None:
    phases = (
        TrainingPhase(begin=0.0, compare=ComparisonScope.GROUP),
        TrainingPhase(begin=0.5, compare=ComparisonScope.GROUP, cost=7.0),
    )
    settings = TrainSettings(grpo=GrpoTable(steps=10, phases=phases))
    assert (settings.dollar_weight_at(4), settings.dollar_weight_at(5)) == (None, 7.0)


def test_what_is_no_plan_or_was_spoilt_is_not_sought_for_being_rare() -> None:
    shapes = ["one-shot 1"] * 96 + ["no plan 2"] * 2 + ["chain 2"] * 2
    counted = np.array([True] * 96 + [False] * 2 + [True] * 2)
    found = shape_balance_bonus(shapes, counted)
    assert not found[:98].any()
    assert (found[98:] > 0).all()


def test_odd_shapes_are_sought_less_than_rare_ones() -> None:
    shapes = ["one-shot 1"] * 989 + ["chain 3"] * 10 + ["mixed 7"]
    found = shape_balance_bonus(shapes, np.ones(1000, bool))
    assert 0 < found[-1] < found[-2]
