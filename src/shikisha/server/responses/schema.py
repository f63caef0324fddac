"""Request and response bodies of `/v1/responses`, as the openai SDK reads them.

Invariants: a field that would change the answer is honored or refused by name. Fields, tools and items that are unknown
here follow `server.unknown`: they are left out and named in `X-Shikisha-Ignored`, or the request is refused. A response
is complete whenever it is returned: every field is present, null where there is nothing. Fields beyond OpenAI's are
`agent` on items (from their multi-agent beta), `cost` and orchestration tokens in `usage`, and `shikisha`.

| field | treatment |
|---|---|
| `model` | a name from `/v1/models` |
| `input` | a text, or items: messages, function calls and their outputs; the last user message is the task |
| reasoning items, `mcp_approval_request` in `input` | accepted, since clients return whole answers, and not used |
| `mcp_approval_response` in `input` | a person's decision; only from a key with the scope `approve` |
| images and files in messages | as data, or an image as an https link; file ids are refused, as no files are stored |
| `item_reference`, `conversation`, `prompt` | refused: send the content, or name it by `previous_response_id` |
| `instructions` | context of the task, for every step; not carried over to the next response |
| `previous_response_id` | its conversation comes before the input; of the same tenant only |
| `tools` | functions of the client, and custom tools (free text); hosted and others follow `server.unknown` |
| items of hosted tools in `input` | follow `server.unknown` |
| `tool_choice` | `auto`; `none` (tools are not offered); `required`, a named tool: of the call that gives the answer |
| `parallel_tool_calls` | passed on to the worker that has the tools |
| `text.format` | `text`, `json_object`, `json_schema`: it applies to the final answer |
| `text.verbosity`, `temperature`, `top_p`, `max_output_tokens`, `reasoning.effort` | for the worker of the last step |
| `reasoning.summary` | any: the progress of each step is a reasoning item, and events carry `agent` |
| `reasoning.context` | `auto`, `current_turn`: reasoning is never carried over |
| `include` | anything: items are complete anyway, and there is no more to include |
| `metadata`, `user`, `safety_identifier` | stored with the run and returned |
| `prompt_cache_key` | returned; workers cache in their own way |
| `stream`, `background` | both, each and neither; `background` needs `store` |
| `stream_options.include_obfuscation` | false only: nothing is padded |
| `store` | false: the run is journaled for audit, but this API does not find it again |
| `truncation` | `disabled`, `auto`: nothing is cut here; a conversation that is too long for a worker is an error |
| `service_tier` | anything: there is one |
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from shikisha.core.messages import Json, dump_json
from shikisha.server.http.request import RequestModel

_MAX_ITEMS = 4096
_MAX_TOOLS = 128

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ItemId = Annotated[str, Field(min_length=1, max_length=256)]
Metadata: TypeAlias = dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]]


class AgentName(RequestModel):
    """Who made an item, as our own answers say it."""

    agent_name: str


class InputText(RequestModel):
    """A text of a message."""

    type: Literal["input_text"]
    text: str


class OutputText(RequestModel):
    """A text of an earlier answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[JsonValue] | None = None
    logprobs: list[JsonValue] | None = None


class RefusalPart(RequestModel):
    """An earlier answer that was a refusal."""

    type: Literal["refusal"]
    refusal: str


class InputImage(RequestModel):
    """An image: a data URL, or an https link."""

    type: Literal["input_image"]
    image_url: str
    detail: Literal["low", "high", "auto"] | None = None


class InputFile(RequestModel):
    """A file: a data URL, and its name."""

    type: Literal["input_file"]
    file_data: str
    filename: str = ""


def _text_or_list(value: object) -> str:
    return "Text" if isinstance(value, str) else "List"


def _union_member(value: object) -> str:
    """Return the name of the model that an item is of; the names begin in capitals, so that places leave them out."""
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return "".join(word.title() for word in str(kind or "message").split("_"))


