"""From Anthropic's messages to a task: the last user message that asks something is the prompt, the rest its history.

A user message that holds results of tools continues the task: text next to results goes with the last of them, as
Claude Code puts its reminders there. Invariant: nothing is dropped in silence. An image in a tool's result is named in
the result's text, because a worker reads results as text. A conversation that cannot be answered is a 400 that names
the message.
"""

import json
from collections.abc import Sequence

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
from shikisha.server.chat.conversation import Conversation, forced_choice
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import file_attachment, image_attachment

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
