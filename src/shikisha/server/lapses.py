"""Streams end when whoever opened one could not open it now: the key was revoked, has lost a scope, or has expired.

Invariant: a stream outlives its key by EVERY seconds and the second for which keys are remembered, however much or
little it says; its last event says why it ends. While the store cannot be asked nobody can say, and the stream goes on
until it can. Deliberately absent: what streams hold, and those of `/v1/chat/completions`, which end with their run.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

from fastapi import Request

from shikisha.errors import JournalUnavailable
from shikisha.server.problems import Problem

T = TypeVar("T")
EVERY = 2.0  # seconds between two looks at a stream's key
Look = Callable[[], Awaitable[Sequence[T] | None]]


def door(
    request: Request, ask: Callable[[Request], Awaitable[object]], told: Callable[[Problem], Awaitable[Sequence[T]]]
) -> Look[T]:
    """Return the look that asks the door again which let the request in, and tells what it says if it is shut now."""

    async def look() -> Sequence[T] | None:
        try:
            await ask(request)
        except Problem as problem:
            return await told(problem)
        except JournalUnavailable:
            return None
        return None

    return look


async def until(look: Look[T], events: AsyncGenerator[T], every: float = EVERY) -> AsyncGenerator[T]:
    """Yield the events until they end, or until the look, taken every so many seconds, gives last ones to send."""
    following: asyncio.Task[T] | None = None
    looked = monotonic()
    try:
        while True:
            if following is None:
                following = asyncio.create_task(heard_next(events))
            done, _ = await asyncio.wait({following}, timeout=max(0.0, looked + every - monotonic()))
            if done:
                heard, following = following, None
                try:
                    yield heard.result()
                except EOFError:
                    return
            if monotonic() - looked >= every:
                last, looked = await look(), monotonic()
                if last is not None:
                    for each in last:
                        yield each
                    return
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        await events.aclose()


async def heard_next(listening: AsyncIterator[T]) -> T:
    """Return what is heard next; EOFError at the end (a task cannot end in StopAsyncIteration)."""
    try:
        return await anext(listening)
    except StopAsyncIteration:
        raise EOFError from None
