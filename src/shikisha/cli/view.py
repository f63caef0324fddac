"""`eval show`: the samples of an evaluation in the browser, or two evaluations task by task."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.compare import PairNames, RigourOption, compare
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JournalOption, JsonOption, import_errors_name_extra
from shikisha.core.errors import ConfigError

_DEFAULT_FOLDER = "evaluations"  # where `eval` keeps what it was not told a folder for


def view(
    folder: Annotated[
        Path | None,
        typer.Argument(help="The folder of an evaluation, by default the newest in ./evaluations; or a report."),
    ] = None,
    other: Annotated[
        Path | None, typer.Argument(help="Another report that `eval --json` wrote: compare both.", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0: any free port.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    pair: PairNames = None,
    rigour: RigourOption = None,
    journal: JournalOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Show the samples of an evaluation in the browser, or compare two evaluations.

    Two reports are compared task by task. Tasks are matched by their content. Differences are OTHER - FOLDER. Grades of
    different rigour are never averaged.

    Each sample has its task, plan, steps, answer and grade. Only this machine can open the page, and only by the whole
    address that is printed. Ctrl-C ends it.
    """
    if folder is not None and other is not None:
        return compare(folder, other, pair, rigour, json)
    chosen = folder or _newest_folder()
    with import_errors_name_extra("serve"):
        from shikisha.server import viewer

    def ready(address: str) -> None:
        if json:
            output.print_json({"url": address, "folder": str(chosen)})
        else:
            output.print_line(address)
        if open_browser:
            webbrowser.open(address)

    session.run_async(lambda: viewer.serve_folder(chosen, journal or "", port, ready))
    return ExitCode.OK


def _newest_folder() -> Path:
    """Return the folder in ./evaluations whose samples were written last."""
    found = sorted(Path(_DEFAULT_FOLDER).glob("*/samples.jsonl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise ConfigError("there is no evaluation in ./evaluations: name a folder, or run `shikisha eval` first")
    return found[-1].parent
