"""Twelve situations for each provider, replayed from what it documents: a row is green when all of them hold.

`wire_cases/providers.json` has each provider's own shapes: ids, thoughts, usage of a cache hit, and its errors. None
stands for what a provider does not have (a server of one's own has no quota). What differs is sent as it is documented,
and what must come of it is the same for all.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from serving import At, served
from wire import Answer, Seen, wire_endpoint, wire_endpoints

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Price
from shikisha.core.call import Card, ClientOptions, Reply, Request
from shikisha.core.errors import WorkerError
from shikisha.core.events import AttemptFailed, AttemptFinished
from shikisha.core.messages import Json, ToolExchange, ToolResult
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.tools import Tool, ToolEffect
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Agent, Member, Pool, ToolList
from shikisha.engine.recorder import MemoryRecorder
from shikisha.workers.chat import ChatSettings, ChatWorker, build
from support import AT_ONCE, Answers

FOLDER = Path(__file__).parent.parent / "workers" / "wire_cases"
PROVIDERS: Mapping[str, Mapping[str, Any]] = json.loads((FOLDER / "providers.json").read_text(encoding="utf-8"))
SITUATIONS = (
    *("plain", "stream", "reasoning", "parallel", "cache", "filter"),
    *("overflow", "quota", "throttle", "cut", "refusal", "cancel"),
)
ROUTES = ("worker", "agent")
CARD = Card("w", kind="chat", price=Price(1.0, 2.0, 0.1), max_output_tokens=4096, timeout=10.0, attempts=1, tools=True)
TASK = Task("What is it like in Oslo?")
CITY: Mapping[str, Json] = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [Tool(name, name, CITY, "shop", effect=ToolEffect.READ) for name in ("get_weather", "get_time")]
FAULTS = {
    "filter": ("refused", "filtered"),
    "overflow": ("bad_request", "too_long"),
    "quota": ("auth", "quota"),
    "throttle": ("rate_limited", "throttled"),
    "cut": ("cut_off", "network"),
    "refusal": ("refused", "refused"),
}
USAGE = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def stream(shape: Mapping[str, Any], *deltas: Mapping[str, Any], finish: str = "stop", usage: object = None) -> Answer:
    """Return a stream in a provider's form."""
    chunks = [chunk(delta) for delta in deltas]
    if shape.get("cumulative"):
        text = ""
        for each in chunks:
            text += each["choices"][0]["delta"].get("content") or ""
            each["choices"][0]["message"] = {"role": "assistant", "content": text}
    last = chunk({}, finish)
    match shape.get("usage_place"):
        case "x_groq":
            last["x_groq"] = {"id": "req_1", "usage": usage or USAGE}
        case "timings":
            last["timings"] = (
                {"prompt_n": 100, "cache_n": 900, "predicted_n": 5} if usage else {"prompt_n": 50, "predicted_n": 20}
            )
        case _:
            last["usage"] = usage or USAGE
    return {"sse": [*chunks, last], "no_done": shape.get("end") == "close"}


def call(shape: Mapping[str, Any], index: int, name: str) -> dict[str, Any]:
    known = shape["id"][:-1] + str(index)
    function = {"name": name, "arguments": '{"city": "Oslo"}'}
    return {"index": index, "id": known, "type": "function", "function": function, **shape.get("call", {})}


