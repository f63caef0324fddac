"""What is read off the wire is bounded, one call is one request, and what goes wrong is some fault."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.engine.worker import Card
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.workers import http_client
from shikisha.workers.chat_reply import EventStreamParser
from shikisha.workers.endpoint import redact_and_clip, retry_after, status_error
from shikisha.workers.http_client import HttpClient, http_failure

KEY = "sk-planted-0123456789"
VAULT = SecretStore({"KEY": KEY})
VAULT.read("KEY")


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize(
    ("body", "data", "rest"),
    [
        (b'data: {"a": 1}\n\ndata: [DONE]\n\n', ['{"a": 1}', "[DONE]"], []),
        (b"data:one\r\ndata: two\r\n\r\n: a comment\r\nid: 7\r\n\r\n", ["one\ntwo"], []),
        (b"x\r\ndata: [DONE]\r\n", [], ["[DONE]"]),
        (b"data:[DONE]", [], ["[DONE]"]),
        (b"event: [DONE]\n", [], []),
        ("data: São\n\n".encode(), ["São"], []),
        (b'data: {"a":\ndata: 1}\ndata: {"b": 2}\ndata: [DONE]', ['{"a":\n1}'], ['{"b": 2}', "[DONE]"]),
        (b'data: {"a": 1}\n: x\ndata: {"b": 2}\n\n', ['{"a": 1}', '{"b": 2}'], []),
        (b"", [], []),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_events_are_the_same_wherever_the_parts_are_cut(
    body: bytes, data: list[str], rest: list[str], size: int
) -> None:
    events = EventStreamParser()
    assert [each for part in cut(body, size) for each in events.take(part)] == data
    assert events.take(b"\n\n") == rest


def test_data_that_are_no_utf_8_are_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        EventStreamParser().take(b"data: \xff\n\n")
    cut = EventStreamParser()
    assert cut.take(b"data: \xc3") == []
    with pytest.raises(ValueError, match="utf-8"):
        cut.take(b"\n\n")


class Server:
    """A real server that answers each connection's requests in turn, and then closes or resets it."""

    def __init__(self, answers: Sequence[bytes], *, reset: bool = False) -> None:
        self.answers = answers
        self.reset = reset
        self.requests: list[HttpRequest] = []
        self.connections: set[asyncio.Task[None] | None] = set()

    async def answer(self, incoming: HttpRequest, exchange: HttpExchange) -> bool:
        self.requests.append(incoming)
        self.connections.add(asyncio.current_task())  # each has one
        if self.reset:
            exchange.reset()
            return False
        await exchange.send(200, self.answers[(len(self.requests) - 1) % len(self.answers)])
        return True


@asynccontextmanager
async def wired(server: Server, most: int = 1000, **headers: str) -> AsyncIterator[tuple[HttpClient, str]]:
    async with serve_http(server.answer) as url:
        wire = HttpClient(Card("w", timeout=20.0), url, most, headers, VAULT)
        try:
            yield wire, url
        finally:
            await wire.aclose()


async def test_a_connection_is_used_again_after_a_whole_answer_and_only_then() -> None:
    server = Server([b"x" * 900_000])
    async with wired(server, 10**6) as (wire, url):
        for _ in range(3):
            async with wire.ask("GET", url, {}) as answer:
                assert len(await answer.read_all()) == 900_000
        assert len(server.connections) == 1
        for _ in range(2):
            async with wire.ask("GET", url, {}) as answer:
                assert await answer.read()
        assert len(server.connections) == 2


async def test_a_server_that_closes_after_each_stream_fails_no_call_after_the_first() -> None:
    """llama.cpp promises to keep a connection, and closes it after a stream."""

    async def answer(_: HttpRequest, exchange: HttpExchange) -> bool:
        await exchange.begin("text/event-stream")
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()
        return False

    async def call() -> bool:
        try:
            async with wire.ask("POST", url, {}, b"{}") as response:
                while b"[DONE]" not in await response.read():
                    pass
                await response.drain()
        except WorkerError:
            return False
        return True

    async with serve_http(answer) as url:
        wire = HttpClient(Card("w", timeout=20.0, concurrency=4), url, 1000, {}, VAULT)
        alone = [await call() for _ in range(30)]
        crowd = await asyncio.gather(*(call() for _ in range(60)))
        await wire.aclose()
    assert all(alone[2:])
    assert sum(not went for went in (*alone, *crowd)) <= 4  # one of each that was on its way at the first


async def test_a_body_beyond_the_limit_is_refused_and_the_next_call_is_served() -> None:
    server = Server([b"x" * 11, b"x" * 10])
    async with wired(server, 10) as (wire, url):
        with pytest.raises(WorkerError) as caught:
            async with wire.ask("GET", url, {}) as answer:
                await answer.read_all()
        assert caught.value.fault.kind is FaultKind.TOO_LARGE
        async with wire.ask("GET", url, {}) as answer:
            assert await answer.read_all() == b"x" * 10


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_one_call_is_one_request_even_where_the_connection_is_reset(method: str) -> None:
    server = Server([], reset=True)
    async with wired(server) as (wire, url):
        with pytest.raises(WorkerError) as caught:
            async with wire.ask(method, url, {}, b"{}"):
                pass
    assert caught.value.fault.kind is FaultKind.RESET
    assert len(server.requests) == 1


