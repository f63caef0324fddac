"""How many requests a minute a key may make of this server.

Invariant: in any minute no more are let in than a minute's worth beyond what was saved up, which is at most a minute's
worth. Deliberately absent: a count that several servers share (each lets in what it is told to; a budget is shared).
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

_MINUTE = 60.0


@dataclass(slots=True)
class Rate:
    """A bucket of requests, which fills with time."""

    clock: Callable[[], float] = monotonic
    left: float | None = None
    at: float = 0.0

    def take(self, per_minute: int) -> float:
        """Take one request; return 0, or the seconds after which there will be one."""
        self._fill(per_minute)
        if self.left is not None and self.left >= 1:
            self.left -= 1
            return 0.0
        return _MINUTE / per_minute * (1 - (self.left or 0.0)) if per_minute else _MINUTE

    def headers(self, per_minute: int) -> dict[str, str]:
        """Return OpenAI's headers for it."""
        self._fill(per_minute)
        left = self.left or 0.0
        full = _MINUTE / per_minute * (per_minute - left) if per_minute else _MINUTE
        return {
            "x-ratelimit-limit-requests": str(per_minute),
            "x-ratelimit-remaining-requests": str(int(left)),
            "x-ratelimit-reset-requests": f"{full:.3f}s",
        }

    def _fill(self, per_minute: int) -> None:
        now = self.clock()
        gained = (now - self.at) / _MINUTE * per_minute
        self.left = float(per_minute) if self.left is None else min(float(per_minute), self.left + gained)
        self.at = now
