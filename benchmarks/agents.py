"""Agents: what a call of a tool costs, what a long loop holds, and that no write is made twice whatever dies when.

    python benchmarks/agents.py [--part cost|kill|memory|overhead|fleet] [--kills 25] [--json]

The models are scripted: they ask for the next calls and then answer, so all that is measured is the engine, the journal
and the tools. `kill`: a run of 1,000 calls of tools (250 replies of two reads and two writes) is killed with -9 at
random moments and resumed, until it ends; its writes append a line to a file with fsync and honor no key. `overhead`:
the same eleven requests to one endpoint in a process of its own, which takes 50 ms each, by an agent with a journal and
by a bare loop over aiohttp, in turn. `fleet`: 200 agents with ten calls each at once, over HTTP, with a journal.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from time import perf_counter, process_time, sleep

import aiohttp

from common import Always, Figure, report
from shikisha.core.budget import Caps, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.events import AttemptFailed, RunStatus, ToolRefused
from shikisha.core.messages import ToolCall
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Agent, Member, Pool, ToolList
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal import open_journal
from shikisha.workers.chat import ChatSettings, build
from shikisha.workers.function_tools import function_tools, reads

TASK, CAPS = Task("Go through the list."), Caps(seconds=None, tool_calls=None)
CONDUCTOR = Always(Plan((Step("Go through the list.", 0),)))
HERE = Path(__file__)


class ScriptedModel:
    """Asks for these calls in each of so many replies, then answers; it stands for a model and takes no time."""

    def __init__(self, replies: int, calls: Callable[[int], Sequence[ToolCall]]) -> None:
        self._replies, self._calls = replies, calls

    async def perform(self, request: Request) -> Reply:
        """Ask for the next calls."""
        turn = len(request.exchanges)
        usage = Usage(1_000, 50)
        if turn >= self._replies:
            return Reply("done", usage)
        return Reply("", usage, calls=tuple(self._calls(turn)))


def agent(worker: object, tools: ToolList, card: Card | None = None) -> Pool:
    """Return the pool of one agent."""
    shown = card or Card("agent", kind="agent", tools=True)
    return Pool([Member(shown, worker, agent=Agent((tools,), turns=1_000))])  # type: ignore[arg-type]


# What a call costs


async def cost() -> list[Figure]:
    """Measure time a call of a tool, in memory and journaled, with one call a reply and with ten."""
    figures = []
    for calls in (1, 10):
        for name, aim in (("memory", 1.5), ("journal", 4.0)):
            times = [await _cost_once(calls, journaled=name == "journal") for _ in range(7)]
            what = f"a tool call, {calls} a reply, in {name}"
            figures.append(Figure(f"{what}: best of 7", min(wall for wall, _ in times), "ms", aim))
            figures.append(Figure(f"{what}: CPU, median of 7", statistics.median(cpu for _, cpu in times), "ms"))
    return figures


async def _cost_once(calls: int, *, journaled: bool) -> tuple[float, float]:
    @reads
    async def look(item: int) -> str:
        return f"item {item}"

    turns = 200 // calls
    model = ScriptedModel(turns, lambda turn: [_call("look", turn * calls + place) for place in range(calls)])
    pool = agent(model, function_tools([look]))
    with tempfile.TemporaryDirectory() as folder:
        if not journaled:
            return await _timed(Engine(MemoryRecorder()), pool, turns * calls)
        async with open_journal(f"{folder}/runs.db") as journal:
            return await _timed(Engine(journal), pool, turns * calls)


async def _timed(engine: Engine, pool: Pool, calls: int) -> tuple[float, float]:
    """Return milliseconds a call, by the clock and of CPU."""
    began, used = perf_counter(), process_time()
    run = await engine.run(TASK, pool, CONDUCTOR, CAPS)
    assert run.answer == "done", run.why
    return 1_000 * (perf_counter() - began) / calls, 1_000 * (process_time() - used) / calls


def _call(name: str, item: int) -> ToolCall:
    return ToolCall(f"{name}-{item}", name, json.dumps({"item": item}))


# What dies


async def victim(folder: Path) -> None:
    """Perform the run of 1,000 calls, or go on with it."""
    books = os.open(folder / "writes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @reads
    async def look(item: int) -> str:
        return f"item {item}"

    def write(item: int) -> str:
        os.write(books, f"{item}\n".encode())
        os.fsync(books)
        return "written"

    def calls(turn: int) -> Sequence[ToolCall]:
        items = (2 * turn, 2 * turn + 1)
        return [*(_call("look", item) for item in items), *(_call("write", item) for item in items)]

    pool = agent(ScriptedModel(250, calls), function_tools([look, write]))
    async with open_journal(f"{folder}/runs.db") as journal:
        engine = Engine(journal)
        known = [summary.id for summary in await journal.runs()]
        print("up", flush=True)
        run = await (engine.resume(known[0], pool, CONDUCTOR) if known else engine.run(TASK, pool, CONDUCTOR, CAPS))
    print("end", run.status, flush=True)


async def kill(kills: int) -> list[Figure]:
    """Kill the run so often, let it end, and compare its writes with its journal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _kill_often(folder, kills)
        writes = Counter((folder / "writes").read_text().split())
        async with open_journal(f"{folder}/runs.db") as journal:
            (summary,) = await journal.runs()
            run = Run.fold(await journal.read(summary.id))
    assert run.status is RunStatus.DONE, run.why
    step = run.rounds[0].steps[0]
    lost = [each for each in step.attempts if isinstance(each.outcome, AttemptFailed)]
    writes_lost = sum(each.started.tool == "write" for each in lost)
    refused = sum(isinstance(each, ToolRefused) for each in step.tools)
    return [
        Figure("kill -9 at a run of 1,000 calls", kills, "times"),
        Figure("calls of tools in its journal", step.tool_calls, "calls", 1_000, at_least=True),
        Figure("writes made more than once", sum(count > 1 for count in writes.values()), "writes", 0),
        Figure("writes made", len(writes), "writes"),
        Figure("writes in flight at a kill, told to the agent as uncertain", writes_lost, "writes"),
        Figure("writes neither made nor told", max(0, 500 - len(writes) - writes_lost), "writes", 0),
        Figure("calls refused", refused, "calls", 0),
    ]


