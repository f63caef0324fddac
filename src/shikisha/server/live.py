"""A run as it happens: whoever listens hears the same events in the same order, from any place on.

Invariant: an event has the same number for every listener and after every restart (its place among the run's events in
the journal); text pieces are heard as they come and bear no number: the answer is in the events. Whoever comes while
an attempt is under way hears all that it has said. A slow listener holds up nobody. Deliberately absent: runs performed
elsewhere (`house` reads those from the journal).
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from shikisha.events import AttemptFailed, AttemptFinished, AttemptStarted, Event, QuestionAnswered, RunPaused, Status


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the run, and its number, from 0."""

    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of a step's growing answer, of the attempt that is under way."""

    round: int
    step: int
    piece: str


Heard = Happened | Said


class Live:
    """A run that is being performed in this process, and those who listen to it."""

    def __init__(self, run: str, past: Sequence[Event] = ()) -> None:
        self.run = run
        self.events = list(past)
        self._ears: list[asyncio.Queue[Heard | None]] = []
        self._said: dict[tuple[int, int], tuple[int, list[str]]] = {}  # by attempts under way, since their events
        self.over = False

    @property
    def waits(self) -> bool:
        """Whether the run came to where it waits for somebody."""
        last = next((event for event in reversed(self.events) if not isinstance(event, QuestionAnswered)), None)
        return isinstance(last, RunPaused) and last.status is Status.SUSPENDED

    def observe(self, event: Event) -> None:
        """Take an event in (the engine's observer); a child run's are not its parent's."""
        if event.run != self.run:
            return
        self.events.append(event)
        if isinstance(event, AttemptStarted) and event.step is not None:
            self._said[event.round, event.step] = (len(self.events) - 1, [])
        elif isinstance(event, AttemptFinished | AttemptFailed) and event.step is not None:
            self._said.pop((event.round, event.step), None)
        self._tell(Happened(len(self.events) - 1, event))

    def say(self, round_index: int, step: int, piece: str) -> None:
        """Take in a piece of an answer (the engine's `on_text`)."""
        if (round_index, step) in self._said:
            self._said[round_index, step][1].append(piece)
        self._tell(Said(round_index, step, piece))

    def end(self) -> None:
        """Nothing follows: every listener comes to its end."""
        self.over = True
        for ear in self._ears:
            ear.put_nowait(None)

    async def listen(self, after: int = -1) -> AsyncGenerator[Heard]:
        """Yield the events after a number, then everything as it comes, until the run ends or stops here."""
        ear: asyncio.Queue[Heard | None] = asyncio.Queue()
        known = list(enumerate(self.events))
        growing = [(place, pieces) for place, (since, pieces) in self._said.items() if since > after and pieces]
        said = [Said(*place, "".join(pieces)) for place, pieces in growing]
        if not self.over:
            self._ears.append(ear)
        try:
            for number, event in known[after + 1 :]:
                yield Happened(number, event)
            for piece in said:
                yield piece
            while not (self.over and ear.empty()):
                heard = await ear.get()
                if heard is None:
                    return
                if not (isinstance(heard, Happened) and heard.number <= after):
                    yield heard
        finally:
            if ear in self._ears:
                self._ears.remove(ear)

    def _tell(self, heard: Heard) -> None:
        for ear in self._ears:
            ear.put_nowait(heard)
