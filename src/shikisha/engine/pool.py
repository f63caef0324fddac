"""The pool: the closed, ordered registry of the workers that one run may use.

Invariant 1: a worker outside the pool is never called, whatever any text says: the engine takes workers from here
only, by ordinal (plans) or by exact name (fallbacks, escalations, checks); there is no matching of parts of names.
Deliberately absent: adding or removing. A different pool is a different object.

Where an agent's tools come from, behind one port, and who performs a call.

Checks: what must hold of a step's output before anyone downstream sees it, behind one method.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.events import OnCheckFailure
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.json_schema import SchemaCheck, parse_json, storable_reason
from shikisha.core.messages import Json
from shikisha.core.run import CheckVerdict
from shikisha.core.task import Task
from shikisha.core.tools import FIND_TOOLS, Tool, catalogue_sha256
from shikisha.engine.guards import Guard
from shikisha.engine.worker import Card, Worker


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a check sees: task, subtask, answer; `ask(name, question, schema=None)` puts a question to a worker."""

    task: Task
    subtask: str
    text: str
    ask: Callable[..., Awaitable[str]] | None = field(default=None, compare=False)


class Check(Protocol):
    """The one method, and the name that verdicts carry."""

    @property
    def name(self) -> str:
        """The check's name in journals and explanations."""
        ...

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Judge the answer."""
        ...


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """A check and what its failure leads to; `redo` bounds how often the worker is asked again."""

    check: Check
    on_fail: OnCheckFailure = OnCheckFailure.REDO
    redo: int = 1


@dataclass(frozen=True, slots=True)
class Member:
    """A worker, its card, the checks on its output (`handoffs`), and the worker that undoes its effects (`undo`).

    No plan can name that one: it need not be in any pool, and only rollbacks call it. `guards` decide on each call of
    the worker as a tool. `agent`: the worker has tools, and is called until it needs none any more. `schema`: the JSON
    Schema that each of its answers must fit, whatever the client's is.
    """

    card: Card
    worker: Worker
    handoffs: tuple[OutputCheck, ...] = ()
    undo: "Member | None" = None
    guards: tuple[Guard, ...] = ()
    agent: "Agent | None" = None
    schema: "Mapping[str, Json] | None" = None


class Pool:
    """Members in order; an ordinal is a place in this order."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = tuple(members)
        self._cards = tuple(member.card for member in self._members)
        self._ordinals = {member.card.name: ordinal for ordinal, member in enumerate(self._members)}
        if len(self._ordinals) < len(self._members):
            names = [member.card.name for member in self._members]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(f"worker names must be unique in a pool; twice: {', '.join(twice)}")
        for card in self.cards:
            for other in (card.fallback, card.escalate):
                if other is not None and other not in self._ordinals:
                    raise UnknownName(f"stand-in of worker {card.name!r}", other, self._ordinals)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def __getitem__(self, ordinal: int) -> Member:
        if not 0 <= ordinal < len(self._members):
            raise UnknownName("worker ordinal", str(ordinal), map(str, range(len(self))))
        return self._members[ordinal]

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names in order."""
        return tuple(self._ordinals)

    @property
    def cards(self) -> tuple[Card, ...]:
        """The workers' cards in order."""
        return self._cards

    def named(self, name: str) -> Member:
        """Return the member of exactly this name."""
        return self._members[self.ordinal(name)]

    def ordinal(self, name: str) -> int:
        """Return the ordinal of the worker of exactly this name."""
        if name not in self._ordinals:
            raise UnknownName("worker", name, self._ordinals)
        return self._ordinals[name]

    def subset(self, names: Sequence[str]) -> "Pool":
        """Return the pool of these members, in the order given; stand-ins outside it are cut off."""
        return Pool([cut_outside_stand_ins(self.named(name), names) for name in names])


def cut_outside_stand_ins(member: Member, names: Sequence[str]) -> Member:
    """Return the member with no stand-in that is not among these names."""
    card = member.card
    fallback = card.fallback if card.fallback in names else None
    escalate = card.escalate if card.escalate in names else None
    if (fallback, escalate) == (card.fallback, card.escalate):
        return member
    return replace(member, card=replace(card, fallback=fallback, escalate=escalate))


class ToolSource(Protocol):
    """A closed set of tools: a catalogue, or a list of workers."""

    @property
    def name(self) -> str:
        """The name that journals carry (`@crm`)."""
        ...

    async def pin(self) -> str:
        """Return the SHA-256 of everything in it; WorkerError when it cannot be had or is not what was pinned."""
        ...

    async def count(self) -> int:
        """Return how many tools there are."""
        ...

    async def search(self, query: str, limit: int) -> Sequence[Tool]:
        """Return the tools that fit best, the best first, no more than `limit`; all of them where there are no more."""
        ...

    async def find(self, name: str) -> Tool | None:
        """Return the tool of exactly this name; None where there is none."""
        ...

    async def member(self, tool: Tool) -> Member:
        """Return who performs a call of this tool: its worker gets the arguments as JSON in `Request.subtask`."""
        ...


