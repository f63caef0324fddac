"""Drawings of the pages: nothing lies outside, nothing crosses a box, what is unknown is a gap."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import pytest

from shikisha.budget import Caps
from shikisha.errors import FaultKind, WorkerError
from shikisha.events import RunPaused, RunResumed, RunStarted, Status
from shikisha.plan import depths
from shikisha.server.pages import graph, timeline
from shikisha.server.pages.graph import Arrow, Graph
from shikisha.server.pages.spark import columns, spark
from support import member, plan_of, pool_of, run_events

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "one": [()],
    "chain": [(), (0,), (1,)],
    "all": [(), (0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)],
    "fan": [(), (), (), (), (0, 1, 2, 3)],
    "long": [(), (0,), (1,), (0,), (0, 2, 3)],
    "apart": [(), (), ()],
}


def places(arrow: Arrow) -> list[tuple[float, float]]:
    """Points along an arrow: its segments, curves by their formula."""
    x, y, found = 0.0, 0.0, []
    for letter, rest in re.findall(r"([MHVQC])([-\d. ]*)", arrow.path):
        given = [float(number) for number in rest.split()]
        start = (x, y)
        if letter == "H":
            given = [given[0], y]
        elif letter == "V":
            given = [x, given[0]]
        corners = [start, *((given[at], given[at + 1]) for at in range(0, len(given), 2))]
        x, y = corners[-1]
        if letter != "M":
            found += [bezier(corners, step / 20) for step in range(21)]
    return found


def bezier(corners: list[tuple[float, float]], share: float) -> tuple[float, float]:
    while len(corners) > 1:
        corners = [(x0 + (x1 - x0) * share, y0 + (y1 - y0) * share) for (x0, y0), (x1, y1) in pairwise(corners)]
    return corners[0]


def crossed(drawn: Graph) -> list[tuple[int, int, int]]:
    """Which boxes arrows run through: (seen, by, box)."""
    return [
        (arrow.seen, arrow.by, box.index)
        for arrow, box in product(drawn.arrows, drawn.boxes)
        for x, y in places(arrow)
        if box.x + 1 < x < box.x + drawn.box_width - 1 and box.y + 1 < y < box.y + drawn.box_height - 1
    ]


@pytest.mark.parametrize("lay", [graph.wide, graph.narrow])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_arrow_crosses_a_box_and_all_lies_inside(
    lay: Callable[[Sequence[Sequence[int]]], Graph], shape: str
) -> None:
    drawn = lay(SHAPES[shape])
    assert crossed(drawn) == []
    assert [(arrow.seen, arrow.by) for arrow in sorted(drawn.arrows, key=lambda each: (each.by, each.seen))] == [
        (seen, by) for by, row in enumerate(SHAPES[shape]) for seen in row
    ]
    points = [point for arrow in drawn.arrows for point in places(arrow)]
    points += [(box.x + drawn.box_width, box.y + drawn.box_height) for box in drawn.boxes]
    assert all(0 <= x <= drawn.width and 0 <= y <= drawn.height for x, y in points)


def test_the_widest_plan_fits_a_desk_and_the_longest_a_telephone() -> None:
    assert graph.wide(SHAPES["all"]).width <= 1208
    assert graph.narrow(SHAPES["all"]).width <= 358


def test_steps_stand_by_what_must_be_finished_before_them() -> None:
    assert depths(SHAPES["long"]) == [0, 1, 2, 1, 3]


async def test_bars_lie_on_the_axis_in_the_order_of_the_calls() -> None:
    tries: Iterator[str | WorkerError] = iter([WorkerError(FaultKind.SERVER), "done"])
    run, events = await run_events(pool_of(member("a", lambda _: next(tries)), b="two"), plan_of((0, []), (1, [0])))
    drawn = timeline.timeline(events, events[-1].at)
    assert drawn is not None
    assert run.status is Status.DONE
    assert [(bar.worker, bar.fate) for bar in drawn.bars] == [("a", "failed"), ("a", "ok"), ("b", "ok")]
    assert all(drawn.names <= bar.left and bar.left + bar.width <= drawn.width for bar in drawn.bars)
    assert "retry" in drawn.bars[1].name
    assert "server" in drawn.bars[0].told


async def test_time_in_which_nobody_performed_it_is_taken_out_and_said() -> None:
    _, events = await run_events(pool_of(a="one", b="two"), plan_of((0, []), (1, [0])))
    half = next(number for number, event in enumerate(events) if event.kind == "step.finished") + 1
    day, at = 86_400.0, events[half].at
    pause = [
        RunPaused(run=events[0].run, at=at, status=Status.SUSPENDED),
        RunResumed(run=events[0].run, at=at + day),
    ]
    later = [replace(event, at=event.at + day) for event in events[half:]]
    drawn = timeline.timeline([*events[:half], *pause, *later], later[-1].at)
    assert drawn is not None
    assert [flag.told for flag in drawn.pauses] == ["nobody performed it for 1 d"]
    assert not any(tick.text.endswith("h") for tick in drawn.ticks)


def test_without_a_call_there_is_no_time_line() -> None:
    begun = RunStarted(run="r", at=1.0, conductor="c", pool=("a",), caps=Caps(), prompt="?")
    assert timeline.timeline([begun], 2.0) is None


def test_a_spark_has_gaps_where_nothing_is_known() -> None:
    drawn = spark([1.0, 0.5, None, 0.25, None, 1.0, 1.0])
    assert (len(drawn.lines), len(drawn.points)) == (2, 1)
    assert spark([]).last is None
    assert spark([None]).lines == ()


def test_a_spark_begins_at_0_and_reaches_the_top_that_is_said() -> None:
    assert spark([0.5, 0.5], height=26.0, top=1.0).last == (117.0, 13.0)


def test_bars_stand_on_the_floor_and_the_smallest_is_seen() -> None:
    drawn = columns([(0.0, "none"), (1e-9, "little"), (5.0, "much")])
    assert [column.height for column in drawn.columns] == [0.0, 1.5, 69.0]
    assert all(column.y + column.height == pytest.approx(drawn.height) for column in drawn.columns)
