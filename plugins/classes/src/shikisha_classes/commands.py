"""`classes`: how much runs may do on their own, proposed from the journal by class of task, and confirmed by a person.

Invariants: nothing that is proposed holds before a person confirms it by name; what the proposal would have let through
is shown before that, from runs that it was not made of.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import time
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, TenantOption, command
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha_classes.task_classes import (
    CLASSES_KIND,
    ProposedClasses,
    audit_classes,
    classes_file,
    propose_classes,
    read_classes,
)

group = typer.Typer(
    help="Classes of tasks with a proposed mode: propose, show, audit and confirm them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of `shikisha classes propose`.")]
Out = Annotated[Path, typer.Option("--out", help="Where the proposal goes, for [autonomy] proposed.")]
Tolerance = Annotated[float, typer.Option("--tolerance", help="The share of wrong answers that you can live with.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="The classes to confirm.")]
By = Annotated[str, typer.Option("--by", help="Who confirms them.")]


@group.command("propose")
@command
def propose(shared: SharedOptions, out: Out, tolerance: Tolerance = 0.05, tenant: TenantOption = None) -> ExitCode:
    """Find classes of tasks in the journal, and propose how much runs of each may do on their own."""
    proposal = propose_classes(session.read_runs(shared, tenant, None)[1], tolerance)
    version = write_learned(out, classes_file(proposal, time()))
    _show(proposal, as_json=shared.json)
    output.print_note(
        f"{out}: {len(proposal.classes)} classes proposed, version {version[:12]}. None holds before you confirm it: "
        f"shikisha classes confirm {out} NAME --by YOU"
    )
    return ExitCode.OK


@group.command("show")
@command
def show(shared: SharedOptions, file: File) -> ExitCode:
    """Show proposed classes: what they risk, their mode and why, and what it would have let through."""
    _show(_read(file), as_json=shared.json)
    return ExitCode.OK


@group.command("audit")
@command
def audit(shared: SharedOptions, file: File) -> ExitCode:
    """Say what the proposed modes would have let through on the journal's runs that they were not made of."""
    proposal = _read(file)
    known = set(proposal.evidence)
    _, read = session.read_runs(shared, proposal.scope.tenant, None)
    runs = [run for run in read if run.id not in known]
    finished = [run for run in runs if run.erased is None and run.finished is not None and run.started.depth == 0]
    _show(replace(proposal, classes=audit_classes(proposal, finished)), as_json=shared.json)
    return ExitCode.OK


@group.command("confirm")
@command
def confirm(shared: SharedOptions, file: File, names: Names, by: By) -> ExitCode:
    """Confirm classes by name: from then on a configuration with `[autonomy] proposed` keeps them."""
    if not by.strip():
        raise ConfigError("--by: expected the name of the person who confirms")
    confirmed = _read(file).confirm(names, by.strip())
    write_learned(file, classes_file(confirmed, time()))
    _show(confirmed, as_json=shared.json)
    output.print_note(
        f'{file}: confirmed by {by.strip()}: {", ".join(names)}. Use it with [autonomy] proposed = "{file}"'
    )
    return ExitCode.OK


def _read(file: Path) -> ProposedClasses:
    return read_classes(read_learned(file, CLASSES_KIND), str(file))


def _show(proposal: ProposedClasses, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": each.name, "mode": str(each.mode), "why": each.why, "labels": list(each.labels),
                "domains": dict(each.domains), "examples": list(each.examples), "risk": asdict(each.risk),
                "dollars": each.dollars, "audit": asdict(each.audit), "confirmed_by": each.confirmed_by,
            }
            for each in proposal.classes
        ]  # fmt: skip
        output.print_json({"tolerance": proposal.tolerance, "classes": rows})
        return
    heads = ("class", "mode", "runs", "wrong", "$ a run", "audit: asked", "wrong, let through", "confirmed by")
    output.print_table(heads, _rows(proposal), right=heads[2:7])
    for each in proposal.classes:
        output.print_line(f"{each.name}: {each.mode}: {each.why}")
        output.print_line(f"  for example: {' | '.join(each.examples)}")


def _rows(proposal: ProposedClasses) -> list[Sequence[str]]:
    return [
        (
            each.name,
            str(each.mode),
            str(each.risk.runs),
            f"{each.risk.wrong} of {each.risk.graded}",
            format_dollars(each.risk.dollars),
            f"{each.audit.asked} of {each.audit.runs}",
            f"{each.audit.through} of {each.audit.wrong}",
            each.confirmed_by,
        )
        for each in proposal.classes
    ]
