"""A secret goes to the origin that a person named, and to no other: every door, with a collector behind each of them.

`Collector`s listen on loopback. One is what the configuration names; the other one is a stranger, to whom replies,
cards, documents and names lead. No address outside loopback is ever asked.
"""

import ast
import asyncio
import json
import re
import socket
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from openapi_documents import document, operation
from serving import served

import shikisha
from shikisha.config.container import Container, build_container
from shikisha.config.discovery import discover
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.worker import Card, Request
from shikisha.telemetry.export_settings import export_settings
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.tools.catalogue_source import read_openapi, read_source
from shikisha.tools.lock_file import CatalogueLock, compare_catalogues, write_lock
from shikisha.workers.endpoint import address_problem, inside_problem, metadata_problem, origin
from shikisha.workers.http_client import HttpClient
from shikisha.workers.mcp_session import bounded_client

SECRET = "key-planted-0123456789"
STORE = SecretStore({"TOKEN": SECRET})
HEADERS = {"Authorization": "Bearer ${TOKEN}", "X-Api-Key": "${TOKEN}"}
Answer = tuple[int, bytes, dict[str, str]]


@dataclass
class Collector:
    """A real server that keeps all it is sent."""

    answer: Callable[[HttpRequest], Answer] = lambda _: (200, b"{}", {})
    requests: list[HttpRequest] = field(default_factory=list)
    url: str = ""

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]

    @property
    def secrets(self) -> int:
        """How many requests held the secret."""
        return sum(SECRET in repr(each) for each in self.requests)

    async def handle(self, request: HttpRequest, exchange: HttpExchange) -> bool:
        self.requests.append(request)
        status, body, headers = self.answer(request)
        await exchange.send(status, body, **headers)
        return True


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Collector, Collector]]:
    """Yield the server that a person names, and a stranger."""
    named, stranger = Collector(), Collector()
    async with serve_http(named.handle) as named.url, serve_http(stranger.handle) as stranger.url:
        yield named, stranger


async def ask_worker(module: str, table: Mapping[str, object], text: str = "{}", seconds: float = 5.0) -> str:
    """Call a worker that is made of its table, as the container makes it."""
    kind = import_module(f"shikisha.workers.{module}")
    card = Card("w", timeout=seconds, max_output_tokens=10)
    worker = kind.build(kind.Settings.model_validate(table), card, STORE)
    try:
        return str((await worker.perform(Request(Task(text), text, key="run-0-0-0"))).text)
    finally:
        await worker.aclose()


KEYED = {"model": "m", "api_key_env": "TOKEN", "headers": {"X-Api-Key": "${TOKEN}"}}


async def door_chat(url: str, seconds: float = 5.0) -> None:
    await ask_worker("chat", {**KEYED, "base_url": url}, seconds=seconds)


async def door_embedding(url: str, seconds: float = 5.0) -> None:
    kind = import_module("shikisha.workers.embedding")
    table = kind.EmbeddingSettings.model_validate({**KEYED, "base_url": url})
    worker = kind.build(table, Card("w", timeout=seconds), STORE)
    try:
        await worker.perform(Request(Task('{"input": ["x"]}'), "", key="k"))
    finally:
        await worker.aclose()


async def door_http(url: str, seconds: float = 5.0) -> None:
    await ask_worker("http", {"url": url, "headers": HEADERS}, seconds=seconds)


async def door_http_get(url: str, seconds: float = 5.0) -> None:
    await ask_worker("http", {"url": url, "method": "GET", "headers": HEADERS}, seconds=seconds)


async def door_a2a(url: str, seconds: float = 5.0) -> None:
    kind = import_module("shikisha_a2a")
    table = kind.A2ASettings.model_validate({"url": url, "api_key_env": "TOKEN"})
    worker = kind.build(table, Card("w", timeout=seconds), STORE)
    try:
        await worker.perform(Request(Task("hello"), "hello", key="k"))
    finally:
        await worker.aclose()


async def door_mcp(url: str, seconds: float = 5.0) -> None:
    await ask_worker("mcp", {"url": url, "tool": "t", "headers": HEADERS}, seconds=seconds)


async def door_catalogue(url: str, seconds: float = 5.0) -> None:
    """The document of an API that is at the same place."""
    lines = f'source = "{url}/doc.json"\nbase_url = "{url}"\ntimeout = {seconds}\n'
    await pin(Path("/nowhere"), f'[catalogues.c]\nkind = "openapi"\n{lines}{HEADER_LINE}')


