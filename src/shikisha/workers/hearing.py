"""What arrives of a chat reply, checked piece by piece.

Invariant: text is text, a finish reason is text, calls of tools are put together from pieces that belong to one call,
and what is none of these makes the reply a bad one; an answer is whole only when it ends with a word that says so, and
any other word makes it a truncated, a refused or a failed one. Everything that is not needed is ignored, so that
endpoints may add fields. Deliberately absent: choices after the first (none is asked for).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field, StrictStr

from shikisha.call import NO_WISHES, Wishes
from shikisha.errors import FaultKind, WorkerError
from shikisha.turn import ToolCall, objection
from shikisha.workers.billing import merged

# How an answer ends, in the words of all endpoints that are known (OpenAI, Anthropic, Gemini, Mistral, Cohere, Bedrock,
# DeepSeek, Zhipu, Together, TGI, vLLM): what is not here is no whole answer, whatever else it is.
_TOOL_CALLS = frozenset({"tool_calls", "tool_call", "function_call", "tool_use"})
_WHOLE = frozenset({"stop", "end_turn", "eos", "eos_token", "stop_sequence", "complete", "endoftext"}) | _TOOL_CALLS
_TRUNCATED = frozenset(
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
_REFUSED = frozenset(
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
_FAILED = frozenset(
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
_NONE = frozenset({"", "null", "none", "finish_reason_unspecified"})
_NOTHING = "{}"  # how a call without arguments is written


class _Function(BaseModel):
    name: StrictStr | None = None
    arguments: StrictStr | None = None


class _Call(BaseModel):
    """A call of a tool, or a piece of one."""

    index: Annotated[int, Field(strict=True)] | None = None
    id: StrictStr | None = None
    function: _Function = _Function()


class _Said(BaseModel):
    content: StrictStr | None = None
    refusal: StrictStr | None = None
    tool_calls: list[_Call] | None = None


class _Choice(BaseModel):
    index: Annotated[int, Field(strict=True)] | None = None
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: StrictStr | None = None


class _Piece(BaseModel):
    """A chunk of a stream, or a whole reply."""

    model: StrictStr | None = None
    choices: list[_Choice] | None = None
    usage: object = None
    error: object = None


@dataclass(slots=True)
class _Growing:
    """A call of a tool as far as it has arrived."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, piece: _Call) -> None:
        self.id = self.id or piece.id or ""
        if piece.function.name and piece.function.name != self.name:  # some repeat it in every piece
            self.name += piece.function.name
        self.arguments.append(piece.function.arguments or "")

    def whole(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.arguments).strip() or _NOTHING)


@dataclass(slots=True)
class Hearing:
    """What has arrived so far. `ended`: the protocol's end marker came; `usage` is as the endpoint wrote it."""

    on_text: Callable[[str], None] | None = None
    pieces: list[str] = field(default_factory=list)
    refusal: str = ""
    finish: str | None = None
    model: str = ""
    usage: object = None
    ended: bool = False
    growing: list[_Growing] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of tools so far, in the order in which they began."""
        return tuple(call.whole() for call in self.growing)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self.pieces)

    @property
    def truncated(self) -> bool:
        """Whether the answer ran into a limit."""
        return self.finish in _TRUNCATED

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that the model is known to have written."""
        calls = [text for call in self.growing for text in (call.name, *call.arguments)]
        return (self.text, self.refusal, "".join(calls))

    def take(self, raw: object) -> object:
        """Take a piece in and return the error that it states, if any; ValueError when it has another shape."""
        piece = _Piece.model_validate(raw)
        self.usage = merged(self.usage, piece.usage)
        if piece.error is not None:
            return piece.error
        if piece.choices is None:
            raise ValueError("a reply without choices")
        self.model = piece.model or self.model
        for choice in piece.choices:
            if not choice.index:
                self._hear(choice)
        return None

    def _hear(self, choice: _Choice) -> None:
        said = choice.delta or choice.message
        if said is not None and said.content:
            self.pieces.append(said.content)
            if self.on_text is not None:
                self.on_text(said.content)
        if said is not None and said.refusal:
            self.refusal += said.refusal
        for place, piece in enumerate(said.tool_calls or () if said is not None else ()):
            self._call(piece, place).add(piece)
        reason = (choice.finish_reason or "").strip().casefold()
        if reason not in _NONE and (reason not in _WHOLE or self.finish is None or self.finish in _WHOLE):
            self.finish = reason  # no later word makes a whole answer of one that was broken off

    def _call(self, piece: _Call, place: int) -> _Growing:
        """Return the call that a piece belongs to.

        Index and id say it; endpoints leave out the one, or give one index to all calls, or each piece a new id. What
        begins a call says its name.
        """
        at = self._places.get(piece.index) if piece.index is not None else self._last_of(piece.id, place)
        if at is None or self._begins(piece, self.growing[at]):
            at = len(self.growing)
            self.growing.append(_Growing())
        if piece.index is not None:
            self._places[piece.index] = at
        return self.growing[at]

    def _last_of(self, name: str | None, place: int) -> int | None:
        if name is not None:
            return next((at for at, call in enumerate(self.growing) if call.id == name), None)
        return len(self.growing) - 1 if self.growing and place == 0 else None

    @staticmethod
    def _begins(piece: _Call, call: _Growing) -> bool:
        return bool(piece.id and piece.function.name and call.name and call.id and piece.id != call.id)

    def objection(self, wishes: Wishes = NO_WISHES, *, short: bool = False) -> WorkerError | None:
        """Say why what was heard is no answer; None when it is one. `short`: the client itself set the output limit."""
        text = self.text
        if self.finish is None or not self.ended:
            missing = "finish reason" if self.finish is None else "end marker"
            return WorkerError(FaultKind.CUT_OFF, f"the reply ended without a {missing}")
        if self.refusal:
            return WorkerError(FaultKind.REFUSED, f"the model refused: {self.refusal}")
        if self.finish in _REFUSED:
            return WorkerError(FaultKind.REFUSED, f"a content filter stopped the answer ({self.finish})")
        if self.truncated:
            if short and not self.growing:
                return None
            return WorkerError(FaultKind.TRUNCATED, f"the answer ran into its output limit ({self.finish})")
        if self.finish not in _WHOLE:
            kind = FaultKind.SERVER if self.finish in _FAILED else FaultKind.BAD_REPLY
            return WorkerError(kind, f"the answer was broken off: finish reason {self.finish[:60]!r}")
        if self.growing or self.finish in _TOOL_CALLS:
            return self._objection_to_calls(wishes)
        if not text.strip():
            return WorkerError(FaultKind.EMPTY, "a well-formed reply without text")
        return None

    def _objection_to_calls(self, wishes: Wishes) -> WorkerError | None:
        problem = objection(self.calls, wishes.tools, parallel=wishes.parallel)
        if problem is None and not self.growing:
            problem = "the reply ends as one that calls tools, and there are no calls in it"
        return None if problem is None else WorkerError(FaultKind.BAD_REPLY, problem)
