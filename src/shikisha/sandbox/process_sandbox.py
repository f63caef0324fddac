"""Run full Python in a confined process: Landlock, a seccomp filter, resource limits, and no child processes.

Why our own, when bubblewrap exists: bubblewrap limits neither processes nor their summed memory, and needs an installed
program and user namespaces, which some systems forbid. This needs neither, nor privileges, nor a daemon; it blocks all
16 attacks of `security_probes`, and a run takes 12 ms where a bare `python -I -S` takes 9. A fork server
(`child.fork_server`) forks the processes, since forking from a threaded server is unsafe. `bubblewrap_sandbox` puts the
same processes inside bubblewrap's namespaces, as a second wall.

Invariants: a program has an environment of its own, no file but its own folder and the interpreter's library, no
network, and no process but its own. It ends within its limits, and nothing of it remains. The fork server gets an
empty environment and one socket. A program's input is sealed, so nothing has to be written while it runs. Every
descriptor opened here is closed here, and every folder made here is removed. Processes are killed by pidfd, never by a
number that another process may have by then.

What this does not do: it shares the kernel, so a hole in the kernel is a hole in the sandbox (use a micro-VM behind the
same interface against hostile strangers). Without bubblewrap a program can tell whether a file exists and how large it
is, the machine's name and its load. What it reports about itself is its own word (`child.program`).
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
import sysconfig
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from threading import Lock, Thread
from typing import Protocol

from shikisha.core.errors import ConfigError
from shikisha.core.fair_work import FairExecutor
from shikisha.core.fast_dataclass import dataclass
from shikisha.sandbox import FULL_PYTHON_LIMITS, Execution, Inputs, SandboxLimits, SandboxScript
from shikisha.sandbox.child.confinement import readable_paths
from shikisha.sandbox.process_limits import (
    MonitoredProcess,
    claim_folder,
    folder_excess,
    make_execution,
    monitor_process,
    remove_folder,
)

SANDBOX_FOLDER = Path(__file__).parent
MOST_THREADS = 256
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from child.fork_server import main; main()"
# Seconds for the fork server to start, or to answer.
_PATIENCE = 60.0
_LONGEST_REPLY = 4_096
LINKED = "packages"  # the folder of links to installed packages
# What published tasksets import, and what that imports; a program may import those that are installed here.
OFFERED_PACKAGES = (
    *("numpy", "pandas", "scipy", "sklearn", "scikit_learn", "sympy", "networkx", "matplotlib", "seaborn", "PIL"),
    *("statsmodels", "mpmath", "dateutil", "pytz", "tzdata", "six", "joblib", "threadpoolctl", "narwhals", "patsy"),
    *("packaging", "mpl_toolkits", "contourpy", "cycler", "fontTools", "kiwisolver", "pyparsing", "pillow", "regex"),
    *("yaml", "bs4", "soupsieve", "lxml", "nltk", "click", "tqdm", "requests", "urllib3", "idna", "certifi", "chardet"),
    *("charset_normalizer", "typing_extensions", "xlrd", "openpyxl", "et_xmlfile"),
)


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """What one program gets: code and inputs as JSON, its standard input, bytes of memory, seconds of CPU time."""

    sent: bytes
    given: bytes
    memory: int
    cpu_seconds: int


@dataclass(frozen=True, slots=True)
class LinkedStreams:
    """Pipes to another program in place of standard input and output.

    `folder`: the other program's, to be shared; None if there is none yet, or none that can be shared.
    """

    reads: io.FileIO
    writes: io.FileIO
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A program's process from outside: what can be watched, its exit code once it has ended, and its folder."""

    process: MonitoredProcess
    code: Callable[[], int]
    folder: Path | None = None


class ProgramLauncher(Protocol):
    """Starts the programs that a sandbox runs."""

    def launch(
        self, request: ProgramRequest, linked: LinkedStreams | None = None
    ) -> AbstractContextManager[RunningProgram]:
        """Start a program; when the context ends, it is dead and nothing of it remains.

        A program with linked streams prints nothing that can be watched. ConfigError when this system cannot confine
        it, OSError when the system lacks a resource.
        """
        ...

    def close(self) -> None:
        """Release all resources. Every program ends."""
        ...


