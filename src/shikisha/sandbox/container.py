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

from shikisha.errors import ConfigError
from shikisha.sandbox import Limits
from shikisha.sandbox.cell import once
from shikisha.sandbox.jail import DEFAULT_LIMITS, Jail
from shikisha.sandbox.scratch import MOST_BYTES
from shikisha.sandbox.warden import HERE, MOST_THREADS, Order, Program, Talk, pipe, sealed
from shikisha.sandbox.watch import Watched

IMAGE = "python:3-slim"
_ENGINES = ("docker", "podman")
_PATIENCE = 20.0  # seconds for an engine to answer
_INTERPRETER = 64 * 2**20  # bytes that Python itself takes of a container's memory
_STRANGER = "65534:65534"
_OF_SIGNALS = 128  # an exit code beyond this tells a signal


def build(limits: Limits = DEFAULT_LIMITS, image: str = IMAGE) -> Jail:
    """Return a sandbox of containers; ConfigError when no engine answers or it lacks the image. Takes a moment."""
    return Jail(limits, warden=Containers(_engine(image), image))


def _engine(image: str) -> str:
    """Return the first engine that has the image."""
    troubles = []
    for name in _ENGINES:
        if (program := shutil.which(name)) is None:
            troubles.append(f"{name} is not installed")
        elif trouble := _asked(program, "info"):
            troubles.append(f"{name} does not answer: {trouble}")
        elif _asked(program, "image", "inspect", image):
            troubles.append(f"{name} has no image {image} (fetch it: {name} pull {image})")
        else:
            return program
    raise ConfigError("; ".join(troubles))


def _asked(program: str, *question: str) -> str | None:
    """Say why an engine does not answer a question with yes; None when it does."""
    try:
        subprocess.run([program, *question], capture_output=True, check=True, timeout=_PATIENCE)  # noqa: S603 - an engine
    except subprocess.CalledProcessError as error:
        return error.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class Containers:
    """Starts containers by the engine's own command."""

    engine: str
    image: str

    def close(self) -> None:
        """Do nothing: a container ends with its program."""

    @contextmanager
    def launched(self, order: Order, talk: Talk | None = None) -> Iterator[Program]:
        """Have a program run in a container; afterwards the container is gone. Two that talk share no folder."""
        name = f"shikisha-{token_hex(8)}"
        with ExitStack() as stack:
            given = stack.enter_context(sealed(_whole(order)) if talk is None else _fed(_whole(order), talk.reads))
            printed, printed_end = pipe(stack)
            told, told_end = pipe(stack)
            with printed_end, told_end:
                out = printed_end if talk is None else talk.writes
                process = _started(self._command(name, order), given, out, told_end)
            run = _Run(self.engine, name, process)
            stack.callback(run.clear_away)
            ended = os.pidfd_open(process.pid)
            stack.callback(os.close, ended)
            yield Program(Watched(printed, told, ended, run.kill, starting=_PATIENCE), run.code)

    def _command(self, name: str, order: Order) -> list[str]:
        memory = str(order.memory + _INTERPRETER)
        return [
            *(self.engine, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none"),
            *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--user", _STRANGER, "--hostname", "jail", "--workdir", once.FOLDER),
            *("--tmpfs", f"{once.FOLDER}:rw,nosuid,nodev,noexec,mode=1777,size={MOST_BYTES}"),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(MOST_THREADS)),
            *("--entrypoint", "python3", self.image, "-I", "-S", "-X", "utf8", "-c", _text("once")),
        ]


class _Run:
    """One container, by the engine's command that started it and that stays until it has ended."""

    def __init__(self, engine: str, name: str, command: "subprocess.Popen[bytes]") -> None:
        self._engine = engine
        self._name = name
        self._command = command
        self._killing: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Have the container killed, without waiting for it: whoever cancels a run does not wait either."""
        if self._killing is None:
            self._killing = _started([self._engine, "kill", self._name])
            self._command.kill()  # it may be stuck with output that nobody wants any more

    def code(self) -> int:
        """Return the exit code; engines tell a signal as a code beyond 128."""
        code = self._command.poll()
        if code is None:
            return -signal.SIGKILL
        return code if code <= _OF_SIGNALS else _OF_SIGNALS - code

    def clear_away(self) -> None:
        """Leave nothing, not even a container that came to be after it was to be killed."""
        if self._command.poll() is None:
            self.kill()
        self._command.wait()
        if self._killing is not None:
            self._killing.wait()
            _asked(self._engine, "rm", "--force", self._name)


def _started(
    command: Sequence[str],
    given: io.FileIO | None = None,
    printed: io.FileIO | None = None,
    told: io.FileIO | None = None,
) -> "subprocess.Popen[bytes]":
    """Start an engine's command, which needs our environment to find its daemon."""
    streams = [subprocess.DEVNULL if stream is None else stream for stream in (given, printed, told)]
    return subprocess.Popen(  # noqa: S603 - an engine
        command, stdin=streams[0], stdout=streams[1], stderr=streams[2], start_new_session=True
    )


def _fed(first: bytes, reads: io.FileIO) -> io.FileIO:
    """Return a pipe that holds this and then whatever comes from a descriptor, for as long as both sides are there."""
    reading, writing = os.pipe()
    source = io.FileIO(os.dup(reads.fileno()))
    Thread(target=_feed, args=(first, source, io.FileIO(writing, "w")), name="container-pair", daemon=True).start()
    return io.FileIO(reading)


def _feed(first: bytes, source: io.FileIO, sink: io.FileIO) -> None:
    with source, sink, suppress(OSError):  # the reader has gone: so has whoever wanted this
        piece = first
        while piece:
            written = sink.write(piece)
            piece = piece[written:] or source.read(65_536)


def _whole(order: Order) -> bytes:
    """Return what the interpreter reads: a length, what is to be run and what runs it, the program's own input."""
    first = {
        "modules": {name: _text(name) for name in once.NEEDED},
        "program": json.loads(order.sent),
        "allowance": {"memory": order.memory, "cpu_seconds": order.cpu_seconds},
    }
    data = json.dumps(first).encode()
    return f"{len(data):0{once.LENGTH}}".encode() + data + order.given


@cache
def _text(module: str) -> str:
    return (HERE / once.PACKAGE / f"{module}.py").read_text(encoding="utf-8")
