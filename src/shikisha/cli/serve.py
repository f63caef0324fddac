"""`serve`: the pool behind one OpenAI-compatible endpoint, with web pages.

As the first process of a container it runs the server in a child, passes signals on, and waits for everything that the
server leaves. When the first process of a container ends, the kernel kills all others at once, among them the watchdog
that records which run took the server down. Invariant: the exit status is the server's own.

With --mcp: the pool as an MCP server on stdio, for clients that start their servers themselves.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.first_run import SIMULATION_NOTE, configured_container, obtain_container
from shikisha.cli.options import SharedOptions, YesOption
from shikisha.config.container import Container
from shikisha.config.environment import find_config
from shikisha.config.preflight import conductor_notices
from shikisha.server.http import middleware
from shikisha.server.keys import passkeys
from shikisha.server.lifecycle import process
from shikisha.server.lifecycle.supervisor import ProcessPlace, end_with_parent, run_processes
from shikisha.server.mcp.stdio import serve_stdio
from shikisha.server.ops import logs

if TYPE_CHECKING:
    from shikisha.server.lifecycle.service import RunService


_KEY_VARIABLE = "SHIKISHA_KEY"


def _serve_mcp(shared: SharedOptions, *, yes: bool) -> ExitCode:
    """Serve the pool to an MCP client on stdio: its tools run tasks, explain runs and answer questions."""
    container = obtain_container(shared, yes=yes)
    url = session.journal_place(shared, container)
    logs.configure_logging(container.secret_store, container.settings.telemetry.log)
    session.run_async(lambda: _serve(container, url))
    return ExitCode.OK


async def _serve(container: Container, url: str) -> None:
    async with process.open_service(container, url) as service:
        if service.first_key is not None:
            output.print_note(f"an admin key, shown this once: {service.first_key}")
        await serve_stdio(service, os.environ.get(_KEY_VARIABLE))
    await container.aclose()


_CHILD_GRACE = 15.0  # seconds that the children of the server get to end
Host = Annotated[str | None, typer.Option("--host", help="The address to listen on; 0.0.0.0: all addresses.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0: any free port.")]
Processes = Annotated[
    int | None,
    typer.Option("--processes", min=1, max=64, help="How many server processes share the port; one for each core."),
]


Phone = Annotated[
    bool | None,
    typer.Option(
        "--phone/--no-phone",
        help="Show a QR code that logs one phone in; by default with --host, at a terminal.",
        show_default=False,
    ),
]


Mcp = Annotated[bool, typer.Option("--mcp", help="Serve one MCP client on stdio instead.")]


class AgentClient(StrEnum):
    """A coding agent that can be told where to ask."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"


For = Annotated[
    AgentClient | None, typer.Option("--for", help="Print what this coding agent's environment needs to ask here.")
]


def serve(
    shared: SharedOptions,
    host: Host = None,
    port: Port = None,
    processes: Processes = None,
    phone: Phone = None,
    agent: For = None,
    mcp: Mcp = False,
    yes: YesOption = False,
) -> ExitCode:
    """Serve the pool to OpenAI clients, with web pages.

    Without a configuration it serves what is found here, after asking once. The first start prints an admin key. With
    --mcp, $SHIKISHA_KEY names whose budget is used; without it, a key named "shikisha mcp on stdio" is made once.
    """
    if mcp:
        return _serve_mcp(shared, yes=yes)
    if os.getpid() == 1:
        raise typer.Exit(_serve_as_child())
    # A child of the supervisor is told its place; without it this command starts the processes, or is the only one.
    place = ProcessPlace.of(os.environ)
    container = _with_address(obtain_container(shared, yes=yes or place is not None), host, port)
    url = session.journal_place(shared, container)
    if place is not None:
        end_with_parent()
        container = _with_address(container, None, place.port)
    elif (count := processes or container.settings.server.processes) > 1:
        settings = container.settings.server
        raise typer.Exit(run_processes(settings.host, settings.port, count))

    def ready(service: "RunService", listening: socket.socket) -> None:
        if place is None or place.announce():
            _print_address(service, listening, agent, as_json=shared.json)

    if place is not None and place.pipe is None:
        phone = False  # one process tells people, and one link is enough
    elif phone is None:  # the link is a secret: it goes to a person, and to no log of a container
        others_reach_it = host is not None and not middleware.is_loopback(host)
        phone = others_reach_it and not shared.json and sys.stderr.isatty() and find_spec("segno") is not None
    file = find_config(shared.config, os.environ)  # the same one later, whatever is there then
    read_config = None if file is None else partial(configured_container, file)
    process.run_server(container, url, ready, read_config, shared=place is not None, phone=phone)
    return ExitCode.OK


