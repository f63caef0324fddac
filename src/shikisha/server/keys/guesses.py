"""How often an address may present something that is no key.

Invariant: bounded memory, whatever comes; a right key is never kept out by what others guess from the same address
(many clients may share a proxy's). Deliberately absent: blocking addresses; 256 bits are not guessed, and what is
spared is the log.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

_BURST = 20.0  # wrong keys at once
_A_SECOND = 1.0  # and then
_MOST = 10_000  # addresses


class Guesses:
    """Counts wrong keys by address, each with a bucket that empties with time."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wrong(self, address: str) -> float:
        """Count a wrong key; return the seconds after which this address may guess again, 0 when it still may."""
        level, now = self._level(address), self._clock()
        wait = max(0.0, (level + 1 - _BURST) / _A_SECOND)
        self._buckets[address] = (min(_BURST, level + 1), now)
        self._buckets.move_to_end(address)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return wait

    def _level(self, address: str) -> float:
        level, at = self._buckets.get(address, (0.0, 0.0))
        return max(0.0, level - (self._clock() - at) * _A_SECOND) if level else 0.0
