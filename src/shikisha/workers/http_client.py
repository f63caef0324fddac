"""Bounded HTTP on aiohttp: certificates, proxies, and which fault a failed request is.

Invariants: a client belongs to one origin (scheme, host, port) and sends nothing, keys least of all, to any other; no
more than `max_bytes` of a body are read, counted after unpacking where it comes compressed unasked; a call with its
whole reply has one time limit; redirects are not followed; one call is one request, whatever its method; only
named headers leave, and no message of ours contains one. Every client but the MCP SDK's and OpenTelemetry's is made
here. Certificates and proxies come from the system and its environment (`SSL_CERT_FILE`, `SSL_CERT_DIR`, `HTTPS_PROXY`,
`NO_PROXY` and the like). Deliberately absent: retries (see `engine.attempt`), cookies, SOCKS, and a switch for
verification. aiohttp because its parser is written in C: a client in Python cost a server three times as much time.
"""

import asyncio
import errno
import os
import platform
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.fair_work import FairSemaphore
from shikisha.core.secrets import SecretStore
from shikisha.engine.worker import Card
from shikisha.workers.endpoint import (
    AddressRule,
    address_problem,
    body_too_large,
    connect_problem,
    error_code,
    redact_and_clip,
    status_error,
)

_HASHED_NAME = re.compile(r"[0-9a-fA-F]{8}\.\d+")
_OTHER_CA_FILES = (  # for a Python that was built to look where this Linux keeps none
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)


@cache
def trusted_certificates() -> ssl.SSLContext:
    """Return the trusted certificates; cached, because reading them takes 30 ms and more."""
    if platform.system() in ("Windows", "Darwin") and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    paths = ssl.get_default_verify_paths()  # empty where there is nothing
    if not paths.cafile and not (
        bool(paths.capath) and any(_HASHED_NAME.fullmatch(each.name) for each in Path(paths.capath).iterdir())
    ):
        file = next((each for each in _OTHER_CA_FILES if Path(each).is_file()), None)
        if file is not None:
            context.load_verify_locations(file)
    return context


