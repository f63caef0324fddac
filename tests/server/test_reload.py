"""SIGHUP: the next run uses the new configuration, a run in progress keeps its own, a wrong file changes nothing."""

import asyncio
import signal
from pathlib import Path

import pytest
from serving import At, served_process

CONFIG = """
[server]
port = 0
[workers.first]
kind = "scripted"
answers = "one"
seconds = [{seconds}]
"""


async def ask(at: At, name: str = "") -> str:
    """Ask for an answer of the pool, or of a worker by name."""
    async with at.openai() as client:
        extra = {"X-Shikisha-Workers": name} if name else {}
        said = await client.chat.completions.create(
            model="shikisha", messages=[{"role": "user", "content": "Hello?"}], extra_headers=extra
        )
    return str(said.choices[0].message.content)


async def log_says(folder: Path, text: str) -> None:
    """Wait until the server's log says so."""
    async with asyncio.timeout(30):
        while text not in (folder / "server.log").read_text():  # noqa: ASYNC110 - a file of another process
            await asyncio.sleep(0.02)


@pytest.mark.full
async def test_a_hangup_reads_the_configuration_anew(tmp_path: Path) -> None:
    async with served_process(tmp_path, CONFIG.format(seconds=2.0)) as (at, process):
        slow = asyncio.create_task(ask(at))
        async with at.http() as http, asyncio.timeout(30):
            while not (await http.get("/runs")).json()["data"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        file = tmp_path / "shikisha.toml"
        file.write_text(CONFIG.format(seconds=0.0).replace('"one"', '"two"'))
        process.send_signal(signal.SIGHUP)
        await log_says(tmp_path, "the configuration was read anew")
        assert await ask(at) == "two"
        assert await slow == "one"  # it keeps the worker that it began with

        file.write_text("[workers.third]\nkind = 'nothing'\n")
        process.send_signal(signal.SIGHUP)
        await log_says(tmp_path, "the configuration stays as it was")
        assert await ask(at) == "two"

        file.write_text('[workers.third]\nkind = "scripted"\nanswers = "three"\n')  # valid, and without the first
        process.send_signal(signal.SIGHUP)
        await log_says(tmp_path, "lacks what is in force: workers.first")
        assert await ask(at) == "two"

        changed = CONFIG.format(seconds=0.0).replace('"one"', '"three"')
        file.write_text(changed.replace("port = 0", "port = 1\nlease = 99"))
        process.send_signal(signal.SIGHUP)
        await log_says(tmp_path, "server changed too, which takes effect with a restart")
        assert await ask(at) == "three"
        assert process.returncode is None
