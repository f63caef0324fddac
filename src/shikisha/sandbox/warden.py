"""The launcher as seen from outside: starting it, having it launch programs, ending it.

Invariants: the launcher gets an empty environment and one socket; what a program gets to read is sealed, so that
nothing has to be written while it runs; every descriptor opened here is closed here, and every folder made here is
removed. Programs are killed by pidfd, never by a number that another process could have by then.
"""

import fcntl
import io
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Protocol

from shikisha.errors import ConfigError
from shikisha.sandbox import scratch
from shikisha.sandbox.watch import Watched

HERE = Path(__file__).parent
MOST_THREADS = 256
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from cell.launcher import main; main()"
_PATIENCE = 60.0  # seconds for the launcher to start, or to answer
_LONGEST_WORD = 4_096
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, slots=True)
class Order:
    """What one program is to get: what is sent to it, its standard input, bytes of memory, seconds of processor."""

    sent: bytes
    given: bytes
    memory: int
    cpu_seconds: int


@dataclass(frozen=True, slots=True)
class Talk:
    """What stands in for a program's standard input and output when it talks with another one.

    `folder`: the other one's, to be shared; None where there is no other yet, or none that could be shared.
    """

    reads: io.FileIO
    writes: io.FileIO
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A program's process, from outside: what can be watched, its exit code once it has ended, and its folder."""

    watched: Watched
    code: Callable[[], int]
    folder: Path | None = None


class Warden(Protocol):
    """Where programs come from that a sandbox runs."""

    def launched(self, order: Order, talk: Talk | None = None) -> AbstractContextManager[Program]:
        """Have a program launched; when the context is left it is dead and nothing is left of it.

        One that talks prints nothing that could be watched. ConfigError when that cannot be on this system, OSError
        when the system is short of something.
        """
        ...

    def close(self) -> None:
        """Give up what was needed for it. Every program ends."""
        ...


class Forking:
    """Keeps one launcher, started when it is first needed and again if it has died. `command` stands before Python.

    `command` is given the folder in which programs will have theirs.
    """

    def __init__(self, command: Callable[[Path], Sequence[str]] = lambda _: ()) -> None:
        self._command = command
        self._lock = Lock()
        self._launcher: _Launcher | None = None

    def close(self) -> None:
        """End the launcher, and with it every program."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.end()
                self._launcher = None

    @contextmanager
    def launched(self, order: Order, talk: Talk | None = None) -> Iterator[Program]:
        """Have the launcher fork a process for a program; see `Warden`."""
        with ExitStack() as stack:
            launcher = self._open()
            try:
                program = launcher.launch(order, talk, stack)
            except ConnectionError:  # it was ended from outside: one more, then it is not ours to mend
                program = self._open(instead_of=launcher).launch(order, talk, stack)
            stack.callback(program.watched.kill)
            yield program

    def _open(self, instead_of: "_Launcher | None" = None) -> "_Launcher":
        with self._lock:
            if self._launcher is instead_of and instead_of is not None:
                instead_of.end()
                self._launcher = None
            if self._launcher is None:
                self._launcher = _Launcher(self._command)
            return self._launcher


class _Launcher:
    """One launcher's process. It is ended by `end`, or with this object, or with our process, however that ends."""

    def __init__(self, command: Callable[[Path], Sequence[str]]) -> None:
        self._base, lock = scratch.claim("jail")
        self._base.chmod(0o711)  # the launcher may be another user's; each folder in it is for one program alone
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors, errors_end = os.pipe()
        self._errors = io.FileIO(errors)
        with theirs, io.FileIO(errors_end, "w") as written:
            try:
                whole = [*command(self._base), *_python(self._base, theirs.fileno())]
                process = _started(whole, theirs.fileno(), written)
            except OSError:
                self._control.close()
                self._errors.close()
                scratch.remove(self._base)
                os.close(lock)
                raise
        self.end = weakref.finalize(self, _end, process, self._control, (self._base, lock), os.getpid())
        self._user = self._greeted()

    def launch(self, order: Order, talk: Talk | None, stack: ExitStack) -> Program:
        """Have a program launched; what it needs is put on the stack. ConnectionError when the launcher is gone."""
        folder = talk.folder if talk is not None and talk.folder is not None else self._folder(stack)
        printed, printed_end = pipe(stack)
        told, told_end = pipe(stack)
        word, word_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(word)
        with word_end, printed_end, told_end, sealed(order.given) as given, sealed(order.sent) as sent:
            message = {"folder": str(folder), "memory": order.memory, "cpu_seconds": order.cpu_seconds}
            streams = (given, printed_end) if talk is None else (talk.reads, talk.writes)
            ends = [end.fileno() for end in (*streams, sent, told_end, word_end)]
            socket.send_fds(self._control, [json.dumps(message).encode()], ends)
        pidfd = _process_of(word)
        stack.callback(os.close, pidfd)
        process = _number(pidfd)
        watched = Watched(printed, told, pidfd, lambda: _kill(pidfd), lambda: _excess(process, folder))
        return Program(watched, lambda: _code(word), folder)

    def _greeted(self) -> int:
        """Wait for the launcher to say as which user it is ready; ConfigError when it says that it cannot be."""
        self._control.settimeout(_PATIENCE)
        try:
            greeting = json.loads(self._control.recv(_LONGEST_WORD) or "{}")
        except OSError as error:
            greeting = {"problem": f"its launcher does not answer ({error})"}
        self._control.settimeout(None)
        with self._errors:
            if "user" in greeting:
                return int(greeting["user"])
            self.end()
            words = self._errors.read(65_536).decode(errors="replace").strip().rpartition("\n")[2] or "it says nothing"
            raise ConfigError(str(greeting.get("problem") or f"its launcher could not start: {words}"))

    def _folder(self, stack: ExitStack) -> Path:
        folder = self._base / token_hex(8)
        folder.mkdir(mode=0o700)
        stack.callback(scratch.remove, folder)
        if self._user != os.geteuid():
            os.chown(folder, self._user, self._user)
        return folder


