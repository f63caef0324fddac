"""Run Python in pydantic-monty: an interpreter without an operating system beneath it, in processes of its own.

Invariants: every run has a fresh session, so nothing is left from the last one. The interpreter's process has an empty
environment and no file or socket to give. A run that is cancelled or exceeds its limits has its process killed and
replaced. A warm run costs about a third of a millisecond; the processes (6 MB each) start with the first run.

The library's own async pool is deliberately not used: up to 1.4 its threads call back into an interpreter that is
shutting down and abort the process (SIGABRT at exit in 1 of 10 short programs). Our own threads use the library's plain
pool instead, one for each process.
"""

import asyncio
import os
import signal
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from shikisha.core.fair_work import FairExecutor
from shikisha.sandbox import DEFAULT_LIMITS, Execution, Inputs, SandboxLimits, SandboxScript

if TYPE_CHECKING:
    from pydantic_monty import CollectString, Monty, MontySession, ResourceLimits

# Bytes of the interpreter's memory per character of input, at most.
_WORST_EXPANSION = 8
# Seconds beyond the limits until running code that does not stop by itself is killed.
_GRACE = 1.0
# The same for any other turn of a process, such as its start: that may take seconds on a busy machine, is not the
# work of the code, and would count as the code's failure.
_START_GRACE = 10.0


class MontySandbox:
    """Runs each piece of code in a fresh Monty session, at most `processes` at once of one owner of work, and one more.

    Nothing is started before the first run. `aclose` ends the processes; without it they end with ours.
    """

    def __init__(self, limits: SandboxLimits = DEFAULT_LIMITS, processes: int | None = None) -> None:
        self.limits = limits
        self._processes = 1 + (processes or min(4, os.cpu_count() or 1))
        self._threads = FairExecutor("monty", self._processes - 1)
        self._pool: Monty | None = None
        self._opening = Lock()

    async def __aenter__(self) -> "MontySandbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for running code and end the processes; the sandbox cannot be used afterwards."""
        await asyncio.to_thread(self._close)

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:
        """Run code with these names bound; an error if `stdin` is not empty, because Monty cannot read it."""
        if stdin:
            return Execution(error="Monty has no standard input: use a sandbox with full Python")
        size = len(code) + sum(
            len(repr(value)) if isinstance(value, list) else len(str(value)) for value in inputs.values()
        )
        most = self.limits.memory // _WORST_EXPANSION
        too_large = f"code and inputs have {size:,} characters: more than {most:,}" if size > most else None
        if problem := (too_large):
            return Execution(error=problem)
        job = _MontyJob(code, inputs, self.limits)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._perform, job)
        except asyncio.CancelledError:
            job.kill()
            raise

    async def run_pair(
        self,
        first: SandboxScript,  # noqa: ARG002 - the protocol's
        second: SandboxScript,  # noqa: ARG002
        *,
        share: bool = True,  # noqa: ARG002
    ) -> tuple[Execution, Execution]:
        """Return an error: Monty has no standard input."""
        problem = Execution(error="Monty has no standard input: use a sandbox with full Python")
        return problem, problem

    def _perform(self, job: "_MontyJob") -> Execution:
        return job.perform(self._opened())

    def _opened(self) -> "Monty":
        with self._opening:
            if self._pool is None:
                from pydantic_monty import Monty

                longest = 2 * self.limits.seconds + _START_GRACE  # running and sleeping
                pool = Monty(max_processes=self._processes, request_timeout=longest, feed_duration_limit_grace=_GRACE)
                self._pool = pool.__enter__()
            return self._pool

    def _close(self) -> None:
        self._threads.shutdown()
        with self._opening:
            if self._pool is not None:
                self._pool.__exit__(None, None, None)
                self._pool = None


@cache
def shared_monty(limits: SandboxLimits = DEFAULT_LIMITS) -> MontySandbox:
    """Return this process's sandbox with these limits, so that workers and checks share its processes."""
    return MontySandbox(limits)


class _MontyJob:
    """One run, on one thread; `kill` may be called from another thread.

    `_process` is set while, and only while, the process works for this job; the lock holds that during a kill.
    """

    def __init__(self, code: str, inputs: Inputs, limits: SandboxLimits) -> None:
        self._code = code
        self._inputs = dict(inputs)
        self._limits = limits
        self._lock = Lock()
        self._process: int | None = None
        self._cancelled = False

    def kill(self) -> None:
        """End the run, now or before it begins."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._process, signal.SIGKILL)

    def perform(self, pool: "Monty") -> Execution:
        """Run the code in a session of its own and return how it ended."""
        from pydantic_monty import CollectString, MontyCrashedError, MontyError

        printed = CollectString(4 * self._limits.output)  # bytes
        try:
            with pool.checkout(limits=self._resources()) as session:
                return self._fed(session, printed)
        except MontyCrashedError as crash:
            return Execution(error=f"the interpreter was ended: {crash}")
        except MontyError as error:
            return Execution(error=f"{type(error.exception()).__name__}: {error.exception()}")

    def _fed(self, session: "MontySession", printed: "CollectString") -> Execution:
        from pydantic_monty import MontyRuntimeError, MontySyntaxError

        if not self._bind(session.worker_pid):
            return Execution(error="cancelled")
        try:
            value = session.feed_run(self._code, inputs=self._inputs, print_callback=printed)
            text = self._written(session, value)
        except MontySyntaxError as error:
            return Execution(error=f"SyntaxError: {error.exception()}", parsed=False)
        except MontyRuntimeError as error:
            return Execution(printed.output, error=error.display("type-msg"))
        finally:
            self._bind(None)
        length = len(printed.output) + len(text or "")
        if length > self._limits.output:
            return Execution(error=f"more than {self._limits.output:,} characters came out")
        return Execution(printed.output, text)

    def _written(self, session: "MontySession", value: object) -> str | None:
        """Convert a value to text inside the limits: a few shared lists can be gigabytes as text."""
        from pydantic_monty import CollectString

        if value is None or isinstance(value, str):
            return value
        written = f"f'{{value!s}}'[:{self._limits.output + 1}]"
        return str(session.feed_run(written, inputs={"value": value}, print_callback=CollectString(0)))

    def _bind(self, process: int | None) -> bool:
        with self._lock:
            self._process = process
            return not self._cancelled

    def _resources(self) -> "ResourceLimits":
        return {
            "max_feed_duration_secs": self._limits.seconds,
            "max_total_sleep_secs": self._limits.seconds,
            "max_memory": self._limits.memory,
            "max_recursion_depth": self._limits.depth,
        }