def answers_of(shape: Mapping[str, Any], situation: str) -> list[Answer] | None:
    """Return what the endpoint answers in a situation; None where a provider has no such thing."""
    says = stream(shape, {"role": "assistant", "content": "It is "}, {"content": "4 degrees"})
    ids = ["messages.*.tool_call_id", f"{shape['id'][:-1].replace('.', chr(92) + '.')}[01]"]
    match situation:
        case "plain":
            message = {"role": "assistant", "content": "It is 4 degrees"}
            body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
            return [{"body": body}]
        case "stream" | "cancel":
            return [says] if situation == "stream" else [{**stream(shape, *[{"content": "word "}] * 300), "pace": 0.02}]
        case "reasoning":
            thoughts = shape.get("reasoning") or []
            needs = [ids, *([shape["needs"]] if "needs" in shape else [])]
            asks = stream(shape, *thoughts, {"tool_calls": [call(shape, 0, "get_weather")]}, finish="tool_calls")
            return [asks, {**says, "needs": needs}]
        case "parallel":
            calls = [
                {"tool_calls": [call(shape, index, name)]} for index, name in enumerate(("get_weather", "get_time"))
            ]
            return [stream(shape, *calls, finish="tool_calls"), {**says, "needs": [ids]}]
        case "cache":
            return [stream(shape, {"content": "It is 4 degrees"}, usage=shape["cache"])]
        case "cut":
            return [{**says, "sse": says["sse"][:-1], "cut": True}]
        case "refusal":
            return [stream(shape, {"refusal": "I will not say that."})]
        case _:
            told = shape[situation]
            if told is not None and "finish" in told:
                return [stream(shape, {"content": "It"}, finish=told["finish"])]
            return None if told is None else [told]


async def play(name: str, situation: str, route: str) -> bool:
    """Replay a situation and check what comes of it; False where the provider has no such thing."""
    shape = PROVIDERS[name]
    answers = answers_of(shape, situation)
    if answers is None:
        return False
    async with wire_endpoint(answers) as seen:
        settings = {"model": "m", "base_url": seen.url, "provider": name, "tools": True, "stream": situation != "plain"}
        worker = build(ChatSettings.model_validate(settings), CARD, SecretStore({}))
        try:
            if situation in ("reasoning", "parallel") and route == "worker":
                assert await exchange(worker, 2 if situation == "parallel" else 1) == "It is 4 degrees"
            else:
                check(await perform(worker, situation, route), situation)
        finally:
            await worker.aclose()
        once = situation not in ("reasoning", "parallel")
        assert len(seen.bodies) == (1 if once else 2), "requests"
    return True


async def exchange(worker: ChatWorker, count: int) -> str:
    """Let the worker ask for the client's tools, answer it, and return what it says then."""
    client_options = ClientOptions(tuple(tool.function() for tool in TOOLS))
    asked = await worker.perform(Request(TASK, TASK.prompt, client_options=client_options, key="a"))
    assert len(asked.calls) == count
    results = tuple(ToolResult(each.id, "4") for each in asked.calls)
    done = ToolExchange(asked.calls, results, asked.text, asked.envelope)
    return (
        await worker.perform(Request(TASK, TASK.prompt, client_options=client_options, key="b", exchanges=(done,)))
    ).text


async def perform(worker: ChatWorker, situation: str, route: str) -> Run:
    tools = [(tool, Member(Card(tool.name), Answers(lambda _: Reply("4", dollars=0.0)))) for tool in TOOLS]
    agent = Agent((ToolList(tools),)) if route == "agent" else None
    recorder = MemoryRecorder()
    engine = Engine(recorder, retry=AT_ONCE)
    going = engine.run(
        TASK, Pool([Member(CARD, worker, agent=agent)]), ScriptedConductor([Plan((Step("Answer.", 0),))])
    )
    if situation != "cancel":
        return await going
    task = asyncio.ensure_future(going)
    await asyncio.sleep(0.3)
    task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(ended, Run):
        return ended
    (run,) = recorder._events
    return Run.fold(await recorder.read(run))


