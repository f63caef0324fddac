"""`[learning] on = true` is all that a server needs: it learns from what it serves, and forgets what is erased."""

import asyncio
import json
from pathlib import Path

import httpx2
from serving import served

from shikisha.core.task import Scope
from shikisha.testing.chat_script import ReceivedChatRequest, ScriptedAnswer
from shikisha.testing.chat_server import chat_server
from shikisha_train.office.seeded_random import hash_fraction

CONFIG = """
pool = ["adder", "writer"]
[learning]
on = true
[workers.adder]
kind = "chat"
base_url = "{url}"
model = "adder"
price = {{ call = 0.001 }}
[workers.writer]
kind = "chat"
base_url = "{url}"
model = "writer"
price = {{ call = 0.001 }}
"""
TASKS = ("Add up the invoices of {}.", "Write a letter to {}.")


def answer(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Answer right where the model is made for it."""
    sums = "Add up" in asked.messages[-1][1]
    return ScriptedAnswer(text="right" if sums == (asked.model == "adder") else "wrong")


async def test_a_server_learns_from_what_it_serves_and_from_feedback_and_forgets_what_is_erased(tmp_path: Path) -> None:
    async with chat_server(answer) as url, served(tmp_path, CONFIG.format(url=url)) as at, at.http() as client:
        assert at.service is not None

        async def ask(number: int) -> bool:
            text = TASKS[int(hash_fraction(number) * 2)].format(f"Ada {number}")
            said = await client.post("/runs", json={"prompt": text})
            right = bool(said.json()["answer"] == "right")
            graded = {"run": said.json()["id"], "score": "up" if right else "down"}
            assert (await client.post("/feedback", json=graded)).status_code < 300
            return right

        early = [await ask(number) for number in range(50)]
        files = at.service.container.learning_files()
        async with asyncio.timeout(60):
            while not files.index().scopes or files.index().scopes[0].versions[-1].runs < 25:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        scope = files.index().scopes[0].scope
        late = [await ask(number) for number in range(100, 120)]
        assert sum(late) / 20 > max(0.7, sum(early[:20]) / 20)
        route = await client.post(
            "/v1/route",
            json={"model": "shikisha", "messages": [{"role": "user", "content": "Add up the invoices of Bo."}]},
        )
        assert "model" in json.dumps(route.json())
        async with httpx2.AsyncClient(base_url=at.url, timeout=30) as pages:
            await pages.post("/ui/login", data={"key": at.key})
            assert "as planned, to measure what the learner brings" in (await pages.get("/ui/overview")).text
            pinned = files.pin(scope, files.index().scopes[0].live)  # which nothing makes again
            files.file(pinned, pinned.pinned).write_text("cut")
            files._loaded.clear()
            assert "Its file cannot be read" in (await pages.get("/ui/overview")).text
            await ask(200)  # no run fails of it
            files.pin(scope, "")
        runs = [run["id"] for run in (await client.get("/runs", params={"limit": 200})).json()["data"]]
        own = at.key.split("-")[2]
        await client.post("/admin/erase", json={"key": own})
        left = "".join(file.read_text() for file in (tmp_path / "learning").glob("*.json"))
        assert not any(run in left for run in runs)
        model = files.model(Scope(scope.tenant, frozenset()))
        assert model is None or not model.learning.runs
