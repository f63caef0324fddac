"""Take what erased runs left out of memory and learned files, as a part of every erasure (`Journal.on_erased`).

A lesson, a skill or a note goes with any run of its evidence; advice is emptied, and so are examples of classes. Step
values are numbers and stay. Invariants: a changed file is looked at again, so that what was written from a run that is
erased by then goes too; what remains is as usable as before. Deliberately absent: versions in policy registries.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from glob import escape
from pathlib import Path
from time import time_ns
from typing import Any

from sqlalchemy import Connection, select

from shikisha.core.errors import ConfigError, JournalUnavailable
from shikisha.core.events import BodiesErased
from shikisha.journal import Journal
from shikisha.journal.queries import count_events, read_erasures
from shikisha.journal.schema import EVENTS
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha.learned.memory_index import MemoryIndex
from shikisha.notes.worker_notes import is_notes, load_notes

_LOG = logging.getLogger(__name__)
_EVENTS_PER_QUERY = 5_000
_ERASURES = "erasures"  # the position up to which erasures were looked for
_GONE = ".erased"  # in a folder of skills: a skill leaves as a whole by moving there, and is deleted then


@dataclass(slots=True)
class LearnedErasure:
    """Takes texts of erased runs out of the learned files, or folders of skills, that `files` names by now."""

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
                    found = await asyncio.to_thread(lambda: {file: _evidence(file) for file in stamps})
                    runs = {run for evidence in found.values() for run in evidence}
                    erased = frozenset(await self.journal.query(partial(read_erasures, runs=runs)))
                    hit = [file for file, evidence in found.items() if not erased.isdisjoint(evidence)]
                    await asyncio.to_thread(_forget, files, hit, erased)
            except (ConfigError, OSError) as error:
                raise JournalUnavailable(f"{error}: correct or remove this learned file, and erase again") from None
            self._seen, self._stamps = last, stamps


def _stamps(files: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Return the files that are there, those of skills for a folder, with what changes when they do."""
    there = [each for file in files for each in (sorted(file.glob("*/plan.json")) if file.is_dir() else [file])]
    return {file: (found.st_mtime_ns, found.st_size) for file in there if file.exists() for found in [file.stat()]}


def _evidence(file: Path) -> Collection[str]:
    """Return the runs whose texts a file may have."""
    if is_notes(file):
        return {run for note in load_notes(file).notes for run in note.runs}
    learned = read_learned(file)
    return learned.evidence if learned.kind in ("lessons", "prompt", "classes", "skill") else ()


def _forget(files: Sequence[Path], hit: Sequence[Path], erased: frozenset[str]) -> None:
    """Take erased runs out of the files that were hit; delete what writers left that did not live to finish."""
    for file in hit:
        _LOG.warning("%s loses what it has of erased runs", file)
        if is_notes(file):
            load_notes(file).without(erased).save(file)
        elif file.name == "plan.json" and file.parent.parent in files:
            (file.parent.parent / _GONE).mkdir(mode=0o700, exist_ok=True)
            file.parent.replace(file.parent.parent / _GONE / str(time_ns()))
        else:
            _rewrite(file, erased)
    for file in files:
        for part in file.parent.glob(f".{escape(file.name)}.*[0-9]"):
            part.unlink(missing_ok=True)
        if (file / _GONE).exists():
            shutil.rmtree(file / _GONE)


def _rewrite(file: Path, erased: frozenset[str]) -> None:
    learned = read_learned(file)
    content: dict[str, Any] = dict(learned.content)
    left = [run for run in learned.evidence if run not in erased]
    if learned.kind == "lessons":
        content["lessons"] = [row for row in content["lessons"] if erased.isdisjoint(row["evidence"])]
        left = [run for row in content["lessons"] for run in row["evidence"]]
    elif learned.kind == "prompt":
        content["advice"] = ""
    else:  # the name of a class is a run's words too, until a person confirms it
        for at, row in enumerate(content["classes"]):
            row |= {"examples": [], "domains": {}, "name": row["name"] if row["confirmed_by"] else f"erased-{at}"}
    scope = learned.scope if left else replace(learned.scope, labels=frozenset())  # labels are words too
    write_learned(file, replace(learned, content=content, evidence=tuple(dict.fromkeys(left)), scope=scope, gain=None))


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
