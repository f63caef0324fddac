"""Kill -9 one of two servers on one PostgreSQL under load, again and again; then compare journal, clients and books.

    python tests/night/serving_kill.py [--kills 100] [--lease 1.5] [--json]

Two `shikisha serve` processes share a database. A client keeps ordering background runs of three steps of whichever
server answers, and notes every run that was acknowledged. One server is killed at a random moment and started again,
over and over. Counted are: acknowledged runs that are missing or have not ended well, attempts of a step whose end was
journaled, steps charged more than once by an endpoint that charges a key once, and the seconds from a kill until a run
of the dead server goes on. The database is thrown away at the end; it needs PostgreSQL's server programs.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter, time

import httpx2
from sqlalchemy import Connection, func, select

sys.path += [str(Path(__file__).parents[2] / folder) for folder in ("benchmarks", "tests/support")]

from postgres import cluster

from common import Figure, report
from kill import Findings, audit
from serving_client import Server, percentile, server
from shikisha.core.events import Event, RunFinished, RunResumed, RunStarted, RunStatus
from shikisha.journal import open_journal
from shikisha.journal.schema import EVENTS, SERVED

IN_FLIGHT, BOOKS = 8, "books.jsonl"
CONFIG = """
conductor = "fixed:chain?workers=ledger,ledger,ledger"
[server]
lease = {lease}
drain = 0.5
[workers.ledger]
kind = "chat"
base_url = "{url}"
model = "scripted"
max_output_tokens = 100
"""


@dataclass
class Load:
    """The client: whom it asks, with which key, and which runs were acknowledged."""

    key: str
    servers: list[Server | None] = field(default_factory=lambda: [None, None])
    acknowledged: list[str] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    over: bool = False

    async def order(self, client: httpx2.AsyncClient, rng: random.Random) -> None:
        """Keep ordering runs until it is over; what a server did not acknowledge does not count."""
        while not self.over:
            alive = [each for each in self.servers if each is not None]
            if not alive:
                await asyncio.sleep(0.05)
                continue
            at = rng.choice(alive)
            url = f"http://{at.host}:{at.port}/v1/responses"
            body = {"model": "shikisha", "input": "What comes first?", "background": True}
            with suppress(httpx2.HTTPError):
                answer = await client.post(url, json=body, headers={"Authorization": f"Bearer {self.key}"})
                if answer.status_code == 200:
                    self.acknowledged.append(answer.headers["x-shikisha-run-id"])
            await asyncio.sleep(rng.uniform(0.2, 0.6))

    async def order_during(self, trouble: Coroutine[object, object, None], rng: random.Random) -> None:
        """Order runs, several at once, until the trouble is over."""
        async with httpx2.AsyncClient(timeout=10) as client, asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self.order(client, rng))
            await trouble
            self.over = True


@asynccontextmanager
async def charging_endpoint(folder: Path) -> AsyncIterator[str]:
    """Yield the URL of an endpoint that answers in .15 s and writes each call and its key into the folder's books."""
    script = folder / "script.json"
    script.write_text('[{"text": "an answer", "latency": 0.15}]')
    command = [sys.executable, "-m", "shikisha.testing", "--script", str(script), "--ledger", str(folder / BOOKS)]
    endpoint = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert endpoint.stdout is not None
    try:
        yield (await endpoint.stdout.readline()).decode().strip()
    finally:
        endpoint.terminate()
        await endpoint.wait()


async def kill_again_and_again(load: Load, kills: int, lease: float, start: "Starter") -> None:
    """Kill one server, wait until its runs must have been taken over, and start it again."""
    rng = random.Random(2)
    for number in range(kills):
        victim = number % 2
        await asyncio.sleep(rng.uniform(0.2, 1.0))
        running = load.servers[victim]
        assert running is not None
        load.servers[victim] = None
        running.process.kill()
        load.kills.append(time())
        await asyncio.sleep(2.2 * lease)
        load.servers[victim] = await start(victim)


