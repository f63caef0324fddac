"""Queues of shared threads and places in which every owner has its turn, however much another owner has queued.

An owner is whoever the work is done for: at a server the key of the request, elsewhere nobody in particular.
Invariants: owners with waiting work are served in turn, each its own work in order; one owner has at most its share of
a pool's threads, so that there is one for somebody else; what is not accepted yet (a request) is refused
where its owner has too much waiting, and what is (a run) never. Each unit bounds its own time: nothing here stops one.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Generic, ParamSpec, TypeVar

from shikisha.core.errors import CapReached
from shikisha.core.fast_dataclass import dataclass

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkOwner:
    """Whom work is done for. `most_waiting`: how many units of it a queue takes; None for work that was accepted."""

    name: str = ""
    most_waiting: int | None = None


WORK_OWNER: ContextVar[WorkOwner] = ContextVar("work_owner", default=WorkOwner())  # noqa: B039 - it is frozen


class _Turns(Generic[T]):
    """Units that wait, by owner. Not safe for threads."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()  # the owner whose turn it is first
        self._begun = Counter[str]()

    def add(self, unit: T) -> None:
        """Queue a unit of the present owner; CapReached when that has too many."""
        owner = WORK_OWNER.get()
        waiting = self._waiting.get(owner.name, deque())
        if owner.most_waiting is not None and len(waiting) >= owner.most_waiting:
            raise CapReached("queue", f"{len(waiting)} units of this key's work wait already: try again later")
        waiting.append(unit)
        self._waiting.setdefault(owner.name, waiting)

    def take(self) -> tuple[str, T] | None:
        """Begin the unit whose turn it is; None when every owner with a waiting one has its share under way."""
        owner = next((name for name in self._waiting if self._begun[name] < self._share), None)
        if owner is None:
            return None
        waiting = self._waiting.pop(owner)
        self._begun[owner] += 1
        unit = waiting.popleft()
        if waiting:
            self._waiting[owner] = waiting  # behind the others
        return owner, unit

    def end(self, owner: str) -> None:
        """Count a unit as done."""
        self._begun[owner] -= 1
        if not self._begun[owner]:
            del self._begun[owner]


class FairExecutor(ThreadPoolExecutor):
    """Threads that owners take turns at: `share` are the most that one has at once, and `more` are for the others."""

    def __init__(self, name: str, share: int, more: int = 1) -> None:
        super().__init__(share + more, name)
        self._turns: _Turns[tuple[Future[object], Callable[[], object]]] = _Turns(share)
        self._guard = Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Queue a call for the present owner."""
        done: Future[T] = Future()
        with self._guard:
            self._turns.add((done, partial(fn, *args, **kwargs)))  # type: ignore[arg-type]  # it is set to what fn returns
        super().submit(self._serve)
        return done

    def _serve(self) -> None:
        """Run units until none may begin: what an owner's share held back is taken by whoever ends a unit of it."""
        while True:
            with self._guard:
                taken = self._turns.take()
            if taken is None:
                return
            owner, (done, call) = taken
            try:
                if done.set_running_or_notify_cancel():
                    try:
                        result = call()
                    except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits, as in any executor
                        done.set_exception(error)
                    else:
                        done.set_result(result)
            finally:
                with self._guard:
                    self._turns.end(owner)
            del taken, done, call  # what a thread that waits refers to would live until its next unit


class FairSemaphore:
    """An asyncio semaphore whose places go to waiting owners in turn."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._turns: _Turns[asyncio.Future[None]] = _Turns(places)

    async def __aenter__(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._turns.add(place)
        self._grant()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it was granted at the same moment
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._free += 1
        self._grant()

    def _grant(self) -> None:
        while self._free and (taken := self._turns.take()) is not None:
            owner, place = taken
            self._turns.end(owner)
            if not place.cancelled():
                self._free -= 1
                place.set_result(None)
