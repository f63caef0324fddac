"""Approvals, reviews, feedback and rollbacks of served runs, over HTTP, by those who may and those who may not."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from serving import At, served

from shikisha.engine.approvals import Decision, answer_question
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.service import RunService

CONFIG = """
pool = ["send"]
[server]
port = 0
[workers.send]
kind = "scripted"
answers = "sent"
compensate = "unsend"
[workers.unsend]
kind = "scripted"
answers = "unsent"
[[autonomy.classes]]
name = "mail"
domain = "mail"
mode = "review"
on_failure = "rollback"
[[autonomy.classes]]
domain = "gated"
mode = "escalate"
workers = ["send"]
[[autonomy.classes]]
domain = "soon"
mode = "review"
expires = 0.2
"""

YES: Mapping[str, object] = {"approved": True}
NO: Mapping[str, object] = {"approved": False}


@dataclass(frozen=True, slots=True)
class Here:
    """A served service, and an admin's client."""

    at: At
    client: httpx2.AsyncClient

    @property
    def service(self) -> RunService:
        assert self.at.service is not None
        return self.at.service

    async def key(self, *scopes: KeyScope, tenant: str = "default") -> dict[str, str]:
        """The headers of another key's holder."""
        return {"Authorization": f"Bearer {(await self.at.issue(*scopes, tenant=tenant)).secret}"}

    async def begun(self, domain: str = "mail") -> str:
        """Begin a run; return its id once it waits or is over."""
        told = await self.client.post("/runs", json={"prompt": "send it", "domain": domain, "background": True})
        assert told.status_code == 202, told.text
        run = str(told.json()["id"])
        await self.seen(run)
        return run

    async def seen(self, run: str, until: str = "") -> dict[str, object]:
        """A run as it is told, once it waits or is over, or is in this state."""
        async with asyncio.timeout(30):
            under_way = {"open", "waiting"} - {until} if until else {"open"}
            while (found := (await self.client.get(f"/runs/{run}")).json())["state"] in under_way:  # noqa: ASYNC110 - as clients ask
                await asyncio.sleep(0.01)
        assert isinstance(found, dict)
        return found

    async def waiting(self, headers: Mapping[str, str] | None = None) -> list[dict[str, object]]:
        told = await self.client.get("/approvals", headers=headers)
        assert told.status_code == 200, told.text
        found = told.json()["data"]
        assert isinstance(found, list)
        return found

    async def say(
        self, name: object, said: Mapping[str, object] = YES, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, object]]:
        """Answer a question; return the status and what was told."""
        told = await self.client.post(f"/approvals/{name}", json=said, headers=headers)
        found = told.json()
        assert isinstance(found, dict)
        return told.status_code, found


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with served(tmp_path, CONFIG) as at, at.http() as client:
        yield Here(at, client)


async def test_an_answer_that_waits_for_a_review_is_listed_with_all_that_is_asked(here: Here) -> None:
    run = await here.begun()
    [found] = await here.waiting()
    expected = {
        "id": f"{run}_{found['question']}",
        "run": run,
        "asks": "review",
        "state": "open",
        "worker": "send",
        "answer": "sent",
        "why": "every answer to a task of class mail is reviewed",
        "task": "send it",
        "call": None,
        "decision": None,
        "page": f"/ui/approvals/{run}/{found['question']}",
    }
    assert {name: found[name] for name in expected} == expected
    assert isinstance(found["expires"], float)


async def test_the_call_that_waits_is_shown_word_by_word(here: Here) -> None:
    await here.begun("gated")
    [found] = await here.waiting()
    call = found["call"]
    assert isinstance(call, dict)
    assert (found["asks"], call["sees"], str(found["prompt"]).endswith(call["subtask"])) == ("approve", [], True)


@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        (YES, "done", "sent"),
        ({"approved": True, "text": "sent, really", "remark": "politer"}, "done", "sent, really"),
        (NO, "failed", None),
    ],
)
async def test_what_a_person_says_ends_the_run(
    here: Here, said: Mapping[str, object], status: str, text: str | None
) -> None:
    run = await here.begun()
    headers = await here.key(KeyScope.APPROVE)
    [found] = await here.waiting()
    code, told = await here.say(found["id"], said, headers)
    assert (code, told["state"]) == (200, "answered"), told
    ended = await here.seen(run)
    assert (ended["status"], ended["answer"]) == (status, text)
    assert await here.waiting(headers) == []


