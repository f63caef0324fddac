"""`/v1/models`: the names under which the pool can be asked. Deliberately absent: workers, which no client picks.

Invariant: what is listed here is what this key may use, no more.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from shikisha.server.catalogue import Model
from shikisha.server.doors import asker
from shikisha.server.principal import Principal, Scope
from shikisha.server.refusals import refusals

router = APIRouter(tags=["models"])
Asker = Annotated[Principal, Depends(asker(Scope.RUN))]


@router.get("/v1/models", summary="List the models", responses=refusals())
async def models(request: Request, by: Asker) -> dict[str, object]:
    """List the models that this key may use."""
    return {"object": "list", "data": [_shown(model) for model in request.app.state.house.catalogue.listed(by)]}


@router.get("/v1/models/{name:path}", summary="Look a model up", responses=refusals(404))
async def model(request: Request, name: str, by: Asker) -> dict[str, object]:
    """Return one model, which this key may use."""
    return _shown(request.app.state.house.catalogue.find(name, by))


def _shown(model: Model) -> dict[str, object]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "shikisha"}