def _kill_often(folder: Path, kills: int) -> None:
    """Kill the victim at random moments; the one after the last kill ends by itself."""
    chance = random.Random(20261125)
    for kill_number in range(kills + 1):
        process = _start("--victim", str(folder))
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        if kill_number < kills:
            sleep(chance.uniform(0.0, 0.25))
            process.send_signal(signal.SIGKILL)
        process.wait()


def _start(*options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, str(HERE), *options], stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own script


def _output(*options: str) -> str:
    process = _start(*options)
    text, _ = process.communicate()
    assert process.returncode == 0, options
    return text


# What a long loop holds


async def memory_child() -> None:
    """Perform 40 replies with a result of 200 kB each, journaled, and print the growth of memory in MB."""

    @reads
    async def look(item: int) -> str:
        return f"{item} " + "x" * 200_000

    pool = agent(ScriptedModel(40, lambda turn: [_call("look", turn)]), function_tools([look]))
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(f"{folder}/runs.db") as journal:
            await Engine(journal).run(
                TASK, agent(ScriptedModel(1, lambda _: []), function_tools([look])), CONDUCTOR, CAPS
            )
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            run = await Engine(journal).run(TASK, pool, CONDUCTOR, CAPS)
    assert run.answer == "done", run.why
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, flush=True)


async def memory() -> list[Figure]:
    """Measure the memory of a long loop in a process of its own."""
    grown = float(_output("--memory"))
    return [Figure("40 replies, results of 200 kB: growth of the peak", grown, "MB", 100)]


# Over HTTP


