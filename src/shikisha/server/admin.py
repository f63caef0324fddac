"""Administration: keys, what they used, what of the runs' texts is to be forgotten, and who changed what.

Invariant: every route asks for the scope `admin`; every change is a row of the audit; a secret is in the one answer to
whoever had it made, and in none after it. Deliberately absent: changing the configuration (that is a file).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from shikisha.errors import StillOpen
from shikisha.journal import Gone
from shikisha.server.doors import asker
from shikisha.server.house import House
from shikisha.server.keys.keeper import UnknownKey, Unusable
from shikisha.server.keys.spend import spent
from shikisha.server.keys.wire import (
    ActList,
    ActShown,
    Budgets,
    Erased,
    EraseRequest,
    KeyChange,
    KeyIssued,
    KeyList,
    KeyShown,
    KeyWanted,
    Text,
    budgets,
)
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.refusals import refusals
from shikisha.server.store import Filter
from shikisha.server.wire.reading import documented, fit, read

router = APIRouter(tags=["admin"])
Admin = Annotated[Principal, Depends(asker(Scope.ADMIN))]
Day = Annotated[str, Query(pattern=r"^\d{4}-\d{2}-\d{2}$", description="a UTC day, as in 2026-11-22")]
_PART, _PARTS = 50, 20  # runs that are erased in one transaction, and how often that is done for a request
Tenant = Annotated[Text | None, Query(description="only this tenant's")]


@router.post(
    "/keys",
    status_code=201,
    summary="Issue a key",
    responses=refusals(),
    openapi_extra=documented(KeyWanted),
)
async def issue(request: Request, response: Response, by: Admin) -> KeyIssued:
    """Issue a key; its secret is told in this answer, and never again."""
    house, asked = _house(request), fit(await read(request), KeyWanted)
    _check_names(house, asked.workers)
    made = await house.keys.issue(asked.wanted(), by.key)
    response.headers["Cache-Control"] = "no-store"
    return KeyIssued.told(made.key, made.secret)


@router.get("/keys", summary="List the keys", responses=refusals())
async def keys(request: Request, _: Admin, tenant: Tenant = None) -> KeyList:
    """List the keys, oldest first; revoked ones stay."""
    return KeyList(data=[KeyShown.of(key) for key in await _house(request).keys.keys(tenant)])


@router.get("/keys/{id}", summary="Look a key up", responses=refusals(404))
async def key(request: Request, id: str, _: Admin) -> KeyShown:  # noqa: A002 - the parameter's name in the path
    """Return one key."""
    found = await _house(request).keys.get(id)
    if found is None:
        raise _nothing()
    return KeyShown.of(found)


@router.patch("/keys/{id}", summary="Change a key", responses=refusals(404), openapi_extra=documented(KeyChange))
async def change(request: Request, id: str, by: Admin) -> KeyShown:  # noqa: A002
    """Change what a key may do and use, from the next call on."""
    house, asked = _house(request), fit(await read(request), KeyChange)
    if "workers" in asked.model_fields_set:
        _check_names(house, asked.workers)
    with _existing():
        return KeyShown.of(await house.keys.change(id, asked.over, by.key))


@router.delete("/keys/{id}", summary="Revoke a key", responses=refusals(404, 409))
async def revoke(request: Request, id: str, by: Admin) -> KeyShown:  # noqa: A002
    """Take a key back, here at once and everywhere within a second; its runs call nobody any more."""
    with _existing():
        return KeyShown.of(await _house(request).keys.revoke(id, by.key))


@router.post("/keys/{id}/rotate", summary="Give a key a new secret", responses=refusals(404, 409))
async def rotate(request: Request, response: Response, id: str, by: Admin) -> KeyIssued:  # noqa: A002
    """Give a key a new secret; the old one opens nothing any more."""
    with _existing():
        made = await _house(request).keys.rotate(id, by.key)
    response.headers["Cache-Control"] = "no-store"
    return KeyIssued.told(made.key, made.secret)


@router.get("/budgets", summary="See what was used", responses=refusals(404))
async def used(
    request: Request, _: Admin, key: str | None = None, tenant: Tenant = None, since: Day = "1970-01-01"
) -> Budgets:
    """Return what keys may use and used, in all and by day, and what tenants used."""
    house = _house(request)
    found = await house.keys.keys(tenant)
    chosen = found if key is None else [each for each in found if each.id == key]
    if key is not None and not chosen:
        raise _nothing()
    await house.journal.flush()
    rows = await house.journal.query(partial(spent, key=key, since=since))
    return budgets(chosen, [(row.key, row.day, row.used) for row in rows])


@router.get("/admin/audit", summary="See who changed what", responses=refusals())
async def audit(
    request: Request,
    _: Admin,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="only rows with a smaller number")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ActList:
    """Return rows of the audit, newest first."""
    return ActList(data=[ActShown.of(act) for act in await _house(request).keys.acts(before, limit)])


@router.post(
    "/admin/erase",
    summary="Forget what runs said",
    responses=refusals(404, 409),
    openapi_extra=documented(EraseRequest),
)
async def erase(request: Request, by: Admin) -> Erased:
    """Erase the texts of runs, for good; that they were there, what they cost, and the chain of events stay.

    By key, tenant or age, runs that are being performed are left alone, and `more` says whether to ask again.
    """
    house, asked = _house(request), fit(await read(request), EraseRequest)
    if (asked.runs is not None) == asked.by_place:
        raise Problem(400, "expected either runs, or some of key, tenant and before", "invalid_value", param="runs")
    gone, more = await _erased(house, asked, by.key)
    said = {name: value for name, value in asked.model_dump(exclude={"runs"}).items() if value is not None}
    await house.keys.note(by.key, "runs.erased", ", ".join(gone.runs[:20]), runs=len(gone.runs), **said)
    return Erased(runs=list(gone.runs), removed=gone.removed, kept=gone.kept, more=more)


async def _erased(house: House, asked: EraseRequest, by: str) -> tuple[Gone, bool]:
    """Erase what is asked for, a part at a time; return what is gone, and whether there may be more."""
    try:
        if asked.runs is not None:
            return await house.store.erase(asked.runs, actor=by, why=asked.why), False
        gone = Gone()
        filtered = Filter(tenant=asked.tenant, key=asked.key, until=asked.before, limit=_PART)
        for _ in range(_PARTS):
            part = await house.store.sweep(filtered, actor=by, why=asked.why)
            if not part.runs:
                return gone, False
            gone = Gone(gone.runs + part.runs, gone.removed + part.removed, gone.kept + part.kept)
        return gone, True
    except StillOpen as error:
        raise Problem(409, str(error), "run_open") from None


def _house(request: Request) -> House:
    house: House = request.app.state.house
    return house


def _check_names(house: House, workers: list[str] | None) -> None:
    """Refuse a key for workers that are not configured: it would be good for nothing, and nobody would know why."""
    for place, name in enumerate(workers or ()):
        if name not in house.composition.names:
            known = ", ".join(house.composition.names)
            raise Problem(
                400,
                f"no worker {name!r} is configured; known are: {known}",
                "unknown_worker",
                param=f"workers[{place}]",
            )


@contextmanager
def _existing() -> Iterator[None]:
    try:
        yield
    except Unusable as error:
        raise Problem(409, str(error), "key_unusable") from None
    except UnknownKey:
        raise _nothing() from None


def _nothing() -> Problem:
    return Problem(404, "there is no such key", "key_not_found")
