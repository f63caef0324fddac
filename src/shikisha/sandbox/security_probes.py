"""Probe a sandbox: carry out attacks in it and say of each whether it was blocked.

Each attack is a program that tries every way it knows, prints what it obtained, and continues when a way is closed. The
prober decides by its own evidence: a secret in the output, a connection that arrived, a changed file, processes counted
in /proc; never by what a program says. Names bound for the program tell it where to look.

Invariants: a probe passes when the attack was carried out and obtained nothing; an attack that had no time proves
nothing and does not pass. An interpreter in which an attack cannot even be written (Monty) has blocked it. Everything
laid out is removed at the end, and processes that an attack left behind are killed. A process that vanishes while it is
counted is not an error. Deliberately absent: attacks on the kernel itself, and processes that another machine runs for
us (an engine in a virtual machine).
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from time import perf_counter

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.sandbox import Execution, Inputs, Sandbox, SandboxLimits, process_limits

_TRY = """
def attempt(do):
    try:
        print(do())
    except BaseException as error:
        print("refused:", type(error).__name__)

"""
_MARK = """
try:
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(15, marker.encode())
except BaseException as error:
    print("unmarked:", type(error).__name__)
"""

_READ = """
import os
attempt(lambda: open(wanted).read(2000))
attempt(lambda: open("/proc/self/root" + wanted).read(2000))
attempt(lambda: os.symlink(wanted, "linked") or open("linked").read(2000))
attempt(lambda: os.link(wanted, "same") or open("same").read(2000))
attempt(lambda: open("/proc/self/fd/%d" % os.open(wanted, os.O_PATH)).read(2000))
attempt(lambda: os.listdir(os.path.dirname(wanted)))
attempt(lambda: os.execv("/bin/cat", ["cat", wanted]))
"""

_ENVIRONMENT = """
import ctypes, os
attempt(lambda: [name + "=" + value for name, value in os.environ.items()])
for process in {bystander, os.getpid(), os.getppid(), 1}:
    attempt(lambda: open("/proc/%d/environ" % process).read(5000))
libc = ctypes.CDLL(None, use_errno=True)
attempt(lambda: libc.ptrace(16, bystander, 0, 0))
attempt(lambda: open("/proc/%d/mem" % bystander, "rb").read(1))
"""

_TCP = """
import socket
attempt(lambda: socket.create_connection(("127.0.0.1", port), 2).send(b"x"))
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack("=HHI8x", 2, socket.htons(port), socket.htonl(0x7F000001))
attempt(lambda: libc.connect(libc.socket(2, 1, 0), address, 16))
"""

_UDP = """
import socket
attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)))
"""

_UNIX = """
import socket
for kind, address in ((socket.SOCK_STREAM, streams), (socket.SOCK_DGRAM, datagrams)):
    address = chr(0) + address[1:] if address[0] == "@" else address
    attempt(lambda: socket.socket(socket.AF_UNIX, kind).connect(address))
    attempt(lambda: socket.socket(socket.AF_UNIX, kind).sendto(b"x", address))
    attempt(lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", address))
    attempt(lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendmsg([b"x"], [], 0, address))
"""

_WRITE = """
import os
for place in places:
    new = os.path.join(place, name)
    attempt(lambda: open(new, "w").write("x"))
    attempt(lambda: os.mkdir(new + "-folder"))
    attempt(lambda: os.symlink("/", new + "-link"))
    attempt(lambda: open("own", "w").write("x") and os.rename("own", new + "-moved"))
attempt(lambda: open(kept, "a").write("x"))
attempt(lambda: os.close(os.open(kept, os.O_RDONLY | os.O_TRUNC)))
attempt(lambda: os.truncate(kept, 0))
attempt(lambda: os.chmod(kept, 0o777))
attempt(lambda: os.fchmod(os.open(kept, os.O_RDONLY), 0o777))
attempt(lambda: os.utime(kept, (1, 1)))
attempt(lambda: os.utime(kept))
attempt(lambda: os.setxattr(kept, "user.x", b"x"))
attempt(lambda: os.link(kept, kept + "-link"))
attempt(lambda: os.rename(kept, kept + "-moved"))
attempt(lambda: os.unlink(kept))
"""

_SIGNALS = """
import os
attempt(lambda: os.kill(bystander, 9))
attempt(lambda: os.killpg(os.getpgid(bystander), 9))
import ctypes, fcntl, signal
libc = ctypes.CDLL(None, use_errno=True)
attempt(lambda: libc.tkill(bystander, 9))
attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(bystander), 9))
reading, writing = os.pipe()
attempt(lambda: fcntl.fcntl(reading, 10, 9))
attempt(lambda: fcntl.fcntl(reading, 8, bystander))
attempt(lambda: fcntl.fcntl(reading, 4, 0o20000))
attempt(lambda: os.write(writing, b"x"))
"""

_FORK_BOMB = """
import subprocess, sys, time
def child():
    if os.fork() == 0:
        time.sleep(1)
        os._exit(0)
