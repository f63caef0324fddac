"""Ways: how a setting goes about each type of task, read from a policy's habits.

Invariants: shares are of the tasks of the type; what agreement is worth was counted on every task that both workers
answered, so it does not hang on when the policy asks. Deliberately absent: playing (`habits`), and accuracy, which the
log cannot tell honestly of settings that were fitted on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shikisha.policy.arrays import Floats
from shikisha.policy.dial import Mix
from shikisha.policy.habits import Asks, Habits
from shikisha.policy.policy import Policy

UNKNOWN_TYPE = "(no type)"


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something was right, over how many tasks; None where it never was the case."""

    tasks: int
    right: float | None


@dataclass(frozen=True, slots=True)
class Way:
    """A type of task: who is asked first, in which share of the tasks a second one, who that mostly is.

    `share` is how often it is `first` who begins. Right: the first alone, where the second agrees, and where it differs
    the first and the second.
    """

    kind: str
    tasks: int
    first: str
    share: float
    asks: float
    more: float
    second: str | None
    alone: Rate
    agree: Rate
    differ: tuple[Rate, Rate]


def ways(policy: Policy, mix: Mix) -> tuple[Way, ...]:
    """Return how a setting goes about each type, the most frequent type first; nothing where it was not counted."""
    habits = policy.habits
    asks = habits.at(mix) if habits else None
    if habits is None or asks is None:
        return ()
    kinds = [*policy.types.names, UNKNOWN_TYPE]
    there = [place for place in np.argsort(-habits.tasks, kind="stable").tolist() if habits.played[place]]
    return tuple(_way(kinds[place], place, policy.names, habits, asks) for place in there)


def asked(policy: Policy, mix: Mix) -> Mapping[str, float] | None:
    """Return in which share of all tasks each worker is asked; None where that was not counted."""
    asks = policy.habits.at(mix) if policy.habits else None
    if policy.habits is None or asks is None:
        return None
    shares = asks.asked.sum(axis=0) / max(1.0, float(policy.habits.played.sum()))
    return dict(zip(policy.names, shares.tolist(), strict=True))


def _way(kind: str, place: int, names: tuple[str, ...], habits: Habits, asks: Asks) -> Way:
    played = float(habits.played[place])
    first = int(asks.first[place].argmax())
    seconds = asks.second[place].copy()
    more = float(seconds.sum()) / played
    seconds[first] = 0.0  # who is asked second where somebody else began
    second = int(seconds.argmax()) if seconds.any() else None
    return Way(
        kind,
        round(float(habits.tasks[place])),
        names[first],
        float(asks.first[place, first]) / played,
        float(asks.asked[place].sum()) / played,
        more,
        None if second is None else names[second],
        _rate(habits.scored[place, first], habits.won[place, first]),
        _together(habits.agree, habits.agreed, place, first, second),
        (
            _together(habits.differ, habits.differed, place, first, second),
            _together(habits.differ, habits.differed, place, second, first),
        ),
    )


def _together(times: Floats, won: Floats, place: int, one: int | None, other: int | None) -> Rate:
    if one is None or other is None:
        return Rate(0, None)
    return _rate(times[place, one, other], won[place, one, other])


def _rate(times: float, won: float) -> Rate:
    return Rate(round(float(times)), float(won) / float(times) if times else None)
