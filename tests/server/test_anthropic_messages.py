"""Anthropic's Messages API over HTTP: its bodies, its events in their order, its errors, and sessions with tools."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from responding import by_model, responding
from serving import At

from shikisha.core.errors import ShikishaError
from shikisha.core.messages import REQUIRED_TOOL, MediaKind, Speaker
from shikisha.core.task import Task
from shikisha.server.anthropic.routes import estimate_tokens, task_from_messages
from shikisha.server.anthropic.schema import MessagesRequest, TokenCountRequest
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import validate_as, validate_known
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer
from shikisha.testing.chat_script import ScriptedToolCall

Block = dict[str, object]
HELLO: Block = {"role": "user", "content": "hello"}
LOOK: Block = {
    "name": "Read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "cache_control": {"type": "ephemeral"},
}
PIXEL: Block = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
# As Claude Code 2.1 sends it, but for the length of its texts.
CLAUDE_CODE: dict[str, object] = {
    "model": "shikisha",
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "You help with software.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "tools": [LOOK, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
    "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stream": True,
}
BETAS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.197 (external, cli)",
}


def asked(*messages: Mapping[str, object], **more: object) -> MessagesRequest:
    body = {"model": "m", "max_tokens": 100, "messages": list(messages or [HELLO]), **more}
    return validate_as(body, MessagesRequest)


def task(*messages: Mapping[str, object], **more: object) -> Task:
    return task_from_messages(asked(*messages, **more))


def used(name: str, **given: object) -> Block:
    return {"type": "tool_use", "id": name, "name": "Read", "input": given}


def result(name: str, content: object = "3", **more: object) -> Block:
    return {"type": "tool_result", "tool_use_id": name, "content": content, **more}


def test_system_history_and_prompt_are_in_their_places() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    made = task(
        HELLO,
        {"role": "assistant", "content": [thought, {"type": "text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    )
    assert made.prompt == "and now?"
    assert [(turn.speaker, turn.text) for turn in made.history] == [
        (Speaker.SYSTEM, "Be brief."),
        (Speaker.USER, "hello"),
        (Speaker.ASSISTANT, "hi"),
    ]


def test_results_continue_the_task_with_what_is_said_next_to_them() -> None:
    reminder = {"type": "text", "text": "<system-reminder>mind the todo list</system-reminder>"}
    picture = {"type": "image", "source": PIXEL}
    made = task(
        HELLO,
        {"role": "assistant", "content": [{"type": "text", "text": "let me see"}, used("a", path="x"), used("b")]},
        {"role": "user", "content": [result("a", None), result("b", [picture], is_error=True), reminder]},
        tools=[LOOK],
    )
    (exchange,) = made.exchanges
    assert made.prompt == "hello"
    assert exchange.text == "let me see"
    assert [json.loads(call.arguments) for call in exchange.calls] == [{"path": "x"}, {}]
    first, second = (each.content for each in exchange.results)
    assert first == "(no output)"
    assert second.startswith("The tool failed.\n[image: image/png; not shown")
    assert second.endswith("</system-reminder>")
    assert made.tools[0]["function"] == {
        "name": "Read",
        "description": "Reads a file.",
        "parameters": LOOK["input_schema"],
    }


def test_a_message_after_results_asks_anew() -> None:
    made = task(
        HELLO,
        {"role": "assistant", "content": [used("a")]},
        {"role": "user", "content": [result("a")]},
        {"role": "user", "content": "no, stop"},
        tools=[LOOK],
    )
    assert (made.prompt, made.exchanges) == ("no, stop", ())


@pytest.mark.parametrize(
    ("given", "choice", "parallel"),
    [
        ({"type": "auto"}, "", None),
        ({"type": "any", "disable_parallel_tool_use": True}, REQUIRED_TOOL, False),
        ({"type": "tool", "name": "Read"}, "tool:Read", None),
    ],
)
def test_a_tool_choice_reaches_the_task(given: object, choice: str, parallel: bool | None) -> None:
    made = task(tools=[LOOK], tool_choice=given)
    assert (made.tool_choice, made.parallel_tool_calls) == (choice, parallel)


def test_no_tools_are_offered_where_none_may_be_chosen() -> None:
    assert task(tools=[LOOK], tool_choice={"type": "none"}).tools == ()


def test_images_and_documents_are_attached() -> None:
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
    text = {"type": "document", "title": "a.txt", "source": {"type": "text", "data": "hello"}}
    link = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    made = task({"role": "user", "content": [{"type": "image", "source": PIXEL}, link, pdf, text]})
    assert [(each.kind, each.media_type) for each in made.attachments] == [
        (MediaKind.IMAGE, "image/png"),
        (MediaKind.IMAGE, ""),
        (MediaKind.FILE, "application/pdf"),
    ]
    assert made.prompt == "a.txt\n\nhello"  # which every worker reads


def test_options_and_thinking_reach_the_task() -> None:
    made = task(temperature=0.5, top_p=0.9, stop_sequences=["END"], thinking={"type": "enabled", "budget_tokens": 4096})
    assert made.options == {
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "max_completion_tokens": 100,
        "reasoning_effort": "medium",
    }
    schema = {"type": "object", "properties": {}}
    wanted = {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    made = task(output_config=wanted, thinking={"type": "adaptive"})
    assert (made.options["reasoning_effort"], made.answer_schema) == ("low", schema)


@pytest.mark.parametrize(
    ("messages", "more", "param"),
    [
        ([{"role": "assistant", "content": "hi"}], {}, "messages"),
        ([HELLO, {"role": "assistant", "content": [used("a")]}], {}, "messages"),
        ([HELLO, {"role": "assistant", "content": [used("a")]}, HELLO], {}, "messages[2]"),
        ([{"role": "user", "content": [result("a")]}], {}, "messages[0].content[0].tool_use_id"),
        ([{"role": "user", "content": [used("a")]}], {}, "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}], {},
         "messages[0].content[0].source"),
        ([{"role": "system", "content": "hi"}], {}, "messages"),
        ([HELLO], {"tool_choice": {"type": "tool", "name": "x"}, "tools": [LOOK]}, "tool_choice.name"),
        ([HELLO], {"tool_choice": {"type": "tool"}, "tools": [LOOK]}, "tool_choice.name"),
        ([HELLO], {"tool_choice": {"type": "any"}}, "tool_choice.type"),
        ([HELLO], {"max_tokens": 0}, "max_tokens"),
        ([HELLO], {"temperature": "1"}, "temperature"),
        ([], {"messages": []}, "messages"),
        ([{"role": "user", "content": [{"type": "text", "text": "x", "is": 1}]}], {}, "messages[0].content[0].is"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], {}, "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "text"}]}], {}, "messages[0].content[0].text"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_by_name(
    messages: Sequence[Mapping[str, object]], more: Mapping[str, object], param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        task(*messages, **more)
    assert (caught.value.status, caught.value.param) == (400, param)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "role", "source", "id", "input", "tool_use_id", "name"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(MessagesRequest.model_fields)), anything), anything)
def test_foreign_json_is_a_task_or_a_refusal(body: dict[str, object], said: object) -> None:
    for messages in ([{"role": "user", "content": said}], body.get("messages", said)):
        try:
            request, _ = validate_known(
                {"model": "m", "max_tokens": 9, **body, "messages": messages}, MessagesRequest, refuse=False
            )
            assert task_from_messages(request).prompt
        except (ApiError, ShikishaError):
            pass


def test_an_estimate_grows_with_what_is_counted() -> None:
    def count(*messages: Mapping[str, object], **more: object) -> int:
        return estimate_tokens(validate_as({"model": "m", "messages": list(messages), **more}, TokenCountRequest))

    plain = count(HELLO)
    assert 3 <= plain <= 10
    assert count(HELLO, system="x" * 400) >= plain + 100
    assert count(HELLO, tools=[LOOK]) > plain
    assert count({"role": "user", "content": [result("a", [{"type": "image", "source": PIXEL}])]}) > 1600


def events_of(text: str) -> list[dict[str, object]]:
    """The events of a stream; each one's name is its type."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            data = json.loads(lines["data"])
            assert data["type"] == lines["event"]
            found.append(data)
    return found


