"""Scales, labels and layouts are pure functions of numbers, and hold what they promise for all of them."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import curve, report

from shikisha.evals.entrant_metrics import ConfidenceBin, ConfidenceCalibration, RouterCurve
from shikisha.evals.html_report import cost_chart, difference_axis, reliability_diagram, router_charts
from shikisha.evals.report_text import reading_order
from shikisha.evals.samples import EntrantRole
from shikisha.plots.charts import ChartSize, interval_chart, thin_points
from shikisha.plots.format import shorten_middle
from shikisha.plots.svg import (
    AxisScale,
    LabelTarget,
    Rect,
    Tick,
    cost_scale,
    even_scale,
    interpolate_line,
    place_labels,
    spaced_ticks,
    svg_path,
    text_width,
)

VALUES = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 6))
COSTS = st.floats(1e-7, 1e4)


@pytest.mark.parametrize(
    ("values", "ends", "ticks"),
    [
        ([0.0, 1.0], (0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        ([0.29, 0.943], (0.2, 1.0), (0.2, 0.4, 0.6, 0.8, 1.0)),
        ([-0.446, 0.027], (-0.5, 0.1), (-0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.1)),
        ([7.0], (6.25, 7.75), (6.25, 6.5, 6.75, 7.0, 7.25, 7.5, 7.75)),
        ([0.0], (-1.0, 1.0), (-1.0, -0.5, 0.0, 0.5, 1.0)),
        ([], (0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    ],
)
def test_ticks_are_round_numbers(values: list[float], ends: tuple[float, float], ticks: tuple[float, ...]) -> None:
    scale = even_scale(values)
    assert (scale.low, scale.high) == pytest.approx(ends)
    assert scale.ticks() == pytest.approx(ticks)


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_an_even_scale_holds_all_values_in_their_order(values: list[float]) -> None:
    scale = even_scale(values, (10.0, 500.0))
    places = [scale(value) for value in sorted(values)]
    assert places == sorted(places)
    assert places[0] >= 10 - 1e-6
    assert places[-1] <= 500 + 1e-6
    assert 2 <= len(scale.ticks()) <= 12


@given(st.lists(COSTS, min_size=1, max_size=20))
def test_costs_of_any_size_have_a_place(costs: list[float]) -> None:
    scale = cost_scale(costs, (0.0, 100.0))
    assert scale.log == (max(costs) >= 20 * min(costs))
    assert all(-1e-6 <= scale(cost) <= 100 + 1e-6 for cost in costs)
    assert all(scale.low <= tick <= scale.high * (1 + 1e-9) for tick in scale.ticks())
    assert 1 <= len(scale.ticks()) <= 30


@pytest.mark.parametrize("costs", [[], [0.0], [0.0, 0.0]])
def test_where_nothing_costs_anything_the_scale_begins_at_0(costs: list[float]) -> None:
    assert cost_scale(costs, (0.0, 1.0))(0.0) == 0.0


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.001, 10.0, (0.001, 0.01, 0.1, 1.0, 10.0)),
        (0.02, 4.0, (0.03, 0.1, 0.3, 1.0, 3.0)),
        (1.0, 20.0, (1.0, 2.0, 5.0, 10.0, 20.0)),
    ],
)
def test_ticks_by_logarithm(low: float, high: float, ticks: tuple[float, ...]) -> None:
    assert AxisScale(low, high, log=True).ticks() == pytest.approx(ticks)


def test_mixing_goes_straight_in_dollars_and_through_every_corner() -> None:
    corners = [(0.0, 0.2), (1.0, 0.6), (3.0, 0.7)]
    points = interpolate_line(corners, 4)
    for corner, point in zip(corners, points[::4], strict=True):
        assert point == pytest.approx(corner)
    assert points[2] == pytest.approx((0.5, 0.4))
    assert interpolate_line([]) == []


def test_a_path_is_written_to_a_tenth_of_a_pixel() -> None:
    assert svg_path([(1.0, 2.04), (3.33, 4.0)]) == "M1.0 2.0L3.3 4.0"


def test_boxes_overlap_by_their_common_area() -> None:
    box = Rect(0, 0, 10, 10)
    assert box.overlap(Rect(5, 5, 20, 6)) == 5
    assert box.overlap(Rect(10, 0, 20, 10)) == 0
    assert box.beyond(Rect(2, 0, 9, 10)) == 3
    assert box.touches(Rect(10, 10, 12, 12))
    assert not box.touches(Rect(11, 0, 12, 1))


FRAME = Rect(0, 0, 900, 500)


def spot(x: float, y: float, text: str) -> LabelTarget:
    return LabelTarget(x, y, text, Rect(x - 5, y - 5, x + 5, y + 5))


def test_labels_of_a_crowd_do_not_overlap_and_stay_inside() -> None:
    crowd = [spot(600 + 9 * (n % 4), 200 + 8 * (n // 4), f"entrant number {n}") for n in range(16)]
    labels = place_labels(crowd, FRAME)
    assert len(labels) == 16
    assert all(label.box.beyond(FRAME) == 0 for label in labels)
    assert sum(one.box.overlap(other.box) for one, other in combinations(labels, 2)) == 0
    assert any(label.leader for label in labels)


def test_a_lonely_label_stands_at_the_right_of_its_mark() -> None:
    (label,) = place_labels([spot(100, 100, "alone")], FRAME)
    assert (label.x, label.anchor, label.leader) == (107, "start", "")
    (label,) = place_labels([spot(890, 100, "at the edge")], FRAME)
    assert (label.x, label.anchor) == (883, "end")


def test_a_label_keeps_clear_of_obstacles() -> None:
    wall = Rect(104, 0, 900, 500)
    (label,) = place_labels([spot(100, 100, "alone")], FRAME, obstacles=[wall])
    assert label.box.overlap(wall) == 0


def test_labels_are_the_same_every_time() -> None:
    crowd = [spot(50 * n % 170, 30 * n % 110, f"entrant {n}") for n in range(20)]
    assert place_labels(crowd, FRAME) == place_labels(crowd, FRAME)
    assert place_labels([], FRAME) == []


@given(st.text(max_size=60), st.integers(3, 40))
def test_a_shortened_text_is_short_and_keeps_both_ends(text: str, longest: int) -> None:
    short = shorten_middle(text, longest)
    assert len(short) <= longest
    assert short[:1] == text[:1]
    assert short[-1:] == text[-1:]


def test_wide_letters_count_in_full() -> None:
    assert text_width("指揮者", 10) == 30
    assert text_width("abc", 10) < text_width("ABC", 10) < 30


def test_ticks_that_would_touch_are_left_out() -> None:
    ticks = [Tick(0, "$0"), Tick(10, "$0.00003"), Tick(60, "$0.0001"), Tick(80, "$0.0003"), Tick(160, "$0.001")]
    assert [tick.place for tick in spaced_ticks(ticks)] == [0, 60, 160]


def test_intervals_share_one_scale() -> None:
    entries = report().entries
    plot = interval_chart({one.name: (one.interval.low, one.accuracy, one.interval.high) for one in entries})
    assert set(plot.lines) == {entry.name for entry in report().entries}
    assert all(0 <= line.low < line.mean < line.high <= 100 for line in plot.lines.values())
    assert plot.zero is None


def test_differences_show_0_and_leave_out_who_was_not_compared() -> None:
    plot = difference_axis(report().entries)
    assert report().best_single not in plot.lines
    assert plot.zero is not None
    assert [tick.text for tick in plot.ticks] == ["−50", "−25", "0", "+25"]
    assert all(0 <= line.low < line.mean < line.high <= 100 for line in plot.lines.values())


def test_the_cost_plot_shows_everybody_whose_cost_is_known() -> None:
    made = report()
    plot = cost_chart(made, reading_order(made), ChartSize(1200, 600))
    assert len(plot.points) == 19
    assert plot.x_title == "dollars a task (logarithmic)"
    assert [tick.text for tick in plot.x_ticks][:2] == ["$0", "$0.00003"]
    boxes = [point.label.box for point in plot.points if point.label]
    assert len(boxes) == 19
    assert sum(one.overlap(other) for one, other in combinations(boxes, 2)) == 0


def test_what_costs_nothing_stands_left_of_what_costs_something() -> None:
    plot = cost_chart(report(), report().entries, ChartSize(1200, 600))
    places = {point.name: point.x for point in plot.points}
    free = places.pop("Mistral-7B-Instruct-v0.2")
    assert free < min(places.values()) - 30


def test_where_there_is_no_room_for_all_names_single_workers_lose_theirs() -> None:
    made = report()
    plot = cost_chart(made, made.entries, ChartSize(350, 500, names=18))
    without = [point for point in plot.points if point.label is None]
    assert {point.style for point in without} == {EntrantRole.SINGLE}
    assert made.best_single not in [point.name for point in without]


def test_an_empty_bin_has_no_mark() -> None:
    drawn = reliability_diagram(
        ConfidenceCalibration(
            "a", (ConfidenceBin(0, 0.0, 0.0), ConfidenceBin(30, 0.5, 0.5), ConfidenceBin(10, 0.9, 0.6)), 0.1
        )
    )
    half, most = drawn.points
    assert half.bar == (half.y, half.y)
    assert most.bar is not None
    assert most.y > most.bar[0]  # y is downwards: less is right than was thought
    assert drawn.bars[0].top < drawn.bars[1].top < drawn.bars[0].bottom


def test_curves_are_drawn_by_their_pair_of_workers() -> None:
    other = RouterCurve("c", "weak", "strong", ((0.0, 0.1), (1.0, 0.9)), 0.5, None, None)
    first, second = router_charts(
        [curve("a", 0.5), other, curve("b", 2.0), RouterCurve("d", "e", "f", (), 0.0, None, None)]
    )
    assert [curve.name for curve in first[1]] == [curve.name for curve in first[0].curves] == ["a", "b"]
    assert [(curve.weak, curve.strong) for curve in second[1]] == [("weak", "strong")]
    assert second[0].guides == (("by-lot", second[0].curves[0].path),)


@pytest.mark.parametrize("count", [1, 2, 100, 101, 102, 9764])
def test_a_thinned_curve_keeps_its_ends(count: int) -> None:
    points = [(float(n), 0.0) for n in range(count)]
    kept = thin_points(points)
    assert (kept[0], kept[-1], len(kept)) == (points[0], points[-1], min(count, 101))
    assert all(one < other for one, other in pairwise(kept))
