"""`train-page`: a training's steps as one HTML page, afterwards or while it goes on.

Invariant: nothing is written but the page and, where it is asked for, TensorBoard's files. Deliberately absent: torch;
steps are read wherever they were copied to.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out
from shikisha.cli.exits import Exit
from shikisha.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shikisha.train.progress import Step

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A training's folder, or its steps.jsonl.")]
To = Annotated[
    Path | None, typer.Option("--out", "-o", help="The page to write; by default training.html beside the steps.")
]
BoardTo = Annotated[Path | None, typer.Option("--board", metavar="DIR", help="Write TensorBoard's files there too.")]
_PAGE = "training.html"


def train_page(run: Run, to: To = None, board: BoardTo = None) -> Exit:
    """Show how a training goes: the screen that it draws, and a page with all curves.

    Reads the steps that `train` writes, whether it still goes on or not.
    """
    for library in ("jinja2", "numpy"):
        if find_spec(library) is None:
            raise MissingExtra("eval", "train-page")
    from shikisha.train.history import read
    from shikisha.train.page import render
    from shikisha.train.screen import told

    steps = read(run)
    folder = run if run.is_dir() else run.parent
    page = render(steps, folder.resolve().name)
    if board is not None:
        _to_board(steps, board)
    console = out.console(to_stdout=True)
    console.print(*told(steps, console.size), sep="\n")
    _to_file(to or folder / _PAGE, page)
    return Exit.OK


def _to_board(steps: "Sequence[Step]", folder: Path) -> None:
    from shikisha.train.board import Board

    with Board(folder) as board:
        for step in steps:
            board(step)
    out.note(f"written: {folder} (tensorboard --logdir {folder})")


def _to_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    out.note(f"written: {path}")
