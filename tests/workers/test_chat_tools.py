"""Tools, attachments, forms and sampling options on their way through a chat worker, and calls of tools back."""

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.budget import Price
from shikisha.core.call import NO_CLIENT_OPTIONS, Card, ClientOptions, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import FinishReason
from shikisha.core.messages import (
    NO_TOOL,
    REQUIRED_TOOL,
    Attachment,
    ChatMessage,
    Json,
    MediaKind,
    Speaker,
    ToolCall,
    ToolExchange,
    ToolResult,
    name_tool_choice,
)
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.testing import InjectedFault, ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall, chat_server
from shikisha.workers.chat import ChatSettings, build, fit_card
from shikisha.workers.chat_messages import chat_message
from shikisha.workers.chat_reply import ChatReply, call_id

TOOL: Mapping[str, Json] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CARD = Card("x", price=Price(1.0, 2.0), max_output_tokens=100, tools=True, takes=tuple(MediaKind))
PNG = Attachment(MediaKind.IMAGE, "image/png", "map.png", data="aGVsbG8=")
TASK = Task("What is it like in Kyoto?")


def request(client_options: ClientOptions = NO_CLIENT_OPTIONS) -> Request:
    return Request(TASK, TASK.prompt, client_options=client_options)


async def ask(given: Request, *answers: ScriptedAnswer, **settings: object) -> tuple[Reply, list[ReceivedChatRequest]]:
    """The reply to a request, and what the endpoint was asked."""
    seen: list[ReceivedChatRequest] = []
    rest = iter(answers)

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return next(rest)

    async with chat_server(choose) as url:
        worker = build(ChatSettings.model_validate({"model": "m", "base_url": url, **settings}), CARD, SecretStore({}))
        try:
            return await worker.perform(given), seen
        finally:
            await worker.aclose()


CALLS = (
    ScriptedToolCall(name="weather", arguments={"city": "Kyoto, 京都"}, id="one"),
    ScriptedToolCall(name="weather", arguments={"city": "Nara"}, id="two"),
)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("text", ["", "Let me look."])
async def test_calls_of_tools_come_back_whole(stream: bool, text: str) -> None:
    reply, seen = await ask(
        request(ClientOptions(tools=(TOOL,))), ScriptedAnswer(text=text, calls=CALLS), stream=stream
    )
    assert [(call.id, call.name, json.loads(call.arguments)) for call in reply.calls] == [
        ("one", "weather", {"city": "Kyoto, 京都"}),
        ("two", "weather", {"city": "Nara"}),
    ]
    assert (reply.text, reply.finish) == (text, FinishReason.STOP)
    assert reply.usage.output_tokens > 10
    assert (seen[0].tools, "parallel_tool_calls" in seen[0].body) == (("weather",), False)


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        (REQUIRED_TOOL, "required"),
        (NO_TOOL, "none"),
        (name_tool_choice("weather"), {"type": "function", "function": {"name": "weather"}}),
    ],
)
async def test_a_tool_choice_is_passed_on(choice: str, wire: object) -> None:
    _, seen = await ask(request(ClientOptions(tools=(TOOL,), tool_choice=choice)), ScriptedAnswer(calls=CALLS[:1]))
    assert seen[0].body["tool_choice"] == wire


BAD = {
    "a tool that is not there": (ScriptedToolCall(name="wheather"),),
    "arguments that are no JSON": (ScriptedToolCall(name="weather", arguments='{"city": "Ky'),),
    "arguments that are no object": (ScriptedToolCall(name="weather", arguments="[1]"),),
    "several at once": CALLS,
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("calls", BAD.values(), ids=BAD)
async def test_malformed_calls_are_a_bad_reply_with_its_bill(calls: tuple[ScriptedToolCall, ...], stream: bool) -> None:
    with pytest.raises(WorkerError) as caught:
        await ask(
            request(ClientOptions(tools=(TOOL,), parallel_tool_calls=False)), ScriptedAnswer(calls=calls), stream=stream
        )
    fault = caught.value.fault
    assert fault.kind is FaultKind.BAD_REPLY
    assert fault.tokens is not None
    assert fault.dollars is not None


async def test_a_model_that_was_given_no_tools_must_not_call_any() -> None:
    with pytest.raises(WorkerError, match="it was given none"):
        await ask(request(), ScriptedAnswer(calls=CALLS))


async def test_a_call_without_arguments_has_none() -> None:
    reply, _ = await ask(
        request(ClientOptions(tools=(TOOL,))), ScriptedAnswer(calls=(ScriptedToolCall(name="weather", arguments=""),))
    )
    assert reply.calls[0].arguments == "{}"


@pytest.mark.parametrize("mishap", [InjectedFault.TRUNCATED, InjectedFault.NO_FINISH, InjectedFault.RESET_MIDWAY])
async def test_calls_that_broke_off_are_no_calls(mishap: InjectedFault) -> None:
    with pytest.raises(WorkerError) as caught:
        await ask(request(ClientOptions(tools=(TOOL,))), ScriptedAnswer(calls=CALLS, mishap=mishap))
    assert caught.value.fault.kind in {FaultKind.CUT_OFF, FaultKind.RESET}


async def test_an_exchange_goes_back_in_the_protocols_own_form() -> None:
    done = ToolExchange((ToolCall("one", "weather", "{}"),), (ToolResult("one", "rain"),), "Let me look.")
    given = Request(TASK, TASK.prompt, client_options=ClientOptions((TOOL,)), exchanges=(done,))
    _, seen = await ask(given, ScriptedAnswer())
    known = call_id("one", "")  # the endpoint did not make it
    assert seen[0].body["messages"] == [
        {"role": "user", "content": TASK.prompt},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"id": known, "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": known, "content": "rain"},
    ]


