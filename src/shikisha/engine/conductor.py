"""Conductors: what proposes the next plan, behind one method.

Invariant: a conductor only proposes. It sees the task, the pool's cards and the results of the rounds so far, and
returns a Proposal; what it asks a model for that goes through `Situation.ask`, inside the run's budget and journal.
Conductors hold no state between calls: a resumed run asks again with the same situation. Deliberately absent: access
to workers, the journal, or the ledger. The shipped fake is `ScriptedConductor` in `conductors.fixed_conductors`, with
plans given in advance.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from shikisha.core.budget import Caps
from shikisha.core.errors import PlanError
from shikisha.core.plan import Plan
from shikisha.core.run import RoundResult
from shikisha.core.task import Task
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Reply, Request


@dataclass(frozen=True, slots=True)
class Rejection:
    """A text that was no plan, and why."""

    text: str
    what: str
    where: str


class NoPlan(PlanError):
    """A conductor can make no plan; `rejected` are the texts that it could not read as one."""

    def __init__(self, what: str, where: str, rejected: Sequence[Rejection] = ()) -> None:
        super().__init__(what, where)
        self.rejected = tuple(rejected)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan; the text it was written as; `note`, why; `version` of the policy; `final`: no further round is wanted.

    `rejected` are earlier texts that were no plans; `substituted` names the fallback that made this plan. With an
    empty plan, `keeps` says which round's answer is the run's (None: the latest). `propensity` is the probability with
    which this plan was drawn from others (None: it was not drawn); `beside` has, by conductor, what others would have
    proposed. `joins`: the last step only brings together the answers of the steps that it sees, so that no worker need
    be called for it where these agree. `partial`: what the round brings are parts of the work, and none of it is ever
    the run's answer.
    """

    plan: Plan
    text: str = ""
    note: str = ""
    version: str = ""
    final: bool = False
    rejected: tuple[Rejection, ...] = ()
    substituted: str | None = None
    keeps: int | None = None
    propensity: float | None = None
    beside: Mapping[str, str] = field(default_factory=dict)
    joins: bool = False
    partial: bool = False


ModelCall: TypeAlias = Callable[[Member, Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Situation:
    """What a conductor decides from.

    `cards` are the pool's cards in ordinal order, `rounds` what has happened, `left` what the budget still allows.
    `loads` has, by worker with a limit, its calls by its places over all runs (1 or more: the next call would wait).
    `ask` calls a model that the conductor brings along (not a worker of the pool); WorkerError when it gives no answer.
    """

    task: Task
    cards: tuple[Card, ...]
    rounds: tuple[RoundResult, ...] = ()
    left: Caps = Caps()
    ask: ModelCall | None = field(default=None, compare=False)
    loads: Mapping[str, float] = field(default_factory=dict, compare=False)


class Conductor(Protocol):
    """The one method, and the name that journals carry."""

    @property
    def name(self) -> str:
        """The conductor's name, as configured (`fixed:vote`, `rules:triage.toml`, `lm:planner`)."""
        ...

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the next plan; an empty plan ships the answer at hand. PlanError when no plan can be made."""
        ...
