"""Playing many tasks through many entrants: what is missing is played, what is there is not played again.

Invariants: a pair (entrant, task) with a sample is not played again, unless it failed and failures are to be retried;
when a limit is reached nothing new is begun and all that was done is kept (at a limit of dollars what is in flight
ends; at one of seconds it is cancelled, and asked again later under its key); samples are on the disk a moment after
they are made, and all of them before `play` returns.
Deliberately absent: where tasks are played (an Executor: this process, several, or a cluster) and what the figures say.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from shikisha.errors import ShikishaError
from shikisha.evaluate.keeping import Keep
from shikisha.evaluate.playing import Player
from shikisha.evaluate.samples import Entrant, Sample
from shikisha.events import Mark, Status
from shikisha.taskset import Item

Heard: TypeAlias = Callable[[Sample, str], None]
_SYNC_EVERY = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class Job:
    """A task for an entrant; `attempt` counts earlier tries that failed."""

    entrant: Entrant
    item: Item
    attempt: int = 0


class Executor(Protocol):
    """Where jobs are played."""

    async def play(self, jobs: Sequence[Job], heard: Heard) -> None:
        """Play the jobs and tell of each sample, with its line; return early when the dollars are spent."""
        ...


class Stop(StrEnum):
    """Why an evaluation ended before its end."""

    DOLLARS = "dollars"  # its limit of dollars is reached
    SECONDS = "seconds"  # its limit of seconds is reached


class Local:
    """Plays in this process, `at_once` tasks at a time."""

    def __init__(self, player: Player, at_once: int) -> None:
        self._player, self._at_once = player, at_once

    async def play(self, jobs: Sequence[Job], heard: Heard) -> None:
        """Play the jobs in order."""
        waiting = iter(jobs)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(jobs))):
                group.create_task(self._pull(waiting, heard))

    async def _pull(self, waiting: Iterator[Job], heard: Heard) -> None:
        for job in waiting:
            if self._player.purse.empty:
                return
            sample = await self._player.play(job.entrant, job.item, job.attempt)
            if sample is not None:
                heard(sample, sample.dumps())


@dataclass(slots=True)
class Evaluation:
    """An evaluation that goes on: its folder, who plays, its limit of seconds, and who is told of samples."""

    keep: Keep
    executor: Executor
    deadline: float | None = None  # on the event loop's clock
    retry_failed: bool = False
    heard: Callable[[Sample], None] | None = None
    stopped: Stop | None = None

    async def play(self, entrants: Sequence[Entrant], items: Sequence[Item]) -> None:
        """Play every task through every entrant as far as that is not done and the limits allow."""
        if self.stopped is not None:
            return
        jobs = [job for entrant in entrants for item in items if (job := self._job(entrant, item)) is not None]
        syncing = asyncio.create_task(self._sync())
        try:
            async with asyncio.timeout_at(self.deadline):
                await self.executor.play(jobs, self._take)
        except ExceptionGroup as group:
            raise _first(group) from None
        except TimeoutError:
            if self.deadline is None or asyncio.get_running_loop().time() < self.deadline:
                raise
            self.stopped = Stop.SECONDS
        finally:
            syncing.cancel()
            with suppress(asyncio.CancelledError):
                await syncing
            await asyncio.shield(self.keep.sync())
        paying = [job for job in jobs if not job.entrant.kept]
        if self.stopped is None and any(self.keep.find(job.entrant, job.item) is None for job in paying):
            self.stopped = Stop.DOLLARS

    def missing(self, entrant: Entrant, item: Item) -> bool:
        """Whether this pair is still to be played."""
        return self._job(entrant, item) is not None

    def _job(self, entrant: Entrant, item: Item) -> Job | None:
        sample = self.keep.find(entrant, item)
        if sample is None or (self.retry_failed and failed(sample)):
            return Job(entrant, item, self.keep.tries(entrant, item))
        return None

    def _take(self, sample: Sample, line: str) -> None:
        self.keep.put(sample, line)
        if self.heard is not None:
            self.heard(sample)

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_EVERY)
            await self.keep.sync()


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """Return what went wrong in a group of tasks, of several the first that we have words for."""
    leaves = [_first(each) if isinstance(each, ExceptionGroup) else each for each in group.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, ShikishaError)), leaves[0])


def failed(sample: Sample) -> bool:
    """Whether something other than the answer is to blame: the run ended without one, or the checker failed."""
    return sample.status not in (Status.DONE,) or sample.mark is Mark.UNGRADED
