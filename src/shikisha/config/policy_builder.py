"""Builds a routing policy: reads an outcome log or a journal, fits the candidates, and notes everything that a reader
must know.

Invariants: what cannot be learned from is refused before the first fit; a journal is read through the importer that
makes logs of journals, so that both lead to the same policy; no policy holds the password of a database.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.journal import redact_store_url
from shikisha.outcomes.importers.importer_registry import import_outcomes
from shikisha.outcomes.importers.source_files import Sources
from shikisha.outcomes.log_reader import (
    OutcomeLog,
    RunOutcome,
    has_responses,
    ignored_columns,
    log_hash,
    log_scope,
    open_log,
    run_outcomes,
    sample_tasks,
)
from shikisha.plots.format import plural
from shikisha.routing.fit.drift_detection import drop_outdated
from shikisha.routing.fit.incumbents import (
    TaskScores,
    compare_with_incumbents,
    find_incumbents,
    held_out_scores,
    refuse_unknown_propensities,
)
from shikisha.routing.fit.log_quality import LogKind, find_caveats, find_cost_oddities, find_gaps, measure_coverage
from shikisha.routing.fit.log_replay import count_usage
from shikisha.routing.fit.model_selection import (
    MIN_TASKS,
    POLICY_TASKS,
    LearningOptions,
    Selection,
    assign_folds,
    select_policy,
)
from shikisha.routing.fit.outcome_matrix import (
    OutcomeMatrix,
    add_latency_cost,
    build_outcome_matrix,
    complete_costs,
    without_late_workers,
)
from shikisha.routing.fit.partial_logs import apply_test_signal, complete_grades, fit_partial_log
from shikisha.routing.fit.task_clusters import assign_types, find_task_types
from shikisha.routing.policy_data import Policy, PolicyOrigin

ProgressCallback = Callable[[str], None]
# 13 workers on 20,000 tasks; on MP13 more than 1,000 tasks brought nothing.
MAX_OUTCOMES = 260_000


@dataclass(frozen=True, slots=True)
class LearnRequest:
    """What to learn from: the folder of a log, or a `journal` (a file or URL); `workers` empty: all.

    `second` is the worth of a second of waiting in dollars, `rung` is the candidate to select whatever the evidence
    says. With `test_signal` a policy will know the score of an answer before it decides. With `drop_outdated` nothing
    is learned of what a worker did before a lasting fall; tasks are in order of time. Of a log with more than
    `max_outcomes` a sample of the tasks is read, so that memory and time stay bounded. Of a journal the runs of
    `tenant` with no labels but `labels` count.
    """

    log: Path | None = None
    journal: str = ""
    workers: tuple[str, ...] = ()
    seed: int = 0
    second: float = 0.0
    rung: str = ""
    test_signal: bool = False
    drop_outdated: bool = False
    max_outcomes: int = MAX_OUTCOMES
    tenant: str | None = None
    labels: frozenset[str] = frozenset()


def learn_policy(order: LearnRequest, tell: ProgressCallback) -> Policy:
    """Learn a policy; ConfigError for what cannot be learned from. `tell` is called with the progress."""
    with _log_folder(order, tell) as (folder, name, notes):
        tell("reading")
        sample = sample_tasks(folder, order.max_outcomes, order.workers)
        runs = run_outcomes(folder)
        if sample is None:
            log = open_log(folder, order.workers)
        else:
            chosen, among = sample
            log = OutcomeLog.read(folder, order.workers, chosen)
            runs = tuple(run for run in runs if run.task_id is None or run.task_id in chosen)
            notes += (f"learned from {len(chosen):,} of {among:,} tasks, drawn by their ids (--max-outcomes)",)
        notes += tuple(f"an unused column in {column}" for column in ignored_columns(folder))
        notes += find_cost_oddities(log)
        notes += log.judge_notes
        wordings = log.wordings(order.workers)
        if len(wordings) > 1:
            left = wordings.total() - next(iter(wordings.values()))
            notes += (f"{plural(left, 'outcome')} in other words than most are left out: a policy sends one wording",)
        source = _OutcomeSource(name, log_hash(folder), _cost_kind(log), notes)
        scope, wording = log_scope(folder), next(iter(wordings), "")
        panel = build_outcome_matrix(log, order.workers, whole=has_responses(folder), most_read=POLICY_TASKS)
        policy = _fit_policy(order, panel, source, runs, tell)
        return replace(policy, about=replace(policy.about, scope=scope, wording=wording))


@dataclass(frozen=True, slots=True)
class _OutcomeSource:
    """The name, hash and kind of costs of a log, and notes on it."""

    name: str
    hash: str
    cost_kind: str
    notes: tuple[str, ...]


def _fit_policy(
    order: LearnRequest,
    panel: OutcomeMatrix,
    source: _OutcomeSource,
    runs: Sequence[RunOutcome],
    tell: ProgressCallback,
) -> Policy:
    panel, signal = apply_test_signal(panel) if order.test_signal else (panel, ())
    panel, found = _with_task_types(panel, tell)
    panel, outdated = drop_outdated(panel) if order.drop_outdated else (panel, ())
    panel, costs = complete_costs(panel)
    caveats, kind, rivals = find_caveats(panel), measure_coverage(panel).kind, find_incumbents(runs)
    whole, ungraded, late = kind is LogKind.FULL, tuple[str, ...](), tuple[str, ...]()
    if whole:
        panel, late = without_late_workers(panel)
    recorded = panel
    if whole:
        panel, ungraded = complete_grades(panel, order.seed)
    priced, waits = add_latency_cost(panel, order.second)
    told = replace(
        source, notes=(*source.notes, *signal, *found, *outdated, *costs, *waits, *caveats, *late, *ungraded)
    )
    if not any(rival.parted for rival in rivals):
        refuse_unknown_propensities(runs, kind, priced)
    scores: TaskScores | None = None
    if whole:
        # Select among all candidates: every worker was asked for every task
        about = replace(_origin(order, priced, told), notes=(*told.notes, *find_gaps(priced)))
        wants = LearningOptions(order.seed, order.rung)
        selection, why = select_policy(priced, wants, about, tell), ""
        scores = held_out_scores(selection, priced)
    else:
        selection, why = _fit_partial_log(order, priced, told, tell)
        scores = None if why else TaskScores.of(selection.ids, selection.won, selection.paid)
    policy = selection.policy
    if rivals:
        tell("comparing with the present conductor")
        policy = compare_with_incumbents(policy, priced, scores, rivals, why)
    tell("counting its calls")
    return replace(policy, habits=count_usage(recorded, policy))


def _with_task_types(panel: OutcomeMatrix, tell: ProgressCallback) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix with task types: its own, or clusters of the prompts where the log has none."""
    if len(panel.types.names) > 1 or len(panel) < MIN_TASKS:
        return panel, ()
    tell("finding types of tasks")
    types = find_task_types(panel, assign_folds(panel.hashes, "types"))
    if not len(types.centres):
        return panel, ()
    return assign_types(panel, types), (
        f"the log has no task types; {len(types.names)} were found by clustering the prompts",
    )


