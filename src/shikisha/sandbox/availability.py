"""Which sandboxes exist, and which are available here: those that withstood every attack on this machine.

Invariants: a sandbox that is not available is not handed out, and nothing replaces it. An unknown name is an error that
lists the known ones. Results are kept for this process only: probing takes a second or two, and kernel settings,
security modules or an engine's configuration may differ tomorrow. Monty is usually created without probing
(class `MontySandbox`), since it has no operating system beneath it that could differ; requested here, it is probed too.

Run full Python in a Docker or Podman container: one container for each program.
"""

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from secrets import token_hex
from threading import Lock, Thread
from typing import TYPE_CHECKING, Protocol

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fair_work import FairExecutor
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.sandbox import (
    DEFAULT_LIMITS,
    FULL_PYTHON_LIMITS,
    Execution,
    Inputs,
    Sandbox,
    SandboxLimits,
    SandboxScript,
)
from shikisha.sandbox.child.program import CONTAINER_FOLDER, LENGTH_DIGITS
from shikisha.sandbox.process_limits import MOST_BYTES, MonitoredProcess
from shikisha.sandbox.process_sandbox import (
    MOST_THREADS,
    SANDBOX_FOLDER,
    LinkedStreams,
    ProcessSandbox,
    ProgramRequest,
    RunningProgram,
    bubblewrap_sandbox,
    open_pipe,
    sealed_file,
)
from shikisha.sandbox.security_probes import PROBE_LIMITS, ProbeResult, run_probes

if TYPE_CHECKING:
    from pydantic_monty import CollectString, Monty, MontySession, ResourceLimits

# Run Python in pydantic-monty: an interpreter without an operating system beneath it, in processes of its own.
#
# Invariants: every run has a fresh session, so nothing is left from the last one. The interpreter's process has an
# empty environment and no file or socket to give. A run that is cancelled or exceeds its limits has its process killed
# and replaced. A warm run costs about a third of a millisecond; the processes (6 MB each) start with the first run.
#
# The library's own async pool is deliberately not used: up to 1.4 its threads call back into an interpreter that is
# shutting down and abort the process (SIGABRT at exit in 1 of 10 short programs). Our own threads use the library's
# plain pool instead, one for each process.

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


IMAGE = "python:3-slim"
_ENGINES = ("docker", "podman")
_PATIENCE = 20.0  # seconds for an engine to answer
# Bytes that Python itself takes of a container's memory.
_INTERPRETER_BYTES = 64 * 2**20
_UNPRIVILEGED_USER = "65534:65534"
_SIGNAL_BASE = 128  # exit codes above this are signals


def container_sandbox(limits: SandboxLimits = FULL_PYTHON_LIMITS, image: str = IMAGE) -> ProcessSandbox:
    """Return a sandbox of containers; ConfigError when no engine answers or it lacks the image. Takes a moment."""
    return ProcessSandbox(limits, launcher=ContainerLauncher(_find_engine(image), image))


def _find_engine(image: str) -> str:
    """Return the first engine that has the image."""
    troubles = []
    for name in _ENGINES:
        if (program := shutil.which(name)) is None:
            troubles.append(f"{name} is not installed")
        elif trouble := _engine_problem(program, "info"):
            troubles.append(f"{name} does not answer: {trouble}")
        elif _engine_problem(program, "image", "inspect", image):
            troubles.append(f"{name} has no image {image} (fetch it: {name} pull {image})")
        else:
            return program
    raise ConfigError("; ".join(troubles))