async def post(at: At, body: Mapping[str, object], path: str = "/v1/messages?beta=true") -> httpx2.Response:
    async with at.http(None) as http:
        return await http.post(path, json=body, headers={**BETAS, "x-api-key": at.key})


async def test_a_whole_message(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _):
        came = await post(at, {"model": "shikisha", "max_tokens": 64, "messages": [HELLO]})
        body = came.json()
        assert came.status_code == 200
        assert body["content"] == [{"type": "text", "text": "m1 says so"}]
        assert (body["type"], body["role"], body["stop_reason"], body["stop_sequence"]) == (
            "message", "assistant", "end_turn", None,
        )  # fmt: skip
        assert body["id"].startswith(f"msg_{came.headers['x-shikisha-run-id']}")
        assert body["usage"]["output_tokens"] > 0
        assert body["usage"]["cost"] > 0
        counted = await post(at, {"model": "shikisha", "messages": [HELLO]}, "/v1/messages/count_tokens")
        assert counted.json()["input_tokens"] > 0


async def test_a_stream_has_the_events_of_the_api_in_their_order(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _):
        came = await post(at, {"model": "shikisha/two", "max_tokens": 64, "messages": [HELLO], "stream": True})
        events = events_of(came.text)
        kinds = [str(event["type"]) for event in events]
        assert kinds[:3] == ["message_start", "ping", "content_block_start"]
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        assert set(kinds[3:-3]) == {"content_block_delta"}
        said = "".join(str(event["delta"]["text"]) for event in events if event["type"] == "content_block_delta")  # type: ignore[index]  # as the API has it
        assert said == "m2 says so"
        assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


