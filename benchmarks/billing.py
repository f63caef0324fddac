"""Whether the bill is true: six chat endpoints, one of them failing in five ways, against what they really billed.

    python benchmarks/billing.py [--runs 300] [--json]

The endpoints are the project's scripted chat servers in a process of their own, which writes down what each call really
cost there: nothing for a 503, a 500 and a web page, the whole call for one that it never answered and for an answer
that was cut. Each run asks one of the six, the faulty one with a fallback. Then an endpoint that has nothing but
outages is asked through a real `shikisha serve`, under a key whose budget pays for one reservation.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2

from common import Figure, report
from serving_client import server
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Amount, Price, Usage
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.run_context import RetryPolicy
from shikisha.engine.worker import Card
from shikisha.testing import InjectedFault, ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha.workers.chat import ChatSettings, build

PRICE = Price(0.5, 10.0)
TEXT = "It is forty-two, as everybody knows."
FREE = (InjectedFault.ERROR_503, InjectedFault.ERROR_500, InjectedFault.HTML)
LOST = (InjectedFault.SILENCE, InjectedFault.TRUNCATED)
ENDPOINTS = 6
CONFIG = """
conductor = "fixed:single"
[workers.faulty]
kind = "chat"
model = "scripted"
base_url = "{url}"
max_output_tokens = 2000
attempts = 1
price = {{ input = 0.5, output = 10.0 }}
"""


def books(path: Path, mishaps: tuple[InjectedFault, ...]) -> Callable[[ReceivedChatRequest], ScriptedAnswer]:
    """Return what chooses an endpoint's answers and writes down what each call really costs; a key is billed once."""
    turn, known = itertools.cycle(mishaps) if mishaps else None, set[str]()

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        mishap = next(turn) if turn else None
        tokens = [
            sum(-(-len(text.encode()) // 4) for text in texts) for texts in ([t for _, t in asked.messages], [TEXT])
        ]
        cost = 0.0 if mishap in FREE or asked.key in known else PRICE.of(Usage(*tokens))
        if cost:
            known.add(asked.key)
        with path.open("a") as file:
            file.write(json.dumps({"mishap": mishap, "dollars": cost}) + "\n")
        return ScriptedAnswer(text=TEXT, mishap=mishap)

    return choose


async def serve(path: Path) -> None:
    """Serve the endpoints, the faulty one first, and one that only has outages last, until standard input ends."""
    kinds = [(*FREE, *LOST), *[()] * (ENDPOINTS - 1), FREE]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(chat_server(books(path, kind))) for kind in kinds]
        print(json.dumps(urls), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@asynccontextmanager
async def endpoints(path: Path) -> AsyncIterator[list[str]]:
    """Start them in another process and yield their URLs."""
    command = [sys.executable, __file__, "--serve", str(path)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        yield json.loads(await process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def billed(path: Path) -> float:
    """Return what the endpoints really billed, in dollars."""
    return sum((float(json.loads(line)["dollars"]) for line in path.read_text().splitlines()), 0.0)


async def performed(urls: list[str], runs: int) -> list[Run]:
    """Return so many runs, each of a worker of its own turn."""
    members = []
    for number, url in enumerate(urls[:ENDPOINTS]):
        fallback = "w1" if number == 0 else None
        card = Card(f"w{number}", max_output_tokens=2000, timeout=1.0, attempts=2, price=PRICE, fallback=fallback)
        members.append(Member(card, build(ChatSettings(model="m", base_url=url), card, SecretStore({}))))
    engine, pool = Engine(MemoryRecorder(), retry=RetryPolicy(first=0.01, longest=0.01)), Pool(members)
    gate = asyncio.Semaphore(32)

    async def one(number: int) -> Run:
        async with gate:
            plan = Plan((Step("Answer.", number % ENDPOINTS),))
            return await engine.run(Task(f"What is {number} times seven?"), pool, ScriptedConductor([plan]))

    try:
        return list(await asyncio.gather(*map(one, range(runs))))
    finally:
        for member in members:
            await member.worker.aclose()  # type: ignore[attr-defined]  # chat workers have connections


async def outages(url: str, folder: Path, requests: int) -> tuple[int, float]:
    """Ask a server under a small key; return how many requests it was refused for its budget, and what it used."""
    async with server(folder, CONFIG.format(url=url)) as running, httpx2.AsyncClient(timeout=30) as client:
        base = f"http://{running.host}:{running.port}"
        admin = {"Authorization": f"Bearer {running.key}"}
        made = await client.post(f"{base}/keys", headers=admin, json={"name": "small", "caps": {"dollars": 0.03}})
        key = made.json()
        refused = 0
        body = {"model": "shikisha", "messages": [{"role": "user", "content": "What is six times seven?"}]}
        for _ in range(requests):
            told = await client.post(
                f"{base}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key['secret']}"}
            )
            refused += told.status_code in (402, 429)
        listed = (await client.get(f"{base}/runs?limit=200", headers=admin)).json()["data"]
    return refused, sum(each["dollars"] or 0.0 for each in listed)


async def main(runs: int) -> list[Figure]:
    """Return the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "books.jsonl"
        async with endpoints(path) as urls:
            done = await performed(urls, runs)
            true = billed(path)
            refused, used = await outages(urls[-1], folder, 60)
        shown = sum((run.charged for run in done), Amount()).dollars or 0.0
        uncertain = sum((run.uncertain for run in done), Amount()).dollars or 0.0
        lost = [json.loads(line) for line in path.read_text().splitlines()]
        unknown = sum(line["dollars"] for line in lost if line["mishap"] in LOST)
    return [
        Figure("runs that ended with an answer", sum(run.answer is not None for run in done) / runs, "share"),
        Figure("really billed", true, "dollars"),
        Figure("shown", shown, "dollars"),
        Figure("shown / really billed", shown / true, "", 1.05),
        Figure("shown / really billed for calls whose outcome is known", shown / (true - unknown), "", 1.05),
        Figure("shown apart as uncertain, at most", uncertain, "dollars"),
        Figure("really billed beyond shown and uncertain", max(0.0, true - shown - uncertain), "dollars", 0.0),
        Figure("60 outages under a key of $0.03: refused for its budget", refused, "requests", 0),
        Figure("60 outages under a key of $0.03: used of it", used, "dollars", 0.0),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--serve", type=Path)
    options, _ = parser.parse_known_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve))
    else:
        report("A bill that is true", asyncio.run(main(options.runs)))
