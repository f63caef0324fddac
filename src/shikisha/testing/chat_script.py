"""What the chat server answers: a script of answers and faults, the request it sees, and the ledger of its charges.

The first scripted answer that fits the request and is not used up is sent. Invariants: the same script and the same
requests give the same answers; a key is charged once, and the same key is answered again from the ledger, after a
restart too when it is kept in a file; each charge is on disk (fsync) before its answer leaves. Requests without a key
are charged every time. Deliberately absent: templates (pass a function instead of a script), and money.
"""

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Annotated, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import asdict, dataclass
from shikisha.core.toml import Table


class InjectedFault(StrEnum):
    """What the server does instead of simply answering."""

    SILENCE = "silence"  # takes the request and never answers
    RATE_SECONDS = "429-seconds"  # Retry-After in seconds
    RATE_DATE = "429-date"  # Retry-After as an HTTP date
    RATE_NEGATIVE = "429-negative"  # Retry-After below zero
    RATE_HUGE = "429-huge"  # Retry-After of years
    ERROR_500 = "500"  # internal error
    ERROR_503 = "503"  # overloaded, with Retry-After
    UNAUTHORIZED = "401"  # and the body repeats the key it was sent
    BAD_REQUEST = "400"  # the request is refused
    REDIRECT = "307"  # to somewhere else
    TRUNCATED = "truncated"  # the connection ends in the middle of the body
    NO_FINISH = "no-finish"  # a stream without finish reason and end marker
    NO_DONE = "no-done"  # a stream without end marker only
    BAD_JSON = "bad-json"  # JSON that breaks off
    HTML = "html"  # a web page under status 200
    WRONG_TYPE = "wrong-type"  # JSON of another shape
    IN_BAND = "in-band"  # an error inside a stream that began well
    HUGE = "huge"  # a body of 100 MB
    ZIPPED = "zipped"  # a compressed body without being asked for
    DRIP = "drip"  # one byte a second
    RESET = "reset"  # a connection reset instead of an answer
    RESET_MIDWAY = "reset-midway"  # a connection reset in the middle of the body
    NO_USAGE = "no-usage"
    NEGATIVE_USAGE = "negative-usage"
    ABSURD_USAGE = "absurd-usage"  # far more tokens than the request has bytes
    BOOLEAN_USAGE = "boolean-usage"
    TEXT_USAGE = "text-usage"
    EMPTY = "empty"  # a well-formed answer without content
    REFUSAL = "refusal"  # the model declines
    FILTERED = "filtered"  # finish reason content_filter
    LENGTH = "length"  # finish reason length

    @property
    def charged(self) -> bool:
        """Whether the answer is charged all the same."""
        return self not in _UNCHARGED


_UNCHARGED = frozenset(
    {
        InjectedFault.RATE_SECONDS,
        InjectedFault.RATE_DATE,
        InjectedFault.RATE_NEGATIVE,
        InjectedFault.RATE_HUGE,
        InjectedFault.ERROR_500,
        InjectedFault.ERROR_503,
        InjectedFault.UNAUTHORIZED,
        InjectedFault.BAD_REQUEST,
        InjectedFault.REDIRECT,
        InjectedFault.HTML,
    }
)


def closed_port() -> str:
    """Return the base URL of a port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


@contextmanager
def black_hole() -> Iterator[str]:
    """Yield the base URL of a port on which connections hang: its queue is full and never accepted."""
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ScriptedToolCall(Table):
    """A call of one of the request's tools; arguments that are a text are sent as they are, JSON or not."""

    name: str
    arguments: str | dict[str, JsonValue] = Field(default={})
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class ScriptedAnswer(Table):
    """One scripted answer, or the fault that comes instead.

    It fits requests whose last message contains `when` and whose first contains `first`, at most `times` times; with
    `results`, only those that hold so many results of tools since the last question. `calls` are calls of tools, which
    end the answer; one without an id is numbered by its place and the conversation's length. `latency` is seconds
    before the first byte, `pace` seconds between two pieces of a stream. `cost` is dollars, as some gateways report
    them in `usage`.
    """

    text: str = "ok"
    calls: tuple[ScriptedToolCall, ...] = ()
    when: str = ""
    first: str = ""
    times: int | None = Field(default=None, ge=1)
    results: int | None = Field(default=None, ge=0)
    latency: Seconds = 0.0
    pace: Seconds = 0.0
    mishap: InjectedFault | None = None
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    cost: float | None = None

    @property
    def said(self) -> str:
        """The text; an answer that calls tools has none unless it is given."""
        return "" if self.calls and "text" not in self.model_fields_set else self.text


