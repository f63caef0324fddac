"""What chat requests may hold: every parameter is honoured, ignored for a reason, or refused by name."""

import json
from collections.abc import Mapping
from typing import cast

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase, CompletionCreateParamsStreaming

from shikisha.core.messages import (
    REQUIRED_TOOL,
    ChatMessage,
    MediaKind,
    Speaker,
    ToolCall,
    ToolExchange,
    ToolResult,
)
from shikisha.core.task import Task
from shikisha.server.chat.conversation import ATTACHMENT_ONLY_PROMPT, task_from_chat
from shikisha.server.chat.schema import MAX_MESSAGES, PARAMETERS, ChatRequest, check_supported
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import MAX_JSON_DEPTH, ParameterTreatment, parse_json, request_body_doc, validate_as
from shikisha.server.lifecycle.authorization import Api, check_schemas

PIXEL = "data:image/png;base64,iVBORw0KGgo="
HELLO: Mapping[str, object] = {"role": "user", "content": "hello"}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def read(*messages: Mapping[str, object], **more: object) -> ChatRequest:
    raw = {"model": "shikisha", "messages": list(messages or [HELLO]), **more}
    check_supported(raw)
    return validate_as(parse_json(json.dumps(raw).encode()), ChatRequest)


def refused(*messages: Mapping[str, object], **more: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        task_from_chat(read(*messages, **more))
    assert caught.value.status == 400
    return caught.value


def task(*messages: Mapping[str, object], **more: object) -> Task:
    return task_from_chat(read(*messages, **more))


def test_every_parameter_of_the_sdk_is_in_the_table_and_in_the_model() -> None:
    known = {*CompletionCreateParamsBase.__annotations__, *CompletionCreateParamsStreaming.__annotations__}
    local = {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}  # llama.cpp's, vLLM's, Ollama's
    local |= {"chat_template_kwargs", "enable_thinking", "thinking_budget", "thinking", "reasoning"}
    assert known | local == set(PARAMETERS) == set(ChatRequest.model_fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", True),
        ("top_logprobs", 3),
        ("logit_bias", {"50256": -100}),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("modalities", ["text", "audio"]),
        ("functions", []),
        ("function_call", "auto"),
        ("web_search_options", {}),
        ("moderation", {"model": "m"}),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: object) -> None:
    problem = refused(**{name: value})
    assert problem.param == name
    assert problem.code == "unsupported_value"


def test_every_refused_parameter_may_be_null_or_ask_for_what_happens_anyway() -> None:
    refused_ones = [name for name, (treatment, _) in PARAMETERS.items() if treatment is ParameterTreatment.REFUSED]
    read(**dict.fromkeys(refused_ones))
    read(logprobs=False, store=False, presence_penalty=0, modalities=["text"])


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"reasoning_effort": "maximal"}, "reasoning_effort", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format", "unsupported_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_value"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value"),
        ({"metadata": {"k": 1}}, "metadata.k", "invalid_value"),
    ],
)
def test_a_mistake_names_the_parameter(more: dict[str, object], param: str, code: str) -> None:
    problem = refused(**more)
    assert (problem.param, problem.code) == (param, code)


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([{"role": "assistant", "content": "I spoke last"}], "messages"),
        ([HELLO, {"role": "robot", "content": "x"}], "messages[1]"),
        ([HELLO, {"role": "user", "content": "x", "colour": "red"}], "messages[1].colour"),
        ([HELLO, {"role": "tool", "content": "3", "tool_call_id": "c9"}], "messages[1].tool_call_id"),
        ([HELLO, {"role": "assistant", "tool_calls": [CALL]}], "messages"),
        ([HELLO, {"role": "assistant", "tool_calls": [CALL]}, HELLO], "messages[2]"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/a.png"}}]}], "messages[0]"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
            "messages",
        ),
        ([{"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}]}], "messages[0].content[0].file"),
        ([{"role": "user", "content": [{"type": "video"}]}], "messages[0].content[0]"),
    ],
)
def test_a_message_that_has_no_place_is_named(messages: list[Mapping[str, object]], where: str) -> None:
    assert (refused(*messages).param or "").startswith(where)


def test_ten_thousand_messages_are_refused_in_a_clear_word() -> None:
    assert str(MAX_MESSAGES) in refused(*[HELLO] * 10_000).message


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"a": NaN}', b"\xff", b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300]
)
def test_what_is_no_json_object_of_a_sane_depth_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError, match=r"JSON|nested"):
        parse_json(body)
    parse_json(b'{"a":' * (MAX_JSON_DEPTH - 1) + b"{}" + b"}" * (MAX_JSON_DEPTH - 1))


def test_the_last_question_is_the_prompt_and_what_was_before_is_history() -> None:
    made = task({"role": "developer", "content": "be brief"}, HELLO, {"role": "assistant", "content": "hi"}, HELLO)
    assert made.prompt == "hello"
    assert made.history == (
        ChatMessage(Speaker.SYSTEM, "be brief"),
        ChatMessage(Speaker.USER, "hello"),
        ChatMessage(Speaker.ASSISTANT, "hi"),
    )


