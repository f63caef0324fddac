"""What `/v1/responses` gives: the response object, its items, a page of input items, as the openai SDK reads them.

Invariant: a response is complete whenever it is given: every field stands there, null where there is nothing. Fields
beyond OpenAI's are `agent` on items (their multi-agent beta's), `cost` and orchestration tokens in `usage`, `shikisha`
where it was asked for. Deliberately absent: how a run becomes a response (`responses_view`).
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field

from shikisha.server.wire.responses_request import (
    AgentName,
    Function,
    InputFile,
    InputImage,
    InputText,
    ItemStatus,
    Metadata,
    SummaryText,
    Text,
    Thinking,
)

Whose: TypeAlias = Annotated[AgentName | None, Field(default=None, exclude_if=lambda agent: agent is None)]
Told: TypeAlias = dict[str, object]  # a class with a field `object` cannot say it
Standing: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class Given(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class AnswerText(Given):
    """A text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[object] = Field(default_factory=list, max_length=0)
    logprobs: list[object] = Field(default_factory=list, max_length=0)


class AnswerMessage(Given):
    """The answer, or what was said beside function calls."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus = "completed"
    content: list[AnswerText]
    agent: Whose = None


class CallItem(Given):
    """A function of the client's is to be called."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"
    agent: Whose = None


class ReasoningItem(Given):
    """A line about a step."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[SummaryText]
    status: ItemStatus = "completed"
    agent: Whose = None


class ApprovalItem(Given):
    """A person is asked whether a call may be made."""

    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    id: str
    name: str
    arguments: str
    server_label: str
    agent: Whose = None


OutputItem: TypeAlias = Annotated[AnswerMessage | CallItem | ReasoningItem | ApprovalItem, Discriminator("type")]


class InputDetails(Given):
    """Where input tokens went."""

    cached_tokens: int
    cache_write_tokens: int = 0
    orchestration_input_tokens: int
    orchestration_input_cached_tokens: int


class OutputDetails(Given):
    """Where output tokens went."""

    reasoning_tokens: int
    orchestration_output_tokens: int


class Used(Given):
    """The bill: the answer's own call in the standard fields, everything else as orchestration tokens.

    What calls may have used whose outcome nobody knows is in none of them, but in `uncertain_…` (null: there is none).
    """

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int
    cost: float | None
    uncertain_tokens: int | None = None
    uncertain_cost: float | None = None


class Failure(Given):
    """Why there is no answer."""

    code: str
    message: str


class Cut(Given):
    """Why the answer is not whole."""

    reason: str


class ResponseObject(Given):
    """A response."""

    id: str
    object: Literal["response"] = "response"
    created_at: float
    completed_at: float | None = None
    status: Standing
    background: bool
    error: Failure | None = None
    incomplete_details: Cut | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: Metadata = Field(default_factory=dict)
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: Thinking = Thinking()
    safety_identifier: str | None = None
    service_tier: Literal["default"] = "default"
    store: bool = True
    temperature: float | None = None
    text: Text
    tool_choice: Literal["auto", "none"] = "auto"
    tools: list[Function]
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"
    usage: Used | None = None
    user: str | None = None
    shikisha: Told | None = None


class InputMessage(Given):
    """A message of the input."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["user", "system", "developer"]
    status: ItemStatus = "completed"
    content: list[Annotated[InputText | InputImage | InputFile, Discriminator("type")]]


class OutputOfCall(Given):
    """What a function call came to."""

    type: Literal["function_call_output"] = "function_call_output"
    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"


class Decided(Given):
    """A person's decision."""

    type: Literal["mcp_approval_response"] = "mcp_approval_response"
    id: str
    approval_request_id: str
    approve: bool
    reason: str | None = None


InputItem: TypeAlias = InputMessage | OutputOfCall | Decided | OutputItem


class InputItems(Given):
    """A page of the items that a response was made from."""

    object: Literal["list"] = "list"
    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(Given):
    """A response that this API does not find any more."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True
