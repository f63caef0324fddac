"""`journal verify` and `journal export`: check the journal against its hash chain, and print its events."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, command
from shikisha.core.errors import TaskError

if TYPE_CHECKING:
    from shikisha.journal import Verification

Expect = Annotated[
    str | None,
    typer.Option("--expect", metavar="HASH", help="A hash noted earlier, which the journal must still hold."),
]
OneRun = Annotated[
    str, typer.Argument(metavar="RUN", help="The run whose events are printed; by default all.", show_default=False)
]
To = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file; by default to stdout.")]


def verify(shared: SharedOptions, expect: Expect = None) -> ExitCode:
    """Verify the journal against its hash chain.

    Exit code 6 if anything was changed, cut or reordered.
    """

    async def main() -> "Verification":
        async with session.open_existing_journal(shared) as journal:
            return await journal.verify(expect)

    found = session.run_async(main)
    if shared.json:
        problems = [{"event": problem.seq, "what": problem.what} for problem in found.problems]
        output.print_json(
            {"ok": found.ok, "events": found.count, "hash": found.hash, "erased": found.erased, "problems": problems}
        )
    else:
        for problem in found.problems:
            output.print_note(str(problem))
        erased = f" ({found.erased} texts erased)" if found.erased else ""
        output.print_answer(
            f"{'intact' if found.ok else 'NOT intact'}: {found.count} events{erased}, head {found.hash}"
        )
    return ExitCode.OK if found.ok else ExitCode.JOURNAL


def export(shared: SharedOptions, run: OneRun = "", to: To = None) -> ExitCode:
    """Print events as lines of JSON.

    One event per line, with its texts; with --json the lines are the entries of one list.
    """

    async def main() -> int:
        async with session.open_existing_journal(shared) as journal:
            name = await session.find_run(journal, run) if run else None
            lines = 0
            with _open_output(to) as file:
                as_list = shared.json and to is None
                async for line in journal.export(name):
                    output.print_line(f"{',' if lines else '['}{line}" if as_list else line, file)
                    lines += 1
                if as_list:
                    output.print_line("]" if lines else "[]", file)
            return lines

    lines = session.run_async(main)
    if to is not None and shared.json:
        output.print_json({"written": str(to), "events": lines})
    elif to is not None:
        output.print_note(f"{lines} events written to {to}")
    return ExitCode.OK


def _open_output(to: Path | None) -> AbstractContextManager[TextIO | None]:
    if to is None:
        return nullcontext()
    try:
        return to.open("w", encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{to}: cannot be written: {error.strerror}") from None


group = typer.Typer(
    help="Verify and export the journal.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
group.command("verify")(command(verify))
group.command("export")(command(export))
