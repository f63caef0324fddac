"""The page of workers: routes.

Invariant: what is counted are calls of runs that this login may see. Deliberately absent: counting (`recent`,
`view_workers`).
"""

from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.server.pages import view_workers
from shikisha.server.pages.doors import Housed, PageRoute, See, Session
from shikisha.server.pages.recent import Reader, Recent
from shikisha.server.pages.rendering import HOME, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{HOME}/workers")
async def workers(request: Request, session: See, house: Housed) -> Response:
    """Show what came of the calls to each worker lately."""
    found = await lately(request, house, session)
    cards = house.composition.cards()
    if session.by.workers is not None:
        cards = tuple(card for card in cards if card.name in session.by.workers)
    return page(request, "workers.html.jinja", {"view": view_workers.view(found, cards, time())})


async def lately(request: Request, house: Housed, session: Session) -> Recent:
    """Return what is recent of the runs that this login may see."""
    state = request.app.state
    if not hasattr(state, "recent"):
        state.recent = Reader()
    reader: Reader = state.recent
    return await reader.read(house.journal, session.tenant)