_PART_TYPES = ("input_text", "output_text", "refusal", "input_image", "input_file")
MessagePart: TypeAlias = Annotated[
    Annotated[InputText, Tag("InputText")]
    | Annotated[OutputText, Tag("OutputText")]
    | Annotated[RefusalPart, Tag("Refusal")]
    | Annotated[InputImage, Tag("InputImage")]
    | Annotated[InputFile, Tag("InputFile")],
    Discriminator(
        _union_member, custom_error_type="part", custom_error_message=f"expected one of {', '.join(_PART_TYPES)}"
    ),
]
MessageContent: TypeAlias = Annotated[
    Annotated[str, Tag("Text")] | Annotated[list[MessagePart], Tag("List")], Discriminator(_text_or_list)
]
CallOutput: TypeAlias = Annotated[
    Annotated[str, Tag("Text")] | Annotated[list[MessagePart], Tag("List")], Discriminator(_text_or_list)
]


class ResponseMessage(RequestModel):
    """A message of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: MessageContent
    id: ItemId | None = None
    status: ItemStatus | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    agent: AgentName | None = None


class FunctionCall(RequestModel):
    """A call of a client's function that an earlier answer asked for."""

    type: Literal["function_call"]
    call_id: ItemId
    name: FunctionName
    arguments: str
    id: ItemId | None = None
    status: ItemStatus | None = None
    agent: AgentName | None = None


class CustomToolCall(RequestModel):
    """A call of a client's custom tool that an earlier answer asked for."""

    type: Literal["custom_tool_call"]
    call_id: ItemId
    name: FunctionName
    input: str
    id: ItemId | None = None
    status: ItemStatus | None = None
    agent: AgentName | None = None

    @property
    def arguments(self) -> str:
        """The call as one of the function that a worker is shown."""
        return dump_json({"input": self.input})


class FunctionCallOutput(RequestModel):
    """The result of a call of a function or a custom tool."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: ItemId
    output: CallOutput
    id: ItemId | None = None
    status: ItemStatus | None = None


class SummaryText(RequestModel):
    """A text of a reasoning item's summary."""

    type: Literal["summary_text"]
    text: str


class InputReasoning(RequestModel):
    """A reasoning item of an earlier answer; it is not used."""

    type: Literal["reasoning"]
    summary: list[SummaryText]
    id: ItemId | None = None
    content: list[JsonValue] | None = None
    encrypted_content: str | None = None
    status: ItemStatus | None = None
    agent: AgentName | None = None


class ApprovalRequest(RequestModel):
    """A request for approval in an earlier answer; it is not used."""

    type: Literal["mcp_approval_request"]
    id: ItemId
    arguments: str
    name: str
    server_label: str
    agent: AgentName | None = None


class ApprovalResponse(RequestModel):
    """A person's decision."""

    type: Literal["mcp_approval_response"]
    approval_request_id: ItemId
    approve: bool
    reason: Annotated[str, Field(max_length=2000)] | None = None
    id: ItemId | None = None


ITEM_TYPES = (
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "mcp_approval_request",
    "mcp_approval_response",
)
ResponseItem: TypeAlias = Annotated[
    Annotated[ResponseMessage, Tag("Message")]
    | Annotated[FunctionCall, Tag("FunctionCall")]
    | Annotated[FunctionCallOutput, Tag("FunctionCallOutput")]
    | Annotated[CustomToolCall, Tag("CustomToolCall")]
    | Annotated[FunctionCallOutput, Tag("CustomToolCallOutput")]
    | Annotated[InputReasoning, Tag("Reasoning")]
    | Annotated[ApprovalRequest, Tag("McpApprovalRequest")]
    | Annotated[ApprovalResponse, Tag("McpApprovalResponse")],
    Discriminator(
        _union_member, custom_error_type="item", custom_error_message=f"expected one of {', '.join(ITEM_TYPES)}"
    ),
]
ResponseInput: TypeAlias = Annotated[
    Annotated[str, Field(min_length=1), Tag("Text")]
    | Annotated[list[ResponseItem], Field(min_length=1, max_length=_MAX_ITEMS), Tag("List")],
    Discriminator(_text_or_list),
]


