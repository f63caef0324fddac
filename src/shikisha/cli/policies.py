"""Policies at work: the group `policy`, and its `show`.

Invariant: `show` fits a screen of 80 columns, whatever the pool is called. Deliberately absent: moving policies into
use (a file of its own adds commands to `group`).
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out
from shikisha.cli.exits import Exit
from shikisha.cli.options import JsonOption
from shikisha.errors import MissingExtra

if TYPE_CHECKING:
    from shikisha.policy.dial import Mix
    from shikisha.policy.policy import Policy, Rung

group = typer.Typer(help="Look at learned policies.", no_args_is_help=True)

PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A policy file, as `learn --out` writes it.")]
RungName = Annotated[str, typer.Option("--rung", help="Show this rung; by default the one that is kept.")]


@dataclass(frozen=True, slots=True)
class Dialled:
    """Where the dial stands; one of these at a time."""

    max_cost: Annotated[
        str, typer.Option("--max-cost", help="Mean cost, as a share of the best single worker's: 0.2 or 20%.")
    ] = ""
    quality: Annotated[
        str, typer.Option("--quality", help="Accuracy, as a share of the best single worker's: 0.99.")
    ] = ""
    budget_per_1k: Annotated[str, typer.Option("--budget-per-1k", help="Dollars for a thousand tasks.")] = ""
    price: Annotated[str, typer.Option("--lambda", help="Accuracy that the best single worker's cost must bring.")] = ""

    @property
    def given(self) -> list[tuple[str, str]]:
        """The options given, by the names that conductors know them by."""
        every = {
            "max_cost": self.max_cost,
            "quality": self.quality,
            "budget_per_1k": self.budget_per_1k,
            "lambda": self.price,
        }
        return [(name, text) for name, text in every.items() if text]


def show(file: PolicyFile, dialled: Dialled, rung: RungName = "", json: JsonOption = False) -> Exit:
    """Show what a policy does: whom it asks first, when one more, and what agreement is worth.

    By default at the setting that is as good as the best single worker, or at its best.
    """
    if find_spec("numpy") is None:
        raise MissingExtra("eval", "a learned policy")
    from shikisha.policy.file import load

    policy, version = load(file)
    shown = _at(policy, rung, dialled)
    if json:
        from shikisha.learn.plain import shown as plain

        out.value(plain(policy, version, shown))
        return Exit.OK
    from shikisha.learn.screen import portrait

    portrait(policy, version, shown, out.console(to_stdout=True))
    return Exit.OK


def _at(policy: "Policy", name: str, dialled: Dialled) -> "tuple[Rung, Mix, str]":
    """Return the rung and the mixture to show, and what it is called."""
    from shikisha.learn.figures import usual
    from shikisha.policy.dial import Aim, wish

    rung, given = policy.rung(name), dialled.given
    if given:
        stated = wish(given)
        return rung, rung.dial.at(stated), "=".join(given[0])
    mix, stated = usual(rung)
    return rung, mix, "its best" if stated.aim is Aim.BEST else f"{stated.aim}={stated.value:g}"
