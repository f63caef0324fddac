"""What serving costs: added latency, throughput, a thousand runs at once, the first streamed token.

    python benchmarks/serving_load.py [--seconds 20] [--json]

The server is the process that `shikisha serve` starts, with its journal in SQLite (full sync). Client, server and
worker share this machine's cores. Added latency: the same client at the same rate asks the worker's endpoint directly
and through the server, in turns; the figure is the difference of their percentiles. Throughput and the thousand runs
use workers inside the server that take no time, or 50 ms.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from common import Figure, report
from serving_client import Answer, Server, connections, hammered, paced, percentile, server

CHAT = "/v1/chat/completions"
ASKED = {"model": "shikisha", "messages": [{"role": "user", "content": "What is it?"}]}
RATE, LATENCY_CONNECTIONS = 100.0, 40
PAUSE = 0.03  # seconds that the endpoint thinks

ONE_STEP = """
conductor = "fixed:single"
[workers.model]
kind = "chat"
base_url = "http://127.0.0.1:{port}/v1"
model = "m"
max_output_tokens = 100
price = {{ input = 1.0, output = 1.0 }}
"""
INSTANT = """
conductor = "fixed:single"
[workers.model]
kind = "scripted"
answers = "done"
"""
THREE_STEPS = """
conductor = "fixed:chain?workers=a,b,c"
[server]
max_runs = 1000
[workers.a]
kind = "scripted"
seconds = [0.05]
[workers.b]
kind = "scripted"
seconds = [0.05]
[workers.c]
kind = "scripted"
seconds = [0.05]
"""


@asynccontextmanager
async def endpoint(seconds: float) -> AsyncIterator[int]:
    """Start the endpoint; yield its port."""
    file = str(Path(__file__).with_name("serving_endpoint.py"))
    process = await asyncio.create_subprocess_exec(sys.executable, file, str(seconds), stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(await process.stdout.readline())
    finally:
        process.terminate()
        await process.wait()


async def latency(folder: Path, seconds: float) -> list[Figure]:
    """Measure what the server adds to a call at a hundred requests a second."""
    async with endpoint(PAUSE) as port, server(folder, ONE_STEP.format(port=port)) as at:
        direct = Server("127.0.0.1", port, "", at.process)
        through: list[float] = []
        straight: list[float] = []
        errors = 0
        for turn in range(4):
            for target, into in ((at, through), (direct, straight))[:: 1 if turn % 2 else -1]:
                async with connections(target.host, target.port, LATENCY_CONNECTIONS) as pool:
                    body = {**ASKED, "stream": target is direct}
                    answers = await paced(pool, target.request(CHAT, body), RATE, seconds / 8)
                    into += [each.seconds for each in answers if each.status == 200]
                    errors += sum(each.status != 200 for each in answers)
    added = {share: 1000 * (percentile(through, share) - percentile(straight, share)) for share in (0.5, 0.99)}
    return [
        Figure("added latency at 100 requests/s, p50", added[0.5], "ms", 8),
        Figure("added latency at 100 requests/s, p99", added[0.99], "ms", 40),
        Figure("  errors meanwhile", errors, "", 0),
    ]


async def throughput(folder: Path, seconds: float) -> list[Figure]:
    """Measure how many one-step runs a second are answered, journaled."""
    async with server(folder, INSTANT) as at, connections(at.host, at.port, 32) as pool:
        request = at.request(CHAT, ASKED)
        await hammered(pool, request, 2)
        begun = perf_counter()
        answers = await hammered(pool, request, seconds)
        took = perf_counter() - begun
        memory = at.process.memory_info().rss / 2**20
    return [
        Figure("one-step runs with an instant worker, journaled", len(answers) / took, "runs/s", 400, at_least=True),
        Figure("  errors", sum(each.status != 200 for each in answers), "", 0),
        Figure("  p50 of 32 at once", 1000 * median(each.seconds for each in answers), "ms"),
        Figure("  server's memory afterwards", memory, "MB"),
    ]


async def crowd(folder: Path) -> list[Figure]:
    """Ask for a thousand runs of three steps at once, and then for two hundred more than the limit."""
    async with server(folder, THREE_STEPS) as at, connections(at.host, at.port, 1200) as pool:
        request = at.request(CHAT, ASKED)
        await asyncio.gather(*(each.ask(request) for each in pool[:50]))
        answers = await asyncio.gather(*(each.ask(request) for each in pool[:1000]))
        memory = at.process.memory_info().rss / 2**20
        over: Sequence[Answer] = await asyncio.gather(*(each.ask(request) for each in pool))
    refused = [each for each in over if each.status == 429]
    return [
        Figure("1,000 concurrent 3-step runs: errors", sum(each.status != 200 for each in answers), "", 0),
        Figure("  p99", percentile([each.seconds for each in answers], 0.99), "s", 5),
        Figure("  server's memory", memory, "MB", 300),
        Figure("  1,200 at once with a limit of 1,000: refused with 429", len(refused), ""),
        Figure("  neither done nor refused", sum(each.status not in (200, 429) for each in over), "", 0),
        Figure("  p50 until a refusal", 1000 * median([each.seconds for each in refused] or [0.0]), "ms"),
    ]


async def first_token(folder: Path) -> list[Figure]:
    """Measure how much later than it was sent the client has the worker's first piece."""
    async with (
        endpoint(PAUSE) as port,
        server(folder, ONE_STEP.format(port=port)) as at,
        connections(at.host, at.port, 1) as pool,
    ):
        request = at.request(CHAT, {**ASKED, "stream": True})
        late = [first_piece_lateness(await pool[0].ask(request))[0] for _ in range(100)]
    return [
        Figure("first streamed token after the worker's, p50", percentile(late, 0.5), "ms", 5),
        Figure("  p99", percentile(late, 0.99), "ms"),
    ]


def first_piece_lateness(answer: Answer) -> tuple[float, float]:
    """Return by how many ms the first piece came later than it was sent (it says when), and than it was asked for."""
    piece = re.search(rb'"content":\s?"(\d+) ', answer.data)
    if piece is None:
        raise ValueError(f"no piece in {answer.data[:500]!r}")
    came = answer.when(piece.end())
    return 1000 * (came - int(piece[1]) / 1e9), 1000 * (came - answer.asked)


async def main(seconds: float) -> list[Figure]:
    """Measure everything, one after another."""
    figures: list[Figure] = []
    for part in (latency, throughput):
        with tempfile.TemporaryDirectory() as folder:
            figures += await part(Path(folder), seconds)
    for other in (crowd, first_token):
        with tempfile.TemporaryDirectory() as folder:
            figures += await other(Path(folder))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    report("serving", asyncio.run(main(parser.parse_known_args()[0].seconds)))
