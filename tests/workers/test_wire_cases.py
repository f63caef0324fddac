"""What endpoints send, one row a shape: read as an answer, as calls, as a bill, or as a fault with its cause.

The rows are in `wire_cases`; those that begin with a number or name a repository are shapes of public bug reports.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from wire import wire_endpoint

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Price
from shikisha.core.call import Card, ClientOptions, Reply, Request
from shikisha.core.errors import Fault, FaultKind, WorkerError
from shikisha.core.events import AttemptFailed, AttemptFinished
from shikisha.core.messages import Json
from shikisha.core.plan import Plan, Step
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.run_context import RetryPolicy
from shikisha.workers.chat import ChatSettings, ChatWorker, build
from support import AT_ONCE

FOLDER = Path(__file__).parent / "wire_cases"
CASES = [row for name in ("cases", "reports") for row in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))]
TOOLS: tuple[Mapping[str, Json], ...] = tuple(
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("get_weather", "get_time")
)
TASK = Task("What is six times seven?")
ANSWER = {"sse": [{"choices": [{"delta": {"content": "42"}, "finish_reason": "stop"}]}]}


def card_of(case: Mapping[str, Any]) -> Card:
    told = {"max_output_tokens": 100, "timeout": 10.0, "tools": True, **case.get("card", {})}
    price = Price(**told.pop("price", {"input": 1.0, "output": 2.0}))
    return Card("w", kind="chat", price=price, **told)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
async def test_what_an_endpoint_sends(case: Mapping[str, Any]) -> None:
    want = case["want"]
    async with wire_endpoint(case["answers"]) as seen:
        told = {"model": "m", "base_url": seen.url, **case.get("worker", {})}
        card = card_of(case)
        worker = build(ChatSettings.model_validate(told), card, SecretStore({}))
        try:
            if case["via"] == "call":
                check_call(await call_worker(worker, TOOLS if "calls" in want or case.get("tools") else ()), want)
                return
            pause = RetryPolicy() if case.get("timing") else AT_ONCE
            engine = Engine(MemoryRecorder(), retry=pause)
            run = await engine.run(TASK, Pool([Member(card, worker)]), ScriptedConductor([Plan((Step("Answer.", 0),))]))
        finally:
            await worker.aclose()
    end = run.attempts[-1].outcome
    if "text" in want:
        assert isinstance(end, AttemptFinished), end
        assert end.text == want["text"]
        assert want.get("note", "") in "; ".join(end.notes)
        if "dollars" in want:
            assert run.charged.dollars == pytest.approx(want["dollars"])
        if "dollars_below" in want:
            assert 0 < (run.charged.dollars or 0) + (run.uncertain.dollars or 0) < want["dollars_below"]
    else:
        assert isinstance(end, AttemptFailed), end
        fault = Fault(end.fault, end.message, end.retry_after, stated=end.cause, param=end.param)
        if "retryable" in want:
            assert fault.kind.retryable == want["retryable"], fault
            return
        assert (str(fault.kind), str(fault.cause)) == (want["kind"], want.get("cause", str(fault.cause)))
        assert want.get("says", "") in fault.message
        assert fault.param == want.get("param", fault.param)
    assert len(seen.bodies) == want.get("requests", len(seen.bodies))
    assert len(run.attempts) == want.get("attempts", len(run.attempts))
    if "gap" in want:
        least, most = want["gap"]
        assert least <= seen.times[1] - seen.times[0] < most + 5  # the rest is a busy machine's


async def call_worker(worker: ChatWorker, tools: tuple[Mapping[str, Json], ...]) -> Reply | Fault:
    try:
        async with asyncio.timeout(20):
            return await worker.perform(Request(TASK, TASK.prompt, client_options=ClientOptions(tools), key="k"))
    except WorkerError as error:
        return error.fault


def check_call(outcome: Reply | Fault, want: Mapping[str, Any]) -> None:
    if "calls" in want:
        assert isinstance(outcome, Reply), outcome
        assert [[made.name, json.loads(made.arguments)] for made in outcome.calls] == want["calls"]
        assert len({made.id for made in outcome.calls}) == len(want["calls"])
        assert all(made.id for made in outcome.calls)
        return
    assert isinstance(outcome, Fault), outcome
    assert (str(outcome.kind), str(outcome.cause)) == (want["kind"], want["cause"])
    assert outcome.retry_after == pytest.approx(want["wait"], abs=0.01)


@pytest.mark.parametrize("calls", [True, False])
async def test_more_beside_calls_than_goes_back_is_one_fault_and_beside_an_answer_none(calls: bool) -> None:
    thoughts = [{"choices": [{"delta": {"reasoning_content": "x" * 2**16}}]}] * 17
    call = {"index": 0, "id": "a", "function": {"name": "get_time", "arguments": "{}"}}
    last = {"tool_calls": [call]} if calls else {"content": "42"}
    end = {"choices": [{"delta": last, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 9}}
    async with wire_endpoint([{"sse": [*thoughts, end]}]) as seen:
        worker = build(ChatSettings(model="m", base_url=seen.url), card_of({}), SecretStore({}))
        outcome = await call_worker(worker, TOOLS)
        await worker.aclose()
    assert isinstance(outcome, Fault) == calls
    if isinstance(outcome, Fault):
        assert (outcome.kind, outcome.kind.retryable, outcome.tokens) == (FaultKind.TOO_LARGE, False, 18)
    assert len(seen.bodies) == 1


async def test_what_is_too_long_goes_to_a_longer_window_past_a_shorter_one() -> None:
    long = {"error": {"message": "prompt is too long", "type": "invalid_request_error"}}
    async with wire_endpoint([{"status": 400, "body": long}]) as full, wire_endpoint([ANSWER]) as free:
        cards = [
            Card("a", kind="chat", context_tokens=8_000, max_output_tokens=9, fallback="b"),
            Card("b", kind="chat", context_tokens=8_000, max_output_tokens=9, fallback="c"),
            Card("c", kind="chat", context_tokens=32_000, max_output_tokens=9),
        ]
        urls = (full.url, free.url, free.url)
        workers = [
            build(ChatSettings(model=card.name, base_url=url), card, SecretStore({}))
            for card, url in zip(cards, urls, strict=True)
        ]
        pool = Pool([Member(card, worker) for card, worker in zip(cards, workers, strict=True)])
        run = await Engine(MemoryRecorder()).run(TASK, pool, ScriptedConductor([Plan((Step("Answer.", 0),))]))
        for worker in workers:
            await worker.aclose()
    assert [each.started.worker for each in run.attempts] == ["a", "c"]
    assert (run.answer, free.bodies[0]["model"]) == ("42", "c")
