"""Kill -9 at random moments, again and again, and compare the journal with the books of the worker that was called.

    python tests/night/kill.py [--kills 100] [--json]

A victim process keeps 20 runs in flight, of three steps and of one (the narrow path) in turns, against a chat endpoint
in a process of its own, which charges a key once and writes its books with fsync. The victim is killed at a random
moment; the next one resumes every run that has not ended and starts new ones. At the end a last victim resumes the rest
and stops by itself. Counted are: acknowledged runs that are missing or have not ended, answers that changed, attempts
of a step whose end was journaled, and steps charged more than once.
"""

import argparse
import asyncio
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from time import perf_counter, sleep
from typing import TextIO

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from common import Always, Figure, report
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.call import Card
from shikisha.core.events import AttemptStarted, Event, RunStarted, RunStatus, StepFinished
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import Recorder
from shikisha.journal import open_journal
from shikisha.workers.chat import ChatSettings, build

CHAIN = Plan((Step("first", 0), Step("second", 0, (0,)), Step("third", 0, (0, 1))))
IN_FLIGHT = 20


@dataclass
class Acknowledging:
    """A recorder that tells the outside which runs it has made durable."""

    inner: Recorder
    fresh: list[str] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Pass the event on."""
        self.inner.add(event)
        if isinstance(event, RunStarted):
            self.fresh.append(event.run)

    def add_bundle(self, events: Sequence[Event]) -> int:
        """Pass the events on."""
        rows = self.inner.add_bundle(events)
        self.fresh += [event.run for event in events if isinstance(event, RunStarted)]
        return rows

    async def flush(self) -> None:
        """Wait until all is durable, then say so."""
        fresh, self.fresh = self.fresh, []
        await self.inner.flush()
        for run in fresh:
            say("ack", run)

    async def read(self, run: str) -> tuple[Event, ...]:
        """Pass on."""
        return await self.inner.read(run)


def say(*words: str) -> None:
    """Write a line that is out even if the next instruction never comes."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def pool(url: str) -> Pool:
    """Return the pool of one chat endpoint."""
    card = Card("ledger", kind="chat", max_output_tokens=100, timeout=30)
    return Pool([Member(card, build(ChatSettings(model="scripted", base_url=url), card, SecretStore({})))])


async def victim(database: str, url: str, *, last: bool) -> None:
    """Resume what has not ended; unless this is the last process, keep starting runs until killed."""
    async with open_journal(database) as journal:
        engine = Engine(Acknowledging(journal))
        workers = pool(url)
        conductors: list[Conductor] = [Always(CHAIN), fixed_conductor("single")]
        turns, named = cycle(conductors), {each.name: each for each in conductors}
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(run_id: str | None, conductor: Conductor) -> None:
            async with gate:
                if run_id is None:
                    run = await engine.run(Task("What comes first?"), workers, conductor)
                else:
                    run = await engine.resume(run_id, workers, conductor)
                say("done", run.id, digest(run))

        unfinished = [row for row in await journal.runs(limit=1_000_000) if row.status is RunStatus.RUNNING]
        say("ready")
        async with asyncio.TaskGroup() as group:
            for row in unfinished:
                group.create_task(one(row.id, named[row.conductor]))
            while not last:
                async with gate:
                    group.create_task(one(None, next(turns)))
                await asyncio.sleep(0)


def digest(run: Run) -> str:
    """Return a short hash of how the run ended."""
    return sha256(f"{run.status}{run.answer}".encode()).hexdigest()[:16]


