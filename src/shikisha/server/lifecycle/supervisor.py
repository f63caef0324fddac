"""Several server processes behind one port: the parent starts them, starts ended ones again, and passes signals on.

Each process is a whole server with a member of its own, as if on a machine of its own; they share the journal and the
port (SO_REUSEPORT), over which the kernel spreads connections. Invariants: the parent serves nothing and opens no
journal, so nothing that a request does can end it; the port stays the parent's while processes come and go; a process
that says at its start that the configuration is unusable is not started again; none outlives the parent. Limits of
`[server]` and of workers hold for each process. Elsewhere than on Linux and BSD no two sockets listen on a port.
"""

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from types import FrameType

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field

PROCESS_VARIABLE = "SHIKISHA_SERVER_PROCESS"  # in a child's environment: "port", or "port pipe" for the first one
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before a process that ended is started again
_HEALTHY_SECONDS = 60.0  # of a life after which an end counts as the first one
_LOOK_SECONDS = 0.1
_FINAL_STATUSES = (2, 3)  # of exits that a restart would repeat: wrong options, an unusable configuration
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """That this process is one of several on a port; the first announces itself through a pipe before others start."""

    port: int
    pipe: int | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "ProcessPlace | None":
        """Return what the parent told this process; None where it is the only one."""
        port, _, pipe = environment.get(PROCESS_VARIABLE, "").partition(" ")
        return cls(int(port), int(pipe) if pipe.isdecimal() else None) if port.isdecimal() else None

    def announce(self) -> bool:
        """Tell the parent that this process serves; return whether it is the one that tells people so."""
        if self.pipe is None:
            return False
        os.write(self.pipe, b"1")
        os.close(self.pipe)
        return True


def end_with_parent() -> None:
    """Have this process told to stop when its parent is gone, where the kernel can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a socket that holds a port for the processes, and does not listen; ConfigError when it cannot be had."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("server: several processes need SO_REUSEPORT, which this system lacks; use --processes 1")
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Raise OSError when another server listens there: sharing its port would halve its connections unasked.
        if port:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except OSError as error:
        held.close()
        raise ConfigError(f"server: cannot listen on {host}, port {port}: {error.strerror}") from error
    return held


@dataclass(slots=True)
class _Child:
    """A process, or the pause before its next start."""

    place: int
    process: "subprocess.Popen[bytes] | None" = None
    began: float = 0.0
    due: float = 0.0
    pause: float = _FIRST_PAUSE


@dataclass(slots=True)
class Supervisor:
    """The parent of `count` server processes; `start` makes one of what its environment says and the pipe it gets."""

    port: int
    count: int
    start: Callable[[Mapping[str, str], Sequence[int]], "subprocess.Popen[bytes]"]
    _children: list[_Child] = field(default_factory=list)
    _stopping: bool = False

    def run(self) -> int:
        """Keep the processes running until told to stop; return the exit status of the first that says why it cannot.

        A SIGTERM or SIGINT is passed on as SIGTERM, and so is the next, which ends the servers at once; SIGHUP too is
        passed on. The status is 0 after an orderly stop.
        """
        handled = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
        before = {number: signal.signal(number, self._pass_on) for number in handled}
        try:
            # Start the first process and wait until it serves: it alone makes the journal and shows the first key.
            hears, tells = os.pipe()
            try:
                child = _Child(0)
                self._children = [child]
                child.process = self.start({PROCESS_VARIABLE: f"{self.port} {tells}"}, (tells,))
                child.began = monotonic()
            finally:
                os.close(tells)
            with os.fdopen(hears, "rb") as pipe:
                pipe.read(1)  # ends with the process too: `_look` finds out how
            self._children += [_Child(place) for place in range(1, self.count)]
            while status := self._look():
                if status > 0:
                    return status
                sleep(_LOOK_SECONDS)
            return 0
        finally:
            for child in self._children:
                if child.process is not None and child.process.poll() is None:
                    child.process.terminate()
            for child in self._children:
                if child.process is not None:
                    child.process.wait()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _begin(self, child: _Child) -> None:
        child.process, child.began = self.start({PROCESS_VARIABLE: str(self.port)}, ()), monotonic()

    def _look(self) -> int:
        """Note ends and start what is due; return the status to end with, 0 when all have ended, or -1 to go on."""
        now = monotonic()
        for child in self._children:
            status = None if child.process is None else child.process.poll()
            if status is not None:
                lived, child.process = now - child.began, None
                if self._stopping:
                    continue
                if status in _FINAL_STATUSES:
                    return status
                child.pause = _FIRST_PAUSE if lived >= _HEALTHY_SECONDS else child.pause
                child.due = now + child.pause
                _LOG.warning("server process %d ended (%d); it is started again", child.place, status)
                child.pause = min(2 * child.pause, _LONGEST_PAUSE)
            elif child.process is None and not self._stopping and now >= child.due:
                self._begin(child)
        return -1 if not self._stopping or any(child.process for child in self._children) else 0

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        hangup = number == getattr(signal, "SIGHUP", None)
        self._stopping = self._stopping or not hangup
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(number if hangup else signal.SIGTERM)


def run_processes(host: str, port: int, count: int, command: Sequence[str] = ()) -> int:
    """Serve by `count` processes of this very command behind one port; return the exit status."""
    own = list(command) or [sys.executable, *sys.orig_argv[1:]]

    def start(told: Mapping[str, str], pipe: Sequence[int]) -> "subprocess.Popen[bytes]":
        # In a session of its own: Ctrl-C at a terminal reaches the parent only, which passes it on once.
        return subprocess.Popen(own, env={**os.environ, **told}, pass_fds=pipe, start_new_session=True)  # noqa: S603

    with reserve_port(host, port) as held:
        return Supervisor(held.getsockname()[1], count, start).run()
