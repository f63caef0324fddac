"""Probes of other people's clients against a server process, each in its own way, over a scripted endpoint.

`scripts/clients probes` installs what the ordinary clients lack; what is not installed is skipped by name. The table of
`docs/results/clients.md` holds the results. Minutes long: `pytest -m slow tests/project/test_client_probes.py`.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from model_servers import ModelServer, model_server
from paths import ROOT
from serving import At, served_process

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha.testing.chat_script import ScriptedToolCall

CLIENTS = ROOT / ".venv" / "clients"
PROBES = ROOT / "tests" / "clients"
CITY = {"name": "Paris", "people": 2_100_000}
CONFIG = """
conductor = "fixed:single?worker=first"
[workers.first]
kind = "chat"
model = "m1"
base_url = "{url}"
tools = true
structured_output = true
max_output_tokens = 4096
price = {{ input = 1.0, output = 2.0 }}
[workers.vectors]
kind = "embedding"
model = "v"
base_url = "{vectors}"
price = {{ input = 0.1 }}
[server]
port = 0
"""
ENVIRONMENTS = {  # a file of probes: the environment of its own
    "probes_python.py": CLIENTS,
    "probes_frameworks.py": CLIENTS / "frameworks",
    "probes_crewai.py": CLIENTS / "crewai",
    "probes_autogen.py": CLIENTS / "autogen",
    "probes_ag2.py": CLIENTS / "ag2",
}

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


def model(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Play a model that calls the first tool it may call, then answers with what it was told, in the form wanted."""
    told = [text for role, text in asked.messages if role == "tool"]
    values = {"city": "Paris", "answer": json.dumps(CITY), **CITY}
    tools = asked.body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        name, wanted = tool["function"]["name"], tool["function"].get("parameters", {}).get("properties", {})
        final = name in ("final_answer", "final_result", "City", "city")
        choice = asked.body.get("tool_choice")
        named = isinstance(choice, dict) and choice.get("function", {}).get("name") == name
        if named or not told or (final and choice == "required") or (final and told):
            arguments = {key: values.get(key, "") for key in wanted}
            if told and not final and not named:
                continue
            if final and not told and len(tools if isinstance(tools, list) else ()) > 1 and not named:
                continue  # the other tool first
            call = ScriptedToolCall.model_validate({"name": name, "arguments": arguments})
            return ScriptedAnswer(calls=(call,))
    whole = "\n".join(text for _, text in asked.messages)
    if asked.response_format is not None or "json_schema" in whole or "JSON" in asked.messages[0][1]:
        return ScriptedAnswer(text=json.dumps(CITY))
    if "final_answer(" in whole:  # smolagents' CodeAgent
        return ScriptedAnswer(text='Thought: I know.\n<code>\nfinal_answer("Paris")\n</code>')
    if "Final Answer:" in whole:  # CrewAI
        return ScriptedAnswer(text="Thought: I now can give a great answer\nFinal Answer: Paris 2100000")
    return ScriptedAnswer(text=f"It is Paris, with {told[-1]} people." if told else "It is Paris.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the server and what clients write."""
    return tmp_path_factory.mktemp("probes")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def at(folder: Path) -> AsyncIterator[At]:
    """A server over the scripted endpoint, and one for embeddings."""
    vectors = {"object": "list", "model": "v", "usage": {"prompt_tokens": 2, "total_tokens": 2}}
    row = {"object": "embedding", "index": 0, "embedding": [0.1, 0.2, 0.3]}
    embedding = ModelServer(extra={"/v1/embeddings": {**vectors, "data": [row]}})
    async with (
        chat_server(model) as url,
        model_server(embedding) as server,
        served_process(folder, CONFIG.format(url=url, vectors=server.url)) as (found, _),
    ):
        yield found


async def probe(at: At, folder: Path, *command: str) -> dict[str, tuple[str, str]]:
    """Run a file of probes; return the result of each, and why."""
    own = {"SHIKISHA_URL": f"{at.url}/v1", "SHIKISHA_KEY": at.key, "HOME": str(folder), "PYTHONWARNINGS": "ignore"}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env={**os.environ, **own}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complained = await asyncio.wait_for(process.communicate(), 500)
    lines = [json.loads(line) for line in said.decode().splitlines() if line.startswith('{"probe"')]
    assert lines, complained.decode()[-3000:]
    return {line["probe"]: (line["result"], line.get("why", "")) for line in lines}


def assert_works(results: dict[str, tuple[str, str]]) -> None:
    """Fail where a probe fails; skip, by name, where none could run."""
    assert {name: why for name, (result, why) in results.items() if result == "fails"} == {}
    skipped = {name: why for name, (result, why) in results.items() if result == "skipped"}
    print(f"{len(results) - len(skipped)} probes work, {len(skipped)} were left out")  # noqa: T201 - seen with -rP
    if len(skipped) == len(results):
        pytest.skip(f"scripts/clients probes brings {', '.join(skipped)}")


@pytest.mark.parametrize("file", ENVIRONMENTS)
async def test_python_clients(at: At, folder: Path, file: str) -> None:
    python = ENVIRONMENTS[file] / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{file}: other people's clients are not here: scripts/clients probes")
    assert_works(await probe(at, folder, str(python), str(PROBES / file)))


async def test_node_clients(at: At, folder: Path) -> None:
    modules = CLIENTS / "probes" / "node_modules"
    if shutil.which("node") is None or not modules.exists():
        pytest.skip("node, or the SDKs for it, are not here: scripts/clients probes")
    shutil.copy(PROBES / "probes_node.mjs", folder)
    (folder / "node_modules").symlink_to(modules)
    assert_works(await probe(at, folder, "node", str(folder / "probes_node.mjs")))
