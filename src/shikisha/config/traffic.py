"""Traffic: what a log or a journal says of a policy's workers, in the order of time.

Invariants: every run of a journal is a row of its own, named by the run, however often its task was run; of a journal
only runs count that the policy itself began, by the setting of its dial that is in use now, because another policy
or setting asks its workers for other tasks; what does not count is counted. Deliberately absent: what it means
(`learn.watching`), opening journals, and numpy until traffic is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from shikisha.errors import ConfigError

if TYPE_CHECKING:
    from shikisha.learn.panel import Panel
    from shikisha.outcomes import OutcomeLog
    from shikisha.policy.policy import Policy
    from shikisha.run import Run

_SHOWN = 5  # names
_MEASURED = 2_000  # tasks, at most, on which a dial is measured again


@dataclass(frozen=True, slots=True)
class Traffic:
    """Outcomes of the policy's workers: `panel`'s rows are tasks of a log, or runs of a journal, the oldest first.

    `whole`: every worker that has outcomes was asked for every task, and everything is graded. `notes` are what a
    reader must know.
    """

    source: str
    panel: "Panel"
    whole: bool
    runs: bool
    notes: tuple[str, ...]


def of_log(folder: Path, policy: "Policy") -> Traffic:
    """Return the traffic that a log holds, in the order of its tasks; ConfigError where it says nothing of a worker."""
    from shikisha.columns import names_of
    from shikisha.learn.coverage import WHOLE, Kind
    from shikisha.learn.coverage import of as coverage_of
    from shikisha.outcomes import open_log

    panel, notes = _read(open_log(folder), policy, str(folder))
    if "samples" in names_of(folder, "outcomes"):
        notes += ("tasks that were run several times stand in the log once, with means: a journal tells them apart",)
    coverage = coverage_of(panel)
    return Traffic(str(folder), panel, coverage.kind is Kind.FULL and coverage.scored >= WHOLE, False, notes)


def of_runs(runs: "Sequence[Run]", policy: "Policy", version: str, journal: str) -> Traffic:
    """Return the traffic of these runs, the oldest first, of which those count that this version began, if any did."""
    from shikisha.importers.journal import gather_runs
    from shikisha.outcomes import OutcomeLog
    from shikisha.outcomes_writing import LogBuilder, Repeats

    if not runs:
        raise ConfigError(f"{journal}: no run is in it that could be watched")
    counted, notes = _counted(runs, version)
    log = LogBuilder("journal", Repeats.MERGED)
    gather_runs((replace(run, started=replace(run.started, task_id=run.id)) for run in counted), log)
    with TemporaryDirectory(prefix="shikisha-watch-") as made:
        log.write(Path(made), as_lines=True)
        panel, more = _read(OutcomeLog.read(Path(made)), policy, journal)
    return Traffic(journal, panel, False, True, (*notes, *more))


def learned_from(policy: "Policy") -> "Panel | None":
    """Return some tasks of the log that a policy was fitted on; None where it is gone, another, or not whole."""
    import numpy as np

    from shikisha.learn.coverage import Kind
    from shikisha.learn.coverage import of as coverage_of
    from shikisha.learn.panel import panel_of
    from shikisha.outcomes import log_hash, open_log

    folder = Path(policy.about.log)
    if not folder.is_dir() or log_hash(folder) != policy.about.log_hash:
        return None
    texts = policy.hearing is not None
    panel = panel_of(open_log(folder, policy.names), policy.names, policy.types, whole=texts)
    if coverage_of(panel).kind is not Kind.FULL:
        return None
    return panel.at(np.arange(0, len(panel), -(-len(panel) // _MEASURED)))


def _counted(runs: "Sequence[Run]", version: str) -> "tuple[Sequence[Run], tuple[str, ...]]":
    """Return the runs that count, and what is to be said of the others."""
    own = [run for run in runs if _version(run) == version]
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


def _version(run: "Run") -> str:
    first = run.rounds[0].proposed if run.rounds else None
    return first.version if first is not None else ""


def _read(log: "OutcomeLog", policy: "Policy", source: str) -> "tuple[Panel, tuple[str, ...]]":
    from shikisha.learn.panel import panel_of

    if not set(policy.names) & set(log.workers):
        raise ConfigError(
            f"{source}: none of the policy's workers has an outcome there: it knows {_some(policy.names)}; "
            f"the outcomes are of {_some(log.workers) if log.workers else 'nobody'}"
        )
    panel = panel_of(log, policy.names, policy.types)
    if (panel.scores != panel.scores).all():
        raise ConfigError(
            f"{source}: none of the {int(panel.there.sum()):,} outcomes of the policy's workers has a score: grade "
            "some, or tell what people think of answers (shikisha feedback)"
        )
    return panel, tuple(_remarks(log, policy))


def _remarks(log: "OutcomeLog", policy: "Policy") -> Iterator[str]:
    others = [name for name in log.workers if name not in policy.names]
    if others:
        yield f"not watched, because the policy does not know them: {_some(others)}"
    if log.judged:
        yield f"{log.judged:.0%} of the scores are a language model's word alone: a stricter judge looks like a fall"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
