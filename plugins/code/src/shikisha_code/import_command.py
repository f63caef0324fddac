"""`shikisha import repository`: tasks from the history of a git repository."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.import_ import count_of
from shikisha.cli.options import JsonOption
from shikisha.config.grader_services import sandbox_named
from shikisha.context.git_history import GitRepository
from shikisha.core.errors import ConfigError
from shikisha_code.task_maker import MakerLimits, make_tasks


@dataclass(frozen=True, slots=True)
class ImportRepositoryOptions:
    """What tasks are made of, how many, and how their tests are run."""

    to: Annotated[Path, typer.Option("--out", "-o", help="The folder to write the tasks into.")]
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="Stop after this many tasks.")] = 20
    commits: Annotated[int, typer.Option("--commits", min=1, help="Look at this many commits, the newest.")] = 400
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Stop after this many seconds.")] = 1_800.0
    needs: Annotated[
        list[str] | None,
        typer.Option("--needs", metavar="PACKAGE", help="An installed package that tests import; may be repeated."),
    ] = None
    path: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="FOLDER", help="Where modules are, such as src; may be repeated."),
    ] = None
    test_seconds: Annotated[
        int, typer.Option("--test-seconds", min=1, max=110, help="The longest run of a commit's tests.")
    ] = 60
    name: Annotated[str, typer.Option("--name", metavar="OWNER/NAME", help="The repository's name.")] = ""


def repository(
    repo: Annotated[Path, typer.Argument(metavar="REPO", help="A git repository, with or without working tree.")],
    making: ImportRepositoryOptions,
    json: JsonOption = False,
) -> ExitCode:
    """Make tasks graded by tests, from a git history.

    A commit that changes code and tests becomes a task: its tests run in a sandbox without and with its change.
    Evaluate with `shikisha eval --taskset repository:FOLDER`.
    """
    if making.to.exists() and any(making.to.iterdir()):
        raise ConfigError(f"--out {making.to}: expected a new or an empty folder")
    limits = MakerLimits(
        making.tasks,
        making.commits,
        making.seconds,
        ("pytest", *(making.needs or ())),
        tuple(making.path or (".",)),
        making.test_seconds,
        making.name,
    )
    made = asyncio.run(make_tasks(GitRepository(repo), making.to, sandbox_named(""), limits, output.print_note))
    if json:
        skipped = dict(made.skipped)
        output.print_json(
            {"written": str(making.to), "tasks": len(made.rows), "commits": made.commits, "left": skipped}
        )
        return ExitCode.OK
    for reason, count in made.skipped.most_common():
        output.print_note(f"left out: {reason}: {count:,}")
    output.print_answer(f"{making.to}: {count_of(len(made.rows), 'task')} of {count_of(made.commits, 'commit')}")
    return ExitCode.OK
