"""Requests as clients send them, after reports in public trackers of other gateways: read, or refused by name.

Each row of `client_requests.json` has what the endpoint must have been sent where the client is served, or what the
refusal names.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from serving import served
from wire import Answer, wire_endpoint

FILE = """
conductor = "fixed:single?worker=only"
[workers.only]
kind = "chat"
model = "m1"
base_url = "{url}"
tools = true
structured_output = true
takes = ["image", "file", "audio"]
"""
ANSWER: Answer = {
    "sse": [
        {"choices": [{"index": 0, "delta": {"content": "42"}, "finish_reason": None}]},
        {
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29},
        },
    ]
}
ROWS = json.loads((Path(__file__).parent / "client_requests.json").read_text("utf-8"))
Needs = Sequence[Sequence[str]]


async def ask(http: httpx2.AsyncClient, door: str, body: Mapping[str, Any]) -> httpx2.Response:
    path, _, query = door.partition("?")
    path = "/v1/chat/completions" if path == "chat" else f"/v1/{path}"
    whole = {"model": "shikisha", **({"max_tokens": 100} if path == "/v1/messages" else {}), **body}
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    return await http.post(f"{path}?{query}", content=json.dumps(whole), headers=headers)


def values_at(value: object, path: Sequence[str]) -> Iterator[str]:
    """Yield what stands at a path, as text; `*` stands for every entry of a list, a number for one."""
    if not path:
        yield value if isinstance(value, str) else json.dumps(value)
    elif isinstance(value, list):
        for each in value if path[0] == "*" else value[int(path[0]) :][:1]:
            yield from values_at(each, path[1:])
    elif isinstance(value, Mapping) and path[0] in value:
        yield from values_at(value[path[0]], path[1:])


def lacking(body: object, needs: Needs) -> str:
    """Say what a body lacks; "" for nothing."""
    for path, pattern in needs:
        found = list(values_at(body, path.split(".")))
        if not any(re.fullmatch(pattern, each, re.DOTALL) for each in found):
            return f"{path}: expected {pattern}, not {found}"
    return ""


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
async def test_what_a_client_sends(row: Mapping[str, Any], tmp_path: Path) -> None:
    door, body, status, needs = row["door"], row["body"], row["status"], row["needs"]
    async with wire_endpoint([ANSWER]) as seen, served(tmp_path, FILE.format(url=seen.url)) as at, at.http() as http:
        came = await ask(http, door, body)
    assert came.status_code == status, came.text
    if status != 200:
        assert not seen.bodies
        assert lacking(came.json(), needs) == ""
    elif needs:
        assert lacking(seen.bodies[0], needs) == "", seen.bodies[0]
