"""How large a request may be: its body, counted as it comes, and its headers.

Invariant: a request beyond the bounds is answered (413, 431) and the rest of it is not kept in memory. Deliberately
absent: bounds on what the bytes mean (the wire models have those).
"""

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shikisha.server.problems import Problem

_MOST_HEADERS = 64 * 2**10


class Bounds:
    """Pure ASGI middleware: refuses what is too large."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
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
        seen, begun = 0, False

        async def counting() -> Message:
            nonlocal seen
            message = await receive()
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
        except HTTPException:
            if not begun:
                await self._too_large()(scope, receive, send)

    def _too_large(self) -> JSONResponse:
        return _refuse(Problem(413, f"the body is larger than {self._most:,} bytes", "body_too_large"))


def _refuse(problem: Problem) -> JSONResponse:
    return JSONResponse(problem.body(), problem.status, {"Connection": "close"})
