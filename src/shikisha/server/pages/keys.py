"""The page of keys and budgets: routes.

Invariant: only an admin sees other keys than his own, issues one, changes its caps or takes it back; a secret is told
on the page that answers the form which asked for it, and kept by nobody. Deliberately absent: erasure and the audit
(the API and the command line have them).
"""

from dataclasses import replace
from functools import partial
from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from shikisha.errors import ConfigError
from shikisha.server.house import House
from shikisha.server.keys import Issued, Key
from shikisha.server.keys.spend import spent
from shikisha.server.pages import view_keys
from shikisha.server.pages.doors import Admin, Anyone, Checked, Housed, PageRoute, Sent, Session, field, led
from shikisha.server.pages.rendering import HOME, page
from shikisha.server.principal import Scope
from shikisha.server.problems import Problem

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{HOME}/keys")
async def keys(request: Request, session: Anyone, house: Housed) -> Response:
    """Show an admin all keys, and anyone else his own."""
    return await _shown(request, session, house)


@router.post(f"{HOME}/keys")
async def issue(request: Request, session: Admin, house: Housed, form: Sent) -> Response:
    """Issue a key, and show its secret this once."""
    try:
        wanted = view_keys.wanted(_texts(form), [str(each) for each in form.getlist("scopes")], house.keys.now())
    except ConfigError as error:
        return await _shown(request, session, house, wrong=str(error), form=_texts(form))
    return await _shown(request, session, house, issued=await house.keys.issue(wanted, session.by.key))


@router.post(f"{HOME}/keys/{{own_id}}/revoke", dependencies=[Checked])
async def revoke(own_id: str, session: Admin, house: Housed) -> Response:
    """Take a key back."""
    if own_id == session.by.key:
        raise Problem(409, "this is the key that you are logged in with: take it back with another", "own_key")
    await _key(house, own_id)
    await house.keys.revoke(own_id, session.by.key)
    return led(f"{HOME}/keys")


@router.post(f"{HOME}/keys/{{own_id}}/rotate", dependencies=[Checked])
async def rotate(request: Request, own_id: str, session: Admin, house: Housed) -> Response:
    """Give a key a new secret, and show it this once."""
    await _key(house, own_id)
    return await _shown(request, session, house, issued=await house.keys.rotate(own_id, session.by.key))


@router.post(f"{HOME}/keys/{{own_id}}/caps")
async def caps(own_id: str, session: Admin, house: Housed, form: Sent) -> Response:
    """Change a key's caps."""
    await _key(house, own_id)
    try:
        found = view_keys.caps(_texts(form))
    except ConfigError as error:
        raise Problem(400, str(error), "invalid_request") from None
    await house.keys.change(own_id, lambda key: replace(key, caps=found), session.by.key)
    return led(f"{HOME}/keys#{own_id}")


async def _shown(
    request: Request,
    session: Session,
    house: House,
    *,
    issued: Issued | None = None,
    wrong: str = "",
    form: dict[str, str] | None = None,
) -> Response:
    admin, now = session.may(Scope.ADMIN), time()
    own = await house.keys.get(session.by.key)
    known = await house.keys.keys() if admin else [own] if own is not None else []
    told = await house.journal.query(partial(spent, key=None if admin else session.by.key, since=view_keys.since(now)))
    shown = {
        "view": view_keys.view(known, told, now),
        "admin": admin,
        "issued": issued,
        "wrong": wrong,
        "given": form or {},
        "scopes": [scope.value for scope in Scope],
        "shown_at": now,
    }
    return page(request, "keys.html.jinja", shown, 400 if wrong else 200)


async def _key(house: House, own_id: str) -> Key:
    found = await house.keys.get(own_id)
    if found is None:
        raise Problem(404, f"there is no key {own_id}", "not_found")
    return found


def _texts(form: FormData) -> dict[str, str]:
    return {name: field(form, name) for name in form}
