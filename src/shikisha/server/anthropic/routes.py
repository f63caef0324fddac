"""`POST /v1/messages` and `/v1/messages/count_tokens`, as Anthropic's SDKs and Claude Code speak it.

Invariants: as in `chat.completion`; in a stream come `message_start`, then for each content block its start, deltas and
stop, then `message_delta` with the stop reason and the whole usage, then `message_stop`; an error after the first event
is an `error` event. Every message has an id of its own, though a run that waits for its client's tools gives several.
Errors have Anthropic's shape (`http.api_errors`).
"""

import json
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sse_starlette import ServerSentEvent

from shikisha.core.messages import (
    NO_TOOL,
    Attachment,
    ChatMessage,
    Json,
    Speaker,
    ToolCall,
)
from shikisha.core.task import Task
from shikisha.server.anthropic.schema import (
    BLOCK_TYPES,
    REFUSED_BLOCKS,
    TOOL_TYPES,
    AnthropicMessage,
    AnthropicTool,
    Base64Source,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    MessagesRequest,
    RedactedThinkingBlock,
    ResultPart,
    SearchResultBlock,
    TextBlock,
    TextSource,
    ThinkingBlock,
    TokenCountRequest,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from shikisha.server.chat.completion import (
    FINISH_LENGTH,
    FINISH_STOP,
    FINISH_TOOL_CALLS,
    CompletionEnd,
    CompletionRequest,
    RunCompletion,
)
from shikisha.server.chat.conversation import Conversation, forced_choice
from shikisha.server.http.api_errors import SSE_CONTENT, AnthropicErrorBody, ApiError, anthropic_body, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.connections import CONNECTION
from shikisha.server.http.request import (
    drop_foreign,
    file_attachment,
    ignored_header,
    image_attachment,
    read_json,
    read_request_options,
    request_body_doc,
    validate_known,
)
from shikisha.server.http.run_result import NO_RETRY, RunUsage, finished_headers, started_headers
from shikisha.server.http.streams import event_stream, named_event, run_unless_disconnected, stream_grace
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, check_schema_sizes, check_schemas
from shikisha.server.lifecycle.service import RunService, read_idempotency_key

# From Anthropic's messages to a task: the last user message that asks something is the prompt, the rest its history.
#
# A user message that holds results of tools continues the task: text next to results goes with the last of them, as
# Claude Code puts its reminders there. Invariant: nothing is dropped in silence. An image in a tool's result is named
# in the result's text, because a worker reads results as text. A conversation that cannot be answered is a 400 that
# names the message.

_EMPTY_RESULT = "(no output)"
_FAILED_RESULT = "The tool failed."
_IMAGE_TOKENS = 1600  # what Anthropic counts for a picture of the largest size that it does not shrink
_CHARACTERS_PER_TOKEN = 4
_BLOCK_TOKENS = 4
# Anthropic's budgets of thinking as efforts: the tokens up to which each reaches.
_EFFORT_BUDGETS = ((2_048, "low"), (16_384, "medium"))


def task_from_messages(request: MessagesRequest) -> Task:
    """Return the task that a request asks for."""
    talk = read_messages(request)
    question = talk.turns[talk.asked or 0]
    choice = read_anthropic_choice(request)
    offered: Sequence[AnthropicTool] = [] if choice == NO_TOOL else request.tools or []
    parallel = request.tool_choice.disable_parallel_tool_use if request.tool_choice else None
    return Task(
        talk.prompt(),
        history=talk.history(),
        attachments=question.attachments,
        exchanges=talk.exchanges(),
        tools=tuple(_function_tool(tool) for tool in offered),
        parallel_tool_calls=(not parallel) if parallel is not None and offered else None,
        answer_schema=_answer_schema(request),
        options=_options(request),
        tool_choice="" if choice == NO_TOOL else choice,
    )


def read_anthropic_choice(request: MessagesRequest) -> str:
    """Return the tool choice of a request, as a task has it; 400 where it names a tool that is not there."""
    given, names = request.tool_choice, [tool.name for tool in request.tools or ()]
    if given is None or given.type == "auto":
        return ""
    if given.type == "none":
        return NO_TOOL
    if given.type == "any":
        return forced_choice(names, None, "tool_choice.type")
    if given.name is None:
        raise ApiError(400, "tool_choice.name: missing", "missing_required_parameter", param="tool_choice.name")
    return forced_choice(names, given.name, "tool_choice.name")


def read_messages(request: MessagesRequest) -> Conversation:
    """Return the messages as turns; 400 for a conversation that cannot be answered."""
    talk, open_calls = Conversation(), dict[str, None]()
    system = request.system
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    talk.turns += [ChatMessage(Speaker.SYSTEM, text) for text in texts if text]
    for place, message in enumerate(request.messages):
        _add_message(talk, message, f"messages[{place}]", open_calls)
    if open_calls:
        raise _invalid_value("messages", f"expected tool_result blocks for {', '.join(open_calls)}")
    if talk.asked is None:
        raise _invalid_value("messages", "expected a user message that asks something")
    return talk


def _add_message(talk: Conversation, message: AnthropicMessage, where: str, open_calls: dict[str, None]) -> None:
    blocks: Sequence[ContentBlock] = (
        [TextBlock(type="text", text=message.content)] if isinstance(message.content, str) else message.content
    )
    if message.role == "assistant":
        turn = _assistant_turn(blocks, where)
        open_calls |= dict.fromkeys(call.id for call in turn.calls)
        talk.turns.append(turn)
        return
    results = [(place, block) for place, block in enumerate(blocks) if isinstance(block, ToolResultBlock)]
    if open_calls and not results:
        raise _invalid_value(where, f"expected tool_result blocks first, for {', '.join(open_calls)}")
    for place, block in enumerate(blocks):
        if isinstance(block, ToolUseBlock):
            raise _invalid_value(f"{where}.content[{place}]", "only an assistant's message can call a tool")
    texts = [text for block in blocks if (text := _block_text(block)) is not None]
    attached = [
        _attachment(block, f"{where}.content[{place}]")
        for place, block in enumerate(blocks)
        if isinstance(block, ImageBlock | DocumentBlock) and _block_text(block) is None
    ]
    if message.role in ("system", "developer"):
        if results or attached:
            raise _invalid_value(where, "a system message can hold text only")
        talk.turns.append(ChatMessage(Speaker.SYSTEM, "\n\n".join(texts)))
    elif not results:
        talk.asked = len(talk.turns)
        talk.turns.append(ChatMessage(Speaker.USER, "\n\n".join(texts), attachments=tuple(attached)))
    else:
        _add_results(talk, results, where, open_calls, [*texts, *map(_describe_attachment, attached)])


def _block_text(block: ContentBlock | ResultPart) -> str | None:
    """Return the text that a block is; None for one that is something else."""
    match block:
        case TextBlock(text=text):
            return text
        case DocumentBlock(source=TextSource(data=text), title=title):
            return f"{title}\n\n{text}" if title else text
        case SearchResultBlock():
            return "\n\n".join([f"{block.title} ({block.source})", *[part.text for part in block.content]])
        case ToolReferenceBlock():
            return f"[tool {block.tool_name}]"
        case _:
            return None


def _add_results(
    talk: Conversation,
    results: Sequence[tuple[int, ToolResultBlock]],
    where: str,
    open_calls: dict[str, None],
    besides: Sequence[str],
) -> None:
    """Add the results of a message; what it says besides goes with the last one."""
    for number, (place, block) in enumerate(results, start=1):
        if block.tool_use_id not in open_calls:
            said = f"no tool_use {block.tool_use_id[:60]!r} waits for a result here"
            raise _invalid_value(f"{where}.content[{place}].tool_use_id", said)
        del open_calls[block.tool_use_id]
        said = _result_text(block, f"{where}.content[{place}]")
        if number == len(results) and besides:
            said = "\n\n".join([said, *besides])
        talk.turns.append(ChatMessage(Speaker.TOOL, said, answers=block.tool_use_id))


def _assistant_turn(blocks: Sequence[ContentBlock], where: str) -> ChatMessage:
    texts, calls = list[str](), list[ToolCall]()
    for place, block in enumerate(blocks):
        match block:
            case TextBlock():
                texts.append(block.text)
            case ToolUseBlock():
                calls.append(ToolCall(block.id, block.name, json.dumps(block.input, ensure_ascii=False)))
            case ThinkingBlock() | RedactedThinkingBlock():
                pass  # clients send whole answers back
            case _:
                said = f"an assistant's message cannot hold a block of type {block.type}"
                raise _invalid_value(f"{where}.content[{place}]", said)
    return ChatMessage(Speaker.ASSISTANT, "\n\n".join(texts), tuple(calls))


def _result_text(block: ToolResultBlock, where: str) -> str:
    parts: Sequence[ResultPart] = [] if block.content is None or isinstance(block.content, str) else block.content
    texts = [block.content] if isinstance(block.content, str) else list[str]()
    for place, part in enumerate(parts):
        if (said := _block_text(part)) is not None:
            texts.append(said)
        elif isinstance(part, ImageBlock | DocumentBlock):
            texts.append(_describe_attachment(_attachment(part, f"{where}.content[{place}]")))
    text = "\n\n".join(texts)
    if block.is_error:
        return f"{_FAILED_RESULT}\n{text}" if text else _FAILED_RESULT
    return text or _EMPTY_RESULT


def _describe_attachment(attached: Attachment) -> str:
    what = attached.media_type or "a linked image"
    return f"[{attached.kind}: {what}; not shown, because results of tools are read as text here]"


def _attachment(block: ImageBlock | DocumentBlock, where: str) -> Attachment:
    source = block.source
    at = f"{where}.source"
    if isinstance(block, DocumentBlock) and isinstance(source, Base64Source):
        return file_attachment(f"data:{source.media_type};base64,{source.data}", block.title or "document", at)
    if isinstance(source, Base64Source):
        return image_attachment(f"data:{source.media_type};base64,{source.data}", None, at)
    return image_attachment(source.url if source.type == "url" else "", None, at)


def _function_tool(tool: AnthropicTool) -> dict[str, Json]:
    """Return a tool as a task has it: in the chat API's shape."""
    function: dict[str, Json] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _answer_schema(request: MessagesRequest) -> dict[str, Json] | None:
    form = request.output_config.format if request.output_config else None
    form = form or request.output_format
    return dict(form.schema_) if form else None


def _options(request: MessagesRequest) -> dict[str, Json]:
    options: dict[str, Json] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": request.stop_sequences or None,
        "max_completion_tokens": request.max_tokens,
        "reasoning_effort": _reasoning_effort(request),
    }
    return {name: value for name, value in options.items() if value is not None}


