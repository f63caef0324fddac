"""`GET /memory`: notes of finished runs that fit a text.

Invariants: a key finds notes of its own tenant's runs, or of all where `[memory] share` says so, and none whose data
labels it lacks; what was erased is taken out before anything is searched; a server without `[memory] file` has none.
"""

from time import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel

from shikisha.learned.journal_memory import sync_memory
from shikisha.learned.memory_index import MemoryIndex, RecalledNote
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_reader
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.service import RunService

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
