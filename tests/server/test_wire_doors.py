"""What endpoints send and refuse, as the clients of the doors meet it: state that goes back, ids, limits, causes."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from serving import At, served
from wire import Answer, Seen, wire_endpoint

from shikisha.core.run import Run
from shikisha.server.keys.key import KeyScope
from shikisha.server.store import RunFilter

FILE = """
conductor = "fixed:single?worker=only"
[workers.only]
kind = "chat"
model = "m1"
base_url = "{url}"
tools = true
price = {{input = 1.0, output = 10.0}}
attempts = 2
{more}
"""
WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CHAT_TOOLS = [{"type": "function", "function": WEATHER}]
QUESTION = {"role": "user", "content": "What is it like in Oslo?"}
CALL = {
    "index": 0,
    "id": "call_00",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
}
USAGE = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    more = {"usage": USAGE} if finish else {}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def says(text: str, **more: object) -> Answer:
    return {"sse": [chunk({"content": text}), chunk({}, "stop")], **more}


def calls(*deltas: Mapping[str, Any]) -> Answer:
    return {"sse": [*map(chunk, deltas), chunk({}, "tool_calls")]}


@asynccontextmanager
async def serving(
    folder: Path, answers: Sequence[Answer], more: str = ""
) -> AsyncIterator[tuple[At, Seen, httpx2.AsyncClient]]:
    async with (
        wire_endpoint(answers) as seen,
        served(folder, FILE.format(url=seen.url, more=more)) as at,
        at.http() as http,
    ):
        yield at, seen, http


async def ask_chat(http: httpx2.AsyncClient, *messages: Mapping[str, Any], **more: object) -> httpx2.Response:
    return await http.post("/v1/chat/completions", json={"model": "shikisha", "messages": messages, **more})


async def ask_messages(http: httpx2.AsyncClient, *messages: Mapping[str, Any], **more: object) -> httpx2.Response:
    body = {"model": "shikisha", "max_tokens": 100, "messages": messages, **more}
    return await http.post("/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"})


REASONED = calls(
    {"role": "assistant", "content": None, "reasoning_content": "I should "},
    {"reasoning_content": "look."},
    {"tool_calls": [CALL]},
)
SIGNED = calls({"tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "EjQKMg=="}}}]})
DETAILED = calls(
    {"reasoning_details": [{"type": "reasoning.text", "text": "I ", "index": 0, "format": "x"}]},
    {"reasoning_details": [{"type": "reasoning.text", "text": "look.", "index": 0, "format": "x", "signature": "s"}]},
    {"tool_calls": [CALL]},
)
PARTS = calls(
    {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "I look."}]}]}, {"tool_calls": [CALL]}
)
BACK = {
    "reasoning_content": (REASONED, [["messages.1.reasoning_content", "I should look\\."]]),
    "thought signatures": (SIGNED, [["messages.1.tool_calls.*.extra_content.google.thought_signature", "EjQKMg=="]]),
    "reasoning_details": (
        DETAILED,
        [["messages.1.reasoning_details.*.text", "I look\\."], ["messages.1.reasoning_details.*.signature", "s"]],
    ),
    "parts of the content": (PARTS, [["messages.1.content.*.thinking.*.text", "I look\\."]]),
    "ids": (
        calls({"tool_calls": [{**CALL, "id": "functions.get_weather:0"}]}),
        [["messages.*.tool_call_id", "functions\\.get_weather:0"]],
    ),
}


def place(needs: list[list[str]]) -> list[list[str]]:
    """Return the paths with the assistant's message wherever it stands."""
    return [[path.replace("messages.1.", "messages.*."), pattern] for path, pattern in needs]


@pytest.mark.parametrize("name", BACK)
async def test_what_came_with_a_call_goes_back_with_its_result(name: str, tmp_path: Path) -> None:
    first, needs = BACK[name]
    async with serving(tmp_path, [first, says("4 degrees", needs=place(needs))]) as (_, seen, http):
        came = (await ask_chat(http, QUESTION, tools=CHAT_TOOLS)).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": came["tool_calls"][0]["id"], "content": "4"}
        told = await ask_chat(http, QUESTION, came, result, tools=CHAT_TOOLS)
    assert told.status_code == 200, told.text
    assert told.json()["choices"][0]["message"]["content"] == "4 degrees"
    assert len(seen.bodies) == 2