def nulls_of(value: object, place: str = "") -> list[str]:
    """The places of the nulls in a body."""
    if isinstance(value, dict):
        return [found for name, part in value.items() for found in nulls_of(part, f"{place}.{name}")]
    if isinstance(value, list):
        return [found for part in value for found in nulls_of(part, f"{place}[]")]
    return [place] if value is None else []


async def test_nothing_is_null_that_the_api_leaves_out(tmp_path: Path) -> None:
    async with responding(tmp_path, coding) as (at, _):
        body = {"model": "shikisha/two", "max_tokens": 64, "messages": [HELLO], "tools": [LOOK]}
        bodies = [(await post(at, {**body, **more})).json() for more in ({}, {"model": "none"}, {"model": "shikisha"})]
        wrong = (await post(at, {"model": "shikisha"})).json()
        stream = events_of((await post(at, {**body, "model": "shikisha", "stream": True})).text)
        assert {each for body in [*bodies, wrong] for each in nulls_of(body)} == {".stop_sequence"}
        assert {each for event in stream for each in nulls_of(event)} == {
            ".message.stop_reason", ".message.stop_sequence", ".delta.stop_sequence",
        }  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_the_client_has_begun_is_continued(tmp_path: Path, *, stream: bool) -> None:
    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text=asked.last)

    late = {"role": "system", "content": "Be brief."}
    begun = {"role": "assistant", "content": "The best is ("}
    async with responding(tmp_path, choose) as (at, _):
        for messages in ([HELLO, begun], [HELLO, begun, late]):
            came = await post(at, {"model": "shikisha", "max_tokens": 64, "messages": messages, "stream": stream})
            assert came.status_code == 200
            if stream:
                deltas = [each["delta"] for each in events_of(came.text) if each["type"] == "content_block_delta"]
                said = "".join(str(each["text"]) for each in deltas)  # type: ignore[index]  # as the API has it
            else:
                said = came.json()["content"][0]["text"]
            assert said.endswith("write only what follows it:\nThe best is (")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"thread": {"type": "create"}}, "thread"),
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread"),
        ({"container": "container_1"}, "container"),
        ({"compaction": {"type": "summarize"}}, "compaction"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"messages": [HELLO, {"role": "assistant", "content": [{"type": "compaction", "content": "s"}]}, HELLO]},
         "messages[1].content[0]"),
    ],
)  # fmt: skip
async def test_what_names_texts_that_are_elsewhere_is_refused(
    tmp_path: Path, more: Mapping[str, object], param: str
) -> None:
    async with responding(tmp_path, by_model) as (at, _):
        body = {"model": "shikisha", "max_tokens": 64, "messages": [HELLO], **more}
        for path in ("/v1/messages?beta=true", "/v1/messages/count_tokens"):
            counted = {name: value for name, value in body.items() if name != "max_tokens" or "count" not in path}
            came = (await post(at, counted, path)).json()
            assert (came["error"]["param"], came["error"]["type"]) == (param, "invalid_request_error")
        if param == "thread":  # the SDK's tool runner goes on without a thread then
            assert came["error"]["details"]["error_code"] == "thread_unsupported_request"


