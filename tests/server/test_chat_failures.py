"""Chat completions where something stands between worker and client: checks, people, limits, lost connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, cast

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI
from serving import At, served, served_process

from shikisha.core.events import QuestionAnswered, RunStatus
from shikisha.server.store import RunFilter
from shikisha.testing import AnswerChooser, InjectedFault, ReceivedChatRequest, ScriptedAnswer, chat_server

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

HELLO = cast("ChatCompletionMessageParam", {"role": "user", "content": "hello"})
FILE = """
conductor = "fixed:single?worker=only"
[workers.only]
kind = "chat"
model = "m1"
base_url = "{url}"
price = {{input = 1.0, output = 2.0}}
{more}
[server]
approval_wait = {patience}
{end}
"""
PIXEL = "data:image/png;base64,iVBORw0KGgo="


@asynccontextmanager
async def serving(
    folder: Path,
    answers: Sequence[ScriptedAnswer] | AnswerChooser,
    more: str = "",
    end: str = "",
    patience: float = 0.3,
) -> AsyncIterator[tuple[At, AsyncOpenAI]]:
    async with (
        chat_server(answers) as url,
        served(folder, FILE.format(url=url, more=more.format(url=url), end=end, patience=patience)) as at,
        at.openai() as client,
    ):
        yield at, client


async def pieces(client: AsyncOpenAI) -> list[str]:
    stream = await client.chat.completions.create(model="shikisha", messages=[HELLO], stream=True)
    return [piece async for chunk in stream if (piece := chunk.choices[0].delta.content)]


async def runs(at: At) -> list[str]:
    assert at.service is not None
    return [served.run for served in (await at.service.store.search(RunFilter())).runs]


async def test_a_schema_holds_for_the_answer_and_for_what_is_streamed_of_it(tmp_path: Path) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    takes = iter(['{"sum": "three"}', '{"sum": 3}'])
    async with serving(tmp_path, lambda _: ScriptedAnswer(text=next(takes))) as (_, client):
        stream = await client.chat.completions.create(
            model="shikisha",
            messages=[HELLO],
            stream=True,
            response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}},
        )
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert json.loads(said) == {"sum": 3}


def described(asked: ReceivedChatRequest) -> ScriptedAnswer:
    return ScriptedAnswer(text=f"{len(asked.parts)} parts")


@pytest.mark.parametrize("earlier", [False, True])
async def test_an_image_reaches_a_worker_that_takes_it(tmp_path: Path, *, earlier: bool) -> None:
    look = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}
    messages = [look, {"role": "assistant", "content": "a dot"}, HELLO] if earlier else [look]
    async with serving(tmp_path, described, more='takes = ["image"]') as (_, client):
        said = await client.chat.completions.create(
            model="shikisha", messages=cast("list[ChatCompletionMessageParam]", messages)
        )
        assert said.choices[0].message.content == "1 parts"


async def test_what_is_refused_begins_nothing(tmp_path: Path) -> None:
    look = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}
    body = {"model": "shikisha", "messages": [HELLO], "stream": True}
    async with serving(tmp_path, described) as (at, _), at.http() as http:
        cases: list[tuple[dict[str, object], str]] = [
            ({"messages": [look]}, "unsupported_content"),
            ({"n": 9}, "invalid_value"),
            ({"model": "gpt-4o"}, "model_not_found"),
            ({"tools": [{"type": "function", "function": {"name": "add"}}]}, "unsupported_tools"),
            ({"messages": [{"role": "user", "content": " "}]}, "invalid_request"),
            ({"messages": [{"role": "user", "content": "\x00"}]}, "invalid_request"),
        ]
        for wrong, code in cases:
            answer = await http.post("/v1/chat/completions", json=body | wrong)
            assert (400 <= answer.status_code < 500, answer.json()["error"]["code"]) == (True, code)
        answer = await http.post("/v1/chat/completions", json=body, headers={"X-Shikisha-Workers": "nobody"})
        assert answer.json()["error"]["code"] == "no_worker"
        assert await runs(at) == []


ADDS = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', 502),
        ('Let me see.\n<tool_call>{"name": "add", "arguments": {}}</tool_call>', 502),
        ('<tool_call>{"name": "other", "arguments": {}}', 502),
        ("<function=add>\n<parameter=a>\n1\n</parameter>\n</function>", 502),
        ('[TOOL_CALLS][{"name": "add", "arguments": {}}]', 502),
        ('<|python_tag|>{"name": "add", "parameters": {"a": 1}}', 502),
        ('{"name": "add", "arguments": {"a": 1}}', 502),
        ('```json\n{"name": "add", "parameters": {"a": 1}}\n```', 502),
        ('[{"type": "function", "function": {"name": "add", "arguments": "{}"}}]', 502),
        ('{"name": "Ann", "arguments": "none"}', 200),
        ('{"name": "add"}', 200),
        ("A call is written between <tool_call> and </tool_call>.", 200),
        ("<tool_call> begins a call.", 200),
    ],
)
async def test_a_call_that_is_written_as_text_is_no_answer(tmp_path: Path, text: str, status: int) -> None:
    body = {"model": "shikisha", "messages": [HELLO]}
    async with (
        serving(tmp_path, lambda _: ScriptedAnswer(text=text), more="tools = true\nattempts = 1") as (at, _),
        at.http() as http,
    ):
        offered = await http.post("/v1/chat/completions", json=body | {"tools": [ADDS]})
        assert offered.status_code == status
        if status != 200:
            assert "wrote a call of a tool as text" in offered.json()["error"]["message"]
        plain = await http.post("/v1/chat/completions", json=body)
        assert plain.json()["choices"][0]["message"]["content"] == text


OTHER = """
attempts = 1
fallback = "other"
[workers.other]
kind = "chat"
model = "m2"
base_url = "{url}"
"""


def contradicting(asked: ReceivedChatRequest) -> ScriptedAnswer:
    return (
        ScriptedAnswer(text="so it is, surely", mishap=InjectedFault.TRUNCATED)
        if asked.model == "m1"
        else ScriptedAnswer(text="no")
    )


async def test_a_stream_that_is_contradicted_ends_in_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path, contradicting, more=OTHER) as (at, client):
        with pytest.raises(APIError) as caught:
            await pieces(client)
        assert caught.value.code == "answer_replaced"
        assert (await runs(at))[0] in caught.value.message


async def test_a_stream_that_breaks_off_and_goes_on_is_one_answer(tmp_path: Path) -> None:
    takes = iter(
        [
            ScriptedAnswer(text="so it is, surely", mishap=InjectedFault.RESET_MIDWAY),
            ScriptedAnswer(text="so it is, surely"),
        ]
    )
    async with serving(tmp_path, lambda _: next(takes)) as (_, client):
        assert "".join(await pieces(client)) == "so it is, surely"


async def approve(at: At, text: str = "") -> None:
    """Say yes to the first thing that any run asks."""
    assert at.service is not None
    async with asyncio.timeout(20):
        while True:
            for name in await runs(at):
                for asked in (await at.service.read_run(name)).open_questions:
                    answered = QuestionAnswered(
                        run=name, at=time(), question=asked.question, approved=True, actor="me", text=text
                    )
                    await at.service.answer(answered)
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_person_who_comes_in_time_is_waited_for(tmp_path: Path, *, stream: bool) -> None:
    async with serving(tmp_path, [ScriptedAnswer(text="done")], 'approval = "always"', patience=20) as (at, client):
        approving = asyncio.create_task(approve(at))
        if stream:
            assert await pieces(client) == ["done"]
        else:
            said = await client.chat.completions.create(model="shikisha", messages=[HELLO])
            assert said.choices[0].message.content == "done"
        await approving


REVIEW = """
[[autonomy.classes]]
name = "all"
mode = "review"
"""


async def test_an_answer_under_review_is_not_streamed_before_it_is_approved(tmp_path: Path) -> None:
    async with serving(tmp_path, [ScriptedAnswer(text="so it is")], end=REVIEW) as (at, client):
        with pytest.raises(APIError) as caught:
            assert await pieces(client) == []
        assert caught.value.code == "approval_required"
        assert at.service is not None
        assert (await at.service.read_run((await runs(at))[0])).status is RunStatus.SUSPENDED


async def test_data_with_a_guarded_label_reaches_only_who_is_cleared(tmp_path: Path) -> None:
    async with serving(tmp_path, described, end='[labels]\nguarded = ["secret"]') as (at, client):
        with pytest.raises(APIStatusError) as caught:
            await client.chat.completions.create(
                model="shikisha", messages=[HELLO], extra_headers={"X-Shikisha-Labels": "secret"}
            )
        assert (caught.value.status_code, caught.value.code) == (403, "not_cleared")
        assert await runs(at) == []


@pytest.mark.slow
async def test_a_stream_goes_on_to_its_end_when_the_server_is_told_to_stop(tmp_path: Path) -> None:
    words = [ScriptedAnswer(text=" ".join("abcdefghij"), pace=0.1)]
    async with chat_server(words) as url, AsyncExitStack() as stack:
        config = FILE.format(url=url, more="", end="", patience=1)
        at, process = await stack.enter_async_context(served_process(tmp_path, config))
        client = await stack.enter_async_context(at.openai())
        stream = await client.chat.completions.create(model="shikisha", messages=[HELLO], stream=True)
        said = ""
        async for chunk in stream:
            said += chunk.choices[0].delta.content or ""
            if said == "a b":
                process.terminate()
        assert said == "a b c d e f g h i j"
        await process.wait()


CHILD = """
approval = "always"
[workers.team]
kind = "conductor"
conductor = "fixed:single?worker=only"
pool = ["only"]
[conductors.deep]
kind = "fixed"
topology = "single"
roles = {{ worker = "team" }}
"""


async def test_a_child_run_that_waits_for_a_person_is_given_up_too(tmp_path: Path) -> None:
    async with serving(tmp_path, [ScriptedAnswer(text="done")], CHILD) as (_, client):
        with pytest.raises(APIStatusError) as caught:
            await client.chat.completions.create(model="shikisha/deep", messages=[HELLO])
        assert (caught.value.status_code, caught.value.code) == (409, "approval_required")