def _origin(order: LearnRequest, panel: OutcomeMatrix, source: _OutcomeSource) -> PolicyOrigin:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return PolicyOrigin(source.name, source.hash, len(panel), today, source.cost_kind, order.seed, source.notes)


def _fit_partial_log(
    order: LearnRequest, panel: OutcomeMatrix, source: _OutcomeSource, tell: ProgressCallback
) -> tuple[Selection, str]:
    """Learn what a partially observed log supports."""
    tell("learning from a partially observed log")
    selection, why = fit_partial_log(panel, order.seed, _origin(order, panel, source))
    if order.rung:
        selection.policy.rung(order.rung)  # there is one candidate: another name is an error
    return selection, why


@contextmanager
def _log_folder(order: LearnRequest, tell: ProgressCallback) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Yield the folder of the log, its name, and what was left out; the log of a journal is temporary."""
    if order.log is not None:
        yield order.log, str(order.log), ()
        return

    if not order.journal:
        raise ConfigError("expected an outcome log, or a journal to learn from")
    tell("reading the journal")
    with TemporaryDirectory(prefix="shikisha-learn-") as made:
        folder = Path(made) / "log"
        written = import_outcomes(
            "journal", Sources([order.journal], tenant=order.tenant, labels=order.labels), folder, as_lines=True
        )
        left = tuple(f"left out of the journal: {reason}: {count:,}" for reason, count in written.left.items())
        remarks = tuple(f"in the journal: {what}: {count:,}" for what, count in written.remarks.items())
        yield (
            folder,
            order.journal if "://" not in order.journal else redact_store_url(order.journal),
            (*left, *remarks),
        )


def _cost_kind(log: OutcomeLog) -> str:
    """Return the kinds of costs in a log, the most frequent first."""
    kinds: Counter[str] = Counter()
    for worker in log.workers:
        kinds.update(outcome.cost_kind or "" for outcome in log.outcomes_of(worker) if outcome.dollars is not None)
    return " and ".join(kind for kind, _ in kinds.most_common() if kind)
