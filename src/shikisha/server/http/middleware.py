"""The ASGI middleware, from the outside in: the access log, the check of the Host header, and the request limits.

- `AccessLog` counts and logs every request once its response has ended. A line holds the route's template and the key's
  id, never the path, the query, the key or the content (invariant 8). It buffers nothing.
- `HostCheck` defends against DNS rebinding. A server on a loopback address answers only to `localhost`, to IP
  addresses, and to the names in `server.url` and `server.hosts`. A server on another address answers to any name,
  since containers and proxies reach it under names that it cannot know; `server.hosts` narrows that.
- `ApiOrigins` answers preflights of pages whose origin is in `server.origins`, for `/v1` only.
- `RequestLimits` bounds the headers, the body, the time a body takes, and the memory for all bodies together. A
  compressed body is unpacked piece by piece within the same bounds. It keeps
  more than a few kilobytes only for holders of a key. After a refusal it reads on for a moment, so that a client that
  is still sending sees the response.

Slow request heads are the business of `connections`.
"""

import asyncio
import ipaddress
import logging
import os
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from time import monotonic, perf_counter
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shikisha.config.settings import ServerTable
from shikisha.core.text import one_line
from shikisha.server.http.api_errors import ApiError, error_body_at
from shikisha.server.ops.logs import LogFields, log_line

_ACCESS_LOG = logging.getLogger("shikisha.requests")
TRACEPARENT: ContextVar[str | None] = ContextVar("traceparent", default=None)  # a run begins in its request's context
_QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})  # asked by machines every few seconds
_CLIENT_LEFT = 499  # the client left before there was a status, as nginx has it
UNMATCHED_ROUTE = "(none)"


class RequestCounters(Protocol):
    """What counts requests and refusals; metrics do, and import this module."""

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        ...

    def refuse(self, reason: str) -> None:
        """Count a refusal."""
        ...


class AccessLog:
    """Counts and logs requests."""

    def __init__(self, app: ASGIApp, counters: RequestCounters) -> None:
        self._app = app
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, then count and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _LoggedResponse(send, f"req_{os.urandom(8).hex()}")
        scope.setdefault("state", {})["request_id"] = answer.request
        parent = next((value for name, value in scope["headers"] if name == b"traceparent"), None)
        TRACEPARENT.set(None if parent is None else parent.decode("latin-1"))
        began = perf_counter()
        try:
            await self._app(scope, receive, answer)
        finally:
            self._tell(scope, answer, perf_counter() - began)

    def _tell(self, scope: Scope, answer: "_LoggedResponse", seconds: float) -> None:
        status, state = answer.status or _CLIENT_LEFT, scope["state"]
        route = getattr(scope.get("route"), "path", UNMATCHED_ROUTE)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._counters.request(method, route, status, seconds)
        refused = state.get("refused") or (f"http_{status}" if status >= 400 else None)
        if refused is not None:
            self._counters.refuse(str(refused))
        level = logging.DEBUG if route in _QUIET_ROUTES and status < 500 else logging.INFO
        if _ACCESS_LOG.isEnabledFor(level):
            said: LogFields = {
                "request": answer.request,
                "run": answer.run,
                "key": state.get("key"),
                "method": method,
                "route": route,
                "status": status,
                "refused": refused,
                "ms": round(seconds * 1000, 3),
            }
            log_line(_ACCESS_LOG, level, "request", said)


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class _LoggedResponse:
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
            given = dict(message.get("headers", ()))  # names are lower-case here
            if b"x-request-id" not in given:
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.request.encode())]
            run = given.get(b"x-shikisha-run-id")
            self.run = None if run is None else run.decode("latin-1")
        await self._send(message)


_MAX_HEADER_BYTES = 64 * 2**10
_BODY_SECONDS = 120.0  # in which a body comes whole: what drips in for ever holds its place for ever
_SILENT_SECONDS = 30.0  # seconds in which nothing more of it comes
_SMALL_BODY_BYTES = 64 * 2**10  # bytes that are kept of anybody's body, beside the bound: most chats are smaller
_DRAIN_SECONDS = 5.0  # seconds that the rest of a refused body is read and thrown away
_RETRY_AFTER_SECONDS = 2.0  # seconds after which whoever found no room is asked to come again


