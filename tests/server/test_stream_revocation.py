"""Streams that are open when their key is revoked, expires or loses a scope end, and say why."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from time import time

import httpx2
import pytest
from fastapi import Request
from serving import At, served

from shikisha.core.errors import JournalUnavailable
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.streams import revocation_check, stream_until_revoked
from shikisha.server.keys import IssuedKey, Key
from shikisha.server.keys.key import KeyScope
from shikisha.server.store import RunFilter, ServedState

CONFIG = """
[server]
port = 0
[workers.asks]
kind = "scripted"
answers = "42"
approval = "always"
"""
GONE = ApiError(401, "gone", "gone")


async def numbers(upto: int, pause: float = 0.0) -> AsyncGenerator[int]:
    for number in range(upto):
        await asyncio.sleep(pause)
        yield number


async def told(problem: ApiError) -> tuple[int]:
    return (-problem.status,)


def asking(*answers: Exception | None) -> Callable[[Request], "asyncio.Future[None]"]:
    """A door that gives these answers in turn, and then the last of them."""
    left = list(answers)

    def ask(_: Request) -> "asyncio.Future[None]":
        answer = left.pop(0) if len(left) > 1 else left[0]
        given = asyncio.get_running_loop().create_future()
        given.set_result(None) if answer is None else given.set_exception(answer)
        return given

    return ask


@pytest.mark.parametrize(
    ("answers", "heard"),
    [
        ([None], [0, 1, 2]),
        ([JournalUnavailable("away")], [0, 1, 2]),
        ([GONE], [0, -401]),
        ([None, GONE], [0, 1, -401]),
        ([JournalUnavailable("away"), GONE], [0, 1, -401]),
    ],
)
async def test_a_stream_ends_at_the_first_look_that_is_refused(
    answers: list[Exception | None], heard: list[int]
) -> None:
    look = revocation_check(Request({"type": "http"}), asking(*answers), told)
    assert [each async for each in stream_until_revoked(look, numbers(3), every=0.0)] == heard


async def test_a_silent_stream_is_looked_at_too_and_is_closed() -> None:
    closed: list[bool] = []

    async def silent() -> AsyncGenerator[int]:
        try:
            await asyncio.Event().wait()
            yield 0
        finally:
            closed.append(True)

    look = revocation_check(Request({"type": "http"}), asking(None, GONE), told)
    assert [each async for each in stream_until_revoked(look, silent(), every=0.001)] == [-401]
    assert closed == [True]


async def test_whoever_leaves_a_stream_closes_what_it_listens_to() -> None:
    events = numbers(3)
    async with aclosing(
        stream_until_revoked(revocation_check(Request({"type": "http"}), asking(None), told), events)
    ) as stream:
        assert await anext(stream) == 0
    assert [each async for each in events] == []


async def revoked(at: At, key: IssuedKey) -> None:
    assert at.service is not None
    await at.service.keys.revoke(key.key.id, "tests")


async def expired(at: At, key: IssuedKey) -> None:
    await _changed(at, key, lambda known: replace(known, expires=time() - 1))


async def narrowed(at: At, key: IssuedKey) -> None:
    await _changed(at, key, lambda known: replace(known, scopes=frozenset({KeyScope.APPROVE})))


async def _changed(at: At, key: IssuedKey, how: Callable[[Key], Key]) -> None:
    assert at.service is not None
    await at.service.keys.change(key.key.id, how, "tests")


async def waiting(http: httpx2.AsyncClient) -> str:
    """A run that waits for a person, begun in the background; return its response's id."""
    body = {"model": "shikisha", "input": "What?", "background": True}
    return str((await http.post("/v1/responses", json=body)).json()["id"])


async def rest(http: httpx2.AsyncClient, way: str, opened: asyncio.Event, json: object = None) -> str:
    """The text of a stream up to its end; `opened` once it is."""
    async with http.stream("GET" if json is None else "POST", way, json=json) as answer:
        assert answer.status_code == 200
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            opened.set()
        return text


async def ends(at: At, lapse: Callable[[At, IssuedKey], Awaitable[None]]) -> list[str]:
    """The whole texts of a key's streams: of a run, a response, a page, and of a response of the stream's own."""
    key = await at.issue(KeyScope.RUN, KeyScope.READ)
    async with at.http(key.secret) as http:
        await http.post("/ui/login", data={"key": key.secret})
        found = await waiting(http)
        run = found.removeprefix("resp_")
        own = {"model": "shikisha", "input": "What?", "stream": True}
        ways = (f"/runs/{run}/events", f"/v1/responses/{found}?stream=true", f"/ui/runs/{run}/live", "/v1/responses")
        opened = [asyncio.Event() for _ in ways]
        reading = [
            rest(http, way, one, own if way == ways[-1] else None) for way, one in zip(ways, opened, strict=True)
        ]
        streams = [asyncio.create_task(each) for each in reading]
        await asyncio.gather(*(one.wait() for one in opened))
        await lapse(at, key)
        return list(await asyncio.gather(*streams))


async def test_every_stream_ends_with_its_key(tmp_path: Path) -> None:
    lapses = {"revoked_api_key": revoked, "expired_api_key": expired, "missing_scope": narrowed}
    async with served(tmp_path, CONFIG) as at:
        ended = await asyncio.gather(*(ends(at, lapse) for lapse in lapses.values()))
        assert at.service is not None
        counts = await at.service.store.count(RunFilter())  # the runs that were streams' own are cancelled
        assert counts == {ServedState.STOPPED: 3, ServedState.WAITING: 3}
    for code, (events, response, page, own) in zip(lapses, ended, strict=True):
        for stream in (events, response, own):
            assert code in stream.rpartition("event: error")[2]
        assert "This page gets no more updates" in page
        assert page.rstrip().endswith("data: over")