@pytest.mark.parametrize("name", BACK)
async def test_and_at_the_door_for_anthropics_clients(name: str, tmp_path: Path) -> None:
    first, needs = BACK[name]
    tool = {"name": "get_weather", "input_schema": WEATHER["parameters"]}
    async with serving(tmp_path, [first, says("4 degrees", needs=place(needs))]) as (_, _, http):
        came = (await ask_messages(http, QUESTION, tools=[tool])).json()
        (used,) = [block for block in came["content"] if block["type"] == "tool_use"]
        result = {"type": "tool_result", "tool_use_id": used["id"], "content": "4"}
        answer = {"role": "assistant", "content": [used]}
        told = await ask_messages(http, QUESTION, answer, {"role": "user", "content": [result]}, tools=[tool])
    assert told.status_code == 200, told.text
    assert told.json()["content"][-1]["text"] == "4 degrees"


async def test_what_came_with_a_call_goes_back_in_a_later_response(tmp_path: Path) -> None:
    first, needs = BACK["reasoning_content"]
    tool = {"type": "function", **WEATHER}
    answers = [first, says("4 degrees", needs=place(needs)), says("yes", needs=place(needs))]
    async with serving(tmp_path, answers) as (_, _, http):
        one = (await http.post("/v1/responses", json={"model": "shikisha", "input": "Oslo?", "tools": [tool]})).json()
        (call,) = [item for item in one["output"] if item["type"] == "function_call"]
        given = {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}
        body = {"model": "shikisha", "previous_response_id": one["id"], "input": [given], "tools": [tool]}
        two = (await http.post("/v1/responses", json=body)).json()
        assert two["status"] == "completed", two
        body = {"model": "shikisha", "previous_response_id": two["id"], "input": "Sure?", "tools": [tool]}
        three = (await http.post("/v1/responses", json=body)).json()
    assert three["status"] == "completed", three


async def call_and_answer(http: httpx2.AsyncClient, door: str) -> list[dict[str, Any]]:
    """Ask, answer the call of a tool, and return the conversation so far as a client without state keeps it."""
    tools = door_tools(door)
    came = (await ask(http, door, [QUESTION], tools)).json()
    chat: list[dict[str, Any]] = [QUESTION, *history_of(door, came)]
    told = await ask(http, door, chat, tools)
    assert told.status_code == 200, told.text
    said = {"role": "assistant", "content": "4 degrees"}
    return [*chat, said, {"role": "user", "content": "Sure?"}]


