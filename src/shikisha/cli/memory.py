"""`memory`: notes of finished runs: search and export them.

Invariant: notes of erased runs are gone before anything is shown.
"""

import json
from dataclasses import asdict
from time import time
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.config.container import load_config
from shikisha.core.errors import ConfigError
from shikisha.learned.journal_learner import sync_memory
from shikisha.learned.memory_index import MemoryIndex, MemoryNote

_MOST_SHOWN = 10  # notes; without TEXT all are printed
Text = Annotated[str, typer.Argument(metavar="TEXT", help="A task, or words of one.", show_default=False)]
Labels = Annotated[str, typer.Option("--labels", help="Notes of runs with these labels (a,b) too.")]


def memory(shared: SharedOptions, text: Text = "", labels: Labels = "") -> ExitCode:
    """Search notes of finished runs, or print all as JSON lines.

    With TEXT it shows what such a task would bring up from [memory] file. Notes are taken from the journal first, and
    those of erased runs go.
    """
    wanted = session.read_labels(labels)
    with _synchronized(shared) as index:
        if not text:
            for note in index.notes():
                if set(note.labels) <= wanted:
                    output.print_answer(json.dumps(asdict(note), ensure_ascii=False))
            return ExitCode.OK
        recalled = index.recall(text, _MOST_SHOWN, tenant=None, labels=wanted, now=time())
    if shared.json:
        output.print_json({"notes": [{**asdict(one.note), "score": one.score} for one in recalled]})
        return ExitCode.OK
    rows = [(f"{one.score:.2f}", one.note.kind, ",".join(one.note.evidence)[:40], _line(one.note)) for one in recalled]
    output.print_table(("score", "kind", "runs", "note"), rows, right=("score",))
    return ExitCode.OK


def _line(note: MemoryNote) -> str:
    return " ".join(note.text.split())[:160]


def _synchronized(shared: SharedOptions) -> MemoryIndex:
    """Return the configured memory after taking in what the journal has since; the caller closes it."""
    container = load_config(shared.config)
    table = container.settings.memory
    if table.file is None:
        raise ConfigError("name a memory with [memory] file")
    memory = MemoryIndex(container.folder / table.file, table.half_life_days)

    async def main() -> None:
        async with session.open_existing_journal(shared) as journal:
            runs, added, gone = await sync_memory(memory, journal)
            if runs:
                output.print_note(f"{table.file}: {runs} runs read, {added} notes added, {gone} gone")

    try:
        session.run_async(main)
    except BaseException:
        memory.close()
        raise
    return memory
