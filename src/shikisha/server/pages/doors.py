"""Who looks at the pages: the login that a cookie stands for, and the token that every form of it bears.

Invariants: a page is shown to a login whose key may see it, and to nobody else; nothing is changed by a request that
does not bear the token of the very login. Whatever goes wrong is said on a page, escaped, with the status that an API
would have. Deliberately absent: keys and logins themselves (`server.keys`).
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.datastructures import FormData

from shikisha.errors import ShikishaError
from shikisha.server.house import House
from shikisha.server.keys import Sessions
from shikisha.server.keys.sessions import csrf_holds, csrf_of
from shikisha.server.mapping import problem_of
from shikisha.server.pages.rendering import HOME, SECURITY, UNKEPT, page
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.store import Filter, State

COOKIE = "shikisha_login"
SEERS = (Scope.READ, Scope.RUN)
_NEXT = "next"


@dataclass(frozen=True, slots=True)
class Session:
    """A login: who it is, the token of its forms, and how many runs of its tenant wait for a person."""

    by: Principal
    token: str
    csrf: str
    waiting: int = 0

    def may(self, *scopes: Scope) -> bool:
        """Whether its key has one of these scopes."""
        return any(self.by.may(scope) for scope in scopes)

    @property
    def tenant(self) -> str | None:
        """Whose runs it may see; None: everybody's."""
        return None if self.by.may(Scope.ADMIN) else self.by.tenant


class LoggedOut(Problem):
    """Nobody is logged in; the browser is led to the login."""

    def __init__(self) -> None:
        super().__init__(401, "this login is over: log in again", "logged_out")


def house_of(request: Request) -> House:
    """Return the house that this application serves."""
    house: House = request.app.state.house
    return house


def sessions_of(request: Request) -> Sessions:
    """Return the logins, made when the first page is asked for."""
    state = request.app.state
    if not hasattr(state, "sessions"):
        state.sessions = Sessions(house_of(request).keys)
    sessions: Sessions = state.sessions
    return sessions


def looking(*scopes: Scope) -> Callable[[Request], Awaitable[Session]]:
    """Return the dependency that lets in a login whose key has one of these scopes."""

    async def look(request: Request) -> Session:
        session = await _session(request)
        if not session.may(*scopes):
            needed = " or ".join(scope.value for scope in scopes)
            raise Problem(403, f"the key {session.by.name!r} lacks the scope {needed}", "missing_scope")
        return session

    return look


async def sent(request: Request) -> FormData:
    """Return the form that was sent; Problem (403) when it does not bear its login's token."""
    form = await request.form(max_files=0, max_fields=100)
    token = request.cookies.get(COOKIE, "")
    if not token or not csrf_holds(token, field(form, "csrf")):
        raise Problem(403, "this form is not of your login: go back, reload the page and try again", "csrf")
    return form


def field(form: FormData, name: str, default: str = "") -> str:
    """Return a field's text."""
    value = form.get(name, default)
    return value if isinstance(value, str) else default


See = Annotated[Session, Depends(looking(*SEERS))]
Begin = Annotated[Session, Depends(looking(Scope.RUN))]
Approve = Annotated[Session, Depends(looking(Scope.APPROVE))]
Anyone = Annotated[Session, Depends(looking(*Scope))]
Admin = Annotated[Session, Depends(looking(Scope.ADMIN))]
Checked = Depends(sent)
Sent = Annotated[FormData, Checked]
Housed = Annotated[House, Depends(house_of)]


async def _session(request: Request) -> Session:
    token = request.cookies.get(COOKIE, "")
    by = await sessions_of(request).principal_of(token)
    if by is None:
        raise LoggedOut
    session = Session(by, token, csrf_of(token))
    if session.may(Scope.APPROVE):
        counts = await house_of(request).store.count(Filter(tenant=session.tenant, states=(State.WAITING,)))
        session = Session(by, token, session.csrf, counts.get(State.WAITING, 0))
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
                return _to_login(request)
            except Problem as problem:
                return refused(request, problem)
            except RequestValidationError:
                return refused(request, Problem(404, "there is no such page", "not_found"))
            except ShikishaError as error:
                return refused(request, problem_of(error))

        return handled


def refused(request: Request, problem: Problem) -> Response:
    """Return the page that says what cannot be done."""
    shown = page(request, "problem.html.jinja", {"problem": problem}, problem.status)
    shown.headers.update(problem.headers())
    return shown


def led(to: str) -> RedirectResponse:
    """Lead the browser to another page, after a form was sent."""
    return RedirectResponse(to, 303, SECURITY | UNKEPT)


def _to_login(request: Request) -> Response:
    if request.headers.get("hx-request"):
        return Response(None, 200, {"HX-Redirect": f"{HOME}/login", **SECURITY, **UNKEPT})
    way = request.url.path if request.method == "GET" and request.url.path != f"{HOME}/" else ""
    return led(f"{HOME}/login?{_NEXT}={way}" if way.startswith(f"{HOME}/") else f"{HOME}/login")
