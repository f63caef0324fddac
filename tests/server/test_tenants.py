"""What one key's holder can do with another's runs, by any way in; and what a run's data labels hold against."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.types.responses import Response, ResponseFunctionToolCall
from responding import by_model, responding
from serving import At

from shikisha.core.run import Run
from shikisha.server.keys import KeySpec
from shikisha.server.keys.key import KeyScope
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall

if TYPE_CHECKING:
    from openai.types.responses import FunctionToolParam, ResponseInputParam

GUARDED = '[labels]\nguarded = ["confidential"]\n'
SEES = 'sees = ["confidential"]'
SECRET = {"X-Shikisha-Labels": "confidential"}
LOOK = cast(
    "FunctionToolParam", {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
)


def looking(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Ask for a tool once, and then say what came of it."""
    came = [text for role, text in asked.messages if role == "tool"]
    return (
        ScriptedAnswer(text=f"it is {came[-1]}")
        if came
        else ScriptedAnswer(calls=(ScriptedToolCall(name="look", arguments={}, id="one"),))
    )


async def pool_of(at: At, run: str) -> tuple[set[str], tuple[str, ...]]:
    """The labels of a run, and its workers."""
    assert at.service is not None
    begun = (await at.service.read_run(run)).started
    return set(begun.labels), begun.pool


async def run_of(client: AsyncOpenAI, **more: object) -> tuple[Response, str]:
    """Make a response; return it and its run."""
    given = await client.responses.create(model="shikisha", input="go on", **more)  # type: ignore[call-overload]
    return given, given.id.removeprefix("resp_")


async def test_a_conversation_keeps_its_labels_when_it_is_gone_on_with(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, SEES, GUARDED) as (at, client):
        first, run = await run_of(client, extra_headers=SECRET)
        assert await pool_of(at, run) == ({"confidential"}, ("first",))
        _, second = await run_of(client, previous_response_id=first.id)
        assert await pool_of(at, second) == ({"confidential"}, ("first",))


async def test_what_a_workers_answer_bears_goes_with_the_conversation(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, f'{SEES}\nadds = ["confidential"]', GUARDED) as (at, client):
        first, run = await run_of(client)
        assert await pool_of(at, run) == (set(), ("first", "second"))
        _, second = await run_of(client, previous_response_id=first.id)
        assert await pool_of(at, second) == ({"confidential"}, ("first",))


async def called(client: AsyncOpenAI) -> tuple[Response, "ResponseInputParam"]:
    """Make a response that asks for a tool; return it, and what would answer it."""
    given = await client.responses.create(model="shikisha", input="What is it?", tools=[LOOK])
    (call,) = given.output
    assert isinstance(call, ResponseFunctionToolCall)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "the secret"}
    return given, cast("ResponseInputParam", [output])


@pytest.mark.parametrize(
    "headers",
    [
        SECRET,
        {"X-Shikisha-Workers": "second"},
        {"X-Shikisha-Budget-Dollars": "0.000001"},
        {"X-Shikisha-Domain": "mail"},
    ],
    ids=["labels", "workers", "budget", "domain"],
)
async def test_results_that_come_with_narrower_headers_are_no_part_of_a_wider_run(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with responding(tmp_path, looking, "", GUARDED) as (at, client):
        first, output = await called(client)
        with pytest.raises(APIStatusError) as caught:
            await client.responses.create(model="shikisha", input=output, extra_headers=headers)
        assert caught.value.status_code == 400
        assert at.service is not None
        run: Run = await at.service.read_run(first.id.removeprefix("resp_"))
        assert run.answers == {}


async def test_a_keys_own_labels_hold_for_what_it_brings_to_a_run(tmp_path: Path) -> None:
    async with responding(tmp_path, looking, "", GUARDED) as (at, client):
        _, output = await called(client)
        assert at.service is not None
        wanted = KeySpec("secretive", "main", frozenset({KeyScope.RUN, KeyScope.ADMIN}), labels=("confidential",))
        key = await at.service.keys.issue(wanted, "tests")
        async with at.openai(key.secret) as other:
            with pytest.raises(APIStatusError) as caught:
                await other.responses.create(model="shikisha", input=output)
        assert caught.value.status_code == 400
