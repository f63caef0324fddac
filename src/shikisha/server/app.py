"""The application: every route of every group, the one place where errors become answers, and what guards the door.

Invariants: whatever happens, a client gets an answer in OpenAI's shape that holds no key and no traceback; a body or a
header that is too large is refused before it is read whole. Deliberately absent: what routes do (one module a group).
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ExceptionHandler

from shikisha import __version__
from shikisha.errors import ShikishaError
from shikisha.server import admin, approvals, chat, feedback, models, responses, rollback, runs, watching
from shikisha.server.access import Access
from shikisha.server.bounds import Bounds
from shikisha.server.doors import key_of
from shikisha.server.hosts import Hosts
from shikisha.server.house import House
from shikisha.server.listeners import Listeners
from shikisha.server.mapping import problem_of
from shikisha.server.pages import routes as pages
from shikisha.server.pages.doors import COOKIE, sessions_of
from shikisha.server.problems import Problem

_LOG = logging.getLogger(__name__)
GROUPS = (chat, responses, models, runs, approvals, rollback, feedback, admin, watching, pages)


class _App(FastAPI):
    """FastAPI, but for its answer to wrong parameters in the document: here they are a 400, in OpenAI's shape."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        fresh = self.openapi_schema is None
        document = super().openapi()
        if fresh:
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(name, None)
        return document

    def setup(self) -> None:
        """Add the document's route, which writes it once: a client that asks again and again costs little then."""
        super().setup()
        written = list[bytes]()

        async def document(_: Request) -> Response:
            if not written:
                written.append(bytes(JSONResponse(self.openapi()).body))
            return Response(written[0], media_type="application/json")

        for route in self.routes:
            if isinstance(route, Route) and route.path == self.openapi_url:
                route.app, route.endpoint = request_response(document), document


def create_app(house: House) -> FastAPI:
    """Return the application for a house; the house outlives it."""
    app = _App(
        title="Shikisha",
        version=__version__,
        summary="One OpenAI-compatible endpoint in front of a conducted pool of workers.",
        docs_url=None,  # the page would load scripts from outside
        redoc_url=None,
    )
    app.state.house = house
    app.state.listeners = Listeners(house.settings.most_connections)
    app.router.routes.extend(_routes())
    watching.install(app, house)
    for kind, handler in _HANDLERS:
        app.add_exception_handler(kind, handler)
    app.add_middleware(
        Bounds, most_bytes=house.settings.most_bytes, most_held=house.settings.most_bytes_at_once, known=_known
    )
    app.add_middleware(Hosts, settings=house.settings)
    app.add_middleware(Access, tallies=app.state.watch.tallies)  # last added, so around all the others
    return app


@cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes of every group; made once a process, since FastAPI makes their models anew for each app."""
    whole = FastAPI(openapi_url=None)
    for group in GROUPS:
        whole.include_router(group.router)
    return tuple(whole.router.routes)


async def _known(request: Request) -> None:
    """Raise Problem unless the request bears a key, or the cookie of a login."""
    if COOKIE in request.cookies and await sessions_of(request).principal_of(request.cookies[COOKIE]) is not None:
        return
    await key_of(request)


async def _problem(request: Request, error: Exception) -> JSONResponse:
    return _told(request, error if isinstance(error, Problem) else _unknown())


async def _shikisha(request: Request, error: Exception) -> JSONResponse:
    return _told(request, problem_of(error) if isinstance(error, ShikishaError) else _unknown())


def _told(request: Request, problem: Problem) -> JSONResponse:
    """Return the answer that tells a client of a problem, without any key that the client may have put somewhere."""
    scrub = request.app.state.house.composition.vault.scrub
    problem.message, problem.param = scrub(problem.message), problem.param and scrub(problem.param)
    request.state.refused = problem.code
    return JSONResponse(problem.body(), problem.status, problem.headers())


def _unknown() -> Problem:
    return Problem(500, "an unforeseen error", "internal_error")


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    found: Sequence[object] = error.errors() if isinstance(error, RequestValidationError) else ()
    where, what = _first(found)
    return _told(request, Problem(400, f"{where}: {what}" if where else what, "invalid_request", param=where or None))


async def _http(_: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    said, code = _SAID.get(status, ("the request cannot be served", "http_error"))
    problem = Problem(status, said, code)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JSONResponse(problem.body(), status, headers)


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    route = request.scope.get("route")
    _LOG.error("unforeseen error in %s: %s", getattr(route, "path", "?"), type(error).__name__)
    problem = Problem(500, "an unforeseen error; the server's log says where", "internal_error")
    return JSONResponse(problem.body(), 500)


def _first(found: Sequence[object]) -> tuple[str, str]:
    """Return where the first mistake is, and what it is; the input itself is not repeated."""
    first = found[0] if found else None
    if not isinstance(first, dict):
        return "", "the request is not as expected"
    place = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path", "header")]
    return ".".join(place), str(first.get("msg", "not as expected"))


_SAID = {
    400: ("the body is not as expected", "invalid_request"),
    404: ("there is nothing here", "not_found"),
    405: ("this method is not allowed here", "method_not_allowed"),
}
_HANDLERS: tuple[tuple[type[Exception], ExceptionHandler], ...] = (
    (Problem, _problem),
    (ShikishaError, _shikisha),
    (RequestValidationError, _invalid),
    (HTTPException, _http),
    (Exception, _unforeseen),
)