class ProcessSandbox:
    """Runs each program in a process of its own, at most `processes` at once of one owner of work, and one more.

    `memory` is what a program may map beyond the interpreter itself. Nothing starts before the first run, which raises
    ConfigError when this system cannot confine programs. `aclose` ends the fork server; otherwise it ends with us.
    """

    def __init__(
        self,
        limits: SandboxLimits = FULL_PYTHON_LIMITS,
        processes: int | None = None,
        launcher: ProgramLauncher | None = None,
    ) -> None:
        self.limits = limits
        self._launcher = launcher or ForkServerLauncher()
        self._threads = FairExecutor("jail", processes or min(4, os.cpu_count() or 1))

    async def __aenter__(self) -> "ProcessSandbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for running programs and end the fork server; the sandbox cannot be used afterwards."""
        await asyncio.to_thread(self._close)

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:
        """Run code with these names bound and this text on standard input."""
        job = _SandboxJob()
        request = self._request(code, inputs, stdin)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._perform, request, job)
        except asyncio.CancelledError:
            job.cancel()
            raise

    async def run_pair(
        self, first: SandboxScript, second: SandboxScript, *, share: bool = True
    ) -> tuple[Execution, Execution]:
        """Run two confined programs that are connected by a pipe each way, and may share a folder."""
        job = _SandboxJob()
        requests = self._request(first.code, first.inputs, ""), self._request(second.code, second.inputs, "")
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._perform_pair, requests, job, share
            )
        except asyncio.CancelledError:
            job.cancel()
            raise

    def _request(self, code: str, inputs: Inputs, stdin: str) -> ProgramRequest:
        limits = self.limits
        sent = {"code": code, "inputs": dict(inputs), "depth": limits.depth, "output": limits.output}
        # A backstop in case our own watching ends.
        cpu_seconds = math.ceil(limits.seconds * (os.cpu_count() or 1)) + 1
        return ProgramRequest(
            json.dumps(sent).encode(), stdin.encode(errors="surrogatepass"), limits.memory, cpu_seconds
        )

    def _perform(self, request: ProgramRequest, job: "_SandboxJob") -> Execution:
        try:
            with self._launcher.launch(request) as program, job.bind_kill(program.process.kill):
                return self._ended(program)
        except OSError as error:
            return Execution(error=f"the program could not be started: {error}")

    def _perform_pair(
        self, requests: tuple[ProgramRequest, ProgramRequest], job: "_SandboxJob", share: bool
    ) -> tuple[Execution, Execution]:
        """Run both; the second is watched in a thread of its own, since it has limits of its own."""
        ended: list[Execution] = []
        try:
            with ExitStack() as stack:
                program, other = self._launch_pair(requests, stack, share)
                stack.enter_context(job.bind_kill(program.process.kill))
                follower = Thread(target=lambda: ended.append(self._ended(other)), name="jail-pair")
                follower.start()
                try:
                    execution = self._ended(program)
                finally:
                    other.process.kill()
                    follower.join()
        except OSError as error:
            problem = Execution(error=f"the program could not be started: {error}")
            return problem, problem
        return execution, ended[0]

    def _launch_pair(
        self, requests: tuple[ProgramRequest, ProgramRequest], stack: ExitStack, share: bool
    ) -> tuple[RunningProgram, RunningProgram]:
        """Start both and keep none of their descriptors open here: each must notice the end of the other."""
        with ExitStack() as ends:
            (reads, others_writes), (others_reads, writes) = _open_file_pipe(ends), _open_file_pipe(ends)
            program = stack.enter_context(self._launcher.launch(requests[0], LinkedStreams(reads, writes)))
            linked = LinkedStreams(others_reads, others_writes, program.folder if share else None)
            return program, stack.enter_context(self._launcher.launch(requests[1], linked))

    def _ended(self, program: RunningProgram) -> Execution:
        ending = monitor_process(program.process, self.limits)
        return make_execution(ending, program.code(), self.limits)

    def _close(self) -> None:
        self._threads.shutdown()
        self._launcher.close()


