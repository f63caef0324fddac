"""Reads a catalogue's source as it is now: a file or URL with an OpenAPI document or JSON lines, or an MCP server.

Invariants: a source is read when a person says so (`tools pin`, `tools diff`), never by a run; what is read is bounded;
what an MCP server claims of a tool (that it only reads) is written into the lock, where a person sees it, and the
configuration's `effects` override it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from shikisha.core.errors import ConfigError, WorkerError
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
from shikisha.workers.endpoint import HttpConnections, fill_headers
from shikisha.workers.mcp import McpServer, ToolDescription, build_server

_MAX_SOURCE_BYTES = 2**26


async def read_source(name: str, options: CatalogueOptions, folder: Path, secret_store: SecretStore) -> ReadCatalogue:
    """Return the tools that the source of [catalogues.NAME] holds now, and those that were refused."""
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
    return ReadCatalogue(tuple(_with_effect(each, options) for each in taken), read.refused)


def _with_effect(entry: CatalogueEntry, options: CatalogueOptions) -> CatalogueEntry:
    effect = options.effect_of(entry.tool.name, entry.tool.effect)
    return entry if effect is entry.tool.effect else replace(entry, tool=replace(entry.tool, effect=effect))


async def _read_text(name: str, options: HttpCatalogueOptions, folder: Path, secret_store: SecretStore) -> str:
    where = f"catalogue {name}: {options.source}"
    try:
        if urlsplit(options.source).scheme in ("http", "https"):
            data = await _fetch(name, options, secret_store)
        else:
            path = folder / options.source
            if path.stat().st_size > _MAX_SOURCE_BYTES:
                raise ConfigError(f"{where}: more than {_MAX_SOURCE_BYTES:,} bytes")
            data = path.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: expected UTF-8 text") from None


async def _fetch(name: str, options: HttpCatalogueOptions, secret_store: SecretStore) -> bytes:
    """Fetch a document from where the configuration says."""
    card = Card(name, timeout=options.timeout)
    headers = fill_headers(options.headers, secret_store)
    connections = HttpConnections(card, options.source, _MAX_SOURCE_BYTES, headers, secret_store)
    try:
        async with connections.open().ask("GET", options.source, {"Accept": "application/json, */*;q=0.5"}) as answer:
            if not answer.succeeded:
                raise ConfigError(f"catalogue {name}: {options.source}: status {answer.status}")
            return await answer.read_all()
    except WorkerError as error:
        raise ConfigError(f"catalogue {name}: {options.source}: {error}") from None
    finally:
        await connections.aclose()


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
