"""Conductors: what proposes the next plan, behind one method.

Invariant: a conductor only proposes. It sees the task, the pool's cards and the results of the rounds so far, and
returns a Proposal; what it asks a model for that goes through `Situation.ask`, inside the run's budget and journal.
Conductors hold no state between calls: a resumed run asks again with the same situation. Deliberately absent: access
to workers, the journal, or the ledger. The shipped fake is `ScriptedConductor` in `conductors.fixed_conductors`, with
plans given in advance. A `TurnRouter` does the same for one turn of a conversation whose tools the client calls.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from shikisha.core.budget import Caps
from shikisha.core.errors import PlanError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.kinds import Kind
from shikisha.core.messages import Json, ToolExchange
from shikisha.core.plan import Plan
from shikisha.core.run import RoundResult
from shikisha.core.task import Task
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card, Reply, Request

LEARNED = "learned:"  # before the name of a conductor, in that of the learner over it


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


@dataclass(frozen=True, slots=True)
class RunBounds:
    """What a run takes at most: rounds of one step each, the workers that its conductor asks besides, `inner` too."""

    rounds: int
    asks: tuple[Card, ...] = ()
    inner: Conductor | None = None


@runtime_checkable
class BoundedConductor(Protocol):
    """A conductor of one step a round that knows how long its runs are, for what they may cost at most."""

    def bounds(self, caps: Caps) -> RunBounds:
        """Return what a run takes at most within these caps."""
        ...


@runtime_checkable
class ReadingConductor(Protocol):
    """A conductor that reads tasks of the kinds that it was taught, and finds its own steps in their results.

    `purpose` says for what tasks it was made; `fallback` plans the tasks that it cannot read.
    """

    @property
    def purpose(self) -> str:
        """What tasks it was made for."""
        ...

    @property
    def fallback(self) -> Conductor | None:
        """The conductor of other tasks."""
        ...

    def unreadable(self, cards: Sequence[Card]) -> str | None:
        """Return why it refuses every task of this pool; None where it does not."""
        ...


@runtime_checkable
class SpeakingConductor(Protocol):
    """A conductor whose steps are turns of a conversation, which clients may continue."""

    spoken: bool


class Team(Protocol):
    """Members that a conductor brings, under names of their own (`TEAM/ROLE`), by which pools and journals know them.

    `conductors` are those that it asks in its turn.
    """

    @property
    def member_names(self) -> tuple[str, ...]:
        """The names of the members, in order."""
        ...

    @property
    def conductors(self) -> tuple[str, ...]:
        """The names of the conductors that it depends on."""
        ...

    def worker_of(self, name: str) -> str | None:
        """Return the configured worker behind a member; None for one that the team brings itself."""
        ...

    def card(self, name: str, find: Callable[[str], Card]) -> Card:
        """Return the card of a member; `find` returns that of a configured worker."""
        ...

    def member(self, name: str, find: Callable[[str], Member]) -> Member:
        """Return a member; `find` returns a configured worker."""
        ...


@dataclass(frozen=True, slots=True)
class TeamPlace:
    """Where a team is configured: file, folder of its paths, the cards of all workers, the rounds of a run."""

    name: str
    file: str
    folder: Path
    cards: Mapping[str, Card]
    rounds: int
    guarded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConductorParts:
    """What the conductor of a plug-in may be made of: configured workers and other conductors, by name.

    `pool` is what it is to conduct, if that is known; `options` are those of its name, and `team` its team, where its
    kind brings teams.
    """

    name: str
    pool: Pool | None
    member: Callable[[str], Member]
    conductor: Callable[[str, Pool | None], Conductor]
    options: Mapping[str, str] = field(default_factory=dict)
    team: Team | None = None


@dataclass(frozen=True, kw_only=True)
class ConductorKind(Kind[Conductor]):
    """A kind of conductor: `build(settings, parts)`, a table [conductors.NAME], and a name `KIND:TARGET?key=value`.

    `read(target, options)` returns the keys that such a name stands for. With `team`, the target names a table of
    [teams], whose keys are the settings, and which `team(settings, place)` builds.
    """

    read: Callable[[str, Mapping[str, str]], Mapping[str, object]] | None = None
    team: Callable[..., Team] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a router decides from. `exchanges` are all calls of the client's tools since the prompt, with their results.

    `number` counts the turns of this run from 0; `worker` made the one before, or is the plan's. `cards` are those that
    may make this one, `worker`'s first; `excluded` says of the others why they may not.
    """

    run: str
    number: int
    task: Task
    exchanges: tuple[ToolExchange, ...]
    worker: str
    cards: tuple[Card, ...]
    forced: bool = False
    excluded: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnChoice:
    """Who makes a turn, and why; `second` is asked as well, to compare. `facts` are numbers and names, no texts."""

    worker: str
    note: str = ""
    facts: Mapping[str, Json] = field(default_factory=dict)
    second: str = ""


class TurnRouter(Protocol):
    """Decides who makes a turn; it waits for nothing, and holds no run up."""

    def choose(self, turn: Turn) -> TurnChoice:
        """Return who makes the turn."""
        ...

    def settle(self, turn: Turn, replies: Mapping[str, Reply]) -> TurnChoice:
        """Return whose of two replies, by worker, goes on; or a third worker, who is asked for one."""
        ...