def history_of(door: str, came: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the turn that calls a tool, and its result, as a client keeps them."""
    match door:
        case "chat":
            turn = came["choices"][0]["message"]
            return [turn, {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "4"}]
        case "messages":
            (used,) = [block for block in came["content"] if block["type"] == "tool_use"]
            result = {"type": "tool_result", "tool_use_id": used["id"], "content": "4"}
            return [{"role": "assistant", "content": came["content"]}, {"role": "user", "content": [result]}]
        case _:
            (call,) = [item for item in came["output"] if item["type"] == "function_call"]
            return [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}]


def door_tools(door: str) -> list[dict[str, Any]]:
    match door:
        case "chat":
            return CHAT_TOOLS
        case "messages":
            return [{"name": "get_weather", "input_schema": WEATHER["parameters"]}]
        case _:
            return [{"type": "function", **WEATHER}]


async def ask(
    http: httpx2.AsyncClient,
    door: str,
    chat: Sequence[Mapping[str, Any]],
    tools: object,
    key: str | None = None,
    **further: object,
) -> httpx2.Response:
    path = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}[door]
    name = "input" if door == "responses" else "messages"
    more = {"max_tokens": 100} if door == "messages" else {"store": False} if door == "responses" else {}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = {"model": "shikisha", name: list(chat), "tools": tools, **more, **further}
    return await http.post(path, json=body, headers=headers)


@pytest.mark.parametrize("door", ["chat", "messages", "responses"])
@pytest.mark.parametrize("name", BACK)
async def test_what_came_with_a_call_goes_back_with_a_later_question(name: str, door: str, tmp_path: Path) -> None:
    """The client keeps the conversation, and no state of ours: the next run is told by the ids of the calls."""
    first, needs = BACK[name]
    answers = [first, says("4 degrees", needs=place(needs)), says("yes", needs=place(needs))]
    async with serving(tmp_path, answers) as (_, seen, http):
        chat = await call_and_answer(http, door)
        told = await ask(http, door, chat, door_tools(door))
        assert told.status_code == 200, told.text
        assert "yes" in told.text
    assert len(seen.bodies) == 3


@pytest.mark.parametrize("why", ["the call is another now", "another tenant", "erased", "fewer labels"])
async def test_it_goes_back_with_the_tenants_own_calls_only(why: str, tmp_path: Path) -> None:
    async with serving(tmp_path, [REASONED, says("4 degrees"), says("yes")]) as (at, seen, http):
        key = None
        if why == "fewer labels":
            http.headers["x-shikisha-labels"] = "private"
        chat = await call_and_answer(http, "chat")
        http.headers.pop("x-shikisha-labels", None)
        assert at.service is not None
        (run,) = (await at.service.store.search(RunFilter())).runs
        if why == "another tenant":
            key = (await at.issue(KeyScope.RUN)).secret
        elif why == "erased":
            await at.service.store.erase([run.run], actor="ann")
        elif why != "fewer labels":
            chat[1]["tool_calls"][0]["function"]["arguments"] = '{"city":"Rome"}'
        told = await ask(http, "chat", chat, CHAT_TOOLS, key)
        assert told.status_code == 200, told.text
    assert "reasoning_content" in seen.bodies[1]["messages"][1]
    assert "reasoning_content" not in seen.bodies[2]["messages"][1]


HISTORY: dict[str, tuple[str, object, object]] = {  # what clients keep of a call and of its result
    "arguments as null": ("chat", None, "4"),
    "arguments as an object": ("chat", {"city": "Oslo"}, "4"),
    "a result that is null": ("chat", "{}", None),
    "an input that is null": ("messages", None, "4"),
    "a tool that was found": ("messages", {}, [{"type": "tool_reference", "tool_name": "get_time"}]),
}


@pytest.mark.parametrize("name", HISTORY)
async def test_a_history_of_calls_is_read_as_clients_keep_it(name: str, tmp_path: Path) -> None:
    door, arguments, result = HISTORY[name]
    chat: list[dict[str, Any]] = [QUESTION]
    if door == "chat":
        function = {"name": "get_weather", "arguments": arguments}
        calls_made = [{"id": "call_1", "type": "function", "function": function}]
        chat += [{"role": "assistant", "content": None, "tool_calls": calls_made}]
        chat += [{"role": "tool", "tool_call_id": "call_1", "content": result}]
    else:
        used = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": arguments}
        told = {"type": "tool_result", "tool_use_id": "toolu_1", "content": result}
        chat += [{"role": "assistant", "content": [used]}, {"role": "user", "content": [told]}]
    texts = [["messages.*.tool_calls.*.function.arguments", r"\{.*\}"]]
    async with serving(tmp_path, [says("yes", needs=texts)]) as (_, _, http):
        answer = await ask(http, door, chat, door_tools(door))
    assert answer.status_code == 200, answer.text
    assert "yes" in answer.text


async def test_ids_of_another_provider_are_mapped_both_ways(tmp_path: Path) -> None:
    """Mistral refuses any id that is not nine letters and digits; the second question of a chat has ids of ours."""
    nine = [["messages.*.tool_calls.*.id", "[a-zA-Z0-9]{9}"], ["messages.*.tool_call_id", "[a-zA-Z0-9]{9}"]]
    first = calls({"tool_calls": [{**CALL, "id": "aB3dE5gH9"}]})
    own = [["messages.*.tool_calls.*.id", "aB3dE5gH9"]]
    async with serving(tmp_path, [first, says("4", needs=own), says("5", needs=nine)]) as (_, seen, http):
        came = (await ask_chat(http, QUESTION, tools=CHAT_TOOLS)).json()["choices"][0]["message"]
        chat = [QUESTION, came, {"role": "tool", "tool_call_id": came["tool_calls"][0]["id"], "content": "4"}]
        assert (await ask_chat(http, *chat, tools=CHAT_TOOLS)).status_code == 200
        chat += [{"role": "assistant", "content": "4"}, {"role": "user", "content": "And in Bergen?"}]
        told = await ask_chat(http, *chat, tools=CHAT_TOOLS)
    assert told.status_code == 200, told.text
    sent = seen.bodies[2]["messages"]
    (result,) = [each for each in sent if each["role"] == "tool"]
    (called,) = [each["tool_calls"][0]["id"] for each in sent if each.get("tool_calls")]
    assert result["tool_call_id"] == called


LONG = "mcp__github_enterprise_server__search_repositories_and_issues_by_full_text_query"


async def test_a_name_that_is_too_long_is_shortened_and_mapped_back(tmp_path: Path) -> None:
    short = [["tools.*.function.name", "[a-zA-Z0-9_-]{1,64}"]]
    (tmp_path / "one").mkdir()
    async with serving(tmp_path / "one", [says("x")]) as (_, seen, http):
        tool = {"name": LONG, "input_schema": {"type": "object"}}
        await ask_messages(http, QUESTION, tools=[tool])
        name = seen.bodies[0]["tools"][0]["function"]["name"]
    called = calls({"tool_calls": [{**CALL, "function": {"name": name, "arguments": "{}"}}]})
    async with serving(tmp_path, [{**called, "needs": short}]) as (_, _, http):
        came = await ask_messages(http, QUESTION, tools=[tool])
    assert came.status_code == 200, came.text
    assert came.json()["content"][-1]["name"] == LONG


def error(message: str, code: str | None = None, param: str | None = None, kind: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


TOO_LONG = error(
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
    "context_length_exceeded",
    "messages",
)
REFUSALS: dict[str, tuple[Answer, int, str, str | None, int, str]] = {
    # what the endpoint says; status, code and param at the door for chat; status and words at that for messages
    "too long": (
        {"status": 400, "body": TOO_LONG},
        400,
        "context_length_exceeded",
        "messages",
        400,
        "prompt is too long",
    ),
    "too large": (
        {"status": 413, "body": error("too large")},
        400,
        "context_length_exceeded",
        "messages",
        400,
        "prompt is too long",
    ),
    "filtered": (
        {
            "status": 400,
            "body": error("filtered due to the prompt triggering the content management policy", "content_filter"),
        },
        400,
        "content_filter",
        None,
        400,
        "content management policy",
    ),
    "a parameter": (
        {"status": 400, "body": error("Unsupported value: 'top_p'", "unsupported_value", "top_p")},
        400,
        "unsupported_parameter",
        "top_p",
        400,
        "top_p",
    ),
    "too many tools": (
        {"status": 400, "body": error("Invalid 'tools': array too long.", "array_above_max_length", "tools")},
        400,
        "tool_limits",
        "tools",
        400,
        "array too long",
    ),
    "throttled": (
        {"status": 429, "headers": {"Retry-After": "300"}, "body": error("slow down")},
        429,
        "rate_limit_exceeded",
        None,
        429,
        "slow down",
    ),
    "no credit": (
        {"status": 429, "body": error("no", "insufficient_quota")},
        503,
        "worker_quota",
        None,
        503,
        "no credit",
    ),
    "a bad gateway": (
        {"status": 401, "body": error("bad key", "invalid_api_key")},
        502,
        "run_failed",
        None,
        502,
        "key",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_what_a_client_hears_of_a_refusal(name: str, tmp_path: Path) -> None:
    answer, status, code, param, theirs, words = REFUSALS[name]
    async with serving(tmp_path, [answer]) as (_, seen, http):
        chat = await ask_chat(http, QUESTION)
        assert (chat.status_code, chat.json()["error"]["code"], chat.json()["error"]["param"]) == (status, code, param)
        messages = await ask_messages(http, QUESTION)
    assert (messages.status_code, words in messages.text) == (theirs, True), messages.text
    assert len(seen.bodies) == 2  # neither was asked twice
    if status == 429:
        assert chat.headers["retry-after"] == "300"


async def test_a_stop_costs_what_had_come_and_a_bound_for_the_moment(tmp_path: Path) -> None:
    words: Answer = {"sse": [chunk({"content": f"word{n} "}) for n in range(400)], "pace": 0.02}
    async with serving(tmp_path, [words], "max_output_tokens = 4096") as (at, seen, http):
        body = {"model": "shikisha", "messages": [QUESTION], "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as stream:
            heard = 0
            async for line in stream.aiter_lines():
                heard += '"content":"word' in line
                if heard >= 3:
                    break
        assert at.service is not None
        (served_run,) = (await at.service.store.search(RunFilter())).runs
        async with asyncio.timeout(10):
            run = Run.fold(await at.service.journal.read(served_run.run))
            while run.attempts[0].outcome is None:
                await asyncio.sleep(0.02)
                run = Run.fold(await at.service.journal.read(served_run.run))
    assert len(seen.bodies) == 1
    assert run.charged.dollars == 0
    assert 0 < (run.uncertain.dollars or 0) < 0.002  # the worst case is $0.041


PATCH = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "definition": "start: /.+/s"}}


@pytest.mark.parametrize(
    "arguments", ['{"input":"*** Begin Patch"}', '{"patch":"*** Begin Patch"}'], ids=["as shown", "as known"]
)
async def test_a_custom_tool_is_called_with_free_text_and_takes_its_result(arguments: str, tmp_path: Path) -> None:
    """Codex's `apply_patch`: a worker is shown a function of one text."""
    made = {**CALL, "function": {"name": "apply_patch", "arguments": arguments}}
    grammar = [["tools.*.function.description", "(?s).*start: /\\.\\+/s.*"]]
    first = {**calls({"tool_calls": [made]}), "needs": grammar}
    back = [["messages.*.tool_calls.*.function.name", "apply_patch"]]
    async with serving(tmp_path, [first, says("Patched."), says("Yes.", needs=back)]) as (_, seen, http):
        body = {"model": "shikisha", "input": "Patch it.", "tools": [PATCH], "stream": True}
        came = await http.post("/v1/responses", json=body)
        events = [json.loads(line[6:]) for line in came.text.splitlines() if line.startswith("data: ")]
        assert [each["sequence_number"] for each in events] == list(range(len(events)))
        one = events[-1]["response"]
        (call,) = one["output"]
        assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", "*** Begin Patch")
        assert "response.custom_tool_call_input.done" in {each["type"] for each in events}
        result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Done."}
        more = {"model": "shikisha", "tools": [PATCH]}
        two = await http.post("/v1/responses", json={**more, "previous_response_id": one["id"], "input": [result]})
        assert two.json()["status"] == "completed", two.text
        history = [{"role": "user", "content": "Patch it."}, call, result, {"role": "user", "content": "Sure?"}]
        three = await http.post("/v1/responses", json={**more, "store": False, "input": history})
        assert three.json()["status"] == "completed", three.text
    assert len(seen.bodies) == 3


FORCED: dict[str, tuple[object, object]] = {  # of a named tool, and of any
    "chat": ({"type": "function", "function": {"name": "get_weather"}}, "required"),
    "messages": ({"type": "tool", "name": "get_weather"}, {"type": "any"}),
    "responses": ({"type": "function", "name": "get_weather"}, "required"),
}


@pytest.mark.parametrize("place", [0, 1], ids=["named", "any"])
@pytest.mark.parametrize("door", FORCED)
async def test_a_call_is_forced_by_schema_at_every_door_and_its_result_is_answered(
    door: str, place: int, tmp_path: Path
) -> None:
    config = FILE.replace("tools = true", "structured_output = true")
    answers = [says('{"city": "Oslo"}'), says("4 degrees"), says("yes")]
    async with (
        wire_endpoint(answers) as seen,
        served(tmp_path, config.format(url=seen.url, more="")) as at,
        at.http() as http,
    ):
        tools, chat = door_tools(door), [QUESTION]
        came = await ask(http, door, chat, tools, tool_choice=FORCED[door][place])
        assert came.status_code == 200, came.text
        assert "get_weather" in came.text
        assert "Oslo" in came.text
        schema = seen.bodies[0]["response_format"]["json_schema"]["schema"]
        assert list(schema["properties"]) == ["city"]
        assert "tools" not in seen.bodies[0]
        rest = history_of(door, came.json())
        told = await ask(http, door, [*chat, *rest], tools)
        assert told.status_code == 200, told.text
        assert "4 degrees" in told.text
    assert "response_format" not in seen.bodies[1]
