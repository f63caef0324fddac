"""What is said in a chat, as data: turns, what is attached to them, a client's tools being called and their results.

Invariants: frozen, and written as JSON that reads back as it was (a journal keeps it so); a link in an attachment is
passed on and never followed. Deliberately absent: the shapes of any API (adapters and the server have those), and what
a turn means to whom (`context` makes chats of requests).

JSON for the hot paths, by pydantic's own core, which takes a quarter of the standard library's time.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from pydantic_core import from_json, to_json

from shikisha.core.errors import TaskError
from shikisha.core.fast_dataclass import dataclass, field, fields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_slow_text = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode_json(value: object) -> bytes:
    """Return a value as compact JSON in UTF-8; ValueError for numbers that JSON lacks."""
    try:
        written = to_json(value)
    except ValueError:  # half a surrogate pair
        return _slow_text(value).encode()
    return _slow_text(value).encode() if _may_be_no_json(written) else written


def encode_ascii_json(value: object) -> str:
    """Return a value as compact JSON that is ASCII; ValueError for numbers that JSON lacks."""
    try:
        written = to_json(value)
    except ValueError:
        return _slow_text(value)
    return written.decode() if written.isascii() and not _may_be_no_json(written) else _slow_text(value)


def decode_json(text: str | bytes) -> object:
    """Return the value of a JSON text; ValueError where it is none."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _may_be_no_json(written: bytes) -> bool:
    """Whether it may hold a number that JSON lacks, or just the word for one."""
    return b"NaN" in written or b"Infinity" in written


Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

IMAGE_TOKENS = 50_000  # the most that any vision model counts for one picture, as far as is published, rounded up
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Speaker(StrEnum):
    """Who says a turn of a chat."""

    SYSTEM = "system"  # us, or the client's own instructions
    USER = "user"  # the one who asks
    ASSISTANT = "assistant"  # a worker
    TOOL = "tool"  # a tool of the client's: the result of a call


class MediaKind(StrEnum):
    """What an attachment is."""

    IMAGE = "image"
    FILE = "file"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class Attachment:
    """An image, a file or a sound: its bytes in base64, or the https link of an image; `detail` is the image's."""

    kind: MediaKind
    media_type: str = ""
    name: str = ""
    data: str = ""
    url: str = ""
    detail: str = ""

    def __post_init__(self) -> None:
        if bool(self.data) == bool(self.url):
            raise TaskError(f"{self.kind} attachment: expected either data or a url")
        if self.url and (self.kind is not MediaKind.IMAGE or not self.url.startswith("https://")):
            raise TaskError(f"{self.kind} attachment: only an image can be a link, and only one that begins https://")
        if self.data and not _BASE64.fullmatch(self.data):
            raise TaskError(f"{self.kind} attachment: the data is not base64")
        if self.data and not _MEDIA_TYPE.fullmatch(self.media_type):
            raise TaskError(f"{self.kind} attachment: {self.media_type[:40]!r} is no media type such as image/png")

    @property
    def tokens(self) -> int:
        """What it counts for in a reservation.

        A picture has a bound of its own. A sound has fewer tokens than bytes; a file is read as its text or as
        pictures of its pages, so it is taken for as many tokens as its data has characters, and no less than a picture.
        """
        if self.kind is MediaKind.IMAGE:
            return IMAGE_TOKENS
        return len(self.data) if self.kind is MediaKind.AUDIO else max(len(self.data), IMAGE_TOKENS)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model wants one of the client's tools to be called: `arguments` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came to, as the client says."""

    tool_call_id: str
    content: str