async def test_who_said_it_is_the_keys_holder_whatever_the_request_says(here: Here) -> None:
    await here.begun()
    [found] = await here.waiting()
    code, told = await here.say(found["id"], {"approved": True, "actor": "the president"})
    assert code == 400
    _, told = await here.say(found["id"])
    decision = told["decision"]
    assert isinstance(decision, dict)
    assert ("president" in decision["actor"], decision["via"]) == (False, "api")


async def test_a_second_word_is_told_that_it_comes_second(here: Here) -> None:
    await here.begun()
    [found] = await here.waiting()
    both = await asyncio.gather(here.say(found["id"]), here.say(found["id"], NO))
    assert sorted(code for code, _ in both) == [200, 409]
    assert (await here.say(found["id"]))[0] == 409


@pytest.mark.full
async def test_a_run_that_waits_in_vain_is_ended_by_the_server(here: Here) -> None:
    run = await here.begun("soon")
    ended = await here.seen(run, until="ended")
    assert (ended["status"], ended["fault"], "expired" in str(ended["why"])) == ("failed", "denied", True)
    [said] = (await here.service.read_run(run)).answers.values()
    assert (await here.say(f"{run}_{said.question}"))[0] == 409
    assert (said.actor, said.approved) == ("nobody", False)


async def test_a_key_without_the_scope_to_approve_learns_of_nothing(here: Here) -> None:
    await here.begun()
    [found] = await here.waiting()
    for scopes in ((KeyScope.RUN,), (KeyScope.READ,), (KeyScope.RUN, KeyScope.READ)):
        key = await here.key(*scopes)
        assert (await here.say(found["id"], headers=key))[0] == 403
        assert (await here.client.get("/approvals", headers=key)).status_code == 403


async def test_another_tenants_questions_are_not_there(here: Here) -> None:
    run = await here.begun()
    [found] = await here.waiting()
    key = await here.key(KeyScope.APPROVE, KeyScope.RUN, tenant="other")
    assert await here.waiting(key) == []
    assert (await here.say(found["id"], headers=key))[0] == 404
    assert (await here.client.get(f"/approvals/{found['id']}", headers=key)).status_code == 404
    assert (await here.client.post("/feedback", json={"run": run, "score": "up"}, headers=key)).status_code == 404
    assert (await here.client.post(f"/runs/{run}/rollback", json={}, headers=key)).status_code == 404


async def test_a_question_that_nobody_asked_is_not_there(here: Here) -> None:
    for name in ("x", "x_y", "_", "a-b-c_0123456789abcdef", "%00"):
        assert (await here.say(name))[0] in {400, 404}


async def test_an_answer_that_is_none_leaves_the_question_open(here: Here) -> None:
    await here.begun()
    [found] = await here.waiting()
    nul = {"approved": True, "text": "\0"}
    for body in ({}, {"approved": "yes"}, {"approved": 1}, {"approved": False, "text": "x"}, nul):
        assert (await here.client.post(f"/approvals/{found['id']}", json=body)).status_code == 400
    assert len(await here.waiting()) == 1


async def test_a_cancelled_run_waits_for_nobody(here: Here) -> None:
    run = await here.begun()
    [found] = await here.waiting()
    await here.client.post(f"/runs/{run}/cancel")
    assert (await here.say(found["id"]))[0] == 409
    assert await here.waiting() == []


