"""Gather parts of the files in a folder, ranked by words, imports, tests and, in a git repository, by its history.

Invariants: only regular files in the folder are read, and no link is followed, so nothing outside of it is ever seen; a
folder outside of its root (by `..`, an absolute path or a link) is a ConfigError; the number and size of files are
bounded; the index is made in a thread, again only when files have changed, and at most every `refresh` seconds. Files
that git ignores are ignored where there is a repository. Deliberately absent: watching the file system.

Gather past commits whose messages are like the task: what was done then, and which files changed together.
"""

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from threading import Lock
from time import monotonic

from shikisha.context.file_search import FileSearch
from shikisha.context.git_history import Commit, GitRepository
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.task import Task
from shikisha.engine.gatherer import ContextPiece
from shikisha.retrieval.text_index import IndexedText, TextIndex

_MOST_LISTED_COMMITS, _BEST, _FILES_SHOWN, _MESSAGE_SHOWN = 5_000, 12, 15, 1_200


@dataclass(slots=True)
class HistoryGatherer:
    """The newest commits of a repository; pieces have these labels."""

    source: str
    repository: GitRepository
    labels: tuple[str, ...] = ()
    refresh: float = 60.0
    _commits: list[Commit] = field(default_factory=list)
    _index: TextIndex | None = None
    _looked: float = field(default=float("-inf"))
    _lock: Lock = field(default_factory=Lock)

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:  # noqa: ARG002 - few and short
        """Return the commits most like the task."""
        return await asyncio.to_thread(self._gather, task.prompt)

    def _gather(self, query: str) -> list[ContextPiece]:
        with self._lock:
            index, commits = self._current()
        found = index.search(query, _BEST)
        top = float(found.scores.max(initial=0.0)) or 1.0
        return [
            ContextPiece(_shown(commits[at]), self.source, commits[at].sha[:12], 0, 0, float(score) / top, self.labels)
            for at, score in zip(found.positions[:_BEST].tolist(), found.scores, strict=False)
        ]

    def _current(self) -> tuple[TextIndex, list[Commit]]:
        if self._index is None or monotonic() - self._looked >= self.refresh:
            newest = self.repository.commits(1)
            if self._index is None or newest[:1] != self._commits[:1]:
                self._commits = self.repository.commits(_MOST_LISTED_COMMITS)
                texts = [IndexedText("", (one.message, " ".join(one.files[:50]))) for one in self._commits]
                self._index = TextIndex(texts, (1.0, 0.5))
            self._looked = monotonic()
        return self._index, self._commits


def _shown(commit: Commit) -> str:
    more = f" and {len(commit.files) - _FILES_SHOWN} more" if len(commit.files) > _FILES_SHOWN else ""
    files = ", ".join(commit.files[:_FILES_SHOWN])
    return f"{commit.message[:_MESSAGE_SHOWN]}\nChanged together: {files or 'nothing'}{more}"


MOST_FILES, LARGEST_FILE, MOST_BYTES = 20_000, 300_000, 200_000_000
_MOST_COMMITS = 5_000
_BEST_FILES, _PARTS_OF_FILE = 30, 3
_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".tox", "dist", "build"})

Stamp = tuple[tuple[str, int, int], ...]


def folder_inside(folder: str, root: Path) -> Path:
    """Return a folder of the root; ConfigError when it is outside, by whatever path or link, or no folder."""
    given, base = Path(folder), root.resolve()
    place = (base / given).resolve()
    if not place.is_relative_to(base):
        raise ConfigError(f"{folder}: expected a folder inside {base}, and it leads to {place}")
    if not place.is_dir():
        raise ConfigError(f"{folder}: there is no such folder in {base}")
    return place


@dataclass(slots=True)
class FileGatherer:
    """Files of a folder that match `include` and not `exclude`; pieces have these labels."""

    source: str
    folder: Path
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    history: bool = True
    refresh: float = 30.0
    _search: FileSearch | None = None
    _stamp: Stamp = ()
    _looked: float = field(default=float("-inf"))
    _lock: Lock = field(default_factory=Lock)

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:
        """Return the best parts of the best files."""
        return await asyncio.to_thread(self._gather, task.prompt, tokens)

    def _gather(self, query: str, tokens: int) -> list[ContextPiece]:
        with self._lock:
            search = self._current()
        pieces: list[ContextPiece] = []
        room = 2 * tokens  # what does not fit at once may fit where another source leaves room
        for rank, file in enumerate(search.rank(query, _BEST_FILES, _PARTS_OF_FILE)):
            for part in file.parts:
                score = file.score / (1 + 0.1 * rank)
                piece = ContextPiece(part.text, self.source, part.file, part.first, part.last, score, self.labels)
                room -= piece.tokens
                if room < 0:
                    return pieces
                pieces.append(piece)
        return pieces

    def _current(self) -> FileSearch:
        """Return the index, made again where files have changed since."""
        if self._search is not None and monotonic() - self._looked < self.refresh:
            return self._search
        found = dict(self._scan())
        stamp = tuple((name, about.st_mtime_ns, about.st_size) for name, about in sorted(found.items()))
        if self._search is None or stamp != self._stamp:
            texts = {name: text for name in found if (text := self._read(name)) is not None}
            self._search, self._stamp = FileSearch(texts, self._commits()), stamp
        self._looked = monotonic()
        return self._search

    def _scan(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the regular files, by their names in the folder."""
        waiting, count, size = [""], 0, 0
        while waiting:
            inner = waiting.pop()
            try:
                entries = sorted(os.scandir(self.folder / inner), key=lambda entry: entry.name)
            except OSError:
                continue  # removed a moment ago, or not ours to read
            for entry in entries:
                name = f"{inner}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith("."):
                        waiting.append(f"{name}/")
                elif entry.is_file(follow_symlinks=False) and self._wanted(name):
                    about = entry.stat(follow_symlinks=False)
                    if about.st_size > LARGEST_FILE:
                        continue
                    count, size = count + 1, size + about.st_size
                    if count > MOST_FILES or size > MOST_BYTES:
                        raise ConfigError(
                            f"{self.folder}: more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes: narrow `folder`, "
                            "`include` or `exclude`"
                        )
                    yield name, about

    def _wanted(self, name: str) -> bool:
        matches = any(fnmatch(name, pattern) for pattern in self.include)
        return matches and not any(fnmatch(name, pattern) for pattern in self.exclude)

    def _read(self, name: str) -> str | None:
        """Return a file's text; None for what is no text, or was replaced by a link since."""
        try:
            descriptor = os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
                data = file.read(LARGEST_FILE + 1) if regular else b"\0"
        except OSError:
            return None
        return None if b"\0" in data or len(data) > LARGEST_FILE else data.decode(errors="replace")

    def _commits(self) -> list[Commit]:
        """Return the history, where the folder is a repository of its own."""
        if not self.history or not (self.folder / ".git").exists():
            return []
        try:
            return GitRepository(self.folder).commits(_MOST_COMMITS)
        except ConfigError:
            return []  # no commit yet, or no git here: words remain
