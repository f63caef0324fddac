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
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import cast
from urllib.parse import urljoin, urlsplit

from shikisha.core.errors import ConfigError, FaultKind, MissingExtra, WorkerError
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
from shikisha.workers.endpoint import fill_headers, metadata_problem, origin
from shikisha.workers.http_connections import HttpConnections
from shikisha.workers.mcp import McpServer, ToolDescription, build_server

# OpenAPI 3.0 and 3.1 documents as tools: one for each operation, with a schema of its own.
#
# Invariants: a document is data, and reading it takes bounded work: references are followed inside the document only,
# each once a tool, and what a tool's schema holds with all its references is counted; a reference that leads to itself
# is refused with its path, while a recursive schema (a tree of comments) is kept as one. An operation that cannot be
# used is refused by itself and the others stay. Deliberately absent: Swagger 2.0, callbacks, webhooks, cookies, files.

_OPENAPI_METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
_SAFE_METHODS = frozenset({"get", "head", "options"})
_IDEMPOTENT_METHODS = frozenset({"get", "head", "options", "put", "delete"})
_PLACES = ("path", "query", "header")
# Headers that an OpenAPI parameter cannot set (3.1, 4.8.12.1), and those that HTTP itself sets.
_OWN_HEADERS = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection", "cookie"}
)
_MAX_SCHEMA_VALUES = 9_000
_MAX_LEVELS = 60
_MAX_REFERENCES = 64
_MAX_NESTING = 200
_MAX_ALIASES = 10_000
_MAX_TEXT = 1_000
_VERSION = re.compile(r"3\.[01](\.\d+)?\b")
# Keywords of JSON Schema that a tool's schema keeps, by what stands in them.
_SCHEMA_KEYS = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else", "unevaluatedProperties"}
)
_SCHEMA_MAP_KEYS = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_SCHEMA_LIST_KEYS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_PLAIN_KEYS = frozenset(
    {"type", "required", "enum", "const", "default", "title", "description", "format", "pattern", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"}
    | {"uniqueItems", "minProperties", "maxProperties", "dependentRequired"}
)


class UnusableOperation(Exception):
    """An operation that cannot become a tool; the message says where and why."""


def parse_document(text: str, where: str) -> Mapping[str, object]:
    """Return a JSON or YAML document; ConfigError says what is wrong with it."""
    found: object
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = _parse_yaml(text, where)
    if not isinstance(found, Mapping):
        raise ConfigError(f"{where}: expected an OpenAPI document, which is an object")
    return found


def _parse_yaml(text: str, where: str) -> object:
    """Return a YAML document as the JSON that it stands for: no timestamps, no merges, bounded nesting and aliases."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise MissingExtra("tools", f"reading {where} as YAML") from None
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith((":timestamp", ":merge"))]
        for first, pairs in base.yaml_implicit_resolvers.items()
    }
    loader = type("JsonLoader", (base,), {"yaml_implicit_resolvers": resolvers})
    try:
        depth = aliases = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if depth > _MAX_NESTING or aliases > _MAX_ALIASES:
                what = (
                    f"nested deeper than {_MAX_NESTING}"
                    if depth > _MAX_NESTING
                    else f"more than {_MAX_ALIASES} aliases"
                )
                raise ConfigError(f"{where}: line {event.start_mark.line + 1}: {what}")
        return cast("object", yaml.load(text, Loader=loader))
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"{where}: neither JSON nor YAML{f' at line {mark.line + 1}' if mark else ''}") from None


def read_openapi(catalogue: str, document: Mapping[str, object], where: str) -> ReadCatalogue:
    """Return the operations of a document as tools; ConfigError where it is none of OpenAPI 3.0 or 3.1.

    `where` is the document's path or URL, against which a relative server is resolved.
    """
    version = document.get("openapi")
    if not isinstance(version, str) or not _VERSION.match(version):
        found = document.get("swagger", version)
        raise ConfigError(
            f"catalogue {catalogue}: {where}: expected openapi 3.0 or 3.1, found "
            f"{'nothing' if found is None else str(found)[:20]}"
        )
    paths = document.get("paths", {})
    if not isinstance(paths, Mapping):
        raise ConfigError(f"catalogue {catalogue}: {where}: $.paths: expected an object")
    reading = _OperationReader(catalogue, document, where)
    entries: list[CatalogueEntry] = []
    refused: list[RefusedTool] = []
    for path, method, item, operation in _operations(paths, reading):
        name = reading.name(path, method, operation)
        try:
            entries.append(reading.entry(name, path, method, item, operation))
        except (UnusableOperation, ConfigError) as error:
            said = str(error)
            place = "" if said.startswith("catalogue") else f"catalogue {catalogue}, tool {name}: "
            refused.append(RefusedTool(name, f"{place}{said}"))
    return collect_entries(catalogue, entries, refused)


def _operations(
    paths: Mapping[str, object], reading: "_OperationReader"
) -> Iterator[tuple[str, str, Mapping[str, object], Mapping[str, object]]]:
    for path, raw in paths.items():
        try:
            item = reading.resolve(raw, f"$.paths[{path!r}]")
        except UnusableOperation:
            continue
        for method in _OPENAPI_METHODS:
            operation = item.get(method)
            if isinstance(operation, Mapping):
                yield str(path), method, item, operation


@dataclass(frozen=True, slots=True)
class _PlacedParameter:
    """A parameter of an operation, resolved: where it goes, and what it takes."""

    wire: str
    place: str
    required: bool
    schema: object
    description: str
    style: str
    explode: bool


class _OperationReader:
    """Reads the operations of one document."""

    def __init__(self, catalogue: str, document: Mapping[str, object], where: str) -> None:
        self._catalogue = catalogue
        self._document = document
        self._where = where
        info = document.get("info")
        self._title = _text(info, "title") or catalogue

    def name(self, path: str, method: str, operation: Mapping[str, object]) -> str:
        """Return the operation's name: its operationId, else its method and path."""
        given = operation.get("operationId")
        return shorten_name(given if isinstance(given, str) and given.strip() else f"{method}_{path.strip('/')}")

    def resolve(self, node: object, place: str) -> Mapping[str, object]:
        """Follow references until there is an object; UnusableOperation says which reference leads nowhere."""
        seen: set[str] = set()
        while isinstance(node, Mapping) and isinstance(reference := node.get("$ref"), str):
            if reference in seen or len(seen) >= _MAX_REFERENCES:
                raise UnusableOperation(f"{place}: the reference {reference[:120]} leads back to itself")
            seen.add(reference)
            node = self.target(reference, place)
        if not isinstance(node, Mapping):
            raise UnusableOperation(f"{place}: expected an object")
        return node

    def target(self, reference: str, place: str) -> object:
        """Return what a reference inside the document leads to."""
        if not reference.startswith("#/"):
            raise UnusableOperation(f"{place}: the reference {reference[:120]} leads out of the document")
        node: object = self._document
        for part in reference[2:].split("/"):
            name = (
                part.replace("~1", "/").replace("~0", "~").replace("%7B", "{").replace("%7D", "}").replace("%20", " ")
            )
            if isinstance(node, Mapping) and name in node:
                node = node[name]
            elif (
                isinstance(node, Sequence) and not isinstance(node, str) and name.isdecimal() and int(name) < len(node)
            ):
                node = node[int(name)]
            else:
                raise UnusableOperation(f"{place}: the reference {reference[:120]} leads nowhere")
        return node

    def entry(
        self, name: str, path: str, method: str, item: Mapping[str, object], operation: Mapping[str, object]
    ) -> CatalogueEntry:
        """Return one operation as a tool."""
        place = f"$.paths[{path!r}].{method}"
        schema = _ToolSchema(self)
        parameters = self._parameters(item, operation, place)
        bound = [self._bind(each, parameters) for each in parameters]
        for each, binding in zip(parameters, bound, strict=True):
            at = f"{place}.parameters.{each.wire}"
            schema.add(binding.argument, each.schema, at, required=each.required, description=each.description)
        body, media = self._body(operation, place, schema, {each.argument for each in bound})
        # What stands behind # never reaches a server; some documents tell operations of one path apart by it.
        called = OperationCall(
            method.upper(), path.partition("#")[0], self._server(item, operation), tuple(bound), body, media
        )
        wanted = set(re.findall(r"\{([^{}]*)\}", path))
        given = {each.wire for each in bound if each.place == "path"}
        if not path.startswith("/") or wanted != given:
            different = ", ".join(sorted(wanted ^ given))[:120] or path[:80]
            raise UnusableOperation(f"{place}: the path's parameters are not those that are declared: {different}")
        summary, details = _text(operation, "summary"), _text(operation, "description")
        described = (
            details if not summary or details.startswith(summary) else f"{summary.rstrip('.')}. {details}".strip()
        )
        effect = ToolEffect.READ if method in _SAFE_METHODS else ToolEffect.WRITE
        tool = make_tool(
            self._catalogue,
            name,
            described or f"{method.upper()} {path}",
            schema.document(),
            effect,
            idempotent=method in _IDEMPOTENT_METHODS,
        )
        tags = operation.get("tags")
        shown = [tag for tag in tags if isinstance(tag, str)][:3] if isinstance(tags, list) else []
        return CatalogueEntry(tool, " ".join([self._title, *shown]), called)

    def _parameters(
        self, item: Mapping[str, object], operation: Mapping[str, object], place: str
    ) -> list[_PlacedParameter]:
        """Return the parameters of path and operation; the operation's replace the path's."""
        found: dict[tuple[str, str], _PlacedParameter] = {}
        for owner in (item, operation):
            given = owner.get("parameters", ())
            for number, raw in enumerate(given if isinstance(given, list) else ()):
                each = self._parameter(
                    self.resolve(raw, f"{place}.parameters[{number}]"), f"{place}.parameters[{number}]"
                )
                if each is not None:
                    found[each.place, each.wire] = each
        return list(found.values())

    def _parameter(self, raw: Mapping[str, object], place: str) -> _PlacedParameter | None:
        wire, where = raw.get("name"), raw.get("in")
        if not isinstance(wire, str) or not wire or where not in (*_PLACES, "cookie"):
            raise UnusableOperation(f"{place}: expected a name, and in = path, query, header or cookie")
        required = raw.get("required") is True or where == "path"
        if where == "cookie" or (where == "header" and wire.lower() in _OWN_HEADERS):
            if required and where == "cookie":
                raise UnusableOperation(f"{place}: the cookie {wire[:80]!r} is required, and none is sent")
            return None
        content = raw.get("content")
        schema = raw.get("schema", {})
        style = str(raw.get("style", ""))[:20]
        if isinstance(content, Mapping) and content:
            first = next(iter(content.values()))
            schema, style = (first.get("schema", {}) if isinstance(first, Mapping) else {}), "json"
        explode = raw.get("explode", style in ("", "form", "deepObject"))
        return _PlacedParameter(wire, str(where), required, schema, _text(raw, "description"), style, explode is True)

    def _bind(self, each: _PlacedParameter, others: Sequence[_PlacedParameter]) -> OperationParameter:
        """Name the argument as the parameter, with its place where two parameters have one name."""
        same = sum(other.wire == each.wire for other in others)
        argument = f"{each.place}_{each.wire}" if same > 1 else each.wire
        return OperationParameter(argument, each.wire, each.place, each.style, each.explode)

    def _body(
        self, operation: Mapping[str, object], place: str, schema: "_ToolSchema", taken: set[str]
    ) -> tuple[str, str]:
        if operation.get("requestBody") is None:
            return "", ""
        raw = self.resolve(operation["requestBody"], f"{place}.requestBody")
        content = raw.get("content")
        types = list(content) if isinstance(content, Mapping) else []
        chosen = next((each for each in types if _media(each) == "json"), None) or next(
            (each for each in types if _media(each) == "form"), None
        )
        if chosen is None or not isinstance(content, Mapping):
            if raw.get("required") is not True:
                return "", ""
            said = ", ".join(map(str, types))[:120] or "nothing"
            raise UnusableOperation(f"{place}.requestBody: expected JSON or a form, found {said}")
        name = "body"
        while name in taken:
            name += "_"
        found = content[chosen]
        inner = found.get("schema", {}) if isinstance(found, Mapping) else {}
        at = f"{place}.requestBody.content[{chosen!r}].schema"
        schema.add(name, inner, at, required=raw.get("required") is True, description=_text(raw, "description"))
        return name, str(_media(chosen))

    def _server(self, item: Mapping[str, object], operation: Mapping[str, object]) -> str:
        """Return the base URL: the first server of operation, path or document, its variables at their defaults."""
        for owner in (operation, item, self._document):
            servers = owner.get("servers")
            first = servers[0] if isinstance(servers, list) and servers else None
            if isinstance(first, Mapping) and isinstance(url := first.get("url"), str):
                url = re.sub(r"\{([^{}]*)\}", partial(_default, first.get("variables")), url[: _MAX_TEXT + 1])
                url = urljoin(self._where, url) if urlsplit(self._where).scheme in ("http", "https") else url
                return (
                    url if url.startswith(("http://", "https://")) and "{" not in url and len(url) <= _MAX_TEXT else ""
                )
        return ""


def _default(variables: object, found: re.Match[str]) -> str:
    """Return what stands for a server's variable. It is not looked through again: it would grow without end."""
    each = variables.get(found[1]) if isinstance(variables, Mapping) else None
    return str(each.get("default") or "")[:_MAX_TEXT] if isinstance(each, Mapping) else found[0]


def _media(name: object) -> str | None:
    kind = str(name).partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return "form"
    return "json" if kind in ("application/json", "*/*") or kind.endswith("+json") else None


def _text(node: object, key: str) -> str:
    found = node.get(key) if isinstance(node, Mapping) else None
    return found.strip() if isinstance(found, str) else ""


class _ToolSchema:
    """The schema of one tool's arguments: what it refers to is copied below `$defs`, each once, and counted."""

    def __init__(self, reader: _OperationReader) -> None:
        self._reader = reader
        self._properties: dict[str, Json] = {}
        self._required: list[str] = []
        self._definitions: dict[str, Json] = {}
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, str]] = []
        self._values = 0

    def add(self, argument: str, raw: object, place: str, *, required: bool, description: str) -> None:
        """Add an argument; UnusableOperation where its schema is too large, too deep or none."""
        copied = self._copy(raw, place, 0)
        while self._waiting:
            reference, name = self._waiting.pop()
            self._definitions[name] = self._copy(self._reader.target(reference, place), reference, 0)
        if description and isinstance(copied, dict):
            # Drafts before 2019-09 ignore what stands next to a reference, so it moves inside.
            copied = {"allOf": [copied]} if "$ref" in copied else copied
            copied = {**copied, "description": description[:_MAX_TEXT]}
        self._properties[argument] = copied
        if required:
            self._required.append(argument)

    def document(self) -> dict[str, Json]:
        """Return the schema of all arguments."""
        whole: dict[str, Json] = {"type": "object", "properties": self._properties}
        if self._required:
            whole["required"] = self._required
        whole["additionalProperties"] = False
        if self._definitions:
            whole["$defs"] = self._definitions
        return whole

    def _count(self, place: str) -> None:
        self._values += 1
        if self._values > _MAX_SCHEMA_VALUES:
            raise UnusableOperation(
                f"{place}: with its references the schema has more than {_MAX_SCHEMA_VALUES:,} values"
            )

    def _copy(self, raw: object, place: str, level: int) -> Json:
        self._count(place)
        if level > _MAX_LEVELS:
            raise UnusableOperation(f"{place}: nested deeper than {_MAX_LEVELS} levels")
        if isinstance(raw, bool):
            return raw
        if not isinstance(raw, Mapping):
            raise UnusableOperation(f"{place}: expected a schema, which is an object")
        reference = raw.get("$ref")
        if isinstance(reference, str):
            return {"$ref": f"#/$defs/{self._define(reference, place)}"}
        copied: dict[str, Json] = {}
        for key, value in raw.items():
            at = f"{place}.{key}"
            if key in _SCHEMA_KEYS:
                copied[key] = self._copy(value, at, level + 1)
            elif key in _SCHEMA_MAP_KEYS and isinstance(value, Mapping):
                copied[key] = {
                    str(name): self._copy(each, f"{at}.{name}", level + 1)
                    for name, each in value.items()
                    if not (isinstance(each, Mapping) and each.get("readOnly") is True)
                }
            elif key in _SCHEMA_LIST_KEYS and isinstance(value, list):
                copied[key] = [self._copy(each, f"{at}[{number}]", level + 1) for number, each in enumerate(value)]
            elif key in _PLAIN_KEYS:
                copied[key] = self._plain(value, at, level + 1)
        return _as_json_schema(copied, raw)

    def _define(self, reference: str, place: str) -> str:
        name = self._names.get(reference)
        if name is None:
            last = re.sub(r"[^\w.-]", "_", reference.rpartition("/")[2])[:80] or "schema"
            name = last if last not in self._names.values() else f"{last}_{len(self._names)}"
            self._names[reference] = name
            self._reader.target(reference, place)
            self._waiting.append((reference, name))
        return name

    def _plain(self, value: object, place: str, level: int) -> Json:
        """Copy a plain value of JSON, counted."""
        self._count(place)
        if level > _MAX_LEVELS:
            raise UnusableOperation(f"{place}: nested deeper than {_MAX_LEVELS} levels")
        if isinstance(value, Mapping):
            return {str(key): self._plain(each, f"{place}.{key}", level + 1) for key, each in value.items()}
        if isinstance(value, list):
            return [self._plain(each, f"{place}[{number}]", level + 1) for number, each in enumerate(value)]
        if value is None or isinstance(value, bool | int | float):
            return value
        return str(value) if place.endswith((".pattern", ".const")) else str(value)[:_MAX_TEXT]


