"""From the input of a response request to a task: the last user message is the prompt, the rest is the history.

The order is: instructions, the conversation of the previous response without its instructions, the input. Invariant:
nothing is dropped. An input that cannot be answered is a 400 that names the item.
"""

from collections.abc import Sequence

from shikisha.core.events import QuestionKind
from shikisha.core.messages import (
    REQUIRED_TOOL,
    Attachment,
    ChatMessage,
    Json,
    Speaker,
    ToolCall,
    ToolExchange,
    ToolResult,
    exchange_messages,
    load_tool_results,
)
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.server.chat.conversation import Conversation, forced_choice
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import file_attachment, image_attachment
from shikisha.server.lifecycle.tool_calls import asking_turn
from shikisha.server.responses.schema import (
    CustomToolCall,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    MessagePart,
    OutputText,
    RefusalPart,
    ResponseAllowedTools,
    ResponseItem,
    ResponseJsonObject,
    ResponseJsonSchema,
    ResponseMessage,
    ResponseNamedTool,
    ResponseRequest,
    ResponseTool,
)

_SPEAKERS = {"user": Speaker.USER, "assistant": Speaker.ASSISTANT}


def task_from_response(request: ResponseRequest, before: Sequence[ChatMessage] = ()) -> Task:
    """Return the task that a request asks for, after what was said before."""
    instructions = [ChatMessage(Speaker.SYSTEM, request.instructions)] if request.instructions else []
    talk = read_input(request.items, [*instructions, *before])
    question = talk.turns[talk.asked or 0]
    offered, choice = read_tool_choice(request)
    return Task(
        talk.prompt(),
        history=talk.history(),
        attachments=question.attachments,
        exchanges=talk.exchanges(),
        tools=tuple({"type": "function", "function": tool.function} for tool in offered),
        parallel_tool_calls=request.parallel_tool_calls if offered else None,
        answer_schema=_schema(request),
        options=_options(request),
        tool_choice=choice,
    )


def read_tool_choice(request: ResponseRequest) -> tuple[Sequence[ResponseTool], str]:
    """Return the tools that are offered, and the task's tool choice; 400 where it names a tool that is not there."""
    tools, choice = request.tools or [], request.tool_choice
    names = [tool.name for tool in tools]
    match choice:
        case None | "auto":
            return tools, ""
        case "none":
            return [], ""
        case "required":
            return tools, forced_choice(names, None, "tool_choice")
        case ResponseNamedTool():
            return tools, forced_choice(names, choice.name, "tool_choice.name")
        case ResponseAllowedTools():
            for place, each in enumerate(choice.tools):
                forced_choice(names, each.name, f"tool_choice.tools[{place}].name")
            kept = {each.name for each in choice.tools}
            return [tool for tool in tools if tool.name in kept], REQUIRED_TOOL if choice.mode == "required" else ""


def read_input(items: Sequence[ResponseItem], before: Sequence[ChatMessage] = ()) -> Conversation:
    """Return the items as turns after earlier ones; 400 for a conversation that cannot be answered."""
    talk = Conversation(list(before))
    asked = [place for place, turn in enumerate(before) if turn.speaker is Speaker.USER]
    talk.asked = asked[-1] if asked else None
    open_calls = {call.id for turn in before for call in turn.calls} - {turn.answers for turn in before}
    for place, item in enumerate(items):
        _add_item(talk, item, f"input[{place}]", open_calls)
    if open_calls:
        raise _invalid_value("input", f"no output was found for the function calls {', '.join(sorted(open_calls))}")
    if talk.asked is None or not talk.turns:
        raise _invalid_value("input", "expected a user message")
    return talk


def _add_item(talk: Conversation, item: ResponseItem, where: str, open_calls: set[str]) -> None:
    match item:
        case ResponseMessage():
            if open_calls:
                raise _invalid_value(
                    where, f"expected the outputs of the function calls {', '.join(sorted(open_calls))} first"
                )
            if item.role == "user":
                talk.asked = len(talk.turns)
            talk.turns.append(_message_turn(item, where))
        case FunctionCall() | CustomToolCall():
            call = ToolCall(item.call_id, item.name, item.arguments)
            last = talk.turns[-1] if talk.turns else None
            if (
                last is not None
                and last.speaker is Speaker.ASSISTANT
                and not any(each.answers in {call.id for call in last.calls} for each in talk.turns if each.answers)
            ):
                talk.turns[-1] = ChatMessage(Speaker.ASSISTANT, last.text, (*last.calls, call))
            else:
                talk.turns.append(ChatMessage(Speaker.ASSISTANT, "", (call,)))
            open_calls.add(item.call_id)
        case FunctionCallOutput():
            if item.call_id not in open_calls:
                raise _invalid_value(
                    f"{where}.call_id", f"no function call {item.call_id[:60]!r} waits for an output here"
                )
            open_calls.discard(item.call_id)
            talk.turns.append(ChatMessage(Speaker.TOOL, output_text(item), answers=item.call_id))
        case _:
            pass  # reasoning and requests for approval, which clients send back whole


