"""What calls cost, told by endpoints that lie, fail and break off: a bill that is true, and what is uncertain apart."""

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Amount, Caps, Price, Usage
from shikisha.core.call import ClientOptions
from shikisha.core.errors import FaultKind
from shikisha.core.events import AttemptFailed, AttemptFinished, FinishReason
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card, ChatMessage, Json, Speaker
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.workers.chat import ChatSettings, build
from shikisha.workers.chat_reply import EventStreamParser
from shikisha.workers.chat_usage import (
    UntrueUsage,
    count_changes,
    merge_usage,
    read_cost,
    stated_usage,
    with_minimum_tokens,
)
from support import AT_ONCE

PRICE = Price(input=1.0, output=2.0)
CARD = Card("w", max_output_tokens=1000, timeout=2.0, price=PRICE, attempts=1)
SSE = "text/event-stream"
SAID = (ChatMessage(Speaker.USER, "What is six times seven?"),)
WORDS = "The answer to all of this is known since long ago, and it is forty-two. "


@dataclass
class Raw:
    """A response as it is written: `cut`: the connection breaks in the middle of what was announced."""

    body: bytes
    kind: str = SSE
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


def chunk(**fields: object) -> dict[str, object]:
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [], **fields}


def stream(
    text: str = "42",
    finish: str | None = "stop",
    usage: Sequence[object] = (),
    done: bool = True,
    more: Sequence[object] = (),
) -> Raw:
    """Return a stream that says this text, ends for this reason, and states these usages, one after another."""
    pieces: list[object] = [chunk(choices=[{"index": 0, "delta": {"content": text}}])]
    pieces.append(chunk(choices=[{"index": 0, "delta": {}, "finish_reason": finish}]))
    pieces += [chunk(usage=each) for each in usage]
    pieces += more
    data = [json.dumps(piece) for piece in pieces] + (["[DONE]"] if done else [])
    return Raw("".join(f"data: {each}\n\n" for each in data).encode())


def used(tokens_in: object, tokens_out: object, **more: object) -> dict[str, object]:
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, **more}


@asynccontextmanager
async def endpoint(*replies: Raw) -> AsyncIterator[str]:
    """Serve these replies one after another, the last one for ever."""
    left = list(replies)

    async def answer(_: HttpRequest, exchange: HttpExchange) -> bool:
        raw = left.pop(0) if len(left) > 1 else left[0]
        if raw.cut:
            await exchange.begin(raw.kind, len(raw.body) + 10)
            await exchange.raw(raw.body)
            return False
        names = {name.replace("-", "_"): value for name, value in raw.headers.items()}
        await exchange.send(raw.status, raw.body, raw.kind, **names)
        return True

    async with serve_http(answer) as url:
        yield f"{url}/v1"


async def perform(
    *replies: Raw, caps: Caps | None = None, card: Card = CARD, rounds: int = 1, prompt: str = "q", **settings: object
) -> Run:
    """Return the run of so many rounds of one step by a chat worker whose endpoint replies so."""
    async with endpoint(*replies) as url:
        worker = build(ChatSettings.model_validate({"model": "m", "base_url": url, **settings}), card, SecretStore({}))
        plans = [Plan((Step("Answer.", 0),))] * rounds
        try:
            engine = Engine(MemoryRecorder(), retry=AT_ONCE)
            return await engine.run(Task(prompt), Pool([Member(card, worker)]), ScriptedConductor(plans), caps)
        finally:
            await worker.aclose()


def failure(run: Run) -> AttemptFailed:
    end = run.attempts[-1].outcome
    assert isinstance(end, AttemptFailed)
    return end


def success(run: Run) -> AttemptFinished:
    end = run.attempts[-1].outcome
    assert isinstance(end, AttemptFinished), end
    return end


ERROR = b'{"error": {"message": "no"}}'
PAGE = b"<html><body>Bad gateway</body></html>"
STATED = json.dumps({"error": {"message": "no"}, "usage": used(1000, 100)}).encode()


