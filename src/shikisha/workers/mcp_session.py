"""One connection to an MCP server, kept open for a worker and shared by its calls.

The SDK's contexts hold cancel scopes, which must be left by the task that entered them, while calls come from many
tasks and any of them may be cancelled at any time. So a task of its own enters them, waits, and leaves them: a
cancelled call ends that call and not the connection, and the next call does not pay for a new process. Invariants: a
connection that breaks is replaced at the next call, never in the middle of one; whatever broke it is a typed fault.
Deliberately absent: several servers behind one session, and any answer to what a server asks of us.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
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

from shikisha.errors import FaultKind, WorkerError
from shikisha.secrets import Vault
from shikisha.workers import mcp_http
from shikisha.workers.wording import clip

logging.getLogger("mcp.client").setLevel(logging.CRITICAL + 1)  # it logs what servers send, which may repeat keys

_LAST_WORDS = 1_000
_KEPT_BYTES = 8_000  # more than are shown: a key cut in half at the beginning would not be recognised
_TEARDOWN_SECONDS = 10.0
_EXPIRED = "Session terminated"  # what the SDK says when the server has forgotten us
_KINDS = {
    CONNECTION_CLOSED: FaultKind.RESET,
    INTERNAL_ERROR: FaultKind.SERVER,
    INVALID_PARAMS: FaultKind.BAD_ARGUMENTS,
    INVALID_REQUEST: FaultKind.BAD_REQUEST,
    METHOD_NOT_FOUND: FaultKind.BAD_REQUEST,
    PARSE_ERROR: FaultKind.BAD_REPLY,
    REQUEST_TIMEOUT: FaultKind.TIMEOUT,
}

T = TypeVar("T")


class LastWords:
    """The end of what a child process writes to its standard error; it says why the child ended."""

    def __init__(self) -> None:
        self._words = b""

    def __str__(self) -> str:
        return self._words.decode(errors="replace")

    @contextmanager
    def listening(self) -> Iterator[TextIO]:
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


class _Connection:
    """A connection and the task that owns it. `opened` is set when there is a client, or a reason why there is none."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.stop = asyncio.Event()
        self.client: Client | None = None
        self.broke: WorkerError | None = None
        self.owner: asyncio.Task[None] | None = None


class Session:
    """A connection that is opened when it is first needed, and opened anew after it broke."""

    def __init__(
        self, opening: Callable[[AsyncExitStack], Awaitable[Client]], seconds: float, vault: Vault, words: LastWords
    ) -> None:
        self._opening = opening
        self._seconds = seconds
        self._vault = vault
        self._words = words
        self._connection: _Connection | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def use(self, action: Callable[[Client], Awaitable[T]]) -> T:
        """Return what the action comes to on an open connection; WorkerError for whatever breaks."""
        connection = self._current()
        try:
            async with asyncio.timeout(self._seconds):
                await connection.opened.wait()
        except TimeoutError:  # the owner gives up now too, but its child may take seconds to end
            self._leave(connection)
            raise self._not_open() from None
        if connection.client is None or connection.broke is not None:
            raise _again(connection.broke)
        try:
            return await action(connection.client)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or error.message == _EXPIRED:
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

    def _current(self) -> _Connection:
        connection = self._connection
        if connection is None or connection.owner is None or connection.owner.done():
            connection = self._connection = _Connection()
            connection.owner = asyncio.create_task(self._own(connection))
        return connection

    async def _own(self, connection: _Connection) -> None:
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

    def _leave(self, connection: _Connection) -> asyncio.Task[None] | None:
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

    async def _lost(self, connection: _Connection, error: Exception) -> WorkerError:
        """Give the connection up and return why it broke."""
        owner = self._leave(connection)
        if owner is not None:
            await asyncio.wait({owner}, timeout=_TEARDOWN_SECONDS)
        if connection.broke is not None:
            return _again(connection.broke)
        return WorkerError(FaultKind.RESET, self._with_words(f"the connection broke: {error}"))

    def _reason(self, error: BaseException, *, opened: bool) -> WorkerError:
        cause = _cause(error)
        match cause:
            case WorkerError():
                return cause
            case httpx2.HTTPError():
                return mcp_http.failure(cause, self._vault)
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
        """Say which fault an error is that the server states."""
        kind = _KINDS.get(error.code, FaultKind.SERVER)
        return WorkerError(kind, f"the server says: {clip(error.message, self._vault)} ({error.code})")

    def _with_words(self, what: str) -> str:
        words = self._vault.scrub(str(self._words)).strip()[-_LAST_WORDS:]
        return clip(f"{what}; its last words: {words}" if words else what, self._vault, 2 * _LAST_WORDS)


def _again(fault: WorkerError | None) -> WorkerError:
    """Return a fresh error for each of the callers that meet the same end."""
    return WorkerError.of(fault.fault) if fault is not None else WorkerError(FaultKind.RESET, "the connection was left")


def _cause(error: BaseException) -> BaseException:
    """Return the telling one of the exceptions that a task group ended with."""
    found = [error]
    for part in found:
        if isinstance(part, BaseExceptionGroup):
            found.extend(part.exceptions)
    singles = [part for part in found if not isinstance(part, BaseExceptionGroup)]
    telling = [part for part in singles if isinstance(part, WorkerError | httpx2.HTTPError | MCPError)]
    return (telling or singles)[0]
