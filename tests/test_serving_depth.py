"""A server that asks itself comes to an end: requests say how many servers they have come through."""

import asyncio
import sys
from pathlib import Path

import httpx2
import pytest

from responding import by_model, responding
from serving import READY, free_port, served
from shikisha.chatserver import Answer, Asked, chat_server

CONFIG = """
conductor = "fixed:single"
[server]
port = {port}
admin_key_env = "TEST_ADMIN_KEY"
[workers.itself]
kind = "chat"
base_url = "{url}"
model = "shikisha"
api_key_env = "TEST_ADMIN_KEY"
price = {{}}
usage = "estimate"
attempts = 1
"""
KEY = "0123456789abcdef0123456789abcdef"
ASKED = {"model": "shikisha", "messages": [{"role": "user", "content": "What?"}]}
DEPTH = "X-Shikisha-Depth"


@pytest.mark.parametrize(("sent", "told"), [(None, "1"), ("0", "1"), ("3", "4")])
async def test_a_worker_is_told_one_more_than_the_request_said(tmp_path: Path, sent: str | None, told: str) -> None:
    heard: list[str] = []

    def answer(asked: Asked) -> Answer:
        heard.append(asked.headers["x-shikisha-depth"])
        return Answer()

    config = CONFIG.replace('admin_key_env = "TEST_ADMIN_KEY"\n', "", 1)
    async with (
        chat_server(answer) as url,
        served(tmp_path, config.format(port=0, url=url), {"TEST_ADMIN_KEY": KEY}) as at,
        at.http() as http,
    ):
        headers = {} if sent is None else {DEPTH: sent}
        assert (await http.post("/v1/chat/completions", json=ASKED, headers=headers)).status_code == 200
    assert heard == [told]


@pytest.mark.parametrize(
    ("sent", "code"), [("4", "too_deep"), ("999999999", "too_deep"), ("-1", "invalid_header"), ("x", "invalid_header")]
)
async def test_what_came_through_too_many_servers_is_refused_in_every_api(tmp_path: Path, sent: str, code: str) -> None:
    asked = {
        "/v1/chat/completions": ASKED,
        "/v1/responses": {"model": "shikisha", "input": "What?"},
        "/runs": {"prompt": "What?"},
    }
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        for way, body in asked.items():
            answer = await http.post(way, json=body, headers={DEPTH: sent})
            told = answer.json()["error"]
            assert (answer.status_code, told["code"], told["param"]) == (400, code, DEPTH)
        assert (await http.get("/runs")).json()["data"] == []


async def test_a_server_that_asks_itself_ends_with_an_error(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (tmp_path / "shikisha.toml").write_text(CONFIG.format(port=port, url=f"{url}/v1"))
    words = ("-m", "shikisha", "serve", "--json", "--config", str(tmp_path / "shikisha.toml"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, env={"TEST_ADMIN_KEY": KEY}, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), READY)
        async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
            assert (await http.post("/v1/chat/completions", json=ASKED)).status_code == 502
            runs = (await http.get("/runs")).json()["data"]
            assert [run["status"] for run in runs] == ["failed"] * 4
            assert "come through 4 servers" in (await http.get(f"/runs/{runs[0]['id']}")).text  # the newest
    finally:
        process.terminate()
        await process.wait()
