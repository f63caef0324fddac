"""`/v1/route`: who would perform a task, at which price, and nothing performed."""

from pathlib import Path

import pytest
from responding import responding

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer


async def test_a_decision_has_its_worker_prompt_access_price_and_reason_and_calls_nobody(tmp_path: Path) -> None:
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return ScriptedAnswer(text="no")

    async with responding(tmp_path, choose, more="max_output_tokens = 100") as (at, _), at.http() as http:
        one = (await http.post("/v1/route", json={"prompt": "hello", "max_completion_tokens": 10})).json()
        assert (one["worker"], one["endpoint_model"], one["access"]) == ("first", "m1", [])
        assert (one["price"]["input"], one["price"]["output"]) == (1.0, 2.0)
        assert 0 < one["price"]["most"] < 1e-3
        assert one["why"]
        chat = {"model": "shikisha/two", "messages": [{"role": "user", "content": "hello"}], "weight": 1}
        came = await http.post("/v1/route", json=chat)
        two = came.json()
        assert [(step["worker"], step["access"]) for step in two["steps"]] == [("first", []), ("second", [0])]
        assert (two["worker"], two["price"]["most"]) == ("second", None)
        assert came.headers["x-shikisha-ignored"] == "weight"
        assert seen == []
        assert (await http.get("/runs")).json()["data"] == []


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "prompt"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, 400, "prompt"),
        ({"prompt": " "}, 400, None),
        ({"messages": []}, 400, "messages"),
        ({"prompt": "x", "model": "none"}, 404, "model"),
    ],
)
async def test_what_cannot_be_routed_is_refused(
    tmp_path: Path, body: dict[str, object], status: int, param: str | None
) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="no")]) as (at, _), at.http() as http:
        came = await http.post("/v1/route", json=body)
        assert (came.status_code, came.json()["error"]["param"]) == (status, param)
