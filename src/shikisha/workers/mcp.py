"""A worker that calls one tool of an MCP server, over stdio or streamable HTTP, through the official SDK (extra `mcp`).

Invariants: the configuration names the server, and a child process gets only the environment variables listed there; a
tool whose pinned hash no longer fits is not called; a tool's description is data, cut to 500 characters, and decides
nothing. Deliberately absent: prompts, images, and anything a server may ask of us (sampling, elicitation).

Gather resources of an MCP server: the list is searched by name and description, the best are read.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Self, TypeVar, cast

from pydantic import Field, ValidationError, model_validator

from shikisha.core.errors import ConfigError, FaultKind, MissingExtra, WorkerError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.toml import Table
from shikisha.engine.gatherer import ContextPiece
from shikisha.engine.worker import Card, Json, Reply, Request, WorkerKind
from shikisha.workers import endpoint
from shikisha.workers.endpoint import ToolArguments, redact_and_clip

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp_types import CallToolResult, RequestParamsMeta

    from shikisha.workers.mcp_session import McpSession, StderrTail


_MOST_RESOURCES, _MOST_PAGES, _READ = 500, 20, 4
_MOST_CHARACTERS = 12_000  # of a resource that are shown
_WEIGHTS = (1.5, 1.0)


@dataclass(frozen=True, slots=True)
class ListedResource:
    """A resource as its server lists it."""

    uri: str
    name: str
    about: str


@dataclass(slots=True)
class McpResourceGatherer:
    """The resources of one server; pieces have these labels."""

    source: str
    server: "McpServer"
    labels: tuple[str, ...] = ()
    refresh: float = 60.0
    _listed: list[ListedResource] = field(default_factory=list)
    _looked: float = field(default=float("-inf"))

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:
        """Return the best resources, read now."""
        if monotonic() - self._looked >= self.refresh:
            self._listed = await self.server.use(_list_resources)
            self._looked = monotonic()
        from shikisha.retrieval.text_index import IndexedText, TextIndex  # with numpy, which only gathering needs

        index = TextIndex([IndexedText("", (f"{one.name} {one.uri}", one.about)) for one in self._listed], _WEIGHTS)
        found = index.search(task.prompt, _READ)
        top = float(found.scores.max(initial=0.0)) or 1.0
        pieces = []
        for place, score in zip(found.positions[:_READ].tolist(), found.scores, strict=False):
            uri = self._listed[place].uri
            text = await self.server.use(partial(_read_resource, uri))
            shown = text[: min(_MOST_CHARACTERS, 4 * tokens)]
            pieces.append(ContextPiece(shown, self.source, uri, 0, 0, float(score) / top, self.labels))
        return pieces


async def _list_resources(client: "Client") -> list[ListedResource]:
    listed: list[ListedResource] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_resources(cursor=cursor)
        listed += [
            ListedResource(str(one.uri)[:1_000], one.name[:200], (one.description or "")[:2_000])
            for one in page.resources[:_MOST_RESOURCES]
        ]
        cursor = page.next_cursor
        if cursor is None or len(listed) >= _MOST_RESOURCES:
            break
    return listed[:_MOST_RESOURCES]


async def _read_resource(uri: str, client: "Client") -> str:
    result = await client.read_resource(uri)
    return "\n".join(text for one in result.contents if isinstance(text := getattr(one, "text", None), str))


T = TypeVar("T")

_MAX_DESCRIPTION = 500
_MAX_PAGES = 100
# A server may change a tool behind an open connection; this old a look is not relied on.
_LOOK_AGAIN_SECONDS = 30.0
_IDEMPOTENCY_KEY = "shikisha/idempotency-key"


class McpServerOptions(Table):
    """One server: either `command` (stdio) or `url` (streamable HTTP)."""

    command: str | None = Field(default=None, description="the program that serves MCP over stdio; either this or url")
    args: list[str] = Field(default=[], description="arguments of the program")
    env: dict[str, str] = Field(
        default={},
        description="environment variables of the program, each read from the named variable of this process",
    )
    url: endpoint.EndpointUrl | None = Field(
        default=None, description="the URL of an MCP server over streamable HTTP; either this or command"
    )
    headers: endpoint.HeaderTemplates = Field(
        default={}, description="further HTTP headers; ${NAME} stands for the value of an environment variable"
    )
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=4 * 2**20, description="the largest reply, in bytes")

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either command (stdio) or url (streamable HTTP)")
        if self.command is None and (self.args or self.env):
            raise ValueError("args and env belong to a command")
        if self.url is None and self.headers:
            raise ValueError("headers belong to a url")
        return self


class McpSettings(McpServerOptions):
    """One tool of one server."""

    tool: Annotated[str, Field(min_length=1)] = Field(description="the name of the tool at its MCP server")
    argument: str | None = Field(default=None, description="the argument that receives a subtask in plain words")
    schema_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="the SHA-256 of the tool's description; a tool that has changed is refused"
    )


Settings = McpSettings  # the name that `config.kinds` looks up


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as its server describes it, and the hash that pins it.

    `description` is cut for people, `whole_description` is what the hash covers. `reads` and `idempotent` are the
    server's own claims: they are shown to whoever pins the tool, and a guard does not rest on them alone.
    """

    name: str
    description: str
    schema: Mapping[str, Json]
    sha256: str
    result: Mapping[str, Json] | None = None
    whole_description: str = ""
    reads: bool = False
    idempotent: bool = False

    @property
    def pin(self) -> str:
        """The line of configuration that pins the tool as it is."""
        return f'schema_sha256 = "{self.sha256}"'


