"""Incumbents: the conductors that made a journal, next to what is learned from it, on the same tasks.

Invariant: no policy is returned that is not shown to be at least as good as every conductor in use. Shown means that
the paired 95 % interval of the difference excludes harm: any loss, or a loss of more than HARM where the policy costs
at most CHEAPER of the conductor's dollars. The policy's side is measured on tasks that its fit has not seen. What
cannot be compared is refused with a reason: too few common tasks, or common tasks that are only a part of the
conductor's, since nobody knows how the part was chosen.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.evals.statistics import difference_interval, score_interval
from shikisha.outcomes.log_reader import RunOutcome
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.log_quality import FULL_SHARE, LogKind, known_outcomes
from shikisha.routing.fit.model_selection import Selection
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Baseline, FrontierPoint, Policy

# With fewer common tasks nothing is shown.
MIN_COMPARED_TASKS = 50
# Below this share of runs, plans with several steps are experiments.
MIN_RUN_SHARE = 0.05
# A loss that does not matter where the policy costs at most that part of the conductor's dollars.
HARM, CHEAPER = 0.02, 0.9
# A conductor with this part of the runs of the most used one is in use, too.
_USED_SHARE = 0.5
_ADVICE = (
    "keep the conductor in use, or run and grade the same tasks with each worker alone "
    "(`--conductor fixed:single?worker=NAME`, the same journal) and learn again"
)


@dataclass(frozen=True, slots=True)
class TaskScores:
    """What a policy's most accurate setting achieves by task, from fits that exclude the task: score and dollars."""

    won: Mapping[str, float]
    dollars: Mapping[str, float]

    @classmethod
    def of(cls, ids: Sequence[str], won: Floats, dollars: Floats) -> "TaskScores":
        """Return the scores by task id; what is NaN is left out."""
        known = (
            {task: value for task, value in zip(ids, values.tolist(), strict=True) if value == value}
            for values in (won, dollars)
        )
        return cls(*known)


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A conductor in use: its runs, whether some of its plans had parts, and mean score and dollars by task id."""

    name: str
    runs: tuple[RunOutcome, ...]
    parted: bool
    scores: Mapping[str, float]
    dollars: Mapping[str, float]

    def refusal(self, why: str) -> ConfigError:
        """Return the error that nothing is written because nothing can be compared."""
        plans = "have plans with several steps by" if self.parted else "were conducted by"
        return ConfigError(
            f"{len(self.runs):,} runs of this journal {plans} {self.name}, and a policy "
            f"learned from single workers cannot be compared with it: {why}. Nothing is written: {_ADVICE}"
        )


def find_incumbents(runs: Sequence[RunOutcome]) -> tuple[Incumbent, ...]:
    """Return the conductors in use, most runs first.

    These are the one with most runs, those with half as many, and those of plans with several steps unless such plans
    are rare.
    """
    counts, parted = Counter(run.conductor for run in runs), Counter(run.conductor for run in runs if run.parted)
    most = max(counts.values(), default=0)
    frequent = parted.total() >= MIN_RUN_SHARE * len(runs)
    incumbents = []
    for name, count in counts.most_common():
        if count < _USED_SHARE * most and not (frequent and name in parted):
            continue
        own = tuple(run for run in runs if run.conductor == name)
        scores, dollars = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        for run in own:
            if run.task_id is not None and run.score is not None:
                scores[run.task_id].append(run.score)
                if run.dollars is not None:
                    dollars[run.task_id].append(run.dollars)
        means = ({task: fmean(values) for task, values in held.items()} for held in (scores, dollars))
        incumbents.append(Incumbent(name, own, name in parted, *means))
    return tuple(incumbents)


def refuse_unknown_propensities(runs: Sequence[RunOutcome], kind: LogKind, matrix: OutcomeMatrix) -> None:
    """Refuse a journal in which workers were chosen with unknown probabilities."""
    if runs and kind is LogKind.UNTOLD and matrix.there.any(axis=0).sum() > 1:
        by = ", ".join(dict.fromkeys(run.conductor for run in runs))
        raise ConfigError(
            f"{by} chose whom to ask, and the journal does not record the probabilities: results of a worker on tasks "
            "that were chosen for it say little about other tasks, so a learned policy cannot be compared with "
            f"the conductor in use. Nothing is written: {_ADVICE}; a policy with ?explore=5% records its "
            "probabilities"
        )


def compare_with_incumbents(
    policy: Policy, matrix: OutcomeMatrix, scores: TaskScores | None, rivals: Sequence[Incumbent], why: str = ""
) -> Policy:
    """Return the policy with a baseline per incumbent; ConfigError unless it is shown to be as good as each.

    `scores` None: the log cannot support the policy's side, and `why`.
    """
    if not rivals:
        return policy
    if scores is None:
        raise rivals[0].refusal(why or "not every worker was asked for every complete task")
    rows = [_compare_incumbent(rival, matrix, scores, policy.rung().dial.unit) for rival in rivals]
    notes = (f"the conductor in use, {rival.name}, was {row.note}" for rival, row in zip(rivals, rows, strict=True))
    about = replace(policy.about, notes=(*policy.about.notes, *notes))
    return replace(policy, about=about, yardsticks=(*policy.yardsticks, *rows))


def _compare_incumbent(rival: Incumbent, matrix: OutcomeMatrix, scores: TaskScores, unit: float) -> Baseline:
    hashes = dict(zip(matrix.ids, matrix.hashes, strict=True))
    ids = [task for task in matrix.ids if task in rival.scores and task in scores.won]
    if len({hashes[task] for task in ids}) < MIN_COMPARED_TASKS:
        raise rival.refusal(
            f"{len(ids)} graded tasks of its runs were also done by every worker alone; "
            f"at least {MIN_COMPARED_TASKS} are needed"
        )
    graded = len(rival.scores) + sum(run.task_id is None and run.score is not None for run in rival.runs)
    if rival.parted and len(ids) < FULL_SHARE * graded:
        raise rival.refusal(
            f"only {len(ids):,} of {graded:,} graded tasks of its runs were also done by every worker alone, and how "
            "these were chosen is unknown"
        )
    theirs, ours = (np.array([held[task] for task in ids]) for held in (rival.scores, scores.won))
    low, high = difference_interval((ours - theirs).tolist())
    # The policy's dollars over the conductor's, on tasks where both are known.
    both = [task for task in ids if task in rival.dollars and task in scores.dollars]
    paid = sum(rival.dollars[task] for task in both)
    ratio = sum(scores.dollars[task] for task in both) / paid if len(both) >= FULL_SHARE * len(ids) and paid else None
    own_mean, mean = min(1.0, float(ours.mean())), float(theirs.mean())
    comparison = (
        f"right in {mean:.1%} of {len(ids):,} tasks; the learned policy in {own_mean:.1%} "
        f"({own_mean - mean:+.1%} [{low:+.1%}, {high:+.1%}]{'' if ratio is None else f', at {ratio:.0%} of its cost'})"
    )
    same = bool((ours == theirs).all()) and (ratio is None or ratio <= 1.01)
    if not same and low < (-HARM if ratio is not None and ratio <= CHEAPER else 0.0):
        raise ConfigError(
            f"the conductor in use, {rival.name}, was {comparison}: the policy is not shown to be as good. Nothing is "
            f"written. Keep {rival.name}, or grade more of its runs and of workers that do the same tasks alone"
        )
    spent = [rival.dollars[task] for task in ids if task in rival.dollars]
    cost = fmean(spent) / unit if spent and unit > 0 else 0.0
    met = FrontierPoint(cost, cost, mean, *score_interval(theirs.tolist()))
    return Baseline(f"in use: {rival.name}", mean, (met,), comparison)


def held_out_scores(selection: Selection, matrix: OutcomeMatrix) -> TaskScores:
    """Return the scores of the policy's most accurate setting on a full matrix, from fits that exclude the task.

    Only tasks of which the outcomes of all who did nearly all tasks are known have a score. Others count as not
    answering where they have none.
    """
    rows = np.flatnonzero(np.isin(np.array(matrix.ids), np.array(selection.ids)))
    some = matrix.at(rows)
    core = some.there.mean(axis=0) >= FULL_SHARE
    known = known_outcomes(some)[:, core].all(axis=1)
    priced: Floats = np.where(np.isnan(some.dollars[:, core]).any(axis=1), np.nan, selection.paid)
    return TaskScores.of(some.ids, np.where(known, selection.won, np.nan), priced)
