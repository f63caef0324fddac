"""The watchdog's own process: it notices that a server's event loop hangs, or that the server is gone.

    python -m shikisha.server.ops.watchdog_process DESCRIPTOR PID LIMIT   (the journal's URL comes on standard input)

A thread of the server could not do this: code that holds the interpreter's lock lets no thread run. A loop without a
heartbeat for LIMIT seconds is ended with SIGABRT (exit status 134 in a shell); the server then writes where each of
its threads is: files, lines and functions, no values. When the server is gone without a goodbye, the runs that it was
computing are blamed in the database (`store.claims`) at once, not only after its lease. Invariant: time counts only
while the server could run: a machine that sleeps, a stopped process, one that waits for a disk or gets no processor
is not hanging. Restarting the server is a supervisor's business.
"""

import mmap
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from threading import Lock, Thread

THREADS = 64  # calls in threads that are marked
SIZE = (THREADS + 4) * 64
_SLOT_BYTES = 64  # bytes: a length, and as much of a name
_BEAT_SLOT, _MEMBER_SLOT, _LOOP_SLOT, _THREAD_SLOTS = 0, 1, 2, 3  # slots
_GRACE_SECONDS = 10.0  # seconds that the server gets to write where it stands
_DATABASE_TRIES = 10
_PROCESSOR_FACTOR = 4.0  # a server that gets a quarter of a processor is not starved
_IMPORTING = Lock()  # two threads that import SQLAlchemy at once see modules that are half there


