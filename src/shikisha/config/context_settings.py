"""Tables of the configuration for both ends of a run: [context], what its workers see, and [answer]."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, Tag, model_validator

from shikisha.config.config_table import ConfigTable, PluggedTable, own_or_plugged

OWN_SOURCES = ("files", "git", "mcp")
ShareField: TypeAlias = Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)]


class SourceBase(ConfigTable):
    """What all sources have."""

    share: ShareField = Field(default=1.0, description="its part of the tokens, in relation to the other sources")
    labels: tuple[str, ...] = Field(default=(), description="labels of what it brings; guarded ones hold")


class FilesSourceTable(SourceBase):
    """[context.sources.NAME] kind = "files": parts of files."""

    kind: Literal["files"] = Field(description="parts of the files in a folder, best first")
    folder: str = Field(default=".", description="the folder, inside that of this file")
    include: tuple[str, ...] = Field(default=("*",), min_length=1, description="patterns of names that are read")
    exclude: tuple[str, ...] = Field(default=(), description="patterns of names that are not")
    history: bool = Field(default=True, description="rank by past commits too, where the folder is a git repository")


class GitSourceTable(SourceBase):
    """[context.sources.NAME] kind = "git": past commits."""

    kind: Literal["git"] = Field(description="past commits that are like the task, with the files that they changed")
    folder: str = Field(default=".", description="the repository, inside the folder of this file")


class McpSourceTable(SourceBase):
    """[context.sources.NAME] kind = "mcp": resources of a server."""

    kind: Literal["mcp"] = Field(description="resources of the MCP server that a worker of kind mcp uses")
    worker: str = Field(description="the worker, by name")


class PluggedSourceTable(SourceBase, PluggedTable):
    """[context.sources.NAME] of a kind that a plug-in brings."""


SourceTable: TypeAlias = Annotated[
    Annotated[FilesSourceTable, Tag("files")]
    | Annotated[GitSourceTable, Tag("git")]
    | Annotated[McpSourceTable, Tag("mcp")]
    | Annotated[PluggedSourceTable, Tag("plugged")],
    own_or_plugged(*OWN_SOURCES),
]


class ContextTable(ConfigTable):
    """[context]: what a run's workers see besides the task."""

    tokens: int = Field(default=4_000, ge=1, le=1_000_000, description="the most tokens that are gathered for a run")
    seconds: float = Field(
        default=2.0, gt=0, le=60, allow_inf_nan=False, description="the longest that a source is waited for"
    )
    trial: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="the share of runs that do without a source, or half of them, so that "
        "`shikisha context` can say which sources help",
    )
    sources: dict[str, SourceTable] = Field(default={}, description="what is gathered from, by name")


class AnswerStepTable(ConfigTable):
    """[[answer.steps]]: a change of answers before they ship."""

    kind: Literal["strip", "unfence", "replace"] = Field(
        description="strip white space; unfence: the content of an answer that is one fenced block; replace a text"
    )
    text: str = Field(default="", description="replace: the text that is replaced wherever it stands")
    by: str = Field(default="", description="replace: what stands in its place")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.kind == "replace") != bool(self.text):
            raise ValueError("replace needs a text, and only replace has one")
        return self


class AnswerTable(ConfigTable):
    """[answer]: what happens to a run's answer before it ships."""

    steps: tuple[AnswerStepTable, ...] = Field(
        default=(), description="changes in order; each one that changes an answer is shown as a substitution"
    )
