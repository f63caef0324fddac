"""Hosts: under which names requests may come (the Host header), and the addresses at which a server is reached.

A page from elsewhere can have its own name point at this machine (DNS rebinding) and then read what a server here
answers. Bound to a loopback address a server can be reached by nothing but programs of this machine, browsers included,
so it answers only to names that are its own: `localhost`, any IP address (a name is what gets rebound, an address never
is), `server.url` and `server.hosts`. Bound to any other address it answers to every name, because the names under which
containers, clusters and proxies reach it cannot be known here, and because every route wants a key that such a page
does not have; `server.hosts` narrows that. Probes (`/healthz`, `/readyz`) may name any host.

Invariant: a refusal says which settings let a name in, and the log says which name it was. Deliberately absent: looking
names up (an address of ours is asked of the routing table, which sends nothing).
"""

import ipaddress
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from shikisha.clean import one_line
from shikisha.config.serving import ServerTable
from shikisha.server.problems import Problem

_LOG = logging.getLogger(__name__)
OPEN = ("/healthz", "/readyz")  # asked by whoever runs us, under an address; they tell nothing but that we live
_MOST_LOGGED = 20  # names that were refused: each once, and no more than these
_LONGEST_LOGGED = 100
_ELSEWHERE = (  # addresses for documentation (RFC 5737, RFC 3849): nothing is sent to them
    (socket.AF_INET, "192.0.2.1"),
    (socket.AF_INET6, "2001:db8::1"),
)
_REFUSED = (
    "the Host header names no host of this server: whoever runs it adds the name to `hosts` in [server] of "
    "shikisha.toml, or sets `url` there to the address at which the server is reached, and starts it again"
)


class Hosts:
    """Pure ASGI middleware: answers only requests that were sent to a name of ours."""

    def __init__(self, app: ASGIApp, settings: ServerTable) -> None:
        self._app = app
        self._names = accepted(settings)
        self._logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN or self._names is None:
            await self._app(scope, receive, send)
            return
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(given) == 1 and _within(bare(given[0]), self._names):
            await self._app(scope, receive, send)
            return
        self._note(given)
        problem = Problem(421, _REFUSED, "unknown_host")
        await JSONResponse(problem.body(), problem.status)(scope, receive, send)

    def _note(self, given: Sequence[str]) -> None:
        name = one_line(", ".join(given), _LONGEST_LOGGED) or "(none)"
        if name not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(name)
            _LOG.warning(
                "a request was refused for its Host header (%s); server.hosts or server.url lets a name in", name
            )


def accepted(settings: ServerTable) -> Sequence[str] | None:
    """Return the names under which requests may come, beside every IP address; None when it may be any name."""
    everywhere = not only_loopback(settings.host)
    if "*" in settings.hosts or (everywhere and not settings.hosts):
        return None
    public = settings.url.partition("://")[2].partition("/")[0] if settings.url else ""
    machine = (socket.gethostname(),) if everywhere else ()
    given = ("localhost", "*.localhost", *machine, settings.host, public, *settings.hosts)
    names = dict.fromkeys(bare(each) for each in given)
    return tuple(name for name in names if name and not _is_address(name))


def only_loopback(host: str) -> bool:
    """Whether who listens on this is reached from this machine only; what cannot be found out is not."""
    with suppress(OSError, ValueError):
        return ipaddress.ip_address(host if _is_address(host) else socket.gethostbyname(host or "0.0.0.0")).is_loopback  # noqa: S104 - "" is every address to bind()
    return False


def addresses(settings: ServerTable, listening: socket.socket) -> Sequence[str]:
    """Return the URLs at which a listening server is reached, the one for others first."""
    address, port = listening.getsockname()[:2]
    if settings.url:
        return (settings.url.rstrip("/"),)
    found = [address]
    if ipaddress.ip_address(address).is_unspecified:
        families = _ELSEWHERE if listening.family == socket.AF_INET6 else _ELSEWHERE[:1]
        found = [*(own for family, other in families if (own := _own(family, other))), "127.0.0.1"]
    return tuple(f"http://{f'[{each}]' if ':' in each else each}:{port}" for each in dict.fromkeys(found))


def bare(host: str) -> str:
    """Return a host's name without its port, brackets and final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host if host.count(":") > 1 else host.partition(":")[0]
    return name.rstrip(".")


def _within(name: str, names: Sequence[str]) -> bool:
    """Whether a name is an address, or one of these; `*.example.com` stands for every name under it."""
    if not name:
        return False
    under = (f"*.{'.'.join(labels[place:])}" for labels in [name.split(".")] for place in range(1, len(labels)))
    return _is_address(name) or name in names or any(each in names for each in under)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own(family: socket.AddressFamily, other: str) -> str | None:
    """Return the address from which this machine would talk to another; None where there is no way out."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))
        own = str(probe.getsockname()[0])
        return None if ipaddress.ip_address(own).is_loopback else own
    return None
