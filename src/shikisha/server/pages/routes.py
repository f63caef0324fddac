"""All pages, put together, and what is said where there is none.

Invariant: every address below `/ui` is answered with a page. Deliberately absent: pages.
"""

from fastapi import APIRouter
from fastapi.responses import Response

from shikisha.server.pages import approvals, compare, keys, login, run, runs, trying, workers
from shikisha.server.pages.doors import PageRoute
from shikisha.server.pages.rendering import HOME
from shikisha.server.problems import Problem

router = APIRouter()
for each in (login, runs, run, approvals, workers, keys, compare, trying):
    router.include_router(each.router)

nowhere = APIRouter(route_class=PageRoute, include_in_schema=False)


@nowhere.get(f"{HOME}/{{way:path}}")
async def no_such_page(way: str) -> Response:  # noqa: ARG001 - it is not repeated
    """Say that there is no such page, on a page."""
    raise Problem(404, "there is no such page", "not_found")


router.include_router(nowhere)
