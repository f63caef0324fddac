"""`demo`: held-out rehearsal tasks through every yardstick and the shipped conductor, with simulated workers, no key.

Invariant: what is missing for the shipped conductor is said in a line, and the demo runs without it. Deliberately
absent: torch; what learned is run by ONNX Runtime.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import JsonOption
from shikisha.errors import ConfigError

if TYPE_CHECKING:
    from shikisha.orchestra.demo import Contender, Row

Tasks = Annotated[int, typer.Option("--tasks", min=1, max=5000, help="How many questions.")]
Seed = Annotated[int, typer.Option("--seed", help="Which questions.")]
Pace = Annotated[float, typer.Option("--pace", min=0, help="How long a simulated second takes; 0 for no waiting.")]


def demo(tasks: Tasks = 120, seed: Seed = 1, pace: Pace = 1.0, json: JsonOption = False) -> Exit:
    """Rehearse with simulated workers.

    Many ways to conduct them, each with its accuracy, cost, steps and seconds; no key is needed.
    """
    from shikisha.orchestra.demo import demo as rehearse

    learned = _learned()
    console = out.console(to_stdout=not json)
    rows = session.perform(lambda: rehearse(console, tasks=tasks, seed=seed, pace=pace, more=learned))
    if json:
        out.value({"seed": seed, "rows": [_as_json(row) for row in rows]})
    return Exit.OK


def _learned() -> "tuple[Contender, ...]":
    """Return the shipped conductor, if it is here and can be run; otherwise say what is missing."""
    from shikisha.config.checkpoints import SHIPPED, trained
    from shikisha.config.settings import TrainedTable
    from shikisha.orchestra.demo import Contender

    name = f"lm:{SHIPPED}"
    try:
        conductor = trained(name, TrainedTable(kind="trained", path=SHIPPED), Path(), None)
    except ConfigError as missing:
        out.note(f"no learned conductor in the table: {missing}")
        return ()
    return (Contender("shipped conductor (learned)", conductor),)


def _as_json(row: "Row") -> Mapping[str, object]:
    found = row.tally
    return {
        "conductor": row.contender.label,
        "tasks": found.count,
        "right": found.share,
        "interval": list(found.interval),
        "dollars": found.dollars,
        "steps": found.steps,
        "seconds": found.seconds,
    }
