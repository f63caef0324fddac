"""A worker that takes its server down when its task says so, and a server that has it: `python poisoned.py serve …`.

The registry of kinds gets one more, `poisonous`, before the command line begins; all else is what people start.
"""

import asyncio
import ctypes
import os
import re
import sys
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from shikisha.config import adapters
from shikisha.core.kinds import Registry
from shikisha.core.secrets import SecretStore
from shikisha.engine.worker import Card, Reply, Request, WorkerKind

CONFIG = """
conductor = "fixed:single"
[workers.frail]
kind = "poisonous"
seconds = {seconds}
timeout = 3600
[server]
lease = {lease}
drain = 0.5
{end}
"""


class Panic(BaseException):
    """What a Rust extension raises when it panics."""


class Settings(BaseModel):
    """How long an honest answer takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: float = 0.0


def build(settings: Settings, card: Card, secret_store: SecretStore) -> "Poisonous":  # noqa: ARG001 - every adapter's signature
    """Return the worker."""
    return Poisonous(settings.seconds)


KIND = WorkerKind(settings=Settings, build=build)


class Poisonous:
    """Answers with its subtask, unless that says `POISON kind`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def perform(self, request: Request) -> Reply:
        """Do what the task says."""
        found = re.search(r"POISON (\w+)", request.task.prompt)
        if found is None:
            await asyncio.sleep(self._seconds)
            return Reply(request.subtask, dollars=0.0)
        await asyncio.sleep(0.05)
        await POISONS[found[1]]()
        return Reply("survived", dollars=0.0)


def _at_once(act: Callable[[], object]) -> Callable[[], "asyncio.Future[object]"]:
    async def do() -> object:
        return act()

    return lambda: asyncio.ensure_future(do())


def _in_thread(act: Callable[[], object]) -> Callable[[], "asyncio.Future[object]"]:
    return lambda: asyncio.ensure_future(asyncio.to_thread(act))


def _spin() -> None:
    while True:
        pass


def _hold_lock() -> None:
    """Sleep in C code that never gives the interpreter's lock back."""
    ctypes.PyDLL(None).sleep(3600)


def _panic() -> None:
    raise Panic("index out of bounds")


def _exit() -> None:
    sys.exit("a library's own end")


POISONS: dict[str, Callable[[], "asyncio.Future[object]"]] = {
    "spin": _at_once(_spin),  # a loop in Python, on the event loop
    "lock": _at_once(_hold_lock),  # a call that blocks, and keeps the interpreter's lock
    "thread_lock": _in_thread(_hold_lock),
    "exit": _at_once(lambda: os._exit(3)),
    "thread_exit": _in_thread(lambda: os._exit(4)),
    "segfault": _at_once(lambda: ctypes.string_at(0)),
    "panic": _at_once(_panic),
    "system_exit": _at_once(_exit),
}


def main() -> None:
    """Run the command line with the worker in its registry."""
    from shikisha.cli import main as command_line

    adapters.WORKER_KINDS = Registry("workers", "kind of worker", WorkerKind, {"poisonous": "poisoned"})
    command_line()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
