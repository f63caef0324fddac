"""`learn`: fit a routing policy on an outcome log, or on the runs of a journal.

Invariants: what could not be written at the end is refused at the beginning; the table goes to stdout, progress and
warnings to stderr; with `--json -` stdout holds the report and nothing else. A candidate policy is selected by its
intervals, or because the user says so, and by nothing else.
"""

from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, TenantOption, import_errors_name_extra
from shikisha.config.adapters import require_extra
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass

LogName = Annotated[
    str,
    typer.Argument(
        metavar="LOG", help="The folder of an outcome log; with --from-journal the file or URL of a journal."
    ),
]


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """What is learned, from which outcomes."""

    from_journal: Annotated[
        bool, typer.Option("--from-journal", help="Learn from a journal; without LOG the configured one.")
    ] = False
    workers: Annotated[str, typer.Option("--workers", "-w", help="Workers by name, as in a,b,c; by default all.")] = ""
    second: Annotated[
        float, typer.Option("--second", min=0, metavar="DOLLARS", help="The worth of one second less of waiting.")
    ] = 0.0
    test_signal: Annotated[
        bool,
        typer.Option("--test-signal", help="Scores are of tests that also run in service: ask on where they fail."),
    ] = False
    drop_outdated: Annotated[
        bool,
        typer.Option(
            "--drop-outdated", help="Leave out what a worker did before a lasting fall; tasks are in order of time."
        ),
    ] = False
    max_outcomes: Annotated[
        int | None,
        typer.Option(
            "--max-outcomes",
            min=100,
            help="Of a log with more outcomes, learn from a sample of its tasks.",
            show_default="260,000",
        ),
    ] = None
    tenant: TenantOption = None
    labels: Annotated[
        str,
        typer.Option("--labels", help="Learn from runs of a journal with these labels (a,b), for such tasks."),
    ] = ""
    rung: Annotated[str, typer.Option("--rung", help="Select this candidate policy, whatever the evidence says.")] = ""


@dataclass(frozen=True, slots=True)
class LearnOutputOptions:
    """Which files are written."""

    to: Annotated[Path | None, typer.Option("--out", "-o", help="The policy file to write.")] = None
    page: Annotated[Path | None, typer.Option("--page", help="Write the report as one HTML page.")] = None
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="[FILE]", help="Print one JSON value to stdout, or write it to FILE."),
    ] = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are written."""
        return tuple(
            path for path in (self.to, self.page, self.json) if path is not None and str(path) != output.STDOUT
        )


def learn(
    options: LearnOptions, written: LearnOutputOptions, log: LogName = "", config: ConfigOption = None
) -> ExitCode:
    """Learn from your own runs, and show what that brought; or a routing policy from a log of outcomes.

    Without LOG it does once, by hand, what [learning] on = true does all the time. With LOG it fits a table and a
    stepwise policy, and evaluates both on held-out tasks. One dial over both takes of each what is shown to gain. A log
    that is too small for that yields the table, and a warning.
    """
    if not log and not options.from_journal:
        from shikisha.cli.learning import learn_runs

        return learn_runs(config, as_json=written.json is not None)
    if written.to is None:
        raise ConfigError("expected --out FILE: where the policy goes")
    # As `eval` does: what could not be written is refused before the fit.
    require_extra("learn", "shikisha learn")
    if written.page is not None:
        require_extra("eval", "learn --page")
    if len({path.absolute() for path in written.files}) < len(written.files):
        raise ConfigError("--out, --page and --json: expected different files")
    for path in written.files:
        output.refuse_unwritable(path)
    with import_errors_name_extra("learn"):  # `learn --help` need not wait for numpy and scipy
        from shikisha.cli.learn_log import learn_log
    learn_log(options, written, written.to, log, config)
    return ExitCode.OK