def _serve_as_child() -> int:
    """Run this very command in a child process; return its exit status once all its processes have ended."""
    server = subprocess.Popen([sys.executable, *sys.orig_argv[1:]])  # noqa: S603 - the command line of this process
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: server.send_signal(number))
    status = server.wait()
    until = monotonic() + _CHILD_GRACE
    with suppress(ChildProcessError):  # no child is left, adopted ones included
        while monotonic() < until:
            os.waitpid(-1, os.WNOHANG)
            sleep(0.05)
    return status if status >= 0 else 128 - status


def _with_address(container: Container, host: str | None, port: int | None) -> Container:
    """Return the container with the address of the command line."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    server = container.settings.server.model_copy(update=given)
    container.settings = container.settings.model_copy(update={"server": server})
    return container


def _print_address(
    service: "RunService", listening: socket.socket, agent: AgentClient | None, *, as_json: bool
) -> None:
    """Print the URL of the server, who reaches it, and its first key, once."""
    url, *others = middleware.server_urls(service.settings, listening)
    key, link = service.first_key, service.first_link and passkeys.login_link(url, service.first_link)
    variables = {} if agent is None else _agent_variables(agent, url, key or "KEY")
    if as_json:
        told = {"link": link} if link else {}
        output.print_json({"url": url, "key": key} | told | ({"environment": variables} if agent else {}))
        return
    if service.container.simulated_pool is not None:
        output.print_note(SIMULATION_NOTE)
    for notice in conductor_notices(service.container):
        output.print_note(f"{notice.where}: {notice}")
    output.print_note(f"listening on {url}; OpenAI clients use {url}/v1, people {url}/ui")
    if agent is not None:
        hint = "" if key else " KEY is what `shikisha keys issue` prints."
        lines = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        command = f"\n{_codex_command(url)}" if agent is AgentClient.CODEX else ""
        output.print_note(f"in the shell of {agent}:{hint}\n{lines}{command}")
    for note in _reachability(service, listening, others):
        output.print_note(note)
    if key is not None:
        output.print_note(f"an admin key, shown this once: {key}")
    if link is not None:
        minutes = f"{passkeys.LINK_SECONDS / 60:.0f} minutes"
        output.print_note(f"{passkeys.qr_code(link)}\nlogs one phone in, once, within {minutes}: {link}")


def _agent_variables(agent: AgentClient, url: str, key: str) -> dict[str, str]:
    """Return the variables by which an agent asks this server; all else of it stays as it is."""
    if agent is AgentClient.CLAUDE_CODE:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_AUTH_TOKEN": key,
            "ANTHROPIC_MODEL": "shikisha",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "shikisha-mini",
        }
    return {"SHIKISHA_KEY": key}


def _codex_command(url: str) -> str:
    """Return the command that starts Codex with this server as its provider."""
    provider = {"name": "Shikisha", "base_url": f"{url}/v1", "env_key": "SHIKISHA_KEY", "wire_api": "responses"}
    options = " ".join(f"-c model_providers.shikisha.{name}={value}" for name, value in provider.items())
    return f"codex -c model=shikisha -c model_provider=shikisha {options}"


def _reachability(service: "RunService", listening: socket.socket, others: Sequence[str]) -> Iterator[str]:
    """Yield notes on who can reach the server."""
    settings, names = service.settings, middleware.accepted_hosts(service.settings)
    address = listening.getsockname()[0]
    if others:
        yield f"on this machine: {', '.join(others)}"
    if middleware.is_loopback(address):
        yield "only this machine reaches it; --host 0.0.0.0 lets others in, and they need a key"
    else:
        yield "the server has no TLS: on a network that is not yours, put a proxy with TLS in front"
    if names is None:
        yield "a request may name any host (server.hosts narrows that); every route needs a key"
    elif settings.hosts or settings.url:
        yield f"a request may name these hosts (server.url, server.hosts), or an IP address: {', '.join(names)}"