@pytest.mark.parametrize(
    "raw",
    [
        Raw(ERROR, "application/json", 503, {"Retry-After": "0"}),
        Raw(ERROR, "application/json", 500),
        Raw(PAGE, "text/html", 502),
        Raw(PAGE, "text/html"),
        Raw(PAGE, "application/json"),
        Raw(gzip.compress(PAGE), "text/html", 503, {"Content-Encoding": "gzip"}),
        Raw(b"x" * 200_000, "text/plain", 500),
        Raw(ERROR, "application/json", 408),
        Raw(ERROR, "application/json", 429),
        Raw(ERROR, "application/json", 401),
        Raw(ERROR, "application/json", 400),
        Raw(ERROR, "application/json"),
        Raw(b'data: {"error": {"code": 503, "message": "overloaded"}}\n\n'),
        stream("", "content_filter"),
    ],
)
async def test_a_definite_failure_costs_nothing(raw: Raw) -> None:
    run = await perform(raw, max_bytes=100_000)
    assert (run.charged, run.uncertain) == (Amount(), Amount())
    assert run.answer is None


async def test_an_error_status_is_that_even_if_its_body_does_not_come() -> None:
    async def answer(_: HttpRequest, exchange: HttpExchange) -> bool:
        await exchange.raw(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1000\r\n\r\nsorry")
        return False

    async with serve_http(answer) as url:
        worker = build(ChatSettings(model="m", base_url=f"{url}/v1"), CARD, SecretStore({}))
        engine = Engine(MemoryRecorder(), retry=AT_ONCE)
        run = await engine.run(Task("q"), Pool([Member(CARD, worker)]), ScriptedConductor([Plan((Step("a", 0),))]))
        await worker.aclose()
    assert (failure(run).fault, run.counted) == (FaultKind.SERVER, Amount())


async def test_invariant_8_a_piece_of_the_key_in_an_endpoint_s_message_is_not_journaled() -> None:
    key = "sk-planted-Q7x2mNv94kLpZ8rT1wYb5cHd3fGj6sAe"
    said = [f"Incorrect key {key[:20]}", f"no access with {key[:6]}****{key[-4:]}", f"key ending in {key[-12:]}"]
    for text in said:
        body = json.dumps({"error": {"message": text}}).encode()
        async with endpoint(Raw(body, "application/json", 400)) as url:
            secret_store, recorder = SecretStore({"KEY": key}), MemoryRecorder()
            settings = ChatSettings(model="m", base_url=url, api_key_env="KEY")
            worker, engine = build(settings, CARD, secret_store), Engine(recorder, secret_store=secret_store)
            run = await engine.run(Task("q"), Pool([Member(CARD, worker)]), ScriptedConductor([Plan((Step("a", 0),))]))
            await worker.aclose()
        told = repr(await recorder.read(run.id))
        assert not any(key[at : at + 8] in told for at in range(len(key) - 7))
        assert key[-4:] not in told


@pytest.mark.parametrize(
    "raw",
    [
        Raw(STATED, "application/json", 500),
        Raw(STATED, "application/json"),
        Raw(b"data: " + STATED + b"\n\n"),
    ],
)
async def test_an_error_that_says_what_was_used_is_billed_so(raw: Raw) -> None:
    run = await perform(raw)
    assert run.charged.tokens == 1100
    assert run.charged.dollars == pytest.approx(0.0012)
    assert run.uncertain == Amount()


@pytest.mark.parametrize(
    "raw",
    [
        Raw(stream(done=False).body, cut=True),
        Raw(b"", cut=True),
        stream(finish=None),
        stream(usage=[used("many", 1)]),
        stream(usage=[used(-1, 1)]),
        stream(usage=[used(float("nan"), 1)]),
        stream(usage=[used(10**400, 1)]),
        stream(usage=[used(5, 1, prompt_tokens_details={"cached_tokens": 6})]),
        stream(finish=None, more=[{"error": {"message": "the model fell over"}}]),
        Raw(b'{"choices": [{"message": {"content": "4', "application/json"),
        Raw(b"data: {nonsense\n\n"),
        stream("I cannot go on with", "content_filter"),
    ],
)
async def test_what_nobody_can_know_is_uncertain_and_no_cost(raw: Raw) -> None:
    run = await perform(raw)
    assert run.answer is None
    assert run.charged == Amount()
    assert run.uncertain == run.attempts[0].started.reserved
    assert run.uncertain.dollars is not None
    assert run.uncertain.dollars > 0.002


async def test_a_timeout_after_sending_is_uncertain() -> None:
    async def silent(_: HttpRequest, exchange: HttpExchange) -> bool:
        await exchange.begin(SSE)
        await asyncio.sleep(5)
        return False

    card = Card("w", max_output_tokens=1000, timeout=0.3, price=PRICE, attempts=1)
    async with serve_http(silent) as url:
        worker = build(ChatSettings(model="m", base_url=f"{url}/v1"), card, SecretStore({}))
        engine = Engine(MemoryRecorder(), retry=AT_ONCE)
        run = await engine.run(Task("q"), Pool([Member(card, worker)]), ScriptedConductor([Plan((Step("a", 0),))]))
        await worker.aclose()
    assert (failure(run).fault, run.charged) == (FaultKind.TIMEOUT, Amount())
    assert run.uncertain == run.attempts[0].started.reserved


# A cap that holds, whatever an endpoint says.


@pytest.mark.parametrize("usage", [used(0, 0), used(1, 0), used(0, 0, cost=1e-300), used(5, 5, cost=1e-300)])
async def test_invariant_3_an_endpoint_that_says_it_used_nothing_does_not_get_round_a_cap(usage: object) -> None:
    """Each call comes to about 1/35 of the cap: no more than that many are made of 90, some fewer for the last one's
    reservation."""
    prompt, answer = WORDS * 40, WORDS * 10
    true = PRICE.of(Usage(len(prompt) // 4, len(answer) // 4))
    run = await perform(
        stream(answer, usage=[usage]),
        caps=Caps(steps=90, rounds=91, dollars=35 * true),
        rounds=90,
        prompt=prompt,
    )
    assert 15 < len(run.attempts) <= 36
    assert run.charged.dollars == pytest.approx(len(run.attempts) * true, rel=0.15)


async def test_three_tokens_for_three_million_characters_are_not_believed_and_the_journal_says_so() -> None:
    text = WORDS * 41_667
    run = await perform(stream(text, usage=[used(40, 3)]))
    end = success(run)
    assert len(text) > 3_000_000
    assert end.usage.output_tokens > len(text) / 16
    assert end.dollars is not None
    assert end.dollars > 0.3
    assert end.stated == Usage(40, 3)
    assert success(await perform(stream(WORDS, usage=[used(40, 18)]))).stated is None


HONEST = {  # texts and what o200k_base makes of them, as measured with js-tiktoken
    "20,000 spaces": (" " * 20_000, 157),
    "two rulers": ("-" * 5000 + "\n" + "=" * 5000, 157),
    "20,000 times a": ("a" * 20_000, 2500),
    "a fence": ("-=" * 5000, 629),
    "indented lines": (("\n" + " " * 40 + "x") * 500, 1500),
    "long German words": (
        "Donaudampfschifffahrtsgesellschaftskapitän Rechtsschutzversicherungsgesellschaften "
        "Kraftfahrzeughaftpflichtversicherung Verantwortung " * 50,
        1252,
    ),
    "Thai": ("ประเทศไทยเป็นประเทศที่ตั้งอยู่ในเอเชียตะวันออกเฉียงใต้ มีเมืองหลวงคือกรุงเทพมหานคร " * 50, 1350),
    "Chinese": ("中华人民共和国位于亚洲东部，太平洋西岸。人工智能是计算机科学的一个分支。" * 50, 1200),
    "one word": ("yes", 1),
    "nothing": ("", 0),
}


@pytest.mark.parametrize("name", HONEST)
def test_no_honest_endpoint_is_overcharged(name: str) -> None:
    text, tokens = HONEST[name]
    assert with_minimum_tokens(Usage(tokens, tokens), [text], [text]) == Usage(tokens, tokens)


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (used(20, 5, total_tokens=25), Usage(20, 5)),
        (used(20, 5, total_tokens=325, completion_tokens_details={"reasoning_tokens": 300}), Usage(20, 305, 0, 300)),
        (used(20, 5, completion_tokens_details={"reasoning_tokens": 300}), Usage(20, 305, 0, 300)),
        (used(20, 5, total_tokens=325), Usage(20, 305)),
        (used(20, 305, completion_tokens_details={"reasoning_tokens": 300}), Usage(20, 305, 0, 300)),
        (used(20, 5, total_tokens=10**12), Usage(20, 5)),
        (used(20, 5, total_tokens="25"), Usage(20, 5)),
        (used(20, 5, total_tokens=3), Usage(20, 5)),
    ],
)
def test_reasoning_that_is_billed_beside_the_completion_is_counted_once(raw: object, usage: Usage) -> None:
    assert stated_usage(raw, SAID, CARD) == usage


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([used(20, 0), used(20, 3), used(20, 7)], used(20, 7)),
        ([used(20, 0), used(0, 7)], used(20, 7)),
        ([used(20, 7), None], used(20, 7)),
        ([used(20, 7), used(0, 0)], used(20, 7)),
        (
            [used(20, 0, prompt_tokens_details={"cached_tokens": 4}), used(0, 7)],
            used(20, 7, prompt_tokens_details={"cached_tokens": 4}),
        ),
        (
            [used(20, 7, prompt_tokens_details=None), used(20, 7, prompt_tokens_details={"cached_tokens": 4})],
            used(20, 7, prompt_tokens_details={"cached_tokens": 4}),
        ),
    ],
)
async def test_usage_that_comes_in_pieces_is_put_together(
    pieces: Sequence[object], whole: Mapping[str, object]
) -> None:
    found: object = None
    for piece in pieces:
        found = merge_usage(found, piece)
    assert found == whole
    run = await perform(stream(usage=pieces))
    assert (run.charged.tokens, success(run).usage) == (27, stated_usage(whole, SAID, CARD))


