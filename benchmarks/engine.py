"""What the engine itself costs: makespan over critical path, and microseconds a step, in memory and journaled.

    python benchmarks/engine.py [--json]

Makespan: 100 ms workers (the straggler: A 0.1 s -> C 0.1 s beside B 0.3 s), best of five, against the sum along the
longest path. Cost a step: workers that answer at once, plans of five steps that see everything before them.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from common import Always, Figure, Sleeper, report
from shikisha.core.budget import Caps
from shikisha.core.call import Card
from shikisha.core.events import RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.journal import open_journal

POOL = Pool([Member(Card("quick"), Sleeper()), Member(Card("tenth"), Sleeper(0.1)), Member(Card("slow"), Sleeper(0.3))])
TENTH, SLOW = 1, 2
SHAPES: dict[str, tuple[float, list[tuple[int, tuple[int, ...]]]]] = {
    "chain of 4": (0.4, [(TENTH, ()), (TENTH, (0,)), (TENTH, (1,)), (TENTH, (2,))]),
    "4-way fan-out + join": (0.2, [(TENTH, ())] * 4 + [(TENTH, (0, 1, 2, 3))]),
    "diamond": (0.3, [(TENTH, ()), (TENTH, (0,)), (TENTH, (0,)), (TENTH, (1, 2))]),
    "straggler": (0.3, [(TENTH, ()), (SLOW, ()), (TENTH, (0,))]),
}
FIVE = Plan(tuple(Step(f"part {i}", 0, tuple(range(i))) for i in range(5)))


def plan_of(steps: Sequence[tuple[int, tuple[int, ...]]]) -> Plan:
    """Return the plan with these workers and access lists."""
    return Plan(tuple(Step(f"part {i}", worker, access) for i, (worker, access) in enumerate(steps)))


async def makespans() -> list[Figure]:
    """Return makespan over critical path for every shape."""
    figures = []
    for name, (ideal, steps) in SHAPES.items():
        best = min([await seconds_for(MemoryRecorder(), plan_of(steps), 1) for _ in range(5)])
        figures.append(Figure(f"makespan / critical path, {name}", best / ideal, "x", 1.03))
    return figures


async def seconds_for(recorder: Recorder, plan: Plan, runs: int, at_once: int = 1) -> float:
    """Return the seconds that this many runs of a plan take, `at_once` in flight."""
    engine = Engine(recorder)
    gate = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with gate:
            run = await engine.run(Task("what?"), POOL, Always(plan), Caps(seconds=60))
            assert run.status is RunStatus.DONE

    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(runs):
            group.create_task(one())
    return perf_counter() - begun


async def costs() -> list[Figure]:
    """Return the cost a step: in memory, journaled one run at a time, journaled with 100 runs at once."""
    steps = len(FIVE)
    memory = [await seconds_for(MemoryRecorder(), FIVE, 100) / (100 * steps) for _ in range(15)]
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(str(Path(folder) / "bench.db")) as journal:
            alone = await seconds_for(journal, FIVE, 40) / (40 * steps)
            together = await seconds_for(journal, FIVE, 400, at_once=100) / (400 * steps)
    return [
        Figure("cost a step, in memory (500 steps), best of 15", min(memory) * 1e6, "us", 150),
        Figure("cost a step, in memory (500 steps), median of 15", statistics.median(memory) * 1e6, "us", 150),
        Figure("cost a step, journaled with full sync, one run", alone * 1e3, "ms", 6),
        Figure("cost a step, journaled with full sync, 100 runs at once", together * 1e3, "ms", 1),
    ]


async def main() -> None:
    """Measure and report."""
    report("engine", [*await makespans(), *await costs()])


if __name__ == "__main__":
    asyncio.run(main())
