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

from shikisha.server.bounds import Bounds
from shikisha.server.listeners import MOST, Listeners, listened
from shikisha.server.narrowing import narrowing
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.runs_view import read_cursor


def lines(*given: tuple[str, str]) -> Headers:
    """Headers as they come, line by line."""
    return Headers(raw=[(name.lower().encode(), value.encode()) for name, value in given])


def test_labels_of_a_gateway_are_not_replaced_by_those_of_its_client() -> None:
    found = narrowing(lines(("X-Shikisha-Labels", "confidential"), ("X-Shikisha-Labels", "open")))
    assert found.labels == ("confidential", "open")


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("Workers", "a", "b"), ("Budget-Dollars", "0.01", "9"), ("Domain", "legal", "chat"), ("Metadata", "none", "full")],
)
def test_a_header_that_comes_twice_is_refused(name: str, first: str, second: str) -> None:
    with pytest.raises(Problem, match="sent more than once"):
        narrowing(lines((f"X-Shikisha-{name}", first), (f"X-Shikisha-{name}", second)))


@pytest.mark.parametrize(
    ("name", "value"), [("Budget-Tokens", "9" * 1999), ("Domain", "d" * 201), ("Labels", "l" * 65)]
)
def test_a_header_beyond_all_measure_is_refused(name: str, value: str) -> None:
    with pytest.raises(Problem) as caught:
        narrowing(lines((f"X-Shikisha-{name}", value)))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "written", ['[1e999, "a"]', '[NaN, "a"]', '[1, "\\ud800"]', '[1, "\\u0000"]', "[[[", f"[{'9' * 400}, 1]", "{}", "7"]
)
def test_a_cursor_that_was_made_up_is_refused(written: str) -> None:
    with pytest.raises(Problem) as caught:
        read_cursor(urlsafe_b64encode(written.encode()).decode())
    assert caught.value.status == 400


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def whole(request: Request) -> Response:
        return PlainTextResponse(await request.body())

    app = Bounds(Starlette(routes=[Route("/", whole, methods=["POST"])]), 100, seconds=0.01)
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
    app.state.listeners = Listeners()
    request = Request({"type": "http", "app": app, "headers": []})
    by, other = (Principal(key, key, "main", frozenset({Scope.READ})) for key in ("a", "b"))
    async with AsyncExitStack() as stack:
        for _ in range(MOST):
            stream = await stack.enter_async_context(aclosing(listened(request, by, ticking())))
            assert await anext(stream) == b"tick"
        with pytest.raises(Problem) as caught:
            listened(request, by, ticking())
        assert caught.value.status == 429
        assert await anext(listened(request, other, ticking())) == b"tick"
    assert await anext(listened(request, by, ticking())) == b"tick"  # they are closed, and there is room again
