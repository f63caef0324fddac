"""`skills`: plans that right runs had in common: mine them, show them, bring them in from elsewhere and replay them.

Invariants: a skill is used only after a replay on this journal's right runs; what was edited by hand is refused; a
skill from elsewhere is data until it was replayed.
"""

from dataclasses import replace
from pathlib import Path
from time import time
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, TenantOption, command
from shikisha.core.errors import ConfigError
from shikisha.learned.skills import (
    Skill,
    mine_skills,
    read_skill,
    read_skills,
    replay_on_runs,
    retire_drifted,
    write_skill,
)

group = typer.Typer(
    help="Plans that right runs had in common: mine, show, import and replay them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
Folder = Annotated[Path, typer.Option("--folder", help="The folder of skills, for [learned] skills.")]
Source = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of one skill: SKILL.md and plan.json.")]
Labels = Annotated[str, typer.Option("--labels", help="Mine runs with these labels (a,b), for tasks with them.")]


@group.command("mine")
@command
def mine(shared: SharedOptions, folder: Folder, labels: Labels = "", tenant: TenantOption = None) -> ExitCode:
    """Find plans that right runs had in common, keep those that other right runs confirm, and retire what drifted."""
    _, runs = session.read_runs(shared, tenant, labels)
    before = read_skills(folder)
    known = [skill if skill.retired else retire_drifted(skill, runs) for skill in before]
    drifted = [skill for skill, old in zip(known, before, strict=True) if skill.retired != old.retired]
    found = mine_skills(runs, known)
    for skill in drifted:
        write_skill(folder, skill, time())
        output.print_note(f"{skill.name} is retired: {skill.retired}")
    for skill in found:
        write_skill(folder, skill, time())
    _show([*known, *found], as_json=shared.json)
    output.print_note(f"{folder}: {len(found)} new skills of {len(runs)} runs; use them with [learned] skills")
    return ExitCode.OK


@group.command("show")
@command
def show(shared: SharedOptions, folder: Folder) -> ExitCode:
    """Show the skills of a folder."""
    _show(read_skills(folder), as_json=shared.json)
    return ExitCode.OK


@group.command("import")
@command
def import_(shared: SharedOptions, source: Source, folder: Folder, tenant: TenantOption = None) -> ExitCode:
    """Bring in a skill from elsewhere, and replay it on this journal's right runs."""
    if not (source / "plan.json").is_file():
        raise ConfigError(f"{source}: expected SKILL.md and plan.json: a text alone cannot be replayed")
    skill = read_skill(source, ours=False)
    if (folder / skill.name).exists():
        raise ConfigError(f"{folder / skill.name}: there is a skill of this name")
    scope, runs = session.read_runs(shared, tenant, ",".join(skill.scope.labels))
    replayed = replay_on_runs(replace(skill, scope=scope), runs)
    write_skill(folder, replayed, time())
    _show([replayed], as_json=shared.json)
    tried, same = replayed.replays
    state = "it is used" if replayed.admitted else "it is not used before every replay is right"
    output.print_note(f"{skill.name}: right in {same} of {tried} replays; {state}")
    return ExitCode.OK


def _show(skills: list[Skill], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"name": one.name, "admitted": one.admitted, "replays": list(one.replays), "steps": len(one.steps)}
            | {
                "retired": one.retired,
                "holes": len(one.pieces) - 1,
                "task": list(one.pieces),
                "runs": list(one.evidence),
            }
            for one in skills
        ]
        output.print_json({"skills": rows})
        return
    rows_shown = [
        (
            one.name,
            "yes" if one.admitted else "retired" if one.retired else "no",
            f"{one.replays[1]}/{one.replays[0]}",
            str(len(one.steps)),
            _task(one),
        )
        for one in skills
    ]
    output.print_table(("skill", "used", "replays", "steps", "tasks like"), rows_shown, right=("replays", "steps"))


def _task(skill: Skill) -> str:
    return " ".join(" … ".join(skill.pieces).split())[:120]
