"""Run full Python in a jail of the kernel's: Landlock, a filter of system calls, resource limits, and no processes.

Invariants: a program has an environment of its own, no file but its own folder and the interpreter's library, no
network, no process beside its own, and ends within its limits; when its run is over, nothing of it is left. It needs no
privileges, no daemon and no namespaces. Programs run in processes that a small launcher forks (`cell.launcher`), since
forking from a threaded server is unsafe; a run costs a few milliseconds.

What a jail does not do: it shares the kernel with everybody, so that a hole in the kernel is a hole in the jail (a
micro-VM behind the same interface is the place for hostile strangers); a program can tell whether a file exists and how
large it is, the machine's name and its load; and what it says about itself is its own word (`cell.program`).

The launcher as seen from outside: starting it, having it launch programs, ending it.

Invariants: the launcher gets an empty environment and one socket; what a program gets to read is sealed, so that
nothing has to be written while it runs; every descriptor opened here is closed here, and every folder made here is
removed. Programs are killed by pidfd, never by a number that another process could have by then.

Run full Python in a jail that stands inside bubblewrap's namespaces: two walls where one is enough.

Invariant: all that holds of a jail holds here (the same launcher, the same confinement); beyond that a program sees no
file, process, user or network but its own, so that not even the existence of a file can be told. Needs the program
`bwrap`, and a system on which users may make namespaces. Deliberately absent: settings of bubblewrap's.
"""

import asyncio
import fcntl
import io
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from threading import Lock, Thread
from typing import Protocol

from shikisha.core.errors import ConfigError
from shikisha.sandbox import Execution, Inputs, SandboxLimits, SandboxScript, process_limits
from shikisha.sandbox.process_limits import MonitoredProcess, make_execution, monitor_process

SANDBOX_FOLDER = Path(__file__).parent
MOST_THREADS = 256
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from cell.launcher import main; main()"
_PATIENCE = 60.0  # seconds for the launcher to start, or to answer
_LONGEST_REPLY = 4_096
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """What one program is to get: what is sent to it, its standard input, bytes of memory, seconds of processor."""

    sent: bytes
    given: bytes
    memory: int
    cpu_seconds: int


@dataclass(frozen=True, slots=True)
class LinkedStreams:
    """What stands in for a program's standard input and output when it talks with another one.

    `folder`: the other one's, to be shared; None where there is no other yet, or none that could be shared.
    """

    reads: io.FileIO
    writes: io.FileIO
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A program's process, from outside: what can be watched, its exit code once it has ended, and its folder."""

    watched: MonitoredProcess
    code: Callable[[], int]
    folder: Path | None = None


class ProgramLauncher(Protocol):
    """Where programs come from that a sandbox runs."""

    def launch(
        self, order: ProgramRequest, talk: LinkedStreams | None = None
    ) -> AbstractContextManager[RunningProgram]:
        """Have a program launched; when the context is left it is dead and nothing is left of it.

        One that talks prints nothing that could be watched. ConfigError when that cannot be on this system, OSError
        when the system is short of something.
        """
        ...

    def close(self) -> None:
        """Give up what was needed for it. Every program ends."""
        ...


