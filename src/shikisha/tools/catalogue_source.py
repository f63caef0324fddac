"""Reads a catalogue's source as it is now: a file or URL with an OpenAPI document or JSON lines, or an MCP server.

Invariants: a source is read when a person says so (`tools pin`, `tools diff`), never by a run; what is read is bounded,
in bytes and in time, and is asked for without headers unless `base_url` names its origin; a tool whose server the
configuration does not name is refused where that matters;
what an MCP server claims of a tool (that it only reads) is written into the lock, where a person sees it, and the
configuration's `effects` override it.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.tools import ToolEffect
from shikisha.engine.worker import Card
from shikisha.tools.catalogue_entry import (
    CatalogueEntry,
    ReadCatalogue,
    RefusedTool,
    collect_entries,
    make_tool,
    shorten_name,
)
from shikisha.tools.catalogue_settings import CatalogueOptions, HttpCatalogueOptions, McpCatalogue, OpenApiCatalogue
from shikisha.tools.openapi import parse_document, read_openapi
from shikisha.tools.tool_rows import read_tool_rows
from shikisha.workers.endpoint import fill_headers, metadata_problem, origin
from shikisha.workers.mcp import McpServer, ToolDescription, build_server

_MAX_SOURCE_BYTES = 2**26
_MAX_SERVERS = 50  # of one document: each is looked up
_LOOKUP_SECONDS = 2.0
_ANY = socket.AF_UNSPEC


async def read_source(name: str, options: CatalogueOptions, folder: Path, secret_store: SecretStore) -> ReadCatalogue:
    """Return the tools that the source of [catalogues.NAME] holds now, and those that were refused."""
    if (problem := await _server_problem(options.named_server, options)) if options.named_server else "":
        raise ConfigError(f"catalogue {name}: {problem}")
    if isinstance(options, McpCatalogue):
        read = await _read_mcp(name, options, secret_store)
    elif isinstance(options, HttpCatalogueOptions):
        text = await _read_text(name, options, folder, secret_store)
        if isinstance(options, OpenApiCatalogue):
            document = parse_document(text, f"catalogue {name}: {options.source}")
            read = read_openapi(name, document, options.source)
        else:
            read = read_tool_rows(name, text.splitlines(), options.source)
    else:
        raise ConfigError(f"catalogue {name}: expected kind openapi, mcp or jsonl")
    taken = [each for each in read.entries if options.takes(each.tool.name)]
    servers = {} if options.named_server else {each.tool.name: each.call.base_url for each in taken if each.call}
    if len(set(servers.values())) > _MAX_SERVERS:
        raise ConfigError(f"catalogue {name}: more than {_MAX_SERVERS} servers; write base_url")
    problems = {server: await _server_problem(server, options) for server in set(servers.values())}
    refused = [
        RefusedTool(tool, f"catalogue {name}, tool {tool}: {problem}")
        for tool, server in servers.items()
        if (problem := problems[server])
    ]
    kept = [
        replace(each, tool=replace(each.tool, effect=options.effect_of(each.tool.name, each.tool.effect)))
        for each in taken
        if not problems.get(servers.get(each.tool.name, ""))
    ]
    return ReadCatalogue(tuple(kept), (*read.refused, *refused))


async def _server_problem(server: str, options: CatalogueOptions) -> str:
    """Return why calls may not go to a server; a name is looked up, and each connection will look again."""
    from shikisha.workers.http_client import ScreeningResolver, proxy_for

    problem = options.server_problem(server)
    if problem or not server or proxy_for(server):
        return problem
    try:
        async with asyncio.timeout(_LOOKUP_SECONDS):
            await ScreeningResolver(options.address_rule(server)).resolve(urlsplit(server).hostname or "", 0, _ANY)
    except PermissionError as error:
        return f"{origin(server)} is refused: {error.strerror}"
    except (OSError, ValueError, TimeoutError):
        pass  # nobody can be called there now
    return ""


async def _read_text(name: str, options: HttpCatalogueOptions, folder: Path, secret_store: SecretStore) -> str:
    """Return a source's text. The host of a document need not be the API's: headers need a `base_url` to go there."""
    from shikisha.workers.http_client import HttpClient

    where, path = f"catalogue {name}: {options.source}", folder / options.source
    named = options.base_url is not None and options.named_by_person(options.source)
    try:
        if origin(options.source):
            card, headers = Card(name, timeout=options.timeout), options.headers if named else {}
            sent = fill_headers(headers, secret_store) | {"Accept": "application/json, */*;q=0.5"}
            client = HttpClient(card, options.source, _MAX_SOURCE_BYTES, sent, secret_store, metadata_problem)
            async with aclosing(client), client.ask("GET", options.source, {}) as answer:
                await answer.require_success()
                data = await answer.read_all()
        elif path.stat().st_size > _MAX_SOURCE_BYTES:
            raise ConfigError(f"{where}: more than {_MAX_SOURCE_BYTES:,} bytes")
        else:
            data = path.read_bytes()
        return data.decode("utf-8-sig")
    except WorkerError as error:
        unasked = error.fault.kind is FaultKind.AUTH and options.headers and not named
        hint = " (it was asked without the headers: they go where base_url says)" if unasked else ""
        raise ConfigError(f"{where}: {error}{hint}") from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: expected UTF-8 text") from None


async def _read_mcp(name: str, options: McpCatalogue, secret_store: SecretStore) -> ReadCatalogue:
    server: McpServer = build_server(options, Card(name, timeout=options.timeout), secret_store, f"catalogue {name}")
    try:
        return list_mcp_tools(name, await server.describe_all())
    except WorkerError as error:
        raise ConfigError(f"catalogue {name}: its server cannot be listed: {error}") from None
    finally:
        await server.aclose()


def list_mcp_tools(name: str, described: Sequence[ToolDescription]) -> ReadCatalogue:
    """Return what an MCP server lists as tools; a name that chat APIs do not take is shortened."""
    entries: list[CatalogueEntry] = []
    refused: list[RefusedTool] = []
    for each in described:
        shown = shorten_name(each.name)
        effect = ToolEffect.READ if each.reads else ToolEffect.UNKNOWN
        try:
            tool = make_tool(name, shown, each.whole_description, each.schema, effect, idempotent=each.idempotent)
        except ConfigError as error:
            refused.append(RefusedTool(shown, str(error)))
            continue
        entries.append(CatalogueEntry(tool, name, wire=each.name if each.name != shown else ""))
    return collect_entries(name, entries, refused)
