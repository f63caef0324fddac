"""A SQLite journal with the standard library alone, for commands that show runs, or perform one, and end.

SQLAlchemy takes a third of such a command's start. Invariant: what is shown is what `store.Journal` shows, since both
make it by `stored_events`, each call in one transaction; and what is appended is appended by the same writer and the
same batches (`writer`, `chain`), synced at each commit. Only a file whose tables are of this version is opened so:
`open_reader` returns None for everything else (another store or version, a file that is locked or cannot be written),
and `open_recorder` and other callers open the journal in the usual way, which migrates, waits, or says what is wrong.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from shikisha.core.errors import JournalUnavailable, UnknownRun
from shikisha.core.events import AnswerGraded, BodiesErased, Event, RunStarted
from shikisha.core.run import Run
from shikisha.engine.recorder import Recorder
from shikisha.journal import open_journal
from shikisha.journal.chain import EventBatch
from shikisha.journal.stored_events import (
    CURRENT_REVISION,
    EVIDENCE,
    EventRow,
    EventTexts,
    RunOverview,
    checked_texts,
    children_among,
    decode_rows,
    events_by_run,
    expand_rows,
    few_enough,
    fold_run,
    last_erasures,
    last_of_performance,
    wanted_texts,
)
from shikisha.journal.writer import JournalWriter

T = TypeVar("T")
_ROWS = "SELECT seq, run, kind, at, data, hash FROM events WHERE {} ORDER BY seq"
_STARTED = f"kind = '{RunStarted.kind}'"
_IN_LIST = 500
_EVENTS_SEARCHED = 200_000  # the newest, for grades: there is no index of kinds
_PREFIX = "sqlite:///"


class JournalReader:
    """A journal that is only read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def runs(self, limit: int) -> tuple[RunOverview, ...]:
        """Return the runs that began last, newest first."""
        newest = f"SELECT run FROM events WHERE {_STARTED} ORDER BY seq DESC LIMIT ?"  # noqa: S608 - our own constant
        return self._read(lambda: self._overviews([run for (run,) in self._connection.execute(newest, (limit,))]))

    def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written; UnknownRun when there are none."""

        def events() -> tuple[Event, ...]:
            page = self._of_run(run)
            return decode_rows(page, self._texts(page))

        return self._read(events)

    def children(self, run: str) -> tuple[RunOverview, ...]:
        """Return the child runs of a run, oldest first; UnknownRun when there is no such run."""

        def overviews() -> tuple[RunOverview, ...]:
            own = self._of_run(run)
            within = (own[0].seq, last_of_performance(own))
            begun = self._rows(f"{_STARTED} AND seq > ? AND seq < ?", within)
            return self._overviews(children_among(begun, run))

        return self._read(overviews)

    def graded(self, limit: int) -> list[Run]:
        """Return the runs that were graded last, root runs or child runs, as evidence: without long texts."""
        newest = "SELECT run FROM events WHERE kind = ? AND seq > (SELECT MAX(seq) FROM events) - ? ORDER BY seq DESC"

        def runs() -> list[Run]:
            found = self._connection.execute(f"{newest} LIMIT ?", (AnswerGraded.kind, _EVENTS_SEARCHED, limit))
            names = list(dict.fromkeys(run for (run,) in found))
            counted = f"SELECT run, COUNT(*) FROM events WHERE run IN ({_places(names)}) GROUP BY run"  # noqa: S608
            return self._folded(few_enough(names, dict(self._connection.execute(counted, names))), EVIDENCE)

        return self._read(runs)

    def _of_run(self, run: str) -> list[EventRow]:
        page = self._rows("run = ?", (run,))
        if not page:
            raise UnknownRun(f"no run {run} in this journal")
        return page

    def _rows(self, where: str, values: Sequence[object]) -> list[EventRow]:
        return expand_rows(self._connection.execute(_ROWS.format(where), values))

    def _overviews(self, names: Sequence[str]) -> tuple[RunOverview, ...]:
        return tuple(map(RunOverview.of, self._folded(names)))

    def _folded(self, names: Sequence[str], only: frozenset[str] | None = None) -> list[Run]:
        runs = []
        for some in _chunks(names):
            page = self._rows(f"run IN ({_places(some)})", some)
            texts, rows = self._texts(page, only), events_by_run(page)
            runs += [fold_run(decode_rows(rows[name], texts)) for name in some]
        return runs

    def _texts(self, page: Sequence[EventRow], only: frozenset[str] | None = None) -> EventTexts:
        erasures = last_erasures(row for row in page if row.kind == BodiesErased.kind)
        wanted = wanted_texts(page, erasures, only)
        bodies: dict[str, bytes] = {}
        for keys in _chunks(sorted(wanted.keys())):
            # SQLite lets a writer store a text in a body's place
            found = f"SELECT hash, CAST(body AS BLOB) FROM bodies WHERE hash IN ({_places(keys)})"  # noqa: S608
            bodies.update(self._connection.execute(found, keys))
        return checked_texts(wanted, erasures, bodies)

    def _read(self, work: Callable[[], T]) -> T:
        try:
            self._connection.execute("BEGIN")
            try:
                return work()
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise JournalUnavailable(f"journal: {error}") from error


class PlainRecorder(JournalWriter):
    """A Recorder of a command that performs a run, and where it stores batches itself: a connection in a thread."""

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor, reader: JournalReader) -> None:
        super().__init__(self)
        self._connection, self._thread, self._reader = connection, thread, reader

    async def append(self, batch: EventBatch) -> None:
        """Store a batch of events, all of it or nothing."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._append, batch)
        except sqlite3.Error as error:
            raise JournalUnavailable(f"journal: {error}") from error

    def _append(self, batch: EventBatch) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            batch.append(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written; UnknownRun when there are none."""
        await self.flush()
        return self._reader.read(run)


@asynccontextmanager
async def open_recorder(url: str, patience: float = 5.0) -> AsyncIterator[Recorder]:
    """Open the journal at a URL or path to add events and read them back, as `shikisha.journal.open_journal` does."""
    with open_reader(url, patience) as reader:
        opened = None if reader is None else _connect_writer(Path(url.removeprefix(_PREFIX)), patience)
        if reader is None or opened is None:
            async with open_journal(url, patience=patience) as journal:
                yield journal
            return
        with closing(opened) as connection, ThreadPoolExecutor(1, "journal") as thread:
            async with PlainRecorder(connection, thread, reader) as recorder:
                yield recorder


@contextmanager
def open_reader(url: str, patience: float = 5.0) -> Iterator[JournalReader | None]:
    """Yield a reader of the journal at a URL or path; None where it has to be opened in the usual way."""
    path = Path(url.removeprefix(_PREFIX))
    if "://" in str(url).removeprefix(_PREFIX) or "?" in url or not path.is_file():
        yield None
        return
    try:
        opened = _connect(path, patience)
    except sqlite3.Error:
        yield None
        return
    with closing(opened) as connection:
        yield JournalReader(connection) if _is_current(connection) else None


def _connect_writer(path: Path, patience: float) -> sqlite3.Connection | None:
    """Return a connection that appends; None where the file is not one to be written."""
    connection = _connect(path, patience, check_same_thread=False)
    try:
        prepare_to_write(connection, patience)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.Error:
        connection.close()
        return None
    return connection


def prepare_to_write(connection: sqlite3.Connection, patience: float) -> None:
    """Have a connection sync each commit and leave nothing deleted in free pages, with the file in WAL mode.

    SQLite refuses that mode at once, without its own waiting, while another opens the file.
    """
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(0.005)  # SQLite's own busy handler is not asked for this statement
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")


def _connect(path: Path, patience: float, *, check_same_thread: bool = True) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode=rw"  # a log that no process has open is taken in by the first
    return sqlite3.connect(
        address, timeout=patience, uri=True, isolation_level=None, check_same_thread=check_same_thread
    )


def _is_current(connection: sqlite3.Connection) -> bool:
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA query_only = ON")
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        return found == [(CURRENT_REVISION,)]
    return False


def _chunks(values: Sequence[str]) -> Iterable[list[str]]:
    return (list(values[start : start + _IN_LIST]) for start in range(0, len(values), _IN_LIST))


def _places(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
