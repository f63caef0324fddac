"""`shikisha serve`: the pool behind one OpenAI-compatible endpoint.

The first process of a container: it starts the server, passes signals on, and waits for all that the server leaves.

When a container's first process ends, every other one in it is killed at once; the server's watchdog, which blames the
run that took the server down, would not come to that. Invariant: the exit status is the server's own. Deliberately
absent: starting the server again (the container's runtime does).
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.core.errors import MissingExtra

_CHILD_GRACE = 15.0  # seconds that what the server left gets to end


def is_first_process() -> bool:
    """Whether this process is the first one of a container."""
    return os.getpid() == 1


def serve_as_child() -> int:
    """Run this very command in a child, and return its exit status once nothing of it is left."""
    server = subprocess.Popen([sys.executable, *sys.orig_argv[1:]])  # noqa: S603 - as we were started ourselves
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: server.send_signal(number))
    status = server.wait()
    until = monotonic() + _CHILD_GRACE
    with suppress(ChildProcessError):  # until no child is left, adopted ones included
        while monotonic() < until:
            os.waitpid(-1, os.WNOHANG)
            sleep(0.05)
    return status if status >= 0 else 128 - status


if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from shikisha.config.container import Container
    from shikisha.server.lifecycle.service import RunService

Host = Annotated[str | None, typer.Option("--host", help="The address to listen on; 0.0.0.0: all of them.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="0: any free one.")]


def serve(shared: SharedOptions, host: Host = None, port: Port = None) -> ExitCode:
    """Serve the pool to OpenAI clients, with pages to watch it.

    Without a configuration the embedded orchestra plays; the first start prints one key.
    """
    if is_first_process():
        raise typer.Exit(serve_as_child())
    try:
        from shikisha.server.lifecycle import process
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shikisha"):
            raise
        raise MissingExtra("server", "serving") from error
    composition = _with_address(session.load_container(shared), host, port)
    url = shared.journal or composition.journal_url()
    if "://" not in url:
        session.make_folder(Path(url).parent)

    def ready(house: "RunService", listening: "socket.socket") -> None:
        _print_address(house, listening, as_json=shared.json)

    process.run_server(composition, url, ready)
    return ExitCode.OK


def _with_address(composition: "Container", host: str | None, port: int | None) -> "Container":
    """Return the composition with the address that the command line gives."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    server = composition.settings.server.model_copy(update=given)
    composition.settings = composition.settings.model_copy(update={"server": server})
    return composition


def _print_address(house: "RunService", listening: "socket.socket", *, as_json: bool) -> None:
    """Say where the server is, under which names, and its first key, once."""
    from shikisha.config.preflight import conductor_notices
    from shikisha.server.http import middleware

    url, *others = middleware.server_urls(house.settings, listening)
    key = house.first_key
    if as_json:
        output.print_json({"url": url, "key": key})
        return
    if house.composition.simulated_pool is not None:
        output.print_note("no workers are configured: the embedded orchestra plays (small tools and simulated models)")
    for notice in conductor_notices(house.composition):
        output.print_note(f"{notice.where}: {notice}")
    output.print_note(f"listening on {url}; OpenAI clients use {url}/v1, people {url}/ui")
    for note in _reachability(house, listening, others):
        output.print_note(note)
    if key is not None:
        output.print_note(f"an admin key, shown this once: {key}")


def _reachability(house: "RunService", listening: "socket.socket", others: "Sequence[str]") -> "Iterator[str]":
    """Yield what is good to know about who reaches the server."""
    from shikisha.server.http import middleware

    settings, names = house.settings, middleware.accepted_hosts(house.settings)
    address = listening.getsockname()[0]
    if others:
        yield f"on this machine: {', '.join(others)}"
    if middleware.is_loopback(address):
        yield "only this machine reaches it; --host 0.0.0.0 lets others in, who need a key"
    else:
        yield "there is no TLS here: on a network that is not yours, put a proxy with TLS in front"
    if names is None:
        yield "a request may name any host (server.hosts narrows that); every route wants a key"
    elif settings.hosts or settings.url:
        yield f"a request may name these hosts (server.url, server.hosts), or an IP address: {', '.join(names)}"
