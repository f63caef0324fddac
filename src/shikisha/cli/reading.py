"""Looking at runs afterwards: `runs`, `trace`, `explain`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.budget import format_dollars
from shikisha.clean import one_line
from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.cli.running import RunId, summary
from shikisha.errors import TaskError

if TYPE_CHECKING:
    from shikisha.journal import Summary
    from shikisha.run import Run

_CHILDREN = 5  # how many child runs a run is expected to have, when a page of runs is fetched
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")]
Children = Annotated[bool, typer.Option("--children", help="List child runs too.")]
Answers = Annotated[bool, typer.Option("--answers", help="Show the beginning of each step's answer too.")]


def runs(
    shared: Shared,
    limit: Limit = 20,
    status: Annotated[str, typer.Option("--status", help="Only runs of this status.")] = "",
    children: Children = False,
) -> Exit:
    """List the newest runs."""
    from shikisha.events import Status

    if status and status not in list(Status):
        raise TaskError(f"unknown status {status!r}: known are {', '.join(Status)}")

    async def main() -> "tuple[Summary, ...]":
        async with session.reading(shared) as journal:
            found = await journal.runs(limit=limit * _CHILDREN, status=Status(status) if status else None)
            return tuple(run for run in found if children or run.parent is None)[:limit]

    listed = session.perform(main)
    if shared.json:
        out.value([_as_json(run) for run in listed])
    else:
        rows = ((run.id, str(run.status), format_dollars(run.dollars), run.prompt) for run in listed)
        out.table(("run", "status", "cost", "task"), rows, right=("cost",))
    return Exit.OK


def trace(shared: Shared, run: RunId = session.NEWEST, answers: Answers = False) -> Exit:
    """Show a run as a tree.

    Rounds, steps, attempts, checks, child runs; with --json every event.
    """

    from shikisha.run import Run

    async def main() -> tuple[dict[str, Run], list[object]]:
        async with session.reading(shared) as journal:
            past = await session.family(journal, await session.find_run(journal, run))
            lines = [json.loads(line) for name in past if shared.json async for line in journal.export(name)]
            return {name: Run.fold(events) for name, events in past.items()}, lines

    folded, events = session.perform(main)
    root = next(iter(folded.values()))
    if shared.json:
        out.value({**summary(root), "events": events})
        return Exit.OK
    from shikisha.cli.tree import View, draw

    screen = out.console(to_stdout=True)
    screen.print(one_line(root.task.prompt, 1000), style="italic")
    screen.print(draw(View(folded, answers=answers), root.id))
    return Exit.OK


def explain(shared: Shared, run: RunId = session.NEWEST) -> Exit:
    """Say why a run went as it did.

    Why these workers, what each saw and what was withheld, what was retried, escalated or approved, what it cost.
    """
    from shikisha.explain import explain as explained
    from shikisha.explain import explain_text

    root, *children = session.perform(lambda: _family(shared, run))
    story = explained(root, children)
    if shared.json:
        out.value(asdict(story))
    else:
        out.report(explain_text(story))
    return Exit.OK


async def _family(shared: Shared, run: str) -> "list[Run]":
    from shikisha.run import Run

    async with session.reading(shared) as journal:
        past = await session.family(journal, await session.find_run(journal, run))
        return [Run.fold(events) for events in past.values()]


def _as_json(run: "Summary") -> dict[str, object]:
    return {
        "run": run.id,
        "status": str(run.status),
        "conductor": run.conductor,
        "started_at": run.started_at,
        "prompt": run.prompt,
        "tokens": run.tokens,
        "dollars": run.dollars,
        "uncertain_tokens": run.uncertain.tokens,
        "uncertain_dollars": run.uncertain.dollars,
        "parent": run.parent,
    }
