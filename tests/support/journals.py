"""What the journal's tests share: the events of small runs, and a way into a SQLite journal behind its back."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from shikisha.core.budget import Amount, Caps, Usage
from shikisha.core.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    PlanProposed,
    RunFinished,
    RunStarted,
    RunStatus,
    StepFinished,
)
from shikisha.core.plan import Plan, Step
from shikisha.journal import Journal

PLAN = Plan((Step("Say it.", 0),)).dumps()


def started(run: str, at: float = 1.0, *, parent: str | None = None, prompt: str = "What is it?") -> RunStarted:
    pool = ("ann",)
    return RunStarted(run=run, at=at, conductor="fixed:single", pool=pool, caps=Caps(), prompt=prompt, parent=parent)


def finished(run: str, at: float = 9.0, answer: str = "It.") -> RunFinished:
    return RunFinished(run=run, at=at, status=RunStatus.DONE, round=0, step=0, answer=answer)


def attempt(run: str) -> AttemptStarted:
    reserved = Amount(100, 0.1)
    return AttemptStarted(run=run, at=3.0, round=0, step=0, attempt=0, worker="ann", key="k", reserved=reserved)


def answered(run: str, text: str) -> AttemptFinished:
    used = Usage(10, 5)
    return AttemptFinished(
        run=run, at=4.0, round=0, step=0, attempt=0, worker="ann", text=text, usage=used, dollars=0.02
    )


def whole(run: str, *, parent: str | None = None, answer: str = "It.") -> list[Event]:
    """A run of one step, from its start to its end."""
    return [
        started(run, parent=parent),
        PlanProposed(run=run, at=2.0, round=0, conductor="fixed:single", plan=PLAN),
        attempt(run),
        answered(run, answer),
        StepFinished(run=run, at=5.0, round=0, step=0, worker="ann", attempt=0),
        finished(run, answer=answer),
    ]


async def keep(journal: Journal, events: Iterable[Event]) -> None:
    """Add events and see them stored."""
    for event in events:
        journal.add(event)
    await journal.flush()


@contextmanager
def behind(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can do to a journal's file whatever SQLite allows; what it does is committed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
