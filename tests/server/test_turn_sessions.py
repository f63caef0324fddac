"""Sessions of Claude Code and Codex whose turns change hands: nothing breaks, whatever the endpoints insist on."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from re import fullmatch
from typing import Any

import httpx2
import pytest
from serving import At, served

from shikisha.core.call import Reply
from shikisha.core.events import AttemptFailed, AttemptReason
from shikisha.engine.conductor import Turn, TurnChoice
from shikisha.server.store import RunFilter
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http

# By endpoint: the ids that it makes and takes, the fields of its thoughts, and whether these must come back.
KINDS: dict[str, tuple[str, str, bool]] = {
    "anthropic": ("toolu_[0-9a-f]{8}", "thinking_blocks", False),
    "mistral": ("[a-zA-Z0-9]{9}", "reasoning_content", False),
    "deepseek": ("call_[0-9a-f]{8}", "reasoning_content", True),
    "openai": ("call_[A-Za-z0-9]{6,40}", "", False),
}
CONFIG = """
conductor = "fixed:single?worker={first}"
[budgets]
steps = 40
"""
WORKER = """
[workers.{name}]
kind = "chat"
model = "{name}"
base_url = "{url}/{name}/v1"
provider = "{name}"
tools = true
takes = ["image"]
attempts = 1
price = {{ input = 1.0, output = 4.0, cached = 0.1 }}
"""
FUNCTION = {"type": "object", "properties": {"command": {"type": "string"}}}
PIXEL = "iVBORw0KGgo="
STEPS = 5  # calls before an answer


@dataclass
class Endpoints:
    """Four endpoints that refuse what is not theirs, and call tools until a question has had enough of them."""

    refused: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    made: dict[str, set[str]] = field(default_factory=dict)  # by endpoint, the ids that it gave

    async def answer(self, asked: HttpRequest, exchange: HttpExchange) -> bool:
        name = asked.path.split("/")[1]
        body: dict[str, Any] = json.loads(asked.body)
        self.seen[name] = self.seen.get(name, 0) + 1
        problem = self._problem(name, body["messages"])
        if problem:
            self.refused.append(f"{name}: {problem}")
            await exchange.send(400, json.dumps({"error": {"message": problem}}).encode())
            return True
        message = self._message(name, body)
        usage = {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        if not body.get("stream"):
            whole = {"id": "x", "object": "chat.completion", "created": 1, "model": name, "usage": usage}
            whole["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
            await exchange.send(200, json.dumps(whole).encode())
            return True
        await exchange.begin("text/event-stream")
        calls = [{**call, "index": place} for place, call in enumerate(message.get("tool_calls", []))]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        for choice in ({"delta": delta}, {"delta": {}, "finish_reason": finish}):
            chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": name}
            chunk["choices"] = [{"index": 0, "finish_reason": None, **choice}]
            await exchange.chunk(f"data: {json.dumps(chunk)}\n\n".encode())
        last = {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": name,
            "choices": [],
            "usage": usage,
        }
        await exchange.chunk(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())
        await exchange.end()
        return True

    def _problem(self, name: str, messages: list[dict[str, Any]]) -> str:
        """Say what of a conversation this endpoint refuses; "" for nothing."""
        pattern, thoughts, back = KINDS[name]
        open_calls: list[str] = []
        asked = max(place for place, message in enumerate(messages) if message["role"] == "user")
        known = set[str]()
        for place, message in enumerate(messages):
            others = {kind[1] for kind in KINDS.values()} - {thoughts, ""}
            if wrong := others & message.keys():
                return f"unknown fields {wrong}"
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    return f"a result of no call: {message['tool_call_id']}"
                open_calls.remove(message["tool_call_id"])
                continue
            if open_calls:
                return f"calls without results: {open_calls}"
            for call in message.get("tool_calls") or ():
                if not fullmatch(pattern, call["id"]) and not (
                    name == "openai" or fullmatch("[a-zA-Z0-9_-]{1,64}", call["id"])
                ):
                    return f"an id that is none of ours: {call['id']}"
                if call["id"] in known:
                    return f"an id twice: {call['id']}"
                known.add(call["id"])
                open_calls.append(call["id"])
                own = call["id"] in self.made.get(name, ())
                if back and place > asked and thoughts not in message:
                    return "thoughts are missing within a question"
                if thoughts and own and thoughts not in message:
                    return "thoughts of our own call are missing"
        return f"calls without results: {open_calls}" if open_calls else ""

    def _message(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        asked = max(place for place, message in enumerate(messages) if message["role"] == "user")
        had = sum(message["role"] == "tool" for message in messages[asked:])
        if had >= STEPS or not body.get("tools"):
            return {"role": "assistant", "content": f"done after {had}"}
        draw = Random(f"{name} {len(messages)} {had}")
        made, count = [], 1 + (had == 1)
        for place in range(count):
            own = sha256(
                f"{name}{len(messages)}{place}{draw.random()}{len(self.made.get(name, ()))}".encode()
            ).hexdigest()
            called = {"anthropic": f"toolu_{own[:8]}", "mistral": own[:9], "deepseek": f"call_{own[:8]}"}.get(name)
            called = called or f"call_{own[:20]}"
            self.made.setdefault(name, set()).add(called)
            arguments = json.dumps({"command": f"ls {had + place}"})
            made.append({"id": called, "type": "function", "function": {"name": "bash", "arguments": arguments}})
        thoughts = KINDS[name][1]
        own_thoughts: Any = (
            "hm" if thoughts == "reasoning_content" else [{"type": "thinking", "thinking": "hm", "signature": "s"}]
        )
        return {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": made,
            **({thoughts: own_thoughts} if thoughts else {}),
        }


@dataclass
class Restless:
    """A router that lets another worker make almost every turn, by chance, whatever it costs."""

    switches: int = 0
    turns: int = 0

    def choose(self, turn: Turn) -> TurnChoice:
        drawn = int.from_bytes(sha256(f"{turn.run} {turn.number}".encode()).digest()[:4], "big")
        chosen = turn.cards[drawn % len(turn.cards)].name
        self.turns += 1
        self.switches += chosen != turn.worker
        second = turn.cards[(drawn >> 8) % len(turn.cards)].name if drawn % 5 == 0 else ""
        return TurnChoice(chosen, "by chance", {"session": "s", "dollars": {}}, second)

    def settle(self, turn: Turn, replies: Mapping[str, Reply]) -> TurnChoice:
        return TurnChoice(list(replies)[turn.number % 2], "by chance")


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[At, Endpoints, Restless]]:
    endpoints, router = Endpoints(), Restless()
    async with serve_http(endpoints.answer) as url:
        workers = "".join(WORKER.format(name=name, url=url) for name in KINDS)
        async with served(folder, CONFIG.format(first="anthropic") + workers) as at:
            assert at.service is not None
            at.service.engine._turn_router = router
            yield at, endpoints, router


def outcome(random: Random, number: int) -> tuple[str, bool]:
    """Return what a tool of the client's returns, and whether it is an error."""
    text = ["3 failed, 2 passed", "5 passed", "", "Traceback (most recent call last):\nKeyError: 1", "x" * 3_000]
    return f"{random.choice(text)} {number}", random.random() < 0.3


