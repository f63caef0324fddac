"""Reading a chat reply: server-sent events, chunks put together, finish reasons, and what the reply says it used.

An answer is complete only when it ends with a finish reason that says so; any other reason makes it a truncated, a
refused or a failed one. Unknown fields are ignored, so endpoints may add some. Stated usage is believed only as far as
it can be true: a number far beyond what request and limit allow counts as absent, and one below what any tokenizer
needs for these texts is replaced by an estimate, so no endpoint is free because it says so. The bounds are generous
(an endpoint may add a long prompt of its own): they catch nonsense, they do not audit.

Invariants: an event is delivered as soon as its blank line arrives, however the bytes were cut; tokens and dollars are
never negative. Deliberately absent: reconnecting, choices after the first, and a tokenizer: no byte-level tokenizer
makes more tokens than bytes, which is the only upper bound that always holds.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, fsum, inf, isfinite
from operator import ne
from typing import Annotated

from pydantic import BaseModel, Field, StrictStr, ValidationError

from shikisha.core.budget import Usage
from shikisha.core.call import NO_CLIENT_OPTIONS, ClientOptions
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.messages import ToolCall, tool_call_problem
from shikisha.core.visibility import max_usage, output_limit
from shikisha.engine.worker import Card, ChatMessage

# A run of one character (spaces, a ruler, "aaaa") can be a single token, so what is counted is where the character
# changes. cl100k_base and o200k_base have 0.9 to 5.2 such changes a token in prose, code, JSON and tables of eight
# languages, and to 15.9 at most in patterns ("-=-=-="); beyond 16 are only texts that repeat one very long word, of
# which the two vocabularies have 443 and 43 in all. Images, files and schemas of tools are not counted at all.
_MOST_CHANGES_A_TOKEN = 16
# The usual ratio, for the estimate that replaces an impossible number.
_CHANGES_A_TOKEN = 4
_TOLERANCE_FACTOR = 10
_TOLERANCE_TOKENS = 100_000
# For one call of a worker without a price.
_MAX_DOLLARS = 100.0

# No tool has a longer name, so a name that grows beyond it is refused with its call.
_MAX_NAME = 1_000

TokenCount = Annotated[int, Field(strict=True, ge=0)]


class _PromptDetails(BaseModel):
    cached_tokens: TokenCount | None = None
    orchestration_input_tokens: TokenCount | None = None
    orchestration_input_cached_tokens: TokenCount | None = None


class _CompletionDetails(BaseModel):
    reasoning_tokens: TokenCount | None = None
    orchestration_output_tokens: TokenCount | None = None


class _UsageCounts(BaseModel):
    """The `usage` of a reply: only what is billed."""

    prompt_tokens: TokenCount
    completion_tokens: TokenCount
    total_tokens: object = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


def read_usage(
    raw: object, said: tuple[ChatMessage, ...], card: Card, wishes: ClientOptions = NO_CLIENT_OPTIONS
) -> Usage | None:
    """Return the usage that a reply states; None for none, or an impossible one."""
    try:
        counts = _UsageCounts.model_validate(raw)
    except ValidationError:
        return None
    into = counts.prompt_tokens_details or _PromptDetails()
    out = counts.completion_tokens_details or _CompletionDetails()
    usage = Usage(
        input_tokens=counts.prompt_tokens + (into.orchestration_input_tokens or 0),
        output_tokens=counts.completion_tokens + (out.orchestration_output_tokens or 0),
        cached_tokens=(into.cached_tokens or 0) + (into.orchestration_input_cached_tokens or 0),
        reasoning_tokens=out.reasoning_tokens or 0,
    )
    most, output = max_tokens(said, card, wishes), _with_reasoning(usage, counts.total_tokens)
    beside = usage if output == usage.output_tokens else replace(usage, output_tokens=output)
    return next((each for each in (beside, usage) if _is_plausible(each, most)), None)


def _with_reasoning(usage: Usage, total: object) -> int:
    """Return the output tokens with the reasoning that xAI and Gemini count in the total only, and bill."""
    output = usage.output_tokens
    if type(total) is int and total > usage.total:
        return total - usage.input_tokens
    return output + usage.reasoning_tokens if usage.reasoning_tokens > output else output


def with_minimum_tokens(usage: Usage, sent: Iterable[str], received: Iterable[str]) -> Usage:
    """Return the usage, with an estimate where a number is below what any tokenizer makes of these texts."""
    read = _minimum_tokens(usage.input_tokens, tuple(filter(None, sent)))
    wrote = _minimum_tokens(usage.output_tokens, tuple(filter(None, received)))
    if (read, wrote) == (usage.input_tokens, usage.output_tokens):
        return usage
    return replace(usage, input_tokens=read, output_tokens=wrote)


def _minimum_tokens(stated: int, texts: tuple[str, ...]) -> int:
    """Return the stated number unless it is impossible; characters are counted only where the cheap bound fails."""
    if stated >= len(texts) + sum(map(len, texts)) // _MOST_CHANGES_A_TOKEN:
        return stated
    changes = sum(1 + sum(map(ne, text, text[1:])) for text in texts)
    least = max(1, changes // _MOST_CHANGES_A_TOKEN) if texts else 0
    return stated if stated >= least else -(-changes // _CHANGES_A_TOKEN)


def merge_usage(before: object, now: object) -> object:
    """Merge the usage of several chunks into the first: the larger of each count, in time linear in `now`.

    Some endpoints repeat the whole so far in each chunk; others state the input first and the output last.
    """
    if not isinstance(before, dict) or not isinstance(now, Mapping):
        return before if now is None else now
    for name, count in now.items():
        before[name] = _larger_count(before[name], count) if name in before else count
    return before


def _larger_count(before: object, now: object) -> object:
    if isinstance(before, Mapping):
        return merge_usage(before, now)
    if now is None or (isinstance(before, int | float) and isinstance(now, int | float) and before > now):
        return before
    return now


def _is_plausible(usage: Usage, most: Usage) -> bool:
    return (
        usage.cached_tokens <= usage.input_tokens <= _TOLERANCE_FACTOR * most.input_tokens + _TOLERANCE_TOKENS
        and usage.output_tokens <= _TOLERANCE_FACTOR * most.output_tokens + _TOLERANCE_TOKENS
    )


def max_tokens(said: tuple[ChatMessage, ...], card: Card, wishes: ClientOptions = NO_CLIENT_OPTIONS) -> Usage:
    """Return the most that this call can use, whatever the model's context holds."""
    tokens = max_usage(said, card, wishes, by_context=False).tokens
    output = output_limit(card, wishes)
    return Usage(tokens - output, output)


