"""Doors: who asks, by the key that a request bears, and whether the key opens this one.

A key comes as `Authorization: Bearer KEY`, as every OpenAI client sends it, or as `x-api-key: KEY`. Invariants: nothing
is decided by a URL or a Host header (Starlette makes the one of the other); no answer and no log line holds what was
presented; what belongs to another tenant is told to be absent (404), and what a key may not do at all is told so (403).
Deliberately absent: keys in query strings, which end in other people's logs.
"""

import logging
from collections.abc import Awaitable, Callable

from fastapi import Request

from shikisha.server.keys import Key, KeyKeeper, Refused
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem

_LOG = logging.getLogger(__name__)
_SAID = {
    Refused.NONE: "no key was given: expected the header Authorization: Bearer KEY",
    Refused.UNKNOWN: "this is no key of this server",
    Refused.EXPIRED: "this key has expired: ask for another",
    Refused.REVOKED: "this key was revoked: ask for another",
}


class Unauthenticated(Problem):
    """401: no key, or none that opens anything."""

    def __init__(self, why: Refused) -> None:
        super().__init__(401, _SAID[why], why)
        self._why = why

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it (RFC 6750)."""
        error = "" if self._why is Refused.NONE else f', error="invalid_token", error_description="{self.message}"'
        return {**super().headers(), "WWW-Authenticate": f'Bearer realm="shikisha"{error}'}


def asker(scope: Scope) -> Callable[[Request], Awaitable[Principal]]:
    """Return the dependency that lets requests in whose key has this scope, and tells who asks."""

    async def ask(request: Request) -> Principal:
        key = await key_of(request)
        return allowed(key.principal(), scope)

    return ask


async def seer(request: Request) -> Principal:
    """Let requests in whose key may see runs of its tenant, and tell who asks (a dependency)."""
    principal = (await key_of(request)).principal()
    return principal if principal.may(Scope.RUN) else allowed(principal, Scope.READ)


async def key_of(request: Request) -> Key:
    """Return the key that a request bears; Problem when there is none that opens anything."""
    presented = _presented(request)
    if presented is None:
        raise Unauthenticated(Refused.NONE)
    return await opened(request, presented)


async def opened(request: Request, presented: str) -> Key:
    """Return the key that was presented with a request, wherever in it; Problem when it opens nothing."""
    keeper: KeyKeeper = request.app.state.house.keys
    address = request.client.host if request.client else ""
    found = await keeper.find(presented)
    if isinstance(found, Key):
        request.state.key = found.id  # for the access log
        return found
    if wait := keeper.guesses.wrong(address):
        raise Problem(429, "too many wrong keys came from this address", "too_many_wrong_keys", wait=wait)
    _LOG.warning("a key was refused (%s), from %s", found, address or "an unknown address")
    raise Unauthenticated(found)


def allowed(principal: Principal, scope: Scope) -> Principal:
    """Return the principal if it has the scope; Problem (403) when it has not."""
    if not principal.may(scope):
        raise Problem(403, f"the key {principal.name!r} lacks the scope {scope.value!r}", "missing_scope")
    return principal


def owned(principal: Principal, tenant: str, what: str) -> None:
    """Let the principal see what belongs to this tenant; otherwise there is no such thing (404)."""
    if not principal.owns(tenant):
        raise Problem(404, f"there is no {what}", "not_found")


def _presented(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").strip().partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key", "").strip() or None
