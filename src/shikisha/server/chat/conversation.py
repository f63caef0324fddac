"""From chat messages to a task: the last user message is the prompt, everything before it is the history.

Results of the client's tools since then are the task's exchanges. Invariant: nothing is dropped. A conversation that
cannot be answered (open tool calls) is a 400 that names the message.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from shikisha.core.call import ClientOptions, Request
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import (
    REQUIRED_TOOL,
    Attachment,
    ChatMessage,
    Json,
    Speaker,
    ToolCall,
    ToolExchange,
    ToolResult,
    name_tool_choice,
)
from shikisha.core.task import SAMPLING_OPTIONS, Task
from shikisha.core.visibility import request_messages
from shikisha.server.chat.schema import (
    ChatAllowedTools,
    ChatAssistantMessage,
    ChatFilePart,
    ChatImagePart,
    ChatInputMessage,
    ChatJsonObjectFormat,
    ChatJsonSchemaFormat,
    ChatNamedTool,
    ChatPart,
    ChatRefusalPart,
    ChatRequest,
    ChatSystemMessage,
    ChatTextPart,
    ChatTool,
    ChatToolMessage,
    ChatUserMessage,
)
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import audio_attachment, file_attachment, image_attachment
from shikisha.workers.chat import response_format, tool_choice_field
from shikisha.workers.chat_messages import chat_message

ATTACHMENT_ONLY_PROMPT = "See what is attached."
# A worker that gets the client's own messages continues its words instead.
_CONTINUE = "Go on with this answer, and write only what follows it:"


@dataclass(slots=True)
class Conversation:
    """The turns of a conversation, and the place of the last user turn."""

    turns: list[ChatMessage] = field(default_factory=list)
    asked: int | None = None

    def prompt(self) -> str:
        """Return what is asked, with the answer that the client has begun, if it has, as what is to be continued."""
        question = self.turns[self.asked or 0]
        text = ATTACHMENT_ONLY_PROMPT if question.attachments and not question.text.strip() else question.text
        begun = list[str]()
        for turn in self.turns[(self.asked or 0) + 1 :]:
            if turn.speaker is Speaker.ASSISTANT:
                begun = [] if turn.calls else [*begun, turn.text]
        answer = "\n\n".join(filter(None, begun))
        return f"{text}\n\n{_CONTINUE}\n{answer}" if answer else text

    def exchanges(self) -> tuple[ToolExchange, ...]:
        """Return the calls since the last question, with their results."""
        found: list[ToolExchange] = []
        said = ""
        for turn in self.turns[(self.asked or 0) + 1 :]:
            if turn.speaker is Speaker.ASSISTANT:
                said = f"{said}\n\n{turn.text}" if said and turn.text else said or turn.text
                if turn.calls:
                    found.append(ToolExchange(turn.calls, self._results(turn.calls), said))
                    said = ""
        return tuple(found)

    def history(self) -> tuple[ChatMessage, ...]:
        """Return the turns before the last question, and instructions that came after it."""
        asked = self.asked or 0
        late = [turn for turn in self.turns[asked + 1 :] if turn.speaker is Speaker.SYSTEM]
        return (*self.turns[:asked], *late)

    def _results(self, calls: Sequence[ToolCall]) -> tuple[ToolResult, ...]:
        came = {turn.answers: turn.text for turn in self.turns if turn.answers}
        return tuple(ToolResult(call.id, came[call.id]) for call in calls)


def task_from_chat(request: ChatRequest, sent: Mapping[str, object] = MappingProxyType({})) -> Task:
    """Return the task that a request asks for; `sent` is its body as it came, which one worker may be sent whole."""
    talk = read_conversation(request.messages)
    question = talk.turns[talk.asked or 0]
    offered, choice = read_tool_choice(request)
    task = Task(
        talk.prompt(),
        history=talk.history(),
        attachments=question.attachments,
        exchanges=talk.exchanges(),
        tools=tuple(tool.model_dump(mode="json", exclude_none=True) for tool in offered),
        parallel_tool_calls=request.parallel_tool_calls if offered else None,
        answer_schema=_schema(request),
        options=_options(request),
        tool_choice=choice,
    )
    given = {name: value for name, value in sent.items() if value is not None}
    as_sent = {name: value for name, value in given.items() if value != _as_understood(name, value, task)}
    return replace(task, as_sent=cast("dict[str, Json]", as_sent)) if as_sent else task


def _as_understood(name: str, value: object, task: Task) -> object:
    """Return a field as a worker is sent it from the task's parts; fields that no worker is sent are as they came."""
    match name:
        case "messages":
            client_options = ClientOptions.of(task)
            request = Request(
                task,
                task.prompt,
                schema=task.answer_schema,
                client_options=client_options,
                exchanges=task.exchanges,
                held=True,
            )
            return [chat_message(turn) for turn in request_messages(request)]
        case "tools":
            return list(task.tools)
        case "tool_choice":
            return tool_choice_field(task.tool_choice) if task.tool_choice else None
        case "response_format":
            return None if task.answer_schema is None else response_format(task.answer_schema)
        case "stop":
            return task.options.get("stop")
        case _:
            return value


