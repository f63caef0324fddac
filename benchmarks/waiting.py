"""What runs that wait cost a server: for people, and for tools that take long.

    python benchmarks/waiting.py [--runs 100000] [--tools 100000]

The server is the process that `shikisha serve` starts, with its journal in SQLite (full sync). Runs are started by
`POST /runs` in the background. A run that asks a person is stored and leaves the memory; a run whose worker takes an
hour (a scripted worker, simulated) stays in it. Printed: memory after as many runs, processor time of thirty idle
seconds, and how long the answer of a person takes to end its run among all others.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from common import Figure, report
from serving_client import Connection, Server, connections, server

PEOPLE = """
conductor = "fixed:single"
[server]
max_runs = 1000
[workers.model]
kind = "scripted"
answers = "done"
approval = "always"
"""
TOOLS = """
conductor = "fixed:single"
[server]
max_runs = {runs}
drain = 0.5
[workers.model]
kind = "scripted"
seconds = [3600.0]
[budgets]
seconds = 7200.0
"""
CONNECTIONS, IDLE = 32, 30.0


async def start(at: Server, pool: Sequence[Connection], runs: int) -> str:
    """Start so many runs; return the last one's id. A server that is full for a moment is asked again."""
    request = at.request("/runs", {"prompt": "What is it?", "background": True})
    left, last = iter(range(runs)), ""

    async def again(connection: Connection) -> None:
        nonlocal last
        for _ in left:
            while (answer := await connection.ask(request)).status == 429:  # noqa: ASYNC110  it is full for a moment
                await asyncio.sleep(0.05)
            if answer.status != 202:
                raise SystemExit(f"a run was not started: {answer.data[:400]!r}")
            last = json.loads(answer.data.partition(b"\r\n\r\n")[2])["id"]

    async with asyncio.TaskGroup() as group:
        for connection in pool:
            group.create_task(again(connection))
    return str(last)


def megabytes(at: Server) -> float:
    """Return the memory that the server holds."""
    return float(at.process.memory_info().rss) / 2**20


def cpu(at: Server) -> float:
    """Return the processor seconds that the server used so far."""
    used = at.process.cpu_times()
    return float(used.user + used.system)


async def waiting(config: str, runs: int, what: str, most: float) -> tuple[list[Figure], float]:
    """Start runs that wait; return the figures, and the seconds until an approved run ends (tools: 0)."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            server(Path(folder), config, f"{folder}/journal.db") as at,
            connections(at.host, at.port, CONNECTIONS) as pool,
        ):
            await start(at, pool, 100)
            await asyncio.sleep(2.0)
            before, begun = megabytes(at), perf_counter()
            run = await start(at, pool, runs)
            took = perf_counter() - begun
            await asyncio.sleep(5.0)
            held, used = megabytes(at), cpu(at)
            await asyncio.sleep(IDLE)
            idle, ended = cpu(at) - used, 0.0
            if what == "people":
                ended = await approve(at, pool[0], run)
            return [
                Figure(f"{runs:,} runs that wait for {what}: memory of the server", held, "MB", most),
                Figure(f"{runs:,} runs that wait for {what}: more than before", held - before, "MB"),
                Figure(f"{runs:,} runs that wait for {what}: processor time while idle", idle / IDLE * 100, "%"),
                Figure(f"{runs:,} runs that wait for {what}: runs started a second", runs / took, ""),
            ], ended


async def approve(at: Server, connection: Connection, run: str) -> float:
    """Say yes to a run's question; return the seconds until the run is done."""

    async def read(path: str) -> dict[str, object]:
        request = at.request(path, {}).split(b"Content-Type", 1)[0].replace(b"POST", b"GET", 1) + b"\r\n"
        found: dict[str, object] = json.loads((await connection.ask(request)).data.partition(b"\r\n\r\n")[2])
        return found

    shown = await read(f"/runs/{run}")
    questions = shown["questions"]
    assert isinstance(questions, list), shown
    begun = perf_counter()
    answer = await connection.ask(at.request(f"/approvals/{run}_{questions[0]['question']}", {"approved": True}))
    assert answer.status == 200, answer.data
    while (await read(f"/runs/{run}"))["status"] != "done":  # noqa: ASYNC110  as a client does
        await asyncio.sleep(0.002)
    return perf_counter() - begun


async def main() -> None:
    """Measure both kinds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--tools", type=int, default=100_000)
    arguments, _ = parser.parse_known_args()  # --json is for the report
    figures: list[Figure] = []
    if arguments.runs:
        found, ended = await waiting(PEOPLE, arguments.runs, "people", 1_500)
        figures += [*found, Figure("from a person's yes to the end of the run", ended * 1e3, "ms")]
    if arguments.tools:
        figures += (await waiting(TOOLS.format(runs=2 * arguments.tools + 200), arguments.tools, "tools", 1_500))[0]
    report("Runs that wait", figures)


if __name__ == "__main__":
    asyncio.run(main())
