"""Every write, sync, cut and unlink of a served journal made to fail, or to be the last thing that the server does.

    python tests/night/night_failpoints.py [--minutes 20] [--json]

A library between SQLite and the C library (`night_disk.c`) lets operations of the server's journal fail (input/output
error, full disk, half a write and then a full disk, a disk that is full for a while) or kills the process right before
or in the middle of them, one in so many, from another one on in each telling of the story (`night_story`), until every
operation had its turn or the time is over; the same for the operations of a server's first start and of its stopping.
A request that needs more operations than that (an erasure, with its checkpoint) finds the disk well after a while. In
other tellings another process locks the database for as long as the server waits, and on PostgreSQL a proxy drops the
connection before or after each of the messages. After each telling the journal is audited. Left out where there is no C
compiler, or no PostgreSQL.
"""

import argparse
import asyncio
import errno
import random
import re
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

sys.path += [str(Path(__file__).parents[2] / folder) for folder in ("benchmarks", "tests/support")]

from common import Figure, report
from night_story import Acknowledged, Endpoint, House, Mode, Shim, Story, audit, build_shim, end_when_told
from shikisha.testing import ChargeLedger, chat_server

EVERY = 61  # operations from one that is acted on to the next; a prime
_SELDOM = 307  # the same, where much is lost each time: a process, or a disk for a while
_HELD = 3.0  # seconds; a server waits for 5
_LOCKED = "database is locked"
_TELLINGS = 6  # of one journal, before a fresh one


@dataclass(frozen=True)
class Way:
    """A way in which operations go wrong."""

    name: str
    mode: Mode
    error: int = 0
    span: int = 1

    @property
    def every(self) -> int:
        """How many operations later the next one goes wrong."""
        return _SELDOM if self.kills or self.span > 1 else EVERY

    @property
    def kills(self) -> bool:
        """Whether the process ends."""
        return self.mode in (Mode.KILL_BEFORE, Mode.KILL_AFTER, Mode.TEAR_AND_KILL)


WAYS = (
    Way("input/output error", Mode.FAIL, errno.EIO),
    Way("disk full", Mode.FAIL, errno.ENOSPC),
    Way("half a write, then disk full", Mode.TEAR_AND_FAIL, errno.ENOSPC),
    Way("disk full for 40 operations", Mode.FAIL, errno.ENOSPC, span=40),
    Way("killed before the operation", Mode.KILL_BEFORE),
    Way("killed in the middle of a write", Mode.TEAR_AND_KILL),
)


@dataclass
class Tally:
    """What the trials came to."""

    acted: int = 0
    tellings: int = 0
    acknowledged: int = 0
    refused: int = 0
    starts: int = 0
    wrong: dict[str, str] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)  # way, and how many offsets of EVERY had their turn

    def take(self, where: str, told: Acknowledged, wrong: list[str]) -> None:
        """Add a trial."""
        self.acknowledged += len(told.runs)
        self.refused += told.refused
        for each in [*told.odd, *wrong]:
            key = re.sub(r"\d+", "#", each)[:120]
            if key not in self.wrong:
                print(f"FOUND {where}: {each}", flush=True)
            self.wrong.setdefault(key, f"{where}: {each}")


@asynccontextmanager
async def endpoint() -> AsyncIterator[tuple[str, ChargeLedger]]:
    """Serve the endpoint; its books are in memory, since it is never killed."""
    ledger = ChargeLedger()
    async with chat_server(Endpoint(), ledger=ledger) as url:
        yield url, ledger


async def failing_disk(way: Way, offsets: list[int], until: float, library: Path, tally: Tally) -> None:
    """Tell the story on fresh journals, operations going wrong in this way, from these offsets on."""
    while offsets and monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="night-", dir=scratch()) as place:
            folder = Path(place)
            shim, told = Shim(folder, library), Acknowledged()
            async with endpoint() as (url, ledger), House(folder, url, str(shim.database), shim.environment) as service:
                where = way.name
                try:
                    await service.up()
                    for _ in range(_TELLINGS):
                        if not offsets or monotonic() > until:
                            break
                        offset = offsets.pop()
                        where = f"{way.name}, every {way.every}th operation from the {offset}th on"
                        shim.arm(shim.done + offset, way.mode, way.error, span=way.span, every=way.every)
                        async with asyncio.timeout(150):
                            await Story(service, f"s{offset}", told, relent=shim.disarm).play()
                        shim.disarm()
                        tally.acted += shim.acted
                        tally.tellings += 1
                        tally.covered[way.name] = tally.covered.get(way.name, 0) + 1
                    shim.arm(shim.done + 1 + len(offsets) % 20, way.mode, way.error)  # while it stops
                    wrong = []
                except (AssertionError, TimeoutError) as error:
                    wrong = [str(error) or "the story was not told within 150 s"]
                await _stopped(service)
                shim.disarm()
                tally.starts += service.starts
                found = await audit(str(shim.database), told, ledger)
                tally.take(where, told, [*wrong, *found.wrong])