async def test_progress_is_thinking_where_it_is_wanted(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        body = {"model": "shikisha/two", "max_tokens": 64, "messages": [HELLO], "stream": True}
        came = await http.post("/v1/messages", json=body, headers={"X-Shikisha-Progress": "reasoning"})
        starts = [event for event in events_of(came.text) if event["type"] == "content_block_start"]
        assert [(event["index"], event["content_block"]["type"]) for event in starts] == [  # type: ignore[index]  # as the API has it
            (0, "thinking"), (1, "text"),
        ]  # fmt: skip


def coding(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """A model that reads a file, and tells what it came to."""
    if asked.messages[-1][0] == "tool":
        return ScriptedAnswer(text=f"it says {asked.last}")
    return ScriptedAnswer(text="Let me read it.", calls=(ScriptedToolCall(name="Read", arguments={"path": "a.py"}),))


async def test_a_session_of_claude_code_reads_a_file_and_goes_on_in_one_run(tmp_path: Path) -> None:
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return coding(asked)

    async with responding(tmp_path, choose) as (at, _):
        question = {"role": "user", "content": [{"type": "text", "text": "What is in a.py?"}]}
        agents = {"role": "system", "content": "Available agent types: claude"}
        first = await post(at, {**CLAUDE_CODE, "messages": [question, agents]})
        events = events_of(first.text)
        assert first.headers["x-shikisha-ignored"] == "tools[1]=web_search_20250305"
        starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        call = starts[1]
        assert isinstance(call, dict)
        assert (call["type"], call["name"], call["input"]) == ("tool_use", "Read", {})
        written = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert written[-1] == {"type": "input_json_delta", "partial_json": '{"path": "a.py"}'}
        assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}

        answer = {"role": "assistant", "content": [
            {"type": "text", "text": "Let me read it."}, {**call, "input": {"path": "a.py"}},
        ]}  # fmt: skip
        told = {"role": "user", "content": [
            result(str(call["id"]), "print(1)", cache_control={"type": "ephemeral"}),
            {"type": "text", "text": "<system-reminder>be careful</system-reminder>"},
        ]}  # fmt: skip
        second = await post(at, {**CLAUDE_CODE, "messages": [question, agents, answer, told]})
        events = events_of(second.text)
        said = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]  # type: ignore[index]  # as the API has it
        assert "".join(map(str, said)) == "it says print(1)\n\n<system-reminder>be careful</system-reminder>"
        runs = [each.headers["x-shikisha-run-id"] for each in (first, second)]
        assert runs[0] == runs[1]
        ids = [json.loads(each.text.split("data: ")[1].split("\n")[0])["message"]["id"] for each in (first, second)]
        assert ids[0] != ids[1]
        assert [(each.tools, each.body["reasoning_effort"]) for each in seen] == [(("Read",), "high")] * 2
        assert "Available agent types: claude" in [text for _, text in seen[0].messages]
        assert [turn for turn in seen[0].messages if turn[0] == "system"][:2] == [
            ("system", "You are Claude Code."), ("system", "You help with software."),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"{", 400, "invalid_request_error"),
        (b"[1]", 400, "invalid_request_error"),
        (b'{"model": ' + b"[" * 100 + b"]" * 100 + b"}", 400, "invalid_request_error"),
        (b'{"model": "none", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}', 404, "not_found_error"),
        (b'{"model": "shikisha", "max_tokens": 1, "messages": [{"role": "user", "content": ""}]}', 400,
         "invalid_request_error"),
        (b" " * 40_000, 413, "request_too_large"),
    ],
)  # fmt: skip
async def test_errors_have_the_shape_of_the_api(tmp_path: Path, content: bytes, status: int, kind: str) -> None:
    async with responding(tmp_path, by_model, end="max_body_bytes = 20000") as (at, _), at.http() as http:
        came = await http.post("/v1/messages", content=content, headers={"Content-Type": "application/json"})
        assert (came.status_code, came.json()["type"], came.json()["error"]["type"]) == (status, "error", kind)


