"""Tools, as data: what an agent may call, how a model is told of it, and what a call that was not made says.

Invariants: a tool is frozen, and its hash covers everything that a model reads of it, so a pin holds for what is
offered; its name is one that every chat API takes. Deliberately absent: who performs a call (`engine.pool`), where
tools come from (workers of the pool, catalogues), and the records of calls (`messages.ToolCall`, `ToolExchange`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import sha256

from shikisha.core.budget import FREE, Price
from shikisha.core.errors import ConfigError, FaultKind
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import Json, dump_json

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
MAX_DESCRIPTION = 4_000  # characters that a model is shown of a tool's description
FIND_TOOLS = "find_tools"  # the name of the tool that searches a catalogue; no other tool may bear it
ANY_OBJECT: Mapping[str, Json] = {"type": "object"}


class ToolEffect(StrEnum):
    """What a call may do to the world. Only what is known to read may be repeated when nobody knows how it ended."""

    READ = "read"  # it changes nothing
    WRITE = "write"  # it changes something
    UNKNOWN = "unknown"  # nobody has said: treated as a write


@dataclass(frozen=True)
class Tool:
    """One tool: what a model reads of it, and what the engine must know.

    `schema` is a JSON Schema of its arguments. `server` is where it comes from: a worker, or a catalogue. `labels` are
    the data labels that its results bear. `idempotent`: repeating a call under its key has one effect. `argument`: the
    one argument that its worker is handed as it is, where that takes words or code instead of a JSON object.
    """

    name: str
    description: str = ""
    schema: Mapping[str, Json] = field(default_factory=lambda: ANY_OBJECT, hash=False)
    server: str = ""
    labels: tuple[str, ...] = ()
    price: Price | None = FREE
    effect: ToolEffect = ToolEffect.UNKNOWN
    idempotent: bool = False
    argument: str = ""

    def __post_init__(self) -> None:
        if not TOOL_NAME.fullmatch(self.name):
            raise ConfigError(
                f"tool {self.name[:80]!r} of {self.server or 'no server'}: expected a name of at most 64 letters, "
                "digits, '_' and '-'"
            )

    @property
    def writes(self) -> bool:
        """Whether a call may change something."""
        return self.effect is not ToolEffect.READ

    @property
    def repeatable(self) -> bool:
        """Whether a call whose outcome nobody knows may be made again under its key."""
        return self.idempotent or self.effect is ToolEffect.READ

    @cached_property
    def sha256(self) -> str:
        """The hash that pins the tool: of its name, description and schema."""
        return tool_sha256(self.name, self.description, self.schema)

    def function(self, name: str = "") -> Mapping[str, Json]:
        """Return the tool as chat APIs have it, under this name or its own."""
        described = {"description": self.description[:MAX_DESCRIPTION]} if self.description else {}
        return {
            "type": "function",
            "function": {"name": name or self.name, **described, "parameters": {"type": "object", **self.schema}},
        }


def tool_sha256(name: str, description: str, schema: Mapping[str, Json]) -> str:
    """Return the hash that pins a tool as its server describes it."""
    return sha256(json.dumps([name, description, schema], sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def catalogue_sha256(tools: Sequence[Tool]) -> str:
    """Return the hash that pins a set of tools, in whatever order they come."""
    return sha256("\n".join(sorted(f"{tool.name} {tool.sha256}" for tool in tools)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as it was offered in a turn: the name under which the model knows it, and its hash at that time."""

    name: str
    tool: str
    server: str
    sha256: str
    effect: ToolEffect
    function: Mapping[str, Json] = field(hash=False)


def dump_offer(offered: Sequence[OfferedTool]) -> str:
    """Return an offer as JSON, as a journal keeps it."""
    return dump_json(
        [
            {
                "name": each.name,
                "tool": each.tool,
                "server": each.server,
                "sha256": each.sha256,
                "effect": str(each.effect),
                "function": each.function,
            }
            for each in offered
        ]
    )


def load_offer(text: str) -> tuple[OfferedTool, ...]:
    """Return the offer that `dump_offer` wrote."""
    return tuple(OfferedTool(**{**each, "effect": ToolEffect(each["effect"])}) for each in json.loads(text or "[]"))


def refusal_content(kind: FaultKind, tool: str, message: str) -> str:
    """Return what an agent is told of a call that has no result: JSON that says what kind of refusal it is, and why."""
    return dump_json({"error": str(kind), "tool": tool, "message": message})
