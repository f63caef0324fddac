"""What a request costs as a gateway: CPU time, requests a second, and when a streamed token comes.

    python benchmarks/gateway.py [--seconds 10] [--rounds 3] [--other CHECKOUT] [--json]

`shikisha serve` with one chat worker, whose endpoint answers at once over HTTP from its own process; one run of one
step a request, journaled in SQLite with full sync. Client, server and endpoint share this machine's cores. CPU time
(user and system) is that of the server's process alone, so a busy machine changes it little; requests a second do not.
The last rounds are the measure, the first of each is warm-up. `--other` names the checkout of other code (the folder
that holds `src`): both are measured in turns, in one run.

First tokens: 50 streams a second from an endpoint that thinks 30 ms. Each piece says when it was sent, so that what is
added is the time from there to the client, plus what passed until the endpoint was asked.
"""

import argparse
import asyncio
import os
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from common import Figure, report
from serving_client import Server, connections, hammered, paced, percentile, server
from serving_load import ASKED, CHAT, ONE_STEP, PAUSE, endpoint, first_piece_lateness

AT_ONCE, STREAMS, STREAM_CONNECTIONS = 32, 50.0, 40
HERE = Path(__file__).parent.parent


@asynccontextmanager
async def gateway(checkout: Path, port: int) -> AsyncIterator[Server]:
    """Start the server of a checkout in front of the endpoint on this port."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(checkout / "src")
        try:
            async with server(Path(folder), ONE_STEP.format(port=port), log=Path(folder) / "log") as at:
                yield at
        finally:
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before


async def load(checkout: Path, seconds: float) -> dict[str, float]:
    """Keep 32 requests in flight; return CPU ms a request, requests a second, and the errors."""
    async with (
        endpoint(0) as port,
        gateway(checkout, port) as at,
        connections(at.host, at.port, AT_ONCE) as pool,
    ):
        request = at.request(CHAT, ASKED)
        await hammered(pool, request, 2)
        begun, before = perf_counter(), at.process.cpu_times()
        answers = await hammered(pool, request, seconds)
        took, after = perf_counter() - begun, at.process.cpu_times()
    cpu = after.user + after.system - before.user - before.system
    return {
        "cpu": 1000 * cpu / len(answers),
        "rate": len(answers) / took,
        "errors": sum(each.status != 200 for each in answers),
    }


async def streams(checkout: Path, seconds: float) -> dict[str, float]:
    """Ask for 50 streams a second; return what is added to the first token: its median and its 99 % in ms."""
    added: dict[str, list[float]] = {"direct": [], "through": []}
    async with endpoint(PAUSE) as port, gateway(checkout, port) as at:
        for name, target in (("direct", Server("127.0.0.1", port, "", at.process)), ("through", at)):
            async with connections(target.host, target.port, STREAM_CONNECTIONS) as pool:
                request = target.request(CHAT, {**ASKED, "stream": True})
                await paced(pool, request, STREAMS, 1)
                answers = await paced(pool, request, STREAMS, seconds)
                added[name] = [first_piece_lateness(each)[1] for each in answers]
    return {
        share: percentile(added["through"], value) - percentile(added["direct"], value)
        for share, value in (("p50", 0.5), ("p99", 0.99))
    }


async def main(seconds: float, rounds: int, other: Path | None) -> list[Figure]:
    """Measure this checkout, and the other one in turns with it."""
    checkouts = {"": HERE} | ({", other checkout": other} if other else {})
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for turn in range(rounds):
        for name, checkout in list(checkouts.items())[:: 1 if turn % 2 else -1]:
            for part in (load, streams):
                for what, value in (await part(checkout, seconds)).items():
                    found[name, what].append(value)
    return [
        figure
        for name in checkouts
        for figure in (
            Figure(f"CPU a request{name}", median(found[name, "cpu"]), "ms", 1.5),
            Figure(f"  the least of {rounds}", min(found[name, "cpu"]), "ms"),
            Figure(f"requests a second{name}", median(found[name, "rate"]), "/s", 1200, at_least=True),
            Figure("  errors", sum(found[name, "errors"]), "", 0),
            Figure(f"first token at 50 streams/s, added p50{name}", median(found[name, "p50"]), "ms", 1.5),
            Figure("  added p99", median(found[name, "p99"]), "ms", 6),
        )
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other", type=Path)
    options, _ = parser.parse_known_args()
    report("gateway", asyncio.run(main(options.seconds, options.rounds, options.other)))
