"""The router: the rule of a task's type, moved by what the prompt says; one worker is asked, and its answer shipped.

R(T) = success(type, M) + moved(prompt, M) - price * cost(type, M). For logs that have scores only, where nothing can be
learned from whether answers agree. Invariant: with maps that move nothing it does what its table does, to the task.
Deliberately absent: second opinions, and what a prompt does to cost.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOBODY, NOTHING, SHIP, Acts, Batch, Seen
from shikisha.policy.maps import Maps
from shikisha.policy.parts import Held
from shikisha.policy.table import Table

_TABLE, _MAPS = "table/", "maps/"


@dataclass(frozen=True, slots=True)
class Router:
    """A rule by type, whose prices are the settings, and maps by prompt."""

    kind: ClassVar[str] = "router"
    table: Table
    maps: Maps

    @property
    def settings(self) -> int:
        """One for each price."""
        return self.table.settings

    def success(self, batch: Batch) -> Floats:
        """Return [T, J], what each worker's success is thought to be."""
        success: Floats = self.table.success[batch.types] + self.maps.of(batch)
        return success

    def moved(self, batch: Batch) -> Floats:
        """Return [T, J], how far each task moves each worker's worth for its type."""
        moved: Floats = self.maps.of(batch) + self.table.moved(batch)
        return moved

    def act(self, seen: Seen, setting: int) -> Acts:
        """Ask the one that is worth most of those who are there; then ship what it said."""
        asked = seen.asked
        said = asked & (seen.codes > NOTHING)
        ship = np.where(said.any(axis=1), said.argmax(axis=1), NOBODY)
        ask = np.full(len(seen), SHIP, np.int64)
        rows = np.flatnonzero(~asked.any(axis=1))
        if len(rows) and seen.may_ask.any():
            ask[rows] = self._best(seen.batch.at(rows), setting, seen.may_ask)
        return Acts(ask, ship)

    def _best(self, batch: Batch, setting: int, may_ask: Flags) -> Ints:
        worth = self.table.worth(setting)[batch.types] + self.moved(batch)
        return np.asarray(np.where(may_ask, worth, -np.inf).argmax(axis=1), np.int64)

    def held(self) -> Held:
        """Return its arrays."""
        return {_TABLE + name: array for name, array in self.table.held().items()} | {
            _MAPS + name: array for name, array in self.maps.held().items()
        }

    @classmethod
    def of(cls, held: Held) -> "Router":
        """Return the router that `held` wrote."""
        return cls(Table.of(_below(_TABLE, held)), Maps.kept(_below(_MAPS, held)))


def _below(prefix: str, held: Held) -> dict[str, Floats]:
    return {name.removeprefix(prefix): array for name, array in held.items() if name.startswith(prefix)}
