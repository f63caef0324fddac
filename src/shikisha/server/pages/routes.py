"""All page routers together, and the page for unknown addresses under `/ui`."""

from fastapi import APIRouter
from fastapi.responses import Response

from shikisha.server.http.api_errors import ApiError
from shikisha.server.pages import approvals_page, keys_page, login, run_page, runs_page, try_page, workers_page
from shikisha.server.pages.login import PageRoute
from shikisha.server.pages.templates import UI_ROOT

router = APIRouter()
for each in (login, runs_page, run_page, approvals_page, workers_page, keys_page, runs_page, try_page):
    router.include_router(each.router)

missing_page_router = APIRouter(route_class=PageRoute, include_in_schema=False)


@missing_page_router.get(f"{UI_ROOT}/{{way:path}}")
async def missing_page(way: str) -> Response:  # noqa: ARG001 - it is not repeated
    """Say that there is no such page, on a page."""
    raise ApiError(404, "there is no such page", "not_found")


router.include_router(missing_page_router)
