"""Which tasks are learned from next: those near a 50 % success rate more often, each with its pool.

A window of the stream is looked through; an item's chance to be taken grows with p (1 - p), where p is how often plans
for tasks of its difficulty were right of late. `floor` of the chance is the same for all, so nothing is forgotten.
Invariants: what is drawn is a function of (stream, seed, what was told); `state` holds all of it, as JSON data, so a
resumed run draws what the unbroken one would have. Deliberately absent: difficulty by anything but a task's label.
"""

import random
from collections.abc import Callable, Sequence

from shikisha.errors import ConfigError
from shikisha.taskset import Item

_WINDOW = 4  # items looked at for each that is taken
_MEMORY = 0.95  # of what is known of a difficulty is kept at each telling
_UNKNOWN = 0.5

State = dict[str, object]


class Source:
    """Draws items from a stream, given by index; `near_half` False takes them as they come."""

    def __init__(
        self, stream: Callable[[int], Item], seed: int = 0, *, near_half: bool = True, floor: float = 0.3
    ) -> None:
        self._stream = stream
        self._seed = seed
        self._near_half = near_half
        self._floor = floor
        self._next = 0
        self.rates: dict[str, float] = {}

    def draw(self, count: int) -> list[Item]:
        """Return the next items; ConfigError for a task that cannot be graded or has a pool of one."""
        width = count * _WINDOW if self._near_half else count
        window = [_checked(self._stream(self._next + place)) for place in range(width)]
        dice = random.Random(f"{self._seed}:{self._next}")  # noqa: S311 - a curriculum, no secret
        self._next += width
        if not self._near_half:
            return window
        keyed = sorted(((dice.random() ** (1 / self._weight(item)), place) for place, item in enumerate(window)))
        return [window[place] for place in sorted(place for _, place in keyed[-count:])]

    def told(self, items: Sequence[Item], right: Sequence[float]) -> None:
        """Learn what share of the plans for each item was right."""
        for item, share in zip(items, right, strict=True):
            known = self.rates.get(item.difficulty, share)
            self.rates[item.difficulty] = _MEMORY * known + (1 - _MEMORY) * share

    def state(self) -> State:
        """Return everything that the next draws hang on."""
        return {"next": self._next, "rates": dict(self.rates)}

    def restore(self, state: State) -> None:
        """Go on where `state` was taken."""
        place, rates = state["next"], state["rates"]
        if not isinstance(place, int) or not isinstance(rates, dict):
            raise ConfigError(f"a sampler's state has a number `next` and a table `rates`, not {state!r}")
        self._next, self.rates = place, dict(rates)

    def _weight(self, item: Item) -> float:
        rate = self.rates.get(item.difficulty, _UNKNOWN)
        return self._floor + (1 - self._floor) * 4 * rate * (1 - rate)


def _checked(item: Item) -> Item:
    if item.pool is None or len(item.pool) < 2:
        raise ConfigError(
            f"task {item.task.id}: expected a pool of two workers or more to choose from, "
            f"found {0 if item.pool is None else len(item.pool)}"
        )
    return item
