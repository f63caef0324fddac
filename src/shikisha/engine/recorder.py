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
    """The recorder of one run: shows each event to an observer, and keeps the events so that the run can be folded."""

    def __init__(
        self, recorder: Recorder, observe: Callable[[Event], None] | None = None, past: Sequence[Event] = ()
    ) -> None:
        self._recorder = recorder
        self._observe = observe
        self._events = list(past)
        self.durable = False  # whether any event of this process is

    def add(self, event: Event) -> None:
        """Append an event, and show it to the observer."""
        self._events.append(event)
        self._recorder.add(event)
        if self._observe is not None:
            self._observe(event)

    async def flush(self) -> None:
        """Return when every event added so far is durable; JournalUnavailable when that cannot be had."""
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
