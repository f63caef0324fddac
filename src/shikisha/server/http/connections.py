"""Connections: limits on slow, silent and too many clients, on top of uvicorn's HTTP protocol.

uvicorn waits forever for a request and accepts until the process has no descriptors left. Here:

- `ConnectionLimiter` bounds the number of connections, so that the journal and the workers keep theirs. When there is
  no room it closes the connection that has waited longest for its client to send something, then one whose client does
  not read its response. So a client that sends whole requests gets in past any number of clients that do not. A
  connection that finds no room is told 503 with `Retry-After`; only probes (`/healthz`, `/readyz`) are answered.
- A request has `ConnectionTimeouts.head` seconds until its head and a small body are complete, however slowly they
  drip. An idle connection has `idle` seconds.
- A client that reads next to nothing of its response for `stall` seconds is cut off. A stream of events may be silent
  for hours.

There are no limits by address: behind a proxy all clients share one. Sizes of bodies are the business of
`middleware`.
"""

import asyncio
import json
import logging
import socket
import sys
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Protocol, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from shikisha.core.fast_dataclass import dataclass
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.middleware import PROBE_PATHS

if sys.platform != "win32":
    import resource

_RESERVED_DESCRIPTORS = 64  # descriptors that the server itself keeps: journal, listening socket, logs, pipes
_MAX_CONNECTIONS = 10_000  # connections, however many descriptors there are
_MAX_DESCRIPTORS = 65_536  # what the soft limit is raised to, where the hard one allows it
_MAX_INSPECTED = 64  # connections of which it is found out whether they have just sent something
_LOOP_TURNS = 4  # of the loop that others get to be heard, where there is no place but theirs
_STUCK_CHECK_SECONDS = 1.0  # seconds after which it is looked again whether somebody is stuck long enough to go


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """Seconds that a client may take."""

    head: float = 20.0  # from connecting, or from its first byte until a request's head (and a small body) is whole
    idle: float = 75.0  # between two requests
    stall: float = 60.0  # in which it takes next to nothing of its answer
    crowded: float = 5.0  # the same, while others want the place
    linger: float = 10.0  # the same, once the answer is written and the connection about to be closed
    look: float = 2.0  # between two looks at a connection


def raise_file_limit() -> int | None:
    """Raise this process's limit on open files as far as it may; return it (None: there is none)."""
    if sys.platform == "win32":
        return None  # it has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


