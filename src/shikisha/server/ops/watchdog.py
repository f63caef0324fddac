"""The watchdog's part in the server: heartbeats of the event loop, and marks that say which run is being computed.

Invariants: whatever runs on the event loop for a run, or in a thread of the loop's executor, is marked meanwhile in
memory that outlives this process, so any kind of end finds the mark. A mark costs less than a microsecond. When a
run's code raises SystemExit, that is the run's failure. `watchdog_process` judges, since this process may be the one
that hangs. Windows has no watchdog.
"""

import asyncio
import faulthandler
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context, ContextVar, copy_context
from typing import IO, ParamSpec, TypeVar

from shikisha.core.fair_work import WORK_OWNER, FairExecutor, WorkOwner
from shikisha.server.ops.watchdog_process import FIRST_THREAD, LOOP, SIZE, THREADS, WatchdogMemory, encode_name

P = ParamSpec("P")
T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_RUN: ContextVar[bytes] = ContextVar("computed_run", default=b"")
_EXIT_SECONDS = 5.0  # seconds


def run_context(run: str, key: str) -> Context:
    """Return this context as one in which everything is done for a run of this key, which was accepted."""
    context = copy_context()
    context.run(WORK_OWNER.set, WorkOwner(key))
    context.run(_RUN.set, encode_name(run))
    return context


class Watchdog:
    """The marks, and the process that reads them."""

    def __init__(self, shared: WatchdogMemory, limit: float) -> None:
        self._shared = shared
        self._pause = min(limit / 50, 0.2)
        self._beating: asyncio.Task[None] | None = None

    def begin(self, member: Callable[[], str]) -> None:
        """Give signs from now on until the loop ends: closing the service may hang too."""
        self._shared.member = member()  # at once: this process may be gone before the task begins
        self._beating = asyncio.create_task(self._beat(member), name="watchdog")

    def mark_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Mark what this loop does for a run from now on."""
        loop.set_task_factory(self._task)  # type: ignore[arg-type]  # typeshed has an older shape of it
        loop.set_default_executor(_MarkingExecutor(self._shared))

    async def _beat(self, member: Callable[[], str]) -> None:
        known = self._shared.member
        while True:
            if member() != known:
                known = self._shared.member = member()
            self._shared.beat()
            await asyncio.sleep(self._pause)

    def _task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, T], context: Context | None = None
    ) -> "asyncio.Task[T]":
        run = _RUN.get() if context is None else context.get(_RUN, b"")
        return asyncio.Task(_MarkedCoroutine(work, run, self._shared) if run else work, loop=loop, context=context)


@contextmanager
def start_watchdog(journal_url: str, limit: float) -> Generator[Watchdog | None]:
    """Have this process watched from outside, until the end of the block, which is the end of serving."""
    faulthandler.enable(all_threads=True)
    # Disable core dumps, since this process's memory holds keys.
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        file = _shared_file()
        file.truncate(SIZE)
        process = _start_process(file.fileno(), limit)
    except (OSError, ValueError) as error:
        _LOG.warning("no watchdog: %s; a loop that stands still is not noticed", error)
        yield None
        return
    shared = WatchdogMemory(file.fileno())
    with process.stdin or nullcontext() as pipe:
        if pipe is not None:
            with suppress(OSError):
                pipe.write(f"{journal_url}\n".encode())
                pipe.flush()
        try:
            yield Watchdog(shared, limit)
        finally:
            shared.leave()
    with file, suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_SECONDS)


def _shared_file() -> IO[bytes]:
    """Return a file that is nowhere: a container's may all be read-only."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("shikisha-watchdog"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _start_process(descriptor: int, limit: float) -> "subprocess.Popen[bytes]":
    if os.name == "nt":
        raise OSError("Windows cannot share memory this way")
    command = [
        sys.executable,
        "-m",
        "shikisha.server.ops.watchdog_process",
        str(descriptor),
        str(os.getpid()),
        str(limit),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(descriptor,))  # noqa: S603 - our module


class _MarkedCoroutine(Coroutine[object, object, T]):
    """A coroutine whose run is marked while it is on the loop."""

    __slots__ = ("_run", "_shared", "_work")

    def __init__(self, work: Coroutine[object, object, T], run: bytes, shared: WatchdogMemory) -> None:
        self._work, self._run, self._shared = work, run, shared

    def send(self, value: object, /) -> object:
        self._shared.write(LOOP, self._run)
        try:
            return self._work.send(value)
        except (SystemExit, KeyboardInterrupt) as error:  # signals are the loop's business here: none raises these
            raise RuntimeError(f"a run's code wanted this process to exit: {type(error).__name__}") from None
        finally:
            self._shared.clear(LOOP)

    def throw(self, *error: object) -> object:
        self._shared.write(LOOP, self._run)
        try:
            return self._work.throw(*error)  # type: ignore[call-overload]  # whichever it was called with
        except (SystemExit, KeyboardInterrupt) as raised:
            raise RuntimeError(f"a run's code wanted this process to exit: {type(raised).__name__}") from None
        finally:
            self._shared.clear(LOOP)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[object, None, T]:
        return self._work.__await__()


class _MarkingExecutor(FairExecutor):
    """The loop's threads; what a run has done in one is marked while it is done."""

    def __init__(self, shared: WatchdogMemory) -> None:
        super().__init__("asyncio", min(32, (os.cpu_count() or 1) + 4))  # as many as asyncio's own
        self._shared = shared
        self._free = list(range(FIRST_THREAD, FIRST_THREAD + THREADS))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        run = _RUN.get()
        if not run:
            return super().submit(fn, *args, **kwargs)

        def marked() -> T:
            try:
                slot = self._free.pop()  # one operation: threads need no lock
            except IndexError:
                return fn(*args, **kwargs)
            self._shared.write(slot, run)
            try:
                return fn(*args, **kwargs)
            finally:
                self._shared.clear(slot)
                self._free.append(slot)

        return super().submit(marked)