@pytest.mark.parametrize(
    ("cost", "believed"),
    [
        (0.0002, True),
        (0.00003, True),  # a discount
        (0.0000029, False),
        (1e-300, False),
        (0, False),
        (-1, False),
        (10**400, False),
        (True, False),
        ("0.0002", False),
        (float("nan"), False),
        (0.003, False),
    ],
)
def test_a_stated_cost_is_believed_near_the_price_only(cost: object, believed: bool) -> None:
    usage = Usage(100, 50)  # $0.0002
    assert (read_cost({"cost": cost}, usage, CARD) is not None) == believed


def test_a_cached_prompt_may_cost_next_to_nothing() -> None:
    assert read_cost({"cost": 0.00012}, Usage(100_000, 50, 100_000), CARD) == 0.00012


# Answers that were broken off.

WHOLE = ("stop", "STOP", "end_turn", "eos", "eos_token", "stop_sequence", "COMPLETE")
TRUNCATED = ("length", "max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens", "model_context_window_exceeded")
REFUSED = (
    "content_filter",
    "sensitive",
    "SAFETY",
    "RECITATION",
    "refusal",
    "guardrail_intervened",
    "PROHIBITED_CONTENT",
)
BROKEN = ("abort", "insufficient_system_resource", "network_error", "error", "ERROR", "aborted", "user_cancel", "OTHER")
ODD = ("what", "x" * 5000, "stop!", "tool_calls")  # in the last there are no calls


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        *[(reason, None) for reason in WHOLE],
        *[(reason, FaultKind.TRUNCATED) for reason in TRUNCATED],
        *[(reason, FaultKind.REFUSED) for reason in REFUSED],
        *[(reason, FaultKind.SERVER) for reason in BROKEN],
        *[(reason, None) for reason in ODD],
        ("MALFORMED_FUNCTION_CALL", FaultKind.BAD_REPLY),
        *[(reason, FaultKind.CUT_OFF) for reason in (None, "", "null")],
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_only_an_answer_that_ends_as_one_is_an_answer(
    reason: str | None, kind: FaultKind | None, streamed: bool
) -> None:
    raw = stream("It is forty", reason, [used(20, 5)])
    if not streamed:
        choice = {"index": 0, "message": {"content": "It is forty"}, "finish_reason": reason}
        raw = Raw(json.dumps({"model": "m", "choices": [choice], "usage": used(20, 5)}).encode(), "application/json")
    run = await perform(raw, stream=streamed)
    if kind is None:
        assert (run.answer, success(run).finish) == ("It is forty", FinishReason.STOP)
        assert bool(success(run).notes) == (reason in ODD)
        return
    fault = failure(run)
    assert (run.answer, fault.fault, fault.partial) == (None, kind, "It is forty")
    assert len(fault.message) < 200
    assert fault.charged.tokens == 25  # it says what it used, and no retry takes that back


