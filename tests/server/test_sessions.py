"""Sessions over HTTP: a chat goes on with what the server has of it, with people among its members, labels kept."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from serving import At, served

from shikisha.server.keys.key import KeyScope
from shikisha.server.pages.sessions_page import TurnView
from shikisha.server.pages.try_page import form_fields, read_task_form
from shikisha.server.store import ServedRun
from shikisha.testing import AnswerChooser, ReceivedChatRequest, ScriptedAnswer, chat_server

CONFIG = """
conductor = "chat:round-robin?workers=ann,bob&turns=2"
[workers.ann]
kind = "chat"
model = "ann"
base_url = "{url}"
price = {{}}
sees = ["secret"]
[workers.bob]
kind = "chat"
model = "bob"
base_url = "{url}"
price = {{}}
adds = ["secret"]
sees = ["secret"]
[workers.eve]
kind = "chat"
model = "eve"
base_url = "{url}"
price = {{}}
[workers.me]
kind = "human"
[conductors.panel]
kind = "chat"
workers = ["ann", "me"]
turns = 2
[conductors.eve]
kind = "fixed"
topology = "single"
roles = {{ worker = "eve" }}
[labels]
guarded = ["secret"]
[server]
approval_wait = 0.05
"""


def says(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Each model says who it is."""
    return ScriptedAnswer(text=f"I am {asked.model}.")


@asynccontextmanager
async def serving(folder: Path, answers: AnswerChooser = says) -> AsyncIterator[tuple[At, list[ReceivedChatRequest]]]:
    """A server whose models answer so, and what they were asked."""
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return answers(asked)

    async with chat_server(choose) as url, served(folder, CONFIG.format(url=url)) as at:
        yield at, seen


async def say(at: At, text: str, headers: Mapping[str, str] = {}, key: str = "", **more: object) -> httpx2.Response:
    """Send one message of the session `s`."""
    body = {"model": "shikisha", "messages": [{"role": "user", "content": text}], **more}
    async with at.http(key) as http:
        return await http.post("/v1/chat/completions", json=body, headers={"X-Shikisha-Session": "s", **headers})


async def test_a_session_goes_on_with_what_each_member_said(tmp_path: Path) -> None:
    async with serving(tmp_path) as (at, seen):
        assert (await say(at, "First?")).json()["choices"][0]["message"]["content"] == "I am bob."
        seen.clear()
        assert (await say(at, "Second?")).status_code == 200
        told = [text for _, text in seen[0].messages]
        assert told[0] == "First?"
        assert [json.loads(line) for line in told[1].splitlines()] == [
            {"speaker": "ann", "says": "I am ann."},
            {"speaker": "bob", "says": "I am bob."},
        ]
        assert "Second?" in told[2]
        async with at.http() as http:
            await http.post("/ui/login", data={"key": at.key})
            page = (await http.get("/ui/sessions/s")).text
        assert page.count("I am ann.") == 2


async def test_a_run_without_a_chat_api_goes_on_with_it_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as (at, seen), at.http() as http:
        assert (await say(at, "First?")).status_code == 200
        seen.clear()
        made = await http.post("/runs", json={"prompt": "Second?"}, headers={"X-Shikisha-Session": "s"})
        assert made.status_code == 200
        assert seen[0].messages[0][1] == "First?"


def test_the_page_to_try_tasks_keeps_the_labels_that_workers_added() -> None:
    earlier = TurnView(ServedRun(run="r", tenant="t", key="k", api="page", model="m", conductor="c"), "p", "a")
    asked = read_task_form(form_fields({"prompt": "q"}), [replace(earlier, labels=frozenset({"secret"}))])
    assert asked.options.labels == ("secret",)


async def test_what_cannot_go_on_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path) as (at, _):
        earlier = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        refused = await say(at, "", messages=earlier)
        assert (refused.status_code, "the new message alone" in refused.text) == (400, True)
        assert (await say(at, "a", {"X-Shikisha-Session": "x" * 201})).status_code == 400
        assert (await say(at, "a", n=2)).status_code == 400
        assert (await say(at, "a", metadata={"session": "other"})).status_code == 400
        async with at.http() as http:
            body = {"model": "shikisha", "input": "a"}
            other = await http.post("/v1/responses", json=body, headers={"X-Shikisha-Session": "s"})
        assert (other.status_code, "expected in requests for" in other.text) == (400, True)


async def test_a_session_is_one_key_s_and_a_repeated_request_the_same_turn(tmp_path: Path) -> None:
    async with serving(tmp_path) as (at, seen):
        key = {"Idempotency-Key": "k1"}
        first = await say(at, "First?", key)
        again = await say(at, "First?", key)
        assert first.json()["id"] == again.json()["id"]
        stranger = await at.issue(KeyScope.RUN, tenant="other")
        seen.clear()
        assert (await say(at, "Mine?", key=stranger.secret)).status_code == 200
        assert "First?" not in str(seen[0].messages)


async def test_labels_that_workers_added_go_on_with_the_session(tmp_path: Path) -> None:
    async with serving(tmp_path) as (at, _):
        assert (await say(at, "First?")).status_code == 200  # bob adds `secret` to what he says
        refused = await say(at, "Tell me.", model="shikisha/eve")
        assert refused.status_code in (400, 403)
        assert "secret" in refused.text
        assert (await say(at, "Tell me.", {"X-Shikisha-Session": "new"}, model="shikisha/eve")).status_code == 200


async def test_a_person_is_a_member_and_answers_on_the_page_of_the_session(tmp_path: Path) -> None:
    async with serving(tmp_path) as (at, seen):
        waiting = await say(at, "Which?", model="shikisha/panel")
        assert waiting.json()["error"]["code"] == "approval_required"
        busy = await say(at, "And?")
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "session_busy")
        async with at.http(None) as http:
            await http.post("/ui/login", data={"key": at.key})
            page = (await http.get("/ui/sessions/s")).text
            assert "You are asked as me" in page
            assert "I am ann." in page
            action = re.search(r'action="(/ui/approvals/[^"]+)"', page)
            csrf = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
            assert action is not None
            assert csrf is not None
            form = {"csrf": csrf[1], "session": "s", "text": "The <second>.", "decision": "yes"}
            came = await http.post(action[1], data=form, headers={"Origin": at.url})
            assert (came.status_code, came.headers["location"]) == (303, "/ui/sessions/s")
            assert at.service is not None
            run = waiting.json()["run"]
            async for _ in at.service.listen(run):
                pass
            page = (await http.get("/ui/sessions/s")).text
            assert "The &lt;second&gt;." in page
            assert "You are asked as me" not in page
        seen.clear()
        assert (await say(at, "And?")).status_code == 200
        assert "The <second>." in seen[0].messages[1][1]


@pytest.mark.parametrize("name", ["", "a\tb"])
async def test_names_that_are_none_are_refused(name: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as (at, _):
        assert (await say(at, "a", {"X-Shikisha-Session": name})).status_code == 400
