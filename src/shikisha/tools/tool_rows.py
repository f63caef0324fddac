"""Tools as JSON lines: `name`, `description`, `parameters` (a JSON Schema), and if wanted `effect`, `group` and a call.

`parameters` may also be called `schema`, `inputSchema` or `input_schema`, and a row may be a chat API's
`{"type": "function", "function": {...}}`. Invariants: a row that cannot be used is refused by itself, with its line; a
row says where its call goes only below the base URL of the configuration. A row without `method` and `path` is called
by POST at `/NAME` with its arguments as JSON.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from shikisha.core.errors import ConfigError
from shikisha.core.json_schema import parse_json
from shikisha.core.messages import Json
from shikisha.core.text import one_line
from shikisha.core.tools import ToolEffect
from shikisha.tools.catalogue_entry import (
    CatalogueEntry,
    OperationCall,
    OperationParameter,
    ReadCatalogue,
    RefusedTool,
    collect_entries,
    make_tool,
)

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
