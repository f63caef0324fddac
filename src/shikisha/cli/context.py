"""`context`: show what would be gathered for a task, and which sources earn their tokens.

Invariant: neither calls a model, or performs anything.
"""

from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.config.context_source import context_source
from shikisha.core.errors import ConfigError
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.gatherer import GatheredContext
from shikisha.learned.context_audit import audit_context


def context(
    shared: SharedOptions,
    prompt: Annotated[str, typer.Argument(metavar="TASK", help="A task.", show_default=False)] = "",
    texts: Annotated[bool, typer.Option("--texts", help="Print the pieces themselves, too.")] = False,
) -> ExitCode:
    """Show what would be gathered for a task, or which sources earn their tokens.

    With TASK it shows what would be left out, too, and performs nothing. Without TASK it says which sources earn their
    tokens, by graded runs with and without them. Runs go without a source, or half of them, in the share that
    `[context] trial` names.
    """
    if not prompt:
        return _audit(shared)

    async def main() -> GatheredContext:
        async with session.open_container(shared) as container:
            source = context_source(container)
            if source is None:
                raise ConfigError(f"{container.file}: expected [context.sources.NAME] tables; there is none")
            return await source.gather_context(Task(prompt), "show")

    found = session.run_async(main)
    if shared.json:
        taken = [
            {"source": one.source, "name": one.name, "first": one.first, "last": one.last, "tokens": one.tokens}
            for one in found.taken
        ]
        left = [{"source": one.source, "name": one.name, "why": one.why} for one in found.left]
        output.print_json({"taken": taken, "left": left, "seconds": found.seconds})
        return ExitCode.OK
    rows = [
        (one.source, one.name, f"{one.first}-{one.last}" if one.first else "", f"{one.tokens:,}") for one in found.taken
    ]
    output.print_table(("source", "name", "lines", "tokens"), rows, right=("tokens",))
    for one in found.taken if texts else ():
        output.print_answer(one.shown)
    for left_out in found.left:
        output.print_note(f"left out: {left_out.source} {left_out.name}: {left_out.why}")
    output.print_note(f"{sum(one.tokens for one in found.taken):,} tokens in {1_000 * found.seconds:.0f} ms")
    return ExitCode.OK


def _audit(shared: SharedOptions) -> ExitCode:
    async def main() -> list[Run]:
        async with session.open_existing_journal(shared) as journal:
            return [run for run in await journal.all_runs() if run.started.parent is None]

    found = audit_context(session.run_async(main))
    if shared.json:
        output.print_json(
            [
                {
                    "source": one.name,
                    "tokens": one.tokens,
                    "with": one.shown[0],
                    "without": one.without[0],
                    "gain": one.gain,
                    "interval": [one.low, one.high],
                    "verdict": str(one.verdict),
                    "missing": one.missing,
                }
                for one in found
            ]
        )
        return ExitCode.OK
    rows = [
        (
            one.name,
            f"{one.tokens:,.0f}",
            f"{one.shown[0]:,}",
            f"{one.without[0]:,}",
            f"{one.gain:+.3f} [{one.low:+.3f}, {one.high:+.3f}]",
            str(one.verdict),
        )
        for one in found
    ]
    heads = ("source", "tokens", "runs with", "without", "gain", "verdict")
    output.print_table(heads, rows, right=heads[1:4])
    for one in found:
        if one.missing:
            output.print_note(f"{one.name}: about {one.missing:,} more graded runs without it would tell")
    if not found:
        output.print_note("no graded run has gathered context ([context] sources; trial = 0.2 leaves some out)")
    return ExitCode.OK
