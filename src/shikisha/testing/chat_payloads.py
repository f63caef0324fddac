"""Replies in the protocol's form, built from the SDK's own types, so that both sides speak the same version of it.

Invariant: the chunks of a stream share id and model: a role chunk, the pieces, one finish chunk, then one usage chunk
without choices if asked for; a tool call comes as several pieces of one index. Tokens are counted as a quarter of the
UTF-8 bytes, rounded up. Deliberately absent: several choices, log-probabilities.
"""

import json
import re
from collections.abc import Iterator
from typing import Literal

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

from shikisha.core.fast_dataclass import dataclass
from shikisha.testing.chat_script import InjectedFault, ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall

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