def max_connections(limit: int | None, wanted: int | None = None) -> int:
    """Return how many connections there may be under a limit on descriptors: two thirds of what is not our own.

    The rest is for calls to workers (see `runs_at_once`).
    """
    most = _MAX_CONNECTIONS if limit is None else max(8, 2 * (limit - _RESERVED_DESCRIPTORS) // 3)
    return min(most, _MAX_CONNECTIONS if wanted is None else wanted)


def max_runs(limit: int | None, wanted: int) -> int:
    """Return how many runs there may be at once: each calls at least one worker, and may outlive its connection."""
    return wanted if limit is None else min(wanted, max(8, (limit - _RESERVED_DESCRIPTORS) // 3))


class LimitedConnection(Protocol):
    """A connection, as far as the limiter knows it."""

    @property
    def held_up(self) -> bool:
        """Whether the client is silent because we do not read, or is gone already."""
        ...

    @property
    def spoke(self) -> bool:
        """Whether it has sent something that was not read yet, because others had their turn."""
        ...

    def evict(self) -> None:
        """Close the connection because others want its place."""
        ...


class ConnectionLimiter:
    """All connections of a server, and the line of those in which it is the client's turn."""

    def __init__(self, most: int, patience: ConnectionTimeouts | None = None) -> None:
        self.most = most
        self.kept = max(2, min(32, most // 4))  # places for probes, beside the others
        self.patience = patience or ConnectionTimeouts()
        self.number = 0
        self.evicted = 0
        self._line: OrderedDict[LimitedConnection, None] = OrderedDict()  # the longest there first
        self._stuck: OrderedDict[LimitedConnection, float] = (
            OrderedDict()
        )  # and since when they take nothing of their answers
        self._changed = asyncio.Event()
        self._now = time.monotonic

    def enter(self, connection: LimitedConnection) -> bool:
        """Take a connection in; False if it stands in a place that is kept for probes."""
        self.number += 1
        full = self.number > self.most and not self._make_room()
        self._line[connection] = None
        return not full

    def leave(self, connection: LimitedConnection) -> None:
        """Remove a connection."""
        self.number -= 1
        self._line.pop(connection, None)
        self._stuck.pop(connection, None)
        self._changed.set()

    def heard(self, connection: LimitedConnection) -> None:
        """Put a connection that sent a good deal at the end of the line, if it stands in it."""
        if connection in self._line:
            self._line.move_to_end(connection)

    def waits(self, connection: LimitedConnection) -> None:
        """It is the client's turn."""
        self._line[connection] = None
        self._line.move_to_end(connection)
        self._changed.set()

    def works(self, connection: LimitedConnection) -> None:
        """It is our turn."""
        self._line.pop(connection, None)

    def sticks(self, connection: LimitedConnection, *, stuck: bool) -> None:
        """Record that a client stopped reading its response, or reads again."""
        if stuck:
            self._stuck[connection] = self._now()
        else:
            self._stuck.pop(connection, None)

    async def has_place(self) -> None:
        """Return once one more can be accepted: those that were closed just now have given up their descriptors."""
        while self.number >= self.most + self.kept and not self._make_room():
            await self._change()
        while self.number >= self.most + 2 * self.kept:
            await self._change()
        for _ in range(_LOOP_TURNS):  # those at the front may have spoken, and only wait for the loop to read it
            if self.number < self.most or next(self._silent(), None) is not None:
                return
            await asyncio.sleep(0)

    def places(self, most: int) -> int:
        """Return how many of so many can be accepted at once: 1 at least, and no more than places and who gives way."""
        silent = sum(1 for _ in islice(self._silent(), most))
        return max(1, min(most, self.most - self.number + silent))

    def _silent(self) -> Iterator[LimitedConnection]:
        """Yield those at the front of the line that say nothing."""
        return (each for each in islice(self._line, _MAX_INSPECTED) if not each.held_up and not each.spoke)

    async def _change(self) -> None:
        """Wait until a connection closes or becomes idle, or until one may have been stuck for long enough."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STUCK_CHECK_SECONDS):
                await self._changed.wait()

    def _make_room(self) -> bool:
        """Close the connection that was silent longest, or else takes nothing of its answer; False if there is none."""
        stuck = (each for each, since in self._stuck.items() if self._now() - since >= self.patience.crowded)
        first = next(chain(self._silent(), (each for each in self._line if not each.held_up), islice(stuck, 1)), None)
        if first is None:
            return False
        self._line.pop(first, None)
        self._stuck.pop(first, None)
        self.evicted += 1
        first.evict()
        return True


if sys.platform != "win32":
    from fcntl import ioctl
    from termios import FIONREAD

_LOG = logging.getLogger(__name__)
_ACCEPT_BATCH = 16  # connections that are accepted before others get their turn
_PROGRESS_BYTES = 2**10  # bytes at once by which a client keeps its place in line: who drips does not
_ACCEPT_RETRY_SECONDS = 0.05  # seconds before a listener that could not accept tries again
_ACCEPT_SECONDS = 5.0  # seconds: uvloop never says of a connection that it was gone before it was made
_MAX_PIPELINED = 8  # requests that may wait behind one that is being answered; no client that we know sends two
_SMALL_BODY_BYTES = (
    2**15
)  # bytes of a body that may come before the application is asked; uvicorn stops reading at twice that
_MAX_HEAD_BYTES = (
    64 * 2**10
)  # bytes of a request line and its headers, or of what frames a body beyond eight times itself
_MIN_TAKEN_BYTES = 16 * 2**10  # bytes of its answer that a client takes in `Patience.stall` seconds
_RETRY_AFTER_SECONDS = 1.0  # seconds after which a client that found no room is asked to come again


class _JoiningTransport:
    """Sends the head of a response with the first of its body, if that comes at once: each write is a system call."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head: bytes | None = None  # empty: it was sent

    def write(self, data: bytes) -> None:
        """Send, or keep for the next turn of the loop what comes first."""
        if self._head is None:
            self._head = data
            self._loop.call_soon(self._send_head)
        else:
            head, self._head = self._head, b""
            self._transport.write(head + data)

    def _send_head(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)

    def close(self) -> None:
        """Send all, and close."""
        self._send_head()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it is being closed."""
        return self._transport.is_closing()


CONNECTION = "shikisha.connection"  # in a request's scope: what tells that its client has gone


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol, with an end to its patience. Made by `Listener`."""

    def __init__(
        self, limiter: ConnectionLimiter, config: Config, state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, state, app_state)
        self._limiter = limiter
        self._timer: asyncio.TimerHandle | None = None
        now = self.loop.time()
        self._since = now  # when the turn became the client's
        self._begun: float | None = None  # when it began the request that is not handed on yet
        self._first: tuple[RequestResponseCycle, ASGI3Application] | None = None  # the request that is not handed on
        self._feeding = False
        self._file = -1
        self._lost: Callable[[], None] | None = None  # what is to know that the client has gone
        self._asked = False  # whether it ever sent a whole head
        self._frame = 0  # bytes that came and were no body
        self._unsent, self._taken = 0, now  # what was left of the answer, and when that was

    # what asyncio tells ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take the connection in."""
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if peer is not None:
            self._file = peer.fileno()
            # Have the system find out whether the client's machine is still there, and send what is written at once.
            patience = self._limiter.patience
            seconds = max(1, round(patience.stall))
            options = {"TCP_KEEPIDLE": seconds, "TCP_KEEPINTVL": max(1, seconds // 4), "TCP_KEEPCNT": 4}
            options["TCP_USER_TIMEOUT"] = max(
                30_000, 2000 * seconds
            )  # milliseconds that what was sent may be unacknowledged
            with suppress(OSError):  # whoever is gone already needs no probing
                peer.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
                )  # asyncio sets it only where it knows the protocol
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in options.items():
                    if hasattr(socket, name):
                        peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if not self._limiter.enter(self):
            self.app = _ServerFull(self.app)
        self._timer = self.loop.call_later(self._limiter.patience.look, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the limiter."""
        self._limiter.leave(self)
        self._first = None
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        if self._lost is not None:
            self._lost()

    def when_lost(self, lost: Callable[[], None] | None) -> None:
        """Have this called when the connection is lost; None: it matters no more."""
        self._lost = lost
        if lost is not None and self.transport.is_closing():
            lost()

    def data_received(self, data: bytes) -> None:
        """Read on; a head, or what frames a body, that is too large ends the connection."""
        if len(data) >= _PROGRESS_BYTES:
            self._limiter.heard(self)
        self._frame += len(data)
        self._feeding = True
        super().data_received(data)
        self._feeding = False
        self._begin()
        self._frame = max(self._frame, 0)
        if self._frame > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(ApiError(431, f"the headers are larger than {_MAX_HEAD_BYTES:,} bytes", "headers_too_large"))

    def pause_writing(self) -> None:
        """Record that the client does not read its response."""
        self._limiter.sticks(self, stuck=True)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Record that the client reads its response again."""
        self._limiter.sticks(self, stuck=False)
        if self._silent:
            self._limiter.waits(self)  # its answer was written before, and is taken now
        self._taken = self.loop.time()
        super().resume_writing()

    # what the parser tells ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Record the time of a request's first byte."""
        super().on_message_begin()
        cast("dict[str, object]", self.scope)[CONNECTION] = self
        self._begun = self.loop.time()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Hand a request on once it is whole, or not small: one that never ends costs next to nothing."""
        self._first = cycle, app
        if not self._feeding:
            self._begin()

    def _begin(self) -> None:
        if self._first is None or self.transport.is_closing():
            return
        cycle, app = self._first
        if not cycle.more_body or cycle.waiting_for_100_continue or len(cycle.body) > _SMALL_BODY_BYTES:
            self._first = None
            if cycle.more_body:
                self._begun = None  # how long the rest may take is for `bounds` to say
            super()._start_asgi_task(cycle, app)

    def on_headers_complete(self) -> None:
        """Begin a request, unless too many wait already."""
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise ValueError("too many requests were sent ahead")
        self._frame, self._asked = 0, True
        super().on_headers_complete()
        self.cycle.transport = _JoiningTransport(self.transport, self.loop)  # type: ignore[assignment]  # all it uses

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        self._frame -= 8 * len(body)  # a chunk of one byte comes in six
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that the server has to act, unless the response ended before the request did."""
        super().on_message_complete()
        self._frame, self._begun = 0, None
        if not self.cycle.response_complete:
            self._limiter.works(self)

    def on_response_complete(self) -> None:
        """Record that the client has to act, unless it has pipelined another request."""
        ahead = bool(self.pipeline)
        super().on_response_complete()
        self._since = self._taken = self.loop.time()
        if self._begun is not None:
            self._begun = self._since  # what was sent ahead had to wait
        if not ahead and not self.flow.write_paused:
            self._limiter.waits(self)

    def shutdown(self) -> None:
        """End the connection once what is being answered has been."""
        if self._first is not None:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; in the middle of an answer nothing can be said."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    # patience -------------------------------------------------------------------------------------------------------

    @property
    def spoke(self) -> bool:
        """Whether it has sent something that was not read yet, because others had their turn."""
        if self._asked or sys.platform == "win32":
            return False
        waiting = array("i", [0])
        with suppress(OSError, ValueError):
            ioctl(self._file, FIONREAD, waiting)
        return waiting[0] > 0

    @property
    def held_up(self) -> bool:
        """Whether the client is silent because we do not read, or is gone already."""
        return self.flow.read_paused or self.transport.is_closing()

    def evict(self) -> None:
        """Close the connection because others want its place."""
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.response_started:
            self._refuse(_too_many_connections())
        self.transport.abort() if self.flow.write_paused else self.transport.close()

    def _look(self) -> None:
        """Look whether the client takes too long, now and then."""
        now, patience = self.loop.time(), self._limiter.patience
        self._timer = self.loop.call_later(patience.look, self._look)
        if self.transport.is_closing() or self.flow.write_paused:
            seconds = patience.linger if self.transport.is_closing() else patience.stall
            left = self.transport.get_write_buffer_size()
            if left <= self._unsent - _MIN_TAKEN_BYTES or left > self._unsent:
                self._unsent, self._taken = left, now
            elif now - self._taken >= seconds:
                _LOG.info("a client takes nothing of its answer: its connection is cut")
                self.transport.abort()
        elif self._silent or self._first is not None:
            if self._begun is not None and now - self._begun >= patience.head:
                self._refuse(ApiError(408, "the request did not come whole in time", "request_too_slow"))
            elif self._begun is None and now - self._since >= (patience.idle if self._asked else patience.head):
                self.transport.close()

    @property
    def _silent(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def _refuse(self, problem: ApiError) -> None:
        """Send an error if no response is under way, and close."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # whoever answers it speaks to nobody
        body = json.dumps(problem.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in {**headers, **problem.headers()}.items())
        self.transport.write(f"HTTP/1.1 {problem.status} \r\n{lines}\r\n".encode() + body)
        self.transport.close()


class ConnectionListener:
    """Accepts connections while there are places; what uvicorn takes for a server of asyncio's."""

    def __init__(
        self, listening: socket.socket, limiter: ConnectionLimiter, make: Callable[[], HttpConnection]
    ) -> None:
        listening.setblocking(False)
        self.sockets = (listening,)
        self._limiter = limiter
        self._make = make
        self._entering: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept(listening), name="accept")

    def close(self) -> None:
        """Accept no more."""
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing more is accepted."""
        await asyncio.wait([self._accepting])

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._limiter.has_place()
            try:
                first, _ = await loop.sock_accept(listening)
            except OSError as error:  # no descriptor is left, or the client left before its turn
                _LOG.warning("a connection could not be accepted: %s", error.strerror)
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            # Connections that wait to be accepted, as many as there are.
            most = self._limiter.places(_ACCEPT_BATCH) - 1
            found: list[socket.socket] = []
            with suppress(OSError):  # none waits, or no descriptor is left: the next turn says so
                while len(found) < most:
                    found.append(listening.accept()[0])
                    found[-1].setblocking(False)
            accepted = [first, *found]
            made = [asyncio.create_task(self._enter(each)) for each in accepted]
            self._entering.update(made)
            for each in made:
                each.add_done_callback(self._entering.discard)
            await asyncio.wait(made, timeout=_ACCEPT_RETRY_SECONDS)

    async def _enter(self, accepted: socket.socket) -> None:
        try:
            async with asyncio.timeout(_ACCEPT_SECONDS):
                await asyncio.get_running_loop().connect_accepted_socket(self._make, accepted)
        except (OSError, TimeoutError):
            accepted.close()


class _ServerFull:
    """The application of a connection beyond the limit: it answers probes and refuses everything else with 503."""

    def __init__(self, app: object) -> None:
        self._app: ASGIApp = app  # type: ignore[assignment]  # see `Connection.connection_made`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        if scope["type"] == "http" and scope["path"] in PROBE_PATHS:
            await self._app(scope, receive, closing)
            return
        problem = _too_many_connections()
        body = json.dumps(problem.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **problem.headers()}
        told = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await closing({"type": "http.response.start", "status": problem.status, "headers": told})
        await closing({"type": "http.response.body", "body": body})


def _too_many_connections() -> ApiError:
    return ApiError(
        503,
        "this server has as many connections as it can: come again",
        "too_many_connections",
        wait=_RETRY_AFTER_SECONDS,
    )
