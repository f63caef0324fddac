"""`policy watch`: whether a policy's workers are still as good as usual, and the policy that makes do where not.

Invariants: a policy never overwrites the one that it was made from, nor any other file; what is usual, and who told it,
is said; the exit code says whether a worker has fallen. Deliberately absent: the test (`learn.drift`), what counts as
traffic (`config.traffic`), and putting the new policy to use, which is a trial's business (`trials`).

How `policy watch` says what it found: a table of the workers, what fell and since when, and what to do next.

Invariants: a row is one line in 80 columns, names are cut before figures; shares are in %; what is not known is a dash
on the screen and null in JSON. Deliberately absent: finding anything out.

Traffic: what a log or a journal says of a policy's workers, in the order of time.

Invariants: every run of a journal is a row of its own, named by the run, however often its task was run; of a journal
only runs count that the policy itself began, by the setting of its dial that is in use now, because another policy
or setting asks its workers for other tasks; what does not count is counted. Deliberately absent: what it means
(`learn.watching`), opening journals, and numpy until traffic is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.core.errors import ConfigError, MissingExtra, TaskError
from shikisha.core.text import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from shikisha.routing.fit.drift_detection import ExpectationSource, WorkerDrift, WorkerStanding
    from shikisha.routing.policy_data import Policy

_GAP, _EARLIER = 2, "earlier"
_OTHER_COLUMNS = 49  # columns that stand beside a worker's name, the one of earlier outcomes left out
_MIN_NAME, _MAX_NAME = 12, 48  # of a name


@dataclass(frozen=True, slots=True)
class WatchedPolicy:
    """A policy, its version, and the shelf that it stands on, if that is known."""

    policy: "Policy"
    version: str
    shelf: Path | None


@dataclass(frozen=True, slots=True)
class PolicyWatchReport:
    """How a policy's workers stand by its traffic, who told what is usual, what else must be said.

    `file` and `written` are the policy that makes do, and its version, if it was written.
    """

    watched: WatchedPolicy
    traffic: "WorkerHistory"
    baseline_source: "ExpectationSource"
    standings: "tuple[WorkerStanding, ...]"
    notes: tuple[str, ...]
    file: Path | None = None
    written: str = ""

    @property
    def next(self) -> tuple[str, ...]:
        """Commands that look at what was written and put it on trial."""
        if not self.written:
            return ()
        shelf = self.watched.shelf or "SHELF"
        each = (
            f"show {self.file}",
            f"add {shelf} {self.file}",
            f"canary {shelf} {self.written} --share 0.1",
            f"trial {shelf}",
        )
        return tuple(f"shikisha policy {one}" for one in each)


def report_json(found: PolicyWatchReport) -> Mapping[str, object]:
    """Return what was found as `--json` prints it."""
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
    """Print what was found."""
    console = output.make_console(to_stdout=True)
    output.print_report("\n".join(_heading_lines(found)))
    console.print(_worker_table(found, console.width))
    output.print_report("\n".join([*_drift_lines(found), *(f"! {note}" for note in found.notes)]))
    fell = any(standing.drift for standing in found.standings)
    if found.written:
        output.print_note(f"written: {found.file} (version {found.written})")
        output.print_report("\n".join(["Put it on trial:", *(f"  {line}" for line in found.next)]))
    elif fell:
        output.print_report("--out NEW writes the policy that makes do with that.")
    elif found.file is not None:
        output.print_note(f"{found.file} is not written: there is nothing to make do with")


def _heading_lines(found: PolicyWatchReport) -> Iterator[str]:
    from shikisha.routing.fit.drift_detection import ExpectationSource

    traffic = found.traffic
    rows = f"{len(traffic.panel):,} {'runs, the oldest first' if traffic.runs else 'tasks, in the order of the log'}"
    yield f"policy {found.watched.version} in {one_line(traffic.source)}: {rows}"
    if found.baseline_source is ExpectationSource.POLICY:
        yield "Usual is what the policy knows of each worker, by type of task."
    else:
        yield "Usual is what each worker's earlier outcomes were, by type of task."


def _worker_table(found: PolicyWatchReport, width: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from shikisha.routing.fit.drift_detection import ExpectationSource
    from shikisha.routing.fit.policy_report import short_labels

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


def _worker_figures(standing: "WorkerStanding") -> tuple[str, str, str]:
    from shikisha.plots.number_format import UNKNOWN

    outcomes = f"{standing.outcomes:,}"
    known = (standing.usual, standing.found, standing.low, standing.high)
    if standing.usual is None or standing.found is None or standing.low is None or standing.high is None:
        return outcomes, UNKNOWN, UNKNOWN
    usual, right, low, high = (f"{100 * share:.1f}" for share in known if share is not None)
    return outcomes, usual, f"{right} {low} to {high}"


def _drift_lines(found: PolicyWatchReport) -> Iterator[str]:
    """Say who fell, and when; or that nobody did."""
    from shikisha.routing.fit.drift_detection import FEW_OUTCOMES, WorkerState

    fell = [standing.drift for standing in found.standings if standing.drift is not None]
    for drift in fell:
        yield from _drift_text(drift, found.traffic)
    if not fell:
        yield "No worker has fallen below what is usual for it."
    few = sum(standing.state is WorkerState.FEW for standing in found.standings)
    if few:
        yield f"Too few: fewer than {FEW_OUTCOMES} outcomes with a score that could tell what is usual, or be compared with it."


def _drift_text(drift: "WorkerDrift", traffic: "WorkerHistory") -> Iterator[str]:
    row = "run" if traffic.runs else "task"
    places = [traffic.panel.ids.index(each) + 1 for each in (drift.since, drift.noticed)]
    yield f"{one_line(drift.worker)} fell: right on {100 * drift.found:.1f} % instead of {100 * drift.usual:.1f} %"
    yield f"  in {drift.outcomes:,} outcomes since {row} {places[0]:,} ({one_line(drift.since)}),"
    yield f"  noticed at {row} {places[1]:,} ({one_line(drift.noticed)})."


if TYPE_CHECKING:
    from shikisha.core.run import Run
    from shikisha.routing.fit.drift_detection import WorkerDrift, WorkerStanding

PolicyName = Annotated[
    Path, typer.Argument(metavar="POLICY", help="A policy file, or a shelf's folder: its live policy.")
]
_ALL_RUNS = 2**31  # runs
_STALE_POINTS = "the new policy's dial promises what it did before the fall, until shikisha learn measures it anew"
_BASELINE_SOURCES = ("policy", "earlier")


@dataclass(frozen=True, slots=True)
class PolicyWatchOptions:
    """Which outcomes are watched, and what becomes of it."""

    log: Annotated[
        Path | None, typer.Option("--log", metavar="DIR", help="Outcomes of a log, in its order, not of the journal.")
    ] = None
    since: Annotated[
        str, typer.Option("--since", metavar="ID", help="Watch from this task of the log, or run of the journal, on.")
    ] = ""
    usual: Annotated[
        str,
        typer.Option(
            "--usual", metavar="|".join(_BASELINE_SOURCES), help="Who tells what is usual; by default as said above."
        ),
    ] = ""
    to: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="NEW", help="Write the policy that makes do: a new file.")
    ] = None


def watch(policy: PolicyName, watching: PolicyWatchOptions, shared: SharedOptions) -> ExitCode:
    """Tell whether a policy's workers are still as good as usual.

    Reads outcomes in the order of time: the runs of the journal that this policy began, or with --log a log's, in the
    order of its tasks. Exit code 1 if a worker has fallen, 0 if none has. Alarms without cause come once in 20,000
    outcomes of a worker at most, in the mean.

    What is usual is told by the policy where every worker was asked for every task and all is graded; else by earlier
    outcomes, which were asked for as the later ones are: those before --since, or each worker's first 300 (at most half
    of those it has).
    """
    _refuse_options(watching, shared)
    watched = _open_policy(policy)
    _refuse_existing(watching.to)
    traffic = _worker_history(watched, watching, shared)
    found = _judge_workers(watched, traffic, watching)
    fell = [standing.drift for standing in found.standings if standing.drift is not None]
    if fell and watching.to is not None:
        found = _write_reroute(found, fell, watching.to)
    if shared.json:
        output.print_json(report_json(found))
    else:
        print_watch_report(found)
    return ExitCode.FAILED if fell else ExitCode.OK


def _refuse_options(watching: PolicyWatchOptions, shared: SharedOptions) -> None:
    for library, extra in (("numpy", "learn"), ("scipy", "learn")):
        if find_spec(library) is None:
            raise MissingExtra(extra, "policy watch")
    if watching.log is not None and shared.journal is not None:
        raise TaskError("expected --log or --journal, not both")
    if watching.usual not in ("", *_BASELINE_SOURCES):
        raise TaskError(f"--usual: expected {' or '.join(_BASELINE_SOURCES)}, not {watching.usual!r}")


def _refuse_existing(to: Path | None) -> None:
    """Refuse a file that is there: it may be the very policy that is watched, or one on a shelf."""
    if to is not None and to.exists():
        raise ConfigError(f"--out {to}: expected a new file: no policy is written over another")


def _open_policy(path: Path) -> WatchedPolicy:
    from shikisha.routing.policy_file import load_policy
    from shikisha.routing.policy_registry import REGISTRY_FILE, policy_path, read_registry

    if not path.is_dir():
        beside = path.parent if (path.parent / REGISTRY_FILE).exists() else None
        return WatchedPolicy(*load_policy(path), beside)
    live = read_registry(path).live
    if not live:
        raise ConfigError(f"{path}: there is no policy on this shelf")
    return WatchedPolicy(*load_policy(policy_path(path, live)), path)


def _worker_history(watched: WatchedPolicy, watching: PolicyWatchOptions, shared: SharedOptions) -> "WorkerHistory":

    if watching.log is not None:
        return history_of_log(watching.log, watched.policy)
    runs, journal = session.run_async(lambda: _read_all_runs(shared))
    return history_of_runs(runs, watched.policy, watched.version, journal)


async def _read_all_runs(shared: SharedOptions) -> "tuple[list[Run], str]":
    """Return all runs of the journal, the oldest first, and what the journal is called."""
    from shikisha.core.run import Run

    async with session.open_existing_journal(shared) as journal:
        every = reversed(await journal.runs(limit=_ALL_RUNS))
        runs = [Run.fold(await journal.read(summary.id)) for summary in every]
    named = shared.journal or ""
    return runs, "the journal" if not named or "://" in named else named  # a URL may hold a password


def _judge_workers(watched: WatchedPolicy, traffic: "WorkerHistory", watching: PolicyWatchOptions) -> PolicyWatchReport:
    from shikisha.routing.fit.drift_detection import ExpectationSource, assess_workers

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
        raise TaskError(f"--since {watching.since}: nothing is before it that could tell what is usual")
    found = assess_workers(watched.policy, traffic.panel, told, since)
    return PolicyWatchReport(watched, traffic, told, found, (*traffic.notes, *_report_caveats(found)), watching.to)


def _row_of(traffic: "WorkerHistory", name: str) -> int | None:
    """Return the row of a task or run, of whose id the beginning is enough where only one begins so."""
    if not name:
        return None
    ids = traffic.panel.ids
    fitting = [name] if name in ids else [each for each in ids if each.startswith(name)]
    if len(fitting) != 1:
        what = "run" if traffic.runs else "task"
        many = f"{len(fitting):,} of them begin so" if fitting else f"it has {len(ids):,}, the first is {ids[0]!r}"
        raise TaskError(f"--since: no {what} {name!r} that counts in {traffic.source}: {many}")
    return ids.index(fitting[0])


def _report_caveats(found: "Sequence[WorkerStanding]") -> Iterator[str]:
    watched = [each for each in found if each.found is not None]
    aside, fell = sum(each.aside for each in watched), sum(each.drift is not None for each in watched)
    if aside:
        yield f"{aside:,} of the outcomes count for nothing: too little is known of such tasks to say what is usual"
    if 1 < fell == len(watched):
        yield "all workers that are watched fell: look first whether tasks became harder, or grading stricter"
    if not watched:
        yield "nothing can be said yet: too few outcomes have a score"


def _write_reroute(found: PolicyWatchReport, fell: "Sequence[WorkerDrift]", to: Path) -> PolicyWatchReport:
    """Write the policy that makes do."""
    from shikisha.routing.fit.worker_removal import reroute_policy
    from shikisha.routing.policy_file import save_policy

    policy, notes = found.watched.policy, found.notes
    panel = training_panel(policy)
    if panel is not None:
        output.print_note("measuring the dial again, on the log that the policy was learned from")
    else:
        notes += (f"{policy.about.log}, of which the policy was learned, is not there as it was: {_STALE_POINTS}",)
    made = reroute_policy(policy, fell, panel)
    if not made.may_ask(made.names).any():
        raise ConfigError(f"--out {to}: workers fell so far that nobody would be asked: nothing is written")
    return replace(found, notes=notes, file=to, written=save_policy(made, to))


if TYPE_CHECKING:
    from shikisha.core.run import Run
    from shikisha.outcomes.log_reader import OutcomeLog
    from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
    from shikisha.routing.policy_data import Policy

_NAMES_SHOWN = 5  # names
_MAX_MEASURED = 2_000  # tasks, at most, on which a dial is measured again


@dataclass(frozen=True, slots=True)
class WorkerHistory:
    """Outcomes of the policy's workers: `panel`'s rows are tasks of a log, or runs of a journal, the oldest first.

    `whole`: every worker that has outcomes was asked for every task, and everything is graded. `notes` are what a
    reader must know.
    """

    source: str
    panel: "OutcomeMatrix"
    whole: bool
    runs: bool
    notes: tuple[str, ...]


def history_of_log(folder: Path, policy: "Policy") -> WorkerHistory:
    """Return the traffic that a log holds, in the order of its tasks; ConfigError where it says nothing of a worker."""
    from shikisha.outcomes.log_reader import open_log
    from shikisha.outcomes.table_files import names_of
    from shikisha.routing.fit.log_quality import FULL_SHARE, LogKind
    from shikisha.routing.fit.log_quality import measure_coverage as coverage_of

    panel, notes = _read_panel(open_log(folder), policy, str(folder))
    if "samples" in names_of(folder, "outcomes"):
        notes += ("tasks that were run several times stand in the log once, with means: a journal tells them apart",)
    coverage = coverage_of(panel)
    return WorkerHistory(
        str(folder), panel, coverage.kind is LogKind.FULL and coverage.scored >= FULL_SHARE, False, notes
    )


def history_of_runs(runs: "Sequence[Run]", policy: "Policy", version: str, journal: str) -> WorkerHistory:
    """Return the traffic of these runs, the oldest first, of which those count that this version began, if any did."""
    from shikisha.outcomes.importers.journal_runs import gather_runs
    from shikisha.outcomes.log_reader import OutcomeLog
    from shikisha.outcomes.log_writer import LogBuilder, RepeatPolicy

    if not runs:
        raise ConfigError(f"{journal}: no run is in it that could be watched")
    counted, notes = _select_runs(runs, version)
    log = LogBuilder("journal", RepeatPolicy.MERGED)
    gather_runs((replace(run, started=replace(run.started, task_id=run.id)) for run in counted), log)
    with TemporaryDirectory(prefix="shikisha-watch-") as made:
        log.write(Path(made), as_lines=True)
        panel, more = _read_panel(OutcomeLog.read(Path(made)), policy, journal)
    return WorkerHistory(journal, panel, False, True, (*notes, *more))


def training_panel(policy: "Policy") -> "OutcomeMatrix | None":
    """Return some tasks of the log that a policy was fitted on; None where it is gone, another, or not whole."""
    import numpy as np

    from shikisha.outcomes.log_reader import log_hash, open_log
    from shikisha.routing.fit.log_quality import LogKind
    from shikisha.routing.fit.log_quality import measure_coverage as coverage_of
    from shikisha.routing.fit.outcome_matrix import build_outcome_matrix

    folder = Path(policy.about.log)
    if not folder.is_dir() or log_hash(folder) != policy.about.log_hash:
        return None
    texts = policy.hearing is not None
    panel = build_outcome_matrix(open_log(folder, policy.names), policy.names, policy.types, whole=texts)
    if coverage_of(panel).kind is not LogKind.FULL:
        return None
    return panel.at(np.arange(0, len(panel), -(-len(panel) // _MAX_MEASURED)))


def _select_runs(runs: "Sequence[Run]", version: str) -> "tuple[Sequence[Run], tuple[str, ...]]":
    """Return the runs that count, and what is to be said of the others."""
    own = [run for run in runs if _run_version(run) == version]
    if not own:
        return runs, (
            f"no run was begun by policy {version}: all runs count, and a change of who conducts may look like a fall",
        )
    setting = own[-1].started.conductor
    same = [run for run in own if run.started.conductor == setting]
    left = {
        "by other conductors or versions": len(runs) - len(own),
        f"by it, but not as {setting}": len(own) - len(same),
    }
    return same, tuple(f"left out: {count:,} runs {whose}" for whose, count in left.items() if count)


def _run_version(run: "Run") -> str:
    first = run.rounds[0].proposed if run.rounds else None
    return first.version if first is not None else ""


def _read_panel(log: "OutcomeLog", policy: "Policy", source: str) -> "tuple[OutcomeMatrix, tuple[str, ...]]":
    from shikisha.routing.fit.outcome_matrix import build_outcome_matrix

    if not set(policy.names) & set(log.workers):
        raise ConfigError(
            f"{source}: none of the policy's workers has an outcome there: it knows {_first_names(policy.names)}; "
            f"the outcomes are of {_first_names(log.workers) if log.workers else 'nobody'}"
        )
    panel = build_outcome_matrix(log, policy.names, policy.types)
    if (panel.scores != panel.scores).all():
        raise ConfigError(
            f"{source}: none of the {int(panel.there.sum()):,} outcomes of the policy's workers has a score: grade "
            "some, or tell what people think of answers (shikisha feedback)"
        )
    return panel, tuple(_log_notes(log, policy))


def _log_notes(log: "OutcomeLog", policy: "Policy") -> Iterator[str]:
    others = [name for name in log.workers if name not in policy.names]
    if others:
        yield f"not watched, because the policy does not know them: {_first_names(others)}"
    if log.judged_share:
        yield f"{log.judged_share:.0%} of the scores are a language model's word alone: a stricter judge looks like a fall"


def _first_names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