def read_cost(raw: object, usage: Usage, card: Card) -> float | None:
    """Return the dollars that a gateway states in `usage.cost`; None for none, or an impossible amount.

    A call that the card prices is not believed to be free, nor to cost a small part of its price or many times as
    much; what is cached may cost next to nothing.
    """
    cost = raw.get("cost") if isinstance(raw, Mapping) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < inf:
        return None
    price = card.price.of(usage) if card.price is not None else 0.0
    if card.price is not None and price > 0:
        fresh = Usage(usage.input_tokens - usage.cached_tokens, usage.output_tokens)
        believed = card.price.of(fresh) <= _TOLERANCE_FACTOR * cost and 0 < cost <= _TOLERANCE_FACTOR * price
        return float(cost) if believed else None
    return float(cost) if cost <= _MAX_DOLLARS else None


# Finish reasons in the words of all known endpoints (OpenAI, Anthropic, Gemini, Mistral, Cohere, Bedrock,
# DeepSeek, Zhipu, Together, TGI, vLLM): an answer with any other reason is incomplete.
_TOOL_CALL_REASONS = frozenset({"tool_calls", "tool_call", "function_call", "tool_use"})
_COMPLETE_REASONS = (
    frozenset({"stop", "end_turn", "eos", "eos_token", "stop_sequence", "complete", "endoftext"}) | _TOOL_CALL_REASONS
)
_TRUNCATED_REASONS = frozenset(
    {
        "length",
        "max_tokens",
        "max_output_tokens",
        "max_completion_tokens",
        "max_new_tokens",
        "max_length",
        "model_length",
        "token_limit",
        "model_context_window_exceeded",
    }
)
_REFUSED_REASONS = frozenset(
    {
        "content_filter",
        "content_filtered",
        "sensitive",
        "safety",
        "image_safety",
        "refusal",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
        "guardrail_intervened",
        "error_toxic",
    }
)
_FAILED_REASONS = frozenset(
    {
        "error",
        "abort",
        "aborted",
        "cancelled",
        "user_cancel",
        "network_error",
        "insufficient_system_resource",
        "not_finished",
        "time_limit",
        "timeout",
    }
)
_NO_REASONS = frozenset({"", "null", "none", "finish_reason_unspecified"})
# The arguments of a call that has none.
_NO_ARGUMENTS = "{}"


class _FunctionChunk(BaseModel):
    name: StrictStr | None = None
    arguments: StrictStr | None = None


class _ToolCallChunk(BaseModel):
    """A chunk of a tool call."""

    index: Annotated[int, Field(strict=True)] | None = None
    id: StrictStr | None = None
    function: _FunctionChunk = _FunctionChunk()


