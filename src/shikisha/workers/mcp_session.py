"""One connection to an MCP server, kept open for a worker and shared by its calls, over stdio or bounded HTTP.

The SDK's contexts hold cancel scopes, which the task that entered them must leave, while calls come from many tasks and
any of them may be cancelled. So a task of its own enters them, waits, and leaves them: a cancelled call ends that call
and not the connection, and the next call does not pay for a new process.

Invariants: a broken connection is replaced at the next call, never in the middle of one; whatever broke it becomes a
typed fault; no more than `max_bytes` of an HTTP body are read, except of a GET, which is an endless stream of
notifications. The HTTP client is httpx2 because the SDK uses it. Deliberately absent: answers to what a server asks.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TextIO, TypeVar

import anyio
import httpx2
from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
)

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.engine.worker import Card
from shikisha.workers import http_client
from shikisha.workers.endpoint import body_too_large, connect_problem, origin, redact_and_clip, status_error

_MAX_CONNECT_SECONDS = 10.0
_FAILED_STATUS = frozenset({401, 402, 403, 408, 429, 502, 503, 504})


class BoundedStream(httpx2.AsyncByteStream):
    """A body whose bytes are counted while it is read; beyond `most` it is an error."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most
        self._seen = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._seen += len(part)
            if self._seen > self._most:
                await self.aclose()
                raise body_too_large(self._most)
            yield part

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()


def bounded_client(
    card: Card, url: str, max_bytes: int, headers: Mapping[str, str], secret_store: SecretStore
) -> httpx2.AsyncClient:
    """Return a client for the server at one URL, which sends nothing to another origin."""

    async def ask(request: httpx2.Request) -> None:
        if (asked := origin(str(request.url))) != origin(url):
            raise WorkerError(FaultKind.BAD_REQUEST, f"{asked} is refused: the configuration names {origin(url)} here")
        request.headers["Accept-Encoding"] = "identity"

    async def hear(response: httpx2.Response) -> None:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise WorkerError(FaultKind.BAD_REPLY, "the body is compressed, which was not asked for")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length[:20]) > max_bytes:
            raise body_too_large(max_bytes)
        if response.request.method != "GET" and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = BoundedStream(response.stream, max_bytes)
        if response.status_code in _FAILED_STATUS:  # the SDK forgets the status
            raise status_error(response.status_code, response.headers, "", secret_store)

    return httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(card.timeout, connect=min(_MAX_CONNECT_SECONDS, card.timeout / 2)),
        limits=httpx2.Limits(max_connections=card.concurrency, max_keepalive_connections=100),
        follow_redirects=False,
        verify=http_client.trusted_certificates(),
        event_hooks={"request": [ask], "response": [hear]},
    )


def mcp_http_failure(error: httpx2.HTTPError, secret_store: SecretStore) -> WorkerError:
    """Map an exception of the HTTP library to a fault."""
    text = redact_and_clip(str(error), secret_store)
    match error:
        case httpx2.ProxyError():
            return WorkerError(FaultKind.CONNECT, f"the proxy refuses: {text}")
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout() | httpx2.ConnectError():
            try:
                where = error.request.url.netloc.decode()
            except RuntimeError:  # it belongs to no request
                where = "the server"
            timeout = isinstance(error, httpx2.TimeoutException)
            return WorkerError(FaultKind.CONNECT, connect_problem(where, "timeout" if timeout else text))
        case httpx2.TimeoutException():
            return WorkerError(FaultKind.TIMEOUT, f"nothing came in time{': ' * bool(text)}{text}")
        case httpx2.RemoteProtocolError() if "incomplete" in text or "without sending complete" in text:
            return WorkerError(FaultKind.CUT_OFF, f"the body ended too early: {text}")
        case httpx2.RemoteProtocolError() if "disconnected" not in text:
            return WorkerError(FaultKind.BAD_REPLY, f"not HTTP: {text}")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return WorkerError(FaultKind.BAD_REQUEST, "the request cannot be written")
        case _:
            return WorkerError(FaultKind.RESET, f"the connection broke{': ' * bool(text)}{text}")


# It logs what servers send, which may repeat keys.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL + 1)

_MAX_STDERR_TAIL = 1_000
# More than are shown: a key cut in half at the beginning would not be recognised.
_KEPT_BYTES = 8_000
_TEARDOWN_SECONDS = 10.0
# What the SDK says when the server has forgotten us.
_SESSION_EXPIRED = "Session terminated"
_FAULT_BY_CODE = {
    CONNECTION_CLOSED: FaultKind.RESET,
    INTERNAL_ERROR: FaultKind.SERVER,
    INVALID_PARAMS: FaultKind.BAD_ARGUMENTS,
    INVALID_REQUEST: FaultKind.BAD_REQUEST,
    METHOD_NOT_FOUND: FaultKind.BAD_REQUEST,
    PARSE_ERROR: FaultKind.BAD_REPLY,
    REQUEST_TIMEOUT: FaultKind.TIMEOUT,
}

T = TypeVar("T")


class StderrTail:
    """The end of a child process's standard error, which says why the child ended."""

    def __init__(self) -> None:
        self._words = b""

    def __str__(self) -> str:
        return self._words.decode(errors="replace")

    @contextmanager
    def capture(self) -> Iterator[TextIO]:
        """Yield a file for the child to write to."""
        self._words = b""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        loop = asyncio.get_running_loop()
        loop.add_reader(reader, self._take, reader)
        try:
            with os.fdopen(writer, "w") as file:
                yield file
        finally:
            loop.remove_reader(reader)
            self._take(reader)
            os.close(reader)

    def _take(self, reader: int) -> None:
        with suppress(BlockingIOError):
            self._words = (self._words + os.read(reader, 65_536))[-_KEPT_BYTES:]


