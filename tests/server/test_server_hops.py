"""A server that asks itself comes to an end: requests say how many servers they have come through."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from responding import by_model, responding
from serving import READY, free_port, served

from shikisha.testing import InjectedFault, ReceivedChatRequest, ScriptedAnswer, chat_server

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
{more}
"""
TOOL = """
conductor = "fixed:single"
[server]
port = {port}
admin_key_env = "TEST_ADMIN_KEY"
[workers.itself]
kind = "http"
url = "{url}/runs"
argument = "prompt"
arguments = {{type = "object", properties = {{prompt = {{type = "string"}}}}}}
headers = {{Authorization = "Bearer ${{TEST_ADMIN_KEY}}"}}
"""
KEY = "0123456789abcdef0123456789abcdef"
ASKED = {"model": "shikisha", "messages": [{"role": "user", "content": "What?"}]}
DEPTH = "X-Shikisha-Depth"


@pytest.mark.parametrize(("sent", "told"), [(None, "1"), ("0", "1"), ("3", "4")])
async def test_a_worker_is_told_one_more_than_the_request_said(tmp_path: Path, sent: str | None, told: str) -> None:
    heard: list[str] = []

    def answer(asked: ReceivedChatRequest) -> ScriptedAnswer:
        heard.append(asked.headers["x-shikisha-depth"])
        return ScriptedAnswer()

    config = CONFIG.replace('admin_key_env = "TEST_ADMIN_KEY"\n', "", 1)
    async with (
        chat_server(answer) as url,
        served(tmp_path, config.format(port=0, url=url, more=""), {"TEST_ADMIN_KEY": KEY}) as at,
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


@pytest.mark.full
async def test_a_server_that_asks_itself_refuses_after_as_many_runs_as_servers_may_be_between(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with itself(tmp_path, CONFIG.format(port=port, url=f"{url}/v1", more=""), url) as http:
        refused = await http.post("/v1/chat/completions", json=ASKED)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "too_deep")
        runs = (await http.get("/runs")).json()["data"]
        assert [run["status"] for run in runs] == ["failed"] * 4
        assert "come through 4 servers" in (await http.get(f"/runs/{runs[0]['id']}")).text  # the newest


@asynccontextmanager
async def itself(folder: Path, config: str, url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A server in a process of its own, whose worker it is itself, and a client of it."""
    (folder / "shikisha.toml").write_text(config)
    words = ("-m", "shikisha", "serve", "--json", "--config", str(folder / "shikisha.toml"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, env={"TEST_ADMIN_KEY": KEY}, cwd=folder
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), READY)
        async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
            yield http
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("stream", ["true", "false"])
async def test_a_run_that_failed_at_another_server_of_ours_is_not_ordered_again(tmp_path: Path, stream: str) -> None:
    asked: list[ReceivedChatRequest] = []

    def fail(request: ReceivedChatRequest) -> ScriptedAnswer:
        asked.append(request)
        return ScriptedAnswer(mishap=InjectedFault.UNAUTHORIZED)

    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
    config = CONFIG.replace('admin_key_env = "TEST_ADMIN_KEY"\n', "", 1)
    more = f"stream = {stream}"
    async with (
        chat_server(fail) as url,
        served(inner, config.format(port=0, url=url, more=""), {"TEST_ADMIN_KEY": KEY}) as one,
        served(outer, config.format(port=0, url=f"{one.url}/v1", more=more), {"TEST_ADMIN_KEY": one.key}) as two,
        two.http() as http,
    ):
        assert (await http.post("/v1/chat/completions", json=ASKED)).status_code == 502
        async with one.http() as look:
            assert len((await look.get("/runs")).json()["data"]) == 1
    assert len(asked) == 1


async def test_a_server_that_is_its_own_tool_comes_to_an_end(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with itself(tmp_path, TOOL.format(port=port, url=url), url) as http:
        assert (await http.post("/runs", json={"prompt": "What?"})).status_code == 200
        assert len((await http.get("/runs")).json()["data"]) == 4
