"""A background response outlives its server, and its stream goes on where its reader stopped, on whichever server."""

import asyncio
from pathlib import Path

import pytest
from openai import APIError, AsyncOpenAI
from openai.types.responses import ResponseStreamEvent
from responding import FILE
from serving import served_process

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server


def slowly(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Answer the first model at once, the second in small pieces."""
    if asked.model == "m1":
        return ScriptedAnswer(text="a plan")
    return ScriptedAnswer(text="one two three four five six seven", pace=0.15)


async def read_until(client: AsyncOpenAI, name: str, after: int, most: int) -> list[ResponseStreamEvent]:
    """Read so many events of a response's stream, or what there is."""
    found: list[ResponseStreamEvent] = []
    stream = await client.responses.retrieve(name, stream=True, starting_after=after)
    async for event in stream:
        found.append(event)
        if len(found) == most:
            await stream.close()
            break
    return found


async def read_on(client: AsyncOpenAI, name: str, after: int) -> list[ResponseStreamEvent]:
    """Read a stream to its end, from after a number; a server that has not taken the run up yet is asked again."""
    found: list[ResponseStreamEvent] = []
    for _ in range(100):
        try:
            stream = await client.responses.retrieve(name, stream=True, starting_after=after)
            async for event in stream:
                found.append(event)
                after = event.sequence_number
        except APIError:
            await asyncio.sleep(0.1)
            continue
        if found and found[-1].type == "response.completed":
            return found
    raise AssertionError("the stream does not end")


@pytest.mark.slow
async def test_a_response_outlives_a_killed_server_and_its_reader_misses_nothing(tmp_path: Path) -> None:
    async with chat_server(slowly) as url:
        config = FILE.format(url=url, more="", end="lease = 1.0")
        async with served_process(tmp_path, config) as (at, process), at.openai() as client:
            given = await client.responses.create(model="shikisha/two", input="hello", background=True)
            before = await read_until(client, given.id, -1, 7)
            process.kill()
            await process.wait()
        async with served_process(tmp_path) as (again, _), again.openai(at.key) as client:
            rest = await read_on(client, given.id, before[-1].sequence_number)
            ended = await client.responses.retrieve(given.id)
    assert ended.output_text == "one two three four five six seven"
    events = [*before, *rest]
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    last = [event.item_id for event in events if event.type == "response.output_text.done"][-1]
    told = [each.delta for each in events if each.type == "response.output_text.delta" and each.item_id == last]
    assert "".join(told) == ended.output_text
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.status for item in items if item.type == "message"][-1] == "completed"
