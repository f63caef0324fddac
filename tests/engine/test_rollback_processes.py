"""One run that several want to roll back at once, from processes of their own: each compensating call is made once."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from serving import At, served

from shikisha.config.container import load_config
from shikisha.core.events import RunStatus
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.journal import open_journal
from shikisha.server.store import ServedState
from shikisha.testing import ChargeLedger, ReceivedChatRequest, ScriptedAnswer, chat_server

CONFIG = """
conductor = "fixed:single"
pool = ["send"]
[server]
port = 0
lease = {lease}
[journal]
url = "{journal}"
[workers.send]
kind = "scripted"
answers = "sent"
compensate = "unsend"
[workers.unsend]
kind = "chat"
base_url = "{url}"
model = "unsend"
price = {{}}
"""


@dataclass(slots=True)
class There:
    """A configuration whose compensating calls come to `ledger`; `asked` is set by the first."""

    folder: Path
    text: str
    ledger: ChargeLedger
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def command(self, *arguments: str) -> asyncio.subprocess.Process:
        """Begin a command of `shikisha`."""
        words = ("-m", "shikisha", *arguments, "--config", str(self.folder / "shikisha.toml"), "--json")
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=pipe, stderr=pipe, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    async def rollback(self, run: str) -> tuple[int | None, str]:
        """Roll a run back; return the exit code, and all that is said."""
        process = await self.command("runs", "rollback", run)
        out, error = await process.communicate()
        return process.returncode, (out + error).decode()

    async def read_run(self, run: str) -> Run:
        """The run as its journal has it."""
        async with open_journal(load_config(self.folder / "shikisha.toml", {}).journal_url()) as journal:
            return Run.fold(await journal.read(run))

    async def unserved(self) -> str:
        """A run that no server knows."""
        composition = load_config(self.folder / "shikisha.toml", {})
        async with open_journal(composition.journal_url()) as journal:
            pool = composition.pool()
            run = await Engine(journal).run(Task("send it"), pool, composition.conductor("", pool))
            await composition.aclose()
            return run.id


@asynccontextmanager
async def there(folder: Path, journal: str, latency: float = 0.7, lease: float = 60.0) -> AsyncIterator[There]:
    """A folder with a configuration."""
    ledger, asked = ChargeLedger(), asyncio.Event()

    def answer(_: ReceivedChatRequest) -> ScriptedAnswer:
        asked.set()
        return ScriptedAnswer(text="unsent", latency=latency)

    async with chat_server(answer, ledger=ledger) as url:
        text = CONFIG.format(journal=journal, url=url, lease=lease)
        (folder / "shikisha.toml").write_text(text)
        yield There(folder, text, ledger, asked)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    return str(request.getfixturevalue("postgres").fresh())


@pytest.mark.full
async def test_two_commands_at_once_roll_a_run_back_once(tmp_path: Path, journal: str) -> None:
    async with there(tmp_path, journal) as here:
        run = await here.unserved()
        ends = await asyncio.gather(here.rollback(run), here.rollback(run))
        assert sum(here.ledger.requests.values()) == 1, ends
        assert 0 in [code for code, _ in ends]
        assert all(code == 0 or "rolled back by another command" in said for code, said in ends)
        assert len((await here.read_run(run)).rollbacks) == 1


async def begun(at: At) -> str:
    async with at.http() as http:
        return str((await http.post("/runs", json={"prompt": "send it"})).json()["id"])


async def posted(at: At, run: str) -> int:
    async with at.http() as http:
        return (await http.post(f"/runs/{run}/rollback", json={})).status_code


async def test_a_server_and_a_command_do_not_roll_the_same_run_back(tmp_path: Path) -> None:
    async with there(tmp_path, str(tmp_path / "journal.db")) as here, served(tmp_path, here.text) as at:
        run = await begun(at)
        command = asyncio.create_task(here.rollback(run))
        await here.asked.wait()
        assert await posted(at, run) == 409
        assert (await command)[0] == 0
        assert await posted(at, run) == 200  # nothing is left to be done
        assert at.service is not None
        kept = await at.service.find_served(run)
        assert (kept.state, kept.status, list(here.ledger.requests.values())) == (
            ServedState.ENDED,
            RunStatus.DONE,
            [1],
        )


async def test_two_servers_do_not_roll_the_same_run_back(tmp_path: Path, journal: str) -> None:
    (tmp_path / "other").mkdir()
    async with there(tmp_path, journal) as here, served(tmp_path, here.text) as one:
        async with served(tmp_path / "other", here.text) as two:
            other = replace(two, key=one.key)
            run = await begun(one)
            first = asyncio.create_task(posted(one, run))
            await here.asked.wait()
            assert await posted(other, run) == 409
            assert await first == 200
            assert await posted(other, run) == 200
        assert list(here.ledger.requests.values()) == [1]


@pytest.mark.full
async def test_a_rollback_whose_process_was_killed_goes_on_once_it_was_silent_for_a_lease(tmp_path: Path) -> None:
    async with there(tmp_path, str(tmp_path / "journal.db"), latency=0.3, lease=1.0) as here:
        run = await here.unserved()
        process = await here.command("runs", "rollback", run)
        await here.asked.wait()
        process.kill()
        await process.wait()
        ends = [await here.rollback(run)]
        while ends[-1][0] != 0:
            assert "rolled back by another command" in ends[-1][1]
            ends.append(await here.rollback(run))
        assert json.loads(ends[-1][1])["effects"][0]["undone"]
        assert (len(here.ledger.requests), max(here.ledger.charges.values())) == (1, 1)  # the same key again
        assert len((await here.read_run(run)).rollbacks) == 1
