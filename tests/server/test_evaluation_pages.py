"""The pages of `shikisha eval show`: samples of a real evaluation with their steps, for whoever has the address."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from evaluated import Evaluated
from made_samples import sample

from shikisha.core.errors import ConfigError
from shikisha.evals.samples import KeptSample, read_kept_samples
from shikisha.server.pages.evaluation_page import SampleQuery, entrant_totals, filter_samples
from shikisha.server.viewer import open_folder, serve_folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an evaluation of two workers on two tasks, played as the command does."""
    rows = [
        {"id": "sum", "prompt": "What is 2 + 2 <b>?", "checker": "number", "answer": "4", "domain": "sums"},
        {"id": "other", "prompt": "What is 2 + 3?", "checker": "number", "answer": "5", "domain": "sums"},
    ]
    evaluating = Evaluated(tmp_path_factory.mktemp("evaluation"), rows=rows)
    careful, hasty = "careful=fixed:single?worker=wise", "hasty=fixed:single?worker=rash"
    report = str(evaluating.folder / "report.html")
    evaluating.run("--conductor", careful, "--conductor", hasty, "--html", report, controls="none")
    assert evaluating.code == 0, evaluating.said
    return evaluating.folder / "kept"


@asynccontextmanager
async def open_viewer(folder: Path) -> AsyncIterator[str]:
    """Show an evaluation's folder; yields the address."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_folder(folder, "", 0, told.set_result))
    try:
        yield await asyncio.wait_for(told, 20)
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


@asynccontextmanager
async def looking(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that has opened the address."""
    base, _, token = address.partition("/?token=")
    async with httpx2.AsyncClient(base_url=base, timeout=20.0) as client:
        assert (await client.get(f"/?token={token}")).status_code == 303
        yield client


async def test_samples_and_their_steps_are_shown(kept: Path) -> None:
    async with open_viewer(kept) as address, looking(address) as client:
        page = (await client.get("/ui/evaluation")).text
        assert "careful" in page
        assert "hasty" in page
        assert page.count('<th scope="row"><a href="/ui/evaluation/sample?') == 4
        wrong = (await client.get("/ui/evaluation?entrant=hasty&mark=wrong")).text
        assert wrong.count('<th scope="row"><a href="/ui/evaluation/sample?') == 1
        shown = (await client.get("/ui/evaluation/sample?of=hasty&task=sum")).text
        for said in ("What is 2 + 2 &lt;b&gt;?", "It must be 5.", "m-wrong", "Answer the question.", "by all entrants"):
            assert said in shown, said
        assert "<b>?" not in shown
        run = shown.partition("/ui/runs/")[2].partition("/journal")[0]
        assert "run.started" in (await client.get(f"/ui/runs/{run}/journal")).text
        assert (await client.get(f"/ui/runs/{run}")).status_code == 200
        assert (await client.get("/ui/evaluation/sample?of=nobody&task=sum")).status_code == 404
        assert (await client.get("/ui/runs/no-such-run")).status_code == 404


async def test_only_who_has_the_address_sees_anything(kept: Path) -> None:
    async with open_viewer(kept) as address, looking(address) as client:
        base = address.partition("/?")[0]
        policy = (await client.get("/ui/evaluation")).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        async with httpx2.AsyncClient(base_url=base) as stranger:
            for way in ("/", "/ui/evaluation", "/ui/evaluation/sample?of=hasty&task=sum", "/?token=wrong"):
                answer = await stranger.get(way)
                assert (answer.status_code, "hasty" in answer.text) == (403, False), way
        foreign = {"host": "evil.example:80"}
        assert (await client.get("/ui/evaluation", headers=foreign)).status_code == 421


async def test_samples_whose_steps_were_not_kept_say_so(kept: Path, tmp_path: Path) -> None:
    shutil.copy(kept / "samples.jsonl", tmp_path)
    async with open_viewer(tmp_path) as address, looking(address) as client:
        assert "were not kept" in (await client.get("/ui/evaluation/sample?of=hasty&task=sum")).text


async def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigError, match=r"no evaluation's folder"):
            await open_folder(tmp_path, "", stack)


def test_of_two_samples_of_a_pair_the_last_counts_and_a_line_that_is_being_written_does_not(tmp_path: Path) -> None:
    lines = [sample("a", "t", 0.0).dumps(), sample("b", "t", 1.0).dumps(), sample("a", "t", 1.0).dumps()]
    (tmp_path / "samples.jsonl").write_text("\n".join([*lines, '{"entrant": "a", "tas']))
    kept = read_kept_samples(tmp_path)
    assert [(each.sample.entrant, each.sample.score, each.earlier) for each in kept] == [("a", 1.0, 1), ("b", 1.0, 0)]
    assert len(set(kept[0].digests())) == 2
    (tmp_path / "samples.jsonl").write_text("nonsense\n")
    with pytest.raises(ConfigError, match="line 1"):
        read_kept_samples(tmp_path)


def test_samples_are_filtered_sorted_and_summed() -> None:
    told = (("a", "t1", 1.0, 0.3), ("a", "t2", 0.0, 0.1), ("b", "t1", 0.0, None), ("b", "t2", 0.0, 0.2))
    samples = [KeptSample(sample(name, task, score, dollars=cost)) for name, task, score, cost in told]

    def found(**asked: str) -> list[tuple[str, str]]:
        return [(each.sample.entrant, each.sample.task_id) for each in filter_samples(samples, SampleQuery.of(asked))]

    assert found(entrant="b") == [("b", "t1"), ("b", "t2")]
    assert found(split="1") == [("a", "t1"), ("b", "t1")]
    assert found(sort="cost") == [("a", "t1"), ("b", "t2"), ("a", "t2"), ("b", "t1")]
    assert found(sort="cost", up="1", text="T2") == [("a", "t2"), ("b", "t2")]
    assert found(sort="nonsense", page="x") == [("a", "t1"), ("a", "t2"), ("b", "t1"), ("b", "t2")]
    best, other = entrant_totals(samples)
    assert (best.name, best.score, round(best.dollars, 6), other.unpriced) == ("a", 0.5, 0.4, 1)


@pytest.mark.full
async def test_the_command_prints_the_address_and_ends_when_it_is_told_to(kept: Path) -> None:
    command = [sys.executable, "-m", "shikisha", "eval", "show", str(kept), "--no-open", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None
    try:
        address = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))["url"]
        async with looking(address) as client:
            assert (await client.get("/ui/evaluation")).status_code == 200
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) in (0, 130, 143, -15)
