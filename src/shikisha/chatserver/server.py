"""The server: accepts connections, understands chat requests, and answers or has its mishap.

Invariant: every request is in the ledger before a byte of its answer leaves, and nothing of the server outlives its
`async with`. Deliberately absent: authorisation (a key is taken, repeated in error bodies as the worst of servers do,
and never checked).
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pydantic import TypeAdapter

import shikisha.chatserver.shapes as shapes
from shikisha.chatserver.exchange import Exchange, Incoming, listening
from shikisha.chatserver.ledger import Ledger
from shikisha.chatserver.reply import Reply
from shikisha.chatserver.script import Answer, Asked, Calling, Chooser, Script

_CALLS = TypeAdapter(tuple[Calling, ...])


@asynccontextmanager
async def chat_server(
    answers: Sequence[Answer] | Chooser, *, ledger: Ledger | None = None, port: int = 0
) -> AsyncIterator[str]:
    """Serve on loopback and yield the base URL; a list of answers is a `Script`, a function chooses by itself."""
    chooser = answers if callable(answers) else Script(answers)
    desk = _Desk(chooser, ledger if ledger is not None else Ledger())
    async with listening(desk.answer, port) as url:
        yield f"{url}/v1"


class _Desk:
    """Answers requests."""

    def __init__(self, choose: Chooser, ledger: Ledger) -> None:
        self._choose = choose
        self._ledger = ledger
        self._ids = itertools.count()

    async def answer(self, incoming: Incoming, exchange: Exchange) -> bool:
        """Answer one request; return whether the connection can be used again."""
        if incoming.method == "GET" and incoming.path.endswith("/models"):
            await exchange.whole(200, shapes.models(("scripted",)).encode())
            return True
        if incoming.method != "POST" or not incoming.path.endswith("/chat/completions"):
            await exchange.whole(404, shapes.failure(f"no such path {incoming.path}", "not_found").encode())
            return True
        try:
            asked = _asked(incoming)
            answer = self._choose(asked)
        except (ValueError, LookupError) as error:
            await exchange.whole(400, shapes.failure(str(error), "invalid_request_error").encode())
            return True
        chargeable = answer.mishap is None or answer.mishap.charged
        calls = _CALLS.dump_json(answer.calls).decode()
        entry = self._ledger.take(asked.key, asked.messages_hash, answer.said, chargeable=chargeable, calls=calls)
        await asyncio.sleep(answer.latency)
        said = {"text": entry.text, "calls": _CALLS.validate_json(entry.calls or "[]")}
        reply = Reply(answer.model_copy(update=said), asked, f"chatcmpl-{next(self._ids)}", exchange)
        return await reply.send()


def _asked(incoming: Incoming) -> Asked:
    body = incoming.json()
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise ValueError("messages: expected a list of messages")
    options = body.get("stream_options")
    return Asked(
        model=str(body.get("model", "")),
        messages=tuple((str(message.get("role")), _text(message.get("content"))) for message in messages),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        headers=incoming.headers,
        body=body,
    )


def _text(content: object) -> str:
    """Return a message's text: the content, or the parts of it that are text."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