REFUSED_ITEMS = ("item_reference", "compaction")  # which hold the conversation: they are never left out


class ResponseFunction(RequestModel):
    """A function of the client's that the last step's worker may ask for."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None

    @property
    def function(self) -> dict[str, Json]:
        """The function that a worker is shown."""
        return self.model_dump(mode="json", exclude_none=True, exclude={"type"})


class ResponseCustomTool(RequestModel):
    """A tool of the client's whose input is free text; a worker is shown a function of one text."""

    type: Literal["custom"]
    name: FunctionName
    description: str | None = None
    format: dict[str, JsonValue] | None = None

    @property
    def function(self) -> dict[str, Json]:
        """The function that a worker is shown; a grammar is words of its description."""
        grammar = self.format.get("definition") if self.format else None
        said = [self.description or "", f"The input follows this grammar:\n{grammar}" if grammar else ""]
        text: Json = {"type": "string", "description": "the tool's input, as it is, not in JSON"}
        schema: Json = {"type": "object", "properties": {"input": text}, "required": ["input"]}
        return {"name": self.name, "description": "\n\n".join(filter(None, said)), "parameters": schema}


ResponseTool: TypeAlias = Annotated[ResponseFunction | ResponseCustomTool, Discriminator("type")]
TOOL_TYPES = frozenset({"function", "custom"})


class ResponseNamedTool(RequestModel):
    """One of the tools, by its name."""

    type: Literal["function", "custom"]
    name: str