def build(settings: McpSettings, card: Card, secret_store: SecretStore) -> "McpWorker":
    """Return the worker; MissingExtra without the SDK, ConfigError for a missing key."""
    return McpWorker(settings, build_server(settings, card, secret_store, f"worker {card.name!r}"))


KIND = WorkerKind(
    settings=McpSettings,
    build=build,
    billed=True,
    any_task=True,
    uncalled="a call may change something, and needs its own arguments",
)


def build_server(options: McpServerOptions, card: Card, secret_store: SecretStore, purpose: str) -> "McpServer":
    """Return a server that no one has called yet; MissingExtra without the SDK, ConfigError for a missing key."""
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", purpose)
    env = {name: secret_store.read(variable) for name, variable in options.env.items()}
    return McpServer(options, card, secret_store, env, endpoint.fill_headers(options.headers, secret_store))


class McpServer:
    """A connection to one server, shared by the calls of all its tools."""

    def __init__(
        self,
        options: McpServerOptions,
        card: Card,
        secret_store: SecretStore,
        env: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> None:
        self._options = options
        self._card = card
        self._secret_store = secret_store
        self._env = env
        self._headers = headers
        self._session: McpSession | None = None
        # As the connection that is open showed them, and when.
        self._found: dict[str, ToolDescription] = {}
        self._looked = 0.0

    async def call(self, name: str, subtask: str, key: str, pinned: str | None, argument: str | None) -> str:
        """Call a tool with the arguments in the subtask; a tool that does not fit its pinned hash is not called."""
        meta = cast("RequestParamsMeta", {_IDEMPOTENCY_KEY: key}) if key else None

        async def act(client: "Client") -> "CallToolResult":
            if monotonic() - self._looked > _LOOK_AGAIN_SECONDS:
                await self._look(client)
            found = self._found.get(name)
            if found is None:
                known = redact_and_clip(", ".join(sorted(self._found)) or "none", self._secret_store)
                raise WorkerError(FaultKind.BAD_REQUEST, f"the server has no tool {name!r}; it has: {known}")
            arguments = await (await self._arguments(found, pinned, argument)).read(subtask)
            return await client.call_tool(name, arguments, meta=meta)

        return self._answer(await self.use(act))

    async def describe_all(self) -> list[ToolDescription]:
        """Return the tools as the server shows them now."""

        async def act(client: "Client") -> list[ToolDescription]:
            await self._look(client)
            return list(self._found.values())

        return await self.use(act)

    async def aclose(self) -> None:
        """End the connection, and the child process where there is one."""
        session, self._session = self._session, None
        if session is not None:
            await session.aclose()

    async def use(self, action: Callable[["Client"], Awaitable[T]]) -> T:
        """Return what an action on the connection returns, which is opened where there is none; WorkerError."""
        from shikisha.workers import mcp_session

        if self._session is None:
            words = mcp_session.StderrTail()
            opening = partial(self._open, words, mcp_session.bounded_client)
            # A slower connection counts as none: nothing was performed.
            seconds = self._card.timeout / 2
            self._session = mcp_session.McpSession(opening, seconds, self._secret_store, words)
        try:
            async with asyncio.timeout(self._card.timeout):
                return await self._session.use(action)
        except TimeoutError:
            raise WorkerError(FaultKind.TIMEOUT, f"no answer within {self._card.timeout:g} s") from None
        except (ValidationError, RuntimeError) as error:  # the SDK's words for results that do not fit its schemas
            raise WorkerError(FaultKind.BAD_REPLY, redact_and_clip(str(error), self._secret_store)) from None

    async def _open(
        self, words: "StderrTail", http_client: "Callable[..., httpx2.AsyncClient]", stack: AsyncExitStack
    ) -> "Client":
        """Connect, and look at the tools."""
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        options = self._options
        if options.command is not None:
            log = stack.enter_context(words.capture())
            child = StdioServerParameters(command=options.command, args=options.args, env=dict(self._env))
            transport = stdio_client(child, errlog=log)
        else:
            url, most = str(options.url), options.max_bytes
            client = http_client(self._card, url, most, self._headers, self._secret_store)
            http = await stack.enter_async_context(client)
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=most)
        opened = await stack.enter_async_context(Client(transport, cache=None))
        # The SDK validates results with jsonschema on the event loop, against a schema that the server gives: a few
        # hundred bytes of it would never come back. It has no option for that, so its public method is ours instead.
        opened.session.validate_tool_result = self._check_result  # type: ignore[method-assign]
        await self._look(opened)
        return opened

    async def _look(self, client: "Client") -> None:
        """Read the list of tools, page by page; BAD_REPLY for two of one name, as no one can say which is meant."""
        found: dict[str, ToolDescription] = {}
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                # Hash the tool's name, description and input schema.
                secret_store = self._secret_store
                whole = [tool.name, tool.description or "", tool.input_schema]
                digest = sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
                description = redact_and_clip(tool.description or "", secret_store, _MAX_DESCRIPTION)
                hints = tool.annotations
                described = ToolDescription(
                    tool.name,
                    description,
                    tool.input_schema,
                    digest,
                    tool.output_schema,
                    tool.description or "",
                    reads=hints is not None and hints.read_only_hint is True,
                    idempotent=hints is not None and hints.idempotent_hint is True,
                )
                if tool.name in found and found[tool.name] != described:
                    twice = redact_and_clip(tool.name, self._secret_store)
                    raise WorkerError(FaultKind.BAD_REPLY, f"the server has two tools named {twice!r}")
                found[tool.name] = described
            cursor = page.next_cursor
            if cursor is None:
                break
        self._found, self._looked = found, monotonic()

    async def _arguments(self, found: ToolDescription, pinned: str | None, argument: str | None) -> ToolArguments:
        if pinned is not None and found.sha256 != pinned:
            changed = f"tool {found.name!r} is not the one that was pinned: expected {pinned}, got {found.sha256}"
            raise WorkerError(FaultKind.BAD_REQUEST, changed)
        try:
            check = await SchemaCheck.create(found.schema, f"tool {found.name!r}: inputSchema")
        except ConfigError as error:
            raise WorkerError(FaultKind.BAD_REQUEST, redact_and_clip(str(error), self._secret_store)) from None
        return ToolArguments(check, argument)

    async def _check_result(self, name: str, result: "CallToolResult") -> None:
        """Validate a tool's result against its server's schema, as the SDK would, in bounded time."""
        found = self._found.get(name)
        if found is None or found.result is None:
            return
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise WorkerError(FaultKind.BAD_REPLY, f"tool {name!r} has an outputSchema and returned nothing structured")
        try:
            check = await SchemaCheck.create(found.result, f"tool {name!r}: outputSchema")
            problem = await check.problem(result.structured_content)
        except (ConfigError, TimeoutError) as error:
            problem = str(error)
        if problem is not None:
            raise WorkerError(
                FaultKind.BAD_REPLY, redact_and_clip(f"what tool {name!r} returned: {problem}", self._secret_store)
            )

    def _answer(self, result: "CallToolResult") -> str:
        texts = [block.text for block in result.content if block.type == "text"]
        text = "\n".join(texts)
        if not texts and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))
        if result.is_error:
            raise WorkerError(FaultKind.TOOL_ERROR, redact_and_clip(text, self._secret_store))
        if len(text.encode(errors="replace")) > self._options.max_bytes:
            raise WorkerError(FaultKind.TOO_LARGE, f"the result is larger than {self._options.max_bytes:,} bytes")
        if not text.strip():
            others = ", ".join(sorted({block.type for block in result.content}))
            raise WorkerError(FaultKind.EMPTY, f"a result without text{f', only {others}' if others else ''}")
        return text


class McpWorker:
    """One tool."""

    def __init__(self, settings: McpSettings, server: McpServer) -> None:
        self._settings = settings
        self._server = server

    async def perform(self, request: Request) -> Reply:
        """Call the tool with the arguments in the subtask."""
        settings = self._settings
        return Reply(
            await self._server.call(
                settings.tool, request.subtask, request.key, settings.schema_sha256, settings.argument
            )
        )

    @property
    def server(self) -> McpServer:
        """The connection to its server."""
        return self._server

    async def describe(self) -> ToolDescription:
        """Return the tool as the server shows it now, whether or not it fits the pinned hash."""
        shown = {each.name: each for each in await self._server.describe_all()}
        if self._settings.tool not in shown:
            raise WorkerError(FaultKind.BAD_REQUEST, f"the server has no tool {self._settings.tool!r}")
        return shown[self._settings.tool]

    async def aclose(self) -> None:
        """End the connection, and the child process where there is one."""
        await self._server.aclose()
