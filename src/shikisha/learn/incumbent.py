"""The conductor in force: what made the journal that is learned from, held against what was learned.

Runs of plans with several steps say how good their conductor is, and little of what one worker would make of a task
alone. So a policy that asks workers for whole tasks may be far worse than what it is to replace, however well it does
beside single workers. Invariants: both are judged on the same tasks, the policy by fits that have not seen them; what
is not shown to be right at least as often is an error that says why and what to do; where the two cannot be compared,
that is one too. Deliberately absent: costs (a policy's dial has them), and logs that say nothing of runs.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from shikisha.errors import ConfigError
from shikisha.evaluate.statistics import difference_interval, score_interval
from shikisha.learn.coverage import Kind, known
from shikisha.learn.fits import FOLDS, TABLE, Wants, fit, folds_of
from shikisha.learn.joining import established
from shikisha.learn.ladder import rungs_for
from shikisha.learn.panel import Panel
from shikisha.learn.play import play
from shikisha.learn.threads import one_thread_each
from shikisha.outcomes import Conducted
from shikisha.policy.arrays import Floats
from shikisha.policy.policy import Met, Policy, Yardstick

LEAST = 50  # tasks of which both are known, below which nothing is shown
FEW = 0.05  # share of the journal's runs below which plans of several steps are somebody's trial
_TO_DO = (
    "leave the conductor in force, or run and grade the same tasks with each worker alone "
    "(`--conductor fixed:single?worker=NAME`, the same journal) and learn once more"
)


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A conductor whose plans had several steps: how many runs it made, and mean score and dollars by task id."""

    name: str
    runs: int
    scores: dict[str, float]
    dollars: dict[str, float]


def incumbents(runs: Sequence[Conducted]) -> tuple[Incumbent, ...]:
    """Return who conducted plans of several steps, if such plans are more than somebody's trial; most runs first."""
    parted = Counter(run.conductor for run in runs if run.parted)
    if parted.total() < FEW * len(runs):
        return ()
    return tuple(_incumbent(name, [run for run in runs if run.conductor == name]) for name, _ in parted.most_common())


def _incumbent(name: str, runs: Sequence[Conducted]) -> Incumbent:
    scores, dollars = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for run in runs:
        if run.task_id is not None and run.score is not None:
            scores[run.task_id].append(run.score)
            if run.dollars is not None:
                dollars[run.task_id].append(run.dollars)
    return Incumbent(
        name,
        len(runs),
        {task: fmean(values) for task, values in scores.items()},
        {task: fmean(values) for task, values in dollars.items()},
    )


def refuse_untold(runs: Sequence[Conducted], kind: Kind, panel: Panel) -> None:
    """Refuse a journal in which somebody chose whom to ask, nobody knows how, and that made it what it is."""
    asked = [name for column, name in enumerate(panel.workers) if panel.there[:, column].any()]
    if runs and kind is Kind.UNTOLD and len(asked) > 1:
        by = ", ".join(dict.fromkeys(run.conductor for run in runs))
        raise ConfigError(
            f"whom to ask was chosen by {by}, and the journal does not say with what probability: what a worker came "
            "to on tasks that were chosen for it says little of others, so nothing that is learned here can be held "
            f"against the conductor in force. Nothing is written: {_TO_DO}; a policy with ?explore=5% writes down its "
            "chances"
        )


@one_thread_each()
def held_against(policy: Policy, panel: Panel, kind: Kind, rivals: Sequence[Incumbent], seed: int) -> Policy:
    """Return the policy with a row for each of those in force; ConfigError unless it is shown as good as each."""
    if not rivals:
        return policy
    held = established(panel)
    if kind is not Kind.FULL:
        raise _refusal(rivals[0], "not every worker was asked for every task, whole")
    won = _won(policy, held, seed)
    rows, notes = [], []
    for rival in rivals:
        row, note = _compared(rival, held, won, policy.rung().dial.unit)
        rows.append(row)
        notes.append(note)
    about = replace(policy.about, notes=(*policy.about.notes, *notes))
    return replace(policy, about=about, yardsticks=(*policy.yardsticks, *rows))


def _compared(rival: Incumbent, held: Panel, won: Floats, unit: float) -> tuple[Yardstick, str]:
    places = [place for place, task in enumerate(held.ids) if task in rival.scores and known(held)[place].all()]
    if len({held.hashes[place] for place in places}) < LEAST:
        raise _refusal(
            rival, f"{len(places)} graded tasks of its runs were also put to every worker whole; {LEAST} are the least"
        )
    theirs = np.array([rival.scores[held.ids[place]] for place in places])
    low, high = difference_interval((won[places] - theirs).tolist())
    mine, mean = float(won[places].mean()), float(theirs.mean())
    more = f"{mine - mean:+.1%} [{low:+.1%}, {high:+.1%}]"
    told = f"right in {mean:.1%} of {len(places):,} tasks; what is learned in {mine:.1%} ({more})"
    if low < 0:
        raise ConfigError(
            f"the conductor in force, {rival.name}, was {told}: it is not shown to be as good, so nothing is written. "
            f"Leave {rival.name} in force, or grade more of its runs and of workers asked for the same tasks whole"
        )
    spent = [rival.dollars[held.ids[place]] for place in places if held.ids[place] in rival.dollars]
    cost = fmean(spent) / unit if spent and unit > 0 else 0.0
    met = Met(cost, cost, mean, *score_interval(theirs.tolist()))
    return Yardstick(f"in force: {rival.name}", mean, (met,), told), f"the conductor in force, {rival.name}, was {told}"


def _won(policy: Policy, held: Panel, seed: int) -> Floats:
    """[T]: what the kept rung at its most accurate comes to, each task by a fit that has not seen its content."""
    rungs = rungs_for(held)[0]
    kept = policy.kept if policy.kept in rungs else TABLE
    folds, won = folds_of(held.hashes, f"in force {seed}"), np.zeros(len(held))
    for fold in range(FOLDS):
        rest = np.flatnonzero(folds == fold)
        if not len(rest):
            continue
        fitted = fit(held.at(np.flatnonzero(folds != fold)), Wants(seed=seed), rungs)
        best = fitted.dials[kept].points[-1]
        won[rest] = play(fitted.parts[best.part], best.setting, held.at(rest).heard(fitted.hearing)).won
    return won


def _refusal(rival: Incumbent, why: str) -> ConfigError:
    return ConfigError(
        f"{rival.runs:,} runs of this journal were conducted by {rival.name}, with plans of several steps, and what is "
        f"learned from workers cannot be compared with it: {why}. Nothing is written: {_TO_DO}"
    )
