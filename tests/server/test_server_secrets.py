"""Invariant 8 at a real server: keys planted wherever one can plant them are found nowhere but with their holders.

The endpoint of the one worker tells everything that it was sent, its key first of all, in its answers and in its
errors; the same server takes what telemetry tells. The client presents keys, right and wrong, in headers, in the path,
in the query, as an idempotency key. Then the journal's files, the server's output, the telemetry, the metrics, the
errors, the pages and the administration are looked through for any of them.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from serving import served_process

from shikisha.server.pages.login import LOGIN_COOKIE

WORKER = "sk-worker-0123456789-abcdefghijklmnop"
OPERATOR = "op-planted-0123456789-abcdefghijklmnop"
COLLECTOR = "collector-planted-0123456789-abcdef"
WRONG = "sk-shikisha-aaaaaaaaaa-" + "wrong-" * 7 + "x"
CONFIG = """
conductor = "fixed:single?worker=a"
[server]
port = 0
admin_key_env = "OPERATORS_KEY"
[telemetry]
endpoint = "{url}"
headers_env = "COLLECTORS_KEY"
[workers.a]
kind = "chat"
model = "m"
base_url = "{url}/v1"
api_key_env = "WORKERS_KEY"
price = {{ input = 1.0, output = 1.0 }}
attempts = 1
"""
ENVIRONMENT = {
    "OPERATORS_KEY": OPERATOR,
    "WORKERS_KEY": WORKER,
    "COLLECTORS_KEY": f"authorization={COLLECTOR}",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    "OTEL_BSP_SCHEDULE_DELAY": "200",
}


@dataclass(slots=True)
class Told:
    """What was heard from the server, and what may be nowhere in it."""

    heard: list[str] = field(default_factory=list)
    collected: list[bytes] = field(default_factory=list)
    asked: int = 0

    def whole(self, folder: Path) -> str:
        """All that was heard, collected, logged and kept."""
        kept = [path.read_bytes() for path in folder.iterdir() if path.name != "shikisha.toml"]
        raw = b"\n".join([*kept, *self.collected]).decode("utf-8", "replace")
        return "\n".join([*self.heard, raw])


@asynccontextmanager
async def gossip(told: Told) -> AsyncIterator[str]:
    """An endpoint that repeats whatever it is sent, and a collector of telemetry; yields its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = int(head.lower().partition("content-length:")[2].partition("\r")[0] or 0)
                status, said = _said(told, head, await reader.readexactly(length))
                body = json.dumps(said).encode()
                told_head = (
                    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                writer.write(told_head.encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _said(told: Told, head: str, body: bytes) -> tuple[int, dict[str, object]]:
    if "/v1/chat/completions" not in head:
        told.collected.append(gzip.decompress(body) if "content-encoding: gzip" in head.lower() else body)
        return 200, {}
    told.asked += 1
    assert WORKER in head
    if b"fail" in body:
        return 500 if b"fail now" in body else 400, {"error": {"message": f"what did you mean? {head}", "code": head}}
    message = {"role": "assistant", "content": f"You said: {head}"}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return 200, {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": head,
        "choices": [choice],
        "usage": usage,
    }


async def _talk(url: str, keys: list[str], told: Told) -> None:
    """Ask for everything with every key, wherever it can be put, and keep what is said."""
    async with httpx2.AsyncClient(base_url=url, timeout=60.0) as client:
        for key in keys:
            for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}, {"Authorization": key}):
                for prompt in ("hello", "fail now", "fail"):
                    chat = {"model": "shikisha", "messages": [{"role": "user", "content": prompt}]}
                    once = f"{key}-{len(told.heard)}"
                    full = {"X-Shikisha-Metadata": "full", "Idempotency-Key": once, "X-Key": key, **headers}
                    told.heard.append((await client.post("/v1/chat/completions", json=chat, headers=full)).text)
                    told.heard.append((await client.post("/runs", json={"prompt": prompt}, headers=full)).text)
                    response = {"model": "shikisha", "input": prompt}
                    told.heard.append((await client.post("/v1/responses", json=response, headers=full)).text)
                for path in ("/metrics", "/keys", "/budgets", "/admin/audit", "/runs", "/approvals", "/v1/models"):
                    answer = await client.get(path, params={"api_key": key}, headers=headers)
                    told.heard.append(f"{answer.headers}{answer.text}")
            await _planted(client, key, told)
            await client.get(f"/nowhere/{key}", headers={"User-Agent": key, "Referer": f"http://x/{key}"})
            await client.get(f"/ui/runs?key={key}")


