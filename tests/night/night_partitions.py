"""Cut two servers off from their one PostgreSQL at random, again and again; then compare journal, clients and books.

    python tests/night/night_partitions.py [--minutes 5] [--lease 1.5] [--seed 1] [--json]

Each `shikisha serve` reaches the database through a proxy of its own, which cuts in one of three ways: what is sent
waits until the cut is over (a black hole), connections are reset and new ones refused, or what the database answers is
lost while what is asked arrives (so that a commit happens whose answer nobody hears). A cut takes one server or both,
for shorter or longer than a lease. A client keeps ordering background runs of three steps of whichever server answers,
and notes every run that was acknowledged. Counted are: acknowledged runs that are missing or have not ended well,
attempts of a step whose end was journaled, steps charged more than once by an endpoint that charges a key once, and
problems in the chain (a fork would be one). Left out where there is no PostgreSQL.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic, perf_counter

sys.path += [str(Path(__file__).parents[2] / folder) for folder in ("benchmarks", "tests/support")]

from postgres import Cluster, cluster, programs

from common import Figure, report
from kill import Findings, audit
from serving_client import server
from serving_kill import BOOKS, CONFIG, Load, charging_endpoint, runs_have_ended
from shikisha.core.events import RunStatus
from shikisha.journal import open_journal

PIECE = 1 << 16


class Cut(StrEnum):
    """What a proxy does with what is sent."""

    NONE = "none"  # it passes all on
    HOLD = "hold"  # nothing passes until the cut is over
    RESET = "reset"  # connections end, and no new one is made
    DEAF = "deaf"  # what is asked arrives, what is answered is lost with its connection


class CutProxy:
    """Passes connections to a Unix socket on, unless it is cut."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.cut = Cut.NONE
        self._open: set[asyncio.StreamWriter] = set()
        self._healed = asyncio.Event()
        self._healed.set()

    def begin(self, cut: Cut) -> None:
        """Cut."""
        self.cut = cut
        self._healed.clear()
        if cut is Cut.RESET:
            self._end()

    def heal(self) -> None:
        """Let everything pass again; connections whose answers were lost end."""
        if self.cut is Cut.DEAF:
            self._end()
        self.cut = Cut.NONE
        self._healed.set()

    def _end(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if self.cut is Cut.RESET:
            writer.transport.abort()
            return
        inner_reader, inner_writer = await asyncio.open_unix_connection(self.target)
        self._open |= {writer, inner_writer}
        try:
            await asyncio.gather(
                self._pass(reader, inner_writer, answers=False), self._pass(inner_reader, writer, answers=True)
            )
        finally:
            self._open -= {writer, inner_writer}
            for each in (writer, inner_writer):
                each.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while piece := await reader.read(PIECE):
                if self.cut is Cut.HOLD:
                    await self._healed.wait()
                if self.cut is Cut.DEAF and answers:
                    continue
                writer.write(piece)
                await writer.drain()
        writer.close()


@dataclass(frozen=True)
class Outcome:
    """What journal, books and chain say; `refused` are runs that were begun and never acknowledged to the client."""

    findings: Findings
    lost: int
    refused: int
    problems: int
    seconds: float


async def cut_again_and_again(proxies: list[CutProxy], seconds: float, lease: float, rng: random.Random) -> None:
    """Cut one server off, or both, for a part of a lease or for longer than one, once at least."""
    until = monotonic() + seconds
    while True:
        await asyncio.sleep(rng.uniform(0.2, 1.2))
        hit = [proxy for proxy in proxies if rng.random() < 0.6] or [rng.choice(proxies)]
        for proxy in hit:
            proxy.begin(rng.choice([Cut.HOLD, Cut.RESET, Cut.DEAF]))
        await asyncio.sleep(rng.choice([rng.uniform(0.05, 0.8), rng.uniform(1.2, 2.5)]) * lease)
        for proxy in hit:
            proxy.heal()
        if monotonic() > until:
            return


async def harness(seconds: float, lease: float, seed: int, folder: Path, database: Cluster) -> Outcome:
    """Serve, cut and audit."""
    begun, direct, rng = perf_counter(), database.url("served"), random.Random(seed)
    (folder / BOOKS).touch()  # of a short trial that called nobody
    async with charging_endpoint(folder) as url, AsyncExitStack() as stack:
        proxies, running = list[CutProxy](), []
        for number in range(2):
            near = folder / str(number)
            near.mkdir()
            proxy = CutProxy(str(database.folder / ".s.PGSQL.5432"))
            socket = await asyncio.start_unix_server(proxy.serve, near / ".s.PGSQL.5432")
            stack.push_async_callback(_close, socket)
            proxies.append(proxy)
            journal = direct.replace(f"host={database.folder}", f"host={near}")
            at = server(near, CONFIG.format(lease=lease, url=url), journal, near / "server.log")
            running.append(await stack.enter_async_context(at))
        load = Load(running[0].key, list(running))
        await load.order_during(cut_again_and_again(proxies, seconds, lease, rng), rng)
        await runs_have_ended(direct)
    findings = await audit(direct, (folder / BOOKS).read_text(), [f"ack {run}\n" for run in load.acknowledged])
    async with open_journal(direct) as opened:
        known = {row.id: row.status for row in await opened.runs(limit=1_000_000)}
        lost = sum(known.get(run) is not RunStatus.DONE for run in load.acknowledged)
        problems = len((await opened.verify()).problems)
    return Outcome(findings, lost, len(known.keys() - set(load.acknowledged)), problems, perf_counter() - begun)


async def _close(socket: asyncio.Server) -> None:
    socket.close()


def main() -> int:
    """Cut, audit, report; how many figures are not as promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--lease", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args()
    if programs() is None:
        print("left out: there is no PostgreSQL here")
        return 0
    with cluster() as database, tempfile.TemporaryDirectory() as folder:
        database.call("createdb", "-h", str(database.folder), "served")
        outcome = asyncio.run(harness(60 * options.minutes, options.lease, options.seed, Path(folder), database))
    findings = outcome.findings
    figures = [
        Figure("acknowledged runs", findings.acknowledged, "runs"),
        Figure("acknowledged runs lost or not ended", outcome.lost, "", 0),
        Figure("  runs that were begun and refused, or whose acknowledgement was lost", outcome.refused, "runs"),
        Figure("journaled steps performed again", findings.again, "", 0),
        Figure("steps charged twice by a worker that honours the key", findings.charged_twice, "", 0),
        Figure("problems in the chain, forks among them", outcome.problems, "", 0),
        Figure("calls repeated under their key (answered from the books)", findings.repeated, "calls"),
        Figure("seconds in all", outcome.seconds, "s"),
    ]
    report("two servers cut off from PostgreSQL at random", figures)
    return sum(each.reached is False for each in figures)


if __name__ == "__main__":
    sys.exit(min(1, main()))
