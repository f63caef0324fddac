"""Group commit: one task that stores what many runs add, a batch at a time.

Invariant: events are stored in the order they were added, in whole batches, and a `flush` returns when, and only when,
everything added before it is durable. Works (`add_work`, `on_batch`) are done in the transaction of the events around
them, once. When the store does not take a batch, every waiting flush fails; the events are kept, in order, and the next
flush tries them again first, so that a full disk or a lock loses nothing and needs no restart. What is kept so is
bounded: beyond it new runs are refused as they begin. A writer whose fence says that its process was taken for dead
stores nothing more, and stops that process's runs before it answers any flush. Deliberately absent: retries by the
clock (the store's own patience is the only waiting) and queues per run.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self
from uuid import uuid4

from shikisha.core.errors import JournalUnavailable, ServerFenced
from shikisha.core.events import Event, RunFinished, RunPaused, RunStarted
from shikisha.journal.chain import EventBatch, TransactionWork, encode_records
from shikisha.journal.codec import EncodedEvent, bundle_events, encode_event

LINGER = 0.002  # seconds from a full batch's commit to the next: 2 ms later, for a quarter of an event's CPU time
CROWD_SIZE = 8  # events in a batch: so many come from several runs, and more will follow at once
MAX_WAITING_EVENTS = 10_000  # events that may wait for an unavailable store before new runs are refused


class BatchStore(Protocol):
    """Where batches are stored."""

    async def append(self, batch: EventBatch) -> None:
        """Store a batch of events, all of it or nothing; tried again after a lost answer it is stored once."""
        ...


class JournalWriter:
    """The events that are not durable yet, the flushes that wait for them, and the task (`run`) that stores them."""

    def __init__(self, driver: BatchStore) -> None:
        self._driver = driver
        self._name = uuid4().hex
        self._pending: list[EncodedEvent] = []
        self._works: list[TransactionWork] = []
        self._hooks: list[Callable[[], Iterable[TransactionWork]]] = []
        self._cuts = 0
        self._fence: TransactionWork | None = None
        self._on_expelled: Callable[[], None] | None = None
        self._batch: EventBatch | None = None  # on its way to the store, or kept because the store did not take it
        self._added = 0
        self._durable = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._failure: JournalUnavailable | None = None
        self._open = True

    @property
    def left(self) -> int:
        """How many events and works were added and are not durable as far as we know."""
        return self._added - self._durable

    def add(self, event: Event, further: Sequence[Event] = (), kind: str = "") -> None:
        """Append an event; JournalUnavailable when closed, or when it begins a run and too many events wait already.

        `further` events of its run are stored with it, in one row of this kind.
        """
        if not self._open or self._failure:
            self._check_open()
        if self._failure and self.left >= MAX_WAITING_EVENTS and isinstance(event, RunStarted):
            self._wake.set()
            raise JournalUnavailable(f"no new run while {self.left} events wait to be stored: {self._failure}")
        self._pending.append(encode_event(event) if not further else bundle_events((event, *further), kind))
        self._added += 1

    def add_bundle(self, events: Sequence[Event]) -> int:
        """Append events of one run as one row, which is found by the kind of the run's beginning, or of its last event.

        An end in the row of a beginning could not be found: it has one of its own. Returns how many rows there are.
        """
        begins, ends = isinstance(events[0], RunStarted), isinstance(events[-1], RunFinished | RunPaused)
        together = events[:-1] if begins and ends else events
        self.add(together[0], together[1:], together[0 if begins else -1].kind)
        for event in events[len(together) :]:
            self.add(event)
        return 1 + len(events) - len(together)

    def add_work(self, work: TransactionWork) -> None:
        """Have the work done in the transaction of the events added around it, by the next commit.

        A statement that may clash needs ON CONFLICT: a work whose statement the store refuses is left out.
        """
        self._check_open()
        self._works.append(work)
        self._added += 1

    def on_batch(self, hook: Callable[[], Iterable[TransactionWork]]) -> None:
        """Ask the hook for works to go with each batch, and once more as the writer ends."""
        self._hooks.append(hook)

    def admit(self, fence: TransactionWork, on_expelled: Callable[[], None]) -> None:
        """Call the fence in every transaction; its ServerFenced ends all writing until the next `admit`."""
        self._fence, self._on_expelled = fence, on_expelled
        if isinstance(self._failure, ServerFenced):
            self._failure = None

    async def flush(self) -> None:
        """Return when everything added so far is durable; JournalUnavailable when that could not be had."""
        if isinstance(self._failure, ServerFenced):
            self._check_open()
        if not self.left:
            return
        self._check_open()
        durable = asyncio.get_running_loop().create_future()
        self._waiting.append((self._added, durable))
        self._wake.set()
        await durable

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()  # its failure ends whoever entered
        self._group.create_task(self.run())
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Store what there is; JournalUnavailable where something could not be stored."""
        self.stop()
        await self._group.__aexit__(None, None, None)  # which would wrap the error
        if error is None and self.left:
            raise JournalUnavailable(f"{self.left} events could not be stored before the journal was closed")

    def stop(self) -> None:
        """Take no further events; `run` stores what there is and returns."""
        self._open = False
        self._wake.set()

    async def run(self) -> None:
        """Store batches until `stop`, and then what is left, if the store takes it."""
        try:
            while self._open or self.left:
                if self._open:
                    await self._wake.wait()
                    self._wake.clear()
                stored = await self._store_next()
                if self._failure and not self._open:
                    return
                if stored >= CROWD_SIZE and self._open:
                    await asyncio.sleep(LINGER)
            await self._store_next()  # what the hooks still have
        finally:
            self._open = False
            self._answer(self._added, self._failure or JournalUnavailable("the journal is closed"))

    async def _store_next(self) -> int:
        """Store the batch that was kept, or else all that is pending, answer flushes; return how many were stored."""
        if isinstance(self._failure, ServerFenced):
            return 0
        if self._batch is None:
            self._batch = self._cut()
        count = len(self._batch.entries) + len(self._batch.works)
        try:
            if count:
                try:
                    await self._driver.append(self._batch)
                except JournalUnavailable as error:
                    if not self._batch.may_leave_out(error):
                        raise
                    await self._driver.append(self._batch)
        except ServerFenced as error:
            self._expel(error)
            return 0
        except JournalUnavailable as error:
            self._failure = error
            self._answer(self._added, error)
            return 0
        self._batch, self._failure = None, None
        self._durable += count
        self._answer(self._durable)
        if self._waiting:
            self._wake.set()
        return count

    def _cut(self) -> EventBatch:
        works = (*self._works, *[work for hook in self._hooks for work in hook()])
        entries = [*self._pending, *(encode_records(works) if works else ())]
        self._added += len(works) - len(self._works) + len(entries) - len(self._pending)
        self._cuts += 1
        batch = EventBatch(entries, works, self._name, self._cuts, self._fence)
        self._pending, self._works = [], []
        return batch

    def _expel(self, error: ServerFenced) -> None:
        """Drop everything; stop this process's runs, and only then answer the flushes."""
        self._failure, self._batch, self._pending, self._works = error, None, [], []
        self._durable = self._added
        if self._on_expelled is not None:
            self._on_expelled()
        self._answer(self._added, error)

    def _answer(self, until: int, failure: JournalUnavailable | None = None) -> None:
        while self._waiting and self._waiting[0][0] <= until:
            waiter = self._waiting.popleft()[1]
            if waiter.done():  # its flush was cancelled
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(type(failure)(str(failure)))

    def _check_open(self) -> None:
        if not self._open:
            raise JournalUnavailable("the journal is closed")
        if isinstance(self._failure, ServerFenced):
            raise ServerFenced(str(self._failure))
