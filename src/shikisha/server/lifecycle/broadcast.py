"""Updates of a run for any number of listeners: live from this process, or from the journal when it runs elsewhere.

Invariants: an event has the same number for every listener on every server (its place among the run's events), so a
listener that moves to another server misses nothing. Text pieces have no number; the events hold the whole answer. A
listener that arrives during an attempt gets all its text so far. A slow listener delays nobody.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    Event,
    QuestionAnswered,
    RunPaused,
    RunStatus,
)
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run
from shikisha.journal import Journal
from shikisha.server.store import RunStore, ServedState


@dataclass(frozen=True, slots=True)
class EventUpdate:
    """An event of the run, and its number, from 0."""

    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class TextUpdate:
    """A piece of a step's growing answer, of the attempt that is under way."""

    round: int
    step: int
    piece: str


RunUpdate = EventUpdate | TextUpdate


class LiveRun:
    """A run that is being performed in this process, and those who listen to it."""

    def __init__(self, run: str, past: Sequence[Event] = ()) -> None:
        self.run = run
        self.events = list(past)
        self._queues: list[asyncio.Queue[RunUpdate | None]] = []
        self._said: dict[tuple[int, int], tuple[int, list[str]]] = {}  # by attempts under way, since their events
        self.result: Run | None = None  # what it came to, once its performance here has returned
        self.past = len(self.events)
        self._ended = asyncio.Event()
        self.begun = asyncio.Event()  # there is an event

    @property
    def over(self) -> bool:
        """Whether nothing more is to come from this process."""
        return self._ended.is_set()

    @property
    def waits(self) -> bool:
        """Whether the run waits for somebody."""
        last = next((event for event in reversed(self.events) if not isinstance(event, QuestionAnswered)), None)
        return isinstance(last, RunPaused) and last.status is RunStatus.SUSPENDED

    def observe(self, event: Event) -> None:
        """Take an event in (the engine's observer); a child run's are not its parent's."""
        if event.run != self.run:
            return
        self.events.append(event)
        if len(self.events) == self.past + 1:
            self.begun.set()
        if isinstance(event, AttemptStarted) and event.step is not None:
            self._said[event.round, event.step] = (len(self.events) - 1, [])
        elif isinstance(event, AttemptFinished | AttemptFailed) and event.step is not None:
            self._said.pop((event.round, event.step), None)
        if self._queues:
            self._tell(EventUpdate(len(self.events) - 1, event))

    def say(self, round_index: int, step: int, piece: str) -> None:
        """Receive a piece of an answer (the engine's text callback)."""
        if (round_index, step) in self._said:
            self._said[round_index, step][1].append(piece)
        if self._queues:
            self._tell(TextUpdate(round_index, step, piece))

    def fold(self, events: Sequence[Event]) -> Run:
        """Return the run of these of its events, which need not be folded again if the engine has just folded them."""
        if self.result is not None and not self.past and len(events) == len(self.events):
            return self.result
        return Run.fold(events)

    async def whole(self, after: int = -1) -> AsyncGenerator[RunUpdate]:
        """Yield the events after a number once the run has ended or stops here, so that a listener is woken once."""
        await self._ended.wait()
        for number, event in list(enumerate(self.events))[after + 1 :]:
            yield EventUpdate(number, event)

    def end(self) -> None:
        """End the updates of all listeners."""
        self._ended.set()
        for queue in self._queues:
            queue.put_nowait(None)

    async def listen(self, after: int = -1) -> AsyncGenerator[RunUpdate]:
        """Yield the events after a number, then everything as it comes, until the run ends or stops here."""
        queue: asyncio.Queue[RunUpdate | None] = asyncio.Queue()
        known = list(enumerate(self.events))
        growing = [(place, pieces) for place, (since, pieces) in self._said.items() if since > after and pieces]
        said = [TextUpdate(*place, "".join(pieces)) for place, pieces in growing]
        if not self.over:
            self._queues.append(queue)
        try:
            for number, event in known[after + 1 :]:
                yield EventUpdate(number, event)
            for piece in said:
                yield piece
            while not (self.over and queue.empty()):
                heard = await queue.get()
                if heard is None:
                    return
                if not (isinstance(heard, EventUpdate) and heard.number <= after):
                    yield heard
        finally:
            if queue in self._queues:
                self._queues.remove(queue)

    def _tell(self, heard: RunUpdate) -> None:
        for queue in self._queues:
            queue.put_nowait(heard)


_POLL_SECONDS = 0.2  # seconds between two looks into the journal


async def follow_run(
    journal: Journal, store: RunStore, live: Callable[[], LiveRun | None], name: str, after: int
) -> AsyncGenerator[RunUpdate]:
    """Yield a run's events after a number, then everything that follows, until it ends, is stopped, or waits."""
    heard = after
    while True:
        here = live()
        if here is not None:
            async with aclosing(here.listen(heard)) as listening:
                async for item in listening:
                    if isinstance(item, EventUpdate):
                        heard = item.number
                    yield item
            if live() is None:
                return
            continue
        served = await store.find(name)
        over = (
            served is None or served.state is not ServedState.OPEN
        )  # looked at first: what it ended with is read below
        for number, event in enumerate(await journal.read(name)):
            if number > heard:
                heard = number
                yield EventUpdate(number, event)
        if over:
            return
        await asyncio.sleep(_POLL_SECONDS)
