"""The in-repo chat server speaks the protocol that the openai SDK understands, and keeps honest books."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionContentPartImageParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionToolParam,
)

from shikisha.core.errors import ConfigError
from shikisha.testing import (
    AnswerScript,
    ChargeLedger,
    ReceivedChatRequest,
    ScriptedAnswer,
    ScriptedToolCall,
    chat_server,
)


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=5) as client:
        yield client


async def _whole(client: AsyncOpenAI, text: str, key: str = "") -> ChatCompletion:
    return await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], extra_headers={"Idempotency-Key": key} if key else None
    )


async def _chunks(client: AsyncOpenAI, text: str) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], stream=True, stream_options={"include_usage": True}
    )
    return [chunk async for chunk in stream]


async def test_a_whole_answer_has_text_finish_reason_and_usage() -> None:
    async with chat_server([ScriptedAnswer(text="four words of text", cost=0.25)]) as url, _client(url) as client:
        reply = await _whole(client, "say four words")
    assert reply.choices[0].message.content == "four words of text"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (4, 5)
    assert reply.usage.model_extra == {"cost": 0.25}


async def test_a_stream_adds_up_to_the_answer_and_ends_with_one_usage_chunk() -> None:
    text = "  indented, then\nlines  \n"
    async with chat_server([ScriptedAnswer(text=text)]) as url, _client(url) as client:
        chunks = await _chunks(client, "go")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert {(chunk.id, chunk.model) for chunk in chunks} == {("chatcmpl-0", "m")}
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []


async def test_the_first_answer_that_fits_and_is_not_used_up_is_given() -> None:
    script = [ScriptedAnswer(when="sum", text="5"), ScriptedAnswer(text="once", times=1), ScriptedAnswer(text="then")]
    async with chat_server(script) as url, _client(url) as client:
        replies = [await _whole(client, text) for text in ("hello", "a sum", "hello")]
    assert [reply.choices[0].message.content for reply in replies] == ["once", "5", "then"]


async def test_a_request_that_no_answer_fits_is_refused() -> None:
    async with chat_server([ScriptedAnswer(when="x")]) as url, _client(url) as client:
        with pytest.raises(BadRequestError, match="no scripted answer"):
            await _whole(client, "something else")


async def test_a_function_can_choose_the_answer() -> None:
    def shout(asked: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text=asked.last.upper())

    async with chat_server(shout) as url, _client(url) as client:
        assert (await _whole(client, "hey")).choices[0].message.content == "HEY"


async def test_the_same_key_is_answered_again_and_charged_once() -> None:
    ledger = ChargeLedger()
    async with (
        chat_server([ScriptedAnswer(text="first", times=1), ScriptedAnswer(text="second")], ledger=ledger) as url,
        _client(url) as client,
    ):
        replies = [await _whole(client, "go", key="k-1") for _ in range(3)]
    assert [reply.choices[0].message.content for reply in replies] == ["first"] * 3
    assert (ledger.requests["k-1"], ledger.charges["k-1"]) == (3, 1)


async def test_books_in_a_file_outlive_the_server(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for text in ("before the restart", "after"):
        async with chat_server([ScriptedAnswer(text=text)], ledger=ChargeLedger(path)) as url, _client(url) as client:
            reply = await _whole(client, "go", key="k-1")
            assert reply.choices[0].message.content == "before the restart"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(entry["key"], entry["charged"]) for entry in entries] == [("k-1", True), ("k-1", False)]


async def test_models_are_listed() -> None:
    async with chat_server([]) as url, _client(url) as client:
        assert [model.id async for model in client.models.list()] == ["scripted"]


async def test_requests_are_answered_side_by_side() -> None:
    async with chat_server([ScriptedAnswer(latency=0.2)]) as url, _client(url) as client, asyncio.timeout(2):
        replies = await asyncio.gather(*(_whole(client, "go") for _ in range(20)))
    assert len(replies) == 20


def test_a_script_file_with_an_unknown_key_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('[{"txt": "typo"}]')
    with pytest.raises(ConfigError, match=r"script\.json"):
        AnswerScript.load(path)


def test_it_runs_as_a_process_of_its_own_and_stops_when_told(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "from a file"}]')
    command = [sys.executable, "-m", "shikisha.testing", "--script", str(script), "--ledger", str(tmp_path / "l")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        asyncio.run(_ask_once(url))
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    assert len((tmp_path / "l").read_text().splitlines()) == 1


async def _ask_once(url: str) -> None:
    async with _client(url) as client:
        assert (await _whole(client, "go")).choices[0].message.content == "from a file"


TOOL: ChatCompletionToolParam = {"type": "function", "function": {"name": "weather"}}
CALLED = ScriptedAnswer(
    calls=(ScriptedToolCall(name="weather", arguments={"city": "Kyoto"}), ScriptedToolCall(name="weather", id="mine"))
)


async def test_calls_of_tools_come_whole_with_ids_and_a_finish_reason_of_their_own() -> None:
    async with chat_server([CALLED]) as url, _client(url) as client:
        reply = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "wet?"}], tools=[TOOL]
        )
    (choice,) = reply.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "")
    calls = [call for call in choice.message.tool_calls or () if call.type == "function"]
    assert [(call.id, call.function.arguments) for call in calls] == [("call_1_0", '{"city": "Kyoto"}'), ("mine", "{}")]


async def test_streamed_calls_of_tools_come_in_pieces_of_one_index() -> None:
    async with chat_server([CALLED]) as url, _client(url) as client:
        chunks = await _chunks(client, "wet?")
    pieces = [call for chunk in chunks for each in chunk.choices for call in each.delta.tool_calls or ()]
    assert [piece.index for piece in pieces] == [0, 0, 0, 0, 1, 1]
    assert [(piece.id, piece.type) for piece in pieces if piece.id] == [("call_1_0", "function"), ("mine", "function")]
    texts = [piece.function.arguments or "" for piece in pieces if piece.function and piece.index == 0]
    assert "".join(texts) == '{"city": "Kyoto"}'
    finish = [each.finish_reason for chunk in chunks for each in chunk.choices if each.finish_reason]
    assert finish == ["tool_calls"]


async def test_what_was_asked_shows_tools_form_parts_and_calls() -> None:
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return ScriptedAnswer()

    call: ChatCompletionMessageFunctionToolCallParam = {
        "id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}
    }  # fmt: skip
    image: ChatCompletionContentPartImageParam = {
        "type": "image_url",
        "image_url": {"url": "https://example.org/a.png"},
    }
    async with chat_server(choose) as url, _client(url) as client:
        await client.chat.completions.create(
            model="m",
            messages=[
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "See"}, image],
                },
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "rain"},
            ],
            tools=[TOOL],
            response_format={"type": "json_object"},
        )
    (asked,) = seen
    assert asked.messages == (("user", "See"), ("assistant", ""), ("tool", "rain"))
    assert (asked.tools, asked.parts, asked.calls) == (("weather",), (image,), (call,))
    assert asked.response_format == {"type": "json_object"}


async def test_a_known_key_gets_the_same_calls_again() -> None:
    books = ChargeLedger()
    script = [CALLED.model_copy(update={"times": 1}), ScriptedAnswer()]
    async with chat_server(script, ledger=books) as url, _client(url) as client:
        first, again = await _whole(client, "wet?", "k"), await _whole(client, "wet?", "k")
    assert first.choices[0].message.tool_calls == again.choices[0].message.tool_calls
    assert books.charges == {"k": 1}


async def test_answers_fit_conversations_by_the_results_of_tools_that_they_hold() -> None:
    call = ScriptedToolCall(name="look", id="a")
    script = [ScriptedAnswer(calls=(call,), results=0), ScriptedAnswer(text="seen", results=1)]
    asked = {"role": "user", "content": "hi"}
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    made = {"role": "assistant", "content": None, "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    async with chat_server(script) as url, aiohttp.ClientSession() as client:

        async def post(*messages: object) -> tuple[int, str]:
            async with client.post(f"{url}/chat/completions", json={"model": "m", "messages": messages}) as reply:
                return reply.status, await reply.text()

        assert (await post(asked))[0] == 200
        assert "seen" in (await post(asked, made, result))[1]
        for wrong, message in (
            ((asked, made), "have no results"),
            ((asked, made, asked), "have no results"),
            ((asked, result), "there is no open call"),
            ((asked, {**made, "tool_calls": calls * 2}, result), "two calls have one id"),
        ):
            status, text = await post(*wrong)
            assert (status, message in text) == (400, True)
