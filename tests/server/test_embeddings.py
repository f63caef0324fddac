"""`/v1/embeddings`, `/v1/completions` and several choices of one chat: each a run, or several, like all others."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import nan
from pathlib import Path

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI
from responding import FILE, by_model, responding
from serving import At, served

from shikisha.core.budget import Price
from shikisha.core.call import Card, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.server.keys import KeySpec
from shikisha.server.keys.key import KeyCaps, KeyScope
from shikisha.testing import ScriptedAnswer
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.workers.embedding import EmbeddingSettings, build, decode_vector

EMBEDDER = """
[workers.embedder]
kind = "embedding"
model = "e1"
base_url = "{url}/v1"
price = {{input = 1.0, output = 0.0}}
"""


@asynccontextmanager
async def embedding(folder: Path, **more: object) -> AsyncIterator[tuple[At, AsyncOpenAI, list[dict[str, object]]]]:
    """Serve with an endpoint whose vectors are a text's length and its place; `more` replaces fields of its reply."""
    seen: list[dict[str, object]] = []

    async def answer(incoming: HttpRequest, exchange: HttpExchange) -> bool:
        body = incoming.json()
        seen.append({**body, "path": incoming.path})
        texts = body["input"]
        assert isinstance(texts, list)
        data = [{"index": place, "embedding": [len(text), place, 0.5]} for place, text in enumerate(texts)]
        reply = {"data": list(reversed(data)), "model": "e1-2026", "usage": {"prompt_tokens": 9}, **more}
        await exchange.send(200, json.dumps(reply).encode())
        return True

    async with serve_http(answer) as url:
        config = FILE.format(url=f"{url}/v1", more="", end="") + EMBEDDER.format(url=url)
        async with served(folder, config) as at, at.openai() as client:
            yield at, client, seen


async def test_texts_get_their_vectors_in_their_order_in_a_run_that_is_charged(tmp_path: Path) -> None:
    async with embedding(tmp_path) as (at, client, seen):
        raw = await client.embeddings.with_raw_response.create(
            model="e1", input=["hello", "you"], encoding_format="float", dimensions=3
        )
        made = raw.parse()
        assert [each.embedding for each in made.data] == [[5.0, 0.0, 0.5], [3.0, 1.0, 0.5]]
        assert (made.model, made.usage.prompt_tokens) == ("embedder", 9)
        assert seen == [
            {"model": "e1", "input": ["hello", "you"], "dimensions": 3, "encoding_format": "float",
             "path": "/v1/embeddings"},
        ]  # fmt: skip
        whole = await client.embeddings.create(model="shikisha", input="hello")  # the SDK asks for base64 by itself
        assert whole.data[0].embedding == [5.0, 0.0, 0.5]
        async with at.http() as http:
            run = (await http.get(f"/runs/{raw.headers['x-shikisha-run-id']}")).json()
        assert run["dollars"] == pytest.approx(9e-6) or run["cost"] == pytest.approx(9e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"data": []},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1e300]}]},
        {"data": [{"index": 0, "embedding": "AAA"}]},
        {"data": [{"index": 0, "embedding": [nan]}]},
        {"data": [{"index": 0, "embedding": ["x"]}]},
        {"data": 3},
        {"usage": {"prompt_tokens": -1}},
    ],
)
async def test_an_endpoint_that_answers_nonsense_is_a_bad_reply(more: dict[str, object]) -> None:
    async def answer(_: HttpRequest, exchange: HttpExchange) -> bool:
        reply = {"data": [{"index": 0, "embedding": [1.0]}], "model": "m", **more}
        await exchange.send(200, json.dumps(reply).encode())
        return True

    async with serve_http(answer) as url:
        worker = build(EmbeddingSettings(model="e1", base_url=url), Card("e", price=Price(1.0)), SecretStore({}))
        try:
            with pytest.raises(WorkerError) as caught:
                await worker.perform(Request(Task('{"input": ["x"]}'), "x"))
            with pytest.raises(WorkerError) as other:
                await worker.perform(Request(Task("What is it?"), "x"))
        finally:
            await worker.aclose()
    assert (caught.value.fault.kind, other.value.fault.kind) == (FaultKind.BAD_REPLY, FaultKind.BAD_ARGUMENTS)


@pytest.mark.parametrize("text", ["", "AA", "A", "ü", "AAAAAAA="])
def test_a_vector_that_is_none_is_refused(text: str) -> None:
    if text:
        with pytest.raises(ValueError, match=r"\w"):
            decode_vector(text)
    else:
        assert list(decode_vector(text)) == []


async def test_an_embedder_is_for_keys_that_may_and_in_no_plan(tmp_path: Path) -> None:
    async with embedding(tmp_path) as (at, _, seen), at.http() as http:
        for body, status in (
            ({"model": "none", "input": "x"}, 404),
            ({"model": "e1", "input": []}, 400),
            ({"model": "e1", "input": [[1, 2]]}, 400),
            ({"model": "e1", "input": ["x"] * 300}, 400),
            ({"model": "e1", "input": ""}, 400),
            ({"model": "e1", "input": "x", "dimensions": 0}, 400),
        ):
            assert (await http.post("/v1/embeddings", json=body)).status_code == status, body
        assert at.service is not None
        assert "embedder" not in [card.name for card in at.service.container.cards()]
        narrow = await at.service.keys.issue(KeySpec("n", workers=("first",)), "tests")
        poor = await at.service.keys.issue(KeySpec("p", caps=KeyCaps(dollars=0.0)), "tests")
        for key, status in ((narrow, 404), (poor, 402)):
            async with at.http(key.secret) as other:
                listed = [each["id"] for each in (await other.get("/v1/models")).json()["data"]]
                assert listed.count("embedder") == (key is poor)
                assert (await other.get("/v1/models/embedder")).status_code == (200 if key is poor else 404)
                chat = {"model": "embedder", "messages": [{"role": "user", "content": "hello"}]}
                assert (await other.post("/v1/chat/completions", json=chat)).status_code == 404
                came = await other.post("/v1/embeddings", json={"model": "e1", "input": "hello"})
                assert came.status_code == status
        assert seen == []


