"""Intervals, tests and summaries: published values, properties, and the coverage that they promise."""

import subprocess
import sys
from itertools import pairwise
from math import comb
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shikisha.core.budget import wilson
from shikisha.evals.statistics import (
    bootstrap,
    calibration_error,
    confidence_bins,
    difference_interval,
    entropy,
    hull,
    mcnemar,
    mean,
    mean_interval,
    mix_for_cost,
    quantile,
    score_interval,
)

SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=80)
STEPS = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=80)
POINTS = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), min_size=1, max_size=20)
quick = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_gives_the_published_intervals(right: int, count: int, low: float, high: float) -> None:
    assert wilson(right, count) == pytest.approx((low, high), abs=5e-5)


@quick
@given(SCORES)
def test_the_interval_of_scores_holds_their_mean_and_lies_between_0_and_1(scores: list[float]) -> None:
    low, high = score_interval(scores)
    assert 0 <= low <= mean(scores) <= high <= 1


@quick
@given(STEPS)
def test_the_interval_of_differences_holds_their_mean(differences: list[float]) -> None:
    low, high = difference_interval(differences)
    assert -1 <= low <= mean(differences) <= high <= 1


@quick
@given(STEPS | SCORES, st.randoms(use_true_random=False))
def test_the_order_of_the_values_changes_no_interval(values: list[float], random: Random) -> None:
    other = random.sample(values, len(values))
    assert bootstrap(values) == bootstrap(other)
    assert mean(values) == mean(other)


@pytest.mark.parametrize(("count", "widest"), [(1, 2.0), (2, 1.6), (6, 0.8), (29, 0.2), (30, 0.2), (300, 0.03)])
@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 0.5])
def test_equal_differences_have_an_interval_with_a_width(value: float, count: int, widest: float) -> None:
    low, high = difference_interval([value] * count)
    assert -1 <= low <= value <= high <= 1
    assert 0 < high - low <= widest


def test_six_wins_of_six_are_a_difference_of_unknown_size() -> None:
    """As Bonett and Price (2012) have it: (6 - 0) / 8 ± 1.96 √((8 / 8 - .75²) / 8)."""
    assert difference_interval([1.0] * 6) == pytest.approx((0.75 - 1.96 * (0.4375 / 8) ** 0.5, 1.0))


@pytest.mark.parametrize("values", [[1.0] * 6, [0.5] * 40, [2.0, 2.0, 2.5], [-1.0] * 3])
def test_no_mean_is_shown_without_a_width(values: list[float]) -> None:
    low, high = mean_interval(values)
    assert low < mean(values) < high


def test_what_is_free_is_known_to_be_free() -> None:
    assert mean_interval([0.0] * 6) == (0.0, 0.0)
    assert mean_interval([0.1] * 6)[0] > 0
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])


@pytest.mark.parametrize("tasks", [3, 6, 10, 20, 29])
@pytest.mark.parametrize(("better", "worse"), [(5, 0), (20, 10), (30, 30), (50, 10), (90, 0)])
def test_intervals_of_few_differences_hold_the_true_one_as_often_as_they_say(
    tasks: int, better: int, worse: int
) -> None:
    random, held = Random(tasks), 0
    for _ in range(400):
        drawn = random.choices((1.0, 0.0, -1.0), (better, 100 - better - worse, worse), k=tasks)
        low, high = difference_interval(drawn)
        held += low <= (better - worse) / 100 <= high
    assert held >= 370  # 92.5 %: 2.3 standard errors below 95 %


@pytest.mark.parametrize("tasks", [3, 6, 10, 20, 29])
@pytest.mark.parametrize(("one", "other"), [(0.5, 0.5), (2, 2), (5, 1), (1, 9)])
def test_intervals_of_few_scores_hold_the_true_mean_as_often_as_they_say(tasks: int, one: float, other: float) -> None:
    random, held = Random(tasks), 0
    for _ in range(400):
        low, high = score_interval([random.betavariate(one, other) for _ in range(tasks)])
        held += low <= one / (one + other) <= high
    assert held >= 370


def test_where_nothing_is_known_the_interval_is_everything() -> None:
    assert difference_interval([]) == (-1.0, 1.0)
    assert score_interval([]) == (0.0, 1.0)
    with pytest.raises(ValueError, match="no values"):
        bootstrap([])


@pytest.mark.parametrize(("better", "told"), [(1, False), (4, False), (5, False), (6, True), (20, True)])
def test_as_few_pairs_as_the_sign_test_cannot_tell_by_are_no_difference(better: int, told: bool) -> None:
    low, high = difference_interval([1.0] * better + [0.0] * 20)
    assert (low > 0, high > 0) == (told, True)
    assert (mcnemar(better, 0) < 0.05) is told


def test_one_score_or_equal_ones_have_an_interval_with_a_width() -> None:
    assert score_interval([0.5]) == wilson(0.5, 1)
    low, high = score_interval([0.5] * 100)
    assert low < 0.45
    assert high > 0.55


