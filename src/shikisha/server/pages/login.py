"""Logins of the web pages: the cookie, the CSRF token in forms, permissions, error pages, and static files.

Invariants: a page is shown only to a login whose key may see it, and nothing is changed by a request without the CSRF
token of that very login. No script can read the cookie, and no other site can send it. After the login the browser is
led to a page of this server only. An error becomes a page with the status that the API would have. A key is what one
logs in with; there are no passwords.
"""

from collections.abc import Awaitable, Callable, Coroutine
from mimetypes import types_map
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.datastructures import FormData

from shikisha.core.errors import ShikishaError
from shikisha.core.fair_work import WORK_OWNER, WorkOwner
from shikisha.core.fast_dataclass import dataclass
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.auth import MAX_WAITING, authenticate_key
from shikisha.server.http.run_result import api_error_of
from shikisha.server.keys import Key, LoginSessions
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.keys.manager import csrf_token, is_csrf_token
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.templates import NO_STORE, SECURITY_HEADERS, STATIC_FOLDER, UI_ROOT, render_page
from shikisha.server.store import RunFilter, ServedState

LOGIN_COOKIE = "shikisha_login"
READER_SCOPES = (KeyScope.READ, KeyScope.RUN)
_NEXT_FIELD = "next"


@dataclass(frozen=True, slots=True)
class PageSession:
    """A login: who it is, the token of its forms, and how many runs of its tenant wait for a person."""

    by: Principal
    token: str
    csrf: str
    waiting: int = 0

    def may(self, *scopes: KeyScope) -> bool:
        """Whether its key has one of these scopes."""
        return any(self.by.may(scope) for scope in scopes)

    @property
    def tenant(self) -> str | None:
        """Whose runs it may see; None: everybody's."""
        return None if self.by.may(KeyScope.ADMIN) else self.by.tenant


class LoggedOut(ApiError):
    """Nobody is logged in; the browser is led to the login."""

    def __init__(self) -> None:
        super().__init__(401, "this login is over: log in again", "logged_out")


def service_of(request: Request) -> RunService:
    """Return the service that this application serves."""
    service: RunService = request.app.state.service
    return service


def login_sessions(request: Request) -> LoginSessions:
    """Return the logins, made when the first page is asked for."""
    state = request.app.state
    if not hasattr(state, "sessions"):
        state.sessions = LoginSessions(service_of(request).keys)
    sessions: LoginSessions = state.sessions
    return sessions


def require_login(*scopes: KeyScope) -> Callable[[Request], Awaitable[PageSession]]:
    """Return the dependency that lets in a login whose key has one of these scopes."""

    async def look(request: Request) -> PageSession:
        session = await _page_session(request)
        if not session.may(*scopes):
            needed = " or ".join(scope.value for scope in scopes)
            raise ApiError(403, f"the key {session.by.name!r} lacks the scope {needed}", "missing_scope")
        return session

    return look


async def checked_form(request: Request) -> FormData:
    """Return the form that was sent; ApiError (403) when it does not bear its login's token."""
    form = await request.form(max_files=0, max_fields=100)
    token = request.cookies.get(LOGIN_COOKIE, "")
    if not token or not is_csrf_token(token, form_text(form, "csrf")):
        raise ApiError(403, "this form is not of your login: go back, reload the page and try again", "csrf")
    return form


def form_text(form: FormData, name: str, default: str = "") -> str:
    """Return a field's text."""
    value = form.get(name, default)
    return value if isinstance(value, str) else default


def form_texts(form: FormData) -> dict[str, str]:
    """Return all fields' texts."""
    return {name: form_text(form, name) for name in form}


ReaderLogin = Annotated[PageSession, Depends(require_login(*READER_SCOPES))]
RunnerLogin = Annotated[PageSession, Depends(require_login(KeyScope.RUN))]
ApproverLogin = Annotated[PageSession, Depends(require_login(KeyScope.APPROVE))]
AnyLogin = Annotated[PageSession, Depends(require_login(*KeyScope))]
AdminLogin = Annotated[PageSession, Depends(require_login(KeyScope.ADMIN))]
FORM_CHECK = Depends(checked_form)
CheckedForm = Annotated[FormData, FORM_CHECK]
Service = Annotated[RunService, Depends(service_of)]