class ResponseAllowedTools(RequestModel):
    """The tools that may be called, and whether one of them must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ResponseNamedTool], Field(min_length=1, max_length=_MAX_TOOLS)]


ResponseToolChoice: TypeAlias = (
    Literal["auto", "none", "required"] | Annotated[ResponseNamedTool | ResponseAllowedTools, Discriminator("type")]
)


class ResponseTextFormat(RequestModel):
    """Any text."""

    type: Literal["text"]


class ResponseJsonObject(RequestModel):
    """A JSON object of any shape."""

    type: Literal["json_object"]


class ResponseJsonSchema(RequestModel):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    name: FunctionName
    schema_: Annotated[dict[str, JsonValue], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


class ResponseTextOptions(RequestModel):
    """What the answer's text is to be."""

    format: Annotated[ResponseTextFormat | ResponseJsonObject | ResponseJsonSchema, Discriminator("type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(RequestModel):
    """The reasoning effort of the last step's worker, and whether steps are reported."""

    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn"] | None = None


class ResponseStreamOptions(RequestModel):
    """Options of a stream."""

    include_obfuscation: Literal[False] = False


class ResponseRequest(RequestModel):
    """The body of `POST /v1/responses`."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    input: ResponseInput
    instructions: str | None = None
    previous_response_id: ItemId | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=_MAX_TOOLS)] | None = None
    tool_choice: ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: ResponseTextOptions | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    reasoning: ReasoningOptions | None = None
    include: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=50)] | None = None
    metadata: Annotated[Metadata, Field(max_length=16)] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=512)] | None = None
    service_tier: Annotated[str, Field(max_length=64)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    background: bool | None = None
    store: bool | None = None

    @property
    def items(self) -> "list[ResponseItem]":
        """The input as items."""
        return [ResponseMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    @property
    def custom_tools(self) -> frozenset[str]:
        """The names of the tools whose input is free text."""
        return frozenset(tool.name for tool in self.tools or () if isinstance(tool, ResponseCustomTool))

    @property
    def progress(self) -> bool:
        """Whether steps are reported."""
        return self.reasoning is not None and self.reasoning.summary is not None


ItemAgent: TypeAlias = Annotated[AgentName | None, Field(default=None, exclude_if=lambda agent: agent is None)]
ShikishaFields: TypeAlias = dict[str, object]  # a class with a field `object` cannot say it
ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponsePart(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class AnswerText(ResponsePart):
    """A text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[object] = Field(default_factory=list, max_length=0)
    logprobs: list[object] = Field(default_factory=list, max_length=0)


class AnswerMessage(ResponsePart):
    """The answer, or the text next to function calls."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus = "completed"
    content: list[AnswerText]
    agent: ItemAgent = None


class FunctionCallItem(ResponsePart):
    """A function of the client's is to be called."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"
    agent: ItemAgent = None


class CustomToolCallItem(ResponsePart):
    """A custom tool of the client's is to be called."""

    type: Literal["custom_tool_call"] = "custom_tool_call"
    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus = "completed"
    agent: ItemAgent = None


class ReasoningItem(ResponsePart):
    """A line about a step."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[SummaryText]
    status: ItemStatus = "completed"
    agent: ItemAgent = None


class ApprovalItem(ResponsePart):
    """A person is asked whether a call may be made."""

    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    id: str
    name: str
    arguments: str
    server_label: str
    agent: ItemAgent = None


OutputItem: TypeAlias = Annotated[
    AnswerMessage | FunctionCallItem | CustomToolCallItem | ReasoningItem | ApprovalItem, Discriminator("type")
]


class InputTokenDetails(ResponsePart):
    """Where input tokens went."""

    cached_tokens: int
    cache_write_tokens: int = 0
    orchestration_input_tokens: int
    orchestration_input_cached_tokens: int


class OutputTokenDetails(ResponsePart):
    """Where output tokens went."""

    reasoning_tokens: int
    orchestration_output_tokens: int


class ResponseUsage(ResponsePart):
    """The bill: the answer's own call in the standard fields, everything else as orchestration tokens.

    What calls may have used whose outcome nobody knows is in none of them, but in `uncertain_…` (null: there is none).
    """

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails
    total_tokens: int
    cost: float | None
    uncertain_tokens: int | None = None
    uncertain_cost: float | None = None


class ResponseFailure(ResponsePart):
    """Why there is no answer."""

    code: str
    message: str


class IncompleteDetails(ResponsePart):
    """Why the answer is not whole."""

    reason: str


class ResponseObject(ResponsePart):
    """A response."""

    id: str
    object: Literal["response"] = "response"
    created_at: float
    completed_at: float | None = None
    status: ResponseStatus
    background: bool
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: Metadata = Field(default_factory=dict)
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    safety_identifier: str | None = None
    service_tier: Literal["default"] = "default"
    store: bool = True
    temperature: float | None = None
    text: ResponseTextOptions
    tool_choice: ResponseToolChoice = "auto"
    tools: list[ResponseTool]
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None
    shikisha: ShikishaFields | None = None


class InputMessage(ResponsePart):
    """A message of the input."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["user", "system", "developer"]
    status: ItemStatus = "completed"
    content: list[Annotated[InputText | InputImage | InputFile, Discriminator("type")]]


class FunctionOutputItem(ResponsePart):
    """The result of a call."""

    type: Literal["function_call_output", "custom_tool_call_output"] = "function_call_output"
    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"


class ApprovalDecisionItem(ResponsePart):
    """A person's decision."""

    type: Literal["mcp_approval_response"] = "mcp_approval_response"
    id: str
    approval_request_id: str
    approve: bool
    reason: str | None = None


InputItem: TypeAlias = InputMessage | FunctionOutputItem | ApprovalDecisionItem | OutputItem


class InputItemList(ResponsePart):
    """A page of the items that a response was made from."""

    object: Literal["list"] = "list"
    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(ResponsePart):
    """The confirmation that a response was deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True
