"""Chat completions over HTTP: the openai SDK, endpoints of workers on loopback, and the whole server between."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from serving import At, served

from shikisha.core.events import RunStatus
from shikisha.server.keys.key import KeyScope
from shikisha.testing import AnswerChooser, InjectedFault, ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha.testing.chat_script import ScriptedToolCall

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

ADD = cast(
    "ChatCompletionToolParam", {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
)
HELLO = cast("ChatCompletionMessageParam", {"role": "user", "content": "hello"})
FILE = """
conductor = "one"
[workers.first]
kind = "chat"
model = "m1"
base_url = "{url}"
price = {{input = 1.0, output = 2.0}}
tools = true
{more}
[workers.second]
kind = "chat"
model = "m2"
base_url = "{url}"
price = {{input = 2.0, output = 4.0}}
[conductors.one]
kind = "fixed"
topology = "single"
roles = {{worker = "first"}}
[conductors.two]
kind = "fixed"
topology = "chain"
workers = ["first", "second"]
[server]
approval_wait = 0.3
{end}
"""


@asynccontextmanager
async def serving(
    folder: Path, answers: Sequence[ScriptedAnswer] | AnswerChooser, more: str = "", end: str = ""
) -> AsyncIterator[tuple[At, AsyncOpenAI]]:
    async with (
        chat_server(answers) as url,
        served(folder, FILE.format(url=url, more=more, end=end.replace("{url}", url))) as at,
        at.openai() as client,
    ):
        yield at, client


def by_model(asked: ReceivedChatRequest) -> ScriptedAnswer:
    return ScriptedAnswer(text=f"{asked.model} says so")


async def streamed(client: AsyncOpenAI, **more: object) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(  # type: ignore[call-overload]  # further keywords as they are
        **{"model": "shikisha", "messages": [HELLO], "stream": True, **more}
    )
    return [chunk async for chunk in stream]


async def test_a_whole_answer_has_its_run_its_cost_and_what_orchestration_used(tmp_path: Path) -> None:
    async with serving(tmp_path, by_model) as (at, client):
        raw = await client.chat.completions.with_raw_response.create(model="shikisha/two", messages=[HELLO])
        said = raw.parse()
        assert said.choices[0].message.content == "m2 says so"
        assert said.id == f"chatcmpl-{raw.headers['x-shikisha-run-id']}"
        usage = json.loads(raw.text)["usage"]
        orchestration = usage["prompt_tokens_details"]["orchestration_input_tokens"]
        orchestration += usage["completion_tokens_details"]["orchestration_output_tokens"]
        assert orchestration > 0
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] + orchestration
        assert float(raw.headers["x-shikisha-cost"]) == pytest.approx(usage["cost"])
        assert at.service is not None
        run = await at.service.read_run(raw.headers["x-shikisha-run-id"])
        assert usage["cost"] == pytest.approx(run.charged.dollars)
        assert usage["total_tokens"] == run.charged.tokens


async def test_a_stream_has_one_role_its_words_one_end_and_one_usage(tmp_path: Path) -> None:
    async with serving(tmp_path, [ScriptedAnswer(text="so it is")]) as (_, client):
        chunks = await streamed(client, stream_options={"include_usage": True})
        assert {(chunk.id, chunk.model) for chunk in chunks} == {(chunks[0].id, "shikisha")}
        assert [chunk.choices[0].delta.content for chunk in chunks[:-1]] == ["", "so", " it", " is", None]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * 4 + ["stop"]
        assert (chunks[-1].choices, chunks[-1].usage is not None) == ([], True)
        assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_the_bytes_of_a_stream_are_events_up_to_the_end_marker(tmp_path: Path) -> None:
    async with serving(tmp_path, [ScriptedAnswer(text="so")]) as (at, _), at.http() as http:
        body = {"model": "shikisha", "messages": [HELLO], "stream": True}
        answer = await http.post("/v1/chat/completions", json=body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.text.strip().split("\n\n")
        assert events[-1] == "data: [DONE]"
        assert [json.loads(event.removeprefix("data: "))["object"] for event in events[:-1]] == [
            "chat.completion.chunk"
        ] * 3


async def test_who_did_what_is_told_on_request(tmp_path: Path) -> None:
    async with serving(tmp_path, by_model) as (_, client):
        headers = {"X-Shikisha-Metadata": "full", "X-Shikisha-Progress": "reasoning"}
        said = await client.chat.completions.create(model="shikisha/two", messages=[HELLO], extra_headers=headers)
        told = said.to_dict()["shikisha"]
        assert isinstance(told, dict)
        steps = told["steps"]
        assert [(step["worker"], step["model"], step["access"]) for step in steps] == [
            ("first", "m1", []),
            ("second", "m2", [0]),
        ]
        assert [step["answer"] for step in steps] == ["m1 says so", "m2 says so"]
        assert all(step["cost"] > 0 and step["milliseconds"] > 0 for step in steps)
        assert "step 1 of 2: first" in str(said.choices[0].message.to_dict()["reasoning_content"])


async def test_a_substitution_is_never_hidden(tmp_path: Path) -> None:
    def answer(asked: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(mishap=InjectedFault.UNAUTHORIZED) if asked.model == "m1" else by_model(asked)

    async with serving(tmp_path, answer, more='fallback = "second"') as (_, client):
        said = await client.chat.completions.create(
            model="shikisha", messages=[HELLO], extra_headers={"X-Shikisha-Metadata": "summary"}
        )
        told = cast("Mapping[str, list[dict[str, object]]]", said.to_dict()["shikisha"])
        step = told["steps"][0]
        assert (step["planned_worker"], step["worker"], step["substituted"]) == ("first", "second", True)
        attempts = cast("list[dict[str, object]]", step["attempts"])
        assert [(each["worker"], each["fault"], each["reason"]) for each in attempts] == [
            ("first", "auth", "first"),
            ("second", None, "fallback"),
        ]
        assert "answer" not in step


async def called(client: AsyncOpenAI, *messages: "ChatCompletionMessageParam") -> ChatCompletion:
    return await client.chat.completions.create(model="shikisha", messages=list(messages), tools=[ADD])


def adding(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """A model that asks for an addition, and tells what it came to."""
    if asked.messages[-1][0] == "tool":
        return ScriptedAnswer(text=f"the sum is {asked.last}")
    return ScriptedAnswer(calls=(ScriptedToolCall(name="add", arguments={"a": 1, "b": 2}),))


def result_of(said: ChatCompletion, content: str = "3") -> "list[ChatCompletionMessageParam]":
    message = said.choices[0].message
    calls = message.tool_calls or []
    results = [{"role": "tool", "tool_call_id": call.id, "content": content} for call in calls]
    return cast("list[ChatCompletionMessageParam]", [message.to_dict(), *results])


async def test_a_run_waits_for_the_client_s_tools_and_goes_on_with_their_results(tmp_path: Path) -> None:
    async with serving(tmp_path, adding) as (at, client):
        asked = await called(client, HELLO)
        call = (asked.choices[0].message.tool_calls or [])[0]
        assert asked.choices[0].finish_reason == "tool_calls"
        assert len(call.id) <= 40
        said = await called(client, HELLO, *result_of(asked))
        assert said.choices[0].message.content == "the sum is 3"
        assert said.id == asked.id
        assert at.service is not None
        run = await at.service.read_run(asked.id.removeprefix("chatcmpl-"))
        billed = [each.usage.total_tokens for each in (asked, said) if each.usage]
        assert sum(billed) == run.charged.tokens


THIRD = """
[workers.third]
kind = "chat"
model = "m3"
base_url = "{url}"
price = {input = 1.0, output = 2.0}
tools = true
[conductors.three]
kind = "fixed"
topology = "chain"
workers = ["first", "third"]
"""


async def test_a_forced_call_reaches_the_last_worker_and_the_next_one_is_as_the_client_says_then(
    tmp_path: Path,
) -> None:
    seen: list[object] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked.body.get("tool_choice"))
        return adding(asked) if asked.tools else ScriptedAnswer(text="a plan")

    async with serving(tmp_path, choose, end=THIRD) as (_, client):
        named = {"type": "function", "function": {"name": "add"}}
        asked = await client.chat.completions.create(
            model="shikisha", messages=[HELLO], tools=[ADD], extra_body={"tool_choice": named}
        )
        assert asked.choices[0].finish_reason == "tool_calls"
        said = await called(client, HELLO, *result_of(asked))
        assert said.choices[0].message.content == "the sum is 3"
        forced = await client.chat.completions.create(
            model="shikisha/three", messages=[HELLO], tools=[ADD], tool_choice="required"
        )
        assert forced.choices[0].finish_reason == "tool_calls"
        assert seen == [named, None, None, "required"]  # a chain's first worker has neither tools nor choice


async def test_a_worker_that_ignores_a_forced_call_is_followed_by_its_fallback(tmp_path: Path) -> None:
    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text="no") if asked.model == "m1" else adding(asked)

    async with serving(tmp_path, choose, 'fallback = "third"', THIRD) as (_, client):
        said = await client.chat.completions.create(
            model="shikisha", messages=[HELLO], tools=[ADD], tool_choice="required"
        )
        assert said.choices[0].finish_reason == "tool_calls"
    (tmp_path / "alone").mkdir()
    async with serving(tmp_path / "alone", choose) as (_, client):
        with pytest.raises(APIStatusError, match="requires one") as caught:
            await client.chat.completions.create(
                model="shikisha", messages=[HELLO], tools=[ADD], tool_choice="required"
            )
        assert (caught.value.status_code, caught.value.code) == (502, "refused")


MUL = cast(
    "ChatCompletionToolParam",
    {
        "type": "function",
        "function": {
            "name": "mul",
            "description": "multiplies",
            "parameters": {
                "type": "object",
                "properties": {"by": {"$ref": "#/$defs/factor"}},
                "$defs": {"factor": {"type": "integer"}},
            },
        },
    },
)
NAMED = {"type": "function", "function": {"name": "mul"}}
CALL = {"name": "mul", "arguments": {"by": 3}}
WITHOUT_TOOLS = FILE.replace("tools = true\n", "structured_output = true\n")


def _reply(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """The forced call as JSON, and an answer in words once no form is asked for."""
    if "response_format" not in asked.body:
        return ScriptedAnswer(text=f"from {asked.last}")
    several = '"anyOf"' in json.dumps(asked.body["response_format"])
    return ScriptedAnswer(text=json.dumps({"call": CALL} if several else CALL["arguments"]))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("tools", "choice"), [([MUL], NAMED), ([MUL], "required"), ([ADD, MUL], "required")])
async def test_an_endpoint_without_tools_is_asked_for_a_forced_call_by_schema(
    tmp_path: Path, stream: bool, tools: "list[ChatCompletionToolParam]", choice: object
) -> None:
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return _reply(asked)

    more = {"messages": [HELLO], "tools": tools, "extra_body": {"tool_choice": choice}}
    async with (
        chat_server(choose) as url,
        served(tmp_path, WITHOUT_TOOLS.format(url=url, more="", end="")) as at,
        at.openai() as client,
    ):
        if stream:
            chunks = await streamed(client, **more)
            calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
            assert [(call.function.name, call.function.arguments) for call in calls if call.function] == [
                ("mul", '{"by":3}')
            ]
            assert not [chunk for chunk in chunks if chunk.choices[0].delta.content]
            assert chunks[-1].choices[0].finish_reason == "tool_calls"
        else:
            asked: ChatCompletion = await client.chat.completions.create(model="shikisha", **more)  # type: ignore[call-overload]  # as it is
            (call,) = asked.choices[0].message.tool_calls or []
            assert call.type == "function"
            assert (call.function.name, json.loads(call.function.arguments)) == ("mul", {"by": 3})
            assert (asked.choices[0].message.content, asked.choices[0].finish_reason) == (None, "tool_calls")
            said = await client.chat.completions.create(
                model="shikisha",
                messages=[HELLO, *result_of(asked)],
                tools=tools,
                extra_body={"tool_choice": choice} if len(tools) > 1 else {"tool_choice": "none"},
            )
            again = len(tools) > 1
            assert said.choices[0].finish_reason == ("tool_calls" if again else "stop")
            assert again or "What mul came to" in (said.choices[0].message.content or "")
            ids = [each.id for one in (asked, said) for each in one.choices[0].message.tool_calls or ()]
            assert len(set(ids)) == len(ids)
    body = seen[0].body
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()
    assert "multiplies" in seen[0].last
    schema = cast("dict[str, dict[str, dict[str, object]]]", body["response_format"])["json_schema"]["schema"]
    assert schema["type"] == "object"
    if len(tools) == 1:
        assert schema["properties"] == {"by": {"$ref": "#/$defs/factor"}}
    else:
        moved = cast("dict[str, dict[str, object]]", schema["$defs"])["1"]
        assert moved["properties"] == {"by": {"$ref": "#/$defs/1/$defs/factor"}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("I would multiply.", "requires one"),
        ('{"call": {"name": "div", "arguments": {}}}', "none of add, mul"),
    ],
)
async def test_a_forced_call_by_schema_that_is_none_is_a_fault(tmp_path: Path, text: str, why: str) -> None:
    async with (
        chat_server(lambda _: ScriptedAnswer(text=text)) as url,
        served(tmp_path, WITHOUT_TOOLS.format(url=url, more="attempts = 1", end="")) as at,
        at.openai() as client,
    ):
        with pytest.raises(APIStatusError, match=why) as caught:
            await client.chat.completions.create(
                model="shikisha", messages=[HELLO], tools=[ADD, MUL], tool_choice="required"
            )
        assert caught.value.status_code == 502


async def test_a_forced_call_by_schema_that_runs_into_the_clients_limit_says_so(tmp_path: Path) -> None:
    cut = ScriptedAnswer(text='{"by": 3}', mishap=InjectedFault.LENGTH)
    async with (
        chat_server(lambda _: cut) as url,
        served(tmp_path, WITHOUT_TOOLS.format(url=url, more="attempts = 1", end="")) as at,
        at.openai() as client,
    ):
        said = await client.chat.completions.create(
            model="shikisha", messages=[HELLO], tools=[MUL], tool_choice="required", max_tokens=50
        )
        assert (said.choices[0].finish_reason, said.choices[0].message.tool_calls) == ("length", None)


@pytest.mark.parametrize(
    ("able", "choice"), [("structured_output = true", "auto"), ("structured_output = false", "required")]
)
async def test_a_call_that_is_not_forced_or_cannot_be_held_to_a_schema_is_a_400(
    tmp_path: Path, able: str, choice: str
) -> None:
    file = WITHOUT_TOOLS.replace("structured_output = true", able)
    async with (
        chat_server(_reply) as url,
        served(tmp_path, file.format(url=url, more="", end="")) as at,
        at.openai() as client,
    ):
        with pytest.raises(APIStatusError) as caught:
            await client.chat.completions.create(  # type: ignore[call-overload]  # a choice by name
                model="shikisha", messages=[HELLO], tools=[MUL], tool_choice=choice
            )
        assert (caught.value.status_code, caught.value.code) == (400, "unsupported_tools")


async def test_calls_are_streamed_as_indexed_deltas(tmp_path: Path) -> None:
    async with serving(tmp_path, adding) as (_, client):
        chunks = await streamed(client, tools=[ADD])
        deltas = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
        assert [(delta.index, delta.function and delta.function.name) for delta in deltas] == [(0, "add")]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_results_for_other_calls_are_refused_and_the_run_waits_on(tmp_path: Path) -> None:
    async with serving(tmp_path, adding) as (at, client):
        asked = await called(client, HELLO)
        other = json.loads(json.dumps(result_of(asked)).replace('_0"', '_7"'))
        with pytest.raises(APIStatusError) as caught:
            await called(client, HELLO, *other)
        assert (caught.value.status_code, caught.value.code) == (400, "wrong_tool_calls")
        assert at.service is not None
        assert (await at.service.read_run(asked.id.removeprefix("chatcmpl-"))).status is RunStatus.SUSPENDED


async def test_a_conversation_that_no_run_waits_for_begins_one_with_it_as_history(tmp_path: Path) -> None:
    async with serving(tmp_path, adding) as (at, client):
        asked = await called(client, HELLO)
        stranger = await at.issue(KeyScope.RUN)
        async with at.openai(stranger.secret) as theirs:
            said = await called(theirs, HELLO, *result_of(asked, "4"))
        assert said.choices[0].message.content == "the sum is 4"
        assert said.id != asked.id
        first = await called(client, HELLO, *result_of(asked))
        again = await called(client, HELLO, *result_of(asked))
        assert (first.id, again.id != asked.id) == (asked.id, True)
        assert again.choices[0].message.content == "the sum is 3"


async def test_results_for_a_run_that_was_cancelled_begin_another(tmp_path: Path) -> None:
    async with serving(tmp_path, adding) as (at, client):
        asked = await called(client, HELLO)
        name = asked.id.removeprefix("chatcmpl-")
        assert at.service is not None
        await at.service.cancel(name)
        said = await called(client, HELLO, *result_of(asked))
        assert (said.id != asked.id, said.choices[0].message.content) == (True, "the sum is 3")
        assert (await at.service.read_run(name)).status is RunStatus.INTERRUPTED


async def test_how_it_goes_is_streamed_as_reasoning_where_that_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path, by_model) as (_, client):
        headers = {"X-Shikisha-Progress": "reasoning", "X-Shikisha-Metadata": "summary"}
        chunks = await streamed(client, model="shikisha/two", extra_headers=headers)
        deltas = [chunk.choices[0].delta.to_dict() for chunk in chunks]
        lines = "".join(str(delta.get("reasoning_content", "")) for delta in deltas).splitlines()
        assert lines[:2] == ["round 1: 2 steps (first, second)", "step 1 of 2: first …"]
        assert "".join(str(delta.get("content") or "") for delta in deltas) == "m2 says so"
        assert [chunk.to_dict().get("shikisha") is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_a_failed_run_is_an_error_that_no_client_repeats_by_itself(tmp_path: Path) -> None:
    async with serving(tmp_path, [ScriptedAnswer(mishap=InjectedFault.BAD_REQUEST)]) as (_, client):
        with pytest.raises(APIStatusError) as caught:
            await client.chat.completions.create(model="shikisha", messages=[HELLO])
        assert (caught.value.status_code, caught.value.code) == (502, "run_failed")
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert caught.value.response.headers["x-shikisha-run-id"] in caught.value.message


async def test_what_fails_in_a_stream_is_told_in_it(tmp_path: Path) -> None:
    async with serving(tmp_path, [ScriptedAnswer(mishap=InjectedFault.BAD_REQUEST)]) as (at, client):
        with pytest.raises(APIError, match="last step failed"):
            await streamed(client)
        async with at.http() as http:
            body = {"model": "shikisha", "messages": [HELLO], "stream": True}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
            assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("header", "value", "status", "code"),
    [("Budget-Dollars", "0", 402, "budget_exceeded"), ("Budget-Tokens", "1", 402, "budget_exceeded")],
)
async def test_a_cap_that_refuses_the_first_call_is_told_and_nothing_is_charged(
    tmp_path: Path, header: str, value: str, status: int, code: str
) -> None:
    async with serving(tmp_path, by_model) as (_, client):
        with pytest.raises(APIStatusError) as caught:
            await client.chat.completions.create(
                model="shikisha", messages=[HELLO], extra_headers={f"X-Shikisha-{header}": value}
            )
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert caught.value.response.headers["x-shikisha-cost"] == "0"


async def test_an_answer_that_runs_into_its_limit_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, [ScriptedAnswer(text="so it is", mishap=InjectedFault.LENGTH)]) as (_, client):
        said = await client.chat.completions.create(model="shikisha", messages=[HELLO], max_completion_tokens=2)
        assert (said.choices[0].message.content, said.choices[0].finish_reason) == ("so i", "length")
        chunks = await streamed(client)
        assert chunks[-1].choices[0].finish_reason == "length"


async def test_a_run_that_waits_for_a_person_is_given_up_by_the_client_s_deadline(tmp_path: Path) -> None:
    async with serving(tmp_path, by_model, more='approval = "always"') as (at, client):
        with pytest.raises(APIStatusError) as caught:
            await client.chat.completions.create(model="shikisha", messages=[HELLO])
        assert (caught.value.status_code, caught.value.code) == (409, "approval_required")
        assert "/ui/approvals" in caught.value.message
        assert at.service is not None
        run = await at.service.read_run(caught.value.response.headers["x-shikisha-run-id"])
        assert run.status is RunStatus.SUSPENDED


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - nobody tells when a run ends that nobody listens to
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_has_its_run_cancelled(tmp_path: Path, *, stream: bool) -> None:
    async with serving(tmp_path, [ScriptedAnswer(latency=30)]) as (at, client):
        making = asyncio.create_task(streamed(client) if stream else called(client, HELLO))
        assert at.service is not None
        running = at.service.running
        await until(lambda: bool(running))
        name = next(iter(running))
        making.cancel()
        await until(lambda: not running)
        assert (await at.service.read_run(name)).status is RunStatus.INTERRUPTED


async def test_the_same_request_twice_is_one_run(tmp_path: Path) -> None:
    async with serving(tmp_path, by_model) as (_, client):
        headers = {"Idempotency-Key": "k1"}
        first = await client.chat.completions.create(model="shikisha", messages=[HELLO], extra_headers=headers)
        chunks = await streamed(client, extra_headers=headers)
        assert {first.id} == {chunk.id for chunk in chunks}
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "m1 says so"
        with pytest.raises(APIStatusError, match="another request") as caught:
            await client.chat.completions.create(model="shikisha/two", messages=[HELLO], extra_headers=headers)
        assert caught.value.status_code == 409


async def test_the_models_are_listed_and_found(tmp_path: Path) -> None:
    async with serving(tmp_path, by_model) as (_, client):
        names = [model.id async for model in client.models.list()]
        assert names[0] == "shikisha"
        assert names[2:] == ["shikisha/one", "shikisha/two", "shikisha-mini"]
        assert (await client.models.retrieve("shikisha/two")).id == "shikisha/two"
        with pytest.raises(APIStatusError, match="known are"):
            await client.chat.completions.create(model="gpt-4o", messages=[HELLO])
        said = await client.chat.completions.create(model=names[1], messages=[HELLO])
        assert (said.model, said.choices[0].message.content) == (names[1], "m1 says so")