def test_numpy_is_imported_for_a_bootstrap_only_and_its_lack_names_the_extra() -> None:
    code = """
import sys
import shikisha.evals.evaluation_comparison, shikisha.evals.report
assert "numpy" not in sys.modules
sys.modules["numpy"] = None
from shikisha.core.errors import MissingExtra
from shikisha.evals.statistics import bootstrap, wilson
assert wilson(1, 2) and bootstrap([1.0, 1.0])
try:
    bootstrap([0.0, 1.0])
except MissingExtra as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert ended.stdout == "the bootstrap needs the extra 'eval': pip install 'shikisha[eval]'\n"


def test_drawing_counts_and_drawing_tasks_come_to_the_same() -> None:
    """The same data, once with so little noise that values are all distinct."""
    random = Random(1)
    few = random.choices((-1.0, 0.0, 1.0), (1, 7, 2), k=3_000)
    many = [value + random.uniform(-1e-9, 1e-9) for value in few]
    assert len(set(many)) == 3_000
    assert bootstrap(many) == pytest.approx(bootstrap(few), abs=0.001)
    half = 1.96 * float(np.std(few)) / 3_000**0.5
    assert bootstrap(few) == pytest.approx((mean(few) - half, mean(few) + half), abs=0.001)


@pytest.mark.full
def test_the_interval_of_a_difference_holds_the_true_one_as_often_as_it_says() -> None:
    random, held = Random(7), 0
    for _ in range(1_000):
        low, high = difference_interval(random.choices((1.0, 0.5, 0.0, -1.0), (14, 4, 70, 12), k=200))
        held += low <= 0.04 <= high
    assert 930 <= held <= 970


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (1, 9, 22 / 1024), (9, 1, 22 / 1024), (0, 6, 2 / 64), (0, 20_000, 0.0)],
)
def test_mcnemar_is_the_exact_binomial(better: int, worse: int, p: float) -> None:
    assert mcnemar(better, worse) == pytest.approx(p, rel=1e-9)


@quick
@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_equals_the_sum_in_whole_numbers(better: int, worse: int) -> None:
    ways = sum(comb(better + worse, heads) for heads in range(min(better, worse) + 1))
    assert mcnemar(better, worse) == pytest.approx(min(1.0, 2 * ways / 2 ** (better + worse)), rel=1e-9)


@pytest.mark.parametrize(
    ("weights", "bits"), [([], 0.0), ([3], 0.0), ([1, 1], 1.0), ([2] * 8, 3.0), ([0.5, 0.25, 0.25, 0.0], 1.5)]
)
def test_entropy_is_in_bits(weights: list[float], bits: float) -> None:
    assert entropy(weights) == pytest.approx(bits)


@quick
@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-6)


def test_a_bin_of_confidence_holds_its_upper_end() -> None:
    bins = confidence_bins([0.0, 0.1, 0.11, 0.3, 1.0], [1, 0, 1, 1, 0])
    assert [count for count, _, _ in bins] == [2, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    assert bins[0] == (2, 0.05, 0.5)


def test_the_calibration_error_weighs_bins_by_their_samples() -> None:
    error = calibration_error(confidence_bins([0.9, 0.9, 0.9, 0.5], [1, 1, 0, 1]))
    assert error == pytest.approx((3 * abs(0.9 - 2 / 3) + 1 * 0.5) / 4)
    assert calibration_error(confidence_bins([0.75] * 4, [1, 1, 1, 0])) == 0
    assert calibration_error(confidence_bins([], [])) == 0


@pytest.mark.parametrize(
    ("points", "edge"),
    [
        ([], ()),
        ([(1, 0.5)], ((1, 0.5),)),
        ([(1, 0.5), (1, 0.7), (2, 0.6)], ((1, 0.7),)),
        ([(0, 0.2), (1, 0.3), (2, 0.8), (3, 0.8), (4, 0.9)], ((0, 0.2), (2, 0.8), (4, 0.9))),
        ([(0, 0.0), (1, 0.5), (2, 1.0)], ((0, 0.0), (2, 1.0))),
    ],
)
def test_the_hull_goes_from_the_cheapest_to_the_most_accurate(
    points: list[tuple[float, float]], edge: tuple[tuple[float, float], ...]
) -> None:
    assert hull(points) == edge
    assert hull(reversed(points)) == edge


@quick
@given(POINTS)
def test_no_point_lies_above_the_hull_and_the_hull_bends_down(points: list[tuple[float, float]]) -> None:
    edge = hull(points)
    costs, heights = [cost for cost, _ in edge], [height for _, height in edge]
    assert all(height <= np.interp(cost, costs, heights) + 1e-9 for cost, height in points)
    assert all(after > before for before, after in pairwise(heights))
    assert set(edge) <= set(points)


@pytest.mark.parametrize(
    ("cost", "mix"),
    [
        (2.0, ((1.0, 0.2), (3.0, 0.8), 0.5)),  # (2, .3) lies below the line
        (3.0, ((3.0, 0.8), (3.0, 0.8), 0.0)),
        (9.0, ((3.0, 0.8), (3.0, 0.8), 0.0)),  # (4, .7) costs more and is less accurate
        (0.5, ((1.0, 0.2), (1.0, 0.2), 0.0)),
    ],
)
def test_a_mix_costs_what_is_asked_where_that_buys_accuracy(
    cost: float, mix: tuple[tuple[float, float], tuple[float, float], float]
) -> None:
    assert mix_for_cost([(3.0, 0.8), (2.0, 0.3), (1.0, 0.2), (4.0, 0.7)], cost) == mix