async def door_mcp_catalogue(url: str, seconds: float = 5.0) -> None:
    table = f'[catalogues.c]\nkind = "mcp"\nurl = "{url}"\ntimeout = {seconds}\n'
    await pin(Path("/nowhere"), f"{table}{HEADER_LINE}")


async def door_discovery(url: str) -> None:
    found = await discover({"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": url})
    assert not found.endpoints
    raise ConfigError("; ".join(found.remarks))


HEADER_LINE = 'headers = { Authorization = "Bearer ${TOKEN}" }\n'
DOORS: Mapping[str, Callable[[str], Awaitable[None]]] = {
    "chat": door_chat,
    "embedding": door_embedding,
    "http": door_http,
    "http GET": door_http_get,
    "a2a": door_a2a,
    "mcp": door_mcp,
    "catalogue": door_catalogue,
    "mcp catalogue": door_mcp_catalogue,
    "discovery": door_discovery,
}


def container(folder: Path, table: str) -> Container:
    return build_container(tomllib.loads(table), "table", folder, {"TOKEN": SECRET})


async def pin(folder: Path, table: str) -> CatalogueLock:
    """Read the source of [catalogues.c] as `tools pin` does."""
    made = container(folder, table)
    options = made.settings.catalogues["c"]
    read = await read_source("c", options, folder, made.secret_store)
    if read.refused and not read.entries:
        raise ConfigError(read.refused[0].reason)
    return CatalogueLock("c", "here", read.entries, options.named_server)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("door", DOORS)
async def test_invariant_8_no_redirect_takes_a_secret_or_a_request_to_a_stranger(door: str, status: int) -> None:
    async with two() as (named, stranger):
        named.answer = lambda each: (status, b"", {"Location": f"{stranger.url}{each.path}"})
        with pytest.raises((WorkerError, ConfigError)):
            await DOORS[door](named.url)
        assert named.secrets > 0  # who is named gets it
        assert stranger.requests == []


async def test_a_card_that_names_another_server_gets_no_call() -> None:
    async with two() as (named, stranger):
        for place in (
            stranger.url,
            f"//{stranger.host}",
            f"http://{named.host}@{stranger.host}",
            f"http://localhost:{named.port}",
        ):
            interface = {"protocolBinding": "JSONRPC", "url": f"{place}/a2a", "protocolVersion": "1.0"}
            card = json.dumps({"supportedInterfaces": [interface]}).encode()
            named.answer = lambda _, card=card: (200, card, {})  # type: ignore[misc]
            with pytest.raises(WorkerError, match="another host"):
                await door_a2a(named.url)
        assert stranger.requests == []


async def test_a_client_belongs_to_one_origin_whoever_asks_it() -> None:
    async with two() as (named, stranger):
        client = HttpClient(Card("w"), f"{named.url}/v1", 1000, {"X-Key": SECRET}, STORE)
        for url in (
            stranger.url,
            f"http://localhost:{named.port}",
            named.url.replace("http", "https"),
            "ftp://h/",
            "x",
        ):
            with pytest.raises(WorkerError) as caught:
                async with client.ask("GET", url, {}):
                    pass
            assert caught.value.fault.kind is FaultKind.BAD_REQUEST
        async with client.ask("GET", f"{named.url}/other", {}) as answer:
            assert answer.status == 200
        await client.aclose()
        assert (stranger.requests, len(named.requests), named.secrets) == ([], 1, 1)


async def test_an_mcp_client_belongs_to_one_origin() -> None:
    async with two() as (named, stranger):
        async with bounded_client(Card("w"), f"{named.url}/mcp", 1000, {"X-Key": SECRET}, STORE) as client:
            for url in (stranger.url, f"http://localhost:{named.port}"):
                with pytest.raises(WorkerError, match="is refused: the configuration names"):
                    await client.get(url)
            await client.get(f"{named.url}/other")
        assert (stranger.requests, named.secrets) == ([], 1)


# What a document may say, with N for the named server, S for the stranger, P for the stranger's port.
SERVERS = {
    "server": [{"url": "http://S/v1"}],
    "relative to nothing": [{"url": "//S/v1"}],
    "variable": [{"url": "http://{host}/v1", "variables": {"host": {"default": "S"}}}],
    "variable of a scheme": [{"url": "{base}", "variables": {"base": {"default": "http://S"}}}],
    "variable behind a name": [{"url": "http://N{tail}", "variables": {"tail": {"default": "@S"}}}],
    "user": [{"url": "http://N@S/v1"}],
    "name of loopback": [{"url": "http://localhost:P/v1"}],
    "name of loopback, dotted": [{"url": "http://localhost.:P/v1"}],
    "IPv4 in IPv6": [{"url": "http://[::ffff:127.0.0.1]:P/v1"}],
    "short form": [{"url": "http://127.1:P/v1"}],
    "decimal": [{"url": "http://2130706433:P/v1"}],
    "octal": [{"url": "http://0177.0.0.1:P/v1"}],
    "hexadecimal": [{"url": "http://0x7f000001:P/v1"}],
    "any address": [{"url": "http://0.0.0.0:P/v1"}],
    "capitals": [{"url": "HTTP://S/v1"}],
}


