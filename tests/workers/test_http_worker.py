"""The http worker against a real socket, and subtasks read as arguments."""

import asyncio
import gzip
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from pydantic import ValidationError

from shikisha.core.errors import ConfigError, Fault, FaultKind, WorkerError
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.worker import Card, Json, Request
from shikisha.testing import black_hole, closed_port
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.workers.endpoint import ToolArguments
from shikisha.workers.http import HttpSettings, HttpWorker, build

KEY = "key-planted-0123456789"
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
Act = Callable[[HttpExchange, HttpRequest], Awaitable[None]]


@asynccontextmanager
async def tool(act: Act) -> AsyncIterator[str]:
    """Serve one request a connection with `act`."""

    async def answer(incoming: HttpRequest, exchange: HttpExchange) -> bool:
        await act(exchange, incoming)
        return False

    async with serve_http(answer) as url:
        yield f"{url}/tool"


def worker(url: str, settings: Mapping[str, object] = {}, seconds: float = 20.0) -> HttpWorker:
    given = HttpSettings.model_validate({"url": url, "arguments": SCHEMA, **settings})
    return build(given, Card("tool", timeout=seconds), SecretStore({"TOKEN": KEY}))


async def call(act: Act, subtask: str = '{"city": "Kyoto"}', settings: Mapping[str, object] = {}) -> str:
    async with tool(act) as url:
        return await ask(worker(url, settings), subtask)


async def ask(asked: HttpWorker, subtask: str = '{"city": "Kyoto"}') -> str:
    try:
        return (await asked.perform(Request(Task("q"), subtask, key="run-0-0-0"))).text
    finally:
        await asked.aclose()


async def fault_of(act: Act, settings: Mapping[str, object] = {}) -> Fault:
    with pytest.raises(WorkerError) as caught:
        await call(act, settings={"headers": {"Authorization": "Bearer ${TOKEN}"}, **settings})
    assert KEY not in repr(caught.value.fault)
    return caught.value.fault


async def echo(exchange: HttpExchange, incoming: HttpRequest) -> None:
    said = {"method": incoming.method, "path": incoming.path, "headers": incoming.headers}
    body = json.loads(incoming.body) if incoming.body else None
    await exchange.send(200, json.dumps({**said, "body": body}).encode())


def replying(status: int, body: str = "{}", kind: str = "application/json", **headers: str) -> Act:
    async def act(exchange: HttpExchange, incoming: HttpRequest) -> None:
        sent = body.replace("ECHO", incoming.headers.get("authorization", ""))
        await exchange.send(status, sent.encode(), kind, **headers)

    return act


async def test_the_arguments_are_the_json_body_and_the_reply_is_compact_json() -> None:
    said = json.loads(await call(echo, 'Please:\n```json\n{"city": "Kyoto", "days": 2}\n```\n'))
    assert said["method"] == "POST"
    assert said["body"] == {"city": "Kyoto", "days": 2}
    assert said["headers"]["idempotency-key"] == "run-0-0-0"


async def test_a_get_carries_them_in_the_query_and_cannot_change_what_the_url_has() -> None:
    async with tool(echo) as url:
        asked = worker(f"{url}?v=1", {"method": "GET", "arguments": {"type": "object"}})
        text = await ask(asked, '{"city": "São Paulo", "days": 2, "v": 9}')
    assert json.loads(text)["path"] == "/tool?city=S%C3%A3o+Paulo&days=2&v=1"


async def test_a_pointer_picks_the_answer() -> None:
    assert await call(echo, settings={"result": "/body/city"}) == "Kyoto"
    assert await call(replying(200, '{"a/b": [1, {"x": null}]}'), settings={"result": "/a~1b/1"}) == '{"x":null}'


async def test_a_subtask_in_words_is_passed_as_the_one_argument() -> None:
    settings = {"argument": "city", "result": "/body"}
    assert await call(echo, "Kyoto in spring", settings) == '{"city":"Kyoto in spring"}'
    assert await call(echo, '{"city": "Kyoto", "days": 2}', settings) == '{"city":"Kyoto","days":2}'


async def test_header_values_come_from_the_environment() -> None:
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Team": "blue"}
    said = json.loads(await call(echo, settings={"headers": headers, "result": "/headers"}))
    assert (said["authorization"], said["x-team"]) == (f"Bearer {KEY}", "blue")


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (replying(401, "you sent ECHO"), FaultKind.AUTH),
        (replying(400, "you sent ECHO"), FaultKind.BAD_REQUEST),
        (replying(404, "you sent ECHO"), FaultKind.BAD_REQUEST),
        (replying(429, "you sent ECHO"), FaultKind.RATE_LIMITED),
        (replying(500, "you sent ECHO"), FaultKind.SERVER),
        (replying(302, Location="http://127.0.0.1:9/"), FaultKind.BAD_REQUEST),
        (replying(200, "<html>ECHO</html>", "text/html"), FaultKind.BAD_REPLY),
        (replying(200, '{"result": '), FaultKind.BAD_REPLY),
        (replying(200, "[" * 100_000), FaultKind.BAD_REPLY),
        (replying(200, ""), FaultKind.EMPTY),
        (replying(200, '""'), FaultKind.EMPTY),
        (replying(200, " " * (5 * 2**20)), FaultKind.TOO_LARGE),
    ],
)
async def test_invariant_6_and_8_a_reply_that_is_no_answer_is_a_typed_fault_without_the_key(
    act: Act, kind: FaultKind
) -> None:
    assert (await fault_of(act)).kind is kind