async def claude_code(http: httpx2.AsyncClient, seed: int) -> int:
    """Play a session as Claude Code has it; return how many turns it had."""
    random, turns = Random(seed), 0
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Fix it, please ({seed})."}]
    for question in range(3):
        for _ in range(3 * STEPS):
            body = {
                "model": "shikisha", "max_tokens": 4_000, "messages": messages, "thinking": {"type": "adaptive"},
                "system": [{"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral"}}],
                "tools": [{"name": "bash", "input_schema": FUNCTION, "cache_control": {"type": "ephemeral"}}],
                "metadata": {"user_id": json.dumps({"session_id": f"claude-{seed}"})}, "stream": seed % 4 == 0,
            }  # fmt: skip
            came = await http.post("/v1/messages", json=body)
            assert came.status_code == 200, came.text
            content = streamed(came.text) if body["stream"] else came.json()["content"]
            turns += 1
            calls = [block for block in content if block["type"] == "tool_use"]
            messages.append({"role": "assistant", "content": content})
            if not calls:
                break
            results = []
            for call in calls:
                text, bad = outcome(random, turns)
                shown: Any = text
                if random.random() < 0.2:
                    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
                    shown = [{"type": "text", "text": text}, {"type": "image", "source": source}]
                results.append({"type": "tool_result", "tool_use_id": call["id"], "content": shown, "is_error": bad})
            messages.append({"role": "user", "content": results})
        if question == 1:  # compaction: all of it becomes a summary
            messages = [{"role": "user", "content": "This session goes on from an earlier one. So far: much was done."}]
        else:
            messages.append({"role": "user", "content": f"And now the next thing ({question})."})
    return turns


