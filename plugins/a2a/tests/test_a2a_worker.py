"""Agents of A2A as workers: our own server, and cards and replies that mislead."""

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
"""


async def ask(at: At, url: str = "", key: str = "", **more: object) -> Run:
    """Ask a server by way of a worker."""
    table = {"kind": "a2a", "url": url or at.url, "api_key_env": "K", "attempts": 1, **more}
    container = build_container({"workers": {"w": table}}, "table", Path(), {"K": key or at.key})
    pool = container.pool()
    run = await Engine(MemoryRecorder()).run(Task("What is the answer?"), pool, container.conductor("", pool), Caps())
    await container.aclose()
    return run


async def test_a_server_is_a_worker_of_another(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        assert (await ask(at)).answer == "forty-two"
        reader = await at.issue(KeyScope.READ)
        assert "not allowed to do this" in (await ask(at, key=reader.secret)).why


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
