"""The rule: for each task type the worker that is worth most at a price, asked once, and its answer shipped.

R(T) = success(T, M) + speed / latency(M) - price * cost(T, M) - crowding(M), by type and by worker (ToolOrchestra's
preference, arXiv 2511.21689, in one line). Invariant: one worker is asked, whatever it says. Deliberately absent:
second opinions.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shikisha.policy.arrays import Floats
from shikisha.policy.batch import NOBODY, NOTHING, SHIP, Acts, Seen
from shikisha.policy.parts import Held


@dataclass(frozen=True, slots=True)
class Table:
    """[D + 1, J] each, the last row for unknown types: `success` in [0, 1], `cost` in units.

    `bonus` [J] is what speed is worth and crowding takes away; `prices` [L] are the settings.
    """

    kind: ClassVar[str] = "table"
    success: Floats
    cost: Floats
    bonus: Floats
    prices: Floats

    @property
    def settings(self) -> int:
        """One for each price."""
        return len(self.prices)

    def worth(self, setting: int) -> Floats:
        """Return [D + 1, J], what each worker is worth for each type."""
        worth: Floats = self.success + self.bonus - self.prices[setting] * self.cost
        return worth

    def act(self, seen: Seen, setting: int) -> Acts:
        """Ask the one that is worth most of those who are there; then ship what it said."""
        worth = np.where(seen.may_ask, self.worth(setting)[seen.batch.types], -np.inf)
        best = np.where(seen.may_ask.any(), worth.argmax(axis=1), SHIP)
        asked = seen.asked
        said = asked & (seen.codes > NOTHING)
        ship = np.where(said.any(axis=1), said.argmax(axis=1), NOBODY)
        return Acts(np.where(asked.any(axis=1), SHIP, best), ship)

    def held(self) -> Held:
        """Return its arrays."""
        return {"success": self.success, "cost": self.cost, "bonus": self.bonus, "prices": self.prices}

    @classmethod
    def of(cls, held: Held) -> "Table":
        """Return the table that `held` wrote."""
        return cls(held["success"], held["cost"], held["bonus"], held["prices"])
