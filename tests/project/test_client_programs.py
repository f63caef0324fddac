"""Other people's clients against a server process, as its users start it: the examples, unchanged."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from paths import ROOT
from serving import At, served_process

EXAMPLES = ROOT / "examples" / "clients"
CLIENTS = ROOT / ".venv" / "clients"
PYTHON = CLIENTS / "bin" / "python"
NODE = CLIENTS / "node" / "node_modules"

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the server and what clients write."""
    return tmp_path_factory.mktemp("clients")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def at(folder: Path) -> AsyncIterator[At]:
    """A server without any workers configured."""
    async with served_process(folder) as (found, _):
        yield found


async def output(at: At, folder: Path, *command: str) -> str:
    """Run a client in the folder; return what it prints."""
    environment = {
        **os.environ,
        "SHIKISHA_URL": f"{at.url}/v1",
        "SHIKISHA_KEY": at.key,
        "PATH": f"{CLIENTS / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LLM_USER_PATH": str(folder / "llm"),
        "PYTHONWARNINGS": "ignore",
    }
    (folder / "llm").mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, complained = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, complained.decode()[-2000:]
    return said.decode()


def answer() -> str:
    """What a simulated worker says to the question that the examples ask."""
    asked = re.search(r'"SHIKISHA_QUESTION",\s*"([^"]+)"', (EXAMPLES / "openai_python.py").read_text())
    assert asked is not None
    return f"simulated answer to: {asked[1]}"


GOLD = answer()


@pytest.mark.full
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["openai_python", "langchain_chat", "pydantic_ai_agent", "litellm_client"])
async def test_a_python_client_gets_its_answers(at: At, folder: Path, name: str) -> None:
    if not PYTHON.exists():
        pytest.skip("other people's clients are not here: scripts/clients")
    said = await output(at, folder, str(PYTHON), str(EXAMPLES / f"{name}.py"))
    answers = re.findall(r"^(?:chat|answer|streamed|response): *(.+)", said, re.MULTILINE)
    assert answers
    assert set(answers) == {GOLD}


@pytest.mark.asyncio(loop_scope="module")
async def test_the_sdk_for_node_gets_its_answers(at: At, folder: Path) -> None:
    if not NODE.exists() or shutil.which("node") is None:
        pytest.skip("the openai SDK for Node is not here: scripts/clients")
    script = folder / "openai_node.mjs"
    script.write_text((EXAMPLES / "openai_node.mjs").read_text())
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(NODE)
    said = await output(at, folder, "node", str(script))
    assert re.findall(r": (simulated .+)$", said, re.MULTILINE) == [GOLD] * 3


@pytest.mark.asyncio(loop_scope="module")
async def test_llm_gets_its_answer(at: At, folder: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("other people's clients are not here: scripts/clients")
    assert (await output(at, folder, str(EXAMPLES / "llm.sh"))).strip() == GOLD


@pytest.mark.asyncio(loop_scope="module")
async def test_curl_gets_the_answer_the_events_and_the_run(at: At, folder: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    said = await output(at, folder, str(EXAMPLES / "curl.sh"))
    assert f'"content":"{GOLD}"' in said
    assert "event: run.finished" in said
    assert said.count(GOLD) >= 2
