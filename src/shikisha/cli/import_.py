"""`import outcomes` and `import litellm`: recorded answers, and workers of LiteLLM."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption, command
from shikisha.config.litellm import import_models, load_yaml
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.outcomes.importers import source_files
from shikisha.outcomes.importers.importer_registry import SOURCE_KINDS, import_outcomes
from shikisha.outcomes.log_writer import LogSummary

KindName = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="journal, litellm, openinference, otel, a plug-in's, or table: your own rows.",
    ),
]
Sources = Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Files or folders; for journals also URLs.")]
Source = Annotated[Path, typer.Argument(metavar="CONFIG", help="LiteLLM's config.yaml (or the same as JSON).")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file; by default to stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


@dataclass(frozen=True, slots=True)
class ImportReadOptions:
    """Under which names things are found in the source."""

    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="WHAT=NAME",
            help="A field by what it holds: domain, the type of task (domain=request_tags); score (of traces the "
            "evaluation with it); of a table any column. May be repeated.",
        ),
    ] = None
    answers: Annotated[
        str | None,
        typer.Option("--answers", metavar="KIND", help="Find answers in responses: choice, number, text or math."),
    ] = None
    scale: Annotated[
        str, typer.Option("--scale", metavar="WORST:BEST", help="table: the scale of scores, as in 1:10 or bad:good.")
    ] = ""
    clip: Annotated[bool, typer.Option("--clip", help="table: a score beyond its scale is at the nearer end.")] = False
    wide: Annotated[
        str, typer.Option("--wide", metavar="A,B", help="table: the columns of models, where each model has one.")
    ] = ""
    pairs: Annotated[
        str,
        typer.Option("--pairs", metavar="A,B,WINNER", help="table: the columns of two models and of who won."),
    ] = ""

    def sources(self, names: list[str]) -> source_files.Sources:
        """Return what to import."""
        given = [text.partition("=") for text in self.column or ()]
        for what, equals, name in given:
            if not (what and equals and name):
                raise ConfigError(
                    f"--column: expected WHAT=NAME, such as prompt=Question, not {what + equals + name!r}"
                )
        columns = {what: name for what, _, name in given}
        wide, pairs = (
            tuple(name.strip() for name in text.split(",") if name.strip()) for text in (self.wide, self.pairs)
        )
        if pairs and len(pairs) != 3:
            raise ConfigError(f"--pairs: expected three columns, A,B,WINNER, not {self.pairs!r}")
        shape = source_files.TableShape(self.scale, self.clip, wide, pairs)
        score, domain = columns.pop("score", None), columns.pop("domain", None)
        return source_files.Sources(names, score, domain, columns, self.answers, shape=shape)


@dataclass(frozen=True, slots=True)
class ImportOutputOptions:
    """Where and how the log is written."""

    to: Annotated[Path, typer.Option("--out", "-o", help="The folder to write the log into.")]
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Write JSON Lines, not parquet.")] = False
    force: Annotated[bool, typer.Option("--force", help="Replace an existing log.")] = False


def outcomes(
    kind: KindName,
    sources: Sources,
    reading: ImportReadOptions,
    writing: ImportOutputOptions,
    json: JsonOption = False,
) -> ExitCode:
    """Convert recorded answers into an outcome log.

    Reads the results of benchmarks, logs of proxies and traces, or journals. What was merged or left out is counted on
    stderr.
    """
    given = reading.sources(sources)
    written = import_outcomes(kind, given, writing.to, as_lines=writing.jsonl, replace=writing.force)
    if json:
        output.print_json({"written": str(writing.to), **_import_json(written)})
        return ExitCode.OK
    for note in _import_notes(written):
        output.print_note(note)
    if not written.graded:
        # What to do with a log in which no answer is graded.
        named = SOURCE_KINDS[kind].scores
        again = f"import it again with --column score=NAME ({named})" if named and given.score is None else ""
        again += f"{', or ' * bool(again)}grade the answers (`shikisha eval grade LOG --out GRADED`)"
        if kind == "journal":
            again = "grade runs (`shikisha runs feedback RUN SCORE`, or a taskset's graders in `shikisha eval`)"
        next_steps = f"next: no outcome has a score, so `learn` and `eval --log` have nothing to compare: {again}"
        output.print_note(next_steps)
    output.print_answer(
        f"{writing.to}: {count_of(written.outcomes, 'outcome')} ({written.graded:,} graded) of "
        f"{count_of(written.workers, 'worker')} on {count_of(written.tasks, 'task')}, "
        f"{count_of(written.responses, 'response')}"
    )
    return ExitCode.OK


def _import_notes(written: LogSummary) -> Iterator[str]:
    if written.merged:
        yield f"merged: {written.merged:,} samples in rows of several (means; the column samples says of how many)"
    if written.same:
        yield f"repeated: {count_of(written.same, 'row')} with nothing new"
    if written.apart:
        yield f"kept apart: {count_of(written.apart, 'task')} with another prompt or right answer under a taken id"
    for what, count in written.remarks.items():
        yield f"note: {what}{f': {count:,}' if count else ''}"
    for reason, count in written.left.items():
        yield f"left out: {reason}: {count:,}"


def _import_json(written: LogSummary) -> Mapping[str, object]:
    return {
        "tasks": written.tasks,
        "workers": written.workers,
        "outcomes": written.outcomes,
        "graded": written.graded,
        "responses": written.responses,
        "merged": written.merged,
        "same": written.same,
        "apart": written.apart,
        "left": dict(written.left),
        "remarks": dict(written.remarks),
    }


def count_of(number: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def litellm(config: Source, to: Out = None, force: Force = False, json: JsonOption = False) -> ExitCode:
    """Convert a LiteLLM model_list into workers.

    Prints [workers] tables for shikisha.toml. Keys are not copied.
    """
    imported = import_models(load_yaml(config), str(config))
    if json:
        output.print_json({"workers": imported.workers, "notes": imported.notes})
        return ExitCode.OK
    for note in imported.notes:
        output.print_note(note)
    if to is None:
        output.print_answer(imported.toml())
    else:
        output.write_new_file(to, imported.toml(), force=force)
    output.print_note(f"{len(imported.workers)} workers from {config}")
    return ExitCode.OK


group = typer.Typer(
    help="Import workers and outcomes from other tools.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
group.command("litellm")(command(litellm))
group.command("outcomes")(command(outcomes))
