"""Agents behind the server: an answer streamed after a loop, the client's tools among the pool's, what is shown."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from openai import AsyncOpenAI
from rich.console import Console
from serving import At, served
from telemetry_seen import Seen, said
from test_agent_loop import LOOK, PAY, agent, call, says, tool_member, wants

from shikisha.cli.progress import RunTreeView, run_tree
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card, Reply
from shikisha.core.events import AttemptFinished, AttemptStarted, ToolRefused
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.outcomes.importers.journal_runs import gather_runs
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer, LoggedTask
from shikisha.server.lifecycle.run_progress import WITHHELD_TEXT, withhold_texts
from shikisha.server.pages.run_page import run_view
from shikisha.testing import AnswerChooser, ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall, chat_server
from support import whole_plan

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

FILE = """
conductor = "fixed:single?worker=clerk"
pool = ["clerk"]
[workers.model]
kind = "chat"
model = "m"
base_url = "{url}"
price = {{input = 1.0, output = 2.0}}
tools = true
[workers.clerk]
kind = "agent"
endpoint = "model"
tools = ["python"]
[workers.python]
kind = "python"
"""
HELLO = cast("ChatCompletionMessageParam", {"role": "user", "content": "What is six times seven?"})
WEATHER = cast("ChatCompletionToolParam", {"type": "function", "function": {"name": "weather", "parameters": {}}})
CODE = ScriptedToolCall(name="python", arguments={"code": "print(6 * 7)"})
LONG = "It is 42. " + "Really. " * 200


@asynccontextmanager
async def serving(folder: Path, answers: AnswerChooser) -> AsyncIterator[tuple[At, AsyncOpenAI]]:
    async with (
        chat_server(answers) as url,
        served(folder, FILE.format(url=url)) as at,
        at.openai() as client,
    ):
        yield at, client


async def test_the_answer_after_a_loop_is_streamed_and_nothing_else_is(tmp_path: Path) -> None:
    def script(asked: ReceivedChatRequest) -> ScriptedAnswer:
        if not asked.tool_results:
            return ScriptedAnswer(text="Let me compute.", calls=(CODE,))
        return ScriptedAnswer(text=LONG if asked.tool_results == ("42",) else "wrong")

    async with serving(tmp_path, script) as (_, client):
        stream = await client.chat.completions.create(model="shikisha", messages=[HELLO], stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(pieces) == LONG
        assert len([piece for piece in pieces if piece]) > 20  # it was not held to its end


async def test_a_client_calls_its_own_tools_between_those_of_the_pool(tmp_path: Path) -> None:
    def script(asked: ReceivedChatRequest) -> ScriptedAnswer:
        match asked.tool_results:
            case ():
                return ScriptedAnswer(calls=(ScriptedToolCall(name="weather", arguments={}), CODE))
            case ("rain", "42"):
                return ScriptedAnswer(text="42, in the rain")
            case other:
                return ScriptedAnswer(text=f"wrong: {other}")

    async with serving(tmp_path, script) as (at, client):
        first = await client.chat.completions.create(model="shikisha", messages=[HELLO], tools=[WEATHER])
        message = first.choices[0].message
        assert message.tool_calls is not None
        assert [each.function.name for each in message.tool_calls if each.type == "function"] == ["weather"]
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
        messages = [HELLO, cast("ChatCompletionMessageParam", message.model_dump(exclude_none=True)), result]
        second = await client.chat.completions.create(model="shikisha", messages=messages, tools=[WEATHER])  # type: ignore[arg-type]
        assert second.choices[0].message.content == "42, in the rain"
        assert at.service is not None
        run = await at.service.read_run(second.id.removeprefix("chatcmpl-"))
        assert [str(each.started.role) for each in run.attempts] == ["step", "tool", "step"]


class Collected(LogBuilder):
    """Keeps the answers that are added to it."""

    answers: list[LoggedAnswer]

    def add(self, asked: LoggedTask, *samples: LoggedAnswer) -> None:
        self.answers = [*getattr(self, "answers", ()), *samples]
        super().add(asked, *samples)


async def looped() -> tuple[MemoryRecorder, str]:
    """A run of an agent: a call, a refused call, an answer."""
    recorder = MemoryRecorder()
    clerk = agent(
        says(replace(wants(call(), call("pay", "{}", "b")), dollars=0.25), Reply("42 dollars", dollars=0.5)),
        [(LOOK, tool_member("look_up")), (PAY, tool_member("pay"))],
        Card("clerk", kind="agent", tools=True),
    )
    run = await Engine(recorder).run(Task("What?"), Pool([clerk]), ScriptedConductor([whole_plan((0, ()))]))
    return recorder, run.id


async def test_the_page_and_a_review_show_and_hide_the_loop() -> None:
    recorder, run = await looped()
    events = await recorder.read(run)
    view = run_view(events, 0.0)
    (step,) = view.rounds[0].steps
    assert [str(each.what) for each in step.story.tools] == ["offered", "refused"]
    assert [each.story.arguments for each in step.calls] == ["", '{"order": 7}', ""]
    tree = Console(file=StringIO(), width=120)
    tree.print(run_tree(RunTreeView({run: view.run}), run))
    assert "0 clerk" in cast("StringIO", tree.file).getvalue()
    assert "1 call of tools" in cast("StringIO", tree.file).getvalue()
    hidden = [withhold_texts(event) for event in events]
    assert [each.arguments for each in hidden if isinstance(each, AttemptStarted)] == ["", WITHHELD_TEXT, ""]
    assert [each.arguments for each in hidden if isinstance(each, ToolRefused)] == [WITHHELD_TEXT]
    assert [each.calls for each in hidden if isinstance(each, AttemptFinished)] == [""] * 3


async def test_an_outcome_log_counts_the_loop_as_part_of_the_answer() -> None:
    recorder, run = await looped()
    log = Collected("tests")
    gather_runs([Run.fold(await recorder.read(run))], log)
    (row,) = log.answers
    assert (row.worker, row.response) == ("clerk", "42 dollars")
    assert row.dollars == pytest.approx(0.75)


async def test_each_call_of_a_tool_is_a_span_under_the_step() -> None:
    seen = Seen()
    clerk = agent(
        says(wants(call(), call(id="b"), call("pay", "{}", "c")), "done"),
        [(LOOK, tool_member("look_up")), (PAY, tool_member("pay"))],
    )
    await seen.engine().run(Task("What?"), Pool([clerk]), ScriptedConductor([whole_plan((0, ()))]))
    spans = seen.named("execute_tool look_up")
    assert [said(span)["shikisha.role"] for span in spans] == ["tool", "tool"]
    (step,) = seen.named("invoke_agent clerk")
    assert {event.name for event in step.events} >= {"tools.offered", "tool.refused"}
    assert json.dumps(said(step)).count("order") == 0


async def test_an_agent_is_offered_a_calculator_that_takes_an_expression(tmp_path: Path) -> None:
    asked: list[ReceivedChatRequest] = []

    def choose(request: ReceivedChatRequest) -> ScriptedAnswer:
        asked.append(request)
        if request.tool_results:
            return ScriptedAnswer(text=f"It is {request.tool_results[0]}.")
        return ScriptedAnswer(
            calls=(ScriptedToolCall(name="calculator", arguments={"expression": "12 * (3 + 4) ** 2"}),)
        )

    config = FILE.replace('kind = "python"', 'kind = "local"\ntool = "calculator"').replace('"python"', '"calculator"')
    config = config.replace("workers.python", "workers.calculator")
    async with chat_server(choose) as url, served(tmp_path, config.format(url=url)) as at, at.openai() as client:
        said = await client.chat.completions.create(model="shikisha", messages=[HELLO])
        assert said.choices[0].message.content == "It is 588."
    tools = cast("list[dict[str, dict[str, dict[str, object]]]]", asked[0].body["tools"])
    assert tools[0]["function"]["parameters"]["required"] == ["expression"]
