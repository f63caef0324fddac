"""`mcp`: the pool as an MCP server on stdio, for clients that start their servers themselves.

Invariant: standard output holds messages of the protocol and nothing else; notes and logs go to standard error.
"""

import os
from pathlib import Path

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.first_run import obtain_container
from shikisha.cli.options import SharedOptions, YesOption
from shikisha.config.container import Container
from shikisha.server.lifecycle.process import open_service
from shikisha.server.mcp.stdio import serve_stdio
from shikisha.server.ops import logs

_KEY_VARIABLE = "SHIKISHA_KEY"


def mcp(shared: SharedOptions, yes: YesOption = False) -> ExitCode:
    """Serve the pool to an MCP client on stdio.

    Its tools run tasks, explain runs and answer questions.
    $SHIKISHA_KEY names whose budget is used; without it, a key named "shikisha mcp on stdio" is made once.
    """
    container = obtain_container(shared, yes=yes)
    url = shared.journal or container.journal_url()
    if "://" not in url:
        session.make_folder(Path(url).parent)
    logs.configure_logging(container.secret_store, container.settings.telemetry.log)
    session.run_async(lambda: _serve(container, url))
    return ExitCode.OK


async def _serve(container: Container, url: str) -> None:
    async with open_service(container, url) as service:
        if service.first_key is not None:
            output.print_note(f"an admin key, shown this once: {service.first_key}")
        await serve_stdio(service, os.environ.get(_KEY_VARIABLE))
    await container.aclose()
