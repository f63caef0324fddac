"""How long lists, searches and figures take on a journal of a million events.

    python benchmarks/observe.py [--events 1000000] [--journal big.db | --url postgresql://...] [--json]

The journal is made here: simulated runs of two workers with ten events each, from two tenants, four keys and three
models, over thirty days, as a server writes them. With --journal the file is made once and used again. Each figure is
the median CPU time of five, in a process that has read the journal before, as a server has; the command line's figures
are processes of their own, from start to end. The index is made from the events first, as it is for a journal of an
older version; that is a figure too.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import process_time, time

from common import Figure, report
from shikisha.core.budget import Amount, Caps, Usage
from shikisha.core.errors import FaultKind
from shikisha.core.events import (
    AnswerGraded,
    AttemptFinished,
    AttemptStarted,
    Event,
    GradeMark,
    PlanProposed,
    RunFinished,
    RunStarted,
    RunStatus,
    StepFinished,
)
from shikisha.core.plan import Plan, Step
from shikisha.journal import Journal, open_journal
from shikisha.journal.run_index import TextQuery
from shikisha.journal.schema import SERVED
from shikisha.server.pages.overview_page import read_period
from shikisha.server.store import RunFilter, RunOrder, RunStore, ServedRun, ServedState, open_store
from shikisha.server.store.run_figures import list_sessions

EVENTS_PER_RUN = 10
DAYS = 30
WORDS = (
    "harbour",
    "invoice",
    "refund",
    "tide",
    "keeper",
    "letter",
    "signal",
    "market",
    "river",
    "anchor",
    "quiet",
    "bridge",
    "copper",
)


def some_words(chance: random.Random, count: int) -> str:
    """Return some words, one of them rare."""
    return " ".join([*chance.choices(WORDS, k=count), f"n{chance.randrange(100_000)}"])


def run_events(number: int, chance: random.Random, began: float) -> list[Event]:
    """Return a run of two steps; one in fifty fails."""
    run, at = run_id(number), began
    prompt = some_words(chance, 12)
    plan = Plan((Step(some_words(chance, 8), 0), Step(some_words(chance, 8), 1, (0,))))
    pool = ("novice", "expert")
    events: list[Event] = [
        RunStarted(run=run, at=at, conductor="fixed:chain", pool=pool, caps=Caps(), prompt=prompt),
        PlanProposed(run=run, at=at, round=0, conductor="fixed:chain", plan=plan.dumps()),
    ]
    said = ""
    for step, worker in enumerate(pool):
        seconds = chance.lognormvariate(0, 0.7)
        said, used = some_words(chance, 40), Usage(chance.randrange(90, 400), chance.randrange(20, 200))
        begun = AttemptStarted(
            run=run,
            at=at,
            round=0,
            step=step,
            attempt=0,
            worker=worker,
            key=f"{run}-{step}",
            reserved=Amount(1000, 0.01),
        )
        finished = AttemptFinished(
            run=run,
            at=at + seconds,
            round=0,
            step=step,
            attempt=0,
            worker=worker,
            text=said,
            usage=used,
            dollars=1e-6 * used.total,
            seconds=seconds,
        )
        events += [
            begun,
            finished,
            StepFinished(run=run, at=at + seconds, round=0, step=step, worker=worker, attempt=0),
        ]
        at += seconds
    if number % 50 == 7:
        events.append(RunFinished(run=run, at=at, status=RunStatus.FAILED, why="timeout", fault=FaultKind.TIMEOUT))
    else:
        events.append(RunFinished(run=run, at=at, status=RunStatus.DONE, round=0, step=1, answer=said))
    right = chance.random() < 0.8
    mark = GradeMark.RIGHT if right else GradeMark.WRONG
    events.append(AnswerGraded(run=run, at=at, checker="text", mark=mark, score=float(right)))
    return events


def run_id(number: int) -> str:
    """Return a run's id, which sorts as runs began."""
    return f"20261101-{number:08d}-bench"


