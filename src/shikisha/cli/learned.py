"""`learned`: one place to see what was learned from what, what it brought, what was retired, and whether it is used.

Invariants: only files that the configuration names are shown; a file whose hash does not fit is named as such and never
read further; runs that were erased since are counted, so that a file can be made again without them.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.core.errors import ConfigError
from shikisha.core.run import Run
from shikisha.core.task import scope_as_json

if TYPE_CHECKING:
    from shikisha.config.learned_overview import LearnedRow
    from shikisha.learned.learned_file import LearnedFile

Erased = Annotated[
    bool, typer.Option("--check", help="Look in the journal which runs of the evidence are still there.")
]
Off = Annotated[str, typer.Option("--off", metavar="WHAT", help="Switch this off: lessons, skill NAME, and so on.")]
On = Annotated[str, typer.Option("--on", metavar="WHAT", help="Switch this on again.")]
Other = Annotated[
    Path | None, typer.Option("--diff", help="Say what differs between this learned file and the one in use.")
]


def learned(shared: SharedOptions, check: Erased = False, diff: Other = None, off: Off = "", on: On = "") -> ExitCode:
    """Show what was learned from runs, what it brought, and what of it is used.

    What may be used is in [learned] use. To roll back, name an earlier file; each has its version and its evidence.
    """
    from shikisha.config.adapters import require_extra
    from shikisha.config.container import load_config

    require_extra("eval", "what was learned", "numpy")
    from shikisha.config.learned_overview import learned_rows

    container = load_config(shared.config)
    for name, wanted in ((off, False), (on, True)):
        if name:
            container.switches.turn(name, on=wanted, by="command line", at=time())
    rows = list(learned_rows(container))
    if diff is not None:
        return _show_difference(rows, diff, as_json=shared.json)
    gone = session.run_async(lambda: _gone(shared, rows)) if check else {}
    if shared.json:
        output.print_json(
            {
                "learned": [
                    {"what": row.what, "file": row.file, "version": row.version, "runs": len(row.runs)}
                    | {"scope": row.scope and scope_as_json(row.scope), "brought": row.brought}
                    | {"retired": row.retired, "used": row.used, "erased": gone.get(row.file, 0)}
                    for row in rows
                ]
            }
        )
        return ExitCode.OK
    if not rows:
        output.print_note("nothing learned is configured: see `shikisha learn steps`, `tune`, `memory` and `skills`")
        return ExitCode.OK
    shown = [
        (row.what, "on" if row.used else "off", row.version[:12], str(len(row.runs)), _day(row.made), row.brought)
        for row in rows
    ]
    output.print_table(("what", "use", "version", "runs", "made", "what it brought"), shown, right=("runs",))
    for row in rows:
        if row.retired:
            output.print_note(f"{row.what}: {row.retired}")
        if gone.get(row.file):
            output.print_note(f"{row.file}: {gone[row.file]} of its runs were erased: make it again")
    return ExitCode.OK


async def _gone(shared: SharedOptions, rows: "list[LearnedRow]") -> Mapping[str, int]:
    """Return by file how many runs of its evidence were erased, or are not in the journal."""
    async with session.open_existing_journal(shared) as journal:
        there = {one.id for one in await journal.runs(limit=2**31)}
        found = {}
        for row in rows:
            erased = 0
            for run in row.runs:
                erased += run not in there or Run.fold(await journal.read(run)).erased is not None
            found[row.file] = erased
        return found


def _show_difference(rows: "list[LearnedRow]", other: Path, *, as_json: bool) -> ExitCode:
    from shikisha.learned.learned_file import read_learned

    theirs = read_learned(other)
    same_kind = [
        found
        for row in rows
        if row.version and Path(row.file).is_file()
        if (found := read_learned_or_none(Path(row.file))) is not None and found.kind == theirs.kind
    ]
    if not same_kind:
        raise ConfigError(f"{other}: no file of this kind ({theirs.kind}) is in use")
    ours = same_kind[0]
    changed = sorted(
        key for key in {*ours.content, *theirs.content} if ours.content.get(key) != theirs.content.get(key)
    )
    added, gone = set(ours.evidence) - set(theirs.evidence), set(theirs.evidence) - set(ours.evidence)
    if as_json:
        output.print_json(
            {"in_use": ours.version, "other": theirs.version, "changed": changed}
            | {"runs_added": len(added), "runs_gone": len(gone)}
        )
        return ExitCode.OK
    output.print_answer(f"in use {ours.short_version}, other {theirs.short_version}")
    output.print_answer(f"differs in: {', '.join(changed) or 'nothing'}")
    output.print_answer(f"runs: {len(added)} only in use, {len(gone)} only in the other")
    return ExitCode.OK


def read_learned_or_none(file: Path) -> "LearnedFile | None":
    """Read a learned file; None for a file of another format, such as notes."""
    from shikisha.learned.learned_file import read_learned

    try:
        return read_learned(file)
    except ConfigError:
        return None


def _day(made: float) -> str:
    return datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%d") if made else ""
