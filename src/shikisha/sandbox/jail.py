"""Run full Python in a jail of the kernel's: Landlock, a filter of system calls, resource limits, and no processes.

Invariants: a program has an environment of its own, no file but its own folder and the interpreter's library, no
network, no process beside its own, and ends within its limits; when its run is over, nothing of it is left. It needs no
privileges, no daemon and no namespaces. Programs run in processes that a small launcher forks (`cell.launcher`), since
forking from a threaded server is unsafe; a run costs a few milliseconds.

What a jail does not do: it shares the kernel with everybody, so that a hole in the kernel is a hole in the jail (a
micro-VM behind the same interface is the place for hostile strangers); a program can tell whether a file exists and how
large it is, the machine's name and its load; and what it says about itself is its own word (`cell.program`).
"""

import asyncio
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Lock, Thread

from shikisha.sandbox import Execution, Inputs, Limits, Script
from shikisha.sandbox.endings import execution
from shikisha.sandbox.warden import Forking, Order, Program, Talk, Warden
from shikisha.sandbox.watch import watch

DEFAULT_LIMITS = Limits(seconds=5.0, memory=512 * 2**20, output=100_000, depth=1_000)


class Jail:
    """Runs each program in a process of its own, at most `processes` of them at once.

    `memory` is what a program may map beside the interpreter itself. Nothing is started before the first run;
    ConfigError then, when this system can confine nobody. `aclose` ends the launcher; without it, it ends with us.
    """

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, processes: int | None = None, warden: Warden | None = None
    ) -> None:
        self.limits = limits
        self._warden = warden or Forking()
        self._threads = ThreadPoolExecutor(processes or min(4, os.cpu_count() or 1), thread_name_prefix="jail")

    async def __aenter__(self) -> "Jail":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for what is running and end the launcher; the sandbox cannot be used any more."""
        await asyncio.to_thread(self._close)

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:
        """Run code with these names bound and this text on standard input."""
        job = _Job()
        order = self._order(code, inputs, stdin)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._perform, order, job)
        except asyncio.CancelledError:
            job.cancel()
            raise

    async def run_pair(self, first: Script, second: Script) -> tuple[Execution, Execution]:
        """Run two programs in two jails that have a folder in common, and a pipe each way."""
        job = _Job()
        orders = self._order(first.code, first.inputs, ""), self._order(second.code, second.inputs, "")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._perform_pair, orders, job)
        except asyncio.CancelledError:
            job.cancel()
            raise

    def _order(self, code: str, inputs: Inputs, stdin: str) -> Order:
        limits = self.limits
        sent = {"code": code, "inputs": dict(inputs), "depth": limits.depth, "output": limits.output}
        cpu_seconds = math.ceil(limits.seconds * (os.cpu_count() or 1)) + 1  # for the case that nobody watches any more
        return Order(json.dumps(sent).encode(), stdin.encode(errors="surrogatepass"), limits.memory, cpu_seconds)

    def _perform(self, order: Order, job: "_Job") -> Execution:
        try:
            with self._warden.launched(order) as program, job.bound(program.watched.kill):
                return self._ended(program)
        except OSError as error:
            return Execution(error=f"the program could not be started: {error}")

    def _perform_pair(self, orders: tuple[Order, Order], job: "_Job") -> tuple[Execution, Execution]:
        """Run both; the second is watched in a thread of its own, for its limits are its own too."""
        ended: list[Execution] = []
        try:
            with ExitStack() as stack:
                program, other = self._launch_pair(orders, stack)
                stack.enter_context(job.bound(program.watched.kill))
                follower = Thread(target=lambda: ended.append(self._ended(other)), name="jail-pair")
                follower.start()
                try:
                    execution = self._ended(program)
                finally:
                    other.watched.kill()
                    follower.join()
        except OSError as error:
            problem = Execution(error=f"the program could not be started: {error}")
            return problem, problem
        return execution, ended[0]

    def _launch_pair(self, orders: tuple[Order, Order], stack: ExitStack) -> tuple[Program, Program]:
        """Launch both with nothing of theirs left open here: each must see it when the other has ended."""
        with ExitStack() as ends:
            (reads, others_writes), (others_reads, writes) = _pipe(ends), _pipe(ends)
            program = stack.enter_context(self._warden.launched(orders[0], Talk(reads, writes)))
            talk = Talk(others_reads, others_writes, program.folder)
            return program, stack.enter_context(self._warden.launched(orders[1], talk))

    def _ended(self, program: Program) -> Execution:
        ending = watch(program.watched, self.limits)
        return execution(ending, program.code(), self.limits)

    def _close(self) -> None:
        self._threads.shutdown()
        self._warden.close()


def _pipe(stack: ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """Return the end to read and the end to write, to be closed with the stack."""
    reading, writing = os.pipe()
    return stack.enter_context(io.FileIO(reading)), stack.enter_context(io.FileIO(writing, "w"))


class _Job:
    """One run, on one thread; `cancel` may be called from another, before, while and after it can be killed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kill: Callable[[], None] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """End the run, now or as soon as it begins."""
        with self._lock:
            self._cancelled = True
            if self._kill is not None:
                self._kill()

    @contextmanager
    def bound(self, kill: Callable[[], None]) -> Iterator[None]:
        """Let `cancel` use this, for as long as it may be used."""
        with self._lock:
            self._kill = kill
            if self._cancelled:
                kill()
        try:
            yield
        finally:
            with self._lock:
                self._kill = None
