"""The server as an agent of A2A, and agents as workers: our own worker at our own server, and hostile messages."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from model_servers import ModelServer, model_server
from serving import At, served

from shikisha.config.container import build_container
from shikisha.core.budget import Caps
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.server.keys.key import KeyScope

CONFIG = """
[server]
port = 0
[workers.a]
kind = "scripted"
answers = "forty-two"
price = { call = 0.25 }
"""
SENT: Mapping[str, object] = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "What is the answer?"}]}


async def send(at: At, method: str, params: object, key: str = "") -> dict[str, object]:
    """Send a message; return what is told."""
    async with at.http(key) as http:
        answer = await http.post("/a2a", json={"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    told = answer.json()
    assert isinstance(told, dict)
    assert told.get("id") == 7
    return told


async def ask(at: At, url: str = "", key: str = "", **more: object) -> Run:
    """Ask a server by way of a worker."""
    table = {"kind": "a2a", "url": url or at.url, "api_key_env": "K", "attempts": 1, **more}
    container = build_container({"workers": {"w": table}}, "table", Path(), {"K": key or at.key})
    pool = container.pool()
    run = await Engine(MemoryRecorder()).run(Task("What is the answer?"), pool, container.conductor("", pool), Caps())
    await container.aclose()
    return run


async def test_a_message_becomes_a_run_whose_answer_is_an_artifact(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        told = await send(at, "SendMessage", {"message": SENT})
        result = told["result"]
        assert isinstance(result, dict)
        task = result["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert task["artifacts"][0]["parts"] == [{"text": "forty-two"}]
        assert task["metadata"]["dollars"] == 0.25
        again = await send(at, "SendMessage", {"message": SENT})
        assert again["result"]["task"]["id"] == task["id"]  # type: ignore[index]  # one message, one run
        assert (await send(at, "GetTask", {"id": task["id"]}))["result"] == task
        assert "-32002" in json.dumps(await send(at, "CancelTask", {"id": task["id"]}))


async def test_the_card_needs_no_key_and_names_no_worker(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http(None) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == f"{at.url}/a2a"
        assert "forty-two" not in json.dumps(card)
        assert (await http.post("/a2a", json={})).status_code == 401


async def test_a_server_is_a_worker_of_another(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        assert (await ask(at)).answer == "forty-two"
        reader = await at.issue(KeyScope.READ)
        assert "not allowed to do this" in (await ask(at, key=reader.secret)).why


@pytest.mark.parametrize(
    ("method", "params", "code", "said"),
    [
        ("Nothing", {}, -32601, "no method 'Nothing'"),
        ("SendStreamingMessage", {"message": SENT}, -32004, "use SendMessage and GetTask"),
        ("SendMessage", {}, -32602, "message: expected an object"),
        ("SendMessage", {"message": {**SENT, "messageId": ""}}, -32602, "messageId: expected a text"),
        ("SendMessage", {"message": {**SENT, "parts": []}}, -32602, "expected 1 to 100 parts"),
        ("SendMessage", {"message": {**SENT, "parts": [{"text": " "}]}}, -32602, "there is no text"),
        ("SendMessage", {"message": {**SENT, "parts": [{"url": "file:///etc/passwd"}]}}, -32602, "files are not taken"),
        ("SendMessage", {"message": {**SENT, "parts": [7]}}, -32602, "message.parts[0]: expected text or data"),
        ("SendMessage", {"message": {**SENT, "taskId": "t"}}, -32004, "no further message here"),
        ("GetTask", {"id": "nothing"}, -32001, "nothing"),
        ("GetTask", {"id": 7}, -32602, "id: expected the id of a task"),
    ],
)
async def test_a_wrong_message_is_an_error_of_the_protocol(
    a2a: At, method: str, params: object, code: int, said: str
) -> None:
    error = (await send(a2a, method, params))["error"]
    assert isinstance(error, dict)
    assert error["code"] == code
    assert said in error["message"]


@pytest.fixture
async def a2a(tmp_path: Path) -> AsyncIterator[At]:
    async with served(tmp_path, CONFIG) as at:
        yield at


CARD = "/.well-known/agent-card.json"


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({}, "a card without a JSON-RPC interface of A2A 1.x"),
        ([], "no JSON object"),
        ({"supportedInterfaces": [7, {"protocolBinding": "GRPC", "url": "x"}]}, "a card without a JSON-RPC interface"),
        ({"supportedInterfaces": [{"protocolBinding": "JSONRPC", "url": "http://evil.example/a2a"}]}, "another host"),
        (
            {"supportedInterfaces": [{"protocolBinding": "JSONRPC", "url": "/a2a", "protocolVersion": "9.0"}]},
            "A2A 1.x",
        ),
    ],
)
async def test_a_card_that_misleads_is_a_fault_and_gets_no_message(card: object, said: str) -> None:
    async with model_server(ModelServer(path="", extra={CARD: card})) as server:
        run = await ask(At(server.url, "key-0123456789"))
        assert said in run.why
        assert [path for path, _ in server.asked] == [CARD]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"result": {}}, "neither a message nor a task"),
        ({"result": 7}, "no result"),
        ({"error": {"code": -1, "message": "no \x1b[31m"}}, "the agent refuses SendMessage: -1: no"),
        ({"result": {"message": {"parts": [{"raw": "x"}]}}}, "the agent's message has no text"),
        ({"result": {"task": {"id": "1", "status": {"state": "TASK_STATE_COMPLETED"}}}}, "without any text"),
        ({"result": {"task": {"id": "1", "status": {"state": "TASK_STATE_REJECTED"}}}}, "ended as task_state_rejected"),
        ({"result": {"task": {"id": "1"}}}, "ended as nothing"),
    ],
)
async def test_a_reply_that_is_none_is_a_fault(reply: object, said: str) -> None:
    interface = {"protocolBinding": "JSONRPC", "url": "/a2a", "protocolVersion": "1.0"}
    pages = {CARD: {"supportedInterfaces": [interface]}, "/a2a": reply}
    async with model_server(ModelServer(path="", extra=pages)) as server:
        assert said in (await ask(At(server.url, "key-0123456789"))).why
