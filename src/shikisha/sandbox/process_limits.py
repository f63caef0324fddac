"""Watches one process that runs code: reads what it says under a cap, ends it at its limits, and tells how it ended.

Invariants: no more is read than the cap allows and one chunk; the process is killed when it passes a limit or its time
is over, and nothing is waited for that somebody else could hold open. It works in a thread of its own, with one poll
for everything. Deliberately absent: how the process came to be (`jail`, `container`), and asyncio, whose pipes read
ahead without a cap.

From how a process ended to an Execution: one place for the words, whichever sandbox it ran in.

Invariant: what a process told about itself is taken as data of one form; anything else is said to be unreadable.

Folders for a while: those that programs may write in, looked at while they run and removed after them.

Invariants: no link is followed when something is removed; however deep, however many and however protected its files
are, a folder is removed with few open descriptors and no recursion. What a killed process of ours has left, the next
one removes: a folder in use is locked. Deliberately absent: quotas, which need privileges: a folder is measured
instead, and its program is killed when it has grown too large.
"""

import fcntl
import json
import os
import select
import signal
import stat
import tempfile
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import monotonic

from shikisha.sandbox import Execution, SandboxLimits

_CHUNK = 65_536
_LOOK_EVERY = 0.05  # seconds between two looks at what has no event: folders, threads
_LONGEST_DEATH = 10.0  # seconds that a killed process may take to be gone
_REPORT_OVERHEAD = 65_536  # bytes that tell the ending, beside the value
_LONGEST_CHARACTER = 12  # bytes of JSON


@dataclass(frozen=True, slots=True)
class MonitoredProcess:
    """A process: descriptors of what it prints, of what it tells at its end, and one that is ready when it has ended.

    `excess` says which further limit it has passed, if any; `kill` may be called at any time, more than once. A process
    that takes a while to begin (`starting`, seconds at most) tells that it has begun by telling anything at all.
    """

    printed: int
    told: int
    ended: int
    kill: Callable[[], None]
    excess: Callable[[], str | None] = lambda: None
    starting: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """What a process printed and told, and the limit for which it was killed, if it was."""

    printed: str
    told: bytes
    limit: str | None


def monitor_process(process: MonitoredProcess, limits: SandboxLimits) -> ProcessOutput:
    """Return how a process ended; it has ended then, unless it could not be killed."""
    return _ProcessMonitor(process, limits).to_the_end()


class _ProcessMonitor:
    def __init__(self, process: MonitoredProcess, limits: SandboxLimits) -> None:
        self._process = process
        self._limits = limits
        self._poll = select.poll()
        self._takers = {process.printed: self._take_printed, process.told: self._take_told}
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._length = 0
        self._told = b""
        self._limit: str | None = None
        self._seconds = process.starting or limits.seconds
        self._until = monotonic() + self._seconds
        self._next_look = monotonic() + _LOOK_EVERY

    def to_the_end(self) -> ProcessOutput:
        """Read until the process has ended and nothing more has come of it."""
        for one in (*self._takers, self._process.ended):
            self._poll.register(one, select.POLLIN)
        ended = False
        while self._takers or not ended:
            left = self._until - monotonic()
            if left <= 0 and self._limit is not None:
                break
            if not ended and self._limit is None:
                self._look(left)
                left = self._until - monotonic()
            events = self._poll.poll(1000 * min(_LOOK_EVERY, max(left, 0.001)))
            if ended and not events:
                break
            for ready, _ in events:
                if ready == self._process.ended:
                    ended = True
                    self._poll.unregister(ready)
                else:
                    self._take(ready)
        return ProcessOutput("".join(self._pieces), self._told, self._limit)

    def _look(self, left: float) -> None:
        if left <= 0:
            self._stop(f"TimeoutError: more than {self._seconds:g} seconds")
        elif monotonic() >= self._next_look:
            self._next_look = monotonic() + _LOOK_EVERY
            if excess := self._process.excess():
                self._stop(excess)

    def _take(self, ready: int) -> None:
        data = os.read(ready, _CHUNK)
        self._takers[ready](data)
        if not data or self._limit is not None:
            self._poll.unregister(ready)
            del self._takers[ready]

    def _take_printed(self, data: bytes) -> None:
        room = self._limits.output - self._length
        text = self._decoder.decode(data, final=not data)
        self._pieces.append(text[:room])
        self._length += len(self._pieces[-1])
        if len(text) > room:
            self._stop(f"more than {self._limits.output:,} characters came out")

    def _take_told(self, data: bytes) -> None:
        if self._process.starting and not self._told:
            self._seconds = self._limits.seconds
            self._until = monotonic() + self._seconds
        self._told += data
        if len(self._told) > _LONGEST_CHARACTER * self._limits.output + _REPORT_OVERHEAD:
            self._stop("more was told than any ending takes")

    def _stop(self, limit: str) -> None:
        if self._limit is None:
            self._limit = limit
            self._until = monotonic() + _LONGEST_DEATH
            self._process.kill()


