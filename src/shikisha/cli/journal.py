"""`journal verify` and `journal export`: check the journal against its hash chain, and print its events."""

import json
import re
import sys
from asyncio import TaskGroup, create_subprocess_exec
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from shikisha import journal as journals  # its names import the database's library when they are first used
from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, command
from shikisha.core.errors import JournalUnavailable, TaskError
from shikisha.journal import make_private

if TYPE_CHECKING:
    from shikisha.journal import ChainCheckpoint, ChainSegment, SegmentFindings, Verification

Expect = Annotated[
    str | None,
    typer.Option("--expect", metavar="HASH", help="A hash noted earlier, which the journal must still hold."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="COUNT:HASH",
        help="Verify only what came after a checkpoint, as an earlier verification printed it.",
    ),
]
Processes = Annotated[int, typer.Option("--processes", min=1, max=256, help="Verify in so many processes at once.")]
Segment = Annotated[
    str, typer.Option("--segment", metavar="START:END", hidden=True, help="Print the findings of this segment.")
]
OneRun = Annotated[
    str, typer.Argument(metavar="RUN", help="The run whose events are printed; by default all.", show_default=False)
]
To = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file; by default to stdout.")]


def verify(
    shared: SharedOptions, expect: Expect = None, since: Since = None, processes: Processes = 1, segment: Segment = ""
) -> ExitCode:
    """Verify the journal against its hash chain, and keys, spending, ownership and the audit against the journal.

    Prints a checkpoint, COUNT:HASH. Note it elsewhere: --since verifies only what came after it, and --expect that the
    journal still holds its hash. Exit code 6 if anything was changed, cut or reordered.
    """
    checkpoint = _parse_checkpoint(since)
    if segment:
        return _verify_segment(shared, expect, _parse_segment(segment), checkpoint)

    async def main() -> "Verification":
        async with session.open_existing_journal(shared) as journal:
            if processes == 1:
                return await journal.verify(expect, checkpoint)
            found = await _verify_in_processes(shared, expect, checkpoint, (processes, await journal.count_events()))
            return await journal.conclude(found, expect, checkpoint)

    found = session.run_async(main)
    if shared.json:
        problems = [{"row": problem.seq, "what": problem.what} for problem in found.problems]
        output.print_json(
            {
                "ok": found.ok,
                "rows": found.count,
                "hash": found.hash,
                "erased": found.erased,
                "records": found.records,
                "records_since": found.records_since,
                "problems": problems,
            }
        )
    else:
        for problem in found.problems:
            output.print_note(str(problem))
        erased = f" ({found.erased} texts erased)" if found.erased else ""
        erased += f", {found.records} changes of records from row {found.records_since} on" if found.records else ""
        after = f", verified from row {checkpoint.count}" if checkpoint else ""
        output.print_answer(
            f"{'intact' if found.ok else 'NOT intact'}: {found.count} rows{erased}{after}, head {found.hash}"
        )
        if found.ok and found.count:
            output.print_note(f"checkpoint: {found.count}:{found.hash}")
    return ExitCode.OK if found.ok else ExitCode.JOURNAL


def _parse_checkpoint(text: str | None) -> "ChainCheckpoint | None":
    if text is None:
        return None
    count, _, hashed = text.partition(":")
    if not (re.fullmatch(r"\d{1,18}", count, re.ASCII) and re.fullmatch(r"[0-9a-f]{64}", hashed) and int(count)):
        raise TaskError(f"--since: expected COUNT:HASH as a verification prints it, found {text[:100]!r}")
    return journals.ChainCheckpoint(int(count), hashed)


def _parse_segment(text: str) -> "ChainSegment":
    found = re.fullmatch(r"(\d{1,18}):(\d{0,18})", text, re.ASCII)
    if not found:
        raise TaskError(f"--segment: expected START:END, found {text[:100]!r}")
    return journals.ChainSegment(int(found[1]), int(found[2]) if found[2] else None)


def _verify_segment(
    shared: SharedOptions, expect: str | None, segment: "ChainSegment", since: "ChainCheckpoint | None"
) -> ExitCode:
    """Print the findings of a segment for the process that asked for them."""

    async def main() -> "SegmentFindings":
        async with session.open_existing_journal(shared) as journal:
            return await journal.audit(segment, expect, since)

    found = session.run_async(main)
    output.print_json(
        {
            "count": found.count,
            "hash": found.hash,
            "problems": [[problem.seq, problem.what] for problem in found.problems],
            "erased": found.erased,
            "missing": [list(each) for each in found.missing],
            "erased_runs": sorted(found.erased_runs),
            "expected": found.expected,
        }
    )
    return ExitCode.OK


async def _verify_in_processes(
    shared: SharedOptions, expect: str | None, since: "ChainCheckpoint | None", size: tuple[int, int]
) -> "list[SegmentFindings]":
    """Check so many segments of a chain of so many events, each in a process of its own."""
    processes, count = size
    command = [sys.executable, "-m", "shikisha", "journal", "verify", "--json"]
    command += ["--config", str(shared.config)] if shared.config else []
    command += ["--journal", shared.journal] if shared.journal else []
    command += ["--expect", expect] if expect else []

    segments = journals.split_chain(count, processes, since.count if since else 0)
    commands = [[*command, "--segment", f"{each.start}:{'' if each.end is None else each.end}"] for each in segments]
    commands[0] += ["--since", f"{since.count}:{since.hash}"] if since else []
    return await read_findings(commands)


async def read_findings(commands: Sequence[Sequence[str]]) -> "list[SegmentFindings]":
    """Return what these processes find, all at once; JournalUnavailable, and their end, as soon as one fails."""
    try:
        async with TaskGroup() as group:
            tasks = [group.create_task(_read_finding(command)) for command in commands]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _read_finding(command: Sequence[str]) -> "SegmentFindings":
    process = await create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        said, complained = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise JournalUnavailable(f"a verifying process ended: {complained.decode(errors='replace')[-500:]}")
    told = json.loads(said)
    return journals.SegmentFindings(
        told["count"],
        told["hash"],
        tuple(journals.ChainProblem(seq, what) for seq, what in told["problems"]),
        told["erased"],
        tuple((run, seq, key) for run, seq, key in told["missing"]),
        frozenset(told["erased_runs"]),
        told["expected"],
    )


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
        return make_private(to).open("w", encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{to}: cannot be written: {error.strerror}") from None


group = typer.Typer(
    help="Verify and export the journal.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
group.command("verify")(command(verify))
group.command("export")(command(export))
