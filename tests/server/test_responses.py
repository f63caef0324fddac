"""`/v1/responses` through the openai SDK: whole, streamed, structured, in the background, cancelled, continued."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI, NotFoundError
from openai.types.responses import Response
from pydantic import BaseModel
from responding import by_model, responding

from shikisha.server.keys.key import KeyScope
from shikisha.testing import InjectedFault, ReceivedChatRequest, ScriptedAnswer


async def test_a_whole_response_has_its_text_its_cost_and_what_orchestration_used(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, client):
        raw = await client.responses.with_raw_response.create(model="shikisha/two", input="hello", metadata={"a": "b"})
        given = raw.parse()
        assert (given.status, given.output_text, given.model) == ("completed", "m2 says so", "shikisha/two")
        assert given.id == f"resp_{raw.headers['x-shikisha-run-id']}"
        assert given.metadata == {"a": "b"}
        usage = json.loads(raw.text)["usage"]
        assert at.service is not None
        run = await at.service.read_run(raw.headers["x-shikisha-run-id"])
        assert usage["total_tokens"] == run.charged.tokens
        assert usage["cost"] == pytest.approx(run.charged.dollars)
        assert usage["input_tokens_details"]["orchestration_input_tokens"] > 0


async def test_a_stream_is_one_the_sdk_puts_together(tmp_path: Path) -> None:
    async with (
        responding(tmp_path, [ScriptedAnswer(text="so it is", pace=0.05)]) as (_, client),
        client.responses.stream(model="shikisha", input="hello") as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds.count("response.output_text.delta") == 2
    assert (final.output_text, final.status) == ("so it is", "completed")
    assert final.usage is not None


async def test_a_stream_is_fetched_again_from_any_event_on(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="so it is")]) as (_, client):
        stream = await client.responses.create(model="shikisha", input="hello", stream=True)
        events = [event async for event in stream]
        first = events[0]
        assert first.type == "response.created"
        for cut, event in enumerate(events):
            number = event.sequence_number
            again = await client.responses.retrieve(first.response.id, stream=True, starting_after=number)
            rest = [each async for each in again]
            deltas = [each.delta for each in [*events[: cut + 1], *rest] if each.type == "response.output_text.delta"]
            assert "".join(deltas) == "so it is"
            assert all(each.sequence_number > number for each in rest)


class Sum(BaseModel):
    total: int


async def test_a_format_holds_for_the_answer(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text='{"total": 4}')]) as (_, client):
        given = await client.responses.parse(model="shikisha", input="2 + 2", text_format=Sum)
        assert given.output_parsed == Sum(total=4)


async def test_what_is_set_reaches_the_worker_of_the_last_step(tmp_path: Path) -> None:
    seen: list[ReceivedChatRequest] = []

    def keep(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return ScriptedAnswer(text="so it is")

    async with responding(tmp_path, keep) as (_, client):
        await client.responses.create(
            model="shikisha",
            instructions="Be brief.",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}]}],
            max_output_tokens=77,
            temperature=0.5,
            reasoning={"effort": "low"},
        )
    (asked,) = seen
    assert asked.body["temperature"] == 0.5
    assert asked.body["max_completion_tokens"] == 77 or asked.body["max_tokens"] == 77
    texts = json.dumps(asked.body["messages"])
    assert "Be brief." in texts
    assert "What is it?" in texts


async def test_a_refused_request_begins_nothing(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        for body in ({"conversation": "c"}, {"model": "none"}, {"previous_response_id": "resp_none"}):
            answer = await http.post("/v1/responses", json={"model": "shikisha", "input": "hello", **body})
            assert answer.status_code in (400, 404)
            assert answer.json()["error"]["param"] == next(iter(body))
        assert (await http.get("/runs")).json()["data"] == []


async def test_a_background_response_is_polled_to_its_end(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="so it is", latency=0.2)]) as (_, client):
        given = await client.responses.create(model="shikisha", input="hello", background=True)
        assert given.status in ("queued", "in_progress")
        ended = await _polled(client, given.id)
        assert (ended.status, ended.output_text, ended.background) == ("completed", "so it is", True)


async def _polled(client: AsyncOpenAI, name: str) -> Response:
    for _ in range(200):
        given = await client.responses.retrieve(name)
        if given.status not in ("queued", "in_progress"):
            return given
        await asyncio.sleep(0.02)
    raise AssertionError("it does not end")


async def test_a_background_response_is_cancelled(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(mishap=InjectedFault.SILENCE)]) as (_, client):
        given = await client.responses.create(model="shikisha", input="hello", background=True)
        cancelled = await client.responses.cancel(given.id)
        assert cancelled.status == "cancelled"
        assert (await client.responses.retrieve(given.id)).status == "cancelled"
        stream = await client.responses.retrieve(given.id, stream=True)
        assert [event.type async for event in stream][-1] == "response.incomplete"


async def test_only_a_background_response_can_be_cancelled(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (_, client):
        given = await client.responses.create(model="shikisha", input="hello")
        with pytest.raises(APIStatusError) as caught:
            await client.responses.cancel(given.id)
        assert caught.value.status_code == 409


async def test_a_conversation_goes_on_from_its_last_response(tmp_path: Path) -> None:
    seen: list[str] = []

    def keep(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(json.dumps(asked.body["messages"]))
        return ScriptedAnswer(text=f"answer {len(seen)}")

    async with responding(tmp_path, keep) as (_, client):
        first = await client.responses.create(model="shikisha", input="one?", instructions="Be brief.")
        second = await client.responses.create(model="shikisha", input="two?", previous_response_id=first.id)
        third = await client.responses.create(model="shikisha", input="three?", previous_response_id=second.id)
    assert third.previous_response_id == second.id
    assert all(text in seen[2] for text in ("one?", "answer 1", "two?", "answer 2", "three?"))
    assert "Be brief." in seen[0]
    assert "Be brief." not in seen[1] + seen[2]


async def test_what_was_not_stored_or_was_deleted_or_is_anothers_is_not_there(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, client):
        unstored = await client.responses.create(model="shikisha", input="hello", store=False)
        deleted = await client.responses.create(model="shikisha", input="hello")
        await client.responses.delete(deleted.id)
        for name in (unstored.id, deleted.id, "resp_261122-000000-00000000", "other"):
            with pytest.raises(NotFoundError):
                await client.responses.retrieve(name)
        kept = await client.responses.create(model="shikisha", input="hello")
        other = await at.issue(KeyScope.RUN)
        async with at.openai(other.secret) as stranger:
            with pytest.raises(NotFoundError):
                await stranger.responses.retrieve(kept.id)


async def test_the_input_is_listed_a_page_at_a_time(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (_, client):
        items: list[Any] = [{"role": "user", "content": f"number {n}"} for n in range(5)]
        given = await client.responses.create(model="shikisha", input=items)
        first = await client.responses.input_items.list(given.id, limit=2, order="asc")
        every = [item async for item in await client.responses.input_items.list(given.id, limit=2)]
    assert first.has_more
    texts = [json.loads(item.to_json())["content"][0]["text"] for item in every]
    assert texts == [f"number {n}" for n in reversed(range(5))]


async def test_a_failure_is_an_error_a_failed_stream_and_a_failed_response(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(mishap=InjectedFault.UNAUTHORIZED)] * 3) as (_, client):
        with pytest.raises(APIStatusError) as caught:
            await client.responses.create(model="shikisha", input="hello")
        assert caught.value.status_code == 502
        stream = await client.responses.create(model="shikisha", input="hello", stream=True)
        events = [event async for event in stream]
        assert events[-1].type == "response.failed"
        again = await client.responses.retrieve(events[-1].response.id)
        assert again.status == "failed"
        assert again.error is not None


async def test_a_run_whose_client_leaves_is_cancelled(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(mishap=InjectedFault.SILENCE)]) as (at, client), at.http() as http:
        asking = asyncio.create_task(client.responses.create(model="shikisha", input="hello"))
        await _run_in(http, "open")
        asking.cancel()
        await _run_in(http, "stopped")


async def _run_in(http: httpx2.AsyncClient, state: str) -> None:
    """Return once there is a run in this state."""
    for _ in range(500):
        if (await http.get("/runs", params={"state": state})).json()["data"]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"no run is {state}")


async def test_steps_are_told_of_with_their_agents(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (_, client):
        stream = await client.beta.responses.create(
            model="shikisha/two", input="hello", stream=True, reasoning={"summary": "auto"}
        )
        events = [event async for event in stream]
    lines = [event.text for event in events if event.type == "response.reasoning_summary_text.done"]
    assert lines[0] == "Round 1: first → second"
    agents = [event.agent for event in events if event.type == "response.output_text.delta"]
    assert [agent.agent_name for agent in agents if agent][:1] == ["second"]
