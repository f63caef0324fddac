"""Shikisha in a few lines: what workers may be, what a run gives, and what is said of what cannot be."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import assert_type

import pytest
from pydantic import BaseModel

from shikisha import Reply, Request, RunFailed, Shikisha, TaskAnswer, worker
from shikisha.core.errors import ConfigError, TaskError
from shikisha.core.run import Run
from shikisha.journal import open_journal
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall, chat_server
from shikisha.workers.provider_profile import profile_at
from shikisha.workers.scripted import ScriptedWorker

KEY = {"OPENAI_API_KEY": "sk-a-key-of-nobody"}


class Invoice(BaseModel):
    customer: str
    dollars: float


@worker(description="Looks up a customer's open invoices.", reads=True)
def invoices(customer: str) -> list[dict[str, object]]:
    return [{"customer": customer, "dollars": 42.5}]


class Shout:
    async def perform(self, request: Request) -> Reply:
        return Reply(request.task.prompt.upper())


def model(url: str, **table: object) -> dict[str, object]:
    return {"spec": "openai:gpt-5-mini", "base_url": url, **table}


CALLS = [
    ScriptedAnswer(calls=(ScriptedToolCall(name="invoices", arguments={"customer": "ACME"}),), results=0),
    ScriptedAnswer(text="ACME owes $42.50.", results=1),
]


async def test_functions_are_the_tools_of_a_model_and_the_function_stays_one() -> None:
    asked: list[ReceivedChatRequest] = []

    def answer(request: ReceivedChatRequest) -> ScriptedAnswer:
        asked.append(request)
        return CALLS[len(asked) - 1]

    async with chat_server(answer) as url, Shikisha([model(url), invoices], environment=KEY) as s:
        result = await s.arun("What does ACME owe us?")
    assert_type(result, TaskAnswer[str])
    assert result.answer == "ACME owes $42.50."
    assert result.workers == ("openai:gpt-5-mini",)
    assert "42.5" in str(asked[1].body)
    assert "Looks up a customer's open invoices." in str(asked[0].body)
    assert invoices("x") == [{"customer": "x", "dollars": 42.5}]
    assert "openai:gpt-5-mini" in str(result)
    assert "ACME owes" in result._repr_html_()
    assert "invoices" in s.explain()


async def test_an_answer_has_the_type_that_is_asked_for() -> None:
    script = [ScriptedAnswer(text='{"customer": "ACME", "dollars": 42.5}')]
    async with chat_server(script) as url, Shikisha([model(url)], environment=KEY) as s:
        result = await s.arun("The invoice of ACME?", answer_type=Invoice)
    assert_type(result, TaskAnswer[Invoice])
    assert result.answer == Invoice(customer="ACME", dollars=42.5)


async def test_an_answer_of_another_shape_fails() -> None:
    async with chat_server([ScriptedAnswer(text="none")]) as url, Shikisha([model(url)], environment=KEY) as s:
        with pytest.raises(RunFailed, match="JSON"):
            await s.arun("The invoice of ACME?", answer_type=Invoice)
        assert "failed" in s.explain()


async def test_an_answer_is_streamed_as_it_grows() -> None:
    text = "one two three four five six"
    async with chat_server([ScriptedAnswer(text=text)]) as url, Shikisha([model(url)], environment=KEY) as s:
        pieces = [piece async for piece in s.stream("Count.")]
    assert "".join(pieces) == text
    assert len(pieces) > 1


async def test_only_the_last_step_is_streamed_and_a_silent_worker_says_all_at_once() -> None:
    async with Shikisha([Shout()], conductor="fixed:chain") as s:
        pieces = [piece async for piece in s.stream("Count.")]
        assert [(await s.arun("Count.")).answer] == pieces


async def test_leaving_a_stream_cancels_its_run() -> None:
    over = asyncio.Event()

    class Endless:
        async def perform(self, request: Request) -> Reply:
            assert request.on_text is not None
            request.on_text("a piece that is long enough to be passed on at once ")
            try:
                await asyncio.sleep(60)
            finally:
                over.set()
            raise AssertionError

    async with Shikisha([Endless()]) as s:
        stream = s.stream("Go on.")
        assert (await anext(stream)).startswith("a piece")
        await stream.aclose()
    assert over.is_set()


def test_run_needs_no_event_loop_and_runs_again() -> None:
    with Shikisha([Shout()]) as s:
        first = s.run("hello")
        assert_type(first, TaskAnswer[str])
        assert "HELLO" in first.answer
        assert s.run("again").dollars == 0.0


async def test_run_works_where_a_loop_runs_already() -> None:
    with Shikisha([Shout()]) as s:
        assert "HELLO" in s.run("hello").answer


def test_each_loop_has_its_own_connections() -> None:
    s = Shikisha([Shout()])
    assert "ONE" in asyncio.run(s.arun("one")).answer
    assert "TWO" in asyncio.run(s.arun("two")).answer


def test_a_function_by_itself_gets_a_text_or_its_arguments() -> None:
    def double(text: str) -> str:
        return text * 2

    with Shikisha([double]) as s:
        from_words, from_json = s.run("ab"), s.run('{"text": "c"}')
    assert (from_words.answer, from_json.answer) == ("abab", "cc")
    assert from_words.workers == ("double",)


def test_a_journal_keeps_the_run(tmp_path: Path) -> None:
    with Shikisha([Shout()], journal=tmp_path / "runs.db") as s:
        run = s.run("hello").run.id

    async def read() -> Run:
        async with open_journal(str(tmp_path / "runs.db")) as journal:
            return Run.fold(await journal.read(run))

    assert asyncio.run(read()).answer == "HELLO"


def test_a_conductor_and_further_tables_hold() -> None:
    tables: Sequence[dict[str, object]] = [{"name": name, "kind": "scripted", "answers": name} for name in ("a", "b")]
    with Shikisha(tables, conductor="fixed:single?worker=b", settings={"budgets": {"steps": 2}}, budget=0.5) as s:
        result = s.run("Who?")
    assert (result.answer, result.run.started.caps.steps, result.run.started.caps.dollars) == ("b", 2, 0.5)


def test_a_run_without_an_answer_says_why() -> None:
    class Broken:
        async def perform(self, request: Request) -> Reply:
            raise RuntimeError(request.subtask)

    with Shikisha([Broken()]) as s, pytest.raises(RunFailed) as caught:
        s.run("hello")
    assert caught.value.why
    with pytest.raises(TaskError, match="no run to explain"):
        Shikisha([Shout()]).explain()


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([], "workers: expected a list of at least one worker"),
        ("openai:x", "workers: expected a list"),
        (["gpt-5"], 'workers[0]: expected "provider:model", as "openai:gpt-5", not \'gpt-5\'; providers: '),
        (["opnai:gpt-5"], "workers[0]: unknown provider 'opnai'"),
        (["azure:gpt"], "workers[0]: azure needs its address"),
        (["openai:gpt-5"], "environment variable OPENAI_API_KEY is not set"),
        (["ollama:a", "ollama:a"], "workers[1]: 'ollama:a' is the name of an earlier worker"),
        ([3], "workers[0]: expected"),
        ([Shout], "not type"),
        ([{"kind": "scripted"}], 'workers[0]: expected "name"'),
        ([{"name": "a", "kind": "scriptd"}], "Shikisha: workers.a.kind: unknown kind of worker 'scriptd'"),
        ([lambda x: x], "expected a type"),
    ],
)
def test_what_cannot_be_a_worker_is_said_at_once(workers: Sequence[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Shikisha(workers, environment={"SHIKISHA_DISCOVERY": "off"})  # whatever model this machine has pulled
    assert expected in str(caught.value)


def test_a_budget_needs_prices() -> None:
    with pytest.raises(ConfigError, match="budget: the price of openai:own-model is not known"):
        Shikisha(["openai:own-model"], budget=1.0, environment=KEY)
    Shikisha(["openai:gpt-5-mini"], budget=1.0, environment=KEY)  # the catalogue has it
    Shikisha([{"spec": "openai:gpt-5-mini", "price": {"input": 0.25, "output": 2.0}}], budget=1.0, environment=KEY)
    Shikisha(["ollama:qwen2.5"], budget=1.0, environment={})


async def test_scripted_workers_are_workers() -> None:
    async with Shikisha([ScriptedWorker(["a", "b"])]) as s:
        assert [(await s.arun("x")).answer, (await s.arun("x")).answer] == ["a", "b"]


def test_a_run_inside_of_a_run_is_refused_and_does_not_hang() -> None:
    class Nested:
        async def perform(self, request: Request) -> Reply:
            try:
                return Reply(s.run(request.subtask).answer)
            except ConfigError as error:
                return Reply(str(error))

    with Shikisha([Nested()]) as s:
        assert "await arun" in s.run("hello").answer


def test_an_object_that_is_dropped_ends_its_thread_and_closes_its_journal(tmp_path: Path) -> None:
    s = Shikisha([Shout()], journal=tmp_path / "runs.db")
    s.run("hello")
    thread = s._thread
    assert thread is not None
    assert thread.is_alive()
    del s
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def test_a_journal_that_cannot_be_opened_is_an_error_of_the_run() -> None:
    with Shikisha([Shout()], journal="mysql://host/db") as s, pytest.raises(ConfigError, match="mysql"):
        s.run("hello")


@pytest.mark.parametrize(
    ("spec", "environment", "base_url", "limit"),
    [
        ("lmstudio:m", {}, "http://localhost:1234/v1", "max_tokens"),
        ("vllm:org/m", {}, "http://localhost:8000/v1", "max_completion_tokens"),
        ("ollama:qwen2.5:7b", {}, "http://localhost:11434/v1", "max_tokens"),
        ("anthropic:c", {"ANTHROPIC_API_KEY": "sk-of-nobody"}, "https://api.anthropic.com/v1", "max_completion_tokens"),
    ],
)
def test_a_provider_has_its_address_and_field(
    spec: str, environment: dict[str, str], base_url: str, limit: str
) -> None:
    container, pool, _ = Shikisha([spec], environment=environment)._parts()
    table = container.workers[spec].model_dump()
    assert pool.names == (spec,)
    assert (table["base_url"], table["model"]) == (base_url, spec.partition(":")[2])
    assert profile_at(table["base_url"], table["provider"]).request.limit == limit
