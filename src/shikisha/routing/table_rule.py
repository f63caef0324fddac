"""The table rule: for each task type, ask the worker with the highest utility at a price and ship its answer.

Utility(T, M) = success(T, M) + speed / latency(M) - price * cost(T, M) - congestion(M), by type and worker
(ToolOrchestra's preference, arXiv 2511.21689). Invariant: exactly one worker is asked, and the choice depends on the
task alone.
"""

from collections.abc import Sequence
from hashlib import shake_256
from typing import ClassVar

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.state import NO_ANSWER, NO_WORKER, SHIP, Actions, ArrayMap, DecisionState, TaskBatch


@dataclass(frozen=True, slots=True)
class TableRule:
    """[D + 1, J] each, the last row for unknown types: `success` in [0, 1], `cost` in units.

    `prices` [L] are the settings; `bonus` [L, J] is the value of speed less the congestion offset. `sway` is the range
    of random offsets by task: 0 without load limits, which require splitting a type.
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
        """Return [D + 1, J], the utility of each worker for each type."""
        worth: Floats = self.success + self.bonus[setting] - self.prices[setting] * self.cost
        return worth

    def task_offsets(self, batch: TaskBatch) -> Floats:
        """Return [T, J] (or [1, 1] without load limits), the random offset of each worker's utility."""
        return self.sway * random_offsets(batch.prompts, len(self.success.T)) if self.sway else np.zeros((1, 1))

    def choose(
        self, batch: TaskBatch, setting: int, may_ask: Flags | None = None, pressure: Floats | None = None
    ) -> Ints:
        """Return [T], the available worker with the highest utility less its pressure; SHIP when there is none."""
        worth = self.worth(setting)[batch.types] + self.task_offsets(batch) - (0.0 if pressure is None else pressure)
        available = np.ones(worth.shape[1], bool) if may_ask is None else may_ask
        return np.where(available.any(), np.where(available, worth, -np.inf).argmax(axis=1), SHIP)

    def act(self, state: DecisionState, setting: int) -> Actions:
        """Ask the available worker with the highest utility, then ship its answer."""
        asked = state.asked
        answered = asked & (state.codes > NO_ANSWER)
        ship = np.where(answered.any(axis=1), answered.argmax(axis=1), NO_WORKER)
        chosen = self.choose(state.batch, setting, state.may_ask, state.pressure)
        return Actions(np.where(asked.any(axis=1), SHIP, chosen), ship)

    def to_arrays(self) -> ArrayMap:
        """Return its arrays."""
        arrays = {"success": self.success, "cost": self.cost, "bonus": self.bonus, "prices": self.prices}
        return arrays | {"sway": np.array([self.sway])}

    @classmethod
    def of(cls, arrays: ArrayMap) -> "TableRule":
        """Return the table with these arrays."""
        return cls(arrays["success"], arrays["cost"], arrays["bonus"], arrays["prices"], arrays["sway"].item())


def random_offsets(prompts: Sequence[str], workers: int) -> Floats:
    """Return [T, J] numbers from -0.5 to 0.5, a deterministic hash of each prompt."""
    digest = b"".join(shake_256(prompt.encode()).digest(4 * workers) for prompt in prompts)
    return np.frombuffer(digest, ">u4").reshape(len(prompts), workers) / 2**32 - 0.5
