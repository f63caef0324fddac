"""Gather resources of an MCP server: the list is searched by name and description, the best are read.

Invariants: what a server lists and returns is data, bounded in number and size; only resources with text are read; a
server that fails is a WorkerError, which costs its pieces and not the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from shikisha.core.task import Task
from shikisha.engine.gatherer import ContextPiece
from shikisha.retrieval.text_index import IndexedText, TextIndex

if TYPE_CHECKING:
    from mcp import Client

    from shikisha.workers.mcp import McpServer

_MOST_RESOURCES, _MOST_PAGES, _READ = 500, 20, 4
_MOST_CHARACTERS = 12_000  # of a resource that are shown
_WEIGHTS = (1.5, 1.0)


@dataclass(frozen=True, slots=True)
class ListedResource:
    """A resource as its server lists it."""

    uri: str
    name: str
    about: str


@dataclass(slots=True)
class McpResourceGatherer:
    """The resources of one server; pieces have these labels."""

    source: str
    server: "McpServer"
    labels: tuple[str, ...] = ()
    refresh: float = 60.0
    _listed: list[ListedResource] = field(default_factory=list)
    _looked: float = field(default=float("-inf"))

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:
        """Return the best resources, read now."""
        if monotonic() - self._looked >= self.refresh:
            self._listed = await self.server.use(_list_resources)
            self._looked = monotonic()
        index = TextIndex([IndexedText("", (f"{one.name} {one.uri}", one.about)) for one in self._listed], _WEIGHTS)
        found = index.search(task.prompt, _READ)
        top = float(found.scores.max(initial=0.0)) or 1.0
        pieces = []
        for place, score in zip(found.positions[:_READ].tolist(), found.scores, strict=False):
            uri = self._listed[place].uri
            text = await self.server.use(partial(_read_resource, uri))
            shown = text[: min(_MOST_CHARACTERS, 4 * tokens)]
            pieces.append(ContextPiece(shown, self.source, uri, 0, 0, float(score) / top, self.labels))
        return pieces


async def _list_resources(client: "Client") -> list[ListedResource]:
    listed: list[ListedResource] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_resources(cursor=cursor)
        listed += [
            ListedResource(str(one.uri)[:1_000], one.name[:200], (one.description or "")[:2_000])
            for one in page.resources[:_MOST_RESOURCES]
        ]
        cursor = page.next_cursor
        if cursor is None or len(listed) >= _MOST_RESOURCES:
            break
    return listed[:_MOST_RESOURCES]


async def _read_resource(uri: str, client: "Client") -> str:
    result = await client.read_resource(uri)
    return "\n".join(text for one in result.contents if isinstance(text := getattr(one, "text", None), str))
