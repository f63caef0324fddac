"""What `/v1/responses` takes. Every field and value that is not in these models is refused with 400, by its name.

Invariant: what passes is honoured, as the table says; nothing is taken and then ignored. Deliberately absent: what is
made of a request (`responses_task`).

| field | decision |
|---|---|
| `model` | a name of `/v1/models` |
| `input` | a text, or items: messages, function calls and their outputs; the last user message is the task |
| reasoning items, `mcp_approval_request` in `input` | taken, since clients send answers back whole; nobody reads them |
| `mcp_approval_response` in `input` | a person's decision; only from a key with the scope `approve` |
| images and files in messages | as data, or an image as an https link; file ids are refused (no files are kept here) |
| `item_reference`, `conversation`, `prompt` | refused: whatever is meant is sent, or named by `previous_response_id` |
| `instructions` | the task's context, for every step; not carried over to the next response |
| `previous_response_id` | its conversation comes before the input; of the same tenant only |
| `tools` | functions of the client; hosted tools are refused |
| `tool_choice` | `auto`; `none` (the tools are not shown); nobody can force a call through a conductor: refused |
| `parallel_tool_calls` | passed on to the worker that has the tools |
| `text.format` | `text`, `json_object`, `json_schema`: it holds for the final answer |
| `text.verbosity`, `temperature`, `top_p`, `max_output_tokens`, `reasoning.effort` | for the worker of the last step |
| `reasoning.summary` | any: each step's progress comes as a reasoning item, and events bear `agent` |
| `reasoning.context` | `auto`, `current_turn`: reasoning is never carried over |
| `include` | `reasoning.encrypted_content` (reasoning items are whole as they are), `message.input_image.image_url` |
| `metadata`, `user`, `safety_identifier` | kept with the run and given back |
| `prompt_cache_key` | given back; how workers cache is theirs |
| `stream`, `background` | both, each and neither; `background` needs `store` |
| `stream_options.include_obfuscation` | false only: nothing is padded |
| `store` | false: the run is journaled all the same, for audit, but this API does not find it again |
| `truncation` | `disabled`; a conversation that is too long is an error |
| `service_tier` | `auto`, `default`: there is one |
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, JsonValue, Tag

from shikisha.server.wire.reading import Wire

_MOST_ITEMS = 4096
_MOST_TOOLS = 128

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Id = Annotated[str, Field(min_length=1, max_length=256)]
Metadata: TypeAlias = dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]]


class AgentName(Wire):
    """Who made an item, as our own answers say it."""

    agent_name: str


class InputText(Wire):
    """A text of a message."""

    type: Literal["input_text"]
    text: str


class OutputText(Wire):
    """A text of an earlier answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[JsonValue] | None = None
    logprobs: list[JsonValue] | None = None


class Refusal(Wire):
    """An earlier answer that was a refusal."""

    type: Literal["refusal"]
    refusal: str


class InputImage(Wire):
    """An image: a data URL, or an https link."""

    type: Literal["input_image"]
    image_url: str
    detail: Literal["low", "high", "auto"] | None = None


class InputFile(Wire):
    """A file: a data URL, and its name."""

    type: Literal["input_file"]
    file_data: str
    filename: str = ""


def _text_or_list(value: object) -> str:
    return "Text" if isinstance(value, str) else "List"


def _member(value: object) -> str:
    """Return the name of the model that an item is of; the names begin in capitals, so that places leave them out."""
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return "".join(word.title() for word in str(kind or "message").split("_"))


_PARTS = ("input_text", "output_text", "refusal", "input_image", "input_file")
Part: TypeAlias = Annotated[
    Annotated[InputText, Tag("InputText")]
    | Annotated[OutputText, Tag("OutputText")]
    | Annotated[Refusal, Tag("Refusal")]
    | Annotated[InputImage, Tag("InputImage")]
    | Annotated[InputFile, Tag("InputFile")],
    Discriminator(_member, custom_error_type="part", custom_error_message=f"expected one of {', '.join(_PARTS)}"),
]
Content: TypeAlias = Annotated[
    Annotated[str, Tag("Text")] | Annotated[list[Part], Tag("List")], Discriminator(_text_or_list)
]
Output: TypeAlias = Annotated[
    Annotated[str, Tag("Text")] | Annotated[list[InputText], Tag("List")], Discriminator(_text_or_list)
]