def saying(servers: object, named: Collector, stranger: Collector, place: str = "document") -> bytes:
    """Return a document of one operation that names these servers."""
    get: dict[str, object] = operation(operationId="get")
    item: dict[str, object] = {"get": get}
    made = document({"/x": item})
    {"document": made, "path": item, "operation": get}[place]["servers"] = servers
    if place != "document":
        made["servers"] = [{"url": "/"}]
    text = json.dumps(made)
    return (
        text.replace("S/v1", f"{stranger.host}/v1")
        .replace('S"', f'{stranger.host}"')
        .replace(":P", f":{stranger.port}")
        .replace("//N", f"//{named.host}")
        .encode()
    )


async def call_from_lock(folder: Path, table: str, text: bytes, where: str) -> None:
    """Call the tool of a lock that says what a document says, whatever `tools pin` thinks of it."""
    made = container(folder, table)
    write_lock(CatalogueLock("c", "here", read_openapi("c", json.loads(text), where).entries), made.lock_path("c"))
    catalogue = made.catalogue("c")
    tool = await catalogue.find("get")
    assert tool is not None
    try:
        member = await catalogue.member(tool)
        await member.worker.perform(Request(Task("{}"), "{}", key="k"))
    finally:
        await made.aclose()


@pytest.mark.parametrize("secret", [HEADER_LINE, 'query = { api_key = "${TOKEN}" }\n', ""])
@pytest.mark.parametrize("place", ["document", "path", "operation"])
@pytest.mark.parametrize("said", SERVERS)
async def test_a_document_cannot_send_calls_or_secrets_to_a_stranger(
    tmp_path: Path, said: str, place: str, secret: str
) -> None:
    async with two() as (named, stranger):
        text = saying(SERVERS[said], named, stranger, place)
        named.answer = lambda _: (200, text, {})
        table = f'[catalogues.c]\nkind = "openapi"\nsource = "{named.url}/doc.json"\nattempts = 1\n{secret}'
        with pytest.raises(ConfigError, match=r"catalogue c, tool get: http://.* is refused: ") as caught:
            await pin(tmp_path, table)
        assert ("write base_url" in str(caught.value)) is bool(secret)
        assert named.secrets == 0  # whoever hosts a document need not be the API
        with pytest.raises(WorkerError, match=r"is refused|no public address"):
            await call_from_lock(tmp_path, table, text, f"{named.url}/doc.json")
        assert stranger.requests == []


async def test_calls_go_where_a_person_says(tmp_path: Path) -> None:
    async with two() as (named, stranger):
        named.answer = lambda each: (
            200,
            saying([{"url": "/v1"}], named, stranger) if "doc" in each.path else b"{}",
            {},
        )
        table = f'[catalogues.c]\nkind = "openapi"\nsource = "{named.url}/doc.json"\n{HEADER_LINE}'
        lock = await pin(tmp_path, table)
        assert [each.call and each.call.base_url for each in lock.entries] == [f"{named.url}/v1"]
        await call_from_lock(tmp_path, table, saying([{"url": "/v1"}], named, stranger), f"{named.url}/doc.json")
        assert [(each.path, SECRET in repr(each)) for each in named.requests] == [("/doc.json", False), ("/v1/x", True)]
        table += f'base_url = "{stranger.url}/v2"\n'  # now a person names it
        await pin(tmp_path, table)
        await call_from_lock(tmp_path, table, saying([{"url": "/v1"}], named, stranger), f"{named.url}/doc.json")
        assert [(each.path, SECRET in repr(each)) for each in stranger.requests] == [("/v2/x", True)]
        assert named.secrets == 1


async def test_a_document_behind_a_key_says_what_to_write(tmp_path: Path) -> None:
    async with two() as (named, _):
        named.answer = lambda _: (401, b"", {})
        with pytest.raises(ConfigError, match="asked without the headers: they go where base_url says"):
            await pin(tmp_path, f'[catalogues.c]\nkind = "jsonl"\nsource = "{named.url}/t.jsonl"\n{HEADER_LINE}')
        assert named.secrets == 0


