"""Put the pieces of all sources together within one budget of tokens and seconds, and try now and then without some.

Each source is asked at once and gets its share of the tokens; what one leaves free goes to the best pieces of the
others. In a share of the runs a source, or half of all, is left out by a draw that the journal has, so that outcomes
with and without it can be compared (`evals.context_audit`). Invariants: the tokens taken never exceed the budget; no
source is waited for longer than the seconds; a piece with a guarded label that the task does not bear is left out;
whatever is left out says why; the draw depends on the run's id alone.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from time import perf_counter

from shikisha.core.errors import ShikishaError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.task import Task, storage_problem
from shikisha.core.visibility import NO_LABELS, Labels
from shikisha.engine.gatherer import ContextPiece, GatheredContext, Gatherer, PieceLeftOut

_MOST_PIECES = 200  # of a source
_MOST_LEFT_OUT = 60  # that a journal keeps


@dataclass(frozen=True, slots=True)
class WeightedGatherer:
    """A source by name, and its part of the tokens in relation to the other sources'."""

    name: str
    gatherer: Gatherer
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """The shipped ContextSource."""

    sources: tuple[WeightedGatherer, ...]
    tokens: int = 4_000
    seconds: float = 2.0
    trial: float = 0.0
    guarded: Labels = NO_LABELS

    async def gather_context(self, task: Task, run: str) -> GatheredContext:
        """Ask all sources that the draw leaves, and take what fits."""
        start = perf_counter()
        dropped, propensity = self._draw(run)
        asked = [source for source in self.sources if source.name not in dropped]
        found = await asyncio.gather(*(self._ask(source, task, asked) for source in asked))
        choice = _PieceChoice(task, self.tokens, self.guarded)
        choice.left += [PieceLeftOut(name, "", "a trial left this source out") for name in dropped]
        choice.left += [out for _, problems in found for out in problems]
        queues = [(source, list(pieces)) for source, (pieces, _) in zip(asked, found, strict=True)]
        for source, pieces in queues:
            choice.take(pieces, self._room(source, asked))
        rest = sorted((piece for _, pieces in queues for piece in pieces), key=lambda piece: -piece.score)
        choice.take(rest, self.tokens)
        choice.left += [PieceLeftOut(piece.source, piece.name, f"no room for {piece.tokens} tokens") for piece in rest]
        return GatheredContext(
            tuple(choice.taken),
            tuple(choice.left[:_MOST_LEFT_OUT]),
            perf_counter() - start,
            tuple(source.name for source in self.sources),
            dropped,
            propensity,
        )

    def _room(self, source: WeightedGatherer, asked: Sequence[WeightedGatherer]) -> int:
        return int(self.tokens * source.share / sum(each.share for each in asked))

    def _draw(self, run: str) -> tuple[tuple[str, ...], float | None]:
        """Return the sources that this run does without, and with which probability these were drawn."""
        if not self.trial or not self.sources:
            return (), None
        luck = [int.from_bytes(sha256(f"{run} {part}".encode()).digest()[:6], "big") / 2**48 for part in range(4)]
        if luck[0] >= self.trial:
            return (), 1 - self.trial
        names = [source.name for source in self.sources]
        if len(names) < 3 or luck[1] < 0.5:
            halves = 1.0 if len(names) < 3 else 0.5
            return (names[int(luck[2] * len(names))],), self.trial * halves / len(names)
        ranked = sorted(names, key=lambda name: sha256(f"{run} half {name}".encode()).digest())
        return tuple(ranked[: len(names) // 2]), self.trial * 0.5

    async def _ask(
        self, source: WeightedGatherer, task: Task, asked: Sequence[WeightedGatherer]
    ) -> tuple[list[ContextPiece], list[PieceLeftOut]]:
        try:
            async with asyncio.timeout(self.seconds):
                pieces = await source.gatherer.gather(task, max(self._room(source, asked), self.tokens // 2))
            return [piece for piece in pieces[:_MOST_PIECES] if piece.text.strip()], []
        except TimeoutError:
            why = f"no answer within {self.seconds:g} s"
        except (ShikishaError, OSError, ValueError) as error:
            why = f"failed: {error}"[:300]
        return [], [PieceLeftOut(source.name, "", why)]


@dataclass(slots=True)
class _PieceChoice:
    """What is taken so far."""

    task: Task
    tokens: int
    guarded: Labels
    taken: list[ContextPiece] = field(default_factory=list)
    left: list[PieceLeftOut] = field(default_factory=list)

    def take(self, pieces: list[ContextPiece], room: int) -> None:
        """Take pieces in order while there is room, and remove from the list all that need not be looked at again."""
        room = min(room, self.tokens)
        waiting = []
        for piece in pieces:
            if why := self._refusal(piece):
                self.left.append(PieceLeftOut(piece.source, piece.name, why))
            elif piece.tokens <= room:
                self.taken.append(piece)
                room -= piece.tokens
                self.tokens -= piece.tokens
            else:
                waiting.append(piece)
        pieces[:] = waiting

    def _refusal(self, piece: ContextPiece) -> str:
        hidden = sorted(self.guarded.intersection(piece.labels).difference(self.task.labels))
        if hidden:
            return f"it has the label {hidden[0]}, which the task does not bear"
        if problem := storage_problem(piece.text + piece.name):
            return f"it holds {problem}"
        if any(_overlap(piece, other) for other in self.taken):
            return "taken already"
        return ""


def _overlap(piece: ContextPiece, other: ContextPiece) -> bool:
    if piece.name != other.name:
        return piece.text == other.text
    return not piece.first or not other.first or (piece.first <= other.last and other.first <= piece.last)