async def failing_start(way: Way, until: float, library: Path, tally: Tally) -> None:
    """Let each operation of a first start go wrong; the server that starts after it tells the story."""
    rng = random.Random(1)
    numbers = list(range(1, 90))
    rng.shuffle(numbers)
    for number in numbers:
        if monotonic() > until:
            return
        with tempfile.TemporaryDirectory(prefix="night-", dir=scratch()) as place:
            folder = Path(place)
            shim, told = Shim(folder, library), Acknowledged()
            async with endpoint() as (url, ledger), House(folder, url, str(shim.database), shim.environment) as service:
                shim.arm(number, way.mode, way.error, span=way.span)
                wrong = []
                try:
                    async with asyncio.timeout(150):
                        await service.up()
                        await Story(service, "first", told).play()
                except (AssertionError, TimeoutError) as error:
                    wrong = [str(error) or "the story was not told within 150 s"]
                shim.disarm()
                tally.acted += shim.acted
                await _stopped(service)
                tally.starts += service.starts + service.failed_starts
                found = await audit(str(shim.database), told, ledger)
                tally.take(f"{way.name}, operation {number} of a first start", told, [*wrong, *found.wrong])


async def locked_database(tellings: int, until: float, tally: Tally) -> None:
    """Tell the story while another process holds the database's lock for some seconds, again and again."""
    for number in range(tellings):
        if monotonic() > until:
            return
        with tempfile.TemporaryDirectory(prefix="night-", dir=scratch()) as place:
            folder, told, wrong = Path(place), Acknowledged(), list[str]()
            database = folder / "story.db"
            async with endpoint() as (url, ledger), House(folder, url, str(database), {}) as service:
                await service.up()
                holding = asyncio.create_task(_hold(database, _HELD * (1 + number % 2)))
                try:
                    async with asyncio.timeout(150):
                        await Story(service, f"l{number}", told).play()
                except (AssertionError, TimeoutError) as error:
                    wrong = [str(error) or "the story was not told within 150 s"]
                holding.cancel()
                with suppress(asyncio.CancelledError):
                    await holding
                await _stopped(service)
                tally.starts += service.starts
                tally.tellings += 1
            found = await audit(str(database), told, ledger)
            tally.take(_LOCKED, told, [*wrong, *found.wrong])


async def _hold(database: Path, seconds: float) -> None:
    """Hold the lock for so long, let go of it for a moment, and again."""
    with closing(sqlite3.connect(database, timeout=0.0, isolation_level=None)) as connection:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                await asyncio.sleep(0.01)
                continue
            try:
                await asyncio.sleep(seconds)
            finally:
                connection.execute("ROLLBACK")
            await asyncio.sleep(1.0)


async def _stopped(service: House) -> None:
    with suppress(AssertionError):
        await service.down()


def scratch() -> str | None:
    """Where journals of trials lie: in memory, where there is room; whatever is synced, nothing here loses power."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - TemporaryDirectory makes it ours


# PostgreSQL


class Proxy:
    """Passes connections on, counts the client's messages, and drops the connection at one of them."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.seen = 0
        self.at = 0
        self.after = False  # whether the message is passed on before the connection is dropped
        self.every = 0
        self.acted = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self.target)
        except OSError:
            writer.close()
            return
        async with asyncio.TaskGroup() as group:
            back = group.create_task(self._back(inner_reader, writer))
            group.create_task(self._forth(reader, inner_writer, writer, back))

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await reader.read(65_536):
                writer.write(part)
                await writer.drain()
        writer.close()

    async def _forth(
        self,
        reader: asyncio.StreamReader,
        inner: asyncio.StreamWriter,
        outer: asyncio.StreamWriter,
        back: "asyncio.Task[None]",
    ) -> None:
        with suppress(OSError):
            while part := await reader.read(65_536):
                self.seen += 1
                if self.at and self.seen >= self.at:
                    self.acted += 1
                    self.at = self.seen + self.every if self.every else 0
                    if self.after:
                        inner.write(part)
                        await inner.drain()
                        await asyncio.sleep(0.02)  # it is done, and nobody hears of it
                    back.cancel()
                    break
                inner.write(part)
                await inner.drain()
        outer.transport.abort()
        inner.close()


async def failing_network(offsets: list[int], until: float, tally: Tally) -> None:
    """Tell the story on PostgreSQL, whose connection is dropped at every so many messages."""
    from postgres import cluster

    with cluster() as database:
        socket = Path(next(each for each in database.folder.glob(".s.PGSQL.*") if not each.name.endswith(".lock")))
        for after in (False, True):
            left = list(offsets)
            stop = monotonic() + (until - monotonic()) / (1 if after else 2)
            while left and monotonic() < stop:
                await _dropped(database.fresh(), socket, left, after=after, until=stop, tally=tally)


