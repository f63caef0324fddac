"""The recorder of served runs: events go to the journal, and what a run's row says goes along in the same commit.

Invariant: a run's end and its row's end, and a run's wait and its row's wait, are durable together or not at all, so
a list never shows a run as open that has ended, and nobody takes over what is over. Deliberately absent: deciding
anything; and the rows of runs that were not begun here (the command line's).
"""

from collections.abc import Mapping

from shikisha.events import Event, RunFinished, RunPaused, RunResumed, Status
from shikisha.journal import Journal
from shikisha.server.running import Running
from shikisha.server.store import State, Store


class Clerk:
    """A Recorder in front of the journal; `running` are the runs that this process performs."""

    def __init__(self, journal: Journal, store: Store, running: Mapping[str, Running]) -> None:
        self._journal = journal
        self._store = store
        self._running = running

    def add(self, event: Event) -> None:
        """Append an event, and say in the run's row what it means for the run."""
        self._journal.add(event)
        running = self._running.get(event.run)
        if running is None:
            return
        match event:
            case RunFinished():
                self._mark(event, State.ENDED, event.status, running)
            case RunPaused(status=Status.SUSPENDED):
                self._mark(event, State.WAITING, event.status, running)
            case RunPaused():
                self._mark(event, State.STOPPED if running.stopped else State.OPEN, event.status, running)
            case RunResumed():
                self._mark(event, State.OPEN, Status.RUNNING, running)
            case _:
                pass

    async def flush(self) -> None:
        """Return when every event added so far is durable."""
        await self._journal.flush()

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written."""
        return await self._journal.read(run)

    def _mark(self, event: Event, state: State, status: Status, running: Running) -> None:
        self._store.mark(event.run, state, status=status, used=running.used, uncertain=running.uncertain)
