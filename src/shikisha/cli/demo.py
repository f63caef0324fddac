"""`demo`: many conductors on held-out tasks of the simulation, the shipped conductor among them; no key is needed.

The shipped conductor runs on ONNX Runtime. Where that is missing, a note says so, and the demo runs without it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.config.conductor_settings import TrainedTable
from shikisha.config.conductors import SHIPPED_CHECKPOINT, trained_conductor
from shikisha.core.errors import ConfigError
from shikisha.simulation.demo_run import Contender, DemoRow, run_demo

Tasks = Annotated[int, typer.Option("--tasks", min=1, max=5000, help="How many questions.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of the questions.")]
Pace = Annotated[
    float, typer.Option("--pace", min=0, help="How many seconds a simulated second takes; 0 for no waiting.")
]


def demo(tasks: Tasks = 120, seed: Seed = 1, pace: Pace = 1.0, json: JsonOption = False) -> ExitCode:
    """Compare conductors on simulated workers.

    Shows the accuracy, cost, steps and seconds of each conductor. No key is needed.
    """
    learned = _shipped_conductor()
    console = output.make_console(to_stdout=not json)
    rows = session.run_async(lambda: run_demo(console, tasks=tasks, seed=seed, pace=pace, more=learned))
    if json:
        output.print_json({"seed": seed, "rows": [_row_json(row) for row in rows]})
    return ExitCode.OK


def _shipped_conductor() -> tuple[Contender, ...]:
    """Return the shipped conductor, or print a note of what is missing to run it."""
    name = f"lm:{SHIPPED_CHECKPOINT}"
    try:
        conductor = trained_conductor(name, TrainedTable(kind="trained", path=SHIPPED_CHECKPOINT), Path(), None)
    except ConfigError as missing:
        output.print_note(f"no learned conductor in the table: {missing}")
        return ()
    return (Contender("shipped conductor (learned)", conductor),)


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