async def endpoint(seconds: float) -> None:
    """Serve a chat endpoint that asks for a call until the conversation holds ten results; print its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                asked = await reader.readexactly(length)
                await asyncio.sleep(seconds)
                count = asked.count(b'"role":"tool"')
                message: dict[str, object] = {"role": "assistant", "content": "done"}
                if count < 10:
                    function = {"name": "look", "arguments": json.dumps({"item": count})}
                    calls = [{"id": f"c{count}", "type": "function", "function": function}]
                    message = {"role": "assistant", "content": None, "tool_calls": calls}
                finish = "tool_calls" if count < 10 else "stop"
                usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
                choice = {"index": 0, "message": message, "finish_reason": finish}
                body = json.dumps({"id": "1", "model": "m", "choices": [choice], "usage": usage}).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**24, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Endpoint:
    """The endpoint, in a process of its own."""

    def __init__(self, seconds: float) -> None:
        self.process = _start("--endpoint", str(seconds))
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/v1"

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@reads
async def look(item: int) -> str:
    """Look an item up."""
    return f"item {item}"


def chat_agent(url: str) -> Pool:
    """Return the pool of an agent whose model is this endpoint."""
    card = Card("agent", kind="agent", tools=True, max_output_tokens=100)
    settings = ChatSettings(model="m", base_url=url, tools=True, stream=False)
    return agent(build(settings, card, SecretStore({})), function_tools([look]), card)


async def bare_loop(client: aiohttp.ClientSession, url: str) -> str:
    """Make the same calls without an engine."""
    (tool,) = await function_tools([look]).search("", 1)
    messages: list[object] = [{"role": "user", "content": TASK.prompt}]
    while True:
        body = {"model": "m", "messages": messages, "tools": [tool.function()], "max_completion_tokens": 100}
        text = json.dumps(body, separators=(",", ":"))
        async with client.post(f"{url}/chat/completions", data=text) as reply:
            message = (await reply.json())["choices"][0]["message"]
        if not message.get("tool_calls"):
            return str(message["content"])
        messages.append(message)
        for call in message["tool_calls"]:
            content = await look(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


async def overhead() -> list[Figure]:
    """Compare an agent with a bare loop over the same endpoint, in turn."""
    ratios, mine = [], []
    with Endpoint(0.05) as served, tempfile.TemporaryDirectory() as folder:
        pool = chat_agent(served.url)
        async with open_journal(f"{folder}/runs.db") as journal, aiohttp.ClientSession() as client:
            engine = Engine(journal)
            for _ in range(20):
                began = perf_counter()
                assert await bare_loop(client, served.url) == "done"
                middle = perf_counter()
                run = await engine.run(TASK, pool, CONDUCTOR, CAPS)
                assert run.answer == "done", run.why
                ratios.append((perf_counter() - middle) / (middle - began))
                mine.append(perf_counter() - middle)
        await pool[0].worker.aclose()  # type: ignore[attr-defined]
    return [
        Figure("an agent's step of ten calls at 50 ms: median of 20", statistics.median(mine), "s"),
        Figure("against a bare loop: median ratio of 20 pairs", statistics.median(ratios), "times", 1.15),
    ]


async def fleet_child(url: str, agents: int) -> None:
    """Perform so many agents at once; print failures, seconds, CPU seconds and the peak of memory in MB."""
    pool = chat_agent(url)
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(f"{folder}/runs.db") as journal, aclosing(pool[0].worker):  # type: ignore[type-var]
            engine = Engine(journal)
            began = perf_counter()
            runs = await asyncio.gather(*(engine.run(TASK, pool, CONDUCTOR, CAPS) for _ in range(agents)))
            took = perf_counter() - began
    failed = sum(run.answer != "done" or run.rounds[0].steps[0].tool_calls != 10 for run in runs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([failed, took, process_time(), peak]), flush=True)


async def fleet() -> list[Figure]:
    """Perform 200 agents at once, in a process of their own."""
    with Endpoint(0.05) as served:
        told = _output("--fleet", served.url)
    failed, took, cpu, peak = json.loads(told)
    return [
        Figure("200 agents x 10 calls at once: errors", failed, "runs", 0),
        Figure("200 agents x 10 calls at once: wall", took, "s"),
        Figure("200 agents x 10 calls at once: CPU", cpu, "s"),
        Figure("200 agents x 10 calls at once: peak memory", peak, "MB", 400),
    ]


def main() -> None:
    """Run the parts that are wanted, or a child's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
        "cost": cost, "memory": memory, "overhead": overhead, "fleet": fleet,
    }  # fmt: skip
    parser.add_argument("--part", choices=[*parts, "kill"])
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    for child in ("--victim", "--endpoint", "--fleet"):
        parser.add_argument(child)
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    if given.victim:
        return asyncio.run(victim(Path(given.victim)))
    if given.endpoint:
        return asyncio.run(endpoint(float(given.endpoint)))
    if given.fleet:
        return asyncio.run(fleet_child(given.fleet, 200))
    if given.memory:
        return asyncio.run(memory_child())

    async def measure() -> list[Figure]:
        parts["kill"] = lambda: kill(given.kills)
        return [figure for name, part in parts.items() if given.part in (None, name) for figure in await part()]

    report("agents", asyncio.run(measure()))
    return None


if __name__ == "__main__":
    main()