def interpreter() -> str:
    """Return the path of the interpreter itself, not of a link to it in a virtual environment."""
    if not sys.executable:
        raise ConfigError("a jail starts Python by its path, and this interpreter does not know its own")
    return os.path.realpath(sys.executable)


def _python(base: Path, control: int) -> list[str]:
    return [interpreter(), "-I", "-S", "-X", "utf8", "-c", _BOOT, str(HERE), str(control), str(base)]


def _started(command: Sequence[str], control: int, errors: io.FileIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter and code
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={},
        cwd="/",
        pass_fds=(control,),
        start_new_session=True,  # Ctrl-C is for us to see first
    )


def _end(process: subprocess.Popen[bytes], control: socket.socket, claimed: tuple[Path, int], owner: int) -> None:
    control.close()
    base, lock = claimed
    if os.getpid() != owner:  # a fork of ours
        return
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    scratch.remove(base)
    os.close(lock)


def pipe(stack: ExitStack) -> tuple[int, io.FileIO]:
    """Return the end to read, which is closed with the stack, and the end to give away."""
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    return reading, io.FileIO(writing, "w")


def sealed(data: bytes) -> io.FileIO:
    """Return a file in memory that holds this and that nobody can change."""
    file = io.FileIO(os.memfd_create("given", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+")
    while data:
        data = data[file.write(data) :]
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    file.seek(0)
    return file


def _process_of(word: socket.socket) -> int:
    """Wait for the launcher's word and return the pidfd of the process that it made."""
    word.settimeout(_PATIENCE)
    message, descriptors, _, _ = socket.recv_fds(word, _LONGEST_WORD, 1)
    if not message:
        raise ConnectionResetError("the launcher was ended")
    if not descriptors:
        raise OSError(str(json.loads(message)["problem"]))
    return descriptors[0]


def _code(word: socket.socket) -> int:
    """Return a program's exit code, or the negative number of its signal; SIGKILL when the launcher was ended too."""
    try:
        return int(json.loads(word.recv(_LONGEST_WORD))["code"])
    except (OSError, ValueError):
        return -signal.SIGKILL


def _number(pidfd: int) -> int:
    """Return the process's number as we see it; in a namespace of its own it has another."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


def _kill(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _excess(process: int, folder: Path) -> str | None:
    with suppress(OSError):
        threads = os.stat(f"/proc/{process}/task").st_nlink - 2
        if threads > MOST_THREADS:
            return f"more than {MOST_THREADS} threads were started"
    return scratch.excess(folder)
