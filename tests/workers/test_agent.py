"""Agents from a configuration: their cards, their tools, and the loop against a chat endpoint over HTTP."""

import json
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from paths import SUPPORT

from shikisha.cli.doctor import doctor
from shikisha.cli.options import SharedOptions
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.container import Container, load_config
from shikisha.core.errors import ConfigError
from shikisha.core.events import CallRole, RunStatus
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.tools import ToolEffect
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall, chat_server
from support import AT_ONCE, plan_of

CONFIG = """
[workers.cheap]
kind = "chat"
base_url = "{url}"
model = "m"
tools = true
stream = {stream}
price = {{ input = 1.0, output = 2.0 }}
max_output_tokens = 500
concurrency = 2
sees = ["pii"]
adds = ["eu"]

[workers.clerk]
kind = "agent"
description = "Works with numbers."
endpoint = "cheap"
tools = ["run.code", "expert"]
turns = 5

[workers."run.code"]
kind = "python"
description = "Runs Python."

[workers.expert]
kind = "chat"
base_url = "{url}"
model = "expert"
price = {{}}
description = "Knows much."
"""
ASK = ScriptedToolCall(name="expert", arguments={"subtask": "What next?"})
RUN_CODE = ScriptedToolCall(name="run_code", arguments={"code": "print(6 * 7)"})


def configured(
    folder: Path, url: str = "http://127.0.0.1:1/v1", *, stream: bool = True, more: str = "", tools: bool = True
) -> Container:
    file, config = folder / "shikisha.toml", CONFIG.format(url=url, stream=str(stream).lower())
    file.write_text((config if tools else config.replace("tools = true", "structured_output = true")) + more)
    return load_config(file, {})


async def perform(
    folder: Path,
    script: Callable[[ReceivedChatRequest], ScriptedAnswer],
    *,
    stream: bool = True,
    tools: bool = True,
) -> tuple[Run, list[ReceivedChatRequest], str]:
    """Perform a task with the agent against a server that answers so; return what was asked and what was heard."""
    heard: list[str] = []
    asked: list[ReceivedChatRequest] = []

    def answer(request: ReceivedChatRequest) -> ScriptedAnswer:
        asked.append(request)
        return script(request)

    async with chat_server(answer) as url:
        container = configured(folder, url, stream=stream, tools=tools)
        async with aclosing(container):
            engine = Engine(MemoryRecorder(), retry=AT_ONCE, on_text=lambda _r, _s, piece: heard.append(piece))
            run = await engine.run(Task("How much?"), container.pool(["clerk"]), ScriptedConductor([plan_of((0, ()))]))
        return run, [each for each in asked if each.model == "m"], "".join(heard)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_an_agent_works_with_its_tools_over_http(tmp_path: Path, stream: bool) -> None:
    def script(asked: ReceivedChatRequest) -> ScriptedAnswer:
        if asked.model == "expert":
            return ScriptedAnswer(text="Divide by two.")
        match len(asked.tool_results):
            case 0:
                return ScriptedAnswer(text="Let me see.", calls=(RUN_CODE,))
            case 1:
                return ScriptedAnswer(
                    calls=(ScriptedToolCall(name="expert", arguments={"subtask": "What next?"}), RUN_CODE)
                )
            case _:
                return ScriptedAnswer(text="It is 21.")

    run, asked, heard = await perform(tmp_path, script, stream=stream)
    assert (run.status, run.answer) == (RunStatus.DONE, "It is 21.")
    assert list(asked[-1].tool_results) == ["42", "Divide by two.", "42"]
    assert asked[0].tools == ("run_code", "expert")
    roles = [each.started.role for each in run.attempts]
    assert roles == [CallRole.STEP, CallRole.TOOL, CallRole.STEP, CallRole.TOOL, CallRole.TOOL, CallRole.STEP]
    assert heard == "It is 21."
    charged = run.charged.dollars
    assert charged is not None
    assert charged > 0


