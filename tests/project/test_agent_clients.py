"""Other people's agents against a server process over a scripted endpoint: frameworks, Claude Code and Codex.

Each asks in its own way for structure or calls its own tools; the endpoint plays a model that does as it is asked.
"""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from paths import ROOT
from responding import FILE
from serving import At, served_process

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha.testing.chat_script import ScriptedToolCall

CLIENTS = ROOT / ".venv" / "clients"
PYTHON, FRAMEWORKS = (folder / "bin" / "python" for folder in (CLIENTS, CLIENTS / "frameworks"))
AGENTS = CLIENTS / "agents" / "node_modules" / ".bin"
EXAMPLE = ROOT / "examples" / "clients" / "frameworks.py"
CITY = {"name": "Paris", "people": 2_100_000}
FILE_TEXT = "forty-two"

pytestmark = [pytest.mark.clients, pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]


def model(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Play a model: look the population up, answer in the form that is wanted, or read the file a.txt."""
    told = [text for role, text in asked.messages if role == "tool"]
    seen = told or [text for role, text in asked.messages if role == "user" and "2100000" in text]
    calls: dict[str, Mapping[str, object]] = {
        "population": {"city": "Paris"},
        "Read": {"file_path": "a.txt"},
        "exec_command": {"cmd": "cat a.txt"},
        "mcp__shikisha__run": {"prompt": "Which city is it?"},
    }
    for name, arguments in reversed(calls.items()):
        if name in asked.tools and not seen:
            return ScriptedAnswer(calls=(ScriptedToolCall.model_validate({"name": name, "arguments": arguments}),))
    if "final_answer" in asked.tools:  # smolagents
        return ScriptedAnswer(calls=(ScriptedToolCall(name="final_answer", arguments={"answer": json.dumps(CITY)}),))
    for name in asked.tools:
        if name not in calls and asked.body.get("tool_choice"):
            return ScriptedAnswer(calls=(ScriptedToolCall.model_validate({"name": name, "arguments": CITY}),))
    if FILE_TEXT in asked.last:
        return ScriptedAnswer(text=f"It says {FILE_TEXT}.")
    return ScriptedAnswer(text=json.dumps(CITY))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the server and what clients write."""
    made = tmp_path_factory.mktemp("agents")
    (made / "a.txt").write_text(f"{FILE_TEXT}\n")
    return made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def at(folder: Path) -> AsyncIterator[At]:
    """A server over the endpoint."""
    async with chat_server(model) as url:
        config = FILE.format(url=url, more="structured_output = true\nmax_output_tokens = 4096", end="")
        async with served_process(folder, config) as (found, _):
            yield found


async def output(at: At, folder: Path, *command: str, **environment: str) -> str:
    """Run a client in the folder; return what it prints."""
    own = {"SHIKISHA_URL": f"{at.url}/v1", "SHIKISHA_KEY": at.key, "HOME": str(folder), "PYTHONWARNINGS": "ignore"}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env={**os.environ, **own, **environment}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complained = await asyncio.wait_for(process.communicate(), 150)
    assert process.returncode == 0, f"{said.decode()[-1000:]}\n{complained.decode()[-3000:]}"
    return said.decode()


def installed(python: Path) -> str:
    """An environment's Python; the test is skipped without it."""
    if not python.exists():
        pytest.skip("other people's clients are not here: scripts/clients")
    return str(python)


@pytest.mark.parametrize(
    ("python", "names"),
    [
        (PYTHON, ["pydantic-ai"]),
        (
            FRAMEWORKS,
            [
                "instructor",
                "instructor-json",
                "llama-index",
                "smolagents",
                "agents-sdk",
                "agents-sdk-chat",
                "anthropic",
                "anthropic-runner",
            ],
        ),
    ],
    ids=["pydantic-ai", "frameworks"],
)
async def test_a_framework_gets_its_typed_answer(at: At, folder: Path, python: Path, names: list[str]) -> None:
    said = await output(at, folder, installed(python), str(EXAMPLE), *names)
    answers = dict(re.findall(r"^([\w-]+): (\{.*\})$", said, re.MULTILINE))
    assert {name: json.loads(answer) for name, answer in answers.items()} == dict.fromkeys(names, CITY), said


def agent(name: str) -> str:
    """The program of a coding agent, of ours or of this machine; the test is skipped without it."""
    own = AGENTS / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here: scripts/clients agents")
    return found


async def test_claude_code_reads_a_file(at: At, folder: Path) -> None:
    said = await output(
        at, folder, agent("claude"), "-p", "What is in a.txt?", "--output-format", "json", "--allowedTools", "Read",
        ANTHROPIC_BASE_URL=at.url, ANTHROPIC_AUTH_TOKEN=at.key, ANTHROPIC_MODEL="shikisha",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="shikisha-mini", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )  # fmt: skip
    told = json.loads(said)
    assert (told["result"], told["num_turns"], told["is_error"]) == (f"It says {FILE_TEXT}.", 2, False)


async def test_claude_code_runs_a_task_over_mcp(at: At, folder: Path) -> None:
    server = {"type": "http", "url": f"{at.url}/mcp", "headers": {"Authorization": f"Bearer {at.key}"}}
    said = await output(
        at, folder, agent("claude"), "-p", "Which city is it?", "--output-format", "json",
        "--allowedTools", "mcp__shikisha__run", "--mcp-config", json.dumps({"mcpServers": {"shikisha": server}}),
        ANTHROPIC_BASE_URL=at.url, ANTHROPIC_AUTH_TOKEN=at.key, ANTHROPIC_MODEL="shikisha",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="shikisha-mini", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )  # fmt: skip
    told = json.loads(said)
    assert (json.loads(told["result"]), told["num_turns"]) == (CITY, 2)
    async with at.http() as http:
        assert [each["api"] for each in (await http.get("/runs?api=mcp")).json()["data"]] == ["mcp"]


async def test_codex_reads_a_file(at: At, folder: Path) -> None:
    (folder / "codex").mkdir()
    provider = {
        "name": "Shikisha",
        "base_url": f"{at.url}/v1",
        "env_key": "SHIKISHA_KEY",
        "wire_api": "responses",
    }
    options = [f"-cmodel_providers.shikisha.{name}={value}" for name, value in provider.items()]
    said = await output(
        at, folder, agent("codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
        "-cmodel=shikisha", "-cmodel_provider=shikisha", *options, "What is in a.txt?",
        CODEX_HOME=str(folder / "codex"),
    )  # fmt: skip
    assert said.strip().endswith(f"It says {FILE_TEXT}.")
