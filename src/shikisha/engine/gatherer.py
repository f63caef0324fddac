"""What a task is to be seen with, and what its answer ships as: the ports on both ends of a run.

A Gatherer finds pieces of one source for a task; a ContextSource puts those of all sources together before the run
starts, once, so that every worker sees the same and a resumed run gathers nothing again. An AnswerStep changes an
answer after the last call. Invariants: a gatherer that fails costs its pieces and never the run; pieces are data of the
user's, quoted with where they come from; what has a guarded label comes only to a task that bears it; every change of
an answer is an event of its own. Deliberately absent: gathering for single steps.
"""

import json
from collections.abc import Callable, Sequence
from time import time
from typing import Protocol

from shikisha.core.events import AnswerChanged, ContextGathered
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.messages import Json
from shikisha.core.task import Task, storage_problem

_TOKEN_CHARACTERS = 4


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for four characters, rounded up."""
    return -(-len(text) // _TOKEN_CHARACTERS)


@dataclass(frozen=True, slots=True)
class ContextPiece:
    """A text, its source, the name of what it is from, its lines there (0: no lines), its score, and its labels."""

    text: str
    source: str
    name: str
    first: int = 0
    last: int = 0
    score: float = 0.0
    labels: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The tokens of the piece with its heading, as estimated."""
        return count_tokens(self.shown)

    @property
    def shown(self) -> str:
        """The piece as workers see it."""
        lines = f", lines {self.first}-{self.last}" if self.first else ""
        return f"[{self.source}: {self.name}{lines}]\n{self.text.rstrip()}\n"


@dataclass(frozen=True, slots=True)
class PieceLeftOut:
    """What was found, or a whole source, and why no worker sees it."""

    source: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class GatheredContext:
    """What was taken, in the order in which it is shown, and what was left out; `dropped` by a trial's draw."""

    taken: tuple[ContextPiece, ...] = ()
    left: tuple[PieceLeftOut, ...] = ()
    seconds: float = 0.0
    sources: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    propensity: float | None = None

    def add_to(self, task: Task) -> Task:
        """Return the task with the pieces behind its own context."""
        shown = "\n".join(piece.shown for piece in self.taken)
        return replace(task, context="\n\n".join(filter(None, (task.context, shown)))) if shown else task

    def event(self, run: str) -> ContextGathered:
        """Return the event that records it."""
        taken: list[Json] = [
            {
                "source": piece.source,
                "name": piece.name,
                "first": piece.first,
                "last": piece.last,
                "score": round(piece.score, 4),
                "tokens": piece.tokens,
                "labels": list(piece.labels),
            }
            for piece in self.taken
        ]
        left: list[Json] = [{"source": one.source, "name": one.name, "why": one.why} for one in self.left]
        return ContextGathered(
            run=run,
            at=time(),
            taken=json.dumps(taken),
            left=json.dumps(left),
            tokens=sum(piece.tokens for piece in self.taken),
            seconds=self.seconds,
            sources=self.sources,
            dropped=self.dropped,
            propensity=self.propensity,
        )


class Gatherer(Protocol):
    """Finds pieces of one source."""

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:
        """Return pieces for the task, the best first, hardly more than fit into so many tokens.

        ConfigError or OSError when the source cannot be read.
        """
        ...


class ContextSource(Protocol):
    """Puts together what all sources have for a task."""

    async def gather_context(self, task: Task, run: str) -> GatheredContext:
        """Return what the run's workers are to see besides the task. It does not raise."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerStep:
    """A change of answers, by name: it returns the answer as it is where there is nothing to change."""

    name: str
    change: Callable[[str], str]


def change_answer(run: str, answer: str, steps: Sequence[AnswerStep]) -> tuple[str, list[AnswerChanged]]:
    """Return the answer after all steps, and an event for each that changed it; none may leave it empty."""
    events = []
    for step in steps:
        after = step.change(answer)
        if after != answer and after.strip() and storage_problem(after) is None:
            events.append(AnswerChanged(run=run, at=time(), by=step.name, before=answer, after=after))
            answer = after
    return answer, events
