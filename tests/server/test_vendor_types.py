"""What each door says, read by the vendors' own types: those that are installed here, six versions and Vercel's zod.

`scripts/clients vendors` brings what the slow tests read with.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from pydantic import TypeAdapter
from test_wire_doors import CALL, QUESTION, ask, call_and_answer, calls, door_tools, says, serving

CLIENTS = ROOT / ".venv" / "clients"
VENDORS = sorted((CLIENTS / "vendors").glob("*==*"))
NODE = CLIENTS / "vendors-node"
Said = tuple[str, bool, list[Any]]  # the door, whether it was streamed, the reply or its events
TYPES: Mapping[str, Mapping[str, tuple[str, str, str]]] = {  # module, a whole reply, an event of a stream
    "openai": {
        "chat": ("openai.types.chat", "ChatCompletion", "ChatCompletionChunk"),
        "responses": ("openai.types.responses", "Response", "ResponseStreamEvent"),
    },
    "anthropic": {"messages": ("anthropic.types", "Message", "RawMessageStreamEvent")},
}
READ = f"""
import json, sys
from importlib import import_module
from pydantic import TypeAdapter
count, types = 0, {dict(TYPES)!r}[sys.argv[1]]
for door, streamed, values in json.load(sys.stdin):
    if door in types:
        module, whole, event = types[door]
        adapter = TypeAdapter(getattr(import_module(module), event if streamed else whole))
        for value in values:
            if value.get("type") != "ping":
                adapter.validate_python(value)
                count += 1
print(count)
"""


async def said_at_every_door(folder: Path) -> list[Said]:
    """Collect whole replies and streams: a text, a call of a tool, and an answer after it."""
    found: list[Said] = []
    for door in ("chat", "messages", "responses"):
        (folder / door).mkdir()
        called = calls({"tool_calls": [CALL]})
        answers = [called, says("4 degrees"), says("yes"), called, says("yes")]
        async with serving(folder / door, answers) as (_, _, http):
            chat = await call_and_answer(http, door)
            found.append((door, False, [(await ask(http, door, chat, door_tools(door))).json()]))
            for _ in range(2):
                streamed = await ask(http, door, [QUESTION], door_tools(door), stream=True)
                lines = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")]
                found.append((door, True, lines))
    return found


async def test_the_types_that_are_installed_read_every_reply_and_event(tmp_path: Path) -> None:
    said = await said_at_every_door(tmp_path)
    read = set[str]()
    for vendor, types in TYPES.items():
        try:
            import_module(vendor)
        except ImportError:  # only openai's comes with the environment for development
            continue
        for door, streamed, values in said:
            if door in types:
                module, whole, event = types[door]
                adapter = TypeAdapter[Any](getattr(import_module(module), event if streamed else whole))
                for value in values:
                    if value.get("type") != "ping":
                        adapter.validate_python(value)
                read.add(door)
    assert {"chat", "responses"} <= read


@pytest.mark.slow
async def test_six_versions_of_the_vendors_types_read_every_reply_and_event(tmp_path: Path) -> None:
    if not VENDORS:
        pytest.skip("scripts/clients vendors brings the SDKs")
    said = json.dumps(await said_at_every_door(tmp_path))
    for folder in VENDORS:
        command = [sys.executable, "-c", READ, folder.name.partition("==")[0]]
        assert count_read(command, said, {"PYTHONPATH": str(folder)}) > 8, folder.name


@pytest.mark.slow
async def test_vercels_schemas_read_every_reply_and_event(tmp_path: Path) -> None:
    if not (NODE / "node_modules").exists():
        pytest.skip("scripts/clients vendors brings Vercel's AI SDK")
    (NODE / "vendors.mjs").write_bytes((ROOT / "tests" / "clients" / "vendors.mjs").read_bytes())
    assert count_read(["node", str(NODE / "vendors.mjs")], json.dumps(await said_at_every_door(tmp_path))) > 40


def count_read(command: list[str], said: str, environment: Mapping[str, str] | None = None) -> int:
    """Return how many values a program read; it fails where one is none of its types'."""
    done = subprocess.run(command, input=said, text=True, capture_output=True, env=environment, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, f"{command[-1]}: {done.stderr[-2000:]}"
    return int(done.stdout)
