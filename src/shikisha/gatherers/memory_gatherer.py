"""Gather lessons from earlier runs that fit the task (`learned.lessons`), each with the runs that it is from."""

from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.core.task import Task
from shikisha.engine.gatherer import ContextPiece
from shikisha.learned.lessons import LessonBook

_MOST = 8


@dataclass(frozen=True, slots=True)
class MemoryGatherer:
    """The lessons of a book that are not retired."""

    source: str
    book: LessonBook

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:  # noqa: ARG002 - few and short
        """Return the lessons on work most like the task's."""
        labels = tuple(self.book.source.labels)
        return [
            ContextPiece(
                f"{lesson.text} (from runs {', '.join(lesson.evidence[:3])})",
                self.source,
                lesson.id,
                score=1 / (1 + rank),
                labels=labels,
            )
            for rank, lesson in enumerate(self.book.recall(task.prompt, _MOST))
        ]