class ForkServerLauncher:
    """Keeps one launcher, started when it is first needed and again if it has died. `command` stands before Python.

    `command` is given the folder in which programs will have theirs.
    """

    def __init__(self, command: Callable[[Path], Sequence[str]] = lambda _: ()) -> None:
        self._command = command
        self._lock = Lock()
        self._launcher: _ForkServerProcess | None = None

    def close(self) -> None:
        """End the launcher, and with it every program."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.end()
                self._launcher = None

    @contextmanager
    def launch(self, order: ProgramRequest, talk: LinkedStreams | None = None) -> Iterator[RunningProgram]:
        """Have the launcher fork a process for a program; see `Warden`."""
        with ExitStack() as stack:
            launcher = self._open()
            try:
                program = launcher.launch(order, talk, stack)
            except ConnectionError:  # it was ended from outside: one more, then it is not ours to mend
                program = self._open(instead_of=launcher).launch(order, talk, stack)
            stack.callback(program.watched.kill)
            yield program

    def _open(self, instead_of: "_ForkServerProcess | None" = None) -> "_ForkServerProcess":
        with self._lock:
            if self._launcher is instead_of and instead_of is not None:
                instead_of.end()
                self._launcher = None
            if self._launcher is None:
                self._launcher = _ForkServerProcess(self._command)
            return self._launcher


class _ForkServerProcess:
    """One launcher's process. It is ended by `end`, or with this object, or with our process, however that ends."""

    def __init__(self, command: Callable[[Path], Sequence[str]]) -> None:
        self._base, lock = process_limits.claim_folder("jail")
        self._base.chmod(0o711)  # the launcher may be another user's; each folder in it is for one program alone
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors, errors_end = os.pipe()
        self._errors = io.FileIO(errors)
        with theirs, io.FileIO(errors_end, "w") as written:
            try:
                whole = [*command(self._base), *_python_command(self._base, theirs.fileno())]
                process = _start_process(whole, theirs.fileno(), written)
            except OSError:
                self._control.close()
                self._errors.close()
                process_limits.remove_folder(self._base)
                os.close(lock)
                raise
        self.end = weakref.finalize(self, _end_process, process, self._control, (self._base, lock), os.getpid())
        self._user = self._greeted()

    def launch(self, order: ProgramRequest, talk: LinkedStreams | None, stack: ExitStack) -> RunningProgram:
        """Have a program launched; what it needs is put on the stack. ConnectionError when the launcher is gone."""
        folder = talk.folder if talk is not None and talk.folder is not None else self._folder(stack)
        printed, printed_end = open_pipe(stack)
        told, told_end = open_pipe(stack)
        word, word_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(word)
        with word_end, printed_end, told_end, sealed_file(order.given) as given, sealed_file(order.sent) as sent:
            message = {"folder": str(folder), "memory": order.memory, "cpu_seconds": order.cpu_seconds}
            streams = (given, printed_end) if talk is None else (talk.reads, talk.writes)
            ends = [end.fileno() for end in (*streams, sent, told_end, word_end)]
            socket.send_fds(self._control, [json.dumps(message).encode()], ends)
        pidfd = _receive_pidfd(word)
        stack.callback(os.close, pidfd)
        process = _process_id(pidfd)
        watched = MonitoredProcess(
            printed, told, pidfd, lambda: _kill_pidfd(pidfd), lambda: _limit_excess(process, folder)
        )
        return RunningProgram(watched, lambda: _exit_code(word), folder)

    def _greeted(self) -> int:
        """Wait for the launcher to say as which user it is ready; ConfigError when it says that it cannot be."""
        self._control.settimeout(_PATIENCE)
        try:
            greeting = json.loads(self._control.recv(_LONGEST_REPLY) or "{}")
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
        stack.callback(process_limits.remove_folder, folder)
        if self._user != os.geteuid():
            os.chown(folder, self._user, self._user)
        return folder


def interpreter_path() -> str:
    """Return the path of the interpreter itself, not of a link to it in a virtual environment."""
    if not sys.executable:
        raise ConfigError("a jail starts Python by its path, and this interpreter does not know its own")
    return os.path.realpath(sys.executable)


def _python_command(base: Path, control: int) -> list[str]:
    return [interpreter_path(), "-I", "-S", "-X", "utf8", "-c", _BOOT, str(SANDBOX_FOLDER), str(control), str(base)]


def _start_process(command: Sequence[str], control: int, errors: io.FileIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - an engine
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={},
        cwd="/",
        pass_fds=(control,),
        start_new_session=True,  # Ctrl-C is for us to see first
    )


def _end_process(
    process: subprocess.Popen[bytes], control: socket.socket, claimed: tuple[Path, int], owner: int
) -> None:
    control.close()
    base, lock = claimed
    if os.getpid() != owner:  # a fork of ours
        return
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process_limits.remove_folder(base)
    os.close(lock)


def open_pipe(stack: ExitStack) -> tuple[int, io.FileIO]:
    """Return the end to read, which is closed with the stack, and the end to give away."""
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    return reading, io.FileIO(writing, "w")