def read_tool_choice(request: ChatRequest) -> tuple[Sequence[ChatTool], str]:
    """Return the tools that are offered, and the task's tool choice; 400 where it names a tool that is not there."""
    tools, choice = request.tools or [], request.tool_choice
    match choice:
        case None | "auto":
            return tools, ""
        case "none":
            return [], ""
        case "required":
            return tools, forced_choice([tool.function.name for tool in tools], None, "tool_choice")
        case ChatNamedTool():
            at = "tool_choice.function.name"
            return tools, forced_choice([tool.function.name for tool in tools], choice.function.name, at)
        case ChatAllowedTools(allowed_tools=allowed):
            names = [tool.function.name for tool in tools]
            for place, each in enumerate(allowed.tools):
                forced_choice(names, each.function.name, f"tool_choice.allowed_tools.tools[{place}].function.name")
            kept = {each.function.name for each in allowed.tools}
            left = [tool for tool in tools if tool.function.name in kept]
            return left, REQUIRED_TOOL if allowed.mode == "required" else ""


def forced_choice(names: Sequence[str], name: str | None, where: str) -> str:
    """Return the task's tool choice that forces a call of this tool (None: of any); 400 when it is not there."""
    if not names:
        raise _invalid_value(where, "a call cannot be required where there are no tools")
    if name is None:
        return REQUIRED_TOOL
    if name not in names:
        raise _invalid_value(where, f"{name[:64]!r} is none of the tools: {', '.join(names)[:400]}")
    return name_tool_choice(name)


def read_conversation(messages: Sequence[ChatInputMessage]) -> Conversation:
    """Return the messages as turns; 400 for a conversation that cannot be answered."""
    talk, open_calls = Conversation(), dict[str, None]()
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if isinstance(message, ChatToolMessage):
            if message.tool_call_id not in open_calls:
                said = f"no call {message.tool_call_id[:60]!r} waits for a result here"
                raise _invalid_value(f"{where}.tool_call_id", said)
            del open_calls[message.tool_call_id]
        elif open_calls:
            raise _invalid_value(where, f"expected tool messages first, for the calls {', '.join(open_calls)}")
        turn = _turn(message, where)
        open_calls |= dict.fromkeys(call.id for call in turn.calls)
        if turn.speaker is Speaker.USER:
            talk.asked = place
        talk.turns.append(turn)
    if open_calls:
        raise _invalid_value("messages", f"expected tool messages for the calls {', '.join(open_calls)}")
    if talk.asked is None:
        spoken = [place for place, turn in enumerate(talk.turns) if turn.speaker is Speaker.SYSTEM]
        if len(spoken) < len(talk.turns):
            raise _invalid_value("messages", "expected a user message")
        talk.asked = spoken[-1]
    return talk


def _turn(message: ChatInputMessage, where: str) -> ChatMessage:
    match message:
        case ChatToolMessage():
            return ChatMessage(Speaker.TOOL, _text(message.content), answers=message.tool_call_id)
        case ChatSystemMessage():
            return ChatMessage(Speaker.SYSTEM, _with_name(message.name, _text(message.content)))
        case ChatAssistantMessage():
            calls = tuple(
                ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
            )
            text = _text(message.content or "") or message.refusal or ""
            return ChatMessage(Speaker.ASSISTANT, _with_name(message.name, text), calls)
        case ChatUserMessage():
            parts = message.content if isinstance(message.content, list) else []
            attached = tuple(
                _attachment(part, f"{where}.content[{place}]")
                for place, part in enumerate(parts)
                if not isinstance(part, ChatTextPart)
            )
            return ChatMessage(Speaker.USER, _with_name(message.name, _text(message.content)), attachments=attached)


def _text(content: str | Sequence[ChatPart | ChatTextPart | ChatRefusalPart]) -> str:
    if isinstance(content, str):
        return content
    said = (
        part.text if isinstance(part, ChatTextPart) else part.refusal
        for part in content
        if isinstance(part, ChatTextPart | ChatRefusalPart)
    )
    return "\n\n".join(said)


def _with_name(name: str | None, text: str) -> str:
    return f"{name}: {text}" if name else text


def _attachment(part: ChatPart, where: str) -> Attachment:
    match part:
        case ChatImagePart(image_url=at):
            return image_attachment(at.url, at.detail, f"{where}.image_url.url")
        case ChatFilePart(file=given):
            if given.file_id is not None:
                raise _invalid_value(
                    f"{where}.file.file_id", "files are not kept here: send the file itself as file_data"
                )
            return file_attachment(given.file_data, given.filename, f"{where}.file")
        case ChatTextPart():
            raise TypeError("a text is no attachment")
        case _:
            return audio_attachment(part.input_audio.data, part.input_audio.format, f"{where}.input_audio")


def _schema(request: ChatRequest) -> dict[str, Json] | None:
    match request.response_format:
        case ChatJsonSchemaFormat(json_schema=wanted):
            schema: dict[str, Json] = dict(wanted.schema_ or {})
            if wanted.description and "description" not in schema:
                schema["description"] = wanted.description
            return schema
        case ChatJsonObjectFormat():
            return {"type": "object"}
        case _:
            return None


def _options(request: ChatRequest) -> dict[str, Json]:
    most = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    options: dict[str, Json] = {name: getattr(request, name) for name in SAMPLING_OPTIONS}
    options["stop"] = [request.stop] if isinstance(request.stop, str) else request.stop
    options["max_completion_tokens"] = most
    return {name: value for name, value in sorted(options.items()) if value is not None}


def _invalid_value(where: str, what: str) -> ApiError:
    return ApiError(400, f"{where}: {what}", "invalid_value", param=where)