_LONGEST_ERROR = 4_000
_SIGNAL_MESSAGES: Mapping[int, str] = {
    signal.SIGXCPU: "TimeoutError: more processor time than its seconds allow",
    signal.SIGKILL: "killed (SIGKILL): most likely the machine had no memory left for it",
    signal.SIGSYS: "killed (SIGSYS): a system call of another architecture",
}


def make_execution(ending: ProcessOutput, code: int, limits: SandboxLimits) -> Execution:
    """Return the Execution of a process that ended with this exit code, or by the signal -code."""
    if ending.limit is not None:
        return Execution(ending.printed, error=ending.limit)
    if not ending.told:
        return Execution(ending.printed, error=_exit_message(code, limits))
    value, error, parsed = _read_report(ending.told)
    if len(ending.printed) + len(value or "") > limits.output:
        value, error = None, f"more than {limits.output:,} characters came out"
    return Execution(ending.printed, value, error, parsed)


def _read_report(told: bytes) -> tuple[str | None, str | None, bool]:
    """Return value, error and whether it was a program at all; anybody may have written this."""
    try:
        ending = json.loads(told.strip().rpartition(b"\n")[2])  # an engine may have had something to say before
        value, error = (
            None if ending[each] is None else _replace_surrogates(str(ending[each])) for each in ("value", "error")
        )
        return value, error and error[:_LONGEST_ERROR], bool(ending["parsed"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, f"what it told of its end cannot be read: {told[:200].decode(errors='replace')}", True


def _replace_surrogates(text: str) -> str:
    """Return a text without halves of characters, which no file or journal takes."""
    return text.encode(errors="replace").decode()


def _exit_message(code: int, limits: SandboxLimits) -> str | None:
    """Say how a process ended that did not tell."""
    if code >= 0:
        return f"exit code {code}" if code else None
    if -code in _SIGNAL_MESSAGES:
        return _SIGNAL_MESSAGES[-code]
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    cause = f": most likely more than {limits.memory / 2**20:g} MiB of memory, or too deep a recursion"
    return f"killed ({name}){cause if name in {'SIGSEGV', 'SIGBUS', 'SIGABRT'} else ''}"


MOST_BYTES, MOST_FILES = 64 * 2**20, 5_000
_LOCK_GRACE = 60.0  # seconds in which a folder may still be without its lock


def claim_folder(kind: str, among: Path | None = None) -> tuple[Path, int]:
    """Return a new folder and a descriptor that locks it for as long as it is open; remove old ones without a lock.

    It is `among` others of its kind; by default where temporary files are.
    """
    place = (among or Path(tempfile.gettempdir())).resolve()
    for old in place.glob(f"shikisha-{kind}-*"):
        with suppress(OSError):
            _remove_unclaimed(old)
    folder = Path(tempfile.mkdtemp(prefix=f"shikisha-{kind}-", dir=place))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


def folder_excess(folder: Path) -> str | None:
    """Say by how much a folder is too large; None when it is not."""
    size = files = 0
    waiting = [folder]
    while waiting:
        try:
            found = _entry_sizes(waiting.pop(), waiting)
        except (FileNotFoundError, NotADirectoryError):  # it was there a moment ago
            continue
        except OSError as error:  # nested beyond what a path can name, or closed to our eyes
            return f"a folder was made that cannot be looked into: {error.strerror}"
        size += sum(found)
        files += len(found)
        if size > MOST_BYTES:
            return f"more than {MOST_BYTES // 2**20} MiB were written"
        if files > MOST_FILES:
            return f"more than {MOST_FILES:,} files were written"
    return None


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is ours to remove."""
    names = (f"{token_hex(8)}-{number}" for number in count())
    with suppress(OSError):
        while waiting := [entry for entry in _folder_entries(folder) if not _try_remove(entry)]:
            for inner in waiting:  # what is in it is lifted up to here, so that nothing gets deeper
                for entry in _folder_entries(inner):
                    _make_accessible(entry)
                    entry.rename(folder / next(names))
                inner.rmdir()
        folder.rmdir()


def _remove_unclaimed(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        about = os.fstat(lock)
        if about.st_uid == os.geteuid() and about.st_mtime < time.time() - _LOCK_GRACE:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
    finally:
        os.close(lock)


def _entry_sizes(folder: Path, waiting: list[Path]) -> list[int]:
    """Return what the entries of a folder take up, in bytes; folders among them are put on the waiting list."""
    sizes = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            sizes.append(entry.stat(follow_symlinks=False).st_blocks * 512)
            if len(sizes) > MOST_FILES:
                break
    return sizes


def _folder_entries(folder: Path) -> list[Path]:
    _make_accessible(folder)
    return list(folder.iterdir())


def _make_accessible(entry: Path) -> None:
    if stat.S_ISDIR(entry.lstat().st_mode):
        entry.chmod(stat.S_IRWXU)


def _try_remove(entry: Path) -> bool:
    if not stat.S_ISDIR(entry.lstat().st_mode):
        entry.unlink()
        return True
    with suppress(OSError):
        entry.rmdir()
        return True
    return False
