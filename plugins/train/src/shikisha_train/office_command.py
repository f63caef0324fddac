"""`demo office`: the pointer conductor in the simulated office, at any amount of notes, next to its controls."""

from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.core.errors import ConfigError
from shikisha_train.office.language_lessons import OFFICE_KINDS
from shikisha_train.office.office_demo import run_office_demo
from shikisha_train.pointer.pointer_conductor import load_pointer, shipped_pointer

Tasks = Annotated[int, typer.Option("--tasks", min=1, max=5000, help="How many questions.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of the questions.")]
Pointer = Annotated[
    Path | None, typer.Option("--pointer", metavar="FILE", help="The pointer model to play, not the shipped one.")
]


def office(tasks: Tasks = 120, seed: Seed = 1, pointer: Pointer = None, json: JsonOption = False) -> ExitCode:
    """Play the simulated office, where cards may be false and only outcomes tell."""
    console = output.make_console(to_stdout=not json)
    model = load_pointer(pointer or shipped_pointer())
    if model.reader.kinds != OFFICE_KINDS:
        raise ConfigError(f"{pointer}: it knows other kinds of work than the office's: {', '.join(model.reader.kinds)}")
    rows = session.run_async(lambda: run_office_demo(console, model, tasks, seed))
    if json:
        output.print_json({"seed": seed, "rows": [row.summary() for row in rows]})
    return ExitCode.OK