async def test_refusals_have_the_shape_of_the_api(tmp_path: Path) -> None:
    async with (
        responding(tmp_path, [ScriptedAnswer(mishap=None, text="x")], end='unknown = "refuse"') as (at, _),
        at.http(None) as http,
    ):
        body = {"model": "shikisha", "max_tokens": 9, "messages": [HELLO]}
        bare = await http.post("/v1/messages", json=body)
        wrong = await http.post("/v1/messages", json=body, headers={"x-api-key": "sk-shikisha-wrong"})
        assert [each.json()["error"]["type"] for each in (bare, wrong)] == ["authentication_error"] * 2
        assert "sk-shikisha-wrong" not in wrong.text
        unknown = await post(at, {**body, "top_k": 5})
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "top_k")
        tool = await post(at, {**body, "tools": [{"type": "bash_20250124", "name": "bash"}]})
        assert tool.status_code == 400
        absent = await http.get("/v1/messages/batches", headers={"x-api-key": at.key})
        assert (absent.status_code, absent.json()["type"]) == (404, "error")


async def test_an_error_in_a_stream_is_an_event(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="")]) as (at, _):
        came = await post(at, {"model": "shikisha", "max_tokens": 9, "messages": [HELLO], "stream": True})
        last = events_of(came.text)[-1]
        assert last["type"] == "error"
        assert "run" in last
        whole = await post(at, {"model": "shikisha", "max_tokens": 9, "messages": [HELLO]})
        assert (whole.json()["type"], whole.headers["x-should-retry"]) == ("error", "false")


async def test_an_unknown_parameter_is_left_out_and_named(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _):
        body = {"model": "shikisha", "max_tokens": 9, "messages": [{**HELLO, "weight": 2}], "top_k": 5, at.key: "x"}
        came = await post(at, body)
        assert came.status_code == 200
        named = came.headers["x-shikisha-ignored"]
        assert {"top_k", "messages[0].weight"} <= set(named.split(", "))


async def test_an_agent_that_calls_tools_for_ever_goes_on_in_another_run(tmp_path: Path) -> None:
    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        calls = sum(role == "tool" for role, _ in asked.messages)
        if calls == 30:
            return ScriptedAnswer(text="all 30 are read")
        return ScriptedAnswer(calls=(ScriptedToolCall(name="Read", arguments={"path": f"{calls}"}),))

    async with responding(tmp_path, choose) as (at, _):
        body: dict[str, object] = {"model": "shikisha", "max_tokens": 64, "tools": [LOOK]}
        messages: list[Mapping[str, object]] = [HELLO]
        runs = set[str]()
        for _ in range(31):
            came = (await post(at, {**body, "messages": messages})).json()
            runs.add(came["id"].rpartition("_")[0])
            if came["stop_reason"] == "end_turn":
                break
            messages += [{"role": "assistant", "content": came["content"]}, {"role": "user", "content": [
                result(each["id"]) for each in came["content"] if each["type"] == "tool_use"
            ]}]  # fmt: skip
        assert came["content"][0]["text"] == "all 30 are read"
        assert len(runs) == 2
