"""What a served request of one step costs, counted in calls, which no load of the machine changes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx2
from serving import served

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

CONFIG = """
conductor = "fixed:single"
[workers.one]
kind = "chat"
base_url = "{url}"
model = "m"
stream = false
price = {{input = 1.0, output = 1.0}}
[budgets]
dollars = 1.0
"""
MOST_CALLS = 2_550  # on the event loop; who raises it says here what a user gets for it
REQUESTS = 8


def is_ours(frame: FrameType | None) -> bool:
    """Whether a call was made by the package itself, perhaps by way of the standard library, but not by its doubles."""
    while frame is not None:
        name = frame.f_code.co_filename
        if "/src/shikisha/" in name:
            return "/testing/" not in name
        if "site-packages" in name or "/tests/" in name:
            return False
        frame = frame.f_back
    return False


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Count the calls of functions in this thread that the package makes."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call") and is_ours(frame)

    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(None)


async def calls_of_a_request(http: httpx2.AsyncClient, size: int) -> float:
    """The calls of a request with a prompt of so many characters, as the mean of several that follow others."""
    asked = {"model": "shikisha", "messages": [{"role": "user", "content": "a b " * (size // 4)}]}

    async def ask() -> None:
        for _ in range(REQUESTS):
            assert (await http.post("/v1/chat/completions", json=asked)).status_code == 200

    await ask()
    with counted() as so_far:
        await ask()
        return so_far() / REQUESTS


async def test_a_request_stays_within_its_calls_however_long_its_prompt(tmp_path: Path) -> None:
    def answer(_: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text="It.")

    async with chat_server(answer) as url, served(tmp_path, CONFIG.format(url=url)) as at, at.http() as http:
        costs = {size: await calls_of_a_request(http, size) for size in (1_000, 4_000, 16_000)}
    assert costs[1_000] <= MOST_CALLS, costs
    assert max(costs.values()) <= 1.1 * min(costs.values()), costs
