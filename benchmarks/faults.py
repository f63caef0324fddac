"""Every kind of fault of a chat endpoint, 20 times each, acted out over real HTTP and met by the whole engine.

    python benchmarks/faults.py [--runs 20] [--json]

Each run is one step of one worker (1 s an attempt, 3 attempts, 4 s a run) against an endpoint that has the same mishap
every time; the 20 runs of a kind are in flight at once. Counted are: runs that last longer than their deadline and a
second, runs whose end is no typed fault, and runs with more attempts than the card allows, by the journal or by the
endpoint's own books. A key is planted and looked for in everything that was recorded.
"""

import argparse
import asyncio
import resource
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from common import Always, Figure, report
from shikisha.core.budget import Caps, Price
from shikisha.core.call import Card
from shikisha.core.errors import FaultKind
from shikisha.core.events import AttemptFailed
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.testing import ChargeLedger, InjectedFault, ScriptedAnswer, black_hole, chat_server, closed_port
from shikisha.workers.chat import ChatSettings, build

KEY = "sk-planted-0123456789"
PLAN = Plan((Step("the only part", 0),))
DEADLINE = 4.0
CARD = Card("faulty", max_output_tokens=100, timeout=1.0, attempts=3, price=Price(1.0, 2.0))
CLOSED, LOST = "closed port", "black hole"

KINDS: Mapping[str, tuple[InjectedFault | str, ...]] = {
    "connect": (LOST, CLOSED),
    "read timeout": (InjectedFault.SILENCE,),
    "429": (InjectedFault.RATE_SECONDS, InjectedFault.RATE_DATE, InjectedFault.RATE_NEGATIVE, InjectedFault.RATE_HUGE),
    "500, 503": (InjectedFault.ERROR_500, InjectedFault.ERROR_503),
    "truncated stream": (InjectedFault.TRUNCATED,),
    "missing end marker": (InjectedFault.NO_FINISH, InjectedFault.NO_DONE),
    "bad JSON": (InjectedFault.BAD_JSON,),
    "HTML with 200": (InjectedFault.HTML,),
    "wrong type": (InjectedFault.WRONG_TYPE,),
    "100 MB body": (InjectedFault.HUGE,),
    "one byte a second": (InjectedFault.DRIP,),
    "reset": (InjectedFault.RESET, InjectedFault.RESET_MIDWAY),
    "absent or absurd usage": (
        InjectedFault.NO_USAGE,
        InjectedFault.NEGATIVE_USAGE,
        InjectedFault.ABSURD_USAGE,
        InjectedFault.BOOLEAN_USAGE,
        InjectedFault.TEXT_USAGE,
    ),
    "empty answer": (InjectedFault.EMPTY,),
}


@dataclass
class Found:
    """What was counted."""

    hung: int = 0
    untyped: int = 0
    beyond: int = 0
    leaked: int = 0
    worst: float = 0.0
    ends: set[str] = field(default_factory=set)

    def count(self, run: Run, seconds: float, requests: int, recorded: str) -> None:
        """Count one run; `requests` are those that the endpoint has in its books for it."""
        end = run.finished
        assert end is not None
        self.ends.add(str(end.fault) if end.cap is None else f"{end.cap} cap")
        faults = [attempt.outcome for attempt in run.attempts]
        typed = all(isinstance(one, AttemptFailed) and one.fault is not FaultKind.INTERNAL for one in faults)
        self.worst = max(self.worst, seconds)
        self.hung += seconds > DEADLINE + 1.0
        self.untyped += not typed or not faults or (end.fault is None and end.cap is None)
        self.beyond += max(len(run.attempts), requests) > CARD.attempts
        self.leaked += KEY in recorded


@asynccontextmanager
async def endpoint(mishap: InjectedFault | str, ledger: ChargeLedger) -> AsyncIterator[str]:
    """Yield the base URL of an endpoint that has this mishap every time."""
    if isinstance(mishap, InjectedFault):
        async with chat_server([ScriptedAnswer(text="one two three four", mishap=mishap)], ledger=ledger) as url:
            yield url
    else:
        with nobody(mishap) as url:
            yield url


@contextmanager
def nobody(mishap: str) -> Iterator[str]:
    """Yield the base URL of a place where no connection comes about."""
    if mishap == CLOSED:
        yield closed_port()
    else:
        with black_hole() as url:
            yield url


async def meet(mishap: InjectedFault | str, runs: int, found: Found) -> None:
    """Let so many runs meet this mishap at once."""
    ledger, secret_store, recorder = ChargeLedger(), SecretStore({"KEY": KEY}), MemoryRecorder()
    async with endpoint(mishap, ledger) as url:
        worker = build(ChatSettings(model="m", base_url=url, api_key_env="KEY"), CARD, secret_store)
        engine, pool = Engine(recorder, secret_store=secret_store), Pool([Member(CARD, worker)])

        async def one() -> tuple[Run, float]:
            began = perf_counter()
            run = await engine.run(Task("What is it?"), pool, Always(PLAN), Caps(seconds=DEADLINE))
            return run, perf_counter() - began

        try:
            ends = await asyncio.gather(*(one() for _ in range(runs)))
        finally:
            await worker.aclose()
    for run, seconds in ends:
        requests = sum(1 for entry in ledger.entries if entry.key.startswith(run.id))
        found.count(run, seconds, requests, repr(await recorder.read(run.id)))


def main() -> None:
    """Meet every kind of fault and print what was counted."""
    options = argparse.ArgumentParser(description="faults of an endpoint")
    options.add_argument("--runs", type=int, default=20)
    runs: int = options.parse_known_args()[0].runs
    all_found: dict[str, Found] = {kind: Found() for kind in KINDS}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind, mishaps in KINDS.items():
        for mishap in mishaps:
            asyncio.run(meet(mishap, runs, all_found[kind]))
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    figures = [
        Figure(f"{kind}: {', '.join(sorted(found.ends))}; longest run", found.worst, "s", DEADLINE + 1.0)
        for kind, found in all_found.items()
    ]
    founds = all_found.values()
    figures += [
        Figure("runs past the deadline and a second", sum(found.hung for found in founds), "runs", 0),
        Figure("runs without a typed fault", sum(found.untyped for found in founds), "runs", 0),
        Figure("runs with more attempts than allowed", sum(found.beyond for found in founds), "runs", 0),
        Figure("runs whose record holds the key", sum(found.leaked for found in founds), "runs", 0),
        Figure("growth of peak memory, endpoint included", memory, "MB"),
    ]
    report(f"{len(KINDS)} kinds of fault x {runs}", figures)


if __name__ == "__main__":
    main()