def _reasoning_effort(request: MessagesRequest) -> str | None:
    """Return the effort that is asked for: by its name, or as a budget of thinking."""
    if request.output_config is not None and request.output_config.effort is not None:
        return request.output_config.effort
    thinking = request.thinking
    if thinking is None or thinking.type != "enabled" or thinking.budget_tokens is None:
        return None
    budget = thinking.budget_tokens
    return next((effort for most, effort in _EFFORT_BUDGETS if budget <= most), "high")


def estimate_tokens(request: TokenCountRequest) -> int:
    """Return about how many tokens the input has: workers have tokenizers of their own, so nobody knows exactly."""
    texts, images = list[str](), 0
    system = request.system
    texts += [system] if isinstance(system, str) else [block.text for block in system or ()]
    texts += [json.dumps(_function_tool(tool)) for tool in request.tools or ()]
    for message in request.messages:
        blocks = [TextBlock(type="text", text=message.content)] if isinstance(message.content, str) else message.content
        for block in blocks:
            if isinstance(block, ImageBlock):
                images += 1
            else:
                texts.append(_counted_text(block))
                parts = block.content if isinstance(block, ToolResultBlock) else None
                images += sum(isinstance(part, ImageBlock) for part in parts or () if not isinstance(parts, str))
    characters = sum(map(len, texts))
    return -(-characters // _CHARACTERS_PER_TOKEN) + _BLOCK_TOKENS * len(texts) + _IMAGE_TOKENS * images


def _counted_text(block: ContentBlock) -> str:
    match block:
        case ToolUseBlock():
            return json.dumps([block.name, block.input])
        case ToolResultBlock(content=str(text)):
            return text
        case ToolResultBlock(content=list(parts)):
            return "\n".join(_block_text(part) or "" for part in parts)
        case DocumentBlock(source=Base64Source(data=data)):
            return data
        case _:
            return _block_text(block) or ""


def _invalid_value(where: str, what: str) -> ApiError:
    return ApiError(400, f"{where}: {what}", "invalid_value", param=where)


router = APIRouter(prefix="/v1/messages", tags=["messages"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]
_STOP_REASONS = {FINISH_STOP: "end_turn", FINISH_LENGTH: "max_tokens", FINISH_TOOL_CALLS: "tool_use"}
_PING = ServerSentEvent('{"type": "ping"}', event="ping", sep="\n")
_NOTES_SIGNATURE = "shikisha"  # of a thinking block that holds notes of ours
_MESSAGE_DOC: dict[int | str, dict[str, object]] = {
    200: {
        "description": "A message, or its events if `stream` is true",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["id", "type", "content", "usage"]}},
            "text/event-stream": SSE_CONTENT,
        },
    }
}


