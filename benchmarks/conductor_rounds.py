"""Recursion in `conductor.py`: the checkpoint is asked once more with its first round in view, and keeps or revises.

Invariants: a second round sees what the first came to and never whether that was right; the first round is performed
again to the same results; a second text that is no plan leaves the first answer, and is counted. Deliberately absent:
third rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conductor_figures import Estimate, Lots
from conductor_played import Author, Contender, Floats, performed, prompts
from shikisha.core.run import RoundResult
from shikisha.simulation.demo_run import SimulatedRun
from shikisha.simulation.task_generator import SimulatedTask


@dataclass(frozen=True)
class Rounds:
    """What one round came to and what two did, over the same tasks; `revised` [S, T] where there was a second plan."""

    one: Contender
    two: Contender
    revised: Floats
    unread: Floats

    def figures(self, lots: Lots) -> dict[str, Estimate]:
        """Return what a second round changes, of all tasks."""
        repaired, broken = (1 - self.one.right) * self.two.right, self.one.right * (1 - self.two.right)
        wrong = 1 - self.one.right
        return {
            "right after one round": lots.ratio(self.one.right),
            "right after two rounds": lots.ratio(self.two.right),
            "repaired": lots.ratio(repaired),
            "broken": lots.ratio(broken),
            "repaired less broken": lots.less(repaired, broken),
            "calls, of one round's": lots.ratio(self.two.calls, self.one.calls),
            "dollars, of one round's": lots.ratio(self.two.dollars, self.one.dollars),
            "revised": lots.ratio(self.revised),
            "revised, of the wrong": lots.ratio(self.revised * wrong, wrong),
            "revised, of the right": lots.ratio(self.revised * self.one.right, self.one.right),
            "second texts that are no plan": lots.ratio(self.unread),
        }


def recursion(found: Sequence[SimulatedTask], one: Contender, authors: Sequence[Author]) -> Rounds:
    """Ask each author again after what its first plans came to; `one` holds those, a row for each author."""
    rows = [_again(found, row, author) for row, author in zip(one.trials, authors, strict=True)]
    two = Contender([trials for trials, _ in rows])
    revised = [[len(trial.run.rounds) > 1 and bool(trial.run.rounds[1].steps) for trial in row] for row in two.trials]
    unread = [
        [asked and not _second_plan(trial) for trial, asked in zip(row, gone_on, strict=True)] for row, gone_on in rows
    ]
    return Rounds(one, two, np.array(revised, float), np.array(unread, float))


def _again(
    found: Sequence[SimulatedTask], row: Sequence[SimulatedRun], author: Author
) -> tuple[list[SimulatedRun], list[bool]]:
    """Return the trials of two rounds, and who was asked for a second: those whose first text was a plan."""
    past = [came(trial) for trial in row]
    shown = [(item, gone) for item, gone in zip(found, past, strict=True) if gone]
    said = iter(author(prompts([item for item, _ in shown], [gone for _, gone in shown])))
    texts = [
        (first_text(trial), next(said)) if gone else (first_text(trial),) for trial, gone in zip(row, past, strict=True)
    ]
    return performed(found, texts), [bool(gone) for gone in past]


def came(trial: SimulatedRun) -> tuple[RoundResult, ...]:
    """Return the first round as the next briefing shows it; nothing where there was no plan."""
    turn = trial.run.rounds[0] if trial.run.rounds else None
    results = tuple(result for result in turn.results if result is not None) if turn is not None else ()
    if turn is None or turn.plan is None or len(results) < len(turn.plan):
        return ()
    return (RoundResult(turn.plan, results),)


def first_text(trial: SimulatedRun) -> str:
    """Return what the first plan was written as."""
    planned = trial.run.rounds[0].proposed if trial.run.rounds else None
    return planned.text if planned is not None else ""


def _second_plan(trial: SimulatedRun) -> bool:
    return len(trial.run.rounds) > 1 and trial.run.rounds[1].proposed is not None
