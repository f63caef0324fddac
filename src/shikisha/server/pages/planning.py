"""Asking a conductor for a plan and performing nothing: within the caps and the key's budget, as for any run.

Invariant: what planning costs is the asking key's, held before each call; nothing is planned beyond the first round.
Deliberately absent: the journal. Nothing was decided yet; the run that performs the plan writes it down.
"""

from dataclasses import dataclass

from shikisha.conductor import Conductor, Proposal, Situation
from shikisha.errors import PlanError
from shikisha.plan import Plan
from shikisha.recorder import MemoryRecorder
from shikisha.server.house import House
from shikisha.server.orders import Order
from shikisha.server.pages import view_try
from shikisha.server.pages.view_try import PlanView, Used


@dataclass(slots=True)
class _Curious:
    """Asks a conductor, keeps what it proposes first, and has nothing performed."""

    conductor: Conductor
    proposal: Proposal | None = None

    @property
    def name(self) -> str:
        return self.conductor.name

    async def propose(self, situation: Situation) -> Proposal:
        proposal = await self.conductor.propose(situation)
        proposal.plan.check_pool(len(situation.cards))
        self.proposal = proposal
        return Proposal(Plan(), final=True)


async def plan(house: House, order: Order) -> PlanView:
    """Return the plan that would be performed for this order; PlanError when there is none."""
    pool, conductor = house.cast(order.conductor, order.pool)
    curious = _Curious(conductor)
    purse = await house.purses.admit(order.by)
    try:
        purse.begun()
        engine = house.engine.lent(purse=purse).apart(MemoryRecorder())
        run = await engine.run(order.task, pool, curious, order.caps)
    finally:
        purse.over()
    if curious.proposal is None:
        why = run.finished.why if run.finished else "it waits for a person, and planning ahead cannot wait"
        raise PlanError(why, conductor.name)
    used = run.charged
    return view_try.view(curious.proposal, pool.names, Used(conductor.name, used.tokens, used.dollars))
