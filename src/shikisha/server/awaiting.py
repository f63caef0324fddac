"""Waiting for something on behalf of a client that may leave. Deliberately absent: streams (`sse`)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from fastapi import Request

from shikisha.server.house import House

_GRACE = 0.9
T = TypeVar("T")


def grace(house: House) -> float:
    """Return how many seconds streams go on once the server is told to stop: a little less than runs do."""
    return _GRACE * house.settings.drain


async def unless_left(request: Request, making: Coroutine[object, object, T], gone: Callable[[], Awaitable[None]]) -> T:
    """Return what is made; `gone` is called if the client leaves meanwhile, and what is made comes to its end then."""
    made, leaving = asyncio.ensure_future(making), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({made, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not made.done():
            await gone()
        return await made
    finally:
        leaving.cancel()
        made.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
