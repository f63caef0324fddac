"""A plan of one step passes the client's own request on: what the worker's endpoint gets is what the client sent.

Changed is only what an adapter must: the model, how the answer is streamed, and the name of its limit.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from responding import responding

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer
from shikisha.testing.chat_script import ScriptedToolCall

ADAPTED = frozenset(
    {"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "metadata", "user", "store"}
)
HELLO = {"role": "user", "content": "How many?"}
TOOL = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}, "strict": None},
}
CALL = {"id": "callNo009", "type": "function", "function": {"name": "look_up", "arguments": '{"a":  1}'}}
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "person", "strict": True, "schema": {"type": "object", "properties": {"age": {}}}},
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
BODIES: dict[str, dict[str, object]] = {
    "one question": {"messages": [HELLO]},
    "few-shot text": {"messages": [{"role": "user", "content": "Q: 1+1?\nA: 2\n\nQ: 2+2?\nA:"}], "stop": "\n"},
    "names": {"messages": [{**HELLO, "name": "Ada"}]},
    "a developer's instructions": {"messages": [{"role": "developer", "content": "Be brief."}, HELLO]},
    "instructions after the question": {"messages": [HELLO, {"role": "system", "content": "Be brief."}]},
    "several questions in a row": {"messages": [HELLO, HELLO, HELLO]},
    "texts in parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]}]},
    "a text between images": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": PIXEL}},
                    {"type": "text", "text": "Compare."},
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                ],
            }
        ]
    },
    "an image alone": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]},
    "an answer that is to be gone on with": {"messages": [HELLO, {"role": "assistant", "content": "There are "}]},
    "fields of an endpoint's own": {
        "messages": [
            {"role": "system", "content": "Be brief.", "cache_control": {"type": "ephemeral"}},
            HELLO,
            {"role": "assistant", "content": "Three.", "reasoning_content": "One, two, three."},
            {"role": "user", "content": "Sure?"},
        ]
    },
    "tools": {"messages": [HELLO], "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True},
    "no tool allowed": {"messages": [HELLO], "tools": [TOOL], "tool_choice": "none"},
    "calls that were made": {
        "messages": [
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "It must be looked up."},
            {"role": "tool", "tool_call_id": "callNo009", "content": [{"type": "text", "text": "3"}]},
        ],
        "tools": [TOOL],
    },
    "calls long ago, and no tools now": {
        "messages": [
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "callNo009", "content": "3"},
            {"role": "assistant", "content": "Three."},
            {"role": "user", "content": "Sure?"},
        ]
    },
    "a schema": {"messages": [HELLO], "response_format": FORM},
    "JSON mode": {
        "messages": [{"role": "user", "content": "Answer in JSON."}],
        "response_format": {"type": "json_object"},
    },
    "sampling": {
        "messages": [HELLO],
        "temperature": 0.3,
        "top_p": 0.9,
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": -1,
        "top_k": 40,
        "min_p": 0.05,
        "repeat_penalty": 1.1,
        "stop": ["a", "b"],
    },
}


@pytest.mark.parametrize("name", BODIES)
async def test_the_endpoint_gets_what_the_client_sent(tmp_path: Path, name: str) -> None:
    seen: list[dict[str, object]] = []

    def keep(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(dict(asked.body))
        return ScriptedAnswer(text='{"age": 31}')

    sent = BODIES[name]
    async with responding(tmp_path, keep, more="structured_output = true") as (at, _), at.http() as http:
        answer = await http.post("/v1/chat/completions", json={"model": "shikisha", "max_tokens": 50, **sent})
        assert answer.status_code == 200, answer.text
    (got,) = seen
    assert _own(got) == _own(sent)
    limits = [got.get("max_tokens"), got.get("max_completion_tokens")]
    assert sorted(limits, key=str) == [50, None]


async def test_a_worker_that_is_not_held_to_a_schema_reads_it_in_words(tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []

    def keep(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(dict(asked.body))
        return ScriptedAnswer(text='{"age": 31}')

    async with responding(tmp_path, keep) as (at, _), at.http() as http:
        await http.post("/v1/chat/completions", json={"model": "shikisha", **BODIES["a schema"]})
    assert "response_format" not in seen[0]
    assert "must be one JSON document" in json.dumps(seen[0]["messages"])


async def test_a_call_made_in_the_run_follows_the_clients_own_messages(tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []

    def keep(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(dict(asked.body))
        return ScriptedAnswer(text="Three." if len(seen) > 1 else "", calls=() if len(seen) > 1 else (CALLED,))

    first = {"role": "user", "content": "How many?", "name": "Ada"}
    async with responding(tmp_path, keep) as (at, _), at.http() as http:
        both = {"model": "shikisha", "tools": [TOOL]}
        asked = await http.post("/v1/chat/completions", json={**both, "messages": [first]})
        message = asked.json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "3"}
        ended = await http.post("/v1/chat/completions", json={**both, "messages": [first, message, result]})
        assert ended.json()["choices"][0]["message"]["content"] == "Three."
    messages = seen[1]["messages"]
    assert isinstance(messages, list)
    assert messages[0] == first
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]


async def test_a_text_is_completed_at_the_endpoints_own_route(tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []

    def keep(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(dict(asked.body))
        return ScriptedAnswer(text="")  # nothing is missing between the two

    sent = {"prompt": "def add(a, b):", "suffix": "\n    return c", "echo": False, "max_tokens": 8, "stop": "\n\n"}
    async with responding(tmp_path, keep) as (at, _), at.http() as http:
        made = await http.post("/v1/completions", json={"model": "shikisha", **sent})
        assert (made.status_code, made.json()["choices"][0]["text"]) == (200, "")
        other = await http.post("/v1/completions", json={"model": "shikisha/two", **sent})
    assert "messages" not in seen[0]
    assert {name: seen[0][name] for name in sent} == {**sent, "stop": ["\n\n"]}
    assert (other.status_code >= 400, len(seen)) == (True, 1)  # a plan of two steps: nobody is asked
    assert "bad_request" in other.text


CALLED = ScriptedToolCall(id="callNo009", name="look_up", arguments={})


def _own(body: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in body.items() if name not in ADAPTED}
