"""Retention: the texts of runs that are older than the configuration keeps them are erased, a few at a time.

Invariant: an erasure is the same as an admin's: journaled, and the hash chain stays verifiable; runs that are open or
wait are left alone until they are over. Deliberately absent: deleting events (who did what, and at which cost, stays).
"""

from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING

from shikisha.server.store import Filter

if TYPE_CHECKING:
    from shikisha.server.house import House

EVERY = 600.0  # seconds between two sweeps that found nothing more to do
_AT_ONCE = 50  # runs in one transaction
_DAY = 86400.0
ACTOR = "retention"


@dataclass(slots=True)
class Retaining:
    """When the next sweep is due (monotonic clock)."""

    due: float = 0.0

    async def look(self, house: "House") -> int:
        """Erase a batch where it is due; return how many runs lost their texts."""
        days = house.settings.keep_days
        if days is None or monotonic() < self.due:
            return 0
        old = Filter(until=time() - days * _DAY, limit=_AT_ONCE)
        gone = await house.store.sweep(old, actor=ACTOR, why=f"older than {days:g} days")
        if not gone.runs:
            self.due = monotonic() + EVERY
        return len(gone.runs)
