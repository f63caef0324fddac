"""Power loss: what a served journal's disk may hold at any moment, opened again.

    python tests/night/night_power.py [--minutes 20] [--seed 1] [--json]

A library between SQLite and the C library (`night_disk.c`) records every write, sync, cut, creation and unlink of a
served story (`night_story`). The log is then replayed up to a point anywhere in it: what was synced is there; of what
was written since, nothing, all, a prefix, or any subset of sectors of 512 bytes, the last one torn; a file whose
creation or unlink no sync of its folder followed is there or not. Each such disk is opened by a fresh process's
journal: SQLite must recover it, its integrity check and the hash chain must hold, and every run, key, grade and erasure
that was acknowledged by that point must be there, and be what it was said to be. Left out where there is no C compiler.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from sqlalchemy import Connection, select

from common import Figure, report
from night_failpoints import endpoint, scratch
from night_story import Acknowledged, House, Shim, Story, build_shim, end_when_told
from shikisha.core.errors import RunErased, ShikishaError
from shikisha.core.events import AnswerGraded, RunStatus
from shikisha.core.run import Run
from shikisha.journal import Journal, open_journal
from shikisha.server.keys.key_tables import KEYS

SECTOR = 512
_RECORD = struct.Struct("<IIQQ")
_WRITE, _SYNC, _CUT, _UNLINK, _CREATE = range(1, 6)
_DATABASE, _WAL, _JOURNAL, _FOLDER = range(1, 5)
_NAMES = {_DATABASE: "story.db", _WAL: "story.db-wal", _JOURNAL: "story.db-journal"}
STORIES = 3


@dataclass(frozen=True)
class Operation:
    """A line of the log: its kind, the file, where, what, and how long the log was after it."""

    kind: int
    file: int
    offset: int
    data: bytes
    end: int


def operations(log: bytes) -> list[Operation]:
    """Return the log's lines."""
    found, at = [], 0
    while at + _RECORD.size <= len(log):
        kind, file, offset, length = _RECORD.unpack_from(log, at)
        at += _RECORD.size
        data = log[at : at + length] if kind == _WRITE else b""
        at += len(data)
        found.append(Operation(kind, file, offset, data, at))
    return found


@dataclass
class File:
    """A file as it is surely on the disk, and what was done to it since it was last synced."""

    durable: bytearray = field(default_factory=bytearray)
    since: list[Operation] = field(default_factory=list)
    there: bool = False  # as programs see it
    surely: bool = False  # whether its being there, or not, is on the disk

    def sync(self) -> None:
        """Put everything on the disk."""
        for each in self.since:
            apply(self.durable, each)
        self.since = []


def apply(held: bytearray, done: Operation) -> None:
    """Do an operation to a file's content."""
    if done.kind == _CUT:
        del held[done.offset :]
        held.extend(bytes(done.offset - len(held)))
        return
    held.extend(bytes(max(0, done.offset - len(held))))
    held[done.offset : done.offset + len(done.data)] = done.data


@dataclass
class Disk:
    """The files as far as the log was replayed."""

    files: dict[int, File] = field(default_factory=lambda: {file: File() for file in _NAMES})

    def take(self, done: Operation) -> None:
        """Take the next operation in."""
        if done.kind == _SYNC and done.file == _FOLDER:
            for each in self.files.values():
                each.surely = True
            return
        file = self.files[done.file]
        match done.kind:
            case _ if done.kind == _SYNC:
                file.sync()
            case _ if done.kind == _CREATE:
                self.files[done.file] = File(there=True)
            case _ if done.kind == _UNLINK:
                file.there, file.surely = False, False
            case _:
                file.since.append(done)

    def states(self, rng: random.Random, count: int) -> Iterator[dict[int, bytes]]:
        """Yield what the disk may hold if the power goes now: nothing of what is not synced, all of it, mixtures."""
        yield self._state(lambda _: [], rng)
        yield self._state(list, rng)
        for number in range(count):
            yield self._state(partial(_some, rng, number % 3), rng)

    def _state(self, survive: Callable[[list[Operation]], list[Operation]], rng: random.Random) -> dict[int, bytes]:
        found = {}
        for kind, file in self.files.items():
            if not (file.there or (not file.surely and file.durable)):
                continue
            if not file.surely and rng.random() < 0.3:  # created, or unlinked, and the folder was not synced
                if kind == _DATABASE and file.durable:
                    pass  # its creation is known: something in it was synced after the folder was
                elif not file.there or not file.durable:
                    continue
            held = bytearray(file.durable)
            for done in survive(file.since):
                apply(held, done)
            if file.there or rng.random() < 0.5:
                found[kind] = bytes(held)
        return found