class Starter:
    """Starts servers; all of them end with the stack."""

    def __init__(self, stack: AsyncExitStack, folder: Path, config: str, journal: str) -> None:
        self._stack, self._folder, self._config, self._journal = stack, folder, config, journal

    async def __call__(self, number: int) -> Server:
        """Start a server and return it once it listens."""
        folder = self._folder / str(number)
        folder.mkdir(exist_ok=True)
        return await self._stack.enter_async_context(server(folder, self._config, self._journal))


async def harness(
    kills: int, lease: float, folder: Path, database: str
) -> tuple[Findings, list[float], float, list[Figure]]:
    """Run load and kills; return what the audit finds, the takeovers' seconds, the seconds in all, further figures."""
    begun, books = perf_counter(), folder / BOOKS
    async with charging_endpoint(folder) as url, AsyncExitStack() as stack:
        start = Starter(stack, folder, CONFIG.format(lease=lease, url=url), database)
        first = await start(0)
        load = Load(first.key, [first, None])
        load.servers[1] = await start(1)
        await load.order_during(kill_again_and_again(load, kills, lease, start), random.Random(1))
        await runs_have_ended(database)
    findings = await audit(database, books.read_text(), [f"ack {run}\n" for run in load.acknowledged])
    async with open_journal(database) as journal:
        blamed = Figure("runs quarantined, all innocent", await journal.query(_quarantined), "", 0)
        unverified = Figure("what journal verify finds", len((await journal.verify()).problems), "", 0)
    return findings, await takeovers(database, load.kills), perf_counter() - begun, [blamed, unverified]


def _quarantined(connection: Connection) -> int:
    suspended = select(func.count()).where(SERVED.c.status == RunStatus.QUARANTINED)
    return int(connection.execute(suspended).scalar_one())


def _count(kind: type[Event], connection: Connection) -> int:
    return int(connection.execute(select(func.count()).where(EVENTS.c.kind == kind.kind)).scalar_one())


def _resumptions(connection: Connection) -> list[float]:
    return list(connection.execute(select(EVENTS.c.at).where(EVENTS.c.kind == RunResumed.kind)).scalars())


async def runs_have_ended(database: str) -> None:
    """Return once every run that began has ended, or after a minute."""
    async with open_journal(database) as journal:
        for _ in range(120):
            if await journal.query(partial(_count, RunStarted)) == await journal.query(partial(_count, RunFinished)):
                return
            await asyncio.sleep(0.5)


async def takeovers(database: str, kills: list[float]) -> list[float]:
    """Return, for each run that went on after a kill, the seconds since the kill."""
    async with open_journal(database) as journal:
        resumed = await journal.query(_resumptions)
    return [at - max(kill for kill in kills if kill <= at) for at in resumed if at >= kills[0]]


def main() -> None:
    """Kill, audit, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--lease", type=float, default=1.5)
    options, _ = parser.parse_known_args()
    with cluster() as database, tempfile.TemporaryDirectory() as folder:
        database.call("createdb", "-h", str(database.folder), "served")
        findings, seconds, took, more = asyncio.run(
            harness(options.kills, options.lease, Path(folder), database.url("served"))
        )
    figures = [
        Figure(f"{options.kills} kills of one of two servers: acknowledged runs", findings.acknowledged, "runs"),
        Figure("acknowledged runs lost or not ended", findings.lost, "", 0),
        Figure("journaled steps performed again", findings.again, "", 0),
        Figure("steps charged twice by a worker that honours the key", findings.charged_twice, "", 0),
        *more,
        Figure("calls repeated under their key (answered from the books)", findings.repeated, "calls"),
        Figure("runs taken over", len(seconds), "runs"),
        Figure("takeover, longest, in leases", max(seconds, default=0.0) / options.lease, "leases", 2),
        Figure("takeover, p50", percentile(seconds or [0.0], 0.5), "s"),
        Figure("seconds in all", took, "s"),
    ]
    report("kill -9 of one of two servers on PostgreSQL", figures)


if __name__ == "__main__":
    main()
