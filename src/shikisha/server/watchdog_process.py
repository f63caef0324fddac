"""The watchdog's own process: it notices that a server's event loop stands still, or that the server is gone.

    python -m shikisha.server.watchdog_process DESCRIPTOR PID LIMIT   (the journal's URL comes on standard input)

A thread of the server could not do it: code that holds the interpreter's lock lets no thread run. A loop that has not
come round for LIMIT seconds is ended with SIGABRT (exit status 134 in a shell), on which the server writes down where
each of its threads stands: files, lines and functions, no values. When the server is gone and did not say goodbye, the
runs that were being computed are blamed in the database (`store.blame`), at once and not after its lease.
Invariant: time counts only while the server could have run: neither a machine that sleeps nor a server that was stopped
by a signal, waits for a disk, or gets no processor, is standing still. Deliberately absent: starting the server again
(a supervisor's).
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
from threading import Thread

THREADS = 64  # calls in threads that are marked
SIZE = (THREADS + 4) * 64
_SLOT = 64  # bytes: a length, and as much of a name
_BEAT, _MEMBER, _LOOP, _THREADS = 0, 1, 2, 3  # slots
_GRACE = 10.0  # seconds that the server gets to write where it stands
_TRIES = 10
_BUSY = 4.0  # a server that gets a quarter of a processor is not starved


class Shared:
    """What the server and its watchdog share: memory that outlives the server.

    The server writes, without locks; the watchdog reads what is torn only while the server lives and goes on.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)

    def beat(self) -> None:
        """Say that the loop came round."""
        self._memory[1] = (self._memory[1] + 1) % 256

    def leave(self) -> None:
        """Say goodbye: an end from here on is a clean one."""
        self._memory[0] = 1

    @property
    def beats(self) -> int:
        """How often the loop came round, modulo 256."""
        return self._memory[1]

    @property
    def left(self) -> bool:
        """Whether the server said goodbye."""
        return bool(self._memory[0])

    @property
    def member(self) -> str:
        """As which member the server uses the database."""
        return self._read(_MEMBER)

    @member.setter
    def member(self, name: str) -> None:
        self.write(_MEMBER, encoded(name))

    def write(self, slot: int, name: bytes) -> None:
        """Write an encoded name."""
        start = slot * _SLOT
        self._memory[start : start + len(name)] = name

    def clear(self, slot: int) -> None:
        """Let a slot be empty."""
        self._memory[slot * _SLOT] = 0

    @property
    def on_loop(self) -> str:
        """The run whose task is on the event loop; empty: none."""
        return self._read(_LOOP)

    @property
    def named(self) -> tuple[str, ...]:
        """The runs that are being computed, on the loop or in threads."""
        found = {self._read(slot) for slot in range(_LOOP, _THREADS + THREADS)}
        return tuple(sorted(found - {""}))

    def _read(self, slot: int) -> str:
        start = slot * _SLOT
        length = min(self._memory[start], _SLOT - 1)
        return self._memory[start + 1 : start + 1 + length].decode(errors="replace")


LOOP, FIRST_THREAD = _LOOP, _THREADS


def encoded(name: str) -> bytes:
    """Return a name as a slot holds it."""
    data = name.encode(errors="replace")[: _SLOT - 1]
    return bytes([len(data)]) + data


class Watched:
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
            return min(elapsed, _BUSY * (used - before))
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


def watch(shared: Shared, server: Watched, limit: float) -> bool:
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
            Thread(target=_import, daemon=True).start()
        if still >= limit:
            return True
    return False


def _import() -> None:
    """Import what blaming needs, which takes a second or more on a busy machine."""
    for name in ("shikisha.server.store.blame", "shikisha.journal.sqlite", "shikisha.journal.postgres"):
        import_module(name)


def _tell(shared: Shared, server: Watched, limit: float) -> None:
    name = shared.on_loop
    at = f"run {name} on it" if name else f"computing {', '.join(shared.named)}" if shared.named else "no run on it"
    _say(f"the event loop has stood still for {limit:g} s with {at}; process {server.pid} is ended. Where it stands:")


def _end(server: Watched) -> None:
    for number, patience in ((signal.SIGABRT, _GRACE), (signal.SIGKILL, _GRACE)):
        with suppress(ProcessLookupError):
            os.kill(server.pid, number)
        until = time.monotonic() + patience
        while not server.gone and time.monotonic() < until:
            time.sleep(0.02)
        if server.gone:
            return


def _say(message: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(f"shikisha watchdog: {message}\n")
        sys.stderr.flush()


def _blame(url: str, shared: Shared, *, stalled: bool, tries: int = _TRIES) -> bool:
    """Judge the server's end in the database; without it the lease runs out, and others judge what they see."""
    from shikisha.errors import ShikishaError
    from shikisha.journal.stores import locate, store
    from shikisha.server.store.blame import Ended, judge

    location, member, named = locate(url), shared.member, shared.named
    ended = Ended.STALLED if stalled else Ended.CRASHED
    if not member or (location.get_backend_name() == "sqlite" and not os.path.exists(location.database or "")):
        return True
    for left in reversed(range(tries)):
        with suppress(ShikishaError):
            store(location).migrate(location, 5.0, lambda connection: _judged(judge(connection, member, ended, named)))
            return True
        time.sleep(min(left, 1.0))
    return False


def _judged(struck: str | None) -> None:
    if struck is not None:
        _say(f"run {struck} was the only suspect: it has a strike")


def main() -> None:
    """Watch until the server is gone, and see to it that what took it down is blamed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are meant for the server, whose end we await
        signal.signal(number, signal.SIG_IGN)
    descriptor, pid, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    url = sys.stdin.readline().rstrip("\n")
    shared = Shared(descriptor)
    server = Watched(pid)
    if watch(shared, server, limit):
        _tell(shared, server, limit)
        blamed = _blame(url, shared, stalled=True, tries=1)  # first: a container's other processes end with its server
        _end(server)
        if not blamed:
            _blame(url, shared, stalled=True)
    elif not shared.left:
        _blame(url, shared, stalled=False)


if __name__ == "__main__":
    main()
