"""The chat worker against the in-repo server: real SDK, real HTTP."""

import asyncio
import functools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import SupportsIndex

import pytest
from pydantic import ValidationError
from wire import wire_endpoint

from shikisha.core.budget import FREE, Price, Usage
from shikisha.core.errors import ConfigError, Fault, FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.text import repeated_end
from shikisha.engine.worker import Card, ChatMessage, GrantedStep, Json, Reply, Request, Speaker
from shikisha.testing import (
    AnswerChooser,
    ChargeLedger,
    InjectedFault,
    ReceivedChatRequest,
    ScriptedAnswer,
    chat_server,
)
from shikisha.workers.chat import ChatSettings, ChatWorker, build, fit_card
from shikisha.workers.endpoint import join_path

CARD = Card("novice", max_output_tokens=100, timeout=5.0, price=Price(input=1.0, output=2.0, cached=0.5))
KEY = "sk-planted-0123456789"
REQUEST = Request(
    Task("q"), "s", turns=(ChatMessage(Speaker.USER, "What is six times seven? Think!!"),), key="run-0-0-0"
)


@asynccontextmanager
async def serving(
    answers: Sequence[ScriptedAnswer] | AnswerChooser,
    settings: Mapping[str, object] = {},
    card: Card = CARD,
    ledger: ChargeLedger | None = None,
) -> AsyncIterator[ChatWorker]:
    async with chat_server(answers, ledger=ledger) as url:
        given = ChatSettings.model_validate({"model": "m", "base_url": url, "api_key_env": "KEY", **settings})
        worker = build(given, card, SecretStore({"KEY": KEY, "OTHER": "other-secret-value"}))
        try:
            yield worker
        finally:
            await worker.aclose()


async def ask(answer: ScriptedAnswer, card: Card = CARD, **settings: object) -> Reply:
    async with serving([answer], settings, card) as worker:
        return await worker.perform(REQUEST)


async def body_of(request: Request, **settings: object) -> ReceivedChatRequest:
    """Return what the server was asked."""
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return ScriptedAnswer()

    async with serving(choose, settings) as worker:
        await worker.perform(request)
    return seen[0]


@pytest.mark.parametrize("stream", [True, False])
async def test_the_reply_has_text_usage_and_model(stream: bool) -> None:
    reply = await ask(ScriptedAnswer(text="It is 42.", cached_tokens=3, reasoning_tokens=4), stream=stream)
    assert reply.text == "It is 42."
    assert reply.usage == Usage(input_tokens=8, output_tokens=7, cached_tokens=3, reasoning_tokens=4)
    assert reply.model == "m"
    assert reply.dollars is None  # the card's price says


@pytest.mark.parametrize(
    ("base", "asked"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("https://r/deployments/d?api-version=2024", "https://r/deployments/d/chat/completions?api-version=2024"),
    ],
)
def test_the_path_goes_below_the_address_and_its_query_stays_behind_it(base: str, asked: str) -> None:
    assert join_path(base, "/chat/completions") == asked


async def test_text_arrives_piece_by_piece() -> None:
    heard: list[str] = []
    request = Request(Task("q"), "s", on_text=heard.append)
    async with serving([ScriptedAnswer(text="one two three")]) as worker:
        reply = await worker.perform(request)
    assert heard == ["one", " two", " three"]
    assert "".join(heard) == reply.text


async def test_a_gateway_s_own_cost_wins_over_the_card_s_price() -> None:
    assert (await ask(ScriptedAnswer(cost=0.00003))).dollars == 0.00003


@pytest.mark.parametrize("cost", [0.0, -1.0, 1e6, float("nan")])
async def test_an_insane_cost_does_not(cost: float) -> None:
    assert (await ask(ScriptedAnswer(cost=cost))).dollars is None


async def test_the_key_of_the_attempt_goes_along() -> None:
    assert (await body_of(REQUEST)).key == "run-0-0-0"


