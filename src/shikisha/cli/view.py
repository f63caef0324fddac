"""`eval show`: the samples of an evaluation in the browser, or two evaluations task by task.

Invariant: a difference is marked only if its interval excludes 0. Intervals are not corrected for multiple rows.
"""

import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JournalOption, JsonOption, import_errors_name_extra
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.text import one_line
from shikisha.evals.evaluation_comparison import EvaluationComparison, PairedEntrants, compare_evaluations
from shikisha.evals.report import load_report
from shikisha.evals.taskset import GradeRigour

PairNames = Annotated[
    list[str] | None,
    typer.Option(
        "--pair",
        help="Compare an entrant of A with one of B, as in NAME=NAME; may be repeated. By default like names.",
    ),
]
RigourOption = Annotated[
    GradeRigour | None,
    typer.Option("--rigour", help="Compare only tasks that are graded so in both, as in executed."),
]
_LONGEST_NAME, _WIDE = 48, 110  # characters
_COLUMNS = {
    "A": 6,
    "B": 6,
    "B - A": 6,
    "95 %": 14,
    "p": 5,
    "tasks": 5,
    "better": 6,
    "worse": 5,
    "$ a task": 9,
}  # widths
_NARROW_COLUMNS = 5  # columns that every terminal gets


def compare(one: Path, other: Path, pair: Sequence[str] | None, rigour: GradeRigour | None, json: bool) -> ExitCode:
    """Compare two reports task by task; differences are those of the other one."""
    first, second = (load_report(_read_report(path), str(path)) for path in (one, other))
    comparison = compare_evaluations(
        first, second, [_split_pair(each, first.scores, second.scores) for each in pair or ()], rigour
    )
    if json:
        output.print_json(comparison.plain())
    else:
        _print_comparison(comparison, output.make_console(to_stdout=True))
    return ExitCode.OK


def _split_pair(text: str, ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, str]:
    """Split NAME=NAME at the `=` where both names are known, because a name may contain `=`."""
    known, others = set(ours), set(theirs)
    for place in [place for place, character in enumerate(text) if character == "="]:
        if text[:place] in known and text[place + 1 :] in others:
            return text[:place], text[place + 1 :]
    raise UnknownName("pair of entrants", text, known | others)


def _print_comparison(comparison: EvaluationComparison, console: "Console") -> None:
    console.print(
        f"A: {one_line(comparison.a)}, B: {one_line(comparison.b)}; {comparison.common:,} tasks in both, "
        f"{comparison.only_a:,} in A only, {comparison.only_b:,} in B only"
    )
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), header_style="dim")
    table.add_column("entrant", overflow="ellipsis", no_wrap=True, max_width=min(_LONGEST_NAME, console.width - 46))
    for name, width in list(_COLUMNS.items())[: None if wide else _NARROW_COLUMNS]:
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    for pair in comparison.pairs:
        table.add_row(*_pair_cells(pair)[: 1 + len(_COLUMNS) if wide else 1 + _NARROW_COLUMNS])
    console.print(table)
    for note in comparison.notes:
        console.print(f"note: {one_line(note)}")
    console.print(
        "Intervals are of paired differences; p is McNemar's exact test. Neither is corrected for multiple rows."
    )


def _pair_cells(pair: PairedEntrants) -> tuple[str, ...]:
    difference = pair.difference
    star = "*" if difference.significant else ""
    name = pair.a if pair.a == pair.b else f"{pair.a} → {pair.b}"
    return (
        one_line(name),
        f"{pair.accuracy[0]:.1%}",
        f"{pair.accuracy[1]:.1%}",
        f"{100 * difference.mean:+.1f}{star}",
        f"{100 * difference.interval.low:+.1f} to {100 * difference.interval.high:+.1f}",
        "" if pair.p is None else f"{pair.p:.3f}",
        f"{pair.tasks:,}",
        f"{difference.better:,}",
        f"{difference.worse:,}",
        "" if pair.dollars is None else f"{pair.dollars:+.3g}",
    )


def _read_report(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None


_DEFAULT_FOLDER = "evaluations"  # where `eval` keeps what it was not told a folder for


def view(
    folder: Annotated[
        Path | None,
        typer.Argument(help="The folder of an evaluation, by default the newest in ./evaluations; or a report."),
    ] = None,
    other: Annotated[
        Path | None, typer.Argument(help="Another report that `eval --json` wrote: compare both.", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0: any free port.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    pair: PairNames = None,
    rigour: RigourOption = None,
    journal: JournalOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Show the samples of an evaluation in the browser, or compare two evaluations.

    Two reports are compared task by task. Tasks are matched by their content. Differences are OTHER - FOLDER. Grades of
    different rigour are never averaged.

    Each sample has its task, plan, steps, answer and grade. Only this machine can open the page, and only by the whole
    address that is printed. Ctrl-C ends it.
    """
    if folder is not None and other is not None:
        return compare(folder, other, pair, rigour, json)
    chosen = folder or _newest_folder()
    with import_errors_name_extra("serve"):
        from shikisha.server import viewer

    def ready(address: str) -> None:
        if json:
            output.print_json({"url": address, "folder": str(chosen)})
        else:
            output.print_line(address)
        if open_browser:
            webbrowser.open(address)

    session.run_async(lambda: viewer.serve_folder(chosen, journal or "", port, ready))
    return ExitCode.OK


def _newest_folder() -> Path:
    """Return the folder in ./evaluations whose samples were written last."""
    found = sorted(Path(_DEFAULT_FOLDER).glob("*/samples.jsonl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise ConfigError("there is no evaluation in ./evaluations: name a folder, or run `shikisha eval` first")
    return found[-1].parent
