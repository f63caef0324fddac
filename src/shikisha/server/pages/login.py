"""Logging in with a key, logging out, and the files that pages need.

Invariants: the key is read from a form, checked, and forgotten: the cookie that stands for it is seen by no script and
sent by no other site; after the login one is led to a page of ours and nowhere else. Deliberately absent: passwords.
"""

from mimetypes import types_map
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.server.doors import opened
from shikisha.server.pages.doors import (
    COOKIE,
    Anyone,
    Checked,
    Housed,
    PageRoute,
    field,
    led,
    sessions_of,
)
from shikisha.server.pages.rendering import HOME, SECURITY, STATIC, page
from shikisha.server.problems import Problem

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_LONGEST = 500


@router.get("/")
@router.get(HOME)
@router.get(f"{HOME}/")
async def home() -> Response:
    """Lead to the runs."""
    return led(f"{HOME}/runs")


@router.get(f"{HOME}/login")
async def login(request: Request) -> Response:
    """Show the form in which a key is pasted."""
    return _form(request)


@router.post(f"{HOME}/login")
async def log_in(request: Request, house: Housed) -> Response:
    """Open a login for a key's holder."""
    form = await request.form(max_files=0, max_fields=10)
    presented = field(form, "key").strip()
    if not presented or len(presented) > _LONGEST:
        return _form(request, "Paste the whole key.", 400)
    try:
        key = await opened(request, presented)
    except Problem as problem:
        return _form(request, problem.message, problem.status)
    made = await sessions_of(request).open_session(key)
    answer = led(_ours(request.query_params.get("next", "")))
    secure = request.url.scheme == "https" or (house.settings.url or "").startswith("https:")
    lasts = max(1, round(made.expires - house.keys.now()))
    answer.set_cookie(COOKIE, made.token, max_age=lasts, path=HOME, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post(f"{HOME}/logout", dependencies=[Checked])
async def log_out(request: Request, session: Anyone) -> Response:
    """End the login."""
    await sessions_of(request).close_session(session.token)
    answer = led(f"{HOME}/login")
    answer.delete_cookie(COOKIE, path=HOME, httponly=True, samesite="strict")
    return answer


@router.get(f"{HOME}/static/{{version}}/{{name}}")
async def static(version: str, name: str) -> Response:  # noqa: ARG001 - the version makes the address another one
    """Return a file that pages need."""
    files = {file.name: file for file in STATIC.iterdir()}
    if name not in files:
        raise Problem(404, "there is no such file", "not_found")
    kind = types_map.get(Path(name).suffix, "text/plain")
    return Response(files[name].read_bytes(), 200, {**SECURITY, **_FOREVER}, f"{kind}; charset=utf-8")


def _form(request: Request, wrong: str = "", status: int = 200) -> Response:
    return page(
        request, "login.html.jinja", {"wrong": wrong, "next": _ours(request.query_params.get("next", ""))}, status
    )


def _ours(way: str) -> str:
    """Return the way if it is one to a page of ours, and the first page's otherwise."""
    plain = way.startswith(f"{HOME}/") and not any(sign in way for sign in ("//", "\\", "..", "?", "#", "\r", "\n"))
    return way if plain and way.isascii() and way != f"{HOME}/login" else f"{HOME}/runs"
