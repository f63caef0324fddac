"""Server-sent events over HTTP: keep-alives, and what happens when the client goes.

Invariant: a keep-alive is a comment, which no client takes for data; each event leaves as soon as it is there.
Deliberately absent: what the events are.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message

PING = 15  # seconds


def stream(
    events: AsyncIterator[bytes],
    headers: Mapping[str, str],
    gone: Callable[[], Awaitable[None]] | None = None,
    grace: float = 0.0,
) -> EventSourceResponse:
    """Return the response that sends these events.

    `gone` is called if the client leaves before the end; `grace` is how many seconds it may go on once the server is
    told to stop.
    """

    async def left(_: Message) -> None:
        if gone is not None:
            await gone()

    return EventSourceResponse(
        events,
        headers=dict(headers),
        ping=PING,
        ping_message_factory=lambda: ServerSentEvent(comment="ping"),
        client_close_handler_callable=left,
        shutdown_grace_period=grace,
    )


def data(value: object) -> bytes:
    """Return an event that holds this as JSON."""
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


DONE = b"data: [DONE]\n\n"