async def test_only_headers_that_somebody_named_leave() -> None:
    server = Server([b"{}"])
    async with wired(server, X_Team="blue") as (wire, url), wire.ask("POST", url, {"Accept": "text/plain"}, b"{}"):
        pass
    named = {"host", "accept", "accept-encoding", "user-agent", "content-length", "content-type", "x_team"}
    assert set(server.requests[0].headers) == named
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_invariant_8_a_header_that_cannot_be_written_is_not_repeated() -> None:
    async with wired(Server([b"{}"]), Authorization=f"Bearer {KEY}\r\nX: y") as (wire, url):
        with pytest.raises(WorkerError) as caught:
            async with wire.ask("POST", url, {}, b"{}"):
                pass
    assert caught.value.fault.kind is FaultKind.BAD_REQUEST
    assert KEY not in repr(caught.value.fault)


async def test_what_is_no_http_is_a_bad_reply() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    wire = HttpClient(Card("w", timeout=20.0), url, 1000, {}, VAULT)
    async with server:
        with pytest.raises(WorkerError) as caught:
            async with wire.ask("GET", url, {}):
                pass
        await wire.aclose()
    assert caught.value.fault.kind is FaultKind.BAD_REPLY


async def test_a_server_without_a_certificate_that_is_trusted_is_a_connect_fault() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("aNULL:@SECLEVEL=0")  # it has no certificate at all
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    wire = HttpClient(Card("w", timeout=20.0), url, 1000, {}, VAULT)
    async with server:
        with pytest.raises(WorkerError) as caught:
            async with wire.ask("GET", url, {}):
                pass
        await wire.aclose()
    assert caught.value.fault.kind is FaultKind.CONNECT


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://api.example/v1", None),
        ({"https_proxy": "http://user:pass@gate:3128"}, "https://api.example/v1", "http://user:pass@gate:3128"),
        ({"https_proxy": "http://gate:3128"}, "http://api.example/v1", None),
        ({"all_proxy": "gate:3128"}, "http://api.example/v1", "http://gate:3128"),
        ({"all_proxy": "gate:3128", "no_proxy": "example, localhost"}, "http://api.example/v1", None),
    ],
)
def test_the_environment_names_the_proxy(
    environment: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme}_proxy".upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert http_client.proxy_for(url) == proxy


async def test_a_proxy_is_asked_for_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([b"{}"])
    async with serve_http(server.answer) as url:
        monkeypatch.setenv("http_proxy", url.replace("http://", "http://user:pass@"))
        monkeypatch.setenv("no_proxy", "")
        wire = HttpClient(Card("w", timeout=20.0), "http://api.invalid/v1", 1000, {}, VAULT)
        async with wire.ask("POST", "http://api.invalid/v1/x", {}, b"{}") as answer:
            assert await answer.read_all() == b"{}"
        await wire.aclose()
    assert server.requests[0].path == "http://api.invalid/v1/x"
    assert server.requests[0].headers["proxy-authorization"].startswith("Basic ")


async def test_certificates_are_read_only_where_something_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(url: str) -> bool:
        client = HttpClient(Card("w"), url, 1000, {}, VAULT)
        connector = client._session.connector
        assert isinstance(connector, aiohttp.TCPConnector)
        await client.aclose()
        return connector._ssl is http_client.trusted_certificates()

    monkeypatch.setenv("no_proxy", "")
    assert (await read("http://a.invalid"), await read("https://a.invalid")) == (False, True)
    monkeypatch.setenv("http_proxy", "https://proxy.invalid")
    assert await read("http://a.invalid")


def test_certificates_are_verified() -> None:
    context = http_client.trusted_certificates()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", -3.0), ("1e12", 1e12), ("soon", None), ("nan", None), ("inf", None), ("", None)],
)
def test_retry_after_in_seconds_is_read_as_it_is(value: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": value}) == seconds


def test_retry_after_as_a_date_long_past_is_far_below_zero() -> None:
    wish = retry_after({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert wish is not None
    assert wish < -1e8


@pytest.mark.parametrize(
    "status", [300, 302, 400, 401, 402, 403, 404, 408, 409, 413, 422, 425, 429, 500, 502, 503, 529]
)
def test_invariant_8_no_status_lets_a_key_into_a_message(status: int) -> None:
    assert KEY not in str(status_error(status, {}, f"you sent {KEY}", VAULT))


@pytest.mark.parametrize("padding", range(270, 305))
def test_invariant_8_a_message_is_never_cut_through_a_key(padding: int) -> None:
    said = redact_and_clip("x" * padding + KEY, VAULT)
    assert KEY[:4] not in said
    assert len(said) <= 301


def proxied() -> aiohttp.ClientHttpProxyError:
    """Return what aiohttp raises when a proxy refuses; its words hold the proxy's address, password and all."""
    url = URL(f"http://user:{KEY}@gate:3128")
    info = aiohttp.RequestInfo(url, "CONNECT", CIMultiDictProxy(CIMultiDict()), url)
    return aiohttp.ClientHttpProxyError(info, (), status=407, message="no")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (aiohttp.ConnectionTimeoutError("x"), FaultKind.CONNECT),
        (proxied(), FaultKind.CONNECT),
        (aiohttp.SocketTimeoutError("x"), FaultKind.TIMEOUT),
        (aiohttp.ClientPayloadError("Response payload is not completed"), FaultKind.CUT_OFF),
        (aiohttp.ClientPayloadError("not completed. ConnectionResetError(104, 'reset')"), FaultKind.RESET),
        (aiohttp.ServerDisconnectedError(), FaultKind.RESET),
        (aiohttp.ClientOSError(104, f"reset by {KEY}"), FaultKind.RESET),
        (aiohttp.InvalidURL(f"http://{KEY}"), FaultKind.BAD_REQUEST),
    ],
)
def test_every_failure_of_the_http_library_is_some_fault(error: aiohttp.ClientError, kind: FaultKind) -> None:
    fault = http_failure(error, VAULT).fault
    assert fault.kind is kind
    assert KEY not in fault.message
