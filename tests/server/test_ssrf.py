"""Where the server connects to is the configuration's word alone, however and wherever a request names an address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from serving import served

from shikisha.testing import ScriptedAnswer, chat_server

CONFIG = """
conductor = "fixed:single"
[workers.model]
kind = "chat"
base_url = "{url}"
model = "scripted"
max_output_tokens = 100
takes = ["image", "file"]
tools = true
"""
HOSTS = (
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[0:0:0:0:0:ffff:7f00:1]",
    "0.0.0.0",  # noqa: S104 - an address to be tried, not one to listen on
    "0",
    "127.0.0.1.nip.io",
    "example.com@127.0.0.1",
    "127.0.0.1%00.example.com",
    "①②⑦.⓪.⓪.①",  # digits that some libraries read as digits
)
SCHEMES = ("http", "https", "ftp")
PAYLOADS = tuple(f"{scheme}://{host}:{{port}}/latest/meta-data" for scheme in SCHEMES for host in HOSTS)


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[int, list[str]]]:
    """Listen on every loopback address; yield the port and who came."""
    came: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append((await reader.read(200)).decode(errors="replace"))
        writer.close()

    server = await asyncio.start_server(note, "localhost", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], came


def requests(url: str) -> list[tuple[str, dict[str, object], dict[str, str]]]:
    """The URL in every place where a request can name something."""
    said: dict[str, object] = {"model": "shikisha", "messages": [{"role": "user", "content": url}]}
    seen = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    chat, ascii_url = "/v1/chat/completions", url.encode("ascii", "replace").decode()
    tool = {"type": "function", "function": {"name": "f", "description": url, "parameters": {"$ref": url}}}
    return [
        (chat, said, {}),
        (chat, {**said, "messages": [{"role": "user", "content": seen}]}, {}),
        (chat, {**said, "model": url}, {}),
        (chat, {**said, "base_url": url, "api_base": url}, {}),
        (chat, {**said, "metadata": {"base_url": url}, "user": url}, {}),
        (chat, {**said, "tools": [tool]}, {}),
        (
            chat,
            {**said, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"$ref": url}}}},
            {},
        ),
        (chat, said, {"X-Shikisha-Workers": ascii_url}),
        (chat, said, {"X-Forwarded-Host": ascii_url, "Forwarded": f"host={ascii_url}", "Referer": ascii_url}),
        (
            "/v1/responses",
            {"model": "shikisha", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
            {},
        ),
        (
            "/v1/responses",
            {"model": "shikisha", "input": [{"role": "user", "content": [{"type": "input_file", "file_url": url}]}]},
            {},
        ),
        ("/runs", {"prompt": url, "conductor": f"lm:{url}"}, {}),
        ("/runs", {"prompt": "what?", "model": f"shikisha/lm:{url}", "metadata": {"url": url}}, {}),
    ]


async def test_no_request_makes_the_server_connect_to_an_address_that_it_names(tmp_path: Path) -> None:
    async with (
        trap() as (port, came),
        chat_server([ScriptedAnswer(text="done")]) as endpoint,
        served(tmp_path, CONFIG.format(url=endpoint)) as at,
        at.http() as client,
    ):
        for payload in PAYLOADS:
            sent = [
                client.post(path, json=body, headers=headers)
                for path, body, headers in requests(payload.format(port=port))
            ]
            answers: list[httpx2.Response] = await asyncio.gather(*sent)
            assert [each.status_code for each in answers if each.status_code == 500] == [], payload
        await asyncio.sleep(0.2)
        assert len(PAYLOADS) == 60
        assert came == []
