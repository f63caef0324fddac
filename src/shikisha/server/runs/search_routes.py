"""`GET /memory`: notes of finished runs that fit a text.

Invariants: a key finds notes of its own tenant's runs, or of all where `[memory] share` says so, and none whose data
labels it lacks; what was erased is taken out before anything is searched; a server without `[memory] file` has none.

`POST /v1/tools/search`: the tools of the pinned catalogues that fit a subtask.
"""

import asyncio
from collections.abc import Sequence
from time import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from shikisha.core.errors import ShikishaError
from shikisha.learned.journal_learner import sync_memory
from shikisha.learned.memory_index import MemoryIndex, RecalledNote
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_reader, require_scope
from shikisha.server.http.request import RequestModel, read_json, request_body_doc, validate_as
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.service import RunService
from shikisha.tools.catalogue import FoundTool, ToolCatalogue, tool_json

tool_router = APIRouter(tags=["tools"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]


class ToolQuery(RequestModel):
    """The body of `POST /v1/tools/search`; without `catalogues` all of them are searched."""

    query: Annotated[str, Field(min_length=1, max_length=8_000)]
    catalogues: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=50)] = 5


@tool_router.post(
    "/v1/tools/search",
    summary="Search the tools of catalogues",
    responses=error_responses(404),
    openapi_extra=request_body_doc(ToolQuery),
)
async def search_tools(request: Request, by: RunPrincipal) -> dict[str, object]:  # noqa: ARG001 - the key is checked
    """Return the tools that fit best, best first, with their hashes, effects and scores."""
    asked = validate_as(await read_json(request), ToolQuery)
    container = request.app.state.service.container
    names = list(container.settings.catalogues) if asked.catalogues is None else asked.catalogues
    for name in names:
        if name not in container.settings.catalogues:
            known = ", ".join(container.settings.catalogues) or "none"
            raise ApiError(404, f"there is no catalogue {name!r}; known are: {known}", "catalogue_not_found")
    catalogues = [container.catalogue(name) for name in names]
    try:
        found = await asyncio.to_thread(_search_all, catalogues, asked.query, asked.limit)
    except ShikishaError as error:
        raise ApiError(503, str(error), "catalogue_unusable") from None
    return {"object": "list", "data": [tool_json(each) for each in found]}


def _search_all(catalogues: Sequence[ToolCatalogue], query: str, limit: int) -> list[FoundTool]:
    found = [each for catalogue in catalogues for each in catalogue.search_now(query, limit)]
    return sorted(found, key=lambda each: -each.score)[:limit]


router = APIRouter(prefix="/memory", tags=["runs"])
SearchText = Annotated[str, Query(min_length=1, max_length=4_000)]
MostNotes = Annotated[int, Query(ge=1, le=100)]


class NoteInfo(BaseModel):
    """A note: what it says, of which kind, the runs it comes from, and how well it fits."""

    object: Literal["memory.note"] = "memory.note"
    text: str
    kind: str
    runs: list[str]
    labels: list[str]
    speaker: str
    session: str
    at: float
    score: float

    @classmethod
    def of(cls, found: RecalledNote) -> "NoteInfo":
        """Return what a client sees of a note."""
        note = found.note
        return cls(
            text=note.text,
            kind=note.kind,
            runs=list(note.evidence),
            labels=list(note.labels),
            speaker=note.speaker,
            session=note.session.rpartition("/")[2],
            at=note.at,
            score=found.score,
        )


class NoteList(BaseModel):
    """Notes, the best first."""

    object: Literal["list"] = "list"
    data: list[NoteInfo]


@router.get("", summary="Search what runs left", responses=error_responses(404))
async def search_memory(
    request: Request, by: Annotated[Principal, Depends(require_reader)], query: SearchText, limit: MostNotes = 10
) -> NoteList:
    """Return the notes of finished runs that fit a text best."""
    service: RunService = request.app.state.service
    container = service.container
    table = container.settings.memory
    if table.file is None:
        raise ApiError(404, "this server keeps no memory: [memory] file", "not_found")
    admin = by.may(KeyScope.ADMIN)
    tenant = None if admin or table.share == "all" else by.tenant
    with MemoryIndex(container.folder / table.file, table.half_life_days) as memory:
        await sync_memory(memory, service.journal)
        labels = memory.labels() if admin else frozenset(by.labels)
        found = memory.recall(query, limit, tenant=tenant, labels=labels, now=time())
    return NoteList(data=[NoteInfo.of(one) for one in found])
