"""A run that this process performs: who listens to it, what it has used, and whether somebody wants it to stop.

Deliberately absent: performing it (`house`).
"""

import asyncio
from dataclasses import dataclass, field

from shikisha.budget import NOTHING, Amount
from shikisha.run import Run
from shikisha.server.live import Live
from shikisha.server.purses import KeyPurse


@dataclass(slots=True)
class Running:
    """A run under way. `used` counts its child runs' calls too (dollars None: nobody can say), as does `uncertain`."""

    live: Live
    purse: KeyPurse
    used: Amount = NOTHING
    uncertain: Amount = NOTHING
    stopped: bool = False  # cancelled for good; otherwise an interrupted run is taken up again
    acknowledged: bool = False  # its start is durable
    expelled: bool = False  # another server performs it now
    answered: bool = False  # something that it waits for came while it was still being performed
    known: set[str] = field(default_factory=set)  # the questions whose answers it was performed with
    task: "asyncio.Task[Run | None] | None" = field(default=None, repr=False)
    failure: BaseException | None = None

    async def hold(self, need: Amount, worker: str) -> None:
        """Hold what a call may use in the budget that the run shares (the engine's Purse)."""
        await self.purse.hold(need, worker)

    def settle(self, held: Amount, used: Amount, uncertain: Amount = NOTHING) -> None:
        """Release what was held, and count what was used or may have been, for the budget and for the run."""
        self.purse.settle(held, used, uncertain)
        self.used += used
        self.uncertain += uncertain
