"""`python -m shikisha.testing`: the scripted chat server as a process of its own, for demos and kill tests.

Its first line is its base URL; it serves until it is terminated. With `--ledger` its charges survive it.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from shikisha.testing.chat_script import AnswerChooser, AnswerScript, ChargeLedger, ScriptedAnswer
from shikisha.testing.chat_server import chat_server


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    options = argparse.ArgumentParser(prog="python -m shikisha.testing", description="a scripted chat endpoint")
    options.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    options.add_argument("--script", type=Path, help="JSON list of answers; without it everything is answered with ok")
    options.add_argument("--ledger", type=Path, help="file that keeps the charges")
    given = options.parse_args()
    script = AnswerScript.load(given.script) if given.script else AnswerScript([ScriptedAnswer()])
    asyncio.run(_serve(script, ChargeLedger(given.ledger), given.port))


async def _serve(choose: AnswerChooser, ledger: ChargeLedger, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with chat_server(choose, ledger=ledger, port=port) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    main()