async def _page_session(request: Request) -> PageSession:
    token = request.cookies.get(LOGIN_COOKIE, "")
    by = await login_sessions(request).principal_of(token)
    if by is None:
        raise LoggedOut
    WORK_OWNER.set(WorkOwner(by.key, MAX_WAITING))
    session = PageSession(by, token, csrf_token(token))
    if session.may(KeyScope.APPROVE):
        counts = await service_of(request).store.count(RunFilter(tenant=session.tenant, states=(ServedState.WAITING,)))
        session = PageSession(by, token, session.csrf, counts.get(ServedState.WAITING, 0))
    request.state.session = session
    return session


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose refusals are pages, and which leads whoever is logged out to the login."""

    def get_route_handler(self) -> Handler:
        """Return the handler, with what it raises turned into pages."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except LoggedOut:
                if request.headers.get("hx-request"):
                    return Response(None, 200, {"HX-Redirect": f"{UI_ROOT}/login", **SECURITY_HEADERS, **NO_STORE})
                way = request.url.path if request.method == "GET" and request.url.path != f"{UI_ROOT}/" else ""
                return redirect(
                    f"{UI_ROOT}/login?{_NEXT_FIELD}={way}" if way.startswith(f"{UI_ROOT}/") else f"{UI_ROOT}/login"
                )
            except ApiError as problem:
                return error_page(request, problem)
            except RequestValidationError:
                return error_page(request, ApiError(404, "there is no such page", "not_found"))
            except ShikishaError as error:
                return error_page(request, api_error_of(error))

        return handled


def error_page(request: Request, problem: ApiError) -> Response:
    """Return the page that says what cannot be done."""
    shown = render_page(request, "problem.html.jinja", {"problem": problem}, problem.status)
    shown.headers.update(problem.headers())
    return shown


def redirect(to: str) -> RedirectResponse:
    """Lead the browser to another page, after a form was sent."""
    return RedirectResponse(to, 303, SECURITY_HEADERS | NO_STORE)


router = APIRouter(route_class=PageRoute, include_in_schema=False)
_CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_MAX_KEY_LENGTH = 500


@router.get("/")
@router.get(UI_ROOT)
@router.get(f"{UI_ROOT}/")
async def show_home() -> Response:
    """Lead to what was learned, saved and waits."""
    return redirect(f"{UI_ROOT}/overview")


@router.get(f"{UI_ROOT}/login")
async def show_login(request: Request) -> Response:
    """Show the form in which a key is pasted."""
    return _login_page(request)


@router.post(f"{UI_ROOT}/login")
async def log_in(request: Request, service: Service) -> Response:
    """Open a login for a key's holder."""
    form = await request.form(max_files=0, max_fields=10)
    presented = form_text(form, "key").strip()
    if not presented or len(presented) > _MAX_KEY_LENGTH:
        return _login_page(request, "Paste the whole key.", 400)
    try:
        key = await authenticate_key(request, presented)
    except ApiError as problem:
        return _login_page(request, problem.message, problem.status)
    return await start_login(request, service, key, redirect(_own_path(request.query_params.get("next", ""))))


async def start_login(request: Request, service: RunService, key: Key, answer: Response) -> Response:
    """Open a login for a key's holder, and return the answer with its cookie."""
    made = await login_sessions(request).open_session(key)
    secure = request.url.scheme == "https" or (service.settings.url or "").startswith("https:")
    lasts = max(1, round(made.expires - service.keys.now()))
    answer.set_cookie(
        LOGIN_COOKIE, made.token, max_age=lasts, path=UI_ROOT, httponly=True, samesite="strict", secure=secure
    )
    return answer


@router.post(f"{UI_ROOT}/logout", dependencies=[FORM_CHECK])
async def log_out(request: Request, session: AnyLogin) -> Response:
    """End the login."""
    await login_sessions(request).close_session(session.token)
    answer = redirect(f"{UI_ROOT}/login")
    answer.delete_cookie(LOGIN_COOKIE, path=UI_ROOT, httponly=True, samesite="strict")
    return answer


@router.get(f"{UI_ROOT}/static/{{version}}/{{name}}")
async def static_file(version: str, name: str) -> Response:  # noqa: ARG001 - the version makes the address another one
    """Return a file that pages need."""
    files = {file.name: file for file in STATIC_FOLDER.iterdir()}
    if name not in files:
        raise ApiError(404, "there is no such file", "not_found")
    kind = types_map.get(Path(name).suffix, "text/plain")
    return Response(files[name].read_bytes(), 200, {**SECURITY_HEADERS, **_CACHE_FOREVER}, f"{kind}; charset=utf-8")


def _login_page(request: Request, wrong: str = "", status: int = 200) -> Response:
    return render_page(
        request, "login.html.jinja", {"wrong": wrong, "next": _own_path(request.query_params.get("next", ""))}, status
    )


def _own_path(way: str) -> str:
    """Return the way if it is one to a page of ours, and the first page's otherwise."""
    plain = way.startswith(f"{UI_ROOT}/") and not any(sign in way for sign in ("//", "\\", "..", "?", "#", "\r", "\n"))
    return way if plain and way.isascii() and way != f"{UI_ROOT}/login" else f"{UI_ROOT}/overview"


missing_page_router = APIRouter(route_class=PageRoute, include_in_schema=False)


@missing_page_router.get(f"{UI_ROOT}/{{way:path}}")
async def missing_page(way: str) -> Response:  # noqa: ARG001 - the page does not repeat the address
    """Show a page that says that there is no such page."""
    raise ApiError(404, "there is no such page", "not_found")
