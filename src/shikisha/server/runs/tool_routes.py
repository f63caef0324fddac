"""`POST /v1/tools/search`: the tools of the pinned catalogues that fit a subtask.

Invariants: a search reads and calls nothing; it runs beside the event loop, and its text and its number of results are
bounded. Every key that may run tasks may search, because its runs are offered the same tools.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from shikisha.core.errors import ShikishaError
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import RequestModel, read_json, request_body_doc, validate_as
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.tools.catalogue import FoundTool, ToolCatalogue, tool_json

router = APIRouter(tags=["tools"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]


class ToolQuery(RequestModel):
    """The body of `POST /v1/tools/search`; without `catalogues` all of them are searched."""

    query: Annotated[str, Field(min_length=1, max_length=8_000)]
    catalogues: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=50)] = 5


@router.post(
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
