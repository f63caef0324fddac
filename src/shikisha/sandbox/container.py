"""Run full Python in a container of docker's or podman's, where an engine answers: one container for each program.

Invariants: a container has no network, no capability, a file system that cannot be written but for a small folder in
memory, limits on memory and processes, and it is removed at the end, however that comes; inside it the jail's own
confinement holds as far as the kernel offers it. An image is never fetched: it has to be there. A run costs as much as
starting a container does, which is half a second and not milliseconds.
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
from shikisha.sandbox import SandboxLimits
from shikisha.sandbox.child import program
from shikisha.sandbox.process_limits import MOST_BYTES, MonitoredProcess
from shikisha.sandbox.process_sandbox import (
    FULL_PYTHON_LIMITS,
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
_INTERPRETER_BYTES = 64 * 2**20  # bytes that Python itself takes of a container's memory
_UNPRIVILEGED_USER = "65534:65534"
_SIGNAL_BASE = 128  # an exit code beyond this tells a signal


def container_sandbox(limits: SandboxLimits = FULL_PYTHON_LIMITS, image: str = IMAGE) -> ProcessSandbox:
    """Return a sandbox of containers; ConfigError when no engine answers or it lacks the image. Takes a moment."""
    return ProcessSandbox(limits, warden=ContainerLauncher(_find_engine(image), image))


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
    """Say why an engine does not answer a question with yes; None when it does."""
    try:
        subprocess.run([program, *question], capture_output=True, check=True, timeout=_PATIENCE)  # noqa: S603 - an engine
    except subprocess.CalledProcessError as error:
        return error.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class ContainerLauncher:
    """Starts containers by the engine's own command."""

    engine: str
    image: str

    def close(self) -> None:
        """Do nothing: a container ends with its program."""

    @contextmanager
    def launch(self, order: ProgramRequest, talk: LinkedStreams | None = None) -> Iterator[RunningProgram]:
        """Have a program run in a container; afterwards the container is gone. Two that talk share no folder."""
        name = f"shikisha-{token_hex(8)}"
        with ExitStack() as stack:
            given = stack.enter_context(
                sealed_file(_container_input(order))
                if talk is None
                else _prefixed_pipe(_container_input(order), talk.reads)
            )
            printed, printed_end = open_pipe(stack)
            told, told_end = open_pipe(stack)
            with printed_end, told_end:
                out = printed_end if talk is None else talk.writes
                process = _start_command(self._command(name, order), given, out, told_end)
            run = _ContainerRun(self.engine, name, process)
            stack.callback(run.clear_away)
            ended = os.pidfd_open(process.pid)
            stack.callback(os.close, ended)
            yield RunningProgram(MonitoredProcess(printed, told, ended, run.kill, starting=_PATIENCE), run.code)

    def _command(self, name: str, order: ProgramRequest) -> list[str]:
        memory = str(order.memory + _INTERPRETER_BYTES)
        return [
            *(self.engine, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none"),
            *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--user", _UNPRIVILEGED_USER, "--hostname", "jail", "--workdir", program.CONTAINER_FOLDER),
            *("--tmpfs", f"{program.CONTAINER_FOLDER}:rw,nosuid,nodev,noexec,mode=1777,size={MOST_BYTES}"),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(MOST_THREADS)),
            *("--entrypoint", "python3", self.image, "-I", "-S", "-X", "utf8", "-c", _module_source("once")),
        ]


class _ContainerRun:
    """One container, by the engine's command that started it and that stays until it has ended."""

    def __init__(self, engine: str, name: str, command: "subprocess.Popen[bytes]") -> None:
        self._engine = engine
        self._name = name
        self._command = command
        self._killing: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Have the container killed, without waiting for it: whoever cancels a run does not wait either."""
        if self._killing is None:
            self._killing = _start_command([self._engine, "kill", self._name])
            self._command.kill()  # it may be stuck with output that nobody wants any more

    def code(self) -> int:
        """Return the exit code; engines tell a signal as a code beyond 128."""
        code = self._command.poll()
        if code is None:
            return -signal.SIGKILL
        return code if code <= _SIGNAL_BASE else _SIGNAL_BASE - code

    def clear_away(self) -> None:
        """Leave nothing, not even a container that came to be after it was to be killed."""
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
    told: io.FileIO | None = None,
) -> "subprocess.Popen[bytes]":
    """Start an engine's command, which needs our environment to find its daemon."""
    streams = [subprocess.DEVNULL if stream is None else stream for stream in (given, printed, told)]
    return subprocess.Popen(command, stdin=streams[0], stdout=streams[1], stderr=streams[2], start_new_session=True)  # noqa: S603 - our own


def _prefixed_pipe(first: bytes, reads: io.FileIO) -> io.FileIO:
    """Return a pipe that holds this and then whatever comes from a descriptor, for as long as both sides are there."""
    reading, writing = os.pipe()
    source = io.FileIO(os.dup(reads.fileno()))
    Thread(
        target=_copy_stream, args=(first, source, io.FileIO(writing, "w")), name="container-pair", daemon=True
    ).start()
    return io.FileIO(reading)


def _copy_stream(first: bytes, source: io.FileIO, sink: io.FileIO) -> None:
    with source, sink, suppress(OSError):  # the reader has gone: so has whoever wanted this
        piece = first
        while piece:
            written = sink.write(piece)
            piece = piece[written:] or source.read(65_536)


def _container_input(order: ProgramRequest) -> bytes:
    """Return what the interpreter reads: a length, what is to be run and what runs it, the program's own input."""
    first = {
        "modules": {name: _module_source(name) for name in program.MODULES_NEEDED},
        "program": json.loads(order.sent),
        "allowance": {"memory": order.memory, "cpu_seconds": order.cpu_seconds},
    }
    data = json.dumps(first).encode()
    return f"{len(data):0{program.LENGTH_DIGITS}}".encode() + data + order.given


@cache
def _module_source(module: str) -> str:
    return (SANDBOX_FOLDER / program.PACKAGE / f"{module}.py").read_text(encoding="utf-8")