def check(run: Run, situation: str) -> None:
    """Check what came of a situation."""
    own: Sequence[Any] = [each for each in run.attempts if not each.started.call]
    end = own[-1].outcome
    if situation == "cancel":
        assert isinstance(end, AttemptFailed), end
        assert 0 < (end.uncertain.dollars or 0.0) < 0.002, end.uncertain  # the worst case is $0.0082
    elif situation in FAULTS:
        assert isinstance(end, AttemptFailed), end
        assert (str(end.fault), str(end.cause if end.cause != "unknown" else FAULTS[situation][1])) == FAULTS[
            situation
        ], end
        if situation == "throttle":
            assert end.retry_after is not None, end
            assert abs(end.retry_after - 20) < 1
    else:
        assert isinstance(end, AttemptFinished), end
        assert end.text == "It is 4 degrees"
        if situation == "cache":
            assert abs((run.charged.dollars or 0.0) - 0.0002) < 1e-9, run.charged


DOORS = ("chat", "messages", "responses")
# What a client hears, at every door.
HEARD = {
    "filter": (400, "content_filter"),
    "overflow": (400, "context_length_exceeded"),
    "quota": (503, "worker_quota"),
    "throttle": (429, "rate_limit_exceeded"),
    "cut": (502, "run_failed"),
    "refusal": (422, "refused"),
}
TOOL_FORMS = {
    "chat": [{"type": "function", "function": {"name": tool.name, "parameters": CITY}} for tool in TOOLS],
    "messages": [{"name": tool.name, "input_schema": CITY} for tool in TOOLS],
    "responses": [{"type": "function", "name": tool.name, "parameters": CITY} for tool in TOOLS],
}
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


class ProviderDoors:
    """A server of ours in front of all providers, each a model of its own, and what those answer now."""

    def __init__(self) -> None:
        self.scripts: dict[str, tuple[Sequence[Answer], Seen]] = {}
        self.at: At | None = None

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator["ProviderDoors"]:
        """Serve, with the journal in a folder."""
        async with wire_endpoints(self.scripts) as url:
            lines = ['conductor = "fixed:single?worker=openai"']
            for name in PROVIDERS:
                for worker, stream in ((name, "true"), (f"{name}_whole", "false")):
                    lines += [
                        f"[workers.{worker}]",
                        f'kind = "chat"\nmodel = "m"\nbase_url = "{url}/{name}/v1"\nprovider = "{name}"',
                        f"tools = true\nstream = {stream}\nattempts = 1\nmax_output_tokens = 4096",
                        "price = { input = 1.0, output = 2.0, cached = 0.1 }",
                        f'[conductors.{worker}]\nkind = "fixed"\ntopology = "single"',
                        f'roles = {{ worker = "{worker}" }}',
                    ]
            async with served(folder, "\n".join(lines)) as at, at.http() as self.http:
                self.at = at
                yield self

    async def play(self, name: str, situation: str, door: str) -> bool:
        """Replay a situation at a door and check what comes of it; False where the provider has no such thing."""
        answers = answers_of(PROVIDERS[name], situation)
        if answers is None:
            return False
        seen = Seen()
        self.scripts[name] = (answers, seen)
        model = f"shikisha/{name}_whole" if situation == "plain" else f"shikisha/{name}"
        turns: list[Any] = [{"role": "user", "content": TASK.prompt}]
        body = {"model": model, "stream": situation in ("stream", "cancel"), "max_tokens": 4096}
        if door == "responses":
            body |= {"max_output_tokens": body.pop("max_tokens"), "store": False}
        if situation in ("reasoning", "parallel"):
            body["tools"] = TOOL_FORMS[door]
        if situation == "cancel":
            await self._cancel(door, body, turns)
            return True
        came = await self._ask(door, body, turns)
        if situation in HEARD:
            check_refusal(came, situation, door)
        else:
            if "tools" in body:
                assert came.status_code == 200, came.text
                results = tool_results(door, came.json())
                assert json.dumps(results).count('"4"') == (2 if situation == "parallel" else 1), results
                came = await self._ask(door, body, turns + results)
            assert came.status_code == 200, came.text
            assert said_at(door, came) == "It is 4 degrees", came.text
            if situation == "cache":
                run = await self._run(came.headers["x-shikisha-run-id"])
                assert abs((run.charged.dollars or 0.0) - 0.0002) < 1e-9, run.charged
        assert len(seen.bodies) == (2 if "tools" in body else 1), "requests"
        return True

    async def _ask(self, door: str, body: Mapping[str, Any], turns: Sequence[Any]) -> httpx2.Response:
        name = "input" if door == "responses" else "messages"
        return await self.http.post(PATHS[door], json={**body, name: turns})

    async def _run(self, name: str) -> Run:
        assert self.at is not None
        assert self.at.service is not None
        return Run.fold(await self.at.service.journal.read(name))

    async def _cancel(self, door: str, body: Mapping[str, Any], turns: Sequence[Any]) -> None:
        """Leave a stream after three words, and look at what that costs."""
        name = "input" if door == "responses" else "messages"
        async with self.http.stream("POST", PATHS[door], json={**body, name: turns}) as stream:
            run, heard = stream.headers["x-shikisha-run-id"], 0
            async for line in stream.aiter_lines():
                heard += "word " in line
                if heard >= 3:
                    break
        async with asyncio.timeout(10):
            while not (ended := await self._run(run)).attempts[0].outcome:  # noqa: ASYNC110 - the journal tells nobody
                await asyncio.sleep(0.02)
        check(ended, "cancel")


