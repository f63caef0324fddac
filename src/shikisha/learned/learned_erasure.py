"""Take what erased runs left out of memory and proposed classes, as a part of every erasure (`Journal.on_erased`).

Classes lose the examples that they have of erased runs. Invariants: a changed file is looked at again, so that what was
written from a run that is erased by then goes too; what remains is as usable as before. Deliberately absent: outcome
models, which are learned again (`journal_learner`), and versions in policy registries.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from shikisha.core.errors import ConfigError, JournalUnavailable
from shikisha.core.events import BodiesErased
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.journal import Journal
from shikisha.journal.queries import count_events, read_erasures
from shikisha.journal.schema import EVENTS
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha.learned.memory_index import MemoryIndex

CLASSES_KIND = "classes"
_LOG = logging.getLogger(__name__)
_EVENTS_PER_QUERY = 5_000
_ERASURES = "erasures"  # the position up to which erasures were looked for


@dataclass(slots=True)
class LearnedErasure:
    """Takes texts of erased runs out of the files of proposed classes that `files` names by now."""

    files: Callable[[], Sequence[Path]]
    journal: Journal
    _seen: int = 0  # events that were looked through for erasures
    _stamps: dict[Path, tuple[int, int]] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self) -> None:
        """Look at what changed: files, or erased runs; JournalUnavailable where a file cannot be read or written."""
        async with self._turn:  # maintenance and requests erase at the same time
            last, files = await self.journal.query(count_events), self.files()
            try:
                stamps = await asyncio.to_thread(_stamps, files)
                changed = stamps != self._stamps
                new = () if changed else await self.journal.query(partial(_erased, first=self._seen, until=last))
                if changed or new:
                    found = await asyncio.to_thread(lambda: {file: read_learned(file).evidence for file in stamps})
                    runs = {run for evidence in found.values() for run in evidence}
                    erased = frozenset(await self.journal.query(partial(read_erasures, runs=runs)))
                    hit = [file for file, evidence in found.items() if not erased.isdisjoint(evidence)]
                    await asyncio.to_thread(_forget, hit, erased)
            except (ConfigError, OSError) as error:
                raise JournalUnavailable(f"{error}: correct or remove this learned file, and erase again") from None
            self._seen, self._stamps = last, stamps


def _stamps(files: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Return the files that are there, with what changes when they do."""
    return {file: (found.st_mtime_ns, found.st_size) for file in files if file.exists() for found in [file.stat()]}


def _forget(files: Sequence[Path], erased: Collection[str]) -> None:
    """Take erased runs out of files of classes; delete what writers left that did not live to finish."""
    for file in files:
        _LOG.warning("%s loses what it has of erased runs", file)
        learned = read_learned(file, CLASSES_KIND)
        content: dict[str, Any] = dict(learned.content)
        left = tuple(run for run in learned.evidence if run not in erased)
        for at, row in enumerate(content["classes"]):  # a class's name is a run's words too, until it is confirmed
            row |= {"examples": [], "domains": {}, "name": row["name"] if row["confirmed_by"] else f"erased-{at}"}
        scope = learned.scope if left else replace(learned.scope, labels=frozenset())  # labels are words too
        write_learned(file, replace(learned, content=content, evidence=left, scope=scope))
        for part in file.parent.glob(f".{escape(file.name)}.*[0-9]"):
            part.unlink(missing_ok=True)


def _erased(connection: Connection, first: int, until: int) -> set[str]:
    """Return the runs that were erased in this stretch of the journal."""
    where = (EVENTS.c.seq >= first, EVENTS.c.seq < until, EVENTS.c.kind == BodiesErased.kind)
    return set(connection.execute(select(EVENTS.c.run).where(*where)).scalars())


@dataclass(slots=True)
class MemoryErasure:
    """Takes what erased runs left out of a memory, whatever else of the journal it has not taken in yet."""

    file: Path
    journal: Journal
    _seen: int = 0  # events that were looked through for erasures

    async def __call__(self) -> None:
        """Look for erasures since the last time; JournalUnavailable where the file cannot be written."""
        last = await self.journal.query(count_events)
        if self._seen == last or not self.file.exists():
            return
        try:
            first = max(self._seen, await asyncio.to_thread(self._position))
            erased = await self.journal.query(partial(_erased, first=first, until=last))
            if erased or last - first >= _EVENTS_PER_QUERY:
                await asyncio.to_thread(self._forget, erased, last)
        except ConfigError as error:
            raise JournalUnavailable(f"memory: {error}") from None
        self._seen = last

    def _position(self) -> int:
        with MemoryIndex(self.file) as memory:
            return max(memory.position(), memory.position(_ERASURES))

    def _forget(self, erased: Collection[str], last: int) -> None:
        with MemoryIndex(self.file) as memory:
            if erased:
                memory.forget(erased)
                memory.scrub()
            memory.advance(last, _ERASURES)
