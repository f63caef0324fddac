"""Where the engine writes events, as a protocol, and the shipped fake that keeps them in memory.

Invariant 4 rests on two methods: `add` fixes the order and returns at once; `flush` returns when everything added so
far is durable. The engine awaits `flush` before every effect, so a decision is stored before what it decides happens,
and a step's end is stored together with the next step's beginning in one commit. Deliberately absent: queries (see
`journal`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

from shikisha.core.errors import UnknownRun
from shikisha.core.events import Event, RunStarted
from shikisha.core.run import Run


class Recorder(Protocol):
    """An append-only log of events."""

    def add(self, event: Event) -> None:
        """Append an event; it is durable once a later `flush` has returned."""
        ...

    def add_bundle(self, events: Sequence[Event]) -> int:
        """Append events of one run that are stored together; return how many rows that takes."""
        ...

    async def flush(self) -> None:
        """Return when every event added so far is durable; JournalUnavailable when that cannot be had."""
        ...

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written; UnknownRun when there are none."""
        ...


async def read_journaled(recorder: Recorder, run: str) -> tuple[Event, ...]:
    """Return a run's events; none where there is no such run."""
    try:
        return await recorder.read(run)
    except UnknownRun:
        return ()


class RunRecorder:
    """The recorder of one run: shows each event to an observer, and keeps the events so that the run can be folded.

    While `bundling`, what is added goes to the journal with the next flush, as one row.
    """

    def __init__(
        self, recorder: Recorder, observe: Callable[[Event], None] | None = None, past: Sequence[Event] = ()
    ) -> None:
        self._recorder = recorder
        self._observe = observe
        self._events = list(past)
        self.durable = False  # whether any event of this process is
        self.begun = bool(past)  # whether the journal was given any event
        self._bundle: list[Event] | None = None

    def add(self, event: Event) -> None:
        """Append an event, and show it to the observer."""
        self._events.append(event)
        if self._bundle is not None:
            self._bundle.append(event)
            return
        self._recorder.add(event)
        self.begun = True
        if self._observe is not None:
            self._observe(event)

    def add_bundle(self, events: Sequence[Event]) -> int:
        """Append events of this run, as `add` does."""
        for event in events:
            self.add(event)
        return len(events)

    def bundle(self) -> None:
        """Begin to bundle."""
        self._bundle = []

    def unbundle(self) -> None:
        """Bundle no more, and append what was held back."""
        events, self._bundle = self._bundle, None
        if events:
            self._append(events)

    def _append(self, events: Sequence[Event]) -> None:
        self._recorder.add_bundle(events)
        self.begun = True
        if self._observe is not None:
            for event in events:
                self._observe(event)

    async def flush(self) -> None:
        """Return when every event added so far is durable; JournalUnavailable when that cannot be had."""
        if self._bundle:
            events, self._bundle = self._bundle, []
            self._append(events)
        await self._recorder.flush()
        self.durable = True

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return the events of any run in the order written; UnknownRun when there are none."""
        return await self._recorder.read(run)

    def fold(self) -> Run:
        """Return the run as its events so far tell it."""
        return Run.fold(self._events)


class MemoryRecorder:
    """Keeps events in memory, for tests and for runs that need no audit."""

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = defaultdict(list)
        self._children: dict[str, list[str]] = defaultdict(list)

    def add(self, event: Event) -> None:
        """Append an event."""
        self._events[event.run].append(event)
        if isinstance(event, RunStarted) and event.parent is not None:
            self._children[event.parent].append(event.run)

    def add_bundle(self, events: Sequence[Event]) -> int:
        """Append events of one run."""
        for event in events:
            self.add(event)
        return len(events)

    async def flush(self) -> None:
        """Return at once: memory is as durable as it gets."""

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written."""
        if run not in self._events:
            raise UnknownRun(f"no run {run} in memory")
        return tuple(self._events[run])

    def forget(self, run: str) -> None:
        """Drop a run's events and its child runs', so that a long-lived process does not grow."""
        self._events.pop(run, None)
        for child in self._children.pop(run, ()):
            self.forget(child)
