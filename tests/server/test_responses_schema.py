"""What a response request may hold, and what task it becomes; everything else is refused by its name."""

import json
from collections.abc import Mapping

import pytest

from shikisha.core.messages import REQUIRED_TOOL, ChatMessage, Speaker
from shikisha.core.task import Task
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import validate_as
from shikisha.server.responses.input_conversation import task_from_response, trailing_results
from shikisha.server.responses.schema import ResponseRequest

CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "4"}
ASKED = {"role": "user", "content": "Where is it?"}
PNG = "data:image/png;base64,aGVsbG8="


def asked(**body: object) -> ResponseRequest:
    return validate_as({"model": "m", "input": "hello", **body}, ResponseRequest)


def task(*items: Mapping[str, object], **body: object) -> Task:
    return task_from_response(asked(input=list(items), **body))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"conversation": "c"}, "conversation"),  # as with server.unknown = "refuse"
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"truncation": "cut"}, "truncation"),
        ({"include": [3]}, "include[0]"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [ASKED] * 5000}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "computer_call", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].image_url",
        ),
        ({"input": [CALL | {"arguments": {}}]}, "input[0].arguments"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(body: Mapping[str, object], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(**body)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([{"role": "assistant", "content": "so"}], "input"),
        ([{"role": "system", "content": "so"}], "input"),
        ([OUTPUT], "input[0].call_id"),
        ([ASKED, CALL], "input"),
        ([ASKED, CALL, ASKED], "input[2]"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x"}]}],
            "input[0].content[0].image_url",
        ),
        ([{"role": "system", "content": [{"type": "input_image", "image_url": PNG}]}, ASKED], "input[0]"),
    ],
)
def test_a_conversation_in_which_nobody_can_answer_is_refused(items: list[Mapping[str, object]], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        task(*items)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_the_last_user_message_is_the_task_and_the_rest_its_history() -> None:
    made = task(
        {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, ASKED, instructions="Be brief."
    )
    assert made.prompt == "Where is it?"
    assert made.history == (
        ChatMessage(Speaker.SYSTEM, "Be brief."),
        ChatMessage(Speaker.USER, "one"),
        ChatMessage(Speaker.ASSISTANT, "two"),
    )


def test_calls_that_were_made_since_are_exchanges() -> None:
    other = {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"}
    said = {"role": "assistant", "content": "Let me look."}
    made = task(
        ASKED, said, CALL, other, OUTPUT, {**OUTPUT, "call_id": "c2", "output": [{"type": "input_text", "text": "5"}]}
    )
    (exchange,) = made.exchanges
    assert exchange.text == "Let me look."
    assert [result.content for result in exchange.results] == ["4", "5"]


def test_reasoning_and_old_requests_for_approval_are_taken_and_left_out() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
    request = {"type": "mcp_approval_request", "id": "a", "arguments": "{}", "name": "n", "server_label": "s"}
    assert task(reasoning, request, ASKED) == task(ASKED)


def test_images_and_files_are_attached() -> None:
    parts = [
        {"type": "input_image", "image_url": PNG, "detail": "low"},
        {"type": "input_file", "file_data": "data:text/plain;base64,aGVsbG8=", "filename": "a.txt"},
    ]
    made = task({"role": "user", "content": parts})
    assert [(each.kind, each.media_type) for each in made.attachments] == [
        ("image", "image/png"),
        ("file", "text/plain"),
    ]


def test_what_is_set_is_set_for_the_task() -> None:
    made = task(
        ASKED,
        tools=[{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}],
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        reasoning={"effort": "minimal", "summary": "auto"},
        temperature=1,
        max_output_tokens=9,
    )
    assert made.options == {
        "temperature": 1.0,
        "max_completion_tokens": 9,
        "reasoning_effort": "minimal",
        "verbosity": "low",
    }
    assert made.answer_schema == {"type": "object"}
    assert made.tool_names == ("look",)
    assert made.parallel_tool_calls is False


def test_tools_are_not_shown_where_none_are_to_be_chosen() -> None:
    tools = [{"type": "function", "name": "look"}]
    assert task(ASKED, tools=tools, tool_choice="none").tools == ()


@pytest.mark.parametrize(
    ("given", "choice", "names"),
    [
        ("required", REQUIRED_TOOL, ("look", "go")),
        ({"type": "function", "name": "go"}, "tool:go", ("look", "go")),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "go"}]}, "", ("go",)),
    ],
)
def test_a_tool_choice_reaches_the_task(given: object, choice: str, names: tuple[str, ...]) -> None:
    made = task(
        ASKED, tools=[{"type": "function", "name": "look"}, {"type": "function", "name": "go"}], tool_choice=given
    )
    assert (made.tool_choice, made.tool_names) == (choice, names)


def test_a_tool_choice_that_names_no_tool_is_refused() -> None:
    with pytest.raises(ApiError, match="none of the tools: look"):
        task(ASKED, tools=[{"type": "function", "name": "look"}], tool_choice={"type": "function", "name": "go"})


def test_outputs_at_the_end_are_results_of_whoever_waits_for_them() -> None:
    assert trailing_results(asked(input=[ASKED, CALL]).items) is None
    found = trailing_results(asked(input=[ASKED, CALL, OUTPUT]).items)
    assert found is not None
    assert [(result.tool_call_id, result.content) for result in found.results] == [("c1", "4")]


def test_a_request_is_kept_as_it_came() -> None:
    body = {"model": "m", "input": [ASKED], "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}
    kept = asked(**body).model_dump_json(exclude_unset=True, by_alias=True)
    assert json.loads(kept) == body
    assert ResponseRequest.model_validate_json(kept) == asked(**body)
