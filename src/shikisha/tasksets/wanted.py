"""What is wanted of a taskset: which split, how many tasks, from which seed.

Invariant: none of this changes what a task is or which split it is in, the shares aside. Deliberately absent: where a
set's files are (`load`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shikisha.errors import ConfigError
from shikisha.taskset import DEFAULT_SHARES, Item, Split, Taskset, split_of

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Wanted:
    """`split` None: all of it; `count` None: all tasks, else a sample that `seed` chooses.

    `shares` are those of the splits by content hash. `checker` is for a user's own rows that bring none:
    `{"checker": KIND, ...}` with the kind's settings. The rehearsal, which has no end, makes 100 tasks by default, and
    its seed says which.
    """

    split: Split | None = None
    count: int | None = None
    seed: int = 0
    shares: Mapping[Split, float] = field(default_factory=lambda: DEFAULT_SHARES)
    checker: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if any(share < 0 for share in self.shares.values()) or abs(sum(self.shares.values()) - 1) > _ROUNDING:
            raise ConfigError(f"shares of splits: expected numbers from 0 that add up to 1, found {dict(self.shares)}")
        if self.count is not None and self.count < 1:
            raise ConfigError(f"number of tasks: expected 1 or more, found {self.count}")

    def of(self, whole: Taskset) -> Taskset:
        """Return what is wanted of a whole set; ConfigError when its split is empty."""
        if self.shares != DEFAULT_SHARES:
            whole = Taskset(whole.name, (self._settled(item) for item in whole), whole.notes)
        part = whole if self.split is None else whole.only(self.split)
        return part if self.count is None else part.sample(self.count, self.seed)

    def _settled(self, item: Item) -> Item:
        return item if item.given is not None else replace(item, given=split_of(item.task, self.shares))
