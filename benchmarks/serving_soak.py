"""Half an hour at fifty requests a second, with the database away for one minute, twice.

    python benchmarks/serving_soak.py [--minutes 30] [--rate 50] [--json]

One `shikisha serve` process journals to a PostgreSQL of its own (thrown away at the end), which is stopped after a
third and after two thirds of the time, for a minute each (less in shorter trials). Counted: what was answered, what was
refused while the journal could not be written and at other times, and the server's resident memory, whose slope is
fitted over the samples after the first sixth.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from common import Figure, report
from serving_client import Connection, Server, connections, server

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from postgres import Cluster, cluster

CHAT = "/v1/chat/completions"
ASKED = {"model": "shikisha", "messages": [{"role": "user", "content": "What is it?"}]}
CONFIG = """
conductor = "fixed:single"
[workers.model]
kind = "scripted"
answers = "done"
seconds = [0.02]
"""
GRACE = 3.0  # seconds around an outage in which either answer is right


@dataclass
class Soak:
    """What happened: (second, status) of each answer, (second, bytes) of memory, outages as (from, to)."""

    answers: list[tuple[float, int]] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)

    def away(self, at: float, grace: float) -> bool:
        """Whether the database was away at this second, give or take."""
        return any(begun - grace <= at <= ended + grace for begun, ended in self.outages)


async def ask(at: Server, soak: Soak, begun: float, free: "asyncio.Queue[Connection]") -> None:
    """Ask once; a connection that the server closed is replaced."""
    connection = await free.get()
    asked = perf_counter() - begun
    try:
        status = (await connection.ask(at.request(CHAT, ASKED))).status
    except (ConnectionError, OSError):
        status = 0
        connection = (await asyncio.get_running_loop().create_connection(Connection, at.host, at.port))[1]
    soak.answers.append((asked, status))
    free.put_nowait(connection)


async def outages(database: Cluster, soak: Soak, begun: float, seconds: float, away: float) -> None:
    """Stop the database twice."""
    for share in (1 / 3, 2 / 3):
        await asyncio.sleep(max(0.0, begun + share * seconds - perf_counter()))
        stopped = perf_counter() - begun
        await asyncio.to_thread(database.server, "stop", "-m", "fast")
        await asyncio.sleep(away)
        await asyncio.to_thread(database.start)
        soak.outages.append((stopped, perf_counter() - begun))


async def main(database: Cluster, folder: Path, seconds: float, rate: float) -> Soak:
    """Ask at this rate for so long."""
    soak = Soak()
    async with server(folder, CONFIG, database.url("soak")) as at, connections(at.host, at.port, 100) as pool:
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for each in pool:
            free.put_nowait(each)
        begun = perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(outages(database, soak, begun, seconds, min(60.0, seconds / 12)))
            for number in range(round(rate * seconds)):
                await asyncio.sleep(max(0.0, begun + number / rate - perf_counter()))
                group.create_task(ask(at, soak, begun, free))
                if number % round(rate) == 0:
                    soak.memory.append((perf_counter() - begun, at.process.memory_info().rss))
    return soak


def figures(soak: Soak, seconds: float) -> list[Figure]:
    """Return what came of it."""
    good = Counter(status for at, status in soak.answers if not soak.away(at, GRACE))
    bad = Counter(status for at, status in soak.answers if soak.away(at, -GRACE))
    later = [(at, size) for at, size in soak.memory if at > seconds / 6]
    slope = float(np.polyfit([at / 60 for at, _ in later], [size / 2**20 for _, size in later], 1)[0])
    last = [status for at, status in soak.answers if at > seconds - 30]
    return [
        Figure("requests", len(soak.answers), ""),
        Figure("errors while the database was there", good.total() - good[200], "", 0),
        Figure("answered 200 while it was away", bad[200], "", 0),
        Figure("refused with 503 while it was away", bad[503], ""),
        Figure("neither, while it was away", bad.total() - bad[200] - bad[503], "", 0),
        Figure("right in the last half minute", last.count(200) / len(last), "share", 1, at_least=True),
        Figure("memory, at the beginning", soak.memory[min(60, len(soak.memory) - 1)][1] / 2**20, "MB"),
        Figure("memory, at the end", soak.memory[-1][1] / 2**20, "MB"),
        Figure("memory's slope after warm-up", slope, "MiB/min", 1),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=50)
    chosen, _ = parser.parse_known_args()
    with cluster() as postgres, tempfile.TemporaryDirectory() as place:
        postgres.call("createdb", "-h", str(postgres.folder), "soak")
        soaked = asyncio.run(main(postgres, Path(place), 60 * chosen.minutes, chosen.rate))
    report("soak", figures(soaked, 60 * chosen.minutes))