def by_schema(name: str, **arguments: object) -> ScriptedAnswer:
    return ScriptedAnswer(text=json.dumps({"call": {"name": name, "arguments": arguments}}))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_an_agent_works_where_its_endpoint_takes_no_tools(tmp_path: Path, stream: bool) -> None:
    """The next call, or the answer, is asked for as JSON that its endpoint holds to a schema."""

    def script(asked: ReceivedChatRequest) -> ScriptedAnswer:
        if asked.model == "expert":
            return ScriptedAnswer(text="Divide by two.")
        turn = str(asked.body["messages"]).count("came to:")
        first = by_schema("run_code", code="print(6 * 7)")
        return [first, by_schema("expert", subtask="What next?"), by_schema("final_answer", text="It is 21.")][turn]

    run, asked, heard = await perform(tmp_path, script, stream=stream, tools=False)
    assert (run.status, run.answer) == (RunStatus.DONE, "It is 21.")
    assert len(asked) == 3
    for each in asked:
        assert not {"tools", "tool_choice"} & each.body.keys()
        schema = json.dumps(each.body["response_format"])
        assert all(f'"{name}"' in schema for name in ("run_code", "expert", "final_answer"))
    assert "What run_code came to:\\n42" in str(asked[1].body["messages"])
    assert "Divide by two." in str(asked[2].body["messages"])
    roles = [each.started.role for each in run.attempts]
    assert roles == [CallRole.STEP, CallRole.TOOL, CallRole.STEP, CallRole.TOOL, CallRole.STEP]
    assert heard in ("", "It is 21.")


@pytest.mark.parametrize("text", ["It is 21.", '{"call": {"name": "final_answer", "arguments": {}}}', "{}"])
async def test_an_answer_that_fits_no_schema_is_no_answer_of_an_agent(tmp_path: Path, text: str) -> None:
    run, _, _ = await perform(tmp_path, lambda _: ScriptedAnswer(text=text), tools=False)
    assert (run.status, run.answer) == (RunStatus.FAILED, None)


async def test_an_agent_that_never_answers_by_schema_is_asked_in_words_at_the_end(tmp_path: Path) -> None:
    def script(asked: ReceivedChatRequest) -> ScriptedAnswer:
        words = "response_format" not in asked.body
        return ScriptedAnswer(text="It is 21.") if words else by_schema("run_code", code="print(6 * 7)")

    run, asked, _ = await perform(tmp_path, script, tools=False)
    assert (run.status, run.answer) == (RunStatus.DONE, "It is 21.")
    assert len(asked) == 5


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ([ScriptedToolCall(name="run_code", arguments='{"code": "print(1)"')], "bad_arguments"),
        ([ScriptedToolCall(name="shell", arguments={"code": "ls"})], "not_offered"),
        (
            [ScriptedToolCall(name="run_code", arguments={}, id="x"), RUN_CODE.model_copy(update={"id": "x"})],
            "bad_arguments",
        ),
    ],
    ids=["broken", "unknown", "one-id"],
)
async def test_quirks_of_providers_go_back_to_the_agent(
    tmp_path: Path, calls: list[ScriptedToolCall], error: str
) -> None:
    def script(asked: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text="done") if asked.tool_results else ScriptedAnswer(calls=tuple(calls))

    run, asked, _ = await perform(tmp_path, script)
    assert run.answer == "done"
    assert json.loads(asked[-1].tool_results[0])["error"] == error
    assert len({call["id"] for call in asked[-1].calls}) == len(calls)


def test_an_agent_has_the_card_of_its_endpoint_but_for_what_it_says_itself(tmp_path: Path) -> None:
    container = configured(tmp_path)
    clerk = container.pool(["clerk"])[0]
    cheap = container.pool(["cheap"])[0].card
    assert (clerk.card.kind, clerk.card.tools, clerk.card.limits) == ("agent", True, "cheap")
    assert (clerk.card.price, clerk.card.max_output_tokens, clerk.card.concurrency) == (cheap.price, 500, 2)
    assert (clerk.card.sees, clerk.card.adds) == (("pii",), ("eu",))
    assert container.cards(["clerk"]) == (clerk.card,)
    assert container.default_pool == ("cheap", "clerk")  # tools of agents are no workers of plans


