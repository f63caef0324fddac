"""The HTTP under an MCP session, bounded: the SDK speaks it through httpx2, so this does.

Invariants: no more than `max_bytes` of a body are ever read, and none that is compressed; redirects are not followed; a
message of ours holds no header. What is got with GET is a stream of notifications that has no end to count towards.
Deliberately absent: what other workers speak (`wire`).
"""

from collections.abc import AsyncIterator, Mapping

import httpx2

from shikisha.errors import FaultKind, WorkerError
from shikisha.secrets import Vault
from shikisha.worker import Card
from shikisha.workers import outward
from shikisha.workers.refusals import refusal, too_large
from shikisha.workers.wording import clip

_LONGEST_CONNECT = 10.0
_FAILED_STATUS = frozenset({401, 402, 403, 408, 429, 502, 503, 504})


class Metered(httpx2.AsyncByteStream):
    """A body that is counted while it is read and refused beyond `most` bytes."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most
        self._seen = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._seen += len(part)
            if self._seen > self._most:
                await self.aclose()
                raise too_large(self._most)
            yield part

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()


def client(card: Card, max_bytes: int, headers: Mapping[str, str], vault: Vault) -> httpx2.AsyncClient:
    """Return a client for one server."""

    async def ask(request: httpx2.Request) -> None:
        request.headers["Accept-Encoding"] = "identity"

    async def hear(response: httpx2.Response) -> None:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise WorkerError(FaultKind.BAD_REPLY, "the body is compressed, which was not asked for")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length[:20]) > max_bytes:
            raise too_large(max_bytes)
        if response.request.method != "GET" and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = Metered(response.stream, max_bytes)
        if response.status_code in _FAILED_STATUS:  # the SDK forgets the status
            raise refusal(response.status_code, response.headers, "", vault)

    return httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(card.timeout, connect=min(_LONGEST_CONNECT, card.timeout / 2)),
        limits=httpx2.Limits(max_connections=card.concurrency, max_keepalive_connections=100),
        follow_redirects=False,
        verify=outward.trusted(),
        event_hooks={"request": [ask], "response": [hear]},
    )


def failure(error: httpx2.HTTPError, vault: Vault) -> WorkerError:
    """Say which fault an exception of the HTTP library is."""
    name, text = type(error).__name__, clip(str(error), vault)
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout() | httpx2.ConnectError() | httpx2.ProxyError():
            return WorkerError(FaultKind.CONNECT, f"{name}: {text}")
        case httpx2.TimeoutException():
            return WorkerError(FaultKind.TIMEOUT, f"{name}: {text}")
        case httpx2.RemoteProtocolError() if "incomplete" in text or "without sending complete" in text:
            return WorkerError(FaultKind.CUT_OFF, f"the body ended too early: {text}")
        case httpx2.RemoteProtocolError() if "disconnected" not in text:
            return WorkerError(FaultKind.BAD_REPLY, f"not HTTP: {text}")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return WorkerError(FaultKind.BAD_REQUEST, f"{name}: the request cannot be written")
        case _:
            return WorkerError(FaultKind.RESET, f"{name}: {text}")