for _ in range(120):
    attempt(child)
attempt(lambda: libc.vfork() or os._exit(0))
attempt(lambda: subprocess.run(["/bin/true"]).returncode)
attempt(lambda: os.posix_spawn("/bin/true", ["true"], {}))
time.sleep(0.2)
"""

_THREAD_BOMB = """
import threading, time
threading.stack_size(32768)
stop = threading.Event()
def start():
    for _ in range(3000):
        threading.Thread(target=stop.wait, args=(1,), daemon=True).start()
attempt(start)
time.sleep(0.3)
"""

_MEMORY = """
held = []
for _ in range(160):
    held.append("x" * 2**26)
"""

_MEMORY_OF_EIGHT = """
import time
for _ in range(8):
    if os.fork() == 0:
        held = "x" * (700 * 2**20)
        time.sleep(1)
        os._exit(0)
time.sleep(1)
"""

_LOOP = """
for number in range(1, 32):
    try:
        import signal
        signal.signal(number, signal.SIG_IGN)
    except BaseException:
        pass
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""

_DAEMON = """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(5)
    os._exit(0)
"""

_FLOOD = """
piece = "x" * 2**20
while True:
    print(piece)
"""


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack's program; `marked`: it names its processes `marker`; `endless`: only a limit can end it.

    An attack that is not endless proves nothing if it runs out of time.
    """

    code: str
    marked: bool = False
    endless: bool = False


READ_ATTACK = Attack(_TRY + _READ)
ENVIRONMENT_ATTACK = Attack(_TRY + _ENVIRONMENT)
TCP_ATTACK = Attack(_TRY + _TCP)
UDP_ATTACK = Attack(_TRY + _UDP)
UNIX_SOCKET_ATTACK = Attack(_TRY + _UNIX)
WRITE_ATTACK = Attack(_TRY + _WRITE)
SIGNAL_ATTACK = Attack(_TRY + _SIGNALS)
FORK_BOMB = Attack(_MARK + _TRY + _FORK_BOMB, marked=True)
THREAD_BOMB = Attack(_MARK + _TRY + _THREAD_BOMB, marked=True)
MEMORY_ATTACK = Attack(_MARK + _MEMORY, marked=True)
FORKED_MEMORY_ATTACK = Attack(_MARK + _MEMORY_OF_EIGHT, marked=True)
ENDLESS_LOOP = Attack(_MARK + _LOOP, marked=True, endless=True)
DAEMON_ATTACK = Attack(_MARK + _DAEMON, marked=True)
OUTPUT_FLOOD = Attack(_FLOOD, endless=True)


_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One process: its id, its parent's id, its name, its number of threads, and its memory in bytes."""

    process: int
    parent: int
    name: str
    threads: int
    memory: int