async def test_the_same_key_is_charged_once_by_a_server_that_honours_it() -> None:
    ledger = ChargeLedger()
    async with serving([ScriptedAnswer()], ledger=ledger) as worker:
        for _ in range(3):
            await worker.perform(REQUEST)
    assert (ledger.requests["run-0-0-0"], ledger.charges["run-0-0-0"]) == (3, 1)


async def test_invariant_2_the_endpoint_is_sent_task_granted_steps_and_subtask_and_nothing_else() -> None:
    request = Request(Task("the question"), "the subtask", (GrantedStep(0, "earlier subtask", "earlier answer"),))
    asked = await body_of(request)
    assert [role for role, _ in asked.messages] == ["user", "assistant", "user"]
    assert asked.messages[1][1] == "earlier answer"
    assert set(asked.body) == {"model", "messages", "stream", "stream_options", "max_completion_tokens"}


async def test_given_turns_are_sent_as_they_are() -> None:
    turns = (ChatMessage(Speaker.SYSTEM, "You plan."), ChatMessage(Speaker.USER, "Plan this."))
    asked = await body_of(Request(Task("q"), "s", turns=turns))
    assert asked.messages == (("system", "You plan."), ("user", "Plan this."))


async def test_sampling_parameters_and_the_output_limit_are_sent() -> None:
    settings = {"temperature": 0.5, "seed": 7, "stop": ["END"], "reasoning_effort": "low", "extra_body": {"top_k": 3}}
    asked = await body_of(REQUEST, max_tokens_field="max_tokens", **settings)
    sent = {name: asked.body[name] for name in ("temperature", "seed", "stop", "reasoning_effort", "top_k")}
    assert sent == {"temperature": 0.5, "seed": 7, "stop": ["END"], "reasoning_effort": "low", "top_k": 3}
    assert asked.body["max_tokens"] == 100