class Message(Wire):
    """A message of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: Id | None = None
    status: ItemStatus | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    agent: AgentName | None = None


class FunctionCall(Wire):
    """A call of a client's function that an earlier answer asked for."""

    type: Literal["function_call"]
    call_id: Id
    name: Name
    arguments: str
    id: Id | None = None
    status: ItemStatus | None = None
    agent: AgentName | None = None


class FunctionCallOutput(Wire):
    """What a function call came to."""

    type: Literal["function_call_output"]
    call_id: Id
    output: Output
    id: Id | None = None
    status: ItemStatus | None = None


class SummaryText(Wire):
    """A text of a reasoning item's summary."""

    type: Literal["summary_text"]
    text: str


class Reasoning(Wire):
    """A reasoning item of an earlier answer; nobody reads it."""

    type: Literal["reasoning"]
    summary: list[SummaryText]
    id: Id | None = None
    content: list[JsonValue] | None = None
    encrypted_content: str | None = None
    status: ItemStatus | None = None
    agent: AgentName | None = None


class ApprovalRequest(Wire):
    """What an earlier answer asked a person; nobody reads it."""

    type: Literal["mcp_approval_request"]
    id: Id
    arguments: str
    name: str
    server_label: str
    agent: AgentName | None = None


class ApprovalResponse(Wire):
    """A person's decision."""

    type: Literal["mcp_approval_response"]
    approval_request_id: Id
    approve: bool
    reason: Annotated[str, Field(max_length=2000)] | None = None
    id: Id | None = None


_ITEMS = (
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "mcp_approval_request",
    "mcp_approval_response",
)
Item: TypeAlias = Annotated[
    Annotated[Message, Tag("Message")]
    | Annotated[FunctionCall, Tag("FunctionCall")]
    | Annotated[FunctionCallOutput, Tag("FunctionCallOutput")]
    | Annotated[Reasoning, Tag("Reasoning")]
    | Annotated[ApprovalRequest, Tag("McpApprovalRequest")]
    | Annotated[ApprovalResponse, Tag("McpApprovalResponse")],
    Discriminator(_member, custom_error_type="item", custom_error_message=f"expected one of {', '.join(_ITEMS)}"),
]
Input: TypeAlias = Annotated[
    Annotated[str, Field(min_length=1), Tag("Text")]
    | Annotated[list[Item], Field(min_length=1, max_length=_MOST_ITEMS), Tag("List")],
    Discriminator(_text_or_list),
]


class Function(Wire):
    """A function of the client's that the last step's worker may ask for."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class TextFormat(Wire):
    """Any text."""

    type: Literal["text"]


class JsonObject(Wire):
    """A JSON object of any shape."""

    type: Literal["json_object"]


class JsonSchema(Wire):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    name: Name
    schema_: Annotated[dict[str, JsonValue], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


class Text(Wire):
    """What the answer's text is to be."""

    format: Annotated[TextFormat | JsonObject | JsonSchema, Discriminator("type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Thinking(Wire):
    """How much the last step's worker is to think, and whether steps are told of."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn"] | None = None


class StreamOptions(Wire):
    """Options of a stream."""

    include_obfuscation: Literal[False] = False


class ResponseRequest(Wire):
    """The body of `POST /v1/responses`."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    input: Input
    instructions: str | None = None
    previous_response_id: Id | None = None
    tools: Annotated[list[Function], Field(max_length=_MOST_TOOLS)] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    reasoning: Thinking | None = None
    include: list[Literal["reasoning.encrypted_content", "message.input_image.image_url"]] | None = None
    metadata: Annotated[Metadata, Field(max_length=16)] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=512)] | None = None
    service_tier: Literal["auto", "default"] | None = None
    truncation: Literal["disabled"] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    store: bool | None = None

    @property
    def items(self) -> "list[Item]":
        """The input as items."""
        return [Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    @property
    def progress(self) -> bool:
        """Whether steps are told of."""
        return self.reasoning is not None and self.reasoning.summary is not None