async def test_a_reason_that_breaks_off_is_not_overruled_by_a_later_stop() -> None:
    more = [chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])]
    run = await perform(stream("It is", "error", [used(20, 5)], more=more))
    assert failure(run).fault is FaultKind.SERVER
    cut = [chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])]
    assert failure(await perform(stream("It is", "stop", [used(20, 5)], more=cut))).fault is FaultKind.TRUNCATED


# A byte order mark.


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_a_byte_order_mark_loses_no_event(size: int) -> None:
    data = "\ufeffdata: one\n\ndata: two\n\n".encode()
    events = EventStreamParser()
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    assert [event for part in parts for event in events.take(part)] == ["one", "two"]
    alone = EventStreamParser()
    assert (alone.take("\ufeffdata: [DONE]".encode()), alone.take(b"\n\n")) == ([], ["[DONE]"])
    inside = EventStreamParser()
    assert inside.take("data: a\n\n\ufeffdata: b\n\n".encode()) == ["a"]


async def test_a_reply_that_begins_with_a_byte_order_mark_is_heard_whole() -> None:
    raw = stream("42", usage=[used(20, 5)])
    assert (await perform(Raw(b"\xef\xbb\xbf" + raw.body))).answer == "42"


def test_pieces_of_usage_are_merged_at_every_level() -> None:
    first = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0}}
    then = {"completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2, "text_tokens": 5}}
    assert merge_usage(first, then) == {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0, "text_tokens": 5},
    }


