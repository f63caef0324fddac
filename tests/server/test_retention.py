"""Retention: what is older than the configuration keeps it loses its texts; what is younger keeps them."""

import asyncio
from pathlib import Path

from serving import served

from shikisha.server.lifecycle.deadlines import RETENTION_ACTOR, Retention

CONFIG = """
conductor = "fixed:single"
[server]
keep_days = {days}
[workers.model]
kind = "scripted"
answers = "an answer to be forgotten"
"""


async def swept(folder: Path, days: float) -> tuple[int, str, bool]:
    """Begin a run, sweep, and return how many runs lost their texts, the run's answer, and whether the chain holds."""
    async with served(folder, CONFIG.format(days=days)) as at, at.http() as client:
        assert at.service is not None
        run = (await client.post("/runs", json={"prompt": "what?"})).json()
        assert run["answer"] == "an answer to be forgotten"
        gone = await Retention().look(at.service.store, at.service.settings.keep_days)
        for _ in range(100 if days < 1 else 0):  # the index may learn of a run a moment after its answer went out
            if gone:
                break
            await asyncio.sleep(0.1)
            gone = await Retention().look(at.service.store, at.service.settings.keep_days)
        found = await at.service.read_run(run["id"])
        if found.erased is not None:
            assert found.erased.actor == RETENTION_ACTOR
        return gone, str(found.answer), (await at.service.journal.verify()).ok


async def test_old_texts_are_erased_and_the_chain_holds(tmp_path: Path) -> None:
    gone, answer, ok = await swept(tmp_path, 1e-9)
    assert (gone, ok) == (1, True)
    assert answer.startswith("[erased ")


async def test_young_texts_are_kept(tmp_path: Path) -> None:
    assert await swept(tmp_path, 1.0) == (0, "an answer to be forgotten", True)