class ToolList:
    """Tools given one by one, each with who performs it."""

    def __init__(self, pairs: Sequence[tuple[Tool, Member]], name: str = "tools") -> None:
        self._name = name
        self._tools = {tool.name: (tool, member) for tool, member in pairs}
        if len(self._tools) < len(pairs) or FIND_TOOLS in self._tools:
            names = [tool.name for tool, _ in pairs]
            twice = sorted({each for each in names if names.count(each) > 1 or each == FIND_TOOLS})
            raise ConfigError(f"{name}: names of tools must be unique, and none is {FIND_TOOLS}: {', '.join(twice)}")

    @property
    def name(self) -> str:
        """The name that journals carry."""
        return self._name

    @property
    def members(self) -> tuple[Member, ...]:
        """Who performs the tools, in order."""
        return tuple(member for _, member in self._tools.values())

    async def pin(self) -> str:
        """Return the SHA-256 of everything in it."""
        return catalogue_sha256([tool for tool, _ in self._tools.values()])

    async def count(self) -> int:
        """Return how many tools there are."""
        return len(self._tools)

    async def search(self, query: str, limit: int) -> Sequence[Tool]:
        """Return the tools in order; where there are more than `limit`, those first that share most words with it."""
        tools = [tool for tool, _ in self._tools.values()]
        if len(tools) > limit:
            words = set(query.casefold().split())
            tools.sort(key=lambda tool: -len(words.intersection(f"{tool.name} {tool.description}".casefold().split())))
        return tools[:limit]

    async def find(self, name: str) -> Tool | None:
        """Return the tool of exactly this name."""
        return self._tools[name][0] if name in self._tools else None

    async def member(self, tool: Tool) -> Member:
        """Return who performs a call of this tool."""
        if tool.name not in self._tools:
            raise UnknownName(f"tool of {self._name}", tool.name, self._tools)
        return self._tools[tool.name][1]


class ArgumentChecks:
    """Reads the arguments that models write, against the schemas of tools; each schema is compiled once."""

    _MOST = 1_000  # schemas that are kept compiled: a catalogue may have very many

    def __init__(self) -> None:
        self._compiled: dict[str, SchemaCheck] = {}

    async def read(self, tool: Tool, text: str) -> Mapping[str, Json] | str:
        """Return the arguments, or what is wrong with them, and where."""
        arguments = self.parse(text)
        if not isinstance(arguments, dict):
            return arguments if isinstance(arguments, str) else "expected a JSON object"
        try:
            problem = await (await self._check(tool)).problem(arguments)
        except ConfigError as error:
            problem = f"the tool cannot be called: {error}"
        except TimeoutError as error:
            problem = f"whether they fit the tool's schema is {error}"
        return arguments if problem is None else storable_reason(problem)

    async def schema_problem(self, tool: Tool) -> str | None:
        """Return why no arguments can be checked against the tool's schema; None where they can be."""
        if tool.schema.get("type", "object") != "object":
            return f"its schema is of type {tool.schema['type']!r}: expected an object"[:200]
        try:
            await self._check(tool)
        except ConfigError as error:
            return storable_reason(str(error))
        return None

    @staticmethod
    def parse(text: str) -> "Json":
        """Return the JSON object in this text, or what is wrong with it as a text; no text stands for no arguments."""
        try:
            value = parse_json(text or "{}")
        except (ValueError, RecursionError) as error:
            return storable_reason(f"no JSON: {error}")
        return value if isinstance(value, dict) else f"expected a JSON object, not {type(value).__name__}"

    async def _check(self, tool: Tool) -> SchemaCheck:
        check = self._compiled.get(tool.sha256)
        if check is None:
            check = await SchemaCheck.create(tool.schema, f"tool {tool.name!r}: schema")
            if len(self._compiled) >= self._MOST:
                self._compiled.clear()
            self._compiled[tool.sha256] = check
        return check


@dataclass(frozen=True, slots=True)
class Agent:
    """What makes a worker an agent: the sources of its tools, and the bounds of its loop.

    `turns` is how often it is asked in one step; in the last turn it is offered no tools. `offer` is how many tools it
    is offered at once; where the sources hold more, it may search them. `parallel`: several calls at once. `window` is
    what it is assumed to read where its card does not say, in tokens.
    """

    sources: tuple[ToolSource, ...]
    turns: int = 12
    offer: int = 15
    parallel: bool = True
    window: int = 128_000
    checks: ArgumentChecks = field(default_factory=ArgumentChecks, compare=False, repr=False)
