"""Doors: who asks, by the key that a request bears, and whether the key opens this one.

A key comes as `Authorization: Bearer KEY`, as every OpenAI client sends it, or as `x-api-key: KEY`. Invariants: nothing
is decided by a URL or a Host header (Starlette makes the one of the other); no answer and no log line holds what was
presented; what belongs to another tenant is told to be absent (404), and what a key may not do at all is told so (403).
Deliberately absent: keys in query strings, which end in other people's logs.
"""

import logging
from collections.abc import Awaitable, Callable

from fastapi import Request

from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import Key, KeyManager, KeyRefusal
from shikisha.server.keys.key import KeyScope, Principal

_LOG = logging.getLogger(__name__)
_REFUSAL_MESSAGES = {
    KeyRefusal.NONE: "no key was given: expected the header Authorization: Bearer KEY",
    KeyRefusal.UNKNOWN: "this is no key of this server",
    KeyRefusal.EXPIRED: "this key has expired: ask for another",
    KeyRefusal.REVOKED: "this key was revoked: ask for another",
}


class Unauthenticated(ApiError):
    """401: no key, or none that opens anything."""

    def __init__(self, why: KeyRefusal) -> None:
        super().__init__(401, _REFUSAL_MESSAGES[why], why)
        self._why = why

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it (RFC 6750)."""
        error = "" if self._why is KeyRefusal.NONE else f', error="invalid_token", error_description="{self.message}"'
        return {**super().headers(), "WWW-Authenticate": f'Bearer realm="shikisha"{error}'}


def require_scope(scope: KeyScope) -> Callable[[Request], Awaitable[Principal]]:
    """Return the dependency that lets requests in whose key has this scope, and tells who asks."""

    async def ask(request: Request) -> Principal:
        key = await authenticate(request)
        return check_scope(key.principal(), scope)

    return ask


async def require_reader(request: Request) -> Principal:
    """Let requests in whose key may see runs of its tenant, and tell who asks (a dependency)."""
    principal = (await authenticate(request)).principal()
    return principal if principal.may(KeyScope.RUN) else check_scope(principal, KeyScope.READ)


async def authenticate(request: Request) -> Key:
    """Return the key that a request bears; Problem when there is none that opens anything."""
    presented = _presented_key(request)
    if presented is None:
        raise Unauthenticated(KeyRefusal.NONE)
    return await authenticate_key(request, presented)


async def authenticate_key(request: Request, presented: str) -> Key:
    """Return the key that was presented with a request, wherever in it; Problem when it opens nothing."""
    keeper: KeyManager = request.app.state.house.keys
    address = request.client.host if request.client else ""
    found = await keeper.find(presented)
    if isinstance(found, Key):
        request.state.key = found.id  # for the access log
        return found
    if wait := keeper.guesses.wrong(address):
        raise ApiError(429, "too many wrong keys came from this address", "too_many_wrong_keys", wait=wait)
    _LOG.warning("a key was refused (%s), from %s", found, address or "an unknown address")
    raise Unauthenticated(found)


def check_scope(principal: Principal, scope: KeyScope) -> Principal:
    """Return the principal if it has the scope; Problem (403) when it has not."""
    if not principal.may(scope):
        raise ApiError(403, f"the key {principal.name!r} lacks the scope {scope.value!r}", "missing_scope")
    return principal


def check_tenant(principal: Principal, tenant: str, what: str) -> None:
    """Let the principal see what belongs to this tenant; otherwise there is no such thing (404)."""
    if not principal.owns(tenant):
        raise ApiError(404, f"there is no {what}", "not_found")


def _presented_key(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").strip().partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key", "").strip() or None
