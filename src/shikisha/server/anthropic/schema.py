"""The request body of `/v1/messages`, as Anthropic's SDKs and Claude Code send it.

Invariants: a field that would change the answer is honored or refused by name; what Anthropic alone can do (prompt
caches, its own tiers, edits of its context) is accepted and changes nothing. Blocks and tools of kinds that are not
known here follow `server.unknown`: they are left out and named in `X-Shikisha-Ignored`, or the request is refused.

| field | treatment |
|---|---|
| `model` | a name from `/v1/models` |
| `messages` | the last user message without results of tools is the task; what was said before is its history |
| `system` | a text or text blocks: instructions, the first turns of the history |
| `tools` | tools with an `input_schema`, called by the client; tools that Anthropic would run follow `server.unknown` |
| `tool_choice` | `auto`, `any`, `tool`, `none`, and `disable_parallel_tool_use` |
| `max_tokens` | bounds the call that gives the answer, up to its worker's own limit |
| `temperature`, `top_p`, `stop_sequences` | for the worker of the last step |
| `thinking`, `output_config.effort` | the reasoning effort of the last step's worker |
| `output_config.format`, `output_format` | a JSON Schema for the final answer |
| `stream` | the events of Anthropic's API |
| `metadata.user_id` | kept with the run |
| images, documents | as data, or an image as an https link; ids of files are refused, as no files are stored |
| documents of texts, `search_result` | their title and text, where they stand |
| `thinking` blocks in `messages` | accepted, since clients return whole answers, and not used |
| `thread`, `container`, `compaction` | refused: nothing that they name is kept here |
| `cache_control`, `context_management`, `service_tier`, `inference_geo`, `speed`, `betas` | accepted; nothing changes |
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue

from shikisha.server.http.request import RequestModel

MAX_MESSAGES = 8192
MAX_TOOLS = 512
_Cache: TypeAlias = JsonValue  # where a prefix may be cached: workers cache in their own way
BlockId = Annotated[str, Field(min_length=1, max_length=256)]


class TextBlock(RequestModel):
    """A text."""

    type: Literal["text"]
    text: str
    cache_control: _Cache = None
    citations: JsonValue = None


class Base64Source(RequestModel):
    """Bytes in base64."""

    type: Literal["base64"]
    media_type: Annotated[str, Field(max_length=200)]
    data: str


class UrlSource(RequestModel):
    """A link, which is passed on and never followed."""

    type: Literal["url"]
    url: str


class TextSource(RequestModel):
    """A document that is a text."""

    type: Literal["text"]
    media_type: Literal["text/plain"] = "text/plain"
    data: str


class ImageBlock(RequestModel):
    """An image."""

    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource, Field(discriminator="type")]
    cache_control: _Cache = None


class SearchResultBlock(RequestModel):
    """What a client's search brought."""

    type: Literal["search_result"]
    source: str
    title: str
    content: list[TextBlock]
    citations: JsonValue = None
    cache_control: _Cache = None


class DocumentBlock(RequestModel):
    """A document."""

    type: Literal["document"]
    source: Annotated[Base64Source | TextSource, Field(discriminator="type")]
    title: Annotated[str, Field(max_length=500)] | None = None
    context: str | None = None
    citations: JsonValue = None
    cache_control: _Cache = None


class ToolUseBlock(RequestModel):
    """A call that an earlier answer asked for."""

    type: Literal["tool_use"]
    id: BlockId
    name: Annotated[str, Field(min_length=1, max_length=200)]
    input: Annotated[dict[str, JsonValue], BeforeValidator(lambda given: {} if given is None else given)]
    caller: JsonValue = None
    cache_control: _Cache = None


class ToolReferenceBlock(RequestModel):
    """A tool that a client's search for tools found."""

    type: Literal["tool_reference"]
    tool_name: str


_ShownBlock: TypeAlias = TextBlock | ImageBlock | DocumentBlock | SearchResultBlock
ResultPart: TypeAlias = Annotated[_ShownBlock | ToolReferenceBlock, Field(discriminator="type")]


class ToolResultBlock(RequestModel):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: BlockId
    content: str | list[ResultPart] | None = None
    is_error: bool | None = None
    cache_control: _Cache = None


class ThinkingBlock(RequestModel):
    """What an earlier answer thought; it is not used."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None
    cache_control: _Cache = None


class RedactedThinkingBlock(RequestModel):
    """What an earlier answer thought, unreadable; it is not used."""

    type: Literal["redacted_thinking"]
    data: str
    cache_control: _Cache = None


ContentBlock: TypeAlias = Annotated[
    _ShownBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock, Field(discriminator="type")
]
BLOCK_TYPES = frozenset(
    {"text", "image", "document", "search_result", "tool_use", "tool_result", "thinking", "redacted_thinking"}
)
REFUSED_BLOCKS = frozenset({"compaction", "container_upload"})  # which hold what was said or sent: never left out
TOOL_TYPES = frozenset({None, "custom"})


class AnthropicMessage(RequestModel):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[ContentBlock]
    id: str | None = None
    cache_control: _Cache = None


class AnthropicTool(RequestModel):
    """A tool of the client's."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
    description: str | None = None
    input_schema: dict[str, JsonValue]
    strict: bool | None = None
    cache_control: _Cache = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    allowed_callers: list[str] | None = None
    input_examples: list[JsonValue] | None = None


class AnthropicToolChoice(RequestModel):
    """Whether a tool is to be called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingOptions(RequestModel):
    """Whether to think before the answer, and for how many tokens."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class AnthropicSchemaFormat(RequestModel):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, JsonValue], Field(alias="schema")]


class OutputOptions(RequestModel):
    """How much effort goes into the answer, and its form."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: AnthropicSchemaFormat | None = None


class AnthropicMetadata(RequestModel):
    """Who asks."""

    user_id: Annotated[str, Field(max_length=512)] | None = None


class _Conversation(RequestModel):
    """What both endpoints read."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    messages: Annotated[list[AnthropicMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | list[TextBlock] | None = None
    tools: Annotated[list[AnthropicTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: ThinkingOptions | None = None
    output_config: OutputOptions | None = None
    output_format: AnthropicSchemaFormat | None = None
    cache_control: _Cache = None
    context_management: JsonValue = None
    speed: JsonValue = None
    betas: JsonValue = None


class TokenCountRequest(_Conversation):
    """The body of `POST /v1/messages/count_tokens`."""


class MessagesRequest(_Conversation):
    """The body of `POST /v1/messages`."""

    max_tokens: Annotated[int, Field(ge=1, le=10**9)]
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop_sequences: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=64)] | None = None
    metadata: AnthropicMetadata | None = None
    service_tier: JsonValue = None
    inference_geo: JsonValue = None
