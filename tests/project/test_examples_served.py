"""The triage desk, unchanged but for its endpoints, against a server process."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from paths import ROOT
from serving import At, served_process

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

EXAMPLES = ROOT / "examples"
PLAN = {
    "reasoning": "search, then draft",
    "steps": [
        {"worker": 0, "subtask": "parcel broken refund", "access": []},
        {"worker": 1, "subtask": "Write the answer.", "access": [0]},
    ],
}


def approver(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """The planner's plan, or a draft that repeats what the knowledge base found."""
    if asked.messages[0][0] == "system":
        return ScriptedAnswer(text=json.dumps(PLAN))
    found = next((text for _, text in asked.messages if "14 days" in text), "nothing was found")
    return ScriptedAnswer(text=f"Dear customer: {found.splitlines()[1]}")


@asynccontextmanager
async def process(at: At | None, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a script of the examples; it is ended with the context."""
    where = {"SHIKISHA_URL": at.url, "SHIKISHA_KEY": at.key} if at else {}
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=pipe, env={**os.environ, **where, "PYTHONUNBUFFERED": "1"}
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def line(started: asyncio.subprocess.Process) -> str:
    """Return the next line that it prints."""
    assert started.stdout is not None
    return (await asyncio.wait_for(started.stdout.readline(), 60)).decode().strip()


@pytest.mark.full
async def test_a_ticket_is_drafted_from_the_knowledge_base_and_waits_for_a_person(tmp_path: Path) -> None:
    folder = EXAMPLES / "triage"
    async with process(None, str(folder / "knowledge.py"), "0") as knowledge, chat_server(approver) as models:
        config = (folder / "shikisha.toml").read_text().replace("http://127.0.0.1:11434/v1", models)
        config = config.replace("http://127.0.0.1:8200/search", await line(knowledge))
        async with (
            served_process(tmp_path, config) as (at, _),
            process(at, str(folder / "triage.py"), "My parcel arrived broken. What now?") as triage,
            at.http() as client,
        ):
            assert (await line(triage)).startswith(f"a draft waits for you: {at.url}/ui/runs/")
            (open_question,) = (await client.get("/approvals")).json()["data"]
            answered = await client.post(f"/approvals/{open_question['id']}", json={"approved": True})
            assert answered.status_code == 200
            ended = await line(triage)
    assert ended.startswith("done: Dear customer: Report a damaged parcel within 14 days")
