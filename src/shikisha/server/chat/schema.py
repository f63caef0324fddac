"""The request body of `/v1/chat/completions`, and how each parameter of OpenAI's API is treated.

Invariant: `PARAMETERS` lists every parameter of the API. A refused parameter is accepted only where it asks for what
happens anyway (`n: 1`); null is the same as absent.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from shikisha.core.messages import encode_json
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import ParameterTreatment, RequestModel, unsupported_parameter

MAX_MESSAGES = 4096
MAX_TOOLS = 128
MAX_CHOICES = 8

_H, _I, _R = ParameterTreatment.HONOURED, ParameterTreatment.IGNORED, ParameterTreatment.REFUSED
PARAMETERS: Mapping[str, tuple[ParameterTreatment, str]] = {
    "messages": (_H, "the last user message is the task, what was said before is its history"),
    "model": (_H, "names who conducts, see /v1/models"),
    "stream": (_H, "the last step is streamed as it comes, where nothing can take it back"),
    "stream_options": (_H, "include_usage; include_obfuscation is refused"),
    "tools": (_H, "function tools, called by the client"),
    "tool_choice": (_H, "auto; none: no tools are offered; required, a named tool: of the call that gives the answer"),
    "parallel_tool_calls": (_H, "passed on"),
    "response_format": (_H, "holds for the final answer: text, json_object, json_schema"),
    "max_completion_tokens": (_H, "bounds the call that gives the answer, up to its worker's own limit"),
    "max_tokens": (_H, "the old name of max_completion_tokens"),
    "reasoning_effort": (_H, "passed on to the worker that gives the answer, as the nearest that it knows"),
    "temperature": (_H, "passed on to the worker that gives the answer"),
    "top_p": (_H, "passed on to the worker that gives the answer"),
    "stop": (_H, "passed on to the worker that gives the answer"),
    "seed": (_H, "passed on to the worker that gives the answer"),
    "verbosity": (_H, "passed on to the worker that gives the answer"),
    "metadata": (_H, "kept with the run, and searchable"),
    "user": (_H, "kept with the run's metadata"),
    "safety_identifier": (_H, "kept with the run's metadata"),
    "prompt_cache_key": (_I, "workers' caches are their own; it can change no answer"),
    "prompt_cache_options": (_I, "workers' caches are their own; it can change no answer"),
    "prompt_cache_retention": (_I, "workers' caches are their own; it can change no answer"),
    "n": (_H, "as many runs, up to 8, each within the key's budget; 1 with results of tools"),
    "logprobs": (_R, "an answer may come from several workers, and has no log-probabilities of its own"),
    "top_logprobs": (_R, "an answer may come from several workers, and has no log-probabilities of its own"),
    "logit_bias": (_R, "token numbers mean something to one model only, and a pool has several"),
    "presence_penalty": (_H, "passed on to the worker that gives the answer"),
    "frequency_penalty": (_H, "passed on to the worker that gives the answer"),
    "top_k": (_H, "of local endpoints: passed on to the worker that gives the answer"),
    "min_p": (_H, "of local endpoints: passed on to the worker that gives the answer"),
    "repetition_penalty": (_H, "of local endpoints: passed on to the worker that gives the answer"),
    "repeat_penalty": (_H, "of local endpoints: passed on to the worker that gives the answer"),
    "chat_template_kwargs": (_H, "of vLLM, SGLang and llama.cpp: passed on to the worker that gives the answer"),
    "enable_thinking": (_H, "of Qwen's endpoints: passed on to the worker that gives the answer"),
    "thinking_budget": (_H, "of Qwen's endpoints: passed on to the worker that gives the answer"),
    "thinking": (_H, "of DeepSeek's, Zhipu's and Anthropic's endpoints: passed on to the worker that gives the answer"),
    "reasoning": (_H, "of OpenRouter: passed on to the worker that gives the answer"),
    "audio": (_R, "answers are text"),
    "modalities": (_R, "answers are text"),
    "functions": (_R, "use tools"),
    "function_call": (_R, "use tools"),
    "prediction": (_I, "it can make an answer quicker, and change none"),
    "service_tier": (_I, "workers have their own tiers"),
    "store": (_H, "GET /v1/chat/completions/{id} returns the answer of a run that has ended; needs n = 1"),
    "web_search_options": (_R, "a search is a worker of the pool"),
    "moderation": (_R, "a check is configured in the pool, not by a request"),
}
_REASONS: Mapping[str, str] = {name: why for name, (_, why) in PARAMETERS.items()}
_REFUSED = frozenset(name for name, (treatment, _) in PARAMETERS.items() if treatment is ParameterTreatment.REFUSED)
_NO_OP_VALUES: Mapping[str, tuple[JsonValue, ...]] = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
}


class ChatTextPart(RequestModel):
    """A text part."""

    type: Literal["text"]
    text: str


class ChatRefusalPart(RequestModel):
    """What an assistant refused with."""

    type: Literal["refusal"]
    refusal: str


class ChatImageUrl(RequestModel):
    """Where an image is: a link that is passed on, or the image itself."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ChatImagePart(RequestModel):
    """An image part."""

    type: Literal["image_url"]
    image_url: ChatImageUrl


