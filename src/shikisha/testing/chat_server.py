"""The chat server: HTTP/1.1 on a socket, chat requests, and answers or their faults.

Written by hand, because no server library breaks off in the middle of a body or resets a connection on demand.
Invariants: every request is in the ledger before a byte of its answer leaves; a fault does exactly what its name says
and then leaves the connection unusable, and what comes before it is valid protocol; nothing of the server outlives its
`async with`. Deliberately absent: authorization (a key is repeated in error bodies, as the worst of servers do, and
never checked), TLS, pipelining, chunked requests.
"""

import asyncio
import gzip
import itertools
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from http import HTTPStatus
from time import time
from typing import ClassVar, Literal, TypeAlias

from openai.types import CompletionUsage, Model
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageToolCallUnion,
)
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall, ChoiceDeltaToolCallFunction
from openai.types.chat.chat_completion_message_function_tool_call import Function
from openai.types.completion_usage import CompletionTokensDetails, PromptTokensDetails
from pydantic import TypeAdapter

from shikisha.core.fast_dataclass import dataclass
from shikisha.testing.chat_script import (
    AnswerChooser,
    AnswerScript,
    ChargeLedger,
    InjectedFault,
    ReceivedChatRequest,
    ScriptedAnswer,
    ScriptedToolCall,
)

# Replies in the protocol's form, built from the SDK's own types, so that both sides speak the same version of it.
#
# Invariant: the chunks of a stream share id and model: a role chunk, the pieces, one finish chunk, then one usage chunk
# without choices if asked for; a tool call comes as several pieces of one index. Tokens are counted as a quarter of the
# UTF-8 bytes, rounded up. Deliberately absent: several choices, log-probabilities.

# A fixed time, so that the same script gives the same bytes.
CREATED = 1_700_000_000
DONE = "[DONE]"
FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]
# Characters of a call's arguments in one chunk.
_DELTA_CHARS = 7


@dataclass(frozen=True, slots=True)
class ReplyContent:
    """What a reply says and how it ends."""

    text: str
    refusal: str | None = None
    finish: FinishReason = "stop"
    calls: tuple[ScriptedToolCall, ...] = ()


