"""Chat completions as clients read them: a whole one, or chunks.

Invariants: every chunk of a stream has the same id and model; a role chunk comes first, then deltas, then one chunk
that says how it ended, then the usage if it was asked for, then `[DONE]`; what goes wrong once the stream is open comes
in it as an error, and `[DONE]` follows. Deliberately absent: when anything is told (`telling`, `attending`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.server import sse
from shikisha.server.problems import Problem
from shikisha.server.usage import Billed
from shikisha.turn import ToolCall

STOP, LENGTH, TOOLS = "stop", "length", "tool_calls"


@dataclass(frozen=True, slots=True)
class Head:
    """What all chunks of a completion share."""

    run: str
    model: str
    created: int

    @property
    def id(self) -> str:
        """The completion's id, which names its run."""
        return f"chatcmpl-{self.run}"


@dataclass(frozen=True, slots=True)
class Message:
    """What the assistant says, and how it ended."""

    text: str
    finish: str = STOP
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


def completion(head: Head, said: Message, usage: Billed, about: object) -> dict[str, object]:
    """Return a whole completion."""
    message: dict[str, object] = {
        "role": "assistant",
        "content": said.text if said.text or not said.calls else None,
        "refusal": None,
    }
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = _calls(said.calls)
    whole: dict[str, object] = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish}],
        "usage": usage,
    }
    return whole if about is None else whole | {"shikisha": about}


class Chunks:
    """Writes the chunks of one completion."""

    def __init__(self, head: Head) -> None:
        names = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model}
        self._open = f"data: {json.dumps(names, separators=(',', ':'))[:-1]}"

    def role(self) -> bytes:
        """Return the first chunk."""
        return self._delta({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """Return a piece of the answer."""
        return self._delta({"content": piece})

    def reasoning(self, line: str) -> bytes:
        """Return a line about how the answer is made."""
        return self._delta({"reasoning_content": f"{line}\n"})

    def calls(self, calls: Sequence[ToolCall]) -> bytes:
        """Return the calls of the client's tools that are wanted."""
        return self._delta({"tool_calls": [{"index": place, **call} for place, call in enumerate(_calls(calls))]})

    def finish(self, reason: str, about: object = None) -> bytes:
        """Return the chunk that says how it ended."""
        return self._delta({}, reason, {} if about is None else {"shikisha": about})

    def usage(self, usage: Billed) -> bytes:
        """Return the chunk with the usage."""
        return f'{self._open},"choices":[],"usage":{json.dumps(usage)}}}\n\n'.encode()

    @staticmethod
    def error(problem: Problem, run: str) -> bytes:
        """Return an error, in band."""
        return sse.data({**problem.body(), "run": run})

    def _delta(
        self, delta: dict[str, object], finish: str | None = None, more: dict[str, object] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        rest = json.dumps(more, separators=(",", ":"))[1:-1] if more else ""
        written = json.dumps(choice, separators=(",", ":"))
        return f'{self._open},"choices":[{written}]{"," + rest if rest else ""}}}\n\n'.encode()


def _calls(calls: Sequence[ToolCall]) -> list[dict[str, object]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
