"""HTTP that cannot run away, and the one place that says which fault an HTTP failure is.

Invariants: no more than `max_bytes` of a body are ever read, and none that is compressed (a small body could then be a
large one); redirects are not followed, so a call goes where the configuration says; a message of ours holds no header.
Deliberately absent: retries (see `attempt`) and the shapes of any particular API.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from time import time

import httpx2

from shikisha.errors import FaultKind, WorkerError
from shikisha.secrets import Vault
from shikisha.worker import Card
from shikisha.workers.wording import clip

_LONGEST_CONNECT = 10.0
_LINGER = 0.1  # seconds that a connection is waited for after the end marker, before it is closed instead
_METERED = "shikisha.metered"
_MARK = b"[DONE]"  # looked for first: a plain search is far faster
_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")


class Metered(httpx2.AsyncByteStream):
    """A body that is counted while it is read and refused beyond `most` bytes.

    `begun` tells whether anything came, `done` whether the end marker of an event stream did; a client library reads
    the marker and keeps it to itself.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most
        self._seen = 0
        self._tail = b"\n"
        self.done = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._seen += len(part)
            if self._seen > self._most:
                await self.aclose()
                raise _too_large(self._most)
            self._watch(self._tail + part)
            yield part

    def _watch(self, part: bytes) -> None:
        self.done = self.done or (_MARK in part and _DONE.search(part) is not None)
        self._tail = part[-16:]

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()


def client(
    card: Card,
    max_bytes: int,
    headers: Mapping[str, str],
    *,
    only: frozenset[str] | None = None,
    endless: bool = False,
) -> httpx2.AsyncClient:
    """Return a client for one worker: bounded, without redirects; `only` names the headers that may leave.

    `endless`: what is got with GET is a stream of notifications that has no end to count towards.
    """

    async def ask(request: httpx2.Request) -> None:
        if only is not None:
            for name in set(request.headers) - only:
                del request.headers[name]
        request.headers["Accept-Encoding"] = "identity"

    async def hear(response: httpx2.Response) -> None:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise WorkerError(FaultKind.BAD_REPLY, "the body is compressed, which was not asked for")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length[:20]) > max_bytes:
            raise _too_large(max_bytes)
        counted = not (endless and response.request.method == "GET")
        if counted and isinstance(response.stream, httpx2.AsyncByteStream):
            metered = Metered(response.stream, max_bytes)
            response.stream = response.extensions[_METERED] = metered

    return httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(card.timeout, connect=min(_LONGEST_CONNECT, card.timeout / 2)),
        limits=httpx2.Limits(max_connections=card.concurrency, max_keepalive_connections=100),
        follow_redirects=False,
        verify=_trusted(),
        event_hooks={"request": [ask], "response": [hear]},
    )


@cache
def _trusted() -> ssl.SSLContext:
    """Return the certificates that are trusted, read once: that takes 30 ms and more."""
    return httpx2.create_ssl_context()


def is_done(response: httpx2.Response) -> bool:
    """Whether the end marker of this event stream has been read."""
    metered = response.extensions.get(_METERED)
    return isinstance(metered, Metered) and metered.done


async def drain(rest: AsyncIterable[bytes]) -> None:
    """Read what follows an event stream's end marker, so that the connection can be used again; a moment, no longer."""
    with suppress(TimeoutError, httpx2.HTTPError, WorkerError):
        async with asyncio.timeout(_LINGER):
            async for _ in rest:
                pass


def _too_large(most: int) -> WorkerError:
    return WorkerError(FaultKind.TOO_LARGE, f"the body is larger than {most:,} bytes")


def failure(error: BaseException | None, vault: Vault) -> WorkerError:
    """Say which fault an exception of the HTTP library is."""
    name = type(error).__name__
    text = clip(str(error), vault)
    match error:
        case WorkerError():
            return error
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout() | httpx2.ConnectError() | httpx2.ProxyError():
            return WorkerError(FaultKind.CONNECT, f"{name}: {text}")
        case httpx2.TimeoutException():
            return WorkerError(FaultKind.TIMEOUT, f"{name}: {text}")
        case httpx2.RemoteProtocolError() if "incomplete" in text or "without sending complete" in text:
            return WorkerError(FaultKind.CUT_OFF, f"the body ended too early: {text}")
        case httpx2.RemoteProtocolError() if "disconnected" not in text:
            return WorkerError(FaultKind.BAD_REPLY, f"not HTTP: {text}")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
            return WorkerError(FaultKind.BAD_REQUEST, f"{name}: the request cannot be written")
        case _:
            return WorkerError(FaultKind.RESET, f"{name}: {text}")


def refusal(status: int, headers: Mapping[str, str], detail: str, vault: Vault) -> WorkerError:
    """Say which fault an HTTP status other than success is; `detail` is what the endpoint says about it.

    The detail of an authorisation failure is left out: endpoints like to repeat parts of the key in it.
    """
    said = f"status {status}: {clip(detail, vault)}" if detail else f"status {status}"
    match status:
        case 401 | 403:
            return WorkerError(FaultKind.AUTH, f"status {status}: the key is missing, wrong or not allowed to do this")
        case 402:
            return WorkerError(FaultKind.AUTH, f"{said} (the account has no credit)")
        case 408:
            return WorkerError(FaultKind.TIMEOUT, said)
        case 409 | 425:
            return WorkerError(FaultKind.SERVER, said, retry_after=retry_after(headers))
        case 429:
            return WorkerError(FaultKind.RATE_LIMITED, said, retry_after=retry_after(headers))
        case _ if status >= 500:
            return WorkerError(FaultKind.SERVER, said, retry_after=retry_after(headers))
        case _ if 300 <= status < 400:
            return WorkerError(FaultKind.BAD_REQUEST, f"status {status}: redirects are not followed")
        case _:
            return WorkerError(FaultKind.BAD_REQUEST, said)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, number or HTTP date (RFC 9110), as received: below zero, or huge."""
    value = headers.get("Retry-After", "").strip()[:64]
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (ValueError, OverflowError):
            return None
    return seconds if isfinite(seconds) else None
