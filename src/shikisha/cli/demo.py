"""`demo`: conductors on held-out tasks of the simulation; no key is needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.config.adapters import require_extra
from shikisha.core.errors import ConfigError
from shikisha.simulation.demo_run import DemoRow, run_demo

Tasks = Annotated[int, typer.Option("--tasks", min=1, max=5000, help="How many questions.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of the questions.")]
Pace = Annotated[
    float, typer.Option("--pace", min=0, help="How many seconds a simulated second takes; 0 for no waiting.")
]

Office = Annotated[
    bool, typer.Option("--office", help="Play the office, where cards may be false and only outcomes tell.")
]
Pointer = Annotated[
    Path | None,
    typer.Option("--pointer", metavar="FILE", help="With --office: the pointer model to play, not the shipped one."),
]


def demo(
    tasks: Tasks = 120,
    seed: Seed = 1,
    pace: Pace = 1.0,
    office: Office = False,
    pointer: Pointer = None,
    json: JsonOption = False,
) -> ExitCode:
    """Compare conductors on simulated workers.

    Shows the accuracy, cost, steps and seconds of each conductor. No key is needed.
    """
    if office:
        return _office(tasks, seed, pointer, json=json)
    if pointer is not None:
        raise ConfigError("--pointer: the model knows the office alone: add --office")
    console = output.make_console(to_stdout=not json)
    rows = session.run_async(lambda: run_demo(console, tasks=tasks, seed=seed, pace=pace))
    if json:
        output.print_json({"seed": seed, "rows": [_row_json(row) for row in rows]})
    return ExitCode.OK


def _office(tasks: int, seed: int, file: Path | None, *, json: bool) -> ExitCode:
    """Show the learned conductor of the office at any amount of notes, next to its controls."""
    require_extra("eval", "the office", "numpy")
    from shikisha.conductors.pointer_conductor import load_pointer, shipped_pointer
    from shikisha.simulation.office.language_lessons import OFFICE_KINDS
    from shikisha.simulation.office.office_demo import run_office_demo

    console = output.make_console(to_stdout=not json)
    model = load_pointer(file or shipped_pointer())
    if model.reader.kinds != OFFICE_KINDS:
        raise ConfigError(f"{file}: it knows other kinds of work than the office's: {', '.join(model.reader.kinds)}")
    rows = session.run_async(lambda: run_office_demo(console, model, tasks, seed))
    if json:
        output.print_json({"seed": seed, "rows": [row.summary() for row in rows]})
    return ExitCode.OK


def _row_json(row: DemoRow) -> Mapping[str, object]:
    found = row.summary
    return {
        "conductor": row.contender.label,
        "tasks": found.count,
        "right": found.share,
        "interval": list(found.interval),
        "dollars": found.dollars,
        "steps": found.steps,
        "seconds": found.seconds,
    }
