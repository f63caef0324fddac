"""What journaling costs: an event alone, group commit under 1, 100 and 1,000 runs at once, and verifying it all again.

    python benchmarks/journal.py [--url postgresql://...] [--json]

A writer does what a run does: it journals a step's end and the next step's start, waits until that is stored, waits as
long as a worker might (not at all when it is alone, else a random time around 0.15 s), and journals the answer. CPU
time is the whole process's, threads and encoding included; the disk is synced at every commit, as always. The journal
is a fresh SQLite file in the temporary folder unless --url names another store.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time, time

from common import Figure, report
from shikisha.core.budget import Amount, Usage
from shikisha.core.events import AttemptFinished, AttemptStarted, StepFinished
from shikisha.journal import Journal, open_journal
from shikisha.journal.codec import body_text, decode_event, encode_event

SECONDS = 4.0
ANSWER = "The result of this part is that the sum comes to forty-two, which is what was asked for. " * 3


def begun(run: str, step: int) -> AttemptStarted:
    """A call is about to be made."""
    reserved = Amount(1000, 0.01)
    return AttemptStarted(
        run=run,
        at=time(),
        round=0,
        step=step,
        attempt=0,
        worker="novice",
        key="k" * 32,
        view="f" * 64,
        reserved=reserved,
    )


def answered(run: str, step: int) -> AttemptFinished:
    """It gave an answer of 270 characters, which nobody else gave."""
    text, used = f"{run}, {step}: {ANSWER}", Usage(90, 60)
    return AttemptFinished(run=run, at=time(), round=0, step=step, attempt=0, worker="novice", text=text, usage=used)


def ended(run: str, step: int) -> StepFinished:
    """The step has its result."""
    return StepFinished(run=run, at=time(), round=0, step=step, worker="novice", attempt=0)


async def live(journal: Journal, run: str, until: float, pause: Callable[[], float]) -> list[float]:
    """Journal steps until then; return the seconds that each flush took."""
    waits, step = [], 0
    while perf_counter() < until:
        journal.add(begun(run, step))
        asked = perf_counter()
        await journal.flush()
        waits.append(perf_counter() - asked)
        if length := pause():
            await asyncio.sleep(length)
        journal.add(answered(run, step))
        journal.add(ended(run, step))
        step += 1
    return waits


async def crowd(journal: Journal, writers: int, longest: float) -> list[Figure]:
    """Return the figures of so many writers at once, who pause up to `longest` seconds."""
    chance = random.Random(1)
    wall, cpu = perf_counter(), process_time()
    until = wall + SECONDS
    names = [f"{writers}-{number}" for number in range(writers)]
    lives = [live(journal, name, until, lambda: chance.random() * longest) for name in names]
    waits = sorted(1000 * wait for waits in await asyncio.gather(*lives) for wait in waits)
    await journal.flush()
    wall, cpu, events = perf_counter() - wall, process_time() - cpu, 3 * len(waits)
    who = f"{writers:,} writers" if writers > 1 else "1 writer"
    return [
        Figure(f"{who}: events a second", events / wall, "1/s"),
        Figure(f"{who}: CPU an event, all in", 1e6 * cpu / events, "us", 60 if writers > 1 else None),
        Figure(f"{who}: a flush, median", median(waits), "ms"),
        Figure(f"{who}: a flush, 99 %", quantiles(waits, n=100)[98], "ms"),
    ]


def coding() -> list[Figure]:
    """Return what making JSON of a step's events and back costs."""
    events = [begun("r", 0), answered("r", 0), ended("r", 0)]
    count = 3000
    start = perf_counter()
    for _ in range(count):
        entries = [encode_event(event) for event in events]
    middle = perf_counter()
    for _ in range(count):
        for entry in entries:
            decode_event(
                entry.kind, entry.run, entry.at, entry.data, {key: body_text(body) for key, body in entry.bodies}
            )
    end = perf_counter()
    return [
        Figure("encode an event", 1e6 * (middle - start) / count / len(events), "us", 15),
        Figure("decode an event", 1e6 * (end - middle) / count / len(events), "us"),
    ]


async def measure(url: str) -> tuple[list[Figure], int]:
    """Return the figures of a fresh journal, and how many events it then has."""
    figures = coding()
    async with open_journal(url) as journal:
        for writers, longest in ((1, 0.0), (100, 0.03), (1000, 0.3)):
            figures += await crowd(journal, writers, longest)
        start = perf_counter()
        found = await journal.verify()
        assert found.ok
        figures.append(Figure("verify: events a second", found.count / (perf_counter() - start), "1/s"))
    return figures, found.count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--url")
    url = parser.parse_known_args()[0].url
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "journal.db"
        figures, count = asyncio.run(measure(url or str(file)))
        if not url:
            figures.append(Figure("bytes an event on disk, answers included", file.stat().st_size / count, "bytes"))
    report("journal", figures)


if __name__ == "__main__":
    main()
