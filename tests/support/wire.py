"""An endpoint that answers what a fixture says, byte for byte, and remembers what it was sent and when.

An answer of a fixture has `sse` (chunks), `raw` (the bytes of an event stream), `body` (JSON) or `text`, with `status`,
`headers`, a media `type` and `gzip`; `needs` are pairs of a dotted path into the request (`*`: every entry) and a
pattern, and where a value is missing or different, 400 is the answer.
"""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http

Answer = Mapping[str, Any]


@dataclass
class Seen:
    """What an endpoint was sent."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


def at_path(value: object, path: Sequence[str]) -> Iterator[object]:
    """Yield what stands at a path; `*` stands for every entry of a list that has what follows."""
    if not path:
        yield value
    elif path[0] == "*":
        for each in value if isinstance(value, list) else ():
            yield from at_path(each, path[1:])
    elif isinstance(value, Mapping) and path[0] in value:
        yield from at_path(value[path[0]], path[1:])


def refusal(body: object, answer: Answer) -> str:
    """Say what the request lacks; "" for nothing."""
    for path, pattern in answer.get("needs", ()):
        found = list(at_path(body, path.split(".")))
        if not found or not all(
            re.fullmatch(pattern, each if isinstance(each, str) else json.dumps(each)) for each in found
        ):
            return f"{path}: expected {pattern}, found {found!r}"[:500]
    return ""


@asynccontextmanager
async def wire_endpoint(answers: Sequence[Answer]) -> AsyncIterator[Seen]:
    """Serve these answers one after another, the last one for ever."""
    seen = Seen()
    async with wire_endpoints({"v1": (answers, seen)}) as url:
        seen.url = f"{url}/v1"
        yield seen


@asynccontextmanager
async def wire_endpoints(scripts: Mapping[str, tuple[Sequence[Answer], Seen]]) -> AsyncIterator[str]:
    """Serve several endpoints, each under its own first part of a path; what they answer may change meanwhile."""

    async def reply(asked: HttpRequest, exchange: HttpExchange) -> bool:
        answers, seen = scripts[asked.path.split("/")[1]]
        body = json.loads(asked.body)
        answer = answers[min(len(seen.bodies), len(answers) - 1)]
        seen.bodies.append(body)
        seen.times.append(monotonic())
        if problem := refusal(body, answer):
            text = json.dumps(
                {"error": {"message": problem, "type": "invalid_request_error", "param": None, "code": None}}
            )
            await exchange.send(400, text.encode())
            return True
        headers = {name.replace("-", "_"): value for name, value in answer.get("headers", {}).items()}
        if "body" in answer:
            await exchange.send(answer.get("status", 200), json.dumps(answer["body"]).encode(), **headers)
            return True
        if "text" in answer:
            body = answer["text"].encode()
            if answer.get("gzip"):
                body, headers = gzip.compress(body), {**headers, "Content_Encoding": "gzip"}
            await exchange.send(answer.get("status", 200), body, answer.get("type", "application/json"), **headers)
            return True
        await exchange.begin(answer.get("type", "text/event-stream"))
        if "raw" in answer:
            await exchange.chunk(answer["raw"].encode())
        for chunk in answer.get("sse", ()):
            await exchange.chunk(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(answer.get("pace", 0))
        if answer.get("cut"):
            return False
        if "sse" in answer and not answer.get("no_done"):
            await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()
        return True

    async with serve_http(reply) as url:
        yield url
