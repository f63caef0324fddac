"""`learn`: fit a routing policy on an outcome log, or on the runs of a journal.

Invariants: what could not be written at the end is refused at the beginning; the table goes to stdout, progress and
warnings to stderr; with `--json -` stdout holds the report and nothing else. A candidate policy is selected by its
intervals, or because the user says so, and by nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, TenantOption, import_errors_name_extra
from shikisha.config.adapters import require_extra
from shikisha.config.container import load_config
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.text import to_safe_json

if TYPE_CHECKING:
    from shikisha.config.policy_builder import LearnRequest, ProgressCallback
    from shikisha.routing.policy_data import Policy

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
        from shikisha.config.policy_builder import MAX_OUTCOMES, LearnRequest, learn_policy
    request = LearnRequest(
        log=None if options.from_journal else Path(log),
        journal=(log or load_config(config).journal_url()) if options.from_journal else "",
        workers=tuple(name.strip() for name in options.workers.split(",") if name.strip()),
        second=options.second,
        rung=options.rung,
        test_signal=options.test_signal,
        drop_outdated=options.drop_outdated,
        max_outcomes=options.max_outcomes or MAX_OUTCOMES,
        tenant=options.tenant,
        labels=session.read_labels(options.labels),
    )
    with _show_progress() as progress:
        policy = learn_policy(request, progress)
    _write_policy(policy, request, written, written.to)
    return ExitCode.OK


@contextmanager
def _show_progress() -> "Iterator[ProgressCallback]":
    """Yield the callback for progress: it moves a line on a terminal; elsewhere a line is written now and then."""
    console = output.make_console()
    if not console.is_terminal or console.is_dumb_terminal:
        with _sparse_lines() as tell:
            yield tell
        return
    with Progress(
        SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), console=console, transient=True
    ) as progress:
        line = progress.add_task("reading")
        yield lambda text: progress.update(line, description=text)


@contextmanager
def _sparse_lines(seconds: float = 10.0) -> "Iterator[ProgressCallback]":
    """Write to stderr what is being done, once in so many seconds: a log of a build shows that it is alive."""
    begun, doing, ended = monotonic(), ["reading"], Event()

    def write() -> None:
        while not ended.wait(seconds):
            output.print_note(f"{monotonic() - begun:.0f} s: {doing[0]}")

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        yield lambda text: doing.__setitem__(0, text)
    finally:
        ended.set()
        thread.join()


def _write_policy(policy: "Policy", request: "LearnRequest", written: LearnOutputOptions, to: Path) -> None:
    from shikisha.routing.fit import policy_report
    from shikisha.routing.fit.policy_page import render_policy_page
    from shikisha.routing.policy_file import save_policy

    to.parent.mkdir(parents=True, exist_ok=True)
    version = save_policy(policy, to)
    log = "" if request.log is None else str(request.log)
    uses = policy_report.usage_commands(policy, str(to), log, request.workers)
    if written.page is not None:
        output.write_file(written.page, render_policy_page(policy, version, uses))
    report = to_safe_json(policy_report.policy_as_json(policy, version))
    if written.json is not None and str(written.json) != output.STDOUT:
        output.write_file(written.json, report + "\n")
    console, quiet = output.make_console(to_stdout=True), str(written.json or "") == output.STDOUT
    if quiet:
        output.print_line(report)
    else:
        policy_report.print_selection(policy, console)
    for note in policy.about.notes:
        output.print_note(f"shikisha: warning: {note}")
    output.print_note(f"written: {to} (version {version})")
    if quiet:
        return
    output.print_report("\nHow to use it:\n" + "\n".join(f"  {line}\n    {meaning}" for line, meaning in uses) + "\n")
    policy_report.print_verdict(policy, console)
