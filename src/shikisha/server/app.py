"""The FastAPI application: all routes, the middleware, and the handlers that turn errors into responses.

Invariants: every request gets a response in its API's error shape that holds no key and no traceback; a body or header
that is too large is refused before it is read whole. What each route does is in the module of its API.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from shikisha import __version__
from shikisha.core.errors import ShikishaError, close_name, describe_invalid
from shikisha.server.chat.routes import DirectHandler, direct_routes
from shikisha.server.http.api_errors import ApiError, error_body_at
from shikisha.server.http.auth import authenticate
from shikisha.server.http.middleware import AccessLog, ApiOrigins, HostCheck, RequestLimits
from shikisha.server.http.run_result import api_error_of
from shikisha.server.http.streams import StreamLimiter
from shikisha.server.lifecycle.service import RunService
from shikisha.server.ops import metrics
from shikisha.server.pages.login import LOGIN_COOKIE, login_sessions
from shikisha.server.pages.templates import UI_ROOT

_LOG = logging.getLogger(__name__)
# By module, imported when the first request comes that is not answered directly: a gateway for chats loads none.
_APIS = (
    "chat.routes:router",
    "chat.routes:stored_router",
    "responses.routes:router",
    "anthropic.routes:router",
    "chat.routing:router",
    "chat.completions:router",
    "chat.embeddings:router",
    "mcp.messages:router",
    "a2a.routes:router",
    "chat.models:router",
    "runs.search_routes:tool_router",
    "runs.routes:router",
    "runs.search_routes:router",
    "runs.review_routes:router",
    "runs.review_routes:rollback_router",
    "runs.review_routes:feedback_router",
    "runs.outcome_routes:router",
    "keys.admin_routes:router",
    "ops.metrics:router",
)
_PAGES = (
    "pages.login:router",
    "pages.overview_page:router",
    "pages.sessions_page:router",
    "pages.runs_page:router",
    "pages.queue_page:router",
    "pages.replay_page:router",
    "pages.run_exports:router",
    "pages.run_page:router",
    "pages.approvals_page:router",
    "pages.approvals_page:passkey_router",
    "pages.approvals_page:script_router",
    "pages.workers_page:router",
    "pages.keys_page:router",
    "pages.try_page:router",
    "pages.login:missing_page_router",  # last, since it answers every address under /ui
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
    app.router.routes.extend((*_routes(_APIS), *_routes(_PAGES)))
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
    metrics.install_metrics(app, service)
    for kind, handler in _HANDLERS:
        app.add_exception_handler(kind, handler)
    settings = service.settings
    inner: ASGIApp = _DirectDispatch(_RoutesOnDemand(app, super(_ServerApp, app).__call__), direct_routes())
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


class _RoutesOnDemand:
    """Pure ASGI middleware: adds the routes of the APIs, and those of the pages, before the first request for them."""

    def __init__(self, app: FastAPI, inner: ASGIApp) -> None:
        self._router, self._inner = app.router, inner
        self._missing = {_APIS, _PAGES}
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        if self._missing and scope["type"] == "http":
            await self._add(_APIS)
            if scope["path"] == "/" or scope["path"].startswith(UI_ROOT):
                await self._add(_PAGES)
        await self._inner(scope, receive, send)

    async def _add(self, routers: tuple[str, ...]) -> None:
        async with self._lock:
            if routers in self._missing:
                # In a thread, since it takes up to a second in which chats shall go on.
                self._router.routes.extend(await asyncio.to_thread(_routes, routers))
                self._missing.discard(routers)


@cache
def _routes(routers: tuple[str, ...]) -> Sequence[BaseRoute]:
    """Return the routes of routers, built once per process: FastAPI would build their models again for each app."""
    whole = FastAPI(openapi_url=None)
    for name in routers:
        module, _, attribute = name.partition(":")
        whole.include_router(getattr(import_module(f"shikisha.server.{module}"), attribute))
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
    path = request.url.path
    known: Mapping[str, Mapping[str, object]] = request.app.openapi()["paths"]
    if status == 404 and (close := close_name(path, [each for each in known if "{" not in each])):
        said = f"there is no {path} here; did you mean {close}?"
    elif status == 405 and path in known:
        said = f"expected {' or '.join(sorted(map(str.upper, known[path])))} here, not {request.method}"
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
    return ".".join(place), describe_invalid(str(first.get("msg", "not as expected")), "an object")


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
