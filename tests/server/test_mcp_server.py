"""The MCP server with the SDK's own client over HTTP and stdio, and with messages that nobody means well with."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from responding import by_model, responding
from serving import At, served, trusted

from shikisha.server.keys.key import KeyScope
from shikisha.server.mcp.messages import PROTOCOL_VERSIONS, read_message
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer

REVIEW = """
[[autonomy.classes]]
mode = "review"
"""


@asynccontextmanager
async def connected(at: At, key: str = "") -> AsyncIterator[Client]:
    """The SDK's client at a server."""
    headers = {"Authorization": f"Bearer {key or at.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30.0, verify=trusted()) as http,
        Client(streamable_http_client(f"{at.url}/mcp", http_client=http)) as client,
    ):
        yield client


def said(result: CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text


def told(result: CallToolResult) -> dict[str, object]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def test_the_sdks_client_runs_a_task_and_explains_it(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), connected(at) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["run", "explain", "runs", "approvals", "approve"]
        notes = list[str]()

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            assert total is None
            notes.append(f"{progress:g} {message}")

        ran = await client.call_tool("run", {"prompt": "hello", "model": "shikisha/two"}, progress_callback=heard)
        assert isinstance(ran, CallToolResult)
        assert (said(ran), ran.is_error) == ("m2 says so", False)
        run = str(told(ran)["run"])
        assert notes[0].startswith("1 round 1: 2 steps")
        explained = await client.call_tool("explain", {"run": run})
        assert isinstance(explained, CallToolResult)
        assert said(explained).startswith(f"run {run}: done")
        listed = await client.call_tool("runs", {"text": "hel", "status": "done"})
        assert isinstance(listed, CallToolResult)
        assert [each["id"] for each in json.loads(said(listed))] == [run]


async def test_a_tool_is_there_for_keys_that_may(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _):
        reader = await at.issue(KeyScope.READ)
        async with connected(at, reader.secret) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["explain", "runs"]
            with pytest.raises(Exception, match="there is no tool 'run'; there are: explain, runs"):
                await client.call_tool("run", {"prompt": "hello"})


async def test_what_goes_wrong_is_a_result_that_a_model_can_read(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="")]) as (at, _), connected(at) as client:
        for arguments, code in (
            ({"prompt": 3}, "invalid_value"),
            ({}, "missing_required_parameter"),
            ({"prompt": "x", "model": "none"}, "model_not_found"),
            ({"prompt": "x", "workers": ["none"]}, "no_worker"),
            ({"prompt": "x", "dollars": -1}, "invalid_value"),
            ({"prompt": "x"}, "run_failed"),
        ):
            ran = await client.call_tool("run", arguments)
            assert isinstance(ran, CallToolResult)
            assert (ran.is_error, told(ran)["code"]) == (True, code), arguments
        absent = await client.call_tool("explain", {"run": "none"})
        assert isinstance(absent, CallToolResult)
        assert absent.is_error


async def test_a_question_is_listed_and_answered(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, end=REVIEW) as (at, _), connected(at) as client:
        asked = await client.call_tool("run", {"prompt": "hello"})
        assert isinstance(asked, CallToolResult)
        assert told(asked)["code"] == "approval_required"
        waiting = await client.call_tool("approvals", {})
        assert isinstance(waiting, CallToolResult)
        (question,) = json.loads(said(waiting))
        await client.call_tool("approve", {"approval": question["id"], "approved": True, "remark": "fine"})
        assert at.service is not None
        for _ in range(100):
            run = await at.service.read_run(str(told(asked)["run"]))
            if run.finished is not None:
                break
            await asyncio.sleep(0.05)
        assert run.answer == "m1 says so"


async def post(at: At, body: object, key: str = "") -> httpx2.Response:
    async with at.http(key) as http:
        return await http.post("/mcp", content=body if isinstance(body, bytes) else json.dumps(body).encode())