async def test_a_file_names_servers_too_and_only_without_secrets_they_are_called(tmp_path: Path) -> None:
    async with two() as (named, stranger):
        text = saying(SERVERS["server"], named, stranger)
        (tmp_path / "doc.json").write_bytes(text)
        table = '[catalogues.c]\nkind = "openapi"\nsource = "doc.json"\n'
        with pytest.raises(ConfigError, match=f'write base_url = "{stranger.url}/v1"'):
            await pin(tmp_path, f"{table}{HEADER_LINE}")
        with pytest.raises(WorkerError, match="is refused"):
            await call_from_lock(tmp_path, f"{table}{HEADER_LINE}", text, "doc.json")
        assert stranger.requests == []
        await pin(tmp_path, table)
        await call_from_lock(tmp_path, table, text, "doc.json")
        assert (len(stranger.requests), stranger.secrets) == (1, 0)


async def test_the_lock_says_where_calls_went_and_a_server_that_moved_is_a_difference() -> None:
    def lock(server: str, named: str | None = "") -> CatalogueLock:
        text = document({"/x": {"get": operation(operationId="get")}}, servers=[{"url": server}])
        return CatalogueLock("c", "here", read_openapi("c", text, "doc.json").entries, named)

    old, moved = lock("https://{a}.example", None), lock("https://b.example")
    assert compare_catalogues(old.entries, old.entries).empty
    assert not old.entries[0].call or old.entries[0].call.base_url == ""
    one, other = lock("https://a.example/v1"), lock("https://b.example/v1")
    found = compare_catalogues(one.entries, other.entries)
    assert (found.moved, dict(found.changed)) == ("https://a.example:443 → https://b.example:443", {"get": "call"})
    found = compare_catalogues(one.entries, one.entries, ("https://c.example", "https://d.example"))
    assert not found.empty
    assert "https://c.example:443 → https://a.example:443, https://d.example:443" in found.moved
    assert not moved.server


NEVER = [
    "169.254.169.254",
    "169.254.170.2",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.254.169.254.",
    "①⑥⑨.②⑤④.①⑥⑨.②⑤④",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fd00:ec2::254]",
    "[::ffff:169.254.169.254]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "100.100.100.200",
    "168.63.129.16",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "instance-data",
    "mine.example",  # which a resolver leads there
]


def test_a_metadata_address_is_known_however_it_is_written() -> None:
    hosts = [urlsplit(f"http://{host}/").hostname or "" for host in NEVER if host != "mine.example"]
    assert [host for host in hosts if not address_problem(host, metadata_problem)] == []


@pytest.mark.parametrize("host", NEVER)
@pytest.mark.parametrize("key", ["servers", "base_url", "url"])
async def test_metadata_services_are_never_a_catalogue_s_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, key: str
) -> None:
    there = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: there)
    url = f"http://{host}/latest"
    (tmp_path / "doc.json").write_text(
        json.dumps(document({"/x": {"get": operation(operationId="get")}}, servers=[{"url": url}]))
    )
    kind = 'kind = "mcp"' if key == "url" else 'kind = "openapi"\nsource = "doc.json"'
    line = "" if key == "servers" else f'{key} = "{url}"'
    with pytest.raises(ConfigError, match=r"is refused: .*(link-local or metadata address|metadata service)"):
        await pin(tmp_path, f"[catalogues.c]\n{kind}\n{line}\n")


@pytest.mark.parametrize(
    "host", ["10.0.0.8", "192.168.1.1", "[::1]", "[fd12::1]", "[::ffff:10.0.0.1]", "224.0.0.1", "127.9"]
)
def test_a_document_from_elsewhere_names_no_address_inside(host: str) -> None:
    assert "no public address" in address_problem(host.strip("[]"), inside_problem)
    assert not address_problem(host.strip("[]"), metadata_problem)
    assert not address_problem("api.example.com", inside_problem)
    assert not address_problem("8.8.8.8", inside_problem)