class TokenCount(BaseModel):
    """About how many tokens an input has."""

    input_tokens: int


@router.post(
    "",
    summary="Create a message",
    responses={**error_responses(402, 404, 409, 502, 504, model=AnthropicErrorBody), **_MESSAGE_DOC},
    openapi_extra=request_body_doc(MessagesRequest),
)
async def create_message(request: Request, by: RunPrincipal) -> Response:
    """Create the next message of a conversation: a conductor plans, and workers of the pool perform."""
    service: RunService = request.app.state.service
    raw = await read_json(request, lambda raw: check_schema_sizes(raw, Api.MESSAGES))
    refuse = service.settings.unknown == "refuse"
    foreign = _drop_foreign(raw, refuse=refuse)
    body, unknown = validate_known(raw, MessagesRequest, refuse=refuse)
    options, idempotency = read_request_options(request.headers), read_idempotency_key(request.headers)
    task, choice = task_from_messages(body), read_anthropic_choice(body)
    await check_schemas(task, Api.MESSAGES)
    user = body.metadata.user_id if body.metadata else None
    completion = await CompletionRequest(
        service,
        by,
        body.model,
        task,
        options,
        Api.MESSAGES,
        stream=bool(body.stream),
        idempotency=idempotency,
        metadata={} if user is None else {"user": user},
        tool_choice=NO_TOOL if choice == NO_TOOL else task.tool_choice,
    ).start(request.scope.get(CONNECTION))
    headers = ignored_header([*foreign, *unknown], service.container.secret_store.scrub)
    if body.stream:
        headers |= started_headers(completion.run)
        events = completion.stream(MessageWriter(completion))
        return event_stream(events, headers, completion.on_disconnect, stream_grace(service), _PING)
    return await run_unless_disconnected(request, _whole_message(completion, headers), completion.on_disconnect)