async def test_a_legacy_completion_is_answered_whole_and_streamed(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (_, client):
        made = await client.completions.create(model="shikisha", prompt="hello", max_tokens=50)
        assert (made.choices[0].text, made.choices[0].finish_reason, made.object) == (
            "m1 says so", "stop", "text_completion",
        )  # fmt: skip
        stream = await client.completions.create(
            model="shikisha", prompt=["hello"], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "m1 says so"
        assert chunks[-1].usage is not None
        both = await client.completions.create(model="shikisha", prompt=["one", "two"])
        assert [(each.index, each.text) for each in both.choices] == [(0, "m1 says so"), (1, "m1 says so")]
        for more in ({"logprobs": 3}, {"n": 2}, {"prompt": [[1, 2]]}, {"prompt": ["a", "b"], "stream": True}):
            with pytest.raises(APIStatusError) as caught:
                await client.completions.create(model="shikisha", prompt="hello", extra_body=more)
            assert caught.value.status_code == 400


async def test_several_choices_are_as_many_runs(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, client), at.http() as http:
        raw = await client.chat.completions.with_raw_response.create(
            model="shikisha", messages=[{"role": "user", "content": "hello"}], n=3
        )
        made = raw.parse()
        assert [(each.index, each.message.content) for each in made.choices] == [(n, "m1 says so") for n in range(3)]
        runs = {(each.model_extra or {})["run"] for each in made.choices}
        listed = (await http.get("/runs")).json()["data"]
        assert {each["id"] for each in listed} == runs
        assert len(runs) == 3
        assert made.usage is not None
        one = await client.chat.completions.create(model="shikisha", messages=[{"role": "user", "content": "hello"}])
        assert one.usage is not None
        assert made.usage.total_tokens == 3 * one.usage.total_tokens


async def test_several_choices_are_streamed_with_one_usage_and_one_end(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        body: dict[str, object] = {"model": "shikisha", "messages": [{"role": "user", "content": "hello"}], "n": 3}
        whole = (await http.post("/v1/chat/completions", json=body)).json()
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        sent = [line for line in (await http.post("/v1/chat/completions", json=body)).text.splitlines() if line]
        assert sent.count("data: [DONE]") == 1
        chunks = [json.loads(line.removeprefix("data: ")) for line in sent[:-1]]
        assert sent[-1] == "data: [DONE]"
        assert [each["usage"]["total_tokens"] for each in chunks if not each["choices"]] == [
            whole["usage"]["total_tokens"]
        ]
        assert len({each["id"] for each in chunks}) == 1
        texts = dict.fromkeys(range(3), "")
        ends = list[int]()
        for choice in (choice for each in chunks for choice in each["choices"]):
            texts[choice["index"]] += choice["delta"].get("content", "")
            ends += [choice["index"]] if choice["finish_reason"] == "stop" else []
        assert (set(texts.values()), sorted(ends)) == ({"m1 says so"}, [0, 1, 2])
        assert len((await http.get("/runs")).json()["data"]) == 6


async def test_a_choice_that_fails_ends_the_stream_and_the_other_runs(tmp_path: Path) -> None:
    slow = ScriptedAnswer(text="later", latency=30.0)
    answers = iter([slow, slow, ScriptedAnswer(text="")])
    async with responding(tmp_path, lambda _: next(answers, ScriptedAnswer(text=""))) as (at, _), at.http() as http:
        body = {"model": "shikisha", "messages": [{"role": "user", "content": "hello"}], "n": 3, "stream": True}
        sent = [line for line in (await http.post("/v1/chat/completions", json=body)).text.splitlines() if line]
        assert "error" in json.loads(sent[-2].removeprefix("data: "))
        assert sent[-1] == "data: [DONE]"
        assert sent.count("data: [DONE]") == 1
        async with asyncio.timeout(10):
            states = set[str]()
            while states != {"ended", "stopped"}:
                states = {each["state"] for each in (await http.get("/runs")).json()["data"]}
                await asyncio.sleep(0.05)


async def refused_choices(http: httpx2.AsyncClient, **more: object) -> int:
    body = {"model": "shikisha", "messages": [{"role": "user", "content": "hello"}], "n": 3, **more}
    return (await http.post("/v1/chat/completions", json=body)).status_code


async def test_choices_that_cannot_all_begin_or_end_are_none(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="once", times=1)]) as (at, _), at.http() as http:
        assert await refused_choices(http, n=9) == 400
        assert await refused_choices(http) >= 500
        assert at.service is not None
        narrow = await at.service.keys.issue(
            KeySpec("n", scopes=frozenset({KeyScope.RUN}), caps=KeyCaps(runs_at_once=2)), "tests"
        )
        async with at.http(narrow.secret) as other:
            assert await refused_choices(other) == 429