def _some(rng: random.Random, way: int, since: list[Operation]) -> list[Operation]:
    """Return which of these operations reached the disk, cut into sectors: a prefix, any subset, or all but a few."""
    pieces = [piece for each in since for piece in _sectors(each)]
    if way == 0:
        pieces = pieces[: rng.randint(0, len(pieces))]
        if pieces and pieces[-1].kind == _WRITE:
            last = pieces[-1]
            pieces[-1] = Operation(_WRITE, last.file, last.offset, last.data[: rng.randint(0, len(last.data))], 0)
        return pieces
    keep = 0.5 if way == 1 else 0.95
    return [piece for piece in pieces if rng.random() < keep]  # writes of one sector stay in their order


def _sectors(done: Operation) -> Iterator[Operation]:
    if done.kind != _WRITE:
        yield done
        return
    at = 0
    while at < len(done.data):
        size = SECTOR - (done.offset + at) % SECTOR
        yield Operation(_WRITE, done.file, done.offset + at, done.data[at : at + size], 0)
        at += size


# What must be there


@dataclass(frozen=True)
class Promise:
    """What was acknowledged when the log was so long."""

    written: int
    what: str
    which: str


async def broken(folder: Path, held: dict[int, bytes], promises: list[Promise], answers: dict[str, str]) -> list[str]:
    """Write a disk, open it as a server would, and return what is wrong with it."""
    for kind, name in _NAMES.items():
        (folder / name).unlink(missing_ok=True)
        if kind in held:
            (folder / name).write_bytes(held[kind])
    (folder / "story.db-shm").unlink(missing_ok=True)
    database = folder / _NAMES[_DATABASE]
    wrong = []
    try:
        if not promises and not held.get(_DATABASE):
            return []
        with sqlite3.connect(database) as opened:
            (said,) = opened.execute("PRAGMA integrity_check").fetchone()
        opened.close()
        if said != "ok":
            wrong.append(f"integrity: {said}")
        async with open_journal(str(database)) as journal:
            await journal.verify()
            there = {row.id for row in await journal.runs(limit=1_000_000)}
            keys = set(await journal.query(_keys)) if any(each.what == "key" for each in promises) else set()
            erased = {each.which for each in promises if each.what == "erased"}
            for each in promises:
                if each.which not in (keys if each.what == "key" else there):
                    wrong.append(f"{'key' if each.what == 'key' else 'run'} {each.which} is lost")
                elif each.what != "key":
                    wrong += await _unlike(journal, each, answers, erased)
    except (ShikishaError, sqlite3.Error) as error:
        wrong.append(f"{type(error).__name__}: {error}")
    return wrong


async def _unlike(journal: Journal, said: Promise, answers: dict[str, str], erased: set[str]) -> list[str]:
    """Return how a run is not what it was said to be."""
    try:
        events = await journal.read(said.which)
    except RunErased:
        return []  # or is about to be: its story ends with that
    run = Run.fold(events)
    gone = run.answer is None or run.answer.startswith("[erased")
    match said.what:
        case "ended" if said.which not in erased and not gone:
            if (run.status, run.answer) != (RunStatus.DONE, answers[said.which]):
                return [f"run {said.which} had ended, and is {run.status} {run.answer!r}"]
        case "ended" if run.status is not RunStatus.DONE:
            return [f"run {said.which} had ended, and is {run.status}"]
        case "judged" if not any(isinstance(event, AnswerGraded) for event in events):
            return [f"the grade of run {said.which} is lost"]
        case "erased" if not gone:
            return [f"run {said.which} was erased, and answers {run.answer!r}"]
    return []


