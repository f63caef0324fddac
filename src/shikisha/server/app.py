"""The FastAPI application: all routes, the middleware, and the handlers that turn errors into responses.

Invariants: every request gets a response in its API's error shape that holds no key and no traceback; a body or header
that is too large is refused before it is read whole. What each route does is in the module of its API.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from shikisha import __version__
from shikisha.core.errors import ShikishaError
from shikisha.server.a2a import routes as a2a_routes
from shikisha.server.anthropic import routes as message_routes
from shikisha.server.chat import completions, embeddings, routing
from shikisha.server.chat import models as model_routes
from shikisha.server.chat import routes as chat_routes
from shikisha.server.chat.routes import DirectHandler
from shikisha.server.http.api_errors import ApiError, error_body_at
from shikisha.server.http.auth import authenticate
from shikisha.server.http.middleware import AccessLog, ApiOrigins, HostCheck, RequestLimits
from shikisha.server.http.run_result import api_error_of
from shikisha.server.http.streams import StreamLimiter
from shikisha.server.keys import admin_routes
from shikisha.server.lifecycle.service import RunService
from shikisha.server.mcp import routes as mcp_routes
from shikisha.server.ops import metrics
from shikisha.server.pages import (
    approvals_page,
    device_page,
    keys_page,
    login,
    overview_page,
    run_exports,
    run_page,
    runs_page,
    sessions_page,
    try_page,
    workers_page,
)
from shikisha.server.pages.login import LOGIN_COOKIE, login_sessions
from shikisha.server.responses import routes as response_routes
from shikisha.server.runs import memory_routes, outcome_routes, review_routes, tool_routes
from shikisha.server.runs import routes as run_routes

_LOG = logging.getLogger(__name__)
ROUTERS = (
    chat_routes.router,
    chat_routes.stored_router,
    response_routes.router,
    message_routes.router,
    routing.router,
    completions.router,
    embeddings.router,
    mcp_routes.router,
    a2a_routes.router,
    model_routes.router,
    tool_routes.router,
    run_routes.router,
    memory_routes.router,
    review_routes.router,
    review_routes.rollback_router,
    review_routes.feedback_router,
    outcome_routes.router,
    admin_routes.router,
    metrics.router,
    login.router,
    overview_page.router,
    sessions_page.router,
    runs_page.router,
    run_exports.router,
    run_page.router,
    approvals_page.router,
    approvals_page.passkey_router,
    device_page.router,
    device_page.script_router,
    workers_page.router,
    keys_page.router,
    try_page.router,
    login.missing_page_router,  # last, since it answers every address under /ui
)


class _ServerApp(FastAPI):
    """FastAPI, with OpenAPI's 422 entries removed: wrong parameters are a 400 in OpenAI's shape here.

    `front` is what every request passes first: the middleware, which may answer it without FastAPI's own layers.
    """

    front: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["app"] = self
        await (self.front or super().__call__)(scope, receive, send)

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
        """Add the route of the OpenAPI document, which is serialized once."""
        super().setup()
        written = list[bytes]()

        async def document(_: Request) -> Response:
            if not written:
                written.append(bytes(JSONResponse(self.openapi()).body))
            return Response(written[0], media_type="application/json")

        for route in self.routes:
            if isinstance(route, Route) and route.path == self.openapi_url:
                route.app, route.endpoint = request_response(document), document


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of every route, without a running server."""
    app = _bare_app()
    app.router.routes.extend(_all_routes())
    return app.openapi()


def _bare_app() -> _ServerApp:
    return _ServerApp(
        title="Shikisha",
        version=__version__,
        summary="One OpenAI-compatible endpoint in front of a conducted pool of workers.",
        docs_url=None,  # the page would load scripts from outside
        redoc_url=None,
    )


def create_app(service: RunService) -> FastAPI:
    """Return the application for a run service, which outlives it."""
    app = _bare_app()
    app.state.service = service
    app.state.listeners = StreamLimiter(service.settings.max_connections)
    app.router.routes.extend(_all_routes())
    metrics.install_metrics(app, service)
    for kind, handler in _HANDLERS:
        app.add_exception_handler(kind, handler)
    settings = service.settings
    inner: ASGIApp = _DirectDispatch(super(_ServerApp, app).__call__, chat_routes.direct_routes())
    inner = RequestLimits(inner, settings.max_body_bytes, settings.max_pending_bytes, _require_login_or_key)
    if settings.origins:
        inner = ApiOrigins(inner, settings.origins)
    app.front = AccessLog(HostCheck(inner, settings), app.state.watch.counters)
    return app


