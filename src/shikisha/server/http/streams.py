"""Server-sent events: keep-alives, the limit on open streams, and the end of a stream whose key was revoked.

Invariants: a keep-alive is a comment, or an event that the API has for it; each event leaves as soon as it exists.
Streams never take more than half of the connections, and one key never more than half of that. A stream outlives the
revocation of its key by a few seconds at most, and its last event says why it ends. Streams of completions end with
their run and need no such check.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import TypeVar

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message

from shikisha.core.errors import JournalUnavailable
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import Principal
from shikisha.server.lifecycle.service import RunService

PING_SECONDS = 15  # seconds
PING_COMMENT = ServerSentEvent(comment="ping")


def event_stream(
    events: AsyncIterator[bytes],
    headers: Mapping[str, str],
    gone: Callable[[], Awaitable[None]] | None = None,
    grace: float = 0.0,
    ping: ServerSentEvent = PING_COMMENT,
) -> EventSourceResponse:
    """Return the response that sends these events.

    `gone` is called if the client leaves before the end; `grace` is how many seconds it may go on once the server is
    told to stop; `ping` keeps the connection alive.
    """

    async def left(_: Message) -> None:
        if gone is not None:
            await gone()

    return EventSourceResponse(
        events,
        headers=dict(headers),
        ping=PING_SECONDS,
        ping_message_factory=lambda: ping,
        client_close_handler_callable=left,
        shutdown_grace_period=grace,
    )


def named_event(name: str, value: object) -> bytes:
    """Return an event of this name that holds this as JSON."""
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def sse_data(value: object) -> bytes:
    """Return an event that holds this as JSON."""
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


DONE_EVENT = b"data: [DONE]\n\n"


_GRACE_SHARE = 0.9
T = TypeVar("T")


def stream_grace(service: RunService) -> float:
    """Return how many seconds streams may continue once the server stops: a little less than runs."""
    return _GRACE_SHARE * service.settings.drain


async def run_unless_disconnected(
    request: Request, making: Coroutine[object, object, T], gone: Callable[[], Awaitable[None]]
) -> T:
    """Return the result; if the client disconnects meanwhile, call `gone`, which makes the work end early."""
    left = asyncio.Event()

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left.set()
        await gone()

    leaving = asyncio.ensure_future(leave())
    try:
        made = await making
        if left.is_set():
            await leaving
        return made
    finally:
        leaving.cancel()


REVOCATION_CHECK_SECONDS = 2.0  # seconds between two looks at a stream's key
RevocationCheck = Callable[[], Awaitable[Sequence[T] | None]]


def revocation_check(
    request: Request, ask: Callable[[Request], Awaitable[object]], told: Callable[[ApiError], Awaitable[Sequence[T]]]
) -> RevocationCheck[T]:
    """Return a check that repeats a request's authentication, and gives the last events if that fails now."""

    async def look() -> Sequence[T] | None:
        try:
            await ask(request)
        except ApiError as problem:
            return await told(problem)
        except JournalUnavailable:
            return None
        return None

    return look


async def stream_until_revoked(
    look: RevocationCheck[T], events: AsyncGenerator[T], every: float = REVOCATION_CHECK_SECONDS
) -> AsyncGenerator[T]:
    """Yield the events until they end, or until the look, taken every so many seconds, gives last ones to send."""
    following: asyncio.Task[T] | None = None
    looked = monotonic()
    try:
        while True:
            if following is None:
                following = asyncio.create_task(next_item(events))
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


async def next_item(listening: AsyncIterator[T]) -> T:
    """Return the next item; EOFError at the end, since a task cannot end with StopAsyncIteration."""
    try:
        return await anext(listening)
    except StopAsyncIteration:
        raise EOFError from None


async def merge_streams(streams: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[T]:
    """Yield the items of all streams as they come."""
    waiting = {asyncio.create_task(next_item(each)): each for each in streams}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                stream = waiting.pop(task)
                try:
                    item = task.result()
                except EOFError:
                    continue
                waiting[asyncio.create_task(next_item(stream))] = stream
                yield item
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()


MAX_STREAMS_PER_KEY = 100  # of a key


class StreamLimiter:
    """Counts the streams of a server that may have so many connections (None: as many as come)."""

    def __init__(self, connections: int | None = None) -> None:
        self._most = None if connections is None else max(2, connections // 2)
        self._most_of_key = (
            MAX_STREAMS_PER_KEY if self._most is None else min(MAX_STREAMS_PER_KEY, max(1, self._most // 2))
        )
        self._open: Counter[str] = Counter()

    def listened(self, by: Principal, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Return the events as a stream of this key's; ApiError (429, 503) when too many are open."""
        self._check(by.key)
        return self._counted(by.key, events)

    def _check(self, key: str) -> None:
        if self._open[key] >= self._most_of_key:
            said = f"the key has {self._most_of_key} streams open, which is the most here"
            raise ApiError(429, said, "too_many_streams", wait=1)
        if self._most is not None and self._open.total() >= self._most:
            raise ApiError(503, f"{self._most} streams are open, which is the most here", "too_many_streams", wait=1)

    async def _counted(self, key: str, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        try:
            self._check(key)  # again: many may have begun since
        except ApiError as problem:
            yield b"event: error\n" + sse_data(problem.body())
            await events.aclose()
            return
        self._open[key] += 1
        try:
            async with aclosing(events):
                async for each in events:
                    yield each
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def limit_stream(request: Request, by: Principal, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Return the events as a stream of this key's; ApiError when too many are open."""
    listeners: StreamLimiter = request.app.state.listeners
    return listeners.listened(by, events)