def _keys(connection: Connection) -> list[str]:
    return list(connection.execute(select(KEYS.c.id)).scalars())


@dataclass
class Tally:
    """What the replays came to."""

    operations: int = 0
    syncs: int = 0
    points: int = 0
    disks: int = 0
    promises: int = 0
    wrong: dict[str, str] = field(default_factory=dict)


async def record(folder: Path, library: Path, stories: int) -> tuple[list[Operation], list[Promise], dict[str, str]]:
    """Serve so many stories; return what was written, what was acknowledged when, and what runs answered."""
    shim, told = Shim(folder, library, record=True), Acknowledged()
    async with endpoint() as (url, _), House(folder, url, str(shim.database), shim.environment) as service:
        await service.up()
        try:
            for number in range(stories):
                await Story(service, f"s{number}", told, lambda: shim.log.stat().st_size).play()
        finally:
            await service.down()
    if told.odd:
        raise AssertionError(f"the story went wrong by itself: {told.odd}")
    return operations(shim.log.read_bytes()), [Promise(*each) for each in told.notes], told.answers


async def lose_power(seconds: float, seed: int, stories: int, say: Callable[[str], None]) -> Tally | None:
    """Record a served story and open what may be left of it, for so long; None without a C compiler."""
    tally, begun, rng = Tally(), monotonic(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="night-", dir=scratch()) as place:
        folder = Path(place)
        library = build_shim(folder)
        if library is None:
            say("no C compiler here: no power loss")
            return None
        done, promises, answers = await record(folder, library, stories)
        tally.operations, tally.promises = len(done), len(promises)
        tally.syncs = sum(each.kind == _SYNC for each in done)
        points = list(range(len(done) + 1))
        left = max(10.0, begun + seconds - monotonic())
        pace, chosen = 0.05, points
        if len(points) * 4 * pace > left:  # not all: the moments around each sync, and others by lot
            wanted = max(20, int(left / (4 * pace)))
            chosen = sorted(rng.sample(points, min(wanted, len(points))))
        disk, at = Disk(), 0
        wide = folder / "wide"
        wide.mkdir()
        for point in chosen:
            while at < point:
                disk.take(done[at])
                at += 1
            if monotonic() > begun + seconds:
                break
            kept = [each for each in promises if at and each.written <= done[at - 1].end]
            tally.points += 1
            for held in disk.states(rng, 2):
                tally.disks += 1
                for each in await broken(wide, held, kept, answers):
                    sizes = {_NAMES[kind]: len(content) for kind, content in held.items()}
                    tally.wrong.setdefault(
                        each[:100], f"after operation {at} of {len(done)}, {json.dumps(sizes)}: {each}"
                    )
    say(f"power loss: {tally.disks:,} disks at {tally.points:,} of {len(done):,} moments, {len(tally.wrong)} found")
    return tally


def figures(tally: Tally, seconds: float) -> list[Figure]:
    """Return what came of it."""
    return [
        Figure("operations recorded", tally.operations, ""),
        Figure("syncs among them", tally.syncs, ""),
        Figure("moments at which the power went", tally.points, ""),
        Figure("disks opened again", tally.disks, ""),
        Figure("acknowledgements held against them", tally.promises, ""),
        Figure("minutes", seconds / 60, "min"),
        Figure("findings", len(tally.wrong), "", 0),
    ]


def main() -> int:
    """Record, lose power, audit, report; how many findings there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--stories", type=int, default=STORIES)
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args()
    end_when_told()
    begun = monotonic()
    say = lambda said: print(said, flush=True)  # noqa: E731 - one line, twice
    tally = asyncio.run(lose_power(60 * options.minutes, options.seed, options.stories, say))
    if tally is None:
        return 0
    for each in tally.wrong.values():
        print(f"FOUND {each}")
    report("power loss", figures(tally, monotonic() - begun))
    return len(tally.wrong)


if __name__ == "__main__":
    sys.exit(min(1, main()))