def streamed(text: str) -> list[dict[str, Any]]:
    """Return the blocks of a streamed message."""
    blocks: list[dict[str, Any]] = []
    for line in text.splitlines():
        if not line.startswith("data: "):
            continue
        event = json.loads(line.removeprefix("data: "))
        match event:
            case {"type": "error"}:
                raise AssertionError(line)
            case {"type": "content_block_start", "content_block": block}:
                blocks.append({**block, "input": ""} if block["type"] == "tool_use" else dict(block))
            case {"delta": {"type": "input_json_delta", "partial_json": piece}}:
                blocks[-1]["input"] += piece
            case {"delta": {"type": "text_delta", "text": piece}}:
                blocks[-1]["text"] += piece
            case _:
                pass
    return [{**block, "input": json.loads(block["input"] or "{}")} if "input" in block else block for block in blocks]


async def codex(http: httpx2.AsyncClient, seed: int) -> int:
    """Play a session as Codex has it; return how many turns it had."""
    random, turns = Random(seed), 0
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    first = [{"type": "input_text", "text": f"Fix it ({seed})."}, *([picture] if seed % 3 == 0 else [])]
    said: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": first}]
    for question in range(3):
        for _ in range(3 * STEPS):
            body = {
                "model": "shikisha", "instructions": "You help.", "input": said, "store": False,
                "tools": [{"type": "function", "name": "bash", "parameters": FUNCTION, "strict": False}],
                "reasoning": {"effort": "medium"}, "include": ["reasoning.encrypted_content"],
                "prompt_cache_key": f"codex-{seed}", "parallel_tool_calls": True, "stream": seed % 4 == 1,
            }  # fmt: skip
            came = await http.post("/v1/responses", json=body)
            assert came.status_code == 200, came.text
            turns += 1
            done = [json.loads(line[6:]) for line in came.text.splitlines() if line.startswith("data: {")]
            ended = next((event["response"] for event in done if event["type"] == "response.completed"), None)
            response = ended or came.json()
            assert response["status"] == "completed", response
            said += response["output"]
            calls = [item for item in response["output"] if item["type"] == "function_call"]
            if not calls:
                break
            for call in calls:
                text, _ = outcome(random, turns)
                said.append({"type": "function_call_output", "call_id": call["call_id"], "output": text})
        if question == 1:
            said = [{"type": "message", "role": "user", "content": "Earlier work, in short: much was done. Go on."}]
        else:
            said.append({"type": "message", "role": "user", "content": f"And the next thing ({question})."})
    return turns


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))])
async def test_thirty_sessions_of_two_agents_break_no_turn_by_a_switch(tmp_path: Path, part: int) -> None:
    async with opened(tmp_path) as (at, endpoints, router), at.http() as http:
        assert at.service is not None
        turns = 0
        for seed in range(part * 10, part * 10 + 10):
            turns += await (codex if seed % 2 else claude_code)(http, seed)
        assert not endpoints.refused
        assert router.turns == turns > 100
        assert router.switches > turns / 3
        assert set(endpoints.seen) == set(KINDS)
        runs = [
            await at.service.read_run(one.run) for one in (await at.service.store.search(RunFilter(limit=200))).runs
        ]
        attempts = [attempt for run in runs for attempt in run.attempts]
        assert not [each for each in attempts if isinstance(each.outcome, AttemptFailed)]
        assert {AttemptReason.TOOLS, AttemptReason.COMPARED} <= {each.started.reason for each in attempts}
