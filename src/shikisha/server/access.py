"""Every request, counted and logged when its answer has ended: a middleware around everything else.

Invariant 8: a line holds the route's template, never the path or its query, and no header but those that we made; the
key's id, never the key. A request without an id of ours gets one, which the client is told (`x-request-id`). A plain
ASGI middleware: nothing is buffered, streams stream. Deliberately absent: what was asked and answered.
"""

import logging
import secrets
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from shikisha.server.tallies import Tallies

_LOG = logging.getLogger("shikisha.requests")
TRACEPARENT: ContextVar[str | None] = ContextVar("traceparent", default=None)  # a run begins in its request's context
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})  # asked by machines every few seconds
_GONE = 499  # the client left before there was a status, as nginx has it
UNMATCHED = "(none)"


class Access:
    """Counts and logs requests."""

    def __init__(self, app: ASGIApp, tallies: "Tallies") -> None:
        self._app = app
        self._tallies = tallies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and tell of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, f"req_{secrets.token_hex(8)}")
        scope.setdefault("state", {})["request_id"] = answer.request
        TRACEPARENT.set(Headers(scope=scope).get("traceparent"))
        began = perf_counter()
        try:
            await self._app(scope, receive, answer)
        finally:
            self._tell(scope, answer, perf_counter() - began)

    def _tell(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        status, state = answer.status or _GONE, scope["state"]
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._tallies.request(method, route, status, seconds)
        refused = state.get("refused") or (f"http_{status}" if status >= 400 else None)
        if refused is not None:
            self._tallies.refuse(str(refused))
        level = logging.DEBUG if route in _QUIET and status < 500 else logging.INFO
        if _LOG.isEnabledFor(level):
            said = {
                "request": answer.request,
                "run": answer.run,
                "key": state.get("key"),
                "method": method,
                "route": route,
                "status": status,
                "refused": refused,
                "ms": round(seconds * 1000, 3),
            }
            _LOG.log(level, "request", extra={"said": said})


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class _Answer:
    """The way back to the client: notes the status and the run as the headers pass, and adds the request's id."""

    def __init__(self, send: Send, request: str) -> None:
        self._send = send
        self.request = request
        self.status = 0
        self.run: str | None = None

    async def __call__(self, message: Message) -> None:
        """Send a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.setdefault("x-request-id", self.request)
            self.run = headers.get("x-shikisha-run-id")
        await self._send(message)
