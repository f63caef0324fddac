"""The page that compares: routes.

Invariant: both sides are runs that this login may see, or are counted from such. Deliberately absent: figures
(`view_compare`).
"""

from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.server.house import House
from shikisha.server.pages import view_compare, view_run
from shikisha.server.pages.doors import Housed, PageRoute, See, Session
from shikisha.server.pages.rendering import HOME, page
from shikisha.server.pages.run import seen
from shikisha.server.pages.workers import lately
from shikisha.server.store import Filter

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_LATELY = 500  # runs that are compared


@router.get(f"{HOME}/compare")
async def compare(request: Request, session: See, house: Housed) -> Response:
    """Show two runs, or two ways of conducting, side by side."""
    query = request.query_params
    left, right = query.get("left", "").strip(), query.get("right", "").strip()
    if left and right:
        runs = [await _run(house, session, name) for name in (left, right)]
        return page(request, "compare_runs.html.jinja", {"runs": runs, "lines": view_compare.run_lines(*runs)})
    by = "conductor" if query.get("by") == "conductor" else "model"
    served = (await house.store.search(Filter(tenant=session.tenant, limit=_LATELY))).runs
    found = view_compare.ways(served, (await lately(request, house, session)).scores, by)
    names = [query.get(name, "") for name in ("a", "b")]
    chosen = [name if name in found else "" for name in names]
    if not any(names):
        chosen = sorted(found, key=lambda name: -found[name].runs)[:2]
    one, other = (*chosen, "", "")[:2]
    both = one in found and other in found
    shown = {
        "by": by,
        "left": left,
        "right": right,
        "ways": found,
        "chosen": (one, other),
        "lines": view_compare.lines(found[one], found[other]) if both else (),
        "pairs": view_compare.pairs(served, (one, other), by) if both else (),
        "newest": served[:30],
        "looked_at": len(served),
    }
    return page(request, "compare.html.jinja", shown)


async def _run(house: House, session: Session, name: str) -> view_run.RunView:
    return view_run.view(await seen(house, session, name), time())
