"""A thousand runs at once, and ten thousand in one process.

    python benchmarks/load.py [--json]

Throughput: 1,000 concurrent 3-step runs over workers that take 50 ms, journaled with full sync, in a process of its
own; memory is that process's peak resident set. Growth: 10,000 3-step runs, 50 in flight, after 1,000 to warm up.
"""

import asyncio
import gc
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

import psutil

from common import Always, Figure, Sleeper, report
from shikisha.core.call import Card
from shikisha.core.events import RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.journal import open_journal

CHAIN = Plan((Step("first", 0), Step("second", 0, (0,)), Step("third", 0, (1,))))


async def runs(count: int, at_once: int, seconds: float, url: str, warm_up: int = 0) -> tuple[int, float, int]:
    """Perform runs; return errors, seconds, and bytes of resident memory gained after the warm-up."""
    pool = Pool([Member(Card("worker"), Sleeper(seconds))])
    gate = asyncio.Semaphore(at_once)
    errors = 0

    async def one(engine: Engine) -> None:
        nonlocal errors
        async with gate:
            run = await engine.run(Task("what?"), pool, Always(CHAIN))
            errors += run.status is not RunStatus.DONE

    async def many(engine: Engine, number: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(one(engine))

    async with open_journal(url) as journal:
        engine = Engine(journal)
        for _ in range(warm_up // 500):
            await many(engine, 500)
        before = resident()
        begun = perf_counter()
        for _ in range(max(1, count // 1000)):
            await many(engine, min(count, 1000))
        return errors, perf_counter() - begun, resident() - before


def resident() -> int:
    """Return this process's resident bytes after a collection."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def throughput(pipe: Connection) -> None:
    """Measure 1,000 runs at once, here, in a fresh process."""
    import resource

    with tempfile.TemporaryDirectory() as folder:
        errors, seconds, _ = asyncio.run(runs(1000, 1000, 0.05, str(Path(folder) / "load.db")))
    pipe.send((errors, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def growth(pipe: Connection) -> None:
    """Measure 10,000 runs, here, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        pipe.send(asyncio.run(runs(10_000, 50, 0.0, str(Path(folder) / "grow.db"), warm_up=1000)))


def in_process(target: object) -> tuple[float, ...]:
    """Call the function in a process of its own and return what it sends."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(there,))  # type: ignore[arg-type]  # typeshed wants a Callable
    process.start()
    there.close()
    sent = here.recv()
    process.join()
    return tuple(sent)


def main() -> None:
    """Measure and report."""
    errors, seconds, peak = in_process(throughput)
    grown_errors, grown_seconds, gained = in_process(growth)
    figures = [
        Figure("1,000 concurrent 3-step runs, 50 ms workers: errors", errors, "", 0),
        Figure("the same: throughput", 1000 / seconds, "runs/s", 300, at_least=True),
        Figure("the same: peak memory", peak, "MB", 300),
        Figure("10,000 runs in one process: errors", grown_errors, "", 0),
        Figure("the same: memory growth after warm-up", gained / 1e6, "MB", 20),
        Figure("the same: throughput", 10_000 / grown_seconds, "runs/s"),
    ]
    report("load", figures)


if __name__ == "__main__":
    main()