async def test_an_answer_whose_server_died_at_once_is_found_by_the_next_one(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as client:
        run = await Here(at, client).begun()
        assert at.service is not None
        [asked] = (await at.service.read_run(run)).open_questions
        at.service.journal.add(
            answer_question(await at.service.read_run(run), asked.question, Decision(True, "ann"), asked.at)
        )
        await at.service.journal.flush()
    async with served(tmp_path, CONFIG) as at, at.http(None) as client:
        assert at.service is not None
        async with asyncio.timeout(30):
            while (past := await at.service.read_run(run)).finished is None:  # noqa: ASYNC110 - another server's work
                await asyncio.sleep(0.01)
    assert past.answer == "sent"


# Feedback


async def test_a_persons_word_on_an_answer_is_kept_as_a_grade(here: Here) -> None:
    run = await here.begun("")
    words = {"up": "right", "down": "wrong", 0.5: "partial", 1: "right"}
    for score, mark in words.items():
        told = await here.client.post("/feedback", json={"run": run, "score": score, "remark": "so so"})
        assert (told.status_code, told.json()["mark"]) == (201, mark)
    grades = (await here.service.read_run(run)).grades
    assert [str(grade.mark) for grade in grades] == list(words.values())
    assert {(grade.evidence, grade.actor) for grade in grades} == {("so so", told.json()["actor"])}


async def test_a_run_without_an_answer_is_not_judged(here: Here) -> None:
    run = await here.begun()
    assert (await here.client.post("/feedback", json={"run": run, "score": "up"})).status_code == 409
    assert (await here.client.post("/feedback", json={"run": "no-such-run", "score": "up"})).status_code == 404
    assert (await here.client.post("/feedback", json={"run": run, "score": 2})).status_code == 400


# Rollbacks


async def test_a_run_is_rolled_back_once(here: Here) -> None:
    run = await here.begun("")
    told = [(await here.client.post(f"/runs/{run}/rollback", json={"remark": "wrong one"})).json() for _ in range(2)]
    assert told[0] == told[1]
    [effect] = told[0]["effects"]
    assert (effect["worker"], effect["by"], effect["undone"]) == ("send", "unsend", True)
    assert len((await here.service.read_run(run)).rollbacks) == 1


async def test_a_refused_answers_effects_are_undone_as_configured(here: Here) -> None:
    run = await here.begun()
    [found] = await here.waiting()
    await here.say(found["id"], NO)
    await here.seen(run)
    past = await here.service.read_run(run)
    assert (past.rollbacks[0].begun.actor, len(past.effects)) == ("configuration", 1)


async def test_a_waiting_run_ends_with_its_rollback(here: Here) -> None:
    run = await here.begun()
    assert (await here.client.post(f"/runs/{run}/rollback", json={})).json()["status"] == "failed"
    ended = await here.seen(run)
    assert (ended["state"], ended["status"], ended["answer"]) == ("ended", "failed", None)


async def test_a_key_that_may_only_run_rolls_nothing_back(here: Here) -> None:
    run = await here.begun("")
    key = await here.key(KeyScope.RUN)
    assert (await here.client.post(f"/runs/{run}/rollback", json={}, headers=key)).status_code == 403


# What clients of OpenAI's APIs see of it

EVERYTHING = """
pool = ["w"]
conductor = "fixed:single"
[server]
port = 0
[workers.w]
kind = "scripted"
answers = "a first draft"
[[autonomy.classes]]
mode = "review"
"""


@pytest.mark.parametrize(
    ("said", "text"), [(YES, "a first draft"), ({**YES, "text": "the final word"}, "the final word")]
)
async def test_a_streamed_chat_hears_nothing_of_an_answer_before_a_person_has_seen_it(
    tmp_path: Path, said: Mapping[str, object], text: str
) -> None:
    async with served(tmp_path, EVERYTHING) as at, at.http() as client, at.openai() as sdk:
        here = Here(at, client)

        async def decide() -> None:
            async with asyncio.timeout(30):
                while not (found := await here.waiting()):  # noqa: ASYNC110 - as clients ask
                    await asyncio.sleep(0.01)
            heard_before.extend(heard)
            await here.say(found[0]["id"], said)

        heard: list[str] = []
        heard_before: list[str] = []
        deciding = asyncio.create_task(decide())
        stream = await sdk.chat.completions.create(
            model="shikisha", messages=[{"role": "user", "content": "write"}], stream=True
        )
        async for chunk in stream:
            heard += [choice.delta.content or "" for choice in chunk.choices]
        await deciding
    assert ("".join(heard_before), "".join(heard)) == ("", text)


async def _streamed(client: httpx2.AsyncClient, path: str) -> str:
    """What a listener is told who claims to have heard the beginning; the run waits, so that there is no end."""
    lines: list[str] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5), client.stream("GET", path) as stream:
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                lines.append(line)  # noqa: PERF401 - what came before the time is over counts
    return "\n".join(lines)


async def test_a_response_hears_nothing_of_a_refused_answer(tmp_path: Path) -> None:
    async with served(tmp_path, EVERYTHING) as at, at.http() as client, at.openai() as sdk:
        here = Here(at, client)
        told = await sdk.responses.create(model="shikisha", input="write", background=True)
        async with asyncio.timeout(30):
            while not (found := await here.waiting()):  # noqa: ASYNC110 - as clients ask
                await asyncio.sleep(0.01)
        shown = (await sdk.responses.retrieve(told.id)).model_dump_json()
        shown += await _streamed(client, f"/v1/responses/{told.id}?stream=true&starting_after=2")
        await here.say(found[0]["id"], NO)
        await here.seen(str(found[0]["run"]))
        ended = await sdk.responses.retrieve(told.id)
    assert "a first draft" not in shown + ended.model_dump_json()
    assert ended.status == "failed"
