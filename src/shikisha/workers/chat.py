"""A worker behind any OpenAI-compatible chat endpoint.

Invariants: one call is one HTTP request under the attempt's idempotency key, and another where a parameter of our own
is refused; only the headers named here leave; the
body that is read is bounded; what comes back is an answer with a bill, or a typed fault with the text received so far.
Nothing of a message is left out on its way. Deliberately absent: the openai SDK (half a second to import, for one
POST), tools of our own (a client's tools are passed on and their calls returned), several choices, log-probabilities,
and code for a single provider: what each wants and sends stands in its profile.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, field_validator

from shikisha.core.budget import Amount, Usage, byte_length
from shikisha.core.call import ClientOptions, depth_headers
from shikisha.core.errors import ConfigError, Fault, FaultCause, FaultKind, WorkerError
from shikisha.core.events import FinishReason
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import (
    MAX_ENVELOPE_BYTES,
    ChatMessage,
    Json,
    MediaKind,
    chosen_tool,
    encode_json,
    exchange_messages,
    tool_name,
)
from shikisha.core.secrets import SecretStore
from shikisha.core.text import repeated_end
from shikisha.core.toml import Table
from shikisha.core.visibility import output_limit, request_messages
from shikisha.engine.worker import Card, Reply, Request, WorkerKind
from shikisha.workers import endpoint
from shikisha.workers.chat_messages import WireMessages
from shikisha.workers.chat_reply import ChatReply, EventStreamParser
from shikisha.workers.chat_usage import (
    UntrueUsage,
    bounded_use,
    estimated_usage,
    max_tokens,
    read_cost,
    stated_usage,
    with_minimum_tokens,
)
from shikisha.workers.endpoint import redact_and_clip
from shikisha.workers.endpoint_faults import model_fault, read_error_body, stated_error
from shikisha.workers.http_connections import HttpConnections
from shikisha.workers.provider_profile import profile_at, provider_profiles

if TYPE_CHECKING:
    from shikisha.workers.http_client import HttpResponse
    from shikisha.workers.local_model import LocalModel


_LOG = logging.getLogger("shikisha.workers")
_IDLES = 10  # a stream may take so many times as long as it may be silent
_CHAT_PATH, _TEXT_PATH = "/chat/completions", "/completions"
_DONE = "[DONE]"
# Seconds that one stream may hold the event loop.
_MAX_LOOP_SECONDS = 0.002
# In the stream of a run of another server of ours.
_RUN_ID_HEADER = "x-shikisha-run-id"
# Parameters of our own that an endpoint may refuse: without them we know less, and the answer is the same.
_DISPENSABLE = frozenset({"stream_options", "parallel_tool_calls", "logprobs"})
_EVENT_FIELD = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
# What models put around a tool's name: a namespace of their training, a mark of their template.
_QUALIFIER = re.compile(r"^(?:functions|function|tools|default_api|tool)[.:/]|<\|.*$")
LimitField = Literal["max_completion_tokens", "max_tokens"]
_LIMIT_FIELDS: tuple[LimitField, ...] = get_args(LimitField)
# A bound for what is written unseen: before the first piece, and until an endpoint sees that nobody reads.
_TOKENS_A_SECOND = 100
_STOP_SECONDS = 0.2
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


class ChatSettings(Table):
    """How one model of one endpoint is called."""

    model: Annotated[str, Field(min_length=1)] = Field(description="the name of the model at its endpoint")
    base_url: endpoint.ChatUrl = Field(
        default=endpoint.OPENAI_URL,
        description="the base URL of an OpenAI-compatible API; local: performs `model`, a name of `models pull` or "
        "the path of a GGUF file, on this machine",
    )
    api_key_env: str | None = Field(
        default=None, description="the environment variable that holds the API key; local endpoints may need none"
    )
    headers: endpoint.HeaderTemplates = Field(
        default={}, description="further HTTP headers; ${NAME} stands for the value of an environment variable"
    )
    cache_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None,
        description="seconds that the endpoint keeps a prompt's prefix after its last use, for [turns]; by default as "
        "its provider states, where it does",
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
    provider: str | None = Field(
        default=None,
        description="whose form the endpoint has, where its address does not say it (a gateway, a server of your own)",
    )
    max_tokens_field: LimitField | None = Field(
        default=None, description="the key that carries the limit on output tokens; by default the provider's"
    )
    structured_output: bool = Field(default=False, description="whether the endpoint can be held to a JSON Schema")
    tools: bool = Field(default=False, description="whether the model can call the tools of the server's clients")
    takes: tuple[MediaKind, ...] = Field(default=(), description="the kinds of attachments that the model accepts")
    stream: bool = Field(default=True, description="whether replies are streamed")
    hide_thoughts: bool = Field(
        default=True, description="whether thoughts between <think> marks at its beginning are left out of an answer"
    )
    confidence: Literal["logprobs"] | None = Field(
        default=None,
        description="where a reply's confidence comes from, for learned policies: the mean of its tokens' "
        "log-probabilities, where the endpoint gives them",
    )
    usage: Literal["required", "estimate"] | None = Field(
        default=None,
        description="whether a reply must report its usage, or is estimated; by default an estimate replaces what is "
        "missing, and what cannot be true is a fault where it has a price",
    )
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=4 * 2**20, description="the largest reply, in bytes")

    @field_validator("extra_body")
    @classmethod
    def _leaves_ours_alone(cls, extra: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if taken := sorted(_RESERVED_FIELDS & extra.keys()):
            raise ValueError(f"{', '.join(taken)} cannot be set here")
        return extra

    @field_validator("provider")
    @classmethod
    def _has_a_profile(cls, name: str | None) -> str | None:
        if name is not None and name not in (
            known := sorted({n for p in provider_profiles().values() for n in p.names})
        ):
            raise ValueError(f"expected one of {', '.join(known)}")
        return name


Settings = ChatSettings  # the name that `config.kinds` looks up


def fit_card(settings: ChatSettings, card: Card) -> Card:
    """Return the card with the endpoint's capabilities from the settings."""
    able = replace(card, tools=settings.tools, takes=settings.takes, schemas=settings.structured_output)
    if settings.base_url == endpoint.LOCAL_URL and card.concurrency is None:
        able = replace(able, concurrency=1)  # its process performs one call at a time and resets some of several
    profile = profile_at(settings.base_url, settings.provider)
    seconds = profile.cache_seconds if settings.cache_seconds is None else settings.cache_seconds
    able = replace(able, cache_seconds=seconds, foreign_calls=profile.reasoning.back != "required")
    return replace(able, passthrough=True, longest=_IDLES * card.timeout if settings.stream else None)


