"""The server as an agent of A2A: its card, messages as runs, and hostile messages."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from serving import At, served

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