class ChatAudioData(RequestModel):
    """A sound's bytes in base64."""

    data: str
    format: Literal["wav", "mp3"]


class ChatAudioPart(RequestModel):
    """A sound part."""

    type: Literal["input_audio"]
    input_audio: ChatAudioData


class ChatFileData(RequestModel):
    """A file's bytes as a data URL, or in base64; `file_id` is refused, since no files are kept here."""

    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


class ChatFilePart(RequestModel):
    """A file part."""

    type: Literal["file"]
    file: ChatFileData


ChatPart = Annotated[ChatTextPart | ChatImagePart | ChatAudioPart | ChatFilePart, Field(discriminator="type")]
ChatAssistantPart = Annotated[ChatTextPart | ChatRefusalPart, Field(discriminator="type")]


class ChatSystemMessage(RequestModel):
    """A system or developer message."""

    role: Literal["system", "developer"]
    content: str | list[ChatTextPart]
    name: str | None = None


class ChatUserMessage(RequestModel):
    """A user's message."""

    role: Literal["user"]
    content: str | list[ChatPart]
    name: str | None = None


def _as_json_text(given: object) -> object:
    """Return arguments as a text: some clients keep them as an object, or null where there are none."""
    if given is None or isinstance(given, dict):
        return encode_json(given or {}).decode()
    return given


class ChatCalledFunction(RequestModel):
    """Which function is called, with which arguments as JSON text."""

    name: str
    arguments: Annotated[str, BeforeValidator(_as_json_text)]


class ChatToolCall(RequestModel):
    """A call that an assistant wants to be made; what a stream's chunk had besides (`index`) may stay."""

    id: str
    type: Literal["function"] = "function"
    function: ChatCalledFunction
    index: int | None = None


class ChatAssistantMessage(RequestModel):
    """An assistant's message. Clients may return it as they got it; only its text and calls are used."""

    role: Literal["assistant"]
    content: str | list[ChatAssistantPart] | None = None
    tool_calls: list[ChatToolCall] | None = None
    refusal: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: list[JsonValue] | None = None
    audio: None = None
    function_call: None = None


class ChatToolMessage(RequestModel):
    """The result of a call."""

    role: Literal["tool"]
    content: Annotated[str | list[ChatTextPart], BeforeValidator(lambda given: "" if given is None else given)]
    tool_call_id: str
    name: str | None = None


ChatInputMessage = Annotated[
    ChatSystemMessage | ChatUserMessage | ChatAssistantMessage | ChatToolMessage, Field(discriminator="role")
]


class ChatStreamOptions(RequestModel):
    """What a stream holds besides."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class ChatFunction(RequestModel):
    """A function of the client's."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class ChatTool(RequestModel):
    """A tool of the client's; there are no others."""

    type: Literal["function"]
    function: ChatFunction


