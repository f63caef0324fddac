"""Commands that show runs of the journal: `runs`, `runs show` and `explain`.

They answer at once: a SQLite file is read with the standard library alone (`journal.plain_sqlite`), and of the
configuration only where that file is. Invariant: whatever that does not serve goes the usual way, with the same result.
"""

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import NEWEST_RUN, RunId, SharedOptions
from shikisha.cli.progress import RunTreeView, run_summary, run_tree
from shikisha.config.environment import journal_location
from shikisha.core.budget import format_dollars
from shikisha.core.errors import JournalUnavailable, TaskError, UnknownRun
from shikisha.core.events import Event, RunStatus
from shikisha.core.run import Run
from shikisha.core.text import one_line
from shikisha.explain import MOST_EVIDENCE, assurance, explain_text, track_record
from shikisha.explain import explain as explain_run
from shikisha.journal.plain_sqlite import JournalReader, open_reader
from shikisha.journal.stored_events import NAMED_RUNS, RunOverview, matching_run

if TYPE_CHECKING:
    from shikisha.journal import Journal

T = TypeVar("T")
_CHILDREN_PER_RUN = 5  # child runs to expect for each run, when a page of runs is fetched
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many runs.")]
Children = Annotated[bool, typer.Option("--children", help="List child runs as well.")]
Answers = Annotated[bool, typer.Option("--answers", help="Show the beginning of the answer of each step.")]
RunEvents = dict[str, tuple[Event, ...]]


def runs(
    shared: SharedOptions,
    limit: Limit = 20,
    status: Annotated[str, typer.Option("--status", help="Only runs with this status.")] = "",
    children: Children = False,
) -> ExitCode:
    """List the newest runs."""
    if status and status not in list(RunStatus):
        raise TaskError(f"unknown status {status!r}: known are {', '.join(RunStatus)}")
    wanted, most = RunStatus(status) if status else None, limit * _CHILDREN_PER_RUN
    quickly = None if status else lambda reader: reader.runs(most)  # which are of a status, the index says
    found = _read(shared, quickly, lambda journal: journal.runs(limit=most, status=wanted))
    listed = tuple(run for run in found if children or run.parent is None)[:limit]
    if shared.json:
        output.print_json([_summary_json(run) for run in listed])
    else:
        rows = ((run.id, str(run.status), format_dollars(run.dollars), run.prompt) for run in listed)
        output.print_table(("run", "status", "cost", "task"), rows, right=("cost",))
    return ExitCode.OK


def trace(shared: SharedOptions, run: RunId = NEWEST_RUN, answers: Answers = False) -> ExitCode:
    """Show a run as a tree.

    Shows rounds, steps, attempts, checks and child runs; with --json every event.
    """

    async def with_lines(journal: "Journal") -> tuple[RunEvents, list[object]]:
        past = await _family_in_journal(journal, run)
        return past, [json.loads(line) for name in past if shared.json async for line in journal.export(name)]

    def without_lines(reader: JournalReader) -> tuple[RunEvents, list[object]]:
        return _family(reader, run), []

    past, events = _read(shared, None if shared.json else without_lines, with_lines)
    folded = {name: Run.fold(own) for name, own in past.items()}
    root = next(iter(folded.values()))
    if shared.json:
        output.print_json({**run_summary(root), "events": events})
        return ExitCode.OK

    screen = output.make_console(to_stdout=True)
    screen.print(one_line(root.task.prompt, 1000), style="italic")
    screen.print(run_tree(RunTreeView(folded, answers=answers), root.id))
    return ExitCode.OK


def explain(shared: SharedOptions, run: RunId = NEWEST_RUN) -> ExitCode:
    """Explain why a run went as it did.

    Shows why these workers were chosen, what each saw, what was withheld, retried, escalated or approved, and the cost.
    """

    def without_index(reader: JournalReader) -> tuple[RunEvents, list[Run]]:
        return _family(reader, run), reader.graded(MOST_EVIDENCE)

    async def with_index(journal: "Journal") -> tuple[RunEvents, list[Run]]:
        past = await _family_in_journal(journal, run)
        with suppress(JournalUnavailable):  # where it cannot be written, the index stays as far as it came
            await journal.index()
        root = Run.fold(next(iter(past.values()))).started
        return past, await journal.graded(root.domain, None, MOST_EVIDENCE)

    past, graded = _read(shared, without_index, with_index)
    root, *children = [Run.fold(events) for events in past.values()]
    explanation, record = explain_run(root, children), track_record(root, graded)
    if shared.json:
        output.print_json({**asdict(explanation), "assurance": assurance(explanation, record)})
    else:
        output.print_report(explain_text(explanation, record))
    return ExitCode.OK


def _read(
    shared: SharedOptions,
    quickly: Callable[[JournalReader], T] | None,
    usually: Callable[["Journal"], Awaitable[T]],
) -> T:
    """Return what is read from the journal, `quickly` where that can be."""
    url = shared.journal or journal_location(shared.config, os.environ)
    if quickly is not None and url is not None:
        with open_reader(url) as reader:
            if reader is not None:
                return quickly(reader)
    from shikisha.cli import session  # with SQLAlchemy and the whole configuration

    async def main() -> T:
        async with session.open_existing_journal(shared) as journal:
            return await usually(journal)

    return session.run_async(main)


def _family(reader: JournalReader, name: str) -> RunEvents:
    """Return the events of a run that is named, and of all its child runs, by run, the run itself first."""
    if name != NEWEST_RUN:
        with suppress(UnknownRun):
            return _with_children(reader, name)
    return _with_children(reader, matching_run(name, reader.runs(NAMED_RUNS), NEWEST_RUN))


def _with_children(reader: JournalReader, run: str) -> RunEvents:
    found = {run: reader.read(run)}
    for child in reader.children(run):
        found |= _with_children(reader, child.id)
    return found


async def _family_in_journal(journal: "Journal", name: str) -> RunEvents:
    from shikisha.cli import session

    return await session.read_run_family(journal, await session.find_run(journal, name))


def _summary_json(run: RunOverview) -> dict[str, object]:
    return {
        "id": run.id,
        "status": str(run.status),
        "conductor": run.conductor,
        "created": run.started_at,
        "excerpt": run.prompt,
        # Their names before 0.3, for one version.
        "run": run.id,
        "started_at": run.started_at,
        "prompt": run.prompt,
        "tokens": run.tokens,
        "dollars": run.dollars,
        "uncertain_tokens": run.uncertain.tokens,
        "uncertain_dollars": run.uncertain.dollars,
        "parent": run.parent,
    }
