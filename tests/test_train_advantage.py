"""Advantages, against sums by hand."""

import numpy as np
import pytest

from shikisha.train.advantage import NO_PLAN, Compare, advantages, even, rarity

GROUPS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
REWARDS = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
SHAPES = ["a 1", "a 1", "b 2", "b 2", "a 1", "b 2", "a 1", "b 2"]


def test_a_group_is_centred_and_scaled() -> None:
    found = advantages(REWARDS, GROUPS)
    assert found[:4] == pytest.approx([1, -1, -1, 1])
    assert found[4:].mean() == pytest.approx(0)
    assert found[4:].std() == pytest.approx(1)
    assert advantages(REWARDS, GROUPS, scaled=False)[4:] == pytest.approx([0.25, 0.25, -0.75, 0.25])


def test_a_group_of_one_mind_teaches_nothing() -> None:
    same = np.array([0.5, 0.5, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0])
    assert not advantages(same, GROUPS)[:4].any()
    assert even(same, GROUPS) == 0.5


def test_within_compares_plans_of_a_shape_only() -> None:
    found = advantages(REWARDS, GROUPS, Compare.WITHIN, SHAPES)
    assert found[:4] == pytest.approx([1, -1, -1, 1])
    assert found[[5, 7]] == pytest.approx([0, 0])  # both right


def test_between_takes_out_what_the_batch_thinks_of_a_shape() -> None:
    found = advantages(REWARDS, GROUPS, Compare.BETWEEN, SHAPES)
    for shape in ("a 1", "b 2"):
        rows = [place for place, name in enumerate(SHAPES) if name == shape]
        assert found[rows].sum() == pytest.approx(0)


@pytest.mark.parametrize("compare", Compare)
def test_masked_completions_count_for_nothing(compare: Compare) -> None:
    masked = REWARDS.copy()
    masked[0] = np.nan
    found = advantages(masked, GROUPS, compare, SHAPES)
    assert found[0] == 0
    assert np.isfinite(found).all()
    rest = np.arange(1, 8)
    alone = advantages(masked[rest], GROUPS[rest], compare, [SHAPES[place] for place in rest])
    assert found[rest] == pytest.approx(alone)


def test_a_group_that_is_masked_throughout_is_even() -> None:
    assert even(np.array([np.nan, np.nan]), np.array([0, 0])) == 1.0
    assert not advantages(np.array([np.nan, np.nan]), np.array([0, 0])).any()


@pytest.mark.parametrize("compare", [Compare.WITHIN, Compare.BETWEEN])
def test_what_is_no_plan_is_held_against_plans_of_its_length(compare: Compare) -> None:
    rewards = np.array([0.0, 0.5, 0.5, 1.0, 0.0, 0.5, 0.5, 1.0])
    shapes = [f"{NO_PLAN} 2", "b 2", "a 1", "a 1"] * 2
    found = advantages(rewards, GROUPS, compare, shapes)
    assert (found[[0, 4]] < -0.3).all()
    for length in "12":
        assert found[[shape.endswith(length) for shape in shapes]].sum() == pytest.approx(0)


def test_rarity_is_the_share_of_others() -> None:
    assert rarity(GROUPS, SHAPES) == pytest.approx([0.5] * 8)
    shapes = ["a 1", "b 2", "b 2", f"{NO_PLAN} 2", "a 1", "a 1", "a 1", "a 1"]
    assert rarity(GROUPS, shapes) == pytest.approx([0.75, 0.5, 0.5, 0, 0, 0, 0, 0])