def proxy_for(url: str) -> str | None:
    """Return the proxy for a URL; None for a direct connection."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


_MAX_CONNECT_SECONDS = 10.0
_KEEPALIVE_SECONDS = 5.0  # shorter than servers keep idle connections
# Seconds to wait for the end of the body; then the connection closes.
_DRAIN_SECONDS = 0.1
# To wait for the body of an error status.
_ERROR_BODY_SECONDS = 2.0
_MAX_ERROR_BODY = 64 * 2**10
_MAX_HEADER = 64 * 2**10
_ZIPPED, _GZIP_MAGIC = frozenset({"gzip", "x-gzip", "deflate"}), b"\x1f\x8b"
_ANY_HEAD = 47  # of zlib's window: the head says which of them it is
_UNWRITABLE = "the request cannot be written"
_FIXED_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "shikisha"}


class HttpResponse:
    """A response whose head has arrived: status, headers, and the body on demand."""

    def __init__(
        self, response: aiohttp.ClientResponse, most: int, secret_store: SecretStore, alive: Callable[[], None]
    ) -> None:
        self._response, self._most, self._secret_store, self._alive = response, most, secret_store, alive
        self._seen = 0
        self.status = response.status
        self.headers = response.headers
        self._encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        self._unzip = zlib.decompressobj(_ANY_HEAD) if self._encoding in _ZIPPED else None

    @property
    def succeeded(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    async def read(self) -> bytes:
        """Return the next bytes of the body; empty at its end."""
        if self.succeeded and not self._seen:
            if self._encoding not in ("identity", "", *_ZIPPED):
                raise WorkerError(FaultKind.BAD_REPLY, f"the body is compressed as {self._encoding[:40]!r}, unasked")
            length = self.headers.get("Content-Length", "")
            if length.isdecimal() and int(length[:20]) > self._most:
                raise body_too_large(self._most)
        while part := await self._response.content.readany():
            self._alive()
            if not self._seen and self._unzip is None and part.startswith(_GZIP_MAGIC):  # some do not say so
                self._unzip = zlib.decompressobj(_ANY_HEAD)
            if self._unzip is not None:
                try:
                    part = self._unzip.decompress(part, self._most - self._seen + 1)
                except zlib.error as error:
                    raise WorkerError(FaultKind.BAD_REPLY, f"the body cannot be unpacked: {error}") from None
            self._seen += len(part)
            if self._seen > self._most:
                raise body_too_large(self._most)
            if part:
                return part
        if self._unzip is not None and not self._unzip.eof:
            raise WorkerError(FaultKind.CUT_OFF, "the compressed body ended too early")
        return b""

    async def read_all(self) -> bytes:
        """Return the body, or what is left of it."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    async def error_body(self) -> bytes:
        """Return the body of an error status as far as it arrives; the status alone decides the fault.

        A body that is too long, compressed, late or cut does not change the fault.
        """
        said = bytearray()
        with suppress(TimeoutError, aiohttp.ClientError, WorkerError):
            async with asyncio.timeout(_ERROR_BODY_SECONDS):
                while len(said) < _MAX_ERROR_BODY and (part := await self.read()):
                    said += part
        return bytes(said[:_MAX_ERROR_BODY])

    async def require_success(self) -> None:
        """Raise the fault that any other status stands for, in the words of its body."""
        if not self.succeeded:
            said = await self.error_body()
            detail = said.decode(errors="replace")
            raise status_error(self.status, self.headers, detail, self._secret_store, error_code(said))

    async def drain(self) -> None:
        """Read briefly past an end marker, so that the connection can be reused."""
        if not self._response.content.at_eof():
            with suppress(TimeoutError, aiohttp.ClientError, WorkerError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await self.read_all()
        await asyncio.sleep(0)  # llama.cpp closes after a stream, whatever it promised: no call is to meet that end


class ScreeningResolver(AbstractResolver):
    """aiohttp's resolver without the addresses that a rule refuses."""

    def __init__(self, rule: AddressRule) -> None:
        self._own, self._rule = aiohttp.ThreadedResolver(), rule

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a host; PermissionError where all of them are refused."""
        found = await self._own.resolve(host, port, family)
        problems = {each["host"]: self._rule(each["host"]) for each in found}
        allowed = [each for each in found if not problems[each["host"]]]
        if not allowed:
            said = "; ".join(f"{host} is at {address}, {problem}" for address, problem in problems.items())
            raise PermissionError(errno.EACCES, said)
        return allowed

    async def close(self) -> None:
        """Release what it holds."""
        await self._own.close()


def open_session(
    check: Callable[[URL], object],
    resolver: AbstractResolver | None = None,
    *,
    encrypted: bool = True,
    **more: Any,  # noqa: ANN401 - aiohttp's own
) -> aiohttp.ClientSession:
    """Return a session that passes the URL of each request to `check`, which raises to refuse it.

    `encrypted`: whether any connection uses TLS, so certificates are read. `more`: parameters of aiohttp's session.
    """

    async def send(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Keep requests in bounds, and aiohttp from sending GET and PUT a second time after a reset."""
        check(request.url)
        try:
            return await handler(request)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise ConnectionBroken(str(error)) from error

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0,
            ssl=trusted_certificates() if encrypted else True,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            resolver=resolver,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=[send],
        **more,
    )


