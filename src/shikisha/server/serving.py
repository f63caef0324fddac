"""The server process: the house, the application, uvicorn around it, and an end in good order.

Invariant: requests stop before runs do, and runs before the journal; with a second signal nobody is waited for.
Deliberately absent: several worker processes of one server (start several servers on one PostgreSQL), TLS, reloading.
"""

import asyncio
import errno
import gc
import logging
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib import import_module

import uvicorn

from shikisha.config.compose import Composition
from shikisha.config.serving import ServerTable
from shikisha.errors import ConfigError
from shikisha.server import logs, signals
from shikisha.server.app import create_app
from shikisha.server.connections import Connection, Listener
from shikisha.server.crowd import Crowd, descriptors, room, runs_at_once
from shikisha.server.house import House
from shikisha.server.opening import open_house
from shikisha.server.watchdog import Watchdog, watched

_KEEP_ALIVE = 75  # seconds that an idle connection stays open
_BACKLOG = 2048
_UNREAD = 2**16  # bytes of an answer that the system keeps for a client that does not read; it would take megabytes
_HINTS = {
    errno.EADDRINUSE: "another program listens there; --port 0 takes any free one",
    errno.EACCES: "ports below 1024 are not for everybody; try another --port",
}
_COLLECT = (20_000, 20, 20)  # objects, and how often of the generation before
_SWITCH = (
    0.0005  # seconds: the journal's thread asks for the interpreter many times a commit, and waits so long each time
)


def bound(settings: ServerTable) -> socket.socket:
    """Return a socket that listens where the configuration says; ConfigError when it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD)  # accepted sockets have it from this one
        made.bind((settings.host, settings.port))
        made.listen(_BACKLOG)  # who comes before we are ready waits
    except OSError as error:
        made.close()
        hint = "expected an address of this machine, or 0.0.0.0 for all of them"
        said = f"{error.strerror} ({_HINTS.get(error.errno or 0, hint)})"
        raise ConfigError(f"server: cannot listen on {settings.host}, port {settings.port}: {said}") from error
    return made


async def serve(
    composition: Composition,
    listening: socket.socket,
    journal_url: str,
    ready: Callable[[House], None],
    watchdog: Watchdog | None = None,
) -> None:
    """Serve until the process is told to stop; `ready` is called once requests can come."""
    with signals.told() as told:  # until the house is closed, and not only until requests have ended
        if watchdog is not None:
            watchdog.mark_on(asyncio.get_running_loop())
        async with open_house(composition, journal_url) as house:
            if watchdog is not None:
                watchdog.begin(lambda: house.store.member.id)
            server = HttpServer(configured(house), Crowd(house.settings.most_connections or room(descriptors())))

            def stop() -> None:
                server.should_exit = True

            def stop_now() -> None:
                server.force_exit = True
                house.hasten()

            told.means(stop, stop_now)
            ready(house)
            settle()
            await server.serve(sockets=[listening])


class HttpServer(uvicorn.Server):
    """uvicorn with our connections, which leaves signals alone: it would raise them again before runs have ended."""

    def __init__(self, config: uvicorn.Config, crowd: Crowd) -> None:
        super().__init__(config)
        self.crowd = crowd

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to `signals`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections from these sockets."""
        await self.lifespan.startup()
        make = partial(Connection, self.crowd, self.config, self.server_state, self.lifespan.state)
        self.servers = [Listener(each, self.crowd, make) for each in sockets or ()]  # type: ignore[misc]  # closed alike
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let requests end."""
        for server in self.servers:
            server.close()
            await server.wait_closed()  # before uvicorn closes the socket that it reads
        await super().shutdown(sockets)


def configured(house: House) -> uvicorn.Config:
    """Return how uvicorn serves a house."""
    return uvicorn.Config(
        create_app(house),
        backlog=_BACKLOG,
        log_config=None,
        access_log=False,  # `watching` has one that leaves out query strings
        server_header=False,
        proxy_headers=False,  # nothing here goes by a client's word for its address
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(house.settings.drain)),
        lifespan="off",
        ws="none",  # a connection that becomes something else would leave the crowd
    )


def settle() -> None:
    """Let the garbage collector leave alone what stays for good, and look at the rest less often.

    A whole look at all that is imported takes 100 ms, in which nobody is answered; requests leave few cycles behind.
    """
    import_module("shikisha.workers.wire")  # the first call would import it while others wait
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)


def run(composition: Composition, journal_url: str, ready: Callable[[House, socket.socket], None]) -> None:
    """Serve in this process, on uvloop where there is one."""
    listening = bound(composition.settings.server)
    sys.setswitchinterval(_SWITCH)
    logs.set_up(composition.vault, composition.settings.telemetry.log)
    _fit(composition)
    with (
        listening,
        watched(journal_url or composition.journal_url(), composition.settings.server.longest_stall) as watchdog,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.run(serve(composition, listening, journal_url, lambda house: ready(house, listening), watchdog))


def _fit(composition: Composition) -> None:
    """Bound connections, and runs, which may outlive theirs, by what the limit on open files allows."""
    given, limit = composition.settings.server, descriptors()
    most = room(limit, given.most_connections)
    runs = runs_at_once(limit, given.most_runs)
    fitted = given.model_copy(update={"most_connections": most, "most_runs": runs})
    composition.settings = composition.settings.model_copy(update={"server": fitted})
    if limit is not None and (fitted.most_runs < given.most_runs or most < (given.most_connections or 0)):
        logging.getLogger(__name__).warning(
            "this process may have %d files open, so %d connections and %d runs at once: ulimit -n raises it",
            *(limit, most, fitted.most_runs),
        )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
