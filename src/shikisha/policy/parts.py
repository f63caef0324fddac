"""What can act on a state: the parts that policies are put together from.

A part decides by one of its settings, which stand for prices of accuracy in ascending or any other order. Invariants: a
part is pure; it asks nobody twice and nobody who is not there (`may_ask`); it ships an answer that was given, or none.
Deliberately absent: which setting to take (`dial`).
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from shikisha.policy.arrays import Floats
from shikisha.policy.batch import Acts, Seen

Held = Mapping[str, Floats]  # what a file keeps of a part: arrays by name


class Part(Protocol):
    """Something that acts: a table, a cascade, an induction."""

    kind: ClassVar[str]

    @property
    def settings(self) -> int:
        """How many settings it has."""
        ...

    def act(self, seen: Seen, setting: int) -> Acts:
        """Return what to do for each task."""
        ...

    def held(self) -> Held:
        """Return all there is to it, as arrays."""
        ...
