"""Watch a process that runs code, and its folder: read its output under a cap, kill it at its limits, report its end.

Invariants: no more is read than the cap and one chunk. The process is killed when it exceeds a limit or its time, and
nothing is awaited that somebody else could hold open. What a process reports about itself is data of one form; anything
else is called unreadable. Removing a folder follows no link and needs few descriptors and no recursion, however deep,
numerous or protected its files are. A folder in use is locked; folders that a killed process of ours left behind are
removed by the next one.

It works in a thread of its own with one poll, because asyncio's pipes read ahead without a cap. Folders are measured,
since quotas need privileges; a program whose folder grows too large is killed. Deliberately absent: how the process
started (`process_sandbox`, `container`).
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
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import monotonic

from shikisha.core.fast_dataclass import dataclass
from shikisha.sandbox import Execution, SandboxLimits

_CHUNK = 65_536
# Seconds between checks of what has no event: folders, threads.
_LOOK_EVERY = 0.05
# Seconds for a killed process to disappear.
_LONGEST_DEATH = 10.0
_REPORT_OVERHEAD = 65_536  # bytes of a report besides the value
_LONGEST_CHARACTER = 12  # bytes of one character in JSON


@dataclass(frozen=True, slots=True)
class MonitoredProcess:
    """A process: descriptors of its output, of its report, and one that becomes ready when it ends.

    `excess` returns which further limit it has exceeded, if any; `kill` may be called at any time and repeatedly. A
    process that starts slowly (`starting`: seconds at most) signals its start by the first byte of its report.
    """

    printed: int
    report: int
    ended: int
    kill: Callable[[], None]
    excess: Callable[[], str | None] = lambda: None
    starting: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """What a process printed and reported, and the limit for which it was killed, if it was."""

    printed: str
    report: bytes
    limit: str | None


def monitor_process(process: MonitoredProcess, limits: SandboxLimits) -> ProcessOutput:
    """Watch a process to its end; it has ended then, unless it could not be killed."""
    return _ProcessMonitor(process, limits).to_the_end()


class _ProcessMonitor:
    def __init__(self, process: MonitoredProcess, limits: SandboxLimits) -> None:
        self._process = process
        self._limits = limits
        self._poll = select.poll()
        self._takers = {process.printed: self._take_printed, process.report: self._take_report}
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._length = 0
        self._report = bytearray()
        self._limit: str | None = None
        self._seconds = process.starting or limits.seconds
        self._until = monotonic() + self._seconds
        self._next_look = monotonic() + _LOOK_EVERY

    def to_the_end(self) -> ProcessOutput:
        """Read until the process has ended and its output is exhausted."""
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
        return ProcessOutput("".join(self._pieces), bytes(self._report), self._limit)

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

    def _take_report(self, data: bytes) -> None:
        if self._process.starting and not self._report:
            self._seconds = self._limits.seconds
            self._until = monotonic() + self._seconds
        self._report += data
        if len(self._report) > _LONGEST_CHARACTER * self._limits.output + _REPORT_OVERHEAD:
            self._stop("the report is longer than any valid one")

    def _stop(self, limit: str) -> None:
        if self._limit is None:
            self._limit = limit
            self._until = monotonic() + _LONGEST_DEATH
            self._process.kill()


_LONGEST_ERROR = 4_000
_SIGNAL_MESSAGES: Mapping[int, str] = {
    signal.SIGXCPU: "TimeoutError: more processor time than its seconds allow",
    signal.SIGKILL: "killed (SIGKILL): most likely the machine ran out of memory",
    signal.SIGSYS: "killed (SIGSYS): a system call of another architecture",
}


def make_execution(ending: ProcessOutput, code: int, limits: SandboxLimits) -> Execution:
    """Return the Execution of a process that ended with this exit code, or by the signal -code."""
    if ending.limit is not None:
        return Execution(ending.printed, error=ending.limit)
    if not ending.report:
        return Execution(ending.printed, error=_exit_message(code, limits))
    value, error, parsed = _read_report(ending.report)
    if len(ending.printed) + len(value or "") > limits.output:
        value, error = None, f"more than {limits.output:,} characters came out"
    return Execution(ending.printed, value, error, parsed)


def _read_report(report: bytes) -> tuple[str | None, str | None, bool]:
    """Return value, error and whether it was a program at all; the report is untrusted."""
    try:
        # A container engine may have written before it.
        ending = json.loads(report.strip().rpartition(b"\n")[2])
        value, error = (
            None if ending[each] is None else _replace_surrogates(str(ending[each])) for each in ("value", "error")
        )
        return value, error and error[:_LONGEST_ERROR], bool(ending["parsed"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, f"its report cannot be read: {report[:200].decode(errors='replace')}", True


def _replace_surrogates(text: str) -> str:
    """Return a text without lone surrogates, which files and journals reject."""
    return text.encode(errors="replace").decode()


def _exit_message(code: int, limits: SandboxLimits) -> str | None:
    """Describe the end of a process without a report."""
    if code >= 0:
        return f"exit code {code}" if code else None
    if -code in _SIGNAL_MESSAGES:
        return _SIGNAL_MESSAGES[-code]
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    cause = f": most likely more than {limits.memory / 2**20:g} MiB of memory, or too deep a recursion"
    return f"killed ({name}){cause if name in {'SIGSEGV', 'SIGBUS', 'SIGABRT'} else ''}"


MOST_BYTES, MOST_FILES = 64 * 2**20, 5_000
# Seconds in which a new folder may not be locked yet.
_LOCK_GRACE = 60.0


def claim_folder(kind: str, among: Path | None = None) -> tuple[Path, int]:
    """Return a new folder and a descriptor that locks it while open; remove old folders without a lock.

    It is created in `among`, by default the folder for temporary files.
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
    """Return why a folder is too large; None when it is not."""
    size = files = 0
    waiting = [folder]
    while waiting:
        try:
            found = _entry_sizes(waiting.pop(), waiting)
        except (FileNotFoundError, NotADirectoryError):  # removed a moment ago
            continue
        except OSError as error:  # nested deeper than a path can name, or not readable
            return f"a folder was made that cannot be read: {error.strerror}"
        size += sum(found)
        files += len(found)
        if size > MOST_BYTES:
            return f"more than {MOST_BYTES // 2**20} MiB were written"
        if files > MOST_FILES:
            return f"more than {MOST_FILES:,} files were written"
    return None


def remove_folder(folder: Path) -> None:
    """Remove a folder with its contents, as far as we may."""
    names = (f"{token_hex(8)}-{number}" for number in count())
    with suppress(OSError):
        while waiting := [entry for entry in _folder_entries(folder) if not _try_remove(entry)]:
            # Move its contents up, so that nothing nests deeper.
            for inner in waiting:
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
    """Return the disk usage of a folder's entries in bytes; append subfolders to the waiting list."""
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
