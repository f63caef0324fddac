"""The journal itself: `journal verify` and `journal export`."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.errors import TaskError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from shikisha.journal import Verification

Expect = Annotated[
    str | None, typer.Option("--expect", metavar="HASH", help="A hash noted earlier that must be in it.")
]
OneRun = Annotated[str, typer.Argument(metavar="RUN", help="One run's events; else all.", show_default=False)]
To = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file; else to stdout.")]


def verify(shared: Shared, expect: Expect = None) -> Exit:
    """Check the journal against its hash chain.

    Exit code 6 if anything was changed, cut or reordered.
    """

    async def main() -> "Verification":
        async with session.reading(shared) as journal:
            return await journal.verify(expect)

    found = session.perform(main)
    if shared.json:
        problems = [{"event": problem.seq, "what": problem.what} for problem in found.problems]
        out.value(
            {"ok": found.ok, "events": found.count, "hash": found.hash, "erased": found.erased, "problems": problems}
        )
    else:
        for problem in found.problems:
            out.note(str(problem))
        erased = f" ({found.erased} texts erased)" if found.erased else ""
        out.answer(f"{'intact' if found.ok else 'NOT intact'}: {found.count} events{erased}, head {found.hash}")
    return Exit.OK if found.ok else Exit.JOURNAL


def export(shared: Shared, run: OneRun = "", to: To = None) -> Exit:
    """Print events as lines of JSON.

    One event a line, texts in place, with --json or without.
    """

    async def main() -> int:
        async with session.reading(shared) as journal:
            name = await session.find_run(journal, run) if run else None
            lines = 0
            with _sink(to) as file:
                async for line in journal.export(name):
                    out.line(line, file)
                    lines += 1
            return lines

    lines = session.perform(main)
    if to is not None:
        out.note(f"{lines} events written to {to}")
    return Exit.OK


def _sink(to: Path | None) -> "AbstractContextManager[TextIO | None]":
    if to is None:
        return nullcontext()
    try:
        return to.open("w", encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{to}: cannot be written: {error.strerror}") from None