async def test_workers_are_tools_with_the_effects_that_their_kind_has(tmp_path: Path) -> None:
    more = """
[workers.get]
kind = "http"
url = "http://127.0.0.1:1/look"
method = "GET"
[workers.put]
kind = "http"
url = "http://127.0.0.1:1/book"
arguments = { type = "object", required = ["day"] }
[workers.pay]
kind = "http"
url = "http://127.0.0.1:1/pay"
effect = "write"
idempotent = true
[workers.buyer]
kind = "agent"
endpoint = "cheap"
tools = ["get", "put", "pay"]
"""
    buyer = configured(tmp_path, more=more).pool(["buyer"])[0]
    assert buyer.agent is not None
    (source,) = buyer.agent.sources
    tools = {tool.name: tool for tool in await source.search("", 1)}
    assert [tool.effect for tool in tools.values()] == [ToolEffect.READ, ToolEffect.UNKNOWN, ToolEffect.WRITE]
    assert [tool.repeatable for tool in tools.values()] == [True, False, True]
    assert tools["put"].schema == {"type": "object", "required": ["day"]}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('endpoint = "nobody"', "workers.a.endpoint: unknown chat worker 'nobody': known are cheap, expert"),
        ('endpoint = "cheap"\ntools = ["nobody"]', r"workers.a.tools\[0\]: unknown worker 'nobody'"),
        ('endpoint = "cheap"\ntools = ["@crm"]', r"workers.a.tools\[0\]: unknown catalogue 'crm'"),
        ('endpoint = "expert"', "endpoint: 'expert' cannot call tools; expected a chat worker with tools = true, or"),
        ('endpoint = "cheap"\nsees = ["secret"]', "sees: secret: the endpoint 'cheap' is not cleared for that"),
        ('endpoint = "cheap"\ntools = ["clerk"]', "'clerk' is an agent; expected a tool"),
        ('endpoint = "cheap"\ntools = ["run.code", "run_code"]', r"tools\[1\]: 'run_code' would be the second tool"),
        ('endpoint = "cheap"\nturns = 0', "workers.a.turns: expected at least 1"),
        ('endpoint = "cheap"\ntool = ["expert"]', "workers.a.tool"),
    ],
)
def test_an_agent_that_cannot_be_is_refused(tmp_path: Path, table: str, message: str) -> None:
    more = f'\n[workers.run_code]\nkind = "python"\n[workers.a]\nkind = "agent"\n{table}\n'
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, more=more).pool(["a"])


async def test_a_tool_of_an_mcp_server_is_described_by_its_server_and_called(tmp_path: Path) -> None:
    more = f"""
[workers.add]
kind = "mcp"
tool = "add"
command = {sys.executable!r}
args = [{str(SUPPORT / "mcp_tools.py")!r}]
effect = "read"
[workers.adder]
kind = "agent"
endpoint = "cheap"
tools = ["add"]
"""

    def script(asked: ReceivedChatRequest) -> ScriptedAnswer:
        if asked.tool_results:
            return ScriptedAnswer(text=f"so {asked.tool_results[0]}")
        return ScriptedAnswer(calls=(ScriptedToolCall(name="add", arguments={"a": 6, "b": 7}),))

    async with chat_server(script) as url:
        container = configured(tmp_path, url, more=more)
        async with aclosing(container):
            pool = container.pool(["adder"])
            run = await Engine(MemoryRecorder()).run(Task("Add."), pool, ScriptedConductor([plan_of((0, ()))]))
            assert run.answer == "so 13"
            assert pool[0].agent is not None
            (tool,) = await pool[0].agent.sources[0].search("", 1)
    assert tool.schema["required"] == ["a", "b"]
    assert tool.description.startswith("Adds two numbers.")


def test_the_doctor_names_the_tools_that_may_write_without_a_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = """
[workers.pay]
kind = "http"
url = "http://127.0.0.1:1/pay"
[workers.asks]
kind = "http"
url = "http://127.0.0.1:1/asks"
approval = "writes"
[workers.buyer]
kind = "agent"
endpoint = "cheap"
tools = ["pay", "asks", "run.code"]
"""
    configured(tmp_path, more=more)
    doctor(SharedOptions(config=tmp_path / "shikisha.toml"))
    shown = capsys.readouterr().out
    assert "note  agent buyer: may call pay (unknown) without approval; set effect or approval of each" in shown
    assert "agent clerk: may" not in shown
