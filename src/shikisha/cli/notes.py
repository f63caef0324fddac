"""`notes`: what the journal says of each worker at each kind of subtask, as a table, as a file, or for one text."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, TenantOption
from shikisha.config.adapters import text_encoding
from shikisha.config.container import load_config
from shikisha.core.budget import format_dollars
from shikisha.core.task import Scope, join_scopes, scope_as_json
from shikisha.notes.step_outcomes import step_outcomes
from shikisha.notes.worker_notes import WorkerNote, WorkerNotes, load_notes

_SHOWN_TERMS = 8
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the notes to this file, for [notes] file.")]
From = Annotated[Path | None, typer.Option("--file", help="Show this file instead of reading the journal.")]
ForText = Annotated[str, typer.Option("--for", metavar="TEXT", help="Say what is known of each worker at this text.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many notes to show.")]


def notes(
    shared: SharedOptions,
    out: Out = None,
    file: From = None,
    text: ForText = "",
    limit: Limit = 20,
    tenant: TenantOption = None,
) -> ExitCode:
    """Show what outcomes say about each worker, by kind of subtask.

    Right and wrong come from graded runs (feedback, graders, judges) and failed checks. With --out, the notes become a
    file that conductors see once [notes] file names it.

    Where a worker's runs go worse than its notes foretold, what it did before is forgotten, and the command says so.
    """
    found = load_notes(file, text_encoding()) if file is not None else _collect(shared, tenant)
    if out is not None:
        found.save(out)
        output.print_note(f"{out}: {len(found.notes)} notes, version {found.version[:12]}")
    workers = sorted({note.worker for note in found.notes})
    if text:
        _show_estimates(found, text, workers, as_json=shared.json)
    elif shared.json:
        output.print_json(
            {
                "version": found.version,
                "falls": [asdict(fall) for fall in found.falls],
                "notes": [
                    {"worker": note.worker, "terms": note.terms, "tries": note.tries, "right": note.right}
                    | {"dollars": note.dollars, "basis": note.bases, "runs": note.runs}
                    | scope_as_json(note.scope)
                    for note in _largest(found, limit)
                ],
            }
        )
    elif found.notes:
        _show_notes(found, workers, limit)
    if not shared.json:
        _show_falls(found)
    if not found.notes:
        output.print_note("no outcomes yet: grade runs with `shikisha runs feedback RUN --right` or `--wrong`")
    return ExitCode.OK


def _collect(shared: SharedOptions, tenant: str | None) -> WorkerNotes:
    forget = load_config(shared.config).settings.notes.forget
    _, runs = session.read_runs(shared, tenant, labels=None)
    return WorkerNotes.collect(step_outcomes(runs), text_encoding(), forget=forget)


def _whole(found: WorkerNotes) -> Scope:
    """Return the scope that may know all of it: who reads the file has it."""
    return join_scopes(note.scope for note in found.notes)


def _largest(found: WorkerNotes, limit: int) -> list[WorkerNote]:
    return sorted(found.notes, key=lambda note: (-note.tries, note.worker, note.terms))[:limit]


def _show_notes(found: WorkerNotes, workers: list[str], limit: int) -> None:
    rows = [
        (one.worker, f"{one.all_right:.1f}", f"{one.all_tries:.0f}", format_dollars(one.dollars), "all work")
        for one in found.estimate("", workers, _whole(found))
    ]
    rows += [
        (note.worker, f"{note.right:.1f}", str(note.tries), format_dollars(note.dollars / note.tries), _kind(note))
        for note in _largest(found, limit)
    ]
    output.print_table(("worker", "right", "of", "$ a call", "work like"), rows, right=("right", "of", "$ a call"))


def _show_falls(found: WorkerNotes) -> None:
    for fall in found.falls:
        output.print_note(
            f"{fall.worker}: {fall.outcomes} outcomes before run {fall.since} are forgotten: of its last {fall.runs} "
            f"runs {fall.right} were right, {fall.foretold:.1f} were foretold (a fall with {fall.probability:.0%})"
        )


def _kind(note: WorkerNote) -> str:
    return " ".join(note.terms[:_SHOWN_TERMS])


def _show_estimates(found: WorkerNotes, text: str, workers: list[str], *, as_json: bool) -> None:
    estimates = sorted(found.estimate(text, workers, _whole(found)), key=lambda one: -one.mean)
    if as_json:
        rows = [{"worker": one.worker, "chance": one.mean, "tries": one.tries, "right": one.right} for one in estimates]
        output.print_json({"version": found.version, "for": text, "workers": rows})
        return
    heads = ("worker", "chance", "right like it", "of", "all tries", "$ a call")
    lines = [
        (
            one.worker,
            f"{one.mean:.0%}",
            f"{one.right:.1f}",
            f"{one.tries:.1f}",
            f"{one.all_tries:.0f}",
            format_dollars(one.dollars),
        )
        for one in estimates
    ]
    output.print_table(heads, lines, right=heads[1:])
