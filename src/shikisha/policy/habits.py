"""Habits: what a policy's settings do with the tasks of each type, as counted on the log it was fitted on.

P settings, D task types and a last row for unknown ones, J workers. Invariants: everything is a count of tasks or a sum
of scores, so that a mixture's habits are its settings' by their shares; what workers say together was counted on all
tasks that both answered, whomever the policy would have asked. Deliberately absent: counting (`learn.habits`), words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from shikisha.policy.arrays import Floats
from shikisha.policy.dial import Mix, Point


@dataclass(frozen=True, slots=True)
class Habits:
    """`places` [P, 2] (part, setting); `tasks` [D + 1] of the log, and how many of them were `played`.

    `first`, `second`, `asked` [P, D + 1, J]: in how many of those played each worker is asked first, second, at all.
    `scored` and `won` [D + 1, J]: a worker's graded tasks, and the score it won in them. `agree` and `agreed`
    [D + 1, J, J]: in how many a worker and another gave the same answer, and the score it won; `differ` and
    `differed`: the same where the two gave different ones, and what the former won.
    """

    places: Floats
    tasks: Floats
    played: Floats
    first: Floats
    second: Floats
    asked: Floats
    scored: Floats
    won: Floats
    agree: Floats
    agreed: Floats
    differ: Floats
    differed: Floats

    def at(self, mix: Mix) -> "Asks | None":
        """Return who is asked by this mixture; None where its settings were not counted."""
        low, high = self._place(mix.low), self._place(mix.high)
        if low is None or high is None:
            return None
        first, second, asked = (
            (1 - mix.share) * held[low] + mix.share * held[high] for held in (self.first, self.second, self.asked)
        )
        return Asks(first, second, asked)

    def _place(self, point: Point) -> int | None:
        found = np.flatnonzero((self.places == (point.part, point.setting)).all(axis=1))
        return int(found[0]) if len(found) else None

    def held(self) -> Mapping[str, Floats]:
        """Return its arrays."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(cls, held: Mapping[str, Floats]) -> "Habits":
        """Return the habits that `held` wrote; KeyError where an array is missing, ValueError: one does not fit."""
        found = cls(**{each.name: held[each.name] for each in fields(cls)})
        (kinds, workers), settings = found.scored.shape, len(found.places)
        shapes = [(settings, 2), (kinds,), (kinds,), *[(settings, kinds, workers)] * 3]
        shapes += [*[(kinds, workers)] * 2, *[(kinds, workers, workers)] * 4]
        for each, shape in zip(fields(cls), shapes, strict=True):
            if held[each.name].shape != shape:
                raise ValueError(f"{each.name}: expected the shape {shape}, found {held[each.name].shape}")
        return found


@dataclass(frozen=True, slots=True)
class Asks:
    """[D + 1, J]: in how many tasks of each type a worker is asked first, second, and at all, in expectation."""

    first: Floats
    second: Floats
    asked: Floats
