"""A worker behind any OpenAI-compatible chat endpoint.

Invariants: one call is one HTTP request under the attempt's idempotency key; only the headers named here leave; the
body that is read is bounded; what comes back is an answer with a bill, or a typed fault with the text received so far.
Nothing of a message is left out on its way. Deliberately absent: the openai SDK (half a second to import, for one
POST), tools of our own (a client's tools are passed on and their calls returned), several choices, log-probabilities,
and provider quirks beyond `extra_body`.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from shikisha.core.budget import Usage
from shikisha.core.call import TOO_DEEP_CODE, ClientOptions, depth_headers
from shikisha.core.errors import ConfigError, Fault, FaultKind, WorkerError
from shikisha.core.events import FinishReason
from shikisha.core.json_codec import encode_json
from shikisha.core.messages import (
    Attachment,
    ChatMessage,
    Json,
    MediaKind,
    Speaker,
    chosen_tool,
    exchange_messages,
)
from shikisha.core.secrets import SecretStore
from shikisha.core.visibility import output_limit, request_messages
from shikisha.engine.worker import Card, Reply, Request
from shikisha.workers import endpoint
from shikisha.workers.chat_reply import (
    ChatReply,
    EventStreamParser,
    max_tokens,
    read_cost,
    read_usage,
    with_minimum_tokens,
)
from shikisha.workers.endpoint import HttpConnections, error_code, redact_and_clip, status_error

if TYPE_CHECKING:
    from shikisha.workers.http_client import HttpResponse


def chat_message(turn: ChatMessage) -> dict[str, Json]:
    """Return the turn as a message."""
    said: dict[str, Json] = {"role": str(turn.speaker), "content": turn.text}
    if turn.attachments:
        text: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        said["content"] = [*text, *(content_part(each) for each in turn.attachments)]
    if turn.speaker is Speaker.TOOL:
        said["tool_call_id"] = turn.answers
    if turn.calls:
        said["content"] = turn.text or None
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    return said


def content_part(attachment: Attachment) -> Mapping[str, Json]:
    """Return the attachment as a content part."""
    link = f"data:{attachment.media_type};base64,{attachment.data}"
    match attachment.kind:
        case MediaKind.IMAGE:
            image = {"url": attachment.url or link}
            return {"type": "image_url", "image_url": image | _optional_field("detail", attachment.detail)}
        case MediaKind.FILE:
            return {"type": "file", "file": {"file_data": link} | _optional_field("filename", attachment.name)}
        case MediaKind.AUDIO:
            sound = {
                "data": attachment.data,
                "format": _AUDIO_FORMATS.get(attachment.media_type, attachment.media_type.rpartition("/")[2]),
            }
            return {"type": "input_audio", "input_audio": sound}


_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}


def _optional_field(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


_CHAT_PATH, _TEXT_PATH = "/chat/completions", "/completions"
_DONE = "[DONE]"
# Seconds that one stream may hold the event loop.
_MAX_LOOP_SECONDS = 0.002
# In the stream of a run of another server of ours.
_RUN_ID_HEADER = "x-shikisha-run-id"
_RESERVED_FIELDS = frozenset(
    {
        "model",
        "messages",
        "n",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
    }
)
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
_EFFORTS = get_args(Effort)  # the least first


class ChatSettings(BaseModel):
    """How one model of one endpoint is called."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, Field(min_length=1)] = Field(description="the name of the model at its endpoint")
    base_url: endpoint.EndpointUrl = Field(
        default=endpoint.OPENAI_URL, description="the base URL of an OpenAI-compatible API"
    )
    api_key_env: str | None = Field(
        default=None, description="the environment variable that holds the API key; local endpoints may need none"
    )
    headers: endpoint.HeaderTemplates = Field(
        default={}, description="further HTTP headers; ${NAME} stands for the value of an environment variable"
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="sampling temperature; by default the endpoint's"
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="nucleus sampling: the probability mass that is kept; by default the endpoint's"
    )
    seed: int | None = Field(default=None, description="the seed of sampling, where the endpoint takes one")
    stop: list[str] | None = Field(default=None, description="texts at which the model stops")
    reasoning_effort: str | None = Field(default=None, description="the reasoning effort of every call")
    efforts: tuple[Effort, ...] | None = Field(
        default=None,
        description="reasoning_effort values that the model accepts; a client's maps to the nearest; [] sends none",
    )
    extra_body: dict[str, JsonValue] = Field(default={}, description="further keys of the request body")
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = Field(
        default="max_completion_tokens", description="the key that carries the limit on output tokens"
    )
    structured_output: bool = Field(default=False, description="whether the endpoint can be held to a JSON Schema")
    tools: bool = Field(default=False, description="whether the model can call the tools of the server's clients")
    takes: tuple[MediaKind, ...] = Field(default=(), description="the kinds of attachments that the model accepts")
    stream: bool = Field(default=True, description="whether replies are streamed")
    confidence: Literal["logprobs"] | None = Field(
        default=None,
        description="where a reply's confidence comes from, for learned policies: the mean of its tokens' "
        "log-probabilities, where the endpoint gives them",
    )
    usage: Literal["required", "estimate"] | None = Field(
        default=None,
        description="whether a reply must report its usage, or usage is estimated; by default required with a price",
    )
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=4 * 2**20, description="the largest reply, in bytes")

    @field_validator("extra_body")
    @classmethod
    def _leaves_ours_alone(cls, extra: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if taken := sorted(_RESERVED_FIELDS & extra.keys()):
            raise ValueError(f"{', '.join(taken)} cannot be set here")
        return extra


Settings = ChatSettings  # the name that `config.kinds` looks up


def fit_card(settings: ChatSettings, card: Card) -> Card:
    """Return the card with the endpoint's capabilities from the settings."""
    return replace(
        card, tools=settings.tools, takes=settings.takes, passthrough=True, schemas=settings.structured_output
    )


def build(settings: ChatSettings, card: Card, secret_store: SecretStore) -> "ChatWorker":
    """Return the worker; ConfigError for a missing key, or when nothing bounds the length of an answer."""
    if card.max_output_tokens < 1:
        raise ConfigError(f"worker {card.name!r}: max_output_tokens must be 1 or more; it bounds what a call can cost")
    headers = endpoint.key_headers(settings.headers, settings.api_key_env, settings.base_url, secret_store)
    return ChatWorker(settings, card, secret_store, headers)


class ChatWorker:
    """One model behind one endpoint."""

    def __init__(
        self, settings: ChatSettings, card: Card, secret_store: SecretStore, headers: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._card = card
        self._secret_store = secret_store
        host = urlsplit(settings.base_url).hostname or ""
        self._strict = host.endswith((".openai.com", ".azure.com"))  # they hold to less than others, and to the letter
        self._connections = HttpConnections(card, settings.base_url, settings.max_bytes, headers, secret_store)

    async def perform(self, request: Request) -> Reply:
        """Ask the model; WorkerError says what went wrong and keeps the text received so far."""
        messages, reply = request_messages(request), ChatReply(request.on_text)
        try:
            await self._exchange(request, messages, reply)
        except (ValueError, RecursionError, WorkerError) as error:
            fault = replace(self._fault(error).fault, partial=reply.text or None)
            if isinstance(error, WorkerError) and fault.kind.unbilled and reply.usage is not None:
                fault = self._with_bill(fault, reply, messages, request.wishes)  # an error that states its usage
            raise WorkerError.of(fault) from None
        return self._checked_reply(reply, messages, request.wishes)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def _exchange(self, request: Request, messages: Sequence[ChatMessage], reply: ChatReply) -> None:
        """Send the request and read the whole reply."""
        body = encode_json(self._body(request, messages))
        kind = "text/event-stream" if self._settings.stream else "application/json"
        headers = {
            "Content-Type": "application/json",
            "Accept": kind,
            **endpoint.idempotency_header(request.key),
            **depth_headers(),
        }
        path = _TEXT_PATH if "prompt" in request.wishes.as_sent else _CHAT_PATH
        url = endpoint.join_path(self._settings.base_url, path)
        async with self._connections.open().ask("POST", url, headers, body) as response:
            if not response.succeeded:
                whole = await response.error_body()
                detail, reply.usage = _read_error_body(whole)
                raise status_error(response.status, response.headers, detail, self._secret_store, error_code(whole))
            try:
                await self._read_reply(response, reply)
            except WorkerError as error:
                # A run of another server of ours is over when its stream states an error: another try cannot help.
                if error.fault.kind is FaultKind.SERVER and _RUN_ID_HEADER in response.headers:
                    raise WorkerError.of(replace(error.fault, kind=FaultKind.NO_ANSWER)) from None
                raise

    async def _read_reply(self, response: "HttpResponse", reply: ChatReply) -> None:
        kind = response.headers.get("Content-Type", "")
        if "event-stream" in kind:
            await self._read_stream(response, reply)
        elif "html" in kind:
            raise _web_page_error()
        elif "json" in kind or not self._settings.stream:  # an endpoint that does not stream
            body = await response.read_all()
            if body.lstrip().startswith(b"<"):
                raise _web_page_error()
            self._add_chunk(body, reply)
            reply.ended = True
        else:
            raise ValueError(f"expected an event stream, not {kind or 'a body of no stated type'}")

    async def _read_stream(self, response: "HttpResponse", reply: ChatReply) -> None:
        """Read an event stream up to its end marker, which may come without the blank line that ends an event."""
        events, yielded_at = EventStreamParser(), monotonic()
        while part := await response.read():
            for data in events.take(part):
                if monotonic() - yielded_at > _MAX_LOOP_SECONDS:  # many events may arrive together; let other tasks run
                    await asyncio.sleep(0)
                    yielded_at = monotonic()
                if data.startswith(_DONE):
                    reply.ended = True
                    await response.drain()
                    return
                self._add_chunk(data, reply)
        reply.ended = events.rest().startswith(_DONE)

    def _body(self, request: Request, messages: Sequence[ChatMessage]) -> dict[str, object]:
        settings, wishes = self._settings, request.wishes
        body: dict[str, object] = {"model": settings.model, "messages": [chat_message(turn) for turn in messages]}
        if settings.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        sampling = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "stop": settings.stop,
            "reasoning_effort": settings.reasoning_effort,
        }
        body |= {name: value for name, value in sampling.items() if value is not None}
        if settings.confidence == "logprobs":
            body["logprobs"] = True
        # OpenAI's schemas are of objects: for a list, the prompt says what is wanted, and a check looks.
        if settings.structured_output and request.schema is not None and request.schema.get("type") != "array":
            schema = strict_schema(request.schema) if self._strict else request.schema
            body["response_format"] = response_format(schema if isinstance(schema, Mapping) else request.schema)
        if wishes.tools:
            body["tools"] = list(wishes.tools)
            if wishes.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = wishes.parallel_tool_calls
            if wishes.tool_choice:
                body["tool_choice"] = tool_choice_field(wishes.tool_choice)
        options = settings.extra_body | _client_options(wishes, settings.efforts)
        if "prompt" in wishes.as_sent:  # a text to complete
            del body["messages"]
            return {**body, **options, **wishes.as_sent, "max_tokens": output_limit(self._card, wishes)}
        if "messages" in wishes.as_sent:  # the client's own, and what its tools returned since
            since = [
                turn for each in request.exchanges[len(request.task.exchanges) :] for turn in exchange_messages(each)
            ]
            body["messages"] = [*cast("Sequence[Json]", wishes.as_sent["messages"]), *map(chat_message, since)]
        own = {name: value for name, value in wishes.as_sent.items() if name != "messages"}
        return body | options | own | {settings.max_tokens_field: output_limit(self._card, wishes)}

    def _add_chunk(self, data: str | bytes, reply: ChatReply) -> None:
        error = reply.take(data)
        if error is not None:
            raise self._stated_error(error)

    def _fault(self, error: BaseException) -> WorkerError:
        """Map an exception to a fault. Messages are our own wording plus the endpoint's, without keys."""
        if isinstance(error, WorkerError):
            return error
        what = redact_and_clip(str(error), self._secret_store)
        return WorkerError(FaultKind.BAD_REPLY, f"not what the protocol allows: {what}")

    def _stated_error(self, body: object) -> WorkerError:
        """Map an error that came under status 200, in a stream or in a whole reply, to a fault."""
        code = str(body.get("code")) if isinstance(body, dict) else ""
        if code == TOO_DEEP_CODE:
            return status_error(400, {}, _error_message(body), self._secret_store, code)
        if code.isdecimal() and 400 <= int(code[:4]) < 600:
            return status_error(int(code), {}, _error_message(body), self._secret_store)
        return WorkerError(
            FaultKind.SERVER, f"the reply states an error: {redact_and_clip(_error_message(body), self._secret_store)}"
        )

    def _checked_reply(self, reply: ChatReply, messages: tuple[ChatMessage, ...], wishes: ClientOptions) -> Reply:
        """Return the reply with its bill, or raise what is wrong with it, with its bill."""
        card, text, most = self._card, reply.text, output_limit(self._card, wishes)
        short = wishes.options.get("max_completion_tokens") == most
        if (objection := reply.objection(wishes, short=short)) is not None:
            message = self._secret_store.redact(objection.fault.message)
            fault = replace(objection.fault, message=message, partial=text or None)
            raise WorkerError.of(self._with_bill(fault, reply, messages, wishes))
        usage, stated = self._usage(reply, messages, wishes)
        if usage is None:
            if self._usage_required:
                raise WorkerError(FaultKind.BAD_USAGE, "the reply does not say credibly what it used", partial=text)
            wrote = sum(len(part.encode()) for part in (text, *(call.arguments for call in reply.calls)))
            usage = Usage(max_tokens(messages, card, wishes).input_tokens, min(most, wrote))
        cost = read_cost(reply.usage, usage, card)
        finish = FinishReason.LENGTH if reply.truncated else FinishReason.STOP
        sure = reply.confidence if self._settings.confidence == "logprobs" else None
        return Reply(text, usage, cost, finish, reply.model, calls=reply.calls, stated=stated, confidence=sure)

    def _usage(
        self, reply: ChatReply, messages: tuple[ChatMessage, ...], wishes: ClientOptions
    ) -> tuple[Usage | None, Usage | None]:
        """Return the credible usage of the call, and the stated one where it differs."""
        stated = read_usage(reply.usage, messages, self._card, wishes)
        if stated is None:
            return None, None
        usage = with_minimum_tokens(stated, (turn.text for turn in messages), reply.texts)
        return usage, None if usage == stated else stated

    def _with_bill(
        self, fault: Fault, reply: ChatReply, messages: tuple[ChatMessage, ...], wishes: ClientOptions
    ) -> Fault:
        """Return the fault with the usage that the reply states, if that is credible."""
        usage, _ = self._usage(reply, messages, wishes)
        if usage is None:
            return fault
        cost, price = read_cost(reply.usage, usage, self._card), self._card.price
        return replace(
            fault, tokens=usage.total, dollars=price.of(usage) if cost is None and price is not None else cost
        )

    @property
    def _usage_required(self) -> bool:
        if self._settings.usage is not None:
            return self._settings.usage == "required"
        price = self._card.price
        return price is not None and max(price.input, price.output) > 0


def _client_options(wishes: ClientOptions, efforts: Sequence[Effort] | None) -> dict[str, Json]:
    """Return the client's sampling options; an effort becomes the nearest one that the endpoint knows."""
    wished = {name: value for name, value in wishes.options.items() if name != "max_completion_tokens"}
    effort = wished.get("reasoning_effort")
    if efforts is not None and effort in _EFFORTS:
        place = _EFFORTS.index(effort)
        del wished["reasoning_effort"]
        if efforts:
            wished["reasoning_effort"] = min(efforts, key=lambda known: abs(_EFFORTS.index(known) - place))
    return wished


def tool_choice_field(choice: str) -> Json:
    """Return a task's tool choice as a request has it."""
    name = chosen_tool(choice)
    return choice if name is None else {"type": "function", "function": {"name": name}}


def _web_page_error() -> WorkerError:
    """Return the fault for a web page: its sender is no chat endpoint and has billed nothing."""
    return WorkerError(FaultKind.BAD_REPLY, "a web page instead of a reply", tokens=0, dollars=0.0)


def _read_error_body(raw: bytes) -> tuple[str, object]:
    """Return the error message of a body (or its text), and the usage that it states."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    error = body.get("error", body) if isinstance(body, dict) else body
    usage = body.get("usage") if isinstance(body, dict) else None
    return _error_message(error) or raw.decode(errors="replace"), usage


def _error_message(body: object) -> str:
    message = body.get("message") if isinstance(body, dict) else body
    return message if isinstance(message, str) else ""


_STRICT_TYPES = {"string", "number", "boolean", "integer", "object", "array", "null"}
_STRICT_LEVELS = 10
_LOOKS_AROUND = re.compile(r"\(\?<?[=!]")
_STRICT_KEYWORDS = frozenset(
    {"type", "enum", "const", "anyOf", "$ref", "$defs", "definitions", "properties", "required", "items"}
    | {"additionalProperties", "pattern", "format", "multipleOf", "maximum", "exclusiveMaximum", "minimum"}
    | {"exclusiveMinimum", "minItems", "maxItems", "title", "description"}
)


def response_format(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return `response_format` for a schema: JSON mode for any object, and `strict` only where strict mode accepts it.

    OpenAI refuses a whole request when its schema is called strict and is not.
    """
    if dict(schema) == {"type": "object"}:
        return {"type": "json_object"}
    form: dict[str, Json] = {"name": "answer", "schema": schema}
    if schema.get("type") == "object" and _fits_strict_mode(schema):
        form["strict"] = True
    return {"type": "json_schema", "json_schema": form}


def strict_schema(schema: Json) -> Json:
    """Return a schema without bounds that OpenAI's strict mode does not know; places of an array become its last."""
    if isinstance(schema, Mapping):
        kept = {name: strict_schema(part) for name, part in schema.items() if name not in ("minLength", "maxLength")}
        places = kept.pop("prefixItems", None)
        return kept | {"items": places[-1]} if isinstance(places, list) and places else kept
    return [strict_schema(part) for part in schema] if isinstance(schema, list) else schema


def _fits_strict_mode(schema: Json, levels: int = _STRICT_LEVELS) -> bool:
    """Whether OpenAI's strict mode accepts this part of a schema.

    Only some keywords; every value has a type or alternatives; an object is closed and requires all its properties.
    """
    if not isinstance(schema, Mapping) or not schema.keys() <= _STRICT_KEYWORDS or not levels:
        return False
    inner: list[Json] = []
    for keyword in ("properties", "$defs", "definitions"):
        parts = schema.get(keyword, {})
        if not isinstance(parts, Mapping):
            return False
        inner += parts.values()
    alternatives = schema.get("anyOf", [])
    if not isinstance(alternatives, Sequence) or isinstance(alternatives, str):
        return False
    inner += alternatives
    if isinstance(pattern := schema.get("pattern"), str) and _LOOKS_AROUND.search(pattern):
        return False
    kinds = _schema_types(schema)
    if not (kinds or alternatives or schema.keys() & {"$ref", "enum", "const"}):
        return False
    if "object" in kinds and not _is_closed_object(schema):
        return False
    if "array" in kinds:
        inner.append(schema.get("items"))
    return kinds <= _STRICT_TYPES and all(_fits_strict_mode(part, levels - 1) for part in inner)


def _schema_types(schema: Mapping[str, Json]) -> set[Json]:
    kind = schema.get("type", [])
    return {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, Sequence) else set()


def _is_closed_object(schema: Mapping[str, Json]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
        return False
    return isinstance(required, Sequence) and set(required) == set(properties)
