"""What telemetry knows of a worker besides its name: how it is called, which model, and where it is.

Invariant: facts come from the configuration, once, and hold no secret: of an address only host and port, never a path,
a query or a login. Deliberately absent: asking workers anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit


class CallKind(StrEnum):
    """How a worker is called, as far as spans are concerned."""

    CHAT = "chat"  # a model behind a chat endpoint
    TOOL = "tool"  # a function, an HTTP service, a tool of an MCP server
    OTHER = "other"  # a person, a child run, a recording


_VIA = {
    "chat": CallKind.CHAT,
    "agent": CallKind.CHAT,
    "python": CallKind.TOOL,
    "http": CallKind.TOOL,
    "mcp": CallKind.TOOL,
}
_TOOL_TYPES = {"python": "function", "http": "extension", "mcp": "extension"}
RequestAttributes = Mapping[str, str | int | float | bool]
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker. `request` are the attributes of every call to it that the configuration settles (temperature...)."""

    name: str
    kind: str = ""
    description: str = ""
    model: str = ""
    provider: str = ""
    address: str = ""
    port: int | None = None
    tool_type: str = ""
    request: RequestAttributes = field(default_factory=dict)
    via: CallKind = field(init=False)  # how it is called

    def __post_init__(self) -> None:
        object.__setattr__(self, "via", _VIA.get(self.kind, CallKind.OTHER))


def describe_worker(
    name: str,
    kind: str,
    description: str = "",
    *,
    model: str = "",
    url: str = "",
    provider: str = "openai",
    request: RequestAttributes | None = None,
) -> WorkerFacts:
    """Return the facts of a worker of this kind, with this model, at this URL.

    `provider`: the conventions' name of who is there, by default of the protocol.
    """
    via = _VIA.get(kind, CallKind.OTHER)
    parts = urlsplit(url)
    host = parts.hostname or ""
    return WorkerFacts(
        name,
        kind,
        description,
        model if via is CallKind.CHAT else "",
        provider if via is CallKind.CHAT else "",
        host,
        (parts.port or _PORTS.get(parts.scheme)) if host else None,
        _TOOL_TYPES.get(kind, ""),
        dict(request or {}),
    )
