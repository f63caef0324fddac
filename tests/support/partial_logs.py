"""Makers of partial logs: what is left of a full panel when somebody draws whom to ask, and writes the chances down."""

from dataclasses import replace

import numpy as np
import panels

from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix


def one_each(held: OutcomeMatrix, chances: Floats, seed: int = 0) -> OutcomeMatrix:
    """Ask one worker for each task, with these chances [T, J] (or [J])."""
    shares = np.broadcast_to(chances, held.there.shape)
    drawn = _random(seed).random((len(held), 1))
    chosen = np.minimum((shares.cumsum(axis=1) < drawn).sum(axis=1), shares.shape[1] - 1)
    return asked(held, np.arange(shares.shape[1]) == chosen[:, None], shares)


def each_apart(held: OutcomeMatrix, chances: Floats, seed: int = 0) -> OutcomeMatrix:
    """Ask each worker or not, whoever else is asked, with these chances [T, J] (or [J])."""
    shares = np.broadcast_to(chances, held.there.shape)
    return asked(held, _random(seed).random(shares.shape) < shares, shares)


def second_opinions(
    held: OutcomeMatrix, first: int, second: int, seed: int = 0, chances: tuple[float, float] = (0.2, 0.8)
) -> OutcomeMatrix:
    """Ask one worker, then another with these chances where the first is right, or wrong; tell whose turn it was."""
    random = _random(seed)
    shares = np.ones(held.there.shape)
    shares[:, second] = np.where(held.won[:, first] > 0, *chances)
    there = np.zeros(held.there.shape, bool)
    there[:, first], there[:, second] = True, random.random(len(held)) < shares[:, second]
    turns = np.full(held.there.shape, -1, np.int64)
    turns[:, first], turns[:, second] = 0, np.where(there[:, second], 1, -1)
    return asked(replace(held, turns=turns), there, shares)


def step_by_step(
    held: OutcomeMatrix, first: Floats, seed: int = 0, goes_on: tuple[float, float] = (0.2, 0.9)
) -> OutcomeMatrix:
    """Ask one worker after another: the first with these chances [T, J], each other evenly; tell chances and turns.

    How probably it goes on hangs on whether somebody that was asked is right, or nobody: answers pick who is asked.
    """
    random, rows = _random(seed), np.arange(len(held))
    shares = np.broadcast_to(first, held.there.shape)
    turns, chances = np.full(held.there.shape, -1, np.int64), np.ones(held.there.shape)
    on, goes = np.ones(len(held), bool), np.ones(len(held))
    for turn in range(len(held.workers)):
        drawn = random.random((len(held), 1)) * shares.sum(axis=1, keepdims=True)
        chosen = (shares.cumsum(axis=1) <= drawn).sum(axis=1)
        on = on & (random.random(len(held)) < goes)
        turns[rows[on], chosen[on]] = turn
        chances[rows, chosen] = goes * shares[rows, chosen] / shares.sum(axis=1)
        right = (held.won * (turns >= 0)).any(axis=1)
        goes, shares = np.where(right, *goes_on), np.where(turns >= 0, 0.0, 1.0)
    return asked(replace(held, turns=turns), turns >= 0, chances)


def asked(held: OutcomeMatrix, there: Flags, chances: Floats) -> OutcomeMatrix:
    """Return the log in which these pairs were asked, each with this chance."""
    return panels.missing(replace(held, propensities=np.array(chances, float)), ~there)


def untold(held: OutcomeMatrix) -> OutcomeMatrix:
    """Return the log without its propensities."""
    return replace(held, propensities=np.full(held.there.shape, np.nan))


def _random(seed: int) -> np.random.Generator:
    """Return draws that have nothing to do with those that made a panel of the same seed."""
    return np.random.default_rng([seed, 1952])