async def _planted(client: httpx2.AsyncClient, key: str, told: Told) -> None:
    """Put a key into whatever a request may hold besides its own."""
    headers = {"Authorization": f"Bearer {OPERATOR}", "X-Shikisha-Domain": key, "X-Shikisha-Labels": key}
    said, metadata = f"my key is {key}, fail", {"mine": key, key[:64]: "mine"}
    for body in (
        {"model": "shikisha", "messages": [{"role": "user", "content": said}], "user": key, "metadata": metadata},
        {"model": key, "messages": [{"role": "user", "content": said}]},
        {"model": "shikisha", "messages": [{"role": key, "content": said}], key: key},
    ):
        told.heard.append((await client.post("/v1/chat/completions", json=body, headers=headers)).text)
    for again in ({}, {"stream": True}, {"background": True}):
        response = {"model": "shikisha", "input": said, "metadata": metadata, "instructions": key, **again}
        await client.post("/v1/responses", json=response, headers=headers)  # tells its sender what it was sent
    run = {"prompt": said, "context": key, "domain": key, "labels": [key], "metadata": metadata}
    told.heard.append((await client.post("/runs", json=run, headers={"Authorization": f"Bearer {OPERATOR}"})).text)


async def _pages(url: str, told: Told) -> None:
    """Look at the pages as the operator."""
    async with httpx2.AsyncClient(base_url=url, timeout=60.0) as client:
        login = await client.post("/ui/login", data={"key": OPERATOR})
        cookie = {"Cookie": f"{LOGIN_COOKIE}={login.cookies[LOGIN_COOKIE]}"}
        runs = (await client.get("/runs", headers={"x-api-key": OPERATOR})).json()["data"]
        paths = [
            "runs",
            "keys",
            "workers",
            *(f"runs/{run['id']}{more}" for run in runs[:4] for more in ("", "/journal")),
        ]
        for path in paths:
            answer = await client.get(f"/ui/{path}", headers=cookie)
            assert answer.status_code == 200
            told.heard.append(answer.text)


@pytest.mark.full
async def test_invariant_8_no_planted_key_is_found_anywhere(tmp_path: Path) -> None:
    told = Told()
    async with gossip(told) as url:
        started = served_process(tmp_path, CONFIG.format(url=url), environment=ENVIRONMENT)
        async with started as (at, process), httpx2.AsyncClient(base_url=at.url, timeout=60.0) as admin:
            headers = {"Authorization": f"Bearer {OPERATOR}"}
            issued = [(await admin.post("/keys", json={"name": f"k{n}"}, headers=headers)).json() for n in range(2)]
            secrets = [str(each["secret"]) for each in issued]
            told.heard.append((await admin.delete(f"/keys/{issued[1]['id']}", headers=headers)).text)
            await _talk(at.url, [*secrets, OPERATOR, WRONG], told)
            await _pages(at.url, told)
            process.terminate()
            await process.wait()
            assert process.stdout is not None
            told.heard.append((await process.stdout.read()).decode())
    whole = told.whole(tmp_path)
    assert told.asked >= 6
    assert told.collected
    assert "You said" in whole
    found = {key for key in (WORKER, OPERATOR, COLLECTOR, WRONG, *secrets) if key in whole}
    assert found == set()
