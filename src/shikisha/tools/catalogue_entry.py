"""A tool of a catalogue: what an agent reads of it, the group that it belongs to, and the call that it stands for.

Invariants: an entry's hash covers everything that decides what a model reads and what a call does, so an address that
changes under an unchanged description is found too; sizes are bounded before anything else looks at a tool; two tools
of one name are both refused, because no one can say which was meant. Every refusal names catalogue and tool.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.messages import Json
from shikisha.core.text import one_line
from shikisha.core.tools import FIND_TOOLS, TOOL_NAME, Tool, ToolEffect, tool_sha256

MAX_TOOLS = 200_000
MAX_DESCRIPTION_CHARACTERS = 100_000
_MAX_NAME = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class OperationParameter:
    """Where an argument goes in an HTTP request: `place` is path, query or header; `wire` the name there."""

    argument: str
    wire: str
    place: str
    style: str = ""
    explode: bool = True


@dataclass(frozen=True, slots=True)
class OperationCall:
    """An HTTP operation: `body` names the argument that is sent as body, `media` says how ("json", "form")."""

    method: str
    path: str
    base_url: str = ""
    parameters: tuple[OperationParameter, ...] = ()
    body: str = ""
    media: str = ""

    def to_json(self) -> Mapping[str, Json]:
        """Return all fields; `asdict` copies each of them and takes ten times as long."""
        names = OperationParameter.__slots__
        parameters = [{name: getattr(each, name) for name in names} for each in self.parameters]
        return {name: getattr(self, name) for name in self.__slots__} | {"parameters": parameters}


@dataclass(frozen=True)
class CatalogueEntry:
    """A tool, its group (an API's title, a server's section), and how it is called.

    `call` None: by its MCP server, under `wire`, the server's own name for it where chat APIs do not take that.
    """

    tool: Tool
    group: str = ""
    call: OperationCall | None = None
    wire: str = ""

    @property
    def wire_name(self) -> str:
        """The name that the MCP server knows."""
        return self.wire or self.tool.name

    @property
    def wire_sha256(self) -> str:
        """The hash of the tool as its MCP server describes it."""
        return tool_sha256(self.wire_name, self.tool.description, self.tool.schema)

    @cached_property
    def pin(self) -> str:
        """The hash of everything: name, description, schema, effect and call."""
        call = None if self.call is None else self.call.to_json()
        whole = [self.tool.sha256, str(self.tool.effect), self.tool.idempotent, call, self.wire]
        return sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RefusedTool:
    """A tool that was left out of a catalogue, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReadCatalogue:
    """What a source holds: the usable tools in order, and those that were refused."""

    entries: tuple[CatalogueEntry, ...]
    refused: tuple[RefusedTool, ...] = ()


def catalogue_pin(entries: Iterable[CatalogueEntry]) -> str:
    """Return the one hash over all tools, in whatever order they come."""
    return sha256("\n".join(sorted(f"{each.tool.name} {each.pin}" for each in entries)).encode()).hexdigest()


def shorten_name(name: str) -> str:
    """Return a name that every chat API takes; a long one keeps its beginning and a hash of the whole."""
    plain = _NOT_IN_NAMES.sub("_", name).strip("_") or "tool"
    return plain if len(plain) <= _MAX_NAME else f"{plain[: _MAX_NAME - 9]}_{sha256(name.encode()).hexdigest()[:8]}"


def make_tool(
    catalogue: str, name: str, description: str, schema: Mapping[str, Json], effect: ToolEffect, *, idempotent: bool
) -> Tool:
    """Return the tool; ConfigError names catalogue and tool where it cannot be used."""
    where = f"catalogue {catalogue}, tool {one_line(name, 80)}"
    if not TOOL_NAME.fullmatch(name):
        raise ConfigError(f"{where}: expected a name of at most {_MAX_NAME} letters, digits, '_' and '-'")
    if len(description) > MAX_DESCRIPTION_CHARACTERS:
        raise ConfigError(
            f"{where}: a description of {len(description):,} characters; "
            f"expected at most {MAX_DESCRIPTION_CHARACTERS:,}"
        )
    if schema.get("type", "object") != "object":
        raise ConfigError(f'{where}: schema: $.type: expected "object", as arguments have names')
    SchemaCheck(schema, f"{where}: schema")
    # A description with half a surrogate pair could be neither hashed nor stored.
    text = description.encode("utf-8", "replace").decode()
    return Tool(name, text, schema, catalogue, effect=effect, idempotent=idempotent)


def collect_entries(
    catalogue: str, entries: Sequence[CatalogueEntry], refused: Sequence[RefusedTool] = ()
) -> ReadCatalogue:
    """Return what is usable: tools that share a name are all refused; ConfigError beyond MAX_TOOLS."""
    if len(entries) > MAX_TOOLS:
        raise ConfigError(f"catalogue {catalogue}: {len(entries):,} tools; at most {MAX_TOOLS:,} are taken")
    counts = Counter(each.tool.name for each in entries)
    twice = [
        RefusedTool(name, f"catalogue {catalogue}: {count} tools are named {name}; expected one")
        for name, count in counts.items()
        if count > 1
    ]
    reserved = [RefusedTool(FIND_TOOLS, f"catalogue {catalogue}: no tool may be named {FIND_TOOLS}")]
    kept = tuple(each for each in entries if counts[each.tool.name] == 1 and each.tool.name != FIND_TOOLS)
    return ReadCatalogue(kept, (*refused, *twice, *(reserved if counts[FIND_TOOLS] == 1 else ())))