async def fill(journal: Journal, store: RunStore, events: int) -> None:
    """Write as many events, a few hundred in one commit."""
    chance, runs, now = random.Random(1), events // EVENTS_PER_RUN, time()
    for number in range(runs):
        began = now - DAYS * 86_400 * (1 - number / runs)
        made = run_events(number, chance, began)
        prompt = made[0].prompt if isinstance(made[0], RunStarted) else ""
        metadata = {"session_id": f"s{number // 5}"} if number % 10 < 5 else {}
        served = ServedRun(
            run=run_id(number), api="chat", conductor="fixed:chain", created=began, updated=made[-1].at,
            state=ServedState.ENDED, excerpt=prompt[:80], metadata=metadata,
            tenant=f"tenant-{number % 2}", key=f"key-{number % 4}", model=f"model-{number % 3}",
        )  # fmt: skip
        await store.add_run(served)
        failed = number % 50 == 7
        status = RunStatus.FAILED if failed else RunStatus.DONE
        dollars = 1e-6 * sum(each.usage.total for each in made if isinstance(each, AttemptFinished))
        store.mark(run_id(number), ServedState.ENDED, status=status, used=Amount(500, dollars))
        for event in made:
            journal.add(event)
        if number % 200 == 199:
            await journal.flush()
    await journal.flush()


async def cpu_seconds(work: Callable[[], Awaitable[object]], times: int = 5) -> float:
    """Return the median CPU seconds of this process, all threads: SQLite works in them."""
    took = []
    for _ in range(times):
        begin = process_time()
        await work()
        took.append(process_time() - begin)
    return median(took)


def command_seconds(journal: str, *arguments: str) -> float:
    """Return the median CPU seconds of a command in a process of its own."""
    took = []
    for _ in range(5):
        begin = getrusage(RUSAGE_CHILDREN)
        subprocess.run(  # noqa: S603 - our own command line
            [sys.executable, "-m", "shikisha", *arguments, "--journal", journal], check=True, capture_output=True
        )
        end = getrusage(RUSAGE_CHILDREN)
        took.append(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
    return median(took)


async def measure(journal: str, events: int) -> list[Figure]:
    """Return the figures."""
    figures = []
    async with open_journal(journal) as opened, open_store(opened) as store:
        if not (await opened.query(lambda connection: connection.execute(SERVED.select().limit(1)).first())):
            begin = process_time()
            await fill(opened, store, events)
            figures.append(Figure("writing the journal", process_time() - begin, "s"))
        begin = process_time()
        progress = await opened.index()
        figures.append(Figure(f"first index of {progress.events:,} events", process_time() - begin, "s"))
        figures += await page_figures(opened, store)
    start = command_seconds(journal, "runs", "--help")
    failed = command_seconds(journal, "runs", "--status", "failed")
    figures += [
        Figure("shikisha runs --status failed", failed, "s"),
        Figure("of that, besides `shikisha runs --help`", failed - start, "s"),
    ]
    return figures


async def page_figures(journal: Journal, store: RunStore) -> list[Figure]:
    """Return what the pages ask of the store, in seconds."""
    today = int(time() // 86_400)
    words = partial(TextQuery, tenant="tenant-1")
    filters = {
        "runs: the newest 50": RunFilter(limit=50),
        "runs: of a tenant, failed": RunFilter(tenant="tenant-1", statuses=(RunStatus.FAILED,), limit=50),
        "runs: of a worker, by cost": RunFilter(worker="expert", order=RunOrder.COST, limit=50),
        "runs: answers graded as wrong": RunFilter(right=False, limit=50),
        "runs: of a session": RunFilter(session="s4000", limit=50),
        "search: a rare word, of a tenant": RunFilter(words=words("n4711"), limit=50),
        "search: a word of nearly every text": RunFilter(words=words("harbour"), limit=50),
        "search: three words": RunFilter(words=words("harbour invoice tide"), limit=50),
        "search: no such word": RunFilter(words=words("nothingofthekind"), limit=50),
    }
    found: dict[str, Callable[[], Awaitable[object]]]
    found = {name: partial(store.search, wanted) for name, wanted in filters.items()}
    period = partial(read_period, tenant=None, since=today - 29)
    sessions = partial(list_sessions, tenant="tenant-1")
    found |= {
        "overview: 30 days, all tenants": partial(journal.query, period),
        "sessions: the newest 50": partial(journal.query, sessions),
        "journal.runs(status=failed), 100 runs": partial(journal.runs, limit=100, status=RunStatus.FAILED),
        "the index, with nothing new": journal.index,
    }
    return [Figure(name, await cpu_seconds(work), "s", 0.4) for name, work in found.items()]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--url")
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        journal = arguments.url or str(arguments.journal or Path(folder) / "journal.db")
        figures = asyncio.run(measure(journal, arguments.events))
    report("lists, searches and figures of a large journal", figures)


if __name__ == "__main__":
    main()