class _McpConnection:
    """A connection and the task that owns it. `opened` is set when there is a client or the reason for its absence."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.stop = asyncio.Event()
        self.client: Client | None = None
        self.broke: WorkerError | None = None
        self.owner: asyncio.Task[None] | None = None


class McpSession:
    """A connection that opens when first needed, and opens again after it broke."""

    def __init__(
        self,
        opening: Callable[[AsyncExitStack], Awaitable[Client]],
        seconds: float,
        secret_store: SecretStore,
        words: StderrTail,
    ) -> None:
        self._opening = opening
        self._seconds = seconds
        self._secret_store = secret_store
        self._words = words
        self._connection: _McpConnection | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def use(self, action: Callable[[Client], Awaitable[T]]) -> T:
        """Return the result of the action on an open connection; WorkerError for any failure."""
        connection = self._current()
        try:
            async with asyncio.timeout(self._seconds):
                await connection.opened.wait()
        except TimeoutError:  # the owner gives up now too, but its child may take seconds to end
            self._leave(connection)
            raise self._not_open() from None
        if connection.client is None or connection.broke is not None:
            raise _fresh_error(connection.broke)
        try:
            return await action(connection.client)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or error.message == _SESSION_EXPIRED:
                raise await self._lost(connection, error) from None
            raise self._stated(error) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise await self._lost(connection, error) from None

    async def aclose(self) -> None:
        """Leave the connection and wait for its end, and for that of earlier ones."""
        if self._connection is not None:
            self._leave(self._connection)
        if self._ending:
            await asyncio.wait(self._ending, timeout=_TEARDOWN_SECONDS)

    def _current(self) -> _McpConnection:
        connection = self._connection
        if connection is None or connection.owner is None or connection.owner.done():
            connection = self._connection = _McpConnection()
            connection.owner = asyncio.create_task(self._own(connection))
        return connection

    async def _own(self, connection: _McpConnection) -> None:
        """Enter the connection, wait, leave it."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._seconds):
                    connection.client = await self._opening(stack)
                connection.opened.set()
                await connection.stop.wait()
        except BaseException as error:  # noqa: BLE001 - whatever the SDK's task groups end with is told to the callers
            connection.broke = self._reason(error, opened=connection.client is not None)
        finally:
            connection.opened.set()

    def _leave(self, connection: _McpConnection) -> asyncio.Task[None] | None:
        """Tell the owner to leave; the next call opens a connection of its own."""
        if self._connection is connection:
            self._connection = None
        connection.stop.set()
        owner = connection.owner
        if owner is not None and not owner.done():
            self._ending.add(owner)
            owner.add_done_callback(self._ending.discard)
            if not connection.opened.is_set():
                owner.cancel()
        return owner

    async def _lost(self, connection: _McpConnection, error: Exception) -> WorkerError:
        """Give the connection up and return why it broke."""
        owner = self._leave(connection)
        if owner is not None:
            await asyncio.wait({owner}, timeout=_TEARDOWN_SECONDS)
        if connection.broke is not None:
            return _fresh_error(connection.broke)
        return WorkerError(FaultKind.RESET, self._with_words(f"the connection broke: {error}"))

    def _reason(self, error: BaseException, *, opened: bool) -> WorkerError:
        # The most informative of the exceptions in a group.
        found = [error]
        for part in found:
            if isinstance(part, BaseExceptionGroup):
                found.extend(part.exceptions)
        singles = [part for part in found if not isinstance(part, BaseExceptionGroup)]
        telling = [part for part in singles if isinstance(part, WorkerError | httpx2.HTTPError | MCPError)]
        cause = (telling or singles)[0]
        match cause:
            case WorkerError():
                return cause
            case httpx2.HTTPError():
                return mcp_http_failure(cause, self._secret_store)
            case TimeoutError():
                return self._not_open()
            case MCPError() if opened or cause.code != CONNECTION_CLOSED:
                return self._stated(cause)
            case _:
                kind = FaultKind.RESET if opened else FaultKind.CONNECT
                return WorkerError(kind, self._with_words(f"{type(cause).__name__}: {cause}"))

    def _not_open(self) -> WorkerError:
        return WorkerError(FaultKind.CONNECT, self._with_words(f"not open within {self._seconds:g} s"))

    def _stated(self, error: MCPError) -> WorkerError:
        """Map an error that the server states to a fault."""
        kind = _FAULT_BY_CODE.get(error.code, FaultKind.SERVER)
        return WorkerError(
            kind, f"the server says: {redact_and_clip(error.message, self._secret_store)} ({error.code})"
        )

    def _with_words(self, what: str) -> str:
        words = self._secret_store.scrub(str(self._words)).strip()[-_MAX_STDERR_TAIL:]
        return redact_and_clip(
            f"{what}; its last words: {words}" if words else what, self._secret_store, 2 * _MAX_STDERR_TAIL
        )


def _fresh_error(fault: WorkerError | None) -> WorkerError:
    """Return a fresh error for each of the callers that meet the same end."""
    return WorkerError.of(fault.fault) if fault is not None else WorkerError(FaultKind.RESET, "the connection was left")