async def test_whoever_is_offered_no_tools_is_told_of_calls_in_words() -> None:
    done = ToolExchange((ToolCall("one", "weather", "{}"),), (ToolResult("one", "rain"),))
    _, seen = await ask(Request(TASK, TASK.prompt, exchanges=(done,)), ScriptedAnswer())
    assert [role for role, _ in seen[0].messages] == ["user", "assistant", "user"]
    assert seen[0].messages[1][1] == "(calls weather: {})"
    assert seen[0].messages[2][1] == "What weather came to:\nrain"
    assert seen[0].calls == ()


PARTS = [
    (PNG, {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}),
    (
        Attachment(MediaKind.IMAGE, url="https://example.org/a.png", detail="low"),
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
    ),
    (
        Attachment(MediaKind.FILE, "application/pdf", "a.pdf", "aGVsbG8="),
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGVsbG8=", "filename": "a.pdf"}},
    ),
    (
        Attachment(MediaKind.AUDIO, "audio/mpeg", data="aGVsbG8="),
        {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "mp3"}},
    ),
]


@pytest.mark.parametrize(("attached", "part"), PARTS)
async def test_an_attachment_is_a_part_of_the_prompts_message(attached: Attachment, part: Mapping[str, Json]) -> None:
    task = Task("What is this?", history=(ChatMessage(Speaker.SYSTEM, "Be brief."),), attachments=(attached,))
    _, seen = await ask(Request(task, task.prompt), ScriptedAnswer())
    assert seen[0].parts == (part,)
    assert seen[0].messages == (("system", "Be brief."), ("user", "What is this?"))


def test_attachments_of_earlier_turns_stay_with_them() -> None:
    said = chat_message(ChatMessage(Speaker.USER, "", attachments=(PNG,)))
    assert said == {"role": "user", "content": [PARTS[0][1]]}


async def test_the_clients_options_go_before_the_workers() -> None:
    options: dict[str, Json] = {
        "temperature": 0.0,
        "stop": ["END"],
        "max_completion_tokens": 7,
        "verbosity": "low",
        "reasoning_effort": "minimal",
    }
    ours = {"temperature": 1.0, "top_p": 0.5, "extra_body": {"verbosity": "high", "metadata": {"a": "b"}}}
    _, seen = await ask(
        request(ClientOptions(options=options)), ScriptedAnswer(), max_tokens_field="max_tokens", **ours
    )
    found = {name: seen[0].body.get(name) for name in (*options, "max_tokens", "top_p", "metadata")}
    told = {name: value for name, value in options.items() if name != "max_completion_tokens"}
    assert found == told | {"max_completion_tokens": None, "max_tokens": 7, "top_p": 0.5, "metadata": {"a": "b"}}


@pytest.mark.parametrize(("wished", "sent"), [(7, 7), (100, 100), (101, 100)])
async def test_a_clients_limit_only_narrows_the_workers(wished: int, sent: int) -> None:
    _, seen = await ask(request(ClientOptions(options={"max_completion_tokens": wished})), ScriptedAnswer())
    assert seen[0].body["max_completion_tokens"] == sent