@dataclass(frozen=True, slots=True)
class ReceivedChatRequest:
    """A request as the server understood it; `body` is all of it, `headers` are by lower-case name.

    `messages` are pairs of role and text: the content parts that are text, joined. The other parts are in `parts`.
    """

    model: str
    messages: tuple[tuple[str, str], ...]
    stream: bool
    include_usage: bool
    headers: Mapping[str, str]
    body: Mapping[str, object]

    @property
    def key(self) -> str:
        """The idempotency key; "" when there is none."""
        return self.headers.get("idempotency-key", "")

    @property
    def last(self) -> str:
        """The last message's text."""
        return self.messages[-1][1] if self.messages else ""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that the model is offered."""
        found = self.body.get("tools")
        tools = [tool["function"]["name"] for tool in found] if isinstance(found, list) else []
        return tuple(map(str, tools))

    @property
    def tool_results(self) -> tuple[str, ...]:
        """What tools returned since the last question, in order."""
        last = max((place for place, (role, _) in enumerate(self.messages) if role == "user"), default=-1)
        return tuple(text for role, text in self.messages[last + 1 :] if role == "tool")

    @property
    def response_format(self) -> Mapping[str, object] | None:
        """The form that the answer is held to, if any."""
        found = self.body.get("response_format")
        return found if isinstance(found, dict) else None

    @property
    def parts(self) -> tuple[Mapping[str, object], ...]:
        """The content parts that are no text, of all messages."""
        contents = [message.get("content") for message in self._raw if isinstance(message, dict)]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        return tuple(part for part in parts if part.get("type") != "text")

    @property
    def calls(self) -> tuple[Mapping[str, object], ...]:
        """The calls of tools that stand in the messages."""
        made = [message.get("tool_calls") or () for message in self._raw if isinstance(message, dict)]
        return tuple(call for calls in made for call in calls)

    @property
    def messages_hash(self) -> str:
        """SHA-256 (hex) of the messages."""
        return sha256(json.dumps([self.messages, self.parts, self.calls]).encode()).hexdigest()

    @property
    def _raw(self) -> Sequence[object]:
        found = self.body.get("messages")
        return found if isinstance(found, list) else ()


AnswerChooser: TypeAlias = Callable[[ReceivedChatRequest], ScriptedAnswer]


class AnswerScript:
    """Answers in order; LookupError when none is left that fits."""

    def __init__(self, answers: Sequence[ScriptedAnswer]) -> None:
        self._answers = tuple(answers)
        self._used = [0] * len(self._answers)

    def __call__(self, asked: ReceivedChatRequest) -> ScriptedAnswer:
        """Return the first answer that fits and is not used up."""
        for place, answer in enumerate(self._answers):
            unused = answer.times is None or self._used[place] < answer.times
            fits = answer.when in asked.last and answer.first in (asked.messages[0][1] if asked.messages else "")
            if unused and fits and answer.results in {None, len(asked.tool_results)}:
                self._used[place] += 1
                return answer
        raise LookupError(f"no scripted answer fits {asked.last[:80]!r}")

    @classmethod
    def load(cls, path: Path) -> "AnswerScript":
        """Read a JSON list of answers; ConfigError names the file and what is wrong."""
        try:
            return cls(TypeAdapter(list[ScriptedAnswer]).validate_json(path.read_bytes()))
        except (OSError, ValidationError) as error:
            raise ConfigError(f"script {path}: {error}") from error


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A request: its key, the hash of its messages, when it came (Unix time), if it was charged, the answer.

    `calls` are the calls of tools in the answer, as JSON.
    """

    key: str
    messages: str
    at: float
    charged: bool
    text: str
    calls: str = ""


class ChargeLedger:
    """Entries in the order in which requests came."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries: list[LedgerEntry] = []
        self._known: dict[str, LedgerEntry] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self._keep(LedgerEntry(**json.loads(line)))

    @property
    def requests(self) -> Counter[str]:
        """How often each key was asked."""
        return Counter(entry.key for entry in self.entries)

    @property
    def charges(self) -> Counter[str]:
        """How often each key was charged."""
        return Counter(entry.key for entry in self.entries if entry.charged)

    def take(self, key: str, messages: str, text: str, *, chargeable: bool, calls: str = "") -> LedgerEntry:
        """Enter a request and return its entry, with the remembered answer where the key is known."""
        known = self._known.get(key)
        said = (text, calls) if known is None else (known.text, known.calls)
        entry = LedgerEntry(key, messages, time(), chargeable and known is None, *said)
        self._write(entry)
        self._keep(entry)
        return entry

    def _keep(self, entry: LedgerEntry) -> None:
        self.entries.append(entry)
        if entry.charged and entry.key:
            self._known[entry.key] = entry

    def _write(self, entry: LedgerEntry) -> None:
        """Append synchronously: nothing may come between a charge and its record."""
        if self._path is None:
            return
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
            file.flush()
            os.fsync(file.fileno())
