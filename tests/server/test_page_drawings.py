"""Drawings of the pages: nothing lies outside, nothing crosses a box, what is unknown is a gap."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import pytest

from shikisha.core.budget import Caps
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import RunPaused, RunResumed, RunStarted, RunStatus
from shikisha.core.plan import step_depths
from shikisha.plots import run_charts
from shikisha.plots.run_charts import PlanGraph, StepArrow
from support import member, plan_of, pool_of, run_events

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "one": [()],
    "chain": [(), (0,), (1,)],
    "all": [(), (0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)],
    "fan": [(), (), (), (), (0, 1, 2, 3)],
    "long": [(), (0,), (1,), (0,), (0, 2, 3)],
    "apart": [(), (), ()],
}


def places(arrow: StepArrow) -> list[tuple[float, float]]:
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


def crossed(drawn: PlanGraph) -> list[tuple[int, int, int]]:
    """Which boxes arrows run through: (seen, by, box)."""
    return [
        (arrow.seen, arrow.by, box.index)
        for arrow, box in product(drawn.arrows, drawn.boxes)
        for x, y in places(arrow)
        if box.x + 1 < x < box.x + drawn.box_width - 1 and box.y + 1 < y < box.y + drawn.box_height - 1
    ]


@pytest.mark.parametrize("lay", [run_charts.wide_plan_graph, run_charts.narrow_plan_graph])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_arrow_crosses_a_box_and_all_lies_inside(
    lay: Callable[[Sequence[Sequence[int]]], PlanGraph], shape: str
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
    assert run_charts.wide_plan_graph(SHAPES["all"]).width <= 1208
    assert run_charts.narrow_plan_graph(SHAPES["all"]).width <= 358


def test_steps_stand_by_what_must_be_finished_before_them() -> None:
    assert step_depths(SHAPES["long"]) == [0, 1, 2, 1, 3]


async def test_bars_lie_on_the_axis_in_the_order_of_the_calls() -> None:
    tries: Iterator[str | WorkerError] = iter([WorkerError(FaultKind.SERVER), "done"])
    run, events = await run_events(pool_of(member("a", lambda _: next(tries)), b="two"), plan_of((0, []), (1, [0])))
    drawn = run_charts.timeline(events, events[-1].at)
    assert drawn is not None
    assert run.status is RunStatus.DONE
    assert [(bar.worker, bar.fate) for bar in drawn.bars] == [("a", "failed"), ("a", "ok"), ("b", "ok")]
    assert all(drawn.names <= bar.left and bar.left + bar.width <= drawn.width for bar in drawn.bars)
    assert "retry" in drawn.bars[1].name
    assert "server" in drawn.bars[0].words


async def test_time_in_which_nobody_performed_it_is_taken_out_and_said() -> None:
    _, events = await run_events(pool_of(a="one", b="two"), plan_of((0, []), (1, [0])))
    half = next(number for number, event in enumerate(events) if event.kind == "step.finished") + 1
    day, at = 86_400.0, events[half].at
    pause = [
        RunPaused(run=events[0].run, at=at, status=RunStatus.SUSPENDED),
        RunResumed(run=events[0].run, at=at + day),
    ]
    later = [replace(event, at=event.at + day) for event in events[half:]]
    drawn = run_charts.timeline([*events[:half], *pause, *later], later[-1].at)
    assert drawn is not None
    assert [flag.words for flag in drawn.pauses] == ["it was not executed for 1 d"]
    assert not any(tick.text.endswith("h") for tick in drawn.ticks)


def test_without_a_call_there_is_no_time_line() -> None:
    begun = RunStarted(run="r", at=1.0, conductor="c", pool=("a",), caps=Caps(), prompt="?")
    assert run_charts.timeline([begun], 2.0) is None
