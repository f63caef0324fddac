"""Reads a catalogue's source as it is now: a file or URL with an OpenAPI document or JSON lines, or an MCP server.

Invariants: a source is read when a person says so (`tools pin`), never by a run; what is read is bounded,
in bytes and in time, and is asked for without headers unless `base_url` names its origin; a tool whose server the
configuration does not name is refused where that matters;
what an MCP server claims of a tool (that it only reads) is written into the lock, where a person sees it, and the
configuration's `effects` override it.

Tools as JSON lines: `name`, `description`, `parameters` (a JSON Schema), and if wanted `effect`, `group` and a call.
"""

import asyncio
import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.json_schema import parse_json
from shikisha.core.messages import Json
from shikisha.core.secrets import SecretStore
from shikisha.core.text import one_line
from shikisha.core.tools import ToolEffect
from shikisha.engine.worker import Card
from shikisha.tools.catalogue_entry import (
    CatalogueEntry,
    OperationCall,
    OperationParameter,
    ReadCatalogue,
    RefusedTool,
    collect_entries,
    make_tool,
    shorten_name,
)
from shikisha.tools.catalogue_settings import CatalogueOptions, HttpCatalogueOptions, McpCatalogue, OpenApiCatalogue
from shikisha.tools.openapi import parse_document, read_openapi
from shikisha.workers.endpoint import fill_headers, metadata_problem, origin
from shikisha.workers.mcp import McpServer, ToolDescription, build_server

_MAX_LINE = 2**20
_KNOWN = frozenset(
    {"name", "description", "parameters", "schema", "inputSchema", "input_schema", "effect", "idempotent", "group"}
    | {"method", "path", "type", "function"}
)
_SCHEMAS = ("parameters", "schema", "inputSchema", "input_schema")
_METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")


@dataclass(frozen=True, slots=True)
class _RowReader:
    catalogue: str
    where: str

    def entry(self, row: Mapping[str, object]) -> CatalogueEntry:
        """Return a row as a tool; ConfigError says what is missing."""
        inner = row.get("function")
        row = {**row, **inner} if isinstance(inner, Mapping) else row
        name = row.get("name")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{self.where}: name: expected a text")
        if unknown := sorted(row.keys() - _KNOWN):
            raise ConfigError(f"{self.where}: tool {one_line(name, 80)}: unknown key {unknown[0]!r:.80}")
        description, schema = row.get("description", ""), {"type": "object"}
        for key in _SCHEMAS:
            schema = cast("dict[str, str]", row.get(key, schema))
        if not isinstance(description, str) or not isinstance(schema, dict):
            raise ConfigError(
                f"{self.where}: tool {one_line(name, 80)}: description: expected a text, parameters: an object"
            )
        effect = row.get("effect", "unknown")
        if effect not in [str(each) for each in ToolEffect]:
            raise ConfigError(f"{self.where}: tool {one_line(name, 80)}: effect: expected read, write or unknown")
        tool = make_tool(
            self.catalogue,
            name,
            description,
            cast("Mapping[str, Json]", schema),
            ToolEffect(str(effect)),
            idempotent=row.get("idempotent") is True,
        )
        group = row.get("group", "")
        return CatalogueEntry(tool, group if isinstance(group, str) else "", self._call(name, row, tool.schema))

    def _call(self, name: str, row: Mapping[str, object], schema: Mapping[str, Json]) -> OperationCall:
        method, path = row.get("method", "POST"), row.get("path", f"/{name}")
        if method not in _METHODS or not isinstance(path, str) or not path.startswith("/"):
            raise ConfigError(
                f"{self.where}: tool {one_line(name, 80)}: expected method {', '.join(_METHODS)}, and a path from /"
            )
        properties = schema.get("properties")
        names = list(properties) if isinstance(properties, Mapping) else []
        places = {each: "path" if f"{{{each}}}" in path else "query" for each in names}
        if method not in ("GET", "DELETE"):
            # Arguments outside the path are the body: all of them, under their own names.
            in_path = tuple(OperationParameter(each, each, "path") for each in names if places[each] == "path")
            return OperationCall(str(method), path, "", in_path, "*", "json")
        return OperationCall(
            str(method), path, "", tuple(OperationParameter(n, n, place) for n, place in places.items())
        )


def read_tool_rows(catalogue: str, lines: Iterable[str], where: str) -> ReadCatalogue:
    """Return the rows as tools; what cannot be used is refused, with its line."""
    entries: list[CatalogueEntry] = []
    refused: list[RefusedTool] = []
    for number, line in enumerate(lines, 1):
        place = f"catalogue {catalogue}: {where}: line {number}"
        if not line.strip():
            continue
        name = ""
        try:
            if len(line) > _MAX_LINE:
                raise ConfigError(f"{place}: {len(line):,} characters; at most {_MAX_LINE:,} are taken")
            row = parse_json(line)
            if not isinstance(row, dict):
                raise ConfigError(f"{place}: expected a JSON object")
            name = str(row.get("name", ""))[:80]
            entries.append(_RowReader(catalogue, place).entry(row))
        except (json.JSONDecodeError, RecursionError, ValueError) as error:
            refused.append(RefusedTool(name or f"line {number}", f"{place}: not JSON: {error}"))
        except ConfigError as error:
            refused.append(RefusedTool(name or f"line {number}", str(error)))
    return collect_entries(catalogue, entries, refused)


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