def build(settings: ChatSettings, card: Card, secret_store: SecretStore) -> "ChatWorker":
    """Return the worker; ConfigError for a missing key, or when nothing bounds the length of an answer."""
    if card.max_output_tokens < 1:
        raise ConfigError(f"worker {card.name!r}: max_output_tokens must be 1 or more; it bounds what a call can cost")
    headers = endpoint.key_headers(settings.headers, settings.api_key_env, settings.base_url, secret_store)
    return ChatWorker(settings, card, secret_store, headers)


KIND = WorkerKind(settings=ChatSettings, build=build, fit_card=fit_card, billed=True, max_output_tokens=4096)


def _local_model(settings: ChatSettings, card: Card) -> "LocalModel | None":
    """Return the model of this machine that the settings name; ConfigError where it is not here."""
    if settings.base_url != endpoint.LOCAL_URL:
        return None
    from shikisha.workers.local_model import LocalModel

    return LocalModel(settings.model, card.context_tokens)


class ChatWorker:
    """One model behind one endpoint."""

    def __init__(
        self, settings: ChatSettings, card: Card, secret_store: SecretStore, headers: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._card = card
        self._secret_store = secret_store
        self._profile = profile_at(settings.base_url, settings.provider)
        # Thoughts of one model are of no use to another, nor are its signatures.
        self._endpoint = sha256(f"{settings.base_url}\n{settings.model}".encode()).hexdigest()[:16]
        self._prefix = ""  # of every path: /v1 where that was left out of the base URL
        self._limit_field = settings.max_tokens_field or self._profile.request.limit
        self._left_out = frozenset(self._profile.request.refuses) & _DISPENSABLE
        keys = (settings.max_bytes, headers, secret_store)
        self._local = _local_model(settings, card)
        self._free = self._local is not None or (card.price is not None and not max(card.price.dearest))
        self._connections = HttpConnections(card, settings.base_url, *keys, local=self._local)

    async def perform(self, request: Request) -> Reply:
        """Ask the model; WorkerError says what went wrong and keeps the text received so far."""
        messages = request_messages(request)
        course = _Course(request, messages, ChatReply(request.on_text, self._settings.hide_thoughts))
        try:
            await self._exchange(course)
        except asyncio.CancelledError:
            if request.on_cancel is not None and (used := _use_so_far(course, self._card)) is not None:
                request.on_cancel(used)
            raise
        except (ValueError, RecursionError, WorkerError) as error:
            fault = replace(self._fault(error).fault, partial=course.reply.text or None)
            if isinstance(error, WorkerError) and fault.kind.unbilled and course.reply.usage is not None:
                fault = self._with_bill(fault, course)  # an error that states its usage
            elif fault.kind is FaultKind.TIMEOUT and (used := _use_so_far(course, self._card)) is not None:
                possible = (used.tokens, used.dollars)
                fault = replace(
                    fault, tokens=0, dollars=0.0, uncertain_tokens=possible[0], uncertain_dollars=possible[1]
                )
            raise WorkerError.of(fault) from None
        return self._checked_reply(course)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def _exchange(self, course: "_Course") -> None:
        """Send the request and read the whole reply; once more where a parameter is refused that only we want.

        Once more, too, where nothing is at a base URL without a path: under /v1, which people leave out.
        """
        while (refused := await self._ask(course)) is not None:
            if refused.fault.stated is FaultCause.NOT_FOUND:
                if course.bare is not None:
                    self._prefix, said = "", f"{course.bare.message}; nor is anything under /v1: is base_url right?"
                    raise WorkerError.of(replace(course.bare, message=said))
                if self._prefix or urlsplit(self._settings.base_url).path.strip("/"):
                    raise refused
                course.bare, self._prefix = refused.fault, "/v1"
                continue
            parameter = refused.fault.param.rpartition(".")[2] if refused.fault.param else ""
            if parameter in _DISPENSABLE - self._left_out:
                self._left_out |= {parameter}
            elif parameter == self._limit_field and self._settings.max_tokens_field is None and not course.renamed:
                course.renamed = True
                self._limit_field = next(name for name in _LIMIT_FIELDS if name != parameter)
            else:
                raise refused
        if course.bare is not None:
            right = endpoint.join_path(self._settings.base_url, "/v1")
            _LOG.warning("worker %s answers under /v1: write base_url = %r", self._card.name, right)

    async def _ask(self, course: "_Course") -> WorkerError | None:
        """Send the request and read the whole reply; return the refusal of a parameter, for which nothing was done."""
        body = encode_json(self._body(course))
        kind = "text/event-stream" if self._settings.stream else "application/json"
        headers = {
            "Content-Type": "application/json",
            "Accept": kind,
            **endpoint.idempotency_header(course.request.key),
            **depth_headers(),
        }
        path = _TEXT_PATH if "prompt" in course.request.client_options.as_sent else _CHAT_PATH
        url, reply = endpoint.join_path(await self._connections.base(), self._prefix + path), course.reply
        course.begun = monotonic()
        async with self._connections.open().ask("POST", url, headers, body) as response:
            if not response.succeeded:
                stated, reply.usage = read_error_body(await response.error_body())
                fault = model_fault(response.status, response.headers, stated, self._secret_store, self._profile)
                if fault.fault.stated in (FaultCause.PARAMETER, FaultCause.NOT_FOUND):
                    return fault
                raise fault
            try:
                await self._read_reply(response, course)
            except WorkerError as error:
                # A run of another server of ours is over when its stream states an error: another try cannot help.
                if error.fault.kind is FaultKind.SERVER and _RUN_ID_HEADER in response.headers:
                    raise WorkerError.of(replace(error.fault, kind=FaultKind.NO_ANSWER)) from None
                raise
        return None

    async def _read_reply(self, response: "HttpResponse", course: "_Course") -> None:
        kind, reply = response.headers.get("Content-Type", ""), course.reply
        part = await response.read()
        if "html" in kind or part.lstrip().startswith(b"<"):
            raise _web_page_error()
        if _EVENT_FIELD.match(part) or ("event-stream" in kind and part.lstrip()[:1] != b"{"):
            await self._read_stream(response, part, course)
            return
        # An endpoint that does not stream. What a body is says its beginning: types are wrong too often.
        if (error := reply.take(part + await response.read_all(), whole=True)) is not None:
            raise self._stated_error(error)
        reply.end()

    async def _read_stream(self, response: "HttpResponse", part: bytes, course: "_Course") -> None:
        """Read an event stream up to its end marker, which may come without the blank line that ends an event.

        Where none comes, the end of the body is the end of a reply that has its finish reason.
        """
        events, reply, yielded_at = EventStreamParser(), course.reply, monotonic()
        while part:
            for data in events.take(part):
                if monotonic() - yielded_at > _MAX_LOOP_SECONDS:  # many events may arrive together; let other tasks run
                    await asyncio.sleep(0)
                    yielded_at = monotonic()
                if data.startswith(_DONE):
                    reply.end()
                    await response.drain()
                    return
                self._add_chunk(data, course)
            part = await response.read()
        with suppress(ValueError):  # the body may end inside an event
            for data in events.take(b"\n\n"):
                if data.startswith(_DONE):
                    reply.end()
                    return
                self._add_chunk(data, course)
        if reply.finish is not None:
            if self._profile.end == "[DONE]":
                reply.note("the stream ended without [DONE]")
            reply.end()

    def _body(self, course: "_Course") -> dict[str, object]:
        settings, request, client_options = self._settings, course.request, course.request.client_options
        wire = WireMessages(self._profile, self._endpoint)
        body: dict[str, object] = {"model": settings.model, "messages": []}
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
            schema = strict_schema(request.schema) if self._profile.request.schema_mode else request.schema
            body["response_format"] = response_format(schema if isinstance(schema, Mapping) else request.schema)
        if client_options.tools:
            body["tools"] = list(client_options.tools)
            if client_options.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = client_options.parallel_tool_calls
            if client_options.tool_choice:
                body["tool_choice"] = tool_choice_field(client_options.tool_choice)
        for name in self._left_out:
            body.pop(name, None)
        options = settings.extra_body | _client_options(client_options, settings.efforts)
        if "prompt" in client_options.as_sent:  # a text to complete
            del body["messages"]
            return {**body, **options, **client_options.as_sent, "max_tokens": output_limit(self._card, client_options)}
        turns = course.messages
        if "messages" in client_options.as_sent:  # the client's own, and what its tools returned since
            body["messages"] = wire.adapted(
                cast("Sequence[Mapping[str, Json]]", client_options.as_sent["messages"]), turns
            )
            since = request.exchanges[len(request.task.exchanges) :]
            turns = tuple(turn for each in since for turn in exchange_messages(each))
        own = {name: value for name, value in client_options.as_sent.items() if name != "messages"}
        body |= options | own | {self._limit_field: output_limit(self._card, client_options)}
        said = [*cast("list[Mapping[str, Json]]", body["messages"]), *map(wire.message, turns)]
        body["messages"] = said if self._local is None else _with_system(said, self._local.system, course)
        return self._with_fitting_tools(body, course, wire)

    def _with_fitting_tools(self, body: dict[str, object], course: "_Course", wire: WireMessages) -> dict[str, object]:
        """Return a request with tools under names that the endpoint takes; BAD_REQUEST where they are too many."""
        tools, choice, most = body.get("tools"), body.get("tool_choice"), self._profile.calls.max_tools
        if not isinstance(tools, list):
            return body
        if most is not None and len(tools) > most:
            said = f"{len(tools)} tools are offered, and {self._profile.title} takes {most}"
            raise WorkerError(FaultKind.BAD_REQUEST, said, stated=FaultCause.TOOL_LIMITS, param="tools")
        course.names = {theirs: own for own in map(tool_name, tools) if own and (theirs := wire.tool_name(own)) != own}
        if not course.names:
            return body
        return {**body, "tools": [wire.named(tool) for tool in tools], "tool_choice": wire.named(cast("Json", choice))}

    def _add_chunk(self, data: str | bytes, course: "_Course") -> None:
        reply, before = course.reply, len(course.reply.pieces)
        error = reply.take(data)
        if error is not None:
            raise self._stated_error(error)
        if not course.first_at and (reply.pieces or reply.growing or reply.received):
            course.first_at = monotonic()
        if self._free and len(reply.pieces) > before and (unit := repeated_end(reply.pieces)):
            raise _loop_error(redact_and_clip(unit.strip(), self._secret_store), _use_so_far(course, self._card))

    def _fault(self, error: BaseException) -> WorkerError:
        """Map an exception to a fault. Messages are our own wording plus the endpoint's, without keys."""
        if isinstance(error, WorkerError):
            return error
        what = redact_and_clip(str(error), self._secret_store)
        return WorkerError(FaultKind.BAD_REPLY, f"not what the protocol allows: {what}")

    def _stated_error(self, body: object) -> WorkerError:
        """Map an error that came under status 200, in a stream or in a whole reply, to a fault."""
        return model_fault(None, {}, stated_error(body), self._secret_store, self._profile)

    def _checked_reply(self, course: "_Course") -> Reply:
        """Return the reply with its bill, or raise what is wrong with it, with its bill."""
        card, reply, client_options = self._card, course.reply, course.request.client_options
        offered = {tool_name(tool) for tool in client_options.tools}
        for call in reply.growing:
            call.name = course.names.get(call.name, call.name)
            bare = _QUALIFIER.sub("", call.name)
            if call.name not in offered and bare in offered:
                reply.note(f"it calls {bare} by a name with more in it")
                call.name = bare
        text, most = reply.text, output_limit(card, client_options)
        short = client_options.options.get("max_completion_tokens") == most
        objection = reply.objection(client_options, short=short)
        if objection is None and reply.oversized and reply.growing:
            said = f"more than {MAX_ENVELOPE_BYTES:,} bytes came beside the calls of tools, and would have to go back"
            objection = WorkerError(FaultKind.TOO_LARGE, said)
        if objection is not None:
            message = self._secret_store.redact(objection.fault.message)
            raise WorkerError.of(
                self._with_bill(replace(objection.fault, message=message, partial=text or None), course)
            )
        usage, stated, uncertain = self._bill(course)
        cost = read_cost(reply.usage, usage, card)
        finish = FinishReason.LENGTH if reply.truncated else FinishReason.STOP
        return Reply(
            text,
            usage,
            cost,
            finish,
            reply.model,
            calls=reply.calls,
            stated=stated,
            uncertain=uncertain if cost is None else Amount(),
            confidence=reply.confidence if self._settings.confidence == "logprobs" else None,
            envelope=reply.envelope(self._endpoint) if reply.growing else "",
            notes=tuple(reply.notes),
        )

    def _bill(self, course: "_Course") -> tuple[Usage, Usage | None, Amount]:
        """Return what the call used, what the endpoint said where that is less than can be, and what may come to it.

        BAD_USAGE where it says what cannot be true, or nothing although the settings require it.
        """
        reply, card, client_options = course.reply, self._card, course.request.client_options
        lie = ""
        try:
            found = stated_usage(reply.usage, course.messages, card, client_options)
        except UntrueUsage as error:
            found, lie = None, str(error)
        if found is not None:
            usage = with_minimum_tokens(found, (turn.text for turn in course.messages), reply.texts)
            return usage, None if usage == found else found, Amount()
        if (self._billed if lie else self._settings.usage == "required") and self._settings.usage != "estimate":
            said = f"the reply does not say credibly what it used: {lie or 'it says nothing'}"
            raise WorkerError(FaultKind.BAD_USAGE, f'{said} (usage = "estimate" takes an estimate)', partial=reply.text)
        reply.note(f"its usage is an estimate: {lie or 'the endpoint states none'}")
        usage = estimated_usage(course.messages, (*reply.texts, " " * reply.received), card, client_options)
        wrote = sum(map(byte_length, reply.texts)) + reply.received
        most = max_tokens(course.messages, card, client_options)
        return usage, None, bounded_use(usage, replace(most, output_tokens=min(most.output_tokens, wrote)), card)

    def _with_bill(self, fault: Fault, course: "_Course") -> Fault:
        """Return the fault with the usage that the reply states, if that is credible."""
        try:
            found = stated_usage(course.reply.usage, course.messages, self._card, course.request.client_options)
        except UntrueUsage:
            found = None
        if found is None:
            return fault
        usage = with_minimum_tokens(found, (turn.text for turn in course.messages), course.reply.texts)
        cost, price = read_cost(course.reply.usage, usage, self._card), self._card.price
        return replace(
            fault, tokens=usage.total, dollars=price.of(usage) if cost is None and price is not None else cost
        )

    @property
    def _billed(self) -> bool:
        price = self._card.price
        return self._settings.usage == "required" or (price is not None and max(price.dearest) > 0)


@dataclass(slots=True)
class _Course:
    """One call on its way: what is asked, what has come, since when, and the tools' own names by those sent."""

    request: Request
    messages: tuple[ChatMessage, ...]
    reply: ChatReply
    begun: float = 0.0
    first_at: float = 0.0  # 0: nothing has come
    names: dict[str, str] = field(default_factory=dict)
    bare: Fault | None = None  # what a base URL without /v1 came to, which is tried
    renamed: bool = False  # the limit's field was tried under its other name


def _with_system(messages: list[Mapping[str, Json]], system: str, course: "_Course") -> list[Mapping[str, Json]]:
    """Return messages with what a weak model is told where a person's own words come alone; the reply says so."""
    request = course.request
    alone = request.own_words and request.schema is None and not request.client_options.tools
    if not system or not alone or any(turn.get("role") in ("system", "developer") for turn in messages):
        return messages
    course.reply.note(f"the model was told as well: {system}")
    return [{"role": "system", "content": system}, *messages]


def _loop_error(unit: str, used: Amount | None) -> WorkerError:
    """Return the fault for an answer that repeats a text without end."""
    known, said = used or Amount(), f"the answer repeats itself without end: {unit!r}"
    return WorkerError(FaultKind.TRUNCATED, said, tokens=known.tokens, dollars=known.dollars)


def _use_so_far(course: "_Course", card: Card) -> Amount | None:
    """Return the most that a stream which we end now can have used; None where nothing bounds it.

    An endpoint stops when it sees that nobody reads. What it thought before its first piece, and writes in the
    moment before it stops, is bounded by a speed; its input by the texts.
    """
    reply = course.reply
    if not course.first_at:
        return None
    most = max_tokens(course.messages, card, course.request.client_options)
    sent = estimated_usage(course.messages, reply.texts, card, course.request.client_options)
    moments = course.first_at - course.begun + _STOP_SECONDS
    wrote = sum(map(byte_length, reply.texts)) + reply.received + int(_TOKENS_A_SECOND * moments)
    used = Usage(sent.input_tokens, min(wrote, most.output_tokens))
    return Amount(used.total, None if card.price is None else card.price.of(used))


def _client_options(client_options: ClientOptions, efforts: Sequence[Effort] | None) -> dict[str, Json]:
    """Return the client's sampling options; an effort becomes the nearest one that the endpoint knows."""
    wished = {name: value for name, value in client_options.options.items() if name != "max_completion_tokens"}
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
    """Return a schema without what OpenAI's strict mode does not know; places of an array become its last."""
    if isinstance(schema, Mapping):
        kept = {name: strict_schema(part) for name, part in schema.items() if name not in ("minLength", "maxLength")}
        places = kept.pop("prefixItems", None)
        if kept.get("type") == "array":  # the values of enums are no lists there
            kept.pop("enum", None)
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
    kind = schema.get("type", [])
    kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, Sequence) else set()
    if not (kinds or alternatives or schema.keys() & {"$ref", "enum", "const"}):
        return False
    if "object" in kinds and not _is_closed_object(schema):
        return False
    if "array" in kinds:
        inner.append(schema.get("items"))
    return kinds <= _STRICT_TYPES and all(_fits_strict_mode(part, levels - 1) for part in inner)


def _is_closed_object(schema: Mapping[str, Json]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
        return False
    return isinstance(required, Sequence) and set(required) == set(properties)
