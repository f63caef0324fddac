"""A worker that calls one tool of an MCP server, over stdio or streamable HTTP, through the official SDK (extra `mcp`).

Invariants: the configuration names the server, and a child process gets only the environment variables listed there; a
tool whose pinned hash no longer fits is not called; a tool's description is data, cut to 500 characters, and decides
nothing. Deliberately absent: prompts, resources, images, and anything a server may ask of us (sampling, elicitation).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shikisha.core.errors import ConfigError, FaultKind, MissingExtra, WorkerError
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.secrets import SecretStore
from shikisha.engine.worker import Card, Json, Reply, Request
from shikisha.workers import endpoint
from shikisha.workers.endpoint import ToolArguments, redact_and_clip

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, RequestParamsMeta, Tool

    from shikisha.workers.mcp_session import McpSession, StderrTail

T = TypeVar("T")

_MAX_DESCRIPTION = 500
_MAX_PAGES = 100
_IDEMPOTENCY_KEY = "shikisha/idempotency-key"


class McpSettings(BaseModel):
    """One tool of one server: either `command` (stdio) or `url` (streamable HTTP)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: Annotated[str, Field(min_length=1)] = Field(description="the name of the tool at its MCP server")
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
    argument: str | None = Field(default=None, description="the argument that receives a subtask in plain words")
    schema_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="the SHA-256 of the tool's description; a tool that has changed is refused"
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


Settings = McpSettings  # the name that `config.kinds` looks up


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as its server describes it, and the hash that pins it."""

    name: str
    description: str
    schema: Mapping[str, Json]
    sha256: str
    result: Mapping[str, Json] | None = None

    @property
    def pin(self) -> str:
        """The line of configuration that pins the tool as it is."""
        return f'schema_sha256 = "{self.sha256}"'


def build(settings: McpSettings, card: Card, secret_store: SecretStore) -> "McpWorker":
    """Return the worker; MissingExtra without the SDK, ConfigError for a missing key."""
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", f"worker {card.name!r}")
    env = {name: secret_store.read(variable) for name, variable in settings.env.items()}
    return McpWorker(settings, card, secret_store, env, endpoint.fill_headers(settings.headers, secret_store))


class McpWorker:
    """One tool."""

    def __init__(
        self,
        settings: McpSettings,
        card: Card,
        secret_store: SecretStore,
        env: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._card = card
        self._secret_store = secret_store
        self._env = env
        self._headers = headers
        self._session: McpSession | None = None
        # As the connection that is open showed it.
        self._found: ToolDescription | None = None

    async def perform(self, request: Request) -> Reply:
        """Call the tool with the arguments in the subtask."""
        meta = cast("RequestParamsMeta", {_IDEMPOTENCY_KEY: request.key}) if request.key else None

        async def act(client: "Client") -> "CallToolResult":
            arguments = await (await self._arguments()).read(request.subtask)
            return await client.call_tool(self._settings.tool, arguments, meta=meta)

        return Reply(self._answer(await self._use(act)))

    async def describe(self) -> ToolDescription:
        """Return the tool as the server shows it now, whether or not it fits the pinned hash."""

        async def act(client: "Client") -> ToolDescription:
            return _describe_tool(await _find_tool(client, self._settings.tool, self._secret_store), self._secret_store)

        return await self._use(act)

    async def aclose(self) -> None:
        """End the connection, and the child process where there is one."""
        session, self._session = self._session, None
        if session is not None:
            await session.aclose()

    async def _use(self, action: Callable[["Client"], Awaitable[T]]) -> T:
        from shikisha.workers import mcp_session

        if self._session is None:
            words = mcp_session.StderrTail()
            opening = partial(self._open, words)
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

    async def _open(self, words: "StderrTail", stack: AsyncExitStack) -> "Client":
        """Connect, and look at the tool."""
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        from shikisha.workers import mcp_session

        settings = self._settings
        if settings.command is not None:
            log = stack.enter_context(words.capture())
            child = StdioServerParameters(command=settings.command, args=settings.args, env=dict(self._env))
            transport = stdio_client(child, errlog=log)
        else:
            client = mcp_session.bounded_client(self._card, settings.max_bytes, self._headers, self._secret_store)
            http = await stack.enter_async_context(client)
            transport = streamable_http_client(
                str(settings.url), http_client=http, max_sse_event_size=settings.max_bytes
            )
        opened = await stack.enter_async_context(Client(transport, cache=None))
        # The SDK validates results with jsonschema on the event loop, against a schema that the server gives: a few
        # hundred bytes of it would never come back. It has no option for that, so its public method is ours instead.
        opened.session.validate_tool_result = self._check_result  # type: ignore[method-assign]
        self._found = _describe_tool(await _find_tool(opened, settings.tool, self._secret_store), self._secret_store)
        return opened

    async def _arguments(self) -> ToolArguments:
        found, pinned = self._found, self._settings.schema_sha256
        if found is None:
            raise WorkerError(FaultKind.INTERNAL, "the tool is used before it was looked at")
        if pinned is not None and found.sha256 != pinned:
            changed = f"tool {found.name!r} is not the one that was pinned: expected {pinned}, got {found.sha256}"
            raise WorkerError(FaultKind.BAD_REQUEST, changed)
        try:
            check = await SchemaCheck.create(found.schema, f"tool {found.name!r}: inputSchema")
        except ConfigError as error:
            raise WorkerError(FaultKind.BAD_REQUEST, redact_and_clip(str(error), self._secret_store)) from None
        return ToolArguments(check, self._settings.argument)

    async def _check_result(self, name: str, result: "CallToolResult") -> None:
        """Validate a tool's result against its server's schema, as the SDK would, in bounded time."""
        schema = None if self._found is None else self._found.result
        if schema is None:
            return
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise WorkerError(FaultKind.BAD_REPLY, f"tool {name!r} has an outputSchema and returned nothing structured")
        try:
            check = await SchemaCheck.create(schema, f"tool {name!r}: outputSchema")
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
        if len(text.encode(errors="replace")) > self._settings.max_bytes:
            raise WorkerError(FaultKind.TOO_LARGE, f"the result is larger than {self._settings.max_bytes:,} bytes")
        if not text.strip():
            others = ", ".join(sorted({block.type for block in result.content}))
            raise WorkerError(FaultKind.EMPTY, f"a result without text{f', only {others}' if others else ''}")
        return text


async def _find_tool(client: "Client", name: str, secret_store: SecretStore) -> "Tool":
    """Return the tool of exactly this name, page by page; BAD_REQUEST lists what there is."""
    names: list[str] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            if tool.name == name:
                return tool
            names.append(tool.name)
        cursor = page.next_cursor
        if cursor is None:
            break
    known = redact_and_clip(", ".join(sorted(names)) or "none", secret_store)
    raise WorkerError(FaultKind.BAD_REQUEST, f"the server has no tool {name!r}; it has: {known}")


def _describe_tool(tool: "Tool", secret_store: SecretStore) -> ToolDescription:
    """Hash the tool's name, description and input schema."""
    whole = [tool.name, tool.description or "", tool.input_schema]
    digest = sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    description = redact_and_clip(tool.description or "", secret_store, _MAX_DESCRIPTION)
    return ToolDescription(tool.name, description, tool.input_schema, digest, tool.output_schema)
