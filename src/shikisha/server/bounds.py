"""How large a request may be: its body, counted as it comes, and its headers; and how long it may take to come.

Invariant: a request beyond the bounds is answered (408, 413, 431) and the rest of it is not kept in memory.
Deliberately absent: bounds on what the bytes mean (the wire models have those).
"""

import asyncio
from time import monotonic

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shikisha.server.problems import Problem

_MOST_HEADERS = 64 * 2**10
_SECONDS = 120.0  # in which a body comes whole: what drips in for ever holds its place for ever


class Bounds:
    """Pure ASGI middleware: refuses what is too large."""

    def __init__(self, app: ASGIApp, most_bytes: int, seconds: float = _SECONDS) -> None:
        self._app = app
        self._seconds = seconds
        self._most = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADERS:
            await _refuse(Problem(431, f"the headers are larger than {_MOST_HEADERS:,} bytes", "headers_too_large"))(
                scope, receive, send
            )
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if stated.isdigit() and int(stated[:20]) > self._most:
            await self._too_large()(scope, receive, send)
            return
        await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen, begun, more = 0, False, True
        until = monotonic() + self._seconds

        async def counting() -> Message:
            nonlocal seen, more
            try:
                async with asyncio.timeout(until - monotonic() if more else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, headers={"Connection": "close"}) from None
            more = bool(message.get("more_body"))
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise HTTPException(413)  # the kind that FastAPI lets pass while it reads a body
            return message

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, counting, sending)
        except HTTPException as error:
            if not begun:
                await (_too_slow() if error.status_code == 408 else self._too_large())(scope, receive, send)

    def _too_large(self) -> JSONResponse:
        return _refuse(Problem(413, f"the body is larger than {self._most:,} bytes", "body_too_large"))


def _too_slow() -> JSONResponse:
    return _refuse(Problem(408, "the body did not come whole in time", "body_too_slow"))


def _refuse(problem: Problem) -> JSONResponse:
    return JSONResponse(problem.body(), problem.status, {"Connection": "close"})