MAX_ENVELOPE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an endpoint sent with an assistant's turn besides text and calls; it goes back unchanged, to it alone.

    `endpoint` identifies it. `message` are further fields of the message (reasoning, signatures), `calls` those of each
    call, with the endpoint's own id. Nobody else reads them: what is in there is data of the endpoint.
    """

    endpoint: str
    message: Mapping[str, Json] = field(default_factory=dict)
    calls: tuple[Mapping[str, Json], ...] = ()

    def dump(self) -> str:
        """Return it as a text, as turns and journals keep it."""
        return dump_json({"endpoint": self.endpoint, "message": self.message, "calls": self.calls})

    @classmethod
    def load(cls, text: str, endpoint: str) -> "Envelope | None":
        """Return the envelope that `dump` wrote; None where there is none, or it is another endpoint's."""
        plain = json.loads(text) if text else None
        if plain is None or plain["endpoint"] != endpoint:
            return None
        return cls(endpoint, plain["message"], tuple(plain["calls"]))


@dataclass(frozen=True, slots=True)
class ToolExchange:
    """Calls that a model made in one reply, what it said besides, and their results; `envelope` as `Envelope.dump`."""

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...] = ()
    text: str = ""
    envelope: str = ""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat; `calls` are an assistant's, `answers` is the id of the call that a tool's turn answers.

    `envelope` is what the endpoint sent with an assistant's turn besides, as `Envelope.dump` wrote it.
    """

    speaker: Speaker
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    attachments: tuple[Attachment, ...] = ()
    envelope: str = ""

    @property
    def plain(self) -> bool:
        """Whether it is nothing but text."""
        return not (self.calls or self.answers or self.attachments or self.envelope)


def exchange_messages(exchange: ToolExchange) -> Iterator[ChatMessage]:
    """Yield an exchange with the client's tools as turns."""
    yield ChatMessage(Speaker.ASSISTANT, exchange.text, exchange.calls, envelope=exchange.envelope)
    for result in exchange.results:
        yield ChatMessage(Speaker.TOOL, result.content, answers=result.tool_call_id)


MessageRecord: TypeAlias = "ChatMessage | Attachment | ToolCall | ToolResult | ToolExchange"


def dump_records(records: Sequence[MessageRecord]) -> str:
    """Return the records as a JSON list; "" for none."""
    return _ENCODER.encode([_record_fields(record) for record in records]) if records else ""


def dump_json(value: Json) -> str:
    """Return a JSON value as compact text, its keys in the order in which they came."""
    return _ENCODER.encode(value)


def object_schema(**properties: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the JSON Schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def load_messages(text: str) -> tuple[ChatMessage, ...]:
    """Return the turns that `written` wrote."""
    return tuple(_load_message(each) for each in json.loads(text or "[]"))


def load_attachments(text: str) -> tuple[Attachment, ...]:
    """Return the attachments that `written` wrote."""
    return tuple(_load_attachment(each) for each in json.loads(text or "[]"))


def load_tool_calls(text: str) -> tuple[ToolCall, ...]:
    """Return the calls that `written` wrote."""
    return tuple(ToolCall(**each) for each in json.loads(text or "[]"))


def load_tool_results(text: str, calls: Sequence[ToolCall]) -> tuple[ToolResult, ...]:
    """Return a client's results of these calls, in the calls' order; ValueError when it is not one for each of them."""
    try:
        given = {each["tool_call_id"]: ToolResult(each["tool_call_id"], each["content"]) for each in json.loads(text)}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"results of calls: expected a list of tool_call_id and content: {error}") from None
    if given.keys() != {call.id for call in calls}:
        wanted = ", ".join(call.id for call in calls)
        raise ValueError(f"results of calls: expected one for each of {wanted}, found {', '.join(given) or 'none'}")
    if not all(isinstance(result.content, str) for result in given.values()):
        raise ValueError("results of calls: the content is a text")
    return tuple(given[call.id] for call in calls)


