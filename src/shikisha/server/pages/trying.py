"""The box for a task: routes. First the plan is shown, then, if somebody wants it, exactly that plan is performed.

Invariant: showing a plan performs nothing. Deliberately absent: planning (`planning`) and performing (the house).
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from shikisha.config.settings import LmTable
from shikisha.errors import PlanError, TaskError
from shikisha.parse import parse_plan
from shikisha.server.house import House
from shikisha.server.pages import view_try
from shikisha.server.pages.doors import Begin, Housed, PageRoute, Sent, Session, field, led
from shikisha.server.pages.planning import plan
from shikisha.server.pages.rendering import HOME, page
from shikisha.server.problems import Problem
from shikisha.server.shown import wire_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{HOME}/try")
async def form(request: Request, session: Begin, house: Housed) -> Response:
    """Show the box; a model or a task may stand in the address."""
    query = {name: value[:10_000] for name, value in request.query_params.items()}
    return _page(request, session, house, view_try.given(query))


@router.post(f"{HOME}/try")
async def planned(request: Request, session: Begin, house: Housed, sent: Sent) -> Response:
    """Show the plan of a task, and perform nothing."""
    told = view_try.given(_texts(sent))
    try:
        order = house.ordering.order(view_try.wish(told), session.by)
        found = await plan(house, order)
    except (PlanError, TaskError) as error:
        return _page(request, session, house, told, wrong=str(error), status=400)
    except Problem as problem:
        return _page(request, session, house, told, wrong=problem.message, status=problem.status)
    return _page(request, session, house, told, found)


@router.post(f"{HOME}/try/perform")
async def perform(session: Begin, house: Housed, sent: Sent) -> Response:
    """Perform the plan that was shown, and lead to its run."""
    told = view_try.given(_texts(sent))
    order = house.ordering.order(view_try.wish(told), session.by)
    shown = parse_plan(field(sent, "plan"), len(order.pool))
    if shown.ships:
        raise Problem(400, "the plan is empty: there is nothing to perform", "empty_plan")
    order = house.ordering.order(view_try.wish(told, wire_of(shown)), session.by)
    live = await house.begin(order)
    return led(f"{HOME}/runs/{live.run}")


def _page(
    request: Request,
    session: Session,
    house: House,
    told: dict[str, str],
    found: view_try.PlanView | None = None,
    *,
    wrong: str = "",
    status: int = 200,
) -> Response:
    models = [(model.name, _asks(house, model.conductor)) for model in house.catalogue.listed(session.by)]
    caps = house.composition.caps
    shown = {"models": models, "told": told, "view": found, "wrong": wrong, "caps": caps}
    return page(request, "try.html.jinja", shown, status)


def _asks(house: House, conductor: str) -> bool:
    """Whether this conductor asks a paid model for its plans."""
    table = house.composition.settings.conductors.get(conductor)
    return conductor.startswith("lm:") or isinstance(table, LmTable)


def _texts(sent: FormData) -> dict[str, str]:
    return {name: field(sent, name) for name in sent}
