"""An answer under review, or refused, is shown to whoever may approve and to nobody else, by any way in."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from serving import At, served

from shikisha.server.keys.key import KeyScope
from shikisha.testing import InjectedFault, ReceivedChatRequest, ScriptedAnswer, chat_server

SECRET = "the-unreviewed-words"
CONFIG = """
conductor = "fixed:chain"
[workers.draft]
kind = "scripted"
answers = "the-unreviewed-words, drafted"
[workers.final]
kind = "scripted"
answers = "the-unreviewed-words"
[server]
port = 0
approval_wait = 0.2
[[autonomy.classes]]
domain = "mail"
mode = "review"
"""
FULL = {"X-Shikisha-Domain": "mail", "X-Shikisha-Metadata": "full"}
ASKED: dict[str, object] = {"model": "shikisha", "messages": [{"role": "user", "content": "write it"}]}


@asynccontextmanager
async def asking(at: At, *scopes: KeyScope) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with such a key of the first tenant."""
    key = await at.issue(*scopes, tenant="default")
    async with at.http(key.secret) as client:
        yield client


async def begun(client: httpx2.AsyncClient) -> str:
    """Begin a run that is to be reviewed; return it once it waits."""
    told = await client.post("/runs", json={"prompt": "write it", "domain": "mail"})
    assert (told.status_code, told.json()["state"]) == (200, "waiting")
    assert SECRET not in told.text
    return str(told.json()["id"])


async def decided(at: At, run: str, *, approved: bool) -> None:
    """Decide as the admin."""
    async with at.http() as admin:
        [found] = (await admin.get("/approvals")).json()["data"]
        assert found["run"] == run
        assert (await admin.post(f"/approvals/{found['id']}", json={"approved": approved})).status_code == 200
        async with asyncio.timeout(20):
            while (await admin.get(f"/runs/{run}")).json()["state"] != "ended":  # noqa: ASYNC110 - as clients ask
                await asyncio.sleep(0.02)


async def heard(client: httpx2.AsyncClient, run: str, until: str) -> str:
    """The run's events, as far as the first of this kind."""
    text = ""
    async with asyncio.timeout(20), client.stream("GET", f"/runs/{run}/events?pieces=true") as told:
        async for line in told.aiter_lines():
            text += line + "\n"
            if line == f"event: {until}":
                break
    return text


async def test_a_run_under_review_shows_its_answer_to_approvers_only(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, asking(at, KeyScope.RUN, KeyScope.READ) as client, at.http() as admin:
        run = await begun(client)
        shown = await client.get(f"/runs/{run}")
        assert SECRET not in shown.text
        assert shown.json()["explanation"]["rounds"][0]["steps"][1]["worker"] == "final"
        assert SECRET not in await heard(client, run, "run.paused")
        assert SECRET in (await admin.get(f"/runs/{run}")).text
        assert SECRET in await heard(admin, run, "run.paused")


@pytest.mark.parametrize("approved", [True, False])
async def test_what_was_let_pass_is_shown_and_what_was_refused_is_not(tmp_path: Path, approved: bool) -> None:
    async with served(tmp_path, CONFIG) as at, asking(at, KeyScope.RUN, KeyScope.READ) as client:
        run = await begun(client)
        await decided(at, run, approved=approved)
        shown, events = await client.get(f"/runs/{run}"), await heard(client, run, "end")
        assert [SECRET in shown.text, SECRET in events] == [approved, approved]
        numbers = [line for line in events.splitlines() if line.startswith("id: ")]
        assert numbers == [f"id: {place}" for place in range(len(numbers))]


async def test_a_cancelled_review_lets_nothing_pass(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, asking(at, KeyScope.RUN) as client:
        run = await begun(client)
        assert SECRET not in (await client.post(f"/runs/{run}/cancel")).text
        assert SECRET not in (await client.get(f"/runs/{run}")).text
        assert SECRET not in await heard(client, run, "end")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_full_metadata_tell_nothing_that_waits_for_a_review(tmp_path: Path, path: str) -> None:
    body = ASKED if "chat" in path else {"model": "shikisha", "input": "write it"}
    async with served(tmp_path, CONFIG) as at, asking(at, KeyScope.RUN) as client:
        waits = asyncio.create_task(client.post(path, json=body, headers=FULL))
        told = await waits
        assert told.status_code == 409
        assert SECRET not in told.text
        streamed = await client.post(path, json={**body, "stream": True}, headers=FULL)
        assert SECRET not in streamed.text


async def test_a_refused_answer_is_in_no_error(tmp_path: Path) -> None:
    config = CONFIG.replace("approval_wait = 0.2", "approval_wait = 20")
    async with served(tmp_path, config) as at, asking(at, KeyScope.RUN) as client:
        waits = asyncio.create_task(client.post("/v1/chat/completions", json=ASKED, headers=FULL))
        async with at.http() as admin, asyncio.timeout(20):
            while not (found := (await admin.get("/approvals")).json()["data"]):  # noqa: ASYNC110 - as clients ask
                await asyncio.sleep(0.02)
        await decided(at, str(found[0]["run"]), approved=False)
        told = await waits
        assert (told.status_code, SECRET in told.text) == (403, False)
        assert json.loads(told.text)["shikisha"]["steps"][1]["worker"] == "final"


LONG = """
conductor = "fixed:single"
[workers.m]
kind = "chat"
model = "m"
base_url = "{url}"
attempts = 1
[server]
port = 0
approval_wait = 0.2
[[autonomy.classes]]
domain = "mail"
mode = "review"
"""


def cut(_: ReceivedChatRequest) -> ScriptedAnswer:
    """Run into the limit."""
    return ScriptedAnswer(text=SECRET, mishap=InjectedFault.LENGTH)


async def test_an_answer_that_was_cut_short_does_not_get_round_a_review(tmp_path: Path) -> None:
    async with chat_server(cut) as url, served(tmp_path, LONG.format(url=url)) as at, at.http() as client:
        told = await client.post("/v1/chat/completions", json=ASKED, headers={"X-Shikisha-Domain": "mail"})
        assert told.status_code == 502
        free = await client.post("/v1/chat/completions", json=ASKED)
        assert free.status_code == 200, free.text
        assert free.json()["choices"][0]["finish_reason"] == "length"
        said = str(free.json()["choices"][0]["message"]["content"])
        assert said
        assert said not in told.text


@asynccontextmanager
async def looking(at: At, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who has logged in at the pages with this key."""
    async with httpx2.AsyncClient(base_url=at.url, follow_redirects=True, timeout=30.0) as client:
        assert (await client.post("/ui/login", data={"key": key})).status_code == 200
        yield client


async def test_the_pages_show_an_answer_under_review_to_approvers_only(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, asking(at, KeyScope.RUN, KeyScope.READ) as client:
        run = await begun(client)
        low = await at.issue(KeyScope.RUN, KeyScope.READ, tenant="default")
        async with looking(at, low.secret) as reader, looking(at, at.key) as approver:
            assert SECRET not in (await reader.get(f"/ui/runs/{run}")).text
            assert (await reader.get(f"/ui/runs/{run}/journal")).status_code == 403
            assert SECRET in (await approver.get(f"/ui/runs/{run}")).text
            await decided(at, run, approved=True)
            assert SECRET in (await reader.get(f"/ui/runs/{run}")).text