def closed(**properties: Json) -> dict[str, Json]:
    """Return the schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


NESTED = functools.reduce(lambda inner, _: closed(a=inner), range(10), closed())


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (closed(), True),
        (closed(a={"type": ["string", "null"]}, b={"type": "array", "items": closed(c={"const": 1})}), True),
        (closed(a={"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}) | {"$defs": {"n": {"enum": [1, 2]}}}, True),
        (closed(a={}), False),
        (closed(a={"type": "object"}), False),
        (closed(a={"type": "object", "additionalProperties": {"type": "string"}}), False),
        (closed(a={"type": "array"}), False),
        (closed(a={"type": "array", "items": {"type": "object"}}), False),
        (closed(a={"type": ["object", "null"]}), False),
        (closed(a={"anyOf": [{"type": "object"}, {"type": "null"}]}), False),
        (closed(a={"$ref": "#/$defs/n"}) | {"$defs": {"n": {"type": "object"}}}, False),
        (closed(a={"type": "string"}) | {"required": []}, False),
        (closed(a={"oneOf": [{"type": "string"}, {"type": "null"}]}), False),
        (closed(a={"type": "string", "pattern": "^(?=a)"}), False),
        (NESTED, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
        ({"anyOf": [closed(), closed(a={"type": "string"})]}, False),
    ],
)
async def test_a_schema_is_sent_to_an_endpoint_that_can_be_held_to_it(schema: Json, strict: bool) -> None:
    assert isinstance(schema, dict)
    asked = await body_of(Request(Task("q"), "s", schema=schema), structured_output=True)
    expected = {"name": "answer", "schema": schema} | ({"strict": True} if strict else {})
    assert asked.body["response_format"] == {"type": "json_schema", "json_schema": expected}


async def test_a_list_is_asked_for_in_words_since_schemas_are_of_objects() -> None:
    schema: dict[str, Json] = {"type": "array", "items": {"type": "string"}}
    asked = await body_of(Request(Task("q"), "s", schema=schema), structured_output=True)
    assert "response_format" not in asked.body


async def test_any_json_object_is_asked_for_as_json_mode() -> None:
    asked = await body_of(Request(Task("q"), "s", schema={"type": "object"}), structured_output=True)
    assert asked.body["response_format"] == {"type": "json_object"}
    assert "JSON" in asked.messages[-1][1]  # OpenAI refuses its JSON mode otherwise


async def test_no_schema_is_sent_to_one_that_cannot() -> None:
    assert "response_format" not in (await body_of(Request(Task("q"), "s", schema={"type": "object"}))).body


@pytest.mark.parametrize("price", [FREE, CARD.price])
async def test_usage_is_an_estimate_with_a_bound_where_the_endpoint_is_silent(price: Price) -> None:
    card = Card("local", max_output_tokens=100, price=price)
    reply = await ask(ScriptedAnswer(text="four", mishap=InjectedFault.NO_USAGE), card)
    assert reply.usage == Usage(12, 1)
    assert reply.usage.total + reply.uncertain.tokens >= len(REQUEST.turns[0].text) + len("four")
    assert bool(reply.uncertain.dollars) == (price is not FREE)
    assert reply.notes == ("its usage is an estimate: the endpoint states none",)


async def test_a_silent_endpoint_can_be_refused_without_a_price_and_accepted_with_one() -> None:
    with pytest.raises(WorkerError, match="bad_usage"):
        await ask(ScriptedAnswer(mishap=InjectedFault.NO_USAGE), Card("x", max_output_tokens=9), usage="required")
    assert (await ask(ScriptedAnswer(mishap=InjectedFault.NO_USAGE), usage="estimate")).text == "ok"


async def test_a_truncated_answer_is_a_fault_with_what_arrived_and_what_it_cost() -> None:
    with pytest.raises(WorkerError) as caught:
        await ask(ScriptedAnswer(text="abcdefgh", mishap=InjectedFault.LENGTH))
    fault = caught.value.fault
    assert (fault.kind, fault.partial, fault.tokens) == (FaultKind.TRUNCATED, "abcd", 9)
    assert fault.dollars == pytest.approx(10e-6)


@pytest.mark.parametrize("price", [FREE, Price(output=1.0)])
async def test_a_free_model_that_repeats_itself_is_stopped_and_the_fault_names_what(price: Price) -> None:
    card = Card("novice", max_output_tokens=4096, timeout=5.0, price=price)
    loops = ScriptedAnswer(text="L'Étoile, " + "la femme au martyre, " * 150)
    if price is not FREE:  # whoever pays gets the whole of it
        assert (await ask(loops, card)).text == loops.text
        return
    with pytest.raises(WorkerError, match="the answer repeats itself without end: 'martyre, la femme au'") as stopped:
        await ask(loops, card)
    assert stopped.value.fault.kind is FaultKind.TRUNCATED
    assert 2_000 <= len(stopped.value.fault.partial or "") < 2_500
    counted = ScriptedAnswer(text="".join(f"{number}. Once more.\n" for number in range(200)))
    zeros = ScriptedAnswer(text="\n".join(["[" + ", ".join("0" * 20) + "],"] * 20))  # an answer that is right
    assert [(await ask(each, card)).text for each in (counted, zeros)] == [counted.text, zeros.text]


def test_looking_for_loops_costs_the_same_however_long_pieces_are() -> None:
    class Piece(str):
        taken = 0

        def __getitem__(self, place: SupportsIndex | slice) -> str:
            Piece.taken += len(found := super().__getitem__(place))
            return found

    assert repeated_end([Piece("ab" * 10_000)] * 32) == "ab"
    assert Piece.taken == 2_000


async def test_cancellation_ends_the_call_at_once_and_closes_the_connection() -> None:
    loop = asyncio.get_running_loop()
    async with serving([ScriptedAnswer(mishap=InjectedFault.DRIP)]) as worker:
        call = asyncio.create_task(worker.perform(REQUEST))
        await asyncio.sleep(0.2)
        began = loop.time()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert loop.time() - began < 0.5


async def test_connections_are_used_again_and_a_closed_worker_opens_new_ones() -> None:
    async with serving([ScriptedAnswer()]) as worker:
        await worker.perform(REQUEST)
        await worker.aclose()
        assert (await worker.perform(REQUEST)).text == "ok"


async def test_many_calls_run_side_by_side() -> None:
    async with serving([ScriptedAnswer(latency=0.3)]) as worker, asyncio.timeout(4):
        replies = await asyncio.gather(*(worker.perform(REQUEST) for _ in range(150)))
    assert {reply.text for reply in replies} == {"ok"}


def test_a_missing_key_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="MY_KEY"):
        build(ChatSettings(model="m", api_key_env="MY_KEY"), CARD, SecretStore({}))


def test_an_unbounded_output_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_output_tokens"):
        build(ChatSettings(model="m"), Card("x"), SecretStore({}))


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"base_url": "ftp://host/v1"}, "base_url"),
        ({"base_url": "https://user:pass@host/v1"}, "base_url"),
        ({"headers": {"Authorization": "Bearer sk-literal"}}, "headers"),
        ({"extra_body": {"n": 3}}, "extra_body"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_wrong_settings_say_where(settings: dict[str, object], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        ChatSettings.model_validate({"model": "m", **settings})


CALL = """
import asyncio, sys
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.call import Card, Request
from shikisha.workers.chat import ChatSettings, build

