"""The same request under the same key is one run, however often and by whichever way it comes."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from responding import by_model, responding

from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.service import MAX_IDEMPOTENCY_KEY, read_idempotency_key
from shikisha.testing import ScriptedAnswer

KEY = {"Idempotency-Key": "order-7"}
BODY = {"model": "shikisha", "input": "hello"}


async def runs(http: httpx2.AsyncClient) -> int:
    return len((await http.get("/runs")).json()["data"])


async def test_a_repeat_is_answered_from_the_first_run(tmp_path: Path) -> None:
    async with (
        responding(tmp_path, [ScriptedAnswer(text="once", times=1), ScriptedAnswer(text="twice")]) as (at, _),
        at.http() as http,
    ):
        told = [(await http.post("/v1/responses", json=BODY, headers=KEY)).json() for _ in range(2)]
        assert told[0]["output"][0]["content"][0]["text"] == "once"
        assert told[0] == told[1]
        assert await runs(http) == 1


async def test_a_repeat_can_be_streamed(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="so it is")]) as (at, _), at.http() as http:
        first = (await http.post("/v1/responses", json=BODY, headers=KEY)).json()
        again = await http.post("/v1/responses", json={**BODY, "stream": True}, headers=KEY)
        assert "response.completed" in again.text
        assert first["id"] in again.text
        assert await runs(http) == 1


async def test_repeats_at_once_wait_for_one_run(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="so it is", latency=0.2)]) as (at, _), at.http() as http:
        asked = [http.post("/v1/responses", json=BODY, headers=KEY) for _ in range(5)]
        told = [answer.json() for answer in await asyncio.gather(*asked)]
        assert len({each["id"] for each in told}) == 1
        assert await runs(http) == 1


async def test_a_repeat_that_leaves_takes_nobodys_run_with_it(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="so it is", latency=0.5)]) as (at, _), at.http() as http:
        first = asyncio.create_task(http.post("/runs", json={"prompt": "hello"}, headers=KEY))
        await asyncio.sleep(0.2)
        async with at.http() as other:
            repeat = asyncio.create_task(other.post("/runs", json={"prompt": "hello"}, headers=KEY))
            await asyncio.sleep(0.1)
            repeat.cancel()
        assert (await first).json()["status"] == "done"


async def test_another_request_under_the_key_is_refused(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        await http.post("/runs", json={"prompt": "hello"}, headers=KEY)
        answer = await http.post("/runs", json={"prompt": "good-bye"}, headers=KEY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_mismatch")
        assert await runs(http) == 1


async def test_a_key_is_its_holders_own(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        other = await at.issue(KeyScope.RUN)
        async with at.http(other.secret) as stranger:
            told = [
                (await each.post("/runs", json={"prompt": "hello"}, headers=KEY)).json() for each in (http, stranger)
            ]
        assert told[0]["id"] != told[1]["id"]


@pytest.mark.parametrize("key", ["", "x" * (MAX_IDEMPOTENCY_KEY + 1), "a\tb", "schlüssel"])
def test_a_key_that_cannot_be_kept_is_refused(key: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_idempotency_key({"idempotency-key": key})
    assert (caught.value.status, caught.value.param) == (400, "Idempotency-Key")


def test_without_a_key_every_request_is_its_own() -> None:
    assert read_idempotency_key({}) is None