class WatchdogMemory:
    """What the server and its watchdog share: memory that outlives the server.

    The server writes, without locks; the watchdog reads what is torn only while the server lives and continues.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)

    def beat(self) -> None:
        """Record a heartbeat of the loop."""
        self._memory[1] = (self._memory[1] + 1) % 256

    def leave(self) -> None:
        """Record that the server leaves: any end from now on is a clean one."""
        self._memory[0] = 1

    @property
    def beats(self) -> int:
        """The number of heartbeats, modulo 256."""
        return self._memory[1]

    @property
    def left(self) -> bool:
        """Whether the server said goodbye."""
        return bool(self._memory[0])

    @property
    def member(self) -> str:
        """As which member the server uses the database."""
        return self._read(_MEMBER_SLOT)

    @member.setter
    def member(self, name: str) -> None:
        self.write(_MEMBER_SLOT, encode_name(name))

    def write(self, slot: int, name: bytes) -> None:
        """Write an encoded name."""
        start = slot * _SLOT_BYTES
        self._memory[start : start + len(name)] = name

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        self._memory[slot * _SLOT_BYTES] = 0

    @property
    def on_loop(self) -> str:
        """The run whose task is on the event loop; empty: none."""
        return self._read(_LOOP_SLOT)

    @property
    def named(self) -> tuple[str, ...]:
        """The runs that are being computed, on the loop or in threads."""
        found = {self._read(slot) for slot in range(_LOOP_SLOT, _THREAD_SLOTS + THREADS)}
        return tuple(sorted(found - {""}))

    def _read(self, slot: int) -> str:
        start = slot * _SLOT_BYTES
        length = min(self._memory[start], _SLOT_BYTES - 1)
        return self._memory[start + 1 : start + 1 + length].decode(errors="replace")


LOOP, FIRST_THREAD = _LOOP_SLOT, _THREAD_SLOTS


def encode_name(name: str) -> bytes:
    """Return a name as a slot holds it."""
    data = name.encode(errors="replace")[: _SLOT_BYTES - 1]
    return bytes([len(data)]) + data


class WatchedServer:
    """A server process, as its child sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._used = self._processor()

    @property
    def gone(self) -> bool:
        """Whether it is."""
        return os.getppid() != self.pid

    def could_run(self, elapsed: float) -> float:
        """Return for how many of the seconds since the last look it could have run."""
        state, used = self._state(), self._processor()
        before, self._used = self._used, used
        if state in {"T", "t", "D", "Z", "X"}:  # stopped by a signal or a debugger, waits for a disk, or is gone
            return 0.0
        if state == "R" and used is not None and before is not None:  # waits for a processor as long as it uses none
            return min(elapsed, _PROCESSOR_FACTOR * (used - before))
        return elapsed

    def _state(self) -> str:
        fields = self._fields()
        if fields:
            return fields[0]
        with suppress(OSError, subprocess.SubprocessError):  # no /proc
            told = subprocess.run(  # noqa: S603 - our own arguments
                ["ps", "-o", "stat=", "-p", str(self.pid)],  # noqa: S607
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
            )
            return told.stdout.strip()[:1]
        return ""

    def _processor(self) -> float | None:
        fields = self._fields()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else None

    def _fields(self) -> list[str]:
        """Return the fields of /proc/PID/stat after the program's name."""
        with suppress(OSError), open(f"/proc/{self.pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
        return []


def watch_server(shared: WatchdogMemory, server: WatchedServer, limit: float) -> bool:
    """Return when the server is gone, or stands still, which is True."""
    tick = min(max(limit / 20, 0.02), 0.5)
    still, beats, before, foreboding = 0.0, shared.beats, time.monotonic(), False
    while not server.gone:
        ended, _, _ = select.select([sys.stdin], [], [], tick)
        if ended:  # its end of the pipe is closed: it goes, or has gone
            time.sleep(tick / 10)
            if shared.left:
                return False
        now = time.monotonic()
        elapsed, before = min(now - before, 2 * tick), now  # a longer pause was the whole machine's
        ran = server.could_run(elapsed)
        if shared.beats != beats or not shared.member:  # it came round, or has not opened yet
            still = 0.0
        else:
            still += ran
        beats = shared.beats
        if still >= limit / 4 and not foreboding:
            foreboding = True
            Thread(target=_import_database, daemon=True).start()
        if still >= limit:
            return True
    return False


def _import_database() -> None:
    """Import what blaming needs, which takes a second or more on a busy machine."""
    with _IMPORTING:
        for name in ("shikisha.server.store.claims", "shikisha.journal.sqlite", "shikisha.journal.postgres"):
            import_module(name)


def _end_server(server: WatchedServer) -> None:
    for number, patience in ((signal.SIGABRT, _GRACE_SECONDS), (signal.SIGKILL, _GRACE_SECONDS)):
        with suppress(ProcessLookupError):
            os.kill(server.pid, number)
        until = time.monotonic() + patience
        while not server.gone and time.monotonic() < until:
            time.sleep(0.02)
        if server.gone:
            return


def _print(message: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(f"shikisha watchdog: {message}\n")
        sys.stderr.flush()


def _judge_in_database(url: str, shared: WatchdogMemory, *, stalled: bool, tries: int = _DATABASE_TRIES) -> bool:
    """Judge the server's end in the database; without it the lease runs out, and others judge what they see."""
    with _IMPORTING:
        from shikisha.core.errors import ShikishaError
        from shikisha.journal.drivers import parse_store_url, store_module
        from shikisha.server.store.claims import MemberEnd, judge_end

        location, member, named = parse_store_url(url), shared.member, shared.named
        ended = MemberEnd.STALLED if stalled else MemberEnd.CRASHED
        if not member or (location.get_backend_name() == "sqlite" and not os.path.exists(location.database or "")):
            return True
        for left in reversed(range(tries)):
            with suppress(ShikishaError):
                store_module(location).migrate(
                    location, 5.0, lambda connection: _report_strike(judge_end(connection, member, ended, named))
                )
                return True
            time.sleep(min(left, 1.0))
        return False


def _report_strike(struck: str | None) -> None:
    if struck is not None:
        _print(f"run {struck} was the only suspect: it has a strike")


def main() -> None:
    """Watch until the server is gone, and see to it that what took it down is blamed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are meant for the server, whose end we await
        signal.signal(number, signal.SIG_IGN)
    descriptor, pid, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    url = sys.stdin.readline().rstrip("\n")
    shared = WatchdogMemory(descriptor)
    server = WatchedServer(pid)
    if watch_server(shared, server, limit):
        name = shared.on_loop
        at = f"run {name} on it" if name else f"computing {', '.join(shared.named)}" if shared.named else "no run on it"
        _print(
            f"the event loop has stood still for {limit:g} s with {at}; process {server.pid} is ended. Where it stands:"
        )
        try:  # first: a container's other processes end with its server
            blamed = _judge_in_database(url, shared, stalled=True, tries=1)
        finally:  # whatever becomes of that, a server that stands still is ended
            _end_server(server)
        if not blamed:
            _judge_in_database(url, shared, stalled=True)
    elif not shared.left:
        _judge_in_database(url, shared, stalled=False)


if __name__ == "__main__":
    main()
