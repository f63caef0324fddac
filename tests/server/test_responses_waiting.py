"""Responses that wait for their client: its tools, and decisions of whoever may approve; for others they wait on."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.types.responses import Response, ResponseFunctionToolCall
from responding import by_model, responding
from serving import At

from shikisha.core.events import QuestionAnswered
from shikisha.server.keys.key import KeyScope
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall

if TYPE_CHECKING:
    from openai.types.responses import FunctionToolParam, ResponseInputParam

LOOK = cast(
    "FunctionToolParam",
    {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False},
)


def looking(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Ask for a tool once, and then say what came of it."""
    came = [text for role, text in asked.messages if role == "tool"]
    if came:
        return ScriptedAnswer(text=f"it is {came[-1]}")
    return ScriptedAnswer(calls=(ScriptedToolCall(name="look", arguments={"at": "home"}, id="one"),))


def call_of(given: Response) -> ResponseFunctionToolCall:
    (call,) = given.output
    assert isinstance(call, ResponseFunctionToolCall)
    return call


def output(call: ResponseFunctionToolCall, text: str = "4") -> "ResponseInputParam":
    return cast("ResponseInputParam", [{"type": "function_call_output", "call_id": call.call_id, "output": text}])


async def called(client: AsyncOpenAI) -> Response:
    return await client.responses.create(model="shikisha", input="What is it?", tools=[LOOK])


async def test_a_clients_tool_is_called_and_the_run_goes_on_with_its_output(tmp_path: Path) -> None:
    async with responding(tmp_path, looking) as (_, client):
        first = await called(client)
        call = call_of(first)
        assert (first.status, call.name, json.loads(call.arguments)) == ("completed", "look", {"at": "home"})
        second = await client.responses.create(
            model="shikisha", input=output(call), previous_response_id=first.id, tools=[LOOK]
        )
        assert second.output_text == "it is 4"
        assert (second.id, second.previous_response_id) == (f"{first.id}.1", first.id)
        assert (await client.responses.retrieve(first.id)).output == first.output
        items = await client.responses.input_items.list(second.id)
        assert [item.type for item in items.data] == ["function_call_output"]


async def test_an_output_finds_its_run_by_the_calls_id_alone(tmp_path: Path) -> None:
    async with responding(tmp_path, looking) as (_, client):
        first = await called(client)
        second = await client.responses.create(model="shikisha", input=output(call_of(first)))
        assert second.id == f"{first.id}.1"


async def test_a_client_that_sends_everything_back_goes_on_with_the_same_run(tmp_path: Path) -> None:
    async with responding(tmp_path, looking) as (at, client), at.http() as http:
        first = await called(client)
        items = [{"role": "user", "content": "What is it?"}, *first.output, *output(call_of(first))]
        second = await client.responses.create(model="shikisha", input=cast("ResponseInputParam", items), tools=[LOOK])
        assert second.output_text == "it is 4"
        assert len((await http.get("/runs")).json()["data"]) == 1


async def test_the_same_output_twice_is_one_response_and_another_one_is_refused(tmp_path: Path) -> None:
    async with responding(tmp_path, looking) as (_, client):
        first = await called(client)
        one = await client.responses.create(model="shikisha", input=output(call_of(first)))
        two = await client.responses.create(model="shikisha", input=output(call_of(first)))
        assert one.id == two.id
        with pytest.raises(APIStatusError) as caught:
            await client.responses.create(model="shikisha", input=output(call_of(first), "5"))
        assert caught.value.status_code == 400


async def test_a_run_of_another_tenant_takes_no_output(tmp_path: Path) -> None:
    async with responding(tmp_path, looking) as (at, client):
        call = call_of(await called(client))
        other = await at.issue(KeyScope.RUN)
        async with at.openai(other.secret) as stranger:
            with pytest.raises(APIStatusError) as caught:
                await stranger.responses.create(model="shikisha", input=output(call))
        assert caught.value.status_code == 400


async def test_calls_and_answers_after_them_stream(tmp_path: Path) -> None:
    async with responding(tmp_path, looking) as (_, client):
        async with client.responses.stream(model="shikisha", input="What is it?", tools=[LOOK]) as stream:
            kinds = [event.type async for event in stream]
            first = await stream.get_final_response()
        assert "response.function_call_arguments.delta" in kinds
        async with client.responses.stream(model="shikisha", input=output(call_of(first))) as stream:
            numbers = [event.sequence_number async for event in stream]
            second = await stream.get_final_response()
        assert second.output_text == "it is 4"
        assert numbers == sorted(numbers)
        assert numbers[0] == 0


ASKS = 'approval = "always"'


async def test_whoever_may_approve_is_asked_in_a_response_and_decides_in_the_next(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, ASKS) as (_, client):
        first = await client.responses.create(model="shikisha", input="hello")
        (request,) = first.output
        assert request.type == "mcp_approval_request"
        decision = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        second = await client.responses.create(
            model="shikisha", input=cast("ResponseInputParam", [decision]), previous_response_id=first.id
        )
        assert second.output_text == "m1 says so"


async def test_a_no_ends_the_run_without_an_answer(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, ASKS) as (_, client):
        first = await client.responses.create(model="shikisha", input="hello")
        (request,) = first.output
        assert request.type == "mcp_approval_request"
        decision = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": False}
        with pytest.raises(APIStatusError) as caught:
            await client.responses.create(model="shikisha", input=cast("ResponseInputParam", [decision]))
        assert caught.value.status_code == 403


@pytest.mark.full
async def test_whoever_may_not_approve_cannot_and_waits_only_so_long(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, ASKS) as (at, client):
        first = await client.responses.create(model="shikisha", input="hello")
        (request,) = first.output
        decision = {"type": "mcp_approval_response", "approval_request_id": request.id or "", "approve": True}
        plain = await at.issue(KeyScope.RUN, tenant="main")
        async with at.openai(plain.secret) as other:
            with pytest.raises(APIStatusError) as caught:
                await other.responses.create(model="shikisha", input=cast("ResponseInputParam", [decision]))
            assert caught.value.status_code in (403, 404)
            with pytest.raises(APIStatusError) as caught:
                await other.responses.create(model="shikisha", input="hello")
            assert (caught.value.status_code, caught.value.code) == (409, "approval_required")


async def test_a_background_response_waits_for_whoever_approves(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, ASKS) as (at, _):
        plain = await at.issue(KeyScope.RUN)
        async with at.openai(plain.secret) as client:
            given = await client.responses.create(model="shikisha", input="hello", background=True)
            await _approve(at, given.id.removeprefix("resp_"))
            stream = await client.responses.retrieve(given.id, stream=True)
            last = [event async for event in stream][-1]
        assert last.type == "response.completed"


async def _approve(at: At, run: str) -> None:
    """Say yes to whatever a run asks, once it does."""
    assert at.service is not None
    for _ in range(500):
        past = await at.service.read_run(run)
        if past.open_questions:
            asked = past.open_questions[0].question
            yes = QuestionAnswered(run=run, at=past.started.at + 1, question=asked, approved=True, actor="someone")
            await at.service.answer(yes)
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing is asked")
