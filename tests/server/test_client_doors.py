"""Doors for clients of all kinds: pages of other sites, and bodies that come compressed."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import NotFoundError
from responding import by_model, responding

from shikisha.config.settings import ServerTable
from shikisha.server.keys.key import KeyScope

BODY = json.dumps({"model": "shikisha", "messages": [{"role": "user", "content": "hello " * 9000}]}).encode()
PAGE = "https://chat.example.com"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-shikisha-metadata",
}


def bare(body: bytes) -> bytes:
    """Deflate without zlib's head, as some clients send it."""
    return zlib.compress(body)[2:-4]


@pytest.mark.parametrize(
    ("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("Deflate", bare), ("identity", bytes)]
)
async def test_a_compressed_body_is_read(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        came = await http.post("/v1/chat/completions", content=pack(BODY), headers={"Content-Encoding": name})
        assert came.json()["choices"][0]["message"]["content"] == "m1 says so"


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("gzip", gzip.compress(b" " * 50_000_000, 1), 413),
        ("deflate", zlib.compress(b" " * 50_000_000, 1), 413),
        ("gzip", gzip.compress(gzip.compress(BODY)), 400),
        ("gzip", gzip.compress(BODY)[:-20], 400),
        ("gzip", gzip.compress(BODY) + b"more", 400),
        ("gzip", b"{}", 400),
        ("br", b"{}", 415),
        ("gzip, gzip", b"{}", 415),
    ],
    ids=["bomb", "zlib-bomb", "twice", "cut", "more", "plain", "unknown", "chain"],
)
async def test_what_cannot_be_unpacked_is_refused_in_little_memory(
    tmp_path: Path, name: str, body: bytes, status: int
) -> None:
    async with responding(tmp_path, by_model, end="max_body_bytes = 1000000") as (at, _), at.http() as http:
        assert (await http.post("/v1/messages", content=b"{}")).status_code == 400  # what is imported is not counted
        tracemalloc.start()
        try:
            came = await http.post("/v1/messages", content=body, headers={"Content-Encoding": name})
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
        assert (came.status_code, came.json()["type"]) == (status, "error")
        plain = await http.post("/v1/chat/completions", content=BODY)
        assert plain.status_code == 200


async def test_a_compressed_body_beyond_the_small_ones_needs_a_key(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http(None) as http:
        packed = gzip.compress(b" " * 1_000_000)
        came = await http.post("/v1/chat/completions", content=packed, headers={"Content-Encoding": "gzip"})
        assert came.status_code == 401


async def test_a_page_of_a_named_origin_may_call_the_api_and_no_other(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, end=f'origins = ["{PAGE}"]') as (at, _), at.http() as http:
        asked = await http.options("/v1/chat/completions", headers={"Origin": PAGE, **PREFLIGHT})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, PAGE)
        assert "access-control-allow-credentials" not in asked.headers
        came = await http.post("/v1/chat/completions", content=BODY, headers={"Origin": PAGE})
        assert came.headers["access-control-allow-origin"] == PAGE
        assert "x-shikisha-run-id" in came.headers["access-control-expose-headers"]
        wrong = await http.post("/v1/chat/completions", content=b"{", headers={"Origin": PAGE})
        assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (400, PAGE)
        for path, origin in (("/v1/models", "https://evil.example.com"), ("/runs", PAGE), ("/keys", PAGE)):
            other = await http.options(path, headers={"Origin": origin, **PREFLIGHT})
            read = await http.get(path, headers={"Origin": origin})
            assert "access-control-allow-origin" not in {*other.headers, *read.headers}


async def test_no_page_of_another_site_may_call_unless_it_is_named(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        asked = await http.options("/v1/chat/completions", headers={"Origin": PAGE, **PREFLIGHT})
        assert (asked.status_code, "access-control-allow-origin" in asked.headers) == (405, False)


@pytest.mark.parametrize("origin", ["chat.example.com", f"{PAGE}/", "https://Chat.example.com", "ftp://x", "null", ""])
def test_an_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="expected an origin"):
        ServerTable(origins=(origin,))


async def test_a_completion_is_retrieved_where_it_was_to_be_stored_and_by_its_tenant(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, client), at.http() as http:
        made, unstored = [
            await client.chat.completions.create(
                model="shikisha", messages=[{"role": "user", "content": "hello"}], store=store
            )
            for store in (True, False)
        ]
        found = await client.chat.completions.retrieve(made.id)
        assert found.model_dump() == made.model_dump()
        other = await at.issue(KeyScope.RUN)
        async with at.openai(other.secret) as stranger:
            for reader, name in (
                (client, unstored.id),
                (stranger, made.id),
                (client, "chatcmpl-x"),
                (client, "x" * 200),
            ):
                with pytest.raises(NotFoundError):
                    await reader.chat.completions.retrieve(name)
        body = {"model": "shikisha", "messages": [{"role": "user", "content": "hello"}], "n": 2, "store": True}
        refused = await http.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "store")