@router.post(
    "/count_tokens",
    summary="Estimate the tokens of a message's input",
    responses=error_responses(404, model=AnthropicErrorBody),
    openapi_extra=request_body_doc(TokenCountRequest),
)
async def count_tokens(request: Request, by: RunPrincipal, response: Response) -> TokenCount:
    """Return about how many tokens an input has. It is an estimate: each worker has a tokenizer of its own."""
    service: RunService = request.app.state.service
    raw = await read_json(request)
    refuse = service.settings.unknown == "refuse"
    foreign = _drop_foreign(raw, refuse=refuse)
    body, unknown = validate_known(raw, TokenCountRequest, refuse=refuse)
    service.catalogue.find(body.model, by)
    response.headers.update(ignored_header([*foreign, *unknown], service.container.secret_store.scrub))
    return TokenCount(input_tokens=estimate_tokens(body))


def _drop_foreign(raw: dict[str, object], *, refuse: bool) -> list[str]:
    """Leave out blocks and tools that only Anthropic knows, unless such requests are refused; return their places."""
    if refuse:
        return []
    dropped = drop_foreign(raw.get("tools"), "tools", TOOL_TYPES)
    messages = raw.get("messages")
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            dropped += drop_foreign(message.get("content"), f"messages[{place}].content", BLOCK_TYPES | REFUSED_BLOCKS)
    return dropped


async def _whole_message(completion: RunCompletion, headers: dict[str, str]) -> JSONResponse:
    """Wait for the run, and return the message or the error."""
    ended = await completion.whole()
    headers = {**headers, **finished_headers(completion.run, ended.usage)}
    if (error := ended.error) is not None:
        body = {**anthropic_body(error), "run": completion.run}
        body |= {} if ended.metadata is None else {"shikisha": ended.metadata}
        return JSONResponse(body, error.status, {**error.headers(), **NO_RETRY, **headers})
    return JSONResponse(message_body(completion, ended), headers=headers)