def list_processes() -> dict[int, ProcessEntry]:
    """Return all visible processes that have not ended."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, ValueError):
                process, _, rest = (folder / "stat").read_text(errors="replace").partition(" (")
                name, _, numbers = rest.rpartition(") ")
                fields = numbers.split()
                entry = ProcessEntry(int(process), int(fields[1]), name, int(fields[17]), int(fields[21]) * _PAGE)
                if entry.memory:
                    found[entry.process] = entry
    return found


def processes_named(name: str) -> list[ProcessEntry]:
    """Return the processes of this name."""
    return [entry for entry in list_processes().values() if entry.name == name]


def descendant_processes(known: dict[int, ProcessEntry]) -> list[ProcessEntry]:
    """Return the descendants of this process."""
    return [entry for entry in known.values() if os.getpid() in _ancestor_ids(entry, known)]


def kill_processes(beginning: str) -> None:
    """Kill the processes whose names begin with a prefix."""
    for entry in list_processes().values():
        if not entry.name.startswith(beginning):
            continue
        with suppress(OSError):
            os.kill(entry.process, signal.SIGKILL)


def _ancestor_ids(entry: ProcessEntry, known: dict[int, ProcessEntry]) -> Iterator[int]:
    """Yield the ids of a process's parent, its parent, and so on."""
    while entry.parent in known:
        yield entry.parent
        entry = known[entry.parent]