class ChatToolName(RequestModel):
    """The name of a tool."""

    name: str


class ChatNamedTool(RequestModel):
    """One of the tools, by its name."""

    type: Literal["function"]
    function: ChatToolName


class ChatAllowedToolNames(RequestModel):
    """Some of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[ChatNamedTool] = Field(min_length=1, max_length=MAX_TOOLS)


class ChatAllowedTools(RequestModel):
    """The tools that may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: ChatAllowedToolNames


ChatToolChoice = (
    Literal["auto", "none", "required"] | Annotated[ChatNamedTool | ChatAllowedTools, Field(discriminator="type")]
)


class ChatAnswerSchema(RequestModel):
    """The schema of an answer."""

    name: str = Field(max_length=64)
    description: str | None = None
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ChatTextFormat(RequestModel):
    """Any text."""

    type: Literal["text"]


class ChatJsonObjectFormat(RequestModel):
    """A JSON object."""

    type: Literal["json_object"]


class ChatJsonSchemaFormat(RequestModel):
    """JSON after a schema."""

    type: Literal["json_schema"]
    json_schema: ChatAnswerSchema


ChatResponseFormat = Annotated[
    ChatTextFormat | ChatJsonObjectFormat | ChatJsonSchemaFormat, Field(discriminator="type")
]
MetadataName = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
ProviderOptions = Annotated[dict[str, JsonValue], Field(max_length=32)]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ChatRequest(RequestModel):
    """A request for a chat completion."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[ChatInputMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    tools: list[ChatTool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: ChatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ChatResponseFormat | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1, le=10**9)
    max_tokens: int | None = Field(default=None, ge=1, le=10**9)
    reasoning_effort: ReasoningEffort | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    verbosity: Literal["low", "medium", "high"] | None = None
    metadata: dict[MetadataName, MetadataValue] | None = Field(default=None, max_length=16)
    user: str | None = Field(default=None, max_length=512)
    safety_identifier: str | None = Field(default=None, max_length=512)
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, JsonValue] | None = None
    prompt_cache_retention: str | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    logit_bias: dict[str, JsonValue] | None = Field(default=None, max_length=0)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    top_k: int | None = Field(default=None, ge=-1, le=10**6)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    repeat_penalty: float | None = Field(default=None, gt=0, le=10)
    chat_template_kwargs: ProviderOptions | None = None
    enable_thinking: bool | None = None
    thinking_budget: int | None = Field(default=None, ge=-1, le=10**9)
    thinking: ProviderOptions | None = None
    reasoning: ProviderOptions | None = None
    modalities: list[Literal["text"]] | None = Field(default=None, min_length=1, max_length=1)
    service_tier: str | None = Field(default=None, max_length=64)
    store: bool | None = None
    audio: None = None
    functions: None = None
    function_call: None = None
    prediction: dict[str, JsonValue] | None = None
    web_search_options: None = None
    moderation: None = None

    @model_validator(mode="after")
    def _bounded(self) -> "ChatRequest":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: only with stream")
        return self


def check_supported(body: Mapping[str, object]) -> None:
    """Raise ApiError for an unsupported parameter of a raw body."""
    for name, value in body.items():
        if name in _REFUSED and value is not None and value not in _NO_OP_VALUES.get(name, ()):
            raise unsupported_parameter(_REASONS, name, value)
    given = body.get("response_format")
    kind = given.get("type") if isinstance(given, dict) else None
    if kind is not None and kind not in ("text", "json_object", "json_schema"):
        raise unsupported_parameter(_REASONS, "response_format", kind)
    _check_tools(body.get("tools"))


def _check_tools(given: object) -> None:
    for place, tool in enumerate(given if isinstance(given, list) else ()):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind != "function":
            said = f"tools[{place}]: {kind[:40]!r} cannot be honoured: there are function tools only"
            raise ApiError(400, said, "unsupported_value", param=f"tools[{place}].type")
