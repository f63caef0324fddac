"""`learn LOG`: fit a routing policy on an outcome log or a journal, and write the policy and its report.

Invariants: what was learned is written before anything of it is shown; the table goes to stdout, progress and warnings
to stderr. Deliberately absent: the options (`learn`), so that its help need not wait for numpy and scipy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from shikisha.cli import output, session
from shikisha.config.container import load_config
from shikisha.config.policy_builder import MAX_OUTCOMES, LearnRequest, ProgressCallback, learn_policy
from shikisha.core.text import to_safe_json
from shikisha.routing.fit.policy_page import render_policy_page
from shikisha.routing.fit.policy_report import policy_as_json, print_selection, print_verdict, usage_commands
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import save_policy

if TYPE_CHECKING:
    from shikisha.cli.learn import LearnOptions, LearnOutputOptions


def learn_log(options: "LearnOptions", written: "LearnOutputOptions", to: Path, log: str, config: Path | None) -> None:
    """Learn a policy from the outcomes that the options name, and write it."""
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
    _write_policy(policy, request, written, to)


@contextmanager
def _show_progress() -> Iterator[ProgressCallback]:
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
def _sparse_lines(seconds: float = 10.0) -> Iterator[ProgressCallback]:
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


def _write_policy(policy: Policy, request: LearnRequest, written: "LearnOutputOptions", to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    version = save_policy(policy, to)
    log = "" if request.log is None else str(request.log)
    uses = usage_commands(policy, str(to), log, request.workers)
    if written.page is not None:
        output.write_file(written.page, render_policy_page(policy, version, uses))
    report = to_safe_json(policy_as_json(policy, version))
    if written.json is not None and str(written.json) != output.STDOUT:
        output.write_file(written.json, report + "\n")
    console, quiet = output.make_console(to_stdout=True), str(written.json or "") == output.STDOUT
    if quiet:
        output.print_line(report)
    else:
        print_selection(policy, console)
    for note in policy.about.notes:
        output.print_note(f"shikisha: warning: {note}")
    output.print_note(f"written: {to} (version {version})")
    if quiet:
        return
    output.print_report("\nHow to use it:\n" + "\n".join(f"  {line}\n    {meaning}" for line, meaning in uses) + "\n")
    print_verdict(policy, console)