def test_the_clients_tools_and_its_limit_count_in_what_a_call_can_use() -> None:
    said, card = (ChatMessage(Speaker.USER, "hi"),), Card("w", max_output_tokens=10_000)
    tool: Mapping[str, Json] = {"type": "function", "function": {"name": "find", "description": "x" * 200_000}}
    large = {"prompt_tokens": 150_000, "completion_tokens": 10}
    with pytest.raises(UntrueUsage):
        stated_usage(large, said, card)
    assert stated_usage(large, said, card, ClientOptions((tool,))) == Usage(150_000, 10)
    long = {"prompt_tokens": 9, "completion_tokens": 150_000}
    assert stated_usage(long, said, card) == Usage(9, 150_000)
    with pytest.raises(UntrueUsage):
        stated_usage(long, said, card, ClientOptions(options={"max_completion_tokens": 10}))


@pytest.mark.parametrize("letters", ["ab", "a\x00b", "aé", "指揮a", "\ud800\udc00😀a"])
def test_changes_are_counted_as_one_by_one(letters: str) -> None:
    made = random.Random(7)
    for length in (0, 1, 2, 3, 17, 1_000):
        text = "".join(made.choices(letters, k=length))
        assert count_changes(text) == sum(place == 0 or text[place] != text[place - 1] for place in range(length))
