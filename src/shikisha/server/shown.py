"""A plan that somebody was shown before anything was done, and wants performed just so.

Invariant: the run performs this plan and no other, once, whichever server performs it: the plan lies in the request
that is kept with the run. Deliberately absent: trust. The plan came back from a browser, so it is parsed as strictly as
any text, and the engine checks it against pool and caps as it does every plan.
"""

import json
from dataclasses import dataclass

from shikisha.conductor import Conductor, Proposal, Situation
from shikisha.parse import parse_plan
from shikisha.plan import Plan
from shikisha.server.orders import Api

_KEY = "shown_plan"


@dataclass(frozen=True, slots=True)
class Shown:
    """Proposes the plan that was shown, under the name of the conductor that made it."""

    plan: Plan
    name: str

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the plan in the first round; there is no other."""
        plan = Plan() if situation.rounds else self.plan
        return Proposal(plan, note="as it was shown and confirmed", final=True)


def wire_of(plan: Plan) -> str:
    """Return the request that is kept with a run of this plan."""
    return json.dumps({_KEY: plan.dumps()})


def conducting(conductor: Conductor, api: str, wire: str, pool_size: int) -> Conductor:
    """Return who conducts a run that came by this API with this request: the shown plan's, where there is one."""
    if api != Api.PAGE:
        return conductor
    told = json.loads(wire)
    plan = told.get(_KEY) if isinstance(told, dict) else None
    return Shown(parse_plan(plan, pool_size), conductor.name) if isinstance(plan, str) else conductor
