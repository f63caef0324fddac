"""What every benchmark here shares: a table, a machine line, JSON on request, and the simplest of workers.

Figures are medians unless a column says otherwise. Nothing here is a test: a figure missed is printed, not raised.
"""

import argparse
import asyncio
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from shikisha.core.call import Reply, Request
from shikisha.core.plan import Plan
from shikisha.engine.conductor import Proposal, Situation


@dataclass(frozen=True)
class Figure:
    """One measured figure: what it is, its value, its unit, and the figure to reach (`<=` or `>=`), if there is one."""

    what: str
    value: float
    unit: str
    aim: float | None = None
    at_least: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the aim is met; None without one."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.at_least else self.value <= self.aim


def report(title: str, figures: Sequence[Figure]) -> None:
    """Print the figures as a table, or as JSON with --json."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments, _ = parser.parse_known_args()
    if arguments.json:
        print(json.dumps([{**figure.__dict__, "reached": figure.reached} for figure in figures], indent=1))
        return
    print(f"{title} ({machine()})")
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        aim = "" if figure.aim is None else f"  aim {sign} {figure.aim:g}  {'reached' if figure.reached else 'MISSED'}"
        print(f"  {figure.what:<58} {figure.value:>12,.3f} {figure.unit:<8}{aim}")


def machine() -> str:
    """Return cores, architecture, Python and date."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {today}"


@dataclass(frozen=True)
class Sleeper:
    """A worker that takes a fixed time and says its subtask."""

    seconds: float = 0.0

    async def perform(self, request: Request) -> Reply:
        """Sleep, then answer."""
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return Reply(request.subtask, dollars=0.0)


@dataclass(frozen=True)
class Always:
    """A conductor that proposes one plan, once."""

    plan: Plan
    name: str = "fixed:benchmark"

    async def propose(self, situation: Situation) -> Proposal:  # noqa: ARG002 - the protocol's signature
        """Propose the plan."""
        return Proposal(self.plan, final=True)
