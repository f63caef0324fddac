"""What each door says, read by the vendors' own types: the newest SDKs and older ones (`scripts/clients vendors`)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from test_wire_doors import CALL, QUESTION, ask, call_and_answer, calls, door_tools, says, serving

VENDORS = sorted((ROOT / ".venv" / "clients" / "vendors").glob("*==*"))
READ = """
import json, sys
from pydantic import TypeAdapter
vendor, count = sys.argv[1], 0
if vendor == "openai":
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response, ResponseStreamEvent
    types = {"chat": (ChatCompletion, ChatCompletionChunk), "responses": (Response, ResponseStreamEvent)}
else:
    from anthropic.types import Message, RawMessageStreamEvent
    types = {"messages": (Message, RawMessageStreamEvent)}
for door, events, value in json.load(sys.stdin):
    if door in types and value.get("type") != "ping":
        TypeAdapter(types[door][events]).validate_python(value)
        count += 1
print(count)
"""


async def said_at_every_door(folder: Path) -> list[tuple[str, int, object]]:
    """Collect whole replies (0) and events of streams (1): texts, calls of tools, and an answer after them."""
    found: list[tuple[str, int, object]] = []
    for door in ("chat", "messages", "responses"):
        (folder / door).mkdir()
        called = calls({"tool_calls": [CALL]})
        async with serving(folder / door, [called, says("4 degrees"), says("yes"), called, says("yes")]) as (
            _,
            _,
            http,
        ):
            chat = await call_and_answer(http, door)
            found.append((door, 0, (await ask(http, door, chat, door_tools(door))).json()))
            for _ in range(2):
                streamed = await ask(http, door, [QUESTION], door_tools(door), stream=True)
                lines = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
                found += [(door, 1, json.loads(line)) for line in lines]
    return found


@pytest.mark.slow
async def test_the_vendors_types_read_every_reply_and_event(tmp_path: Path) -> None:
    if not VENDORS:
        pytest.skip("scripts/clients vendors brings the SDKs")
    said = await said_at_every_door(tmp_path)
    assert len(said) > 30
    for folder in VENDORS:
        command = [sys.executable, "-c", READ, folder.name.partition("==")[0]]
        done = subprocess.run(  # noqa: S603, ASYNC221 - our own program
            command,
            input=json.dumps(said),
            text=True,
            capture_output=True,
            env={"PYTHONPATH": str(folder)},
            check=False,
        )
        assert done.returncode == 0, f"{folder.name}: {done.stderr[-2000:]}"
        assert int(done.stdout) > 8, folder.name