def _open_file_pipe(stack: ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """Return the reading and the writing end, which the stack closes."""
    reading, writing = os.pipe()
    return stack.enter_context(io.FileIO(reading)), stack.enter_context(io.FileIO(writing, "w"))


class _SandboxJob:
    """One run, on one thread; `cancel` may be called from another thread at any time."""

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
        """Let `cancel` use this function while the context lasts."""
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
    """Return a process sandbox inside bubblewrap; ConfigError when bubblewrap is not installed."""
    program = shutil.which(_BWRAP)
    if program is None:
        raise ConfigError(f"there is no program {_BWRAP}: install the package bubblewrap")
    return ProcessSandbox(limits, launcher=ForkServerLauncher(lambda base: bubblewrap_command(program, base)))


def bubblewrap_command(program: str, base: Path) -> Sequence[str]:
    """Return the command before Python: all namespaces, and only the files named here."""
    seen = [*readable_paths(str(base / LINKED)), interpreter_path(), str(SANDBOX_FOLDER / "child")]
    return [
        *(program, "--unshare-all", "--cap-drop", "ALL", "--clearenv", "--hostname", "jail"),
        *(reply for path in seen for reply in ("--ro-bind", path, path)),
        *("--proc", "/proc", "--dev", "/dev", "--bind", str(base), str(base), "--chdir", "/", "--"),
    ]


class ForkServerLauncher:
    """Keeps one fork server, started when it is first needed and again if it has died.

    `command` returns the words before Python on the command line, for the folder that holds the programs' folders.
    """

    def __init__(self, command: Callable[[Path], Sequence[str]] = lambda _: ()) -> None:
        self._command = command
        self._lock = Lock()
        self._server: _ForkServerProcess | None = None

    def close(self) -> None:
        """End the fork server, and with it every program."""
        with self._lock:
            if self._server is not None:
                self._server.end()
                self._server = None

    @contextmanager
    def launch(self, request: ProgramRequest, linked: LinkedStreams | None = None) -> Iterator[RunningProgram]:
        """Have the fork server fork a process for a program; see `ProgramLauncher`."""
        with ExitStack() as stack:
            server = self._open()
            try:
                program = server.launch(request, linked, stack)
            except ConnectionError:  # it was killed from outside: try once more, and only once
                program = self._open(instead_of=server).launch(request, linked, stack)
            stack.callback(program.process.kill)
            yield program

    def _open(self, instead_of: "_ForkServerProcess | None" = None) -> "_ForkServerProcess":
        with self._lock:
            if self._server is instead_of and instead_of is not None:
                instead_of.end()
                self._server = None
            if self._server is None:
                self._server = _ForkServerProcess(self._command)
            return self._server


class _ForkServerProcess:
    """A fork server's process. It ends by `end`, with this object, or with our process, however that ends."""

    def __init__(self, command: Callable[[Path], Sequence[str]]) -> None:
        self._base, lock = claim_folder("jail")
        # The fork server may run as another user; each folder in it is for one program.
        self._base.chmod(0o711)
        # Link to the installed packages that programs may import, with the libraries that they bring.
        folder = self._base / LINKED
        folder.mkdir(mode=0o755)
        for site in map(Path, (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))):
            for name in OFFERED_PACKAGES:
                for found in (site / name, site / f"{name}.libs", site / f"{name}.py"):
                    if found.exists() and not (folder / found.name).exists():
                        (folder / found.name).symlink_to(found)
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
                remove_folder(self._base)
                os.close(lock)
                raise
        self.end = weakref.finalize(self, _end_process, process, self._control, (self._base, lock), os.getpid())
        self._user = self._wait_until_ready()

    def launch(self, request: ProgramRequest, linked: LinkedStreams | None, stack: ExitStack) -> RunningProgram:
        """Start a program; the stack cleans up after it. ConnectionError when the fork server is gone."""
        folder = linked.folder if linked is not None and linked.folder is not None else self._folder(stack)
        printed, printed_end = open_pipe(stack)
        report, report_end = open_pipe(stack)
        reply, reply_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(reply)
        with reply_end, printed_end, report_end, sealed_file(request.given) as given, sealed_file(request.sent) as sent:
            message = {"folder": str(folder), "memory": request.memory, "cpu_seconds": request.cpu_seconds}
            streams = (given, printed_end) if linked is None else (linked.reads, linked.writes)
            ends = [end.fileno() for end in (*streams, sent, report_end, reply_end)]
            socket.send_fds(self._control, [json.dumps(message).encode()], ends)
        pidfd = _receive_pidfd(reply)
        stack.callback(os.close, pidfd)
        process = _process_id(pidfd)
        watched = MonitoredProcess(
            printed, report, pidfd, lambda: _kill_pidfd(pidfd), lambda: _limit_excess(process, folder)
        )
        return RunningProgram(watched, lambda: _exit_code(reply), folder)

    def _wait_until_ready(self) -> int:
        """Wait until the fork server is ready, and return its user; ConfigError when it cannot confine programs."""
        self._control.settimeout(_PATIENCE)
        try:
            greeting = json.loads(self._control.recv(_LONGEST_REPLY) or "{}")
        except OSError as error:
            greeting = {"problem": f"its fork server does not answer ({error})"}
        self._control.settimeout(None)
        with self._errors:
            if "user" in greeting:
                return int(greeting["user"])
            self.end()
            words = self._errors.read(65_536).decode(errors="replace").strip().rpartition("\n")[2] or "it says nothing"
            raise ConfigError(str(greeting.get("problem") or f"its fork server could not start: {words}"))

    def _folder(self, stack: ExitStack) -> Path:
        folder = self._base / token_hex(8)
        folder.mkdir(mode=0o700)
        stack.callback(remove_folder, folder)
        if self._user != os.geteuid():
            os.chown(folder, self._user, self._user)
        return folder


