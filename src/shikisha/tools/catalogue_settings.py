"""The keys of [catalogues.NAME], by kind: openapi, mcp and jsonl.

Invariants: no key is written in the file; headers and query parameters name environment variables, and go to the origin
of `base_url`, or without it to that of `source`: a document names servers, and cannot send them anything of ours.
"""

import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from shikisha.core.call import ApprovalMode
from shikisha.core.toml import Table
from shikisha.core.tools import ToolEffect
from shikisha.workers.endpoint import (
    AddressRule,
    EndpointUrl,
    HeaderTemplates,
    address_problem,
    check_key_templates,
    check_url,
    inside_problem,
    metadata_problem,
    origin,
)
from shikisha.workers.mcp import McpServerOptions

Approval: TypeAlias = Literal["never", "always", "writes"]
QueryTemplates = Annotated[dict[str, str], AfterValidator(check_key_templates)]


def _check_source(source: str) -> str:
    return check_url(source) if origin(source) else source


class CatalogueOptions(Table):
    """The keys that every kind of catalogue shares."""

    lock: Path | None = Field(
        default=None,
        description="the lock file of the pinned tools, relative to this file; by default NAME.tools.jsonl",
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="the one hash that the lock file must have; by default that of the file itself"
    )
    description: str = Field(default="", description="what the catalogue is for; `shikisha tools` shows it")
    only: tuple[str, ...] = Field(
        default=(), description="names of the tools that are pinned, with * for any text; by default all"
    )
    effects: dict[str, ToolEffect] = Field(
        default={},
        description="read, write or unknown by name of tool (* for any text), instead of what the source says",
    )
    ranker: Path | None = Field(
        default=None,
        description="a ranker that `shikisha tools learn` wrote, relative to this file; by default none",
    )
    encoder: Path | None = Field(
        default=None,
        description="an ONNX sentence encoder, tokenizer.json beside it; by default the shipped text encoder",
    )
    approval: Approval | None = Field(
        default=None,
        description="whether a person must approve each call, never, or writes only; by default as [autonomy] says",
    )
    price: float | None = Field(default=0.0, ge=0, allow_inf_nan=False, description="US dollars per call")
    concurrency: int | None = Field(default=None, ge=1, description="the most calls in flight at once")
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="the most calls per second")
    timeout: float = Field(default=30.0, gt=0, allow_inf_nan=False, description="seconds allowed for one attempt")
    attempts: int = Field(default=2, ge=1, le=20, description="attempts at one call that can be repeated")
    guards: tuple[dict[str, object], ...] = Field(
        default=(),
        description="guards around calls; what is known to write has `grounded` unless a table says otherwise",
    )
    sees: tuple[str, ...] = Field(default=(), description="guarded data labels that the tools are cleared for")
    adds: tuple[str, ...] = Field(default=(), description="data labels that every result carries")

    @property
    def named_server(self) -> str:
        """The URL to which the configuration itself sends every call; empty where a document says it."""
        return str(getattr(self, "base_url", None) or getattr(self, "url", None) or "")

    def named_by_person(self, url: str) -> bool:
        """Whether a URL has the origin that the configuration names: of `base_url`, else of `source`."""
        return origin(url) == origin(self.named_server or getattr(self, "source", ""))

    def address_rule(self, server: str) -> AddressRule:
        """Return where a server may not be: a document from elsewhere names public addresses only."""
        foreign = origin(getattr(self, "source", "")) and not self.named_by_person(server)
        return inside_problem if foreign else metadata_problem

    def server_problem(self, server: str) -> str:
        """Return why calls may not go to a server, as far as its URL says; empty where they may."""
        where, adds = origin(server), getattr(self, "headers", None) or getattr(self, "query", None)
        if server and adds and not self.named_by_person(server):
            problem = (
                "the document names it and the configuration does not, so headers and query may not go there; "
                f"write base_url = {json.dumps(server)} if they may"
            )
        else:
            problem = address_problem(urlsplit(server).hostname or "", self.address_rule(server)) if where else ""
        return f"{where} is refused: {problem}" if problem else ""

    def takes(self, name: str) -> bool:
        """Whether `only` has this tool."""
        return not self.only or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.only)

    def effect_of(self, name: str, stated: ToolEffect) -> ToolEffect:
        """Return the effect of a tool: as configured, else as its source says."""
        return next((to for pattern, to in self.effects.items() if fnmatch.fnmatchcase(name, pattern)), stated)

    def approval_of(self, default: ApprovalMode) -> Callable[[bool], ApprovalMode]:
        """Return which calls a person must approve: a function of whether the tool writes."""
        if self.approval is None:
            return lambda writes: default  # noqa: ARG005 - the default knows no difference
        chosen = {"never": (False, False), "always": (True, True), "writes": (False, True)}[self.approval]
        return lambda writes: ApprovalMode.ALWAYS if chosen[writes] else ApprovalMode.NEVER


class HttpCatalogueOptions(CatalogueOptions):
    """The keys of a catalogue whose tools are HTTP operations."""

    source: Annotated[str, AfterValidator(_check_source)] = Field(
        min_length=1, description="a file, relative to this file, or a URL that `tools pin` reads"
    )
    base_url: EndpointUrl | None = Field(
        default=None,
        description="where calls go, with headers and query; by default to the server that the document names",
    )
    headers: HeaderTemplates = Field(
        default={}, description="further HTTP headers; ${NAME} stands for the value of an environment variable"
    )
    query: QueryTemplates = Field(
        default={},
        description="query parameters of each call; ${NAME} stands for the value of an environment variable",
    )
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=2**20, description="the largest result, in bytes")


class OpenApiCatalogue(HttpCatalogueOptions):
    """[catalogues.NAME] kind = "openapi": the operations of an OpenAPI 3.0 or 3.1 document."""

    kind: Literal["openapi"] = Field(description="the operations of an OpenAPI 3.0 or 3.1 document")


class JsonlCatalogue(HttpCatalogueOptions):
    """[catalogues.NAME] kind = "jsonl": one tool a line."""

    kind: Literal["jsonl"] = Field(
        description="tools as JSON lines: name, description, parameters, and how each is called"
    )


class McpCatalogue(CatalogueOptions, McpServerOptions):
    """[catalogues.NAME] kind = "mcp": the tools of an MCP server."""

    kind: Literal["mcp"] = Field(description="the tools of an MCP server, over stdio or streamable HTTP")


CatalogueTable = Annotated[OpenApiCatalogue | McpCatalogue | JsonlCatalogue, Field(discriminator="kind")]
