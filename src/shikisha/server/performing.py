"""The runs under way in this process: each a task of one group, watched, charged, and let go of in order.

Invariants: nothing that happens to one run reaches another; whatever a run ends in, those who listen come to an end;
a run that the journal could not take any further is kept in mind (`stuck`), to go on once it can. Deliberately absent:
which runs those are (`house`).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence

from shikisha.conduct import Engine
from shikisha.errors import JournalError, JournalUnavailable, ShikishaError
from shikisha.events import Event, Status
from shikisha.journal import Journal
from shikisha.run import Run
from shikisha.server.problems import Problem
from shikisha.server.purses import Purses
from shikisha.server.running import Running

_LOG = logging.getLogger(__name__)


class Performing(ABC):
    """What is performed here, by name; `watchers` hear every event, `recallers` what a run had before it goes on here.

    `endings` are called, each in a thread, when nothing is performed any more.
    """

    def __init__(self, journal: Journal, purses: Purses, drain: float) -> None:
        self.journal = journal
        self.purses = purses
        self.running: dict[str, Running] = {}
        self.watchers: list[Callable[[Event], None]] = []
        self.recallers: list[Callable[[Sequence[Event]], None]] = []
        self.endings: list[Callable[[], None]] = []
        self.stuck: set[str] = set()
        self.expulsions = 0
        self.closing = False
        self._drain = drain
        self._group: asyncio.TaskGroup | None = None

    def enter(self, group: asyncio.TaskGroup) -> None:
        """Perform runs in this group."""
        self._group = group

    async def close(self) -> None:
        """Begin nothing more, give runs time to end, and interrupt what has not ended."""
        self.closing = True
        tasks = [running.task for running in self.running.values() if running.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=self._drain)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def expelled(self) -> None:
        """Let go of every run: another server holds them now (this one was silent for longer than its lease)."""
        for running in self.running.values():
            running.expelled = True
            if running.task is not None:
                running.task.cancel()
        self.stuck.clear()
        self.purses.forget()
        self.expulsions += 1

    def perform(self, name: str, running: Running, performing: Coroutine[object, object, Run]) -> None:
        """Perform a run in a task of its own."""
        if self._group is None:
            raise RuntimeError("the house is not open")
        self.running[name] = running
        running.task = self._group.create_task(self._performed(name, running, performing), name=f"run {name}")

    async def _performed(self, name: str, running: Running, performing: Coroutine[object, object, Run]) -> Run | None:
        """Perform a run to its end, or to where it waits; nothing that happens to it reaches other runs."""
        run: Run | None = None
        try:
            run = await performing
        except asyncio.CancelledError:
            if not (running.stopped or running.expelled or self.closing):
                raise
        except JournalUnavailable as error:
            running.failure = unwritable()
            if running.acknowledged and not running.expelled:
                self.stuck.add(name)
            _LOG.warning("run %s cannot be written down: %s", name, type(error).__name__)
        except ShikishaError as error:
            running.failure = error
            self.given_up(name, running)
        except Exception as error:  # noqa: BLE001 - one run's surprise must not end all the others
            running.failure = Problem(500, f"run {name} ended unexpectedly", "internal_error")
            _LOG.exception("run %s: %s", name, type(error).__name__)
            self.given_up(name, running)
        finally:
            self.running.pop(name, None)
            running.purse.over()
            running.live.end()
        if run is not None and run.status is Status.SUSPENDED and running.answered:
            await self.waited(name)
        return run

    @abstractmethod
    def given_up(self, name: str, running: Running) -> None:
        """Note that a run cannot be performed any further: nobody is to take it up by itself."""

    @abstractmethod
    async def waited(self, name: str) -> None:
        """Go on with a run that waits, and has got what it waits for meanwhile."""

    async def acknowledged(self, running: Running) -> None:
        """Return when the run's start is durable; Problem when the journal did not take it."""
        await asyncio.sleep(0)  # the run's own task adds its first event
        running.purse.begun()  # counted with that event, in one commit
        try:
            await self.journal.flush()
        except JournalError as error:
            raise unwritable() from error
        running.acknowledged = True
        if running.failure is not None and not running.live.events:
            raise running.failure

    def drop(self, running: Running) -> None:
        """Let go of a run that could not be begun, or whose client went away meanwhile."""
        running.stopped = True
        if running.task is not None:
            running.task.cancel()

    def lent(self, engine: Engine, running: Running) -> Engine:
        """Return the engine for one run."""
        watchers = [running.live.observe, *self.watchers]

        def observe(event: Event) -> None:
            for watcher in watchers:
                watcher(event)

        return engine.lent(observe, running.live.say, running)


def unwritable() -> Problem:
    """Return what is said while nothing can be recorded."""
    return Problem(
        503,
        "the journal cannot be written now, and nothing is done that cannot be recorded",
        "journal_unavailable",
        wait=2,
    )