def test_instructions_after_the_question_are_not_lost() -> None:
    assert task(HELLO, {"role": "system", "content": "in French"}).history == (
        ChatMessage(Speaker.SYSTEM, "in French"),
    )


def test_results_of_tools_since_the_question_are_exchanges_in_the_order_of_the_calls() -> None:
    other = {**CALL, "id": "c2"}
    came = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("c2", "c1")]
    made = task(HELLO, {"role": "assistant", "content": "let me see", "tool_calls": [CALL, other]}, *came, tools=[ADD])
    calls = (ToolCall("c1", "add", "{}"), ToolCall("c2", "add", "{}"))
    assert made.exchanges == (ToolExchange(calls, (ToolResult("c1", "c1"), ToolResult("c2", "c2")), "let me see"),)
    assert made.tool_names == ("add",)


def test_attachments_stay_on_their_turns() -> None:
    looked = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}]}
    pdf = {"type": "file", "file": {"file_data": "JVBERi0=", "filename": "a.pdf"}}
    made = task(looked, {"role": "assistant", "content": "a dot"}, {"role": "user", "content": [pdf]})
    assert [attached.media_type for attached in made.attachments] == ["application/pdf"]
    assert made.prompt == ATTACHMENT_ONLY_PROMPT
    assert made.history[0].attachments[0].kind is MediaKind.IMAGE


def test_options_and_formats_reach_the_task() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = task(
        temperature=0.5,
        stop="END",
        max_tokens=7,
        seed=3,
        reasoning_effort="minimal",
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    )
    assert made.options == {
        "temperature": 0.5,
        "stop": ["END"],
        "max_completion_tokens": 7,
        "seed": 3,
        "reasoning_effort": "minimal",
    }
    assert made.answer_schema == schema
    assert task(response_format={"type": "text"}).answer_schema is None
    assert task(tools=[ADD], tool_choice="none").tools == ()


MUL = {"type": "function", "function": {"name": "mul"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [MUL]}}


@pytest.mark.parametrize(
    ("given", "choice", "tools"),
    [
        ("auto", "", ("add", "mul")),
        ("required", REQUIRED_TOOL, ("add", "mul")),
        (MUL, "tool:mul", ("add", "mul")),
        (ALLOWED, REQUIRED_TOOL, ("mul",)),
        ("none", "", ()),
    ],
    ids=["auto", "required", "named", "allowed", "none"],
)
def test_a_tool_choice_reaches_the_task(given: object, choice: str, tools: tuple[str, ...]) -> None:
    made = task(tools=[ADD, MUL], tool_choice=given)
    assert (made.tool_choice, made.tool_names) == (choice, tools)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"type": "function", "function": {"name": "div"}}, "tool_choice.function.name"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [ADD | {"function": {"name": "x"}}]}},
         "tool_choice.allowed_tools.tools[0].function.name"),
        ({"type": "web_search"}, "tool_choice"),
        ("any", "tool_choice"),
        ([[]], "tool_choice"),
    ],
)  # fmt: skip
def test_a_tool_choice_that_is_none_is_refused_by_name(given: object, param: str) -> None:
    assert refused(tools=[{"type": "function", "function": {"name": "add"}}], tool_choice=given).param == param


def test_a_call_cannot_be_required_without_tools() -> None:
    assert refused(tool_choice="required").param == "tool_choice"


def test_the_documented_body_stands_by_itself() -> None:
    made = dict(request_body_doc(ChatRequest).items())  # made when it is merged into the document
    assert "$ref" not in json.dumps(made)
    body = cast("dict[str, dict[str, dict[str, dict[str, object]]]]", made["requestBody"])
    assert "messages" in str(body["content"]["application/json"]["schema"])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "colour"}, "colour"),
        ({"$ref": "#/$defs/b", "$defs": {"a": {}}}, "#/$defs/b"),
        ({"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "nothing is fetched"),
    ],
)
async def test_a_schema_that_is_none_is_refused_before_anything_begins(schema: dict[str, object], said: str) -> None:
    made = task(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    with pytest.raises(ApiError) as caught:
        await check_schemas(made, Api.CHAT)
    assert (caught.value.status, caught.value.param) == (400, "response_format.json_schema.schema")
    assert said in caught.value.message


async def test_a_schema_may_refer_to_itself_and_hold_what_only_looks_like_a_reference() -> None:
    schema = {
        "description": "a tree",
        "properties": {"leaves": {"items": {"$ref": "#"}}, "root": {"$ref": "#/$defs/a~1b/allOf/0"}, "$ref": {}},
        "const": {"$ref": "elsewhere"},
        "$defs": {"a/b": {"allOf": [{}]}},
    }
    wanted = {"name": "a", "schema": schema, "description": "not used"}
    made = task(response_format={"type": "json_schema", "json_schema": wanted})
    await check_schemas(made, Api.CHAT)
    assert made.answer_schema == schema