def _engine_problem(program: str, *question: str) -> str | None:
    """Return why a command of an engine fails; None when it succeeds."""
    try:
        subprocess.run([program, *question], capture_output=True, check=True, timeout=_PATIENCE)  # noqa: S603 - an engine
    except subprocess.CalledProcessError as error:
        return error.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class ContainerLauncher:
    """Starts containers with the engine's command line."""

    engine: str
    image: str

    def close(self) -> None:
        """Do nothing: a container ends with its program."""

    @contextmanager
    def launch(self, request: ProgramRequest, linked: LinkedStreams | None = None) -> Iterator[RunningProgram]:
        """Run a program in a container, which is removed afterwards. Linked programs share no folder."""
        name = f"shikisha-{token_hex(8)}"
        with ExitStack() as stack:
            given = stack.enter_context(
                sealed_file(_container_input(request))
                if linked is None
                else _prefixed_pipe(_container_input(request), linked.reads)
            )
            printed, printed_end = open_pipe(stack)
            report, report_end = open_pipe(stack)
            with printed_end, report_end:
                out = printed_end if linked is None else linked.writes
                process = _start_command(self._command(name, request), given, out, report_end)
            run = _ContainerRun(self.engine, name, process)
            stack.callback(run.clear_away)
            ended = os.pidfd_open(process.pid)
            stack.callback(os.close, ended)
            yield RunningProgram(MonitoredProcess(printed, report, ended, run.kill, starting=_PATIENCE), run.code)

    def _command(self, name: str, request: ProgramRequest) -> list[str]:
        memory = str(request.memory + _INTERPRETER_BYTES)
        return [
            *(self.engine, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none"),
            *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--user", _UNPRIVILEGED_USER, "--hostname", "jail", "--workdir", CONTAINER_FOLDER),
            *("--tmpfs", f"{CONTAINER_FOLDER}:rw,nosuid,nodev,noexec,mode=1777,size={MOST_BYTES}"),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(MOST_THREADS)),
            *("--entrypoint", "python3", self.image, "-I", "-S", "-X", "utf8", "-c", _child_source("program")),
        ]


class _ContainerRun:
    """One container, and the engine's command, which runs as long as the container."""

    def __init__(self, engine: str, name: str, command: "subprocess.Popen[bytes]") -> None:
        self._engine = engine
        self._name = name
        self._command = command
        self._killing: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Kill the container without waiting for it, since a cancelled run must not wait."""
        if self._killing is None:
            self._killing = _start_command([self._engine, "kill", self._name])
            self._command.kill()  # it may be blocked on unread output

    def code(self) -> int:
        """Return the exit code; engines report a signal as a code above 128."""
        code = self._command.poll()
        if code is None:
            return -signal.SIGKILL
        return code if code <= _SIGNAL_BASE else _SIGNAL_BASE - code

    def clear_away(self) -> None:
        """Remove everything, even a container that started after it was killed."""
        if self._command.poll() is None:
            self.kill()
        self._command.wait()
        if self._killing is not None:
            self._killing.wait()
            _engine_problem(self._engine, "rm", "--force", self._name)


def _start_command(
    command: Sequence[str],
    given: io.FileIO | None = None,
    printed: io.FileIO | None = None,
    report: io.FileIO | None = None,
) -> "subprocess.Popen[bytes]":
    """Start an engine's command; it needs our environment to find its daemon."""
    streams = [subprocess.DEVNULL if stream is None else stream for stream in (given, printed, report)]
    return subprocess.Popen(  # noqa: S603 - an engine
        command, stdin=streams[0], stdout=streams[1], stderr=streams[2], start_new_session=True
    )


def _prefixed_pipe(first: bytes, reads: io.FileIO) -> io.FileIO:
    """Return a pipe with these bytes first and then all data from a descriptor, as long as both sides are open."""
    reading, writing = os.pipe()
    source = io.FileIO(os.dup(reads.fileno()))
    Thread(
        target=_copy_stream, args=(first, source, io.FileIO(writing, "w")), name="container-pair", daemon=True
    ).start()
    return io.FileIO(reading)


def _copy_stream(first: bytes, source: io.FileIO, sink: io.FileIO) -> None:
    # The reader has gone: the data is not needed.
    with source, sink, suppress(OSError):
        piece = first
        while piece:
            written = sink.write(piece)
            piece = piece[written:] or source.read(65_536)


def _container_input(request: ProgramRequest) -> bytes:
    """Return the interpreter's standard input: a length, the code to run, the program's own input."""
    first = {
        "confinement": _child_source("confinement"),
        "program": json.loads(request.sent),
        "allowance": {"memory": request.memory, "cpu_seconds": request.cpu_seconds},
    }
    data = json.dumps(first).encode()
    return f"{len(data):0{LENGTH_DIGITS}}".encode() + data + request.given


@cache
def _child_source(module: str) -> str:
    return (SANDBOX_FOLDER / "child" / f"{module}.py").read_text(encoding="utf-8")


FULL_PYTHON = ("jail", "bubblewrap", "container")  # full Python, the fastest first
SANDBOX_NAMES = ("monty", *FULL_PYTHON)
_ADVICE: Mapping[str, str] = {
    "jail": "it needs Linux 5.13 or newer with Landlock; where that is missing, install bubblewrap or docker",
    "bubblewrap": "install the package bubblewrap, on a system on which users may make namespaces; or use the jail",
    "container": "install docker or podman, start its service and fetch the image; or use the jail",
    "monty": "install another version of pydantic-monty",
}
_reports: dict[str, "SandboxReport"] = {}
_lock = Lock()