async def test_a_connection_looks_again_at_what_a_name_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two() as (named, _):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))])
        for host, kind in (("api.example", FaultKind.CONNECT), ("127.0.0.1", FaultKind.BAD_REQUEST)):
            url = f"http://{host}:{named.port}"
            client = HttpClient(Card("w"), url, 1000, {}, STORE, inside_problem)
            with pytest.raises(WorkerError, match="no public address") as caught:
                async with client.ask("GET", url, {}):
                    pass
            await client.aclose()
            assert caught.value.fault.kind is kind
        assert named.requests == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a.example", "http://a.example:80/x?y"),
        ("https://A.example:443", "HTTPS://a.EXAMPLE"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_an_origin_has_one_spelling(one: str, other: str) -> None:
    assert origin(one) == origin(other) != ""
    assert (
        len({origin(url) for url in ("http://a", "https://a", "http://a:81", "http://b", "http://a.", "file:///a")})
        == 6
    )
    assert {origin(text) for text in ("", "a.json", "http://a:99999", "http://[", "ftp://a")} == {""}


async def test_webhooks_and_telemetry_follow_no_redirect(tmp_path: Path) -> None:
    async with two() as (named, stranger):
        named.answer = lambda each: (307, b"", {"Location": f"{stranger.url}{each.path}"})
        config = (
            f'[server]\nport = 0\n[telemetry]\nendpoint = "{named.url}"\nheaders_env = "OTLP"\n'
            '[workers.w]\nkind = "scripted"\nanswers = "42"\n[[webhooks]]\nurl_env = "HOOK"\nsecret_env = "TOKEN"\n'
        )
        environment = {"OTLP": f"x-key={SECRET}", "HOOK": f"{named.url}/hook/{SECRET}", "TOKEN": "whsec_AAAA"}
        async with served(tmp_path, config, environment) as at, at.http() as client:
            assert (await client.post("/runs", json={"prompt": "what?"})).status_code == 200
            async with asyncio.timeout(20):
                while not any("/hook/" in each.path for each in named.requests):  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.01)
        assert {each.path.split("/")[1] for each in named.requests} == {"hook", "v1"}
        assert named.secrets == len(named.requests)
        assert stranger.requests == []


def test_headers_of_the_configuration_do_not_follow_an_endpoint_of_the_environment() -> None:
    elsewhere = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://other.example/v1/traces"}
    found = export_settings(elsewhere, "https://named.example", f"x-key={SECRET}")
    assert found is not None
    assert found.traces is not None
    assert found.metrics is not None
    assert found.headers_of(found.traces) == {}
    assert found.headers_of(found.metrics) == {"x-key": SECRET}
    base = export_settings(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://named.example.evil"}, "https://named.example", "a=b"
    )
    assert base is not None
    assert base.headers_of(str(base.traces)) == {}


CLIENTS = {"ClientSession", "AsyncClient", "Session", "urlopen", "HTTPConnection", "HTTPSConnection", "request"}
LIBRARIES = re.compile(r"aiohttp|httpx|requests|urllib3|http\.client|urllib\.request")
MODULES = {"aiohttp", "httpx", "httpx2", "requests", "urllib3", "client", "request"}


def test_every_http_client_is_made_in_one_layer() -> None:
    """A client that is made elsewhere would not know whose secrets it may send."""
    root = Path(shikisha.__file__).parent
    made = set()
    texts = {path: path.read_text() for path in root.rglob("*.py")}
    for path in [each for each, text in texts.items() if LIBRARIES.search(text)]:
        for node in ast.walk(ast.parse(texts[path])):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.attr in CLIENTS
                and node.func.value.id in MODULES
            ):
                made.add(f"{path.relative_to(root)}")
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
                assert not CLIENTS & {each.name for each in node.names}, path
    assert made == {"workers/http_client.py", "workers/mcp_session.py"}


# Slow servers ----------------------------------------------------------------------------------------------------


async def dripping(request: HttpRequest, exchange: HttpExchange) -> bool:
    """Answer for ever: a byte at a time, and each soon after the last."""
    await exchange.begin("text/event-stream" if b'"stream"' in request.body else "application/json", 10**6)
    while True:
        await exchange.raw(b" ")
        await asyncio.sleep(0.02)


async def dripping_head(_: HttpRequest, exchange: HttpExchange) -> bool:
    await exchange.raw(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        await exchange.raw(b"x")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("drip", [dripping, dripping_head])
@pytest.mark.parametrize("door", [each for each in DOORS if each != "discovery"])
async def test_a_time_limit_is_on_the_whole_reply(door: str, drip: Callable[..., Awaitable[bool]]) -> None:
    async with serve_http(drip) as url, asyncio.timeout(30):
        with pytest.raises((WorkerError, ConfigError), match=r"within 0\.\d+ s|no answer"):
            await DOORS[door](url, 0.3)  # type: ignore[call-arg]


async def test_discovery_is_not_held_up() -> None:
    async with serve_http(dripping) as url, asyncio.timeout(30):
        with pytest.raises(ConfigError, match="cannot be reached: timeout: no whole answer within 4 s"):
            await door_discovery(url)
