"""Order a run that takes servers down of two servers on one PostgreSQL, and see how soon both are well again.

    python benchmarks/poison.py [--lease 10] [--kinds spin,lock,exit,…] [--json]

Two `shikisha serve` processes share a database, each under a supervisor that starts it again whenever it ends, and that
kills it at 600 MiB, as a container's memory limit does. Clients keep ordering honest runs of whichever server answers.
Then one run is ordered whose worker hangs the event loop (in Python, in C code with and without the interpreter's lock,
in a thread), ends the process, crashes it, or eats memory. Measured from its acknowledgement: the seconds until it is
quarantined and both servers answer /healthz, in leases; how many servers it took down; and what became of the honest
runs. Further kinds raise what ends a careless server and must end nothing. It needs PostgreSQL's server programs.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import httpx2
import psutil

from common import Figure, report

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from poisoned import CONFIG, POISONS
from postgres import cluster
from serving import free_port

HARMLESS = ("panic", "system_exit")
KEY = "a-key-that-nobody-would-guess-in-here"
_MOST = 600 * 2**20  # bytes of memory
_IN_FLIGHT = 6


@dataclass
class Supervisor:
    """Starts a server again and again; `ends` are its exit statuses."""

    command: Sequence[str]
    log: Path
    port: int
    ends: list[int] = field(default_factory=list)

    async def run(self) -> None:
        """Supervise until cancelled."""
        environment = {**os.environ, "POISON_ADMIN_KEY": KEY}
        while True:
            with self.log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(*self.command, stdout=log, stderr=log, env=environment)
            try:
                watching = asyncio.create_task(_bound(process.pid))
                self.ends.append(await process.wait())
                watching.cancel()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"http://127.0.0.1:{self.port}"


async def _bound(pid: int) -> None:
    """Kill a process that takes too much memory."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        while process.memory_info().rss < _MOST:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)
        process.kill()


@dataclass
class Outcome:
    """What a kind of poison did; `seconds` None: the servers were never well again."""

    kind: str
    seconds: float | None
    status: str
    ends: int
    honest: int
    lost: int
    quarantined: int


@asynccontextmanager
async def servers(folder: Path, database: str, lease: float) -> AsyncIterator[list[Supervisor]]:
    """Two supervised servers that answer."""
    file = folder / "shikisha.toml"
    file.write_text(CONFIG.format(seconds=0.3, lease=lease, end='admin_key_env = "POISON_ADMIN_KEY"'))
    program = Path(__file__).parents[1] / "tests" / "support" / "poisoned.py"
    made = []
    for number in range(2):
        port = free_port()
        words = ("serve", "--json", "--port", str(port), "--config", str(file), "--journal", database)
        made.append(Supervisor([sys.executable, str(program), *words], folder / f"{number}.log", port))
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(each.run()) for each in made]
        async with httpx2.AsyncClient(timeout=0.5) as client:
            while not await well(client, made):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.1)
        yield made
        for each in running:
            each.cancel()


async def well(client: httpx2.AsyncClient, both: Sequence[Supervisor]) -> bool:
    """Whether both servers answer."""
    try:
        answers = [await client.get(f"{each.url}/healthz") for each in both]
    except httpx2.HTTPError:
        return False
    return all(answer.status_code == 200 for answer in answers)


async def order(both: Sequence[Supervisor], acknowledged: list[str], number: int) -> None:
    """Keep ordering honest runs of one server, then of the other, until cancelled."""
    async with httpx2.AsyncClient(timeout=5, headers={"Authorization": f"Bearer {KEY}"}) as client:
        while True:
            number += 1
            with suppress(httpx2.HTTPError):
                answer = await client.post(f"{both[number % 2].url}/runs", json={"prompt": "?", "background": True})
                if answer.status_code == 202:
                    acknowledged.append(answer.json()["id"])
            await asyncio.sleep(0.3)


async def settled(client: httpx2.AsyncClient, url: str, runs: Sequence[str]) -> tuple[int, int]:
    """Return how many of these runs did not end well, and how many of them are quarantined, once they rest."""
    lost = quarantined = 0
    for run in runs:
        status = "running"
        for _ in range(100):
            with suppress(httpx2.HTTPError):
                status = (await client.get(f"{url}/runs/{run}")).json()["status"]
            if status != "running":
                break
            await asyncio.sleep(0.3)
        lost += status != "done"
        quarantined += status == "quarantined"
    return lost, quarantined


async def poison(kind: str, folder: Path, database: str, lease: float) -> Outcome:
    """Order one run of a kind, and wait until it is quarantined and both servers are well, or for ten leases."""
    acknowledged: list[str] = []
    async with servers(folder, database, lease) as both, asyncio.TaskGroup() as group:
        clients = [group.create_task(order(both, acknowledged, number)) for number in range(_IN_FLIGHT)]
        await asyncio.sleep(1.0)
        async with httpx2.AsyncClient(timeout=2, headers={"Authorization": f"Bearer {KEY}"}) as client:
            body = {"prompt": f"POISON {kind}", "background": True}
            begun, healthy, status = monotonic(), None, "running"
            with suppress(httpx2.HTTPError):  # it may hang, or be gone, before it can say so
                await client.post(f"{both[0].url}/runs", json=body)
            while monotonic() - begun < 10 * lease and (healthy is None or monotonic() - healthy < 2.0):
                await asyncio.sleep(0.1)
                with suppress(httpx2.HTTPError, KeyError):
                    found = (await client.get(f"{both[1].url}/runs?text=POISON")).json()["data"]
                    status = str(found[0]["status"]) if found else status
                fine = status in {"quarantined", "failed", "done"} and await well(client, both)
                healthy = (healthy or monotonic()) if fine else None
            for each in clients:
                each.cancel()
            lost, quarantined = await settled(client, both[1].url, acknowledged)
        ends = sum(len(each.ends) for each in both)
    return Outcome(
        kind, None if healthy is None else healthy - begun, status, ends, len(acknowledged), lost, quarantined
    )


def figures(outcomes: Sequence[Outcome], lease: float) -> list[Figure]:
    """Return what is reported."""
    told = []
    for each in outcomes:
        leases = float("inf") if each.seconds is None else each.seconds / lease
        what = f"{each.kind}: {each.status}, {each.ends} ends; both servers well after"
        told.append(Figure(what, leases, "leases", 3))
    harmful = [each for each in outcomes if each.kind not in HARMLESS]
    return [
        *told,
        Figure("kinds that take servers down: not quarantined", sum(e.status != "quarantined" for e in harmful), "", 0),
        Figure("kinds that must end nothing: ends", sum(e.ends for e in outcomes if e.kind in HARMLESS), "", 0),
        Figure("honest runs acknowledged meanwhile", sum(each.honest for each in outcomes), "runs"),
        Figure("honest runs that did not end well", sum(each.lost for each in outcomes), "", 0),
        Figure("honest runs quarantined", sum(each.quarantined for each in outcomes), "", 0),
    ]


def main() -> None:
    """Poison, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lease", type=float, default=10.0)
    parser.add_argument("--kinds", default=",".join(POISONS))
    options, _ = parser.parse_known_args()
    outcomes = []
    with cluster() as database:
        for kind in options.kinds.split(","):
            database.call("createdb", "-h", str(database.folder), kind)
            with tempfile.TemporaryDirectory() as folder:
                made = asyncio.run(poison(kind, Path(folder), database.url(kind), options.lease))
            outcomes.append(made)
            print(made, file=sys.stderr, flush=True)
    report("a run that takes servers down, two servers on PostgreSQL", figures(outcomes, options.lease))


if __name__ == "__main__":
    main()