def _as_json_schema(copied: dict[str, Json], raw: Mapping[object, object]) -> dict[str, Json]:
    """Say in JSON Schema 2020-12 what OpenAPI 3.0 says otherwise: nullable, and exclusive bounds as flags."""
    kind = copied.get("type")
    if raw.get("nullable") is True and isinstance(kind, str):
        copied["type"] = [kind, "null"]
        if isinstance(enum := copied.get("enum"), list) and None not in enum:
            copied["enum"] = [*enum, None]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(copied.get(exclusive), bool) and copied.pop(exclusive) and bound in copied:
            copied[exclusive] = copied.pop(bound)
    properties = copied.get("properties")
    if isinstance(required := copied.get("required"), list) and isinstance(properties, dict):
        # What is read only was left out and cannot be required; a name may stand there twice in documents of people.
        declared = raw.get("properties")
        left_out = (set(declared) if isinstance(declared, Mapping) else set()) - set(properties)
        copied["required"] = [name for name in dict.fromkeys(map(str, required)) if name not in left_out]
    elif isinstance(copied.get("required"), bool):
        del copied["required"]
    return copied


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
    where, path = f"catalogue {name}: {options.source}", folder / options.source
    named = options.base_url is not None and options.named_by_person(options.source)
    try:
        if origin(options.source):
            card, headers = Card(name, timeout=options.timeout), options.headers if named else {}
            sent = fill_headers(headers, secret_store) | {"Accept": "application/json, */*;q=0.5"}
            client = HttpConnections(card, options.source, _MAX_SOURCE_BYTES, sent, secret_store, metadata_problem)
            async with aclosing(client), client.open().ask("GET", options.source, {}) as answer:
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
