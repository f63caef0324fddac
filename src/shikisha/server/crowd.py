"""The crowd: how many connections there may be, which goes when there is no room, and how patient we are with each.

Every connection in which it is the client's turn (nothing was sent yet, half a request, idle after an answer) stands in
one line, the longest there first (who sends a good deal at a time goes to its end, who drips does not). Where there is
no room the first in line is closed, so somebody who sends whole requests gets in past any number of those who do not;
then whoever takes nothing of an answer for a while. If all are being answered, the new one gets a place that is kept
for probes.

Invariant: inbound connections never take more descriptors than `room` (of this process's limit) leaves for the journal
and for calls to workers. Deliberately absent: bytes (`connections`); limits by address (behind a proxy everybody has
the same one).
"""

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

if sys.platform != "win32":
    import resource

_OWN = 64  # descriptors that the server itself keeps: journal, listening socket, logs, pipes
_MOST = 10_000  # connections, however many descriptors there are
_MOST_DESCRIPTORS = 65_536  # what the soft limit is raised to, where the hard one allows it
_LOOKED_AT = 64  # connections of which it is found out whether they have just sent something
_TURNS = 4  # of the loop that others get to be heard, where there is no place but theirs
_WAIT = 1.0  # seconds after which it is looked again whether somebody is stuck long enough to go


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a client may take."""

    head: float = 20.0  # from connecting, or from its first byte until a request's head (and a small body) is whole
    idle: float = 75.0  # between two requests
    stall: float = 60.0  # in which it takes next to nothing of its answer
    crowded: float = 5.0  # the same, while others want the place
    linger: float = 10.0  # the same, once the answer is written and the connection about to be closed
    look: float = 2.0  # between two looks at a connection


def descriptors() -> int | None:
    """Raise this process's limit on open files as far as it may; return it (None: there is none)."""
    if sys.platform == "win32":
        return None  # it has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


def room(limit: int | None, wanted: int | None = None) -> int:
    """Return how many connections there may be under a limit on descriptors: two thirds of what is not our own.

    The rest is for calls to workers (see `runs_at_once`).
    """
    most = _MOST if limit is None else max(8, 2 * (limit - _OWN) // 3)
    return min(most, _MOST if wanted is None else wanted)


def runs_at_once(limit: int | None, wanted: int) -> int:
    """Return how many runs there may be at once: each calls at least one worker, and may outlive its connection."""
    return wanted if limit is None else min(wanted, max(8, (limit - _OWN) // 3))


class Guest(Protocol):
    """A connection, as far as the crowd knows it."""

    @property
    def held_up(self) -> bool:
        """Whether the client is silent because we do not read, or is gone already."""
        ...

    @property
    def spoke(self) -> bool:
        """Whether it has sent something that was not read yet, because others had their turn."""
        ...

    def turn_away(self) -> None:
        """Close the connection because others want its place."""
        ...


class Crowd:
    """All connections of a server, and the line of those in which it is the client's turn."""

    def __init__(self, most: int, patience: Patience | None = None) -> None:
        self.most = most
        self.kept = max(2, min(32, most // 4))  # places for probes, beside the others
        self.patience = patience or Patience()
        self.number = 0
        self.turned_away = 0
        self._line: OrderedDict[Guest, None] = OrderedDict()  # the longest there first
        self._stuck: OrderedDict[Guest, float] = OrderedDict()  # and since when they take nothing of their answers
        self._changed = asyncio.Event()
        self._now = time.monotonic

    def enter(self, connection: Guest) -> bool:
        """Take a connection in; False if it stands in a place that is kept for probes."""
        self.number += 1
        full = self.number > self.most and not self._make_room()
        self._line[connection] = None
        return not full

    def leave(self, connection: Guest) -> None:
        """Let a connection go."""
        self.number -= 1
        self._line.pop(connection, None)
        self._stuck.pop(connection, None)
        self._changed.set()

    def heard(self, connection: Guest) -> None:
        """Put a connection that sent a good deal at the end of the line, if it stands in it."""
        if connection in self._line:
            self._line.move_to_end(connection)

    def waits(self, connection: Guest) -> None:
        """It is the client's turn."""
        self._line[connection] = None
        self._line.move_to_end(connection)
        self._changed.set()

    def works(self, connection: Guest) -> None:
        """It is our turn."""
        self._line.pop(connection, None)

    def sticks(self, connection: Guest, *, stuck: bool) -> None:
        """Note that a client takes nothing more of its answer for now, or does again."""
        if stuck:
            self._stuck[connection] = self._now()
        else:
            self._stuck.pop(connection, None)

    async def has_place(self) -> None:
        """Return once one more can be accepted: those that were closed just now have given up their descriptors."""
        while self.number >= self.most + self.kept and not self._make_room():
            await self._change()
        while self.number >= self.most + 2 * self.kept:
            await self._change()
        for _ in range(_TURNS):  # those at the front may have spoken, and only wait for the loop to read it
            if self.number < self.most or next(self._silent(), None) is not None:
                return
            await asyncio.sleep(0)

    def places(self, most: int) -> int:
        """Return how many of so many can be accepted at once: 1 at least, and no more than places and who gives way."""
        silent = sum(1 for _ in islice(self._silent(), most))
        return max(1, min(most, self.most - self.number + silent))

    def _silent(self) -> Iterator[Guest]:
        """Yield those at the front of the line that say nothing."""
        return (each for each in islice(self._line, _LOOKED_AT) if not each.held_up and not each.spoke)

    async def _change(self) -> None:
        """Wait until somebody leaves or gets in line; with time, somebody may be stuck long enough to go."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                await self._changed.wait()

    def _make_room(self) -> bool:
        """Close the connection that was silent longest, or else takes nothing of its answer; False if there is none."""
        stuck = (each for each, since in self._stuck.items() if self._now() - since >= self.patience.crowded)
        first = next(chain(self._silent(), (each for each in self._line if not each.held_up), islice(stuck, 1)), None)
        if first is None:
            return False
        self._line.pop(first, None)
        self._stuck.pop(first, None)
        self.turned_away += 1
        first.turn_away()
        return True
