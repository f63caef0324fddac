"""What people do at the command line with a run of a server: the server notices, whether it runs then or later."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from fresh import fresh
from journals import keep, started
from postgres import Cluster
from serving import At, served

from shikisha.cli.run import check_answer_was_first
from shikisha.core.errors import TaskError
from shikisha.core.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.journal import open_journal

CONFIG = """
conductor = "fixed:single"
[workers.ann]
kind = "scripted"
answers = "so it is"
approval = "always"
[server]
port = 0
lease = 30
drain = 0.2
"""
NOTICED = 5.0  # seconds


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh journal of either kind."""
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


async def shikisha(folder: Path, url: str, *words: str) -> tuple[int, str]:
    """Run a command as people do; return its exit code and what it said."""
    place = ("--config", str(folder / "shikisha.toml"), "--journal", url)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "shikisha",
        *words,
        *place,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


def serving_here(folder: Path, url: str) -> AbstractAsyncContextManager[At]:
    """A server on this journal. It may be in this process: the command that it has to notice never is."""
    return served(folder, f'{CONFIG}[journal]\nurl = "{url}"\n')


@asynccontextmanager
async def waiting(folder: Path, url: str) -> AsyncIterator[tuple[At, httpx2.AsyncClient, str]]:
    """A server, a client, and a run that waits for a person."""
    async with serving_here(folder, url) as at, at.http() as http:
        run = (await http.post("/runs", json={"prompt": "p", "background": True})).json()["id"]
        assert await status(http, run, "suspended") == "suspended"
        yield at, http, run


async def status(http: httpx2.AsyncClient, run: str, *wanted: str, seconds: float = 20.0) -> str:
    """Where a run stands, once that is one of these, or when the seconds are over."""
    found = ""
    for _ in range(int(seconds / 0.1)):
        found = str((await http.get(f"/runs/{run}")).json()["status"])
        if found in wanted:
            break
        await asyncio.sleep(0.1)
    return found


@pytest.mark.full
@pytest.mark.parametrize(("word", "became"), [("yes", "done"), ("no", "failed")])
async def test_a_server_notices_what_was_decided_at_the_command_line(tmp_path: Path, word: str, became: str) -> None:
    url = fresh(str(tmp_path / "journal.db"))  # on PostgreSQL: the test of two who approve at once
    async with waiting(tmp_path, url) as (_, http, run):
        code, said = await shikisha(tmp_path, url, "approve", run, word)
        assert (code, "A server continues run" in said) == (0, True)
        assert await status(http, run, became, seconds=NOTICED) == became


@pytest.mark.full
async def test_what_was_approved_while_no_server_ran_is_gone_on_with_by_the_next(tmp_path: Path) -> None:
    url = fresh(str(tmp_path / "journal.db"))
    async with waiting(tmp_path, url) as (at, _, run):
        key = at.key
    assert (await shikisha(tmp_path, url, "approve", run, "yes"))[0] == 0
    async with serving_here(tmp_path, url) as at, At(at.url, key).http() as http:
        assert await status(http, run, "done", seconds=NOTICED) == "done"


@pytest.mark.full
async def test_of_two_who_approve_at_once_one_is_told_that_the_other_was_first(tmp_path: Path, url: str) -> None:
    async with waiting(tmp_path, url) as (_, http, run):
        answers = await asyncio.gather(
            shikisha(tmp_path, url, "approve", run, "yes"), shikisha(tmp_path, url, "approve", run, "no")
        )
        first = await status(http, run, "done", "failed")
        won, lost = sorted(answers)
        assert (won[0], lost[0]) == (0, 2)
        assert first == ("done" if answers[0][0] == 0 else "failed")
        assert "is answered already" in lost[1] or "no question is open" in lost[1]


async def test_an_answer_that_another_one_came_before_is_refused_however_close(url: str) -> None:
    async with open_journal(url) as journal:
        asked = QuestionAsked(
            run="r", at=1.0, round=0, step=0, worker="ann", question="q", asks=QuestionKind.APPROVE, prompt="?"
        )
        first, second = (
            QuestionAnswered(run="r", at=at, question="q", approved=True, actor=actor, via="cli")
            for at, actor in ((2.0, "ann"), (3.0, "bob"))
        )
        await keep(journal, [started("r"), asked, first, second])
        await check_answer_was_first(journal, first)
        with pytest.raises(TaskError, match="ann was first"):
            await check_answer_was_first(journal, second)


@pytest.mark.full
async def test_what_was_resumed_at_the_command_line_is_over_for_the_server_too(tmp_path: Path, url: str) -> None:
    async with waiting(tmp_path, url) as (at, _, run):
        key = at.key
    assert (await shikisha(tmp_path, url, "approve", run, "yes"))[0] == 0
    code, said = await shikisha(tmp_path, url, "resume", run)
    assert (code, "so it is" in said) == (0, True)
    async with serving_here(tmp_path, url) as at, At(at.url, key).http() as http:
        found = (await http.get(f"/runs/{run}")).json()
        assert (found["status"], found["state"], found["answer"]) == ("done", "ended", "so it is")
