"""Requests that nobody means well with: each a clear no, and none holds its place for ever."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message

from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.middleware import RequestLimits
from shikisha.server.http.request import read_request_options
from shikisha.server.http.streams import MAX_STREAMS_PER_KEY, StreamLimiter, limit_stream
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.runs.routes import decode_cursor


def lines(*given: tuple[str, str]) -> Headers:
    """Headers as they come, line by line."""
    return Headers(raw=[(name.lower().encode(), value.encode()) for name, value in given])


def test_labels_of_a_gateway_are_not_replaced_by_those_of_its_client() -> None:
    found = read_request_options(lines(("X-Shikisha-Labels", "confidential"), ("X-Shikisha-Labels", "open")))
    assert found.labels == ("confidential", "open")


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("Workers", "a", "b"), ("Budget-Dollars", "0.01", "9"), ("Domain", "legal", "chat"), ("Metadata", "none", "full")],
)
def test_a_header_that_comes_twice_is_refused(name: str, first: str, second: str) -> None:
    with pytest.raises(ApiError, match="sent more than once"):
        read_request_options(lines((f"X-Shikisha-{name}", first), (f"X-Shikisha-{name}", second)))


@pytest.mark.parametrize(
    ("name", "value"), [("Budget-Tokens", "9" * 1999), ("Domain", "d" * 201), ("Labels", "l" * 65)]
)
def test_a_header_beyond_all_measure_is_refused(name: str, value: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_request_options(lines((f"X-Shikisha-{name}", value)))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "written", ['[1e999, "a"]', '[NaN, "a"]', '[1, "\\ud800"]', '[1, "\\u0000"]', "[[[", f"[{'9' * 400}, 1]", "{}", "7"]
)
def test_a_cursor_that_was_made_up_is_refused(written: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_cursor(urlsafe_b64encode(written.encode()).decode())
    assert caught.value.status == 400


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def whole(request: Request) -> Response:
        return PlainTextResponse(await request.body())

    app = RequestLimits(Starlette(routes=[Route("/", whole, methods=["POST"])]), 100, seconds=0.01)
    sent: list[Message] = []
    came = asyncio.Event()

    async def receive() -> Message:
        if not came.is_set():
            came.set()
            return {"type": "http.request", "body": b"a", "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}
    async with asyncio.timeout(5):
        await app(scope, receive, send)
    assert sent[0]["status"] == 408


async def ticking() -> AsyncGenerator[bytes]:
    """A stream without end."""
    while True:
        yield b"tick"


async def test_a_key_has_so_many_streams_open_and_no_more() -> None:
    app = Starlette()
    app.state.listeners = StreamLimiter()
    request = Request({"type": "http", "app": app, "headers": []})
    by, other = (Principal(key, key, "main", frozenset({KeyScope.READ})) for key in ("a", "b"))
    async with AsyncExitStack() as stack:
        for _ in range(MAX_STREAMS_PER_KEY):
            stream = await stack.enter_async_context(aclosing(limit_stream(request, by, ticking())))
            assert await anext(stream) == b"tick"
        with pytest.raises(ApiError) as caught:
            limit_stream(request, by, ticking())
        assert caught.value.status == 429
        assert await anext(limit_stream(request, other, ticking())) == b"tick"
    assert await anext(limit_stream(request, by, ticking())) == b"tick"  # they are closed, and there is room again