def reply_content(answer: ScriptedAnswer) -> ReplyContent:
    """Return the reply's content, with the faults that are still valid protocol."""
    match answer.mishap:
        case InjectedFault.EMPTY:
            return ReplyContent("")
        case InjectedFault.REFUSAL:
            return ReplyContent("", refusal="I will not do that.")
        case InjectedFault.FILTERED:
            return ReplyContent(answer.text[: len(answer.text) // 2], finish="content_filter")
        case InjectedFault.LENGTH:
            return ReplyContent(answer.text[: len(answer.text) // 2], finish="length")
        case _ if answer.calls:
            return ReplyContent(answer.text, finish="tool_calls", calls=answer.calls)
        case _:
            return ReplyContent(answer.text)


def completion_json(answer: ScriptedAnswer, asked: ReceivedChatRequest, reply_id: str) -> str:
    """Return the JSON of a whole reply."""
    said = reply_content(answer)
    calls: list[ChatCompletionMessageToolCallUnion] = [
        ChatCompletionMessageFunctionToolCall(
            id=_call_id(call, place, asked), type="function", function=Function(name=call.name, arguments=call.text)
        )
        for place, call in enumerate(said.calls)
    ]
    message = ChatCompletionMessage(role="assistant", content=said.text, refusal=said.refusal, tool_calls=calls or None)
    reply = ChatCompletion(
        id=reply_id,
        choices=[Choice(index=0, message=message, finish_reason=said.finish)],
        created=CREATED,
        model=asked.model,
        object="chat.completion",
        usage=_usage(answer, asked),
    )
    return _with_odd_usage(reply.to_json(indent=None, exclude_unset=False, exclude_none=True), answer)


def stream_events(answer: ScriptedAnswer, asked: ReceivedChatRequest, reply_id: str) -> Iterator[str]:
    """Yield the data of a stream's events, end marker included."""
    said = reply_content(answer)
    yield _chunk(asked, reply_id, ChoiceDelta(role="assistant", content=""))
    for piece in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", said.text):
        yield _chunk(asked, reply_id, ChoiceDelta(content=piece))
    for place, call in enumerate(said.calls):
        for delta in _tool_call_deltas(call, place, asked):
            yield _chunk(asked, reply_id, ChoiceDelta(tool_calls=[delta]))
    if said.refusal is not None:
        yield _chunk(asked, reply_id, ChoiceDelta(refusal=said.refusal))
    yield _chunk(asked, reply_id, ChoiceDelta(), said.finish)
    if asked.include_usage and answer.mishap is not InjectedFault.NO_USAGE:
        last = _empty_chunk(asked, reply_id)
        last.usage = _usage(answer, asked)
        yield _with_odd_usage(last.to_json(indent=None, exclude_none=True), answer)
    yield DONE


def _tool_call_deltas(call: ScriptedToolCall, place: int, asked: ReceivedChatRequest) -> Iterator[ChoiceDeltaToolCall]:
    """Yield a call as a stream has it: its id and name, then its arguments bit by bit."""
    begun = ChoiceDeltaToolCallFunction(name=call.name, arguments="")
    yield ChoiceDeltaToolCall(index=place, id=_call_id(call, place, asked), type="function", function=begun)
    for start in range(0, len(call.text), _DELTA_CHARS):
        piece = ChoiceDeltaToolCallFunction(arguments=call.text[start : start + _DELTA_CHARS])
        yield ChoiceDeltaToolCall(index=place, function=piece)


def _call_id(call: ScriptedToolCall, place: int, asked: ReceivedChatRequest) -> str:
    return call.id or f"call_{len(asked.messages)}_{place}"


def as_text_completion(event: str) -> str:
    """Return a chat's reply, or a chunk of it, as the completions route has it."""
    reply = json.loads(event)
    for choice in reply["choices"]:
        said = choice.pop("message", None) or choice.pop("delta", None) or {}
        choice |= {"text": said.get("content") or "", "logprobs": None}
    return json.dumps(reply | {"object": "text_completion"})


def error_json(message: str, code: str) -> str:
    """Return the JSON of an error body."""
    return json.dumps({"error": {"message": message, "type": code, "param": None, "code": code}})


def models_json(names: tuple[str, ...]) -> str:
    """Return the JSON of the list of models."""
    data = [Model(id=name, created=CREATED, object="model", owned_by="shikisha").to_dict() for name in names]
    return json.dumps({"object": "list", "data": data})


def _empty_chunk(asked: ReceivedChatRequest, reply_id: str) -> ChatCompletionChunk:
    return ChatCompletionChunk(
        id=reply_id, choices=[], created=CREATED, model=asked.model, object="chat.completion.chunk"
    )


def _chunk(asked: ReceivedChatRequest, reply_id: str, delta: ChoiceDelta, finish: FinishReason | None = None) -> str:
    chunk = _empty_chunk(asked, reply_id)
    chunk.choices = [ChunkChoice(index=0, delta=delta, finish_reason=finish)]
    return chunk.to_json(indent=None, exclude_unset=True)


def _usage(answer: ScriptedAnswer, asked: ReceivedChatRequest) -> CompletionUsage | None:
    if answer.mishap is InjectedFault.NO_USAGE:
        return None
    prompt = sum(_count_tokens(text) for _, text in asked.messages)
    written = reply_content(answer)
    said = _count_tokens(written.text) + answer.reasoning_tokens
    said += sum(_count_tokens(call.name + call.text) for call in written.calls)
    usage = CompletionUsage(
        prompt_tokens=prompt,
        completion_tokens=said,
        total_tokens=prompt + said,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=answer.cached_tokens),
        completion_tokens_details=CompletionTokensDetails(reasoning_tokens=answer.reasoning_tokens),
    )
    if answer.cost is None:
        return usage
    return CompletionUsage.model_validate({**usage.to_dict(), "cost": answer.cost})


def _count_tokens(text: str) -> int:
    return -(-len(text.encode()) // 4)


_ODD_USAGE: dict[InjectedFault, dict[str, object]] = {
    InjectedFault.NEGATIVE_USAGE: {"prompt_tokens": -5, "completion_tokens": -7, "total_tokens": -12},
    InjectedFault.ABSURD_USAGE: {"prompt_tokens": 10**15, "completion_tokens": 3, "total_tokens": 10**15 + 3},
    InjectedFault.BOOLEAN_USAGE: {"prompt_tokens": True, "completion_tokens": True, "total_tokens": 2},
    InjectedFault.TEXT_USAGE: {"prompt_tokens": "many", "completion_tokens": "few", "total_tokens": "lots"},
}


def _with_odd_usage(body: str, answer: ScriptedAnswer) -> str:
    """Put numbers into a reply's usage that the SDK's types would not take."""
    if answer.mishap not in _ODD_USAGE:
        return body
    reply = json.loads(body)
    reply["usage"] = _ODD_USAGE[answer.mishap]
    return json.dumps(reply)


MAX_BODY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request: method, path, headers by lower-case name, body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        """Return the body as a JSON object; ValueError when it is none."""
        data = json.loads(self.body)
        if not isinstance(data, dict):
            raise ValueError("the body is not a JSON object")
        return data


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Return the next request of a connection; None when the client has closed it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    length = int(headers.get("content-length", "0"))
    if length > MAX_BODY_BYTES:
        return None
    return HttpRequest(method, path, headers, await reader.readexactly(length))


class HttpExchange:
    """The writing side of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        """Write a complete response; header names are given with underscores."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(body)), **fields})
        await self.raw(body)

    async def begin(self, kind: str, length: int | None = None) -> None:
        """Write the head of a response whose body follows: in chunks, or of the length announced."""
        framing = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
        self._head(200, {"Content-Type": kind, **framing})
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        """Write one chunk."""
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        """Write the last chunk."""
        await self.raw(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    def reset(self) -> None:
        """Reset the connection, so that the client sees an error and no end."""
        peer: socket.socket = self._writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        phrase = next((each.phrase for each in HTTPStatus if each == status), "")  # some have statuses of their own
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {headers[name]}" for name in headers)]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))


RequestHandler: TypeAlias = Callable[[HttpRequest, HttpExchange], Awaitable[bool]]


@asynccontextmanager
async def serve_http(answer: RequestHandler, port: int = 0) -> AsyncIterator[str]:
    """Listen on loopback and yield the URL (scheme, host, port); on leaving, every connection is ended."""
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_serve_connection(answer, reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)
        with suppress(asyncio.CancelledError):
            await task

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=2**20)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        open_now = tuple(connections)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        await server.wait_closed()


async def _serve_connection(answer: RequestHandler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection until either side ends it."""
    try:
        while (incoming := await read_request(reader)) is not None:
            if not await answer(incoming, HttpExchange(writer)):
                break
    except (OSError, asyncio.IncompleteReadError):
        pass  # the client went away, as clients do
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


HUGE_BYTES = 100 * 2**20
ZIPPED_BYTES = 16 * 2**20
RETRY_SECONDS = 7
RETRY_HUGE = 10**12
_BLOCK_BYTES = 64 * 1024
_SSE = "text/event-stream"


class ScriptedReply:
    """One answer to one request."""

    def __init__(
        self, answer: ScriptedAnswer, asked: ReceivedChatRequest, reply_id: str, exchange: HttpExchange
    ) -> None:
        self._answer = answer
        self._asked = asked
        self._sent = asked.headers.get("authorization", "")
        self._id = reply_id
        self._exchange = exchange

    async def send(self) -> bool:
        """Answer, or act the fault out; return whether the connection can be used again."""
        fault = self._answer.mishap
        if fault in _STATUS_FAULTS:
            status, header = _STATUS_FAULTS[fault]
            body = error_json(f"{fault}: you sent {self._sent}", str(fault))
            await self._exchange.send(status, body.encode(), **header())
            return True
        act = self._ACTS.get(fault) if fault is not None else None
        if act is not None:
            await act(self)
            return False
        await (self._stream() if self._asked.stream else self._whole())
        return True

    async def _whole(self) -> None:
        await self._exchange.send(200, self._body())

    async def _stream(self) -> None:
        await self._exchange.begin(_SSE)
        for event in self._events():
            await self._event(event)
            await asyncio.sleep(self._answer.pace)
        await self._exchange.end()

    def _body(self) -> bytes:
        return self._written(completion_json(self._answer, self._asked, self._id)).encode()

    def _events(self) -> list[str]:
        return [self._written(event) for event in stream_events(self._answer, self._asked, self._id)]

    def _written(self, event: str) -> str:
        return as_text_completion(event) if "prompt" in self._asked.body and event != DONE else event

    async def _event(self, data: str) -> None:
        await self._exchange.chunk(f"data: {data}\n\n".encode())

    async def _some(self, events: Sequence[str]) -> None:
        await self._exchange.begin(_SSE)
        for event in events:
            await self._event(event)

    async def _half(self) -> None:
        """Send the first half of what would be the answer."""
        if self._asked.stream:
            events = self._events()
            await self._some(events[: len(events) // 2])
        else:
            body = self._body()
            await self._exchange.begin("application/json", len(body))
            await self._exchange.raw(body[: len(body) // 2])

    async def _silence(self) -> None:
        await asyncio.Event().wait()

    async def _truncated(self) -> None:
        await self._half()

    async def _reset(self) -> None:
        self._exchange.reset()

    async def _reset_midway(self) -> None:
        await self._half()
        # Let the first half arrive: a reset takes back what is still on its way.
        await asyncio.sleep(0.02)
        self._exchange.reset()

    async def _without_finish(self) -> None:
        if self._asked.stream:
            await self._some([event for event in self._events()[:-1] if '"finish_reason":"' not in event])
            await self._exchange.end()
        else:
            await self._exchange.send(200, self._body().replace(b'"finish_reason":"stop"', b'"finish_reason":null'))

    async def _without_done(self) -> None:
        await self._some(self._events()[:-1])
        await self._exchange.end()

    async def _odd(self, body: str) -> None:
        """Send valid protocol with this text in the place of its JSON."""
        if self._asked.stream:
            await self._some([self._events()[0], body, DONE])
            await self._exchange.end()
        else:
            await self._exchange.send(200, body.encode())

    async def _bad_json(self) -> None:
        await self._odd('{"id": "x", "choices": [{"delta": {"cont')

    async def _wrong_type(self) -> None:
        await self._odd('{"id": 7, "choices": [{"index": "first", "delta": {"content": [1, 2]}, "message": []}]}')

    async def _in_band(self) -> None:
        await self._odd(error_json(f"overloaded; you sent {self._sent}", "502"))

    async def _html(self) -> None:
        page = f"<html><body>It works! {self._sent}</body></html>"
        await self._exchange.send(200, page.encode(), "text/html")

    async def _zipped(self) -> None:
        await self._exchange.send(200, gzip.compress(b" " * ZIPPED_BYTES, 1), Content_Encoding="gzip")

    async def _huge(self) -> None:
        """Send 100 MB: as one endless line of an event stream, or as a body of an announced length."""
        spaces = b" " * _BLOCK_BYTES
        if self._asked.stream:
            await self._some(self._events()[:1])
            await self._exchange.chunk(b"data: ")
        else:
            await self._exchange.begin("application/json", HUGE_BYTES)
        for _ in range(HUGE_BYTES // _BLOCK_BYTES):
            await (self._exchange.chunk(spaces) if self._asked.stream else self._exchange.raw(spaces))

    async def _drip(self) -> None:
        body = (
            "".join(f"data: {event}\n\n" for event in self._events()) if self._asked.stream else self._body().decode()
        )
        await self._exchange.begin(_SSE if self._asked.stream else "application/json", len(body.encode()))
        for byte in body.encode():
            await self._exchange.raw(bytes([byte]))
            await asyncio.sleep(1)

    _ACTS: ClassVar[dict[InjectedFault, Callable[["ScriptedReply"], Awaitable[None]]]] = {
        InjectedFault.SILENCE: _silence,
        InjectedFault.TRUNCATED: _truncated,
        InjectedFault.NO_FINISH: _without_finish,
        InjectedFault.NO_DONE: _without_done,
        InjectedFault.BAD_JSON: _bad_json,
        InjectedFault.HTML: _html,
        InjectedFault.WRONG_TYPE: _wrong_type,
        InjectedFault.IN_BAND: _in_band,
        InjectedFault.HUGE: _huge,
        InjectedFault.ZIPPED: _zipped,
        InjectedFault.DRIP: _drip,
        InjectedFault.RESET: _reset,
        InjectedFault.RESET_MIDWAY: _reset_midway,
    }


def _retry_after(value: object) -> Callable[[], dict[str, str]]:
    return lambda: {"Retry_After": str(value)}


_STATUS_FAULTS: dict[InjectedFault | None, tuple[int, Callable[[], dict[str, str]]]] = {
    InjectedFault.RATE_SECONDS: (429, _retry_after(RETRY_SECONDS)),
    InjectedFault.RATE_DATE: (429, lambda: {"Retry_After": formatdate(time() + RETRY_SECONDS, usegmt=True)}),
    InjectedFault.RATE_NEGATIVE: (429, _retry_after(-RETRY_SECONDS)),
    InjectedFault.RATE_HUGE: (429, _retry_after(RETRY_HUGE)),
    InjectedFault.ERROR_500: (500, dict),
    InjectedFault.ERROR_503: (503, _retry_after(RETRY_SECONDS)),
    InjectedFault.UNAUTHORIZED: (401, dict),
    InjectedFault.BAD_REQUEST: (400, dict),
    InjectedFault.REDIRECT: (307, lambda: {"Location": "http://127.0.0.1:9/elsewhere"}),
}


_TOOL_CALLS = TypeAdapter(tuple[ScriptedToolCall, ...])


@asynccontextmanager
async def chat_server(
    answers: Sequence[ScriptedAnswer] | AnswerChooser, *, ledger: ChargeLedger | None = None, port: int = 0
) -> AsyncIterator[str]:
    """Serve on loopback and yield the base URL; a list of answers is a `Script`, a function chooses by itself."""
    chooser = answers if callable(answers) else AnswerScript(answers)
    handler = _ChatHandler(chooser, ledger if ledger is not None else ChargeLedger())
    async with serve_http(handler.answer, port) as url:
        yield f"{url}/v1"


class _ChatHandler:
    """Answers requests."""

    def __init__(self, choose: AnswerChooser, ledger: ChargeLedger) -> None:
        self._choose = choose
        self._ledger = ledger
        self._ids = itertools.count()

    async def answer(self, incoming: HttpRequest, exchange: HttpExchange) -> bool:
        """Answer one request; return whether the connection can be used again."""
        if incoming.method == "GET" and incoming.path.endswith("/models"):
            await exchange.send(200, models_json(("scripted",)).encode())
            return True
        if incoming.method != "POST" or not incoming.path.endswith("/completions"):
            await exchange.send(404, error_json(f"no such path {incoming.path}", "not_found").encode())
            return True
        try:
            body = incoming.json()
            text = not incoming.path.endswith("/chat/completions")
            messages = [{"role": "user", "content": body.get("prompt")}] if text else body.get("messages")
            if (
                not isinstance(messages, list)
                or not messages
                or not all(isinstance(message, dict) for message in messages)
            ):
                raise ValueError("messages: expected a list of messages")
            _check_tool_messages(messages)
            options = body.get("stream_options")
            asked = ReceivedChatRequest(
                model=str(body.get("model", "")),
                messages=tuple(
                    (str(message.get("role")), _message_text(message.get("content"))) for message in messages
                ),
                stream=body.get("stream") is True,
                include_usage=isinstance(options, dict) and options.get("include_usage") is True,
                headers=incoming.headers,
                body=body,
            )
            answer = self._choose(asked)
        except (ValueError, LookupError) as error:
            await exchange.send(400, error_json(str(error), "invalid_request_error").encode())
            return True
        chargeable = answer.mishap is None or answer.mishap.charged
        calls = _TOOL_CALLS.dump_json(answer.calls).decode()
        entry = self._ledger.take(asked.key, asked.messages_hash, answer.said, chargeable=chargeable, calls=calls)
        await asyncio.sleep(answer.latency)
        said = {"text": entry.text, "calls": _TOOL_CALLS.validate_json(entry.calls or "[]")}
        reply = ScriptedReply(answer.model_copy(update=said), asked, f"chatcmpl-{next(self._ids)}", exchange)
        return await reply.send()


def _check_tool_messages(messages: Sequence[dict[str, object]]) -> None:
    """Refuse what OpenAI refuses: calls without results right after them, results of no call, names of odd letters."""
    open_calls: list[str] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            answered = str(message.get("tool_call_id"))
            if answered not in open_calls:
                raise ValueError(f"messages[{place}]: there is no open call {answered!r} before this result")
            open_calls.remove(answered)
            continue
        if open_calls:
            raise ValueError(f"messages[{place}]: the calls {', '.join(open_calls)} have no results")
        found = message.get("tool_calls")
        calls = found if isinstance(found, list) else []
        open_calls = [str(call["id"]) for call in calls]
        if len(set(open_calls)) < len(open_calls):
            raise ValueError(f"messages[{place}]: two calls have one id")
        for call in calls:
            if not _FUNCTION_NAME.fullmatch(str(call["function"]["name"])):
                raise ValueError(f"messages[{place}]: {call['function']['name']!r} is no name of a function")
    if open_calls:
        raise ValueError(f"messages: the calls {', '.join(open_calls)} have no results")


_FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def _message_text(content: object) -> str:
    """Return a message's text: the content, or the parts of it that are text."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