class _MessageChunk(BaseModel):
    content: StrictStr | None = None
    refusal: StrictStr | None = None
    tool_calls: list[_ToolCallChunk] | None = None


class _ChoiceChunk(BaseModel):
    index: Annotated[int, Field(strict=True)] | None = None
    delta: _MessageChunk | None = None
    message: _MessageChunk | None = None
    text: StrictStr | None = None  # of a text completion
    logprobs: object = None
    finish_reason: StrictStr | None = None


class _ReplyChunk(BaseModel):
    """A chunk of a stream, or a whole reply."""

    model: StrictStr | None = None
    choices: list[_ChoiceChunk] | None = None
    usage: object = None
    error: object = None


def _read_chunk(data: str | bytes) -> _ReplyChunk:
    """Return a chunk; ValueError for another shape. What pydantic cannot read, `json` may (half a surrogate pair)."""
    try:
        return _ReplyChunk.model_validate_json(data)
    except ValidationError:
        return _ReplyChunk.model_validate(json.loads(data))


def _read_logprobs(given: object) -> Iterator[float]:
    """Yield the tokens' log-probabilities; what is none is left out: it must not spoil an answer."""
    rows = given.get("content") if isinstance(given, dict) else None
    for row in rows if isinstance(rows, list) else ():
        value = row.get("logprob") if isinstance(row, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value <= 0:
            yield float(value)


@dataclass(slots=True)
class _PartialToolCall:
    """A tool call as far as it has arrived."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, piece: _ToolCallChunk) -> None:
        self.id = self.id or piece.id or ""
        if piece.function.name and piece.function.name != self.name and len(self.name) < _MAX_NAME:
            self.name += piece.function.name  # some endpoints repeat it in every chunk
        self.arguments.append(piece.function.arguments or "")

    def whole(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.arguments).strip() or _NO_ARGUMENTS)


@dataclass(slots=True)
class ChatReply:
    """The reply so far. `ended`: the end marker came; `usage` is as the endpoint wrote it."""

    on_text: Callable[[str], None] | None = None
    pieces: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    finish: str | None = None
    model: str = ""
    usage: object = None
    ended: bool = False
    growing: list[_PartialToolCall] = field(default_factory=list)
    _places: dict[int | str, int] = field(default_factory=dict)  # by index, and by id
    _logprobs: list[float] = field(default_factory=list)

    @property
    def confidence(self) -> float | None:
        """The geometric mean of the tokens' probabilities; None where the endpoint gives none that can be true."""
        return exp(fsum(self._logprobs) / len(self._logprobs)) if self._logprobs else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls so far, in order of their first chunks."""
        return tuple(call.whole() for call in self.growing)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self.pieces)

    @property
    def refusal(self) -> str:
        """What the model said instead of an answer."""
        return "".join(self.refusals)

    @property
    def truncated(self) -> bool:
        """Whether the answer ran into a limit."""
        return self.finish in _TRUNCATED_REASONS

    @property
    def texts(self) -> tuple[str, ...]:
        """All text that the model is known to have written."""
        calls = [text for call in self.growing for text in (call.name, *call.arguments)]
        return (self.text, self.refusal, "".join(calls))

    def take(self, data: str | bytes) -> object:
        """Add a chunk and return the error that it states, if any; ValueError for another shape."""
        piece = _read_chunk(data)
        self.usage = merge_usage(self.usage, piece.usage)
        if piece.error is not None:
            return piece.error
        if piece.choices is None:
            raise ValueError("a reply without choices")
        self.model = piece.model or self.model
        for choice in piece.choices:
            if not choice.index:
                self._add_choice(choice)
        return None

    def _add_choice(self, choice: _ChoiceChunk) -> None:
        said = choice.delta or choice.message or _MessageChunk(content=choice.text)
        self._logprobs.extend(_read_logprobs(choice.logprobs))
        if said.content:
            self.pieces.append(said.content)
            if self.on_text is not None:
                self.on_text(said.content)
        if said.refusal:
            self.refusals.append(said.refusal)
        for place, piece in enumerate(said.tool_calls or ()):
            at = self._call(piece, place)
            self.growing[at].add(piece)
            if self.growing[at].id:
                self._places.setdefault(self.growing[at].id, at)
        reason = (choice.finish_reason or "").strip().casefold()
        if reason not in _NO_REASONS and (
            reason not in _COMPLETE_REASONS or self.finish is None or self.finish in _COMPLETE_REASONS
        ):
            # No later reason completes an interrupted answer.
            self.finish = reason

    def _call(self, piece: _ToolCallChunk, place: int) -> int:
        """Return the position of the call that a chunk belongs to.

        Index and id say so, but endpoints omit one, give one index to all, or a new id to each chunk. A chunk that
        begins a call has its name.
        """
        at = self._places.get(piece.index) if piece.index is not None else self._last_of(piece.id, place)
        if at is None or self._begins(piece, self.growing[at]):
            at = len(self.growing)
            self.growing.append(_PartialToolCall())
        if piece.index is not None:
            self._places[piece.index] = at
        return at

    def _last_of(self, name: str | None, place: int) -> int | None:
        if name is not None:
            return self._places.get(name)
        return len(self.growing) - 1 if self.growing and place == 0 else None

    @staticmethod
    def _begins(piece: _ToolCallChunk, call: _PartialToolCall) -> bool:
        return bool(piece.id and piece.function.name and call.name and call.id and piece.id != call.id)

    def objection(self, wishes: ClientOptions = NO_CLIENT_OPTIONS, *, short: bool = False) -> WorkerError | None:
        """Return why the reply is no answer; None when it is one. `short`: the client itself set the output limit."""
        text = self.text
        if self.finish is None or not self.ended:
            missing = "finish reason" if self.finish is None else "end marker"
            return WorkerError(FaultKind.CUT_OFF, f"the reply ended without a {missing}")
        if self.refusal:
            return WorkerError(FaultKind.REFUSED, f"the model refused: {self.refusal}")
        if self.finish in _REFUSED_REASONS:
            return WorkerError(FaultKind.REFUSED, f"a content filter stopped the answer ({self.finish})")
        if "prompt" in wishes.as_sent and (self.truncated or self.finish in _COMPLETE_REASONS):
            return None  # a completed text may be empty, and ends wherever its limit is
        if self.truncated:
            if short and not self.growing:
                return None
            return WorkerError(FaultKind.TRUNCATED, f"the answer ran into its output limit ({self.finish})")
        if self.finish not in _COMPLETE_REASONS:
            kind = FaultKind.SERVER if self.finish in _FAILED_REASONS else FaultKind.BAD_REPLY
            return WorkerError(kind, f"the answer was broken off: finish reason {self.finish[:60]!r}")
        if self.growing or self.finish in _TOOL_CALL_REASONS:
            return self._objection_to_calls(wishes)
        if not text.strip():
            return WorkerError(FaultKind.EMPTY, "a well-formed reply without text")
        return None

    def _objection_to_calls(self, wishes: ClientOptions) -> WorkerError | None:
        if wishes.lenient and (self.growing or self.text.strip()):
            return None
        problem = tool_call_problem(self.calls, wishes.tools, parallel=wishes.parallel)
        if problem is None and not self.growing:
            problem = "the reply ends as one that calls tools, and there are no calls in it"
        return None if problem is None else WorkerError(FaultKind.BAD_REPLY, problem)


class EventStreamParser:
    """An incremental parser of an event stream (WHATWG HTML, 9.2)."""

    def __init__(self) -> None:
        self._held: list[bytes] = []  # parts of a line that has not ended: each byte is copied once
        self._data: list[bytes] = []
        self._begun = False

    def take(self, part: bytes) -> list[str]:
        """Take the next bytes in and return the data of each event that they complete; ValueError when they are no
        UTF-8."""
        held_return = bool(self._held) and self._held[-1].endswith(b"\r")
        if part:
            self._held.append(part)
        if not held_return and b"\n" not in part and b"\r" not in part:
            return []
        whole, events = b"".join(self._held), []
        if b"\r" in whole:
            lines = whole.splitlines(keepends=True)
            held = lines.pop() if lines and not _is_complete_line(lines[-1]) else b""
            lines = [line.rstrip(b"\r\n") for line in lines]
        else:
            *lines, held = whole.split(b"\n")
        self._held = [held] if held else []
        for place, text in enumerate(lines):
            if not place:
                text = self._first(text)
            if text.startswith(b"data: "):
                self._data.append(text[6:])
            elif text.startswith(b"data"):
                self._data += _data_field(text)
            elif not text and self._data:
                events.append(b"\n".join(self._data).decode())
                self._data = []
        return events

    def rest(self) -> str:
        """Return the data of a last event without its blank line; empty without one."""
        last = self._first(b"".join(self._held).rstrip(b"\r\n"))
        return b"\n".join([*self._data, *_data_field(last)]).decode(errors="replace")

    def _first(self, line: bytes) -> bytes:
        """Return a line, the first one without its byte order mark."""
        if self._begun:
            return line
        self._begun = True
        return line.removeprefix(BOM_UTF8)


def _is_complete_line(line: bytes) -> bool:
    """Whether a line is complete; a CR may be the first half of a line break."""
    return line.endswith(b"\n")


def _data_field(line: bytes) -> list[bytes]:
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []
