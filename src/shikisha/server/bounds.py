"""How large a request may be and how long it may take to come; and how much of all requests is held at once.

Invariants: a request beyond the bounds is answered (401, 408, 413, 431, 503), and the rest of it is read and thrown
away for a moment, so that a client that is still sending sees the answer; more than a few bytes are kept only of who
has a key; what is kept of all bodies together, until they are answered, has a bound. Deliberately absent: bounds on
what the bytes mean (the wire models have those), and heads that come slowly (`connections`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shikisha.server.problems import Problem

_MOST_HEADERS = 64 * 2**10
_SECONDS = 120.0  # in which a body comes whole: what drips in for ever holds its place for ever
_SILENT = 30.0  # seconds in which nothing more of it comes
_SMALL = 64 * 2**10  # bytes that are kept of anybody's body, beside the bound: most chats are smaller
_DRAINED = 5.0  # seconds that the rest of a refused body is read and thrown away
_WAIT = 2.0  # seconds after which whoever found no room is asked to come again


async def _anybody(_: Request) -> None:
    """Let large bodies of everybody in."""


class Bounds:
    """Pure ASGI middleware: refuses what is too large or too slow. `known` raises Problem for who has no key."""

    def __init__(
        self,
        app: ASGIApp,
        most_bytes: int,
        most_held: int | None = None,
        known: Callable[[Request], Awaitable[None]] = _anybody,
        seconds: float = _SECONDS,
        silent: float = _SILENT,
    ) -> None:
        self._app = app
        self._most = most_bytes
        self._most_held = most_held or most_bytes
        self._known = known
        self._seconds = seconds
        self._silent = silent
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADERS:
            problem = Problem(431, f"the headers are larger than {_MOST_HEADERS:,} bytes", "headers_too_large")
            await _refuse(problem, scope, receive, send)
            return
        body = _Body(self, scope, receive)
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if body.refused is None or begun:
                begun = True
                await send(message)

        try:
            await body.expect()
            await self._app(scope, body.receive, sending)
        except HTTPException:
            if body.refused is None:
                raise
        finally:
            self._held -= body.held
            body.held = 0
        if body.refused is not None and not begun:
            await _refuse(body.refused, scope, receive if body.comes else _over, send)

    def hold(self, more: int) -> bool:
        """Make room for so many bytes; False if there is none. One body alone always has room."""
        if self._held and self._held + more > self._most_held:
            return False
        self._held += more
        return True

    @property
    def limits(self) -> tuple[int, float, float]:
        """Return the largest body, the seconds in which it comes, and those in which nothing may come."""
        return self._most, self._seconds, self._silent

    async def check(self, request: Request) -> None:
        """Raise Problem if nobody is known who asks."""
        await self._known(request)


class _Body:
    """A request's body as it comes."""

    def __init__(self, bounds: Bounds, scope: Scope, receive: Receive) -> None:
        self._bounds, self._scope, self._receive = bounds, scope, receive
        self._most, seconds, self._silent = bounds.limits
        self._until = monotonic() + seconds
        self._seen, self._more, self._known = 0, True, False
        self.held = 0  # bytes beyond the small ones, counted in the bound
        self.refused: Problem | None = None

    @property
    def comes(self) -> bool:
        """Whether more of it may come, as far as anyone knows."""
        return self._more and (self.refused is None or self.refused.status != 408)

    async def expect(self) -> None:
        """Judge the length that the request states, before anything of it is read."""
        stated = dict(self._scope["headers"]).get(b"content-length", b"0")
        if stated.isdigit():
            await self._take(int(stated[:20]))

    async def receive(self) -> Message:
        """Return what comes next, counted; HTTPException, the kind that FastAPI lets pass, when it is refused."""
        try:
            async with asyncio.timeout(min(self._silent, self._until - monotonic()) if self._more else None):
                message = await self._receive()
        except TimeoutError:
            raise self._no(Problem(408, "the body did not come whole in time", "body_too_slow")) from None
        self._more = bool(message.get("more_body"))
        self._seen += len(message.get("body", b""))
        await self._take(self._seen)
        return message

    async def _take(self, size: int) -> None:
        """Make room for a body of this size, or refuse it."""
        if size > self._most:
            raise self._no(Problem(413, f"the body is larger than {self._most:,} bytes", "body_too_large"))
        more = size - _SMALL - self.held
        if more <= 0:
            return
        if not self._known:
            try:
                await self._bounds.check(Request(self._scope))
            except Problem as problem:
                raise self._no(problem) from None
            self._known = True
        if not self._bounds.hold(more):
            raise self._no(Problem(503, "too many large requests are under way: come again", "server_full", wait=_WAIT))
        self.held += more

    def _no(self, problem: Problem) -> HTTPException:
        self.refused = problem
        self._scope.setdefault("state", {})["refused"] = problem.code  # for the access log
        return HTTPException(problem.status)


async def _over() -> Message:
    """Nothing more comes."""
    return {"type": "http.disconnect"}


async def _refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Say no, and read on for a moment: closing while the client still sends would take the answer with it."""
    answer = JSONResponse(problem.body(), problem.status, {**problem.headers(), "Connection": "close"})

    async def draining(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        await send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAINED):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    await answer(scope, receive, draining)
