"""`shikisha serve`: the pool behind one OpenAI-compatible endpoint."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import first_process, out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.errors import MissingExtra

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from shikisha.config.compose import Composition
    from shikisha.server.house import House

Host = Annotated[str | None, typer.Option("--host", help="The address to listen on; 0.0.0.0: all of them.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="0: any free one.")]


def serve(shared: Shared, host: Host = None, port: Port = None) -> Exit:
    """Serve the pool to OpenAI clients, with pages to watch it.

    Without a configuration the embedded orchestra plays; the first start prints one key.
    """
    if first_process.is_first():
        raise typer.Exit(first_process.serve_as_child())
    try:
        from shikisha.server import serving
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shikisha"):
            raise
        raise MissingExtra("server", "serving") from error
    composition = _at(session.compose(shared), host, port)
    url = shared.journal or composition.journal_url()
    if "://" not in url:
        session.make_folder(Path(url).parent)

    def ready(house: "House", listening: "socket.socket") -> None:
        _announce(house, listening, as_json=shared.json)

    serving.run(composition, url, ready)
    return Exit.OK


def _at(composition: "Composition", host: str | None, port: int | None) -> "Composition":
    """Return the composition with the address that the command line gives."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    server = composition.settings.server.model_copy(update=given)
    composition.settings = composition.settings.model_copy(update={"server": server})
    return composition


def _announce(house: "House", listening: "socket.socket", *, as_json: bool) -> None:
    """Say where the server is, under which names, and its first key, once."""
    from shikisha.config.foreseeing import notices
    from shikisha.server import hosts

    url, *others = hosts.addresses(house.settings, listening)
    key = house.first_key
    if as_json:
        out.value({"url": url, "key": key})
        return
    if house.composition.orchestra is not None:
        out.note("no workers are configured: the embedded orchestra plays (small tools and simulated models)")
    for notice in notices(house.composition):
        out.note(f"{notice.where}: {notice}")
    out.note(f"listening on {url}; OpenAI clients use {url}/v1, people {url}/ui")
    for note in _reached(house, listening, others):
        out.note(note)
    if key is not None:
        out.note(f"an admin key, shown this once: {key}")


def _reached(house: "House", listening: "socket.socket", others: "Sequence[str]") -> "Iterator[str]":
    """Yield what is good to know about who reaches the server."""
    from shikisha.server import hosts

    settings, names = house.settings, hosts.accepted(house.settings)
    address = listening.getsockname()[0]
    if others:
        yield f"on this machine: {', '.join(others)}"
    if hosts.only_loopback(address):
        yield "only this machine reaches it; --host 0.0.0.0 lets others in, who need a key"
    else:
        yield "there is no TLS here: on a network that is not yours, put a proxy with TLS in front"
    if names is None:
        yield "a request may name any host (server.hosts narrows that); every route wants a key"
    elif settings.hosts or settings.url:
        yield f"a request may name these hosts (server.url, server.hosts), or an IP address: {', '.join(names)}"
