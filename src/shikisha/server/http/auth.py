"""Authentication and scopes: which key a request bears, and whether that key may use this route.

A key comes as `Authorization: Bearer KEY` or as `x-api-key: KEY`. Invariants: no decision depends on the URL or the
Host header; no response and no log line holds what was presented; what belongs to another tenant is reported as
absent (404), a missing scope as such (403). Query strings are not read for keys, because they end up in other
parties' logs.
"""

import logging
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from fastapi import Request

from shikisha.core.fair_work import WORK_OWNER, WorkOwner
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import Key, KeyManager, KeyRefusal
from shikisha.server.keys.key import KeyScope, Principal

_LOG = logging.getLogger(__name__)
_MAX_PROXIES = 16  # one behind the other
MAX_WAITING = 64  # units of a key's requests that wait for one shared pool of threads
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
    found = await manager.find(presented)
    if isinstance(found, Key):
        request.state.key = found.id  # for the access log
        WORK_OWNER.set(WorkOwner(found.id, MAX_WAITING))
        return found
    address = limited_client(request)
    if wait := manager.wrong_keys.wrong(address):
        raise ApiError(429, "too many wrong keys came from this address", "too_many_wrong_keys", wait=wait)
    _LOG.warning("a key was refused (%s), from %s", found, address)
    raise Unauthenticated(found)


def client_address(request: Request) -> IPv4Address | IPv6Address | None:
    """Return a client's address: the peer's or, where that is a proxy that the configuration trusts, what it names.

    X-Forwarded-For is read from its end, up to the first address that is no trusted proxy: what stands before that is
    the client's own word. None where the peer has no address.
    """
    trusted = [ip_network(network) for network in request.app.state.service.settings.proxies]
    named = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    found: IPv4Address | IPv6Address | None = None
    for each in (request.client.host if request.client else "", *reversed(named[-_MAX_PROXIES:])):
        try:
            address = ip_address(each.strip())
        except ValueError:
            break
        found = getattr(address, "ipv4_mapped", None) or address
        if not any(found in network for network in trusted):
            break
    return found


def limited_client(request: Request) -> str:
    """Return by what a client without a key is limited: its address, or its network, of which an IPv6 host has all."""
    address = client_address(request)
    return str(ip_network((address, 64), strict=False) if isinstance(address, IPv6Address) else address or "unknown")


def check_scope(principal: Principal, scope: KeyScope) -> Principal:
    """Return the principal if it has the scope; ApiError (403) otherwise."""
    if not principal.may(scope):
        raise ApiError(403, f"the key {principal.name!r} lacks the scope {scope.value!r}", "missing_scope")
    return principal


def check_tenant(principal: Principal, tenant: str, what: str) -> None:
    """Raise ApiError (404) unless the principal may see what belongs to this tenant."""
    if not principal.owns(tenant):
        raise ApiError(404, f"there is no {what}", "not_found")
