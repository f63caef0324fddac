"""Connections: how a request comes and how its answer goes, where the client is slow, silent or greedy.

uvicorn reads a request whenever it comes and waits for it for ever; it accepts until descriptors are used up, and then
neither probes nor the journal get one. Here:

- there is no room (`crowd`): whoever finds none is told 503 with `Retry-After`, and only probes (`/healthz`, `/readyz`)
  are answered, in places that are kept free for this;
- it takes too long: a request has `Patience.head` seconds in all until its head and its body, if that is small, are
  whole, however they drip (the application is asked only then); an idle connection has `Patience.idle`;
- the client does not take its answer: `Patience.stall` seconds in which next to nothing left, and it is cut off.
  A stream of events may be silent for hours (pings keep it alive): what counts is that the client takes what is sent.

Deliberately absent: how long a large body may take and how large it may be (`bounds`).
"""

import asyncio
import json
import logging
import socket
import sys
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from shikisha.server.crowd import Crowd, Patience
from shikisha.server.hosts import OPEN
from shikisha.server.problems import Problem

if sys.platform != "win32":
    from fcntl import ioctl
    from termios import FIONREAD

_LOG = logging.getLogger(__name__)
_AT_ONCE = 16  # connections that are accepted before others get their turn
_NOTED = 2**10  # bytes at once by which a client keeps its place in line: who drips does not
_PAUSE = 0.05  # seconds before a listener that could not accept tries again
_LONGEST_ENTRY = 5.0  # seconds: uvloop never says of a connection that it was gone before it was made
_PIPELINED = 8  # requests that may wait behind one that is being answered; no client that we know sends two
_SMALL = 2**15  # bytes of a body that may come before the application is asked; uvicorn stops reading at twice that
_MOST_HEAD = 64 * 2**10  # bytes of a request line and its headers, or of what frames a body beyond eight times itself
_LEAST_TAKEN = 16 * 2**10  # bytes of its answer that a client takes in `Patience.stall` seconds
_WAIT = 1.0  # seconds after which a client that found no room is asked to come again


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with an end to its patience. Made by `Listener`."""

    def __init__(self, crowd: Crowd, config: Config, state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, state, app_state)
        self._crowd = crowd
        self._timer: asyncio.TimerHandle | None = None
        now = self.loop.time()
        self._since = now  # when the turn became the client's
        self._begun: float | None = None  # when it began the request that is not handed on yet
        self._first: tuple[RequestResponseCycle, ASGI3Application] | None = None  # the request that is not handed on
        self._feeding = False
        self._file = -1
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
            _set_up(peer, self._crowd.patience)
        if not self._crowd.enter(self):
            self.app = _Full(self.app)
        self._timer = self.loop.call_later(self._crowd.patience.look, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the connection go."""
        self._crowd.leave(self)
        self._first = None
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a head, or what frames a body, that is too large ends the connection."""
        if len(data) >= _NOTED:
            self._crowd.heard(self)
        self._frame += len(data)
        self._feeding = True
        super().data_received(data)
        self._feeding = False
        self._begin()
        self._frame = max(self._frame, 0)
        if self._frame > _MOST_HEAD and not self.transport.is_closing():
            self._refuse(Problem(431, f"the headers are larger than {_MOST_HEAD:,} bytes", "headers_too_large"))

    def pause_writing(self) -> None:
        """Note that the client does not take its answer."""
        self._crowd.sticks(self, stuck=True)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client takes its answer."""
        self._crowd.sticks(self, stuck=False)
        if self._silent:
            self._crowd.waits(self)  # its answer was written before, and is taken now
        self._taken = self.loop.time()
        super().resume_writing()

    # what the parser tells ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Note when a request's first byte came."""
        super().on_message_begin()
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
        if not cycle.more_body or cycle.waiting_for_100_continue or len(cycle.body) > _SMALL:
            self._first = None
            if cycle.more_body:
                self._begun = None  # how long the rest may take is for `bounds` to say
            super()._start_asgi_task(cycle, app)

    def on_headers_complete(self) -> None:
        """Begin a request, unless too many wait already."""
        if len(self.pipeline) >= _PIPELINED:
            raise ValueError("too many requests were sent ahead")
        self._frame, self._asked = 0, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take in a part of a body."""
        self._frame -= 8 * len(body)  # a chunk of one byte comes in six
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that it is our turn, unless the answer was there before the request had ended."""
        super().on_message_complete()
        self._frame, self._begun = 0, None
        if not self.cycle.response_complete:
            self._crowd.works(self)

    def on_response_complete(self) -> None:
        """Note that it is the client's turn, unless it sent another request ahead."""
        ahead = bool(self.pipeline)
        super().on_response_complete()
        self._since = self._taken = self.loop.time()
        if self._begun is not None:
            self._begun = self._since  # what was sent ahead had to wait
        if not ahead and not self.flow.write_paused:
            self._crowd.waits(self)

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

    def turn_away(self) -> None:
        """Close the connection because others want its place."""
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.response_started:
            self._refuse(_full())
        self.transport.abort() if self.flow.write_paused else self.transport.close()

    def _look(self) -> None:
        """Look whether the client takes too long, now and then."""
        now, patience = self.loop.time(), self._crowd.patience
        self._timer = self.loop.call_later(patience.look, self._look)
        if self.transport.is_closing() or self.flow.write_paused:
            self._look_after_answer(now, patience.linger if self.transport.is_closing() else patience.stall)
        elif self._silent or self._first is not None:
            if self._begun is not None and now - self._begun >= patience.head:
                self._refuse(Problem(408, "the request did not come whole in time", "request_too_slow"))
            elif self._begun is None and now - self._since >= (patience.idle if self._asked else patience.head):
                self.transport.close()

    def _look_after_answer(self, now: float, seconds: float) -> None:
        left = self.transport.get_write_buffer_size()
        if left <= self._unsent - _LEAST_TAKEN or left > self._unsent:
            self._unsent, self._taken = left, now
        elif now - self._taken >= seconds:
            _LOG.info("a client takes nothing of its answer: its connection is cut")
            self.transport.abort()

    @property
    def _silent(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def _refuse(self, problem: Problem) -> None:
        """Say why, if nothing else is being said, and close."""
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


class Listener:
    """Accepts connections while there are places; what uvicorn takes for a server of asyncio's."""

    def __init__(self, listening: socket.socket, crowd: Crowd, make: Callable[[], Connection]) -> None:
        listening.setblocking(False)
        self.sockets = (listening,)
        self._crowd = crowd
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
            await self._crowd.has_place()
            try:
                first, _ = await loop.sock_accept(listening)
            except OSError as error:  # no descriptor is left, or the client left before its turn
                _LOG.warning("a connection could not be accepted: %s", error.strerror)
                await asyncio.sleep(_PAUSE)
                continue
            accepted = [first, *_further(listening, self._crowd.places(_AT_ONCE) - 1)]
            made = [asyncio.create_task(self._enter(each)) for each in accepted]
            self._entering.update(made)
            for each in made:
                each.add_done_callback(self._entering.discard)
            await asyncio.wait(made, timeout=_PAUSE)

    async def _enter(self, accepted: socket.socket) -> None:
        try:
            async with asyncio.timeout(_LONGEST_ENTRY):
                await asyncio.get_running_loop().connect_accepted_socket(self._make, accepted)
        except (OSError, TimeoutError):
            accepted.close()


def _further(listening: socket.socket, most: int) -> Sequence[socket.socket]:
    """Return connections that wait to be accepted, as many as there are."""
    found: list[socket.socket] = []
    with suppress(OSError):  # none waits, or no descriptor is left: the next turn says so
        while len(found) < most:
            found.append(listening.accept()[0])
            found[-1].setblocking(False)
    return found


class _Full:
    """What a connection gets that found no room: probes are answered, everything else is told to come again."""

    def __init__(self, app: object) -> None:
        self._app: ASGIApp = app  # type: ignore[assignment]  # see `Connection.connection_made`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        if scope["type"] == "http" and scope["path"] in OPEN:
            await self._app(scope, receive, closing)
            return
        problem = _full()
        body = json.dumps(problem.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **problem.headers()}
        told = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await closing({"type": "http.response.start", "status": problem.status, "headers": told})
        await closing({"type": "http.response.body", "body": body})


def _full() -> Problem:
    return Problem(503, "this server has as many connections as it can: come again", "too_many_connections", wait=_WAIT)


def _set_up(peer: socket.socket, patience: Patience) -> None:
    """Have the system find out whether the client's machine is still there, and send what is written at once."""
    seconds = max(1, round(patience.stall))
    options = {"TCP_KEEPIDLE": seconds, "TCP_KEEPINTVL": max(1, seconds // 4), "TCP_KEEPCNT": 4}
    options["TCP_USER_TIMEOUT"] = max(30_000, 2000 * seconds)  # milliseconds that what was sent may be unacknowledged
    with suppress(OSError):  # whoever is gone already needs no probing
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only where it knows the protocol
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
