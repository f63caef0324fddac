"""`demo`: held-out rehearsal tasks through every yardstick and the shipped conductor, with simulated workers, no key.

Invariant: what is missing for the shipped conductor is said in a line, and the demo runs without it. Deliberately
absent: torch; what learned is run by ONNX Runtime.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.core.errors import ConfigError

if TYPE_CHECKING:
    from shikisha.simulation.demo_run import Contender, DemoRow

Tasks = Annotated[int, typer.Option("--tasks", min=1, max=5000, help="How many questions.")]
Seed = Annotated[int, typer.Option("--seed", help="Which questions.")]
Pace = Annotated[float, typer.Option("--pace", min=0, help="How long a simulated second takes; 0 for no waiting.")]


def demo(tasks: Tasks = 120, seed: Seed = 1, pace: Pace = 1.0, json: JsonOption = False) -> ExitCode:
    """Rehearse with simulated workers.

    Many ways to conduct them, each with its accuracy, cost, steps and seconds; no key is needed.
    """
    from shikisha.simulation.demo_run import run_demo as rehearse

    learned = _shipped_conductor()
    console = output.make_console(to_stdout=not json)
    rows = session.run_async(lambda: rehearse(console, tasks=tasks, seed=seed, pace=pace, more=learned))
    if json:
        output.print_json({"seed": seed, "rows": [_row_json(row) for row in rows]})
    return ExitCode.OK


def _shipped_conductor() -> "tuple[Contender, ...]":
    """Return the shipped conductor, if it is here and can be run; otherwise say what is missing."""
    from shikisha.config.conductors import SHIPPED_CHECKPOINT, trained_conductor
    from shikisha.config.settings import TrainedTable
    from shikisha.simulation.demo_run import Contender

    name = f"lm:{SHIPPED_CHECKPOINT}"
    try:
        conductor = trained_conductor(name, TrainedTable(kind="trained", path=SHIPPED_CHECKPOINT), Path(), None)
    except ConfigError as missing:
        output.print_note(f"no learned conductor in the table: {missing}")
        return ()
    return (Contender("shipped conductor (learned)", conductor),)


def _row_json(row: "DemoRow") -> Mapping[str, object]:
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