class ClosableSandbox(Sandbox, Protocol):
    """A sandbox that can be closed."""

    async def aclose(self) -> None:
        """Release its resources."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """The result of probing a sandbox; `trouble` when it could not be probed."""

    name: str
    findings: tuple[ProbeResult, ...] = ()
    trouble: str | None = None

    @property
    def available(self) -> bool:
        """Whether it may be used: it blocked every attack."""
        return self.trouble is None and all(finding.blocked for finding in self.findings)

    @property
    def why_not(self) -> str:
        """Explain why it is not available, and what to do about it."""
        failed = [f"{finding.probe} ({finding.what})" for finding in self.findings if not finding.blocked]
        why = self.trouble or f"it did not withstand: {'; '.join(failed)}"
        return f"the sandbox {self.name} is not available here: {why}. {_ADVICE[_kind_of(self.name)].capitalize()}"


def limits_for(name: str, seconds: float, output: int, memory: int | None = None) -> SandboxLimits:
    """Return limits, with a sandbox's own defaults for the rest (full Python needs more memory than Monty)."""
    default = _default_limits(name)
    return replace(default, seconds=seconds, output=output, memory=memory or default.memory)


def build_sandbox(name: str, limits: SandboxLimits | None = None) -> ClosableSandbox:
    """Return a sandbox, unprobed. `container:IMAGE` selects an image. ConfigError when it cannot be created."""
    kind, limits = _kind_of(name), limits or _default_limits(name)
    if kind in FULL_PYTHON and sys.platform != "linux":
        raise ConfigError(f"full Python is confined by Linux, and this is {sys.platform}")
    match kind:
        case "monty":
            return MontySandbox(limits)
        case "jail":
            return ProcessSandbox(limits)
        case "bubblewrap":
            return bubblewrap_sandbox(limits)
        case _:
            return container_sandbox(limits, name.partition(":")[2] or IMAGE)


def probe_sandbox(name: str) -> SandboxReport:
    """Probe a sandbox, or return this process's earlier result. Blocks for a second or two."""
    _kind_of(name)
    with _lock:
        if name not in _reports:
            # An event loop of its own, whether or not one runs here.
            with ThreadPoolExecutor(1) as thread:
                _reports[name] = thread.submit(asyncio.run, _probe_unshared(name)).result()
        return _reports[name]


def obtain_sandbox(name: str, limits: SandboxLimits | None = None) -> Sandbox:
    """Return a sandbox that withstands every attack here, shared in this process, or raise ConfigError. Blocks."""
    report = probe_sandbox(name)
    if not report.available:
        raise ConfigError(report.why_not)
    return _shared(name, limits or _default_limits(name))


async def available_sandbox(name: str, limits: SandboxLimits | None = None) -> Sandbox:
    """Return the result of `obtain_sandbox` without blocking the event loop."""
    return await asyncio.to_thread(obtain_sandbox, name, limits)


async def full_python_sandbox(limits: SandboxLimits | None = None) -> Sandbox:
    """Return the first available sandbox for full Python; ConfigError explains for each why it is not available."""
    troubles = []
    for name in FULL_PYTHON:
        try:
            return await available_sandbox(name, limits)
        except ConfigError as error:
            troubles.append(str(error))
    raise ConfigError("; ".join(troubles))


async def _probe_unshared(name: str) -> SandboxReport:
    try:
        sandbox = build_sandbox(name, PROBE_LIMITS)
        try:
            return SandboxReport(name, tuple(await run_probes(sandbox)))
        finally:
            await sandbox.aclose()
    except ConfigError as error:
        return SandboxReport(name, trouble=str(error))


def _kind_of(name: str) -> str:
    kind, colon, _ = name.partition(":")
    if kind not in SANDBOX_NAMES or (colon and kind != "container"):
        raise UnknownName("sandbox", name, SANDBOX_NAMES)
    return kind


def _default_limits(name: str) -> SandboxLimits:
    return DEFAULT_LIMITS if _kind_of(name) == "monty" else FULL_PYTHON_LIMITS


@cache
def _shared(name: str, limits: SandboxLimits) -> Sandbox:
    return shared_monty(limits) if name == "monty" else build_sandbox(name, limits)
