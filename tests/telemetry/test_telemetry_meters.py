"""Runs as metrics: what is counted, in which buckets, and what is no label."""

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint
from telemetry_seen import Point, Seen

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import Card, Reply
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.engine.pool import Member, Pool
from shikisha.telemetry import conventions
from shikisha.workers.conductor import ConductorWorker
from support import TASK, member, plan_of, pool_of


def a_pool() -> Pool:
    """A model that costs a quarter, one that is always busy, and a tool."""
    gives = Reply("done", Usage(100, 20), 0.25)
    busy = WorkerError(FaultKind.AUTH, "no")
    return pool_of(
        member("dear", gives, kind="chat", price=Price(1, 1)),
        member("cheap", busy, kind="chat", fallback="dear"),
        member("sum", "42", kind="python"),
    )


def histogram(points: list[Point], *wanted: str) -> HistogramDataPoint:
    """The one histogram that has all these among the values of its attributes."""
    (found,) = [point for point in points if set(wanted) <= set((point.attributes or {}).values())]
    assert isinstance(found, HistogramDataPoint)
    return found


def numbers(points: list[Point]) -> dict[tuple[object, ...], float]:
    """Counts by the values of their attributes."""
    found = {tuple((point.attributes or {}).values()): point for point in points}
    return {key: point.value for key, point in found.items() if isinstance(point, NumberDataPoint)}


async def test_durations_and_tokens_are_counted_as_the_conventions_say() -> None:
    seen = Seen()
    plan = plan_of((0, []), (2, []), (1, [0, 1]))
    await seen.engine().run(TASK, a_pool(), ScriptedConductor([plan]), run_id="r1")
    points = seen.points()
    calls = points["gen_ai.client.operation.duration"]
    assert histogram(calls, "large-1").count == 2
    assert histogram(calls, "small-1", "auth").count == 1
    tokens = points["gen_ai.client.token.usage"]
    assert histogram(tokens, "input").sum == 200
    assert histogram(tokens, "output").sum == 40
    assert histogram(points["gen_ai.execute_tool.duration"]).attributes == {
        "gen_ai.tool.name": "sum",
        "gen_ai.tool.type": "function",
    }
    assert histogram(points["gen_ai.workflow.duration"]).attributes == {"gen_ai.workflow.name": "fixed:scripted"}
    steps = points["gen_ai.invoke_agent.duration"]
    assert {str((point.attributes or {})["gen_ai.agent.name"]) for point in steps} == {"dear", "cheap", "sum"}


@pytest.mark.parametrize(
    ("name", "first", "last", "count"),
    [
        (conventions.OPERATION_DURATION, 0.01, 81.92, 14),
        (conventions.TOKEN_USAGE, 1, 67108864, 14),
        (conventions.WORKFLOW_DURATION, 1, 7200, 11),
        (conventions.AGENT_DURATION, 0.1, 409.6, 13),
        (conventions.TOOL_DURATION, 0.01, 81.92, 14),
    ],
)
async def test_buckets_are_the_conventions_own(name: str, first: float, last: float, count: int) -> None:
    seen = Seen()
    await seen.engine().run(TASK, a_pool(), ScriptedConductor([plan_of((0, []), (2, []))]), run_id="r1")
    point = seen.points()[name][0]
    assert isinstance(point, HistogramDataPoint)
    assert (point.explicit_bounds[0], point.explicit_bounds[-1], len(point.explicit_bounds)) == (first, last, count)


async def test_a_duration_is_that_of_its_span() -> None:
    seen = Seen()
    await seen.engine().run(TASK, a_pool(), ScriptedConductor([plan_of((0, []))]), run_id="r1")
    (chat,) = seen.named("chat large-1")
    lasted = ((chat.end_time or 0) - (chat.start_time or 0)) / 1e9
    assert histogram(seen.points()[conventions.OPERATION_DURATION]).sum == pytest.approx(lasted, abs=1e-6)


async def test_runs_dollars_and_refusals_are_counted() -> None:
    seen = Seen(figures=lambda: {conventions.RUNS_ACTIVE: 3.0})
    engine, scripted = seen.engine(), ScriptedConductor([plan_of((0, []), (1, []))])
    await engine.run(TASK, a_pool(), scripted, run_id="r1")
    await engine.run(TASK, a_pool(), scripted, Caps(tokens=1), run_id="r2")
    points = seen.points()
    assert numbers(points[conventions.RUNS]) == {("done", False): 1, ("capped", False): 1}
    assert numbers(points[conventions.DOLLARS]) == {("dear", "step"): 0.5}
    assert numbers(points[conventions.REFUSALS]) == {("tokens",): 1}
    assert numbers(points[conventions.RUNS_ACTIVE]) == {(): 3.0}


async def test_what_a_child_run_costs_is_counted_once() -> None:
    seen = Seen()
    below = ScriptedConductor([plan_of((0, []))], "fixed:below")
    gives = Reply("done", Usage(10, 2), 0.25)
    pool = pool_of(
        Member(Card("kid", kind="conductor"), ConductorWorker(below, ["dear"])),
        member("dear", gives, kind="chat", price=Price(1, 1)),
    )
    await seen.engine().run(TASK, pool, ScriptedConductor([plan_of((0, []))]), run_id="r1")
    points = seen.points()
    assert numbers(points[conventions.DOLLARS]) == {("dear", "step"): 0.25}
    assert numbers(points[conventions.RUNS]) == {("done", True): 1, ("done", False): 1}


async def test_no_metric_has_a_label_for_a_run_a_step_or_a_person() -> None:
    seen = Seen()
    await seen.engine().run(TASK, a_pool(), ScriptedConductor([plan_of((0, []), (1, []), (2, []))]), run_id="r1")
    told = {name for points in seen.points().values() for point in points for name in point.attributes or {}}
    assert (
        told
        & {
            conventions.RUN,
            conventions.STEP,
            conventions.STEP_ID,
            conventions.ACTOR,
            conventions.ARGUMENTS_HASH,
            conventions.TASK,
        }
        == set()
    )
