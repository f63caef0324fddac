"""Shadow turns: a share of live turns is made twice and judged blind, within a cap a day; nothing is called for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from serving import At, served

from shikisha.config.container import load_config
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeMark, QuestionAnswered, TurnRouted
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.learned.journal_learner import JournalLearner
from shikisha.routing.turn_router import SHADOW_CHECKER
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun
from shikisha.server.lifecycle.process import open_service
from shikisha.server.lifecycle.shadow_turns import SHADOW_KEY, shadow_principal, shadow_runs, turn_task
from shikisha.server.store import RunFilter
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall, chat_server

FILE = """
conductor = "fixed:single?worker=large"
[server]
admin_key_env = "ADMIN"
[turns]
mode = "{mode}"
judge = "judge"
share = 1.0
dollars = {dollars}
[workers.large]
kind = "chat"
model = "large"
base_url = "{url}"
price = {{input = 5.0, output = 25.0, cached = 0.5}}
cache_seconds = 300
tools = true
[workers.small]
kind = "chat"
model = "small"
base_url = "{url}"
price = {{input = 1.0, output = 5.0, cached = 0.1}}
cache_seconds = 300
tools = true
[workers.judge]
kind = "chat"
model = "judge"
base_url = "{url}"
price = {{input = 1.0, output = 5.0}}
max_output_tokens = 300
"""
ADMIN = "an-admin-key-of-forty-characters-or-more"
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}


@dataclass
class Pool:
    """Three models behind one endpoint: two that call a tool twice, and a judge that likes calls of `ls`."""

    prefers: str = 'ls\\"'
    asked: list[ReceivedChatRequest] = field(default_factory=list)

    def __call__(self, asked: ReceivedChatRequest) -> ScriptedAnswer:
        self.asked.append(asked)
        if asked.model == "judge":
            first, second = asked.last.split("\nA:\n")[1].split("\nB:\n")
            liked = [self.prefers in part for part in (first, second)]
            verdict = "equal" if liked[0] == liked[1] else "A" if liked[0] else "B"
            return ScriptedAnswer(text=json.dumps({"reason": "so", "verdict": verdict}))
        command = "ls" if asked.model == "small" else "cat"
        if len(asked.tool_results) < 2:
            return ScriptedAnswer(calls=(ScriptedToolCall(name="bash", arguments={"command": command}),))
        return ScriptedAnswer(text=f"{asked.model} is done")

    def of(self, model: str) -> list[ReceivedChatRequest]:
        return [asked for asked in self.asked if asked.model == model]


@asynccontextmanager
async def serving(
    folder: Path, pool: Pool, mode: str = "shadow", dollars: float = 5.0
) -> AsyncIterator[tuple[At, AsyncOpenAI]]:
    async with (
        chat_server(pool) as url,
        served(folder, FILE.format(url=url, mode=mode, dollars=dollars), {"ADMIN": ADMIN}) as at,
        at.openai(ADMIN) as client,
    ):
        yield at, client


async def session(client: AsyncOpenAI, words: str = "Make it green.") -> int:
    """Play one question of an agent; return how many turns it had."""
    messages: list[dict[str, object]] = [{"role": "user", "content": words}]
    for turn in range(10):
        came = await client.chat.completions.create(model="shikisha", messages=messages, tools=[TOOL])  # type: ignore[arg-type, list-item]
        message = came.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            assert message.content == "large is done"
            return turn + 1
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "3 failed"} for call in message.tool_calls]
    raise AssertionError("it does not end")


async def shadows(at: At, count: int) -> list[Run]:
    """Wait for so many judged shadow turns."""
    assert at.service is not None
    async with asyncio.timeout(30):
        while len(found := await shadow_runs(at.service)) < count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)
    return found


async def test_live_turns_stay_and_shadow_turns_are_judged_in_both_orders(tmp_path: Path) -> None:
    pool = Pool()
    async with serving(tmp_path, pool) as (at, client):
        assert at.service is not None
        assert await session(client) == 3
        found = await shadows(at, 3)
        assert {run.started.pool for run in found} == {("small",)}
        assert len(pool.of("judge")) == 6
        texts = [asked.last for asked in pool.of("judge")]
        assert not any("large" in text or "small" in text for text in texts[:4])  # blind: no name of a worker
        grades = [run.grades[0] for run in found]
        assert [(grade.checker, grade.score) for grade in grades].count((SHADOW_CHECKER, 1.0)) == 2
        # It saw what the live worker saw, and nobody answered its calls.
        assert sorted(len(asked.tool_results) for asked in pool.of("small")) == [0, 1, 2]
        for run in found:
            events = await at.service.journal.read(run.id)
            assert not [event for event in events if isinstance(event, QuestionAnswered)]
        told = json.loads(grades[0].evidence)
        assert (told["live"], told["worker"]) == ("large", "small")
        assert told["live_dollars"] > 0
        async with at.http(ADMIN) as http:
            await http.post("/ui/login", data={"key": ADMIN})
            page = (await http.get("/ui/turns")).text
        assert "not excluded" in page
        assert "stays, as turns are only watched" in page


async def test_the_cap_of_a_day_holds_to_the_cent_and_the_live_turns_go_on(tmp_path: Path) -> None:
    pool = Pool()
    async with serving(tmp_path, pool, dollars=0.03) as (at, client):
        assert at.service is not None
        for number in range(6):
            assert await session(client, f"Make it green, the {number}th.") == 3
        await asyncio.sleep(1.0)
        runs = (await at.service.store.search(RunFilter(key=SHADOW_KEY, limit=100))).runs
        spent = sum((run.used.dollars or 0.0) + (run.uncertain.dollars or 0.0) for run in runs)
        assert 0 < spent <= 0.03
        assert len(pool.of("small")) < 18  # the rest had no shadow


async def test_a_shadow_or_a_fit_that_fails_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, looks = list[str](), list[int]()

    def fail_once(run: Run, turn: int) -> Task:
        if not failed:
            failed.append(run.id)
            raise LookupError("a reply that nobody thought of")
        return turn_task(run, turn)

    async def look(_: JournalLearner) -> list[object]:
        looks.append(1)
        raise FloatingPointError("numbers that no fit can take")

    monkeypatch.setattr("shikisha.server.lifecycle.shadow_turns.turn_task", fail_once)
    monkeypatch.setattr(JournalLearner, "look", look)
    learning = FILE.replace("[turns]", "[learning]\non = true\n[turns]")
    monkeypatch.setattr("test_shadow_turns.FILE", learning)
    async with serving(tmp_path, Pool()) as (at, client):
        assert await session(client) == 3
        await shadows(at, 2)
        assert await session(client, "Again.") == 3
    assert failed
    assert looks


async def test_a_cap_of_nothing_makes_no_shadow_turn(tmp_path: Path) -> None:
    pool = Pool()
    async with serving(tmp_path, pool, dollars=0.0) as (_, client):
        assert await session(client) == 3
        await asyncio.sleep(0.3)
    assert not pool.of("small")


async def refuse(folder: Path, pool: Pool, why: str) -> None:
    """See that a server does not start with the mode `on`."""
    file = folder / "shikisha.toml"
    async with chat_server(pool) as url:
        file.write_text(FILE.format(url=url, mode="on", dollars=1.0))
        container = load_config(file, {"ADMIN": ADMIN})
        with pytest.raises(ConfigError, match=why):
            async with open_service(container):
                pass
        await container.aclose()


async def test_on_is_refused_until_the_interval_excludes_harm(tmp_path: Path) -> None:
    pool = Pool()
    await refuse(tmp_path, pool, "no verdict yet")
    async with serving(tmp_path, pool) as (at, client):
        await session(client)
        (run, *_) = await shadows(at, 3)
    await refuse(tmp_path, pool, r"small: 3 verdicts, preference")
    async with serving(tmp_path, pool) as (at, _):
        assert at.service is not None
        grade = run.grades[0]
        for _ in range(60):  # as if the judge had seen as many
            name = (await clone(at, run)).id
            again = AnswerGraded(
                run=name, at=grade.at, checker=SHADOW_CHECKER, mark=GradeMark.PARTIAL, score=1.0,
                evidence=grade.evidence, judged=True,
            )  # fmt: skip
            at.service.recorder.add(again)
        await at.service.journal.flush()
    async with serving(tmp_path, pool, "on") as (at, client):
        assert at.service is not None
        messages = [{"role": "user", "content": "Make it green."}]
        came = await client.chat.completions.create(model="shikisha", messages=messages, tools=[TOOL])  # type: ignore[arg-type, list-item]
        run = await at.service.read_run(came.id.removeprefix("chatcmpl-"))
        (row,) = [each for each in run.rounds[0].steps[0].tools if isinstance(each, TurnRouted)]
        assert row.worker == "small", row
        assert row.instead_of == "large"


async def clone(at: At, run: Run) -> Run:
    """Return a further shadow run, made as the first was."""
    assert at.service is not None
    service = at.service
    by = await shadow_principal(service, service.container.settings.turns, run.started.tenant or "")
    order = AuthorizedRun(run.task, by, "turns.shadow", "fixed:single", ("small",), run.started.caps, Api.RUNS)
    begun = await service.begin(order)
    running = service.running.get(begun.run)
    if running is not None and running.task is not None:
        await asyncio.wait([running.task])
    await service.cancel(begun.run)
    return await service.read_run(begun.run)
