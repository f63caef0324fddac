"""Gather lessons from earlier runs that fit the task (`learned.lessons`), each with the runs that it is from."""

from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.core.prompts import quote_lines
from shikisha.core.task import Scope, Task
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
        labels = self.book.source.scope.labels  # which go with the pieces, so that the task need not bear them
        return [
            ContextPiece(
                f"A model's note on runs {', '.join(lesson.evidence[:3])}, as data:\n{quote_lines(lesson.text)}",
                self.source,
                lesson.id,
                score=1 / (1 + rank),
                labels=tuple(sorted(labels)),
            )
            for rank, lesson in enumerate(self.book.recall(task.prompt, Scope(task.tenant, labels), _MOST))
        ]