def tool_call_problem(calls: Sequence[ToolCall], tools: Sequence[Mapping[str, Json]], *, parallel: bool) -> str | None:
    """Say why these are no calls of these tools; None when they are."""
    names = {tool_name(tool) for tool in tools}
    if not names:
        return "the model calls a tool, and it was given none"
    if len({call.id for call in calls}) < len(calls) or not all(call.id for call in calls):
        return "two calls of tools have the same id, or one has none"
    if len(calls) > 1 and not parallel:
        return f"{len(calls)} calls of tools at once, and the client takes one at a time"
    for call in calls:
        if call.name not in names:
            return f"a call of {call.name[:80]!r}, which is none of {', '.join(sorted(names))}"
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return f"the arguments of {call.name} are no JSON object"
    return None


REQUIRED_TOOL = "required"  # the reply must call one of the client's tools
NO_TOOL = "none"  # it must call none, though they are offered
_NAMED_TOOL = "tool:"  # before the name of the one that it must call


def name_tool_choice(name: str) -> str:
    """Return the tool choice that forces a call of this tool."""
    return f"{_NAMED_TOOL}{name}"


def chosen_tool(choice: str) -> str | None:
    """Return the name of the tool that a choice forces a call of; None where it names none."""
    return choice.removeprefix(_NAMED_TOOL) if choice.startswith(_NAMED_TOOL) else None


def forced_tools(tools: Sequence[Mapping[str, Json]], choice: str) -> tuple[Mapping[str, Json], ...]:
    """Return the tools of which a choice requires a call; none where it requires no call."""
    return tuple([tool for tool in tools if choice == REQUIRED_TOOL or tool_name(tool) == chosen_tool(choice)])


def tool_choice_problem(calls: Sequence[ToolCall], choice: str) -> str | None:
    """Say why a reply with these calls is not what the client's tool choice asks for; None when it is."""
    name = chosen_tool(choice)
    if choice == NO_TOOL and calls:
        return "the model calls a tool, and the client's tool_choice allows none"
    if (choice == REQUIRED_TOOL or name is not None) and not calls:
        return f"the reply calls no tool, and the client's tool_choice requires {name or 'one'}"
    if name is not None and any(call.name != name for call in calls):
        return f"the reply calls another tool than {name}, which the client's tool_choice requires"
    return None


def tool_name(tool: Mapping[str, Json]) -> str:
    """Return the name of a function tool; "" when it is none."""
    function = tool.get("function")
    name = function.get("name") if tool.get("type") == "function" and isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def load_exchanges(text: str) -> tuple[ToolExchange, ...]:
    """Return the exchanges that `written` wrote."""
    return tuple(
        ToolExchange(
            tuple(ToolCall(**call) for call in each["calls"]),
            tuple(ToolResult(**result) for result in each.get("results", ())),
            each.get("text", ""),
            each.get("envelope", ""),
        )
        for each in json.loads(text or "[]")
    )


def _record_fields(record: "DataclassInstance") -> dict[str, Json]:
    values = [(name, getattr(record, name), default) for name, default in _defaults(type(record))]
    return {name: _value(value) for name, value, default in values if value != default}


@cache
def _defaults(make: "type[DataclassInstance]") -> tuple[tuple[str, object], ...]:
    return tuple((field.name, field.default) for field in fields(make))


def _value(value: object) -> Json:
    return [_record_fields(each) for each in value] if isinstance(value, tuple) else str(value)


def _load_message(plain: Mapping[str, str]) -> ChatMessage:
    calls = tuple(ToolCall(**call) for call in _list(plain, "calls"))
    attached = tuple(_load_attachment(each) for each in _list(plain, "attachments"))
    said = (calls, plain.get("answers", ""), attached, plain.get("envelope", ""))
    return ChatMessage(Speaker(plain["speaker"]), plain["text"], *said)


def _load_attachment(plain: Mapping[str, str]) -> Attachment:
    return Attachment(MediaKind(plain["kind"]), **{name: text for name, text in plain.items() if name != "kind"})


def _list(plain: Mapping[str, object], name: str) -> Iterable[Mapping[str, str]]:
    found = plain.get(name, ())
    return found if isinstance(found, list) else ()