async def _accept_anybody(_: Request) -> None:
    """Accept large bodies from anybody."""


class RequestLimits:
    """Pure ASGI middleware: refuses what is too large or too slow. `known` raises ApiError for who has no key."""

    def __init__(
        self,
        app: ASGIApp,
        most_bytes: int,
        max_held: int | None = None,
        known: Callable[[Request], Awaitable[None]] = _accept_anybody,
        seconds: float = _BODY_SECONDS,
        silent: float = _SILENT_SECONDS,
    ) -> None:
        self._app = app
        self.max_bytes, self.seconds, self.silent = most_bytes, seconds, silent
        self._most_held = max_held or most_bytes
        self._known = known
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if sum([len(name) + len(value) for name, value in scope["headers"]]) > _MAX_HEADER_BYTES:
            problem = ApiError(431, f"the headers are larger than {_MAX_HEADER_BYTES:,} bytes", "headers_too_large")
            await _send_refusal(problem, scope, receive, send)
            return
        body = _LimitedBody(self, scope, receive)
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
            await _send_refusal(body.refused, scope, receive if body.comes else _receive_disconnect, send)

    def hold(self, more: int) -> bool:
        """Make room for so many bytes; False if there is none. One body alone always has room."""
        if self._held and self._held + more > self._most_held:
            return False
        self._held += more
        return True

    async def check(self, request: Request) -> None:
        """Raise ApiError unless the request bears a valid key or login."""
        await self._known(request)


_ENCODINGS = (b"gzip", b"x-gzip", b"deflate")
_PIECE_BYTES = 64 * 2**10
_ZLIB_METHOD, _GZIP_MAGIC = 8, 0x1F


class _Unpacker:
    """Unpacks gzip, zlib and bare deflate, which clients mean by these names; `size` is how much came out so far."""

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None
        self.size = 0

    def pieces(self, packed: bytes, *, last: bool) -> Iterator[bytes]:
        """Yield what comes out, in small pieces; zlib.error for what is broken, cut off or followed by more."""
        if self._inflate is None and packed:
            known = packed[0] == _GZIP_MAGIC or packed[0] & 0x0F == _ZLIB_METHOD
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS + 32 if known else -zlib.MAX_WBITS)
        inflate, full = self._inflate, False
        while inflate is not None and (packed or full):
            if inflate.eof and packed:
                raise zlib.error("something follows its end")
            part = inflate.decompress(packed, _PIECE_BYTES)
            full = len(part) == _PIECE_BYTES
            packed = inflate.unconsumed_tail or inflate.unused_data
            self.size += len(part)
            yield part
        if last and inflate is not None and not inflate.eof:
            raise zlib.error("it is cut off")