def output_text(item: FunctionCallOutput) -> str:
    """Return the result of a function call as one text."""
    return item.output if isinstance(item.output, str) else "\n\n".join(map(_part_text, item.output))


def _part_text(part: MessagePart) -> str:
    """Return a part of a function's result as a text: a worker reads results as text."""
    match part:
        case InputText() | OutputText():
            return part.text
        case RefusalPart():
            return part.refusal
        case InputImage():
            return "[image: not shown, because results of tools are read as text here]"
        case InputFile():
            return f"[file {part.filename}: not shown, because results of tools are read as text here]"


def _message_turn(item: ResponseMessage, where: str) -> ChatMessage:
    speaker = _SPEAKERS.get(item.role, Speaker.SYSTEM)
    if isinstance(item.content, str):
        return ChatMessage(speaker, item.content)
    texts, attached = [], list[Attachment]()
    for place, part in enumerate(item.content):
        here = f"{where}.content[{place}]"
        match part:
            case InputText() | OutputText():
                texts.append(part.text)
            case RefusalPart():
                texts.append(part.refusal)
            case InputImage():
                attached.append(image_attachment(part.image_url, part.detail, f"{here}.image_url"))
            case InputFile():
                attached.append(file_attachment(part.file_data, part.filename, here))
    if attached and speaker is not Speaker.USER:
        raise _invalid_value(where, "only a user's message can hold images and files")
    return ChatMessage(speaker, "\n\n".join(texts), attachments=tuple(attached))


def conversation_of_run(run: Run, *, instructed: bool) -> tuple[ChatMessage, ...]:
    """Return a run's conversation for the next: what was said before it, its task, calls of tools, and its answer.

    `instructed`: its first turn is its own instructions, which do not hold for the next.
    """
    task = run.task
    turns = [
        *task.history[1 if instructed else 0 :],
        ChatMessage(Speaker.USER, task.prompt, attachments=task.attachments),
    ]
    # The calls of the client's tools that were made in the course of a run.
    found = []
    for asked in run.asked.values():
        answer = run.answers.get(asked.question)
        if asked.asks is QuestionKind.TOOLS and answer is not None:
            asking = asking_turn(run, asked)
            results = load_tool_results(answer.text, asking.calls)
            found.append(ToolExchange(asking.calls, results, asking.text, asking.envelope))
    for exchange in (*task.exchanges, *found):
        turns += exchange_messages(exchange)
    if run.answer is not None:
        turns.append(ChatMessage(Speaker.ASSISTANT, run.answer))
    return tuple(turns)


def _schema(request: ResponseRequest) -> dict[str, Json] | None:
    match request.text.format if request.text else None:
        case ResponseJsonSchema(schema_=schema):
            return dict(schema)
        case ResponseJsonObject():
            return {"type": "object"}
        case _:
            return None


def _options(request: ResponseRequest) -> dict[str, Json]:
    options: dict[str, Json] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": request.reasoning.effort if request.reasoning else None,
        "verbosity": request.text.verbosity if request.text else None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _invalid_value(where: str, what: str) -> ApiError:
    return ApiError(400, f"{where}: {what}", "invalid_value", param=where)


def trailing_results(items: Sequence[ResponseItem]) -> ToolExchange | None:
    """Return the outputs with which an input ends, as an exchange; None when it asks for something else.

    Names and arguments of the calls are left out: whoever waits for them knows them.
    """
    last: list[FunctionCallOutput] = []
    for item in reversed(items):
        if not isinstance(item, FunctionCallOutput):
            break
        last.insert(0, item)
    if not last:
        return None
    calls = tuple(ToolCall(item.call_id, "", "") for item in last)
    return ToolExchange(calls, tuple(ToolResult(item.call_id, output_text(item)) for item in last))
