"""Named topologies: which worker does which step and sees which results, as pure functions that build a plan.

A `RoleAssignment` answers which worker takes a role: the one that the options name, or a default by price. The most
expensive worker judges, the cheapest does the bulk. Only workers that take instructions in words get a role by default;
tools and people need to be named, and a `vote` worker is the default join. Deliberately absent: the question's text,
which every worker sees anyway; results (see `CascadeConductor`); and a cap on steps, which the engine enforces.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import TypeAlias

from shikisha.core.budget import Price, Usage
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.plan import ANSWER, ANSWER_ALONE, Plan, Step
from shikisha.core.visibility import PART_NOW
from shikisha.engine.worker import Card

VOTE = "vote"
_NON_TEXT_KINDS = frozenset({VOTE, "human", "http", "local", "mcp", "python", "tool"})
_MOST_PARTS = 99
# To compare prices: as much in as out.
_TYPICAL_USAGE = Usage(1_000, 1_000)

_WHOLE_TASK_PHRASES = frozenset(
    {ANSWER.casefold().rstrip("."), ANSWER_ALONE.casefold().rstrip("."), "solve the whole question"}
)


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """`workers` by name and in order, `n` steps to share out among them, and a worker for each of the `roles`.

    `table`: they are written as a table, whose key for a role is `roles.NAME`.
    """

    workers: tuple[str, ...] = ()
    n: int | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    table: bool = False

    def __post_init__(self) -> None:
        if self.n is not None and not 1 <= self.n <= _MOST_PARTS:
            raise ConfigError(f"n is a whole number from 1 to {_MOST_PARTS}, not {self.n}")

    @classmethod
    def parse(cls, query: str) -> "TopologyOptions":
        """Read `workers=a,b&n=3&judge=c`; every other key names a role."""
        given: dict[str, str] = {}
        for part in query.split("&") if query else ():
            key, _, value = part.partition("=")
            if not key or not value or key in given:
                raise ConfigError(f"options are written key=value&key=value, each key once: {part!r} is not")
            given[key] = value
        workers = tuple(given.pop("workers").split(",")) if "workers" in given else ()
        return cls(workers, _parse_count(given.pop("n", None)), given)


def _parse_count(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_PARTS))):
        raise ConfigError(f"n is a whole number from 1 to {_MOST_PARTS}, not {text!r}")
    return int(text)


NO_TOPOLOGY_OPTIONS = TopologyOptions()


def reject_unused_options(name: str, options: TopologyOptions, roles: Sequence[str], takes: Sequence[str]) -> None:
    """Raise UnknownName for options that the topology of this name would ignore."""
    place = "roles." if options.table else ""
    known = [*(f"{place}{role}" for role in roles), *takes]
    given = [f"{place}{role}" for role in options.roles]
    for option in (*given, *(["workers"] if options.workers else []), *(["n"] if options.n else [])):
        if option not in known:
            raise UnknownName(f"option of {name!r}", option, known)


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """The pool's cards and the options: which worker takes which role, by ordinal."""

    cards: tuple[Card, ...]
    options: TopologyOptions = NO_TOPOLOGY_OPTIONS

    def ordinal(self, name: str) -> int:
        """Return the ordinal of the worker of exactly this name."""
        names = [card.name for card in self.cards]
        if name not in names:
            raise UnknownName("worker", name, names)
        return names.index(name)

    @property
    def text_workers(self) -> tuple[int, ...]:
        """The workers that take instructions in words; all workers where there is none."""
        everyone = range(len(self.cards))
        return tuple(i for i in everyone if self.cards[i].kind not in _NON_TEXT_KINDS) or tuple(everyone)

    @property
    def by_price(self) -> tuple[int, ...]:
        """The text workers, cheapest first; the earlier of equals; those without a known price last."""
        return tuple(sorted(self.text_workers, key=self._dollars))

    @property
    def cheapest(self) -> int:
        """The cheapest text worker."""
        return self.by_price[0]

    @property
    def most_expensive(self) -> int:
        """The most expensive text worker, which decides where no other worker is named."""
        highest = self._dollars(self.by_price[-1])
        return next(i for i in self.by_price if self._dollars(i) == highest)

    @property
    def joiner(self) -> int:
        """The pool's vote worker if it has one, else the most expensive text worker."""
        votes = (i for i, card in enumerate(self.cards) if card.kind == VOTE)
        return next(votes, self.most_expensive)

    def role(self, role: str, default: int) -> int:
        """Return the worker named for this role, or the default."""
        name = self.options.roles.get(role)
        return default if name is None else self.ordinal(name)

    def members(self, count: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return the workers for equal steps: those named, else the default, else the text workers.

        Their number is `n`, else the number of names, else `count`; workers repeat where there are too few.
        """
        named = tuple(map(self.ordinal, self.options.workers))
        parts = self.options.n or len(named) or count
        return tuple(islice(cycle(named or default or self.text_workers), parts))

    def pair(self) -> tuple[int, int]:
        """Return two workers for two equal steps; one worker does both where there is no other."""
        if len(self.options.workers) > 2:
            raise ConfigError(f"two workers play here, not {len(self.options.workers)}")
        one, other = (self.members(2) * 2)[:2]
        return one, other

    def _dollars(self, ordinal: int) -> float:
        price: Price | None = self.cards[ordinal].price
        return float("inf") if price is None else price.of(_TYPICAL_USAGE)


def asks_whole(step: Step, prompt: str) -> bool:
    """Whether a step asks its worker for the whole task: its subtask says only that, and it sees no results."""
    told = " ".join(step.subtask.removeprefix(PART_NOW).split()).casefold()
    return not step.access and (told.rstrip(".") in _WHOLE_TASK_PHRASES or told == " ".join(prompt.split()).casefold())


def single(roles: RoleAssignment) -> Plan:
    """One step for the whole question."""
    return Plan((Step(ANSWER, roles.role("worker", roles.most_expensive)),))


def chain(roles: RoleAssignment) -> Plan:
    """Each worker continues from everything before it."""
    members = roles.members(3)
    if len(members) == 1:
        return Plan((Step(ANSWER, members[0]),))
    first = "Make a first attempt at the question. Leave open what you are not sure of, and say so."
    further = "Work on from there: settle what is open, correct what is wrong, and hand on the whole."
    last = "Settle what is still open and give the final answer to the question."
    tasks = [first, *[further] * (len(members) - 2), last]
    return Plan(tuple(Step(tasks[i], member, tuple(range(i))) for i, member in enumerate(members)))


def fan_out_join(roles: RoleAssignment) -> Plan:
    """Independent answers, then one worker that sees them all."""
    members = roles.members(3)
    task = "Compare these answers, take the best of each, and give one final answer to the question."
    return _with_join([Step(ANSWER_ALONE, member) for member in members], task, roles.role("join", roles.joiner))


def planner_executor_verifier(roles: RoleAssignment) -> Plan:
    """One worker plans, one carries out, one checks."""
    plan = "Make a short plan for answering the question: the parts, their order, what to watch out for. No answer yet."
    carry_out = "Carry out this plan and answer the question."
    verify = "Check this answer against the question. If it holds, repeat it; if not, give the right one. Answer only."
    return Plan(
        (
            Step(plan, roles.role("planner", roles.most_expensive)),
            Step(carry_out, roles.role("executor", roles.cheapest), (0,)),
            Step(verify, roles.role("verifier", roles.most_expensive), (0, 1)),
        )
    )


def vote(roles: RoleAssignment) -> Plan:
    """Independent answers, then the most frequent one; self-consistency where there is one worker."""
    members = roles.members(3)
    task = "State the answer that most of these give. Do not judge and do not add anything."
    return _with_join([Step(ANSWER_ALONE, member) for member in members], task, roles.role("join", roles.joiner))


def mixture_of_agents(roles: RoleAssignment) -> Plan:
    """Two layers of two and an aggregator (Wang et al., arXiv 2406.04692, as far as five steps go)."""
    first, second = roles.pair()
    improve = "You see two answers of others. Be critical of both and write a better one."
    aggregate = "Bring these answers together into one that is accurate and complete. Give only that answer."
    return Plan(
        (
            Step(ANSWER_ALONE, first),
            Step(ANSWER_ALONE, second),
            Step(improve, first, (0, 1)),
            Step(improve, second, (0, 1)),
            Step(aggregate, roles.role("aggregator", roles.most_expensive), (2, 3)),
        )
    )


def debate(roles: RoleAssignment) -> Plan:
    """Two workers answer, each replies to the other, a judge decides (Du et al., arXiv 2305.14325, one exchange)."""
    one, other = roles.pair()
    reply = "You see your answer and another's. Say where they differ and who is right, then state your answer."
    decide = "You see two debaters' answers and replies. Decide who is right and give the final answer only."
    return Plan(
        (
            Step(ANSWER_ALONE, one),
            Step(ANSWER_ALONE, other),
            Step(reply, one, (0, 1)),
            Step(reply, other, (0, 1)),
            Step(decide, roles.role("judge", roles.most_expensive), (0, 1, 2, 3)),
        )
    )


def best_of_n(roles: RoleAssignment) -> Plan:
    """Independent attempts of one worker, and a judge that picks one."""
    members = roles.members(3, (roles.cheapest,))
    task = "Pick the best of these attempts and repeat its answer unchanged. Make no new one."
    return _with_join(
        [Step(ANSWER_ALONE, member) for member in members], task, roles.role("judge", roles.most_expensive)
    )


def role_team(roles: RoleAssignment) -> Plan:
    """Analyst, maker, critic and editor, with agreed fields in what they pass on."""
    brief = (
        "You are the analyst. Hand over a JSON object with the keys goal, facts, constraints and open_points. "
        "Do not answer the question."
    )
    draft = "You are the maker. Work from the brief. Hand over a JSON object with the keys answer and reasons."
    critique = (
        "You are the critic. Compare the draft with the brief and the question. "
        "Hand over a JSON object with the keys verdict (keep or change), mistakes and improvements."
    )
    final = "You are the editor. Apply what is right in the critique and give the final answer, in plain form, no JSON."
    return Plan(
        (
            Step(brief, roles.role("analyst", roles.most_expensive)),
            Step(draft, roles.role("maker", roles.cheapest), (0,)),
            Step(critique, roles.role("critic", roles.most_expensive), (0, 1)),
            Step(final, roles.role("editor", roles.cheapest), (0, 1, 2)),
        )
    )


def map_reduce(roles: RoleAssignment) -> Plan:
    """One worker lists the parts, one works on each of them, one brings the results together."""
    split = "List the parts of the task that can be worked on one by one, each with what is needed to work on it."
    work = "Do what the task asks for this one part of it."
    join = "Bring the results for the parts together into the final answer to the task."
    return Plan(
        (
            Step(split, roles.role("list", roles.most_expensive)),
            Step(work, roles.role("each", roles.cheapest), (0,), 0),
            Step(join, roles.role("join", roles.most_expensive), (0, 1)),
        )
    )


def _with_join(steps: list[Step], subtask: str, joiner: int) -> Plan:
    return Plan((*steps, Step(subtask, joiner, tuple(range(len(steps))))))


PlanBuilder: TypeAlias = Callable[[RoleAssignment], Plan]


@dataclass(frozen=True, slots=True)
class Topology:
    """A plan builder, the roles that options can name, and which of `workers` and `n` it takes.

    `joins`: its last step only chooses among the answers that it sees, so the engine may skip it where they agree.
    """

    build: PlanBuilder
    roles: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    joins: bool = False


TOPOLOGIES: Mapping[str, Topology] = {
    "single": Topology(single, ("worker",)),
    "chain": Topology(chain, takes=("workers", "n")),
    "fan-out-join": Topology(fan_out_join, ("join",), ("workers", "n")),
    "planner-executor-verifier": Topology(planner_executor_verifier, ("planner", "executor", "verifier")),
    "vote": Topology(vote, ("join",), ("workers", "n"), joins=True),
    "mixture-of-agents": Topology(mixture_of_agents, ("aggregator",), ("workers",)),
    "debate": Topology(debate, ("judge",), ("workers",), joins=True),
    "best-of-n": Topology(best_of_n, ("judge",), ("workers", "n"), joins=True),
    "map": Topology(map_reduce, ("list", "each", "join")),
    "role-team": Topology(role_team, ("analyst", "maker", "critic", "editor")),
}