class _DirectDispatch:
    """Pure ASGI middleware: answers the busiest routes without the router, which takes as long as reading a request.

    What a route's handler raises becomes the response that the router would make of it; all else goes on to the router.
    """

    def __init__(self, app: ASGIApp, routes: Mapping[str, DirectHandler]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        route = self._routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        scope["route"], scope["path_params"] = route.route, {}
        request = Request(scope, receive, send)
        try:
            response = await route.answer(request)
        except (ApiError, ShikishaError, HTTPException) as error:
            response = await _handler_of(error)(request, error)
        except Exception as error:
            await (await _on_unexpected_error(request, error))(scope, receive, send)
            raise  # for the log of the process, as the router does
        await response(scope, receive, send)


@cache
def _all_routes() -> Sequence[BaseRoute]:
    """Return all routes, built once per process: FastAPI would build their models again for each app."""
    whole = FastAPI(openapi_url=None)
    for router in ROUTERS:
        whole.include_router(router)
    return tuple(whole.router.routes)


async def _require_login_or_key(request: Request) -> None:
    """Raise ApiError unless the request bears a valid key, or the cookie of a login."""
    if (
        LOGIN_COOKIE in request.cookies
        and await login_sessions(request).principal_of(request.cookies[LOGIN_COOKIE]) is not None
    ):
        return
    await authenticate(request)


async def _on_api_error(request: Request, error: Exception) -> JSONResponse:
    return _error_response(request, error if isinstance(error, ApiError) else _internal_error())


async def _on_shikisha_error(request: Request, error: Exception) -> JSONResponse:
    return _error_response(request, api_error_of(error) if isinstance(error, ShikishaError) else _internal_error())


def _error_response(request: Request, problem: ApiError) -> JSONResponse:
    """Return the response for an error, scrubbed of keys that the client may have put into its request."""
    scrub = request.app.state.service.container.secret_store.scrub
    problem.message, problem.param = scrub(problem.message), problem.param and scrub(problem.param)
    request.state.refused = problem.code
    return JSONResponse(error_body_at(request.url.path, problem), problem.status, problem.headers())


def _internal_error() -> ApiError:
    return ApiError(500, "an unexpected error", "internal_error")


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    found: Sequence[object] = error.errors() if isinstance(error, RequestValidationError) else ()
    where, what = _first_mistake(found)
    return _error_response(
        request, ApiError(400, f"{where}: {what}" if where else what, "invalid_request", param=where or None)
    )


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    said, code = _HTTP_MESSAGES.get(status, ("the request cannot be served", "http_error"))
    problem = ApiError(status, said, code)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JSONResponse(error_body_at(request.url.path, problem), status, headers)


async def _on_unexpected_error(request: Request, error: Exception) -> JSONResponse:
    route = request.scope.get("route")
    _LOG.error("unexpected error in %s: %s", getattr(route, "path", "?"), type(error).__name__)
    problem = ApiError(500, "an unexpected error; the server's log says where", "internal_error")
    return JSONResponse(error_body_at(request.url.path, problem), 500)


def _handler_of(error: ApiError | ShikishaError | HTTPException) -> Callable[[Request, Exception], Awaitable[Response]]:
    if isinstance(error, HTTPException):
        return _on_http_exception
    return _on_api_error if isinstance(error, ApiError) else _on_shikisha_error


def _first_mistake(found: Sequence[object]) -> tuple[str, str]:
    """Return the place of the first mistake and its description, which does not repeat the input."""
    first = found[0] if found else None
    if not isinstance(first, dict):
        return "", "the request is not as expected"
    place = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path", "header")]
    return ".".join(place), str(first.get("msg", "not as expected"))


_HTTP_MESSAGES = {
    400: ("the body is not as expected", "invalid_request"),
    404: ("there is nothing here", "not_found"),
    405: ("this method is not allowed here", "method_not_allowed"),
}
_HANDLERS: tuple[tuple[type[Exception], ExceptionHandler], ...] = (
    (ApiError, _on_api_error),
    (ShikishaError, _on_shikisha_error),
    (RequestValidationError, _on_invalid_request),
    (HTTPException, _on_http_exception),
    (Exception, _on_unexpected_error),
)
