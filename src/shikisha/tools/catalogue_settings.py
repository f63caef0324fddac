"""The keys of [catalogues.NAME], by kind: openapi, mcp and jsonl.

Invariant: no key is written in the file; headers and query parameters name environment variables.
"""

import fnmatch
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shikisha.core.call import ApprovalMode
from shikisha.core.tools import ToolEffect
from shikisha.workers.endpoint import EndpointUrl, HeaderTemplates, check_key_templates
from shikisha.workers.mcp import McpServerOptions

Approval: TypeAlias = Literal["never", "always", "writes"]
QueryTemplates = Annotated[dict[str, str], AfterValidator(check_key_templates)]


class CatalogueOptions(BaseModel):
    """The keys that every kind of catalogue shares."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
        description="a ranker that `shikisha tools learn` wrote, relative to this file; by default the shipped one",
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

    source: str = Field(min_length=1, description="a file, relative to this file, or a URL that `tools pin` reads")
    base_url: EndpointUrl | None = Field(
        default=None, description="where calls go; by default the server that the document names"
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