def interpreter_path() -> str:
    """Return the path of the interpreter itself, not of a virtual environment's link to it."""
    if not sys.executable:
        raise ConfigError("a jail starts Python by its path, and this interpreter does not know its own")
    return os.path.realpath(sys.executable)


def _python_command(base: Path, control: int) -> list[str]:
    options = [interpreter_path(), "-I", "-S", "-X", "utf8", "-c", _BOOT]
    return [*options, str(SANDBOX_FOLDER), str(control), str(base), str(base / LINKED)]


def _start_process(command: Sequence[str], control: int, errors: io.FileIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter and code
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={},
        cwd="/",
        pass_fds=(control,),
        start_new_session=True,  # Ctrl-C must not reach it before us
    )


def _end_process(
    process: subprocess.Popen[bytes], control: socket.socket, claimed: tuple[Path, int], owner: int
) -> None:
    control.close()
    base, lock = claimed
    if os.getpid() != owner:  # a fork of our process must not clean up
        return
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    remove_folder(base)
    os.close(lock)


def open_pipe(stack: ExitStack) -> tuple[int, io.FileIO]:
    """Return the reading end, which the stack closes, and the writing end, which the caller closes."""
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    return reading, io.FileIO(writing, "w")


def sealed_file(data: bytes) -> io.FileIO:
    """Return a read-only file in memory with this content."""
    file = io.FileIO(os.memfd_create("given", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+")
    while data:
        data = data[file.write(data) :]
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE  # Linux only
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    file.seek(0)
    return file


def _receive_pidfd(reply: socket.socket) -> int:
    """Wait for the fork server's reply and return the pidfd of the new process."""
    reply.settimeout(_PATIENCE)
    message, descriptors, _, _ = socket.recv_fds(reply, _LONGEST_REPLY, 1)
    if not message:
        raise ConnectionResetError("the fork server was ended")
    if not descriptors:
        raise OSError(str(json.loads(message)["problem"]))
    return descriptors[0]


def _exit_code(reply: socket.socket) -> int:
    """Return a program's exit code, or its negative signal number; SIGKILL when the fork server ended too."""
    try:
        return int(json.loads(reply.recv(_LONGEST_REPLY))["code"])
    except (OSError, ValueError):
        return -signal.SIGKILL


def _process_id(pidfd: int) -> int:
    """Return the process id as we see it; in a namespace of its own the process has another."""
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
    return folder_excess(folder)
