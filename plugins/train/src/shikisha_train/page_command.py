"""`train-page`: the steps of a training run as one HTML page, during the run or afterwards.

Needs no torch: the steps may have been copied from another machine. Nothing is written but the page.
"""

from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.config.adapters import require_extra
from shikisha.core.text import one_line
from shikisha_train.console import describe_step
from shikisha_train.metrics import collapse_warnings, training_headline
from shikisha_train.metrics_log import read_steps
from shikisha_train.metrics_page import render_training_page

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a training, or its steps.jsonl.")]
PageFile = Annotated[
    Path | None, typer.Option("--out", "-o", help="The page to write; by default training.html next to the steps.")
]
_PAGE, _LONGEST_LINE = "training.html", 500


def train_page(run: RunFolder, to: PageFile = None, json: JsonOption = False) -> ExitCode:
    """Show the progress of a training, and write it as a web page.

    Reads the steps that `train` writes, during the run or afterwards.
    """
    require_extra("eval", "train-page")
    steps = read_steps(run)
    folder = run if run.is_dir() else run.parent
    page = render_training_page(steps, folder.resolve().name)
    written = to or folder / _PAGE
    if json:
        output.write_file(written, page)
        output.print_json({"written": str(written), "steps": len(steps)})
        return ExitCode.OK
    for line in (*training_headline(steps), describe_step(steps), *collapse_warnings(steps)):
        output.print_line(one_line(line, _LONGEST_LINE))
    output.write_file(written, page)
    return ExitCode.OK
