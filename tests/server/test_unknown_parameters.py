"""What clients send that is unknown here: left out and named, or refused, as the server is told."""

import json
from pathlib import Path

import pytest
from openai import BadRequestError
from responding import by_model, responding

from shikisha.server.http.request import drop_foreign, ignored_header, validate_known
from shikisha.server.responses.schema import ResponseRequest
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer
from shikisha.testing.chat_script import ScriptedToolCall

EXEC = {
    "type": "function",
    "name": "exec_command",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
}
# As Codex 0.169 sends it, but for the length of its texts.
CODEX: dict[str, object] = {
    "model": "shikisha",
    "stream": True,
    "tools": [
        EXEC,
        {"type": "namespace", "name": "multi_agent_v1", "tools": [{**EXEC, "name": "spawn_agent"}]},
        {"type": "web_search", "external_web_access": True},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a21401-08de",
    "client_metadata": {"thread_id": "01a21401-08de", "x-codex-turn-metadata": "{}"},
}


def item(role: str, text: str) -> dict[str, object]:
    return {"type": "message", "id": f"msg_{role}", "role": role, "content": [{"type": "input_text", "text": text}]}


ASKED = [item("developer", "You are a coding agent."), item("user", "<cwd>/</cwd>"), item("user", "What is in a.txt?")]


def coding(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """A model that reads a file, and tells what it came to."""
    if asked.messages[-1][0] == "tool":
        return ScriptedAnswer(text=f"it says {asked.last}")
    return ScriptedAnswer(calls=(ScriptedToolCall(name="exec_command", arguments={"cmd": "cat a.txt"}),))


def events_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


async def test_a_session_of_codex_calls_its_tool_and_goes_on(tmp_path: Path) -> None:
    async with responding(tmp_path, coding) as (at, _), at.http() as http:
        first = await http.post("/v1/responses", json={**CODEX, "input": ASKED})
        assert first.status_code == 200
        assert first.headers["x-shikisha-ignored"] == "tools[1]=namespace, tools[2]=web_search, client_metadata"
        (call,) = [
            event["item"]
            for event in events_of(first.text)
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call"  # type: ignore[index]  # as the API has it
        ]
        assert isinstance(call, dict)
        searched = {"type": "web_search_call", "id": "ws", "status": "completed"}
        told = {"type": "function_call_output", "call_id": call["call_id"], "output": [
            {"type": "input_text", "text": "forty-two"},
            {"type": "input_image", "image_url": "data:image/png;base64,aaaa"},
        ]}  # fmt: skip
        second = await http.post("/v1/responses", json={**CODEX, "input": [*ASKED, searched, call, told]})
        last = events_of(second.text)[-1]
        assert last["type"] == "response.completed"
        assert "it says forty-two\\n\\n[image: not shown" in second.text
        assert "input[3]=web_search_call" in second.headers["x-shikisha-ignored"]


async def test_what_the_agents_sdk_sends_is_taken(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (_, client):
        raw = await client.responses.with_raw_response.create(
            model="shikisha", input="hello", truncation="auto", store=True, max_tool_calls=3, service_tier="flex",
            include=["web_search_call.action.sources"], tools=[{"type": "web_search"}],
        )  # fmt: skip
        assert raw.parse().output_text == "m1 says so"
        assert raw.parse().truncation == "auto"
        assert raw.headers["x-shikisha-ignored"] == "tools[0]=web_search, max_tool_calls"


async def test_an_unknown_parameter_of_a_chat_is_left_out_and_named(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (_, client):
        raw = await client.chat.completions.with_raw_response.create(
            model="shikisha", messages=[{"role": "user", "content": "hello"}], store=True,
            extra_body={"temprature": 1, "top_k": None, "tools": [{"type": "web_search"}], "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hello", "weight": 1}]}
            ]},
        )  # fmt: skip
        assert raw.parse().choices[0].message.content == "m1 says so"
        assert set(raw.headers["x-shikisha-ignored"].split(", ")) == {
            "tools[0]=web_search", "temprature", "messages[0].content[0].weight",
        }  # fmt: skip


async def test_a_server_that_refuses_names_the_parameter(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, end='unknown = "refuse"') as (at, client), at.http() as http:
        with pytest.raises(BadRequestError, match="temprature"):
            await client.chat.completions.create(
                model="shikisha", messages=[{"role": "user", "content": "hello"}], extra_body={"temprature": 1}
            )
        came = await http.post("/v1/responses", json={**CODEX, "input": ASKED})
        assert (came.status_code, came.json()["error"]["param"]) == (400, "tools[1]")


@pytest.mark.parametrize("name", ["container", "conversation", "prompt", "thread"])
async def test_what_names_texts_that_are_elsewhere_is_never_left_out(tmp_path: Path, name: str) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        chat = {"model": "shikisha", "messages": [{"role": "user", "content": "x"}]}
        for path, body in (("/v1/responses", {"model": "shikisha", "input": "x"}), ("/v1/chat/completions", chat)):
            came = await http.post(path, json={**body, name: {"id": "p"}})
            assert (came.status_code, came.json()["error"]["param"]) == (400, name)


async def test_an_item_that_holds_the_conversation_is_never_left_out(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        compacted = {"type": "compaction", "encrypted_content": "x"}
        came = await http.post("/v1/responses", json={"model": "shikisha", "input": [compacted, *ASKED]})
        assert (came.status_code, came.json()["error"]["param"]) == (400, "input[0]")
        assert came.headers.get("x-shikisha-ignored") is None


async def test_a_response_goes_on_with_an_answer_that_the_client_has_begun(tmp_path: Path) -> None:
    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text=asked.last)

    async with responding(tmp_path, choose) as (_, client):
        said = await client.responses.create(
            model="shikisha",
            input=[{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "The best is ("}],
        )
        assert said.output_text.startswith("Which?\n\n")
        assert said.output_text.endswith("write only what follows it:\nThe best is (")


def test_a_name_of_any_kind_is_a_header() -> None:
    names = ["a, b", "ü\r\nX-Evil: 1", "k" * 200, *(f"n{place}" for place in range(40))]
    (told,) = ignored_header(names, lambda name: name.replace("n0", "(key)")).values()
    assert told.startswith("a??b, ???X-Evil:?1, kkk")
    assert "and 23 more" in told
    assert told.isascii()
    assert "\n" not in told
    assert ignored_header([], str) == {}


def test_a_list_of_anything_is_looked_through() -> None:
    found: list[object] = [{"type": "a"}, {"type": []}, 3, {}, {"type": "b"}, None]
    assert drop_foreign(found, "x", {"a"}) == ["x[4]=b"]
    assert len(found) == 5
    assert drop_foreign("x", "x", {"a"}) == []


def test_a_member_of_a_union_that_has_the_name_of_a_field_is_no_field() -> None:
    raw: dict[str, object] = {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "input_text": 3, "text2": 1}]}],
    }
    read, ignored = validate_known(raw, ResponseRequest, refuse=False)
    assert set(ignored) == {"input[0].content[0].input_text", "input[0].content[0].text2"}
    assert read.items[0].model_dump()["content"][0]["text"] == "x"
