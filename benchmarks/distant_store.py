"""Several servers on one PostgreSQL database that is some milliseconds away: round trips, and runs a second.

    python benchmarks/distant_store.py [--ms 1] [--servers 8] [--seconds 10] [--json]

The database is a private one with fsync on, behind a proxy that holds what passes for half of `--ms` each way. A server
here is a process with the engine, the journal and the store of served runs, and its lease; it has ten 3-step runs of
150 ms in flight. Ideal is what the workers' own time allows: servers × 10 ÷ 150 ms. Round trips are counted at the
proxy, for one server with one run at a time: how often the server waited for the database between a run's start and
its end. What the processes compute takes time too, on cores that all of them share.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from common import Always, Figure, Sleeper, report
from shikisha.core.call import Card
from shikisha.core.events import RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.run import new_run_id
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.journal import open_journal
from shikisha.server.store import ServedRun, ServedState, open_store

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from postgres import cluster

CHAIN = Plan((Step("first", 0), Step("second", 0, (0,)), Step("third", 0, (1,))))
STEP_SECONDS, IN_FLIGHT = 0.05, 10
PIECE = 1 << 20


class DelayProxy:
    """Passes connections to a Unix socket on, each piece after a delay, and counts how often a client waited."""

    def __init__(self, target: str, seconds: float) -> None:
        self.target = target
        self.seconds = seconds
        self.waits = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        inner_reader, inner_writer = await asyncio.open_unix_connection(self.target)
        state = {"answered": True}
        with suppress(OSError):
            await asyncio.gather(
                self._pass(reader, inner_writer, state, asked=True),
                self._pass(inner_reader, writer, state, asked=False),
            )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: dict[str, bool], *, asked: bool
    ) -> None:
        loop, held = asyncio.get_running_loop(), deque[bytes]()

        def let_go() -> None:
            writer.write(held.popleft())

        with suppress(OSError, asyncio.CancelledError):
            while piece := await reader.read(PIECE):
                if asked and state["answered"]:
                    self.waits += 1
                state["answered"] = not asked
                held.append(piece)
                loop.call_later(self.seconds, let_go)
        loop.call_later(self.seconds, writer.close)


async def perform(url: str, in_flight: int, seconds: float, ready: Callable[[], None] = lambda: None) -> list[float]:
    """Be a server for some seconds; return how long each run took after the first, at whose end `ready` is called."""
    pool, taken = Pool([Member(Card("worker"), Sleeper(STEP_SECONDS))]), list[float]()
    async with open_journal(url, patience=30.0) as journal, open_store(journal, lease=30.0) as store:
        engine, conductor = Engine(journal), Always(CHAIN)

        async def one() -> None:
            begun, run_id = perf_counter(), new_run_id()
            await store.add_run(
                ServedRun(run=run_id, tenant="t", key="k", api="chat", model="m", conductor=conductor.name)
            )
            run = await engine.run(Task("what?"), pool, conductor, run_id=run_id)
            if run.status is not RunStatus.DONE:
                raise RuntimeError(f"run {run_id}: {run.status}")
            store.mark(run_id, ServedState.ENDED, status=run.status, used=run.charged)
            await journal.flush()
            taken.append(perf_counter() - begun)

        async def again(until: float) -> None:
            while perf_counter() < until:
                await one()

        await one()
        taken.clear()
        ready()
        until = perf_counter() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(again(until))
    return taken


def be_server(pipe: Connection, url: str, seconds: float) -> None:
    """Be a server in a process of its own."""
    pipe.send(asyncio.run(perform(url, IN_FLIGHT, seconds)))


async def measure(ms: float, servers: int, seconds: float) -> list[Figure]:
    """Measure round trips, then throughput."""
    with cluster() as database:
        database.server("stop", "-m", "fast")
        database.server("start", "-o", f"-k {database.folder} -c listen_addresses='' -c max_connections=200")
        url = database.fresh()
        proxy = DelayProxy(str(database.folder / ".s.PGSQL.5432"), ms / 2000)
        near = database.folder / "near"
        near.mkdir()
        near.chmod(0o755)
        listening = await asyncio.start_unix_server(proxy.serve, near / ".s.PGSQL.5432")
        url = url.replace(f"host={database.folder}", f"host={near}")
        async with listening:
            begun = list[int]()
            alone = await perform(url, 1, 3.0, lambda: begun.append(proxy.waits))
            trips = (proxy.waits - begun[0]) / len(alone)
            context = multiprocessing.get_context("spawn")
            pipes = [context.Pipe(duplex=False) for _ in range(servers)]
            processes = [context.Process(target=be_server, args=(sender, url, seconds)) for _, sender in pipes]
            for process in processes:
                process.start()
            results = await asyncio.gather(*(asyncio.to_thread(reader.recv) for reader, _ in pipes))
            for process in processes:
                process.join()
            async with open_journal(url, patience=30.0) as journal:
                verified = await journal.verify()
    taken = [each for part in results for each in part]
    ideal = servers * IN_FLIGHT / (3 * STEP_SECONDS)
    return [
        Figure(f"round trips of a 3-step run, {ms:g} ms away", trips, "", 6),
        Figure("median of such a run alone", statistics.median(alone) * 1000, "ms"),
        Figure(f"{servers} servers: runs a second of {ideal:.0f} ideal", len(taken) / seconds, "/s", 0.9 * ideal, True),
        Figure("median of a run", statistics.median(taken) * 1000, "ms", 190),
        Figure("99 % of the runs below", statistics.quantiles(taken, n=100)[98] * 1000, "ms"),
        Figure("problems in the chain afterwards", len(verified.problems), "", 0),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ms", type=float, default=1.0, help="round trip to the database, in milliseconds")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report("A distant store", asyncio.run(measure(given.ms, given.servers, given.seconds)))


if __name__ == "__main__":
    main()