class HttpClient:
    """One worker's connections to one origin. Leaving a response before its end closes its connection."""

    def __init__(
        self,
        card: Card,
        url: str,
        max_bytes: int,
        headers: Mapping[str, str],
        secret_store: SecretStore,
        rule: AddressRule | None = None,
    ) -> None:
        """Make a client for the origin of `url`. `rule` says which addresses it must not be at."""
        self._most = max_bytes
        self._idle, self._total = card.timeout, card.total
        self._secret_store = secret_store
        self._origin, self._rule = URL(url).origin(), rule
        self._proxy = proxy_for(url)
        self._once: dict[str, str] = {}
        # Callers wait for this semaphore and not for a connection, so that connecting has its own timeout.
        self._turn: AbstractAsyncContextManager[None] = (
            FairSemaphore(card.concurrency) if card.concurrency else nullcontext()
        )
        self._session = open_session(
            self._check,
            # A proxy may well be inside, and it resolves names itself.
            None if self._proxy or rule is None else ScreeningResolver(rule),
            encrypted=any(urlsplit(each).scheme != "http" for each in (url, self._proxy) if each),
            timeout=aiohttp.ClientTimeout(total=None, connect=min(_MAX_CONNECT_SECONDS, card.timeout / 2)),
            headers={**headers, **_FIXED_HEADERS},
            auto_decompress=False,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
        )

    def _check(self, url: URL) -> None:
        if url.origin() != self._origin:
            why = f"the configuration names {self._origin} here"
            raise WorkerError(FaultKind.BAD_REQUEST, f"{url.origin()} is refused: {why}")
        if self._rule is not None and (problem := address_problem(url.host or "", self._rule)):
            raise WorkerError(FaultKind.BAD_REQUEST, f"{url.origin()} is refused: {problem}")

    @asynccontextmanager
    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[HttpResponse]:
        """Send a request and yield its response once the head has arrived.

        WorkerError where the connection fails, where nothing comes for the card's time limit, or where the reply is
        not read within its total, however steadily its bytes arrive.
        """
        clock, slack = asyncio.get_running_loop().time, self._idle / 100  # so that few pieces move the timer
        heard = clock()

        def alive() -> None:
            nonlocal heard
            if self._total > self._idle and (now := clock()) - heard > slack:
                heard = now
                limit.reschedule(min(end, now + self._idle + slack))

        try:
            first = min(max(self._idle, self._total), self._idle + slack)
            async with self._turn, asyncio.timeout(first) as limit:  # our own queue is not the endpoint's time
                heard = clock()
                end = heard + self._total
                try:
                    async with await self._send(method, url, headers, body) as response:
                        yield HttpResponse(response, self._most, self._secret_store, alive)
                except aiohttp.ClientError as error:
                    raise http_failure(error, self._secret_store) from None
        except TimeoutError:
            if not limit.expired():
                raise
            what = "no whole answer within" if clock() >= end else "nothing came for"
            seconds = self._total if clock() >= end else self._idle
            raise WorkerError(FaultKind.TIMEOUT, f"{what} {seconds:g} s") from None

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        try:
            return await self._session.request(
                method, url, data=body, headers={**headers, **self._once}, proxy=self._proxy, allow_redirects=False
            )
        except ConnectionBroken:  # perhaps one that the server had closed: from now on each call has its own
            self._once = {"Connection": "close"}
            raise
        except aiohttp.ClientError:  # first: some are ValueErrors besides
            raise
        except ValueError:
            raise WorkerError(FaultKind.BAD_REQUEST, _UNWRITABLE) from None  # its message may repeat a header

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()


class ConnectionBroken(aiohttp.ClientConnectionError):
    """The connection broke after the request had begun, so how far the request got is unknown."""


def http_failure(error: aiohttp.ClientError, secret_store: SecretStore) -> WorkerError:
    """Map an exception of the HTTP library to a fault."""
    text = redact_and_clip(str(error), secret_store)
    match error:
        case aiohttp.ClientHttpProxyError():  # its message names the proxy, which may contain a password
            return WorkerError(FaultKind.CONNECT, f"the proxy refuses: status {error.status}")
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, PermissionError):  # `ScreeningResolver`'s
            return WorkerError(FaultKind.CONNECT, redact_and_clip(str(error.os_error.strerror), secret_store))
        case aiohttp.ClientConnectorError():
            return WorkerError(FaultKind.CONNECT, connect_problem(f"{error.host}:{error.port}", text))
        case aiohttp.ConnectionTimeoutError():
            return WorkerError(FaultKind.CONNECT, connect_problem("the endpoint", "timeout"))
        case aiohttp.ServerTimeoutError():
            return WorkerError(FaultKind.TIMEOUT, f"nothing came in time: {text}")
        case aiohttp.ClientPayloadError() if "ConnectionResetError" not in str(error):
            return WorkerError(FaultKind.CUT_OFF, f"the body ended too early: {text}")
        case aiohttp.ClientResponseError():
            return WorkerError(FaultKind.BAD_REPLY, f"not HTTP: {text}")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return WorkerError(FaultKind.BAD_REQUEST, _UNWRITABLE)
        case _:
            return WorkerError(FaultKind.RESET, f"the connection broke{': ' * bool(text)}{text}")
