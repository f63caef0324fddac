"""How often an address may present something that is no key.

Invariant: bounded memory, whatever comes; an address that knows a key which we saw lately is never kept out by what
others guess from there. Deliberately absent: blocking addresses (256 bits are not guessed; what is spared is the
database and the log).
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

    def wait(self, address: str) -> float:
        """Return the seconds after which this address may guess again; 0 when it may now."""
        return max(0.0, (self._level(address) + 1 - _BURST) / _A_SECOND)

    def wrong(self, address: str) -> None:
        """Count a wrong key."""
        self._buckets[address] = (min(_BURST, self._level(address) + 1), self._clock())
        self._buckets.move_to_end(address)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)

    def _level(self, address: str) -> float:
        level, at = self._buckets.get(address, (0.0, 0.0))
        return max(0.0, level - (self._clock() - at) * _A_SECOND) if level else 0.0
