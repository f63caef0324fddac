"""Attending a run for a client: what is told of it until it ends, wants the client's tools, or waits too long.

Invariant: a run that waits for a person is attended on for so many seconds, and then given up as it is (it waits on);
nothing here answers for anybody. Deliberately absent: how any of it is written to the client.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from shikisha.events import AttemptFinished, QuestionAsked, QuestionKind, Status
from shikisha.run import Run
from shikisha.server.live import Heard
from shikisha.server.telling import Paused, Piece, Teller, Told
from shikisha.server.toolcalls import outward
from shikisha.turn import ToolCall

_LOOK = 0.25  # seconds between two looks at a run that waits for a person


class Hears(Protocol):
    """Where runs are heard: the house."""

    def listen(self, name: str, after: int = -1) -> AsyncGenerator[Heard]:
        """Yield a run's events after a number, and everything that follows until it ends or waits."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """The run waits for the client: it is to make these calls, and come back with their results."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The run waits for a person, who did not come in time: questions of its own (a child run's are not among them).

    `suspended` False: it does not wait, but nobody performs it now.
    """

    questions: tuple[QuestionAsked, ...]
    suspended: bool = True


async def attend(house: Hears, name: str, teller: Teller, patience: float) -> AsyncGenerator[Told | Wanted | Kept]:
    """Yield what is told of a run; the last of it is Ended, Replaced, Wanted, Kept, or Paused (INTERRUPTED)."""
    until: float | None = None
    clock = asyncio.get_running_loop().time
    while True:
        paused = False
        async with aclosing(house.listen(name, teller.heard)) as hearing:
            async for heard in hearing:
                for told in teller.hear(heard):
                    paused = isinstance(told, Paused)
                    if not (isinstance(told, Paused) and told.status is Status.SUSPENDED):
                        yield told
        if teller.over:
            return
        waits = _waits(teller)
        if isinstance(waits, Wanted):
            for piece in _said_besides(teller):
                yield piece
            yield waits
            return
        until = clock() + patience if paused or until is None else until
        if clock() >= until:
            yield waits
            return
        await asyncio.sleep(_LOOK)


def _waits(teller: Teller) -> Wanted | Kept:
    run = Run.fold(teller.events)
    for question in run.open_questions:
        if question.asks is QuestionKind.TOOLS:
            return Wanted(outward(question))
    return Kept(tuple(run.open_questions), run.status is Status.SUSPENDED)


def _said_besides(teller: Teller) -> Iterable[Piece]:
    """Yield what the worker said besides its calls, as far as it has not been told."""
    spoken = [each for each in teller.events[teller.after + 1 :] if isinstance(each, AttemptFinished) and each.calls]
    text = spoken[-1].text if spoken else ""
    if text.startswith(teller.text) and text != teller.text:
        yield Piece(text[len(teller.text) :])
