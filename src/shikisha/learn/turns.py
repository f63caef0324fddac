"""Turns: which asks of a task were drawn in ignorance of its answers, and which only after some had been given.

A policy that decides step by step asks a second worker because of what the first one said. The first ask hangs on the
task alone: its outcomes, each over its probability, stand for all tasks (Horvitz and Thompson 1952), so they and no
others tell what a worker is worth alone. Over its own probability a later outcome stands for the tasks on which the
run came so far, and answers picked those; over the product of the probabilities up to it, it stands for all tasks, but
only as a part of that very sequence of asks (Precup, Sutton and Singh 2000), which is how policies that ask several are
judged (`offpolicy`). No weight turns it into an outcome of the worker alone: that takes the probability of being asked
after answers that were never given, and no journal has it. Besides, later outcomes are what models of success are
fitted on (`partial`), since these need not stand for all tasks: how the fitted policy is judged has to be unbiased.

Invariants: a sequence begins at turn 0, and counts as far as each turn has one ask with a probability; what a task has
beyond that (a stand-in, another run's answers) is outside of it. A panel without turns is returned as it is.
Deliberately absent: guessing the order of asks where nobody wrote it down.
"""

from dataclasses import replace

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Ints


def in_turn(panel: Panel) -> bool:
    """Whether the log says of some ask which one of its task it was."""
    return panel.turns is not None and bool((panel.turns[panel.there] >= 0).any())


def begins(panel: Panel) -> Flags:
    """[T]: tasks of which it is known how their first ask came about.

    Those that hold later ones only count among them: their first was of a worker that is not looked at.
    """
    turns, told = _turns(panel), panel.propensities > 0
    first, later = panel.there & (turns == 0), panel.there & (turns > 0)
    alone = (first.sum(axis=1) == 1) & (first & told).any(axis=1)
    found: Flags = np.where(first.any(axis=1), alone, later.any(axis=1))
    return found


def ordered(panel: Panel) -> Panel:
    """Return the panel with what belongs to each task's sequence of asks, and nothing else."""
    if not in_turn(panel):
        return panel
    turns, kept = _turns(panel), np.zeros(panel.there.shape, bool)
    goes_on = np.ones(len(panel), bool)
    for turn in range(len(panel.workers)):
        asked = panel.there & (turns == turn)
        goes_on &= (asked.sum(axis=1) == 1) & (asked & (panel.propensities > 0)).any(axis=1)
        kept |= asked & goes_on[:, None]
    return replace(panel, turns=turns).unrecorded(~kept)


def begun(panel: Panel) -> Panel:
    """Return the panel with the first ask of each task alone."""
    return panel.unrecorded(_turns(panel) != 0) if in_turn(panel) else panel


def _turns(panel: Panel) -> Ints:
    """[T, J]: the turns; whoever was asked alone was asked first."""
    if panel.turns is None:
        return np.full(panel.there.shape, -1, np.int64)
    alone = (panel.there.sum(axis=1) == 1)[:, None] & panel.there & (panel.turns < 0)
    return np.where(alone, 0, panel.turns)