def sealed_file(data: bytes) -> io.FileIO:
    """Return a file in memory that holds this and that nobody can change."""
    file = io.FileIO(os.memfd_create("given", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+")
    while data:
        data = data[file.write(data) :]
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    file.seek(0)
    return file


def _receive_pidfd(word: socket.socket) -> int:
    """Wait for the launcher's word and return the pidfd of the process that it made."""
    word.settimeout(_PATIENCE)
    message, descriptors, _, _ = socket.recv_fds(word, _LONGEST_REPLY, 1)
    if not message:
        raise ConnectionResetError("the launcher was ended")
    if not descriptors:
        raise OSError(str(json.loads(message)["problem"]))
    return descriptors[0]


def _exit_code(word: socket.socket) -> int:
    """Return a program's exit code, or the negative number of its signal; SIGKILL when the launcher was ended too."""
    try:
        return int(json.loads(word.recv(_LONGEST_REPLY))["code"])
    except (OSError, ValueError):
        return -signal.SIGKILL


def _process_id(pidfd: int) -> int:
    """Return the process's number as we see it; in a namespace of its own it has another."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


def _kill_pidfd(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _limit_excess(process: int, folder: Path) -> str | None:
    with suppress(OSError):
        threads = os.stat(f"/proc/{process}/task").st_nlink - 2
        if threads > MOST_THREADS:
            return f"more than {MOST_THREADS} threads were started"
    return process_limits.folder_excess(folder)


FULL_PYTHON_LIMITS = SandboxLimits(seconds=5.0, memory=512 * 2**20, output=100_000, depth=1_000)


class ProcessSandbox:
    """Runs each program in a process of its own, at most `processes` of them at once.

    `memory` is what a program may map beside the interpreter itself. Nothing is started before the first run;
    ConfigError then, when this system can confine nobody. `aclose` ends the launcher; without it, it ends with us.
    """

    def __init__(
        self,
        limits: SandboxLimits = FULL_PYTHON_LIMITS,
        processes: int | None = None,
        warden: ProgramLauncher | None = None,
    ) -> None:
        self.limits = limits
        self._warden = warden or ForkServerLauncher()
        self._threads = ThreadPoolExecutor(processes or min(4, os.cpu_count() or 1), thread_name_prefix="jail")

    async def __aenter__(self) -> "ProcessSandbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for what is running and end the launcher; the sandbox cannot be used any more."""
        await asyncio.to_thread(self._close)

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:
        """Run code with these names bound and this text on standard input."""
        job = _SandboxJob()
        order = self._order(code, inputs, stdin)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._perform, order, job)
        except asyncio.CancelledError:
            job.cancel()
            raise

    async def run_pair(self, first: SandboxScript, second: SandboxScript) -> tuple[Execution, Execution]:
        """Run two programs in two jails that have a folder in common, and a pipe each way."""
        job = _SandboxJob()
        orders = self._order(first.code, first.inputs, ""), self._order(second.code, second.inputs, "")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._perform_pair, orders, job)
        except asyncio.CancelledError:
            job.cancel()
            raise

    def _order(self, code: str, inputs: Inputs, stdin: str) -> ProgramRequest:
        limits = self.limits
        sent = {"code": code, "inputs": dict(inputs), "depth": limits.depth, "output": limits.output}
        cpu_seconds = math.ceil(limits.seconds * (os.cpu_count() or 1)) + 1  # for the case that nobody watches any more
        return ProgramRequest(
            json.dumps(sent).encode(), stdin.encode(errors="surrogatepass"), limits.memory, cpu_seconds
        )

    def _perform(self, order: ProgramRequest, job: "_SandboxJob") -> Execution:
        try:
            with self._warden.launch(order) as program, job.bind_kill(program.watched.kill):
                return self._ended(program)
        except OSError as error:
            return Execution(error=f"the program could not be started: {error}")

    def _perform_pair(
        self, orders: tuple[ProgramRequest, ProgramRequest], job: "_SandboxJob"
    ) -> tuple[Execution, Execution]:
        """Run both; the second is watched in a thread of its own, for its limits are its own too."""
        ended: list[Execution] = []
        try:
            with ExitStack() as stack:
                program, other = self._launch_pair(orders, stack)
                stack.enter_context(job.bind_kill(program.watched.kill))
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

    def _launch_pair(
        self, orders: tuple[ProgramRequest, ProgramRequest], stack: ExitStack
    ) -> tuple[RunningProgram, RunningProgram]:
        """Launch both with nothing of theirs left open here: each must see it when the other has ended."""
        with ExitStack() as ends:
            (reads, others_writes), (others_reads, writes) = _open_file_pipe(ends), _open_file_pipe(ends)
            program = stack.enter_context(self._warden.launch(orders[0], LinkedStreams(reads, writes)))
            talk = LinkedStreams(others_reads, others_writes, program.folder)
            return program, stack.enter_context(self._warden.launch(orders[1], talk))

    def _ended(self, program: RunningProgram) -> Execution:
        ending = monitor_process(program.watched, self.limits)
        return make_execution(ending, program.code(), self.limits)

    def _close(self) -> None:
        self._threads.shutdown()
        self._warden.close()


def _open_file_pipe(stack: ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """Return the end to read and the end to write, to be closed with the stack."""
    reading, writing = os.pipe()
    return stack.enter_context(io.FileIO(reading)), stack.enter_context(io.FileIO(writing, "w"))


class _SandboxJob:
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
    def bind_kill(self, kill: Callable[[], None]) -> Iterator[None]:
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


_BWRAP = "bwrap"


def bubblewrap_sandbox(limits: SandboxLimits = FULL_PYTHON_LIMITS) -> ProcessSandbox:
    """Return a jail inside bubblewrap; ConfigError when bubblewrap is not installed."""
    program = shutil.which(_BWRAP)
    if program is None:
        raise ConfigError(f"there is no program {_BWRAP}: install the package bubblewrap")
    return ProcessSandbox(limits, warden=ForkServerLauncher(lambda base: bubblewrap_command(program, base)))


def bubblewrap_command(program: str, base: Path) -> Sequence[str]:
    """Return what stands before Python: namespaces of all kinds, and no file but what is named here."""
    from shikisha.sandbox.child.confinement import readable_paths

    seen = [*readable_paths(), interpreter_path(), str(SANDBOX_FOLDER / "cell")]
    return [
        *(program, "--unshare-all", "--cap-drop", "ALL", "--clearenv", "--hostname", "jail"),
        *(word for path in seen for word in ("--ro-bind", path, path)),
        *("--proc", "/proc", "--dev", "/dev", "--bind", str(base), str(base), "--chdir", "/", "--"),
    ]