def message_body(completion: RunCompletion, ended: CompletionEnd) -> dict[str, object]:
    """Return the body of a whole message."""
    said = ended.message
    content: list[dict[str, object]] = []
    if said.notes:
        content.append({"type": "thinking", "thinking": "\n".join(said.notes), "signature": _NOTES_SIGNATURE})
    if said.text:
        content.append({"type": "text", "text": said.text})
    content += [{**_tool_use_block(call), "input": json.loads(call.arguments)} for call in said.calls]
    body = {
        **_message_head(completion),
        "content": content,
        "stop_reason": _STOP_REASONS[said.finish],
        "usage": usage_fields(ended.usage),
    }
    return body if ended.metadata is None else body | {"shikisha": ended.metadata}


def usage_fields(used: RunUsage) -> dict[str, object]:
    """Return the `usage` object: the final answer's tokens, and what all other calls of the run used besides."""
    answer, others = used.answer, used.others
    return {
        "input_tokens": answer.input_tokens - answer.cacheable_tokens,
        "cache_creation_input_tokens": answer.cache_write_tokens + answer.cache_write_1h_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "output_tokens": answer.output_tokens,
        "orchestration_input_tokens": others.input_tokens,
        "orchestration_output_tokens": others.output_tokens,
        "cost": used.dollars,
    }


def _message_head(completion: RunCompletion) -> dict[str, object]:
    return {
        "id": f"msg_{completion.run}_{completion.tracker.after + 1}",
        "type": "message",
        "role": "assistant",
        "model": completion.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _tool_use_block(call: ToolCall) -> dict[str, object]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


class MessageWriter:
    """Writes the events of one message. One content block is open at a time."""

    def __init__(self, completion: RunCompletion) -> None:
        self._head = _message_head(completion)
        self._run = completion.run
        self._index = -1
        self._open = ""  # the type of the block that is open

    def begin(self) -> Iterable[bytes]:
        """Return the start of the message; what it used is known at its end."""
        message = {**self._head, "usage": usage_fields(RunUsage())}
        yield named_event("message_start", {"type": "message_start", "message": message})
        yield _PING.encode()

    def text(self, piece: str) -> Iterable[bytes]:
        """Return a piece of the answer."""
        yield from self._block("text", {"type": "text", "text": ""})
        yield self._delta({"type": "text_delta", "text": piece})

    def note(self, line: str) -> Iterable[bytes]:
        """Return a line about the progress of the run, as thinking."""
        yield from self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        yield self._delta({"type": "thinking_delta", "thinking": f"{line}\n"})

    def end(self, ended: CompletionEnd) -> Iterable[bytes]:
        """Return the calls of the client's tools, the stop reason and the usage, and the end."""
        for call in ended.message.calls:
            yield from self._block("tool_use", _tool_use_block(call))
            yield self._delta({"type": "input_json_delta", "partial_json": call.arguments})
            yield from self._close()
        yield from self._close()
        delta = {"stop_reason": _STOP_REASONS[ended.message.finish], "stop_sequence": None}
        last = {"type": "message_delta", "delta": delta, "usage": usage_fields(ended.usage)}
        yield named_event("message_delta", last if ended.metadata is None else {**last, "shikisha": ended.metadata})
        yield named_event("message_stop", {"type": "message_stop"})

    def error(self, problem: ApiError) -> Iterable[bytes]:
        """Return the error."""
        yield named_event("error", {**anthropic_body(problem), "run": self._run})

    def _block(self, kind: str, block: dict[str, object]) -> Iterable[bytes]:
        """Open a block of this type, unless it is open; close the one before."""
        if self._open == kind and kind != "tool_use":
            return
        yield from self._close()
        self._index, self._open = self._index + 1, kind
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        yield named_event("content_block_start", start)

    def _close(self) -> Iterable[bytes]:
        if not self._open:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": _NOTES_SIGNATURE})
        self._open = ""
        yield named_event("content_block_stop", {"type": "content_block_stop", "index": self._index})

    def _delta(self, delta: dict[str, object]) -> bytes:
        event = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return named_event("content_block_delta", event)
