"""Run full Python in a Docker or Podman container: one container for each program.

Invariants: a container has no network, no capability, a read-only file system except for a small folder in memory, and
limits on memory and processes. It is removed at the end, however the end comes. Inside it the confinement of
`process_sandbox` holds as far as the kernel offers it. Images are never pulled. A run costs as much as starting a
container does: half a second and not milliseconds.
"""

import io
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from secrets import token_hex
from threading import Thread

from shikisha.core.errors import ConfigError
from shikisha.sandbox import FULL_PYTHON_LIMITS, SandboxLimits
from shikisha.sandbox.child.program import CONTAINER_FOLDER, LENGTH_DIGITS
from shikisha.sandbox.process_limits import MOST_BYTES, MonitoredProcess
from shikisha.sandbox.process_sandbox import (
    MOST_THREADS,
    SANDBOX_FOLDER,
    LinkedStreams,
    ProcessSandbox,
    ProgramRequest,
    RunningProgram,
    open_pipe,
    sealed_file,
)

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
