"""What the server answers to whom: the first scripted answer that fits the request and is not used up.

Invariant: the same script and the same sequence of requests give the same answers. Deliberately absent: templates; a
test that wants to compute answers passes a function instead of a script.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from shikisha.chatserver.mishaps import Mishap
from shikisha.errors import ConfigError

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Calling(BaseModel):
    """A call of one of the request's tools; arguments that are a text are sent as they are, JSON or not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    arguments: str | dict[str, JsonValue] = {}
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Answer(BaseModel):
    """One scripted answer, or the mishap that comes instead.

    It fits requests whose last message contains `when`, at most `times` times. `calls` are calls of tools, which end
    the answer; one without an id is named after its place and the conversation's length. `latency` is seconds before
    the first byte, `pace` seconds between two pieces of a stream. `cost` is dollars, as some gateways report them in
    `usage`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = "ok"
    calls: tuple[Calling, ...] = ()
    when: str = ""
    times: int | None = Field(default=None, ge=1)
    latency: Seconds = 0.0
    pace: Seconds = 0.0
    mishap: Mishap | None = None
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    cost: float | None = None

    @property
    def said(self) -> str:
        """The text; an answer that calls tools has none unless it is given."""
        return "" if self.calls and "text" not in self.model_fields_set else self.text


@dataclass(frozen=True, slots=True)
class Asked:
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


Chooser: TypeAlias = Callable[[Asked], Answer]


class Script:
    """Answers in order; LookupError when none is left that fits."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = tuple(answers)
        self._used = [0] * len(self._answers)

    def __call__(self, asked: Asked) -> Answer:
        """Return the first answer that fits and is not used up."""
        for place, answer in enumerate(self._answers):
            if answer.when in asked.last and (answer.times is None or self._used[place] < answer.times):
                self._used[place] += 1
                return answer
        raise LookupError(f"no scripted answer fits {asked.last[:80]!r}")

    @classmethod
    def load(cls, path: Path) -> "Script":
        """Read a JSON list of answers; ConfigError names the file and what is wrong."""
        try:
            return cls(TypeAdapter(list[Answer]).validate_json(path.read_bytes()))
        except (OSError, ValidationError) as error:
            raise ConfigError(f"script {path}: {error}") from error