def request(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def last_event(text: str) -> Mapping[str, object]:
    (*_, data) = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


async def test_a_long_run_is_a_task(tmp_path: Path) -> None:
    def slow(_: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text="at last", latency=0.3)

    async with responding(tmp_path, slow) as (at, _):
        call = request("tools/call", name="run", arguments={"prompt": "hello"}, task={"ttl": 60_000})
        task = last_event((await post(at, call)).text)["result"]["task"]  # type: ignore[index]  # as the protocol has it
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        state = (await post(at, request("tasks/get", taskId=task["taskId"]))).json()["result"]
        assert state["status"] == "working"
        whole = last_event((await post(at, request("tasks/result", taskId=task["taskId"]))).text)["result"]
        assert whole["content"] == [{"type": "text", "text": "at last"}]  # type: ignore[index]  # as the protocol has it
        listed = (await post(at, request("tasks/list"))).json()["result"]["tasks"]
        assert [(each["taskId"], each["status"]) for each in listed] == [(task["taskId"], "completed")]
        stranger = await at.issue(KeyScope.RUN)
        assert "error" in (await post(at, request("tasks/get", taskId=task["taskId"]), stranger.secret)).json()
        call = request("tools/call", name="run", arguments={"prompt": "hello again"}, task={})
        task = last_event((await post(at, call)).text)["result"]["task"]  # type: ignore[index]  # as the protocol has it
        ended = (await post(at, request("tasks/cancel", taskId=task["taskId"]))).json()["result"]
        assert ended["status"] == "cancelled"


async def test_messages_that_are_none_get_an_error_of_the_protocol(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _):
        for body, status, code in (
            (b"{", 400, -32700),
            (b"[]", 400, -32700),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b"[" * 100 + b"]" * 100 + b"}", 400, -32700),
            ({"id": 1, "method": "ping"}, 400, -32600),
            ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, 400, -32600),
            ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, 400, -32602),
            (request("server/discover"), 200, -32601),
            (request("x" * 1000), 200, -32601),
            (request("tasks/get"), 200, -32602),
            (request("tasks/get", taskId="none"), 200, -32602),
        ):
            came = await post(at, body)
            assert (came.status_code, came.json()["error"]["code"]) == (status, code), body
        assert (await post(at, {"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202
        for call in ({"name": "none"}, {"name": "run", "arguments": 3}, {"name": "runs", "task": {}}):
            error = last_event((await post(at, request("tools/call", **call))).text)["error"]
            assert error["code"] == -32602  # type: ignore[index]  # as the protocol has it
        versions = [
            (await post(at, request("initialize", protocolVersion=wanted))).json()["result"]["protocolVersion"]
            for wanted in ("2025-06-18", "1999-01-01", 7)
        ]
        assert versions == ["2025-06-18", PROTOCOL_VERSIONS[0], PROTOCOL_VERSIONS[0]]
        async with at.http(None) as http:
            assert (await http.post("/mcp", json=request("ping"))).status_code == 401
            assert (await http.get("/mcp")).status_code == 405


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=40) | st.text(max_size=40).map(lambda text: json.dumps({"jsonrpc": "2.0", "id": text}).encode())
)
def test_any_bytes_are_a_message_or_an_error(body: bytes) -> None:
    message = read_message(body)
    assert "error" in message or isinstance(message["method"], str)


async def test_an_error_repeats_no_key(tmp_path: Path) -> None:
    secret = "sk-provider-0123456789abcdef"
    config = (
        '[workers.a]\nkind = "chat"\nmodel = "m"\napi_key_env = "PROVIDER_KEY"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    async with served(tmp_path, config, {"PROVIDER_KEY": secret}) as at:
        assert at.service is not None
        at.service.cast("fixed:single", ("a",))  # the key is known once it was read
        call = request("tools/call", name="run", arguments={"prompt": "x", "workers": [secret]})
        for body in (call, request(secret), request("tools/call", name=secret)):
            came = await post(at, body)
            assert secret not in came.text
            assert "error" in came.text or "isError" in came.text


@pytest.mark.full
async def test_the_command_serves_the_sdks_client_on_stdio(tmp_path: Path) -> None:
    (tmp_path / "shikisha.toml").write_text('pool = ["simulated"]\n')
    command = [
        "-m",
        "shikisha",
        "serve",
        "--mcp",
        "--config",
        str(tmp_path / "shikisha.toml"),
        "--journal",
        str(tmp_path / "j.db"),
    ]
    parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    with (tmp_path / "errors").open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            assert len((await client.list_tools()).tools) == 5
            ran = await client.call_tool("run", {"prompt": "Can you find the keeper listed for ruti?"})
            assert isinstance(ran, CallToolResult)
            assert not ran.is_error
            again = await asyncio.gather(*(client.call_tool("explain", {"run": told(ran)["run"]}) for _ in range(3)))
            assert all(isinstance(each, CallToolResult) and not each.is_error for each in again)
