"""`policy watch`: whether the workers of a policy are still as good as expected, and a policy that routes around a
drop.

Rows are the tasks of a log, or the runs of a journal in the order of time. Of a journal only the runs count that this
policy began at its present operating point, because another policy or setting asks its workers for other tasks; what is
left out is counted. Invariants: a policy is never written over another file; the source of the expectation is reported;
the exit code says whether a worker has dropped. A row of the table fits in 80 columns, and names are cut before
figures.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.config.adapters import require_extra
from shikisha.core.errors import ConfigError, TaskError
from shikisha.core.fast_dataclass import asdict, dataclass, replace
from shikisha.core.run import Run
from shikisha.core.text import one_line
from shikisha.outcomes.importers.journal_runs import gather_runs
from shikisha.outcomes.log_reader import OutcomeLog, has_responses, log_hash, open_log
from shikisha.outcomes.log_writer import LogBuilder, RepeatPolicy
from shikisha.outcomes.table_files import names_of
from shikisha.plots.format import UNKNOWN
from shikisha.routing.fit.drift_detection import (
    FEW_OUTCOMES,
    ExpectationSource,
    WorkerDrift,
    WorkerStanding,
    WorkerState,
    assess_workers,
    reroute_policy,
)
from shikisha.routing.fit.log_quality import FULL_SHARE, LogKind, measure_coverage
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.fit.policy_report import short_labels
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import load_policy, save_policy
from shikisha.routing.policy_registry import REGISTRY_FILE, policy_path, read_registry

_GAP, _EARLIER = 2, "earlier"
_OTHER_COLUMNS = 49  # width of the columns besides a worker's name and its earlier outcomes
_MIN_NAME, _MAX_NAME = 12, 48  # of a name


@dataclass(frozen=True, slots=True)
class WatchedPolicy:
    """A policy, its version, and the registry that holds it, if that is known."""

    policy: Policy
    version: str
    shelf: Path | None


@dataclass(frozen=True, slots=True)
class PolicyWatchReport:
    """The state of each worker of a policy, the source of the expectation, and notes.

    `file` and `written` are the policy that routes around a drop, and its version, if it was written.
    """

    watched: WatchedPolicy
    traffic: "WorkerHistory"
    baseline_source: ExpectationSource
    standings: tuple[WorkerStanding, ...]
    notes: tuple[str, ...]
    file: Path | None = None
    written: str = ""

    @property
    def next(self) -> tuple[str, ...]:
        """Commands that show the policy that was written and put it on trial."""
        if not self.written:
            return ()
        shelf = self.watched.shelf or "SHELF"
        each = (
            f"show {self.file}",
            f"canary {shelf} {self.file} --share 0.1",
            f"promote {shelf}",
        )
        return tuple(f"shikisha policy {one}" for one in each)


def report_json(found: PolicyWatchReport) -> Mapping[str, object]:
    """Return a report as `--json` prints it."""
    return {
        "policy": found.watched.version,
        "source": found.traffic.source,
        "rows": len(found.traffic.panel),
        "usual": found.baseline_source,
        "fallen": [standing.worker for standing in found.standings if standing.drift is not None],
        "workers": [asdict(standing) for standing in found.standings],
        "notes": list(found.notes),
        "written": {"file": str(found.file), "version": found.written} if found.written else None,
        "next": list(found.next),
    }


def print_watch_report(found: PolicyWatchReport) -> None:
    """Print a report."""
    console = output.make_console(to_stdout=True)
    output.print_report("\n".join(_heading_lines(found)))
    console.print(_worker_table(found, console.width))
    output.print_report("\n".join([*_drift_lines(found), *(f"! {note}" for note in found.notes)]))
    fell = any(standing.drift for standing in found.standings)
    if found.written:
        output.print_note(f"written: {found.file} (version {found.written})")
        output.print_report("\n".join(["Put it on trial:", *(f"  {line}" for line in found.next)]))
    elif fell:
        output.print_report("--out NEW writes a policy that routes around that.")
    elif found.file is not None:
        output.print_note(f"{found.file} is not written: no worker has dropped")


def _heading_lines(found: PolicyWatchReport) -> Iterator[str]:
    traffic = found.traffic
    rows = f"{len(traffic.panel):,} {'runs, the oldest first' if traffic.runs else 'tasks, in the order of the log'}"
    yield f"policy {found.watched.version} in {one_line(traffic.source)}: {rows}"
    if found.baseline_source is ExpectationSource.POLICY:
        yield "Usual is what the policy knows about each worker, by type of task."
    else:
        yield "Usual is the average of each worker's earlier outcomes, by type of task."


def _worker_table(found: PolicyWatchReport, width: int) -> "Table":
    earlier = found.baseline_source is ExpectationSource.EARLIER
    room = min(_MAX_NAME, max(_MIN_NAME, width - _OTHER_COLUMNS - (len(_EARLIER) + _GAP) * earlier))
    short = short_labels([standing.worker for standing in found.standings], room)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    table.add_column("worker", no_wrap=True, min_width=max(map(len, short.values()), default=0))
    for name in (*((_EARLIER,) if earlier else ()), "outcomes", "usual", "found, with 95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for standing in found.standings:
        early = (f"{standing.early:,}",) if earlier else ()
        cells = (short[standing.worker], *early, *_worker_figures(standing), str(standing.state))
        style = "bold red" if standing.drift else "dim" if standing.found is None else ""
        table.add_row(*(Text(cell, style) for cell in cells))
    return table


def _worker_figures(standing: WorkerStanding) -> tuple[str, str, str]:
    outcomes = f"{standing.outcomes:,}"
    known = (standing.usual, standing.found, standing.low, standing.high)
    if standing.usual is None or standing.found is None or standing.low is None or standing.high is None:
        return outcomes, UNKNOWN, UNKNOWN
    usual, right, low, high = (f"{100 * share:.1f}" for share in known if share is not None)
    return outcomes, usual, f"{right} {low} to {high}"


def _drift_lines(found: PolicyWatchReport) -> Iterator[str]:
    """Yield which workers dropped, and when; or that none did."""
    fell = [standing.drift for standing in found.standings if standing.drift is not None]
    for drift in fell:
        yield from _drift_text(drift, found.traffic)
    if not fell:
        yield "No worker has dropped below what is usual for it."
    few = sum(standing.state is WorkerState.FEW for standing in found.standings)
    if few:
        yield f"Too few: fewer than {FEW_OUTCOMES} graded outcomes to know what is usual, or to compare with it."


def _drift_text(drift: WorkerDrift, traffic: "WorkerHistory") -> Iterator[str]:
    row = "run" if traffic.runs else "task"
    places = [traffic.panel.ids.index(each) + 1 for each in (drift.since, drift.noticed)]
    yield f"{one_line(drift.worker)} dropped: right on {100 * drift.found:.1f} % instead of {100 * drift.usual:.1f} %"
    yield f"  in {drift.outcomes:,} outcomes since {row} {places[0]:,} ({one_line(drift.since)}),"
    yield f"  noticed at {row} {places[1]:,} ({one_line(drift.noticed)})."


PolicyName = Annotated[
    Path, typer.Argument(metavar="POLICY", help="A policy file, or a shelf's folder: its live policy.")
]
_STALE_POINTS = (
    "the operating points of the new policy date from before the drop, until `shikisha learn` measures them again"
)
_NAMES_SHOWN = 5
_MAX_MEASURED = 2_000  # tasks on which operating points are measured again
_BASELINE_SOURCES = ("policy", "earlier")


@dataclass(frozen=True, slots=True)
class PolicyWatchOptions:
    """Which outcomes are watched, and what is written."""

    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="DIR", help="Read the outcomes of a log, in its order, instead of the journal."),
    ] = None
    since: Annotated[
        str, typer.Option("--since", metavar="ID", help="The first task of the log, or run of the journal, to watch.")
    ] = ""
    usual: Annotated[
        str,
        typer.Option(
            "--usual",
            metavar="|".join(_BASELINE_SOURCES),
            help="The source of the expectation; by default as described above.",
        ),
    ] = ""
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="NEW", help="Write a policy that routes around a drop to this new file."),
    ] = None


def watch(policy: PolicyName, watching: PolicyWatchOptions, shared: SharedOptions) -> ExitCode:
    """Watch whether a policy's workers are still as good as usual.

    Reads outcomes in the order of time: the runs of the journal that this policy began, or with --log the tasks of a
    log. Exit code 1 if a worker has dropped, 0 if none has. False alarms come at most once in 20,000 outcomes of a
    worker on average.

    The policy says what is usual where every worker answered every task and all answers are graded. Otherwise earlier
    outcomes do: those before --since, or the first 300 of each worker (at most half of its outcomes).
    """
    require_extra("learn", "policy watch", "numpy", "scipy")
    if watching.log is not None and shared.journal is not None:
        raise TaskError("expected --log or --journal, not both")
    if watching.usual not in ("", *_BASELINE_SOURCES):
        raise TaskError(f"--usual: expected {' or '.join(_BASELINE_SOURCES)}, not {watching.usual!r}")
    if not policy.is_dir():
        beside = policy.parent if (policy.parent / REGISTRY_FILE).exists() else None
        watched = WatchedPolicy(*load_policy(policy), beside)
    else:
        live = read_registry(policy).live
        if not live:
            raise ConfigError(f"{policy}: there is no policy in this registry")
        watched = WatchedPolicy(*load_policy(policy_path(policy, live)), policy)
    # Refuse an existing file, because it may be the policy that is watched, or one of a registry.
    to = watching.to
    if to is not None and to.exists():
        raise ConfigError(f"--out {to}: expected a new file: a policy is never written over another")
    if watching.log is not None:
        traffic = history_of_log(watching.log, watched.policy)
    else:
        named = shared.journal or ""
        journal = "the journal" if not named or "://" in named else named  # a URL may hold a password
        # The policy sees nothing of what is watched, unless `_write_reroute` makes one: of the runs of its own scope.
        _, runs = session.read_runs(shared, watched.policy.about.scope.tenant, None)
        traffic = history_of_runs(runs, watched.policy, watched.version, journal)
    found = _judge_workers(watched, traffic, watching)
    fell = [standing.drift for standing in found.standings if standing.drift is not None]
    if fell and watching.to is not None:
        found = _write_reroute(found, fell, watching.to)
    if shared.json:
        output.print_json(report_json(found))
    else:
        print_watch_report(found)
    return ExitCode.FAILED if fell else ExitCode.OK


def _judge_workers(watched: WatchedPolicy, traffic: "WorkerHistory", watching: PolicyWatchOptions) -> PolicyWatchReport:
    since = _row_of(traffic, watching.since)
    by_policy = traffic.whole and since is None
    told = (
        ExpectationSource(watching.usual)
        if watching.usual
        else ExpectationSource.POLICY
        if by_policy
        else ExpectationSource.EARLIER
    )
    if told is ExpectationSource.EARLIER and since == 0:
        raise TaskError(f"--since {watching.since}: no outcome comes before it to say what is usual")
    found = assess_workers(watched.policy, traffic.panel, told, since)
    return PolicyWatchReport(watched, traffic, told, found, (*traffic.notes, *_report_caveats(found)), watching.to)


def _row_of(traffic: "WorkerHistory", name: str) -> int | None:
    """Return the row of a task or run by its id, or by the unambiguous beginning of its id."""
    if not name:
        return None
    ids = traffic.panel.ids
    fitting = [name] if name in ids else [each for each in ids if each.startswith(name)]
    if len(fitting) != 1:
        what = "run" if traffic.runs else "task"
        many = f"{len(fitting):,} ids begin like that" if fitting else f"it has {len(ids):,}, the first is {ids[0]!r}"
        raise TaskError(f"--since: no {what} {name!r} that counts in {traffic.source}: {many}")
    return ids.index(fitting[0])


def _report_caveats(found: Sequence[WorkerStanding]) -> Iterator[str]:
    watched = [each for each in found if each.found is not None]
    aside, fell = sum(each.aside for each in watched), sum(each.drift is not None for each in watched)
    if aside:
        yield f"{aside:,} of the outcomes do not count: too little is known about such tasks to say what is usual"
    if 1 < fell == len(watched):
        yield "all watched workers dropped: first check whether tasks became harder, or grading stricter"
    if not watched:
        yield "too few outcomes have a score"


def _write_reroute(found: PolicyWatchReport, fell: Sequence[WorkerDrift], to: Path) -> PolicyWatchReport:
    """Write a policy that routes around the workers that dropped."""
    policy, notes = found.watched.policy, found.notes
    panel = training_panel(policy)
    if panel is not None:
        output.print_note("measuring the operating points again, on the log that the policy was learned from")
    else:
        notes += (
            f"{policy.about.log}, from which the policy was learned, is not available unchanged: {_STALE_POINTS}",
        )
    made = reroute_policy(policy, fell, panel)
    if not made.may_ask(made.names).any():
        raise ConfigError(f"--out {to}: workers dropped so far that none would be asked: nothing is written")
    return replace(found, notes=notes, file=to, written=save_policy(made, to))


@dataclass(frozen=True, slots=True)
class WorkerHistory:
    """Outcomes of a policy's workers; the rows of `panel` are tasks of a log, or runs of a journal, the oldest first.

    `whole`: every worker with outcomes was asked for every task, and all is graded. `notes` are caveats.
    """

    source: str
    panel: OutcomeMatrix
    whole: bool
    runs: bool
    notes: tuple[str, ...]


def history_of_log(folder: Path, policy: Policy) -> WorkerHistory:
    """Return the history in a log, in the order of its tasks; ConfigError where it has none of the workers."""
    panel, notes = _read_panel(open_log(folder), policy, str(folder))
    if "samples" in names_of(folder, "outcomes"):
        notes += ("repeated runs of a task are one row of the log, with averages; a journal has a row for each",)
    coverage = measure_coverage(panel)
    return WorkerHistory(
        str(folder), panel, coverage.kind is LogKind.FULL and coverage.scored >= FULL_SHARE, False, notes
    )


def history_of_runs(runs: Sequence[Run], policy: Policy, version: str, journal: str) -> WorkerHistory:
    """Return the history in these runs, the oldest first; those of this version alone count, if there are any."""
    if not runs:
        raise ConfigError(f"{journal}: it has no run")
    counted, notes = _select_runs(runs, version)
    log = LogBuilder("journal", RepeatPolicy.MERGED)
    gather_runs((replace(run, started=replace(run.started, task_id=run.id)) for run in counted), log)
    with TemporaryDirectory(prefix="shikisha-watch-") as made:
        log.write(Path(made), as_lines=True)
        panel, more = _read_panel(OutcomeLog.read(Path(made)), policy, journal)
    return WorkerHistory(journal, panel, False, True, (*notes, *more))


def training_panel(policy: Policy) -> OutcomeMatrix | None:
    """Return tasks of the log that a policy was fitted on; None where that log is missing, changed, or incomplete."""
    import numpy as np

    folder = Path(policy.about.log)
    if not folder.is_dir() or log_hash(folder) != policy.about.log_hash:
        return None
    panel = build_outcome_matrix(
        open_log(folder, policy.names), policy.names, policy.types, whole=has_responses(folder)
    )
    if measure_coverage(panel).kind is not LogKind.FULL:
        return None
    return panel.at(np.arange(0, len(panel), -(-len(panel) // _MAX_MEASURED)))


def _select_runs(runs: Sequence[Run], version: str) -> tuple[Sequence[Run], tuple[str, ...]]:
    """Return the runs that count, and notes on the others."""
    own = [run for run in runs if _run_version(run) == version]
    if not own:
        return runs, (
            f"no run was started by policy {version}: all runs count, and another conductor may look like a drop",
        )
    setting = own[-1].started.conductor
    same = [run for run in own if run.started.conductor == setting]
    left = {
        "by other conductors or versions": len(runs) - len(own),
        f"by it, but not as {setting}": len(own) - len(same),
    }
    return same, tuple(f"left out: {count:,} runs {whose}" for whose, count in left.items() if count)


def _run_version(run: Run) -> str:
    first = run.rounds[0].proposed if run.rounds else None
    return first.version if first is not None else ""


def _read_panel(log: OutcomeLog, policy: Policy, source: str) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    if not set(policy.names) & set(log.workers):
        raise ConfigError(
            f"{source}: none of the policy's workers has an outcome there: it knows {_first_names(policy.names)}; "
            f"the outcomes are of {_first_names(log.workers) if log.workers else 'no worker'}"
        )
    panel = build_outcome_matrix(log, policy.names, policy.types)
    if (panel.scores != panel.scores).all():
        raise ConfigError(
            f"{source}: none of the {int(panel.there.sum()):,} outcomes of the policy's workers has a score: grade "
            "some, or record the feedback of people (shikisha runs feedback)"
        )
    return panel, tuple(_log_notes(log, policy))


def _log_notes(log: OutcomeLog, policy: Policy) -> Iterator[str]:
    others = [name for name in log.workers if name not in policy.names]
    if others:
        yield f"not watched, because they are not in the policy: {_first_names(others)}"
    if log.judged_share:
        share = f"{log.judged_share:.0%}"
        yield f"{share} of the scores come from a language model alone: a stricter judge looks like a drop"


def _first_names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