worker = build(ChatSettings(model="m", base_url=sys.argv[1]), Card("w", max_output_tokens=9), SecretStore())
asyncio.run(worker.perform(Request(Task("q"), "s")))
"""


async def test_invariant_8_nothing_that_the_environment_makes_the_sdk_add_reaches_an_endpoint() -> None:
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return ScriptedAnswer()

    planted = ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
    custom = {"OPENAI_CUSTOM_HEADERS": f"Authorization: Bearer {KEY}\nX-Team: {KEY}"}
    async with chat_server(choose) as url:
        environment = {**os.environ, **dict.fromkeys(planted, KEY), **custom}
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", CALL, url, env=environment)
        assert await process.wait() == 0
    assert KEY not in repr(seen)
    assert "authorization" not in seen[0].headers


def test_settings_are_read_without_any_client_library() -> None:
    names = "chat, http, mcp"
    code = f"import sys; from shikisha.workers import {names}; print({{'aiohttp', 'httpx2', 'mcp'}} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own line
    assert shown.stdout.strip() == "set()"


async def test_log_probabilities_are_asked_for_where_they_are_configured() -> None:
    assert (await body_of(REQUEST, confidence="logprobs")).body["logprobs"] is True
    assert "logprobs" not in (await body_of(REQUEST)).body
    assert (await ask(ScriptedAnswer(), confidence="logprobs")).confidence is None  # this endpoint gives none


async def test_a_stream_may_take_longer_than_it_may_be_silent() -> None:
    word = {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9},
    }

    async def outcome(pace: float, count: int, **more: object) -> Reply | Fault:
        async with wire_endpoint([{"sse": [*[word] * count, last], "pace": pace, **more}]) as seen:
            settings = ChatSettings(model="m", base_url=seen.url)
            card = fit_card(settings, Card("w", max_output_tokens=100, timeout=0.5))
            worker = build(settings, card, SecretStore({}))
            try:
                return await worker.perform(Request(Task("Hi?"), "Hi?", key="k"))
            except WorkerError as error:
                return error.fault
            finally:
                await worker.aclose()

    steady, silent, endless = await asyncio.gather(outcome(0.1, 12), outcome(1.5, 2), outcome(0.05, 400))
    assert isinstance(steady, Reply), steady
    assert isinstance(silent, Fault)
    assert (silent.kind, silent.message) == (FaultKind.TIMEOUT, "nothing came for 0.5 s")
    assert isinstance(endless, Fault)
    assert (endless.kind, endless.message) == (FaultKind.TIMEOUT, "no whole answer within 5 s")
