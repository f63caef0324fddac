"""Authentication and scopes: which key a request bears, and whether that key may use this route.

A key comes as `Authorization: Bearer KEY` or as `x-api-key: KEY`. Invariants: no decision depends on the URL or the
Host header; no response and no log line holds what was presented; what belongs to another tenant is reported as
absent (404), a missing scope as such (403). Query strings are not read for keys, because they end up in other
parties' logs.
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
    KeyRefusal.UNKNOWN: "this key is unknown to this server",
    KeyRefusal.EXPIRED: "this key has expired: ask for another",
    KeyRefusal.REVOKED: "this key was revoked: ask for another",
}


class Unauthenticated(ApiError):
    """401: no key, or no valid one."""

    def __init__(self, why: KeyRefusal) -> None:
        super().__init__(401, _REFUSAL_MESSAGES[why], why)
        self._why = why

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it (RFC 6750)."""
        error = "" if self._why is KeyRefusal.NONE else f', error="invalid_token", error_description="{self.message}"'
        return {**super().headers(), "WWW-Authenticate": f'Bearer realm="shikisha"{error}'}


def require_scope(scope: KeyScope) -> Callable[[Request], Awaitable[Principal]]:
    """Return the FastAPI dependency that gives the principal and requires this scope of its key."""

    async def ask(request: Request) -> Principal:
        key = await authenticate(request)
        return check_scope(key.principal(), scope)

    return ask


async def require_reader(request: Request) -> Principal:
    """Return the principal of a key that may see runs of its tenant (a FastAPI dependency)."""
    principal = (await authenticate(request)).principal()
    return principal if principal.may(KeyScope.RUN) else check_scope(principal, KeyScope.READ)


async def authenticate(request: Request) -> Key:
    """Return the valid key of a request; ApiError (401) without one."""
    kind, _, token = request.headers.get("authorization", "").strip().partition(" ")
    bearer = token.strip() if kind.lower() == "bearer" else ""
    presented = bearer or request.headers.get("x-api-key", "").strip()
    if not presented:
        raise Unauthenticated(KeyRefusal.NONE)
    return await authenticate_key(request, presented)


async def authenticate_key(request: Request, presented: str) -> Key:
    """Return the valid key that a request presents, in a header or a form; ApiError (401, 429) otherwise."""
    manager: KeyManager = request.app.state.service.keys
    address = request.client.host if request.client else ""
    found = await manager.find(presented)
    if isinstance(found, Key):
        request.state.key = found.id  # for the access log
        return found
    if wait := manager.wrong_keys.wrong(address):
        raise ApiError(429, "too many wrong keys came from this address", "too_many_wrong_keys", wait=wait)
    _LOG.warning("a key was refused (%s), from %s", found, address or "an unknown address")
    raise Unauthenticated(found)


def check_scope(principal: Principal, scope: KeyScope) -> Principal:
    """Return the principal if it has the scope; ApiError (403) otherwise."""
    if not principal.may(scope):
        raise ApiError(403, f"the key {principal.name!r} lacks the scope {scope.value!r}", "missing_scope")
    return principal


def check_tenant(principal: Principal, tenant: str, what: str) -> None:
    """Raise ApiError (404) unless the principal may see what belongs to this tenant."""
    if not principal.owns(tenant):
        raise ApiError(404, f"there is no {what}", "not_found")
