"""The rule: for each task type the worker that is worth most at a price, asked once, and its answer shipped.

R(T) = success(T, M) + speed / latency(M) - price * cost(T, M) - crowding(M), by type and by worker (ToolOrchestra's
preference, arXiv 2511.21689, in one line). Invariant: one worker is asked, whatever it says; which one hangs on the
task alone. Deliberately absent: second opinions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import shake_256
from typing import ClassVar

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.state import NO_ANSWER, NO_WORKER, SHIP, Actions, ArrayMap, DecisionState, TaskBatch


@dataclass(frozen=True, slots=True)
class TableRule:
    """[D + 1, J] each, the last row for unknown types: `success` in [0, 1], `cost` in units.

    `prices` [L] are the settings; `bonus` [L, J] is what speed is worth less what crowding takes away. `sway` is how
    far a task's own lot moves a worker's worth: 0, unless workers have load limits, for which a type has to be shared.
    """

    kind: ClassVar[str] = "table"
    success: Floats
    cost: Floats
    bonus: Floats
    prices: Floats
    sway: float = 0.0

    @property
    def settings(self) -> int:
        """One for each price."""
        return len(self.prices)

    def worth(self, setting: int) -> Floats:
        """Return [D + 1, J], what each worker is worth for each type."""
        worth: Floats = self.success + self.bonus[setting] - self.prices[setting] * self.cost
        return worth

    def task_offsets(self, batch: TaskBatch) -> Floats:
        """Return [T, J] (or [1, 1] without load limits), how far each task's lot moves each worker's worth."""
        return self.sway * random_offsets(batch.prompts, len(self.success.T)) if self.sway else np.zeros((1, 1))

    def choose(self, batch: TaskBatch, setting: int, may_ask: Flags | None = None) -> Ints:
        """Return [T], who is worth most of those who are there; SHIP when nobody is."""
        worth = self.worth(setting)[batch.types] + self.task_offsets(batch)
        there = np.ones(worth.shape[1], bool) if may_ask is None else may_ask
        return np.where(there.any(), np.where(there, worth, -np.inf).argmax(axis=1), SHIP)

    def act(self, seen: DecisionState, setting: int) -> Actions:
        """Ask the one that is worth most of those who are there; then ship what it said."""
        asked = seen.asked
        said = asked & (seen.codes > NO_ANSWER)
        ship = np.where(said.any(axis=1), said.argmax(axis=1), NO_WORKER)
        return Actions(np.where(asked.any(axis=1), SHIP, self.choose(seen.batch, setting, seen.may_ask)), ship)

    def to_arrays(self) -> ArrayMap:
        """Return its arrays."""
        arrays = {"success": self.success, "cost": self.cost, "bonus": self.bonus, "prices": self.prices}
        return arrays | {"sway": np.array([self.sway])}

    @classmethod
    def of(cls, held: ArrayMap) -> "TableRule":
        """Return the table that `held` wrote."""
        return cls(held["success"], held["cost"], held["bonus"], held["prices"], held["sway"].item())


def random_offsets(prompts: Sequence[str], workers: int) -> Floats:
    """Return [T, J] numbers from -0.5 to 0.5 that are drawn by each prompt, the same everywhere and always."""
    drawn = b"".join(shake_256(prompt.encode()).digest(4 * workers) for prompt in prompts)
    return np.frombuffer(drawn, ">u4").reshape(len(prompts), workers) / 2**32 - 0.5
