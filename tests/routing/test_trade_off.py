"""The dial: what meets a budget, a quality, a price; what cannot be met is said; lots are the same everywhere."""

import numpy as np
import pytest

from shikisha.core.errors import ConfigError
from shikisha.routing.trade_off import (
    OperatingPoint,
    OperatingTarget,
    TargetMetric,
    TradeOff,
    hash_to_unit,
    parse_target,
    upper_hull,
)

CHEAP, MIDDLE, DEAR = OperatingPoint(0, 0, 0.1, 0.6), OperatingPoint(0, 1, 0.5, 0.8), OperatingPoint(1, 0, 2.0, 0.9)
DIAL = TradeOff((CHEAP, MIDDLE, DEAR), 0.01, 0.8)


def test_a_budget_between_two_settings_mixes_them_and_comes_to_it() -> None:
    mix = DIAL.at(OperatingTarget(TargetMetric.COST, 0.3))
    assert (mix.low, mix.high) == (CHEAP, MIDDLE)
    assert mix.cost == pytest.approx(0.3)
    assert mix.accuracy == pytest.approx(0.7)


def test_dollars_for_a_thousand_tasks_are_the_same_budget_in_other_units() -> None:
    assert DIAL.at(OperatingTarget(TargetMetric.BUDGET, 3.0)) == DIAL.at(OperatingTarget(TargetMetric.COST, 0.3))


@pytest.mark.parametrize(("quality", "cost"), [(0.75, 0.1), (1.0, 0.5), (0.85 / 0.8, 1.25)])
def test_a_quality_is_met_by_the_cheapest_mix_that_has_it(quality: float, cost: float) -> None:
    assert DIAL.at(OperatingTarget(TargetMetric.QUALITY, quality)).cost == pytest.approx(cost)


@pytest.mark.parametrize(("price", "point"), [(0.0, DEAR), (0.2, MIDDLE), (9.0, CHEAP)])
def test_a_price_takes_the_setting_that_is_worth_most_at_it(price: float, point: OperatingPoint) -> None:
    mix = DIAL.at(OperatingTarget(TargetMetric.PRICE, price))
    assert (mix.low, mix.share) == (point, 0.0)


def test_more_money_than_can_be_spent_takes_the_best_setting() -> None:
    assert DIAL.at(OperatingTarget(TargetMetric.COST, 50.0)).low == DEAR
    assert DIAL.at(OperatingTarget()).low == DEAR


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (OperatingTarget(TargetMetric.COST, 0.05), "below the cheapest setting (0.1, $1 for 1,000 tasks)"),
        (OperatingTarget(TargetMetric.QUALITY, 1.2), "the highest was 0.9000"),
    ],
)
def test_what_no_setting_meets_is_refused_and_says_what_would_do(wanted: OperatingTarget, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        DIAL.at(wanted)
    assert says in str(error.value)


def test_a_log_without_costs_keeps_no_budget_in_dollars() -> None:
    with pytest.raises(ConfigError, match="has no costs"):
        TradeOff((CHEAP,), 0.0, 0.5).at(OperatingTarget(TargetMetric.BUDGET, 1.0))


@pytest.mark.parametrize(
    ("text", "value"), [("20%", 0.2), ("0.2", 0.2), ("0", 0.0)], ids=["percentage", "number", "nothing"]
)
def test_a_wish_is_read_from_text(text: str, value: float) -> None:
    assert parse_target([("max_cost", text)]) == OperatingTarget(TargetMetric.COST, value)


@pytest.mark.parametrize("text", ["-1", "much", "nan", "inf", ""])
def test_a_wish_that_is_no_number_from_0_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a number from 0"):
        parse_target([("quality", text)])


def test_two_wishes_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="at a time"):
        parse_target([("quality", "1"), ("max_cost", "1")])


def test_the_hull_has_no_point_below_a_line_between_two_others() -> None:
    random = np.random.default_rng(0)
    points = [OperatingPoint(0, place, cost, won) for place, (cost, won) in enumerate(random.random((200, 2)))]
    hull = upper_hull(points)
    costs, won = [point.cost for point in hull], [point.accuracy for point in hull]
    assert costs == sorted(costs)
    assert won == sorted(won)
    for point in points:
        if point.cost >= costs[0]:
            assert np.interp(point.cost, costs, won) >= point.accuracy - 1e-12


def test_tasks_are_drawn_evenly_and_always_alike() -> None:
    lots = np.array([hash_to_unit(f"task {number}") for number in range(4000)])
    assert abs(lots.mean() - 0.5) < 0.02
    assert hash_to_unit("task 7") == lots[7]


def test_the_best_of_equally_accurate_settings_is_the_cheapest() -> None:
    equal = (OperatingPoint(0, 2, 0.7, DEAR.accuracy), DEAR, OperatingPoint(1, 1, 3.0, DEAR.accuracy))
    assert TradeOff((CHEAP, *equal), 0.01, 0.8).at(OperatingTarget()).low == equal[0]
    assert upper_hull([*reversed(equal), CHEAP]) == (CHEAP, equal[0])