@pytest.mark.parametrize(
    ("known", "wished", "sent"),
    [
        (None, "minimal", "minimal"),
        (["low", "medium", "high"], "minimal", "low"),
        (["low", "high"], "xhigh", "high"),
        (["low", "high"], "low", "low"),
        ([], "high", None),
    ],
)
async def test_an_effort_is_taken_to_the_nearest_that_the_model_knows(
    known: list[str] | None, wished: str, sent: str | None
) -> None:
    _, seen = await ask(request(ClientOptions(options={"reasoning_effort": wished})), ScriptedAnswer(), efforts=known)
    assert seen[0].body.get("reasoning_effort") == sent


async def test_an_answer_cut_at_the_clients_own_limit_is_an_answer() -> None:
    reply, _ = await ask(
        request(ClientOptions(options={"max_completion_tokens": 7})),
        ScriptedAnswer(text="abcdefgh", mishap=InjectedFault.LENGTH),
    )
    assert (reply.text, reply.finish) == ("abcd", FinishReason.LENGTH)


async def test_an_answer_cut_at_the_workers_limit_is_none() -> None:
    with pytest.raises(WorkerError) as caught:
        await ask(
            request(ClientOptions(options={"max_completion_tokens": 101})),
            ScriptedAnswer(text="abcdefgh", mishap=InjectedFault.LENGTH),
        )
    assert caught.value.fault.kind is FaultKind.TRUNCATED


async def test_a_schema_is_sent_where_the_endpoint_can_be_held_to_it_and_said_in_words_everywhere() -> None:
    schema: Mapping[str, Json] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    given = Request(TASK, TASK.prompt, schema=schema)
    _, held = await ask(given, ScriptedAnswer(), structured_output=True)
    _, told = await ask(given, ScriptedAnswer())
    form = held[0].response_format
    assert form == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    assert told[0].response_format is None
    assert json.dumps(schema, separators=(",", ":")) in told[0].last


def test_what_the_settings_say_stands_on_the_card() -> None:
    card = fit_card(ChatSettings.model_validate({"model": "m", "tools": True, "takes": ["image", "file"]}), Card("x"))
    assert (card.tools, card.takes) == (True, (MediaKind.IMAGE, MediaKind.FILE))


@given(st.data())
def test_calls_are_put_together_however_they_are_cut(data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text(max_size=12), min_size=1, max_size=3))
    pieces: list[tuple[int, str]] = []
    for index, text in enumerate(texts):
        cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=3)) | {0, len(text)})
        pieces += [(index, text[a:b]) for a, b in pairwise(cuts)] or [(index, "")]
    heard, named = ChatReply(), set[int]()
    for index, piece in pieces:
        function = {"arguments": piece} | ({} if index in named else {"name": f"f{index}"})
        whole = {"index": index, "function": function} | ({} if index in named else {"id": f"c{index}"})
        named.add(index)
        heard.take(json.dumps({"choices": [{"delta": {"tool_calls": [whole]}}]}).encode())
    assert [call.arguments for call in heard.calls] == [text.strip() or "{}" for text in texts]
    assert [(call.id, call.name) for call in heard.calls] == [(f"c{i}", f"f{i}") for i in range(len(texts))]


Piece = tuple[int | None, str | None, str | None, str]  # index, id, name, arguments
QUIRKS: dict[str, list[Piece]] = {
    "no index": [(None, "a", "f", '{"x"'), (None, None, None, ":1}"), (None, "b", "g", "{}")],
    "one index for all": [(0, "a", "f", '{"x"'), (0, None, None, ":1}"), (0, "b", "g", "{}")],
    "a new id for every piece": [(0, "a", "f", '{"x"'), (0, "z", None, ":1}"), (1, "b", "g", ""), (1, "y", None, "{}")],
    "the name in every piece": [(0, "a", "f", '{"x"'), (0, "a", "f", ":1}"), (1, "b", "g", "{}")],
    "indices from 5": [(5, "a", "f", '{"x":1}'), (6, "b", "g", "{}")],
    "pieces that alternate": [(0, "a", "f", '{"x"'), (1, "b", "g", "{"), (0, None, None, ":1}"), (1, None, None, "}")],
}


@pytest.mark.parametrize("pieces", QUIRKS.values(), ids=QUIRKS)
def test_calls_are_told_apart_whatever_an_endpoint_leaves_out(pieces: list[Piece]) -> None:
    heard = ChatReply()
    for index, known, name, arguments in pieces:
        call = {"index": index, "id": known, "function": {"name": name, "arguments": arguments}}
        heard.take(json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}).encode())
    assert heard.calls == (ToolCall("a", "f", '{"x":1}'), ToolCall("b", "g", "{}"))
