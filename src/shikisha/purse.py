"""What a run may use beyond its own caps: a budget that it shares with other runs (a key's, a tenant's, a day's).

Invariant 3: what a call may use at most is held here before the call, as in the run's own ledger, and settled after it;
a purse that cannot say whether there is room refuses (it fails closed). Holding may wait for a store; settling never
does. Deliberately absent: whose budget it is and where it is kept (whoever serves runs brings a purse).
"""

from typing import Protocol

from shikisha.budget import NOTHING, Amount


class Purse(Protocol):
    """A shared budget."""

    async def hold(self, need: Amount, worker: str) -> None:
        """Hold what a call to this worker may use at most; CapReached when there is no room, or nobody can say."""
        ...

    def settle(self, held: Amount, used: Amount, uncertain: Amount = NOTHING) -> None:
        """Release what was held for a call and count what it used, and what it may have used besides."""
        ...


class OpenPurse:
    """A purse without a bottom: runs have their own caps only."""

    async def hold(self, need: Amount, worker: str) -> None:
        """Hold nothing."""

    def settle(self, held: Amount, used: Amount, uncertain: Amount = NOTHING) -> None:
        """Count nothing."""