def forked(database: str, url: str, *, last: bool) -> tuple[int, TextIO]:
    """Start a victim, which has all modules that this process has; return its id, and what it says."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(write, 1)
        code = 1
        try:
            asyncio.run(victim(database, url, last=last))
            code = 0
        except BaseException:  # noqa: BLE001 - what ends a forked process is shown, and goes no further up
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    return process, os.fdopen(read)


def kill_one(database: str, url: str, rng: random.Random, said: list[str]) -> None:
    """Start a victim, let it begin and end some runs, kill it, keep what it said."""
    process, lines = forked(database, url, last=False)
    with lines:
        assert lines.readline() == "ready\n"
        # By what it did, since a busy machine may give it no time at all.
        said += [lines.readline() for _ in range(rng.randrange(1, 25))]
        sleep(rng.uniform(0, 0.02))
        os.kill(process, signal.SIGKILL)
        said += [line for line in lines.read().splitlines(keepends=True) if line.endswith("\n")]
    os.waitpid(process, 0)


@dataclass(frozen=True)
class Findings:
    """What journal and books say after all kills."""

    acknowledged: int
    lost: int
    changed: int
    again: int
    charged_twice: int
    repeated: int


async def audit(database: str, books: str, said: list[str]) -> Findings:
    """Compare what was said, what was journaled, and what was charged."""
    lines = [line.split() for line in said]
    acknowledged = {words[1] for words in lines if words[0] == "ack"}
    done = {words[1]: words[2] for words in lines if words[0] == "done"}
    lost = changed = again = 0
    keys: dict[str, tuple[str, int | None]] = {}
    async with open_journal(database) as journal:
        await journal.verify()
        for run_id in [row.id for row in await journal.runs(limit=1_000_000)]:
            events = await journal.read(run_id)
            run = Run.fold(events)
            lost += run.status is not RunStatus.DONE
            changed += run_id in done and done[run_id] != digest(run)
            again += attempts_after_end(events)
            keys |= {a.started.key: (run_id, a.started.step) for a in run.attempts}
            acknowledged.discard(run_id)
    entries = [json.loads(line) for line in books.splitlines()]
    charged = Counter(keys.get(entry["key"], (entry["key"], None)) for entry in entries if entry["charged"])
    twice = sum(count > 1 for count in charged.values())
    total = len({words[1] for words in lines if words[0] == "ack"})
    return Findings(total, lost + len(acknowledged), changed, again, twice, len(entries) - charged.total())


def attempts_after_end(events: tuple[Event, ...]) -> int:
    """Count attempts started for a step whose end is journaled before them."""
    ended: set[int | None] = set()
    count = 0
    for event in events:
        if isinstance(event, StepFinished):
            ended.add(event.step)
        count += isinstance(event, AttemptStarted) and event.step in ended
    return count


def main() -> None:
    """Kill, resume, audit, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args()
    findings, seconds = harness(options.kills, options.seed)
    figures = [
        Figure(f"{options.kills} kills, {IN_FLIGHT} runs in flight: acknowledged runs", findings.acknowledged, "runs"),
        Figure("acknowledged runs lost or not ended", findings.lost, "", 0),
        Figure("answers that changed after they were given", findings.changed, "", 0),
        Figure("journaled steps performed again", findings.again, "", 0),
        Figure("steps charged twice by a worker that honours the key", findings.charged_twice, "", 0),
        Figure("calls repeated under their key (answered from the books)", findings.repeated, "calls"),
        Figure("seconds in all", seconds, "s"),
    ]
    report("kill -9", figures)


def harness(kills: int, seed: int) -> tuple[Findings, float]:
    """Kill this many victims and audit what is left."""
    rng, said, begun = random.Random(seed), list[str](), perf_counter()
    for name in ("journal.store", "journal.sqlite", "workers.http_client"):  # once, and not in each victim
        importlib.import_module(f"shikisha.{name}")
    with tempfile.TemporaryDirectory() as folder:
        database, books, script = (Path(folder) / name for name in ("kill.db", "books.jsonl", "script.json"))
        script.write_text('[{"text": "an answer", "latency": 0.02}]')
        server = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "shikisha.testing", "--script", str(script), "--ledger", str(books)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            for _ in range(kills):
                kill_one(str(database), url, rng, said)
            process, lines = forked(str(database), url, last=True)
            with lines:
                said += lines.read().splitlines()
            assert os.waitpid(process, 0)[1] == 0
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()
        findings = asyncio.run(
            audit(str(database), books.read_text(), [line for line in said if line.strip() != "ready"])
        )
    return findings, perf_counter() - begun


if __name__ == "__main__":
    main()