class _LimitedBody:
    """A request's body as it comes."""

    def __init__(self, bounds: RequestLimits, scope: Scope, receive: Receive) -> None:
        self._bounds, self._scope, self._receive = bounds, scope, receive
        self._most, self._silent, seconds = bounds.max_bytes, bounds.silent, bounds.seconds
        self._until = monotonic() + seconds
        self._seen, self._more, self._known = 0, True, False
        self._unpacker: _Unpacker | None = None
        self.held = 0  # bytes beyond the small ones, counted in the bound
        self.refused: ApiError | None = None

    @property
    def comes(self) -> bool:
        """Whether more of it may come, as far as anyone knows."""
        return self._more and (self.refused is None or self.refused.status != 408)

    async def expect(self) -> None:
        """Judge the length that the request states, before anything of it is read."""
        headers = dict(self._scope["headers"])
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        if encoding not in (b"", b"identity", *_ENCODINGS):
            message = "Content-Encoding: expected gzip, deflate or none"
            raise self._no(ApiError(415, message, "unsupported_encoding"))
        self._unpacker = _Unpacker() if encoding in _ENCODINGS else None
        stated = headers.get(b"content-length", b"0")
        if stated.isdigit():
            await self._take(int(stated[:20]))

    async def receive(self) -> Message:
        """Return what comes next, counted; HTTPException, the kind that FastAPI lets pass, when it is refused."""
        if not self._more:  # nothing of it is to come: it is asked whether the client is still there
            return await self._receive()
        try:
            async with asyncio.timeout(min(self._silent, self._until - monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise self._no(ApiError(408, "the body did not come whole in time", "body_too_slow")) from None
        self._more = bool(message.get("more_body"))
        self._seen += len(message.get("body", b""))
        await self._take(self._seen)
        if self._unpacker is not None and message["type"] == "http.request":
            # What these bytes are unpacked; room is made for each piece before the next one exists.
            unpacker = self._unpacker
            packed = message.get("body", b"")
            parts = list[bytes]()
            try:
                for part in unpacker.pieces(packed, last=not self._more):
                    parts.append(part)
                    await self._take(unpacker.size)
                    await asyncio.sleep(0)  # others are served meanwhile
            except zlib.error as error:
                raise self._no(
                    ApiError(400, f"the body is not what Content-Encoding says: {error}", "invalid_encoding")
                ) from None
            message = {**message, "body": b"".join(parts)}
        return message

    async def _take(self, size: int) -> None:
        """Make room for a body of this size, or refuse it."""
        if size > self._most:
            raise self._no(ApiError(413, f"the body is larger than {self._most:,} bytes", "body_too_large"))
        more = size - _SMALL_BODY_BYTES - self.held
        if more <= 0:
            return
        if not self._known:
            try:
                await self._bounds.check(Request(self._scope))
            except ApiError as problem:
                raise self._no(problem) from None
            self._known = True
        if not self._bounds.hold(more):
            raise self._no(
                ApiError(
                    503, "too many large requests are under way: come again", "server_full", wait=_RETRY_AFTER_SECONDS
                )
            )
        self.held += more

    def _no(self, problem: ApiError) -> HTTPException:
        self.refused = problem
        self._scope.setdefault("state", {})["refused"] = problem.code  # for the access log
        return HTTPException(problem.status)


async def _receive_disconnect() -> Message:
    """Nothing more comes."""
    return {"type": "http.disconnect"}


async def _send_refusal(problem: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a refusal, and read on for a moment: closing while the client still sends would lose the response."""
    body = error_body_at(scope["path"], problem)
    answer = JSONResponse(body, problem.status, {**problem.headers(), "Connection": "close"})

    async def draining(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        await send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    await answer(scope, receive, draining)


_API_PREFIX = "/v1/"
_SHOWN_HEADERS = ("x-request-id", "x-should-retry", "x-shikisha-run-id", "x-shikisha-ignored", "retry-after")


class ApiOrigins(CORSMiddleware):
    """Pure ASGI middleware: lets pages of the named origins call `/v1`, each with a key."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        methods = ("GET", "POST", "DELETE")
        super().__init__(app, origins, methods, ("*",), allow_private_network=True, expose_headers=_SHOWN_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        shared = scope["type"] == "http" and scope["path"].startswith(_API_PREFIX)
        await (super().__call__ if shared else self.app)(scope, receive, send)


_LOG = logging.getLogger(__name__)
PROBE_PATHS = ("/healthz", "/readyz")  # asked by whoever runs us, under an address; they tell nothing but that we live
_MAX_LOGGED_HOSTS = 20  # names that were refused: each once, and no more than these
_MAX_LOGGED_LENGTH = 100
_DOCUMENTATION_ADDRESSES = (  # addresses for documentation (RFC 5737, RFC 3849): nothing is sent to them
    (socket.AF_INET, "192.0.2.1"),
    (socket.AF_INET6, "2001:db8::1"),
)
_UNKNOWN_HOST = (
    "the Host header names no host of this server: its operator adds the name to `hosts` in [server] of "
    "shikisha.toml, or sets `url` there to the address at which the server is reached, and starts it again"
)


_AGENT_PATHS = ("/mcp", "/a2a")  # whose protocols have the server refuse the pages of other sites


class HostCheck:
    """Pure ASGI middleware: answers only requests to a name of ours, and at the doors of agents only pages of ours."""

    def __init__(self, app: ASGIApp, settings: ServerTable) -> None:
        self._app = app
        self._names = accepted_hosts(settings)
        self._accepted: set[str] = set()  # Host headers that were checked before
        self._logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PROBE_PATHS:
            await self._app(scope, receive, send)
            return
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if scope["path"].startswith(_AGENT_PATHS):
            origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
            if not all(self._is_own(each, given) for each in origins):
                problem = ApiError(403, "the Origin header names a page of another site", "foreign_origin")
                await JSONResponse(problem.body(), problem.status)(scope, receive, send)
                return
        if self._names is None:
            await self._app(scope, receive, send)
            return
        if len(given) == 1 and (given[0] in self._accepted or _is_accepted(host_name(given[0]), self._names)):
            if len(self._accepted) < _MAX_LOGGED_HOSTS and len(given[0]) <= _MAX_LOGGED_LENGTH:
                self._accepted.add(given[0])
            await self._app(scope, receive, send)
            return
        self._note(given)
        problem = ApiError(421, _UNKNOWN_HOST, "unknown_host")
        await JSONResponse(error_body_at(scope["path"], problem), problem.status)(scope, receive, send)

    def _is_own(self, origin: str, hosts: Sequence[str]) -> bool:
        """Whether a page of this origin may call: of the host that is asked, of this machine, or of a name of ours."""
        name = host_name(origin.partition("://")[2])
        if name in ("127.0.0.1", "::1", *map(host_name, hosts)):
            return True
        return self._names is not None and not _is_ip_address(name) and _is_accepted(name, self._names)

    def _note(self, given: Sequence[str]) -> None:
        name = one_line(", ".join(given), _MAX_LOGGED_LENGTH) or "(none)"
        if name not in self._logged and len(self._logged) < _MAX_LOGGED_HOSTS:
            self._logged.add(name)
            _LOG.warning(
                "a request was refused for its Host header (%s); server.hosts or server.url lets a name in", name
            )


def accepted_hosts(settings: ServerTable) -> Sequence[str] | None:
    """Return the accepted host names, in addition to all IP addresses; None if any name is accepted."""
    everywhere = not is_loopback(settings.host)
    if "*" in settings.hosts or (everywhere and not settings.hosts):
        return None
    public = settings.url.partition("://")[2].partition("/")[0] if settings.url else ""
    machine = (socket.gethostname(),) if everywhere else ()
    given = ("localhost", "*.localhost", *machine, settings.host, public, *settings.hosts)
    names = dict.fromkeys(host_name(each) for each in given)
    return tuple(name for name in names if name and not _is_ip_address(name))


def is_loopback(host: str) -> bool:
    """Whether a server on this host is reachable from this machine only; False if that cannot be determined."""
    with suppress(OSError, ValueError):
        return ipaddress.ip_address(
            host if _is_ip_address(host) else socket.gethostbyname(host or "0.0.0.0")  # noqa: S104 - "" is every address to bind()
        ).is_loopback
    return False


def server_urls(settings: ServerTable, listening: socket.socket) -> Sequence[str]:
    """Return the URLs at which a listening server is reached, the one for others first."""
    address, port = listening.getsockname()[:2]
    if settings.url:
        return (settings.url.rstrip("/"),)
    found = [address]
    if ipaddress.ip_address(address).is_unspecified:
        families = _DOCUMENTATION_ADDRESSES if listening.family == socket.AF_INET6 else _DOCUMENTATION_ADDRESSES[:1]
        found = [*(own for family, other in families if (own := _own_address(family, other))), "127.0.0.1"]
    return tuple(f"http://{f'[{each}]' if ':' in each else each}:{port}" for each in dict.fromkeys(found))


def host_name(host: str) -> str:
    """Return a host's name without its port, brackets and final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host if host.count(":") > 1 else host.partition(":")[0]
    return name.rstrip(".")


def _is_accepted(name: str, names: Sequence[str]) -> bool:
    """Whether a name is an address, or one of these; `*.example.com` stands for every name under it."""
    if not name:
        return False
    under = (f"*.{'.'.join(labels[place:])}" for labels in [name.split(".")] for place in range(1, len(labels)))
    return _is_ip_address(name) or name in names or any(each in names for each in under)


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own_address(family: socket.AddressFamily, other: str) -> str | None:
    """Return the address from which this machine would talk to another; None where there is no way out."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))
        own = str(probe.getsockname()[0])
        return None if ipaddress.ip_address(own).is_loopback else own
    return None
