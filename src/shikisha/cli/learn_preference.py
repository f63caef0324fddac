"""`learn preference`: what a right answer, speed and money are worth to people, from their choices between answers.

Invariant: nothing is recommended that does not foretell held-out choices at least as well as success alone.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.core.errors import ConfigError
from shikisha.routing.fit.fit_preference import MAX_CHOICES, LearnedWeights, fit_preference, read_choices
from shikisha.routing.policy_file import load_policy

_MAX_BYTES = 2**28
Choices = Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines: chosen and rejected, each an answer.")]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="A policy whose workers' means are used where an answer lacks numbers.")
]


def preference(shared: SharedOptions, choices: Choices, policy: PolicyFile = None) -> ExitCode:
    """Learn from people's choices between answers what success, speed and money are worth to them.

    A line is `{"chosen": {"worker": "a", "seconds": 2.1}, "rejected": {"worker": "b", "dollars": 0.01}}`.
    """
    held = None if policy is None else load_policy(policy)[0]
    try:
        if choices.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{choices}: more than {MAX_CHOICES:,} choices")
        with choices.open(encoding="utf-8") as lines:
            pairs = read_choices(lines, str(choices), () if held is None else held.workers)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{choices}: cannot be read: {error}") from None
    weights = fit_preference(pairs)
    unit = None if held is None else held.rung().dial.unit
    if shared.json:
        price = None if unit is None else weights.price_of_unit(unit)
        output.print_json({**asdict(weights), "kept": weights.kept, "lambda": price})
        return ExitCode.OK
    _show(weights, unit)
    return ExitCode.OK


def _show(weights: LearnedWeights, unit: float | None) -> None:
    low, high = weights.speed_interval
    output.print_line(f"{weights.choices:,} choices; a right answer counts 1")
    output.print_line(
        f"1 / seconds    {weights.speed:.3g}  [{low:.3g}, {high:.3g}]   learn --speed {weights.speed:.3g}"
    )
    low, high = weights.price_interval
    how = "" if unit is None else f"   ?lambda={weights.price_of_unit(unit):.3g}"
    output.print_line(f"a dollar       {weights.price:.3g}  [{low:.3g}, {high:.3g}]{how}")
    output.print_line(
        f"told right of held-out choices: {weights.foretold:.1%}, by success alone {weights.alone:.1%} "
        f"(difference {100 * weights.gain[0]:+.1f} to {100 * weights.gain[1]:+.1f} points)"
    )
    if not weights.kept:
        output.print_note("success alone tells these choices as well: keep the weights that you have")