async def test_a_pointer_to_nothing_names_the_part() -> None:
    fault = await fault_of(replying(200, '{"a": {}}'), {"result": "/a/b"})
    assert fault.kind is FaultKind.BAD_REPLY
    assert "'b'" in fault.message


async def test_retry_after_is_handed_on() -> None:
    assert (await fault_of(replying(503, Retry_After="-3"))).retry_after == -3.0


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        ("gzip", gzip.compress(b" " * 200_000_000, 1), FaultKind.TOO_LARGE),
        ("gzip", gzip.compress(b'{"a": "b"}' * 99)[:-30], FaultKind.CUT_OFF),
        ("gzip", b"{}", FaultKind.BAD_REPLY),
        ("br", b"{}", FaultKind.BAD_REPLY),
    ],
    ids=["bomb", "cut", "plain", "unknown"],
)
async def test_what_cannot_be_unpacked_is_a_fault_in_little_memory(name: str, body: bytes, kind: FaultKind) -> None:
    async def act(exchange: HttpExchange, incoming: HttpRequest) -> None:  # noqa: ARG001 - an Act
        await exchange.send(200, body, Content_Encoding=name)

    tracemalloc.start()
    try:
        assert (await fault_of(act)).kind is kind
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


async def test_an_endless_body_is_cut_at_the_limit() -> None:
    async def act(exchange: HttpExchange, incoming: HttpRequest) -> None:  # noqa: ARG001 - an Act
        await exchange.begin("application/json")
        while True:
            await exchange.chunk(b" " * 65536)

    assert (await fault_of(act)).kind is FaultKind.TOO_LARGE


async def test_silence_is_a_timeout_in_time() -> None:
    async def act(exchange: HttpExchange, incoming: HttpRequest) -> None:  # noqa: ARG001 - an Act
        await asyncio.Event().wait()

    began = time.perf_counter()
    async with tool(act) as url:
        with pytest.raises(WorkerError) as caught:
            await ask(worker(url, seconds=0.5))
    assert caught.value.fault.kind is FaultKind.TIMEOUT
    assert time.perf_counter() - began < 5.0


async def test_a_reset_is_a_reset() -> None:
    async def act(exchange: HttpExchange, incoming: HttpRequest) -> None:  # noqa: ARG001 - an Act
        exchange.reset()

    assert (await fault_of(act)).kind is FaultKind.RESET


@pytest.mark.full
async def test_nobody_there_is_a_connect_fault() -> None:
    with black_hole() as lost:
        for url in (closed_port(), lost):
            with pytest.raises(WorkerError, match="connect"):
                await ask(worker(url, seconds=1.0))


def arguments(schema: Mapping[str, Json]) -> ToolArguments:
    return ToolArguments(SchemaCheck(schema, "arguments"))


@pytest.mark.parametrize(
    ("subtask", "what"),
    [
        ("find the weather", "no fenced block"),
        ("```\n{}\n```\nor\n```\n{}\n```\n", "2 fenced blocks"),
        ('{"city": "Kyoto"', "line 1 column 17"),
        ('{"city": "Kyoto", "city": "Nara"}', "'city' is given twice"),
        ('{"city": "Kyoto", "days": NaN}', "NaN"),
        ('{"city": "\\ud800"}', "surrogates"),
        ("```json\n[1]\n```", "not list"),
        ("{}", "'city' is a required property"),
        ('{"city": "kyoto"}', "does not match"),
        ('{"city": "Kyoto", "days": 0}', r"\$\.days"),
        ('{"city": "Kyoto", "url": "http://evil"}', "the key 'url' is not allowed"),
        ('{"city": ' + "[" * 100_000, "recursion"),
    ],
)
async def test_arguments_that_do_not_fit_say_what_and_where(subtask: str, what: str) -> None:
    with pytest.raises(WorkerError, match=what) as caught:
        await arguments(SCHEMA).read(subtask)
    assert caught.value.fault.kind is FaultKind.BAD_ARGUMENTS
    assert len(caught.value.fault.message) < 500


async def test_a_pattern_cannot_stall_us() -> None:
    slow: dict[str, Json] = {"properties": {"x": {"type": "string", "pattern": "^(a|a)*$"}}}
    began = time.perf_counter()
    with pytest.raises(WorkerError, match="undecided after 1 s"):
        await arguments(slow).read(json.dumps({"x": "a" * 40 + "b"}))
    assert time.perf_counter() - began < 10.0


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"properties": {"x": {"$ref": "http://127.0.0.1:9/schema"}}},
        {"patternProperties": {"(a+": {}}},
    ],
)
def test_a_schema_that_is_none_or_reaches_outside_is_refused(schema: dict[str, Json]) -> None:
    with pytest.raises(ConfigError, match="arguments: "):
        arguments(schema)


def test_a_missing_header_variable_is_named() -> None:
    settings = HttpSettings(url="http://127.0.0.1/", headers={"X-Api-Key": "${TOOL_TOKEN}"})
    with pytest.raises(ConfigError, match="TOOL_TOKEN"):
        build(settings, Card("tool"), SecretStore({}))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://", "https://user:pass@host/"])
def test_an_address_that_is_no_http_url_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="url"):
        HttpSettings(url=url)
