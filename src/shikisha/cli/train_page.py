"""`train-page`: the steps of a training run as one HTML page, during the run or afterwards.

Needs no torch: the steps may have been copied from another machine. Nothing is written but the page and, on request,
TensorBoard's files.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.config.adapters import require_extra
from shikisha.training.console import screen_lines
from shikisha.training.metrics import StepMetrics
from shikisha.training.metrics_log import TensorBoardLog, read_steps
from shikisha.training.metrics_page import render_training_page

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a training, or its steps.jsonl.")]
PageFile = Annotated[
    Path | None, typer.Option("--out", "-o", help="The page to write; by default training.html next to the steps.")
]
TensorBoardFolder = Annotated[
    Path | None, typer.Option("--board", metavar="DIR", help="Write TensorBoard files there too.")
]
_PAGE = "training.html"


def train_page(
    run: RunFolder, to: PageFile = None, board: TensorBoardFolder = None, json: JsonOption = False
) -> ExitCode:
    """Show the progress of a training, and write it as a web page.

    Reads the steps that `train` writes, during the run or afterwards.
    """
    require_extra("eval", "train-page")
    steps = read_steps(run)
    folder = run if run.is_dir() else run.parent
    page = render_training_page(steps, folder.resolve().name)
    if board is not None:
        _write_tensorboard(steps, board)
    written = to or folder / _PAGE
    if json:
        output.write_file(written, page)
        output.print_json({"written": str(written), "steps": len(steps)})
        return ExitCode.OK
    console = output.make_console(to_stdout=True)
    console.print(*screen_lines(steps, console.size), sep="\n")
    output.write_file(written, page)
    return ExitCode.OK


def _write_tensorboard(steps: Sequence[StepMetrics], folder: Path) -> None:
    with TensorBoardLog(folder) as board:
        for step in steps:
            board(step)
    output.print_note(f"written: {folder} (tensorboard --logdir {folder})")
