"""The mcp worker against a real server, as a child process and over streamable HTTP."""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import mcp_tools
import pytest
import uvicorn
from paths import SUPPORT
from pydantic import ValidationError

from shikisha.core.errors import ConfigError, Fault, FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.worker import Card, Request
from shikisha.testing import black_hole, closed_port
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.workers.mcp import McpResourceGatherer, McpSettings, McpWorker, build

KEY = "key-planted-0123456789"
SCRIPT = str(SUPPORT / "mcp_tools.py")
STDIO = {"command": sys.executable, "args": [SCRIPT]}


def worker(tool: str, settings: Mapping[str, object], seconds: float = 20.0) -> McpWorker:
    given = McpSettings.model_validate({"tool": tool, **settings})
    return build(given, Card("tool", timeout=seconds), SecretStore({"TOKEN": KEY, **os.environ}))


@asynccontextmanager
async def stdio(tool: str, **settings: object) -> AsyncIterator[McpWorker]:
    made = worker(tool, {**STDIO, **settings})
    try:
        yield made
    finally:
        await made.aclose()


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    app = mcp_tools.server().streamable_http_app()
    running = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(running.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            running.should_exit = True
            await task


async def ask(asked: McpWorker, subtask: str) -> str:
    return (await asked.perform(Request(Task("q"), subtask, key="run-0-0-0"))).text


async def fault_of(asked: McpWorker, subtask: str) -> Fault:
    with pytest.raises(WorkerError) as caught:
        await ask(asked, subtask)
    assert KEY not in repr(caught.value.fault)
    return caught.value.fault


async def test_a_tool_of_a_child_process_is_called_again_and_again() -> None:
    async with stdio("add") as tool:
        answers = await asyncio.gather(*(ask(tool, f'{{"a": {n}, "b": 1}}') for n in range(10)))
    assert answers == [str(n + 1) for n in range(10)]


async def test_a_tool_over_streamable_http_is_called_again_and_again() -> None:
    async with http_server() as url:
        tool = worker("add", {"url": url})
        answers = await asyncio.gather(*(ask(tool, f'{{"a": {n}, "b": 1}}') for n in range(10)))
        await tool.aclose()
    assert answers == [str(n + 1) for n in range(10)]


async def test_the_idempotency_key_goes_along() -> None:
    async with stdio("key") as tool:
        assert await ask(tool, "{}") == "run-0-0-0"


async def test_a_subtask_in_words_is_passed_as_the_one_argument() -> None:
    async with stdio("shout", argument="text") as tool:
        assert await ask(tool, "quietly") == "QUIETLY"


async def test_invariant_8_a_child_is_given_only_the_variables_that_are_listed() -> None:
    os.environ["SHIKISHA_TEST_SECRET"] = KEY
    try:
        async with stdio("environment", env={"CHILD_TOKEN": "TOKEN"}) as tool:
            seen = await ask(tool, "{}")
    finally:
        del os.environ["SHIKISHA_TEST_SECRET"]
    assert f"CHILD_TOKEN={KEY}" in seen
    assert "SHIKISHA_TEST_SECRET" not in seen


async def test_a_description_is_capped_and_the_tool_can_be_pinned_by_its_hash() -> None:
    async with stdio("add") as tool:
        shown = await tool.describe()
    assert len(shown.description) == 501
    assert mcp_tools.LONG.startswith(shown.description[:-1])
    assert shown.pin == f'schema_sha256 = "{shown.sha256}"'
    async with stdio("add", schema_sha256=shown.sha256) as pinned:
        assert await ask(pinned, '{"a": 1, "b": 2}') == "3"


async def test_a_tool_that_is_not_the_pinned_one_is_not_called_but_can_be_looked_at() -> None:
    async with stdio("add", args=[SCRIPT, "Adds, they say."], schema_sha256="0" * 64) as tool:
        fault = await fault_of(tool, '{"a": 1, "b": 2}')
        shown = await tool.describe()
    assert fault.kind is FaultKind.BAD_REQUEST
    assert "expected " + "0" * 64 in fault.message
    assert f"got {shown.sha256}" in fault.message
    assert shown.description == "Adds, they say."


@pytest.mark.parametrize(
    ("tool", "subtask", "kind", "what"),
    [
        ("add", '{"a": 1}', FaultKind.BAD_ARGUMENTS, "'b' is a required property"),
        ("add", "one and two", FaultKind.BAD_ARGUMENTS, "JSON object"),
        ("fail", '{"text": "this"}', FaultKind.TOOL_ERROR, "no luck with this"),
        ("nothing", "{}", FaultKind.EMPTY, "without text"),
        ("flood", '{"count": 5000000}', FaultKind.TOO_LARGE, "4,194,304"),
        ("missing", "{}", FaultKind.BAD_REQUEST, "add, die, environment"),
    ],
)
async def test_invariant_6_what_is_no_answer_is_a_typed_fault(
    tool: str, subtask: str, kind: FaultKind, what: str
) -> None:
    async with http_server() as url:
        asked = worker(tool, {"url": url})
        fault = await fault_of(asked, subtask)
        await asked.aclose()
    assert fault.kind is kind
    assert what in fault.message


async def test_a_child_that_dies_is_a_reset_with_its_last_words_and_the_next_call_starts_another() -> None:
    async with stdio("die", env={"CHILD_TOKEN": "TOKEN"}) as tool:
        words = [f"{'x' * 20_000} {KEY} out of memory {n}" for n in range(2)]
        faults = [await fault_of(tool, json.dumps({"words": said})) for said in words]
    assert [fault.kind for fault in faults] == [FaultKind.RESET, FaultKind.RESET]
    assert "[key removed] out of memory 1" in faults[1].message
    assert "memory 0" not in faults[1].message


async def test_a_cancelled_call_leaves_the_connection_to_the_others() -> None:
    async with stdio("stall") as tool:
        await tool.describe()
        call, other = (asyncio.create_task(ask(tool, f'{{"seconds": {seconds}}}')) for seconds in (30, 0.5))
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert time.perf_counter() - began < 10.0
        assert await other == "awake"


@pytest.mark.parametrize("command", ["/nowhere/at/all", "false"])
async def test_a_server_that_does_not_start_is_a_connect_fault(command: str) -> None:
    tool = worker("add", {"command": command})
    assert (await fault_of(tool, "{}")).kind is FaultKind.CONNECT
    await tool.aclose()


@pytest.mark.full
async def test_a_call_past_its_time_is_a_timeout() -> None:
    async with http_server() as url:
        tool = worker("stall", {"url": url}, seconds=3.0)
        fault = await fault_of(tool, '{"seconds": 30}')
        await tool.aclose()
    assert (fault.kind, fault.message) == (FaultKind.TIMEOUT, "no answer within 3 s")


@pytest.mark.full
async def test_a_server_that_says_nothing_is_a_fault_in_time() -> None:
    tool = worker("add", {"command": "sleep", "args": ["60"]}, seconds=1.0)
    try:
        began = time.perf_counter()
        assert (await fault_of(tool, "{}")).kind is FaultKind.CONNECT
        assert time.perf_counter() - began < 10.0
    finally:
        await tool.aclose()


async def test_nobody_at_the_url_is_a_connect_fault() -> None:
    with black_hole() as lost:
        for url in (closed_port(), lost):
            tool = worker("add", {"url": url}, seconds=1.0)
            assert (await fault_of(tool, "{}")).kind is FaultKind.CONNECT
            await tool.aclose()


@pytest.mark.parametrize(
    ("status", "kind"), [(401, FaultKind.AUTH), (429, FaultKind.RATE_LIMITED), (503, FaultKind.SERVER)]
)
async def test_invariant_8_a_status_is_a_typed_fault_without_the_key(status: int, kind: FaultKind) -> None:
    async def refuse(incoming: HttpRequest, exchange: HttpExchange) -> bool:
        await exchange.send(status, f"you sent {incoming.headers['authorization']}".encode(), Retry_After="7")
        return True

    async with serve_http(refuse) as url:
        tool = worker("add", {"url": url, "headers": {"Authorization": "Bearer ${TOKEN}"}})
        fault = await fault_of(tool, "{}")
        await tool.aclose()
    assert fault.kind is kind
    assert fault.retry_after == (None if status == 401 else 7.0)


async def test_an_endless_reply_is_cut_at_the_limit() -> None:
    async def flood(incoming: HttpRequest, exchange: HttpExchange) -> bool:  # noqa: ARG001 - an Answering
        await exchange.begin("application/json")
        while True:
            await exchange.chunk(b" " * 65536)

    async with serve_http(flood) as url:
        tool = worker("add", {"url": url})
        assert (await fault_of(tool, "{}")).kind is FaultKind.TOO_LARGE
        await tool.aclose()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"command": "x", "url": "http://127.0.0.1/"},
        {"url": "http://127.0.0.1/", "env": {"A": "B"}},
        {"command": "x", "headers": {"A": "b"}},
        {"command": "x", "schema_sha256": "abc"},
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        McpSettings.model_validate({"tool": "add", **settings})


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="CHILD_SECRET"):
        build(McpSettings(tool="add", command="x", env={"A": "CHILD_SECRET"}), Card("tool"), SecretStore({}))


async def test_resources_of_a_server_are_gathered_by_what_they_are_about() -> None:
    async with http_server() as url:
        made = worker("add", {"url": url})
        try:
            gatherer = McpResourceGatherer("docs", made.server, ("inner",))
            (found,) = await gatherer.gather(Task("Which way is the tax of an invoice rounded?"), 500)
        finally:
            await made.aclose()
    assert (found.text, found.name, found.labels) == ("Round to cents, half to even.", "note://tax", ("inner",))