_COMMON_VARIABLES = {"PATH", "HOME", "LANG", "PWD", "OLDPWD", "TERM", "USER", "LOGNAME", "HOSTNAME", "SHELL", "TZ"}
_SHORTEST_SECRET = 8
_SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/")  # noqa: S108 - where an attack would try to write
_BYSTANDER_CODE = "import sys; sys.stdout.write('ready'); sys.stdout.flush(); sys.stdin.read()"
FileState = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ProbeScene:
    """The bait: a file at home, one in a world-writable folder, listeners, and a process of the same user."""

    secret: str
    marker: str
    at_home: Path
    kept: Path
    stamp: FileState
    bystander: "subprocess.Popen[bytes]"
    listeners: Mapping[str, socket.socket]

    @property
    def places(self) -> list[str]:
        """The folders in which an attack tries to write."""
        return [str(self.kept.parent), str(self.at_home.parent), *_SHARED_FOLDERS]

    def port(self, kind: str) -> int:
        """Return the port of a listener."""
        return int(self.listeners[kind].getsockname()[1])

    def address(self, kind: str) -> str:
        """Return the address of a Unix socket as text; one in the abstract namespace begins with @."""
        address = self.listeners[kind].getsockname()
        return f"@{address[1:].decode()}" if isinstance(address, bytes) else str(address)

    def find_leak(self, text: str) -> str | None:
        """Return a message if the secret is in the output."""
        return "the secret in it leaked" if self.secret in text else None

    def find_inherited(self, text: str) -> str | None:
        """Return a message if variables of our environment, except common ones, are in the output."""
        ours = {name: value for name, value in os.environ.items() if name not in _COMMON_VARIABLES}
        found = [n for n, value in ours.items() if len(value) >= _SHORTEST_SECRET and f"{n}={value}" in text]
        return f"our environment leaked: {', '.join(found[:3])}" if found else None

    def find_arrivals(self, *kinds: str) -> str | None:
        """Return a message if something arrived at these listeners."""
        found = [kind for kind in kinds if _received_anything(self.listeners[kind])]
        return f"it reached our listener: {', '.join(found)}" if found else None

    def find_written(self) -> str | None:
        """Return a message if files in these folders are new, or the one there has changed."""
        new = [path for place in set(self.places) for path in Path(place).glob(f"{self.marker}*")]
        for path in new:
            with suppress(OSError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        if new:
            return f"it wrote {', '.join(str(path) for path in new[:3])}"
        return None if file_state(self.kept) == self.stamp else "it changed a file outside its folder"

    def find_harm(self) -> str | None:
        """Return a message if the bystander has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.bystander.wait(0.05)
            return "it ended a process of ours"
        return None


@contextmanager
def probe_scene() -> Iterator[ProbeScene]:
    """Set up the bait, and remove it at the end."""
    with ExitStack() as stack:
        secret, marker = token_hex(16), f"probe{token_hex(4)}"
        folder, lock = process_limits.claim_folder("probe")
        stack.callback(os.close, lock)
        stack.callback(process_limits.remove_folder, folder)
        stack.callback(kill_processes, marker)
        folder.chmod(0o777)
        kept = folder / "kept"
        kept.write_text(secret)
        kept.chmod(0o666)
        listeners = {kind: stack.enter_context(one) for kind, one in _open_listeners(folder, marker)}
        at_home = _home_file(f".{marker}", secret, stack) or kept
        yield ProbeScene(secret, marker, at_home, kept, file_state(kept), _start_bystander(secret, stack), listeners)


def file_state(path: Path) -> FileState:
    """Return everything about a file that an attack could change; () for a missing one."""
    try:
        about = path.lstat()
        return path.read_text(), about.st_mode, about.st_uid, about.st_mtime_ns, about.st_nlink, os.listxattr(path)
    except OSError:
        return ()


def _open_listeners(folder: Path, marker: str) -> Iterator[tuple[str, socket.socket]]:
    places: dict[str, tuple[socket.AddressFamily, socket.SocketKind, str | tuple[str, int]]] = {
        "TCP": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "UDP": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "path stream": (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "streams")),
        "path datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "datagrams")),
        "abstract stream": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{marker}-streams"),
        "abstract datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{marker}-datagrams"),
    }
    for kind, (family, way, address) in places.items():
        listener = socket.socket(family, way | socket.SOCK_NONBLOCK)
        listener.bind(address)
        if way == socket.SOCK_STREAM:
            listener.listen()
        if "path" in kind:
            Path(str(address)).chmod(0o777)
        yield kind, listener


def _received_anything(listener: socket.socket) -> bool:
    with suppress(BlockingIOError):
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
        return True
    return False


def _home_file(name: str, secret: str, stack: ExitStack) -> Path | None:
    """Return a file in the home folder that only its user may read; None when none can be created."""
    with suppress(OSError, RuntimeError):  # no home folder, or not a writable one
        path = Path.home() / name
        path.touch(mode=0o600, exist_ok=False)
        stack.callback(path.unlink, missing_ok=True)
        path.write_text(secret)
        return path
    return None


def _start_bystander(secret: str, stack: ExitStack) -> "subprocess.Popen[bytes]":
    """Start a process of the same user with the secret in its environment."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
        [os.path.realpath(sys.executable), "-I", "-S", "-c", _BYSTANDER_CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"SECRET": secret},
        start_new_session=True,
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    if process.stdout is not None:
        process.stdout.read(5)
    return process


PROBE_LIMITS = SandboxLimits(seconds=1.0, memory=128 * 2**20, output=100_000)  # for a sandbox under test
MOST_PROCESSES, MOST_THREADS = 64, 1_000
NOTHING_GAINED = "it obtained nothing"
_TRIES = 3
# Seconds beyond its limit that a run may take on a busy machine.
_LATE_SECONDS = 5.0
_MEMORY_BYTES = 2 * PROBE_LIMITS.memory + 192 * 2**20  # bytes, including some interpreters
# Bytes of our own growth while reading a flood.
_FLOOD_BYTES = 32 * 2**20
_LOOK_EVERY = 0.02
# Seconds after a run until nothing of it may remain.
_SECONDS_AFTER = 0.1


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe: whether it was blocked, what got through or how the attack ended, and its duration."""

    probe: str
    blocked: bool
    what: str
    milliseconds: float


@dataclass(slots=True)
class ProbeTrace:
    """Observations of an attack: how and when it ended, and the maxima of what was counted."""

    execution: Execution = field(default_factory=Execution)
    seconds: float = 0.0
    processes: int = 0
    threads: int = 0
    memory: int = 0
    our_growth: int = 0
    left: int = 0

    @property
    def text(self) -> str:
        """All output."""
        return f"{self.execution.printed}\n{self.execution.value}"

    @property
    def late(self) -> bool:
        """Whether it ran for too long after its time was over."""
        return self.seconds > PROBE_LIMITS.seconds + _LATE_SECONDS

    @property
    def enough(self) -> bool:
        """Whether it has clearly succeeded, so that it need not continue."""
        return self.late or self.memory > 2 * _MEMORY_BYTES or self.our_growth > 2 * _FLOOD_BYTES


@dataclass(frozen=True, slots=True)
class Probe:
    """An attack, the names bound for it, and the evidence that it succeeded."""

    name: str
    attack: Attack
    inputs: Callable[[ProbeScene], Inputs]
    evidence: Callable[[ProbeScene, ProbeTrace], str | None]


def _no_inputs(_: ProbeScene) -> Inputs:
    return {}


def _home_file_read(scene: ProbeScene, trace: ProbeTrace) -> str | None:
    listed = "the folder was listed" if scene.at_home.name in trace.text else None
    return scene.find_leak(trace.text) or listed


def _shadow_read(_: ProbeScene, trace: ProbeTrace) -> str | None:
    return "it was read" if "root:" in trace.text else None


def _too_many_processes(_: ProbeScene, trace: ProbeTrace) -> str | None:
    if trace.processes > MOST_PROCESSES:
        return f"{trace.processes} processes at once"
    return f"{trace.threads:,} threads at once" if trace.threads > MOST_THREADS else _processes_left(_, trace)


def _processes_left(_: ProbeScene, trace: ProbeTrace) -> str | None:
    return f"{trace.left} processes were left behind" if trace.left else None


def _memory_exceeded(_: ProbeScene, trace: ProbeTrace) -> str | None:
    return f"{trace.memory / 2**20:,.0f} MiB of memory" if trace.memory > _MEMORY_BYTES else _processes_left(_, trace)


def _time_exceeded(_: ProbeScene, trace: ProbeTrace) -> str | None:
    return f"still running after {trace.seconds:.0f} s" if trace.late else _processes_left(_, trace)


def _output_exceeded(_: ProbeScene, trace: ProbeTrace) -> str | None:
    if trace.our_growth > _FLOOD_BYTES:
        return f"we grew by {trace.our_growth / 2**20:,.0f} MiB"
    # A character may take four bytes, and some count bytes.
    most = 4 * PROBE_LIMITS.output
    return f"more than {most:,} characters came out" if len(trace.execution.printed) > most else None


def _unix_socket_probe(kind: str) -> Probe:
    return Probe(
        f"Unix socket, {kind}",
        UNIX_SOCKET_ATTACK,
        lambda s: {"streams": s.address(f"{kind} stream"), "datagrams": s.address(f"{kind} datagram")},
        lambda s, _: s.find_arrivals(f"{kind} stream", f"{kind} datagram"),
    )


PROBES = (
    Probe("read a file in the home folder", READ_ATTACK, lambda s: {"wanted": str(s.at_home)}, _home_file_read),
    Probe("read /etc/shadow", READ_ATTACK, lambda _: {"wanted": "/etc/shadow"}, _shadow_read),
    Probe(
        "environment of a parent or neighbour",
        ENVIRONMENT_ATTACK,
        lambda s: {"bystander": s.bystander.pid},
        lambda s, t: s.find_leak(t.text) or s.find_inherited(t.text),
    ),
    Probe("TCP", TCP_ATTACK, lambda s: {"port": s.port("TCP")}, lambda s, _: s.find_arrivals("TCP")),
    Probe("UDP", UDP_ATTACK, lambda s: {"port": s.port("UDP")}, lambda s, _: s.find_arrivals("UDP")),
    _unix_socket_probe("path"),
    _unix_socket_probe("abstract"),
    Probe(
        "write outside its folder",
        WRITE_ATTACK,
        lambda s: {"places": s.places, "name": s.marker, "kept": str(s.kept)},
        lambda s, _: s.find_written(),
    ),
    Probe("end another process", SIGNAL_ATTACK, lambda s: {"bystander": s.bystander.pid}, lambda s, _: s.find_harm()),
    Probe("fork bomb", FORK_BOMB, _no_inputs, _too_many_processes),
    Probe("thread bomb", THREAD_BOMB, _no_inputs, _too_many_processes),
    Probe("10 GiB of memory", MEMORY_ATTACK, _no_inputs, _memory_exceeded),
    Probe("8 × 700 MiB of memory", FORKED_MEMORY_ATTACK, _no_inputs, _memory_exceeded),
    Probe("daemon left behind", DAEMON_ATTACK, _no_inputs, _processes_left),
    Probe("flood of output", OUTPUT_FLOOD, _no_inputs, _output_exceeded),
    Probe("endless loop", ENDLESS_LOOP, _no_inputs, _time_exceeded),
)


async def run_probes(sandbox: Sandbox) -> list[ProbeResult]:
    """Carry out every attack in a sandbox that was made with `LIMITS`. ConfigError when it runs nothing at all."""
    first = await sandbox.run("print(6 * 7)", {})
    if first.printed != "42\n":
        raise ConfigError(f"it does not run a simple program: {first.error or 'nothing was printed'}")
    with probe_scene() as bait:
        *others, longest = PROBES
        # An endless loop takes all its time, so it runs next to the others.
        last = asyncio.create_task(run_probe(longest, sandbox, bait))
        try:
            return [*[await run_probe(one, sandbox, bait) for one in others], await last]
        finally:
            last.cancel()


async def run_probe(probe: Probe, sandbox: Sandbox, scene: ProbeScene) -> ProbeResult:
    """Carry out one attack, again if it had no time to run, and return the result."""
    return await _ProbeRun(sandbox, scene, probe).finding()


class _ProbeRun:
    """One probe of one sandbox. Processes of its attack bear a name of their own."""

    def __init__(self, sandbox: Sandbox, scene: ProbeScene, probe: Probe) -> None:
        self._sandbox = sandbox
        self._scene = scene
        self._probe = probe
        self._marker = f"{scene.marker}{PROBES.index(probe):02}"

    async def finding(self) -> ProbeResult:
        """Run the attack up to three times, until one run had the time, and judge by the evidence."""
        begun = perf_counter()
        for _ in range(_TRIES):
            trace = await self._trace()
            got = self._probe.evidence(self._scene, trace)
            error = trace.execution.error or ""
            untried = not self._probe.attack.endless and error.startswith("TimeoutError")
            if got is not None or not untried:
                break
        what = got or ("it had no time to run" if untried else error.partition("\n")[0] or NOTHING_GAINED)
        return ProbeResult(self._probe.name, got is None and not untried, what, 1000 * (perf_counter() - begun))

    async def _trace(self) -> ProbeTrace:
        trace, begun, before = ProbeTrace(), perf_counter(), _memory_in_use()
        inputs = {**self._probe.inputs(self._scene), "marker": self._marker}
        run = asyncio.create_task(self._sandbox.run(self._probe.attack.code, inputs))
        while not run.done() and not trace.enough:
            await asyncio.wait([run], timeout=_LOOK_EVERY)
            trace.seconds = perf_counter() - begun
            self._look(trace, before)
        if not run.done():
            run.cancel()
            kill_processes(self._marker)
        with suppress(asyncio.CancelledError):
            trace.execution = await run
        if self._probe.attack.marked:
            await asyncio.sleep(_SECONDS_AFTER)
            trace.left = len(processes_named(self._marker))
            kill_processes(self._marker)
        return trace

    def _look(self, trace: ProbeTrace, before: tuple[int, int]) -> None:
        ours_then, children_then = before
        ours_now, children_now = _memory_in_use()
        trace.our_growth = max(trace.our_growth, ours_now - ours_then)
        if not self._probe.attack.marked:
            return
        named = processes_named(self._marker)
        trace.processes = max(trace.processes, len(named))
        trace.threads = max(trace.threads, sum(entry.threads for entry in named))
        memory = sum(entry.memory for entry in named) if named else children_now - children_then
        trace.memory = max(trace.memory, memory)


def _memory_in_use() -> tuple[int, int]:
    """Return the memory of this process, and that of all that come from it."""
    known = list_processes()
    children = descendant_processes(known)
    return known[os.getpid()].memory, sum(entry.memory for entry in children)
