"""HTTP that cannot run away, and the one place that says which fault a failure of it is.

Invariants: no more than `max_bytes` of a body are ever read, and none that is compressed (a small body could then be a
large one); redirects are not followed, so a call goes where the configuration says; one call is one request, whatever
its method; no header leaves that nobody named, and a message of ours holds none. Deliberately absent: retries (see
`attempt`), cookies, and the shapes of any particular API. aiohttp, because its parser is C: a call through one in
Python took three times as much of a server's time.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

import aiohttp

from shikisha.errors import FaultKind, WorkerError
from shikisha.secrets import Vault
from shikisha.worker import Card
from shikisha.workers import outward
from shikisha.workers.refusals import too_large
from shikisha.workers.wording import clip

_LONGEST_CONNECT = 10.0
_KEPT = 5.0  # seconds that an idle connection is kept: fewer than servers keep theirs
_LINGER = 0.1  # seconds that a connection is waited for after the end marker, before it is closed instead
_WORDS_SECONDS = 2.0  # that the words of an error status are waited for
_LONGEST_WORDS = 64 * 2**10
_LONGEST_HEADER = 64 * 2**10
_UNWRITABLE = "the request cannot be written"
_OURS = {"Accept-Encoding": "identity", "User-Agent": "shikisha"}


class Answer:
    """A response whose head is there: its status, its headers, and its body as far as it is asked for."""

    def __init__(self, response: aiohttp.ClientResponse, most: int) -> None:
        self._response = response
        self._most = most
        self._seen = 0
        self.status = response.status
        self.headers = response.headers
        self._zipped = response.headers.get("Content-Encoding", "identity").lower() != "identity"
        if self.succeeded and self._zipped:
            raise WorkerError(FaultKind.BAD_REPLY, "the body is compressed, which was not asked for")
        length = response.headers.get("Content-Length", "")
        if self.succeeded and length.isdecimal() and int(length[:20]) > most:
            raise too_large(most)

    @property
    def succeeded(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    async def read(self) -> bytes:
        """Return what comes next of the body; nothing at its end."""
        part = await self._response.content.readany()
        self._seen += len(part)
        if self._seen > self._most:
            raise too_large(self._most)
        return part

    async def whole(self) -> bytes:
        """Return the body, or what is left of it."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    async def words(self) -> bytes:
        """Return what an endpoint says of an error status, as far as it comes: the status alone says what happened.

        A body that is too long, compressed, late or cut makes no other fault of it.
        """
        said = b""
        if not self._zipped:
            with suppress(TimeoutError, aiohttp.ClientError, WorkerError):
                async with asyncio.timeout(_WORDS_SECONDS):
                    while len(said) < _LONGEST_WORDS and (part := await self.read()):
                        said += part
        return said[:_LONGEST_WORDS]

    async def drain(self) -> None:
        """Read what follows an end marker, so that the connection can be used again; a moment, no longer."""
        if not self._response.content.at_eof():
            with suppress(TimeoutError, aiohttp.ClientError, WorkerError):
                async with asyncio.timeout(_LINGER):
                    await self.whole()


class Wire:
    """One worker's connections to one address. An answer that is left before its end takes its connection with it."""

    def __init__(self, card: Card, url: str, max_bytes: int, headers: Mapping[str, str]) -> None:
        self._most = max_bytes
        self._proxy = outward.proxy_for(url)
        # callers wait for their turn here, and not for a connection, so that connecting has a time of its own
        self._turn: AbstractAsyncContextManager[None] = (
            asyncio.Semaphore(card.concurrency) if card.concurrency else nullcontext()
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=outward.trusted(), keepalive_timeout=_KEPT),
            timeout=aiohttp.ClientTimeout(total=None, connect=min(_LONGEST_CONNECT, card.timeout / 2)),
            headers={**headers, **_OURS},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            middlewares=[_once],
        )

    @asynccontextmanager
    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[Answer]:
        """Send a request and yield its answer once its head is there."""
        async with self._turn:
            try:
                response = await self._session.request(
                    method, url, data=body, headers=headers, proxy=self._proxy, allow_redirects=False
                )
            except ValueError as error:
                if isinstance(error, aiohttp.ClientError):
                    raise
                raise WorkerError(FaultKind.BAD_REQUEST, _UNWRITABLE) from None  # it may repeat a header
            async with response:
                yield Answer(response, self._most)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()


class Broken(aiohttp.ClientConnectionError):
    """The connection broke after the request had begun: nobody knows how far it came."""


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from asking a second time by itself, which it does for GET and PUT after a reset."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Broken(str(error)) from error


def failure(error: BaseException | None, vault: Vault) -> WorkerError:
    """Say which fault an exception of the HTTP library is."""
    name, text = type(error).__name__, clip(str(error), vault)
    match error:
        case WorkerError():
            return error
        case aiohttp.ClientHttpProxyError():  # its own words name the proxy, and that may hold a password
            return WorkerError(FaultKind.CONNECT, f"the proxy refuses: status {error.status}")
        case aiohttp.ConnectionTimeoutError() | aiohttp.ClientConnectorError():
            return WorkerError(FaultKind.CONNECT, f"{name}: {text}")
        case aiohttp.ServerTimeoutError():
            return WorkerError(FaultKind.TIMEOUT, f"{name}: {text}")
        case aiohttp.ClientPayloadError() if "ConnectionResetError" not in str(error):
            return WorkerError(FaultKind.CUT_OFF, f"the body ended too early: {text}")
        case aiohttp.ClientResponseError():
            return WorkerError(FaultKind.BAD_REPLY, f"not HTTP: {text}")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return WorkerError(FaultKind.BAD_REQUEST, _UNWRITABLE)
        case _:
            return WorkerError(FaultKind.RESET, f"{name}: {text}")
