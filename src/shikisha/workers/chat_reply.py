"""Reading a chat reply: server-sent events, chunks put together, finish reasons, and what goes back to the endpoint.

Every provider's shapes are read alike, because gateways mix them: content as a text or as parts, thoughts under many
names, calls without ids or with arguments as an object, usage in the choice, an error inside a success. What is odd and
does no harm is a note; an answer is complete when its text and a finish reason arrived and the body ended. A reason
that says otherwise makes it a truncated, a refused or a failed one. What else came is kept in the turn's envelope.

Invariants: an event is delivered as soon as its blank line arrives, however the bytes were cut; the work for a reply is
linear in its bytes, and no more than an envelope's size of thoughts is kept. Deliberately absent: reconnecting, and
choices after the first.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from math import exp, fsum, isfinite
from typing import TypeAlias, cast

from shikisha.core.call import NO_CLIENT_OPTIONS, ClientOptions
from shikisha.core.errors import FaultCause, FaultKind, WorkerError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import (
    MAX_ENVELOPE_BYTES,
    Envelope,
    Json,
    ToolCall,
    decode_json,
    tool_call_problem,
    tool_name,
)
from shikisha.workers.chat_usage import find_usage, merge_usage
from shikisha.workers.provider_profile import vocabulary

Object: TypeAlias = "Mapping[str, object]"

_NO_REASONS = frozenset({"", "null", "none", "finish_reason_unspecified"})
_NO_ARGUMENTS = "{}"  # of a call that has none
# No tool has a longer name, so a name that grows beyond it is refused with its call.
_MAX_NAME = 1_000
_MAX_LOOKS = 100  # at whether the arguments of one call are complete: each reads them all
_READ_FIELDS = frozenset({"role", "content", "refusal", "tool_calls", "function_call", "name", "logprobs"})
_CALL_FIELDS = frozenset({"index", "id", "type", "function", "name", "arguments", "input"})
_PIECE_FIELDS = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "obfuscation"})
_CHOICE_FIELDS = frozenset({"index", "delta", "finish_reason", "logprobs"})
_TEXT_PARTS = frozenset({"text", "output_text", "input_text", ""})
_GROWING_TEXTS = frozenset({"text", "summary", "thinking", "reasoning", "content"})
_CLOSED_BY = ("signature", "data")  # a block that has one is whole
_MAX_NOTES = 10
# How models begin calls that their endpoint's template should have parsed.
_CALL_MARK = re.compile(
    r"<tool_calls?>|<\|tool_calls?(?:_section)?(?:_begin)?\|>|<｜tool▁calls?▁begin｜>|\[TOOL_CALLS\]|<function_calls?>"
    r"|<\|channel\|>commentary|<function[= ]|<invoke name=|<\|python_tag\|>|<functioncall>|```tool_(?:call|code)"
    r"|<[|｜]DSML[|｜]"
)
_ONE_FENCE = re.compile(r"```\w*\n([^`]*)```")
_NAME_KEYS, _ARGUMENT_KEYS = ("name", "tool_name", "tool"), ("arguments", "parameters", "args", "input")
_MAX_WRITTEN_CALL = 100_000  # characters
_WRAPPERS = ("provider", "result", "response", "data")
_ERROR_WORDS = ("error", "errors", "detail", "base_resp")
_ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ID_LENGTH = 9


def call_id(*parts: str) -> str:
    """Return a call id made of these texts, the same each time: nine letters and digits, which every endpoint takes."""
    number = int.from_bytes(sha256("\n".join(parts).encode("utf-8", "surrogatepass")).digest()[:8])
    letters = ""
    for _ in range(_ID_LENGTH):
        number, place = divmod(number, len(_ID_LETTERS))
        letters += _ID_LETTERS[place]
    return letters


def _read_logprobs(given: object) -> Iterator[float]:
    """Yield the tokens' log-probabilities; what is none is left out: it must not spoil an answer."""
    rows = given.get("content") if isinstance(given, dict) else None
    for row in rows if isinstance(rows, list) else ():
        value = row.get("logprob") if isinstance(row, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value <= 0:
            yield float(value)


@dataclass(slots=True)
class _Growth:
    """A JSON value that comes in pieces: thoughts are appended, mappings and lists merged, all else is replaced."""

    texts: list[str] = field(default_factory=list)
    fields: "dict[str, _Growth]" = field(default_factory=dict)
    items: "list[_Growth] | None" = None
    last: Json = None

    def add(self, piece: object, *, grows: bool) -> int:
        """Take a piece and return how much text came with it."""
        match piece:
            case str():
                if grows or not self.texts:
                    self.texts.append(piece)
                elif piece:
                    self.texts = [piece]
                return len(piece) + 1
            case dict():
                names = vocabulary().reasoning | _GROWING_TEXTS
                return 2 + sum(
                    [
                        len(name) + self.fields.setdefault(name, _Growth()).add(inner, grows=name in names)
                        for name, inner in piece.items()
                        if inner is not None
                    ]
                )
            case list():
                self.items = self.items if self.items is not None else []
                return 2 + sum([self._item(inner).add(inner, grows=True) for inner in piece])
            case _:
                self.last = cast("Json", piece)
                return 1

    def _item(self, piece: object) -> "_Growth":
        """Return the item that a piece belongs to: of its index and type, or the last one while that is open."""
        items = self.items if self.items is not None else []
        if isinstance(piece, dict):
            index, kind = piece.get("index"), piece.get("type")
            if type(index) is int:
                for each in reversed(items[-8:]):
                    if each._is(index, kind):
                        return each
            elif items and items[-1]._is(None, kind) and not any(name in items[-1].fields for name in _CLOSED_BY):
                return items[-1]
        items.append(_Growth())
        return items[-1]

    def _is(self, index: int | None, kind: object) -> bool:
        own = self.fields.get("index")
        named = self.fields.get("type")
        same = index is None if own is None else own.last == index
        return same and bool(self.fields) and (named is None or kind is None or "".join(named.texts) == kind)

    def value(self) -> Json:
        """Return the value as far as it has come."""
        if self.items is not None:
            return [each.value() for each in self.items]
        if self.fields:
            return {name: each.value() for name, each in self.fields.items()}
        return "".join(self.texts) if self.texts else self.last


@dataclass(slots=True)
class _PartialToolCall:
    """A tool call as far as it has arrived; `further` are its fields that only the endpoint reads."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    further: _Growth = field(default_factory=_Growth)
    looks: int = 0

    def add(self, piece: "_CallPiece") -> None:
        if piece.id and piece.id == self.id and self.closed and piece.arguments == "".join(self.arguments):
            return  # some endpoints send a call whole once more, at its end
        self.id = self.id or piece.id
        if piece.name and piece.name != self.name and len(self.name) < _MAX_NAME:
            self.name += piece.name  # some endpoints repeat it in every chunk
        self.arguments.append(piece.arguments)

    @property
    def whole_arguments(self) -> str:
        text = "".join(self.arguments).strip()
        if text.startswith('"'):  # written as JSON twice
            with suppress(ValueError):
                text = str(json.loads(text)).strip()
        return _NO_ARGUMENTS if text in ("", "null") else text

    @property
    def closed(self) -> bool:
        """Whether its arguments are complete."""
        if not (self.arguments and self.arguments[-1].rstrip().endswith("}")) or self.looks >= _MAX_LOOKS:
            return False
        self.looks += 1
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except (ValueError, RecursionError):
            return False


@dataclass(frozen=True, slots=True)
class _CallPiece:
    index: int | None
    id: str
    name: str
    arguments: str
    further: Mapping[str, object]


def _call_piece(raw: object) -> _CallPiece:
    """Return a piece of a call, whatever its shape; ValueError for what is none."""
    if not isinstance(raw, dict):
        raise ValueError("a call of a tool that is no object")
    inner = raw.get("function")
    inner = inner if isinstance(inner, dict) else raw
    index, arguments = raw.get("index"), inner.get("arguments", inner.get("input"))
    if isinstance(arguments, dict | list):
        arguments = json.dumps(arguments, ensure_ascii=False)
    further = {name: value for name, value in raw.items() if name not in _CALL_FIELDS and value is not None}
    if inner is not raw and (more := {name: inner[name] for name in inner.keys() - {"name", "arguments"}}):
        further["function"] = more
    known, name = raw.get("id"), inner.get("name")
    if any(value is not None and not isinstance(value, str) for value in (name, arguments)):
        raise ValueError("a call of a tool whose name or arguments are no text")
    return _CallPiece(
        int(index) if isinstance(index, int | float) or (isinstance(index, str) and index.isdecimal()) else None,
        "" if known is None or isinstance(known, dict | list) else str(known),
        name or "",
        arguments or "",
        further,
    )


@dataclass(slots=True)
class ChatReply:
    """The reply so far. `ended`: its end came; `usage` is as the endpoint wrote it; `hide` thoughts between marks."""

    on_text: Callable[[str], None] | None = None
    hide: bool = False
    pieces: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    finish: str | None = None
    model: str = ""
    usage: object = None
    ended: bool = False
    growing: list[_PartialToolCall] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    oversized: bool = False  # more came beside text and calls than an envelope holds
    received: int = 0  # characters of thoughts and all else that is no text
    _places: dict[int | str, int] = field(default_factory=dict)  # by index, and by id
    _logprobs: list[float] = field(default_factory=list)
    _beside: _Growth = field(default_factory=_Growth)
    _thought_parts: bool = False
    _shown: "_ThoughtFilter | None" = None

    def __post_init__(self) -> None:
        if self.hide and self.on_text is not None:
            self._shown = _ThoughtFilter(self.on_text)

    @property
    def confidence(self) -> float | None:
        """The geometric mean of the tokens' probabilities; None where the endpoint gives none that can be true."""
        return exp(fsum(self._logprobs) / len(self._logprobs)) if self._logprobs else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls so far, in order of their first chunks, each with an id of its own."""
        made: dict[str, ToolCall] = {}
        for place, call in enumerate(self.growing):
            own, arguments = call.id, call.whole_arguments
            while not own or own in made:
                own = call_id(own, call.name, arguments, str(place), str(len(made)))
            made[own] = ToolCall(own, call.name, arguments)
        return tuple(made.values())

    @property
    def text(self) -> str:
        """The answer so far, without thoughts where these are hidden."""
        said = "".join(self.pieces)
        return without_thoughts(said) if self.hide else said

    @property
    def refusal(self) -> str:
        """What the model said instead of an answer."""
        return "".join(self.refusals)

    @property
    def truncated(self) -> bool:
        """Whether the answer ran into a limit."""
        return vocabulary().finish.get(self.finish or "") == "truncated"

    @property
    def texts(self) -> tuple[str, ...]:
        """All text that the model is known to have written, besides thoughts in fields of their own."""
        calls = [text for call in self.growing for text in (call.name, *call.arguments)]
        return ("".join(self.pieces), self.refusal, "".join(calls))

    def envelope(self, endpoint: str) -> str:
        """Return what goes back to this endpoint with the turn; "" for nothing."""
        beside = self._beside.value()
        message = dict(beside) if isinstance(beside, dict) else {}
        if not self._thought_parts:
            message.pop("content", None)
        calls = []
        for call in self.growing:
            further = call.further.value()
            calls.append(({"id": call.id} if call.id else {}) | (dict(further) if isinstance(further, dict) else {}))
        message = {name: value for name, value in message.items() if value not in (None, "", [], {})}
        return Envelope(endpoint, message, tuple(calls)).dump() if message or any(calls) else ""

    def end(self) -> None:
        """Say that the end of the reply came."""
        self.ended = True
        if self._shown is not None:
            self._shown.end()

    def note(self, oddity: str) -> None:
        """Remember what is odd about the reply without being wrong."""
        if oddity not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(oddity)

    def take(self, data: str | bytes, *, whole: bool = False) -> object:
        """Add a chunk and return the error that it states, if any; ValueError for what no endpoint means by a chunk.

        `whole`: it is all of the reply, so that there must be an answer or an error in it.
        """
        text = data.strip()
        if not (whole or text[:1] in ("{", b"{") or text[:2] in ("[{", b"[{")):
            if text:
                self.note("the stream holds data that is no object, as sign of life")
            return None
        body = _unwrapped(decode_json(text))
        if (model := body.get("model")) and isinstance(model, str):
            self.model = model
        if (piece := _piece_of(body)) is not None:  # nothing of what follows can be in it
            self._add_choice(piece)
            return None
        choices = _choices(body)
        for holder in (body, *choices):
            if (used := find_usage(holder)) is not None:
                self.usage = merge_usage(self.usage, used)
        if (error := _error_in(body)) is not None:
            return error
        if not choices and not isinstance(body.get("choices"), list):
            if whole or body.get("choices") is not None:
                raise ValueError("a reply without choices")
            self.note("the stream holds objects without choices")
        for choice in choices:
            if isinstance(choice.get("error"), dict):
                return choice["error"]
            index = choice.get("index")
            if isinstance(index, str) and index.isdecimal():
                index = int(index[:9])
            if index is not None and (isinstance(index, bool) or not isinstance(index, int | float)):
                raise ValueError("the index of a choice is no number")
            if not bool(index):
                self._add_choice(choice)
        return None

    def _add_choice(self, choice: Object) -> None:
        said = next((each for name in ("delta", "message") if isinstance(each := choice.get(name), dict)), None)
        if said is None:
            said = {"content": choice.get("text")}
        if choice.get("logprobs") is not None:
            self._logprobs.extend(_read_logprobs(choice["logprobs"]))
        content, refusal = said.get("content"), said.get("refusal")
        if isinstance(content, str):
            self._say(content)
        elif content is not None:
            # Add content that is a list of parts; thoughts and signatures are kept for the endpoint.
            parts = content if isinstance(content, list) else [content]
            for place, part in enumerate(parts):
                if isinstance(part, str):
                    part = {"type": "text", "text": part}
                if not isinstance(part, dict):
                    raise ValueError("a part of the content that is no object")
                kind, text = str(part.get("type") or ""), part.get("text")
                if isinstance(text, dict):
                    text = text.get("value")
                if kind in _TEXT_PARTS and isinstance(text, str):
                    self._say(text)
                elif kind == "refusal" and isinstance(part.get("refusal"), str):
                    self.refusals.append(str(part["refusal"]))
                elif kind in ("tool_use", "tool_call", "function_call"):
                    self._call(_call_piece(part), place)
                    continue
                else:
                    self._thought_parts = True
                self._keep({"content": [part]})
        if isinstance(refusal, str):
            self.refusals.append(refusal)
        if len(said) > ("content" in said):  # most chunks are a piece of text
            self._add_calls(said)
            self._keep({name: value for name, value in said.items() if name not in _READ_FIELDS})
        if (reason := choice.get("finish_reason")) is not None:
            self._finish(reason)

    def _say(self, text: str) -> None:
        if not text:
            return
        self.pieces.append(text)
        if self._shown is not None:
            self._shown.hear(text)
        elif self.on_text is not None:
            self.on_text(text)

    def _keep(self, beside: Object) -> None:
        """Keep what only the endpoint reads, as far as an envelope holds it."""
        if not self.oversized and beside:
            self.received += self._beside.add(beside, grows=False)
            self.oversized = self.received > MAX_ENVELOPE_BYTES

    def _add_calls(self, said: Object) -> None:
        calls = said.get("tool_calls")
        if isinstance(calls, dict):
            calls = [calls]
        if calls is None and isinstance(said.get("function_call"), dict):
            calls = [{"index": 0, "function": said["function_call"]}]
        if calls is not None and not isinstance(calls, list):
            raise ValueError("calls of tools that are no list")
        for place, raw in enumerate(calls or ()):
            self._call(_call_piece(raw), place)

    def _finish(self, reason: object) -> None:
        said = reason.strip().casefold() if isinstance(reason, str) else json.dumps(reason)
        if said in _NO_REASONS:
            return
        kinds = vocabulary().finish
        done = ("complete", "calls")
        if kinds.get(said) not in done or self.finish is None or kinds.get(self.finish) in done:
            # No later reason completes an interrupted answer.
            self.finish = said

    def _call(self, piece: _CallPiece, place: int) -> None:
        """Add a piece to the call that it belongs to.

        Index and id say so, but endpoints omit one, give one index to all, or a new id to each chunk. A chunk that
        begins a call has its name, and the call before it is closed.
        """
        at = self._places.get(piece.index) if piece.index is not None else None
        if at is None and (piece.index is None or not (piece.id or piece.name)):  # some count the pieces of one call
            if piece.id:
                at = self._places.get(piece.id)
            else:
                at = len(self.growing) - 1 if self.growing and (place == 0 or not piece.name) else None
        if at is None or self._begins(piece, self.growing[at]):
            at = len(self.growing)
            self.growing.append(_PartialToolCall())
        if piece.index is not None:
            self._places[piece.index] = at
        self.growing[at].add(piece)
        if self.growing[at].id:
            self._places.setdefault(self.growing[at].id, at)
        if piece.further and not self.oversized:
            self.received += self.growing[at].further.add(piece.further, grows=False)
            self.oversized = self.received > MAX_ENVELOPE_BYTES

    @staticmethod
    def _begins(piece: _CallPiece, call: _PartialToolCall) -> bool:
        if not (piece.name and call.name):
            return False
        if piece.id and call.id:
            return piece.id != call.id
        return not (piece.id and not call.id and not call.arguments) and call.closed

    def objection(
        self, client_options: ClientOptions = NO_CLIENT_OPTIONS, *, short: bool = False
    ) -> WorkerError | None:
        """Return why the reply is no answer; None when it is one. `short`: the client itself set the output limit."""
        text = self.text
        if self.finish is None or not self.ended:
            missing = "finish reason" if self.finish is None else "end"
            return WorkerError(FaultKind.CUT_OFF, f"the reply ended without a {missing}")
        if self.refusal:
            said = f"the model refused: {self.refusal}"
            return WorkerError(FaultKind.REFUSED, said, stated=FaultCause.REFUSED)
        kind = vocabulary().finish.get(self.finish)
        if kind == "refused":
            why = f"a content filter stopped the answer ({self.finish})"
            return WorkerError(FaultKind.REFUSED, why, stated=FaultCause.FILTERED)
        if "prompt" in client_options.as_sent and kind in ("truncated", "complete"):
            return None  # a completed text may be empty, and ends wherever its limit is
        if kind == "truncated":
            if short and not self.growing:
                return None
            return WorkerError(FaultKind.TRUNCATED, f"the answer ran into its output limit ({self.finish})")
        if kind in ("failed", "malformed"):
            fault = FaultKind.SERVER if kind == "failed" else FaultKind.BAD_REPLY
            return WorkerError(fault, f"the answer was broken off: finish reason {self.finish[:60]!r}")
        if kind is None:
            self.note(f"the finish reason {self.finish[:60]!r} is not a known one")
        if self.growing:
            return self._objection_to_calls(client_options)
        if not text.strip():
            if kind == "calls":
                problem = "the reply ends as one that calls tools, and there are no calls in it"
                return WorkerError(FaultKind.BAD_REPLY, problem)
            return WorkerError(FaultKind.EMPTY, "a well-formed reply without text")
        if client_options.tools and _is_written_call(text, {tool_name(tool) for tool in client_options.tools}):
            return WorkerError(
                FaultKind.BAD_REPLY, "the model wrote a call of a tool as text, and its endpoint read none"
            )
        if kind == "calls":
            self.note("the reply ends as one that calls tools, and there are no calls in it")
        return None

    def _objection_to_calls(self, client_options: ClientOptions) -> WorkerError | None:
        if client_options.lenient:
            return None
        problem = tool_call_problem(self.calls, client_options.tools, parallel=client_options.parallel)
        return None if problem is None else WorkerError(FaultKind.BAD_REPLY, problem)


def _is_written_call(text: str, names: Collection[str]) -> bool:
    """Whether a text is a call of a tool that nobody parsed: after a mark, or as JSON that names one of these tools."""
    text = text.strip()
    for found in _CALL_MARK.finditer(text):
        after = text[found.end() : found.end() + _MAX_NAME]
        if any(name in after for name in names) or (not found.start() and after.lstrip()[:1] in ("{", "[")):
            return True
    fenced = _ONE_FENCE.fullmatch(text)
    text = fenced[1] if fenced else text
    if text[:1] not in ("{", "[") or len(text) > _MAX_WRITTEN_CALL:
        return False
    if text.endswith(")]"):  # as a line of Python
        return text[1:].partition("(")[0].strip() in names
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return False
    calls = given if isinstance(given, list) else [given]
    return bool(calls) and all(_names_tool(call, names) for call in calls)


def _names_tool(call: object, names: Collection[str]) -> bool:
    inner = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(inner, dict):
        return False
    name = next((inner[key] for key in _NAME_KEYS if key in inner), None)
    return isinstance(name, str) and name in names and any(key in inner for key in _ARGUMENT_KEYS)


def _piece_of(body: Object) -> "Object | None":
    """Return the choice of a chunk of OpenAI's shape with nothing else, as most of a long stream are; else None."""
    match body:
        case {"object": "chat.completion.chunk", "choices": [{"index": int(index), "delta": dict()}]}:
            piece: Object = cast("Sequence[Object]", body["choices"])[0]
            plain = type(index) is int and not index and piece.keys() <= _CHOICE_FIELDS
            return piece if plain and body.keys() <= _PIECE_FIELDS and body.get("usage") is None else None
    return None


def _unwrapped(body: object) -> Object:
    """Return a reply without what a gateway wraps it in; ValueError for what is no object."""
    if isinstance(body, list) and len(body) == 1:  # Google's errors
        body = body[0]
    if not isinstance(body, dict):
        raise ValueError("a reply that is no object")
    for name in _WRAPPERS if body.get("choices") is None else ():
        if isinstance(inner := body.get(name), dict) and isinstance(inner.get("choices"), list):
            return {**body, **inner}
    return body


def _choices(body: Object) -> Sequence[Object]:
    found = body.get("choices")
    if not isinstance(found, list):
        return [found] if isinstance(found, dict) else ()
    if not all(isinstance(each, dict) for each in found):
        raise ValueError("a choice that is no object")
    return found


def _error_in(body: Object) -> object:
    """Return the error that a body states, whatever its shape; None where it is none."""
    for name in _ERROR_WORDS[:2]:
        if body.get(name):
            return body if isinstance(body[name], str) else body[name]
    if body.get("object") == "error" or body.get("type") == "error":
        return body
    if body.get("choices") is None:
        status = body.get("base_resp")
        if isinstance(status, dict) and status.get("status_code") not in (None, 0):
            return status
        if body.get("detail") or (body.get("message") and (body.get("code") or body.get("type"))):
            return body
    return None


@cache
def _any_mark() -> re.Pattern[str]:
    return re.compile("|".join(re.escape(mark) for marks in vocabulary().marks for mark in marks))


@cache
def _opening_mark() -> re.Pattern[str]:
    return re.compile(rf"\s*({'|'.join(re.escape(opening) for opening, _ in vocabulary().marks)})")


def without_thoughts(text: str) -> str:
    """Return a text without the thoughts at its beginning, where marks show where they end.

    The opening mark may be in the prompt, so that only the closing one comes; it then ends a line.
    """
    if not _any_mark().search(text):
        return text
    marks = vocabulary().marks
    at = _after_thoughts(text)
    if at is None:
        return ""
    for opening, closing in marks if at == 0 else ():
        found = text.find(closing)
        end = found + len(closing)
        if found >= 0 and text[end : end + 1] in ("", "\n") and opening not in text[:found]:
            at = end
            break
    return text[at:].lstrip() if at else text


def _after_thoughts(text: str) -> int | None:
    """Return where the text goes on after the thoughts that it begins with (0: with none); None: it is all thought."""
    at = 0
    while (begun := _opening_mark().match(text, at)) is not None:
        closing = next(closing for opening, closing in vocabulary().marks if opening == begun[1])
        found = text.find(closing, begun.start(1))
        if found < 0:
            return None
        at = found + len(closing)
    return at


class _ThoughtFilter:
    """A listener that holds a text's beginning until it is clear that it is no thought, and leaves thoughts out."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._held: list[str] | None = []
        self._closing = ""
        self._began = False  # thoughts were left out

    def hear(self, piece: str) -> None:
        """Take a piece."""
        if self._held is None:
            self._say(piece)
            return
        self._held.append(piece)
        if self._closing:  # it stands in the last pieces, if it has come
            if self._closing not in "".join(self._held[-len(self._closing) :]):
                return
            self._closing = ""
        text = "".join(self._held)
        at = _after_thoughts(text)
        if at is None:
            begun = text.lstrip()
            self._closing = next((closing for opening, closing in vocabulary().marks if begun.startswith(opening)), "")
            return
        self._began = self._began or at > 0
        text = text[at:].lstrip() if self._began else text
        self._held = [text]
        begun = text.lstrip()
        if begun and not any(opening.startswith(begun) for opening, _ in vocabulary().marks):
            self._held = None
            self._say(text)

    def end(self) -> None:
        """Pass on what was held, at the end of the reply."""
        text, self._held = "".join(self._held or ()), None
        if text and (rest := without_thoughts(text)):
            self._say(rest)


class EventStreamParser:
    """An incremental parser of an event stream (WHATWG HTML, 9.2)."""

    def __init__(self) -> None:
        self._held: list[bytes] = []  # parts of a line that has not ended: each byte is copied once
        self._data: list[bytes] = []
        self._begun = False

    def take(self, part: bytes) -> list[str]:
        """Take bytes and return the data of each event that they complete; ValueError when they are no UTF-8."""
        held_return = bool(self._held) and self._held[-1].endswith(b"\r")
        if part:
            self._held.append(part)
        if not held_return and b"\n" not in part and b"\r" not in part:
            return []
        whole, events = b"".join(self._held), []
        if b"\r" in whole:
            lines = whole.splitlines(keepends=True)
            held = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
            lines = [line.rstrip(b"\r\n") for line in lines]
        else:
            *lines, held = whole.split(b"\n")
        self._held = [held] if held else []
        if lines and not self._begun:
            self._begun, lines[0] = True, lines[0].removeprefix(BOM_UTF8)
        for text in lines:
            name, _, value = text.partition(b":")
            if name == b"data":
                given = value.removeprefix(b" ")
                # Some leave the blank line out: no JSON goes on so after an object.
                if self._data and self._data[-1].endswith(b"}") and given.startswith((b"{", b"[DONE]")):
                    events.append(b"\n".join(self._data).decode())
                    self._data = []
                self._data.append(given)
            elif not text and self._data:
                events.append(b"\n".join(self._data).decode())
                self._data = []
        return events
