"""The community node for n8n: its own tests, over a server of their own and over ours."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from paths import ROOT
from serving import served

PACKAGE = ROOT / "integrations" / "n8n-nodes-shikisha"
CONFIG = """
[server]
port = 0
[workers.cheap]
kind = "scripted"
answers = "forty-two"
price = { call = 0.001 }
"""

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("node") is None, reason="the node's tests need Node: there is no `node` here"),
]


async def run_tests(**environment: str) -> str:
    """Run the package's own tests; return what they print."""
    process = await asyncio.create_subprocess_exec(
        "node", "--test", "test/", cwd=PACKAGE, env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, said.decode()[-3000:]
    return said.decode()


async def test_the_package_passes_its_own_tests() -> None:
    assert "fail 0" in await run_tests()


async def test_the_node_works_with_a_real_server(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        assert "fail 0" in await run_tests(SHIKISHA_URL=at.url, SHIKISHA_KEY=at.key)
        async with at.http() as http:
            runs = (await http.get("/runs")).json()["data"]
    assert len(runs) == 2  # a route performs nothing