async def _dropped(journal: str, socket: Path, offsets: list[int], *, after: bool, until: float, tally: Tally) -> None:
    proxy, told = Proxy(str(socket)), Acknowledged()
    proxy.after = after
    way = f"connection dropped {'after' if after else 'before'} the message"
    where = way
    with tempfile.TemporaryDirectory(prefix="n-", dir=scratch()) as place:
        folder = Path(place)
        listening = await asyncio.start_unix_server(proxy.serve, folder / socket.name)
        through = journal.partition("?host=")[0] + f"?host={folder}"
        async with listening, endpoint() as (url, ledger), House(folder, url, through, {}) as service:
            try:
                await service.up()
                for _ in range(_TELLINGS):
                    if not offsets or monotonic() > until:
                        break
                    offset = offsets.pop()
                    where = f"{way}, every {EVERY}th from the {offset}th on"
                    proxy.at, proxy.every, proxy.acted = proxy.seen + offset, EVERY, 0
                    async with asyncio.timeout(150):
                        await Story(service, f"p{after:d}{offset}", told).play()
                    proxy.at = 0
                    tally.acted += proxy.acted
                    tally.tellings += 1
                    tally.covered[way] = tally.covered.get(way, 0) + 1
                wrong = []
            except (AssertionError, TimeoutError) as error:
                wrong = [str(error) or "the story was not told within 150 s"]
            proxy.at = 0
            await _stopped(service)
            tally.starts += service.starts
        found = await audit(journal, told, ledger)
        tally.take(where, told, [*wrong, *found.wrong])


# All of it


async def failpoints(seconds: float, say: Callable[[str], None]) -> Tally:
    """Try every way for its share of the time."""
    tally, begun = Tally(), monotonic()
    rng = random.Random(3)

    def offsets(every: int) -> list[int]:
        found = list(range(1, every + 1))
        rng.shuffle(found)
        return found

    with tempfile.TemporaryDirectory() as place:
        library = build_shim(Path(place))
        if library is None:
            say("no C compiler here: no failing disks")
        trials = [(way, failing_start) for way in WAYS if way.span == 1] if library else []
        parts = 3 * (len(WAYS) if library else 0) + len(trials) + 3 * _has_postgres()
        for way in WAYS if library else ():
            stop = _share(begun, seconds, 3, parts)
            parts -= 3
            assert library is not None
            await failing_disk(way, offsets(way.every), stop, library, tally)
            say(f"{way.name}: {tally.covered.get(way.name, 0)} of {way.every} offsets, {len(tally.wrong)} found so far")
        for way, attempt in trials:
            stop = _share(begun, seconds, 1, parts)
            parts -= 1
            assert library is not None
            await attempt(way, stop, library, tally)
        say(f"first starts: {len(tally.wrong)} found so far")
        await locked_database(4, _share(begun, seconds, 1, 4), tally)
        say(f"{_LOCKED}: {len(tally.wrong)} found so far")
        if _has_postgres():
            await failing_network(offsets(EVERY), begun + seconds, tally)
            say(f"PostgreSQL: {len(tally.wrong)} found so far")
    return tally


def _share(begun: float, seconds: float, part: int, parts: int) -> float:
    """Return until when a trial may take, of so many parts that are left."""
    now = monotonic()
    return now + max(0.0, begun + seconds - now) * part / parts


def _has_postgres() -> bool:
    from postgres import programs

    return programs() is not None


def figures(tally: Tally, seconds: float) -> list[Figure]:
    """Return what came of it."""
    every = {way.name: way.every for way in WAYS}
    shares = [count / every.get(name, EVERY) for name, count in tally.covered.items()]
    return [
        Figure("operations that failed, or were the last", tally.acted, ""),
        Figure("tellings of the story", tally.tellings, ""),
        Figure("offsets that had their turn, least of all ways", min(shares, default=0.0), "share"),
        Figure("acknowledged runs", tally.acknowledged, "runs"),
        Figure("requests that were refused with a 503 and repeated", tally.refused, ""),
        Figure("starts of a server", tally.starts, ""),
        Figure("minutes", seconds / 60, "min"),
        Figure("findings", len(tally.wrong), "", 0),
    ]


def main() -> int:
    """Fail, audit, report; how many findings there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    options, _ = parser.parse_known_args()
    end_when_told()
    begun = monotonic()
    tally = asyncio.run(failpoints(60 * options.minutes, lambda said: print(said, flush=True)))
    report("failpoints", figures(tally, monotonic() - begun))
    return len(tally.wrong)


if __name__ == "__main__":
    sys.exit(min(1, main()))