def tool_results(door: str, came: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the turns that answer all calls in a reply, the reply's own first."""
    match door:
        case "chat":
            turn = came["choices"][0]["message"]
            calls = turn["tool_calls"]
            return [turn, *({"role": "tool", "tool_call_id": each["id"], "content": "4"} for each in calls)]
        case "messages":
            used = [each["id"] for each in came["content"] if each["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": each, "content": "4"} for each in used]
            return [
                {"role": "assistant", "content": came["content"]},
                *({"role": "user", "content": [each]} for each in results),
            ]
        case _:
            made = [each for each in came["output"] if each["type"] == "function_call"]
            return [
                *made,
                *({"type": "function_call_output", "call_id": each["call_id"], "output": "4"} for each in made),
            ]


def said_at(door: str, came: httpx2.Response) -> str:
    """Return the text of a whole or streamed reply."""
    if "event-stream" in came.headers["content-type"]:
        events = [json.loads(line[6:]) for line in came.text.splitlines() if line.startswith("data: {")]
        match door:
            case "chat":
                return "".join(c["delta"].get("content") or "" for each in events for c in each["choices"])
            case "messages":
                return "".join(
                    each["delta"].get("text", "") for each in events if each["type"] == "content_block_delta"
                )
            case _:
                return "".join(each["delta"] for each in events if each["type"] == "response.output_text.delta")
    body = came.json()
    match door:
        case "chat":
            return str(body["choices"][0]["message"]["content"])
        case "messages":
            return "".join(each["text"] for each in body["content"] if each["type"] == "text")
        case _:
            return "".join(
                part["text"] for each in body["output"] if each["type"] == "message" for part in each["content"]
            )


def check_refusal(came: httpx2.Response, situation: str, door: str) -> None:
    """Check what a client hears of a call that gave no answer."""
    said = came.json()["error"]
    assert (came.status_code, said["code"]) == HEARD[situation], came.text
    if situation == "throttle":
        assert came.headers["retry-after"] in ("20", "21"), came.headers
    if door == "messages" and situation == "overflow":
        assert said["message"].startswith("prompt is too long"), said  # what agents compact at


async def row(name: str, doors: ProviderDoors) -> dict[str, str]:
    """Return how each situation of a provider went on all routes: `yes`, `-` for none, or what is wrong."""
    found = {}
    for situation in SITUATIONS:
        try:
            there = [await play(name, situation, route) for route in ROUTES]
            there += [await doors.play(name, situation, door) for door in DOORS]
            found[situation] = "yes" if all(there) else "-"
        except (AssertionError, WorkerError) as error:
            found[situation] = f"no: {error}"[:200]
    return found
