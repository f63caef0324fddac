"""A2A with the SDK's own client and server, as programs of another environment: `scripts/clients probes` brings it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from paths import ROOT
from serving import served

from shikisha.config.container import build_container
from shikisha.core.budget import Caps
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder

PYTHON = ROOT / ".venv" / "clients" / "a2a" / "bin" / "python"
PROGRAMS = ROOT / "tests" / "clients"
KEY = "agent-0123456789abcdef"
CONFIG = '[server]\nport = 0\n[workers.a]\nkind = "scripted"\nanswers = "forty-two"\n'

pytestmark = [
    pytest.mark.clients,
    pytest.mark.full,
    pytest.mark.skipif(not PYTHON.exists(), reason="the A2A SDK is not here: scripts/clients probes"),
]


async def test_the_sdks_client_reads_the_card_and_gets_its_answer(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        process = await asyncio.create_subprocess_exec(
            str(PYTHON), str(PROGRAMS / "a2a_client.py"), "What is the answer?",
            env={**os.environ, "SHIKISHA_URL": f"{at.url}/v1", "SHIKISHA_KEY": at.key},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, complained = await asyncio.wait_for(process.communicate(), 60)
    assert said.decode().strip() == "Shikisha|TASK_STATE_COMPLETED|forty-two", complained.decode()[-2000:]


@asynccontextmanager
async def agent() -> AsyncIterator[str]:
    """An agent on the SDK's server; yields its address."""
    process = await asyncio.create_subprocess_exec(
        str(PYTHON),
        str(PROGRAMS / "a2a_server.py"),
        env={**os.environ, "AGENT_KEY": KEY},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def ask(url: str, prompt: str, key: str = KEY, **keys: object) -> Run:
    """Ask the agent as a worker."""
    table = {"kind": "a2a", "url": url, "api_key_env": "AGENT_KEY", "attempts": 1, **keys}
    container = build_container({"workers": {"echo": table}}, "table", Path(), {"AGENT_KEY": key})
    pool = container.pool()
    run = await Engine(MemoryRecorder()).run(Task(prompt), pool, container.conductor("", pool), Caps())
    await container.aclose()
    return run


async def test_an_agent_on_the_sdks_server_is_a_worker() -> None:
    async with agent() as url:
        run = await ask(url, "Which city?")
        assert run.answer is not None
        assert run.answer.startswith("heard: ")
        assert "Which city?" in run.answer
        slow = await ask(url, "Think slowly: which city?")
        assert "thought: " in str(slow.answer)
        assert "nobody answers here: which one?" in (await ask(url, "ask me")).why
        assert "the key is missing, wrong or not allowed" in (await ask(url, "x", "agent-wrong-key")).why
        assert "no whole answer within 0.3 s" in (await ask(url, "slowly", timeout=0.3)).why
