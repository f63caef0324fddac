"""A week of simulated traffic: what learning from the journal brings by the day, with each part switched off in turn.

    python examples/week/week.py [--seed 1] [--days 7] [--a-day 43] [--out week.svg]

Nothing is called over the network: six workers with misleading descriptions, the planner and the questions are
simulated, and named so. Each night step values, notes, skills and lessons are made anew from the runs so far, whose
final answers were graded. The table has, by day, the share of right answers and dollars a run; exploration costs money
in the first days.
"""

import argparse
import asyncio
from collections.abc import Sequence
from html import escape
from pathlib import Path

from shikisha.simulation.office.learning_week import DayResult, LearningSwitches, perform_week
from shikisha.simulation.office.recurring_traffic import RecurringTraffic

PARTS = {
    "the planner alone": LearningSwitches(steps=False, notes=False, skills=False, lessons=False),
    "everything learned": LearningSwitches(),
    "without steps": LearningSwitches(steps=False),
    "without notes": LearningSwitches(notes=False),
    "without skills": LearningSwitches(skills=False),
    "without lessons": LearningSwitches(lessons=False),
}
COLORS = ("#666", "#0a6", "#c60", "#36c", "#a3a", "#960")
WIDTH, HEIGHT, MARGIN = 420, 220, 40


async def perform(seed: int, days: int, a_day: int) -> dict[str, list[DayResult]]:
    """Return each part's days."""
    found = {}
    for name, switches in PARTS.items():
        _, results = await perform_week(RecurringTraffic(seed), switches, days, a_day)
        found[name] = results
    return found


def table(found: dict[str, list[DayResult]]) -> str:
    """Return the table as text."""
    lines = []
    for name, results in found.items():
        cells = "  ".join(f"{day.accuracy:4.0%} ${day.cost:.4f}" for day in results)
        lines.append(f"{name:<24} {cells}")
    return "\n".join(lines)


def curves(found: dict[str, list[DayResult]]) -> str:
    """Return two charts as SVG: right answers and dollars by day."""
    right = {name: [day.accuracy for day in results] for name, results in found.items()}
    dollars = {name: [day.cost for day in results] for name, results in found.items()}
    both = _chart("right answers", right, 0) + _chart("dollars a run", dollars, WIDTH)
    keys = "".join(
        f'<text x="{MARGIN}" y="{HEIGHT + 20 + 16 * at}" fill="{COLORS[at]}">{escape(name)}</text>'
        for at, name in enumerate(found)
    )
    height = HEIGHT + 30 + 16 * len(found)
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{height}" {style}>{both}{keys}</svg>\n'


def _chart(title: str, series: dict[str, Sequence[float]] | dict[str, list[float]], left: int) -> str:
    most = max((value for values in series.values() for value in values), default=0) or 1
    days = max(len(values) for values in series.values())
    wide, high = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(day: int, value: float) -> str:
        return f"{left + MARGIN + wide * day / max(1, days - 1):.1f},{HEIGHT - MARGIN - high * value / most:.1f}"

    lines = "".join(
        f'<polyline fill="none" stroke="{COLORS[at]}" points="'
        f'{" ".join(place(day, value) for day, value in enumerate(values))}"/>'
        for at, values in enumerate(series.values())
    )
    head = f'<text x="{left + MARGIN}" y="20">{title} by day, up to {most:.3g}</text>'
    base = HEIGHT - MARGIN
    return f'{head}<path d="M{left + MARGIN} {base}h{wide}" stroke="#999"/>{lines}'


def main(arguments: Sequence[str] | None = None) -> None:
    """Perform the week and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--a-day", type=int, default=43)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    found = asyncio.run(perform(given.seed, given.days, given.a_day))
    print(f"A week in a simulated office, seed {given.seed}: right answers and dollars a run, by day")
    print(table(found))
    if given.out is not None:
        given.out.write_text(curves(found), "utf-8")
        print(f"{given.out}: the curves")


if __name__ == "__main__":
    main()
