"""A run's events as they happen, as server-sent events, wherever it is performed.

Invariant: one event of the stream for each event of the run, its number as `id`; a stream ends with the run, and says
so (`end`). While a run waits, its stream stays open. The resolved configuration is left out: it is the operator's.
Deliberately absent: a stream for several runs.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict

from shikisha.errors import ShikishaError
from shikisha.events import Event, RunFinished
from shikisha.server.house import House, root_of
from shikisha.server.live import Happened
from shikisha.server.mapping import problem_of
from shikisha.server.problems import Problem
from shikisha.server.store import State
from shikisha.server.withholding import withheld

_LOOK = 0.25  # seconds between two looks at a run that waits


async def events(
    house: House, run: str, after: int, *, pieces: bool = False, hidden: bool = False
) -> AsyncGenerator[bytes]:
    """Yield a run's events after a number, until it ends; `hidden`: without texts that wait for a review."""
    heard = after
    try:
        while True:
            async with aclosing(house.listen(run, heard)) as hearing:
                async for item in hearing:
                    if isinstance(item, Happened):
                        heard = item.number
                        event = withheld(item.event) if hidden else item.event
                        yield _sent(event.kind, plain(event), heard)
                    elif pieces:
                        yield _sent("text", asdict(item))
            if await over(house, run, heard):
                yield _sent("end", {"status": str((await house.past(run)).status)})
                return
            await asyncio.sleep(_LOOK)
    except ShikishaError as error:
        for each in await refused(problem_of(error)):
            yield each


async def refused(problem: Problem) -> tuple[bytes]:
    """Return the last event of a stream that ends before the run does: why."""
    return (_sent("error", dict(problem.body())),)


async def over(house: House, run: str, after: int) -> bool:
    """Whether a run has come to its end, and has no events after a number."""
    served, past = await house.served(root_of(run)), await house.journal.read(run)
    ended = served.state in (State.ENDED, State.STOPPED) or any(isinstance(each, RunFinished) for each in past)
    return ended and len(past) - 1 <= after


async def ended(house: House, run: str) -> None:
    """Return when a run has ended, or waits for somebody."""
    while (await house.served(run)).state is State.OPEN:
        async with aclosing(house.listen(run)) as hearing:
            async for _ in hearing:
                pass
        if house.closing:
            return
        await asyncio.sleep(0.01)


def plain(event: Event) -> dict[str, object]:
    """Return an event as JSON has it."""
    told = {name: value for name, value in asdict(event).items() if name != "config"}
    return {"kind": event.kind, **told}


def _sent(kind: str, told: dict[str, object], number: int | None = None) -> bytes:
    head = "" if number is None else f"id: {number}\n"
    if number is not None:
        told = {"number": number, **told}
    return f"{head}event: {kind}\ndata: {json.dumps(told, separators=(',', ':'))}\n\n".encode()
