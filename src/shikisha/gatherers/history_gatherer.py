"""Gather past commits whose messages are like the task: what was done then, and which files changed together.

Invariant: what a commit says is data; reading runs nothing of the repository (`context.git_history`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

from shikisha.context.git_history import Commit, GitRepository
from shikisha.core.task import Task
from shikisha.engine.gatherer import ContextPiece
from shikisha.retrieval.text_index import IndexedText, TextIndex

_MOST_COMMITS, _BEST, _FILES_SHOWN, _MESSAGE_SHOWN = 5_000, 12, 15, 1_200


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
                self._commits = self.repository.commits(_MOST_COMMITS)
                texts = [IndexedText("", (one.message, " ".join(one.files[:50]))) for one in self._commits]
                self._index = TextIndex(texts, (1.0, 0.5))
            self._looked = monotonic()
        return self._index, self._commits


def _shown(commit: Commit) -> str:
    more = f" and {len(commit.files) - _FILES_SHOWN} more" if len(commit.files) > _FILES_SHOWN else ""
    files = ", ".join(commit.files[:_FILES_SHOWN])
    return f"{commit.message[:_MESSAGE_SHOWN]}\nChanged together: {files or 'nothing'}{more}"
