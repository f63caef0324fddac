"""The page of runs: routes.

Invariant: only runs of the login's own tenant are listed; an admin's are everybody's. Deliberately absent: sums over
runs (`compare`, `workers`).
"""

from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.server.house import House
from shikisha.server.pages import view_runs
from shikisha.server.pages.doors import Housed, PageRoute, See, Session
from shikisha.server.pages.rendering import HOME, page
from shikisha.server.principal import Scope

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{HOME}/runs")
async def runs(request: Request, session: See, house: Housed) -> Response:
    """Show the newest runs, or those that are searched for."""
    asked = view_runs.Asked.of(request.query_params)
    found = await house.store.search(asked.filter(session.tenant))
    names = await key_names(house, session)
    models = tuple(model.name for model in house.catalogue.listed(session.by))
    return page(request, "runs.html.jinja", {"view": view_runs.view(asked, found, names, models, time())})


async def key_names(house: House, session: Session) -> dict[str, str]:
    """Return the names of the keys that this login may know, by id: its own, or an admin's all."""
    if session.may(Scope.ADMIN):
        return {key.id: key.name for key in await house.keys.keys()}
    return {key.id: key.name for key in await house.keys.keys(session.by.tenant)}
