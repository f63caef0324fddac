"""Kill -9 a server with a thousand runs in flight, start it again on the same SQLite journal, and wait for all of them.

    python benchmarks/serving_restart.py [--runs 1000] [--seconds 1.0] [--json]

Background runs of three steps, of workers that take so many seconds a step, are ordered over HTTP; once all are
acknowledged the server's process is killed and started again as its users would. Counted are the seconds from that
start until the last of them has ended, and the runs that did not end well. Steps of three seconds keep all of them in
flight on a slow machine; the workers' own time is part of the figure.
"""

import argparse
import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter

from common import Figure, report
from serving_client import connections, server
from shikisha.journal import open_journal

CONFIG = """
conductor = "fixed:chain?workers=a,b,c"
[server]
max_runs = {runs}
""" + "\n".join(f'[workers.{name}]\nkind = "scripted"\nseconds = [{{seconds}}]' for name in "abc")
AT_ONCE = 64


async def restart(folder: Path, runs: int, seconds: float) -> list[Figure]:
    """Order, kill, start again, wait; return the figures."""
    config, journal = CONFIG.format(runs=runs, seconds=seconds), str(folder / "journal.db")
    acknowledged = 0
    async with server(folder, config, journal, folder / "log.1") as at, connections(at.host, at.port, AT_ONCE) as pool:
        request = at.request("/v1/responses", {"model": "shikisha", "input": "What is it?", "background": True})

        async def order(count: int, place: int) -> int:
            answers = [await pool[place].ask(request) for _ in range(count)]
            return sum(answer.status == 200 for answer in answers)

        share, more = divmod(runs, AT_ONCE)
        acknowledged = sum(await asyncio.gather(*(order(share + (place < more), place) for place in range(AT_ONCE))))
        before = _finished(journal)
        at.process.kill()
    begun = perf_counter()
    async with server(folder, config, journal, folder / "log.2") as at:
        ready = perf_counter() - begun
        while _finished(journal) < acknowledged and perf_counter() - begun < 120:  # noqa: ASYNC110 - another process's
            await asyncio.sleep(0.05)
        took, spent = perf_counter() - begun, at.process.cpu_times()
    async with open_journal(journal) as opened:
        ended = [run for run in await opened.runs(limit=runs) if run.status == "done"]
    return [
        Figure("runs acknowledged", acknowledged, "runs"),
        Figure("  of them in flight at the kill", acknowledged - before, "runs"),
        Figure("seconds from the new start until all have ended", took, "s", 9),
        Figure("  until the server was ready", ready, "s"),
        Figure("  CPU time of the server in them", spent.user + spent.system, "s"),
        Figure("  what three steps take alone, at most", 3 * seconds, "s"),
        Figure("runs that did not end well", acknowledged - len(ended), "", 0),
    ]


def _finished(journal: str) -> int:
    with closing(sqlite3.connect(journal, timeout=10)) as connection:
        return int(connection.execute("SELECT count(*) FROM events WHERE kind = 'run.finished'").fetchone()[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(restart(Path(folder), options.runs, options.seconds))
    report("kill -9 and start again", figures)


if __name__ == "__main__":
    main()
